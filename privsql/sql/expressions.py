"""Building blocks of the reconstruction's SQL."""

from __future__ import annotations

from sqlglot import exp

from privsql.sql.nodes import column, known, number, when, wrapped
from privsql.sql.reconstruct.columns import CRITICAL

# Below this many effective rows an interval is not called by its level (udfs.intervals).
ENOUGH_ROWS = 20

# Effective rows of an answer that is known: more than any table has.
KNOWN_ROWS = 1e18


def call(name: str, *arguments: exp.Expr) -> exp.Expr:
    """A function call."""
    return exp.Anonymous(this=name, expressions=list(arguments))


def dot(one: exp.Expr, two: exp.Expr) -> exp.Expr:
    """Sum of products of two lists."""
    return call("list_dot_product", one, two)


def same(one: exp.Expr, two: exp.Expr) -> exp.Expr:
    """Equality under which NULL is a value like any other."""
    return exp.NullSafeEQ(this=one, expression=two)


def field(struct: exp.Expr, name: str) -> exp.Expr:
    """A part of a struct."""
    return exp.Dot(this=exp.Paren(this=struct.copy()), expression=exp.to_identifier(name))


def or_zero(node: exp.Expr) -> exp.Expr:
    """Zero where there is nothing to add up."""
    return exp.Coalesce(this=node, expressions=[number(0.0)])


def products(one: exp.Expr, two: exp.Expr) -> exp.Expr:
    """Products of two lists, entry by entry."""
    left, right = (
        exp.Bracket(this=exp.column("z"), expressions=[exp.Literal.number(i)]) for i in (0, 1)
    )
    product = exp.Mul(this=left, expression=right)
    each = exp.Lambda(this=product, expressions=[exp.to_identifier("z")])
    return call("list_transform", call("list_zip", one, two), each)


def deviation(variance: exp.Expr) -> exp.Expr:
    """Root of a variance; one that is not above zero says nothing, so it gives NULL."""
    positive = exp.GT(this=wrapped(variance), expression=number(0))
    return when(positive, exp.Sqrt(this=wrapped(variance)))


def wald(
    estimate: exp.Expr, spread: exp.Expr, rows: exp.Expr
) -> tuple[exp.Expr, exp.Expr, exp.Expr]:
    """``estimate +- z * standard error``, and whether that is reliable at its level."""
    half = exp.Mul(this=column(CRITICAL), expression=wrapped(spread))
    enough = exp.GTE(this=wrapped(rows), expression=number(ENOUGH_ROWS))
    good = exp.And(this=known(spread), expression=enough)
    return (
        exp.Sub(this=wrapped(estimate), expression=exp.Paren(this=half)),
        exp.Add(this=wrapped(estimate), expression=exp.Paren(this=half.copy())),
        exp.Coalesce(this=exp.Paren(this=good), expressions=[exp.Boolean(this=False)]),
    )
