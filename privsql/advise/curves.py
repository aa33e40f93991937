"""Interval width against retention: measured by pilots, interpolated, searched.

A **pilot** publishes at one retention and says how wide each named query's interval came out.
It is a callable here, so that this module knows neither data nor SQL.

For a count with one condition of mass b over n rows, n_1 of which satisfy it, the variance
that the perturbation adds is a closed form (reconstruction, 3):

    W^2 ~ (1-p)/p^2 [n_1 (1-b) (p + (1-p) b) + (n - n_1) b (1 - (1-p) b)]

that is ``W^2 = u (A u + B)`` with ``u = (1-p)/p``; more conditions add higher powers of u.  So
``g = ln W - ln(u)/2`` is a smooth, nearly straight line in ``ln p``, and a few pilots are enough
to read the whole curve between them: by a straight line through the nearest of them (weights
fall off with the distance in ln p and count draws).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from privsql.advise.formulas import AdviseError
from privsql.channels.channel import Array

# Retentions of a curve, as far as they are allowed.
GRID = (0.9, 0.7, 0.5, 0.35, 0.2, 0.1, 0.05)

# Where to go on while every query is still narrow enough, and where to stop.
LOWER = (0.02, 0.01, 0.005)

# Distance in ln p within which pilots speak for each other.
NEAR = 0.35

# A candidate this close to the wanted width (relatively) is not searched further.
CLOSE = 0.015

# From here on there is hardly a limit on retention that could be lifted.
LIFTED = 0.95
ROUNDS = 5

# Pilot: retention and number of draws -> the width of each query, infinite where it has none.
Pilot = Callable[[float, int], Sequence[float]]


@dataclass(frozen=True)
class Point:
    """What one pilot measured: a retention, each query's half-width, the draws behind it."""

    retention: float
    widths: tuple[float, ...]
    draws: int


@dataclass(frozen=True)
class Curve:
    """Pilots, by falling retention, and what is read between them."""

    points: tuple[Point, ...]

    def with_point(self, point: Point) -> Curve:
        """The curve with one more pilot."""
        points = sorted((*self.points, point), key=lambda each: -each.retention)
        return Curve(tuple(points))

    def width(self, query: int, retention: float) -> float:
        """Predicted half-width; infinite where the nearest pilot below had none."""
        known = [point for point in self.points if math.isfinite(point.widths[query])]
        if not known or retention < min(point.retention for point in known) * 0.999:
            return math.inf
        at = math.log(retention)
        x = np.array([math.log(point.retention) - at for point in known])
        y = np.array([math.log(max(p.widths[query], 1e-300)) - _shape(p.retention) for p in known])
        # At least two pilots take part, however far apart they are.
        apart = max(NEAR, float(np.sort(np.abs(x))[min(1, len(x) - 1)]))
        weights = np.exp(-0.5 * (x / (apart / 2)) ** 2) * [point.draws for point in known]
        return math.exp(_intercept(x, y, weights) + _shape(retention))

    def widths(self, retention: float) -> tuple[float, ...]:
        """Predicted half-widths of all queries."""
        return tuple(self.width(i, retention) for i in range(len(self.points[0].widths)))


@dataclass(frozen=True)
class Found:
    """The smallest retention that is narrow enough, and the curve that says so."""

    retention: float
    widths: tuple[float, ...]
    curve: Curve
    lowest: bool  # whether every query is narrow enough at the smallest retention tried


def search(
    pilot: Pilot,
    wanted: Sequence[float],
    *,
    top: float,
    draws: int = 2,
    grid: Sequence[float] = GRID,
) -> Found:
    """Smallest retention at which every query's half-width is at most what is wanted.

    Pilots along the grid bracket it; then the curve proposes a candidate, a pilot with twice
    the draws measures it, and so on until the candidate is right.  ``top`` is the largest
    retention that is allowed; if a query is too wide even there, that is an error.

    Widths are taken to fall as the retention rises.  Where they do not (caps of personal groups
    are larger at smaller retentions), the answer is the smallest retention above the largest
    one that was found too wide: narrow enough, though perhaps not the only such place.
    """
    curve = Curve(())

    def measure(retention: float, count: int) -> float:
        nonlocal curve
        widths = tuple(pilot(retention, count))
        curve = curve.with_point(Point(retention, widths, count))
        return _excess(widths, wanted)

    high, low = top, 0.0
    if measure(top, draws) > CLOSE:
        raise unreachable(curve.points[0], wanted)
    for retention in (each for each in grid if each < top * 0.97):
        if measure(retention, draws) > 0:
            low = max(low, retention)
        elif low == 0.0:
            high = retention
    for retention in LOWER:
        if low == 0.0 and retention < high:
            if measure(retention, draws) > 0:
                low = retention
            else:
                high = retention
    if low == 0.0:
        return Found(high, curve.widths(high), curve, True)
    for _ in range(ROUNDS):
        # Where the lower end has no interval, the curve cannot say from where on there is one.
        blind = not all(map(math.isfinite, curve.widths(low)))
        candidate = math.sqrt(low * high) if blind else _solved(curve, wanted, low, high)
        if candidate in (low, high):
            candidate = math.sqrt(low * high)
        excess = measure(candidate, 2 * draws)
        if excess > 0:
            low = candidate
        else:
            high = candidate
        if abs(excess) < CLOSE or high / low < 1 + CLOSE:
            break
    # Noise may have put the pilots around the answer in the wrong order: look a little wider.
    found = _rounded_up(_solved(curve, wanted, low / 1.1, min(top, high * 1.1)), top)
    return Found(found, curve.widths(found), curve, False)


def unreachable(point: Point, wanted: Sequence[float]) -> AdviseError:
    """The error for a query that is too wide at the largest retention allowed."""
    for i, (width, limit) in enumerate(zip(point.widths, wanted, strict=True)):
        if width > limit:
            got = f"± {width:.4g}" if math.isfinite(width) else "without a reliable interval"
            hint = f"ask for ± {width * 1.05:.3g} or more, or " if math.isfinite(width) else ""
            hint += "ask about more rows, with fewer conditions or coarser ranges"
            if point.retention < LIFTED:
                hint += (
                    "; accept_epsilon = true in the spec lifts the limit on retention, at the"
                    " expense of privacy"
                )
            return AdviseError(
                f"query {i + 1} cannot have ± {limit:g}: at retention {point.retention:.4g}, the"
                f" largest allowed, it is {got}",
                hint=hint,
            )
    raise AssertionError("no query is too wide")


def _solved(curve: Curve, wanted: Sequence[float], low: float, high: float) -> float:
    """Where the curve meets the given widths, by bisection of ln p between two retentions."""
    for _ in range(60):
        middle = math.sqrt(low * high)
        if _excess(curve.widths(middle), wanted) > 0:
            low = middle
        else:
            high = middle
    return high


def _excess(widths: Sequence[float], wanted: Sequence[float]) -> float:
    """``max_q ln(W_q / wanted_q)``: above 0 where some query is too wide."""
    worst = max(width / limit for width, limit in zip(widths, wanted, strict=True))
    return math.log(worst) if 0 < worst < math.inf else (-math.inf if worst == 0 else worst)


def _shape(retention: float) -> float:
    """``ln(u)/2``, u = (1-p)/p."""
    return 0.5 * math.log((1 - min(retention, 1 - 1e-9)) / retention)


def _intercept(x: Array, y: Array, weights: Array) -> float:
    """Value at x = 0 of the weighted straight line; the mean where all x are one."""
    w = weights / weights.sum()
    mean_x, mean_y = float(w @ x), float(w @ y)
    spread = float(w @ (x - mean_x) ** 2)
    if spread < 1e-12:
        return mean_y
    slope = float(w @ ((x - mean_x) * (y - mean_y))) / spread
    return mean_y - slope * mean_x


def _rounded_up(number: float, top: float) -> float:
    """Three digits that are not below the number, unless that is above what is allowed."""
    unit = 10.0 ** (math.floor(math.log10(number)) - 2)
    shown = float(f"{math.ceil(number / unit - 1e-9) * unit:.3g}")
    return shown if shown <= top else number
