"""Intervals for reconstructed answers, each with a rule for its reliability.

Which interval goes with which answer is fixed in section 3 of the mathematics:

    one condition on one column      score_interval     the published count, mapped back
    more columns, sums               wald_interval      estimate +- z * standard error
    ratios                           fieller_interval   no linearisation of the quotient
    quantiles                        woodruff_interval  the distribution function's interval

All take a critical value ``z`` (``critical``), all are vectorised over groups, and all
return ``Bounds``.  An end that cannot be given is NaN, never a guess.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from udfs.errors import KernelError
from udfs.kron import Array, Kron, numbers

# A critical value for all groups, or one for each.
Critical = float | Array

# Below this many effective rows a Wald interval is not called by its level.
ENOUGH_ROWS = 20.0

# What is left of variances that cancel, as a share of what was added up.
ROUNDING = 1e-12

# An end farther from a ratio than so many times the larger of the ratio and its standard error
# says nothing: it cannot be told.
FARTHEST = 1000.0

# The intervals of ratios are called by their level where their denominator is at least so many
# times its own half-width away from zero.
AWAY = 2**0.5


@dataclass(frozen=True, slots=True)
class Bounds:
    """Ends of intervals, and whether each is reliable at its level; shape ``(...)``."""

    low: Array
    high: Array
    reliable: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Positions:
    """Positions in an ordered domain: a quantile and the ends of its interval."""

    estimate: NDArray[np.intp]
    low: NDArray[np.intp]
    high: NDArray[np.intp]
    reliable: NDArray[np.bool_]


def critical(level: float, cells: int = 1) -> float:
    """Critical value z of a two-sided interval, for ``cells`` intervals together.

        z = Phi^-1((1 + level^(1/cells)) / 2)                        (Sidak)

    >>> round(critical(0.95), 3), round(critical(0.95, cells=100), 3)
    (1.96, 3.474)
    """
    wanted, many = float(numbers(level, "level")), float(numbers(cells, "cells"))
    if not 0 < wanted < 1:
        raise KernelError("a confidence level lies strictly between 0 and 1")
    if not 1 <= many <= 1e15:
        raise KernelError("there must be at least one cell")
    # 1 - level^(1/cells) by expm1/log, so that a million cells lose no digits.
    tail = -np.expm1(np.log(wanted) / many)
    return -NormalDist().inv_cdf(float(tail) / 2)


def score_interval(hits: ArrayLike, rows: ArrayLike, kron: Kron, z: Critical) -> Bounds:
    """Interval of a count under one condition on one column, from its published count.

    With ``A = [[1-c, c], [1-a, a]]`` over (not P, P), x true rows of n are published as
    ``Y = Binomial(x, a) + Binomial(n-x, c)``.  The interval holds every x that Y does not
    reject, with the variance *at that x* and a continuity correction of half a row:

        |Y - c n - (a-c) x| - 1/2  <=  z sqrt(x a(1-a) + (n-x) c(1-c))

    whose ends are roots of a quadratic.  (reconstruction, 3; RECON lemma 2 for the mean)
    Outside [0, n] the variance is that of the nearer end.  Ends are not cut to [0, n].

    >>> from udfs.kron import Kron, retention_factor
    >>> bounds = score_interval(300, 1000, Kron([retention_factor(0.2, [0.75, 0.25])]), 1.96)
    >>> float(bounds.low.round(1)), float(bounds.high.round(1))
    (362.8, 645.1)
    """
    if kron.shape != (2,):
        raise KernelError("the score interval is for two states: not P, and P")
    (_, c), (_, a) = kron.factors[0].tolist()
    n, y = numbers(rows, "rows"), numbers(hits, "hits")
    z = _checked_critical(z)
    if not np.all((y >= 0) & (y <= n) & (n < np.inf)):
        raise KernelError("hits must lie between 0 and the number of rows")
    if a < c:
        # A channel that mostly flips: look at the complement, which counts the same x.
        a, c, y = 1 - a, 1 - c, n - y
    slope, inner, outer = a - c, a * (1 - a), c * (1 - c)
    if slope == 0:
        raise KernelError("the two states cannot be distinguished: the channel is singular")
    # Nothing random (retention 1) needs no correction: the count is the truth.
    correction = 0.5 if inner or outer else 0.0
    low = _score_end(y - correction - c * n, n, slope, inner, outer, -z)
    high = _score_end(y + correction - c * n, n, slope, inner, outer, z)
    # No rows hold no hits: that needs no error bar.
    low, high = np.where(n > 0, low, 0.0), np.where(n > 0, high, 0.0)
    return Bounds(low, high, np.isfinite(low) & np.isfinite(high))


def _score_end(u: Array, n: Array, slope: float, inner: float, outer: float, z: Critical) -> Array:
    """Root x of ``slope*x - u = z*sqrt(V(x))``, ``V(x) = x*inner + (n-x)*outer`` cut to [0, n]."""
    bend = inner - outer
    half = u * slope + z * z * bend / 2
    discriminant = half**2 - slope**2 * (u**2 - z * z * n * outer)
    root = (half + np.sign(z) * np.sqrt(np.maximum(discriminant, 0))) / slope**2
    below = (u + z * np.sqrt(n * outer)) / slope
    above = (u + z * np.sqrt(n * inner)) / slope
    # Far outside the range the quadratic's roots are the other end's, or none at all.
    ours = (discriminant >= 0) & (np.sign(z) * (slope * root - u) >= 0)
    position = np.where(ours, root, u / slope)
    return np.where(position < 0, below, np.where(position > n, above, root))


def wald_interval(
    estimate: ArrayLike, variance: ArrayLike, effective_rows: ArrayLike, z: Critical
) -> Bounds:
    """``estimate +- z sqrt(variance)``, reliable from 20 effective rows on.

    A variance that is not above zero says nothing, so its ends are NaN: an answer that is
    exact because nothing was perturbed is known from the channel, not from here.
    """
    value, known = numbers(estimate, "estimate"), numbers(variance, "variance")
    spread = _checked_critical(z) * np.sqrt(np.where(known > 0, known, np.nan))
    low, high = np.broadcast_arrays(value - spread, value + spread)
    reliable = np.isfinite(low) & (numbers(effective_rows, "effective_rows") >= ENOUGH_ROWS)
    return Bounds(low, high, reliable)


def fieller_interval(
    numerator: ArrayLike,
    denominator: ArrayLike,
    variances: tuple[ArrayLike, ArrayLike, ArrayLike],
    effective_rows: ArrayLike,
    z: Critical,
) -> Bounds:
    """Interval of a ratio N/D: every R that ``N - R D`` does not reject (Fieller).

        (N - R D)^2  <=  z^2 (V_N - 2 R C + R^2 V_D)

    ``variances`` are ``(V_N, C, V_D)``.  The set is bounded exactly when D is significantly
    away from zero, ``D^2 > z^2 V_D``; otherwise both ends are NaN.  Close to that border ends
    run away: one that is farther from the ratio than 1000 times the larger of the ratio and
    its standard error is NaN too.  ``effective_rows`` is the smaller of numerator's and
    denominator's.

    Fieller's set holds the ratio in 95 of 100 cases, the unbounded ones among them.  Of the
    bounded ones alone that is true only where D is clearly away from zero: of a denominator
    that is truly about zero only those estimates are seen that err by two standard errors.
    So the interval is called reliable from ``D^2 >= 2 z^2 V_D`` on: at 95%, one in 180
    denominators that are truly zero gets there.

    The variance of the ratio is ``(V_N - 2 R C + R^2 V_D) / D^2``.  Where its terms cancel to
    rounding (1e-12 of their sum) the ratio is the same whatever the data: a point.

    >>> bounds = fieller_interval(40.0, 100.0, (25.0, 10.0, 36.0), 1000, 1.96)
    >>> float(bounds.low.round(4)), float(bounds.high.round(4))
    (0.3075, 0.4959)
    """
    top, bottom = numbers(numerator, "numerator"), numbers(denominator, "denominator")
    v_top, cov, v_bottom = (numbers(part, "variances") for part in variances)
    z = _checked_critical(z)
    square = bottom**2 - z * z * v_bottom
    cross = top * bottom - z * z * cov
    constant = top**2 - z * z * v_top
    discriminant = cross**2 - square * constant
    # Every variance zero is an exact ratio.  Otherwise the spread of N - R D must be above
    # zero at the estimate itself; estimated variances need not fit together.
    exact = (v_top == 0) & (v_bottom == 0) & (cov == 0)
    parts = v_top * bottom**2, -2 * top * bottom * cov, top**2 * v_bottom
    here, size = parts[0] + parts[1] + parts[2], sum(np.abs(part) for part in parts)
    exact = exact | ((np.abs(here) <= ROUNDING * size) & (size > 0))
    known = (square > 0) & (v_top >= 0) & (v_bottom >= 0) & ((here > 0) | exact)
    root = np.sqrt(np.where(known, np.maximum(discriminant, 0), np.nan))
    divisor = np.where(known, square, 1.0)
    below = np.where(known, bottom, np.nan)
    ratio = top / below
    far = FARTHEST * np.maximum(np.abs(ratio), np.sqrt(np.maximum(here, 0)) / below**2)
    low, high = (
        np.where(exact, ratio, np.where(np.abs(end - ratio) <= far, end, np.nan))
        for end in ((cross - root) / divisor, (cross + root) / divisor)
    )
    enough = numbers(effective_rows, "effective_rows") >= ENOUGH_ROWS
    away = bottom**2 >= (AWAY * z) ** 2 * v_bottom
    return Bounds(low, high, known & ((enough & away) | exact))


def woodruff_interval(
    excess: ArrayLike, variance: ArrayLike, effective_rows: ArrayLike, z: Critical
) -> Positions:
    """Quantile of an ordered column and its interval, from its distribution function.

    ``excess[i] = F(i) - q N`` is the reconstructed number of rows at or below the i-th
    value less q times all of them, with its variance and its effective rows; shapes
    ``(..., m)``.

    The estimate is where the *monotone* fit of excess turns non-negative, which is the
    position of the least partial sum of excess, the reconstructed pinball loss.  The
    interval is Woodruff's: positions whose excess is not significantly away from zero,

        low  = first i with excess[i] + z se[i] >= 0
        high = 1 + last i with excess[i] - z se[i] < 0,

    first and last, because an inverted distribution function need not be monotone.  It is
    reliable when the distribution function has 20 effective rows at every position in it.

    >>> found = woodruff_interval([-30, -5, 12, 50], [16, 25, 25, 0], [90, 90, 90, 90], 1.96)
    >>> int(found.low), int(found.estimate), int(found.high), bool(found.reliable)
    (1, 2, 2, True)
    """
    over, spread = numbers(excess, "excess"), numbers(variance, "variance")
    rows = numbers(effective_rows, "effective_rows")
    if over.ndim == 0 or over.size == 0 or not over.shape == spread.shape == rows.shape:
        raise KernelError("excess, variance and effective_rows must be equally long lists")
    last = over.shape[-1] - 1
    position = np.arange(last + 1)
    # The last position holds all rows: it is never in doubt, and its variance is rounding.
    known = (spread >= 0) | (position == last)
    error = np.where(spread > 0, spread, 0.0) ** 0.5 * np.asarray(_checked_critical(z))[..., None]
    error = np.where(known, np.where(position == last, 0.0, error), np.inf)
    partial = np.cumsum(over, axis=-1)
    estimate = np.argmin(np.concatenate([over[..., :1] * 0, partial[..., :-1]], axis=-1), axis=-1)
    low = np.argmax((over + error >= 0) | (position == last), axis=-1)
    unsure = (over - error < 0) & (position < last)
    high = np.where(unsure.any(axis=-1), last - np.argmax(unsure[..., ::-1], axis=-1) + 1, 0)
    # Rounding aside the estimate lies between them.
    low, high = np.minimum(low, estimate), np.maximum(high, estimate)
    within = (position >= low[..., None]) & (position <= high[..., None]) & (position < last)
    enough = known & (rows >= ENOUGH_ROWS) & np.isfinite(over)
    reliable: NDArray[np.bool_] = np.all(enough | ~within, axis=-1)
    return Positions(estimate, low, high, reliable)


def constrain(bounds: Bounds, estimate: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> Bounds:
    """Bounds of a constrained estimate: the inversion's, cut to what is possible.

    They always hold the estimate and never have zero width: where cutting leaves a single
    point, half of the uncut width is kept on the inner side.  (reconstruction, 4)

    >>> b = Bounds(np.array([-90.0]), np.array([-10.0]), np.array([True]))
    >>> cut = constrain(b, [0.0], 0.0, 1000.0)
    >>> cut.low, cut.high
    (array([0.]), array([40.]))
    """
    value, least, most = (
        numbers(part, name)
        for part, name in ((estimate, "estimate"), (lower, "lower"), (upper, "upper"))
    )
    if np.any(least > most):
        raise KernelError("the possible range of an estimate ends below where it begins")
    half = (bounds.high - bounds.low) / 2
    low = np.minimum(np.clip(bounds.low, least, most), value)
    high = np.maximum(np.clip(bounds.high, least, most), value)
    flat = (low == high) & (half > 0)
    high = np.where(flat, np.minimum(high + half, most), high)
    low = np.where(flat & (low == high), np.maximum(low - half, least), low)
    return Bounds(low, high, bounds.reliable)


def _checked_critical(z: Critical) -> Critical:
    """Critical values are above zero, or an interval would turn inside out."""
    if not np.all((np.asarray(z) > 0) & np.isfinite(z)):
        raise KernelError("a critical value must be above zero and finite")
    return z
