"""A triangular factor of one user's answers: spans of many vectors without storing a basis.

    V = answers, one a row, of length one      L L^T = V V^T, L lower triangular
    Q = L^-1 V is an orthonormal basis, and is never stored

A vector x is taken apart by a few passes of  y = L^-1 (V x),  c = L^-T y,  x -= V^T c.  An answer
is alpha(atom) f_k(row) (``policy.functions``), so V is sparse: alpha by atom and function in use,
and V x = alpha (F_k . x summed over atoms).  L is packed by rows; rows are only appended, so a
``fork`` is a copy of a few fields, and rows past its ``count`` belong to the last fork.

Beside it are ``blocks``: sparse orthonormal rows that share no atoms, or few, with one another, as
the cells of a wide GROUP BY leave them.  V then stands for what is left of the other answers.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse
from scipy.linalg import blas

from privsql.policy.functions import EPSILON, KNOWN, MOST, Floats, Functions, Ints

T = TypeVar("T", np.int32, np.float64)

# What rounding leaves of a unit vector in the span: at least this, and in proportion to the
# coefficients that were added up.  A fixed floor would admit a weight of 1 + 1e-12.
SPAN, PER_TERM = 3e-14, 64 * EPSILON
# A pass that leaves more than this share of what was there need not be repeated, nor one whose
# rounding is this small beside what is left.
ENOUGH, EXACT = 0.5, 1e-11
MOST_PASSES = 3
# A vector with fewer numbers than this share that are not zero is worth picking those out.
FEW = 0.3


@dataclass(frozen=True)
class Vector:
    """A vector of length one: coordinates, and how it is made of a function."""

    x: Floats
    function: int
    atoms: Ints
    weights: Floats
    wild: bool  # a weight is as small as noise: where the rest is in the span, it could hide


@dataclass(frozen=True)
class Residual:
    """What is left of a vector of length one, and its coefficients along Q."""

    x: Floats
    length: float
    noise: float
    along: Floats

    @property
    def inside(self) -> bool:
        """Whether the vector lies in the span."""
        return self.length <= min(self.noise, MOST)

    @property
    def known(self) -> bool:
        """Whether what is left is more than rounding, so that it has a direction."""
        return self.noise <= KNOWN * self.length


class Factor:
    """Answers and their triangular factor; ``fork`` before a change, drop the fork to undo it."""

    def __init__(self, functions: Functions) -> None:
        self.functions = functions
        self.count = 0
        self.least = 1.0  # at most the smallest number on the diagonal of L
        self.width = functions[0].coordinates.size
        self.blocks: sparse.csr_array | None = None
        self._used: tuple[int, ...] = ()  # numbers of functions, in the order of first use
        self._starts: NDArray[np.int32] = np.zeros(1, dtype=np.int32)
        self._columns: NDArray[np.int32] = np.empty(0, dtype=np.int32)
        self._weights: Floats = np.empty(0)
        self._packed: Floats = np.empty(0)
        self._by_column: tuple[sparse.csr_array, sparse.csc_array] | None = None
        self._alpha: tuple[sparse.csr_array, sparse.csc_array] | None = None

    def fork(self) -> Factor:
        """A copy that may change."""
        return copy.copy(self)

    @property
    def rank(self) -> int:
        """Dimension of the span."""
        return self.count + (0 if self.blocks is None else int(self.blocks.shape[0]))

    @property
    def entries(self) -> int:
        """Numbers held."""
        own = self._packed.size + self._weights.size
        return int(own + (0 if self.blocks is None else self.blocks.nnz))

    # -- products ------------------------------------------------------------------------

    @property
    def alpha(self) -> tuple[sparse.csr_array, sparse.csc_array]:
        """Weights: answers by (function in use, atom), and the same transposed."""
        if self._alpha is None or self._alpha[0].shape[0] != self.count:
            stop = int(self._starts[self.count])
            columns = len(self._used) * self.functions.atoms.rows.size
            made = sparse.csr_array(
                (self._weights[:stop], self._columns[:stop], self._starts[: self.count + 1]),
                shape=(self.count, columns),
            )
            self._alpha = made, made.T
        return self._alpha

    def times(self, x: Floats) -> Floats:
        """V x."""
        atoms = self.functions.atoms.rows.size
        sums = np.zeros((len(self._used), atoms))
        where = self.functions.where
        some = np.flatnonzero(x)
        own = where[some]
        few = some.size < FEW * x.size
        if few:  # a cell of a GROUP BY is zero in most atoms
            x = x[some]
            for slot, (F, stop) in enumerate(self._cut(some)):
                sums[slot] = np.bincount(own[:stop], F[some[:stop]] * x[:stop], atoms)
            return np.asarray(self.alpha[0] @ sums.ravel())
        for slot, number in enumerate(self._used):
            F = self.functions[number].coordinates
            if number == 0:
                sums[slot] = F * x[: F.size]
            else:
                sums[slot] = np.bincount(where[: F.size], F * x[: F.size], atoms)
        return np.asarray(self.alpha[0] @ sums.ravel())

    def combined(self, c: Floats) -> Floats:
        """V^T c."""
        atoms = self.functions.atoms.rows.size
        shares = (self.alpha[1] @ c).reshape(len(self._used), atoms)
        made = np.zeros(self.width)
        where = self.functions.where
        active = np.asarray(shares.any(axis=0))
        few = np.count_nonzero(active) < FEW * atoms
        if few:
            some = np.flatnonzero(active[where[: self.width]])
            own, sums = where[some], np.zeros(some.size)
            for slot, (F, stop) in enumerate(self._cut(some)):
                sums[:stop] += F[some[:stop]] * shares[slot][own[:stop]]
            made[some] = sums
            return made
        for slot, number in enumerate(self._used):
            F = self.functions[number].coordinates
            if number == 0:
                made[: F.size] += F * shares[slot]
            else:
                made[: F.size] += F * shares[slot][where[: F.size]]
        return made

    def _cut(self, some: Ints) -> list[tuple[Floats, int]]:
        """By function in use its coordinates, and how many of some ascending ones it has."""
        every = [self.functions[number].coordinates for number in self._used]
        stops = np.searchsorted(some, [F.size for F in every])
        return list(zip(every, stops.tolist(), strict=True))

    def forward(self, b: Floats) -> Floats:
        """L^-1 b, for as many first rows of L as b has."""
        n = b.size
        if n == 0:
            return b
        packed = self._packed[: n * (n + 1) // 2]
        return np.asarray(blas.dtpsv(n, packed, b, lower=0, trans=1))

    def backward(self, b: Floats) -> Floats:
        """L^-T b."""
        n = b.size
        packed = self._packed[: n * (n + 1) // 2]
        return np.asarray(blas.dtpsv(n, packed, b, lower=0, trans=0))

    def sweep(self, x: Floats) -> None:
        """Take the part in the span of the blocks away, in place."""
        if self.blocks is not None:
            cut = x[: self.blocks.shape[1]]
            cut -= self.blocks.T @ (self.blocks @ cut)

    # -- taking a vector apart -----------------------------------------------------------

    def residual(self, unit: Floats) -> Residual:
        """What is left of a vector of length one."""
        self.width = max(self.width, unit.size)
        x = np.zeros(self.width)
        x[: unit.size] = unit
        along, total = np.zeros(self.count), np.zeros(self.count)
        length, noise = 1.0, SPAN
        for _ in range(MOST_PASSES):
            before = length
            self.sweep(x)
            if self.count:
                y = self.forward(self.times(x))
                c = self.backward(y)
                x -= self.combined(c)
                along += y
                total += c
                self.sweep(x)
                noise = max(SPAN, PER_TERM * float(np.abs(total).sum()))
            length = float(np.linalg.norm(x))
            terms = 1.0 / self.least + float(np.abs(total).sum())
            if length <= min(noise, MOST) or length > ENOUGH * before:
                break
            if PER_TERM * terms < EXACT * length:
                break
        return Residual(x, length, noise, along)

    def shares(self, X: sparse.csr_array) -> Floats:
        """|Q x|^2 of many sparse rows x."""
        found = np.zeros(X.shape[0])
        if self.blocks is not None:
            size = min(X.shape[1], self.blocks.shape[1])
            along = X[:, :size] @ self.blocks[:, :size].T
            found += np.asarray(along.multiply(along).sum(axis=1))
        if self.count == 0:
            return found
        triangle = np.zeros((self.count, self.count))
        triangle[np.tril_indices(self.count)] = self._packed[: self.count * (self.count + 1) // 2]
        V = self._rows(X.shape[1])
        for low in range(0, X.shape[0], 1_000):
            inner = (V @ X[low : low + 1_000].T).toarray()
            Y = linalg.solve_triangular(triangle, inner, lower=True, check_finite=False)
            found[low : low + 1_000] += np.einsum("rp,rp->p", Y, Y)
        return found

    def _rows(self, width: int) -> sparse.csr_array:
        """V over coordinates."""
        atoms = self.functions.atoms.rows.size
        made = sparse.csr_array((self.count, width))
        for slot, number in enumerate(self._used):
            F = self.functions[number].coordinates
            where = self.functions.where[: F.size]
            table = sparse.csr_array((F, (where, np.arange(F.size))), shape=(atoms, width))
            made = made + self.alpha[0][:, slot * atoms : (slot + 1) * atoms] @ table
        if self.blocks is not None:
            Q = widened(self.blocks, width)
            made = made - (made @ Q.T) @ Q
        return sparse.csr_array(made)

    def columns(self, ids: list[Ints], count: int) -> list[Floats]:
        """Q restricted to each of these sets of coordinates, for the first ``count`` answers.

        On the coordinates of one atom, V is the weights of its functions times F.
        """
        atoms, used = self.functions.atoms.rows.size, len(self._used)
        some = np.unique(self.functions.where[np.concatenate(ids)])
        # Once through all weights, for the atoms of all sets together, atom by atom.
        wanted = (some[:, np.newaxis] + np.arange(used) * atoms).ravel()
        table = sparse.csc_array(self.alpha[0][:count, wanted])
        F = self._stacked()
        made: list[Floats] = []
        for mine in ids:
            Q = np.zeros((count, mine.size))
            own = np.searchsorted(some, self.functions.where[mine])
            for at in np.unique(own):
                first = table.indptr[at * used : (at + 1) * used + 1]
                stored = slice(first[0], first[-1])
                weights = np.zeros((count, used))
                column = np.repeat(np.arange(used), np.diff(first))
                weights[table.indices[stored], column] = table.data[stored]
                those = np.flatnonzero(own == at)
                Q[:, those] = weights @ F[:, mine[those]]
            made.append(Q)
        if self.blocks is not None:
            return self._beside(self.blocks, ids, made)
        return [_solved(self, Q) for Q in made]

    def _stacked(self) -> Floats:
        """The coordinates of the functions in use, one function a row; not kept."""
        made = np.zeros((len(self._used), self.width))
        for line, number in zip(made, self._used, strict=True):
            F = self.functions[number].coordinates[: self.width]
            line[: F.size] = F
        return made

    def _beside(
        self, blocks: sparse.csr_array, ids: list[Ints], made: list[Floats]
    ) -> list[Floats]:
        """The same where there are blocks: their part of V is taken away, their rows come last."""
        found = [self._touching(mine) for mine in ids]
        of_block: dict[int, list[tuple[int, int]]] = {}
        for s, (touching, _) in enumerate(found):
            for i, b in enumerate(touching.tolist()):
                of_block.setdefault(b, []).append((s, i))
        # Block by block: a product with all answers is dear, and many sets touch the same block.
        for b, those in of_block.items() if self.count else ():
            dense = np.zeros(self.width)
            own = slice(blocks.indptr[b], blocks.indptr[b + 1])
            dense[blocks.indices[own]] = blocks.data[own]
            inner = self.times(dense)
            for s, i in those:
                made[s] -= np.outer(inner[: len(made[s])], found[s][1][i])
        return [
            np.concatenate([_solved(self, Q), part])
            for Q, (_, part) in zip(made, found, strict=True)
        ]

    def _touching(self, mine: Ints) -> tuple[Ints, Floats]:
        """The rows of the blocks that are not zero on these coordinates, and those parts."""
        blocks = self.blocks
        if blocks is None:
            return np.empty(0, np.int64), np.empty((0, mine.size))
        if self._by_column is None or self._by_column[0] is not blocks:
            self._by_column = blocks, blocks.tocsc()
        inside = np.flatnonzero(mine < blocks.shape[1])
        cut = self._by_column[1][:, mine[inside]]
        rows = np.unique(cut.indices)
        part = np.zeros((rows.size, mine.size))
        column = np.repeat(inside, np.diff(cut.indptr))
        part[np.searchsorted(rows, cut.indices), column] = cut.data
        return rows.astype(np.int64), part

    # -- adding --------------------------------------------------------------------------

    def push(self, vector: Vector, found: Residual) -> None:
        """One more answer, with its residual."""
        if vector.function not in self._used:
            self._used = (*self._used, vector.function)
        n, atoms = self.count, self.functions.atoms.rows.size
        low = int(self._starts[n])
        high = low + vector.atoms.size
        self._columns = _room(self._columns, low, high)
        self._weights = _room(self._weights, low, high)
        self._starts = _room(self._starts, n + 1, n + 2)
        self._columns[low:high] = self._used.index(vector.function) * atoms + vector.atoms
        self._weights[low:high] = vector.weights
        self._starts[n + 1] = high
        first = n * (n + 1) // 2
        self._packed = _room(self._packed, first, first + n + 1)
        self._packed[first : first + n] = found.along
        self._packed[first + n] = found.length
        self.least = min(self.least, found.length)
        self.count += 1
        self._alpha = None

    def truncate(self, count: int) -> None:
        """Forget the answers after the first ``count``."""
        if count != self.count:
            self.count = count
            self._alpha = None


def widened(rows: sparse.csr_array, width: int) -> sparse.csr_array:
    """The same rows over at least as many coordinates."""
    parts = (rows.data, rows.indices, rows.indptr)
    return sparse.csr_array(parts, shape=(rows.shape[0], max(width, rows.shape[1])))


def _solved(factor: Factor, V: Floats) -> Floats:
    made = np.empty_like(V)
    for i in range(V.shape[1]):
        made[:, i] = factor.forward(np.ascontiguousarray(V[:, i]))
    return made


def _room(array: NDArray[T], used: int, size: int) -> NDArray[T]:
    """An array of at least this size that begins with what is in use."""
    if array.size >= size:
        return array
    grown = np.empty(max(64, size, array.size * 3 // 2), dtype=array.dtype)
    grown[:used] = array[:used]
    return grown
