"""An aggregate says the same alone and beside any others: one estimate, one error, one interval."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import privsql
from privsql.session.session import Session
from privsql.sql.scan.forms import FORMS
from tests.sizes import sized

SPEC = """
[release]
table = "clinic"
[groups]
merge = "none"
[policy]
personal_groups = "allow"
min_rows = 0
[columns.job]
role = "public"
[columns.ill]
role = "sensitive"
{ill}
domain = ["flu", "hiv", "none", "cold"]
[columns.age]
role = "sensitive"
mechanism = "uniform"
retention = 0.5
domain = {{ lower = 18, upper = 90, step = 1 }}
[columns.smoker]
role = "sensitive"
mechanism = "uniform"
retention = 1
accept_epsilon = true
domain = [false, true]
"""
MECHANISMS = {
    "uniform": 'mechanism = "uniform"\nretention = 0.4',
    "replace": 'mechanism = "replace"\nretention = 0.4\nreplacing = [0.4, 0.1, 0.3, 0.2]',
    "identity": 'mechanism = "identity"\nretention = 0.4',
    "swap": 'mechanism = "swap"\nretention = 0.4',
    "decoy": 'mechanism = "decoy"\ngroup_size = 2',
    "finegrain": 'mechanism = "finegrain"\nfloor = 0.1\n'
    "rho = [[0.2, 0.6], [0.05, 0.3], [0.3, 0.8], [0.2, 0.5]]",
}


@pytest.fixture(scope="module", params=sized(("uniform", "swap", "decoy"), (*MECHANISMS,)))
def session(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder, rng, rows = tmp_path_factory.mktemp(request.param), np.random.default_rng(6), 900
    table = pa.table(
        {
            "job": np.array(["eng", "law"])[rng.integers(0, 2, rows)],
            "ill": np.array(["flu", "hiv", "none", "cold"])[rng.integers(0, 4, rows)],
            "age": rng.integers(18, 91, rows).astype(np.int32),
            "smoker": rng.random(rows) < 0.3,
        }
    )
    made = Session(published(folder, table, SPEC.format(ill=MECHANISMS[request.param])))
    yield made
    made.close()


def published(folder: Path, table: pa.Table, spec: str) -> Path:
    pq.write_table(table, folder / "raw.parquet")
    (folder / "spec.toml").write_text(spec)
    privsql.publish(
        str(folder / "raw.parquet"), folder / "out.duckdb", spec=folder / "spec.toml", seed=4
    )
    return folder / "out.duckdb"


def first(session: Session, sql: str) -> dict[str, Any]:
    outcome = session.run(sql)
    found = {"value": outcome.table.column(0).to_pylist()[0]}
    return {**found, **outcome.bars[0].to_pylist()[0]}


def close(one: dict[str, Any], two: dict[str, Any]) -> None:
    size = max(abs(one["value"]), one["stderr"] or 0.0)
    for name in one:
        if isinstance(one[name], float):
            assert two[name] == pytest.approx(one[name], abs=1e-9 * size), (name, one, two)
        else:
            assert two[name] == one[name], (name, one, two)


AGGREGATES = (
    "COUNT(*) FILTER (WHERE ill = 'flu')",
    "SUM(CASE WHEN ill = 'flu' THEN 1 ELSE 0 END)",
    "COUNT(*) FILTER (WHERE ill = 'flu' AND job = 'eng')",
    "COUNT(*) FILTER (WHERE age > 40)",
    "COUNT(*) FILTER (WHERE ill = 'hiv' AND age > 60)",
    "COUNT(*) FILTER (WHERE smoker)",
    "AVG(age)",
    "SUM(age) FILTER (WHERE ill <> 'none')",
    "MEDIAN(age)",
)
OTHERS = (
    "COUNT(*) FILTER (WHERE age BETWEEN 30 AND 50)",
    "COUNT(*) FILTER (WHERE ill IN ('flu', 'hiv'))",
    "COUNT(*) FILTER (WHERE smoker AND age > 50)",
    "COUNT(*) FILTER (WHERE ill = 'cold' OR age < 30)",
    "SUM(CASE WHEN ill = 'none' THEN 100 ELSE 7 END)",
)


@pytest.mark.parametrize("place", range(len(AGGREGATES)))
def test_what_stands_beside_changes_nothing(session: Session, place: int) -> None:
    aggregate = AGGREGATES[place]
    for where in sized(("",), ("", " WHERE job = 'law'")):
        alone = first(session, f"SELECT {aggregate} FROM clinic{where}")
        for other in sized((OTHERS[place % len(OTHERS)],), OTHERS):
            close(alone, first(session, f"SELECT {aggregate}, {other} FROM clinic{where}"))
        close(alone, first(session, f"SELECT {aggregate}, {', '.join(OTHERS)} FROM clinic{where}"))


SAME = (
    "COUNT(*) FILTER (WHERE {p})",
    "COUNT_IF({p})",
    "SUM(CASE WHEN {p} THEN 1 ELSE 0 END)",
    "SUM(IF({p}, 1, 0))",
    "SUM(({p})::INT)",
    "COUNT(CASE WHEN {p} THEN 1 END)",
)


@pytest.mark.parametrize("place", range(len(FORMS)))
@pytest.mark.parametrize("p", ["ill = 'flu'", "age > 60", "ill = 'flu' AND age > 60", "smoker"])
def test_one_count_has_one_interval_however_it_is_written(
    session: Session, p: str, place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "form", FORMS[place])
    alone = first(session, f"SELECT COUNT(*) FROM clinic WHERE {p}")
    for template in sized(SAME[(place + len(p)) % 3 :: 3], SAME):
        close(alone, first(session, f"SELECT {template.format(p=p)} FROM clinic"))


def test_a_column_that_was_not_perturbed_is_exact_beside_one_that_was(session: Session) -> None:
    found = first(
        session,
        "SELECT COUNT(*) FILTER (WHERE smoker), COUNT(*) FILTER (WHERE age > 40) FROM clinic",
    )
    value = found["value"]
    assert found == {"value": value, "stderr": 0.0, "low": value, "high": value, "reliable": True}


def test_a_grid_whose_masses_round_above_one_is_answered(session: Session) -> None:
    """73 values of mass 1/73 add up to more than 1, which failed as a user's mistake."""
    outcome = session.run(
        "SELECT COUNT(age), AVG(age), COUNT(*) FILTER (WHERE age > 0 OR age IS NULL) FROM clinic"
    )
    count, average, everyone = outcome.table.to_pylist()[0].values()
    assert (count, everyone) == (900, 900)
    assert 40 < average < 70


def test_beside_a_comparison_with_a_public_column(session: Session) -> None:
    """Rows are then scanned per value of it, and added up again."""
    hidden = "COUNT(*) FILTER (WHERE ill = CASE WHEN job = 'eng' THEN 'flu' ELSE 'hiv' END)"
    for aggregate in AGGREGATES[:6]:
        alone = first(session, f"SELECT {aggregate} FROM clinic")
        beside = first(session, f"SELECT {aggregate}, {hidden} FROM clinic")
        # Each of those values has effective rows of its own.
        assert alone.pop("reliable") >= beside.pop("reliable")
        close(alone, beside)


def test_a_share_of_all_cells_is_that_of_the_count(session: Session) -> None:
    """The total of all cells is known, whatever was done to the column."""
    outcome = session.run(
        "SELECT ill, COUNT(*) AS n, COUNT(*) * 1.0 / SUM(COUNT(*)) OVER () AS share FROM clinic"
        " GROUP BY ill"
    )
    counts, shares = outcome.bars[1].to_pylist(), outcome.bars[2].to_pylist()
    for n, share in zip(counts, shares, strict=True):
        assert share["stderr"] == pytest.approx(n["stderr"] / 900, rel=1e-6, abs=1e-9)


def test_a_condition_that_excludes_nothing_changes_nothing(session: Session) -> None:
    for plain, written in (
        ("COUNT(*) FILTER (WHERE ill = 'flu')", "COUNT(*) FILTER (WHERE ill = 'flu' AND TRUE)"),
        ("SUM(age)", "SUM(CASE WHEN TRUE THEN age END)"),
        ("AVG(age)", "AVG(age) FILTER (WHERE TRUE)"),
    ):
        alone = first(session, f"SELECT {plain} FROM clinic")
        close(alone, first(session, f"SELECT {written} FROM clinic WHERE TRUE"))
