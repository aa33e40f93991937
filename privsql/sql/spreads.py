"""Covariances of inverted sums, for rows that are independent and for those that are not."""

from __future__ import annotations

from sqlglot import exp

from privsql.sql.calculus import sum_of
from privsql.sql.kernels import Kernels, quotient, retention_of
from privsql.sql.tree import (
    column,
    number,
    wrapped,
)
from privsql.sql.writing import call, dot, or_zero


class Spreads(Kernels):
    """Writes how two sums vary together, mechanism by mechanism."""

    def _covariance(self, k: int, other: int) -> exp.Expr:
        return sum_of(
            [
                self._shared(t, u, f"{min(t, u)}_{max(t, u)}")
                for t in self._base[k]
                for u in self._base[other]
            ]
        )

    def _with_total(self, k: int, other: int) -> exp.Expr:
        """Covariance of base k in a cell with another base over all cells."""
        return sum_of(
            [self._shared(t, u, f"all{t}_{u}") for t in self._base[k] for u in self._base[other]]
        )

    def _shared(self, t: int, u: int, pair: str) -> exp.Expr:
        """Covariance of two pieces: ``sum m (W^2 v v' G G' - W v v' H)`` (udfs.variance)."""
        if self._fixed or {t, u} & self._sure:
            return number(0.0)
        halves = self._halves[t], self._halves[u]
        both = self._error(self._sum("squares", *halves), self._sum("products", *halves), pair)
        axis = self._whole
        if axis is None:
            return both
        # The channel was read off the published column, so that other rows have a part in
        # the answer too (see ``_whole``).
        rows = number(self._states.rows or 0)
        one, two = (self._sum("products", half) for half in halves)
        v, w = (call("list_sum", y.copy()) for y in (one, two))
        tail = column(f"w{pair}", "k")
        if axis.mechanism == "decoy":
            left = [self._left(t, rows), self._left(u, rows)]
            scale = left[0] if t == u else exp.Sqrt(this=exp.Mul(this=left[0], expression=left[1]))
            more = exp.Mul(this=quotient(exp.Mul(this=v, expression=w), rows), expression=tail)
            return exp.Paren(
                this=exp.Add(this=exp.Mul(this=scale, expression=both), expression=more)
            )
        kept = 0.0 if axis.mechanism == "swap" else retention_of(axis)
        mixed = exp.Add(
            this=exp.Mul(this=w, expression=wrapped(self._error(one, one, pair))),
            expression=exp.Mul(this=v, expression=wrapped(self._error(two, two, pair))),
        )
        lost = exp.Mul(this=number(1 - kept), expression=exp.Paren(this=mixed))
        more = exp.Mul(this=exp.Mul(this=v.copy(), expression=w.copy()), expression=tail)
        part = quotient(exp.Sub(this=more, expression=lost), rows)
        return exp.Paren(this=exp.Add(this=both, expression=part))

    def _left(self, t: int, rows: exp.Expr) -> exp.Expr:
        """``1 - r^3``: how far a piece is from adding up the same over all rows."""
        half = self._halves[t]
        total = call("list_sum", self._sum("products", half))
        square = call("list_sum", self._sum("squares", half, half))
        whole = exp.Mul(this=rows.copy(), expression=square)
        share = quotient(
            exp.Mul(this=total, expression=total.copy()),
            exp.Nullif(this=whole, expression=number(0)),
        )
        near = exp.Pow(this=wrapped(share), expression=number(3))
        rest = exp.Sub(this=number(1.0), expression=or_zero(near))
        return exp.Greatest(this=rest, expressions=[number(0.0)])

    @staticmethod
    def _error(second: exp.Expr, first: exp.Expr, pair: str) -> exp.Expr:
        """``second . G G' - first . H``."""
        return exp.Paren(
            this=exp.Sub(
                this=dot(second.copy(), column(f"q{pair}", "k")),
                expression=dot(first.copy(), column(f"p{pair}", "k")),
            )
        )
