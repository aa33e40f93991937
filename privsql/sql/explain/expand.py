"""The papers' expansion of a conjunctive count into 2^k counts of published rows.

    SELECT COUNT(*) FROM patients WHERE disease = 'flu' AND age > 30 AND job = 'eng'

    not P1 and not P2    SELECT COUNT(*) FROM patients WHERE (disease = 'flu') IS NOT TRUE
                         AND (age > 30) IS NOT TRUE AND (job = 'eng')
    not P1 and P2        ... WHERE (disease = 'flu') IS NOT TRUE AND (age > 30) AND (job = 'eng')
    P1 and not P2        ... WHERE (disease = 'flu') AND (age > 30) IS NOT TRUE AND (job = 'eng')
    P1 and P2            ... WHERE (disease = 'flu') AND (age > 30) AND (job = 'eng')

Each conjunct on a sensitive column is a predicate P; its complement is ``(P) IS NOT TRUE``, which
NULL satisfies.  Public conditions stand in every query as they are.  In this order the counts
are the vector y of the papers, [not P, P] per predicate and the last one changing fastest, and
``y @ inv(kron(A1, ..., Ak))`` ends with the answer, A being the channel lumped to [not P, P].
(OLAP 4; reconstruction, 2 and 3)

This is for reading, and for tests to compare with: the session runs one scan instead.  Two
things it shows are the papers' own limits.  The product of 2 x 2 matrices needs predicates on
*different* columns; and a channel must be lumpable to two cells, as ``uniform`` and ``replace``
are.  Under ``finegrain`` values of one cell are sent to the other with different chances, so
that no 2 x 2 matrix fits all of them and 2^k counts are not enough: there the session
refines the cells first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from sqlglot import exp
from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

from privsql.errors import Error, ProgrammingError, TooLargeError
from privsql.sql.catalog import Catalog, UnknownColumn
from privsql.sql.nodes import (
    Unsupported,
    bare,
    conjuncts,
    is_aggregate,
    name_of,
    place_of,
    rewritten,
    sql,
)
from privsql.sql.parse.forbidden import VOLATILE
from privsql.sql.parse.lexing import tokens_of
from privsql.sql.parse.statement import CLOSING, OPENING, Statement, statements
from privsql.sql.scan.state_scan import MULTIPLICITY, WEIGHT

MOST_PREDICATES = 16


_HINT = "expand takes SELECT COUNT(*) FROM t WHERE P1 AND P2 ..., each P on one sensitive column"

# What may stand beside COUNT(*), FROM and WHERE.
_PLAIN = {"expressions", "from_", "where", "kind", "hint"}

# Ways to name columns, rows or tables that are not seen as columns of the tree.
_INDIRECT = (
    exp.Query,
    exp.Columns,
    exp.PositionalColumn,
    exp.Star,
    exp.Dot,
    exp.Lambda,
    exp.Comprehension,
    exp.Window,
)
_CALLED: dict[type[exp.Expr], str] = {
    exp.PositionalColumn: "#",
    exp.Dot: "a dot or a method call",
    exp.Subquery: "a sub-query",
}


@dataclass(frozen=True)
class Expanded:
    """One of the 2^k queries: which predicates hold in its state, and its SQL."""

    state: str  # "P1 and not P2"
    sql: str
    predicates: tuple[str, ...] = ()  # P1, P2, ... as the analyst wrote them
    truths: tuple[bool, ...] = ()  # which of them hold

    def __str__(self) -> str:
        """The query under its state, and what the predicates are.

        >>> print(Expanded("not P1", "SELECT 1", ("age > 30",), (False,)))
        -- not P1    (P1: age > 30)
        SELECT 1
        """
        meaning = "; ".join(f"P{i + 1}: {text}" for i, text in enumerate(self.predicates))
        return f"-- {self.state}    ({meaning})\n{self.sql}" if meaning else self.sql


def expand(statement: Statement, catalog: Catalog) -> list[Expanded]:
    """Spell a conjunctive count out.

    Placeholders stay where they were, so each query takes the statement's own parameters.
    """
    if statement.tree is None:
        raise ProgrammingError("there is no query in this statement", hint="write a SELECT")
    text = statement.plain
    select = _counting(statement.tree.copy(), text, catalog)
    where = select.args.get("where")
    parts = list(conjuncts(where.this)) if where is not None else []
    spelled = _spelled(text, parts)
    conditions: list[tuple[str, bool]] = []  # as written, and whether it is a predicate
    for node, words in zip(parts, spelled, strict=True):
        used = _columns(node, select, text, catalog)
        predicate = not used.isdisjoint(catalog.sensitive)
        if predicate and len(used) > 1:
            raise Unsupported(
                f"a condition on {', '.join(sorted(used))} together",
                hint=f"it has no channel of its own to invert; {_HINT}",
                place=place_of(node, text),
            )
        conditions.append((words, predicate))
    predicates = tuple(words for words, predicate in conditions if predicate)
    if len(predicates) > MOST_PREDICATES:
        raise TooLargeError(
            f"{len(predicates)} predicates make {2 ** len(predicates)} queries",
            hint=f"at most {MOST_PREDICATES} can be spelled out",
        )
    head = " ".join(["SELECT", _counted(catalog), "FROM", sql(select.args["from_"].this)])
    return [
        Expanded(
            " and ".join(f"{'' if true else 'not '}P{i + 1}" for i, true in enumerate(truths))
            or "every row that the public conditions leave",
            f"{head} WHERE {_where(conditions, truths)}" if conditions else head,
            predicates,
            truths,
        )
        for truths in product((False, True), repeat=len(predicates))
    ]


def _where(conditions: Sequence[tuple[str, bool]], truths: Sequence[bool]) -> str:
    """All conditions in their order, so that placeholders stay in theirs."""
    ahead = iter(truths)
    return " AND ".join(
        f"({words}){'' if not predicate or next(ahead) else ' IS NOT TRUE'}"
        for words, predicate in conditions
    )


def _counting(tree: exp.Expr, text: str, catalog: Catalog) -> exp.Select:
    """The SELECT COUNT(*) over the published table alone, or a refusal."""

    def refuse(what: str, node: exp.Expr | None = None) -> Unsupported:
        place = place_of(node, text) if node is not None else None
        return Unsupported(f"{what} in a count to be expanded", hint=_HINT, place=place)

    while isinstance(tree, exp.Subquery) and not tree.alias:
        tree = tree.this
    if not isinstance(tree, exp.Select):
        raise refuse(tree.key.upper())
    for clause, value in tree.args.items():
        if value and clause not in _PLAIN:
            first = value[0] if isinstance(value, list) else value
            node = first if isinstance(first, exp.Expr) else None
            raise refuse(clause.rstrip("_").upper(), node)
    if len(tree.expressions) != 1:
        raise refuse("several columns", tree.expressions[-1] if tree.expressions else None)
    counted = bare(tree.expressions[0].unalias())
    if not isinstance(counted, exp.Count) or not isinstance(counted.this, exp.Star):
        raise refuse("something other than COUNT(*)", counted)
    source = tree.args["from_"].this if tree.args.get("from_") is not None else None
    if not isinstance(source, exp.Table) or not isinstance(source.this, exp.Identifier):
        raise refuse("something other than the published table", source)
    if not catalog.is_published(source.name):
        raise refuse(f"the table {source.name!r}, which is not the published one,", source)
    plain = {"this", "alias", "db", "catalog"}
    extra = [key for key, value in source.args.items() if value and key not in plain]
    if extra or source.alias_column_names:
        raise refuse("a changed table", source)
    return tree


def _columns(node: exp.Expr, select: exp.Select, text: str, catalog: Catalog) -> set[str]:
    """The published columns in a condition, or a refusal of what could hide one."""
    name = select.args["from_"].this.alias_or_name.casefold()
    for each in node.walk():
        if isinstance(each, _INDIRECT) or is_aggregate(each) or name_of(each) in VOLATILE:
            what = _CALLED.get(type(each), each.key.upper())
            raise Unsupported(
                f"{what} in a condition to be expanded",
                hint=_HINT,
                place=place_of(each, text) or place_of(node, text),
            )
    found = set()
    for column in node.find_all(exp.Column):
        known = catalog.column(column.name)
        if known is None or (column.table and column.table.casefold() != name):
            raise UnknownColumn(
                f"there is no column {column.sql('duckdb')!r} here", place=place_of(column, text)
            )
        found.add(known)
    return found


def _counted(catalog: Catalog) -> str:
    """How published rows are counted: those stored once may stand for several."""
    factors = [WEIGHT] if catalog.weighted else []
    factors += [MULTIPLICITY] if catalog.multiplicity else []
    return f"COALESCE(SUM({' * '.join(factors)}), 0)" if factors else "COUNT(*)"


# -- the analyst's own spelling ---------------------------------------------------------


def _spelled(text: str, parts: Sequence[exp.Expr]) -> list[str]:
    """Each conjunct as it was written; as sqlglot writes it where the text is not found."""
    words = [text[start:stop] for start, stop in _slices(text)]
    if [_read(each) for each in words] == [_key(part) for part in parts]:
        return words
    return [sql(part) for part in parts]


def _read(words: str) -> str:
    """What a condition says when it is read on its own."""
    try:
        (statement,) = statements(f"SELECT {words}")
    except (Error, ValueError):
        return ""
    return "" if statement.tree is None else _key(statement.tree.expressions[0])


def _key(node: exp.Expr) -> str:
    """What makes two conditions the same; placeholders are numbered over the whole text."""
    holders = (exp.Placeholder, exp.Parameter)
    made = rewritten(
        bare(node).copy(), lambda each: exp.Placeholder() if isinstance(each, holders) else each
    )
    return sql(made)


def _slices(text: str) -> Iterator[tuple[int, int]]:
    """Where the conjuncts of the outermost WHERE begin and end."""
    tokens = [t for t in tokens_of(text) if t.token_type is not TokenType.SEMICOLON]
    at = _first(tokens, TokenType.WHERE)
    if at is not None:
        yield from _conjuncts(tokens[at + 1 :])


def _conjuncts(tokens: Sequence[Token]) -> Iterator[tuple[int, int]]:
    """Split at AND, but not at that of BETWEEN, within CASE, or under an OR."""
    tokens = _unwrapped(tokens)
    pieces: list[list[Token]] = [[]]
    between = 0
    for token, depth in _deep(tokens):
        kind = token.token_type
        if depth == 0 and kind is TokenType.OR:
            pieces = [list(tokens)]
            break
        between += depth == 0 and kind is TokenType.BETWEEN
        if depth == 0 and kind is TokenType.AND:
            if between:
                between -= 1
            else:
                pieces.append([])
                continue
        pieces[-1].append(token)
    for piece in filter(None, pieces):
        if len(pieces) > 1:
            yield from _conjuncts(piece)
        else:
            yield piece[0].start, piece[-1].end + 1


def _unwrapped(tokens: Sequence[Token]) -> Sequence[Token]:
    """Without parentheses around all of it."""
    while (
        len(tokens) > 2
        and tokens[0].token_type is TokenType.L_PAREN
        and _first(tokens, TokenType.R_PAREN) == len(tokens) - 1
    ):
        tokens = tokens[1:-1]
    return tokens


def _first(tokens: Sequence[Token], kind: TokenType) -> int | None:
    """Where the first token of a type stands that is inside of nothing."""
    found = (i for i, (t, depth) in enumerate(_deep(tokens)) if depth == 0 and t.token_type is kind)
    return next(found, None)


_OPEN = (*OPENING, TokenType.CASE)
_CLOSE = (*CLOSING, TokenType.END)


def _deep(tokens: Sequence[Token]) -> Iterator[tuple[Token, int]]:
    """Tokens with the depth that they stand in; what opens and closes is outside."""
    depth = 0
    for token in tokens:
        depth -= token.token_type in _CLOSE
        yield token, depth
        depth += token.token_type in _OPEN
