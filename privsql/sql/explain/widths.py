"""Error bounds of a sum from the channel alone: the largest standard error per row.

A row in state s adds ``G(published)`` to an estimate, ``G = A^-1 g``, with the variance

    v(s) = sum_j A[s, j] G[j]^2 - g[s]^2.                                  (reconstruction, 3)

``row_error`` has the channel as matrices between cells.  ``product_error`` needs none: where a
column keeps its value with chance p and draws from q otherwise,

    A f = p f + (1 - p) (q . f),     A^-1 g = (g - (1 - p) (q . g)) / p,

so that a product of functions of one column each is worked out column by column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod, sqrt

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# States times groups beyond which a width is not worth its time.
MOST_WORK = 2**22


@dataclass(frozen=True)
class Kept:
    """A function of one column that keeps or replaces its values."""

    retention: float
    replacing: Floats
    values: Floats  # g over the domain

    def moments(self) -> Floats:
        """``A G^2`` and ``g^2`` of each value, shape (values, 2), equal rows once."""
        p, q, g = self.retention, self.replacing, self.values
        square = ((g - (1 - p) * (q @ g)) / p) ** 2
        both = np.stack([p * square + (1 - p) * (q @ square), g * g], axis=1)
        return np.unique(both, axis=0)


def row_error(factors: Sequence[Floats], function: Floats) -> float:
    """Largest standard deviation of ``G(published)`` over the states that a row may be in.

    ``function`` is g over all states, the last factor's cell changing fastest.  Retention 1/2
    and a predicate of mass 1/2: G is 3/2 or -1/2, so from either state

    >>> half = np.array([[0.75, 0.25], [0.25, 0.75]])
    >>> round(row_error([half], np.array([0.0, 1.0])) ** 2, 9)
    0.75
    """
    shape = [len(factor) for factor in factors]
    g = np.asarray(function, dtype=np.float64).reshape(shape)
    inverted = g
    for axis, factor in enumerate(factors):
        inverted = _along(np.asarray(np.linalg.inv(factor), dtype=np.float64), inverted, axis)
    second = inverted * inverted
    for axis, factor in enumerate(factors):
        second = _along(factor, second, axis)
    return _largest(second, g * g)


def product_error(columns: Sequence[Kept]) -> float | None:
    """The same for a product of functions, or None where there are too many states.

    >>> half = Kept(0.5, np.array([0.5, 0.5]), np.array([0.0, 1.0]))
    >>> round(product_error([half]) ** 2, 9)
    0.75
    """
    found = [column.moments() for column in columns]
    if prod(len(one) for one in found) > MOST_WORK:
        return None
    second, square = np.ones(1), np.ones(1)
    for one in found:
        second = np.outer(second, one[:, 0]).ravel()
        square = np.outer(square, one[:, 1]).ravel()
    return _largest(second, square)


def kept_condition(retention: float, replacing: Floats) -> float:
    """Condition number of ``p I + (1 - p) 1 q^T`` in the 2-norm, without the matrix.

    On what is orthogonal to 1 and q it is p; between those two directions it is

        [[1, (1 - p) sqrt(m) r], [0, p]],     r^2 = |q|^2 - 1/m.

    >>> q = np.array([0.1, 0.2, 0.7])
    >>> matrix = 0.4 * np.eye(3) + 0.6 * q
    >>> bool(np.isclose(kept_condition(0.4, q), np.linalg.cond(matrix)))
    True
    """
    m = len(replacing)
    apart = sqrt(max(0.0, float(replacing @ replacing) - 1 / m))
    small = np.array([[1.0, (1 - retention) * sqrt(m) * apart], [0.0, retention]])
    values = [*np.linalg.svd(small, compute_uv=False).tolist()][: min(m, 2)]
    values += [retention] if m > 2 else []
    return float(max(values) / min(values))


def _largest(second: Floats, square: Floats) -> float:
    # What is left of a function that needs no inversion is rounding.
    rounding = 1e-12 * float(np.max(second, initial=0.0))
    largest = float(np.max(second - square, initial=0.0))
    return sqrt(largest) if largest > rounding else 0.0


def _along(matrix: Floats, tensor: Floats, axis: int) -> Floats:
    return np.moveaxis(np.tensordot(matrix, tensor, axes=(1, axis)), 0, axis)
