"""Parameters without values yet: their types, and stand-in values.

A driver asks what it will get before it says for which values.  DuckDB tells the types of a
statement's columns, not those of its parameters; what stands beside a parameter does.

    age < $1          as age                 ($1)::DATE      as the cast says
    $1 + 1            as 1                   LIMIT $1        BIGINT
    city LIKE $1      VARCHAR                anything else   VARCHAR, as in PostgreSQL
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from privsql.sql.nodes import COMPARISONS, cast, column, copied, rewritten, table
from privsql.sql.parse.statement import Statement, only
from privsql.sql.printing import text_of

# Where all operands have one type.
_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod)
_CHOICES = (exp.Between, exp.In, exp.Coalesce, exp.Nullif, exp.Greatest, exp.Least)
_ALIKE = (*COMPARISONS, *_ARITHMETIC, *_CHOICES)
_FRACTIONS = (exp.Quantile, exp.PercentileCont, exp.PercentileDisc, exp.ApproxQuantile)
_WRAPPING = (exp.Paren, exp.Neg)
_TIMES = ("DATE", "TIME", "TIMESTAMP")

# Values that planning can work with where it cannot with NULL.
_SAMPLES = {
    "BOOLEAN": "true",
    "VARCHAR": "",
    "DATE": "2000-01-01",
    "TIME": "00:00:00",
    "INTERVAL": "1 day",
    "UUID": "00000000-0000-0000-0000-000000000000",
    "JSON": "null",
    "BLOB": "",
}

Describe = Callable[[str], str | None]


def number_of(node: exp.Expr) -> int | None:
    """The number of a parameter such as ``$1``, or None where it is none or has a name."""
    if not isinstance(node, exp.Placeholder | exp.Parameter) or node.this is None:
        return None
    text = str(getattr(node.this, "name", node.this))
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else None


def parameter_types(
    statement: Statement, source: str, given: Mapping[int, str], describe: Describe
) -> list[str]:
    """The type of each parameter, from 1 on; ``given`` are those that the asker has settled.

    ``describe`` tells the type of the only column of a query, or None where it is no query.
    """
    tree = statement.tree
    if tree is None:
        return []
    found = dict(given)
    most = max(found, default=0)
    for node in tree.find_all(exp.Placeholder, exp.Parameter):
        number = number_of(node)
        if number is None:
            continue
        most = max(most, number)
        if number not in found and (kind := _type_of(node, source, describe)) is not None:
            found[number] = kind
    return [found.get(n, "VARCHAR") for n in range(1, most + 1)]


def _type_of(node: exp.Expr, source: str, describe: Describe) -> str | None:
    child, parent = node, node.parent
    while isinstance(parent, _WRAPPING):
        child, parent = parent, parent.parent
    if isinstance(parent, exp.Cast):
        return parent.to.sql("duckdb").upper()
    if isinstance(parent, exp.Limit | exp.Offset | exp.Fetch):
        return "BIGINT"
    if isinstance(parent, _FRACTIONS) and child is not parent.this:
        return "DOUBLE"
    if isinstance(parent, exp.Tuple) and isinstance(parent.parent, exp.In):
        parent = parent.parent
    if _quantified(parent) and parent is not None and parent.parent is not None:
        peer = _beside(parent.parent, parent, source, describe)
        return None if peer is None else f"{peer}[]"
    if not isinstance(parent, _ALIKE):
        return None
    kind = _beside(parent, child, source, describe)
    if kind is not None and kind.startswith(_TIMES) and isinstance(parent, exp.Add):
        return "INTERVAL"
    return kind


def _quantified(node: exp.Expr | None) -> bool:
    """Whether it is ``ANY (...)`` or ``ALL (...)``, which DuckDB's dialect reads as a function."""
    called = isinstance(node, exp.Anonymous) and str(node.this).upper() in ("ALL", "ANY", "SOME")
    return called or isinstance(node, exp.Any | exp.All)


def _beside(parent: exp.Expr, child: exp.Expr, source: str, describe: Describe) -> str | None:
    """The type of the first operand that is no parameter itself."""
    for peer in parent.iter_expressions():
        inner = peer.unnest()
        if peer is child or isinstance(peer, exp.Tuple):
            continue
        if inner.find(exp.Placeholder, exp.Parameter) is not None:
            continue
        kind = describe(_alone(inner, source))
        if kind not in (None, '"NULL"'):
            return kind
    return None


def _alone(node: exp.Expr, source: str) -> str:
    """A query of one expression over the published table, whatever it was called."""
    made = rewritten(
        copied(node), lambda each: column(each.name) if isinstance(each, exp.Column) else each
    )
    if isinstance(made, exp.Query):
        return made.sql("duckdb")
    return exp.Select(expressions=[made]).from_(table(source), copy=False).sql("duckdb")


def without_values(
    statement: Statement, types: Sequence[str], *, samples: bool = False
) -> Statement:
    """A statement that can be planned though no values are known; it must not be run.

    It has a NULL or a sample of its type for each parameter.
    """
    if not types or statement.tree is None:
        return statement

    def stood_in(node: exp.Expr) -> exp.Expr:
        number = number_of(node)
        if number is None or number > len(types):
            return node
        kind = types[number - 1]
        value: exp.Expr = exp.Null()
        if samples and not kind.endswith("]"):
            stamp = kind.startswith("TIMESTAMP")
            text = "2000-01-01 00:00:00" if stamp else _SAMPLES.get(kind)
            value = exp.Literal.number(1) if text is None else exp.Literal.string(text)
        return cast(value, kind)

    tree = rewritten(copied(statement.tree), stood_in)
    return replace(statement, tree=tree, plain=text_of(tree))


def catalog_types(
    text: str, source: str, given: Mapping[int, str], describe: Describe
) -> list[str]:
    """The types of the parameters of a text; ``source`` has all the columns that it may name.

    >>> catalog_types("SELECT $1::DATE, $2", "t", {}, lambda _: None)
    ['DATE', 'VARCHAR']
    """
    return parameter_types(only(text), source, given, describe)
