"""Sums over the rows of an answer have the error of the same sum asked for directly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from privsql.session.session import Session
from tests.sql.clinic import publish


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    opened = Session(publish(tmp_path_factory.mktemp("totals"), 0.5))
    yield opened
    opened.close()


def estimates(session: Session, text: str, column: str) -> list[tuple[float, float]]:
    """The value and the standard error of a column, row by row."""
    outcome = session.run(text)
    i = [c.name for c in outcome.columns].index(column)
    values = outcome.table.column(i).to_pylist()
    errors = outcome.bars[i].column("stderr").to_pylist()
    return list(zip(values, errors, strict=True))


WHOLE = "SELECT COUNT(*) AS n FROM patients WHERE disease = 'hiv' AND age > 40"
BY_JOB = "SELECT job, COUNT(*) AS n FROM patients WHERE disease = 'hiv' AND age > 40 GROUP BY job"


@pytest.mark.parametrize(
    ("text", "column"),
    [
        (f"SELECT SUM(n) AS s FROM ({BY_JOB})", "s"),
        (f"SELECT n, SUM(n) OVER () AS s FROM ({BY_JOB})", "s"),
        (BY_JOB.replace("AS n", "AS n, SUM(COUNT(*)) OVER () AS s"), "s"),
        (f"WITH g AS ({BY_JOB}) SELECT 3 * AVG(n) AS s FROM g", "s"),
        (f"WITH g AS ({BY_JOB}) SELECT AVG(n) AS s FROM g", "s"),
        (
            "SELECT SUM(COUNT(*)) OVER () AS s FROM patients WHERE age > 40 AND disease = 'hiv'"
            " GROUP BY job, gender",
            "s",
        ),
    ],
)
def test_totals_over_public_rows(session: Session, text: str, column: str) -> None:
    ((value, error),) = estimates(session, WHOLE, "n")
    scale = 3 if "AVG" in text and "3 *" not in text else 1
    for found, spread in estimates(session, text, column):
        assert found * scale == pytest.approx(value)
        if "3 *" in text:
            assert spread is None  # arithmetic over an aggregate of answers has no error yet
        else:
            assert spread * scale == pytest.approx(error)


def test_totals_over_sensitive_cells_know_their_covariances(session: Session) -> None:
    text = (
        "SELECT disease, SUM(COUNT(*)) OVER () AS s FROM patients WHERE age > 40 GROUP BY disease"
    )
    ((value, error),) = estimates(session, "SELECT COUNT(*) AS n FROM patients WHERE age > 40", "n")
    for found, spread in estimates(session, text, "s"):
        assert found == pytest.approx(value)
        assert spread == pytest.approx(error)


def test_a_share_of_all_rows_has_the_error_of_its_count(session: Session) -> None:
    counts = estimates(session, "SELECT disease, COUNT(*) AS n FROM patients GROUP BY 1", "n")
    text = "SELECT disease, COUNT(*) / SUM(COUNT(*)) OVER () AS s FROM patients GROUP BY 1"
    for (n, error), (share, spread) in zip(counts, estimates(session, text, "s"), strict=True):
        assert share == pytest.approx(n / 4000)
        assert spread == pytest.approx(error / 4000)


def test_rollup_rows_have_the_error_of_their_own_question(session: Session) -> None:
    text = (
        "SELECT job, gender, COUNT(*) AS n FROM patients WHERE disease = 'hiv'"
        " GROUP BY ROLLUP (job, gender)"
    )
    outcome = session.run(text)
    rows: list[dict[str, Any]] = outcome.table.to_pylist()
    at = next(i for i, r in enumerate(rows) if r["job"] is None)
    ((value, error),) = estimates(
        session, "SELECT COUNT(*) AS n FROM patients WHERE disease = 'hiv'", "n"
    )
    assert rows[at]["n"] == pytest.approx(value)
    assert outcome.bars[2].column("stderr").to_pylist()[at] == pytest.approx(error)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT MAX(n) AS s FROM ({0})",
        "SELECT a.n / b.n AS s FROM ({0}) AS a JOIN ({0}) AS b USING (job)",
        "SELECT n * (SELECT COUNT(*) FROM patients WHERE disease = 'flu') AS s FROM ({0})",
        "SELECT SUM(n) OVER (ORDER BY n) AS s FROM ({0})",
    ],
)
def test_what_has_no_covariance_has_no_error_and_says_so(session: Session, text: str) -> None:
    outcome = session.run(text.format(BY_JOB))
    i = [c.name for c in outcome.columns].index("s")
    assert set(outcome.bars[i].column("stderr").to_pylist()) == {None}
    assert "no-error" in [notice.code for notice in outcome.notices]
