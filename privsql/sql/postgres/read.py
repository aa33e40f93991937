"""PostgreSQL's dialect: a client's text as commands for the server.

text ── words ──> statements ── utility ──> SET, BEGIN, DECLARE, ...
                             ── parse ────> tree ── route ──> query | catalog | constant
                                                 ── names ──> columns as PostgreSQL names them
                                                 ── rewrite ─> DuckDB's text

Every column gets its PostgreSQL name as an alias, in sub-selects as well, so that
``SELECT t.count FROM (SELECT COUNT(*) FROM sales) t`` finds it.  Nothing here guards anything:
a session reads the text again and decides.  But what is not understood is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.dialects.postgres import Postgres
from sqlglot.errors import ErrorLevel, SqlglotError, UnsupportedError
from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

from privsql.errors import Place, TooLargeError
from privsql.sql.parse import statement as parse
from privsql.sql.parse.about import ALL_TABLES, TABLES, read_about
from privsql.sql.parse.lexing import changed, signs, tokens_of
from privsql.sql.postgres.catalog import ForCatalog, kind_of, settings
from privsql.sql.postgres.clock import Clock
from privsql.sql.postgres.commands import Command, NotTranslated
from privsql.sql.postgres.division import Columns, divide
from privsql.sql.postgres.functions.scalars import PLAIN
from privsql.sql.postgres.lexer import NAME, PARAMETER, SIGN, Word, mistake, split
from privsql.sql.postgres.names import name_of_column, origins_of
from privsql.sql.postgres.rewrite import Rewriting, names_of_values
from privsql.sql.postgres.rounding import round_halves
from privsql.sql.postgres.statements import Utility

__all__ = ["Command", "read"]

_HINT = "privsql reads PostgreSQL's dialect of SQL here"


class _Postgres(Postgres):
    """Reads patterns of times as they are: sqlglot would keep what it does not know."""

    TIME_MAPPING: dict[str, str] = {}  # noqa: RUF012 - as the parent has it

    class Tokenizer(Postgres.Tokenizer):
        HEREDOC_STRINGS: ClassVar[list[str | tuple[str, str]]] = []
        SINGLE_TOKENS: ClassVar[dict[str, TokenType]] = signs(Postgres.Tokenizer)


_DIALECT = _Postgres()

# What follows SELECT where options of one query do.
_OPTIONS = ["with", "reconstruction", "options", "("]

# Before the name of a function that sqlglot would read in its own way, while the text is parsed:
# no name has it.  (A parser with fewer functions would be a subclass, and those of a compiled
# sqlglot have none.)
_AS_WRITTEN = "\0"

# The error bars of an estimate.
_OURS = "privsql_"

# Words that begin a query.
_QUERIES = ("select", "with", "values", "table")

# Words that begin the other statements of PostgreSQL, which are not served.
_OTHERS = """
    alter analyze call checkpoint cluster comment copy create delete do drop grant import insert
    load lock merge reassign refresh reindex revoke security truncate update vacuum
"""
_STATEMENTS = frozenset(_OTHERS.split())

# Types that sqlglot cannot make arrays of; PostgreSQL calls an array of oid _oid as well.
_NO_ARRAYS = ("oid", "name", "regclass", "regtype", "regproc", "regnamespace", "regrole", "xid")


def read(
    text: str, columns: Columns | None = None, *, characters: int | None = None
) -> list[Command]:
    """The commands of a text; ``columns`` are the types of the published tables' columns.

    >>> [made] = read('SELECT count(*), Region FROM public.sales GROUP BY 2')
    >>> made.kind, made.names, made.text
    ('query', ('count', 'region'), 'SELECT COUNT(*) AS count, region FROM sales GROUP BY 2')
    """
    parse.check_text(text, characters)
    reader = _Reader(columns or {})
    return [reader.read(text, part) for part in split(text)] or [Command("empty")]


@dataclass(frozen=True)
class _Reader:
    columns: Columns

    def read(self, text: str, words: Sequence[Word]) -> Command:
        start, stop = words[0].start, words[-1].stop
        made = self._one(text, words)
        return replace(
            made,
            original=text[start:stop],
            start=start,
            parameters=_parameters(words),
            tag=made.tag or "SELECT",
        )

    def _one(self, text: str, words: Sequence[Word]) -> Command:
        first = next((w for w in words if not (w.kind == SIGN and w.value == "(")), words[0])
        if first.says(*_QUERIES):
            return self._query(text, words)
        if first.says("explain"):
            return self._explain(text, words)
        if first.says("describe", "desc", "summarize", "show"):
            asked = _about(text[words[0].start : words[-1].stop])
            if asked is not None:
                return asked
        if first is words[0] and first.says("describe", "desc", "summarize"):
            return self._about_query(text, words)
        made = Utility(text, words, self.read).read()
        if made is not None:
            return made
        if first.kind != NAME:
            raise mistake("this is not a statement", text, first.start, first.stop, _HINT)
        if first.value not in _STATEMENTS:
            place = Place(text, first.start, first.stop)
            raise parse.unreadable_start(first.value[: parse.LONGEST_WORD], _HINT, place)
        word = first.value.upper()
        return Command("other", name=word, tag=word)

    def _explain(self, text: str, words: Sequence[Word]) -> Command:
        ours = len(words) > 1 and words[1].says("reconstruction")
        rest = words[2:] if ours else words[1:]
        if rest and rest[0].says("verbose"):  # rows for a program have all of it anyway
            rest = rest[1:]
        if not rest:
            raise mistake("EXPLAIN needs a query", text, words[0].start, words[0].stop)
        inner = self.read(text, rest)
        if inner.kind != "query":
            raise NotTranslated(
                "only queries of published tables are explained",
                place=Place(text, words[0].start, words[0].stop),
            )
        return replace(
            inner,
            text=f"EXPLAIN RECONSTRUCTION {inner.text}",
            names=None,
            origins=(),
            tag="EXPLAIN",
        )

    def _about_query(self, text: str, words: Sequence[Word]) -> Command:
        """``DESCRIBE SELECT ...``: the query in DuckDB's dialect, described by its session."""
        first = words[0]
        word = first.value.upper()
        if len(words) == 1:
            raise mistake(f"{word} needs a query", text, first.start, first.stop)
        begins = next((w for w in words[1:] if not (w.kind == SIGN and w.value == "(")), first)
        if not begins.says(*_QUERIES):
            found = text[begins.start : begins.stop][: parse.LONGEST_WORD]
            raise parse.unreadable_start(found, _HINT, Place(text, begins.start, begins.stop))
        inner = self._query(text, words[1:])
        if inner.kind != "query":
            raise NotTranslated(
                "only queries of published tables are described",
                place=Place(text, first.start, first.stop),
            )
        made = f"{word} {inner.text}"
        return replace(inner, text=made, names=None, origins=(), tag="SELECT")

    def _query(self, text: str, words: Sequence[Word]) -> Command:
        prepared, options = _prepared(text, words)
        tree = _parsed(prepared, text)
        kind, tables = kind_of(tree, text)
        configured = tuple(settings(tree))
        names = _named(tree, prepared)
        origins = origins_of(tree)
        if kind != "query":
            tree = ForCatalog(text).tree(tree)
        round_halves(tree, self.columns)
        tree = Rewriting(text, zoned=kind != "query").tree(tree)
        clock = Clock(text, _parameters(words) if kind == "query" else None)
        clock.tell(tree)
        divide(tree, self.columns)
        made = _printed(tree, text)
        if options:
            # After the first SELECT, where a session looks for it.
            made = made.replace("SELECT", f"SELECT {options}", 1)
        clocks = clock.types
        return Command(
            kind,
            text=made,
            names=names,
            tables=tables,
            settings=configured,
            origins=origins,
            clocks=clocks,
        )


def _parameters(words: Sequence[Word]) -> int:
    """The highest ``$n``."""
    return max((int(word.value) for word in words if word.kind == PARAMETER), default=0)


# The tables that somebody may query, from the catalog.
_SHOWN = {
    TABLES: """
        SELECT table_name::text AS name FROM information_schema.tables
        WHERE table_schema = 'public' ORDER BY 1
    """,
    ALL_TABLES: """
        SELECT table_catalog::text AS "database", table_schema::text AS "schema",
            table_name::text AS name,
            array_agg(column_name::text ORDER BY ordinal_position) AS column_names,
            array_agg(data_type::text ORDER BY ordinal_position) AS column_types,
            false AS "temporary"
        FROM information_schema.columns WHERE table_schema = 'public'
        GROUP BY table_catalog, table_schema, table_name ORDER BY 3
    """,
}


def _about(text: str) -> Command | None:
    """DuckDB's statements about tables: those of one table are for its session."""
    asked = read_about(text)
    if asked is None:
        return None
    if asked.name:
        return Command("query", text=text, tables=(asked.name,))
    return read(_SHOWN[asked.kind])[0]


def _prepared(text: str, words: Sequence[Word]) -> tuple[str, str]:
    """The statement alone with what sqlglot cannot read replaced, every place kept.

    ``pg_catalog`` before an operator, a type or a function says nothing more, and ``oid[]`` is
    ``_oid``.
    Our own ``WITH RECONSTRUCTION OPTIONS (...)`` is taken out and given back.
    """
    start, stop = words[0].start, words[-1].stop
    made = list(" " * start + text[start:stop])
    options = ""

    def blank(begin: int, end: int, by: str = "") -> None:
        made[begin:end] = by + " " * (end - begin - len(by))

    for at, word in enumerate(words):
        before, following = words[max(0, at - 2) : at], words[at + 1 : at + 6]
        if word.says("operator") and _signs(following, "(", None, "."):
            close = next((w for w in words[at + 3 :] if w.value == ")"), words[-1])
            blank(word.start, close.stop, text[words[at + 4].start : close.start].strip())
        elif word.says("pg_catalog") and _is_qualifier(before, following):
            blank(word.start, words[at + 1].stop)
        elif word.says(*_NO_ARRAYS) and _signs(following, "[", "]"):
            blank(word.start, words[at + 2].stop, f"_{word.value}")
        elif word.says("collate") and _signs(following, None, "."):
            blank(word.start, words[at + 3].stop)
        elif word.says("select") and [w.value for w in following[:4]] == _OPTIONS:
            last = words[_closing(words, at + 4)]
            options += text[words[at + 1].start : last.stop]
            blank(words[at + 1].start, last.stop)
    return "".join(made), options


def _is_qualifier(before: Sequence[Word], following: Sequence[Word]) -> bool:
    """Whether a schema's name stands before a type or a function, which need none."""
    call = _signs(following, ".", None, "(") and following[1].kind == NAME
    return _signs(following, ".") and (call or _signs(before, ":", ":"))


def _signs(words: Sequence[Word], *signs: str | None) -> bool:
    """Whether these signs follow; None stands for any word."""
    return len(words) >= len(signs) and all(
        sign is None or (word.kind == SIGN and word.value == sign)
        for word, sign in zip(words, signs, strict=False)
    )


def _closing(words: Sequence[Word], at: int) -> int:
    depth = 0
    for i in range(at, len(words)):
        if words[i].kind == SIGN:
            depth += (words[i].value == "(") - (words[i].value == ")")
        if depth == 0:
            return i
    return len(words) - 1


def _parsed(prepared: str, text: str) -> exp.Expr:
    try:
        tokens = _as_written(tokens_of(prepared, _DIALECT))
    except SqlglotError:
        raise parse.SyntaxMistake("the query cannot be read", hint=_HINT) from None
    tree = parse.tree_of(tokens, text, _DIALECT, prepared, _HINT, parse.DEEPEST)
    if not isinstance(tree, exp.Query | exp.Values):
        raise parse.SyntaxMistake("this is not a query", hint=_HINT)
    for call in tree.find_all(exp.Anonymous):
        if isinstance(call.this, str):
            call.set("this", call.this.removeprefix(_AS_WRITTEN))
    return tree


def _as_written(tokens: list[Token]) -> list[Token]:
    """Functions of ``PLAIN`` under names that sqlglot does not know."""
    for at, (token, following) in enumerate(pairwise(tokens)):
        if following.token_type is TokenType.L_PAREN and token.text.upper() in PLAIN:
            tokens[at] = changed(token, token.token_type, _AS_WRITTEN + token.text)
    return tokens


def _printed(tree: exp.Expr, text: str) -> str:
    try:
        generator = DuckDB().generator(comments=False, unsupported_level=ErrorLevel.RAISE)
        return str(generator.generate(tree, copy=False))
    except UnsupportedError:
        raise NotTranslated(
            "a part of this statement is not supported here", place=Place(text, 0, len(text))
        ) from None
    except RecursionError:
        raise TooLargeError(
            "the query nests too deeply", hint="ask in several statements"
        ) from None


def _named(tree: exp.Expr, text: str) -> tuple[str, ...] | None:
    """Give every column its name, in place; those of the statement itself are returned."""
    for select in tree.find_all(exp.Select):
        if _is_expression(select):
            continue
        for column in list(select.expressions):
            if not column.is_star and not isinstance(column, exp.Alias | exp.Column):
                name = name_of_column(column, text)
                if name.startswith(_OURS):
                    continue  # a session keeps these names for itself
                quoted = not (name.isidentifier() and name == name.lower())
                alias = exp.to_identifier(name, quoted=quoted)
                column.replace(exp.Alias(this=column.copy(), alias=alias))
    return _names(tree, text)


def _is_expression(select: exp.Select) -> bool:
    """Whether it stands where one value does, so that nobody sees its columns' names."""
    holder = select.parent
    while isinstance(holder, exp.SetOperation | exp.Subquery | exp.Paren) and not holder.alias:
        holder = holder.parent
    if isinstance(holder, exp.Subquery):
        holder = holder.parent
    return holder is not None and not isinstance(
        holder, exp.From | exp.Join | exp.CTE | exp.Lateral | exp.Table
    )


def _names(tree: exp.Expr, text: str) -> tuple[str, ...] | None:
    while isinstance(tree, exp.SetOperation | exp.Subquery):
        tree = tree.this
    if isinstance(tree, exp.Values):
        return names_of_values(tree)
    if not isinstance(tree, exp.Select):
        return None
    found: list[str] = []
    for column in tree.expressions:
        if column.is_star:
            inner = _star(tree, column, text)
            if inner is None:
                return None
            found += inner
        else:
            found.append(_folded(column, text))
    return tuple(found)


def _star(select: exp.Select, column: exp.Expr, text: str) -> tuple[str, ...] | None:
    """The columns of a star over one sub-select; those of tables are not known here."""
    first = select.args.get("from_")
    if first is None or select.args.get("joins") or select.args.get("laterals"):
        return None
    if isinstance(column, exp.Star) and (column.args.get("except_") or column.args.get("replace")):
        return None
    source = first.this
    if not isinstance(source, exp.Subquery):
        return None
    alias = source.args.get("alias")
    listed = alias.args.get("columns") if isinstance(alias, exp.TableAlias) else None
    if listed:
        return tuple(_folded(each, text) for each in listed)
    return _names(source.this, text)


def _folded(column: exp.Expr, text: str) -> str:
    node = column if isinstance(column, exp.Identifier) else column.args.get("alias") or column.this
    if isinstance(node, exp.Identifier):
        return str(node.name) if node.args.get("quoted") else node.name.lower()
    return column.alias_or_name or name_of_column(column, text)
