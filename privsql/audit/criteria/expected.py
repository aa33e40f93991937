"""Expected width of an interval, from rows, retention and masses."""

from __future__ import annotations

import math

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
