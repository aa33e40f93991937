"""Distinct counts under sensitive conditions, over many releases of one table.

The table is stacked R times with a public column ``rep`` and published once: draws are
independent from row to row, so the rows of one ``rep`` are a release of the table, and ``GROUP BY
rep`` asks all R of them at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import privsql
from privsql.session.session import Session
from tests.sizes import sized
from tests.specs import measure, sensitive, spec

RELEASES = sized(80, 2_000)
VALUES = {1: 400, 2: 200, 5: 200, 20: 150}  # by rows of a value
ILLS = [f"ill {i}" for i in range(10)]
ONE, TWO = "ill = 'ill 3'", "ill = 'ill 3' AND smoker"


@dataclass(frozen=True)
class Found:
    """The answers of all releases."""

    estimate: np.ndarray
    stderr: np.ndarray
    low: np.ndarray
    high: np.ndarray
    reliable: np.ndarray


def raw(rows: int) -> pa.Table:
    """Values of so many rows each; a third of them is ill more often than others."""
    rng = np.random.default_rng(rows)
    u = np.repeat(np.arange(VALUES[rows]), rows)
    often = rng.random(u.size) < np.where(u % 3 == 0, 0.3, 0.02)
    ill = np.where(often, ILLS[3], np.array(ILLS)[rng.integers(4, 10, u.size)])
    return pa.table({"u": u, "ill": ill, "smoker": rng.random(u.size) < 0.6})


def stacked(folder: Path, table: pa.Table, retention: float, releases: int) -> Path:
    names = ["rep", *table.column_names]
    copies = [np.repeat(np.arange(releases), table.num_rows)]
    copies += [np.tile(table.column(name).to_numpy(False), releases) for name in names[1:]]
    pq.write_table(pa.table(dict(zip(names, copies, strict=True))), folder / "raw.parquet")
    more = '\n[groups]\nmerge = "none"\n[policy]\npersonal_groups = "allow"\nmin_rows = 0\n'
    text = spec(
        "t",
        measure("rep"),
        measure("u"),
        sensitive("ill", retention, ILLS),
        sensitive("smoker", retention, [False, True]),
        more=more,
    )
    (folder / "spec.toml").write_text(text)
    made = folder / "release.duckdb"
    privsql.publish(str(folder / "raw.parquet"), made, spec=folder / "spec.toml", seed=11)
    return made


def asked(session: Session, call: str, where: str) -> Found:
    outcome = session.run(f"SELECT rep, {call} AS n FROM t WHERE {where} GROUP BY rep")
    bars = outcome.bars[1]
    columns = [outcome.table.column(1), *(bars.column(i) for i in range(4))]
    numbers = [np.asarray(c.to_numpy(zero_copy_only=False), dtype=float) for c in columns]
    return Found(*numbers[:4], numbers[4] == 1)


def truth(rows: int, where: str) -> int:
    connection = duckdb.connect()
    connection.register("t", raw(rows))
    found: int = connection.execute(f"SELECT COUNT(DISTINCT u) FROM t WHERE {where}").fetchall()[0][
        0
    ]
    return found


CASES = [(rows, 0.5, where) for rows in (1, 2, 5) for where in (ONE, TWO)]
CASES += [(5, 0.3, ONE), (20, 0.5, ONE), (20, 0.7, TWO)]


@pytest.mark.parametrize(("rows", "retention", "where"), CASES)
def test_it_is_unbiased_and_its_intervals_cover(tmp_path, rows, retention, where):
    session = Session(stacked(tmp_path, raw(rows), retention, RELEASES))
    found = asked(session, "COUNT(DISTINCT u)", where)
    wanted, known = truth(rows, where), ~np.isnan(found.estimate)
    session.close()
    spread = found.estimate[known].std(ddof=1)
    print(
        f"{rows} rows a value, retention {retention}: true {wanted}, mean"
        f" {found.estimate[known].mean():.2f}, spread {spread:.2f}, root mean variance"
        f" {np.sqrt(np.nanmean(found.stderr**2)):.2f}, {known.mean():.1%} answered,"
        f" {found.reliable.mean():.1%} reliable,",
        end=" ",
    )
    held = (found.low <= wanted) & (wanted <= found.high)
    print(f"{held[found.reliable].mean():.1%} of these covered, {held[known].mean():.1%} of all")
    # All are answered or none: which one does not depend on what was drawn.
    assert known.all()
    assert abs(found.estimate.mean() - wanted) <= 4.5 * spread / np.sqrt(RELEASES)
    assert np.nanmean(found.stderr**2) == pytest.approx(spread**2, rel=5 * np.sqrt(2 / RELEASES))
    assert found.reliable.mean() > 0.5
    share = held[found.reliable].mean()
    assert share >= 0.945 - 3.5 * np.sqrt(0.95 * 0.05 / found.reliable.sum())


@pytest.mark.parametrize(("retention", "where"), [(0.3, ONE), (0.3, TWO), (0.5, TWO)])
def test_it_is_refused_where_its_error_is_larger_than_what_there_is(tmp_path, retention, where):
    session = Session(stacked(tmp_path, raw(20), retention, sized(30, 2_000)))
    found = asked(session, "COUNT(DISTINCT u)", where)
    session.close()
    assert np.isnan(found.estimate).all()
    assert np.isnan(found.stderr).all()
    assert not found.reliable.any()


def test_an_error_that_most_releases_do_not_show_is_foreseen(tmp_path):
    """Products of 20 rows are nearly 0 but for one in thousands, which makes all of the error."""
    u = np.repeat(np.arange(40), 20)
    ill = np.where(u % 7 == 0, ILLS[5], ILLS[3])
    table = pa.table({"u": u, "ill": ill, "smoker": np.zeros(u.size, dtype=bool)})
    session = Session(stacked(tmp_path, table, 0.5, sized(30, 300)))
    found = asked(session, "COUNT(DISTINCT u)", f"NOT ({ONE})")
    session.close()
    assert np.isnan(found.estimate).all()


@pytest.mark.parametrize("where", [ONE, TWO], ids=["one column", "two columns"])
def test_with_one_row_a_value_it_is_the_count(tmp_path, where):
    session = Session(stacked(tmp_path, raw(1), 0.5, 30))
    for form in ("states", "weights"):
        session.form = form
        one, two = (asked(session, call, where) for call in ("COUNT(DISTINCT u)", "COUNT(u)"))
        np.testing.assert_allclose(one.estimate, two.estimate, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(one.stderr, two.stderr, rtol=1e-9)
    session.close()
