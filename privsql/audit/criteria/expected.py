"""Expected width of an interval, from rows, retention and masses."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

Z = 1.959963984540054  # of 95%


def half_width(count: float, rows: float, retention: float, mass: float) -> float:
    """Half of the 95% interval of a count over one condition.

        Var = (x t1 (1-t1) + (n-x) t0 (1-t0)) / p^2,   t0 = (1-p) b,   t1 = p + t0

    x of n rows meet the condition, and a share b of the replacements does.

    >>> round(half_width(5_000, 10_000, 0.5, 0.5))
    170
    """
    t0 = (1 - retention) * mass
    t1 = retention + t0
    variance = count * t1 * (1 - t1) + (rows - count) * t0 * (1 - t0)
    return Z * math.sqrt(variance) / retention


def half_width_conditions(
    conditions: float, rows: float, retention: float, mass: float = 0.5, share: float = 0.5
) -> float:
    """Half of the 95% interval of a count over k conditions on k columns of one retention.

        Var = n (E[G^2]^k - f^k)
        E[G^2] = f (t1 a^2 + (1-t1) c^2) + (1-f) (t0 a^2 + (1-t0) c^2)
        a = (1 - (1-p) b) / p,   c = -(1-p) b / p

    Conditions are met independently, each by a share f of the rows.  Equal to
    :func:`half_width` for k = 1.

    >>> round(half_width_conditions(1, 10_000, 0.5))
    170
    """
    t0 = (1 - retention) * mass
    t1 = retention + t0
    yes, no = ((1 - t0) / retention) ** 2, (t0 / retention) ** 2
    square = share * (t1 * yes + (1 - t1) * no) + (1 - share) * (t0 * yes + (1 - t0) * no)
    return Z * math.sqrt(rows * (square**conditions - share**conditions))


def share_half_width(
    rows: float, retention: float, masses: ArrayLike, miss: float, total: float | None = None
) -> float:
    """Half of the interval of one value's share of all rows, whatever the shares are.

        Var = (f t1 (1-t1) + (1-f) t0 (1-t0)) / p^2 + f (1-f) (1 - n/N)
        t0 = (1-p) q,   t1 = p + t0

    The largest over the values, whose chances among replacements are the ``masses``, and over f.
    Where each of N rows was published (n = N) that is an f of 0 or 1, at which the published
    count is one binomial, and the interval is the binomial's own.  Where n rows stand for more,
    drawing them adds to it, and the interval is the normal one.

    >>> round(share_half_width(1_000, 0.5, [0.25], 0.05), 3)
    0.06
    """
    from scipy.special import ndtri
    from scipy.stats import binom

    if rows < 1:
        return math.inf
    variance, chance = _worst_share(retention, masses, 0.0 if total is None else 1 - rows / total)
    if total is not None and total > rows:
        return float(ndtri(1 - miss / 2)) * math.sqrt(variance / rows)
    n = math.floor(rows)
    ends = binom.ppf([miss / 2, 1 - miss / 2], n, chance) / n
    return float(np.abs(ends - chance).max()) / retention


def rows_for_share(retention: float, masses: ArrayLike, error: float, miss: float) -> float:
    """Rows whose interval of a share is within an error: the largest variance, and normal.

    >>> round(rows_for_share(0.5, [0.25], 0.05, 0.05))
    1441
    """
    from scipy.special import ndtri

    return _worst_share(retention, masses, 0.0)[0] * (float(ndtri(1 - miss / 2)) / error) ** 2


def _worst_share(retention: float, masses: ArrayLike, drawn: float) -> tuple[float, float]:
    """The largest variance of a share for one row, and the chance of the binomial that has it."""
    t0 = (1 - retention) * np.asarray(masses, float)
    t1 = retention + t0
    none, all_ = t0 * (1 - t0) / retention**2, t1 * (1 - t1) / retention**2
    # a f + b (1-f) + c f (1-f) is largest at an end, or where it turns.
    turn = np.clip((all_ - none + drawn) / (2 * drawn), 0, 1) if drawn > 0 else all_ > none
    variance = all_ * turn + none * (1 - turn) + drawn * turn * (1 - turn)
    worst = int(variance.argmax())
    return float(variance[worst]), float(t1[worst] if all_[worst] > none[worst] else t0[worst])
