"""Leverage through the whole gate, from SQL on, against a decomposition over published rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import pytest

from privsql.errors import Error
from privsql.policy.history import History
from privsql.session.gate import Served
from privsql.session.session import Session
from tests.policy.republished import publish
from tests.policy.rows import Floats, Rows
from tests.sizes import sized

# Groups of uneven sizes, one of a single town's row among them.
ROWS = """
    SELECT (['a', 'b', 'c', 'c', 'd'])[1 + (hash(i) % 5)::INTEGER] AS town,
           (['x', 'y'])[1 + (hash(i + 9) % 2)::INTEGER] AS shift,
           (hash(i * 3) % 40)::INTEGER AS pay,
           (['flu', 'none'])[1 + (hash(i * 5) % 2)::INTEGER] AS ill
    FROM range(170) AS r(i)
"""
CLOSE = 1e-9
HISTORY = 10  # questions of one user


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish(tmp_path_factory.mktemp("gate"), ROWS, more="min_rows = 1\n")


def condition(rng: np.random.Generator) -> str:
    town = f"town IN ({', '.join(repr(t) for t in rng.choice(list('abcd'), 2).tolist())})"
    shift = f"shift = '{rng.choice(['x', 'y'])}'"
    low = int(rng.integers(5, 40))
    plain = [town, shift, f"pay < {low}", f"NOT ({town} AND {shift})", "1 = 1"]
    mixed = [f"(pay < {low} OR {shift})", f"({town} AND pay % 3 = {low % 3})"]
    some = rng.choice([*plain, *mixed], int(rng.choice([1, 1, 2])), replace=False)
    return " AND ".join(some.tolist())


def near(rng: np.random.Generator) -> str:
    """A group, padded with rows of another until its share is about one of the limits."""
    one, two = rng.choice(list("abcd"), 2, replace=False).tolist()
    shift, low = rng.choice(["x", "y"]), int(rng.integers(1, 20))
    return f"(town = '{one}' AND shift = '{shift}' OR town = '{two}' AND pay < {low})"


class Brute:
    """The published rows, read from the file."""

    def __init__(self, release: Path) -> None:
        self.connection = duckdb.connect(str(release), read_only=True)
        found = self.connection.execute(
            "SELECT dense_rank() OVER (ORDER BY town, shift) - 1 FROM wards ORDER BY rowid"
        ).fetchall()
        self.group = np.array([g for (g,) in found])
        self.rows = Rows(self.group, self.group, np.ones(self.group.size))

    def values(self, expression: str) -> Floats:
        """An expression on every row."""
        found = self.connection.execute(
            f"SELECT ({expression})::DOUBLE FROM wards ORDER BY rowid"
        ).fetchall()
        return np.array([value for (value,) in found])

    def independent(self, expressions: list[str]) -> list[Floats] | None:
        """What expressions add to the span; None where numbers leave that open."""
        more: list[Floats] = []
        for each in expressions:
            v = self.rows.vector(np.ones(self.group.max() + 1), self.values(each))
            if not v.any():
                continue
            left = self.rows.residual(v, more)
            if 1e-12 < left < 1e-6:
                return None
            if left >= 1e-6:
                more.append(v)
        return more


def cells(rng: np.random.Generator) -> tuple[str, list[tuple[object, list[str]]]]:
    """A question, and by key of its cells the weights of rows that each tells."""
    where = near(rng) if rng.random() < 1 / 3 else condition(rng)
    value, powers = (
        ("COUNT(*)", ["1"]) if rng.random() < 0.6 else ("SUM(pay)", ["pay", "pay * pay"])
    )
    key, keys = [("", [None]), ("shift", ["x", "y"]), ("pay // 20", [0, 1]),
                 ("town || (pay < 9)", [f"{t}{b}" for t in "abcd" for b in ("true", "false")])][
        int(rng.choice([0, 0, 0, 1, 2, 3]))
    ]  # fmt: skip
    asked = f"{value} AS n FROM wards WHERE ill = 'flu' AND {where}"
    if not key:
        return f"SELECT {asked}", [(None, [f"({where})::INTEGER * {p}" for p in powers])]
    told = [
        (k, [f"({where} AND ({key}) = {k!r})::INTEGER * {power}" for power in powers]) for k in keys
    ]
    return f"SELECT {key} AS k, {asked} GROUP BY 1", told


def shown(session: Session, question: str) -> tuple[dict[object, object], set[str]]:
    """The values of the cells, and why some are missing."""
    try:
        outcome = session.run(question)
    except Error as problem:
        return {None: None}, {problem.code}
    rows = outcome.table.to_pylist()
    return {row.get("k"): row["n"] for row in rows}, {n.code for n in outcome.notices}


def one_history(release: Path, seed: int, brute: Brute) -> tuple[int, int]:
    rng = np.random.default_rng([18, seed])
    brute.rows.answers.clear()
    made = [0, 0]
    with History(None) as history:
        session = Session(release, served=Served("ann", history))
        for _ in range(HISTORY):
            question, told = cells(rng)
            found, codes = shown(session, question)
            for key, expressions in told:
                if found.get(key) is None:
                    continue
                more = brute.independent(expressions)
                if more is None:
                    session.close()
                    return made[0], made[1]
                assert brute.rows.excess(more) < CLOSE, question
                brute.rows.answers += more
                made[0] += 1
            for key, expressions in told:
                # Refused for a difference, and for nothing else.
                if codes & {"personal-group"} or found.get(key, 0) is not None:
                    continue
                more = brute.independent(expressions)
                assert more is None or brute.rows.excess(more) > -CLOSE, question
                made[1] += 1
            _, table = session._gate._account
            account = history._read(("ann", "wards"), table).accounts[0]
            for ours, theirs in zip(account.leverages(), brute.rows.measured([]), strict=True):
                np.testing.assert_allclose(ours, theirs, atol=CLOSE, err_msg=question)
        session.close()
    return made[0], made[1]


@pytest.fixture(scope="module")
def brute(release: Path) -> Iterator[Brute]:
    made = Brute(release)
    yield made
    made.connection.close()


def test_leverage_from_sql_is_that_of_rows(release: Path, brute: Brute) -> None:
    counts = [one_history(release, seed, brute) for seed in range(sized(8, 500))]
    answered, refused = np.array(counts).sum(axis=0)
    assert answered > 2 * len(counts)
    assert refused > len(counts) / 3
