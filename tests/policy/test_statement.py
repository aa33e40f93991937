"""One statement by itself: what inner products say against leverage over rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from privsql.engines import Memory
from privsql.policy.account import Account, Limits
from privsql.policy.base import Asked, Base, Name, Values
from privsql.policy.public_rows import PublicRows
from privsql.policy.within import statement
from privsql.policy.within.statement import Statement, bounds, harmless
from tests.policy.rows import Rows
from tests.sizes import sized

Floats = NDArray[np.float64]

CONDITIONS = ("1 = 1", "pay < {x}", "pay >= {x}", "pay % 3 = 1", "pay < {x} AND pay % 2 = 0")
WEIGHTS = ("1", "pay", "pay * pay", "pay + {x}", "pay * 0.1")


class Table:
    """A table of tuples and a measure, for a statement and for brute force."""

    def __init__(self, rng: np.random.Generator) -> None:
        atoms = int(rng.integers(4, 14))
        groups = np.sort(rng.integers(0, max(2, atoms // 2), atoms))
        _, groups = np.unique(groups, return_inverse=True)
        lengths = rng.integers(1, 25, atoms)
        self.atom = np.repeat(np.arange(atoms), lengths)
        self.pay = rng.integers(0, 30, self.atom.size)
        times = rng.integers(1, 4, self.atom.size)
        if rng.random() < 0.5:
            times = np.ones(self.atom.size, dtype=np.int64)
        counts = np.bincount(self.atom, times).astype(np.int64)
        tuples = pa.table(
            {"town": np.arange(atoms), "privsql_rows": counts, "privsql_group": groups}
        )
        rows = pa.table({"privsql_atom": self.atom, "pay": self.pay, "privsql_times": times})
        types = {"town": "BIGINT", "pay": "BIGINT"}
        self.base = Base("", PublicRows(types, ("town",), tuples, rows), Memory)
        self.brute = Rows(self.atom, groups[self.atom], times.astype(np.float64))
        self.atoms = atoms

    def asked(self, rng: np.random.Generator) -> Asked:
        """A random vector."""
        x = int(rng.integers(3, 28))
        text: str | None = None
        if rng.random() < 0.8:
            weight, condition = rng.choice(WEIGHTS), rng.choice(CONDITIONS)
            text = (
                f'SELECT t.rowid AS "row", {weight} AS "value" FROM w AS t WHERE {condition}'
            ).format(x=x)
        some = np.flatnonzero(rng.random(self.atoms) < rng.choice([0.3, 0.7, 1.0]))
        return Asked(text, "", some, rng.choice([1.0, 1.0, 0.5, -2.0], some.size))

    def vector(self, asked: Asked, values: dict[Name, Values | None]) -> Floats:
        """The same over rows."""
        weights = np.zeros(self.atoms)
        weights[asked.atoms] = asked.weights
        known = values[asked.text, asked.key]
        plain = np.zeros(self.atom.size) if known is None else known.astype(np.float64)
        return np.asarray(self.brute.vector(weights, plain), dtype=np.float64)


@pytest.mark.parametrize("seed", range(sized(12, 1_000)))
def test_bounds_are_not_below_the_leverage_of_rows(seed: int) -> None:
    rng = np.random.default_rng([23, seed])
    table = Table(rng)
    sure = 0
    for _ in range(12):
        asked = [table.asked(rng) for _ in range(int(rng.integers(1, 5)))]
        values = table.base.evaluated({(each.text, each.key) for each in asked})
        vectors = [v for v in (table.vector(each, values) for each in asked) if v.any()]
        table.brute.answers = []
        more: list[Floats] = []
        for v in vectors:
            if table.brute.residual(v, list(more)) > 1e-9:
                more.append(v)
        leverage, total = table.brute.measured(list(more))
        number, functions = statement._distinct(values)
        found = statement._vectors(table.base, asked, number, Limits())
        made = bounds(table.base, functions, found, 0.9) if found else None
        if made is not None:
            assert (made[0] >= leverage - 1e-9).all() or made[0].max() > 0.9
            np.testing.assert_allclose(made[1], total, atol=1e-9)
        if harmless(table.base, asked, values, Limits()):
            sure += 1
            assert leverage.max(initial=0.0) < 0.9
            assert total.max(initial=0.0) < 0.8
    assert sure
    table.base.close()


def cells(table: Table, rng: np.random.Generator) -> list[list[Asked]]:
    return [[table.asked(rng) for _ in range(int(rng.integers(1, 3)))] for _ in range(4)]


@pytest.mark.parametrize("seed", range(sized(12, 500)))
def test_a_statement_is_judged_as_in_an_account(seed: int) -> None:
    """Block after block, by bounds as long as they do: every verdict is that of exact leverage."""
    rng = np.random.default_rng([24, seed])
    table = Table(rng)
    for _ in range(4):
        blocks = [cells(table, rng) for _ in range(3)]
        ours = Statement(table.base, Limits())
        found = [ours.admit(block) for block in blocks]
        table.base.renew()
        account = Account(table.base.functions)
        for block, verdicts in zip(blocks, found, strict=True):
            parts = [[table.base.part(asked, "") for asked in cell] for cell in block]
            proposal = account.propose([[p for p in cell if p is not None] for cell in parts])
            account.commit(proposal)
            assert verdicts == proposal.admission.admitted.tolist()
    table.base.close()


def test_what_is_no_number_is_left_to_the_account() -> None:
    table = Table(np.random.default_rng(1))
    text = 'SELECT t.rowid AS "row", CAST(\'nan\' AS DOUBLE) AS "value" FROM w AS t'
    asked = Asked(text, "", np.arange(table.atoms), np.ones(table.atoms))
    assert Statement(table.base, Limits()).admit([[asked]]) == [False]
    table.base.close()
