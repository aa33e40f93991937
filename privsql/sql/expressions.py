"""Building blocks of the reconstruction's SQL."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from sqlglot import exp

from privsql.sql.nodes import (
    cast,
    chained,
    column,
    columns_of,
    copied,
    given,
    number,
    when,
    wrapped,
)
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
    return exp.Dot(this=exp.Paren(this=struct), expression=exp.to_identifier(name))


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
    return when(positive(variance), exp.Sqrt(this=wrapped(variance)))


def wald(
    estimate: exp.Expr, spread: exp.Expr, rows: exp.Expr
) -> tuple[exp.Expr, exp.Expr, exp.Expr]:
    """``estimate +- z * standard error``, and whether that is reliable at its level."""
    half = exp.Paren(this=exp.Mul(this=column(CRITICAL), expression=wrapped(spread)))
    enough = exp.GTE(this=wrapped(rows), expression=number(ENOUGH_ROWS))
    return (
        exp.Sub(this=wrapped(estimate), expression=half),
        exp.Add(this=wrapped(estimate), expression=copied(half)),
        or_false(exp.Paren(this=exp.And(this=given(spread), expression=enough))),
    )


def double(node: exp.Expr) -> exp.Expr:
    """An expression as DOUBLE."""
    return cast(wrapped(node), "DOUBLE")


def null(kind: str) -> exp.Expr:
    """NULL of a type."""
    return cast(exp.Null(), kind)


def is_null(node: exp.Expr) -> exp.Expr:
    """``node IS NULL``."""
    return exp.Is(this=wrapped(node), expression=exp.Null())


def positive(node: exp.Expr) -> exp.Expr:
    """``node > 0``."""
    return exp.GT(this=wrapped(node), expression=number(0))


def or_false(condition: exp.Expr) -> exp.Expr:
    """A condition, false where it is unknown."""
    return exp.Coalesce(this=condition, expressions=[exp.Boolean(this=False)])


def any_of(conditions: Iterable[exp.Expr]) -> exp.Expr | None:
    """``a OR b OR ...``, or nothing of nothing."""
    parts = [wrapped(condition) for condition in conditions]
    return chained(exp.Or, parts) if parts else None


def quotient(top: exp.Expr, bottom: exp.Expr) -> exp.Expr:
    """``top / bottom``."""
    return exp.Div(this=wrapped(top), expression=wrapped(bottom), typed=False, safe=False)


def nonzero(node: exp.Expr) -> exp.Expr:
    """``NULLIF(node, 0)``: what may be divided by."""
    return exp.Nullif(this=node, expression=number(0))


def least(nodes: Sequence[exp.Expr]) -> exp.Expr:
    """The smallest of some values."""
    return nodes[0] if len(nodes) == 1 else exp.Least(this=nodes[0], expressions=nodes[1:])


def product_of(factors: Iterable[exp.Expr]) -> exp.Expr:
    """``a * b * ...`` of at least one factor, each of which stands as it is."""
    return chained(exp.Mul, factors)


def with_columns(node: exp.Expr, made: Callable[[exp.Column], exp.Expr]) -> exp.Expr:
    """A copy of an expression with others in place of its columns.

    Of sub-queries, of those columns that are of the rows around them.
    """
    if isinstance(node, exp.Column):
        new = made(node)
        return copied(node) if new is node else new
    if isinstance(node, exp.Query):
        own = copied(node)
        for each in list(columns_of(own)):
            each.replace(with_columns(each, made))
        return own
    parts: dict[str, object] = {}
    for key, value in node.args.items():
        if isinstance(value, exp.Expr):
            parts[key] = with_columns(value, made)
        elif isinstance(value, list):
            parts[key] = [
                with_columns(each, made) if isinstance(each, exp.Expr) else each for each in value
            ]
        else:
            parts[key] = value
    return node.__class__(**parts)
