"""Names mean what they mean to DuckDB: held against the raw table at retention 1."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest

from privsql.errors import Error, NotSupportedError
from privsql.session.session import Session
from tests.sql.clinic import publish, raw

PUBLIC = {
    "illness": pa.table({"disease": ["flu", "hiv"], "class": ["virus", "virus"]}),
    "jobs": pa.table({"job": ["eng", "law"], "pay": [3, 2]}),
    "nothing": pa.table({"x": pa.array([], pa.int64())}),
}


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    made = Session(publish(tmp_path_factory.mktemp("clinic"), 1.0), tables=PUBLIC)
    yield made
    made.close()


@pytest.fixture(scope="module")
def table():
    with raw() as connection:
        for name, made in PUBLIC.items():
            connection.register(name, made)
        yield connection


def rounded(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Numbers to nine digits, so that a sum in another order is the same."""

    def one(value: Any) -> Any:
        if isinstance(value, bool) or value is None or isinstance(value, str):
            return value
        return f"{float(value):.9g}" if math.isfinite(value) else value

    return [tuple(map(one, row)) for row in rows]


def same(session: Session, table: Any, text: str) -> None:
    """The answer is that of the raw table, in order where the query orders it."""
    expected = rounded(table.execute(text).fetchall())
    answer = [column.to_pylist() for column in session.run(text).table.columns]
    found = rounded(list(zip(*answer, strict=True)))
    if "ORDER BY" not in text:
        expected, found = sorted(expected, key=str), sorted(found, key=str)
    assert found == expected
    assert expected  # a question without rows shows nothing


# Every name below is an alias and a column at once.
HAVING = [
    # An alias of an aggregate is preferred to the column outside of aggregates ...
    "SELECT job, SUM(cost) AS cost FROM patients GROUP BY job HAVING cost > 77000",
    "SELECT job, SUM(cost) AS age FROM patients GROUP BY job HAVING age > 77000",
    "SELECT job, AVG(age) AS cost FROM patients GROUP BY job HAVING cost > 49.5",
    "SELECT job, AVG(age) AS age FROM patients GROUP BY job HAVING age > 49.5",
    "SELECT job, AVG(age) AS age FROM patients GROUP BY job HAVING NOT age > 49.5",
    "SELECT job, AVG(age) AS AGE FROM patients GROUP BY job HAVING age BETWEEN 49.5 AND 90",
    "SELECT AVG(age) AS cost FROM patients HAVING cost < 60",
    "SELECT AVG(age) AS age FROM patients HAVING age > 49 AND age < 51",
    "SELECT job, COUNT(*) FILTER (WHERE age > 40) AS age FROM patients GROUP BY job"
    " HAVING age > 880",
    "SELECT gender, AVG(cost) AS cost, AVG(age) AS age FROM patients WHERE disease = 'flu'"
    " GROUP BY gender HAVING age > 20 AND cost > 20",
    # ... the column within them ...
    "SELECT job, SUM(cost) AS age FROM patients GROUP BY job HAVING MAX(cost) > 1 AND AVG(age) > 1",
    "SELECT job, SUM(age) AS cost FROM patients GROUP BY job HAVING SUM(cost) > 77000",
    "SELECT job, SUM(age) AS cost FROM patients GROUP BY job"
    " HAVING COUNT(*) FILTER (WHERE cost > 60) > 640",
    "SELECT job, SUM(cost) AS age FROM patients GROUP BY job HAVING AVG(age) > 49.5",
    "SELECT job, SUM(cost) + 1 AS cost FROM patients GROUP BY job"
    " HAVING cost > 77000 AND SUM(cost) > 77000",
    # ... and where the column itself is a key.
    "SELECT COUNT(*) AS job FROM patients GROUP BY job HAVING job = 'eng'",
    "SELECT COUNT(*) AS disease FROM patients GROUP BY disease HAVING disease = 'flu'",
    "SELECT disease AS d, COUNT(*) AS disease FROM patients GROUP BY d HAVING disease = 'flu'",
    "SELECT COUNT(*) AS job, gender FROM patients GROUP BY ROLLUP (job, gender) HAVING job = 'law'",
    "SELECT COUNT(*) AS age FROM patients GROUP BY age HAVING age BETWEEN 30 AND 33",
    "SELECT COUNT(*) AS age FROM patients GROUP BY age HAVING patients.age BETWEEN 30 AND 33",
    # An expression that is a key is not the column.
    "SELECT 100 - cost AS cost, COUNT(*) AS n FROM patients GROUP BY 100 - cost HAVING cost > 85",
    "SELECT 100 - cost AS cost, COUNT(*) AS n FROM patients GROUP BY 1 HAVING 100 - cost > 85",
    "SELECT 100 - age AS age, COUNT(*) AS n FROM patients GROUP BY 1 HAVING age BETWEEN 75 AND 79",
    # GROUP BY ALL prefers the alias to a key as well.
    "SELECT job, SUM(cost) AS cost FROM patients GROUP BY ALL HAVING cost > 77000",
    "SELECT job, AVG(age) AS age FROM patients GROUP BY ALL HAVING age > 49.5",
    "SELECT job AS k, COUNT(*) AS n FROM patients GROUP BY ALL HAVING k = 'law'",
    # Names of a sub-select, a CTE and an alias list.
    "SELECT job, AVG(a) AS a FROM (SELECT job, age AS a FROM patients) GROUP BY job"
    " HAVING a > 49.5",
    "WITH w(job, a) AS (SELECT job, age FROM patients)"
    " SELECT job, AVG(a) AS a FROM w GROUP BY job HAVING a > 49.5",
    "SELECT gender, AVG(cost) AS cost FROM patients AS p(gender, job, x, cost) GROUP BY gender"
    " HAVING cost > 59.3",
    # The last of two equal aliases.
    "SELECT job, AVG(cost) AS age, SUM(cost) AS age FROM patients GROUP BY job HAVING age > 77000",
    "SELECT job, SUM(cost) AS age, AVG(cost) AS age FROM patients GROUP BY job HAVING age > 59.25",
]

ELSEWHERE = [
    # WHERE prefers the column.
    "SELECT SUM(cost) AS age FROM patients WHERE age > 40",
    "SELECT SUM(age) AS cost FROM patients WHERE cost > 40",
    # GROUP BY prefers the column.
    "SELECT upper(job) AS job, COUNT(*) AS n FROM patients GROUP BY job",
    "SELECT cost % 2 AS cost, COUNT(*) AS n FROM patients GROUP BY cost",
    "SELECT age % 2 AS z, COUNT(*) AS n FROM patients GROUP BY z",
    "SELECT age % 7 AS age, COUNT(*) AS n FROM patients GROUP BY ALL",
    # ORDER BY prefers the alias if it is all that is sorted by, and else the column.
    "SELECT job, -SUM(cost) AS cost FROM patients GROUP BY job ORDER BY cost",
    "SELECT job, -SUM(cost) AS cost FROM patients GROUP BY job ORDER BY (cost)",
    "SELECT job, -SUM(cost) AS cost FROM patients GROUP BY job ORDER BY SUM(cost)",
    "SELECT job, -AVG(age) AS age FROM patients GROUP BY job ORDER BY age",
    "SELECT job, -AVG(age) AS age FROM patients GROUP BY job ORDER BY AVG(age)",
    "SELECT -cost AS cost, COUNT(*) AS n FROM patients GROUP BY patients.cost"
    " ORDER BY cost LIMIT 3",
    "SELECT 50 - cost AS cost, COUNT(*) AS n FROM patients GROUP BY cost ORDER BY cost LIMIT 3",
    "SELECT 50 - cost AS cost, COUNT(*) AS n FROM patients GROUP BY cost ORDER BY cost + 0 LIMIT 3",
    "SELECT 50 - age AS age, COUNT(*) AS n FROM patients WHERE age BETWEEN 20 AND 79"
    " GROUP BY age"
    " ORDER BY age + 0 LIMIT 100",
    "SELECT job, SUM(cost) AS s FROM patients GROUP BY job ORDER BY -s",
    # QUALIFY and windows prefer the column; an alias serves where there is none.
    "SELECT job, SUM(cost) AS s FROM patients GROUP BY job"
    " QUALIFY row_number() OVER (ORDER BY s) = 1",
    "SELECT job, -SUM(cost) AS cost FROM patients GROUP BY job"
    " QUALIFY row_number() OVER (ORDER BY SUM(cost)) = 1",
]


@pytest.mark.parametrize("text", [*HAVING, *ELSEWHERE])
def test_a_name_that_is_alias_and_column_means_what_duckdb_means(session, table, text):
    same(session, table, text)


@pytest.mark.parametrize(
    "text",
    [
        # DuckDB groups by the columns of the condition as well, which nobody would expect.
        "SELECT cost % 2 AS z, COUNT(*) AS n FROM patients GROUP BY ALL HAVING z = 1",
        "SELECT age % 2 AS age, COUNT(*) AS n FROM patients GROUP BY ALL HAVING age = 1",
        "SELECT upper(job) AS z, COUNT(*) FROM patients GROUP BY ALL HAVING upper(job) = 'LAW'",
        # One column under two names, of which the alias hides the one that is no key.
        "SELECT w, COUNT(*) AS age FROM (SELECT age, age AS w FROM patients) GROUP BY w"
        " HAVING age > 10",
    ],
)
def test_what_a_name_of_having_cannot_mean_is_refused(session, text):
    with pytest.raises(NotSupportedError):
        session.run(text)


CONDITIONS = [
    "EXISTS (SELECT * FROM jobs)",
    "EXISTS (SELECT 1 FROM jobs)",
    "NOT EXISTS (SELECT * FROM nothing)",
    "NOT EXISTS (SELECT * FROM jobs WHERE pay > 5)",
    "EXISTS (SELECT * FROM jobs WHERE pay > 2) AND job = 'eng'",
    "EXISTS (SELECT * FROM jobs JOIN illness ON jobs.pay = length(illness.disease))",
    "EXISTS (SELECT jobs.* FROM jobs) AND disease = 'flu'",
    "EXISTS (SELECT * FROM jobs WHERE pay > 2) OR disease = 'flu'",
    "EXISTS (SELECT * FROM jobs WHERE pay > 5) OR disease = 'flu'",
    "EXISTS (SELECT * FROM jobs WHERE pay > 5) OR NOT EXISTS (SELECT * FROM nothing)",
    "NOT EXISTS (SELECT * FROM nothing) AND age > 50",
    "job IN (SELECT job FROM jobs)",
    "job NOT IN (SELECT job FROM jobs)",
    "job IN (SELECT * FROM (SELECT job FROM jobs WHERE pay > 2))",
    "job = ANY (SELECT job FROM jobs)",
    "disease IN (SELECT disease FROM illness)",
    "disease NOT IN (SELECT disease FROM illness)",
    "disease IN (SELECT * FROM (SELECT disease FROM illness)) AND job IN (SELECT job FROM jobs)",
    "age > (SELECT 20 + max(pay) FROM jobs)",
    "CASE WHEN EXISTS (SELECT * FROM jobs) THEN disease = 'flu' ELSE age > 3 END",
]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_sub_queries_of_public_tables_alone_are_answered(session, table, condition):
    same(session, table, f"SELECT COUNT(*) AS n FROM patients WHERE {condition}")
    same(session, table, f"SELECT COUNT(*) FILTER (WHERE {condition}) AS n FROM patients")
    same(session, table, f"SELECT job, COUNT(*) AS n FROM patients WHERE {condition} GROUP BY job")


def test_having_may_ask_whether_there_are_public_rows(session, table):
    counted = "SELECT job, COUNT(*) AS n FROM patients WHERE disease = 'flu' GROUP BY job"
    same(session, table, f"{counted} HAVING EXISTS (SELECT * FROM jobs)")
    same(session, table, f"{counted} HAVING job IN (SELECT job FROM jobs)")
    same(session, table, f"{counted} HAVING job IN (SELECT * FROM (SELECT job FROM jobs))")
    same(session, table, f"SELECT * FROM ({counted}) WHERE EXISTS (SELECT * FROM jobs)")
    same(session, table, f"SELECT * FROM ({counted}) WHERE NOT EXISTS (SELECT * FROM nothing)")


AROUND = [
    "EXISTS (SELECT * FROM illness WHERE illness.disease = patients.disease)",
    "NOT EXISTS (SELECT * FROM illness WHERE illness.disease = patients.disease)",
    "EXISTS (SELECT * FROM illness WHERE class = 'virus' AND age > 30)",
    "EXISTS (SELECT * FROM jobs WHERE jobs.pay = patients.cost)",
    "EXISTS (SELECT patients.age FROM jobs)",
    "EXISTS (SELECT * FROM patients)",
    "age IN (SELECT pay + cost FROM jobs)",
    "EXISTS (SELECT * FROM patients AS t WHERE t.cost > patients.cost AND t.job = patients.job)",
    "EXISTS (SELECT * FROM jobs AS t JOIN jobs AS j0 ON t.job = j0.job WHERE t.job = patients.job)",
    "EXISTS (SELECT 1 FROM jobs WHERE pay > 1 AND EXISTS (SELECT 1 AS age WHERE age > 30))",
]


@pytest.mark.parametrize("condition", AROUND)
def test_sub_queries_may_refer_to_the_rows_around_them(session, table, condition):
    same(session, table, f"SELECT COUNT(*) AS n FROM patients WHERE {condition}")
    same(session, table, f"SELECT job, COUNT(*) AS n FROM patients WHERE {condition} GROUP BY job")
    flu = f"FILTER (WHERE disease = 'flu' AND {condition})"
    same(session, table, f"SELECT COUNT(*) {flu} AS n FROM patients")


@pytest.mark.parametrize(
    "condition",
    [
        "EXISTS (SELECT * FROM patients AS p WHERE p.disease = 'flu')",
        "EXISTS (SELECT DISTINCT * FROM patients)",
        "EXISTS (SELECT * FROM jobs JOIN patients AS p USING (job) WHERE p.age > 30)",
        "cost IN (SELECT pay FROM jobs, patients AS p WHERE p.disease = patients.disease)",
        "cost > (SELECT COUNT(disease) FROM patients)",
        "cost > (SELECT COUNT(*) FROM patients AS p JOIN illness USING (disease))",
        "disease IN (SELECT * FROM (SELECT p.disease FROM patients AS p))",
    ],
)
def test_sub_queries_that_look_at_sensitive_values_are_refused(session, condition):
    for text in (
        f"SELECT COUNT(*) FROM patients WHERE {condition}",
        f"SELECT COUNT(*) FILTER (WHERE {condition}) FROM patients",
    ):
        with pytest.raises(Error) as problem:
            session.run(text)
        assert problem.value.code in ("unsupported", "unknown-name")
