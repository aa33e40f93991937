"""Covariances of inverted sums, for independent and dependent rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from privsql.sql.expressions import call, dot, or_zero
from privsql.sql.nodes import (
    column,
    number,
    wrapped,
)
from privsql.sql.outer.calculus import sum_of
from privsql.sql.reconstruct.columns import Pair
from privsql.sql.reconstruct.functions import quotient
from privsql.sql.reconstruct.sums import Sums

Total = Callable[[exp.Expr], exp.Expr]


class Covariances:
    """Writes how two sums vary together, mechanism by mechanism."""

    def __init__(self, sums: Sums) -> None:
        self._sums = sums

    def of_bases(self, k: int, other: int, chosen: Sequence[int], total: Total) -> exp.Expr:
        """Covariance of two bases in a cell."""
        return sum_of(
            [
                self._shared(Pair(min(t, u), max(t, u)), t, u, chosen, total)
                for t in self._sums.base[k]
                for u in self._sums.base[other]
            ]
        )

    def with_total(self, k: int, other: int, chosen: Sequence[int], total: Total) -> exp.Expr:
        """Covariance of base k in a cell with another base over all cells."""
        return sum_of(
            [
                self._shared(Pair(t, u, over_all=True), t, u, chosen, total)
                for t in self._sums.base[k]
                for u in self._sums.base[other]
            ]
        )

    def _shared(self, pair: Pair, t: int, u: int, chosen: Sequence[int], total: Total) -> exp.Expr:
        """Covariance of two pieces: ``sum m (W^2 v v' G G' - W v v' H)`` (udfs.variance).

        ``total`` adds up over the values of hidden public columns.
        """
        if self._sums.fixed or {t, u} & self._sums.sure(chosen):
            return number(0.0)
        halves = self._sums.halves[t], self._sums.halves[u]
        plain = self._error(
            self._sums.column_of("squares", *halves),
            self._sums.column_of("products", *halves),
            pair,
        )
        both = total(plain)
        place = self._sums.whole(t, u, chosen)
        if place is None:
            return both
        # The channel was read off the published column, so that other rows have a part in
        # the answer too (see ``_whole``).
        axis = self._sums.states.axes[place]
        rows = number(self._sums.states.rows or 0)
        one, two = (self._sums.column_of("products", half) for half in halves)
        v, w = (total(call("list_sum", y.copy())) for y in (one, two))
        tail: exp.Expr = column(pair.tail, "kernels")
        if self._sums.hidden:  # the same for all of their values
            tail = call("any_value", tail)
        if axis.mechanism == "decoy":
            left = [self._left(t, rows, total), self._left(u, rows, total)]
            scale = left[0] if t == u else exp.Sqrt(this=exp.Mul(this=left[0], expression=left[1]))
            more = exp.Mul(this=quotient(exp.Mul(this=v, expression=w), rows), expression=tail)
            return exp.Paren(
                this=exp.Add(this=exp.Mul(this=scale, expression=both), expression=more)
            )
        kept = 0.0 if axis.mechanism == "swap" else axis.retention
        mixed = exp.Add(
            this=exp.Mul(this=w, expression=wrapped(total(self._error(one, one, pair)))),
            expression=exp.Mul(this=v, expression=wrapped(total(self._error(two, two, pair)))),
        )
        lost = exp.Mul(this=number(1 - kept), expression=exp.Paren(this=mixed))
        more = exp.Mul(this=exp.Mul(this=v.copy(), expression=w.copy()), expression=tail)
        part = quotient(exp.Sub(this=more, expression=lost), rows)
        return exp.Paren(this=exp.Add(this=both, expression=part))

    def _left(self, t: int, rows: exp.Expr, total: Total) -> exp.Expr:
        """``1 - r^3``: how far a piece is from adding up the same over all rows."""
        half = self._sums.halves[t]
        first = total(call("list_sum", self._sums.column_of("products", half)))
        square = total(call("list_sum", self._sums.column_of("squares", half, half)))
        whole = exp.Mul(this=rows.copy(), expression=square)
        share = quotient(
            exp.Mul(this=first, expression=first.copy()),
            exp.Nullif(this=whole, expression=number(0)),
        )
        near = exp.Pow(this=wrapped(share), expression=number(3))
        rest = exp.Sub(this=number(1.0), expression=or_zero(near))
        return exp.Greatest(this=rest, expressions=[number(0.0)])

    @staticmethod
    def _error(second: exp.Expr, first: exp.Expr, pair: Pair) -> exp.Expr:
        """``second . G G' - first . H``."""
        return exp.Paren(
            this=exp.Sub(
                this=dot(second.copy(), column(pair.product, "kernels")),
                expression=dot(first.copy(), column(pair.mean, "kernels")),
            )
        )
