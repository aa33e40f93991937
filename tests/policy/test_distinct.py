"""Whom a distinct count tells of: weights of rows by how many of them share a value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import numpy as np
import pytest
from numpy.typing import NDArray

from privsql.errors import Error
from privsql.policy.base import Asked, Base
from privsql.policy.within.statement import Statement
from privsql.session.session import Session
from tests.sql.clinic import publish

Floats = NDArray[np.float64]

ALL = "(job, gender, favourite, cost)"
ONE = "job = 'eng' AND gender = 'F' AND favourite = 'flu'"


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    made = Session(publish(tmp_path_factory.mktemp("clinic"), 0.5, policy="refuse", least=10))
    yield made
    made.close()


def vectors(
    session: Session, monkeypatch: pytest.MonkeyPatch, sql: str
) -> tuple[Base, list[Floats]]:
    """The vectors over distinct public rows that a statement is judged by."""
    seen: list[tuple[Base, Asked]] = []

    def admit(self: Statement, cells: Any) -> list[bool]:
        seen.extend((self.base, asked) for cell in cells for asked in cell)
        return [True] * len(cells)

    monkeypatch.setattr(Statement, "admit", admit)
    session.run(sql)
    found = []
    for base, asked in seen:
        name = asked.text, asked.key
        values = base.evaluated([name])[name]
        alpha = np.zeros(base.public.counts.size)
        alpha[asked.atoms] = asked.weights
        assert values is not None
        found.append(alpha[base.public.atom] * values)
    return seen[0][0], found


def by_hand(base: Base, value: str, where: str, key: str) -> list[Floats]:
    """1 / n of each row of a value with n rows, and 1 where n is 1, within each cell."""
    connection = duckdb.connect()
    rows = base.public.table().append_column("times", [base.public.times.tolist()])
    connection.register("r", rows)
    connection.execute("CREATE TABLE rows AS SELECT row_number() OVER () AS i, * FROM r")
    found = connection.execute(
        f"SELECT i - 1 AS i, {key} AS k, SUM(times) OVER (PARTITION BY {key}, {value}) AS n"
        f" FROM rows WHERE {where} AND {value} IS NOT NULL"
    ).fetchnumpy()
    made = []
    for k in np.unique(found["k"]):
        cell = found["k"] == k
        for weight in (1 / found["n"][cell], found["n"][cell] == 1):
            made.append(np.zeros(base.public.times.size))
            made[-1][found["i"][cell].astype(int)] = weight
    return made


CASES = [
    # argument, public condition, key
    (ALL, "TRUE", "1"),
    ("(gender, cost)", "TRUE", "job"),
    (ALL, "cost < 60 AND favourite <> 'hiv'", "gender"),
    ("(job, gender, favourite, cost // 3)", "cost % 2 = 0", "cost // 50"),
    (f"(CASE WHEN {ONE} THEN 'own' ELSE job END, gender, cost)", "TRUE", "1"),
]


@pytest.mark.parametrize(("value", "where", "key"), CASES)
def test_rows_of_a_value_share_its_weight(session, monkeypatch, value, where, key):
    grouped = "" if key == "1" else f" GROUP BY {key}"
    sql = f"SELECT COUNT(DISTINCT {value}) AS n FROM patients WHERE disease = 'flu' AND {where}"
    sql += grouped
    # What is refused for other reasons is not compared.
    monkeypatch.setattr("privsql.session.gate.judge", open_judge)
    try:
        base, found = vectors(session, monkeypatch, sql)
    except Error as problem:
        pytest.fail(str(problem))
    wanted = [each for each in by_hand(base, value, where, key) if each.any()]
    some = [each for each in found if each.any()]
    assert len(some) == len(wanted)
    for each in wanted:
        assert any(np.allclose(each, other, rtol=1e-12) for other in some)


def open_judge(cells: Any, bases: Any, policy: Any, total: int) -> Any:
    from privsql.policy.personal import Verdict

    none = {i: np.zeros(cells.num_rows, dtype=np.bool_) for i in bases}
    return Verdict(none, none, none, none)


def test_the_ranges_of_values(session):
    """Smallest and largest group, rows and weights, of values and of those with one row."""
    sql = "SELECT gender, COUNT(DISTINCT (job, cost)) FROM patients WHERE disease = 'flu'"
    sql += " GROUP BY ALL"
    planned = session._planning.plan(_statement(sql), None, session.settings)
    (plan,), (behind,) = planned.plans, planned.behind
    scanned = session._engine.scan(*plan.scan.both)
    session._memory.load(f"{plan.prefix}_scan", scanned)
    found = session._gate.ranges(plan, behind, scanned).to_pylist()
    groups = "(SELECT privsql_group FROM privsql.tuples AS s WHERE s.job = t.job AND"
    groups += " s.gender = t.gender AND s.favourite = t.favourite)"
    rows = f"SELECT *, {groups} AS g FROM patients AS t"
    counted = "SELECT gender, COUNT(*) AS n, MIN(g) AS low, MAX(g) AS high"
    counted += f" FROM ({rows}) GROUP BY gender, job, cost"
    wanted = session._engine.scan(
        f"SELECT gender AS key0, MIN(low) AS a, MAX(high) AS b, SUM(n) AS c, COUNT(*) AS d,"
        f" SUM(1 / n) AS e, MIN(low) FILTER (n = 1) AS f, MAX(high) FILTER (n = 1) AS g,"
        f" COUNT(*) FILTER (n = 1) AS h FROM ({counted}) GROUP BY gender"
    ).to_pylist()
    names = ("group_low1", "group_high1", "group_rows1", "group_sum1", "group_squares1")
    names += ("group_low2", "group_high2", "group_rows2")
    shown = {row["key0"]: [row[name] for name in names] for row in found}
    for row in wanted:
        key = row.pop("key0")
        assert shown[key] == pytest.approx([float(v) if v is not None else v for v in row.values()])


def _statement(sql: str) -> Any:
    from privsql.sql.parse.statement import only

    return only(sql)
