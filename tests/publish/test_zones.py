"""Times with a time zone in every role: published, asked about, audited; no pytz is needed."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner

import privsql
from privsql.fronts.cli.main import main
from privsql.publish.append.append import append
from privsql.publish.append.local import perturb_file
from privsql.publish.keys.randomness import Seeded
from privsql.publish.starter import starter
from privsql.release.spec import parse_spec

SPEC = """
[release]
table = "t"
{unit}
[columns.seen]
{seen}
[columns.illness]
role = "sensitive"
mechanism = "uniform"
retention = 0.5
domain = ["flu", "cold"]
[groups]
merge = "none"
[policy]
personal_groups = "allow"
"""
SENSITIVE = """role = "sensitive"
mechanism = "uniform"
retention = 0.5
domain = { lower = 2024-01-01T00:00:00, upper = 2024-01-01T23:00:00, step = "1 hour" }"""
ROLES = {
    "public": ("", 'role = "public"'),
    "not grouping": ("", 'role = "public"\ngrouping = false'),
    "sensitive": ("", SENSITIVE),
    "drop": ("", 'role = "drop"'),
    "unit": ('unit = "seen"', 'role = "drop"'),
}
ROWS = 240


@pytest.fixture(autouse=True)
def no_pytz(monkeypatch):
    """DuckDB looks for it to fetch a time with a zone; it is no dependency of ours."""
    monkeypatch.setitem(sys.modules, "pytz", None)


@pytest.fixture
def rows(tmp_path) -> Path:
    made = tmp_path / "rows.parquet"
    with duckdb.connect() as con:
        con.execute(
            "COPY (SELECT TIMESTAMPTZ '2024-01-01 00:00:00+00' + INTERVAL (i % 24) HOUR AS seen,"
            f" ['flu', 'cold'][1 + i % 2] AS illness FROM range({ROWS}) AS t(i)) TO '{made}'"
        )
    return made


def spec_of(role: str) -> str:
    unit, seen = ROLES[role]
    return SPEC.format(unit=unit, seen=seen)


def run(*command: str) -> str:
    done = CliRunner().invoke(main, list(command))
    assert done.exit_code == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("role", ROLES)
def test_a_time_with_a_zone_in_every_role(tmp_path, rows, role):
    out = tmp_path / "r.duckdb"
    report = privsql.publish(str(rows), out, spec=parse_spec(spec_of(role)), seed=1)
    assert report.rows == ROWS
    with privsql.connect(out) as con:
        ((counted,),) = con.execute("SELECT COUNT(*) FROM t").fetchall()
        assert counted == ROWS
    assert f"{ROWS} rows" in run("audit", str(out))
    assert f"{ROWS} rows" in run("audit", str(out), "--raw", str(rows))


def test_answers_of_every_front(tmp_path, rows):
    out = tmp_path / "r.duckdb"
    privsql.publish(str(rows), out, spec=parse_spec(spec_of("public")), seed=1)
    moment = datetime(2024, 1, 1, 5, tzinfo=UTC)
    query = (
        "SELECT seen, COUNT(*) AS n FROM t WHERE seen < TIMESTAMPTZ '2024-01-01 06:00:00+00'"
        " GROUP BY seen ORDER BY seen DESC"
    )
    with privsql.connect(out) as con:
        cursor = con.execute(query)
        assert cursor.fetchone() == (moment, 10)
        assert len(cursor.fetchall()) == 5
    assert (
        run("query", str(out), query, "--format", "csv").splitlines()[1].startswith("2024-01-01T")
    )
    assert '"seen": "2024-01-01T' in run("query", str(out), query, "--format", "json")
    assert "2024-01-01 05:00:00+00:00 | 10" in " ".join(run("query", str(out), query).split())
    assert "illness" in run(
        "explain",
        str(out),
        "SELECT seen, COUNT(*) FROM t WHERE illness = 'flu'"
        " AND seen > TIMESTAMPTZ '2024-01-01 06:00:00+00' GROUP BY seen",
    )


def test_init_writes_a_spec_that_is_read(rows):
    text = starter(str(rows))
    assert "[columns.seen]" in text
    assert parse_spec(text).column("seen").role != ""


def test_a_batch_with_times_of_a_zone(tmp_path, rows):
    for role in ("public", "sensitive"):
        out, batch = tmp_path / f"{role}.duckdb", tmp_path / f"{role}.parquet"
        spec = parse_spec(spec_of(role))
        privsql.publish(str(rows), out, spec=spec, seed=1)
        perturb_file(spec, rows, batch, Seeded(2))
        assert append(out, batch) == ROWS


def test_sensitive_times_are_those_of_utc_wherever_the_publisher_is(tmp_path, rows):
    kept = spec_of("sensitive").replace("retention = 0.5", "retention = 1.0\naccept_epsilon = true")
    (tmp_path / "spec.toml").write_text(kept)
    code = "import privsql; privsql.publish('rows.parquet', 'r.duckdb', spec='spec.toml', seed=1)"
    root = str(Path(privsql.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": root, "TZ": "America/New_York"}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True)
    with privsql.release.open(tmp_path / "r.duckdb").connection() as con:
        found = con.execute("SELECT min(seen), max(seen), typeof(min(seen)) FROM t").fetchall()
    assert found == [(datetime(2024, 1, 1), datetime(2024, 1, 1, 23), "TIMESTAMP")]
