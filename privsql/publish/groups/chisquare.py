"""Public values that a sensitive column does not distinguish: Pearson's test of all pairs.

    counts (values, bins) ── one value against 256 others at a time ── links (values, values)

The statistic is that of RECON eq. 4.  Sparse bins of a pair are pooled (Cochran's rule), which
is a different set for each pair and most of the work; tables without any take a shorter way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Literal, TypeAlias, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privsql.channels.channel import as_floats
from privsql.errors import DataError, TooLargeError

Array: TypeAlias = NDArray[np.float64]
Links: TypeAlias = NDArray[np.bool_]
Freedom: TypeAlias = Literal["m-1", "m"]

SIGNIFICANCE = 0.05  # RECON 3.4

# A bin expected to hold fewer rows than this on either side is sparse (Cochran's rule).
SPARSE = 5.0

# All pairs of more values than this are not tested: time and memory grow as its square.
VALUES_LIMIT = 4096

# Nor are more counts than this, over all pairs: two seconds where all bins are full, and five
# where every pair has other sparse ones.
WORK_LIMIT = 1 << 29

# Counts compared in one go, so that intermediate results stay in the cache.
BLOCK = 1 << 15

# Values that one is compared with in one go: alike in their number of rows.
WIDTH = 256

# What is left of a sum that should be zero, relatively.
ROUNDING = 1e-9


class Test(TypedDict, total=False):
    """What a test of ``linked`` may be told."""

    significance: float
    df: Freedom
    minimum: int
    pool: bool


def linked(
    counts: ArrayLike,
    *,
    significance: float = SIGNIFICANCE,
    df: Freedom = "m-1",
    minimum: int = 0,
    tests: int = 1,
    pool: bool = True,
) -> Links:
    """Pairs of values that the test cannot distinguish, shape ``(values, values)``.

    ``counts[v, j]`` are the rows with public value v and sensitive value j.  A pair is
    linked when eq. 4 is at most the ``1 - significance/tests`` quantile of chi-square
    (``tests``: Bonferroni over sensitive columns), whose degrees of freedom are the bins
    used less one, or with ``df = "m"``, as the paper's text says, the bins used.

    ``pool`` puts all sparse bins (expected below 5 on either side) of a pair into one, unless
    that would leave a single bin and so no test: a value of a few rows would then be linked
    to every other.  ``pool=False`` is the paper's letter.  Values with fewer than ``minimum``
    rows, or none, are linked to nothing.

    >>> linked([[50, 50], [52, 48], [90, 10]]).astype(int)
    array([[1, 1, 0],
           [1, 1, 0],
           [0, 0, 1]])
    """
    table = as_table(counts)
    values, bins = table.shape
    if values > VALUES_LIMIT or values * (values - 1) // 2 * bins > WORK_LIMIT:
        raise TooLargeError(
            f"merging compares all pairs of values, and {values} are too many"
            f" (the limit is {VALUES_LIMIT}, and less where the sensitive column has many values)",
            hint="coarsen the column, mark it grouping = false, or do not merge",
        )
    critical = _critical(significance, tests, df, bins)
    links = np.eye(values, dtype=bool)
    totals = table.sum(axis=1)
    chosen = np.flatnonzero(totals >= max(minimum, 1))
    # Fewest rows first: a value is then compared with larger ones, for which most of its
    # bins are sparse.
    chosen = chosen[np.argsort(totals[chosen], kind="stable")]
    used = table.sum(axis=0) > 0
    ordered = table[chosen][:, used]
    for start in range(0, len(chosen), WIDTH):
        others = _Others.of(ordered[start : start + WIDTH])
        for i in range(min(start + WIDTH, len(chosen))):
            # Each pair once: among these others, only with those that come after.
            later = max(i + 1, start)
            same = _same(ordered[i], others, critical, pool)[later - start :]
            links[chosen[i], chosen[later : start + WIDTH]] = same
            links[chosen[later : start + WIDTH], chosen[i]] = same
    return links


@dataclass(frozen=True)
class _Others:
    """Values to compare one with: counts by bin, ``(m, k)``, and what speeds it up."""

    counts: Array
    totals: Array
    most: Array  # of them, in each bin
    fewest: Array
    occupied: NDArray[np.float32]  # 1 where there are rows
    bins: NDArray[np.float32]  # how many of those each value has

    @classmethod
    def of(cls, table: Array) -> _Others:
        counts = np.ascontiguousarray(table.T)
        occupied = (counts > 0).astype(np.float32)
        most, fewest = counts.max(axis=1), counts.min(axis=1)
        return cls(counts, counts.sum(axis=0), most, fewest, occupied, occupied.sum(axis=0))


def _same(o: Array, others: _Others, critical: Array, pool: bool) -> Links:
    """Test one value, bins ``(m,)``, against k others.

    With N = n + n', eq. 4 is ``N^2/(n n') (sum_j o_j^2 / (o_j + o'_j) - n^2/N)``, to which
    bins without o_j add nothing.
    """
    n, totals = o.sum(), others.totals
    if pool:
        used, shares = _pooled(o, n, others)
    else:
        used, shares = np.zeros(len(totals)), np.zeros(len(totals))
    # One bin is no test: then sparse bins stay apart.
    alone = np.flatnonzero(used <= 1)
    if len(alone):
        some = np.flatnonzero(o)
        mine = (o > 0).astype(np.float32)
        either = len(some) + others.bins - mine @ others.occupied
        counts = others.counts if len(alone) == len(totals) else others.counts[:, alone]
        used[alone] = either[alone]
        shares[alone] = _shares(o, counts, some)
    both = n + totals
    statistic = both * both / (n * totals) * (shares - n * n / both)
    accepted: Links = statistic <= critical[used.astype(np.intp)]
    return accepted


def _pooled(o: Array, n: float, others: _Others) -> tuple[Array, Array]:
    """Bins used and ``sum_j o_j^2 / (o_j + o'_j)``, all sparse bins of a pair taken as one."""
    both = n + others.totals
    # A bin with less is sparse: min(n, n') (o_j + o'_j) / (n + n') < 5.
    least = SPARSE * both / np.minimum(n, others.totals)
    always = o + others.fewest >= least.max()
    # Bins that are full for all others need no mask, those that are for none no look.
    used = np.full(len(both), float(np.count_nonzero(always)))
    shares = _shares(o, others.counts, np.flatnonzero(always & (o > 0)))
    if always.all():
        return used, shares
    mine = np.full(len(both), o[always].sum())
    filled = mine + always.astype(np.float64) @ others.counts
    for rows in _blocks(np.flatnonzero(~always & (o + others.most >= least.min())), len(both)):
        here = o[rows]
        sums = here[:, None] + others.counts[rows]
        full = (sums >= least).astype(np.float64)
        used += full.sum(axis=0)
        mine += here @ full
        filled += np.einsum("jk,jk->k", full, sums)
        # Where both are empty nothing is full, and nothing may be divided by.
        shares += (here * here) @ np.divide(full, np.maximum(sums, 1.0, out=sums), out=sums)
    # What is left is the sparse bins; rounding must not make a bin of nothing.
    thin = both - filled
    some = thin > ROUNDING * both
    shares += np.where(some, (n - mine) ** 2 / np.where(some, thin, 1.0), 0.0)
    return used + some, shares


def _shares(o: Array, counts: Array, bins: NDArray[np.intp]) -> Array:
    """``sum_j o_j^2 / (o_j + o'_j)`` over some bins, none of which may be empty in o."""
    total = np.zeros(counts.shape[1])
    for rows in _blocks(bins, counts.shape[1]):
        # All of them lie side by side and need no copy.
        taken = slice(rows[0], rows[-1] + 1) if len(bins) == len(o) else rows
        here = o[taken]
        sums = here[:, None] + counts[taken]
        total += (here * here) @ np.reciprocal(sums, out=sums)
    return total


def _blocks(rows: NDArray[np.intp], width: int) -> Iterator[NDArray[np.intp]]:
    """Bins in blocks of about BLOCK counts, which stay in a core's cache."""
    step = max(1, BLOCK // width)
    for start in range(0, len(rows), step):
        yield rows[start : start + step]


def _critical(significance: float, tests: int, df: Freedom, bins: int) -> Array:
    """Largest statistic that is still no difference, by the number of bins used."""
    from scipy.special import chdtri

    if not 0 < significance < 1:
        raise DataError("significance must lie between 0 and 1")
    if tests < 1:
        raise DataError("there is at least one test")
    if df not in ("m-1", "m"):
        raise DataError('df must be "m-1" or "m"')
    freedom = np.arange(bins + 1) - (df == "m-1")
    # One bin is the same everywhere, whatever rounding makes of it.
    # scipy.stats would take a second to import for this one function.
    found = chdtri(np.maximum(freedom, 1), significance / tests)
    quantiles: Array = np.array(found, dtype=np.float64)
    quantiles[:2] = np.inf
    return quantiles


def links_of(tables: Sequence[ArrayLike], **test: Unpack[Test]) -> Links:
    """Pairs that no sensitive column distinguishes; one table ``(values, m_k)`` for each.

    With k sensitive columns each test is at ``significance / k`` (Bonferroni), so that
    equal values stay together with the same chance as with one.
    """
    if not len(tables):
        raise DataError("merging needs at least one sensitive column to compare values by")
    if len({len(as_table(table)) for table in tables}) > 1:
        raise DataError("the tables of one public column must have its values as rows")
    return reduce(np.logical_and, (linked(each, tests=len(tables), **test) for each in tables))


def as_table(counts: ArrayLike | Sequence[ArrayLike]) -> Array:
    """Return counts as a table of at least one row and column, or refuse them."""
    table = as_floats(counts, "counts must be numbers, in rows of one length", DataError)
    if table.ndim != 2 or not table.size:
        raise DataError("counts must be a table of values and bins, and not empty")
    if not np.isfinite(table).all() or (table < 0).any():
        raise DataError("counts must be finite and not negative")
    return table
