"""Ways to publish a sensitive column and to answer from it: SPLU-Gen, and what it is held against.

    printed      groups of the c largest buckets, equations 6-9 iterated from the published
                 counts until no state moves by more than 1%: the paper to the letter
    privsql      groups in proportion, the channel found by simulating the groups on the
                 published totals, inverted: what ``mechanism = "decoy"`` does
    Anatomy      the buckets are published with their values; rows_P(b) rows_s(b) / rows(b)
    DBR          every value drawn anew from the column's distribution; the published count
    Laplace      the true answer with noise of scale 1/epsilon

Each returns answers to a pool of queries.
"""

from __future__ import annotations

from dataclasses import dataclass

import baselines
import numpy as np
from splu_data import Array, Case, Codes, Pool, flat

from privsql.publish.perturb import decoy
from udfs.invert import invert, invert_function
from udfs.kron import Kron

LIMIT = 1000  # rounds of an iteration
# A state that falls towards nothing never moves by less than 1%: below this many rows it
# counts as settled, which the paper leaves open.
EMPTY = 1e-3
ROUNDS = 2  # partitions that the channel of a sweep is simulated by; privsql: 4 million rows


@dataclass(frozen=True)
class Published:
    """One publication: the values of each sensitive column, -1 for rows left over."""

    codes: tuple[Codes, ...]
    group_size: int
    method: decoy.Method

    @property
    def kept(self) -> Codes:
        """Rows that have a value in every column."""
        missing = np.stack(self.codes).min(axis=0) < 0
        return np.flatnonzero(~missing)


def published(
    given: Case, group_size: int, rng: np.random.Generator, method: decoy.Method
) -> Published:
    """Publish every sensitive column in decoy groups of its own."""
    codes = []
    for raw in given.sensitive:
        groups, _ = decoy.partition(raw, group_size, rng, method)
        codes.append(np.asarray(decoy.publish(raw, groups, group_size, rng), dtype=np.int64))
    return Published(tuple(codes), group_size, method)


def inverted(
    release: Published,
    given: Case,
    pool: Pool,
    rng: np.random.Generator,
    rounds: int = ROUNDS,
) -> Array:
    """Answers by the simulated channel of the partition, as a release of privsql gives them.

    x = y (T_1 (x) ... (x) T_w)^-1
    """
    seen = pool.counted(flat(release.codes, given.sizes))
    factors = []
    for codes, size in zip(release.codes, given.sizes, strict=True):
        totals = np.bincount(codes[release.kept], minlength=size)
        channel = decoy.decoy_channel(
            totals, release.group_size, rng, method=release.method, rounds=rounds
        )
        factors.append(channel.matrix)
    if len(factors) == 1:
        # One column of the inverse for each query is all that it takes.
        columns = invert_function(np.eye(pool.width), Kron(factors))
        estimates: Array = np.einsum("qm,qm->q", seen[pool.condition], columns[pool.value])
        return estimates
    return pool.asked(invert(seen, Kron(factors)))


@dataclass(frozen=True)
class Iterated:
    """Answers of the paper's iteration, and the rounds that each query took."""

    estimates: Array
    rounds: Codes


def iterated(
    release: Published,
    given: Case,
    pool: Pool,
    *,
    printed: bool = True,
    tolerance: float = 0.01,
) -> Iterated:
    """Answers by the iteration of SPLU 5 over the 2^(w+1) states of a query.

    Each sensitive value has the matrix ``[[1 - a, a], [(c-1)/c, 1/c]]`` (rows: other values,
    this one), where f, its count, is the one of the present round:

        printed    a = f/N                      (eq. 6-9)
        counted    a = f(c-1) / (c (N-f))       (reconstruction, 9.7)
    """
    y = states(release, given, pool)
    w, n = len(given.sizes), float(len(release.kept))
    flatten = y.reshape(len(y), -1)
    x, rounds = flatten.copy(), np.zeros(len(y), dtype=np.int64)
    running = np.arange(len(y))
    for _ in range(LIMIT):
        if not len(running):
            break
        shape = (len(running), *(2,) * (w + 1))
        now = x[running].reshape(shape)
        matrices = []
        for axis in range(w):
            others = tuple(k for k in range(1, w + 2) if k != axis + 2)
            f = now.sum(axis=others)[:, 1]
            matrices.append(_matrix(f, n, release.group_size, printed))
        expected = _through(now, matrices)
        ratio = np.divide(y[running], expected, out=np.zeros_like(expected), where=expected > 0)
        moved = (now * _through(ratio, [m.transpose(0, 2, 1) for m in matrices])).reshape(
            len(running), -1
        )
        before = x[running]
        done = (np.abs(moved - before) <= tolerance * np.maximum(before, EMPTY)).all(axis=1)
        x[running] = moved
        rounds[running] += 1
        running = running[~done]
    return Iterated(x[:, -1], rounds)


def states(release: Published, given: Case, pool: Pool) -> Array:
    """Published counts of the states (P or not, s_1 or not, ...) of each query."""
    sizes, w = given.sizes, len(given.sizes)
    kept = release.kept
    joint = flat(release.codes, sizes)
    inside = pool.counted(joint).reshape(-1, *sizes)
    whole = np.bincount(joint[kept], minlength=pool.width).reshape(sizes).astype(np.float64)
    values = np.unravel_index(pool.value, sizes)
    y = np.empty((len(pool.answers), 2, *(2,) * w))
    for p, table in ((1, inside[pool.condition]), (0, None)):
        if table is None:
            table = np.broadcast_to(whole, (len(pool.answers), *sizes)) - inside[pool.condition]
        y[:, p] = _two_by_two(table, values)
    return y


def _two_by_two(table: Array, values: tuple[Codes, ...]) -> Array:
    """(Q, m_1, ...) to (Q, 2, ...): all other values, this value."""
    queries = np.arange(len(table))
    found: Array = table
    for axis, value in enumerate(values):
        moved = np.moveaxis(found, axis + 1, 1)
        this = moved[queries, value]
        found = np.moveaxis(np.stack([moved.sum(axis=1) - this, this], axis=1), 1, axis + 1)
    return found


def _matrix(f: Array, n: float, c: int, printed: bool) -> Array:
    chance = f / n if printed else f * (c - 1) / (c * np.maximum(n - f, 1.0))
    chance = np.clip(chance, 0.0, 1.0)
    whole = np.empty((len(f), 2, 2))
    whole[:, 0, 0], whole[:, 0, 1] = 1 - chance, chance
    whole[:, 1, 0], whole[:, 1, 1] = (c - 1) / c, 1 / c
    return whole


def _through(x: Array, matrices: list[Array]) -> Array:
    """x times a matrix of its own for each query and sensitive axis."""
    if len(matrices) == 1:
        one: Array = np.einsum("qps,qst->qpt", x, matrices[0])
        return one
    once = np.einsum("qpsu,qst->qptu", x, matrices[0])
    both: Array = np.einsum("qptu,quv->qptv", once, matrices[1])
    return both


def anatomy(given: Case, pool: Pool, diversity: int, rng: np.random.Generator) -> Array:
    """Anatomy's answers; one pass for each place in a bucket, all queries together."""
    tables = baselines.anatomy(given.sensitive[0], diversity, rng)
    sizes = np.bincount(tables.bucket)
    bucket, value = tables.values[:, 0], tables.values[:, 1]
    starts = np.searchsorted(bucket, np.arange(len(sizes)))
    table = np.zeros((len(pool.conditions), pool.width))
    for place in range(int(sizes.max())):
        there = sizes > place
        codes = np.where(there, value[np.minimum(starts + place, len(value) - 1)], -1)
        table += pool.counted(codes[tables.bucket], 1 / sizes[tables.bucket])
    return pool.asked(table)


def dbr(given: Case, pool: Pool, rng: np.random.Generator) -> Array:
    """Counts of the column drawn anew."""
    drawn = np.asarray(baselines.dbr(given.sensitive[0], rng), dtype=np.int64)
    return pool.asked(pool.counted(drawn))


def laplace(pool: Pool, epsilon: float, rng: np.random.Generator) -> Array:
    """True answers with noise of scale 1/epsilon."""
    return baselines.laplace(pool.answers, 1 / epsilon, rng)
