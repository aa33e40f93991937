"""What exact leverage costs, next to one product of a 1,000 x 10,000 matrix and a vector.

Without measures: 1,000 earlier answers over 10,000 tuples, nothing repeats.  With measures: 300,000
rows in 1,000 tuples and 347 groups, 40 positions of a slider on six panels, asked about again and
asked about with functions that are new (a count and a sum, ten cells each).  5 million rows: 10,080
groups and 12 positions.  Proposals are not committed, so that every round meets the same account.
Notes are in processor time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from privsql.policy.account import Account, Part
from privsql.policy.functions import Atoms, Function, Functions
from tests.bench.ratio import Case

TUPLES, PAST = 10_000, 1_000
ROWS, MANY = 300_000, 5_000_000
CELLS = 10  # of a question


@contextmanager
def cases() -> Iterator[list[Case]]:
    rng = np.random.default_rng(8)
    matrix, vector = rng.random((PAST, TUPLES)), rng.random(TUPLES)

    def product() -> None:
        matrix @ vector

    yield [
        _plain(rng, product),
        _measured(rng, product),
        _new(rng, product, ROWS, 347, 40, 15),
        _new(rng, product, MANY, 10_080, 12, 120),
    ]


def _plain(rng: np.random.Generator, product: Callable[[], None]) -> Case:
    groups = np.repeat(np.arange(TUPLES), rng.integers(1, 9, TUPLES))[:TUPLES]
    functions = Functions(Atoms(rng.integers(1, 200, TUPLES), groups))

    def part() -> Part:
        chosen = np.flatnonzero(rng.random(TUPLES) < 0.3)
        return Part(functions[0], chosen, np.ones(chosen.size))

    account = Account(functions)
    account.restore(part() for _ in range(PAST))
    return _case(
        "exact: 1,000 answers, no measures", account, [part() for _ in range(20)], product, 10
    )


def _measured(rng: np.random.Generator, product: Callable[[], None]) -> Case:
    atom = np.sort(rng.integers(0, 1_000, ROWS))
    functions = Functions(Atoms(np.bincount(atom), np.arange(1_000) * 347 // 1_000))
    cost = np.round(rng.gamma(2, 200, ROWS), 2)
    account = Account(functions)

    def part(function: Function) -> Part:
        chosen = np.flatnonzero(rng.random(1_000) < 0.5)
        return Part(function, chosen, np.ones(chosen.size))

    made = [functions.add(cost < x) for x in range(20, 820, 20)]
    known = [each for each in made if isinstance(each, Function)]
    account.restore(part(each) for each in known for _ in range(6))
    asked = [part(known[i]) for i in range(20)]
    return _case("exact: 300,000 rows, 40 functions", account, asked, product, 15)


def _new(
    rng: np.random.Generator,
    product: Callable[[], None],
    rows: int,
    groups: int,
    positions: int,
    most: float,
) -> Case:
    """Questions of ten cells, each with a function that nobody asked about before."""
    atom = np.sort(rng.integers(0, groups, rows))
    functions = Functions(Atoms(np.bincount(atom), np.arange(groups)))
    cost = np.round(rng.gamma(2, 200, rows), 2)
    account = Account(functions)
    key = rng.integers(0, CELLS, groups)

    def cells(values: np.ndarray) -> list[list[Part]]:
        function = functions.add(values)
        assert isinstance(function, Function)
        parts = [np.flatnonzero(key == k) for k in range(CELLS)]
        return [[Part(function, some, np.ones(some.size))] for some in parts]

    def ask(x: float, weight: np.ndarray | None) -> float:
        inside = cost < x
        start = time.process_time()
        made = cells(inside if weight is None else inside * weight)
        account.commit(account.propose(made))
        return (time.process_time() - start) / CELLS * 1e3

    for x in np.linspace(20, 820, positions):
        ask(x, None)
        ask(x, cost)
    found = {name: np.median([ask(x, weight) for x in (333.3, 427.4, 521.5)])
             for name, weight in (("count", None), ("sum", cost))}  # fmt: skip
    fine = "within" if max(found.values()) <= most else "PAST"
    note = ", ".join(f"{name} {each:.1f} ms a cell" for name, each in found.items())
    note = f"{note}, {fine} {most:g} ms; functions {functions.held / 2**20:.0f} MB"
    again = cells(cost < 333.3)
    return Case(
        f"exact: {rows:,} rows, new functions; asked again, to one product",
        lambda: account.propose(again),
        product,
        limit=5 * rows / ROWS * CELLS,
        rounds=5,
        cpu=True,
        note=note,
    )


def _case(
    name: str, account: Account, asked: list[Part], product: Callable[[], None], most: float
) -> Case:
    seconds = []
    for part in asked:
        start = time.process_time()
        account.propose([[part]])
        seconds.append(time.process_time() - start)
    middle = float(np.median(seconds[1:])) * 1e3
    fine = "within" if middle <= most else "PAST"
    note = f"{middle:.1f} ms a cell, {fine} {most:g} ms; first {seconds[0] * 1e3:.0f} ms"
    turn = iter(asked * 1_000)
    return Case(
        f"{name}, to one product",
        lambda: account.propose([[next(turn)]]),
        product,
        limit=5,
        cpu=True,
        note=note,
    )
