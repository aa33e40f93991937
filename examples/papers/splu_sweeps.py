"""Repeated publications: relative errors of every way over group sizes and numbers of rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import splu_ways as ways
from splu_data import Array, Case, Pool

from privsql.publish.perturb.decoy import ELIGIBLE, Method

PRINTED, PRIVSQL, ANATOMY, DBR = "SPLU-Gen as printed", "privsql decoy", "Anatomy", "DBR"
LN2, LN3 = "Laplace, ln 2", "Laplace, ln 3"

STOPPED, CONVERGED = "eq. 6-9, stopped at 1%", "eq. 6-9, converged"
COUNTED, SIMULATED = "counted chance", "simulated channel"
READINGS = (STOPPED, CONVERGED, COUNTED, SIMULATED)
FINE = 4  # partitions that a channel is simulated by where bias is looked at
EXACT = 1e-4  # relative change of a round at which an iteration has converged


@dataclass(frozen=True)
class Sweep:
    """Answers of each way: (runs, group sizes, queries); NaN where a way refuses."""

    sizes: tuple[int, ...]
    pool: Pool
    answers: dict[str, Array]

    def errors(self, way: str) -> Array:
        """Relative errors, (runs, group sizes, queries)."""
        return self.pool.errors(self.answers[way])

    def mean(self, way: str) -> Array:
        """Mean relative error over queries, (runs, group sizes)."""
        return np.asarray(self.errors(way).mean(axis=2))


def eligible(given: Case, group_size: int) -> bool:
    """Whether privsql would publish every sensitive column in groups of that size."""
    largest = max(int(given.totals(i).max()) for i in range(len(given.sizes)))
    return largest / given.rows <= ELIGIBLE / group_size


def swept(
    given: Case,
    pool: Pool,
    sizes: Sequence[int],
    runs: int,
    rng: np.random.Generator,
    rounds: int = ways.ROUNDS,
) -> Sweep:
    """All ways at all group sizes; DBR and Laplace do not depend on the size."""
    one = len(given.sizes) == 1
    names = (PRINTED, PRIVSQL, *((ANATOMY, DBR, LN2, LN3) if one else ()))
    shape = (runs, len(sizes), len(pool.answers))
    answers = {name: np.full(shape, np.nan) for name in names}
    for run in range(runs):
        if one:
            answers[DBR][run] = ways.dbr(given, pool, rng)
            answers[LN2][run] = ways.laplace(pool, math.log(2), rng)
            answers[LN3][run] = ways.laplace(pool, math.log(3), rng)
        for i, c in enumerate(sizes):
            release = ways.published(given, c, rng, "anatomy")
            answers[PRINTED][run, i] = ways.iterated(release, given, pool).estimates
            if one:
                answers[ANATOMY][run, i] = ways.anatomy(given, pool, c, rng)
            if eligible(given, c):
                release = ways.published(given, c, rng, "proportional")
                answers[PRIVSQL][run, i] = ways.inverted(release, given, pool, rng, rounds)
    return Sweep(tuple(sizes), pool, answers)


def readings(
    given: Case,
    pool: Pool,
    c: int,
    methods: Sequence[Method],
    runs: int,
    rng: np.random.Generator,
) -> dict[tuple[str, str], Array]:
    """Partitions read in four ways: {(partition, reading): answers (runs, queries)}."""
    found: dict[tuple[str, str], list[Array]] = {}
    for _ in range(runs):
        for method in methods:
            release = ways.published(given, c, rng, method)
            each = {
                STOPPED: ways.iterated(release, given, pool).estimates,
                CONVERGED: ways.iterated(release, given, pool, tolerance=EXACT).estimates,
                COUNTED: ways.iterated(
                    release, given, pool, printed=False, tolerance=EXACT
                ).estimates,
                SIMULATED: ways.inverted(release, given, pool, rng, FINE),
            }
            for reading, estimates in each.items():
                found.setdefault((method, reading), []).append(estimates)
    return {key: np.stack(estimates) for key, estimates in found.items()}


def completed(
    given: Case, pool: Pool, c: int, read: dict[tuple[str, str], Array], rng: np.random.Generator
) -> Sweep:
    """A sweep at one group size of publications that were read already, with the other ways."""
    printed, ours = read["anatomy", STOPPED], read["proportional", SIMULATED]
    runs = range(len(printed))
    answers = {
        PRINTED: printed,
        PRIVSQL: ours,
        ANATOMY: np.stack([ways.anatomy(given, pool, c, rng) for _ in runs]),
        DBR: np.stack([ways.dbr(given, pool, rng) for _ in runs]),
    }
    shaped = {way: each[:, None] for way, each in answers.items()}
    return Sweep((c,), pool, shaped)
