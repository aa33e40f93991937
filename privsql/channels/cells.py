"""Cells: sets of values of a column that a query does not distinguish.

The conditions of a query split each sensitive column's domain into cells; a count
per cell is all that the scan has to bring.  Replacing the channel by a matrix between
cells is exact only if the partition is *lumpable*: within a cell, every value must send
the same mass into each cell.  ``uniform`` and ``replace`` always are.  Where a
partition is not, its coarsest lumpable refinement is, and the refined cells are added up
again at the end.  (reconstruction, 2)

    values      a b c d e f                     conditions    cells      lumpable
    x IN (a,b)  T T F F F F          --->       {a b} {c d e f}   --->   {a} {b} {c d} {e f}
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privsql.errors import ChannelError

if TYPE_CHECKING:
    from privsql.channels.channel import Channel

Labels = NDArray[np.intp]

# Masses that differ by less are the same mass computed twice.
MASS_DECIMALS = 12


@dataclass(frozen=True, eq=False)
class Cells:
    """A partition of a domain's values: ``labels[i]`` is the cell of value i.

    Cells are numbered in the order in which the domain first enters them, so equal
    partitions have equal labels.

    >>> Cells.of(["high", "low", "low", "high"]).labels
    array([0, 1, 1, 0])
    """

    labels: Labels

    @classmethod
    def of(cls, labels: Sequence[object] | NDArray[np.generic]) -> Cells:
        """Make a partition from any labels, one a value."""
        if not isinstance(labels, np.ndarray) or labels.dtype == object:
            # Not through an array: it would make 1 and "1" one label, and has no NULL.
            numbers: dict[object, int] = {}
            labels = np.array([numbers.setdefault(label, len(numbers)) for label in labels])
        if labels.ndim != 1 or labels.size == 0:
            raise ChannelError("a partition needs one label for each value of the domain")
        _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
        order = np.argsort(np.argsort(first))
        canonical = order[inverse].astype(np.intp)
        canonical.setflags(write=False)
        return cls(canonical)

    def __eq__(self, other: object) -> bool:
        """Compare partitions, not array objects."""
        return isinstance(other, Cells) and np.array_equal(self.labels, other.labels)

    def __hash__(self) -> int:
        """Agree with ``==``."""
        return hash(self.labels.tobytes())

    @property
    def size(self) -> int:
        """Number of values in the domain."""
        return len(self.labels)

    @cached_property
    def count(self) -> int:
        """Number of cells."""
        return int(self.labels.max()) + 1

    @cached_property
    def sizes(self) -> NDArray[np.intp]:
        """Number of values in each cell."""
        return np.bincount(self.labels, minlength=self.count)

    @cached_property
    def first(self) -> Labels:
        """One value of each cell, the first in the domain's order."""
        return np.unique(self.labels, return_index=True)[1]

    def sums(self, values: ArrayLike) -> NDArray[np.float64]:
        """Add up a function of the values within each cell, along the last axis.

        With the replacement distribution these are the cells' masses.

        >>> Cells.of([0, 1, 0]).sums([0.2, 0.5, 0.3])
        array([0.5, 0.5])
        """
        array = np.asarray(values, dtype=np.float64)
        if array.ndim == 0 or array.shape[-1] != self.size:
            raise ChannelError(f"expected one number for each of {self.size} values")
        if array.ndim == 1:
            sums = np.bincount(self.labels, weights=array, minlength=self.count)
            return sums.astype(np.float64, copy=False)
        order = np.argsort(self.labels, kind="stable")
        starts = np.concatenate([[0], np.cumsum(self.sizes)[:-1]])
        return np.add.reduceat(array[..., order], starts, axis=-1)


def refine(cells: Cells, channel: Channel) -> Cells:
    """Coarsest refinement of ``cells`` that is lumpable under ``channel``.

    Repeats: split each cell by the masses that its values send into the cells of the last
    round, until nothing splits.  Ends after at most as many rounds as there are values,
    at the latest with every value on its own, which is always lumpable.

    >>> from privsql.channels.mechanisms import FineGrain
    >>> fine = FineGrain((0.1, 0.1, 0.5, 0.9, 0.9))
    >>> refine(Cells.of([0, 0, 0, 1, 1]), fine).labels
    array([0, 0, 1, 2, 2])
    """
    if cells.size != channel.size:
        raise ChannelError(
            f"the partition is of {cells.size} values, the channel of {channel.size}"
        )
    while True:
        signature = channel.signature(cells)
        if signature is None:
            return cells
        # Adding 0.0 turns the -0.0 that rounding may leave into 0.0: bytes are compared.
        rounded = np.round(np.ascontiguousarray(signature), MASS_DECIMALS) + 0.0
        rows = rounded.view(f"V{rounded.shape[1] * rounded.itemsize}").ravel()
        sent = Cells.of(rows)
        refined = Cells.of(cells.labels * sent.count + sent.labels)  # the coarsest that is both
        if refined.count == cells.count:
            return cells
        cells = refined
