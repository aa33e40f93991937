"""An orthonormal basis of one user's answers, and the share of a group within it.

Coordinates are atoms scaled by the root of their row counts.  With Q the basis (one vector a
row) and Q_g its columns of group g,

    leverage(g) = largest eigenvalue of  G_g = Q_g^T Q_g   (one atom: a sum of squares)

The basis has two parts that are orthogonal to each other: ``blocks``, sparse vectors that a
wide GROUP BY left behind, and the first ``rank`` rows of a dense ``buffer``.  Leverages only
grow with the span, so bounds come first and eigenvalues last:

    max(trace / size, |u_g|^2)  <=  leverage  <=  min(trace, last value + |u_g|^2)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np
from scipy import linalg, sparse

from privsql.policy.functions import Floats, Ints
from privsql.policy.wide import noise

# A residual this small beside its vector has lost so many digits that its direction is not
# known well enough to judge it: neither an old answer nor a new one.
FAINT = 1e-10
# Ties are common: 9 of 10 rows are exactly .9, and rounding must not decide them.
SLACK = 1e-9
# After a sweep that left less than this share of a vector, a second one follows.
AGAIN = 0.25


@dataclass(frozen=True)
class Layout:
    """Atoms in an inner order in which groups, and groups of one size, lie side by side.

    A run is ``(size, first group, groups, first atom)``; its atoms are ``groups * size``.
    """

    order: Ints
    place: Ints
    numbers: Ints
    sizes: Ints
    starts: Ints
    runs: tuple[tuple[int, int, int, int], ...]
    stored: int  # the first so many runs of two and more atoms keep their matrices G_g

    @classmethod
    def of(cls, groups: Ints, most_stored: int) -> Layout:
        """Sort groups by their number of atoms, then by their own number."""
        names, inner, counts = np.unique(groups, return_inverse=True, return_counts=True)
        by_size = np.lexsort((names, counts))
        rank = np.empty_like(by_size)
        rank[by_size] = np.arange(by_size.size)
        order = np.argsort(rank[inner], kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(order.size)
        sizes = counts[by_size].astype(np.int64)
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
        values, first, many = np.unique(sizes, return_index=True, return_counts=True)
        runs = tuple(
            (int(size), int(at), int(count), int(starts[at]))
            for size, at, count in zip(values, first, many, strict=True)
        )
        stored, used = 0, 0
        for size, _, count, _ in runs:
            used += size * size * count
            if used > most_stored:
                break
            stored += 1
        return cls(order, place, names[by_size], sizes, starts, runs, stored)

    @property
    def atoms(self) -> int:
        """How many there are."""
        return int(self.order.size)

    def squares(self, U: Floats) -> Floats:
        """Sum of squares of all rows of U over each group."""
        return np.add.reduceat(np.einsum("pa,pa->a", U, U), self.starts)


@dataclass
class Basis:
    """The span of the answers; ``fork`` before a change, and drop the fork to undo it."""

    layout: Layout
    limit: float
    buffer: Floats
    rank: int
    blocks: sparse.csr_array | None
    trace: Floats  # of G_g
    bound: Floats  # leverage of g is at most this
    grams: dict[int, Floats] = field(default_factory=dict)  # run -> G_g of its groups
    shared: bool = False

    @classmethod
    def empty(cls, layout: Layout, limit: float, blocks: sparse.csr_array | None = None) -> Basis:
        """The basis of nothing, or of sparse orthonormal rows whose leverage is not yet known."""
        groups = layout.sizes.size
        grams = {
            at: np.zeros((count, size, size))
            for at, (size, _, count, _) in enumerate(layout.runs[: layout.stored])
            if size > 1
        }
        buffer = np.empty((0, layout.atoms))
        return cls(
            layout, limit, buffer, 0, blocks, np.zeros(groups), np.zeros(groups), grams
        )  # fmt: skip

    def fork(self) -> Basis:
        """A copy that may change; rows past ``rank`` of the buffer belong to the last fork."""
        return replace(self, shared=True)

    @property
    def rows(self) -> Floats:
        """The dense part."""
        return self.buffer[: self.rank]

    @property
    def dimension(self) -> int:
        """Of the span."""
        return self.rank + (0 if self.blocks is None else int(self.blocks.shape[0]))

    @property
    def entries(self) -> int:
        """Numbers held."""
        return int(self.buffer.size) + (0 if self.blocks is None else int(self.blocks.nnz))

    # -- taking a vector apart -----------------------------------------------------------

    def sweep(self, X: Floats, first: int = 0) -> None:
        """X -= (X Q^T) Q, in place; a few rows of Q at a time, so each is fetched once."""
        if self.blocks is not None and first == 0:
            X -= (self.blocks.T @ (self.blocks @ X.T)).T
        step = max(1, 2**18 // max(1, self.layout.atoms))
        for at in range(first, self.rank, step):
            Q = self.buffer[at : min(at + step, self.rank)]
            if len(X) == 1:  # a product of matrix and vector is the faster routine
                X[0] -= (Q @ X[0]) @ Q
            else:
                X -= (X @ Q.T) @ Q

    def residuals(self, X: Floats) -> Floats:
        """Unit rows X less their parts in the span, in place; their norms."""
        self.sweep(X)
        norms: Floats = np.linalg.norm(X, axis=1)
        again = np.flatnonzero((norms < AGAIN) & (norms > noise(self.layout.atoms)))
        if again.size:
            part = X[again]
            self.sweep(part)  # twice is enough
            X[again] = part
            norms[again] = np.linalg.norm(part, axis=1)
        return norms

    def refine(self, x: Floats, norm: float, since: int) -> float:
        """The same for one row that was taken apart before rows from ``since`` were added."""
        X = x[np.newaxis]
        for _ in range(2):
            self.sweep(X, first=since)
        now = float(np.linalg.norm(x))
        if since < self.rank and 0 < now < AGAIN * norm:
            # What is left is small: parts along older rows now weigh more than rounding.
            self.sweep(X)
            self.sweep(X, first=since)
            now = float(np.linalg.norm(x))
        return now

    # -- adding --------------------------------------------------------------------------

    def reserve(self, rows: int) -> None:
        """Room for so many more dense rows."""
        if self.rank + rows > len(self.buffer):
            grown = np.empty((max(16, self.rank + rows, 2 * self.rank), self.layout.atoms))
            grown[: self.rank] = self.rows
            self.buffer = grown

    def push(self, u: Floats) -> None:
        """One more dense row, without its leverage."""
        self.reserve(1)
        self.buffer[self.rank] = u
        self.rank += 1

    def absorb(self, rows: Iterable[Floats]) -> float:
        """Push what is new in many unit rows (dense, some at a time), without leverages.

        The answer is the smallest residual that counted as new.
        """
        least, faintest = noise(self.layout.atoms), 1.0
        for X in rows:
            since = self.rank
            norms = self.residuals(X)
            for x, norm in zip(X, norms, strict=True):
                left = self.refine(x, float(norm), since)
                if left > least:
                    self.push(x / left)
                    faintest = min(faintest, left)
        return faintest

    def fits(self, U: Floats) -> Floats | None:
        """New bounds on all leverages once unit rows U are in; None if one passes the limit."""
        most = self.limit + SLACK
        gain = self.layout.squares(U)
        if gain.max(initial=0.0) > most and len(U) == 1:
            return None
        bound = np.minimum(self.bound + gain, self.trace + gain)
        trace = self.trace + gain
        if bool((trace > most * self.layout.sizes).any()):
            return None
        return bound if self._exact(U, bound, most) else None

    def _exact(self, U: Floats, bound: Floats, most: float) -> bool:
        """Eigenvalues where the bounds do not decide; tightens them in place."""
        for at, (size, first, count, atom) in enumerate(self.layout.runs):
            if size == 1:
                continue
            doubtful = np.flatnonzero(bound[first : first + count] > most)
            if doubtful.size == 0:
                continue
            if at not in self.grams:
                for g in doubtful:
                    low = atom + int(g) * size
                    if not self._wide(U, low, low + size, most):
                        return False
                    bound[first + int(g)] = most
                continue
            part = U[:, atom : atom + count * size].reshape(len(U), count, size)[:, doubtful]
            G = self.grams[at][doubtful] + np.einsum("pks,pkt->kst", part, part)
            better = np.sqrt(np.einsum("kst,kst->k", G, G))
            hard = better > most
            if hard.any():
                better[hard] = np.linalg.eigvalsh(G[hard])[:, -1]
            if bool((better > most).any()):
                return False
            bound[first + doubtful] = np.minimum(bound[first + doubtful], better)
        return True

    def _wide(self, U: Floats, low: int, high: int, most: float) -> bool:
        """Whether a group of many atoms keeps to the limit: most I - G is positive definite."""
        parts = [self.rows[:, low:high], U[:, low:high]]
        if self.blocks is not None:
            cut = self.blocks[:, low:high]
            parts.append(cut[np.diff(cut.indptr) > 0].toarray())
        Q = np.concatenate(parts)
        G = Q.T @ Q if Q.shape[0] >= Q.shape[1] else Q @ Q.T
        try:
            linalg.cholesky(most * np.eye(len(G)) - G, overwrite_a=True, check_finite=False)
        except linalg.LinAlgError:
            return False
        return True

    def add(self, U: Floats, bound: Floats) -> None:
        """Take in rows that ``fits`` found to fit."""
        if self.shared:
            self.grams = {at: G.copy() for at, G in self.grams.items()}
            self.shared = False
        self.trace = self.trace + self.layout.squares(U)
        self.bound = bound
        for at, G in self.grams.items():
            size, _, count, atom = self.layout.runs[at]
            part = U[:, atom : atom + count * size].reshape(len(U), count, size)
            G += np.einsum("pks,pkt->kst", part, part)
        for u in U:
            self.push(u)

    # -- from scratch --------------------------------------------------------------------

    def measure(self) -> bool:
        """Recompute trace, G and bounds of the whole basis; False if a group passes the limit."""
        layout = self.layout
        self.trace = layout.squares(self.rows)
        self.grams = {at: G * 0 for at, G in self.grams.items()}
        self.shared = False
        for at, G in self.grams.items():
            size, _, count, atom = layout.runs[at]
            for low in range(0, self.rank, 256):
                rows = self.buffer[low : min(low + 256, self.rank), atom : atom + count * size]
                cut = rows.reshape(len(rows), count, size)
                G += np.matmul(cut.transpose(1, 2, 0), cut.transpose(1, 0, 2))
        if self.blocks is not None:
            self._measure_blocks(self.blocks)
        most = self.limit + SLACK
        self.bound = self.trace.copy()
        if bool((self.trace > most * layout.sizes).any()):
            return False
        return self._exact(np.empty((0, layout.atoms)), self.bound, most)

    def _measure_blocks(self, blocks: sparse.csr_array) -> None:
        layout = self.layout
        self.trace = self.trace + np.add.reduceat(
            np.bincount(blocks.indices, blocks.data**2, layout.atoms), layout.starts
        )
        row = np.repeat(np.arange(blocks.shape[0]), np.diff(blocks.indptr))
        for at, G in self.grams.items():
            size, _, count, atom = layout.runs[at]
            here = (blocks.indices >= atom) & (blocks.indices < atom + count * size)
            if not here.any():
                continue
            group, within = np.divmod(blocks.indices[here].astype(np.int64) - atom, size)
            pair, of = np.unique(group * blocks.shape[0] + row[here], return_inverse=True)
            owner = pair // blocks.shape[0]
            Z = np.zeros((pair.size, size))  # a row's part in one group
            Z[of, within] = blocks.data[here]
            step = max(1, 2**22 // size**2)
            for low in range(0, pair.size, step):
                cut = Z[low : low + step]
                np.add.at(G, owner[low : low + step], cut[:, :, None] * cut[:, None, :])
