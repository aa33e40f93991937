"""The session on a real release: settings, parameters, error bars, notices, errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import privsql
from privsql.errors import (
    Error,
    InterfaceError,
    NotSupportedError,
    ProgrammingError,
    TooLargeError,
)
from privsql.session.session import Session
from tests.sql.clinic import publish, raw

FLU = "SELECT COUNT(*) AS n FROM patients WHERE disease = 'flu'"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("session")


@pytest.fixture(scope="module")
def release(folder: Path) -> Path:
    return publish(folder, 0.5)


@pytest.fixture(scope="module")
def truth() -> Iterator[duckdb.DuckDBPyConnection]:
    with raw() as connection:
        yield connection


@pytest.fixture(scope="module")
def _opened(release: Path) -> Iterator[Session]:
    places = pa.table({"job": ["eng", "law", "med"], "floor": [1, 2, 3]})
    kinds = pa.table({"name": ["flu", "hiv"], "viral": [True, True]})
    twice = pa.table({"job": ["eng", "eng"], "floor": [1, 2]})
    session = Session(release, tables={"places": places, "kinds": kinds, "twice": twice})
    yield session
    session.close()


@pytest.fixture
def session(_opened: Session) -> Session:
    for name in ("estimator", "confidence_level", "error_bars", "simultaneous"):
        _opened.run(f"RESET privsql.{name}")
    return _opened


def row(session: Session, sql: str, *given: Any, **options: Any) -> dict[str, Any]:
    outcome = session.run(sql, *given, **options)
    rows: list[dict[str, Any]] = outcome.table.to_pylist()
    assert len(rows) == 1
    for i, bars in outcome.bars.items():
        name = outcome.columns[i].name
        rows[0] |= {f"{name}_{k}": v for k, v in bars.to_pylist()[0].items()}
    return rows[0]


def test_an_estimate_carries_its_error(session: Session, truth: duckdb.DuckDBPyConnection) -> None:
    (exact,) = truth.execute(FLU).fetchone() or ()
    found = row(session, FLU)
    assert abs(found["n"] - exact) < 5 * found["n_stderr"]
    assert found["n_low"] < found["n"] < found["n_high"]
    assert found["n_reliable"]
    outcome = session.run(FLU)
    assert (outcome.estimator, outcome.columns[0].type) == ("inversion", "DOUBLE")


def test_an_exact_answer_keeps_its_type_and_has_no_bars(session: Session) -> None:
    outcome = session.run("SELECT COUNT(*) AS n, SUM(cost) AS s FROM patients WHERE job = 'eng'")
    assert [c.type for c in outcome.columns] == ["BIGINT", "HUGEINT"]
    assert (outcome.bars, outcome.estimator) == ({}, "exact")


def test_a_higher_level_is_wider(session: Session) -> None:
    usual = row(session, FLU)
    session.run("SET privsql.confidence_level = 0.99")
    wider = row(session, FLU)
    assert wider["n"] == usual["n"]
    assert wider["n_low"] < usual["n_low"] < usual["n_high"] < wider["n_high"]
    assert session.run("SHOW privsql.confidence_level").table.to_pylist() == [
        {"confidence_level": "0.99"}
    ]


def test_options_of_one_query_change_no_setting(session: Session) -> None:
    text = FLU.replace("SELECT", "SELECT WITH RECONSTRUCTION OPTIONS (estimator = 'iterative')")
    assert session.run(text).estimator == "iterative"
    assert session.run(FLU).estimator == "inversion"


def test_simultaneous_intervals_are_wider(session: Session) -> None:
    asked = "SELECT job, COUNT(*) AS n FROM patients WHERE disease = 'flu' GROUP BY job"
    alone = session.run(asked).bars[1].to_pylist()
    together = session.run(asked, simultaneous=True).bars[1].to_pylist()
    assert all(t["low"] < a["low"] for a, t in zip(alone, together, strict=True))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("SET privsql.estimator = 'guess'", "programming"),
        ("SET privsql.confidence_level = 1", "programming"),
        ("SET privsql.error_bars = 3", "programming"),
        ("SET privsql.colour = 'red'", "programming"),
        ("SET threads = 4", "programming"),
        ("SHOW privsql.colour", "programming"),
    ],
)
def test_wrong_settings_are_refused(session: Session, text: str, code: str) -> None:
    before = session.settings
    with pytest.raises(ProgrammingError) as problem:
        session.run(text)
    assert problem.value.code == code
    assert session.settings == before


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("SELECT COUNT(*) AS n FROM patients WHERE job = ? AND disease = ?", ["eng", "flu"]),
        ("SELECT COUNT(*) AS n FROM patients WHERE disease = $2 AND job = $1", ["eng", "flu"]),
        (
            "SELECT COUNT(*) AS n FROM patients WHERE disease = $d AND job = $j",
            {"j": "eng", "d": "flu"},
        ),
        (
            "SELECT COUNT(*) AS n FROM patients WHERE disease = :d AND job = :j",
            {"j": "eng", "d": "flu"},
        ),
    ],
)
def test_parameters_are_bound(session: Session, text: str, given: Any) -> None:
    plain = "SELECT COUNT(*) AS n FROM patients WHERE job = 'eng' AND disease = 'flu'"
    assert row(session, text, given)["n"] == row(session, plain)["n"]


@pytest.mark.parametrize("given", [None, ["eng"], ["eng", "flu", 1], {"j": "eng"}])
def test_missing_and_left_over_parameters_are_refused(session: Session, given: Any) -> None:
    with pytest.raises(ProgrammingError):
        session.run("SELECT COUNT(*) FROM patients WHERE job = ? AND disease = ?", given)


def test_a_parameter_is_never_read_as_sql(session: Session) -> None:
    text = "SELECT COUNT(*) AS n FROM patients WHERE job = ?"
    assert row(session, text, ["eng' OR '1' = '1"]) == {"n": 0}


def test_our_functions_stand_anywhere(session: Session) -> None:
    text = (
        "SELECT disease, COUNT(*) AS n, privsql_stderr(n) AS s, privsql_observed(n) AS seen"
        " FROM patients GROUP BY disease HAVING n > 2 * privsql_stderr(n) ORDER BY n DESC"
    )
    outcome = session.run(text)
    rows = outcome.table.to_pylist()
    bars = outcome.bars[1].to_pylist()
    assert [r["s"] for r in rows] == [b["stderr"] for b in bars]
    assert all(r["n"] > 2 * r["s"] for r in rows)
    assert all(r["seen"] == int(r["seen"]) for r in rows)


def test_joins_with_public_tables(session: Session, truth: duckdb.DuckDBPyConnection) -> None:
    by_public = "SELECT SUM(floor) AS s FROM patients JOIN places USING (job) WHERE disease = 'flu'"
    assert row(session, by_public)["s"] > 0
    by_sensitive = (
        "SELECT COUNT(*) AS n FROM patients JOIN kinds ON disease = kinds.name WHERE viral"
    )
    listed = "SELECT COUNT(*) AS n FROM patients WHERE disease IN ('flu', 'hiv')"
    assert row(session, by_sensitive)["n"] == pytest.approx(row(session, listed)["n"])
    with pytest.raises(NotSupportedError) as problem:
        session.run("SELECT COUNT(*) FROM patients JOIN twice USING (job) WHERE disease = 'flu'")
    assert problem.value.code == "fan-out"


def test_estimates_below_zero_are_shown_and_said(session: Session) -> None:
    text = "SELECT age, COUNT(*) AS n FROM patients GROUP BY age"
    outcome = session.run(text)
    assert min(outcome.table.column("n").to_pylist()) < 0
    assert "out-of-range" in [notice.code for notice in outcome.notices]
    iterative = session.run(text, estimator="iterative")
    assert min(iterative.table.column("n").to_pylist()) >= 0


def test_a_large_grid_is_compared_by_stretches(
    session: Session, truth: duckdb.DuckDBPyConnection
) -> None:
    text = "SELECT COUNT(*) AS n FROM patients WHERE seen < TIMESTAMP '2024-07-01'"
    (exact,) = truth.execute(text).fetchone() or ()
    found = row(session, text)
    assert abs(found["n"] - exact) < 5 * found["n_stderr"]
    with pytest.raises(TooLargeError):
        session.run("SELECT COUNT(*) FROM patients WHERE month(seen) = 3")


def test_errors_point_at_their_place(session: Session) -> None:
    with pytest.raises(Error) as problem:
        session.run("SELECT job,\n  MAX(age) FROM patients GROUP BY job")
    text = str(problem.value)
    assert "LINE 2:   MAX(age) FROM patients GROUP BY job" in text
    assert "^" in text
    assert "HINT: " in text


def test_one_statement_at_a_time(session: Session) -> None:
    for text in ("", ";", "SELECT 1; SELECT 2"):
        with pytest.raises(ProgrammingError):
            session.run(text)
    assert session.statements("SELECT 1; SELECT ';' -- ;") == ["SELECT 1", "SELECT ';'"]


def test_a_closed_session_says_so(release: Path) -> None:
    closed = Session(release)
    closed.close()
    with pytest.raises(InterfaceError):
        closed.run(FLU)


def test_publishing_again_while_a_session_is_open(folder: Path) -> None:
    own = folder / "again"
    own.mkdir()
    first = publish(own, 0.5, seed=1)
    session = Session(first)
    before = row(session, FLU)["n"]
    spec, source = own / "clinic.toml", own / "patients.parquet"
    privsql.publish(str(source), str(first), spec=str(spec), seed=2, force=True)
    assert row(session, FLU)["n"] == before
    later = Session(first)
    assert row(later, FLU)["n"] != before
    session.close()
    later.close()


@pytest.mark.parametrize("quotient", ["cost / age", "100 / age", "1 + 100 / age"])
def test_a_divisor_that_may_be_zero_poisons_no_sum(
    session: Session, truth: duckdb.DuckDBPyConnection, quotient: str
) -> None:
    text = f"SELECT SUM({quotient}) AS s FROM patients WHERE disease = 'flu'"
    (exact,) = truth.execute(text).fetchone() or ()
    found = row(session, text)
    assert abs(found["s"] - exact) < 5 * found["s_stderr"]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM patients LIMIT 0",
        "SELECT * FROM patients WHERE 1 = 0",
        "SELECT * FROM (SELECT * FROM patients) AS t WHERE FALSE AND age > 3",
        "SELECT disease, age FROM patients LIMIT 0",
    ],
)
def test_a_probe_has_columns_and_no_rows(session, text):
    outcome = session.run(text)
    assert outcome.table.num_rows == 0
    assert {column.name for column in outcome.columns} >= {"disease", "age"}
    assert not [column for column in outcome.columns if column.name.startswith("privsql")]
    kinds = {column.name: column.type for column in outcome.columns}
    assert (kinds["disease"], kinds["age"]) == ("VARCHAR", "INTEGER")
    assert [column.name for column in session.describe(text)] == list(kinds)


@pytest.mark.parametrize("text", ["SELECT * FROM patients LIMIT 1", "SELECT * FROM patients"])
def test_rows_are_no_probe(session, text):
    with pytest.raises(NotSupportedError):
        session.run(text)


@pytest.mark.parametrize(
    ("text", "typed"),
    [
        ("seen < '2024-07-01 12:00:00'", "seen < TIMESTAMP '2024-07-01 12:00:00'"),
        ("'2024-07-01' <= seen", "seen >= TIMESTAMP '2024-07-01'"),
        (
            "seen BETWEEN '2024-03-01' AND '2024-04-01'",
            "seen BETWEEN TIMESTAMP '2024-03-01' AND TIMESTAMP '2024-04-01'",
        ),
    ],
)
def test_a_date_may_be_written_as_text(session, text, typed):
    found, expected = (
        session.run(f"SELECT COUNT(*) FROM patients WHERE {each}").table.column(0).to_pylist()
        for each in (text, typed)
    )
    assert found == expected


def test_a_text_that_is_no_date_says_so(session):
    with pytest.raises(Error) as problem:
        session.run("SELECT COUNT(*) FROM patients WHERE seen < 'someday'")
    assert problem.value.code in ("data", "programming")


def test_a_label_may_repeat_a_call_of_ours(session: Session) -> None:
    """BI tools label an expression by its own text."""
    found = row(
        session,
        'SELECT COUNT(*) AS n, privsql_low(n) AS "privsql_low(n)" FROM patients'
        " WHERE disease = 'flu'",
    )
    assert found["privsql_low(n)"] < found["n"]


def test_a_word_that_is_not_in_the_domain_is_told(session: Session) -> None:
    """Nobody has it, so the count is exactly 0; it may also be misspelt."""
    for condition in ("disease = 'Flu'", "'Flu' = disease", "disease IN ('flu', 'Flu')"):
        outcome = session.run(f"SELECT COUNT(*) AS n FROM patients WHERE {condition}")
        assert [notice.code for notice in outcome.notices] == ["not-in-domain"]
    for condition in ("disease = 'flu'", "job = 'Eng'", "disease <> 'Flu'"):
        outcome = session.run(f"SELECT COUNT(*) AS n FROM patients WHERE {condition}")
        assert not outcome.notices


def test_the_mirror_of_a_release_has_its_columns_and_none_of_its_rows(session: Session) -> None:
    found = session._mirror.run("SELECT * FROM patients")
    assert found.column_names[:2] == ["job", "gender"]
    assert found.num_rows == 0
