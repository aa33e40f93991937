"""PIVOT, the clock and several quantiles in a call: the same as DuckDB at retention 1."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest

import privsql
from privsql.session import session as sessions
from privsql.session.gate import Served
from privsql.session.session import Session
from tests.sql.clinic import publish, raw

SAME = [
    "PIVOT patients ON disease IN ('flu', 'hiv') USING COUNT(*) GROUP BY job",
    "PIVOT patients ON age IN (30, 40) USING SUM(cost) AS s, AVG(cost) AS a GROUP BY gender",
    "PIVOT patients ON gender IN ('F', 'nobody') USING AVG(age) GROUP BY job, favourite",
    "SELECT * FROM patients PIVOT (COUNT(*) FOR disease IN ('flu', 'hiv' AS h) GROUP BY job)",
    "SELECT p.job, p.flu + p.h AS both FROM patients PIVOT"
    " (COUNT(*) FOR disease IN ('flu', 'hiv' AS h) GROUP BY job) AS p",
    "WITH p AS (PIVOT patients ON gender IN ('F') USING COUNT(*) AS n GROUP BY disease)"
    " SELECT * FROM p WHERE disease IS NOT NULL",
    "SELECT * FROM (PIVOT patients ON disease IN ('none') USING SUM(cost) GROUP BY gender)"
    " WHERE gender = 'F'",
    "SELECT * FROM (SELECT job, disease, cost FROM patients)"
    " PIVOT (SUM(cost) FOR disease IN ('flu', 'hiv') GROUP BY job)",
    "SELECT job, QUANTILE_DISC(age, [0.1, 0.5, 0.9]) AS q FROM patients WHERE disease = 'flu'"
    " GROUP BY job",
    "SELECT QUANTILE_CONT(cost, [0.25, 0.75]) FILTER (WHERE age > 40) AS q FROM patients",
    "SELECT job, MEDIAN(cost) AS m, QUANTILE_DISC(cost, 0.9) AS q FROM patients"
    " WHERE disease = 'flu' GROUP BY job",
    "SELECT NULLIF(cost, 10) AS c, QUANTILE_DISC(NULLIF(cost, 10), 0.5) AS q FROM patients"
    " WHERE disease <> 'hiv' GROUP BY 1",
    "SELECT job, QUANTILE_DISC(NULLIF(cost, 11), 0.01) AS q, REGR_COUNT(age, NULLIF(cost, 11)) AS n"
    " FROM patients WHERE disease <> 'hiv' GROUP BY job",
    "SELECT disease, QUANTILE_CONT(cost, 0.3) AS m FROM patients GROUP BY disease",
    "SELECT MEDIAN(cost + age) AS m, QUANTILE_DISC(CASE WHEN age > 40 THEN cost END, 0.2) AS q"
    " FROM patients",
    "SELECT COUNT(*) AS n FROM patients WHERE DATE '2024-01-01' + cost < current_date"
    " AND disease = 'flu'",
    "SELECT COUNT(*) FILTER (WHERE seen < localtimestamp) AS n, today() = current_date AS t"
    " FROM patients",
    "SELECT date_diff('day', DATE '2024-01-01', now()::DATE) > 300 AS old, COUNT(*) AS n"
    " FROM patients WHERE age > 30 GROUP BY ALL",
]


@pytest.fixture(scope="module")
def truth() -> Iterator[duckdb.DuckDBPyConnection]:
    with raw() as connection:
        yield connection


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    made = Session(publish(tmp_path_factory.mktemp("one"), 1.0))
    yield made
    made.close()


def rounded(rows: list[tuple[Any, ...]]) -> list[str]:
    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return [plain(each) for each in value]
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if number and math.isfinite(value):
            return float(f"{value:.9g}")
        return value

    return sorted(repr([plain(value) for value in row]) for row in rows)


@pytest.mark.parametrize("sql", SAME)
def test_retention_1_is_duckdb(kept: Session, truth: duckdb.DuckDBPyConnection, sql: str) -> None:
    expected = truth.execute(sql)
    outcome = kept.run(sql)
    names = [column[0] for column in expected.description or ()]
    assert [column.name for column in outcome.columns] == names
    found = [tuple(row.values()) for row in outcome.table.to_pylist()]
    assert rounded(found) == rounded(expected.fetchall())


@pytest.mark.parametrize(
    "sql",
    [
        "PIVOT patients ON disease USING COUNT(*) GROUP BY job",
        "PIVOT patients ON disease IN ('flu') USING COUNT(*)",
        "PIVOT patients ON disease IN ('flu', NULL) USING COUNT(*) GROUP BY job",
        "PIVOT patients ON disease IN ('flu') USING COUNT(*), SUM(cost) GROUP BY job",
        "PIVOT patients ON disease IN ('flu') USING 2 * SUM(cost) GROUP BY job",
        "PIVOT patients ON disease IN ('flu') gender IN ('F') USING COUNT(*) GROUP BY job",
        "SELECT * FROM patients PIVOT (COUNT(*) FOR disease IN ('flu'))",
        "SELECT COUNT(*) FROM patients WHERE age > 30 AND current_time IS NULL",
    ],
)
def test_other_forms_are_refused(kept: Session, sql: str) -> None:
    with pytest.raises(privsql.Error) as refused:
        kept.run(sql)
    assert refused.value.code in ("unsupported", "programming", "syntax"), refused.value


def test_a_quantile_of_public_values_has_an_interval(tmp_path: Path) -> None:
    with privsql.connect(publish(tmp_path, 0.5)) as con:
        answer = con.sql(
            "SELECT MEDIAN(cost) AS m FROM patients WHERE disease = 'flu'", error_bars=True
        )
        ((value, stderr, low, high, reliable),) = answer.fetchall()
    assert low < value < high
    assert stderr is None
    assert reliable


def test_quantiles_of_public_values_are_refused_where_groups_are_protected(tmp_path: Path) -> None:
    with (
        privsql.connect(publish(tmp_path, 0.5, policy="refuse")) as con,
        pytest.raises(privsql.NotSupportedError, match="would count groups") as refused,
    ):
        con.execute("SELECT MEDIAN(cost) FROM patients WHERE disease = 'flu'")
    assert refused.value.sqlstate == "42501"


class Stopped(datetime):
    """A clock that is put forward by hand."""

    at = datetime(2024, 2, 1, 12)

    @classmethod
    def now(cls, tz: Any = None) -> datetime:
        return cls.at


def test_time_is_bound_once_and_no_plan_or_answer_outlives_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "datetime", Stopped)
    session = Session(publish(tmp_path, 1.0), served=Served("ann"))
    sql = (
        "SELECT COUNT(*) AS n FROM patients"
        " WHERE DATE '2024-01-01' + cost < current_date AND age > 0"
    )
    counts = []
    for month in (2, 3, 4):
        Stopped.at = datetime(2024, month, 1, 12)
        counts.append(round(session.run(sql).table.column("n")[0].as_py()))
        assert not session.remembers(sql)
    session.close()
    with raw() as truth:
        expected = [
            truth.execute(sql.replace("current_date", f"DATE '2024-0{m}-01'")).fetchall()[0][0]
            for m in (2, 3, 4)
        ]
    assert counts == expected
    assert len(set(counts)) == 3
