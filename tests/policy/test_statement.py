"""One statement by itself: what inner products say against leverage over rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from privsql.engines import Memory
from privsql.policy.account import Account, Limits
from privsql.policy.base import Asked, Base, Name, Values
from privsql.policy.public_rows import PublicRows
from privsql.policy.within import statement
from privsql.policy.within.faint import _few
from privsql.policy.within.statement import Statement, bounds, harmless
from tests.policy.rows import Rows
from tests.sizes import sized

Floats = NDArray[np.float64]

CONDITIONS = ("1 = 1", "pay < {x}", "pay >= {x}", "pay % 3 = 1", "pay < {x} AND pay % 2 = 0")
WEIGHTS = ("1", "pay", "pay * pay", "pay + {x}", "pay * 0.1")
# Nearly collinear, vast beside others, or lost in their squares.
HOSTILE = (
    "1", "pay", "pay + 1e-9 * (pay % 3)", "1 + 1e-12 * pay", "1e9 * pay + pay % 2",
    "pay * 1.0000000001", "1 + 1e-9 * (pay % 5)", "pay + 1e-120 * (pay % 2)",
    "CASE WHEN pay < {x} THEN 1e-120 ELSE 1 END",
)  # fmt: skip
FACTORS = (1.0, 1.0, 1.0 + 1e-12, 1.0 + 1e-7, 1e9, 1e-9)


class Table:
    """A table of tuples and a measure, for a statement and for brute force."""

    def __init__(self, rng: np.random.Generator, atoms: int = 0) -> None:
        atoms = atoms or int(rng.integers(4, 14))
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

    def asked(self, rng: np.random.Generator, hostile: bool = False) -> Asked:
        """A random vector."""
        x = int(rng.integers(3, 28))
        text: str | None = None
        if rng.random() < 0.8:
            weight = rng.choice(HOSTILE if hostile else WEIGHTS)
            condition = rng.choice(CONDITIONS)
            text = (
                f'SELECT t.rowid AS "row", {weight} AS "value" FROM w AS t WHERE {condition}'
            ).format(x=x)
        some = np.flatnonzero(rng.random(self.atoms) < rng.choice([0.3, 0.7, 1.0]))
        weights = rng.choice([1.0, 1.0, 0.5, -2.0], some.size)
        if hostile and rng.random() < 0.4:
            weights *= rng.choice(FACTORS, some.size)
        return Asked(text, "", some, weights)

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
        made = None
        if found:
            products = statement._Products(table.base.public, functions, found)
            made = bounds(table.base, products, Limits())
        if made is not None:
            assert (made[0] >= leverage - 1e-9).all() or made[0].max() > 0.99 * 0.9
            np.testing.assert_allclose(made[1], total, atol=1e-9)
        if harmless(table.base, asked, values, Limits()):
            sure += 1
            assert leverage.max(initial=0.0) < 0.9
            assert total.max(initial=0.0) < 0.8
    assert sure
    table.base.close()


def cells(table: Table, rng: np.random.Generator, hostile: bool, count: int) -> list[list[Asked]]:
    return [
        [table.asked(rng, hostile) for _ in range(int(rng.integers(1, 3)))] for _ in range(count)
    ]


def judged(table: Table, blocks: Sequence[list[list[Asked]]]) -> tuple[bool, list[list[bool]]]:
    """Whether bounds were enough, and the verdicts: they are those of an account."""
    ours = Statement(table.base, Limits())
    found = [ours.admit(block) for block in blocks]
    table.base.renew()
    account = Account(table.base.functions)
    for block, verdicts in zip(blocks, found, strict=True):
        table.base.prepare([asked for cell in block for asked in cell], "")
        parts = [[table.base.part(asked, "") for asked in cell] for cell in block]
        proposal = account.propose([[p for p in cell if p is not None] for cell in parts])
        account.commit(proposal)
        assert verdicts == proposal.admission.admitted.tolist()
    return ours._account is None, found


@pytest.mark.parametrize("seed", range(sized(8, 500)))
@pytest.mark.parametrize(("hostile", "count"), [(False, 4), (True, 1)])
def test_a_statement_is_judged_as_in_an_account(hostile: bool, count: int, seed: int) -> None:
    """Block after block, by bounds as long as they do: every verdict is that of exact leverage."""
    rng = np.random.default_rng([24 + hostile, seed])
    table = Table(rng)
    for _ in range(4):
        judged(table, [cells(table, rng, hostile, count) for _ in range(3)])
    table.base.close()


def summed(weight: str, atoms: int, condition: str = "1 = 1") -> Asked:
    """The sum of a weight over all rows."""
    text = f'SELECT t.rowid AS "row", {weight} AS "value" FROM w AS t WHERE {condition}'
    return Asked(text, "", np.arange(atoms), np.ones(atoms))


@pytest.mark.parametrize(
    "weight",
    ["1 + 1e-9 * pay", "1 + 1e-12 * (pay % 2)", "CASE WHEN pay = 3 THEN 1e-120 ELSE 1 END"],
)
def test_a_function_that_an_account_calls_faint_is_refused_by_itself(weight: str) -> None:
    table = Table(np.random.default_rng(3))
    every = np.arange(table.atoms)
    faint, plain = summed(weight, table.atoms), Asked(None, "", every, np.ones(every.size))
    _, verdicts = judged(table, [[[faint]]])
    assert verdicts == [[False]]
    # In the atoms where it is not faint it may be used: a single row, or pay all the same.
    _, verdicts = judged(table, [[[plain]], [[faint]]])
    assert verdicts == [[True], [False]]
    table.base.close()


@pytest.mark.parametrize(
    ("weights", "early"),
    [
        (["pay", "pay * pay"], True),
        (["1", "pay + 1e-3 * (pay % 2)", "pay"], True),
        (["pay", "2 * pay", "4 * pay"], False),  # in the span: for the account to say
        (["pay", "pay + 1e-7 * (pay % 3)"], False),
    ],
)
def test_functions_that_are_clearly_apart_need_no_account(weights: list[str], early: bool) -> None:
    rng = np.random.default_rng(5)
    table = Table(rng, atoms=40)
    blocks = [[[summed(weight, table.atoms)] for weight in weights]]
    assert judged(table, blocks)[0] == early
    table.base.close()


def test_weights_that_are_no_numbers_are_left_to_the_account() -> None:
    table = Table(np.random.default_rng(1))
    weights = np.ones(table.atoms)
    weights[0] = np.inf
    asked = Asked(None, "", np.arange(table.atoms), weights)
    assert judged(table, [[[asked]]]) == (False, [[False]])
    table.base.close()


@pytest.mark.parametrize("seed", range(sized(20, 2_000)))
def test_indicators_are_never_nearly_dependent(seed: int) -> None:
    """What is left of one beside others is zero, or no less than Hadamard's bound says."""
    rng = np.random.default_rng([26, seed])
    many, classes = int(rng.integers(1, 7)), int(rng.integers(2, 40))
    F = (rng.random((many, classes)) < rng.choice([0.1, 0.5, 0.9])) * 1.0
    rows = np.rint(10 ** rng.uniform(0, 5, classes))
    m = many + 1
    determinant = (m + 1) ** ((m + 1) / 2) / 2**m
    least = 1 / np.sqrt((m + 1) * determinant**2 * rows.sum())
    Q = (np.sqrt(rows) / np.sqrt(rows.sum()))[:, np.newaxis]
    for f in F * np.sqrt(rows):
        left = f - Q @ (Q.T @ f)
        left -= Q @ (Q.T @ left)
        size = np.linalg.norm(left)
        assert size >= least * np.linalg.norm(f) or size <= 1e-12 * np.linalg.norm(f)
        if size > 1e-12 * np.linalg.norm(f):
            Q = np.column_stack([Q, left / size])
    assert _few(many, int(rows.sum()))


def test_what_is_no_number_is_left_to_the_account() -> None:
    table = Table(np.random.default_rng(1))
    text = 'SELECT t.rowid AS "row", CAST(\'nan\' AS DOUBLE) AS "value" FROM w AS t'
    asked = Asked(text, "", np.arange(table.atoms), np.ones(table.atoms))
    assert Statement(table.base, Limits()).admit([[asked]]) == [False]
    table.base.close()
