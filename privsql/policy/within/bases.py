"""Orthonormal vectors within atoms, for many atoms at once.

Atoms are put together by size, so that those of one *bunch* have arrays of one shape: Q[m, r, d],
r vectors over d coordinates (``classes``) for each of m atoms, padded with zeros.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privsql.policy.within.classes import Cut, Floats, Ints

# Sizes of atoms of a bunch are within a factor of 2^(1 / FINE): the widest sets its width.
FINE = 3


@dataclass
class _Bunch:
    atoms: Ints
    Q: Floats
    columns: Ints  # m x d: coordinates, -1 for none
    lines: Ints  # m x r: numbers of the vectors, -1 for none
    used: Ints  # columns of each
    rank: Ints  # vectors of each


class Bases:
    """Vectors over coordinates of atoms; each vector has a number."""

    def __init__(self, lengths: Ints) -> None:
        kind = np.ceil(FINE * np.log2(lengths)).astype(np.int64)
        self._bunch = np.empty(lengths.size, dtype=np.int64)
        self._place = np.empty(lengths.size, dtype=np.int64)
        self._column = np.zeros(lengths.size, dtype=np.int64)  # of each coordinate
        self._bunches: list[_Bunch] = []
        for b, size in enumerate(np.unique(kind)):
            atoms = np.flatnonzero(kind == size)
            self._bunch[atoms], self._place[atoms] = b, np.arange(atoms.size)
            line = atoms.reshape(-1, 1)
            one = np.ones(atoms.size, dtype=np.int64)
            self._bunches.append(
                _Bunch(atoms, np.ones((atoms.size, 1, 1)), line, line, one, one.copy())
            )

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(each.Q.nbytes + each.columns.nbytes + each.lines.nbytes
                   for each in self._bunches)  # fmt: skip

    @property
    def ranks(self) -> Ints:
        """Vectors of each atom."""
        made = np.empty(self._bunch.size, dtype=np.int64)
        for bunch in self._bunches:
            made[bunch.atoms] = bunch.rank
        return made

    def room(self, coordinates: Ints) -> int:
        """Bytes that so many more coordinates by atom, and a vector more in each, would need."""
        more = 0
        for bunch in self._bunches:
            m, r, d = bunch.Q.shape
            wide = max(d, int((bunch.used + coordinates[bunch.atoms]).max()))
            more += 8 * m * ((max(r, int(bunch.rank.max()) + 1) * wide) - r * d)
        return more

    def apart(self, g: Floats, width: int) -> tuple[Floats, Floats]:
        """A vector along those that there are, by number, and what is left of it."""
        filled = np.append(g, 0.0)
        known, left = np.zeros(width + 1), np.zeros(g.size + 1)
        for bunch in self._bunches:
            r, d = int(bunch.rank.max()), int(bunch.used.max())
            Q, columns = bunch.Q[:, :r, :d], bunch.columns[:, :d]
            x = filled[columns][:, :, np.newaxis]
            along = np.zeros((len(Q), r, 1))
            for _ in range(2):
                share = np.matmul(Q, x)
                x = x - np.matmul(Q.transpose(0, 2, 1), share)
                along += share
            known[bunch.lines[:, :r]] = along[:, :, 0]
            left[columns] = x[:, :, 0]
        return known[:width], left[: g.size]

    def widen(self, owner: Ints, first: int) -> None:
        """Columns for coordinates from ``first`` on; ``owner`` has the atom of each of all."""
        atoms = owner[first:]
        self._column = np.concatenate([self._column, np.zeros(atoms.size, dtype=np.int64)])
        for b in np.unique(self._bunch[atoms]):
            bunch = self._bunches[b]
            mine = np.flatnonzero(self._bunch[atoms] == b)
            mine = mine[np.argsort(atoms[mine], kind="stable")]
            at = self._place[atoms[mine]]
            turn = np.arange(at.size) - np.searchsorted(at, at)
            column = bunch.used[at] + turn
            bunch.used = bunch.used + np.bincount(at, minlength=bunch.used.size)
            self._grow(bunch, int(bunch.rank.max()), int(bunch.used.max()))
            bunch.columns[at, column] = first + mine
            self._column[first + mine] = column

    def cut(self, cut: Cut, atoms: Ints) -> None:
        """Vectors over children in place of parents."""
        for b in np.unique(self._bunch[atoms]):
            bunch = self._bunches[b]
            mine = np.flatnonzero(self._bunch[atoms] == b)
            at, old, new = self._place[atoms[mine]], cut.old[mine], cut.new[mine]
            r = int(bunch.rank.max())
            parts = bunch.Q[at[:, np.newaxis], :r, np.where(old < 0, 0, self._column[old])]
            parts[old < 0] = 0.0
            made = np.matmul(cut.E[mine].transpose(0, 2, 1), parts)
            for k in range(old.shape[1]):
                some = np.flatnonzero(old[:, k] >= 0)
                bunch.Q[at[some], :r, self._column[old[some, k]]] = 0.0
            for k in range(new.shape[1]):
                some = np.flatnonzero(new[:, k] >= 0)
                bunch.Q[at[some], :r, self._column[new[some, k]]] = made[some, k]

    def push(self, atoms: Ints, left: Floats, lengths: Floats, first: int) -> None:
        """One more vector in each of some atoms: what was left, at length one."""
        filled = np.append(left, 0.0)
        for b in np.unique(self._bunch[atoms]):
            bunch = self._bunches[b]
            mine = np.flatnonzero(self._bunch[atoms] == b)
            at = self._place[atoms[mine]]
            line = bunch.rank[at]
            bunch.rank = bunch.rank.copy()
            bunch.rank[at] += 1
            self._grow(bunch, int(bunch.rank.max()), bunch.Q.shape[2])
            made = filled[bunch.columns[at]] / lengths[mine, np.newaxis]
            bunch.Q[at, line] = made
            bunch.lines[at, line] = first + mine

    def _grow(self, bunch: _Bunch, r: int, d: int) -> None:
        m, rows, columns = bunch.Q.shape
        if r <= rows and d <= columns:
            return
        # One more vector at a time is the rule, so there is room for some.
        rows = rows if r <= rows else r + max(2, r // 8)
        columns = columns if d <= columns else d + max(2, d // 16)
        Q = np.zeros((m, rows, columns))
        Q[:, : bunch.Q.shape[1], : bunch.Q.shape[2]] = bunch.Q
        lines = np.full((m, rows), -1, dtype=np.int64)
        lines[:, : bunch.lines.shape[1]] = bunch.lines
        names = np.full((m, columns), -1, dtype=np.int64)
        names[:, : bunch.columns.shape[1]] = bunch.columns
        bunch.Q, bunch.lines, bunch.columns = Q, lines, names
