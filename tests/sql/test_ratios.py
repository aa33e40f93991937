"""Where a denominator cannot be distinguished from zero there is no ratio, in any form of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import privsql
from privsql.answer.outcome import Outcome
from privsql.session.session import Session
from tests.oracle.releases import releases
from tests.specs import grid, measure, public, sensitive, spec
from tests.sql import clinic, yearly

NOTHING = {"stderr": None, "low": None, "high": None, "reliable": False}
# Twelve rows or so of 4,000, and their count is not above its own error.
FEW = "FROM patients WHERE disease = 'hiv' AND age > 78 AND cost > 100"


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    opened = Session(clinic.publish(tmp_path_factory.mktemp("ratios"), 0.5))
    yield opened
    opened.close()


def only(outcome: Outcome, i: int = 0) -> tuple[Any, dict[str, Any]]:
    (value,), (bars,) = outcome.table.column(i).to_pylist(), outcome.bars[i].to_pylist()
    return value, bars


def codes(outcome: Outcome) -> list[str]:
    return [notice.code for notice in outcome.notices]


@pytest.mark.parametrize("estimator", ["inversion", "iterative"])
@pytest.mark.parametrize(
    "ratio",
    [
        "AVG(cost)",
        "AVG(age)",
        "STDDEV(cost)",
        "VAR_POP(cost)",
        "COVAR_SAMP(cost, age)",
        "CORR(cost, age)",
        "SUM(cost) / COUNT(*)",
        "SUM(cost) / NULLIF(COUNT(*), 0)",
        "100.0 * SUM(cost) / COUNT(*)",
        "ROUND(100.0 * SUM(cost) / COUNT(*), 2)",
        "CAST(SUM(cost) AS DOUBLE) / CAST(COUNT(*) AS DOUBLE)",
        "SUM(cost) / CAST(COUNT(*) AS INTEGER)",
        "SUM(cost) // COUNT(*)",
        "CASE WHEN COUNT(*) > -1e9 THEN SUM(cost) / COUNT(*) END",
        "1 - SUM(cost) / (2 * COUNT(*) - 3)",
        "3 / (SUM(cost) / COUNT(*))",
    ],
)
def test_a_ratio_over_few_rows_is_null_and_says_so(
    session: Session, ratio: str, estimator: str
) -> None:
    outcome = session.run(f"SELECT {ratio} AS x {FEW}", estimator=estimator)
    assert only(outcome) == (None, NOTHING)
    (said,) = [notice.text for notice in outcome.notices if notice.code == "ratio"]
    assert said.startswith(
        "1 value of 'x' is NULL: the denominator cannot be distinguished from zero"
    )


def test_both_parts_are_there_on_their_own(session: Session) -> None:
    """The notice says how to get on."""
    outcome = session.run(f"SELECT SUM(cost), COUNT(*) {FEW}")
    for i in (0, 1):
        value, bars = only(outcome, i)
        assert value is not None
        assert bars["stderr"] > 0
    low, high = bars["low"], bars["high"]
    assert low < 0 < high


@pytest.mark.parametrize(
    "text",
    [
        "SELECT SUM(cost) / COUNT(*) AS x {few} HAVING SUM(cost) / COUNT(*) IS NULL",
        "SELECT x FROM (SELECT SUM(cost) / COUNT(*) AS x {few}) WHERE x IS NULL",
        "SELECT s / n AS x FROM (SELECT SUM(cost) AS s, COUNT(*) AS n {few}) WHERE s / n IS NULL",
        "WITH g AS (SELECT SUM(cost) AS s, COUNT(*) AS n {few}) SELECT 2 * s / n AS x FROM g"
        " ORDER BY s / n",
        "SELECT SUM(s) / SUM(n) AS x FROM (SELECT job, SUM(cost) AS s, COUNT(*) AS n {few}"
        " GROUP BY job)",
        "SELECT COUNT(*) / (SELECT COUNT(*) {few}) AS x FROM patients WHERE disease = 'flu'",
        "SELECT a.n / b.n AS x FROM (SELECT COUNT(*) AS n FROM patients WHERE age > 40) AS a,"
        " (SELECT COUNT(*) AS n {few}) AS b",
        "WITH g AS (SELECT COUNT(*) AS n {few}) SELECT a.n / b.n AS x FROM g AS a, g AS b",
    ],
)
def test_conditions_orders_and_queries_around_see_null_too(session: Session, text: str) -> None:
    outcome = session.run(text.format(few=FEW))
    assert outcome.table.column("x").to_pylist() == [None]
    assert "ratio" in codes(outcome)


def test_a_window_as_denominator(session: Session) -> None:
    groups = f"SELECT gender, COUNT(*) AS n {FEW} GROUP BY gender"
    for x in ("n / LAG(n) OVER (ORDER BY gender)", "n / SUM(n) OVER ()"):
        outcome = session.run(f"SELECT {x} AS x FROM ({groups})")
        assert outcome.table.column("x").to_pylist() == [None, None]
        assert "ratio" in codes(outcome)


@pytest.mark.parametrize(
    "ratio",
    [
        "AVG(cost)",
        "AVG(age)",
        "SUM(age) / COUNT(*)",
        "COUNT(*) FILTER (WHERE disease = 'flu') / COUNT(*)",
        "COUNT(*) FILTER (WHERE disease = 'flu') / 3",
        "COUNT(*) / COUNT(*) FILTER (WHERE age >= 0)",
    ],
)
def test_a_denominator_that_is_known_is_never_touched(session: Session, ratio: str) -> None:
    """Eight people or so, counted exactly."""
    outcome = session.run(
        f"SELECT {ratio} AS x, COUNT(*) AS n FROM patients WHERE cost = 12 AND job = 'eng'"
    )
    assert 0 < outcome.table.column("n").to_pylist()[0] < 20
    assert outcome.table.column("x").to_pylist() != [None]
    assert "ratio" not in codes(outcome)


def test_nothing_is_touched_where_nothing_was_replaced(tmp_path: Path) -> None:
    session = Session(clinic.publish(tmp_path, 1.0))
    queries = [
        f"SELECT AVG(cost), STDDEV(cost), SUM(cost) / COUNT(*), SUM(cost) // COUNT(*) {FEW}",
        "SELECT job, gender, COUNT(*) / SUM(COUNT(*)) OVER () FROM patients WHERE disease = 'hiv'"
        " GROUP BY 1, 2 ORDER BY 1, 2",
        "SELECT COUNT(*) FILTER (WHERE disease = 'flu') / COUNT(*) FROM patients"
        " WHERE disease = 'hiv' AND age > 1000",
    ]
    with clinic.raw() as con:
        for text in queries:
            found = [tuple(row.values()) for row in session.run(text).table.to_pylist()]
            for mine, theirs in zip(found, con.execute(text).fetchall(), strict=True):
                for one, two in zip(mine, theirs, strict=True):
                    if isinstance(two, float):
                        assert one == pytest.approx(two, nan_ok=True)
                    else:
                        assert one == two
    session.close()


def test_sums_of_weights_divide_as_they_always_did(tmp_path: Path) -> None:
    """A sample's count of public rows is a sum of weights: few rows, but never about zero."""
    path = releases(tmp_path, "sps", 1).paths[0]
    session = Session(path)
    text = "FROM clinic WHERE job = 'doc' AND cost > 200"
    outcome = session.run(f"SELECT AVG(cost) AS a, SUM(cost) / COUNT(*) AS b {text}")
    a, b = outcome.table.column("a").to_pylist()[0], outcome.table.column("b").to_pylist()[0]
    assert a == pytest.approx(b)
    assert "ratio" not in codes(outcome)
    session.close()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("SUM(CASE WHEN disease = 'flu' THEN 1 ELSE 0 END) * 1.0 / COUNT(*) {flu}", 1),
        ("COUNT(*) FILTER (WHERE disease = 'flu') / COUNT(*) {flu}", 1),
        ("COUNT(*) FILTER (WHERE disease IN ('flu', 'hiv', 'none')) / COUNT(disease) {old}", 1),
        ("COUNT(*) FILTER (WHERE disease = 'hiv') / COUNT(*) {flu}", 0),
        ("COUNT(*) FILTER (WHERE age > 500) / COUNT(*) {flu}", 0),
        ("100 * (1 - COUNT(*) / COUNT(*)) {flu}", 0),
        ("AVG(1) {flu}", 1),
        ("AVG((disease = 'flu')::INT) {flu}", 1),
        ("AVG(CASE WHEN age > 40 THEN 3 END) {flu}", 3),
        ("COUNT(*) - COUNT(*) {flu}", 0),
    ],
)
@pytest.mark.parametrize("estimator", ["inversion", "iterative"])
def test_what_is_certain_by_logic_has_a_bar_of_zero(
    session: Session, text: str, value: float, estimator: str
) -> None:
    places = {"flu": "FROM patients WHERE disease = 'flu'", "old": "FROM patients WHERE age > 40"}
    outcome = session.run(f"SELECT {text.format(**places)}", estimator=estimator)
    found, bars = only(outcome)
    assert found == pytest.approx(value, abs=1e-12)
    assert bars == {"stderr": 0.0, "low": found, "high": found, "reliable": True}
    assert "no-error" not in codes(outcome)


# --- the two cases of the issue, on a small table ----------------------------------------------

SPEC = spec(
    "people",
    public("rep"),
    sensitive("visits", 0.3, grid(0, 60)),
    sensitive("disease", 0.3, ["flu", "hiv", "cold", "none"]),
    sensitive("smoker", 0.3, ["yes", "no"]),
    measure("cost"),
    more="""
[groups]
merge = "none"
[policy]
personal_groups = "allow"
min_rows = 0
""",
)


def test_no_average_is_far_outside_its_domain(tmp_path: Path) -> None:
    """Of 200 releases the old answers were -236 on a domain of 0..60, and such."""
    rng = np.random.default_rng(2)
    rows, copies = 120, 200
    many = rows * copies
    table = pa.table(
        {
            "rep": np.repeat(np.arange(copies), rows),
            "visits": rng.integers(0, 61, many),
            "disease": rng.choice(["flu", "hiv", "cold", "none"], many, p=[0.3, 0.05, 0.3, 0.35]),
            "smoker": rng.choice(["yes", "no"], many, p=[0.7, 0.3]),
            "cost": rng.integers(700, 950, many),
        }
    )
    pq.write_table(table, tmp_path / "people.parquet")
    (tmp_path / "people.toml").write_text(SPEC)
    out = tmp_path / "people.duckdb"
    privsql.publish(str(tmp_path / "people.parquet"), out, spec=tmp_path / "people.toml", seed=4)
    session = Session(out)
    outcome = session.run(
        "SELECT rep, AVG(visits) AS v, AVG(cost) AS c FROM people"
        " WHERE disease = 'hiv' AND smoker = 'no' GROUP BY rep"
    )
    shown = 0
    for i, (low, high) in ((1, (0, 60)), (2, (700, 950))):
        for value, bars in zip(
            outcome.table.column(i).to_pylist(), outcome.bars[i].to_pylist(), strict=True
        ):
            shown += value is not None
            assert value is None or not bars["reliable"] or low <= value <= high
            assert (value is None) <= (bars["reliable"] is False)
    assert shown < 0.2 * 2 * copies  # six people of 120 or fewer, at retention .3
    session.close()


# --- by simulation -----------------------------------------------------------------------------

COPIES = 400
RATIOS = {
    "average": "AVG(cost) AS x FROM visits WHERE disease = 'hiv' AND NOT smoker",
    "average of few": "AVG(cost) AS x FROM visits WHERE disease = 'hiv' AND smoker",
    "share": "COUNT(*) FILTER (WHERE smoker) / COUNT(*) AS x FROM visits WHERE disease = 'hiv'",
    "own": "1 + SUM(cost) / NULLIF(COUNT(*), 0) AS x FROM visits WHERE disease = 'flu' AND smoker",
    "risk ratio": "(COUNT(*) FILTER (WHERE smoker AND disease = 'flu') / COUNT(*) FILTER (WHERE"
    " disease = 'flu')) / (COUNT(*) FILTER (WHERE smoker AND disease = 'hiv') / COUNT(*)"
    " FILTER (WHERE disease = 'hiv')) AS x FROM visits",
}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Session, pa.Table]]:
    """Sizes of one table, hundreds of releases of each."""
    made = []
    for rows in (60, 150, 400, 1000):
        path, raw = yearly.publish(tmp_path_factory.mktemp(f"small{rows}"), COPIES, rows)
        made.append((Session(path), raw))
    return made


@pytest.mark.parametrize("estimator", ["inversion", "iterative"])
def test_what_is_called_reliable_holds_the_truth(
    small: list[tuple[Session, pa.Table]], estimator: str
) -> None:
    """All ratios of all small groups together: called 95%, they cover 95%.

    A wrong ratio that is called reliable is rarer than one question in twenty of any kind.
    """
    held, many = 0, 0
    for session, raw in small:
        with duckdb.connect() as con:
            con.register("visits", raw)
            for text in RATIOS.values():
                for keys in ("", "year, "):
                    around = f" GROUP BY {keys.removesuffix(', ')}" if keys else ""
                    truth = {
                        row[:-1]: row[-1]
                        for row in con.execute(f"SELECT {keys}{text}{around}").fetchall()
                    }
                    outcome = session.run(
                        f"SELECT rep, {keys}{text} GROUP BY {keys}rep", estimator=estimator
                    )
                    wrong, asked = 0, outcome.table.num_rows
                    i = len(outcome.columns) - 1
                    rows = outcome.table.to_pylist()
                    for row, bars in zip(rows, outcome.bars[i].to_pylist(), strict=True):
                        value = row["x"]
                        if value is None or not bars["reliable"]:
                            continue
                        true = truth.get(tuple(row[k] for k in list(row)[1:-1]))
                        inside = (
                            true is not None
                            and math.isfinite(true)
                            and bars["low"] <= true <= bars["high"]
                        )
                        held, many, wrong = held + inside, many + 1, wrong + (not inside)
                    assert wrong <= 0.05 * asked + 3.3 * math.sqrt(0.05 * 0.95 * asked)
    assert many > 2000
    assert held / many >= 0.95 - 3.3 * math.sqrt(0.05 * 0.95 / many)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 100.0 / {count} AS q FROM patients WHERE job = 'eng' AND cost = 42",
        "SELECT 100.0 / n AS q FROM (SELECT {count} AS n FROM patients"
        " WHERE job = 'eng' AND cost = 42) AS t",
    ],
)
def test_few_effective_rows_are_no_denominator_though_their_interval_is_away_from_zero(
    session: Session, text: str
) -> None:
    """A score interval holds its level at any number of rows; a quotient does not."""
    count = "COUNT(*) FILTER (WHERE disease <> 'hiv')"
    found = session.run(f"SELECT {count} FROM patients WHERE job = 'eng' AND cost = 42")
    value, bars = only(found)
    assert bars["reliable"]
    assert 0 < bars["low"] < value < 20
    outcome = session.run(text.format(count=count))
    assert only(outcome) == (None, NOTHING)
    assert "ratio" in codes(outcome)


def test_an_exact_column_beside_an_estimate_in_a_denominator(session: Session) -> None:
    inner = (
        "SELECT job, COUNT(*) FILTER (WHERE disease = 'flu') AS n, MIN(cost) AS c"
        " FROM patients GROUP BY job"
    )
    known = {row["job"]: row for row in session.run(inner).table.to_pylist()}
    outcome = session.run(f"SELECT job, 100.0 / (n + c) AS q FROM ({inner}) AS t")
    found = {row["job"]: row["q"] for row in outcome.table.to_pylist()}
    assert found == pytest.approx(
        {job: 100.0 / (row["n"] + row["c"]) for job, row in known.items()}
    )
