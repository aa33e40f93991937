"""Quantiles of an ordered sensitive column, from its reconstructed distribution function.

Let ``position[j]`` be the place of state j in the order of the column's values, or -1 where
the query does not count the state (its condition is false there, or the value is NULL).
With x the inverted states,

    F(i) = sum of x[j] over 0 <= position[j] <= i,          N = F(last).

An inverted distribution function need not rise, so a value is looked up in its monotone fit:
the row of rank t lies at the first position where the fit reaches t, which is where the
partial sums of ``F - t`` are least (see ``intervals.woodruff_interval``).

Which rank is DuckDB's own rule, so that answers agree with it where nothing was perturbed:

    disc   t = max(1, q N)
    cont   r = q (N - 1),  t = floor(r) + 1 and ceil(r) + 1,  fraction = r - floor(r)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from udfs.errors import KernelError
from udfs.intervals import Critical, Positions, woodruff_interval
from udfs.invert import invert, invert_function
from udfs.kron import Array, Kron, numbers
from udfs.variance import published_floor

Kind = Literal["disc", "cont"]

# Groups are taken so many at a time that arrays over (groups, positions) stay small.
BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Quantiles of groups, shape ``(groups,)``, as positions counted from zero.

    The quantile lies ``fraction`` of the way from the value at ``lower`` to the one at
    ``upper``; ``low`` and ``high`` are the ends of its interval.  Where ``known`` is false
    there are no rows to have a quantile, and the rest means nothing.
    """

    lower: NDArray[np.intp]
    upper: NDArray[np.intp]
    fraction: Array
    low: NDArray[np.intp]
    high: NDArray[np.intp]
    reliable: NDArray[np.bool_]
    known: NDArray[np.bool_]


def quantile(
    sums: tuple[ArrayLike, ArrayLike, ArrayLike],
    positions: ArrayLike,
    q: float,
    kind: str,
    kron: Kron,
    z: Critical,
) -> Quantiles:
    """Quantile q of each group and Woodruff's interval for it.

    ``sums`` are products, squares and fourths as in ``variance``, shapes ``(groups, S)``;
    ``positions`` has shape ``(S,)``.  The interval is that of ``F(i) - q N`` with its own
    variance and effective rows at every position, stretched to hold the estimate; where
    nothing was perturbed or sampled it is the estimate itself.  (reconstruction, 3)

    >>> exact = Kron([np.eye(4)])
    >>> y = np.array([[3.0, 0.0, 2.0, 5.0]])  # values 0 0 0 2 2 and five rows not counted
    >>> found = quantile((y, y, y), [0, 1, 2, -1], 0.625, "cont", exact, 1.96)
    >>> found.lower, found.upper, found.fraction
    (array([0]), array([2]), array([0.5]))
    """
    if kind not in ("disc", "cont"):
        raise KernelError("the kind of a quantile is 'disc' or 'cont'")
    if not 0 <= q <= 1:
        raise KernelError("a quantile lies between 0 and 1")
    products, squares, fourths = (np.atleast_2d(kron.states(part)) for part in sums)
    below = _indicators(positions, kron.size)
    critical = np.broadcast_to(np.asarray(z, dtype=np.float64), len(products))
    size = max(1, BLOCK // max(below.shape))
    functions = _Functions(below, q, kron)
    parts = [
        _block(
            (products[i : i + size], squares[i : i + size], fourths[i : i + size]),
            functions,
            kind,
            critical[i : i + size],
        )
        for i in range(0, max(1, len(products)), size)
    ]
    joined = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in Quantiles.__dataclass_fields__
    )
    return Quantiles(*joined)


def _indicators(positions: ArrayLike, states: int) -> Array:
    """``1[0 <= position[j] <= i]``, shape ``(last + 1, S)``; one position at the least."""
    place = numbers(positions, "positions")
    if place.shape != (states,):
        raise KernelError(f"positions must name one for each of the {states} states")
    if not ((place >= -1) & (place < 2**31) & (place == np.floor(place))).all():
        raise KernelError("a position is a whole number from 0 on, or -1")
    last = max(0, int(place.max(initial=0)))
    if last >= max(1, states):
        raise KernelError("positions must not be higher than there are states")
    return ((place >= 0) & (place <= np.arange(last + 1)[:, None])).astype(np.float64)


class _Functions:
    """What is needed of ``g_i = 1[position <= i] - q 1[counted]`` at every position i.

    ``powers[k]``, shape ``(S, last + 1)``, is K^k with K = A^-1 g less a constant for each i,
    which moves no effective rows and keeps the digits that powers of K would lose.
    """

    def __init__(self, below: Array, q: float, kron: Kron) -> None:
        function = below - q * below[-1]
        inverted = invert_function(function, kron)
        self.q, self.kron = q, kron
        self.below = below
        self.seconds = inverted**2
        self.expected = invert_function(function**2, kron)
        self.floor = published_floor(kron)
        centred = inverted - inverted.mean(axis=1, keepdims=True)
        scale = np.abs(inverted).max(axis=1, keepdims=True)
        # What is left of a constant is rounding.
        flat = np.abs(centred).max(axis=1, keepdims=True) <= 1e-12 * scale
        self.powers: Array = np.where(flat, 0.0, centred).T ** np.arange(5.0)[:, None, None]

    def variances(self, products: Array, squares: Array) -> Array:
        """``variance.variance`` at every position, shape ``(groups, last + 1)``."""
        spread: Array = squares @ self.seconds.T - products @ self.expected.T
        return spread

    def effective_rows(self, squares: Array, fourths: Array) -> Array:
        """``variance.effective_rows`` at every position, by matrix products.

        sum s (K - c)^2 = sum s K^2 - 2 c sum s K + c^2 sum s,  and so on to the fourth
        """
        all_squares = squares.sum(axis=1, keepdims=True)
        all_fourths = fourths.sum(axis=1, keepdims=True)
        divisor = np.where(all_squares > 0, all_squares, 1.0)
        centre = squares @ self.powers[1] / divisor
        second = np.maximum(squares, self.floor * all_squares)
        fourth = np.maximum(fourths, self.floor * all_fourths)
        fourth = np.maximum(fourth, (all_fourths / divisor) ** 2)
        above = _central(second, centre, self.powers[:3])
        under = _central(fourth, centre, self.powers)
        exact = np.where(all_squares > 0, np.inf, 0.0)
        rows: Array = np.where(under > 0, above**2 / np.where(under > 0, under, 1.0), exact)
        return rows


def _central(weights: Array, centre: Array, powers: Array) -> Array:
    """``sum_j w[j] (K[j] - c)^n`` for n = the last of ``powers``, by Horner's rule."""
    top = len(powers) - 1
    # One product for all powers: calls are what costs where states are few.
    wide = weights @ powers.transpose(1, 0, 2).reshape(powers.shape[1], -1)
    moments = wide.reshape(len(weights), top + 1, -1)
    total = np.zeros_like(centre)
    for k in range(top + 1):
        # Coefficient of (-c)^(top - k), the highest power of c first.
        total = total * -centre + math.comb(top, k) * moments[:, k]
    return np.maximum(total, 0.0)


def _block(
    sums: tuple[Array, Array, Array], functions: _Functions, kind: str, z: Array
) -> Quantiles:
    products, squares, fourths = sums
    q = functions.q
    distribution = _snapped(invert(products, functions.kron) @ functions.below.T)
    total = distribution[:, -1]
    known = total > 0
    rows = np.where(known, total, 1.0)
    lower_rank, upper_rank, fraction = _ranks(q, rows, kind)
    lower = _locate(distribution, lower_rank)
    upper = np.maximum(lower, _locate(distribution, upper_rank))
    found: Positions = woodruff_interval(
        distribution - q * total[:, None],
        functions.variances(products, squares),
        functions.effective_rows(squares, fourths),
        z,
    )
    # Nothing perturbed and nothing sampled: the published rows are the original ones.
    exact = np.all(products == squares, axis=1) & functions.kron.is_identity
    return Quantiles(
        lower,
        upper,
        fraction,
        np.where(exact, lower, np.minimum(found.low, lower)),
        np.where(exact, upper, np.maximum(found.high, upper)),
        found.reliable | exact,
        known,
    )


def _snapped(distribution: Array) -> Array:
    """Whole numbers of rows without the rounding of an inversion that left them whole."""
    whole = np.rint(distribution)
    rounding = 1e-12 * np.maximum(1.0, np.abs(distribution[:, -1:]))
    snapped: Array = np.where(np.abs(distribution - whole) <= rounding, whole, distribution)
    return snapped


def _ranks(q: float, rows: Array, kind: str) -> tuple[Array, Array, Array]:
    """Ranks t, counted from one, of the rows that the quantile lies between."""
    first = np.minimum(1.0, rows)
    if kind == "disc":
        rank = q * rows
        # DuckDB multiplies decimals: 0.07 * 100 is 7 and not 7.000000000000001.
        whole = np.rint(rank)
        near = np.abs(rank - whole) <= 4 * np.finfo(np.float64).eps * rank
        rank = np.maximum(np.where(near, whole, rank), first)
        return rank, rank, np.zeros(len(rows))
    index = q * np.maximum(rows - 1, 0.0)
    below = np.floor(index)
    return (
        np.minimum(below + 1, rows),
        np.minimum(np.ceil(index) + 1, rows),
        index - below,
    )


def _locate(distribution: Array, rank: Array) -> NDArray[np.intp]:
    """First position where the monotone fit of the distribution function reaches a rank."""
    partial = np.cumsum(distribution[:, :-1] - rank[:, None], axis=1)
    start = np.zeros((len(partial), 1))
    found: NDArray[np.intp] = np.argmin(np.concatenate([start, partial], axis=1), axis=1)
    return found
