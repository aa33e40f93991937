"""Effective rows of all cells of an answer, by the rule of ``udfs.variance.weights``.

The rule looks at the states in which K = A^-1 f takes different values.  K is a product of
functions of one column each, so these states are a grid: on each column, the values of its own
K.  A class of a column that keeps or replaces its values has two of them there, *in the class* and
*not*, however many values the column has; classes with equally many are worked out together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product as combinations

import numpy as np

from udfs.axiswise.contraction import Contraction
from udfs.axiswise.program import Ints, Program
from udfs.kron import Array
from udfs.variance import classes_of, nine_digits, weights_of_states

# Entries of an array that is worked on at once.
MOST_ENTRIES = 2**22


@dataclass(frozen=True)
class Merged:
    """Some classes of one column, each with as many values of K: M of them.

    ``places`` are the classes, ``members`` which cells have each value, ``(classes, M, cells)``,
    ``values`` the values of K and ``floor`` the least chance of being published there.
    """

    places: Ints
    members: Array
    values: Array
    floor: Array


def merged(factor: Array, inverse: Array) -> tuple[Array, Array, Array]:
    """Cells in which K is the same go together: members ``(M, cells)``, values and floor."""
    members = classes_of(nine_digits(inverse), 0)
    return members.T, inverse[members.argmax(axis=0)], (factor @ members).min(axis=0)


def _alike(factor: Array, inverses: Array, size: int) -> Iterator[Merged]:
    """The classes of a column by how many values K has there.

    ``size`` is that of the tensor whose cells become classes; no more of them at once than fit.
    """
    room = MOST_ENTRIES // max(len(factor), size // len(factor))
    found: dict[int, list[tuple[int, Array, Array, Array]]] = {}
    for place, inverse in enumerate(inverses):
        members, values, floor = merged(factor, inverse)
        found.setdefault(len(members), []).append((place, members, values, floor))
    for count, group in found.items():
        most = max(1, room // count)
        for start in range(0, len(group), most):
            places, *arrays = zip(*group[start : start + most], strict=True)
            yield Merged(np.array(places), *(np.stack(each) for each in arrays))


class Effective:
    """Second and fourth sums of pieces, for every class."""

    def __init__(self, program: Program, contraction: Contraction) -> None:
        self._program = program
        self._contraction = contraction

    def of(self, t: int) -> tuple[Array, Array]:
        """Both sums of piece t, shape ``(G, classes, ...)`` each."""
        program, published = self._program, self._program.published
        found = np.zeros((2, *self._contraction.shape))
        beside, values, floor = self._beside(t)
        _, squares, fourths = (int(each) for each in program.pieces[t])
        second = self._contraction.tensor(published.sums[squares], beside, len(values))
        fourth = second
        if fourths != squares:
            fourth = self._contraction.tensor(published.sums[fourths], beside, len(values))
        inverses = program.inverses[t]
        axes = [
            list(_alike(program.kron.factors[x], _given(inverses[x]), second.size))
            for x in program.keyed
        ]
        for chosen in combinations(*axes):
            both = _of_classes(second, fourth, chosen, (values, floor))
            at = np.ix_(np.arange(published.groups), *(each.places for each in chosen))
            found[0][at], found[1][at] = both
        return found[0], found[1]

    def _beside(self, t: int) -> tuple[Ints, Array, Array]:
        """Where each state is among the values that columns without keys give K.

        With those values, and the least chance of being published in each.
        """
        program, published = self._program, self._program.published
        place = np.zeros(len(published.owner), dtype=np.intp)
        values, floor = np.ones(1), np.ones(1)
        for x, inverse in enumerate(program.inverses[t]):
            if x in program.keyed or inverse is None:
                continue
            members, own, least = merged(program.kron.factors[x], inverse)
            place = place * len(own) + members.argmax(axis=0)[published.cells[x]]
            values, floor = np.outer(values, own).ravel(), np.outer(floor, least).ravel()
        return place, values, floor


def _given(inverse: Array | None) -> Array:
    if inverse is None:
        raise AssertionError("a column with keys has a function for each class")
    return inverse


def _of_classes(
    second: Array, fourth: Array, chosen: Sequence[Merged], beside: tuple[Array, Array]
) -> tuple[Array, Array]:
    """Both sums for some classes of each column with keys."""
    groups, columns = len(second), len(chosen)
    values, floor = beside
    sums = [second, fourth] if fourth is not second else [second]
    for i, each in enumerate(chosen):
        # (G, c_1, M_1, ..., cells_i, ..., width): cells become classes and values of K.
        axis = 1 + 2 * i
        for n, one in enumerate(sums):
            made = np.tensordot(one, each.members, axes=(axis, 2))
            sums[n] = np.moveaxis(made, (-2, -1), (axis, axis + 1))
    for i, each in enumerate(chosen):
        shape = [1] * (2 * columns + 1)
        shape[2 * i], shape[2 * i + 1] = each.values.shape
        values = values * each.values.reshape(shape)
        floor = floor * each.floor.reshape(shape)
    order = [*range(1, 1 + 2 * columns, 2), *range(2, 2 + 2 * columns, 2), 1 + 2 * columns]
    counts = [len(each.places) for each in chosen]
    sums = [one.transpose(0, *order).reshape(groups, *counts, -1) for one in sums]
    if columns:
        inner = [place - 1 for place in order]
        values = values.transpose(inner).reshape(*counts, -1)
        floor = floor.transpose(inner).reshape(*counts, -1)
    return weights_of_states(sums[0], sums[-1], values, floor)
