"""Constructs that say the same in other words, written out before a statement is compiled.

    QUANTILE_CONT(x, [0.1, 0.9])        [QUANTILE_CONT(x, 0.1), QUANTILE_CONT(x, 0.9)]
    current_date, now()                 the date and time at which the statement began
    t PIVOT (SUM(x) FOR k IN (1, 2))    SELECT ..., SUM(x) FILTER (WHERE k = 1) AS "1", ...

Names of columns are not decided here: they are those that DuckDB gives to what was written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime

from sqlglot import exp

from privsql.sql.nodes import bare, cast, is_aggregate, name_of

QUANTILES = frozenset(
    {"quantile", "quantile_cont", "quantile_disc", "approx_quantile", "percentile_cont"}
    | {"percentile_disc"}
)


def written_out(tree: exp.Expr) -> exp.Expr:
    """A statement without the constructs above, in place.

    >>> from sqlglot import parse_one
    >>> sql = "SELECT quantile_disc(x, [0.1, 0.9]) FROM t"
    >>> written_out(parse_one(sql, dialect="duckdb")).sql("duckdb")
    'SELECT [QUANTILE_DISC(x, 0.1), QUANTILE_DISC(x, 0.9)] FROM t'
    """
    for node in list(tree.walk()):
        if isinstance(node, exp.Func) and is_aggregate(node) and name_of(node) in QUANTILES:
            _several(node)
    return tree


# Functions of the clock by the type of what they give; others depend on the session and are refused.
_CLOCKS = {
    **dict.fromkeys(("current_date", "today"), "DATE"),
    **dict.fromkeys(
        ("now", "current_timestamp", "transaction_timestamp", "get_current_timestamp"),
        "TIMESTAMP WITH TIME ZONE",
    ),
    "localtimestamp": "TIMESTAMP",
}
CLOCKS = re.compile(rf"\b({'|'.join(_CLOCKS)})\b", re.IGNORECASE)


def at_time(tree: exp.Expr, moment: datetime) -> exp.Expr | None:
    """A statement with the time at which it began in the place of the clock; None without one.

    One time for all of it, and no time that a plan or an answer could be remembered by.

    >>> from sqlglot import parse_one
    >>> tree = parse_one("SELECT count(*) FROM t WHERE d < current_date", dialect="duckdb")
    >>> found = at_time(tree, datetime(2026, 11, 18, 21, 30))
    >>> found.sql("duckdb") if found else ""
    "SELECT COUNT(*) FROM t WHERE d < CAST('2026-11-18' AS DATE)"
    """
    if not any(_clock(node) for node in tree.walk()):
        return None
    made = exp.Paren(this=tree.copy())
    for node in list(made.walk()):
        kind = _clock(node)
        if kind is not None:
            node.replace(cast(exp.Literal.string(_told(moment, kind)), kind))
    found: exp.Expr = made.this
    return found.pop()


def _clock(node: exp.Expr) -> str | None:
    """The type of a function of the clock."""
    if isinstance(node, exp.Anonymous) and node.expressions:
        return None
    if not isinstance(node, exp.Func) or isinstance(node, exp.Cast):
        return None
    return (
        _CLOCKS.get(name_of(node)) if node.this is None or isinstance(node, exp.Anonymous) else None
    )


def _told(moment: datetime, kind: str) -> str:
    if kind == "DATE":
        return moment.date().isoformat()
    plain = moment.replace(tzinfo=None).isoformat(" ")
    return moment.isoformat(" ") if kind.endswith("ZONE") else plain


def _several(node: exp.Expr) -> None:
    """Several quantiles in one call, as a list of calls."""
    fraction = next((each for each in _arguments(node) if isinstance(bare(each), exp.Array)), None)
    if fraction is None:
        return
    whole: exp.Expr = node
    while isinstance(whole.parent, exp.Filter | exp.WithinGroup) and whole.arg_key == "this":
        whole = whole.parent
    calls = []
    for each in bare(fraction).expressions:
        call = whole.copy()
        own = next(part for part in call.walk() if part == fraction)
        own.replace(each.copy())
        calls.append(call)
    if calls:
        whole.replace(exp.Array(expressions=calls))


def _arguments(node: exp.Expr) -> Iterator[exp.Expr]:
    yield from node.iter_expressions()
