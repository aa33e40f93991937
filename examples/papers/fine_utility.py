"""The paper's two measures of how much a perturbed column is still worth (FINE def. 2 and 3)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike


def record_utility(frequencies: ArrayLike, retentions: ArrayLike) -> float:
    """Expected share of rows that keep their value, ``sum_i f_i T[i,i]`` (FINE def. 3).

    >>> record_utility([1, 1, 1, 1], [0, 1 / 3, 1 / 3, 1 / 3])
    0.4375
    """
    f, p = np.asarray(frequencies, float), np.asarray(retentions, float)
    return float(f / f.sum() @ (p + (1 - p) / len(p)))


def aggregate_utility(frequencies: ArrayLike, estimated: ArrayLike) -> float:
    """How close estimated frequencies come, ``1 - (1/m) sum_i |f_i - f'_i|`` (FINE def. 2).

    >>> aggregate_utility([0.5, 0.5], [0.75, 0.25])
    0.75
    """
    return float(1 - np.abs(np.subtract(frequencies, estimated)).mean())
