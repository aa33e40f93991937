"""A Kronecker product of small matrices, built only where that is cheaper.

A query that looks at k sensitive columns sees one state a combination of cells:
``S = m_1 * ... * m_k`` of them, flattened so that the last column's cell changes
fastest.  With one predicate a column that is the papers' 2^k vector, where bit r
of the index (from the left) says whether predicate r holds.  Columns are perturbed
independently, so the transition matrix between states is

    A = A_1 (x) A_2 (x) ... (x) A_k                                 (OLAP 4.2.1)

and everything that is needed of it follows from the k small factors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from udfs.errors import InputError, KernelError

Array = NDArray[np.float64]

# Up to this many states one dense product is faster than k small ones, because
# each small one pays for a pass over the array and for a call.
DENSE_STATES = 512

# Rows of a transition matrix must sum to one; this much is rounding.
ROW_SUM_TOLERANCE = 1e-9

# Beyond this condition number an inverse has no correct digit worth returning.
HOPELESS_CONDITION = 1e12


def numbers(values: ArrayLike, name: str) -> Array:
    """Return ``values`` as floats, or refuse what are none without quoting any."""
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        # Not chained: numpy's message quotes the value.
        raise KernelError(f"{name} must be numbers, in rows of one length") from None


class Kron:
    """``A_1 (x) ... (x) A_k`` for square factors ``A_r`` of shape ``(m_r, m_r)``.

    Vectors over states have shape ``(..., S)``; leading axes are a batch (groups).

    >>> a = Kron([[[0.75, 0.25], [0.25, 0.75]], [[0.9, 0.1], [0.4, 0.6]]])
    >>> a.shape, a.size
    ((2, 2), 4)
    >>> a.rows([100.0, 0.0, 0.0, 0.0])
    array([67.5,  7.5, 22.5,  2.5])
    """

    def __init__(self, factors: Iterable[ArrayLike]) -> None:
        checked: list[Array] = []
        if not isinstance(factors, Iterable):
            raise KernelError("factors must be a list of matrices")
        for position, factor in enumerate(factors, start=1):
            matrix = np.array(numbers(factor, f"the entries of factor {position}"))
            if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.size == 0:
                raise KernelError(
                    f"factor {position} must be a square matrix; its shape is {matrix.shape}"
                )
            if not np.isfinite(matrix).all():
                raise KernelError(f"factor {position} has an entry that is not finite")
            matrix.setflags(write=False)
            checked.append(matrix)
        self.factors: tuple[Array, ...] = tuple(checked)
        self.shape: tuple[int, ...] = tuple(len(matrix) for matrix in checked)
        self.size: int = math.prod(self.shape)

    def __repr__(self) -> str:
        """Name the shape, not the entries."""
        return f"Kron({' x '.join(map(str, self.shape)) or 'scalar'})"

    @cached_property
    def dense(self) -> Array:
        """The product itself, shape ``(S, S)``."""
        product = np.ones((1, 1))
        for factor in self.factors:
            block = product[:, None, :, None] * factor[None, :, None, :]
            product = block.reshape(len(product) * len(factor), -1)
        product.setflags(write=False)
        return product

    @cached_property
    def inverse(self) -> Kron:
        """``A^-1 = A_1^-1 (x) ... (x) A_k^-1``, with a refusal where that is hopeless."""
        if not self.condition < HOPELESS_CONDITION:
            raise InputError(
                f"the transition matrix cannot be inverted: its condition number is"
                f" {self.condition:.3g}, over {HOPELESS_CONDITION:.0e}"
            )
        return Kron([np.linalg.inv(factor) for factor in self.factors])

    @cached_property
    def condition(self) -> float:
        """Condition number in the 2-norm: the product of the factors' (OLAP fig. 6).

        >>> round(Kron([[[0.75, 0.25], [0.25, 0.75]]] * 3).condition, 9)  # p = 1/2, b = 1/2
        8.0
        """
        condition = 1.0
        for factor in self.factors:
            singular = np.linalg.svd(factor, compute_uv=False)
            condition *= float(singular[0] / singular[-1]) if singular[-1] > 0 else math.inf
        return condition

    @cached_property
    def is_identity(self) -> bool:
        """Whether nothing was perturbed, so that every answer is exact."""
        return all(np.array_equal(factor, np.eye(len(factor))) for factor in self.factors)

    def rows(self, vector: ArrayLike) -> Array:
        """``vector @ A`` on the last axis: original counts to expected published ones."""
        return self._product(self.states(vector), transpose=True)

    def columns(self, function: ArrayLike) -> Array:
        """``A @ function`` on the last axis: the mean of a function of the published state."""
        return self._product(self.states(function), transpose=False)

    def states(self, vector: ArrayLike) -> Array:
        """Return ``vector`` as floats after checking that its last axis is the states."""
        array = numbers(vector, "values over states")
        if array.ndim == 0 or array.shape[-1] != self.size:
            found = array.shape[-1] if array.ndim else "none"
            raise KernelError(
                f"expected {self.size} states ({self!r}) on the last axis, found {found}"
            )
        return array

    def _product(self, array: Array, *, transpose: bool) -> Array:
        if self.size <= DENSE_STATES:
            product: Array = array @ (self.dense if transpose else self.dense.T)
            return product
        result, before, after = array, array.size // self.size, self.size
        for factor in self.factors:
            after //= len(factor)
            block = result.reshape(before, len(factor), after)
            result = (factor.T if transpose else factor) @ block
            before *= len(factor)
        return result.reshape(array.shape)


def transition(factors: Iterable[ArrayLike]) -> Kron:
    """Transition matrix between states, one factor per column.

    Each factor must be row-stochastic, ``A_r[i, j] = P(published j | original i)``,
    and invertible; anything else is refused here, before a number comes out of it.  Entries that
    rounding put outside of [0, 1] are put back.

    >>> transition([[[0.75, 0.25], [0.25, 0.75]]]).rows([40, 60])
    array([45., 55.])
    >>> transition([[[0.5, 0.5], [0.5, 0.5]]])
    Traceback (most recent call last):
        ...
    udfs.errors.InputError: factor 1 is singular: published values carry no information
    """
    kron = factors if isinstance(factors, Kron) else Kron(factors)
    outside = any((factor < 0).any() or (factor > 1).any() for factor in kron.factors)
    for position, factor in enumerate(kron.factors, start=1):
        if (factor < -ROW_SUM_TOLERANCE).any() or (factor > 1 + ROW_SUM_TOLERANCE).any():
            raise KernelError(f"factor {position} has an entry outside [0, 1]")
        if np.abs(factor.sum(axis=1) - 1).max() > ROW_SUM_TOLERANCE:
            raise KernelError(f"factor {position} has a row that does not sum to one")
        if not Kron([factor]).condition < HOPELESS_CONDITION:
            raise InputError(
                f"factor {position} is singular: published values carry no information"
            )
    return Kron(np.clip(factor, 0.0, 1.0) for factor in kron.factors) if outside else kron


def retention_factor(retention: float, masses: ArrayLike) -> Array:
    """Chance that a row whose value lies in cell i is published in cell j.

        A[i, j] = retention * (i == j) + (1 - retention) * masses[j]

    ``masses[j]`` is the replacement distribution's mass of cell j.  (OLAP 4.1)

    >>> retention_factor(0.5, [0.6, 0.4])
    array([[0.8, 0.2],
           [0.3, 0.7]])
    """
    replacing = numbers(masses, "masses")
    if not 0 < retention <= 1:
        raise KernelError("retention must be above 0 and at most 1")
    if replacing.ndim != 1 or not (replacing.min(initial=0) >= 0 and replacing.size):
        raise KernelError("masses must be a list of probabilities")
    if not abs(replacing.sum() - 1) <= ROW_SUM_TOLERANCE:
        raise KernelError("masses must sum to one")
    return retention * np.eye(len(replacing)) + (1 - retention) * replacing
