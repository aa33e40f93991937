"""What is asked of all cells of an answer, column by column.

A sensitive key makes *classes* of the values of its column.  A cell of the answer is a public
group g and a class on each column that has keys,

    c = (c_1, ..., c_k),      [state in c] = prod_x [class_x(state_x) = c_x],

and a piece is a product of functions of one column each, so that its inverse is one too:

    f_t(state) = prod_x f_tx(state_x),
    A^-1 (f_t [c]) = prod_x T_x^-1 (f_tx [class_x = c_x]).          (reconstruction, 3)

No list over all states is needed for that: the published states that were seen are enough.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from udfs.errors import KernelError
from udfs.invert import invert_function
from udfs.kron import Array, Kron

Ints = NDArray[np.intp]

# What is asked of a pair of pieces: both, whether the second is over all classes, and the sums
# of products and of squares of their public halves.
PAIR = ("one", "two", "over_all", "products", "squares")


@dataclass(frozen=True)
class Published:
    """The published states that were seen: R of them, in G groups.

    ``cells[x]`` has the cell on column x of each, ``owner`` its group, ``sums[i]`` a sum over its
    rows.
    """

    cells: tuple[Ints, ...]
    owner: Ints
    groups: int
    sums: tuple[Array, ...]

    def of(self, first: int, last: int) -> Published:
        """Those of some groups; states are in the order of groups."""
        a, b = np.searchsorted(self.owner, [first, last])
        return Published(
            tuple(cells[a:b] for cells in self.cells),
            self.owner[a:b] - first,
            last - first,
            tuple(sums[a:b] for sums in self.sums),
        )

    def among(self, chosen: Ints) -> Published:
        """Those of some groups, numbered anew; ``chosen`` is in order."""
        place = np.searchsorted(chosen, self.owner)
        there = chosen[np.minimum(place, len(chosen) - 1)] == self.owner
        return Published(
            tuple(cells[there] for cells in self.cells),
            place[there],
            len(chosen),
            tuple(sums[there] for sums in self.sums),
        )

    def sorted(self) -> Published:
        """In the order of groups."""
        if (self.owner[1:] >= self.owner[:-1]).all():
            return self
        order = np.argsort(self.owner, kind="stable")
        return Published(
            tuple(cells[order] for cells in self.cells),
            self.owner[order],
            self.groups,
            tuple(sums[order] for sums in self.sums),
        )


@dataclass(frozen=True)
class Program:
    """Pieces, pairs of pieces and classes, over columns with their channels.

    ``labels[x]`` is the class of each cell of column x, None where it has no key;
    ``functions[t][x]`` a piece's function of it, None where that is 1; ``pieces[t]`` the places of
    its sums (products, squares, fourths), the last two -1 where effective rows are not wanted.
    ``scored[t]`` is the one column that piece t is a function of, with ``masses`` of its cells
    where a value is replaced; -1 where the mass of its condition is not wanted.
    """

    published: Published
    kron: Kron
    labels: tuple[Ints | None, ...]
    wanted: Ints  # (classes, columns with keys): the classes of the answer
    functions: tuple[tuple[Array | None, ...], ...]
    pieces: Ints
    pairs: Ints
    scored: Ints
    masses: tuple[Array | None, ...]

    def __post_init__(self) -> None:  # noqa: D105
        for factor, labels in zip(self.kron.factors, self.labels, strict=True):
            if labels is not None and len(labels) != len(factor):
                raise KernelError("there must be a label for each cell")
        for functions in self.functions:
            for factor, function in zip(self.kron.factors, functions, strict=True):
                if function is not None and len(function) != len(factor):
                    raise KernelError("a function must have a value for each cell")

    @property
    def effective(self) -> bool:
        """Whether effective rows are wanted of any piece."""
        return bool((self.pieces[:, 1:] >= 0).any())

    def on(self, published: Published) -> Program:
        """The same of other states."""
        made = replace(self, published=published)
        # What does not depend on rows is worked out once.
        made.__dict__["inverses"] = self.inverses
        return made

    @cached_property
    def keyed(self) -> tuple[int, ...]:
        """The columns with keys."""
        return tuple(x for x, labels in enumerate(self.labels) if labels is not None)

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """How many classes the columns with keys have."""
        return tuple(int(self._labels(x).max(initial=-1)) + 1 for x in self.keyed)

    def _labels(self, x: int) -> Ints:
        labels = self.labels[x]
        if labels is None:
            raise AssertionError("this column has no keys")
        return labels

    def within(self, x: int, function: Array | None) -> Array | None:
        """A function of column x within each of its classes, ``(classes, cells)``.

        Where there are none it stays as it is, ``(cells,)``.
        """
        if x not in self.keyed:
            return function
        labels = self._labels(x)
        classes = np.arange(self.counts[self.keyed.index(x)])
        indicator: Array = (labels == classes[:, None]).astype(np.float64)
        return indicator if function is None else indicator * function

    def inverse(self, x: int, function: Array | None) -> Array | None:
        """``T_x^-1 f`` on the last axis."""
        return None if function is None else invert_function(function, self._axes[x])

    @cached_property
    def _axes(self) -> list[Kron]:
        # The whole is refused where it is hopeless, as a list over states would be.
        whole = self.kron.inverse
        axes = [Kron([factor]) for factor in self.kron.factors]
        for axis, inverted in zip(axes, whole.factors, strict=True):
            axis.__dict__["inverse"] = Kron([inverted])
        return axes

    @cached_property
    def inverses(self) -> list[list[Array | None]]:
        """Every piece's inverted functions, column by column, within classes."""
        columns = range(len(self.labels))
        known: dict[tuple[int, bytes | None], Array | None] = {}

        def inverse(t: int, x: int) -> Array | None:
            function = self.functions[t][x]
            key = x, None if function is None else function.tobytes()
            if key not in known:
                known[key] = self.inverse(x, self.within(x, function))
            return known[key]

        return [[inverse(t, x) for x in columns] for t in range(len(self.functions))]

    def mass(self, t: int) -> Array:
        """``q . f_t`` for each of the wanted classes; NaN where it is not wanted.

        On other columns than the one that is scored f_t is the same for all values.
        """
        masses = self.masses[self.scored[t]] if self.scored[t] >= 0 else None
        if masses is None:
            return np.full(len(self.wanted), np.nan)
        found = np.ones(self.counts)
        for x, function in enumerate(self.functions[t]):
            own = self.within(x, function)
            if own is None:
                continue
            value = own @ masses if x == self.scored[t] else own[..., 0]
            if x in self.keyed:
                place = self.keyed.index(x)
                shape = [-1 if i == place else 1 for i in range(len(self.keyed))]
                value = value.reshape(shape)
            found = found * value
        wanted: Array = found[tuple(self.wanted.T)]
        return np.broadcast_to(wanted, len(self.wanted))


def product(one: Array | None, two: Array | None) -> Array | None:
    """The product of two functions of which None is 1."""
    if one is None or two is None:
        return two if one is None else one
    made: Array = one * two
    return made
