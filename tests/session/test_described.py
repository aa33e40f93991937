"""DESCRIBE, SHOW TABLES, SUMMARIZE and information_schema against DuckDB on the raw table."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import privsql
from privsql.answer.columns import columns
from privsql.errors import NotSupportedError, ProgrammingError
from privsql.policy.limits import Limits
from privsql.session.session import Session
from tests.sql.clinic import publish, raw

PLACES = pa.table({"job": ["eng", "law", "med"], "floor": pa.array([1, 2, 3], pa.int32())})
ANY = pytest.mark.parametrize(
    "asked",
    [
        "DESCRIBE patients",
        "desc TABLE patients",
        'SHOW "patients"',
        'DESCRIBE main."places"',
        "DESCRIBE",
        "SHOW TABLES",
        "show all tables",
        "DESCRIBE SELECT job, cost FROM patients",
        "SELECT table_name, table_type FROM information_schema.tables ORDER BY 1",
        "SELECT table_name, column_name, ordinal_position, data_type, is_nullable"
        " FROM information_schema.columns ORDER BY 1, 3",
        "SUMMARIZE places",
    ],
)


@pytest.fixture(scope="module")
def truth() -> Iterator[duckdb.DuckDBPyConnection]:
    with raw() as connection:
        connection.from_arrow(PLACES).create("places")
        yield connection


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """Retention 1."""
    session = Session(publish(tmp_path_factory.mktemp("one"), 1.0), tables={"places": PLACES})
    yield session
    session.close()


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    made = Session(publish(tmp_path_factory.mktemp("half"), 0.5))
    yield made
    made.close()


@ANY
def test_tables_are_described_as_duckdb_describes_them(
    kept: Session, truth: duckdb.DuckDBPyConnection, asked: str
) -> None:
    expected = truth.execute(asked)
    outcome = kept.run(asked)
    names = [column[0] for column in expected.description or ()]
    assert [column.name for column in outcome.columns] == names
    kinds = [str(column[1]) for column in expected.description or ()]
    assert [column.type for column in outcome.columns] == kinds
    rows = [tuple(row.values()) for row in outcome.table.to_pylist()]
    assert sorted(map(repr, rows)) == sorted(map(repr, expected.fetchall()))
    assert outcome.estimator == "exact"
    assert not outcome.bars
    assert kept.describe(asked) == columns(outcome)


def test_a_summary_at_retention_1_is_duckdbs(
    kept: Session, truth: duckdb.DuckDBPyConnection
) -> None:
    expected = truth.execute("SUMMARIZE patients")
    outcome = kept.run("SUMMARIZE patients")
    assert [(c.name, c.type) for c in outcome.columns] == [
        (column[0], str(column[1])) for column in expected.description or ()
    ]
    names = [column.name for column in outcome.columns]
    for found, row in zip(outcome.table.to_pylist(), expected.fetchall(), strict=True):
        true = dict(zip(names, row, strict=True))
        sensitive = found["column_name"] in ("disease", "age", "seen")
        if found["column_name"] == "age":  # the domain's
            assert (found["min"], found["max"], found["approx_unique"]) == ("0", "120", 121)
        elif not sensitive:
            for name in ("min", "max", "approx_unique"):
                assert found[name] == true[name]
        for name in ("column_name", "column_type", "count", "null_percentage"):
            assert found[name] == true[name]
        if found["column_name"] == "seen":  # a domain of 31 million values
            continue
        for name, within in {"avg": 1e-9, "std": 1e-9, "q25": 1, "q50": 1, "q75": 1}.items():
            assert (found[name] is None) == (true[name] is None)
            if found[name] is not None:  # DuckDB's quantiles are approximate here
                assert abs(float(found[name]) - float(true[name])) <= within
    codes = [notice.code for notice in outcome.notices]
    assert codes.count("domain") == 1


def test_a_summary_has_bars_where_it_estimates(session: Session) -> None:
    outcome = session.run("SUMMARIZE patients", error_bars=True)
    at = {column.name: i for i, column in enumerate(outcome.columns)}
    rows = {row["column_name"]: i for i, row in enumerate(outcome.table.to_pylist())}
    with raw() as connection:
        true = connection.execute(
            "SELECT avg(age), stddev(age), 100 * avg((disease IS NULL)::INT) FROM patients"
        ).fetchone()
    assert true is not None
    for value, name, row in zip(
        true, ("avg", "std", "null_percentage"), ("age", "age", "disease"), strict=True
    ):
        bars = outcome.bars[at[name]].to_pylist()[rows[row]]
        assert bars["reliable"]
        assert bars["stderr"] > 0
        assert abs(float(outcome.table.column(name)[rows[row]].as_py()) - value) < (
            5 * bars["stderr"] + 0.01
        )
        assert bars["low"] <= value + 2 * bars["stderr"]
        assert bars["high"] >= value - 2 * bars["stderr"]
    exact = outcome.bars[at["avg"]].to_pylist()[rows["cost"]]
    assert (exact["stderr"], exact["low"]) == (0, exact["high"])
    assert outcome.estimator == "inversion"


def test_a_summary_holds_simultaneously(session: Session) -> None:
    """Wider than alone, and wider than one statement's simultaneous intervals."""

    def width(sql: str, name: str, row: int, **options: Any) -> float:
        outcome = session.run(sql, **options)
        names = [column.name for column in outcome.columns]
        bars = outcome.bars[names.index(name)].to_pylist()[row]
        return float(bars["high"] - bars["low"])

    age = 5
    alone = width("SUMMARIZE patients", "avg", age)
    one = width("SELECT avg(age) AS avg, stddev(age) AS s FROM patients", "avg", 0)
    assert np.isclose(alone, one)
    together = width("SUMMARIZE patients", "avg", age, simultaneous=True)
    assert together > 1.2 * alone


def test_what_a_summary_cannot_tell_is_null_and_a_notice_says_why(session: Session) -> None:
    """A domain of 31 million values has no mean here; the rest of its row is there."""
    outcome = session.run("SUMMARIZE patients")
    row = outcome.table.to_pylist()[6]
    assert (row["avg"], row["q50"], row["count"]) == (None, None, 4000)
    assert (row["min"], row["max"]) == ("2024-01-01 00:00:00", "2024-12-31 23:59:59")
    (said,) = [notice.text for notice in outcome.notices if notice.code == "not-summarized"]
    assert said.startswith("seen: the domain of 'seen' is too large")


DAYS = """
[release]
table = "visits"
source = "{source}"
[columns.day]
role = "sensitive"
mechanism = "uniform"
retention = {p}
accept_epsilon = true
domain = {{ lower = 2024-01-01, upper = 2024-12-31, step = "1 day" }}
[columns.paid]
role = "public"
grouping = false
[groups]
merge = "none"
[policy]
personal_groups = "allow"
"""


@pytest.mark.parametrize("retention", [1.0, 0.5])
def test_a_summary_has_means_of_dates(tmp_path: Path, retention: float) -> None:
    source = tmp_path / "visits.parquet"
    asked = "SELECT avg(paid)::VARCHAR, epoch(avg(day)) FROM visits"
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE visits AS SELECT DATE '2024-01-01' + (hash(i) % 200)::INTEGER AS day,"
            " DATE '2020-01-01' + (hash(i + 1) % 9)::INTEGER AS paid FROM range(2000) AS r(i)"
        )
        connection.table("visits").write_parquet(str(source))
        true = connection.execute(asked).fetchone()
    assert true is not None
    spec, made = tmp_path / "visits.toml", tmp_path / "visits.duckdb"
    spec.write_text(DAYS.format(source=source, p=retention), encoding="utf-8")
    privsql.publish(str(source), str(made), spec=str(spec), seed=3)
    session = Session(made)
    outcome = session.run("SUMMARIZE visits", error_bars=True)
    rows = {row["column_name"]: row for row in outcome.table.to_pylist()}
    assert rows["paid"]["avg"] == true[0]
    mean = session.run("SELECT AVG(epoch(day)) AS m FROM visits", error_bars=True)
    (found,) = mean.table.column(0).to_pylist()
    (error,) = mean.bars[0].column("stderr").to_pylist()
    assert abs(datetime.fromisoformat(f"{rows['day']['avg']}+00:00").timestamp() - found) < 0.01
    assert abs(found - true[1]) <= 4 * error + 0.01
    assert (error > 0) == (retention < 1)
    at = [column.name for column in outcome.columns].index("avg")
    assert {bars["stderr"] for bars in outcome.bars[at].to_pylist()} <= {0.0, None}
    for refused in (
        "SELECT AVG(day) FROM visits",
        "SELECT AVG(paid) FROM visits WHERE day > '2024-03-01'",
    ):
        with pytest.raises(NotSupportedError, match="AVG of a DATE"):
            session.run(refused)
    ends = session.describe("SELECT quantile_disc(day, 0.5) AS q FROM visits", error_bars=True)
    assert [column.type for column in ends] == ["DATE", "DOUBLE", "DATE", "DATE", "BOOLEAN"]
    session.close()


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("DESCRIBE nothing", "there is no table 'nothing'"),
        ("SUMMARIZE SELECT 1", "SUMMARIZE of a query"),
        ("SELECT * FROM information_schema.views", "there is no table 'views'"),
        ("SELECT * FROM information_schema.tables, patients", "together with others"),
        ("SELECT unnest([1]) FROM information_schema.tables", "UNNEST"),
        ("DESCRIBE SELECT wrong FROM patients", "wrong"),
        ("SHOW nothing", "there is no setting"),
    ],
)
def test_what_cannot_be_described_is_refused(session: Session, asked: str, words: str) -> None:
    with pytest.raises((ProgrammingError, NotSupportedError), match=words):
        session.run(asked)


def test_a_schema_that_multiplies_is_cut(session: Session) -> None:
    c = "information_schema.columns"
    small = Session(session.release.path, limits=Limits(rows=100))
    with pytest.raises(NotSupportedError, match="larger than 100 rows"):
        small.run(f"SELECT a.table_name FROM {c} a, {c} b, {c} d")
    small.close()


def test_nothing_hidden_is_described(session: Session) -> None:
    """Neither tables of ours nor columns that explain rows."""
    for asked in (
        "SELECT table_name, column_name FROM information_schema.columns",
        "SELECT table_schema, table_name FROM information_schema.tables",
        "SHOW ALL TABLES",
        "DESCRIBE patients",
        "SUMMARIZE patients",
    ):
        assert "privsql" not in str(session.run(asked).table.to_pylist())
