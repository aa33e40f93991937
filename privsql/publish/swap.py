"""Identity and swap: replacement by values of the column itself.

identity    keep a value with chance p, else take the value of a row chosen at random
swap        keep a value with chance p; the others are permuted among themselves

Both keep the column's distribution (swap exactly), so the answers about one column need no
reconstruction, and the replacement distribution q can be read off the published column
(OLAP 6.2).  Both look at the whole table: no epsilon holds (reconstruction, 7).
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from privsql.channels.channel import Array, checked_retention, checked_size
from privsql.channels.mechanisms import Replace
from privsql.errors import DomainError

Integers = NDArray[np.integer[Any]]
Mask = NDArray[np.bool_]


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
    shares: Array = counts / len(published_codes)
    return shares


def estimated_channel(published_codes: Integers, size: int, retention: float) -> Replace:
    """The channel to reconstruct with: ``replace`` with q taken from the published column.

    >>> estimated_channel(np.array([0, 0, 1, 0]), 2, 0.5).matrix
    array([[0.875, 0.125],
           [0.375, 0.625]])
    """
    return Replace(retention, estimated_replacing(published_codes, size))


def estimate(
    selected: Mask, matching: Mask, retention: float, mechanism: Literal["identity", "swap"]
) -> tuple[float, float]:
    """Rows of a public condition P whose original value lies in S: (estimate, variance).

    selected    the row satisfies P, shape (n,)
    matching    its published value lies in S, shape (n,)

        x = (n_PS - (1-p) n_P n_S/N) / p
        Var = sum k^2 p^2 (G^2 - G),   G = (1_S - (1-p) n_S/N) / p,
        k = (1_P - (1-p) n_P/N) / p for identity, (1_P - n_P/N) / p for swap

    (reconstruction, 3; rows are not independent, so the variance is an approximation; with
    P everything, swap's answer is exact and its variance 0).

    >>> rows = np.array([True, True, False, False])
    >>> estimate(rows, np.array([True, False, True, False]), 0.5, "swap")
    (1.0, 0.75)
    """
    p, n = checked_retention(retention), len(selected)
    if n == 0:
        return 0.0, 0.0
    share_p, share_s = float(selected.mean()), float(matching.mean())
    count = float((selected & matching).sum() - (1 - p) * n * share_p * share_s) / p
    spread = 1.0 if mechanism == "swap" else 1 - p
    k = (selected - spread * share_p) / p
    g = (matching - (1 - p) * share_s) / p
    return count, float(p * p * np.sum(k * k * (g * g - g)))


def _replaced(codes: Integers, retention: float, rng: np.random.Generator) -> NDArray[np.intp]:
    """Numbers of the rows that are not kept."""
    p = checked_retention(retention)
    return np.flatnonzero(rng.random(len(codes)) >= p)
