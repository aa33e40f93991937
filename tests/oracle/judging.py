"""Whether estimates of many releases keep what is promised: bias, variance, coverage."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tests.oracle.families import Promise

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Estimates:
    """Answers of one cell over R releases; NaN is NULL."""

    truth: float
    values: Array
    stderr: Array
    low: Array
    high: Array
    reliable: Array  # 1, 0 or NaN


def complaints(cells: dict[object, Estimates], wanted: Promise) -> list[str]:
    """What is not as promised.  Bias is judged cell by cell, the rest over all cells.

    Chance is allowed for on top of the promise: four standard errors of a mean, and 3.3 of
    the estimated variance and coverage, since R is finite.
    """
    found = [text for key, cell in cells.items() for text in _bias(key, cell, wanted)]
    used = list(cells.values())
    if any((~np.isnan(cell.values)).sum() < 2 for cell in used):
        return found
    # Deterministic answers (swap's own totals) have no spread to judge.
    used = [cell for cell in used if _spread(cell) > 1e-12 * max(1.0, abs(cell.truth))]
    if used:
        found += _variance(used, wanted) + _coverage(used, wanted)
    return found


def _spread(cell: Estimates) -> float:
    return float(np.nanstd(cell.values, ddof=1))


def _bias(key: object, cell: Estimates, wanted: Promise) -> list[str]:
    there = ~np.isnan(cell.values)
    if 1 - there.mean() > wanted.missing:
        return [f"{key}: {1 - there.mean():.0%} of the answers are NULL"]
    values = cell.values[there]
    mean, sd = float(values.mean()), float(values.std(ddof=1))
    limit = sd * (4 / math.sqrt(len(values)) + wanted.bias) + 1e-9 * abs(cell.truth)
    if abs(mean - cell.truth) <= limit:
        return []
    text = f"mean {mean:.6g} of the truth {cell.truth:.6g}, allowed {limit:.3g}"
    return [f"{key}: biased: {text}"]


def _variance(cells: list[Estimates], wanted: Promise) -> list[str]:
    """mean(stderr^2) / variance, averaged over cells; each cell's has error sqrt(2/R)."""
    if wanted.variance is None:
        return []
    ratios, weights = [], 0
    for cell in cells:
        there = ~np.isnan(cell.values) & ~np.isnan(cell.stderr)
        if there.sum() < 2:
            return ["no standard errors"]
        ratios.append(float((cell.stderr[there] ** 2).mean() / cell.values[there].var(ddof=1)))
        weights += int(there.sum())
    ratio, chance = float(np.mean(ratios)), 3.3 * math.sqrt(2 / weights)
    low, high = wanted.variance
    low, high = min(low, 1 - chance), max(high, 1 + chance)
    if low <= ratio <= high:
        return []
    return [f"mean stderr^2 is {ratio:.3f} of the variance, not within {low:.2f} to {high:.2f}"]


def _coverage(cells: list[Estimates], wanted: Promise) -> list[str]:
    held, said, asked = 0, 0, 0
    for cell in cells:
        good = cell.reliable == 1
        low, high = cell.low, cell.high
        # NULL ends are open ones: Fieller's interval may be unbounded.
        above = np.isnan(low) | (low <= cell.truth + 1e-9 * abs(cell.truth))
        below = np.isnan(high) | (cell.truth <= high + 1e-9 * abs(cell.truth))
        held += int((above & below & good).sum())
        said += int(good.sum())
        asked += len(good)
    if said < wanted.reliable * asked:
        return [f"only {said} of {asked} answers are called reliable"]
    share = held / said
    # The promised bounds leave room for chance already at R = 500; fewer need more.
    extra = max(0.0, 3.3 * math.sqrt(0.95 * 0.05 / said) - 0.03)
    low_, high_ = wanted.coverage
    if low_ - extra <= share <= min(1.0, high_ + extra):
        return []
    return [f"95% intervals cover {share:.1%}, not {low_:.1%} to {high_:.1%}"]
