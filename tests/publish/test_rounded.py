"""Publishing says how many values a grid moved, and the release does not."""

from __future__ import annotations

import json
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import privsql
from privsql.channels import Grid
from privsql.fronts.cli.main import main
from privsql.publish import source as sources
from privsql.publish.append.append import append
from privsql.publish.append.batches import from_text
from privsql.publish.append.local import perturb
from privsql.publish.report import Notes
from privsql.publish.rounded import Rounded, Rounding
from tests.sql import coarse

# Which of the columns on grids have values that are no points of theirs.
COUNTED = ("docvis", "odd", "temp", "paid", "born", "seen", "left_at", "age")


@pytest.mark.parametrize("batch", [1 << 18, 2048])
def test_moved_values_are_counted_in_every_batch(tmp_path, monkeypatch, batch):
    """Against DuckDB, which rounds the raw table by itself."""
    monkeypatch.setattr(sources, "BATCH", batch)
    report = coarse.publish(tmp_path, 0.5)
    with coarse.raw() as con:
        pairs = "visits AS v POSITIONAL JOIN rounded AS r"
        expected = {
            name: con.execute(
                f"SELECT count(*) FROM {pairs} WHERE v.{name} IS DISTINCT FROM r.{name}"
            ).fetchall()[0][0]
            for name in COUNTED
        }
    assert {each.column: each.moved for each in report.rounded} == expected
    assert {each.values for each in report.rounded} == {3000}
    assert expected["docvis"] > 2000
    assert expected["age"] == expected["left_at"] == 0
    said = f"docvis: {expected['docvis']:,} of 3,000 values rounded to the grid 0..125 step 5"
    assert said in report.facts
    assert f"  {said}\n" in str(report)
    assert not any(fact.startswith(("age", "left_at")) for fact in report.facts)
    born = f"born: {expected['born']:,} of 3,000 values rounded to the grid"
    assert f"{born} 2024-01-01..2024-12-30 step 1 week" in report.facts


def test_the_release_does_not_tell_what_was_moved(tmp_path):
    """Two tables that are equal once they are rounded make equal releases."""
    texts, moved = [], []
    for name, values in (("fine", [1, 4, 6, 9, 11]), ("even", [0, 5, 5, 10, 10])):
        folder = tmp_path / name
        folder.mkdir()
        release, report = small(folder, pa.array(values * 40, pa.int32()))
        moved.append([each.moved for each in report.rounded])
        with duckdb.connect(str(release), read_only=True) as con:
            rows = con.execute("SELECT * FROM t ORDER BY ALL").fetchall()
        manifest = json.loads(privsql.release.open(release).manifest.to_json())
        del manifest["release"]
        texts.append(json.dumps([rows, manifest], default=str))
    assert moved == [[200], [0]]
    assert texts[0] == texts[1]


def small(folder: Path, values: pa.Array, *, domain: str = "", mechanism: str = ""):
    """A release of one sensitive column, and the report."""
    table = pa.table({"job": ["a", "b"] * (len(values) // 2), "x": values})
    pq.write_table(table, folder / "raw.parquet")
    (folder / "t.toml").write_text(spec(domain, mechanism), encoding="utf-8")
    release = folder / "t.duckdb"
    return release, privsql.publish(
        str(folder / "raw.parquet"), release, spec=folder / "t.toml", seed=3
    )


def spec(domain: str = "", mechanism: str = "") -> str:
    return (
        '[release]\ntable = "t"\n[columns.job]\nrole = "public"\n[columns.x]\nrole = "sensitive"\n'
        + (mechanism or 'mechanism = "uniform"\nretention = 0.5\n')
        + f"domain = {domain or '{ lower = 0, upper = 20, step = 5 }'}\n"
    )


@pytest.mark.parametrize("mechanism", ["identity", "swap"])
def test_columns_that_are_perturbed_whole_are_counted_once(tmp_path, mechanism):
    values = pa.array([0, 1, 4, 5, 10, 12] * 40, pa.int64())
    lines = f'mechanism = "{mechanism}"\nretention = 0.5\n'
    _, report = small(tmp_path, values, mechanism=lines)
    assert [(each.moved, each.values) for each in report.rounded] == [(120, 240)]


@pytest.mark.parametrize(
    ("values", "domain", "moved", "total"),
    [
        (pa.array([0, 3, None, 5], pa.uint8()), "{ lower = 0, upper = 20, step = 5 }", 1, 3),
        (pa.array([0.0, 0.3, 0.31, -0.04]), "{ lower = 0.0, upper = 1.0, step = 0.1 }", 2, 4),
        (
            pa.array(
                [Decimal("0.10"), Decimal("0.13"), None, Decimal("0.12")], pa.decimal128(10, 2)
            ),
            "{ lower = 0.0, upper = 1.0, step = 0.1 }",
            2,
            3,
        ),
        (
            pa.array([datetime(2024, 1, 1), datetime(2024, 1, 1, 0, 0, 0, 1), None, None]),
            '{ lower = 2024-01-01 00:00:00, upper = 2024-01-02 00:00:00, step = "1 hour" }',
            1,
            2,
        ),
        (pa.array([None, None, None, 5], pa.int64()), "{ lower = 0, upper = 20, step = 5 }", 0, 1),
    ],
)
def test_every_type_is_counted_and_null_is_no_value(tmp_path, values, domain, moved, total):
    nullable = domain.replace(" }", ", nullable = true }")
    many = pa.concat_arrays([values] * 30)
    _, report = small(tmp_path, many, domain=nullable)
    assert [(e.moved, e.values) for e in report.rounded] == [(30 * moved, 30 * total)]


def test_a_list_of_values_is_not_rounded(tmp_path):
    _, report = small(tmp_path, pa.array([0, 5] * 20, pa.int64()), domain="[0, 5]")
    assert report.rounded == ()


def test_one_value_is_one_value():
    assert (
        str(Rounded("x", Grid.of(0, 9), 1, 1)) == "x: 1 of 1 value rounded to the grid 0..9 step 1"
    )


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_who_perturbs_and_who_appends_is_told(tmp_path, ending):
    """A client's rows are rounded at the client; what it sends lies on the grid."""
    release, _ = small(tmp_path, pa.array([0, 5, 10, 15] * 20, pa.int64()))
    given = tmp_path / f"rows.{ending}"
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE r AS SELECT 'a' AS job, (i % 21)::BIGINT AS x FROM range(15000) t(i)"
        )
        con.table("r").write_parquet(str(given)) if ending == "parquet" else con.table(
            "r"
        ).write_csv(str(given))
        ((moved,),) = con.execute("SELECT count(*) FROM r WHERE x % 5 <> 0").fetchall()
    batch = tmp_path / f"batch.{ending}"
    count, notes = perturb(tmp_path / "t.toml", given, batch, accept_public="all")
    assert count == 15000
    said = f"x: {moved:,} of 15,000 values rounded to the grid 0..20 step 5"
    assert said in notes.facts
    told = Notes()
    assert append(release, batch, told) == 15000
    assert [(each.moved, each.values) for each in told.rounded] == [(0, 15000)]
    assert told.facts == []
    command = ["perturb", str(tmp_path / "t.toml"), "--accept-public", "all", "-i", str(given)]
    found = CliRunner().invoke(main, [*command, "-o", str(tmp_path / "b.csv")])
    assert found.exit_code == 0
    assert said in found.stderr


def test_the_command_shows_it(tmp_path):
    small(tmp_path, pa.array([0, 3, 10, 15] * 20, pa.int64()))
    found = CliRunner().invoke(
        main,
        [
            *("publish", str(tmp_path / "t.toml"), "-o", str(tmp_path / "again.duckdb")),
            *("--source", str(tmp_path / "raw.parquet"), "--seed", "1"),
        ],
    )
    assert found.exit_code == 0, found.output
    assert "  x: 20 of 80 values rounded to the grid 0..20 step 5\n" in found.output


def test_a_batch_off_the_grid_is_told_to_who_appends_it():
    """Only a batch that `perturb` did not make has such values."""
    domain, rounding = Grid.of(0, 20, 5, nullable=True), Rounding()
    for values in (pa.array(["0", "3", None]), pa.array(["5", "19"])):
        rounding.codes("x", domain, from_text("x", domain, values))
    notes = Notes()
    notes.round(rounding)
    assert notes.facts == ["x: 2 of 4 values rounded to the grid 0..20 step 5"]
