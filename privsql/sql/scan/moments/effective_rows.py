"""Bounds on effective rows, where the scan returns sums instead of states.

The rule of effective rows (``udfs.variance.weights``) needs counts of states.  Here both its sums
are bounded on the safe side, with L = G - mean, S the values that G has:

    sum L^2  <=  second  <=  sum L^2 + n sum_S floor_s L_s^2
    fourth   <=  max L^2 * sum L^2  +  n sum_S floor_s L_s^4  +  sum_S L_s^4
    fourth   >=  each of   (sum L^2)^2 / n,   n sum_S floor_s L_s^4,   sum_S L_s^4,
                           (d^2 - e2) sum L^2 + d e3 n

What the least effective rows call reliable is so by the rule itself, and what the most of them call
unreliable is not.  In between a second scan, by states, tells (``Moments.doubtful``).

The last bound is for skewed conditions, few rows of which weigh most.  With a and c the largest
and the second largest L, b the one nearest to -(a + c) / 2 among the others, d = a + b + c,
e2 = ab + ac + bc, e3 = abc, the polynomial

    L^4 - (L - a)(L - b)(L - c)(L + d)  =  (d^2 - e2) L^2 + (e3 - d e2) L + d e3

is at most L^4 on all values of L: none lies between c and a, nor between b and -d, which are as
far from -(a + c) / 2 as each other.  And L adds up to 0.  The same holds of -L.

A piece that no sensitive column has a part in has no such error.  Where rows were sampled it has
that of the sample, and a row counts by W (W - 1) v^2:

    second = sum W (W - 1) v^2,    fourth = sum (W (W - 1))^2 v^4
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import comb

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from privsql.sql.expressions import call, nonzero, null, or_zero, positive, quotient
from privsql.sql.nodes import column, named, number, when, wrapped
from privsql.sql.outer.calculus import add, multiply
from privsql.sql.reconstruct.columns import FOURTH, MOST_ROWS, SECOND
from privsql.sql.scan.moments.factors import Product
from privsql.sql.scan.moments.weights import Sums, literal, scaled
from privsql.sql.scan.one_pass import Pass


@dataclass(frozen=True)
class Bound:
    """Bounds of the two sums that effective rows are made of, as SQL in three levels."""

    ends: tuple[float, ...] = ()  # least and largest K; none where the piece is known
    sums: Mapping[str, exp.Expr] = field(default_factory=dict)  # over rows, by name
    first: exp.Expr = field(default_factory=exp.Null)  # sum of K over rows
    square: exp.Expr = field(default_factory=exp.Null)  # sum of K^2 over rows
    floor: Sequence[float] = ()  # sums over states of floor * K^i
    count: Sequence[float] = ()  # sums over states of K^i
    support: tuple[float, ...] = ()  # values of K, where they tell the most effective rows

    def taken(self, t: int) -> list[exp.Expr]:
        """What is wanted of the scan."""
        return [named(node, f"{name}_{t}") for name, node in self.sums.items()]

    def centred(self, t: int) -> list[exp.Expr]:
        """The mean of K, what is left of its square, and the farthest that K is from it."""
        if not self.ends:
            return [column(f"{name}_{t}") for name in self.sums]
        mean = or_zero(quotient(self.first, nonzero(column(f"rows_{t}"))))
        known = exp.Mul(this=self.first, expression=wrapped(mean))
        second = call("greatest", exp.Sub(this=self.square, expression=known), literal(0.0))
        carried = [column(f"{name}_{t}") for name in self.sums if name not in ("first", "square")]
        return [*carried, named(mean, f"centre_{t}"), named(second, f"second_{t}")]

    def weights(self, t: int) -> list[exp.Expr]:
        """``ws`` and ``wf``, which make the least effective rows."""
        if not self.ends:
            found: list[exp.Expr] = [column(f"{name}_{t}") for name in self.sums]
            both = zip(found or [literal(0.0)] * 2, (SECOND, FOURTH), strict=True)
            return [named(node, family(t)) for node, family in both]
        second, mean, rows = (column(f"{name}_{t}") for name in ("second", "centre", "rows"))
        low, high = (literal(end) for end in self.ends)
        away = exp.Sub(this=high, expression=mean), exp.Sub(this=mean, expression=low)
        reach = call("power", call("greatest", *away), number(2))
        fourths, top, count = rows, multiply(reach, second), _central(self.count, mean, 4)
        if "fourths" in self.sums:
            fourths = column(f"fourths_{t}")
            heavy = or_zero(quotient(fourths, nonzero(rows)))
            top = multiply(column(f"most_{t}"), top)
            count = multiply(call("power", heavy, number(2)), count)
        fourth = add(add(top, multiply(fourths, _central(self.floor, mean, 4))), count)
        # What has no rows has no error.
        some = when(positive(rows), fourth, literal(0.0))
        return [named(second, SECOND(t)), named(some, FOURTH(t))]

    @property
    def limited(self) -> bool:
        """Whether the most effective rows are bounded, too."""
        return not self.ends or len(self.support) >= 3

    def nearest(self, t: int) -> list[exp.Expr]:
        """What the next step carries on, and ``b - mean`` of each side, which is written once."""
        own = ("rows", "centre", "second") if self.ends else ()
        carried = [f"{name}_{t}" for name in (*self.sums, *own) if name not in ("first", "square")]
        sides = [each.nearest(column(f"centre_{t}")) for each in self._skewed(t)]
        return [*map(column, dict.fromkeys(carried)), *sides]

    def _skewed(self, t: int) -> list[_Skewed]:
        """The last bound of L and that of -L."""
        if len(self.support) < 3:
            return []
        values = sorted(self.support)
        less = [-value for value in reversed(values)]
        return [_Skewed(values, 1.0, f"high_{t}"), _Skewed(less, -1.0, f"low_{t}")]

    def most(self, t: int) -> exp.Alias:
        """The most effective rows; NULL where only a second scan can decide."""
        return named(self._most(t), MOST_ROWS(t))

    def _most(self, t: int) -> exp.Expr:
        if not self.ends:
            return literal(0.0)  # exactly known, so that there are no more of them than least
        if not self.limited:
            return null("DOUBLE")
        second, mean, rows = (column(f"{name}_{t}") for name in ("second", "centre", "rows"))
        square = multiply(second, second)
        least = [
            exp.Div(this=square, expression=nonzero(rows), typed=False, safe=False),
            multiply(rows, wrapped(_central(self.floor, mean, 4))),
            _central(self.count, mean, 4),
        ]
        least += [each.least(mean, second, rows) for each in self._skewed(t)]
        more = multiply(rows, wrapped(_central(self.floor, mean, 2)))
        top = call("power", add(second, more), number(2))
        return quotient(top, nonzero(call("greatest", *least)))


@dataclass(frozen=True)
class _Skewed:
    """The bound ``(d^2 - e2) sum L^2 + d e3 n`` (see above), of ``sign * K``.

    With s = a + c and q = ac it is

        (s (s + b) + b^2 - q) sum L^2  +  (s + b) q b n.
    """

    values: Sequence[float]  # of sign * K, in order
    sign: float
    name: str  # of the column with b

    def nearest(self, mean: exp.Expr) -> exp.Expr:
        """b: which of the others is nearest depends on the mean m only.

        In K the place to be near to is 2 m - (a + c) / 2, and so v is nearer than w > v where

            m  <  ((v + w) + (a + c)) / 4.
        """
        *others, c, a = self.values
        found = literal(others[-1])
        if len(others) > 1:
            below = exp.LT if self.sign > 0 else exp.GT
            ends = [(v, self.sign * (v + w + a + c) / 4) for v, w in pairwise(others)]
            left = [
                exp.If(this=below(this=mean, expression=literal(end)), true=literal(v))
                for v, end in ends
            ]
            found = exp.Case(ifs=left, default=found)
        return named(self._away(found, mean), self.name)

    def _away(self, value: exp.Expr, mean: exp.Expr) -> exp.Expr:
        kind = exp.Sub if self.sign > 0 else exp.Add
        return exp.Paren(this=kind(this=value, expression=mean))

    def least(self, mean: exp.Expr, second: exp.Expr, rows: exp.Expr) -> exp.Expr:
        """The bound, by the column that ``nearest`` made."""
        *_, c, a = self.values
        one, two, three = (
            self._away(literal(a), mean),
            column(self.name),
            self._away(literal(c), mean),
        )
        s, q = exp.Paren(this=add(one, three)), multiply(one, three)
        d = exp.Paren(this=add(s, two))
        squares = exp.Sub(this=add(multiply(s, d), multiply(two, two)), expression=q)
        return add(
            multiply(wrapped(squares), second), multiply(multiply(d, multiply(q, two)), rows)
        )


# Values of K up to which the most effective rows are told.
MOST_VALUES = 64


def _together(values: Sequence[float], inverse: NDArray[np.float64]) -> tuple[float, ...]:
    """Values of a product of two functions; none where there are too many of them."""
    if not values or len(values) * len(inverse) > MOST_VALUES:
        return ()
    return tuple(np.unique(np.outer(values, inverse)).tolist())


def bound(sums: Sums, product: Product, half: str, weighted: bool, t: int) -> Bound:
    """The bound of piece t, which names the sums that it wants of the scan."""
    columns, scan, shared = sums.columns, sums.scan, sums.scan.shared
    own_half = [half, half] if half else []
    if not product.parts:
        if not weighted or not product.constant:
            return Bound()
        return Bound(sums=_sampled(shared, own_half, product.constant**2))
    plain = Product(product.constant, (), product.parts)
    ends = [product.constant]
    floor = [product.constant**i for i in range(5)]
    count = list(floor)
    support: tuple[float, ...] = (product.constant,)
    for part in product.parts:
        inverse = columns.inverse(part)
        both = [float(a * b) for a in ends for b in (inverse.min(), inverse.max())]
        ends = [min(both), max(both)]
        own = np.unique(inverse)
        support = _together(support, own)
        for i in range(5):
            mass = columns.mass(part.column, inverse**i)
            floor[i] *= (1 - columns.retention(part.column)) * mass
            count[i] *= float((own**i).sum())
    even = not weighted and (not half or shared.indicator(half))
    # The measure under which rows count: m W^2 v^2.
    if even:
        taken: dict[str, exp.Expr] = {"rows": column(shared.added([half], 1))}
        first, square = sums.first(product), sums.second(product, product)
    else:
        weight, scale = scan.weight(plain), sums.scale(plain)
        one = shared.added([*own_half, weight], 2)
        two = shared.added([*own_half, weight, weight], 2)
        taken = {
            "rows": column(shared.added(own_half, 2)),
            "first": scaled(scale, column(one)),
            "square": scaled(scale**2, column(two)),
            "fourths": column(shared.added([*own_half, *own_half], 4)),
            "most": column(scan.largest(half)),
        }
        first, square = column(f"first_{t}"), column(f"square_{t}")
    return Bound((ends[0], ends[-1]), taken, first, square, floor, count, support if even else ())


def _sampled(shared: Pass, half: Sequence[str], scale: float) -> dict[str, exp.Expr]:
    """``W^2 - W`` and its square ``W^4 - 2 W^3 + W^2``, times powers of v."""
    two, one = (column(shared.added(half, w)) for w in (2, 1))
    four, three, square = (column(shared.added([*half, *half], w)) for w in (4, 3, 2))
    less = exp.Sub(this=four, expression=scaled(2.0, three))
    return {
        "second": scaled(scale, exp.Paren(this=exp.Sub(this=two, expression=one))),
        "fourth": scaled(scale**2, exp.Paren(this=exp.Add(this=less, expression=square))),
    }


def _central(moments: Sequence[float], mean: exp.Expr, power: int) -> exp.Expr:
    """``sum (K - mean)^power``, of an even power, from sums of powers of K."""
    made = literal(float(moments[0]))
    for i in range(1, power + 1):
        sign = -1.0 if i % 2 else 1.0
        made = exp.Add(
            this=exp.Mul(this=wrapped(made), expression=mean),
            expression=literal(sign * comb(power, i) * float(moments[i])),
        )
    return made
