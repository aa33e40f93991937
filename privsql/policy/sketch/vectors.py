"""Answers as compact vectors over rows, the input of ``policy.leverage``.

An aggregate is a weight w for each row.  Rows of one public tuple (an atom, n rows) mostly have the
same one, and then sqrt(n) w tells all.  Where a public measure tells them apart it does not:

    SUM(CASE WHEN <g> AND cost = 10 THEN 1e6 WHEN <g> AND cost = 12 THEN -1e6 ELSE 1 END)

adds up to nearly n in g, and says what one person has.  So what is left within an atom is kept,
too, in the few numbers that B secret ones z of each row (mean 0, variance 1) make of it:

    W / sqrt(n)                      W = sum w                      for each atom
    (X_b - W Z_b / n) / sqrt(B)      X_b = sum w z_b, Z_b = sum z_b     for each atom and b

The numbers z of a row are independent of each other.  In histories of format 1 they were not:
``former`` names those coordinates, which are others and so never mix with today's.

Both are linear in w.  So whatever combination of answers is zero outside a group is zero there
in these numbers as well, and its leverage is 1 as it should; lengths are right on average.

A group with nearly all rows is as good as told by the count of everybody, which is nobody's
secret.  It is left out: whoever asks is taken to know it, and the others are protected from that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import pyarrow as pa
from scipy import sparse

from privsql.policy.functions import Atoms, Floats, Ints
from privsql.policy.personal import floats
from privsql.policy.sketch.leverage import LIMIT, Bools, Cells
from privsql.sql.reconstruct.columns import SKETCH, VECTOR

# Names today's secret numbers in the digest of coordinates.
INDEPENDENT = "independent"


@dataclass(frozen=True)
class Space:
    """The coordinates: atoms, and B for each of them where measures tell rows apart."""

    rows: Ints
    groups: Ints
    secrets: Floats | None  # (B, atoms): sums of the rows' secret numbers
    former: bool = False  # the secret numbers are those of histories of format 1

    @cached_property
    def kept(self) -> Bools:
        """Atoms whose group has not nearly all rows."""
        _, number = np.unique(self.groups, return_inverse=True)
        share = np.bincount(number, weights=self.rows) / self.rows.sum()
        return np.asarray(share[number] <= LIMIT)

    @cached_property
    def atoms(self) -> Atoms:
        """All coordinates, each with its group."""
        if self.secrets is None:
            return Atoms(self.rows, self.groups)
        times = len(self.secrets)
        ones = np.ones(times * self.rows.size, dtype=np.int64)
        return Atoms(
            np.concatenate([self.rows, ones]),
            np.concatenate([self.groups, np.tile(self.groups, times)]),
            "" if self.former else INDEPENDENT,
        )

    def coordinates(self, atom: Ints, sums: Floats, sketches: Sequence[Floats]) -> sparse.csr_array:
        """One vector: its sums over atoms and, where there are any, within them."""
        known = self.kept[atom]
        atom, sums, sketches = atom[known], sums[known], [each[known] for each in sketches]
        places, values = [atom], [sums]
        if sketches and self.secrets is not None:
            share = sums / self.rows[atom]
            for b, sketch in enumerate(sketches):
                left = (sketch - share * self.secrets[b, atom]) / np.sqrt(len(self.secrets))
                # Rounding of sums that should cancel is no trace of a person.
                scale = np.abs(sketch) + np.abs(share * self.secrets[b, atom])
                kept = np.abs(left) > 1e-9 * scale
                places.append((1 + b) * self.rows.size + atom[kept])
                values.append(left[kept])
        place, value = np.concatenate(places), np.concatenate(values)
        size = self.rows.size * (1 + (0 if self.secrets is None else len(self.secrets)))
        pointers = np.array([0, place.size])
        return sparse.csr_array((value, place, pointers), shape=(1, size))


def cells_of(
    found: pa.Table,
    vectors: Mapping[int, Sequence[int]],
    refused: Mapping[int, Bools],
    order: Ints,
    space: Space,
) -> tuple[Cells, list[tuple[int, int]]]:
    """The vectors of all cells that are not refused yet, and whose each is.

    ``found`` lists atoms by number of their cell (``order`` says which that is), hidden values
    and atom; it has VECTOR, and SKETCH where rows of atoms differ.
    """
    cell = floats(found, "cell").astype(np.int64)
    way = floats(found, "way").astype(np.int64)
    atom = floats(found, "atom").astype(np.int64)
    sums = {v: floats(found, VECTOR(v)) for v in {v for each in vectors.values() for v in each}}
    sketched = {
        v: [
            floats(found, name)
            for name in SKETCH.within(found.column_names)
            if (SKETCH.numbers(name) or ())[0] == v
        ]
        for v in sums
    }
    parts: list[sparse.csr_array] = []
    owner: list[int] = []
    owners: list[tuple[int, int]] = []
    first = np.searchsorted(cell, np.arange(order.size + 1))
    for n in range(order.size):
        start, stop = int(first[n]), int(first[n + 1])
        turns = start + 1 + np.flatnonzero(np.diff(way[start:stop]))
        ends = [start, *turns.tolist(), stop]
        for i, those in vectors.items():
            if refused[i][order[n]] or start == stop:
                continue
            for low, high in pairwise(ends):
                for v in those:
                    here = slice(low, high)
                    inner = [each[here] for each in sketched[v]]
                    parts.append(space.coordinates(atom[here], sums[v][here], inner))
                    owner.append(len(owners))
            owners.append((i, int(order[n])))
    size = space.atoms.rows.size
    matrix = sparse.csr_array((0, size))
    if parts:
        matrix = sparse.csr_array(sparse.vstack(parts, format="csr"))
    return Cells(matrix, np.array(owner, dtype=np.int64), len(owners)), owners
