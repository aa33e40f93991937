"""Decoy groups (SPLU-Gen): each row publishes one of the c values of its group.

Rows are partitioned into groups of c rows with c distinct values; each row publishes a
uniform draw from its group's values; the partition is forgotten.  (SPLU 3, reconstruction, 7)

How groups are formed decides the channel.  Everything works on the numbers of rows of each
value (buckets), never row by row:

proportional    a group takes c distinct values, each with a chance proportional to what is
                left of it: systematic sampling in a random order of the values.  Groups are
                drawn together: the buckets are halved again and again, each half getting its
                share of every value, the odd rows by systematic sampling, until a block of few
                groups is left, whose rows are dealt round in a random order of the values.
anatomy         the paper's rule: each group takes one row of each of the c largest buckets.
                Decoys then depend strongly on the value (reconstruction, 9.8).
"""

from __future__ import annotations

import heapq
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privsql.channels.channel import MATRIX_LIMIT
from privsql.channels.matrices import Decoy, checked_group_size
from privsql.errors import ChannelError, TooLargeError

Integers = NDArray[np.integer[Any]]
Indices = NDArray[np.int64]
Mask = NDArray[np.bool_]

Method = Literal["proportional", "anatomy"]

# The largest share of a value, in units of 1/c; from there the channel degenerates.
ELIGIBLE = 0.9

# Cells (block of groups, value) up to which buckets are halved: memory and time of the
# partition beyond its rows.
BLOCK_CELLS = 1 << 22

# Anatomy: random bits that order buckets of one size, and groups formed before they are stored.
TIE_BITS = 16
STEP = 1 << 16

# How many rows ``decoy_channel`` simulates when it is not told.
SIMULATED_ROWS = 1 << 22
ROUNDS = 400


def check_eligible(totals: ArrayLike, c: int) -> None:
    """Refuse a column where a value has a share above .9/c; names the share, not the count.

    >>> check_eligible([10, 10, 10, 10], 3)
    >>> check_eligible([5, 5, 10], 2)
    Traceback (most recent call last):
        ...
    privsql.errors.ChannelError: ERROR 22023 [channel]: the most frequent value has a share of \
0.50; decoy groups of 2 need every share to be at most 0.45
    HINT: choose smaller groups, or merge or drop the frequent value
    """
    f, c = np.asarray(totals, dtype=np.float64), checked_group_size(c)
    if f.ndim != 1 or not f.sum() > 0:
        raise ChannelError("decoy groups need at least one row")
    share = float(f.max() / f.sum())
    if share > ELIGIBLE / c:
        raise ChannelError(
            f"the most frequent value has a share of {share:.2f}; decoy groups of {c} need"
            f" every share to be at most {ELIGIBLE / c:.2f}",
            hint="choose smaller groups, or merge or drop the frequent value",
        )


def partition(
    codes: Integers, c: int, rng: np.random.Generator, method: Method = "proportional"
) -> tuple[NDArray[np.int32], Mask]:
    """Groups of exactly c rows with c distinct values: (group of each row, rows left over).

    Both have shape (n,); rows left over have group -1 and are dropped, as the paper says:
    n mod c of them, taken at random, and where a value has more than one row a group those
    that cannot be placed.  Which rows of a value go where is random.

    >>> groups, left = partition(np.array([0, 1, 2, 0, 1, 2, 3]), 3, np.random.default_rng(1))
    >>> np.bincount(groups[~left]), int(left.sum())
    (array([3, 3]), 1)
    """
    c = checked_group_size(c)
    codes = np.asarray(codes)
    if len(codes) >= 1 << 31:
        raise TooLargeError("decoy groups are formed of at most 2^31 rows")
    totals = np.bincount(codes).astype(np.int64)
    counts = _placeable(totals, c, rng)
    slots = _allocate(counts, c, rng, method)[1]
    rows = np.argsort(_narrow(codes, len(totals)), kind="stable").astype(np.int32)
    ends = np.cumsum(totals)
    for start, end in zip((ends - totals).tolist(), ends.tolist(), strict=True):
        rng.shuffle(rows[start:end])
    # Rows by value, each value's in random order: the first counts[v] of them get its slots.
    placed = rows[_ranges(ends - totals, counts)] if counts.sum() < len(rows) else rows
    groups = np.full(len(codes), -1, dtype=np.int32)
    groups[placed] = slots
    return groups, groups < 0


def publish(
    codes: Integers, groups: NDArray[np.int32], c: int, rng: np.random.Generator
) -> Integers:
    """Each row publishes a uniform draw from its group's c values; -1 for rows left over.

    Hence a value in f rows is published Binomial(c f, 1/c) times: f on average (SPLU 4).

    >>> codes = np.array([0, 1, 2, 2, 1])
    >>> publish(codes, np.array([0, 0, 1, 0, -1], np.int32), 3, np.random.default_rng(5))[-1]
    Traceback (most recent call last):
        ...
    privsql.errors.ChannelError: ERROR 22023 [channel]: every decoy group has exactly 3 rows
    >>> publish(codes, np.array([0, 0, 0, -1, -1], np.int32), 3, np.random.default_rng(5))
    array([ 2,  2,  0, -1, -1])
    """
    codes = np.asarray(codes)
    rows = np.flatnonzero(groups >= 0)
    table = _members(groups[rows], codes[rows], checked_group_size(c))
    published = np.full(len(codes), -1, dtype=codes.dtype)
    places = groups[rows].astype(np.int64)
    places *= c
    places += rng.integers(c, size=len(rows), dtype=np.int32)
    published[rows] = table[places]
    return published


def decoy_channel(
    published_totals: ArrayLike,
    c: int,
    rng: np.random.Generator,
    *,
    method: Method = "proportional",
    rounds: int | None = None,
) -> Decoy:
    """Channel of the partition, found by simulating it on the published totals (m,).

        T[i, j] = (groups that hold both i and j) / (c f_i),    T[i, i] = 1/c,

    so that ``f_i T[i, j] = f_j T[j, i]``, rows sum to one and ``f T = f``, all exactly.
    Averaged over ``rounds`` partitions (as many as make about 4 million rows, at least one and
    at most 400: an answer's error from R rounds is about ``1/sqrt(R)`` of the error that one
    partition, the published one, has anyway).
    The noise of an entry is about ``T[i,j] / sqrt(groups with both)``.  A value that was not
    published at all gets ``T[i, j] = (c-1)/c f_j/N``, the limit of a rare one.

    Against the closed form of quasi-independence: proportional groups
    are within about .001 of it in every entry while shares are moderate, and within .01 when
    one comes near the limit.  T is close to singular there, so that even this is a bias of
    -21% on a frequent value (20 values, c = 5, largest share .17, P going with it), against 2%
    with the simulated T (standard error 1%; 0.4% had the totals been the true ones).
    Anatomy's entries are .01 to .5 away from the closed form.  Totals are not checked for
    eligibility: a published share may pass the limit by chance.

    >>> decoy_channel([50, 50, 50], 2, np.random.default_rng(1), rounds=200).matrix.round(2)
    array([[0.5 , 0.25, 0.25],
           [0.25, 0.5 , 0.25],
           [0.25, 0.25, 0.5 ]])
    """
    totals, c = np.asarray(published_totals).astype(np.int64), checked_group_size(c)
    if len(totals) > MATRIX_LIMIT:
        raise TooLargeError(
            f"the channel of decoy groups over {len(totals)} values is not built"
            f" (the limit is {MATRIX_LIMIT})",
            hint="merge values, or use a mechanism that needs no matrix",
        )
    if (totals < 0).any() or (totals > 0).sum() < c:
        raise ChannelError("decoy groups need at least as many values as they have rows")
    if rounds is None:
        rounds = min(ROUNDS, max(1, -(-SIMULATED_ROWS // int(totals.sum()))))
    m = len(totals)
    together = np.zeros((m, m))
    for _ in range(rounds):
        together += _together(totals, c, rng, method)
    simulated = together.diagonal()
    matrix = np.divide(
        together, c * simulated[:, None], out=np.zeros((m, m)), where=simulated[:, None] > 0
    )
    empty = np.flatnonzero(simulated == 0)
    matrix[empty] = (c - 1) / c * simulated / simulated.sum()
    matrix[empty, empty] = 1 / c
    return Decoy(c, matrix)


def _together(totals: Indices, c: int, rng: np.random.Generator, method: Method) -> Indices:
    """How many groups of one simulated partition hold i and j, shape (m, m)."""
    m = len(totals)
    values, groups = _allocate(_placeable(totals, c, rng), c, rng, method)
    table = _members(groups, values, c).reshape(-1, c).astype(np.int64)
    upper = np.zeros(m * m, dtype=np.int64)
    for i in range(c):
        for j in range(i + 1, c):
            upper += np.bincount(table[:, i] * m + table[:, j], minlength=m * m)
    pairs = upper.reshape(m, m)
    together: Indices = pairs + pairs.T
    np.fill_diagonal(together, np.bincount(values, minlength=m))
    return together


def _members(groups: Integers, values: Integers, c: int) -> NDArray[np.uint32]:
    """The c values of each group, group after group, shape (groups * c,)."""
    if not (np.bincount(groups) == c).all():
        raise ChannelError(f"every decoy group has exactly {c} rows")
    # Group and value in one word: sorting words is faster than finding an order.
    words = groups.astype(np.uint64) << np.uint64(32)
    words |= values.astype(np.uint64)
    words.sort()
    return words.astype(np.uint32)


def _placeable(totals: Indices, c: int, rng: np.random.Generator) -> Indices:
    """Numbers of rows of each value that can be placed: c per group, none above the groups."""
    low, high = 0, int(totals.sum()) // c
    while low < high:  # the most groups R with sum(min(f, R)) >= R c
        middle = (low + high + 1) // 2
        if np.minimum(totals, middle).sum() >= middle * c:
            low = middle
        else:
            high = middle - 1
    counts = np.minimum(totals, low)
    surplus = int(counts.sum()) - low * c
    if low == 0 or surplus == 0:
        return counts * (low > 0)
    # Each row has the same chance to be left over.
    places = rng.choice(int(counts.sum()), surplus, replace=False)
    values = np.searchsorted(np.cumsum(counts), places, side="right")
    return counts - np.bincount(values, minlength=len(counts))


def _allocate(
    counts: Indices, c: int, rng: np.random.Generator, method: Method
) -> tuple[Indices, NDArray[np.int32]]:
    """Which value takes a place in which group: (values ascending, groups), a slot a row."""
    if method not in ("proportional", "anatomy"):
        raise ChannelError("decoy groups are formed by proportional or anatomy")
    number = int(counts.sum()) // c
    allocate = _proportional if method == "proportional" else _anatomy
    slots = allocate(counts, number, c, rng) if number else np.zeros(0, np.int32)
    return np.repeat(np.arange(len(counts)), counts), slots


def _proportional(
    counts: Indices, number: int, c: int, rng: np.random.Generator
) -> NDArray[np.int32]:
    """Halve, then deal round; groups of each value's slots, by value."""
    used = np.flatnonzero(counts)
    blocks, sizes = counts[None, used], np.array([number])
    while sizes.max() > 1 and 2 * blocks.size <= BLOCK_CELLS:
        left = sizes // 2
        first = _share(blocks, sizes, left, rng)
        blocks = np.stack([first, blocks - first], axis=1).reshape(-1, len(used))
        sizes = np.stack([left, sizes - left], axis=1).ravel()
    order = _orders(blocks.shape, rng)
    # Deal each block's rows round its groups, value after value: a value has at most as
    # many rows as there are groups, so that it never meets itself.
    dealt = np.take_along_axis(blocks, order, axis=1)
    starts = np.empty_like(blocks)
    np.put_along_axis(starts, order, np.cumsum(dealt, axis=1) - dealt, axis=1)
    first_group = np.cumsum(sizes) - sizes
    lengths = blocks.T.ravel()
    runs = np.flatnonzero(lengths)
    lengths = lengths[runs]
    block = runs % len(sizes)
    size = np.repeat(sizes[block].astype(np.int32), lengths)
    place = _ranges((starts.T.ravel()[runs] % sizes[block]).astype(np.int32), lengths)
    # The start is below the size and the run at most as long: one turn at most.
    place -= size * (place >= size)
    place += np.repeat(first_group[block].astype(np.int32), lengths)
    return place


def _share(blocks: Indices, sizes: Indices, left: Indices, rng: np.random.Generator) -> Indices:
    """Rows that go to ``left`` of ``sizes`` groups of each block: n left/size, rounded.

    Systematic sampling of the fractions in a random order of the values, in whole numbers:
    each value gets its share rounded down or up, the whole exactly c a group.
    """
    whole, fraction = np.divmod(blocks * left[:, None], np.maximum(sizes, 1)[:, None])
    order = _orders(blocks.shape, rng)
    start = rng.integers(0, np.maximum(sizes, 1))
    line = np.cumsum(np.take_along_axis(fraction, order, axis=1), axis=1) + start[:, None]
    steps = np.diff(line // np.maximum(sizes, 1)[:, None], axis=1, prepend=0)
    extra = np.empty_like(whole)
    np.put_along_axis(extra, order, steps, axis=1)
    return whole + extra


def _orders(shape: tuple[int, ...], rng: np.random.Generator) -> Indices:
    """A random order of the values for every block."""
    return rng.permuted(np.broadcast_to(np.arange(shape[1]), shape), axis=1)


def _anatomy(counts: Indices, number: int, c: int, rng: np.random.Generator) -> NDArray[np.int32]:
    """One row of each of the c largest buckets each time, ties at random; by value."""
    # A bucket is one whole number, the largest bucket the smallest of them:
    # - (rows left) | random | value
    bits = len(counts).bit_length()
    row, mask = 1 << (bits + TIE_BITS), (1 << bits) - 1
    heap = [v - n * row for v, n in enumerate(counts.tolist()) if n]
    heapq.heapify(heap)
    pop, push = heapq.heappop, heapq.heappush
    taken: list[NDArray[np.int64]] = []
    for start in range(0, number, STEP):
        step = min(STEP, number - start)
        ties = (rng.integers(1 << TIE_BITS, size=step * c) << bits).tolist()
        found = []
        for at in range(0, step * c, c):
            largest = [pop(heap) for _ in range(c)]
            found += [bucket & mask for bucket in largest]
            for bucket, tie in zip(largest, ties[at : at + c], strict=True):
                if bucket >= -row:  # one row was left
                    continue
                value = bucket & mask
                push(heap, (bucket // row + 1) * row + tie + value)
        taken.append(np.array(found))
    by_value = np.argsort(_narrow(np.concatenate(taken), len(counts)), kind="stable")
    return (by_value // c).astype(np.int32)


def _narrow(codes: Integers, size: int) -> Integers:
    """Codes in 16 bits where they fit, which numpy sorts by counting."""
    return codes.astype(np.uint16 if size <= 1 << 16 else np.int64, copy=False)


def _ranges(starts: NDArray[Any], lengths: Indices) -> NDArray[Any]:
    """``start, start + 1, ...`` for each start, ``length`` of them, one after another."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    offsets = starts - (ends - lengths).astype(starts.dtype)
    return np.repeat(offsets, lengths) + np.arange(total, dtype=starts.dtype)
