"""Rounding of halves: to even in PostgreSQL's ``round`` of float8, not of numeric.

``round(x)`` becomes ``round_even(x, 0)`` where x is a float for certain: casts, columns that the
release says are floats, functions that give nothing else, what is computed with one of these, and
parameters and strings without a type, which PostgreSQL takes for float8.  DuckDB's ``round``
rounds halves away from zero, as for numeric.

Around an aggregate it stays: only ``round`` keeps the error of an estimate, and estimates are
halves by chance alone.
"""

from __future__ import annotations

from sqlglot import exp

from privsql.sql.nodes import cast
from privsql.sql.postgres.division import Columns, column_is
from privsql.sql.postgres.types import type_name

_FLOATS = frozenset({"DOUBLE", "FLOAT", "REAL"})
_NAMES = ("float4", "float8")
_THROUGH = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod)
_LISTS = (exp.Coalesce, exp.Greatest, exp.Least)
# Of a float these give a float; of a numeric, a numeric.
_ROOTS = (exp.Sqrt, exp.Exp, exp.Ln, exp.Pow, exp.Ceil, exp.Floor, exp.Trunc, exp.Round)
_AS_GIVEN = (exp.Paren, exp.Neg, exp.Abs, *_ROOTS)
_ALWAYS = (exp.Cbrt, exp.Degrees, exp.Radians, exp.Sin, exp.Cos, exp.Tan, exp.Atan, exp.Pi)


def round_halves(tree: exp.Expr, columns: Columns) -> None:
    """Write every ``round`` of a float as one to even, in place; inner ones first."""
    for node in reversed(list(tree.find_all(exp.Round))):
        if node.args.get("decimals") is not None or node.find(exp.AggFunc, exp.Window):
            continue
        of = node.this
        if _untyped(of) or _float(of, columns):
            value = cast(of, "DOUBLE") if _untyped(of) else of
            made = exp.Anonymous(this="round_even", expressions=[value, exp.Literal.number(0)])
            node.replace(made)


def _untyped(node: exp.Expr) -> bool:
    return isinstance(node, exp.Parameter) or node.is_string


def _float(node: exp.Expr, columns: Columns) -> bool:
    if isinstance(node, _AS_GIVEN):
        return _float(node.this, columns)
    if isinstance(node, exp.Cast):
        return type_name(node.args["to"]) in _NAMES
    if isinstance(node, _THROUGH):
        return _float(node.this, columns) or _float(node.expression, columns)
    if isinstance(node, _LISTS):
        return any(_float(each, columns) for each in (node.this, *node.expressions))
    if isinstance(node, exp.Column):
        return column_is(node, columns, _FLOATS, _float)
    if isinstance(node, exp.Anonymous):  # made here from a round() inside
        return str(node.this) == "round_even"
    return isinstance(node, _ALWAYS)
