"""Channels given by their matrix: any invertible one, and decoy groups."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from privsql.channels.cells import Cells
from privsql.channels.channel import (
    CONDITION_LIMIT,
    SUM_TOLERANCE,
    Array,
    Channel,
    amplification,
    checked_array,
    on_domain,
)
from privsql.errors import ChannelError


class Matrix(Channel):
    """Any invertible row-stochastic matrix (post-randomisation).

    ``independent`` says that rows were perturbed independently of each other.  Where they
    were not, the matrix still reconstructs, but no gamma and no epsilon hold.
    """

    mechanism = "matrix"

    def __init__(self, matrix: ArrayLike, *, independent: bool = True) -> None:
        self._matrix = _checked_transition(matrix)
        self.independent = independent

    def __repr__(self) -> str:
        """Show the size."""
        return f"{type(self).__name__}(values={self.size})"

    @property
    def size(self) -> int:
        """Number m of values."""
        return len(self._matrix)

    @property
    def matrix(self) -> Array:
        """The matrix itself."""
        return self._matrix

    @cached_property
    def _inverse(self) -> Array:
        inverse: Array = np.linalg.inv(self._matrix).astype(np.float64, copy=False)
        return inverse

    def expected(self, counts: ArrayLike) -> Array:
        """``counts @ T``."""
        return on_domain(counts, self.size) @ self._matrix

    def inverse(self, function: ArrayLike) -> Array:
        """``T^-1 g``."""
        return on_domain(function, self.size) @ self._inverse.T

    @property
    def gamma(self) -> float:
        """Largest ratio within a column; infinite if rows depend on each other."""
        return amplification(self._matrix) if self.independent else math.inf

    def signature(self, cells: Cells) -> Array | None:
        """The mass that each value sends into each cell."""
        return cells.sums(self._matrix)

    def _lumped(self, cells: Cells) -> Matrix:
        masses = cells.sums(self._matrix[cells.first])
        lumped = masses / masses.sum(axis=1, keepdims=True)
        return Matrix(lumped, independent=self.independent)

    def to_dict(self) -> dict[str, Any]:
        """Mechanism, matrix and whether rows are independent."""
        return {
            "mechanism": self.mechanism,
            "matrix": self._matrix.tolist(),
            "independent": self.independent,
        }

    @classmethod
    def _from_dict(cls, data: Mapping[str, Any]) -> Matrix:
        independent = data.get("independent", True)
        if not isinstance(independent, bool):
            raise ChannelError("independent must be true or false")
        return cls(data["matrix"], independent=independent)


class Decoy(Matrix):
    """Each row publishes one of the c values of its decoy group (SPLU 3-5).

    ``T[i, i] = 1/c``; where the rest goes depends on how groups were formed, so the
    matrix comes from the partition.  Rows of a group depend on each other and on the data:
    no gamma and no epsilon hold, whatever the matrix says, and both are infinite.
    """

    mechanism = "decoy"

    def __init__(self, group_size: int, matrix: ArrayLike) -> None:
        super().__init__(matrix, independent=False)
        self.group_size = _checked_group_size(group_size)
        if self.size < self.group_size:
            raise ChannelError("a decoy group cannot hold more distinct values than there are")
        if np.abs(np.diagonal(self._matrix) - 1 / self.group_size).max() > SUM_TOLERANCE:
            raise ChannelError("each value of a decoy column is published with chance 1/c")

    @classmethod
    def from_totals(cls, totals: Sequence[float] | Array, group_size: int) -> Decoy:
        """Channel of a partition that mixes values in proportion to what there is of them.

            T[i, j] = (c-1)/c * u_j / (U - u_i)   for i != j,    U = sum u,
            u_i (U - u_i) = f_i (c-1):

        pairs of rows that share a group form a symmetric table without a diagonal, as near
        to independence as its margins ``f_i (c-1)`` allow.  Hence ``f T = f``: the expected
        published count of each value is its count.  (SPLU eq. 6-9 miss that; reconstruction, 9.7)

        >>> Decoy.from_totals([100, 100, 100, 100], 2).matrix[0].round(4)
        array([0.5   , 0.1667, 0.1667, 0.1667])
        """
        c = _checked_group_size(group_size)
        try:
            f = np.array(totals, dtype=np.float64)
        except (TypeError, ValueError):
            raise ChannelError("totals must hold one number for each value") from None
        if f.ndim != 1 or not np.isfinite(f).all() or (f < 0).any() or not f.sum() > 0:
            raise ChannelError("totals must be counts, at least one of them above zero")
        share = float(f.max() / f.sum())
        if share > 0.9 / c:
            raise ChannelError(
                f"the most frequent value has a share of {share:.2f}; decoy groups of {c}"
                f" need every share to be at most {0.9 / c:.2f}",
                hint="choose smaller groups, or merge or drop the frequent value",
            )
        wanted = f / f.sum() * (c - 1)
        u = np.sqrt(wanted)
        # Fixed point of a symmetric scaling; the square root damps its oscillation.
        for _ in range(10_000):
            scaled = np.sqrt(u * wanted / (u.sum() - u))
            moved = np.abs(scaled - u).max()
            u = scaled
            if moved <= 1e-15 * u.max():
                break
        matrix = (c - 1) / c * u / (u.sum() - u)[:, None]
        np.fill_diagonal(matrix, 0)
        # Off the fixed point by rounding only: make rows sum to one exactly.
        matrix *= ((c - 1) / c / matrix.sum(axis=1))[:, None]
        np.fill_diagonal(matrix, 1 / c)
        return cls(c, matrix)

    def to_dict(self) -> dict[str, Any]:
        """Mechanism, group size and matrix."""
        return {
            "mechanism": self.mechanism,
            "group_size": self.group_size,
            "matrix": self._matrix.tolist(),
        }

    @classmethod
    def _from_dict(cls, data: Mapping[str, Any]) -> Decoy:
        return cls(data["group_size"], data["matrix"])


def _checked_transition(matrix: ArrayLike) -> Array:
    array = checked_array(matrix, "the matrix", 2)
    if array.shape[0] != array.shape[1]:
        raise ChannelError("the matrix must be square: one row and one column per value")
    off = np.abs(array.sum(axis=1) - 1)
    if off.max() > SUM_TOLERANCE:
        raise ChannelError(
            f"each row of the matrix must sum to one; row {int(off.argmax()) + 1} does not"
        )
    singular = np.linalg.svd(array, compute_uv=False)
    if not singular[-1] * CONDITION_LIMIT > singular[0]:
        raise ChannelError(
            "the matrix is singular: some original distributions cannot be distinguished",
            hint="keep more of each value (a larger diagonal)",
        )
    return array


def _checked_group_size(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 2:
        raise ChannelError("group_size must be a whole number of at least 2")
    return int(value)
