"""Sub-queries beside published rows: what they say, what is read for them, what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from privsql.errors import Error
from privsql.session.session import Session
from privsql.sql.subqueries import frozen
from tests.sizes import sized
from tests.sql.clinic import publish, raw

TABLES = {
    "jobs": pa.table({"job": ["eng", "law", None], "pay": [10, 60, 5]}),
    "nothing": pa.table({"job": pa.array([], pa.string()), "pay": pa.array([], pa.int64())}),
}
FLU = "SELECT COUNT(*) FROM patients WHERE disease = 'flu' AND"


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    made = Session(publish(tmp_path_factory.mktemp("subqueries"), 1), tables=TABLES)
    yield made
    made.close()


@pytest.fixture(scope="module")
def table() -> Iterator[duckdb.DuckDBPyConnection]:
    with raw() as connection:
        for name, each in TABLES.items():
            connection.register(f"{name}_", each)
            connection.execute(f"CREATE TABLE {name} AS FROM {name}_")
        yield connection


# Of rows with NULL, of no row, and both ways round: WHERE p, WHERE NOT p and WHERE p IS NULL.
THREE_VALUED = [
    "job IN (SELECT job FROM jobs)",
    "job IN (SELECT job FROM nothing)",
    "NULLIF(job, 'med') IN (SELECT job FROM nothing)",
    "NULLIF(job, 'med') IN (SELECT NULLIF(job, 'law') FROM patients WHERE cost < 60)",
    "NULLIF(job, 'med') NOT IN (SELECT b.job FROM patients AS b WHERE b.cost > 1000)",
    "cost < ANY (SELECT NULLIF(cost, 12) FROM patients WHERE cost < 14)",
    "cost > ALL (SELECT NULLIF(b.cost, 109) FROM patients AS b WHERE b.job = patients.job)",
    "cost > (SELECT pay FROM jobs WHERE jobs.job = patients.job)",
    "cost > (SELECT MAX(b.cost) FROM patients AS b WHERE b.cost < 11 AND b.job = 'none')",
    "(SELECT SUM(b.cost) FROM patients AS b WHERE b.job = patients.job AND b.cost > 1000) > 5",
    "(SELECT COUNT(*) FROM patients AS b WHERE b.job = patients.job AND b.cost > 1000) < 5",
    "(SELECT COUNT(*) FROM patients AS b WHERE b.job = NULLIF(patients.job, 'eng')) > 5",
    "(SELECT COUNT(*) FROM patients AS b WHERE NULLIF(b.job, 'eng') IS NOT DISTINCT FROM"
    " NULLIF(patients.job, 'eng')) > 1300",
    "NULLIF(disease, 'hiv') IN (SELECT NULLIF(favourite, 'none') FROM patients)",
]


@pytest.mark.parametrize("condition", THREE_VALUED[:: sized(2, 1)])
def test_null_is_what_it_is_in_duckdb(
    session: Session, table: duckdb.DuckDBPyConnection, condition: str
) -> None:
    for asked in (condition, f"NOT ({condition})", f"({condition}) IS NULL"):
        for where in (f"{FLU} {asked}", f"SELECT SUM(age) FROM patients WHERE {asked}"):
            (expected,) = table.execute(where).fetchall()[0]
            (found,) = session.run(where).table.column(0).to_pylist()
            wanted = expected if expected is None else pytest.approx(float(expected))
            assert found == wanted, where


@pytest.mark.parametrize(
    "condition",
    [
        "cost > (SELECT cost FROM patients WHERE cost < 20)",
        "cost > (SELECT b.cost FROM patients AS b WHERE b.job = patients.job)",
    ],
)
def test_several_rows_are_no_value(session: Session, condition: str) -> None:
    with pytest.raises(Error, match="several rows") as problem:
        session.run(f"{FLU} {condition}")
    assert problem.value.code == "data"


def test_parameters_reach_sub_queries(session: Session, table: duckdb.DuckDBPyConnection) -> None:
    sql = "SELECT COUNT(*) FROM patients WHERE age > ? AND cost > (SELECT AVG(cost) FROM patients"
    sql += " WHERE job = ?)"
    expected = table.execute(sql, [30, "law"]).fetchall()
    assert session.run(sql, [30, "law"]).table.column(0).to_pylist() == [expected[0][0]]


def test_a_sub_query_is_asked_once_and_not_to_describe(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    scan = session._engine.scan

    def noted(sql: str, parameters: Any = ()) -> pa.Table:
        asked.append(sql)
        return scan(sql, parameters)

    monkeypatch.setattr(session._engine, "scan", noted)
    mean = "(SELECT AVG(cost) FROM patients)"
    sql = f"SELECT cost > {mean} AS high, AVG(age) FROM patients WHERE cost > {mean} GROUP BY high"
    columns = session.describe(sql)
    assert (columns[0].name, columns[0].type) == ("high", "BOOLEAN")
    assert all("LIMIT 0" in each for each in asked)
    asked.clear()
    session.run(sql)
    assert len(asked) == 2  # the mean, and the rows
    session.run(sql)
    assert len(asked) == 3  # a plan that is kept has the mean in it


def test_an_exact_answer_is_not_larger_than_a_condition_can_be(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frozen, "MOST_VALUES", 100)
    session.run(f"{FLU} cost IN (SELECT DISTINCT cost FROM patients)")
    with pytest.raises(Error) as problem:
        session.run(f"{FLU} cost + 1 IN (SELECT cost FROM patients)")
    assert problem.value.code == "too-large"


ESTIMATES = [
    f"{FLU} age > (SELECT AVG(age) FROM patients)",
    f"{FLU} cost > (SELECT COUNT(*) FROM patients WHERE disease = 'flu')",
    f"{FLU} job IN (SELECT job FROM patients GROUP BY job HAVING AVG(age) > 30)",
    "WITH m AS (SELECT job, AVG(age) AS mean FROM patients GROUP BY job) SELECT COUNT(*) FROM"
    " patients JOIN m USING (job) WHERE cost > mean",
    "SELECT COUNT(*) FROM patients SEMI JOIN patients AS b ON patients.job = b.job AND b.age > 50",
]


@pytest.mark.parametrize("sql", ESTIMATES)
def test_rows_are_not_compared_with_estimates(session: Session, sql: str) -> None:
    with pytest.raises(Error, match=r"rows beside an estimate.*'(age|disease)'") as problem:
        session.run(sql)
    assert problem.value.code == "unsupported"
    assert "ask for the estimate first" in (problem.value.hint or "")
    assert problem.value.place is not None
    assert problem.value.place.start > 20  # it points at the sub-query


def test_what_a_sample_says_is_an_estimate(tmp_path: Path) -> None:
    from tests.sql.test_estimates import releases

    session = Session(releases(tmp_path, "sps", 1).paths[0], tables=TABLES)
    session.run("SELECT COUNT(*) FROM clinic WHERE job IN (SELECT job FROM jobs)")
    session.run(
        "SELECT COUNT(*) FROM clinic SEMI JOIN jobs ON jobs.job = clinic.job AND cost > jobs.pay"
    )
    for sql in (
        "SELECT COUNT(*) FROM clinic WHERE cost > (SELECT AVG(cost) FROM clinic)",
        "SELECT COUNT(*) FROM clinic JOIN (SELECT job, COUNT(*) AS n FROM clinic GROUP BY job) AS s"
        " ON clinic.job = s.job",
    ):
        with pytest.raises(Error, match="keeps a sample"):
            session.run(sql)
    session.close()


LISTED = "SELECT DISTINCT job FROM patients WHERE disease = 'flu'"
NO_LISTS = [
    f"SELECT COUNT(*) FROM ({LISTED}) AS s",
    f"SELECT job, ROW_NUMBER() OVER (ORDER BY job) FROM ({LISTED}) AS s",
    f"SELECT * FROM ({LISTED}) AS s JOIN jobs USING (job)",
    f"SELECT pay FROM jobs WHERE job IN ({LISTED})",
    f"{FLU} job IN ({LISTED})",
    f"SELECT 'med' EXCEPT {LISTED}",
    f"{LISTED} INTERSECT SELECT 'med'",
    f"WITH s AS ({LISTED}) SELECT MAX(job) FROM s",
    f"SELECT CASE WHEN EXISTS ({LISTED}) THEN 1 ELSE 0 END",
    "SELECT job, COUNT(*) OVER () FROM patients WHERE disease = 'flu' GROUP BY job",
]


@pytest.mark.parametrize("sql", NO_LISTS)
def test_nothing_is_made_of_groups_that_could_exist(session: Session, sql: str) -> None:
    with pytest.raises(Error, match=r"which groups exist|rows beside an estimate") as problem:
        session.run(sql)
    assert problem.value.code == "unsupported"


def test_a_list_of_groups_says_what_it_is(session: Session) -> None:
    for sql in (
        LISTED,
        f"SELECT * FROM ({LISTED}) AS s WHERE job <> 'x'",
        f"{LISTED} UNION {LISTED}",
    ):
        (notice,) = session.run(sql).notices
        assert notice.code == "domain"
        assert "may have no row" in notice.text
        assert "LIMIT" not in notice.text
    (notice,) = session.run(f"{LISTED} ORDER BY job LIMIT 2").notices
    assert notice.text.endswith("LIMIT counts those as well")


def test_extremes_under_a_sensitive_condition_offer_quantiles(session: Session) -> None:
    for call, hint in (("MAX(age)", "with a high share"), ("MIN(cost)", "a low share")):
        with pytest.raises(Error) as problem:
            session.run(f"SELECT {call} FROM patients WHERE disease = 'flu'")
        assert hint in (problem.value.hint or "")
    mixed = (
        "SELECT job, MIN(cost), COUNT(*) FILTER (WHERE disease = 'flu') FROM patients GROUP BY 1"
    )
    assert [each.estimate for each in session.run(mixed).columns] == [False, False, True]


def test_explain_says_that_groups_could_exist(session: Session) -> None:
    text = session.explain(LISTED)
    assert "groups that could exist, by public rows and domains" in text
    assert "exact" not in text


def test_an_estimate_times_an_exact_answer_keeps_its_error(tmp_path: Path) -> None:
    """By the keys of its own groups, and by a public table that it is joined with."""
    session = Session(publish(tmp_path, 0.5), tables=TABLES)
    counted = "SELECT job, COUNT(*) AS n FROM patients WHERE disease = 'flu' GROUP BY job"
    plain = session.run(f"{counted} ORDER BY job").bars[1].to_pylist()
    most = "(SELECT MAX(cost) FROM patients AS p WHERE p.job = {}.job)"
    for sql in (
        f"{counted.replace('COUNT(*)', 'COUNT(*) * ' + most.format('patients'))} ORDER BY job",
        f"SELECT a.job, a.n * {most.format('jobs')} AS n FROM ({counted}) AS a JOIN jobs ON a.job ="
        " jobs.job ORDER BY 1",
    ):
        found = session.run(sql).bars[1].to_pylist()
        for one, two in zip(plain, found, strict=False):
            assert two["stderr"] == pytest.approx(109 * one["stderr"])
            assert two["reliable"]
    session.close()
