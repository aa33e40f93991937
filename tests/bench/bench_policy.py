"""What the difference check costs, next to one product of a 1,000 x 10,000 matrix and a vector.

10,000 atoms in groups of one to eight, 1,000 past answers that are independent of each other:
nothing repeats, nothing is sparse.  The check runs to the decision and is not committed, so
that every round meets the same history.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from scipy import sparse

from privsql.policy.history import History
from privsql.policy.leverage import Atoms, Cells, Leverage
from tests.bench.ratio import Case
from tests.policy.spans import admit, stacked

ATOMS, PAST = 10_000, 1_000
MOST_SECONDS = 0.020


@contextmanager
def cases() -> Iterator[list[Case]]:
    rng = np.random.default_rng(8)
    groups = np.repeat(np.arange(ATOMS), rng.integers(1, 9, ATOMS))[:ATOMS]
    table = Atoms(rng.integers(1, 200, ATOMS), groups)
    past = sparse.csr_array((rng.random((PAST, ATOMS)) < 0.3) * table.rows * 1.0)
    user = Leverage(table)
    assert admit(user, Cells(past, np.arange(PAST), PAST)).admitted.all()
    matrix = np.ascontiguousarray(user._basis.rows)
    vector = rng.random(ATOMS)

    def product() -> None:
        matrix @ vector

    new = [stacked([(rng.random(ATOMS) < 0.3) * table.rows * 1.0]) for _ in range(20)]
    old = [stacked([past[[i]] + past[[i + 1]]]) for i in range(20)]
    with tempfile.TemporaryDirectory() as folder, History(Path(folder) / "h.db") as history:
        yield [
            _case("policy: one new answer", lambda c: user.propose(c), new, product, 5),
            _case("policy: a sum of old answers", lambda c: user.propose(c), old, product, 8),
            _stored(history, rng, table, product),
            _wide(rng, product),
        ]


def _case(
    name: str,
    check: Callable[[Cells], object],
    asked: list[Cells],
    product: Callable[[], None],
    limit: float,
) -> Case:
    turn = iter(asked[20:] + asked * 1_000)
    seconds = np.empty((20, 2))
    for i, cells in enumerate(asked[:20]):
        start = time.perf_counter(), time.process_time()
        check(cells)
        seconds[i] = time.perf_counter() - start[0], time.process_time() - start[1]
    low, middle, high = np.quantile(seconds[:, 0], [0.25, 0.5, 0.75]) * 1e3
    fine = "within" if middle <= MOST_SECONDS * 1e3 else "PAST"
    note = (
        f"{middle:.1f} ms [{low:.1f}, {high:.1f}], {fine} {MOST_SECONDS * 1e3:g} ms;"
        f" cpu {np.median(seconds[:, 1]) * 1e3:.1f} ms"
    )
    return Case(f"{name}, to one product", lambda: check(next(turn)), product, limit, note=note)


def _stored(
    history: History, rng: np.random.Generator, table: Atoms, product: Callable[[], None]
) -> Case:
    """A whole check with its write to the disk; the history grows as it runs, from 100 on."""
    first = (rng.random((100, ATOMS)) < 0.3) * table.rows * 1.0
    history.check("ann", "r", table, Cells(sparse.csr_array(first), np.arange(100), 100))
    asked = [stacked([(rng.random(ATOMS) < 0.3) * table.rows * 1.0]) for _ in range(100)]

    def check(cells: Cells) -> object:
        return history.check("ann", "r", table, cells)

    return _case("policy: check and store, from 100 answers", check, asked, product, 8)


def _wide(rng: np.random.Generator, product: Callable[[], None]) -> Case:
    """A GROUP BY of 10,000 cells over 40,000 atoms, behind a total."""
    size = 4 * ATOMS
    table = Atoms(rng.integers(10, 60, size), np.arange(size))
    user = Leverage(table)
    admit(user, stacked([table.rows * 1.0]))
    made = sparse.csr_array(
        (table.rows * 1.0, (np.arange(size) // 4, np.arange(size))), shape=(ATOMS, size)
    )
    cells = Cells(made, np.arange(ATOMS), ATOMS)
    assert user.propose(cells).admission.admitted.all()
    return Case(
        "policy: 10,000 cells behind a total, to one product",
        lambda: user.propose(cells),
        product,
        limit=150,
        rounds=5,
    )
