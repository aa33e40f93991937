"""Reconstruction privacy: a personal group keeps at most s_g independent trials (SPS).

    s_g = -2 (f p + (1-p)/m) ln(delta) / (lambda p f)^2           (RECON eq. 10)

f is the largest frequency in the group, lambda the relative error (``relative_error``) that
an estimate of f must be able to reach with a chance of at least delta (``probability``).

Our order is perturb, cap, sample: f is read off the *published* values and rounded up to a
public grid, rows are sampled simply at random and carry a weight.  The paper's order, with
the exact f of the raw group and duplicated rows, shows s_g and so f to everybody
(reconstruction, 7 and 9.1); it is here to be reproduced.

Shapes: n rows, G groups numbered from 0, m values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from privsql.channels.caps import cap_of, chances
from privsql.channels.channel import Array, Channel, checked_number
from privsql.channels.mechanisms import FineGrain, Replace, Uniform
from privsql.errors import ChannelError, DataError

Integers = NDArray[np.integer[Any]]
Indices = NDArray[np.intp]
Mask = NDArray[np.bool_]

Cap = Literal["grid", "one", "exact"]
Source = Literal["published", "raw"]

# The public levels that a group's largest frequency is rounded up to.
GRID = (0.125, 0.25, 0.5, 1.0)

# Below this many (group, value) cells a table of all of them is cheaper than sorting.
DENSE_CELLS = 1 << 23


def caps(
    group_numbers: Integers,
    codes: Sequence[Integers],
    channels: Sequence[Channel],
    *,
    relative_error: float,
    probability: float,
    cap: Cap = "grid",
    source: Source = "published",
) -> Array:
    """s_g of every group, shape (G,); the smallest over the sensitive columns.

    codes   one array (n,) a column: published ones, from which frequencies are reconstructed
            (``y T^-1 / |g|``), or with ``source = "raw"`` original ones, counted as they are
    cap     "grid": f is the largest frequency of the group, rounded up to the public grid,
            and s_g the smallest s of any value at that f, so it takes four values at most;
            "one": the same with f = 1 for everyone, nothing is read off the data;
            "exact": the smallest s of any value at its own frequency, as in the paper

    Groups without rows are infinite.  lambda must be below 1: from there on eq. 10 would
    cap the less frequent values only.  (reconstruction, 7)

    >>> groups = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    >>> column = np.array([0, 0, 0, 0, 0, 1, 0, 1])
    >>> caps(groups, [column], [Uniform(0.5, 2)], relative_error=0.3, probability=0.3).round(2)
    array([ 80.26, 214.04])
    """
    error, chance = checked_number(relative_error, "lambda"), checked_number(probability, "delta")
    if not 0 < error < 1 or not 0 < chance < 1:
        raise ChannelError("lambda and delta must lie strictly between 0 and 1")
    if cap not in ("grid", "one", "exact") or source not in ("published", "raw"):
        raise ChannelError("cap is grid, one or exact; source is published or raw")
    sizes = np.bincount(group_numbers)
    smallest = np.full(len(sizes), np.inf)
    for column, channel in zip(codes, channels, strict=True):
        kept, false = chances(channel)
        if cap == "one":
            found = np.full(len(sizes), cap_of(1.0, kept, false, error, chance).min())
        else:
            groups, values, shares = _frequencies(group_numbers, column, channel, sizes, source)
            found = np.full(len(sizes), np.inf)
            if cap == "exact":
                each = cap_of(shares, kept[values], false[values], error, chance)
                np.minimum.at(found, groups, each)
            else:
                largest = np.zeros(len(sizes))
                np.maximum.at(largest, groups, shares)
                levels = cap_of(np.array(GRID)[:, None], kept, false, error, chance).min(axis=1)
                found = levels[np.searchsorted(GRID, np.minimum(largest, 1.0))]
        np.minimum(smallest, found, out=smallest)
    smallest[sizes == 0] = np.inf
    return smallest


def sample(group_numbers: Integers, sizes: Array, numbers: Array) -> tuple[Mask, Array]:
    """Sample each group with ``|g| > s_g`` down to ``floor(s_g)`` rows, at least one.

    Those with the lowest ``numbers`` stay: random ones are simple random sampling without
    replacement, and from the publisher's key they are the same when the release is made again.
    Returns which rows stay, shape (n,), and the weight of each row: ``|g|/|g1|`` in a sampled
    group, 1 in any other, 0 for a row that does not stay.  The weights of a group add up to |g|.

    >>> keep, weight = sample(np.array([0, 0, 0, 0, 1]), np.array([2.7, 9.0]),
    ...                       np.array([0.3, 0.1, 0.4, 0.2, 0.5]))
    >>> keep.tolist(), weight.tolist()
    ([False, True, False, True, True], [0.0, 2.0, 0.0, 2.0, 1.0])
    """
    counts = np.bincount(group_numbers, minlength=len(sizes))
    if len(counts) > len(sizes):
        raise DataError("every group needs a size to be sampled down to")
    if np.isnan(sizes).any():
        raise DataError("the size of a group is a number, or infinite")
    quotas = np.where(counts > sizes, np.maximum(np.floor(np.minimum(sizes, counts)), 1), counts)
    kept = quotas.astype(np.intp)
    keep = lowest(group_numbers, kept, numbers)
    weights = np.divide(counts, kept, out=np.ones(len(counts)), where=kept > 0)[group_numbers]
    return keep, weights * keep


def lowest(group_numbers: Integers, quotas: Indices, numbers: Array) -> Mask:
    """Which rows have the ``quotas[g]`` lowest numbers of their group, shape (n,).

    With independent uniform numbers in [0, 1) this is a simple random sample; with numbers
    that are a pseudo-random function of key and unit the same people stay each time.

    >>> lowest(np.array([0, 0, 0, 1]), np.array([2, 1]), np.array([0.3, 0.9, 0.1, 0.5]))
    array([ True, False,  True,  True])
    """
    counts = np.bincount(group_numbers, minlength=len(quotas))
    # The last of the lowest almost surely lies in [low, high): only those rows are sorted.
    margin = 6 * np.sqrt(quotas) + 12
    low = np.where(quotas < counts, (quotas - margin) / np.maximum(counts, 1), np.inf)
    high = np.where(quotas < counts, (quotas + margin) / np.maximum(counts, 1), np.inf)
    keep: Mask = numbers < low[group_numbers]
    rows = np.flatnonzero((numbers < high[group_numbers]) & ~keep)
    sure = np.bincount(group_numbers[keep], minlength=len(quotas))
    found = np.bincount(group_numbers[rows], minlength=len(quotas))
    missed = (sure > quotas) | (sure + found < np.minimum(quotas, counts))
    if missed.any():
        keep &= ~missed[group_numbers]
        rows = np.flatnonzero(((numbers < high[group_numbers]) & ~keep) | missed[group_numbers])
        sure[missed], found[missed] = 0, counts[missed]
    groups = group_numbers[rows]
    # Group and number side by side in one word; with 2^24 groups 40 bits tell numbers apart.
    bits = 64 - len(quotas).bit_length()
    words = groups.astype(np.uint64) << np.uint64(bits)
    words |= (numbers[rows] * 2.0 ** min(bits, 53)).astype(np.uint64)
    order = np.argsort(words)
    groups = groups[order]
    ranks = np.arange(len(rows)) - (np.cumsum(found) - found - sure)[groups]
    keep[rows[order[ranks < quotas[groups]]]] = True
    return keep


def sample_duplicate(
    group_numbers: Integers, raw_codes: Integers, sizes: Array, rng: np.random.Generator
) -> Indices:
    """The paper's letter: sample each value's rows, then duplicate what is left.

    In a group with ``|g| > s_g`` every sensitive value keeps a share ``tau = s_g/|g|`` of its
    rows, rounded at random, and each kept row is written ``floor(tau')`` times, once more with
    the chance of the fraction, ``tau' = |g|/|g1|`` (RECON 5).  The paper perturbs in between:
    perturb the *distinct* rows of the answer.  Returns row numbers with repetition, in order.

    Never for a release: copies show |g1|, hence s_g, hence f (reconstruction, 9.1), and
    error bars that count them as trials are too small (9.4).

    >>> rows = sample_duplicate(np.zeros(8, int), np.array([0] * 4 + [1] * 4),
    ...                         np.array([4.0]), np.random.default_rng(1))
    >>> len(rows), len(set(rows.tolist()))
    (8, 4)
    """
    counts = np.bincount(group_numbers, minlength=len(sizes))
    capped = counts > sizes
    rows = np.flatnonzero(capped[group_numbers])
    copies = np.ones(len(group_numbers), dtype=np.intp)
    if len(rows) == 0:
        return np.repeat(np.arange(len(group_numbers)), copies)
    groups = group_numbers[rows]
    m = int(raw_codes.max()) + 1
    number = _pairs(groups, raw_codes[rows], m)
    of_pair = np.repeat(np.arange(len(counts)), m) if len(counts) * m <= DENSE_CELLS else None
    if of_pair is None:  # too many to number them all
        found, number = np.unique(number, return_inverse=True)
        of_pair = found // m
    each = np.bincount(number, minlength=len(of_pair))
    share = np.minimum(sizes, counts) / np.maximum(counts, 1)
    kept = _rounded(each * share[of_pair], rng)
    keep = lowest(number, kept, rng.random(len(rows)))
    left = np.bincount(groups[keep], minlength=len(counts))
    # A group that rounding emptied keeps one row: the paper would divide by zero.
    empty = capped & (left == 0)
    keep |= lowest(groups, empty.astype(np.intp), rng.random(len(rows)))
    left[empty] = 1
    factors = counts / np.maximum(left, 1)
    copies[rows] = np.where(keep, _rounded(factors[groups], rng), 0)
    return np.repeat(np.arange(len(group_numbers)), copies)


def _rounded(expected: Array, rng: np.random.Generator) -> Indices:
    """Round each number down, or up with the chance of its fraction."""
    return np.floor(expected + rng.random(len(expected))).astype(np.intp)


def _pairs(groups: Integers, codes: Integers, size: int) -> NDArray[np.int64]:
    return groups.astype(np.int64) * size + codes


def _frequencies(
    group_numbers: Integers, codes: Integers, channel: Channel, sizes: Indices, source: Source
) -> tuple[Indices, Indices, Array]:
    """Frequencies above zero as (group, value, share); sparse, O(n log n) for any m."""
    m, groups_count = channel.size, len(sizes)
    cells = _pairs(group_numbers, codes, m)
    if groups_count * m <= max(DENSE_CELLS, len(cells) // 4):
        table = np.bincount(cells, minlength=groups_count * m)
        found = np.flatnonzero(table)
        counts = table[found]
    else:
        found, counts = np.unique(cells, return_counts=True)
    groups, values = found // m, found % m
    if source == "raw":
        return groups, values, counts / sizes[groups]
    structure = _structure(channel)
    if structure is None:
        return _dense(groups, values, counts, channel, sizes)
    shares = _inverted(groups, values, counts / sizes[groups], groups_count, *structure)
    shares = np.minimum(shares, 1.0)
    seen = shares > 0
    return groups[seen], values[seen], shares[seen]


def _structure(channel: Channel) -> tuple[Array, Array] | None:
    """(a, w) of a channel ``T = diag(a) + (1-a) w'``, or None if it is another one."""
    if isinstance(channel, Uniform):
        return np.full(channel.size, channel.retention), np.full(channel.size, 1 / channel.size)
    if isinstance(channel, Replace):
        return np.full(channel.size, channel.retention), channel.replacing
    if isinstance(channel, FineGrain):
        return channel.retentions, np.full(channel.size, 1 / channel.size)
    return None


def _inverted(
    groups: Indices, values: Indices, shares: Array, count: int, a: Array, w: Array
) -> Array:
    """Solve ``x T = y`` for the values that occur; a value that does not cannot be positive.

        x_i = (y_i - r w_i) / a_i,   r = (sum y/a - 1) / sum w/a      (as sum x = 1)

    in units of the smallest a, at value k, which may be zero: x_k is then what is left.
    """
    k = int(a.argmin())
    scale = np.divide(a[k], a, out=np.ones_like(a), where=a > a[k])
    r = np.bincount(groups, shares * scale[values], minlength=count) - a[k]
    r /= (w * scale).sum()
    x: Array = shares - r[groups] * w[values]
    np.divide(x, a[values], out=x, where=a[values] > 0)
    if a[k] == 0:
        others = values != k
        rest = 1 - np.bincount(groups[others], shares[others] / a[values[others]], minlength=count)
        rest += r * (w[a > 0] / a[a > 0]).sum()
        x[~others] = rest[groups[~others]]
    return x


def _dense(
    groups: Indices, values: Indices, counts: Indices, channel: Channel, sizes: Indices
) -> tuple[Indices, Indices, Array]:
    """Reconstruct with the m x m inverse, some groups at a time."""
    m = channel.size
    inverse = channel.inverse(np.eye(m))  # its row i holds T^-1 applied to value i
    step = max(1, DENSE_CELLS // m)
    parts = []
    for start in range(0, len(sizes), step):
        stop = min(start + step, len(sizes))
        low, high = np.searchsorted(groups, [start, stop])
        y = np.zeros((stop - start, m))
        y[groups[low:high] - start, values[low:high]] = counts[low:high]
        x = y @ inverse.T / np.maximum(sizes[start:stop], 1)[:, None]
        group, value = np.nonzero(x > 0)
        parts.append((group + start, value, np.minimum(x[group, value], 1.0)))
    found = [np.concatenate(each) for each in zip(*parts, strict=True)]
    return found[0], found[1], found[2]
