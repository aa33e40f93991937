"""The mechanisms that keep or replace a value: uniform, replace, fine-grain.

Beware of names: *retention* p keeps the value with chance p and may then redraw the same
value, so the chance of a truthful output is ``p + (1-p) q_i``, not p.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from privsql.channels.cells import Cells
from privsql.channels.channel import (
    CONDITION_LIMIT,
    SUM_TOLERANCE,
    Array,
    Channel,
    checked_array,
    checked_number,
    checked_retention,
    checked_size,
    gamma_of_rho,
    on_domain,
)
from privsql.channels.matrices import Matrix
from privsql.errors import ChannelError

# Below this, what a division by a retention leaves is mostly rounding.
SAFE_DIVISOR = 1e-6


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
    parameters = ("retention", "size")

    def __init__(self, retention: float, size: int) -> None:
        self.retention = checked_retention(retention)
        self.size = checked_size(size)

    def __repr__(self) -> str:
        """Show what defines the channel."""
        return f"Uniform(retention={self.retention}, values={self.size})"

    @classmethod
    def from_gamma(cls, gamma: float, size: int) -> Uniform:
        """Largest retention whose amplification is ``gamma``: ``p = (gamma-1)/(m-1+gamma)``.

        >>> Uniform.from_gamma(5.0, 4)
        Uniform(retention=0.5, values=4)
        """
        if not checked_number(gamma, "gamma") > 1:
            raise ChannelError("gamma must be above 1: at 1 published values carry no information")
        return cls((gamma - 1) / (checked_size(size) - 1 + gamma), size)

    @classmethod
    def from_epsilon(cls, epsilon: float, size: int) -> Uniform:
        """Largest retention that is epsilon-locally private: gamma = e^epsilon."""
        if not 0 < checked_number(epsilon, "epsilon") <= 30:
            raise ChannelError(
                "epsilon must be above 0 and at most 30", hint="a larger epsilon protects nothing"
            )
        return cls.from_gamma(math.exp(epsilon), size)

    @classmethod
    def from_rho(cls, rho1: float, rho2: float, size: int) -> Uniform:
        """Largest retention without a (rho1, rho2) breach, see ``gamma_of_rho``."""
        return cls.from_gamma(gamma_of_rho(rho1, rho2), size)

    def expected(self, counts: ArrayLike) -> Array:
        """``counts @ T = p counts + (1-p)/m sum(counts)``."""
        y = on_domain(counts, self.size)
        total = y.sum(axis=-1, keepdims=True)
        published: Array = self.retention * y + (1 - self.retention) / self.size * total
        return published

    def inverse(self, function: ArrayLike) -> Array:
        """``T^-1 g = (g - (1-p) mean(g)) / p``."""
        g = on_domain(function, self.size)
        mean = g.mean(axis=-1, keepdims=True)
        inverted: Array = (g - (1 - self.retention) * mean) / self.retention
        return inverted

    @property
    def gamma(self) -> float:
        """``1 + m p/(1-p)``; 1 for a domain of one value, infinite at retention 1."""
        if self.size == 1:
            return 1.0
        if self.retention == 1:
            return math.inf
        return 1 + self.size * self.retention / (1 - self.retention)

    def _lumped(self, cells: Cells) -> Replace:
        return Replace(self.retention, cells.sizes / self.size)


class Replace(Channel):
    """Keep the value with chance p, otherwise draw one from a public distribution q.

        T[i, j] = p (i == j) + (1-p) q[j]                   (OLAP def. 2)

    >>> Replace(0.5, [0.6, 0.4]).matrix
    array([[0.8, 0.2],
           [0.3, 0.7]])
    """

    mechanism = "replace"
    parameters = ("retention", "replacing")

    def __init__(self, retention: float, replacing: ArrayLike) -> None:
        self.retention = checked_retention(retention)
        self.replacing = checked_array(replacing, "replacing", 1)
        self.size = len(self.replacing)
        total = math.fsum(self.replacing.tolist())
        if abs(total - 1) > SUM_TOLERANCE:
            raise ChannelError("the replacement distribution must sum to one")

    def __repr__(self) -> str:
        """Show what defines the channel, but for the distribution."""
        return f"Replace(retention={self.retention}, values={self.size})"

    def expected(self, counts: ArrayLike) -> Array:
        """``counts @ T = p counts + (1-p) sum(counts) q``."""
        y = on_domain(counts, self.size)
        total = y.sum(axis=-1, keepdims=True)
        published: Array = self.retention * y + (1 - self.retention) * total * self.replacing
        return published

    def inverse(self, function: ArrayLike) -> Array:
        """``T^-1 g = (g - (1-p) q.g) / p``."""
        g = on_domain(function, self.size)
        mean = (g @ self.replacing)[..., None]
        return (g - (1 - self.retention) * mean) / self.retention

    @property
    def gamma(self) -> float:
        """``1 + p / ((1-p) min q)``: the rarest replacement reveals most."""
        if self.size == 1:
            return 1.0
        rarest = (1 - self.retention) * float(self.replacing.min())
        return 1 + self.retention / rarest if rarest > 0 else math.inf

    def _lumped(self, cells: Cells) -> Replace:
        masses = cells.sums(self.replacing)
        return Replace(self.retention, masses / masses.sum())


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
    parameters = ("retentions",)

    def __init__(self, retentions: ArrayLike) -> None:
        self.retentions = checked_array(retentions, "retentions", 1)
        self.size = len(self.retentions)
        zeros = int((self.retentions == 0).sum())
        if zeros >= 2:
            raise ChannelError(
                f"{zeros} values have retention 0 and cannot be distinguished once published",
                hint="give each value a small retention of its own, or drop the column",
            )
        smallest = float(np.partition(self.retentions, min(1, self.size - 1))[:2].max())
        if self.size > 1 and smallest < 1 / CONDITION_LIMIT:
            raise ChannelError("the retentions are too small to reconstruct anything from")

    def __repr__(self) -> str:
        """Show the range of the retentions."""
        low, high = self.retentions.min(), self.retentions.max()
        return f"FineGrain(retentions={low:g}..{high:g}, values={self.size})"

    def expected(self, counts: ArrayLike) -> Array:
        """``counts @ T = p counts + sum((1-p) counts)/m``."""
        y = on_domain(counts, self.size)
        replaced = (y @ (1 - self.retentions))[..., None]
        return self.retentions * y + replaced / self.size

    def inverse(self, function: ArrayLike) -> Array:
        """Solve ``T h = g`` in O(m).

            h_i = (g_i - (1-p_i) s) / p_i,   s = mean(h) = sum(g/p) / sum(1/p)

        Dividing by a retention that is 0 or tiny would leave nothing but rounding: that h
        follows from the mean instead.
        """
        g, p = on_domain(function, self.size), self.retentions
        least = int(p.argmin())
        divisible = (np.arange(self.size) != least) | (p >= SAFE_DIVISOR)
        # In units of the smallest retention, so that its reciprocal cannot overflow.
        shares = np.divide(p[least], p, out=np.ones_like(p), where=p > p[least])
        mean = ((g @ shares) / shares.sum())[..., None]
        inverted: Array = (g - (1 - p) * mean) / np.where(divisible, p, 1.0)
        if not divisible.all():
            inverted[..., least] = 0.0
            inverted[..., least] = self.size * mean[..., 0] - inverted.sum(axis=-1)
        return inverted

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
