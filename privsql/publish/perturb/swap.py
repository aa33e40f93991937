"""Identity and swap: replacement by values of the column itself.

identity    keep a value with chance p, else take the value of a row chosen at random
swap        keep a value with chance p; the others are permuted among themselves

Both keep the column's distribution (swap exactly), so the answers about one column need no
reconstruction, and the replacement distribution q can be read off the published column
(OLAP 6.2).  Both look at the whole table: no epsilon holds (reconstruction, 7).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from privsql.channels.channel import Array, checked_retention, checked_size
from privsql.errors import DomainError

Integers = NDArray[np.integer[Any]]


def identity(codes: Integers, retention: float, rng: np.random.Generator) -> Integers:
    """Replace each value with chance 1-p by that of a row chosen at random (any row, its own too).

        T[i, j] = p (i == j) + (1-p) q_j,   q the column's own distribution

    Shape (n,); the column given is left as it is.

    >>> identity(np.array([3, 3, 3]), 0.5, np.random.default_rng(1))
    array([3, 3, 3])
    """
    codes, replaced = np.asarray(codes), _replaced(codes, retention, rng)
    published = codes.copy()
    if len(replaced):
        published[replaced] = codes[rng.integers(len(codes), size=len(replaced))]
    return published


def swap(codes: Integers, retention: float, rng: np.random.Generator) -> Integers:
    """Permute the values that are not kept among themselves; the column's counts stay.

    Shape (n,).  Row by row ``T[i, j] = p (i == j) + (1-p) q_j`` up to a relative 1/n.

    >>> sorted(swap(np.array([0, 1, 2, 3]), 0.1, np.random.default_rng(1)).tolist())
    [0, 1, 2, 3]
    """
    codes, replaced = np.asarray(codes), _replaced(codes, retention, rng)
    published = codes.copy()
    published[replaced] = codes[rng.permutation(replaced)]
    return published


def estimated_replacing(published_codes: Integers, size: int) -> Array:
    """The replacement distribution as the published column shows it, ``q_j = n_j / N``, shape (m,).

    Exact for swap, unbiased for identity.

    >>> estimated_replacing(np.array([0, 0, 2, 0]), 3)
    array([0.75, 0.  , 0.25])
    """
    counts = np.bincount(published_codes, minlength=checked_size(size))
    if len(counts) > size:
        raise DomainError("a published value lies outside of the domain")
    if len(published_codes) == 0:
        raise DomainError("a column without rows has no distribution")
    return counts / len(published_codes)


def _replaced(codes: Integers, retention: float, rng: np.random.Generator) -> NDArray[np.intp]:
    """Numbers of the rows that are not kept."""
    p = checked_retention(retention)
    return np.flatnonzero(rng.random(len(codes)) >= p)
