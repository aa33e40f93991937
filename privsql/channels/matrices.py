"""Channels given by their matrix: any invertible one, and decoy groups."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import ClassVar

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
    checked_size,
    on_domain,
)
from privsql.errors import ChannelError


class Matrix(Channel):
    """Any invertible row-stochastic matrix (post-randomisation).

    ``independent`` says that rows were perturbed independently of each other.  Where they
    were not, the matrix still reconstructs, but no gamma and no epsilon hold.
    """

    mechanism = "matrix"
    parameters = ("matrix", "independent")
    optional: ClassVar[Mapping[str, object]] = {"independent": True}

    def __init__(self, matrix: ArrayLike, *, independent: bool = True) -> None:
        if not isinstance(independent, bool):
            raise ChannelError("independent must be true or false")
        self._matrix = _checked_transition(matrix)
        self.size = len(self._matrix)
        self.independent = independent

    def __repr__(self) -> str:
        """Show the size."""
        return f"{type(self).__name__}(values={self.size})"

    @property
    def matrix(self) -> Array:
        """The matrix itself."""
        return self._matrix

    @cached_property
    def _inverse(self) -> Array:
        return np.linalg.inv(self._matrix).astype(np.float64, copy=False)

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


class Decoy(Matrix):
    """Each row publishes one of the c values of its decoy group (SPLU 3-5).

    ``T[i, i] = 1/c``; where the rest goes depends on how groups were formed, so the
    matrix comes from the partition.  Rows of a group depend on each other and on the data:
    no gamma and no epsilon hold, whatever the matrix says, and both are infinite.
    """

    mechanism = "decoy"
    parameters = ("group_size", "matrix")

    def __init__(self, group_size: int, matrix: ArrayLike) -> None:
        super().__init__(matrix, independent=False)
        self.group_size = checked_group_size(group_size)
        if self.size < self.group_size:
            raise ChannelError("a decoy group cannot hold more distinct values than there are")
        if np.abs(np.diagonal(self._matrix) - 1 / self.group_size).max() > SUM_TOLERANCE:
            raise ChannelError("each value of a decoy column is published with chance 1/c")


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


def checked_group_size(value: object) -> int:
    """The number of values in a decoy group, at least 2."""
    return checked_size(value, "group_size", 2)
