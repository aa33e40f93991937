"""The log-likelihood that the solvers climb, to compare estimates by."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from udfs.iterate import checked_counts
from udfs.kron import Array, Kron


def log_likelihood(counts: ArrayLike, estimate: ArrayLike, kron: Kron) -> Array:
    """``L(x) = sum_q y_q log (x A)_q`` with ``0 log 0 = 0``, shape ``(...)``."""
    observed = checked_counts(counts, kron)
    expected = kron.rows(kron.states(estimate))
    with np.errstate(all="ignore"):
        terms = np.where(observed > 0, observed * np.log(np.maximum(expected, 0)), 0.0)
    return np.asarray(terms.sum(axis=-1), dtype=np.float64)
