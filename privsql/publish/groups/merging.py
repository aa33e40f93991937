"""Generalised personal groups: merging of public values with similar sensitive values.

An attacker who knows that two values of a public column go with the same distribution of
a sensitive column pools their rows and reconstructs more sharply.  So such values are
merged, and a personal group is what is equal on all public columns afterwards
(RECON 3.4; section 7 of the design).

Counts may be of original values or, better, of published ones: two distributions are equal
if and only if an invertible channel makes equal ones of them, so the same test serves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privsql.errors import DataError, TooLargeError, how_many
from privsql.publish.groups.chisquare import Array, Links, Test, as_table, links_of

Labels: TypeAlias = NDArray[np.int64]

# A value with a smaller share of the rows is rare: what it links may be chance.
RARE = 0.01

# A merged group with a larger share of the rows than this makes merging pointless.
DOMINANT = 0.5

# Names given in one warning.
NAMED = 5


@dataclass(frozen=True)
class Merging:
    """Generalised value of each value, for each public column, and warnings about it.

    ``labels[c][v]`` is the generalised value of value v of column c, numbered from 0 in the
    order of first appearance.
    """

    columns: tuple[str, ...]
    labels: tuple[Labels, ...]
    warnings: tuple[str, ...] = ()
    fell_back: bool = False

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """How many generalised values each column has."""
        return tuple(int(label.max(initial=-1)) + 1 for label in self.labels)


def merge(
    columns: Mapping[str, Sequence[ArrayLike]],
    tuples: Sequence[ArrayLike],
    rows: ArrayLike,
    *,
    names: Mapping[str, Callable[[int], object]] | None = None,
    rare: float = RARE,
    **test: Unpack[Test],
) -> Merging:
    """Merge the values of every public column, or of none where that would go too far.

    ``columns`` gives each public column its tables, as ``links_of`` takes them;
    ``tuples`` and ``rows`` are the distinct public tuples, one array of codes for each
    column in the same order, and how many rows have them.  Measures are not passed; NULL
    is one more value.  If no column keeps two values, or one merged group holds over half
    of the rows, the values stay as they are, with a warning; so do those of a column that
    has too many of them to compare.  ``names`` give the values of
    a column by their codes, as they are to be called in a warning about rare ones; ``test`` is
    for ``linked``.
    """
    labels, warnings = [], []
    for column, tables in columns.items():
        try:
            links = links_of(tables, **test)
        except TooLargeError as problem:
            warnings.append(f"values of {column} are not merged: {problem.reason}; {problem.hint}")
            labels.append(apart(len(as_table(tables[0]))))
            continue
        labels.append(components(links))
        shares = as_table(tables[0]).sum(axis=1)
        known = names.get(column) if names is not None else None
        warnings += _chained(column, links, labels[-1], shares, rare, known)
    merging = Merging(tuple(columns), tuple(labels), tuple(warnings))
    weights = as_table([rows])[0]
    reason = _too_far(merging, tuples, weights)
    if reason is None:
        return merging
    told = (f"public values are not merged: {reason}", *warnings)
    return Merging(tuple(columns), tuple(map(apart, map(len, labels))), told, fell_back=True)


def apart(size: int) -> Labels:
    """Labels of values that are not merged."""
    return np.arange(size, dtype=np.int64)


def personal_groups(tuples: Sequence[ArrayLike], merging: Merging) -> Labels:
    """Group number of each distinct public tuple, from 0 in the order of merged values.

    >>> merging = Merging(("job", "sex"), (np.array([0, 1, 0]), np.array([0, 1])))
    >>> personal_groups([[0, 1, 2, 2], [0, 0, 0, 1]], merging)
    array([0, 2, 0, 1])
    """
    codes = [np.asarray(code) for code in tuples]
    if len(codes) != len(merging.labels):
        raise DataError(f"tuples of {len(codes)} columns, but {len(merging.labels)} were merged")
    if not codes:
        raise DataError("personal groups need at least one public column")
    number = np.zeros(len(codes[0]), dtype=np.int64)
    for code, label, size in zip(codes, merging.labels, merging.sizes, strict=True):
        if code.shape != number.shape or (len(code) and not np.issubdtype(code.dtype, np.integer)):
            raise DataError("public tuples are given as one array of codes for each column")
        if len(code) and not 0 <= code.min() <= code.max() < len(label):
            raise DataError("a public tuple has a code outside of its column's values")
        # Renumbered each time: the product of many sizes would not fit an integer.
        number = number * size + (label[code] if len(code) else number)
        number = np.unique(number, return_inverse=True)[1].astype(np.int64)
    return number


def _too_far(merging: Merging, tuples: Sequence[ArrayLike], rows: Array) -> str | None:
    """Why personal groups of merged values would be useless, or None if they are not."""
    if all(size == len(label) for size, label in zip(merging.sizes, merging.labels, strict=True)):
        return None
    number = personal_groups(tuples, merging)
    if number.shape != rows.shape:
        raise DataError(f"{len(rows)} row counts do not fit {len(number)} public tuples")
    present = rows > 0
    codes = [label[np.asarray(c)[present]] for label, c in zip(merging.labels, tuples, strict=True)]
    if all(len(np.unique(code)) < 2 for code in codes):
        return "no public column would keep two values"
    if np.bincount(number, weights=rows).max(initial=0) > DOMINANT * rows.sum():
        return "one personal group would hold over half of the rows"
    return None


def _chained(
    column: str,
    links: Links,
    labels: Labels,
    rows: Array,
    rare: float,
    names: Callable[[int], object] | None,
) -> list[str]:
    """Warn of every component that is connected through rare values only.

    No row counts: the number of values and, as public values are public, some names.
    """
    scarce = rows < rare * rows.sum()
    # Components of the frequent values alone, and of the rare ones alone.
    pieces_of = components(links & (scarce[:, None] == scarce[None, :]))
    found = []
    for label in np.unique(labels[scarce & (rows > 0)]):
        members = np.flatnonzero(labels == label)
        pieces = len(np.unique(pieces_of[members[~scarce[members]]]))
        if pieces < 2:
            continue
        glue = [
            v
            for chain in np.unique(pieces_of[members[scarce[members]]])
            if len(np.unique(pieces_of[links[pieces_of == chain].any(axis=0) & ~scarce])) > 1
            for v in np.flatnonzero(pieces_of == chain)
        ]
        called = ""
        if names is not None:
            called = ", ".join(repr(names(int(v))) for v in glue[:NAMED])
            called = f" ({called}{', ...' if len(glue) > NAMED else ''})"
        found.append(
            f"{column}: {how_many(len(glue), 'rare value')}{called}"
            f" {'links' if len(glue) == 1 else 'link'} {len(members)} of {len(labels)} values into"
            f" one group; without rare values there would be {pieces} groups. A minimum count"
            " excludes rare values from merging"
        )
    return found


def components(links: Links) -> Labels:
    """Connected components, numbered in the order of their first members."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import connected_components

    found = connected_components(csr_matrix(links, dtype=np.int8), directed=False)[1]
    _, first, inverse = np.unique(found, return_index=True, return_inverse=True)
    order = np.empty(len(first), dtype=np.int64)
    order[np.argsort(first)] = np.arange(len(first))
    return order[inverse]
