"""An advisor that is killed: what it leaves is private, has no identifiers, and is swept."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from privsql.publish.staging import PRIVATE, private_folder, sweep
from tests.sizes import sized
from tests.specs import drop, public, sensitive, spec

ROOT = Path(__file__).parents[2]
ROWS = 4_000
SPEC = spec(
    "patients",
    drop("id"),
    drop("name"),
    public("city"),
    sensitive("illness", 0.5, ["flu", "cold", "none"]),
    source="rows.parquet",
    unit="id",
)

# Stops for good before a call of a function, the n-th time that it comes there.
DRIVER = """
import sys, time
import privsql.advise.pilots as pilots
import privsql.publish.job as job

name, count = sys.argv[1], int(sys.argv[2])
holder = pilots.Pilots if hasattr(pilots.Pilots, name) else job
original = getattr(holder, name)

def stopped(*arguments, **options):
    global count
    count -= 1
    if count < 0:
        print("there", flush=True)
        time.sleep(60)
    return original(*arguments, **options)

setattr(holder, name, stopped)
from privsql.advise.job import advise
query = "SELECT COUNT(*) FROM patients WHERE illness = 'flu'"
advise("spec.toml", queries={query: 400}, sample=2000, seed=1, draws=1)
"""

MOMENTS = [("_take", 1), ("pilot", 0), ("_stage", 0), ("_write", 0), ("_width", 0)]
MORE = [("_take", 0), ("_make", 0), ("_make", 2), ("_stage", 3), ("_write", 4), ("commit", 1)]


@pytest.fixture
def place(tmp_path, monkeypatch):
    rng = np.random.default_rng(4)
    table = pa.table(
        {
            "id": [f"identifier-{i}" for i in range(ROWS)],
            "name": [f"surname-{i}" for i in range(ROWS)],
            "city": rng.choice(["north", "south"], ROWS),
            "illness": rng.choice(["flu", "cold", "none"], ROWS),
        }
    )
    pq.write_table(table, tmp_path / "rows.parquet")
    (tmp_path / "spec.toml").write_text(SPEC)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return tmp_path


@pytest.mark.parametrize("moment", sized(MOMENTS, MOMENTS + MORE), ids=str)
def test_a_killed_advisor_leaves_nothing_that_is_not_swept(place, moment):
    child = subprocess.Popen(
        [sys.executable, "-c", DRIVER, moment[0], str(moment[1])],
        cwd=place,
        env=os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(place / "temporary")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    first = child.stdout.readline()
    (left,) = [path for path in (place / "temporary").iterdir() if path.is_dir()]
    assert first == "there\n"
    sweep()
    assert left.is_dir(), "what is in use is not swept"
    child.kill()
    child.communicate()
    assert left.stat().st_mode & 0o777 == 0o700
    for file in left.rglob("*"):
        if file.is_file():
            assert b"surname-" not in file.read_bytes()
            assert b"identifier-" not in file.read_bytes()
    sample = left / "sample.duckdb"
    if moment != ("_take", 0):
        with duckdb.connect(str(sample), read_only=True) as con:
            assert con.table("rows").columns == ["id", "city", "illness"]
            assert str(con.table("rows").types[0]) == "BIGINT"
    with private_folder() as other:
        assert not left.exists()
        assert [path.name for path in (place / "temporary").iterdir() if path.is_dir()] == [
            other.name
        ]
    assert not list((place / "temporary").iterdir())


def test_a_sweep_leaves_what_is_not_ours(place):
    temporary = place / "temporary"
    (place / "kept").mkdir()
    (temporary / f"{PRIVATE}link").symlink_to(place / "kept")
    (temporary / "privsql-other").mkdir()
    (temporary / f"{PRIVATE}old").mkdir()
    (temporary / f"{PRIVATE}old.lock").touch()
    sweep()
    assert sorted(path.name for path in temporary.iterdir()) == [
        "privsql-other",
        f"{PRIVATE}link",
    ]
    assert (place / "kept").is_dir()
