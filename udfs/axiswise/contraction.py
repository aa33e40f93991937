"""Sums over published states of products of functions, for every class.

    S[g, c_1, ..., c_k] = sum over states j of group g of  a_j * prod_x F_x[c_x, cell_x(j)]

Columns without keys weigh the states; those with keys are then contracted one after the other,
so that the work is that of a few small matrix products.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from udfs.axiswise.program import Ints, Program, product
from udfs.kron import Array


class Contraction:
    """Adds up over the published states of a program."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._published = program.published
        self._sizes = [len(program.kron.factors[x]) for x in program.keyed]
        self.shape = (self._published.groups, *program.counts)

    @cached_property
    def place(self) -> Ints:
        """Where each state is in a tensor over groups and the cells of columns with keys."""
        place = self._published.owner
        for x, size in zip(self._program.keyed, self._sizes, strict=True):
            place = place * size + self._published.cells[x]
        return place

    def tensor(self, amounts: Array, beside: Ints | None = None, width: int = 1) -> Array:
        """Amounts as a tensor over groups, cells of columns with keys, and one more place."""
        place = self.place if beside is None else self.place * width + beside
        shape = (self._published.groups, *self._sizes, width)
        flat = np.bincount(place, amounts, minlength=int(np.prod(shape, dtype=np.int64)))
        return flat.astype(np.float64, copy=False).reshape(shape)

    def added(self, amounts: Array, functions: Sequence[Array | None]) -> Array:
        """The sums of one product, shape ``(G, classes, ...)``."""
        program, weighed = self._program, amounts
        for x, function in enumerate(functions):
            if x not in program.keyed and function is not None:
                weighed = weighed * function[self._published.cells[x]]
        made = self.tensor(weighed)[..., 0]
        for axis, x in enumerate(program.keyed, start=1):
            matrix = functions[x]
            if matrix is None:
                raise AssertionError("a column with keys has a function for each class")
            made = np.moveaxis(np.tensordot(made, matrix, axes=(axis, 1)), -1, axis)
        return made

    def sum_of(self, t: int, inverted: bool) -> Array:
        """The sum of a piece: inverted, or over published rows as they are."""
        program = self._program
        functions: Sequence[Array | None] = program.inverses[t]
        if not inverted:
            own = program.functions[t]
            functions = [program.within(x, function) for x, function in enumerate(own)]
        return self.added(self._published.sums[program.pieces[t, 0]], functions)

    def covariance(self, pair: Ints) -> Array:
        """``sum (squares G G' - products H)`` of two pieces  (udfs.variance).

        The second is of the same class or over all of them.
        """
        program = self._program
        t, u, over_all, products, squares = (int(each) for each in pair)
        second: list[Array | None] = []
        mean: list[Array | None] = []
        for x, (f, g) in enumerate(zip(program.functions[t], program.functions[u], strict=True)):
            other = program.inverses[u][x]
            if over_all and x in program.keyed:
                other = program.inverse(x, g)
            second.append(product(program.inverses[t][x], other))
            mean.append(program.inverse(x, program.within(x, product(f, g))))
        sums = self._published.sums
        return self.added(sums[squares], second) - self.added(sums[products], mean)
