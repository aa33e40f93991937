"""Rows that all functions so far treat alike: a space in which functions are short vectors.

A function of rows is a weight times an indicator, f = w_j [B], and there are few weights: the
constant, a measure, its square.  A weight that was needed on some rows only is 0 on others until a
function has values there, so sums by month take one weight, not twelve.  The indicators so far cut
each atom into *classes* of rows.  On a class c every function is a multiple of some w_j, so a
basis q_1 .. q_r of the w_j on the rows of c, orthonormal, holds all functions:

    w_j = sum over i of T[c, j, i] q_i  on c        f = w_j [B] has T[c, j] on c in B, else 0

The numbers T of all classes of an atom are as good as values on its rows: inner products are the
same, and there are as many as classes times weights, not as rows.  A new indicator cuts classes in
two; a vector over the basis of the parent is one over those of the children,

    q_i on a child = sum over k of E[i, k] q'_k        E^T E summed over children = 1

and the basis of a child is made of the q_i first, so that vectors which exist are kept as they
are, then of the w_j where those are not within rounding in the span.  A class has no more vectors
than rows.

Numbers.  Every step is orthogonalisation over rows, repeated once, with sums in pairs, so each
function is kept to a few roundings of its own length on each class (``DROPPED``).
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T", np.int64, np.float64)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

EPSILON = float(np.finfo(np.float64).eps)
# What is left of a vector on a class, as a share of its length, that is put down to rounding.
DROPPED = 16 * EPSILON
# Powers of two by which values on different rows of one weight may be apart.
MOST_APART = 64


@dataclass(frozen=True)
class Cut:
    """Classes that were cut: coordinates of the parents, of the children, and E between them."""

    old: Ints  # parents x L, -1 for none
    new: Ints  # parents x 2 L
    E: Floats  # parents x L x 2 L

    def pulled(self, g: Floats, size: int) -> tuple[Floats, Floats]:
        """A vector over children as one over parents, and what is not in their span."""
        mine = np.append(g, 0.0)[self.new]
        back = np.matmul(self.E, mine[:, :, np.newaxis])[:, :, 0]
        over, outside = g[:size].copy(), g.copy()
        over[self.old[self.old >= 0]] = back[self.old >= 0]
        outside[:size] = 0.0
        outside[self.new[self.new >= 0]] = (mine - self._forth(back))[self.new >= 0]
        return over, outside

    def pushed(self, over: Floats, size: int) -> Floats:
        """A vector over parents as one over children."""
        made = np.zeros(size)
        made[: over.size] = over
        mine = np.append(over, 0.0)[self.old]
        forth = self._forth(mine)
        made[self.old[self.old >= 0]] = 0.0
        made[self.new[self.new >= 0]] = forth[self.new >= 0]
        return made

    def _forth(self, back: Floats) -> Floats:
        return np.asarray(np.matmul(back[:, np.newaxis, :], self.E)[:, 0])


class Classes:
    """Classes of stored rows, which are given atom by atom."""

    def __init__(self, lengths: Ints, times: Floats | None) -> None:
        size = lengths.size
        self.count = int(lengths.sum())
        self.length = lengths.astype(np.int64)
        self.start = np.cumsum(self.length) - self.length
        self.atom = np.arange(size, dtype=np.int64)
        self.rows = np.arange(self.count, dtype=np.int32)  # by class
        self._root = None if times is None else np.sqrt(times)
        sums = self.length if times is None else np.add.reduceat(times, self.start)
        self.weights: list[Floats] = []  # w_1, w_2, ..
        self.units: list[int] = []  # powers of two that each is in
        self.T = np.sqrt(sums.astype(np.float64)).reshape(size, 1, 1)
        self._q: list[Floats] = []  # q_2, q_3, .. by class; the first one is constant
        self.ids = np.arange(size, dtype=np.int64).reshape(size, 1)  # coordinates
        self.owner = np.arange(size, dtype=np.int64)  # atom of each coordinate

    def fork(self) -> Classes:
        """A copy that may change."""
        made = copy.copy(self)
        made.rows, made._q = self.rows.copy(), [q.copy() for q in self._q]
        made.weights, made.units = list(self.weights), list(self.units)
        made.T, made.ids, made.length = self.T.copy(), self.ids.copy(), self.length.copy()
        return made

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        arrays = [self.rows, self.T, self.ids, self.owner, *self.weights, *self._q]
        return sum(each.nbytes for each in arrays) + 3 * self.length.nbytes

    @property
    def size(self) -> int:
        """How many coordinates there are."""
        return int(self.owner.size)

    # -- weights -------------------------------------------------------------------------

    def weight(self, values: Floats, unit: int = 0) -> tuple[int, float, bool]:
        """A weight that is these values where both are not zero, up to a power of two.

        Its number (one more than there are for none), the power, and whether it has zeros where
        the values have none.  Values on rows of their own (``cost`` in another month) fit every
        weight: they are taken times 2^``unit``, as what that weight began with was.
        """
        own = values != 0
        first = int(own.argmax())
        apart = 0
        for j, w in enumerate(self.weights):
            at = first  # mostly it is enough to look at one row
            if w[at] == 0:
                at = int((own & (w != 0)).argmax())
            if w[at] == 0 or values[at] == 0:
                near = abs(self.units[j] - unit) <= MOST_APART
                apart = apart or (j + 1 if near else 0)
                continue
            ratio = float(values[at] / w[at])
            if abs(np.frexp(ratio)[0]) != 0.5 or not np.isfinite(ratio):
                continue
            empty = w == 0
            if bool(((values == ratio * w) | empty | ~own).all()):
                return j + 1, ratio, bool((own & empty).any())
        if apart:
            return apart, float(np.ldexp(1.0, self.units[apart - 1] - unit)), True
        return len(self.weights) + 1, 1.0, True

    def extend(self, j: int, values: Floats, unit: int = 0) -> Ints:
        """Give a weight values where it was zero; the atoms of the coordinates that are new."""
        if j > len(self.weights):
            self.weights.append(np.zeros(self.count))
            self.units.append(unit)
            self.T = _grown(self.T, 1, j + 1)
        w = self.weights[j - 1]
        more = (values != 0) & (w == 0)
        self.weights[j - 1] = np.where(more, values, w)
        touched = np.flatnonzero(self._counts(more) > 0)
        pos, starts = self._positions(touched)
        rows = self.rows[pos]
        one = None if self._root is None else self._root[rows]
        x = self.weights[j - 1][rows] if one is None else self.weights[j - 1][rows] * one
        basis = _Basis(starts, pos.size, one, self.T[touched, 0, 0])
        for q in self._q:
            basis.given(q[pos])
        basis.ranks = (self.ids[touched] >= 0).sum(axis=1)
        along, norm = basis.add(x)
        new = norm > 0
        L = self.T.shape[2]
        self.T[touched, j, :] = along[:, :L]
        if not bool(new.any()):
            return np.empty(0, dtype=np.int64)
        # The new vector goes behind those that a class has.
        at = basis.ranks[new] - 1
        if int(at.max()) >= L:
            self.T, self.ids = _grown(self.T, 2, L + 1), _grown(self.ids, 1, L + 1, -1)
            self._q.append(np.zeros(self.count))
        made = touched[new]
        self.T[made, j, at] = norm[new]
        self.ids[made, at] = self.size + np.arange(made.size)
        column = np.repeat(np.where(new, basis.ranks - 1, -1), self.length[touched])
        for i, q in enumerate(self._q, start=1):
            here = column == i
            if bool(here.any()):
                q[pos[here]] = basis.columns[-1][here]
        self.owner = np.concatenate([self.owner, self.atom[made]])
        return np.asarray(self.atom[made])

    # -- cutting -------------------------------------------------------------------------

    def _counts(self, inside: Bools) -> Ints:
        """By class, how many rows have a property."""
        by = np.argsort(self.start)
        made = np.empty(by.size, dtype=np.int64)
        made[by] = np.add.reduceat(inside[self.rows], self.start[by], dtype=np.int64)
        return made

    def _positions(self, some: Ints) -> tuple[Ints, Ints]:
        """Positions of the rows of classes, one class after another, and where each begins."""
        n = self.length[some]
        starts = np.cumsum(n) - n
        return np.arange(int(n.sum())) + np.repeat(self.start[some] - starts, n), starts

    def mixed(self, inside: Bools) -> Ints:
        """Classes of which a set of rows has some and not all."""
        counts = self._counts(inside)
        return np.flatnonzero((counts > 0) & (counts < self.length))

    def of(self, inside: Bools) -> Bools:
        """By class, whether a set of rows that cuts none has it."""
        return np.asarray(inside[self.rows[self.start]])

    def cut(self, inside: Bools, some: Ints) -> Cut:
        """Cut classes into the rows without and with a property."""
        pos, starts = self._positions(some)
        n = self.length[some]
        yes = inside[self.rows[pos]]
        ones = np.add.reduceat(yes, starts, dtype=np.int64)
        order = _parted(yes, starts, n, n - ones)
        source = pos[order]
        rows = self.rows[source]
        sizes = np.stack([n - ones, ones], axis=1)
        begins = np.cumsum(sizes) - sizes.ravel()
        one = None if self._root is None else self._root[rows]
        first = sizes.ravel().astype(np.float64)
        if one is not None:
            first = np.add.reduceat(one * one, begins)
        first = np.sqrt(first)
        parent = np.repeat(some, 2)
        basis = _Basis(begins, rows.size, one, first)
        L, J = self.T.shape[2], self.T.shape[1]
        E = np.zeros((parent.size, L, L + J))
        E[:, 0, 0] = first / self.T[parent, 0, 0]
        T = np.zeros((parent.size, J, L + J))
        T[:, 0, 0] = first
        for i, q in enumerate(self._q, start=1):
            along, norm = basis.add(q[source])
            E[:, i, : along.shape[1]] = along
            E[:, i, along.shape[1]] = norm
        for j, w in enumerate(self.weights, start=1):
            x = w[rows] if one is None else w[rows] * one
            along, norm = basis.add(x)
            T[:, j, : along.shape[1]] = along
            T[:, j, along.shape[1]] = norm
        return self._children(some, pos, rows, sizes, basis, E, T)

    def _children(
        self, some: Ints, pos: Ints, rows: NDArray[np.int32], sizes: Ints, basis: _Basis,
        E: Floats, T: Floats,
    ) -> Cut:  # fmt: skip
        """Put children into the place of their parents: the one without keeps its number."""
        old = self.ids[some]
        place, width = basis.places()
        width = max(width, self.T.shape[2])
        E, T = _compact(E, place, width), _compact(T, place, width)
        self.rows[pos] = rows
        lengths = sizes.ravel()
        while len(self._q) < width - 1:
            self._q.append(np.zeros(self.count))
        if width > self.T.shape[2]:
            self.T, self.ids = _grown(self.T, 2, width), _grown(self.ids, 1, width, -1)
        columns = [np.zeros(pos.size) for _ in self._q]
        for k, column in enumerate(basis.columns):
            to = np.repeat(place[:, k + 1], lengths)
            for i in range(1, width):
                here = to == i
                if bool(here.any()):
                    columns[i - 1][here] = column[here]
        for q, column in zip(self._q, columns, strict=True):
            q[pos] = column
        new = self._numbered(some, old, place, width)
        first, second = T[0::2], T[1::2]
        self.start = np.concatenate([self.start, self.start[some] + sizes[:, 0]])
        self.length[some] = sizes[:, 0]
        self.length = np.concatenate([self.length, sizes[:, 1]])
        self.atom = np.concatenate([self.atom, self.atom[some]])
        self.T[some], self.ids[some] = first, new[:, :width]
        self.T = np.concatenate([self.T, second])
        self.ids = np.concatenate([self.ids, new[:, width:]])
        return Cut(old, new, np.concatenate([E[0::2], E[1::2]], axis=2))

    def _numbered(self, some: Ints, old: Ints, place: Ints, width: int) -> Ints:
        """Coordinates of children, those of the parent first."""
        ranks = (place >= 0).sum(axis=1).reshape(-1, 2)
        new = np.full((some.size, 2 * width), -1, dtype=np.int64)
        index = np.arange(width)
        taken = np.concatenate([index < ranks[:, :1], index < ranks[:, 1:]], axis=1)
        turn = np.cumsum(taken, axis=1) - 1
        have = (old >= 0).sum(axis=1)
        reused = taken & (turn < have[:, np.newaxis])
        line, _ = np.nonzero(reused)
        new[reused] = old[line, turn[reused]]
        fresh = taken & ~reused
        new[fresh] = self.size + np.arange(int(fresh.sum()))
        line, _ = np.nonzero(fresh)
        self.owner = np.concatenate([self.owner, self.atom[some[line]]])
        return new

    # -- functions -----------------------------------------------------------------------

    def vector(self, j: int, inside: Bools) -> Floats:
        """Coordinates of a weight on classes of a set that cuts none."""
        some = np.flatnonzero(self.of(inside))
        made = np.zeros(self.size)
        ids = self.ids[some]
        made[ids[ids >= 0]] = self.T[some, j][ids >= 0]
        return made


class _Basis:
    """Orthonormal vectors on segments of rows; the first is the constant."""

    def __init__(self, starts: Ints, size: int, one: Floats | None, first: Floats) -> None:
        self.starts, self.one, self.first = starts, one, first
        self.lengths = np.diff(np.append(starts, size))
        self.columns: list[Floats] = []
        self.ranks = np.ones(starts.size, dtype=np.int64)
        self.present = [np.ones(starts.size, dtype=np.bool_)]

    def given(self, column: Floats) -> None:
        """A vector that is orthonormal already."""
        self.columns.append(column)
        self.present.append(np.zeros(self.starts.size, dtype=np.bool_))

    def _sum(self, x: Floats) -> Floats:
        return np.asarray(np.add.reduceat(x, self.starts))

    def add(self, x: Floats) -> tuple[Floats, Floats]:
        """Take a vector apart; its coefficients, and the length of a new one, 0 for none."""
        along = np.zeros((self.starts.size, 1 + len(self.columns)))
        length = np.sqrt(self._sum(x * x))
        for _ in range(2):
            share = self._sum(x if self.one is None else x * self.one) / self.first
            along[:, 0] += share
            part = np.repeat(share / self.first, self.lengths)
            x = x - (part if self.one is None else part * self.one)
            for k, q in enumerate(self.columns):
                share = self._sum(x * q)
                along[:, k + 1] += share
                x = x - np.repeat(share, self.lengths) * q
        norm = np.sqrt(self._sum(x * x))
        new = (norm > DROPPED * length) & (self.ranks < self.lengths)
        norm = np.where(new, norm, 0.0)
        self.columns.append(x * np.repeat(np.where(new, 1.0 / np.where(new, norm, 1.0), 0.0),
                                          self.lengths))  # fmt: skip
        self.present.append(new)
        self.ranks = self.ranks + new
        return along, norm

    def places(self) -> tuple[Ints, int]:
        """By segment and vector its place among those that the segment has, -1 for none."""
        present = np.stack(self.present, axis=1)
        place = np.where(present, np.cumsum(present, axis=1) - 1, -1)
        return place, int(place.max()) + 1


def _compact(table: Floats, place: Ints, width: int) -> Floats:
    """Columns at their places."""
    made = np.zeros((*table.shape[:2], width))
    for k in range(place.shape[1]):
        some = np.flatnonzero(place[:, k] >= 0)
        made[some, :, place[some, k]] = table[some, :, k]
    return made


def _parted(yes: Bools, starts: Ints, n: Ints, zeros: Ints) -> Ints:
    """An order in which each segment has its rows without a property first."""
    ones = np.cumsum(yes, dtype=np.int64) - yes.astype(np.int64)
    ones = ones - np.repeat(ones[starts], n)
    begin = np.repeat(starts, n)
    index = np.arange(yes.size) - begin
    to = begin + np.where(yes, np.repeat(zeros, n) + ones, index - ones)
    order = np.empty(yes.size, dtype=np.int64)
    order[to] = np.arange(yes.size)
    return order


def _grown(array: NDArray[T], axis: int, size: int, fill: int = 0) -> NDArray[T]:
    """An array with more room along one axis."""
    shape = list(array.shape)
    shape[axis] = size
    made = np.full(shape, fill, dtype=array.dtype)
    made[tuple(slice(n) for n in array.shape)] = array
    return made
