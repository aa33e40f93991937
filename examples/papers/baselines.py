"""Competing methods from the papers, for experiments; never used for a release.

They return plain arrays and numbers, no channel and no manifest.

anatomy     l-diverse buckets: public columns and sensitive values in two tables (Xiao, Tao)
dbr         every value is drawn anew from the column's distribution (SPLU 3)
laplace     the true answer plus Laplace noise (RECON 2, SPLU 6)
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privsql.channels.channel import Array, checked_number
from privsql.errors import ChannelError
from privsql.publish.perturb import decoy

Integers = NDArray[np.integer[Any]]
Mask = NDArray[np.bool_]


class Buckets(NamedTuple):
    """Anatomy's two tables.

    bucket      bucket of each row, beside its public columns, shape (n,)
    values      sensitive table: distinct (bucket, value, rows), shape (k, 3), sorted
    """

    bucket: NDArray[np.int32]
    values: NDArray[np.int64]


def anatomy(codes: Integers, diversity: int, rng: np.random.Generator) -> Buckets:
    """Buckets of ``diversity`` distinct values, each from one of the largest classes.

    The fewer than ``diversity`` rows left over each join a bucket at random that does not
    hold their value yet, so that within a bucket every value occurs once.

    >>> tables = anatomy(np.array([0, 1, 2, 0, 1]), 2, np.random.default_rng(1))
    >>> np.bincount(tables.bucket), tables.values[:, 2]
    (array([2, 3]), array([1, 1, 1, 1, 1]))
    """
    codes = np.asarray(codes)
    totals = np.bincount(codes)
    if len(codes) < diversity or totals.max() * diversity > len(codes):
        raise ChannelError("no value may have a share above 1/l of an l-diverse table")
    bucket, left = decoy.partition(codes, diversity, rng, "anatomy")
    free = np.ones(int(bucket.max()) + 1, dtype=np.bool_)
    for row in np.flatnonzero(left):
        free[:] = True
        free[bucket[(codes == codes[row]) & (bucket >= 0)]] = False
        if not free.any():
            raise ChannelError("a row fits into no bucket: the table is too small for l")
        bucket[row] = rng.choice(np.flatnonzero(free))
    size = len(totals)
    cells, rows = np.unique(bucket.astype(np.int64) * size + codes, return_counts=True)
    return Buckets(bucket, np.stack([cells // size, cells % size, rows], axis=1))


def anatomy_count(tables: Buckets, selected: Mask, values: ArrayLike) -> float:
    """Anatomy's answer: rows of a public condition with one of these sensitive values.

        sum over buckets of n_P(b) rows_S(b) / rows(b)

    selected    the row satisfies the public condition, shape (n,)

    >>> tables = Buckets(np.array([0, 0], np.int32), np.array([[0, 4, 1], [0, 7, 1]]))
    >>> anatomy_count(tables, np.array([True, False]), [7])
    0.5
    """
    sizes = np.bincount(tables.bucket)
    chosen = np.bincount(tables.bucket[selected], minlength=len(sizes))
    bucket, value, rows = tables.values.T
    matching = np.bincount(bucket, rows * np.isin(value, values), minlength=len(sizes))
    return float(np.sum(chosen * matching / np.maximum(sizes, 1)))


def dbr(codes: Integers, rng: np.random.Generator) -> Integers:
    """Draw every value anew from the column's distribution; correlations are lost.

    The answer of ``n_P rows_S/n`` is then all that a public condition can tell.

    >>> dbr(np.array([4, 4]), np.random.default_rng(1))
    array([4, 4])
    """
    codes = np.asarray(codes)
    return codes[rng.integers(len(codes), size=len(codes))] if len(codes) else codes.copy()


def laplace(answers: ArrayLike, scale: float, rng: np.random.Generator) -> Array:
    """True answers plus Laplace noise of scale b (epsilon = sensitivity/b an answer).

    >>> laplace([10.0, 20.0], 1e-9, np.random.default_rng(1)).round(3)
    array([10., 20.])
    """
    if not checked_number(scale, "the scale of the noise") > 0:
        raise ChannelError("the scale of the noise must be above 0")
    exact = np.asarray(answers, dtype=np.float64)
    noisy: Array = exact + rng.laplace(0.0, scale, size=exact.shape)
    return noisy
