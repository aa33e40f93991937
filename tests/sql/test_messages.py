"""Where an error points, what it suggests, and which kind of refusal it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import privsql
from privsql.policy.limits import Limits
from privsql.session.session import Session
from tests.sql.clinic import publish


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish(tmp_path_factory.mktemp("messages"), 0.5)


@pytest.fixture(scope="module")
def session(release: Path) -> Iterator[Session]:
    tables = {
        "places": pa.table({"job": ["eng", "law"], "floor": [1, 2]}),
        "twice": pa.table({"job": ["eng", "eng"], "floor": [1, 2]}),
    }
    made = Session(release, tables=tables)
    yield made
    made.close()


def refused(session: Session, sql: str) -> privsql.Error:
    with pytest.raises(privsql.Error) as caught:
        session.run(sql)
    return caught.value


COUNT = "SELECT gender, COUNT(*) AS n FROM patients p"


@pytest.mark.parametrize(
    ("sql", "meant"),
    [
        # A join's refusal points at the join, not at the select list.
        (f"{COUNT}, places WHERE disease = 'flu' GROUP BY gender", "places"),
        (f"{COUNT}, places q WHERE p.job < q.job AND disease = 'flu' GROUP BY gender", "places"),
        (f"{COUNT} JOIN twice USING (job) WHERE disease = 'flu' GROUP BY gender", "twice"),
        (f"{COUNT} FULL JOIN places USING (job) GROUP BY gender", "places USING (job"),
        (f"{COUNT} JOIN places q ON p.job > q.job GROUP BY gender", "places q ON p.job > q.job"),
        ("SELECT COUNT(*) FROM patients p JOIN patients q ON p.job = q.job WHERE p.disease = 'flu'",
         "patients q ON p.job = q.job"),
        # A missing name is named where it is written.
        (f"{COUNT} WHERE EXISTS (SELECT 1 FROM places q WHERE q.wrong = p.job) GROUP BY 1",
         "q.wrong"),
        (f"{COUNT} WHERE EXISTS (SELECT 1 FROM places q WHERE q.job = p.wrong) GROUP BY 1",
         "p.wrong"),
        (f"SELECT 'wrong' AS wrong_too, {COUNT[7:]} WHERE wrong = 3 GROUP BY 1, 2", "wrong"),
    ],
)  # fmt: skip
def test_an_error_points_at_what_is_meant(session: Session, sql: str, meant: str) -> None:
    problem = refused(session, sql)
    assert problem.place is not None
    assert problem.place.text[problem.place.start : problem.place.stop] == meant, str(problem)
    assert problem.place.start == sql.rindex(meant)


def test_a_missing_name_of_a_sub_query_is_named(session: Session) -> None:
    problem = refused(
        session, f"{COUNT} WHERE EXISTS (SELECT 1 FROM places q WHERE q.wrong = p.job) GROUP BY 1"
    )
    assert problem.code == "unknown-name"
    assert problem.reason == 'Table "q" does not have a column named "wrong"'


@pytest.mark.parametrize(
    ("sql", "word", "suggested"),
    [
        ("selct 1", "selct", "SELECT"),
        ("(slect 1)", "slect", "SELECT"),
        ("wiht x AS (SELECT 1) SELECT * FROM x", "wiht", "WITH"),
        ("describ patients", "describ", "DESCRIBE"),
        ("SELECT COUNT(*) FORM patients", "FORM", "FROM"),
        ("SELECT COUNT(*) FROM patients WHER job = 'eng'", "WHER", "WHERE"),
        ("SELECT COUNT(*) FROM patients GRUOP BY job", "GRUOP", "GROUP"),
        ("SELECT job FROM patients ORDERBY job", "ORDERBY", "ORDER BY"),
        ("SELECT job FROM patients x LIMT 3", "LIMT", "LIMIT"),
        ("WITH x AS (selct 1) SELECT * FROM x", "selct", "SELECT"),
    ],
)
def test_a_misspelt_word_is_pointed_at(
    session: Session, sql: str, word: str, suggested: str
) -> None:
    problem = refused(session, sql)
    assert problem.code == "syntax"
    assert problem.hint == f"did you mean {suggested}?"
    assert problem.place is not None
    assert problem.place.text[problem.place.start : problem.place.stop] == word


@pytest.mark.parametrize("sql", ["frobnicate 1", "SELECT 1 FROM orders x 3", "SELECT a b c"])
def test_names_are_not_taken_for_misspelt_words(session: Session, sql: str) -> None:
    hint = refused(session, sql).hint
    assert hint is not None
    assert "did you mean" not in hint


def test_a_limit_is_suggested_where_there_is_none(release: Path) -> None:
    small = Session(release, limits=Limits(rows=20))
    asked = "SELECT cost, COUNT(*) AS n FROM patients WHERE disease = 'flu' GROUP BY cost"
    hints = [refused(small, asked + end).hint for end in ("", " LIMIT 10")]
    small.close()
    assert hints[0] == "group by fewer or coarser values, or add a LIMIT"
    assert hints[1] == "group by fewer or coarser values"


@pytest.mark.parametrize(
    ("sql", "code", "state"),
    [
        ("SELECT * FROM patients", "rows", "42501"),
        ("SELECT STRING_AGG(disease) FROM patients", "not-estimable", "0A000"),
        ("SELECT ENTROPY(disease) FROM patients", "not-estimable", "0A000"),
        ("CREATE TABLE x AS SELECT 1", "unsupported", "0A000"),
    ],
)
def test_kinds_of_refusals_have_codes_of_their_own(
    session: Session, sql: str, code: str, state: str
) -> None:
    problem = refused(session, sql)
    assert (problem.code, problem.sqlstate) == (code, state)
