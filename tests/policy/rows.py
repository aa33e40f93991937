"""Leverages by brute force: every answer as a dense vector over rows, and a decomposition of it.

Nothing here is shared with ``policy``: rows, not coordinates; Householder's reflections and
singular values, not a triangular factor.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]
Ints = NDArray[np.int64]

ANY, TOTAL = 0.9, 0.8


@dataclass
class Rows:
    """Rows with their atom, group and multiplicity, and the answers so far."""

    atom: Ints
    group: Ints
    times: Floats
    answers: list[Floats] = field(default_factory=list)

    def vector(self, weights: Floats, values: Floats) -> Floats:
        """The unit vector of weights by atom times values by row."""
        v = weights[self.atom] * values * np.sqrt(self.times)
        known = self.share()[self.group] > ANY
        v = np.where(known, 0.0, v)
        size = np.abs(v).max(initial=0.0)
        v = v / size if size else v
        return np.asarray(v / np.linalg.norm(v)) if size else v

    def share(self) -> Floats:
        """Of all rows, by group."""
        counts = np.bincount(self.group, self.times)
        return np.asarray(counts / counts.sum())

    def basis(self, more: list[Floats]) -> Floats:
        """An orthonormal basis (rows x dimension) of vectors that are independent."""
        if not self.answers and not more:
            return np.zeros((self.atom.size, 0))
        Q, _ = np.linalg.qr(np.array([*self.answers, *more]).T)
        return np.asarray(Q)

    def residual(self, v: Floats, more: list[Floats]) -> float:
        """What is left of a unit vector outside of the span."""
        Q = self.basis(more)
        for _ in range(3):
            v = v - Q @ (Q.T @ v)
        return float(np.linalg.norm(v))

    def measured(self, more: list[Floats]) -> tuple[Floats, Floats]:
        """Leverage and total of every group, with some more answers."""
        Q = self.basis(more)
        groups = int(self.group.max()) + 1
        leverage, total = np.zeros(groups), np.zeros(groups)
        for g in range(groups):
            here = self.group == g
            part = Q[here]
            if part.size:
                leverage[g] = np.linalg.svd(part, compute_uv=False)[0] ** 2
                one = np.sqrt(self.times[here])
                total[g] = ((one @ part) ** 2).sum() / self.times[here].sum()
        return leverage, total

    def excess(self, more: list[Floats]) -> float:
        """How far the worst group is above its limits."""
        leverage, total = self.measured(more)
        allowed = np.maximum(TOTAL, np.minimum(self.share(), ANY))
        return float(max((leverage - ANY).max(), (total - allowed).max()))
