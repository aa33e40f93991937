"""Parsing: DuckDB's dialect and the extensions of privsql.

    SELECT WITH RECONSTRUCTION OPTIONS (estimator = 'iterative') ...   options of one query
    EXPLAIN RECONSTRUCTION [VERBOSE] SELECT ...                        the plan, not the answer
    SET privsql.confidence_level = 0.9;  RESET ...;  SHOW ...          settings of a session
    DESCRIBE t;  SHOW TABLES;  SUMMARIZE t                             tables (``parse.about``)

Ours are cut out of the token stream before sqlglot parses the rest, so places in the text
stay the analyst's own and comments, strings and quoted names can never be taken for them.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from difflib import get_close_matches
from itertools import islice

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

from privsql.errors import Place, ProgrammingError, TooLargeError, too_deep
from privsql.sql.parse.about import about_query, read_about
from privsql.sql.parse.lexing import DUCKDB, tokens_of
from privsql.sql.parse.written_out import at_time

# Deeper nesting than this is no analyst's question, and Python's stack is finite.
DEEPEST = 100

# Characters of a word that an error repeats.
LONGEST_WORD = 60

# A chain (a AND b AND ...) is a tree as deep as it is long; so much longer than nesting it may be.
CHAINED = 5


class SyntaxMistake(ProgrammingError, code="syntax", sqlstate="42601"):  # noqa: N818
    """The text is not valid SQL in DuckDB's dialect."""


@dataclass(frozen=True)
class Statement:
    """One statement: what kind it is, its tree, and what it sets for itself."""

    text: str
    kind: str  # query | set | reset | show | explain, or one of ``parse.about``
    source: str = ""  # all that was given: places are counted in it
    tree: exp.Expr | None = None
    plain: str = ""  # the query without our words, blanked so that places stay
    options: dict[str, object] = field(default_factory=dict)
    name: str = ""  # of a setting or a table
    value: object = None
    clocked: bool = False  # the time at which it began is in the tree
    verbose: bool = False  # of an explanation for people: with cells, channels and SQL


_HINT = "privsql reads DuckDB's dialect of SQL"

# Words that begin a statement of DuckDB and are no keywords of sqlglot's: refused as not served.
_WORDS = "CALL CHECKPOINT DEALLOCATE EXPORT FORCE IMPORT INSTALL LOAD RELEASE VACUUM"
_STATEMENTS = frozenset(_WORDS.split())

# A statement that it does not know is refused by us; its own warning helps nobody.
logging.getLogger("sqlglot").setLevel(logging.ERROR)

_EXPLAIN = re.compile(r"EXPLAIN\b(\s+RECONSTRUCTION\b)?(\s+VERBOSE\b)?", re.IGNORECASE)
_SETTING = re.compile(r"(RESET|SHOW)\s+([\w.]+)\s*$", re.IGNORECASE)


def statements(
    text: str, *, characters: int | None = None, depth: int = DEEPEST
) -> list[Statement]:
    """Split at semicolons and parse each part.

    >>> [one.kind for one in statements("SET privsql.estimator = 'auto'; SELECT 1 -- ;")]
    ['set', 'query']
    """
    return [_statement(text, tokens, depth) for tokens in _split(text, characters)]


def only(text: str, *, characters: int | None = None, depth: int = DEEPEST) -> Statement:
    """The one statement of a text; several are refused before any of them is parsed."""
    found = list(islice(_split(text, characters), 2))
    if len(found) != 1:
        raise ProgrammingError(
            "there are several statements" if found else "there is no statement",
            hint="ask one at a time",
        )
    return _statement(text, found[0], depth)


def begun(statement: Statement, moment: datetime) -> Statement:
    """A statement with the time at which it begins in place of ``now()`` and its like."""
    if statement.tree is None:
        return statement
    tree = at_time(statement.tree, moment)
    return statement if tree is None else replace(statement, tree=tree, clocked=True)


def parts(text: str, *, characters: int | None = None) -> list[str]:
    """The text of each statement, without parsing it."""
    return [text[tokens[0].start : tokens[-1].end + 1] for tokens in _split(text, characters)]


def _split(text: str, characters: int | None = None) -> Iterator[list[Token]]:
    check_text(text, characters)
    try:
        tokens = tokens_of(text)
    except SqlglotError:
        raise SyntaxMistake("the text cannot be read: a quote or a comment is not closed") from None
    return filter(None, _between(tokens, TokenType.SEMICOLON))


def check_text(text: object, characters: int | None) -> None:
    """Refuse what is no text, too long a one, or one that no database would take.

    Halves of characters are no text for a database, and NUL ends one early for some.
    """
    if not isinstance(text, str):
        raise ProgrammingError(
            f"a statement must be a str, not {type(text).__name__}", hint="give it as a str"
        )
    if characters is not None and len(text) > characters:
        raise TooLargeError(
            f"the text is longer than {characters} characters",
            hint="give long lists of values as a public table, and ask in several statements",
        )
    odd = re.search("[\\0\ud800-\udfff]", text)
    if odd is not None:
        raise SyntaxMistake(
            "the text contains a character that no database accepts",
            hint="leave out NUL and unpaired surrogates; values can be given as parameters",
            place=Place(text.encode("utf-8", "replace").decode(), *odd.span()),
        )


def _words(tokens: Sequence[Token], *words: str, at: int = 0) -> bool:
    return len(tokens) >= at + len(words) and all(
        tokens[at + i].text.upper() == word and tokens[at + i].token_type is not TokenType.STRING
        for i, word in enumerate(words)
    )


def _statement(text: str, tokens: list[Token], depth: int) -> Statement:
    first, last = tokens[0].start, tokens[-1].end + 1
    whole = text[first:last]
    if match := _EXPLAIN.match(whole):
        # DuckDB's own EXPLAIN would show a plan that nobody runs: ours is meant.
        inner = _rest(text, tokens, match.end(), depth)
        parts = (whole, "explain", text, inner.tree, inner.plain, inner.options)
        return Statement(*parts, verbose=match[2] is not None)
    if _words(tokens, "SET"):
        name, value = _assignment(text, tokens[1:])
        return Statement(whole, "set", name=name, value=value)
    if (asked := read_about(whole)) is not None:
        return Statement(whole, asked.kind, text, name=asked.name)
    if match := _SETTING.match(whole):
        return Statement(whole, match[1].lower(), text, name=match[2].lower())
    if (about := about_query(whole)) is not None:
        kind, at = about
        inner = _rest(text, tokens, at, depth)
        return Statement(whole, kind, text, inner.tree, inner.plain, inner.options)
    return _query(text, tokens, depth)


def _rest(text: str, tokens: Sequence[Token], at: int, depth: int) -> Statement:
    """The query after the first words of a statement, every place kept.

    sqlglot takes what follows some words for one long string, so they are blanked and the rest
    is read again.
    """
    first, last = tokens[0].start, tokens[-1].end + 1
    blank = " " * (first + at) + text[first + at : last]
    rest = next(_split(blank), None)
    if rest is None:
        raise SyntaxMistake(
            f"{tokens[0].text.upper()} needs a query", place=_place(text, tokens[-1])
        )
    return replace(_query(blank, rest, depth), source=text)


def _query(text: str, tokens: list[Token], depth: int) -> Statement:
    options: dict[str, object] = {}
    kept: list[Token] = []
    _check_first(text, tokens)
    first, last = tokens[0].start, tokens[-1].end + 1
    blanked = list(text[first:last])
    i = 0
    while i < len(tokens):
        kept.append(tokens[i])
        i += 1
        if not (
            kept[-1].token_type is TokenType.SELECT
            and _words(tokens, "WITH", "RECONSTRUCTION", "OPTIONS", "(", at=i)
        ):
            continue
        start = i
        i = _closing(text, tokens, i + 3)
        for part in _between(tokens[start + 4 : i - 1], TokenType.COMMA):
            name, value = _assignment(text, part)
            options[name] = value
        for at in range(tokens[start].start - first, tokens[i - 1].end + 1 - first):
            blanked[at] = blanked[at] if blanked[at] == "\n" else " "
    tree = tree_of(_numbered(kept), text, DUCKDB, text, _HINT, depth)
    return Statement(text[first:last], "query", text, tree, "".join(blanked), options)


# Words that begin a statement, and words that begin its parts, as an error may suggest them.
_BEGINNINGS = [
    "SELECT",
    "WITH",
    "FROM",
    "VALUES",
    "EXPLAIN",
    "DESCRIBE",
    "SHOW",
    "SUMMARIZE",
    "SET",
    "RESET",
    "PIVOT",
]
_PARTS = (
    *("SELECT", "FROM", "WHERE", "GROUP BY", "GROUP", "ORDER BY", "ORDER", "HAVING", "LIMIT"),
    *("JOIN", "OFFSET", "UNION", "QUALIFY", "USING", "BETWEEN", "DISTINCT"),
)


def did_you_mean(word: str, words: Sequence[str]) -> str | None:
    """The word of SQL that is nearest to another, as a question.

    >>> did_you_mean("selct", ["SELECT", "WITH"]), did_you_mean("patients", ["SELECT", "WITH"])
    ('did you mean SELECT?', None)
    """
    near = get_close_matches(word.upper(), words, n=1, cutoff=0.7)
    return f"did you mean {near[0]}?" if near else None


def unreadable_start(word: str, hint: str, place: Place) -> SyntaxMistake:
    """A statement begins with no word of SQL."""
    return _unreadable(word, did_you_mean(word, _BEGINNINGS) or hint, place)


def _check_first(text: str, tokens: Sequence[Token]) -> None:
    """Refuse a statement that begins with no word of SQL, at that word: ``selct 1``."""
    first = next((t for t in tokens if t.token_type is not TokenType.L_PAREN), tokens[0])
    if first.token_type is TokenType.VAR and first.text.upper() not in _STATEMENTS:
        raise unreadable_start(first.text[:LONGEST_WORD], _HINT, _place(text, first))


def _unreadable(word: str, hint: str, place: Place) -> SyntaxMistake:
    near = f" near {word!r}" if word else ""
    return SyntaxMistake(f"the query cannot be read{near}", hint=hint, place=place)


def tree_of(
    tokens: list[Token], text: str, dialect: Dialect, prepared: str, hint: str, depth: int
) -> exp.Expr:
    """The tree of one statement, or a refusal; ``prepared`` is what the tokens are of."""
    _check_nesting(tokens, depth)
    try:
        trees = dialect.parser().parse(tokens, prepared)
    except ParseError as problem:
        raise _mistake(text, problem, hint, tokens) from None
    except RecursionError:
        raise too_deep("the query nests too deeply") from None
    except SqlglotError:
        raise SyntaxMistake("the query cannot be read", hint=hint) from None
    if not trees or trees[0] is None:
        raise SyntaxMistake("there is no statement here")
    _check_chains(trees[0], CHAINED * depth)
    return trees[0]


OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)
_BEFORE = (TokenType.NOT, TokenType.DASH, TokenType.PLUS, TokenType.TILDE, TokenType.INTERVAL)


def _check_nesting(tokens: Sequence[Token], deepest: int) -> None:
    """Refuse what nests too deeply before anything recurses into it.

    Brackets, CASE and the signs that stand before an operand in a row nest.
    """
    brackets = cases = signs = 0
    for token in tokens:
        kind = token.token_type
        brackets += (kind in OPENING) - (kind in CLOSING)
        # A stray END, a column of that name, must not make room for more.
        cases = max(0, cases + (kind is TokenType.CASE) - (kind is TokenType.END))
        signs = signs + 1 if kind in _BEFORE else 0
        if brackets + cases + signs > deepest:
            raise too_deep(f"the query nests deeper than {deepest} levels")


def _check_chains(tree: exp.Expr, deepest: int) -> None:
    """Refuse trees that are too deep to be looked at: chains of operators are trees as well."""
    level: list[exp.Expr] = [tree]
    for _ in range(deepest):
        level = [child for node in level for child in node.iter_expressions()]
        if not level:
            return
    raise too_deep(f"the query chains more than {deepest} operators or arms")


def _numbered(tokens: list[Token]) -> list[Token]:
    """``?`` as ``$1, $2, ...`` in the order of the text, which a tree no longer has."""
    found: list[Token] = []
    count = 0
    for token in tokens:
        if token.token_type is not TokenType.PLACEHOLDER or token.text != "?":
            found.append(token)
            continue
        count += 1
        for kind, word in ((TokenType.PARAMETER, "$"), (TokenType.NUMBER, str(count))):
            found.append(
                Token(kind, word, line=token.line, col=token.col, start=token.start, end=token.end)
            )
    return found


def _closing(text: str, tokens: Sequence[Token], at: int) -> int:
    """Position after the parenthesis that closes the one at ``at``."""
    depth = 0
    for i in range(at, len(tokens)):
        depth += tokens[i].token_type is TokenType.L_PAREN
        depth -= tokens[i].token_type is TokenType.R_PAREN
        if depth == 0:
            return i + 1
    raise SyntaxMistake("a parenthesis is not closed", place=_place(text, tokens[at]))


def _between(tokens: Sequence[Token], sign: TokenType) -> list[list[Token]]:
    """The tokens between those of one type."""
    found: list[list[Token]] = [[]]
    for token in tokens:
        if token.token_type is sign:
            found.append([])
        else:
            found[-1].append(token)
    return found


def _assignment(text: str, tokens: Sequence[Token]) -> tuple[str, object]:
    """Read ``name = value`` or ``name TO value``; the value is a word, text or number."""
    signs = [t.token_type is TokenType.EQ or t.text.upper() == "TO" for t in tokens]
    at = signs.index(True) if any(signs) else 0
    if at == 0 or at + 1 >= len(tokens):
        where = _place(text, tokens[0]) if tokens else None
        raise SyntaxMistake("a setting is written name = value", place=where)
    name = "".join(token.text for token in tokens[:at]).lower()
    for scope in ("session", "global", "local"):
        name = name.removeprefix(scope) if name.startswith(scope + "privsql.") else name
    value = "".join(token.text for token in tokens[at + 1 :])
    if len(tokens) == at + 2 and tokens[at + 1].token_type is TokenType.STRING:
        return name, value
    lowered = value.lower()
    if lowered in ("true", "on", "false", "off"):
        return name, lowered in ("true", "on")
    try:
        return name, float(value)
    except ValueError:
        return name, value


def _place(text: str, token: Token) -> Place:
    return Place(text, token.start, token.end + 1)


def _mistake(text: str, problem: ParseError, hint: str, tokens: Sequence[Token]) -> SyntaxMistake:
    """A syntax error at the word where reading stopped, or at a misspelt one just before it."""
    if not problem.errors:
        return SyntaxMistake("the query cannot be read", hint=hint)
    first = problem.errors[0]
    line, column = int(first.get("line") or 1), int(first.get("col") or 1)
    word = str(first.get("highlight") or "")[:LONGEST_WORD]
    lines = text.split("\n")
    start = sum(len(part) + 1 for part in lines[: line - 1]) + max(column - len(word), 0)
    start = min(start, max(len(text) - 1, 0))
    for token in _suspects(tokens, start):
        if meant := did_you_mean(token.text, _PARTS):
            return _unreadable(token.text[:LONGEST_WORD], meant, _place(text, token))
    return _unreadable(word, hint, Place(text, start, start + max(len(word), 1)))


# What stands before a name, which is no misspelt word of SQL.
_BEFORE_NAMES = (TokenType.FROM, TokenType.JOIN, TokenType.COMMA, TokenType.DOT, TokenType.ALIAS)


def _suspects(tokens: Sequence[Token], start: int) -> Iterator[Token]:
    """The word where reading stopped and the one before it, where they may be meant as keywords."""
    at = next((i for i, token in enumerate(tokens) if token.start >= start), len(tokens) - 1)
    for i in (at, at - 1):
        if 0 < i < len(tokens) and tokens[i].token_type is TokenType.VAR:
            named = tokens[i - 1].token_type in _BEFORE_NAMES
            if not named and not tokens[i].text.lower().endswith("s"):
                yield tokens[i]
