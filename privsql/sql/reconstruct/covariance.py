"""Covariances of inverted sums, for independent and dependent rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

from sqlglot import exp

from privsql.sql.expressions import call, dot, nonzero, or_zero, quotient
from privsql.sql.nodes import column, copied, number, wrapped
from privsql.sql.outer.calculus import sum_of
from privsql.sql.reconstruct.columns import Pair
from privsql.sql.reconstruct.sums import Sums

Total = Callable[[exp.Expr], exp.Expr]


def covariance(
    sums: Sums, k: int, other: int, chosen: Sequence[int], total: Total, over_all: bool = False
) -> exp.Expr:
    """Covariance of base k in a cell with another base there, or over all cells."""
    pairs = product(sums.base[k], sums.base[other])
    ordered = pairs if over_all else ((min(pair), max(pair)) for pair in pairs)
    return sum_of([_shared(sums, Pair(t, u, over_all), chosen, total) for t, u in ordered])


def _shared(sums: Sums, pair: Pair, chosen: Sequence[int], total: Total) -> exp.Expr:
    """Covariance of two pieces: ``sum m (W^2 v v' G G' - W v v' H)`` (udfs.variance).

    ``total`` adds up over the values of hidden public columns.
    """
    t, u = pair.t, pair.u
    if sums.fixed or {t, u} & sums.sure(chosen):
        return number(0.0)
    halves = sums.halves[t], sums.halves[u]
    squares, products = (sums.column_of(kind, *halves) for kind in ("squares", "products"))
    both = total(_error(squares, products, pair))
    place = sums.whole(t, u, chosen)
    if place is None:
        return both
    # The channel was read off the published column, so that other rows have a part in
    # the answer too (see ``Sums.whole``).
    axis = sums.states.axes[place]
    rows = number(sums.states.rows or 0)
    one, two = (sums.column_of("products", half) for half in halves)
    v, w = (total(call("list_sum", copied(y))) for y in (one, two))
    tail: exp.Expr = column(pair.tail, "kernels")
    if sums.hidden:  # the same for all of their values
        tail = call("any_value", tail)
    if axis.mechanism == "decoy":
        left = [_left(sums, t, rows, total), _left(sums, u, rows, total)]
        scale = left[0] if t == u else exp.Sqrt(this=exp.Mul(this=left[0], expression=left[1]))
        more = exp.Mul(this=quotient(exp.Mul(this=v, expression=w), rows), expression=tail)
        return exp.Paren(this=exp.Add(this=exp.Mul(this=scale, expression=both), expression=more))
    kept = 0.0 if axis.mechanism == "swap" else axis.retention
    mixed = exp.Add(
        this=exp.Mul(this=w, expression=wrapped(total(_error(one, one, pair)))),
        expression=exp.Mul(this=v, expression=wrapped(total(_error(two, two, pair)))),
    )
    lost = exp.Mul(this=number(1 - kept), expression=exp.Paren(this=mixed))
    more = exp.Mul(this=exp.Mul(this=copied(v), expression=copied(w)), expression=tail)
    part = quotient(exp.Sub(this=more, expression=lost), rows)
    return exp.Paren(this=exp.Add(this=both, expression=part))


def _left(sums: Sums, t: int, rows: exp.Expr, total: Total) -> exp.Expr:
    """``1 - r^3``: how far a piece is from adding up the same over all rows."""
    half = sums.halves[t]
    first = total(call("list_sum", sums.column_of("products", half)))
    square = total(call("list_sum", sums.column_of("squares", half, half)))
    whole = exp.Mul(this=copied(rows), expression=square)
    share = quotient(exp.Mul(this=first, expression=copied(first)), nonzero(whole))
    near = exp.Pow(this=wrapped(share), expression=number(3))
    rest = exp.Sub(this=number(1.0), expression=or_zero(near))
    return exp.Greatest(this=rest, expressions=[number(0.0)])


def _error(second: exp.Expr, first: exp.Expr, pair: Pair) -> exp.Expr:
    """``second . G G' - first . H``."""
    squared = dot(copied(second), column(pair.product, "kernels"))
    mean = dot(copied(first), column(pair.mean, "kernels"))
    return exp.Paren(this=exp.Sub(this=squared, expression=mean))
