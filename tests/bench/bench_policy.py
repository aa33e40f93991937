"""What the difference check costs, next to one product of a 1,000 x 10,000 matrix and a vector.

10,000 atoms in groups of one to eight, 1,000 past answers that are independent of each other:
nothing repeats, nothing is sparse.  The check runs to the decision and is not committed, so
that every round meets the same history.  ``bench_exact`` has measures.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from privsql.policy.account import Account, Part
from privsql.policy.functions import Atoms, Functions
from privsql.policy.history import History
from privsql.policy.served_table import Cell
from tests.bench.ratio import Case
from tests.policy.spans import asked, serving

ATOMS, PAST = 10_000, 1_000
MOST_SECONDS = 0.010


@contextmanager
def cases() -> Iterator[list[Case]]:
    rng = np.random.default_rng(8)
    groups = np.repeat(np.arange(ATOMS), rng.integers(1, 9, ATOMS))[:ATOMS]
    rows = rng.integers(1, 200, ATOMS)
    functions = Functions(Atoms(rows, groups))
    user = Account(functions)
    past = [_part(functions, rng) for _ in range(PAST)]
    user.restore(past)
    matrix, vector = rng.random((PAST, ATOMS)), rng.random(ATOMS)

    def product() -> None:
        matrix @ vector

    new = [_part(functions, rng) for _ in range(20)]
    old = [past[i] for i in range(20)]

    def propose(part: Part) -> object:
        return user.propose([[part]])

    with tempfile.TemporaryDirectory() as folder, History(Path(folder) / "h.db") as history:
        yield [
            _case("policy: one new answer", propose, new, product, 5),
            _case("policy: an old answer", propose, old, product, 8),
            _stored(history, rng, rows, groups, product),
            _wide(rng, product),
        ]


def _part(functions: Functions, rng: np.random.Generator) -> Part:
    chosen = np.flatnonzero(rng.random(ATOMS) < 0.3)
    return Part(functions[0], chosen, np.ones(chosen.size))


def _case(
    name: str,
    check: Callable[[Part], object],
    parts: list[Part],
    product: Callable[[], None],
    limit: float,
) -> Case:
    turn = iter(parts * 1_000)
    seconds = np.empty((20, 2))
    for i, part in enumerate(parts[:20]):
        start = time.perf_counter(), time.process_time()
        check(part)
        seconds[i] = time.perf_counter() - start[0], time.process_time() - start[1]
    low, middle, high = np.quantile(seconds[:, 0], [0.25, 0.5, 0.75]) * 1e3
    cpu = float(np.median(seconds[:, 1])) * 1e3
    fine = "within" if cpu <= MOST_SECONDS * 1e3 else "PAST"
    note = (
        f"cpu {cpu:.1f} ms, {fine} {MOST_SECONDS * 1e3:g} ms;"
        f" {middle:.1f} ms [{low:.1f}, {high:.1f}] by the clock"
    )
    return Case(f"{name}, to one product", lambda: check(next(turn)), product, limit, note=note)


def _stored(
    history: History,
    rng: np.random.Generator,
    rows: np.ndarray,
    groups: np.ndarray,
    product: Callable[[], None],
) -> Case:
    """A whole check with its write to the disk; the history grows as it runs, from 100 on."""
    table = history.table(serving(rows.tolist(), groups.tolist()))

    def cell() -> Cell:
        return asked((rng.random(ATOMS) < 0.3) * 1.0)

    history.check("ann", table, [cell() for _ in range(100)])
    turn = iter([cell() for _ in range(300)])
    return Case(
        "policy: check and store, from 100 answers, to one product",
        lambda: history.check("ann", table, [next(turn)]),
        product,
        limit=8,
        rounds=5,
    )


def _wide(rng: np.random.Generator, product: Callable[[], None]) -> Case:
    """A GROUP BY of 10,000 cells over 40,000 atoms, behind a total."""
    size = 4 * ATOMS
    functions = Functions(Atoms(rng.integers(10, 60, size), np.arange(size)))
    user = Account(functions)
    every = Part(functions[0], np.arange(size), np.ones(size))
    user.commit(user.propose([[every]]))
    cells = [[Part(functions[0], np.arange(4 * i, 4 * i + 4), np.ones(4))] for i in range(ATOMS)]
    assert user.propose(cells).admission.admitted.all()
    return Case(
        "policy: 10,000 cells behind a total, to one product",
        lambda: user.propose(cells),
        product,
        limit=150,
        rounds=5,
    )
