"""Quantiles of an ordered sensitive column, from its reconstructed distribution function.

The rows of a query may come in several parts that nobody shares: pieces of its condition,
public values that change the order.  Let ``position[j]`` be the place of state j of a part in
the order of all values, or -1 where the query does not count the state (its condition is
false there, or the value is NULL).  With x the inverted states of the part,

    F(i) = sum of x[j] over 0 <= position[j] <= i,          N = F(last).

Rows are perturbed independently, so F, N and the variances of ``F(i) - q N`` add up over
parts, and so do the two sums that make effective rows: ``tally`` is one part, ``added`` all.

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
from udfs.variance import classes_of, on_classes, published_floor

Kind = Literal["disc", "cont"]

# Rows and positions are taken so many at a time that no array is much larger.
BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Tallies:
    """What quantiles need of parts, at every position; shapes ``(parts, positions)``.

    ``total`` is F, ``excess`` is ``F - q N`` with its ``variance``, and ``second`` and
    ``fourth`` are its ``variance.weights``.  ``certain``, shape ``(parts,)``, is a part in
    which nothing was perturbed or sampled: it has no error, so these three are zero.
    """

    total: Array
    excess: Array
    variance: Array
    second: Array
    fourth: Array
    certain: NDArray[np.bool_]


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


def tally(
    sums: tuple[ArrayLike, ArrayLike, ArrayLike],
    positions: ArrayLike,
    q: float,
    size: int,
    kron: Kron,
) -> Tallies:
    """One part of each of several groups: F, ``F - q N`` and the error of that.

        F(i)      = sum of x[j] over 0 <= position[j] <= i,   x = products A^-1
        excess(i) = F(i) - q N = sum_j x[j] g_i[j],           g_i = 1[0 <= position <= i]
                                                                    - q 1[0 <= position]
        variance, second and fourth: ``variance.variance`` of g_i, and ``variance.weights`` of it
                                     on the states that positions tell apart

    ``sums`` are products, squares and fourths as in ``variance``, shapes ``(parts, S)``;
    ``positions``, shape ``(S,)``, are below ``size``, which is the same for parts that are
    to be added up.  (reconstruction, 3)

    >>> y = np.array([[3.0, 0.0, 2.0, 5.0]])
    >>> part = tally((y, y, y), [0, 1, 3, -1], 0.5, 5, Kron([np.eye(4)]))
    >>> part.total, part.excess, part.certain
    (array([[3., 3., 3., 5., 5.]]), array([[0.5, 0.5, 0.5, 2.5, 2.5]]), array([ True]))
    """
    _check_share(q)
    products, squares, fourths = (np.atleast_2d(kron.states(part)) for part in sums)
    if not products.shape == squares.shape == fourths.shape:
        raise KernelError("products, squares and fourths must be of as many rows")
    place = _places(positions, size, kron.size)
    kron, place, merged = _merged(kron, place)
    if merged:
        shape = tuple(len(classes) for classes in merged)
        products, squares, fourths = (
            on_classes(part, merged, shape) for part in (products, squares, fourths)
        )
    used = np.unique(place[place >= 0])
    # Which of the positions in use, counted from one, is the last at or below i.
    reached = np.searchsorted(used, np.arange(size), side="right")
    total = _distribution(products, place, kron)[:, reached]
    # No rows, or none that count, add nothing for certain, whatever was perturbed.
    certain = np.all((products == 0) & (squares == 0), axis=1) | (len(used) == 0)
    if kron.is_identity:
        certain |= np.all(products == squares, axis=1)
    errors = np.zeros((3, len(products), len(used) + 1))
    if not certain.all():
        unsure = ~certain if certain.any() else slice(None)
        rows = products[unsure], squares[unsure], fourths[unsure]
        errors[:, unsure] = _errors(rows, place, used, q, kron)
    spread, second, fourth = errors[:, :, reached]
    return Tallies(total, total - q * total[:, -1:], spread, second, fourth, certain)


def added(parts: Tallies, counts: ArrayLike) -> Tallies:
    """Add up parts to groups: the first ``counts[0]`` are the first group's, and so on.

        F = sum F_part,   variance = sum variance_part,   n_eff = (sum second)^2 / sum fourth

    because rows of different parts are different rows.  Every group has a part.

    >>> y = np.array([[3.0, 1.0], [0.0, 2.0]])
    >>> added(tally((y, y, y), [1, 0], 0.5, 2, Kron([np.eye(2)])), [2]).total
    array([[3., 6.]])
    """
    many = np.asarray(counts, dtype=np.intp)
    if (many < 1).any() or many.sum() != len(parts.certain):
        raise KernelError("every group must have a part and every part a group")
    if len(many) == len(parts.certain):
        return parts
    starts = np.cumsum(many) - many
    total, excess, variance, second, fourth = (
        np.add.reduceat(part, starts, axis=0)
        for part in (parts.total, parts.excess, parts.variance, parts.second, parts.fourth)
    )
    certain = np.logical_and.reduceat(parts.certain, starts)
    return Tallies(total, excess, variance, second, fourth, certain)


def quantile(tallies: Tallies, q: float, kind: str, z: Critical) -> Quantiles:
    """Quantile q of each group and Woodruff's interval for it.

    ``tallies`` are those of whole groups (``added``), made for the same q.  The interval is
    that of ``F(i) - q N`` with its own variance and effective rows at every position,
    stretched to hold the estimate and without the positions up to which there are no rows
    for certain; where every part is certain it is the estimate itself.  (reconstruction, 3)

    >>> y = np.array([[3.0, 0.0, 2.0, 5.0]])  # values 0 0 0 2 2 and five rows not counted
    >>> part = tally((y, y, y), [0, 1, 2, -1], 0.625, 3, Kron([np.eye(4)]))
    >>> found = quantile(part, 0.625, "cont", 1.96)
    >>> found.lower, found.upper, found.fraction
    (array([0]), array([2]), array([0.5]))
    """
    if kind not in ("disc", "cont"):
        raise KernelError("the kind of a quantile is 'disc' or 'cont'")
    _check_share(q)
    distribution = _snapped(tallies.total)
    total = distribution[:, -1]
    off = np.abs(tallies.excess - (distribution - q * total[:, None])).max(axis=1, initial=0)
    if (off > 1e-6 * np.maximum(1.0, np.abs(distribution).max(axis=1, initial=0))).any():
        raise KernelError("the tallies of a quantile must be made for the same q")
    known = total > 0
    lower_rank, upper_rank, fraction = _ranks(q, np.where(known, total, 1.0), kind)
    lower = _locate(distribution, lower_rank)
    upper = np.maximum(lower, _locate(distribution, upper_rank))
    inexact = tallies.fourth > 0
    rows = np.where(inexact, tallies.second**2 / np.where(inexact, tallies.fourth, 1.0), np.inf)
    found: Positions = woodruff_interval(tallies.excess, tallies.variance, rows, z)
    nothing = (distribution == 0) & (tallies.second == 0)
    first = np.logical_and.accumulate(nothing, axis=1).sum(axis=1)
    exact = tallies.certain
    return Quantiles(
        lower,
        upper,
        fraction,
        np.where(exact, lower, np.minimum(np.maximum(found.low, first), lower)),
        np.where(exact, upper, np.maximum(found.high, upper)),
        found.reliable | exact,
        known,
    )


def _check_share(q: float) -> None:
    if not 0 <= q <= 1:
        raise KernelError("a quantile lies between 0 and 1")


def _merged(kron: Kron, place: NDArray[np.intp]) -> tuple[Kron, NDArray[np.intp], list[Array]]:
    """The channel between states that positions distinguish, and the merged states.

    Other aggregates cut columns finer, which must not matter here.  Cells go together where
    their positions are the same and the channel lets them (lumpable).
    """
    tensor = place.reshape(kron.shape)
    factors, merged, firsts = [], [], []
    for axis, factor in enumerate(kron.factors):
        classes = classes_of(tensor.astype(np.float64), axis)
        first = classes.argmax(axis=0)
        lumped = factor @ classes
        if np.abs(lumped - lumped[first][classes.argmax(axis=1)]).max() > 1e-12:
            classes, first, lumped = np.eye(len(factor)), np.arange(len(factor)), factor
        factors.append(lumped[first])
        merged.append(classes)
        firsts.append(first)
    if all(len(classes) == classes.shape[1] for classes in merged):
        return kron, place, []
    return Kron(factors), tensor[np.ix_(*firsts)].ravel(), merged


def _places(positions: ArrayLike, size: int, states: int) -> NDArray[np.intp]:
    place = numbers(positions, "positions")
    if place.shape != (states,):
        raise KernelError(f"positions must name one for each of the {states} states")
    if not 1 <= size < 2**31:
        raise KernelError("there must be at least one position")
    if not ((place >= -1) & (place == np.floor(place))).all():
        raise KernelError("a position is a whole number from 0 on, or -1")
    if (place >= size).any():
        raise KernelError("a position must be below the number of positions")
    return place.astype(np.intp)


def _distribution(products: Array, place: NDArray[np.intp], kron: Kron) -> Array:
    """F after nothing and after each position in use, shape ``(parts, used + 1)``."""
    order = np.argsort(place, kind="stable")
    order = order[place[order] >= 0]
    states = products if kron.is_identity else invert(products, kron)
    running = np.zeros((len(products), len(order) + 1))
    np.cumsum(states[:, order], axis=1, out=running[:, 1:])
    # The last state at each position has seen all of it.
    last = np.flatnonzero(np.diff(place[order], append=-1))
    return _snapped(running[:, np.concatenate([[0], last + 1])])


def _errors(
    sums: tuple[Array, Array, Array],
    place: NDArray[np.intp],
    used: NDArray[np.intp],
    q: float,
    kron: Kron,
) -> Array:
    """Variance, second and fourth before and at each position in use, ``(3, parts, used + 1)``."""
    ends = np.concatenate([[-1], used])
    parts = len(sums[0])
    found = np.empty((3, parts, len(ends)))
    wide = max(1, BLOCK // kron.size)
    for i in range(0, len(ends), wide):
        functions = _Functions(place, ends[i : i + wide], q, kron)
        long = max(1, BLOCK // max(kron.size, functions.count))
        for j in range(0, parts, long):
            products, squares, fourths = (part[j : j + long] for part in sums)
            block = found[:, j : j + long, i : i + wide]
            block[0] = functions.variances(products, squares)
            block[1:] = functions.weights(squares, fourths)
    return found


class _Functions:
    """What is needed of ``g_i = 1[0 <= position <= i] - q 1[counted]`` at some positions i.

    ``powers[k]``, shape ``(S, positions)``, is K^k with K = A^-1 g less a constant for each i,
    which moves no weight and keeps the digits that powers of K would lose.
    """

    def __init__(
        self, place: NDArray[np.intp], ends: NDArray[np.intp], q: float, kron: Kron
    ) -> None:
        counted = place >= 0
        function = (counted & (place <= ends[:, None])) - q * counted
        # A constant stays one: told here, it leaves no rounding behind.
        flat = np.all(function == function[:, :1], axis=1, keepdims=True)
        inverted = np.where(flat, function, invert_function(function, kron))
        self.count = len(ends)
        self.seconds = inverted**2
        self.expected = np.where(flat, function**2, invert_function(function**2, kron))
        self.floor = published_floor(kron)
        centred = np.where(flat, 0.0, inverted - inverted.mean(axis=1, keepdims=True)).T
        self.powers: Array = np.stack([np.ones_like(centred), centred, *[centred] * 3])
        np.cumprod(self.powers, axis=0, out=self.powers)

    def variances(self, products: Array, squares: Array) -> Array:
        """``variance.variance`` at every position, shape ``(parts, positions)``."""
        spread: Array = squares @ self.seconds.T - products @ self.expected.T
        return spread

    def weights(self, squares: Array, fourths: Array) -> tuple[Array, Array]:
        """``variance.weights`` at every position, by matrix products.

        sum s (K - c)^2 = sum s K^2 - 2 c sum s K + c^2 sum s,  and so on to the fourth
        """
        all_squares = squares.sum(axis=1, keepdims=True)
        all_fourths = fourths.sum(axis=1, keepdims=True)
        divisor = np.where(all_squares > 0, all_squares, 1.0)
        centre = squares @ self.powers[1] / divisor
        second = np.maximum(squares, self.floor * all_squares)
        fourth = np.maximum(fourths, self.floor * all_fourths)
        fourth = np.maximum(fourth, (all_fourths / divisor) ** 2)
        return _central(second, centre, self.powers[:3]), _central(fourth, centre, self.powers)


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
