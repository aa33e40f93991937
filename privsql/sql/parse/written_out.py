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

from privsql.sql.nodes import bare, cast, is_aggregate, name_of, named

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
    if tree.find(exp.Pivot, exp.Array) is None:
        return tree
    holder = exp.Paren(this=tree)
    for pivot in list(holder.find_all(exp.Pivot)):
        _pivoted(pivot)
    tree = holder.this.pop()
    for node in list(tree.walk()):
        if isinstance(node, exp.Func) and is_aggregate(node) and name_of(node) in QUANTILES:
            _several(node)
    return tree


# Functions of the clock, by the type of what they give; current_time and its like are refused.
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


_PIVOTED = {"this", "expressions", "fields", "using", "group", "alias"}
_NAMING = {"columns", "identify_pivot_strings", "prefixed_pivot_columns", "pivot_column_naming"}


def _pivoted(pivot: exp.Pivot) -> None:
    """A PIVOT over listed values of one column, with GROUP BY, as a SELECT with FILTERs.

    What is written otherwise stays, and is refused where it stands.
    """
    given = {key for key, value in pivot.args.items() if value} - _NAMING
    table = pivot.parent
    statement = pivot.this is not None
    fields = pivot.expressions if statement else pivot.args.get("fields") or []
    calls = pivot.args.get("using") or [] if statement else pivot.expressions
    group = pivot.args.get("group")
    listed = fields[0] if len(fields) == 1 else None
    if not given <= _PIVOTED or not isinstance(listed, exp.In) or group is None:
        return
    if table is None or not (statement or _sole(table)):
        return
    values = [_value(each) for each in listed.expressions]
    names = [call.alias if isinstance(call, exp.Alias) else "" for call in calls]
    if not values or not calls or None in values or (len(calls) > 1 and not all(names)):
        return
    keys = group.expressions
    if any(value for key, value in group.args.items() if key != "expressions"):
        return
    made = exp.Select(expressions=[each.copy() for each in keys])
    for value in values:
        for call, name in zip(calls, names, strict=True):
            if value is None or not is_aggregate(call.unalias()):
                return
            literal, label = value
            tested = exp.EQ(this=bare(listed.this).copy(), expression=literal.copy())
            kept = exp.Filter(this=call.unalias().copy(), expression=exp.Where(this=tested))
            made.append("expressions", named(kept, f"{label}_{name}" if name else label))
    source = pivot.this.copy() if statement else _without_pivot(table)
    if isinstance(source, exp.Subquery) and not source.alias:
        source.set("alias", exp.TableAlias(this=exp.to_identifier("pivoted")))
    made.from_(source, copy=False)
    made.set("group", exp.Group(expressions=[each.copy() for each in keys]))
    if statement:
        pivot.replace(made)
        return
    name = source.alias_or_name or "pivoted"
    alias = pivot.args.get("alias") or exp.TableAlias(this=exp.to_identifier(name))
    table.replace(exp.Subquery(this=made, alias=alias.copy()))


def _sole(table: exp.Expr) -> bool:
    """Whether one PIVOT follows a table or a sub-select."""
    return isinstance(table, exp.Table | exp.Subquery) and len(table.args.get("pivots") or ()) == 1


def _without_pivot(table: exp.Expr) -> exp.Expr:
    made = table.copy()
    made.set("pivots", None)
    return made


def _value(node: exp.Expr) -> tuple[exp.Expr, str] | None:
    """A listed value and the name of its column; None where it is no plain constant."""
    alias = node.alias if isinstance(node, exp.PivotAlias | exp.Alias) else ""
    literal = node.this if alias else node
    plain = isinstance(literal, exp.Literal | exp.Boolean)
    if not plain:
        return None
    text = str(literal.this).lower() if isinstance(literal, exp.Boolean) else literal.name
    return literal, alias or text


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
