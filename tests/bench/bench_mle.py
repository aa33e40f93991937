"""What the constrained likelihood costs, next to something that everybody knows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from tests.bench.ratio import Case
from udfs.invert import invert
from udfs.iterate import expectation_maximisation
from udfs.kron import Kron, retention_factor, transition
from udfs.mle import maximum_likelihood

GROUPS = 100_000


@contextmanager
def cases() -> Iterator[list[Case]]:
    yield [
        one_group(3, 3_000, limit=30),
        one_group(3, 100_000, limit=30),
        one_group(8, 20_000, limit=40),
        one_group(8, 100_000, limit=40),
        *many_groups(),
    ]


def infeasible(rng: np.random.Generator, kron: Kron, rows: int) -> np.ndarray:
    """Published counts of skewed shares whose inversion has a negative state."""
    while True:
        chances = kron.rows(rng.dirichlet(np.full(kron.size, 0.1)))
        counts = rng.multinomial(rows, chances / chances.sum()).astype(float)
        if kron.inverse.rows(counts).min() < 0:
            return counts


def one_group(k: int, rows: int, limit: float) -> Case:
    """One group of k binary columns at retention 1/2 against one dense solve, over ten tables."""
    rng = np.random.default_rng(k)
    kron = transition([retention_factor(0.5, [0.7, 0.3])] * k)
    system = np.ascontiguousarray(kron.dense.T)
    tables = [infeasible(rng, kron, rows) for _ in range(10)]
    for counts in tables:
        answer = maximum_likelihood(counts, kron)
        assert answer.gap <= 1e-8, "the measured case is not certified"
        assert not answer.inverted, "the measured case needs no iteration"

    def ours() -> None:
        for counts in tables:
            maximum_likelihood(counts, kron)

    def solve() -> None:
        for counts in tables:
            np.linalg.solve(system, counts)

    return Case(f"likelihood, k = {k}, {rows:,} rows, to one dense solve", ours, solve, limit)


def many_groups() -> list[Case]:
    """Groups of 40 to 1,000 rows, two binary columns at retention 1/2."""
    rng = np.random.default_rng(2)
    kron = transition([retention_factor(0.5, [0.7, 0.3]), retention_factor(0.5, [0.8, 0.2])])
    chances = kron.rows(rng.dirichlet([1.0, 0.5, 0.5, 0.3], GROUPS)) * (1 - 1e-12)
    counts = rng.multinomial(rng.integers(40, 1001, GROUPS), chances).astype(float)
    answer = maximum_likelihood(counts, kron)
    assert (answer.gap <= 1e-8).all(), "a group is not certified"
    label = f"likelihood, {GROUPS:,} groups, k = 2"
    note = f"{1 - answer.inverted.mean():.0%} of the groups infeasible"
    return [
        Case(
            f"{label}, to their inversion",
            lambda: maximum_likelihood(counts, kron),
            lambda: invert(counts, kron),
            limit=100,
            note=note,
        ),
        Case(
            f"{label}: how much faster than 1,000 rounds of EM",
            lambda: maximum_likelihood(counts, kron),
            lambda: expectation_maximisation(counts, kron, tolerance=0, limit=50),
            limit=20,
            faster=True,
            rounds=5,
            times=20,
            note="50 rounds timed, counted 20 times",
        ),
    ]
