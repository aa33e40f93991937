"""Generalised personal groups: public values that tell the same about the sensitive ones.

An attacker who knows that two values of a public column go with the same distribution of
a sensitive column pools their rows and reconstructs more sharply.  So such values are
merged, and a personal group is what is equal on all public columns afterwards
(RECON 3.4; section 7 of the design).

Counts may be of original values or, better, of published ones: two distributions are equal
if and only if an invertible channel makes equal ones of them, so the same test serves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components
from scipy.stats import chi2

from privsql.errors import DataError, TooLargeError

Array: TypeAlias = NDArray[np.float64]
Labels: TypeAlias = NDArray[np.int64]
Links: TypeAlias = NDArray[np.bool_]
Freedom: TypeAlias = Literal["m-1", "m"]

SIGNIFICANCE = 0.05  # RECON 3.4

# A bin expected to hold fewer rows than this on either side is sparse (Cochran's rule).
SPARSE = 5.0

# A value with a smaller share of the rows is rare: what it links may be chance.
RARE = 0.01

# A merged group with a larger share of the rows than this makes merging pointless.
DOMINANT = 0.5

# All pairs of more values than this are not tested: time and memory grow as its square.
VALUES_LIMIT = 4096

# Nor are more counts than this, over all pairs: up to about half a minute where bins are full.
WORK_LIMIT = 1 << 32

# Counts compared in one go, so that intermediate results stay in the cache.
BLOCK = 1 << 15

# Values that one is compared with in one go: alike in their number of rows.
WIDTH = 256

# What is left of a sum that should be zero, relatively.
ROUNDING = 1e-9

# Names given in one warning.
NAMED = 5


@dataclass(frozen=True)
class Merging:
    """Generalised value of each value, for each public column, and what to say about it.

    ``labels[c][v]`` is the generalised value of value v of column c, numbered from 0 in the
    order of first appearance; ``sizes[c]`` is how many of them there are.
    """

    columns: tuple[str, ...]
    labels: tuple[Labels, ...]
    sizes: tuple[int, ...]
    warnings: tuple[str, ...] = ()
    fell_back: bool = False


def chi_square(left: ArrayLike, right: ArrayLike) -> float:
    """Distance of two binned distributions with unequal numbers of rows (RECON eq. 4).

        chi2 = sum_j (sqrt(n'/n) o_j - sqrt(n/n') o'_j)^2 / (o_j + o'_j)

    Pearson's statistic of the 2 x m table.  Bins empty on both sides are left out; without
    rows on one side nothing can differ, which is 0.

    >>> round(chi_square([10, 20, 0], [20, 10, 0]), 4)
    6.6667
    """
    o, p = _table([left])[0], _table([right])[0]
    if len(o) != len(p):
        raise DataError(f"{len(o)} bins cannot be compared with {len(p)}")
    n, total, both = o.sum(), p.sum(), o + p
    if n == 0 or total == 0:
        return 0.0
    used = both > 0
    apart = np.sqrt(total / n) * o[used] - np.sqrt(n / total) * p[used]
    return float((apart**2 / both[used]).sum())


def linked(
    counts: ArrayLike,
    *,
    significance: float = SIGNIFICANCE,
    df: Freedom = "m-1",
    minimum: int = 0,
    tests: int = 1,
    pool: bool = True,
) -> Links:
    """Which pairs of values the test cannot tell apart, shape ``(values, values)``.

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
    table = _table(counts)
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
    full_always = np.flatnonzero(always)
    used = np.full(len(both), float(len(full_always)))
    mine = np.full(len(both), o[full_always].sum())
    filled = mine + (others.counts[full_always].sum(axis=0) if len(full_always) else 0.0)
    shares = _shares(o, others.counts, full_always[o[full_always] > 0])
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
        here = o[rows]
        sums = here[:, None] + counts[rows]
        total += (here * here) @ np.reciprocal(sums, out=sums)
    return total


def _blocks(rows: NDArray[np.intp], width: int) -> Iterator[NDArray[np.intp]]:
    """Bins in blocks of about BLOCK counts, which stay in a core's cache."""
    step = max(1, BLOCK // width)
    for start in range(0, len(rows), step):
        yield rows[start : start + step]


def _critical(significance: float, tests: int, df: Freedom, bins: int) -> Array:
    """Largest statistic that is still no difference, by the number of bins used."""
    if not 0 < significance < 1:
        raise DataError("significance must lie between 0 and 1")
    if tests < 1:
        raise DataError("there is at least one test")
    if df not in ("m-1", "m"):
        raise DataError('df must be "m-1" or "m"')
    freedom = np.arange(bins + 1) - (df == "m-1")
    # One bin is the same everywhere, whatever rounding makes of it.
    quantiles = np.array(chi2.isf(significance / tests, np.maximum(freedom, 1)))
    quantiles[:2] = np.inf
    return quantiles


def links_of(
    tables: Sequence[ArrayLike],
    *,
    significance: float = SIGNIFICANCE,
    df: Freedom = "m-1",
    minimum: int = 0,
    pool: bool = True,
) -> Links:
    """Pairs that no sensitive column tells apart; one table ``(values, m_k)`` for each.

    With k sensitive columns each test is at ``significance / k`` (Bonferroni), so that
    equal values stay together with the same chance as with one.
    """
    if not len(tables):
        raise DataError("merging needs at least one sensitive column to compare values by")
    links: Links | None = None
    for table in tables:
        found = linked(
            table, significance=significance, df=df, minimum=minimum, tests=len(tables), pool=pool
        )
        if links is not None and found.shape != links.shape:
            raise DataError("the tables of one public column must have its values as rows")
        links = found if links is None else links & found
    assert links is not None  # noqa: S101 - for mypy: tables is not empty
    return links


def merge_column(
    tables: Sequence[ArrayLike],
    *,
    significance: float = SIGNIFICANCE,
    df: Freedom = "m-1",
    minimum: int = 0,
    pool: bool = True,
) -> Labels:
    """Generalised value of each value of one public column: components of the links.

    >>> merge_column([[[50, 50], [90, 10], [52, 48]]])
    array([0, 1, 0])
    """
    return _components(
        links_of(tables, significance=significance, df=df, minimum=minimum, pool=pool)
    )


def merge(
    columns: Mapping[str, Sequence[ArrayLike]],
    tuples: Sequence[ArrayLike],
    rows: ArrayLike,
    *,
    names: Mapping[str, Sequence[object]] | None = None,
    significance: float = SIGNIFICANCE,
    df: Freedom = "m-1",
    minimum: int = 0,
    pool: bool = True,
    rare: float = RARE,
) -> Merging:
    """Merge the values of every public column, or of none where that would go too far.

    ``columns`` gives each public column its tables, as ``merge_column`` takes them;
    ``tuples`` and ``rows`` are the distinct public tuples, one array of codes for each
    column in the same order, and how many rows have them.  Measures are not passed; NULL
    is one more value.  If no column keeps two values, or one merged group holds over half
    of the rows, the values stay as they are, with a warning; so do those of a column that
    has too many of them to compare.  ``names`` are the values as
    they are to be called in a warning about rare ones.
    """
    labels, warnings = [], []
    for column, tables in columns.items():
        try:
            links = links_of(tables, significance=significance, df=df, minimum=minimum, pool=pool)
        except TooLargeError as problem:
            warnings.append(f"values of {column} are not merged: {problem.reason}; {problem.hint}")
            labels.append(np.arange(len(_table(tables[0])), dtype=np.int64))
            continue
        labels.append(_components(links))
        shares = _table(tables[0]).sum(axis=1)
        known = names.get(column) if names is not None else None
        warnings += _chained(column, links, labels[-1], shares, rare, known)
    merging = _merging(columns, labels, warnings)
    weights = _table([rows])[0]
    reason = _too_far(merging, tuples, weights)
    if reason is None:
        return merging
    unmerged = [np.arange(len(label), dtype=np.int64) for label in labels]
    warnings.insert(0, f"public values are not merged: {reason}")
    return _merging(columns, unmerged, warnings, fell_back=True)


def personal_groups(tuples: Sequence[ArrayLike], merging: Merging) -> Labels:
    """Group number of each distinct public tuple, from 0 in the order of merged values.

    >>> merging = Merging(("job", "sex"), (np.array([0, 1, 0]), np.array([0, 1])), (2, 2))
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


def _merging(
    columns: Mapping[str, Sequence[ArrayLike]],
    labels: Sequence[Labels],
    warnings: Sequence[str],
    fell_back: bool = False,
) -> Merging:
    sizes = tuple(int(label.max(initial=-1)) + 1 for label in labels)
    return Merging(tuple(columns), tuple(labels), sizes, tuple(warnings), fell_back)


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
    names: Sequence[object] | None,
) -> list[str]:
    """Warn of every component that falls apart once its rare values are taken out.

    No row counts: the number of values and, as public values are public, some names.
    """
    scarce = rows < rare * rows.sum()
    # Components of the frequent values alone, and of the rare ones alone.
    apart = _components(links & (scarce[:, None] == scarce[None, :]))
    found = []
    for label in np.unique(labels[scarce & (rows > 0)]):
        members = np.flatnonzero(labels == label)
        pieces = len(np.unique(apart[members[~scarce[members]]]))
        if pieces < 2:
            continue
        glue = [
            v
            for chain in np.unique(apart[members[scarce[members]]])
            if len(np.unique(apart[links[apart == chain].any(axis=0) & ~scarce])) > 1
            for v in np.flatnonzero(apart == chain)
        ]
        called = ""
        if names is not None:
            called = ", ".join(repr(names[int(v)]) for v in glue[:NAMED])
            called = f" ({called}{', ...' if len(glue) > NAMED else ''})"
        found.append(
            f"{column}: {len(members)} of {len(labels)} values come together only through"
            f" {len(glue)} rare {'one' if len(glue) == 1 else 'ones'}{called}; without rare"
            f" values they would stay in {pieces} parts. A minimum count keeps rare values"
            " out of merging"
        )
    return found


def _components(links: Links) -> Labels:
    """Connected components, numbered in the order of their first members."""
    found = connected_components(csr_matrix(links, dtype=np.int8), directed=False)[1]
    _, first, inverse = np.unique(found, return_index=True, return_inverse=True)
    order = np.empty(len(first), dtype=np.int64)
    order[np.argsort(first)] = np.arange(len(first))
    return order[inverse]


def _table(counts: ArrayLike | Sequence[ArrayLike]) -> Array:
    """Return counts as a table of at least one row and column, or refuse them."""
    try:
        table = np.asarray(counts, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        # Not chained: numpy's message quotes the value.
        raise DataError("counts must be numbers, in rows of one length") from None
    if table.ndim != 2 or not table.size:
        raise DataError("counts must be a table of values and bins, and not empty")
    if not np.isfinite(table).all() or (table < 0).any():
        raise DataError("counts must be finite and not negative")
    return table
