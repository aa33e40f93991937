"""The mechanisms: uniform, replace, fine-grain, any matrix, decoys.

Beware of names: *retention* p keeps the value with chance p and may then redraw the same
value, so the chance of a truthful output is ``p + (1-p) q_i``, not p.
"""

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
    checked_number,
    checked_retention,
    checked_size,
    gamma_of_rho,
)
from privsql.errors import ChannelError


class Uniform(Channel):
    """Keep the value with chance p, otherwise draw one uniformly from the domain.

        T[i, j] = p (i == j) + (1-p)/m                      (OLAP 3, RECON eq. 3)

    >>> channel = Uniform(0.5, 4)
    >>> channel.matrix[0]
    array([0.625, 0.125, 0.125, 0.125])
    >>> channel.gamma, round(channel.epsilon, 4)
    (5.0, 1.6094)
    """

    mechanism = "uniform"

    def __init__(self, retention: float, size: int) -> None:
        self.retention = checked_retention(retention)
        self._size = checked_size(size)

    def __repr__(self) -> str:
        """Show what defines the channel."""
        return f"Uniform(retention={self.retention}, values={self._size})"

    @classmethod
    def from_gamma(cls, gamma: float, size: int) -> Uniform:
        """Largest retention whose amplification is ``gamma``: ``p = (gamma-1)/(m-1+gamma)``.

        >>> Uniform.from_gamma(5.0, 4)
        Uniform(retention=0.5, values=4)
        """
        if not checked_number(gamma, "gamma") > 1:
            raise ChannelError("gamma must be above 1: at 1 nothing may be learnt at all")
        return cls((gamma - 1) / (checked_size(size) - 1 + gamma), size)

    @classmethod
    def from_epsilon(cls, epsilon: float, size: int) -> Uniform:
        """Largest retention that is epsilon-locally private: gamma = e^epsilon."""
        if not 0 < checked_number(epsilon, "epsilon") < 700:
            raise ChannelError("epsilon must lie above 0 and be at most 700")
        return cls.from_gamma(math.exp(epsilon), size)

    @classmethod
    def from_rho(cls, rho1: float, rho2: float, size: int) -> Uniform:
        """Largest retention without a (rho1, rho2) breach, see ``gamma_of_rho``."""
        return cls.from_gamma(gamma_of_rho(rho1, rho2), size)

    @property
    def size(self) -> int:
        """Number m of values."""
        return self._size

    def expected(self, counts: ArrayLike) -> Array:
        """``counts @ T = p counts + (1-p)/m sum(counts)``."""
        y = _on_domain(counts, self._size)
        total = y.sum(axis=-1, keepdims=True)
        published: Array = self.retention * y + (1 - self.retention) / self._size * total
        return published

    def inverse(self, function: ArrayLike) -> Array:
        """``T^-1 g = (g - (1-p) mean(g)) / p``."""
        g = _on_domain(function, self._size)
        mean = g.mean(axis=-1, keepdims=True)
        inverted: Array = (g - (1 - self.retention) * mean) / self.retention
        return inverted

    @property
    def gamma(self) -> float:
        """``1 + m p/(1-p)``; 1 for a domain of one value, infinite at retention 1."""
        if self._size == 1:
            return 1.0
        if self.retention == 1:
            return math.inf
        return 1 + self._size * self.retention / (1 - self.retention)

    def signature(self, cells: Cells) -> None:
        """Every partition is lumpable: the chance of being kept is the same for all."""
        return

    def _lumped(self, cells: Cells) -> Replace:
        return Replace(self.retention, cells.sizes / self._size)

    def to_dict(self) -> dict[str, Any]:
        """Mechanism, retention, size."""
        return {"mechanism": self.mechanism, "retention": self.retention, "size": self._size}

    @classmethod
    def _from_dict(cls, data: Mapping[str, Any]) -> Uniform:
        return cls(data["retention"], data["size"])


class Replace(Channel):
    """Keep the value with chance p, otherwise draw one from a public distribution q.

        T[i, j] = p (i == j) + (1-p) q[j]                   (OLAP def. 2)

    >>> Replace(0.5, [0.6, 0.4]).matrix
    array([[0.8, 0.2],
           [0.3, 0.7]])
    """

    mechanism = "replace"

    def __init__(self, retention: float, replacing: ArrayLike) -> None:
        self.retention = checked_retention(retention)
        self.replacing = checked_array(replacing, "replacing", 1)
        total = math.fsum(self.replacing.tolist())
        if abs(total - 1) > SUM_TOLERANCE:
            raise ChannelError("the replacing distribution must sum to one")

    def __repr__(self) -> str:
        """Show what defines the channel, but for the distribution."""
        return f"Replace(retention={self.retention}, values={self.size})"

    @property
    def size(self) -> int:
        """Number m of values."""
        return len(self.replacing)

    def expected(self, counts: ArrayLike) -> Array:
        """``counts @ T = p counts + (1-p) sum(counts) q``."""
        y = _on_domain(counts, self.size)
        total = y.sum(axis=-1, keepdims=True)
        published: Array = self.retention * y + (1 - self.retention) * total * self.replacing
        return published

    def inverse(self, function: ArrayLike) -> Array:
        """``T^-1 g = (g - (1-p) q.g) / p``."""
        g = _on_domain(function, self.size)
        mean = (g @ self.replacing)[..., None]
        return (g - (1 - self.retention) * mean) / self.retention

    @property
    def gamma(self) -> float:
        """``1 + p / ((1-p) min q)``: the rarest replacement gives a value away most."""
        if self.size == 1:
            return 1.0
        rarest = (1 - self.retention) * float(self.replacing.min())
        return 1 + self.retention / rarest if rarest > 0 else math.inf

    def signature(self, cells: Cells) -> None:
        """Every partition is lumpable: the chance of being kept is the same for all."""
        return

    def _lumped(self, cells: Cells) -> Replace:
        masses = cells.sums(self.replacing)
        return Replace(self.retention, masses / masses.sum())

    def to_dict(self) -> dict[str, Any]:
        """Mechanism, retention, replacing distribution."""
        return {
            "mechanism": self.mechanism,
            "retention": self.retention,
            "replacing": self.replacing.tolist(),
        }

    @classmethod
    def _from_dict(cls, data: Mapping[str, Any]) -> Replace:
        return cls(data["retention"], data["replacing"])


class FineGrain(Channel):
    """Each value has its own retention; what is not kept is redrawn uniformly.

        T[i, j] = p_i (i == j) + (1-p_i)/m                  (FINE eq. 1)

    One retention may be 0 (that row of T is then uniform and T still has an inverse); with
    two of them zero those two values cannot be told apart and the channel is refused.

    >>> FineGrain([0, 1 / 3, 1 / 3, 1 / 3]).matrix.round(4)
    array([[0.25  , 0.25  , 0.25  , 0.25  ],
           [0.1667, 0.5   , 0.1667, 0.1667],
           [0.1667, 0.1667, 0.5   , 0.1667],
           [0.1667, 0.1667, 0.1667, 0.5   ]])
    """

    mechanism = "finegrain"

    def __init__(self, retentions: ArrayLike) -> None:
        self.retentions = checked_array(retentions, "retentions", 1)
        zeros = int((self.retentions == 0).sum())
        if zeros >= 2:
            raise ChannelError(
                f"{zeros} values have retention 0 and cannot be told apart once published",
                hint="give each value a small retention of its own, or drop the column",
            )
        smallest = float(np.partition(self.retentions, min(1, self.size - 1))[:2].max())
        if self.size > 1 and smallest < 1 / CONDITION_LIMIT:
            raise ChannelError("the retentions are too small to reconstruct anything from")

    def __repr__(self) -> str:
        """Show the range of the retentions."""
        low, high = self.retentions.min(), self.retentions.max()
        return f"FineGrain(retentions={low:g}..{high:g}, values={self.size})"

    @property
    def size(self) -> int:
        """Number m of values."""
        return len(self.retentions)

    def expected(self, counts: ArrayLike) -> Array:
        """``counts @ T = p counts + sum((1-p) counts)/m``."""
        y = _on_domain(counts, self.size)
        replaced = (y @ (1 - self.retentions))[..., None]
        published: Array = self.retentions * y + replaced / self.size
        return published

    def inverse(self, function: ArrayLike) -> Array:
        """Solve ``T h = g`` in O(m).

            h_i = (g_i - (1-p_i) s) / p_i,   s = mean(h) = sum(g/p) / sum(1/p)

        With one ``p_0 = 0`` its row says ``s = g_0``, and h_0 follows from the mean.
        """
        g, p = _on_domain(function, self.size), self.retentions
        kept = p > 0
        shares = np.divide(1.0, p, out=np.zeros_like(p), where=kept)
        mean = ((g @ shares) / shares.sum())[..., None] if kept.all() else g[..., ~kept]
        inverted: Array = (g - (1 - p) * mean) * shares
        rest = self.size * mean - inverted.sum(axis=-1, keepdims=True)
        return np.where(kept, inverted, rest)

    @property
    def gamma(self) -> float:
        """Largest ratio within a column of T; O(m).

        Column j holds ``p_j + (1-p_j)/m`` and, from every other value i, ``(1-p_i)/m``.
        """
        if self.size == 1:
            return 1.0
        others = (1 - self.retentions) / self.size
        diagonal = self.retentions + others
        order = np.argsort(others)
        # Extremes over i != j: the second one where j itself is the extreme.
        least = np.where(np.arange(self.size) == order[0], others[order[1]], others[order[0]])
        most = np.where(np.arange(self.size) == order[-1], others[order[-2]], others[order[-1]])
        most, least = np.maximum(most, diagonal), np.minimum(least, diagonal)
        return float((most / least).max()) if least.min() > 0 else math.inf

    def signature(self, cells: Cells) -> Array | None:
        """``T[i, C] = p_i [i in C] + (1-p_i) |C|/m`` differs within a cell as p_i does."""
        return None if cells.count == 1 else self.retentions[:, None]

    def _lumped(self, cells: Cells) -> Channel:
        kept = self.retentions[cells.first][:, None]
        if cells.count == 1:
            return Uniform(1.0, 1)
        return Matrix(kept * np.eye(cells.count) + (1 - kept) * (cells.sizes / self.size))

    def to_dict(self) -> dict[str, Any]:
        """Mechanism and retentions."""
        return {"mechanism": self.mechanism, "retentions": self.retentions.tolist()}

    @classmethod
    def _from_dict(cls, data: Mapping[str, Any]) -> FineGrain:
        return cls(data["retentions"])


class Matrix(Channel):
    """Any invertible row-stochastic matrix (post-randomisation)."""

    mechanism = "matrix"

    def __init__(self, matrix: ArrayLike) -> None:
        self._matrix = _checked_transition(matrix)

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
        return _on_domain(counts, self.size) @ self._matrix

    def inverse(self, function: ArrayLike) -> Array:
        """``T^-1 g``."""
        return _on_domain(function, self.size) @ self._inverse.T

    @property
    def gamma(self) -> float:
        """Largest ratio within a column."""
        return amplification(self._matrix)

    def signature(self, cells: Cells) -> Array | None:
        """The mass that each value sends into each cell."""
        return cells.sums(self._matrix)

    def _lumped(self, cells: Cells) -> Matrix:
        masses = cells.sums(self._matrix[cells.first])
        return Matrix(masses / masses.sum(axis=1, keepdims=True))

    def to_dict(self) -> dict[str, Any]:
        """Mechanism and matrix."""
        return {"mechanism": self.mechanism, "matrix": self._matrix.tolist()}

    @classmethod
    def _from_dict(cls, data: Mapping[str, Any]) -> Matrix:
        return cls(data["matrix"])


class Decoy(Matrix):
    """Each row publishes one of the c values of its decoy group (SPLU 3-5).

    ``T[i, i] = 1/c``; where the rest goes depends on how groups were formed, so the
    matrix comes from the partition.  Rows of a group depend on each other and on the data:
    no gamma and no epsilon hold, whatever the matrix says, and both are infinite.
    """

    mechanism = "decoy"

    def __init__(self, group_size: int, matrix: ArrayLike) -> None:
        super().__init__(matrix)
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

    @property
    def gamma(self) -> float:
        """Infinite: rows are not perturbed independently of each other."""
        return math.inf

    def to_dict(self) -> dict[str, Any]:
        """Mechanism, group size and matrix."""
        return super().to_dict() | {"group_size": self.group_size}

    @classmethod
    def _from_dict(cls, data: Mapping[str, Any]) -> Decoy:
        return cls(data["group_size"], data["matrix"])


def _on_domain(values: ArrayLike, size: int) -> Array:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim == 0 or array.shape[-1] != size:
        found = array.shape[-1] if array.ndim else "none"
        raise ChannelError(f"expected one number for each of {size} values, found {found}")
    return array


def _checked_transition(matrix: ArrayLike) -> Array:
    array = checked_array(matrix, "the matrix", 2)
    if array.shape[0] != array.shape[1]:
        raise ChannelError("the matrix must be square: one row and one column a value")
    off = np.abs(array.sum(axis=1) - 1)
    if off.max() > SUM_TOLERANCE:
        raise ChannelError(
            f"each row of the matrix must sum to one; row {int(off.argmax()) + 1} does not"
        )
    singular = np.linalg.svd(array, compute_uv=False)
    if not singular[-1] * CONDITION_LIMIT > singular[0]:
        raise ChannelError(
            "the matrix is singular: some original distributions cannot be told apart",
            hint="keep more of each value (a larger diagonal)",
        )
    return array


def _checked_group_size(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 2:
        raise ChannelError("group_size must be a whole number of at least 2")
    return int(value)
