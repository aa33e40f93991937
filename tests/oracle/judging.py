"""Whether estimates of many releases keep what is promised: bias, variance, coverage."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tests.oracle.families import Promise

Array = NDArray[np.float64]

# Of fewer answers no share is judged.
FEW = 50


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
    """What is not as promised.

    NULLs are judged cell by cell, and so is bias; then all cells are judged together, on
    bias once more (several small ones that point anywhere make a large one), variance and
    coverage.  Chance is allowed for on top of the promise, since R is finite: four standard
    errors of a mean, and 3.3 of everything else.

    A cell is *small* where more than a tenth of the releases call its answer unreliable, or
    more than 2% NULL: of ratios, spreads and quantiles nothing is promised there but that the
    reliable answers' intervals contain the truth often enough.  What is unbiased is unbiased in
    small cells as well.
    """
    found = [text for key, cell in cells.items() for text in _missing(key, cell, wanted)]
    if found:
        return found
    large = {key: cell for key, cell in cells.items() if not _small(cell)}
    if len(large) < wanted.large * len(cells):
        found.append(f"only {len(large)} of {len(cells)} cells are reliable")
    judged = cells if wanted.linear else large
    found += [text for key, cell in judged.items() for text in _bias(key, cell, wanted)]
    found += _bias_together(list(judged.values()), wanted)
    # Deterministic answers (swap's own totals) have no spread to judge.
    used = [cell for cell in judged.values() if _spread(cell) > 1e-12 * max(1.0, abs(cell.truth))]
    if used:
        found += _variance(used, wanted)
    return found + _coverage(list(large.values()), wanted) + _at_least(list(cells.values()), wanted)


def _small(cell: Estimates) -> bool:
    return bool((cell.reliable != 1).mean() > 0.1 or np.isnan(cell.values).mean() > 0.02)


def _spread(cell: Estimates) -> float:
    return float(np.nanstd(cell.values, ddof=1))


def _missing(key: object, cell: Estimates, wanted: Promise) -> list[str]:
    share = float(np.isnan(cell.values).mean())
    if share <= wanted.missing:
        return []
    return [f"{key}: {share:.0%} of the answers are NULL"]


def _bias(key: object, cell: Estimates, wanted: Promise) -> list[str]:
    values = cell.values[~np.isnan(cell.values)]
    mean, sd = float(values.mean()), float(values.std(ddof=1))
    limit = sd * (4 / math.sqrt(len(values)) + wanted.bias) + 1e-9 * abs(cell.truth)
    if abs(mean - cell.truth) <= limit:
        return []
    text = f"mean {mean:.6g} of the truth {cell.truth:.6g}, allowed {limit:.3g}"
    return [f"{key}: biased: {text}"]


def _bias_together(cells: list[Estimates], wanted: Promise) -> list[str]:
    """Squared errors of the means, in standard errors, add up to chi-square where unbiased.

    Only for what is promised to have no bias.  Cells of one release go together (they may
    share rows), so the limit is that of all of them being the same one.
    """
    spread = [cell for cell in cells if _spread(cell) > 1e-12 * max(1.0, abs(cell.truth))]
    if wanted.bias or len(spread) < 2:
        return []
    squares = []
    for cell in spread:
        values = cell.values[~np.isnan(cell.values)]
        error = float(values.std(ddof=1)) / math.sqrt(len(values))
        squares.append(((float(values.mean()) - cell.truth) / error) ** 2)
    worst = float(np.mean(squares))
    if worst <= 3.3**2:
        return []
    return [f"biased: means are {math.sqrt(worst):.1f} standard errors from the truth"]


def _variance(cells: list[Estimates], wanted: Promise) -> list[str]:
    """stderr^2 / variance, averaged over cells; each cell's has error sqrt(2/R).

    Of linear answers the mean of stderr^2, which is unbiased; of others its median, over
    the reliable answers: the delta method has outliers where a denominator is close to zero.
    """
    if wanted.variance is None:
        return []
    ratios, weights = [], 0
    for cell in cells:
        there = ~np.isnan(cell.values) & ~np.isnan(cell.stderr)
        if not wanted.linear:
            there &= cell.reliable == 1
        if there.sum() < 2:
            return ["no standard errors"]
        squares = cell.stderr[there] ** 2
        middle = float(squares.mean() if wanted.linear else np.median(squares))
        ratios.append(middle / float(cell.values[there].var(ddof=1)))
        weights += int(there.sum())
    ratio, chance = float(np.mean(ratios)), 3.3 * math.sqrt(2 / weights)
    low, high = wanted.variance
    low, high = min(low, 1 - chance), max(high, 1 + chance)
    if low <= ratio <= high:
        return []
    kind = "mean" if wanted.linear else "median"
    return [f"{kind} stderr^2 is {ratio:.3f} of the variance, not within {low:.2f} to {high:.2f}"]


def _held(cell: Estimates) -> NDArray[np.bool_]:
    """Whether each interval holds the truth; NULL ends are open ones (Fieller's may be)."""
    slack = 1e-9 * abs(cell.truth)
    above = np.isnan(cell.low) | (cell.low <= cell.truth + slack)
    below = np.isnan(cell.high) | (cell.truth <= cell.high + slack)
    held: NDArray[np.bool_] = above & below
    return held


def _coverage(cells: list[Estimates], wanted: Promise) -> list[str]:
    """All intervals of large cells, two-sided."""
    # What is exact is always covered, which is no evidence that intervals are too wide.
    spread = [cell for cell in cells if _spread(cell) > 1e-12 * max(1.0, abs(cell.truth))]
    if not all(_held(cell).all() for cell in cells if not any(cell is one for one in spread)):
        return ["an exact answer is not the truth"]
    if not spread:
        return []
    share, many = _share(spread, [np.ones(len(cell.values), dtype=bool) for cell in spread])
    low, high = wanted.coverage
    extra = _chance(many)
    if low - extra <= share <= high + extra:
        return []
    return [f"95% intervals cover {share:.1%}, not {low:.1%} to {high:.1%}"]


def _at_least(cells: list[Estimates], wanted: Promise) -> list[str]:
    """The reliable answers of all cells, small ones too: called 95%, they must be so."""
    chosen = [cell.reliable == 1 for cell in cells]
    if sum(int(each.sum()) for each in chosen) < FEW:
        return []
    share, many = _share(cells, chosen)
    low = wanted.coverage[0] - _chance(many)
    return [] if share >= low else [f"reliable intervals cover {share:.1%}, not {low:.1%}"]


def _share(cells: list[Estimates], chosen: list[NDArray[np.bool_]]) -> tuple[float, int]:
    pairs = list(zip(cells, chosen, strict=True))
    many = sum(int(each.sum()) for each in chosen)
    return sum(int((_held(cell) & each).sum()) for cell, each in pairs) / many, many


def _chance(many: int) -> float:
    """The promised bounds leave room for chance already at R = 500; fewer need more."""
    return max(0.0, 3.3 * math.sqrt(0.95 * 0.05 / many) - 0.03)


def coverage(cells: dict[object, Estimates]) -> tuple[float, float]:
    """Share of all intervals that hold the truth, and of answers called reliable."""
    everything = list(cells.values())
    all_ = [np.ones(len(cell.values), dtype=bool) for cell in everything]
    reliable = np.mean([(cell.reliable == 1).mean() for cell in everything])
    return _share(everything, all_)[0], float(reliable)
