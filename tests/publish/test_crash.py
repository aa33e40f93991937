"""A publisher that is killed, interrupted, out of disk or not alone: the old release, or none."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import privsql
from privsql.release.folder import MANIFEST, read_index
from tests.publish.test_job import SPEC, clinic, left_behind, publish
from tests.sizes import sized

ROOT = Path(__file__).parents[2]
ROWS = 3_000

# Stops at a moment until it is killed, or for as long as the parent lets it.
DRIVER = """
import sys, time
import privsql.publish.job as job

moment, out = sys.argv[1:]

def wait(*_):
    print("there", flush=True)
    time.sleep(60)

def before(name):
    original = getattr(job, name)
    def stopped(*arguments, **options):
        wait()
        return original(*arguments, **options)
    setattr(job, name, stopped)

def after(name):
    original = getattr(job, name)
    def stopped(*arguments, **options):
        result = original(*arguments, **options)
        wait()
        return result
    setattr(job, name, stopped)

progress = None
if moment == "rows":
    progress = wait
elif moment.startswith("after "):
    after(moment[6:])
else:
    before(moment)
"""
PUBLISHING = """
job.publish("raw.parquet", out, spec="spec.toml", seed=8, force=True, progress=progress)
"""
COMMAND = """
from privsql.fronts.cli import main as cli
from privsql.fronts.cli import common as cli_common
if progress is not None:
    cli_common.Shown._more = progress
cli.main(["publish", "spec.toml", "--source", "raw.parquet", "-o", out, "--seed", "8", "--force"])
"""


@pytest.fixture
def place(tmp_path):
    pq.write_table(clinic(ROWS), tmp_path / "raw.parquet")
    (tmp_path / "spec.toml").write_text(SPEC)
    return tmp_path


def start(place: Path, moment: str, code: str, out: str = "out.duckdb") -> subprocess.Popen[str]:
    """A publisher that has come to the moment and waits there."""
    child = subprocess.Popen(
        [sys.executable, "-c", DRIVER + code, moment, out],
        cwd=place,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    if child.stdout.readline() != "there\n":
        child.kill()
        pytest.fail(f"it never came to {moment}: {child.communicate()[1]}")
    return child


def killed(place: Path, moment: str, out: str = "out.duckdb") -> None:
    child = start(place, moment, PUBLISHING, out)
    child.kill()
    child.communicate()
    assert child.returncode == -signal.SIGKILL


MOMENTS = ["rows", "group_rows", "_write", "write_manifest", "commit_release"]


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_publisher_leaves_the_old_release(place, moment):
    publish(place)
    before = (place / "out.duckdb").read_bytes()
    killed(place, moment)
    assert (place / "out.duckdb").read_bytes() == before
    assert any("staging" in name for name in left_behind(place))
    report = publish(place, seed=8, force=True)
    assert left_behind(place) == ["out.duckdb"]
    assert privsql.release.open(place / "out.duckdb").manifest == report.manifest


@pytest.mark.parametrize("moment", ["rows", "commit_release"])
def test_a_killed_first_publisher_leaves_no_release(place, moment):
    killed(place, moment)
    assert not (place / "out.duckdb").exists()
    publish(place)
    assert left_behind(place) == ["out.duckdb"]


def test_killed_after_the_rename_the_new_release_is_whole(place):
    publish(place)
    before = (place / "out.duckdb").read_bytes()
    killed(place, "after commit_release")
    assert (place / "out.duckdb").read_bytes() != before
    assert privsql.release.open(place / "out.duckdb").manifest.privacy.seeded
    publish(place, force=True)
    assert left_behind(place) == ["out.duckdb"]


@pytest.mark.parametrize("moment", ["rows", "commit_release", "after commit_release"])
def test_a_folder_is_the_old_release_or_the_new_one(place, moment):
    publish(place, out="out/")
    before = privsql.release.open(place / "out").manifest
    killed(place, moment, "out/")
    after = privsql.release.open(place / "out").manifest
    assert (after == before) == (not moment.startswith("after"))
    publish(place, out="out/", force=True)
    assert left_behind(place) == ["out"]


def test_a_folder_survives_a_kill_at_any_moment(place):
    """At random moments, over and over, with what the last one left behind still there."""
    publish(place, out="out/")
    rng = random.Random(3)
    code = "import privsql\nprint('there', flush=True)\nprivsql.publish("
    code += "'raw.parquet', 'out/', spec='spec.toml', seed=8, force=True)"
    for _ in range(sized(4, 300)):
        with subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=place,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
        ) as child:
            assert child.stdout is not None
            child.stdout.readline()
            time.sleep(rng.uniform(0, 1.5))
            child.kill()
        opened = privsql.release.open(place / "out")
        with opened.connection() as con:
            assert con.execute("SELECT count(*) FROM patients").fetchall() == [(ROWS,)]
    publish(place, out="out/", force=True)
    assert left_behind(place) == ["out"]
    named = {part.file for part in read_index(place / "out").parts} | {MANIFEST}
    found = (place / "out").rglob("*")
    assert {p.relative_to(place / "out").as_posix() for p in found if p.is_file()} == named


def test_leftovers_of_a_name_with_magic_in_it_are_swept_and_no_others(place):
    killed(place, "rows", "a[1]*.duckdb")
    other = place / ".a[1]b.duckdb.staging-other"
    other.mkdir()
    publish(place, out="a[1]*.duckdb")
    assert left_behind(place) == [other.name, "a[1]*.duckdb"]


def test_killed_half_way_the_ledger_never_knows_less_than_the_public(place):
    from privsql.publish.keys.key import new_key

    new_key(place / "p.key")
    keyed = SPEC.replace('unit = "patient_id"', 'unit = "patient_id"\nkey = "p.key"')
    (place / "spec.toml").write_text(keyed)
    child = start(place, "commit_release", PUBLISHING.replace("seed=8, ", ""))
    child.kill()
    child.communicate()
    assert not (place / "out.duckdb").exists()
    report = publish(place, keyed, seed=None)
    assert report.manifest.privacy.publications == 2
    assert left_behind(place) == ["out.duckdb"]


@pytest.mark.parametrize("moment", ["rows", "_write", "commit_release"])
@pytest.mark.parametrize("old", [True, False], ids=["old", "none"])
def test_ctrl_c_on_the_command_line(place, moment, old):
    if old:
        publish(place)
    before = (place / "out.duckdb").read_bytes() if old else None
    child = start(place, moment, COMMAND)
    if moment == "database":
        time.sleep(0.3)
    child.send_signal(signal.SIGINT)
    try:
        _, errors = child.communicate(timeout=30)
    finally:
        child.kill()
    assert child.returncode == 1
    assert errors == "interrupted; nothing was changed\n"
    assert left_behind(place) == ["out.duckdb"] * old
    if old:
        assert (place / "out.duckdb").read_bytes() == before


FULL = """
import resource, signal, sys
import privsql
from privsql.errors import Error

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
try:
    privsql.publish("raw.parquet", "out.duckdb", spec="spec.toml", seed=8, force=True)
except Error as problem:
    print(type(problem).__name__, problem)
    sys.exit(3)
"""


SMALLER = [(1 << 10, True), (1 << 16, True), (0, False), (1 << 10, False), (1 << 18, False)]


@pytest.mark.parametrize(
    ("room", "old"),
    [
        *((0, True), (1 << 14, True), (1 << 18, True), (1 << 14, False), (1 << 16, False)),
        *(pytest.param(*each, marks=pytest.mark.soak) for each in SMALLER),
    ],
)
def test_a_full_disk(place, room, old):
    pq.write_table(clinic(20_000), place / "raw.parquet")
    if old:
        publish(place)
    before = (place / "out.duckdb").read_bytes() if old else None
    child = subprocess.run(
        [sys.executable, "-c", FULL, str(room)],
        cwd=place,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert child.returncode == 3, child.stderr
    assert child.stdout.startswith("OperationalError")
    assert "disk full" in child.stdout
    assert left_behind(place) == ["out.duckdb"] * old
    if old:
        assert (place / "out.duckdb").read_bytes() == before


def test_of_two_publishers_at_once_the_second_is_told(place):
    first = start(place, "rows", PUBLISHING.replace("force=True, ", ""))
    try:
        second = subprocess.run(
            [
                *(sys.executable, "-m", "privsql.fronts.cli.main", "publish", "spec.toml"),
                *("--source", "raw.parquet", "-o", "out.duckdb", "--seed", "9"),
            ],
            cwd=place,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert second.returncode == 1
        assert "is being published by another process" in second.stderr
        assert "Traceback" not in second.stderr
        assert not (place / "out.duckdb").exists()
    finally:
        first.kill()
        first.communicate()


RACE = """
import sys, time
from pathlib import Path
import privsql
from privsql.errors import OperationalError

def slowly(rows):
    time.sleep(1)

print("there", flush=True)
sys.stdin.readline()
try:
    privsql.publish("raw.parquet", "out.duckdb", spec="spec.toml", seed=8, progress=slowly)
except OperationalError as problem:
    print(problem)
    sys.exit(3)
"""


def test_of_several_publishers_that_race_exactly_one_succeeds(place):
    children = [
        subprocess.Popen(
            [sys.executable, "-c", RACE],
            cwd=place,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "there\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    said = [child.communicate(timeout=60)[0] for child in children]
    assert sorted(child.returncode for child in children) == [0, 3, 3]
    for text in said:
        # Who comes late finds it finished.
        assert not text or "another process" in text or "exists already" in text
    assert left_behind(place) == ["out.duckdb"]
    assert privsql.release.open(place / "out.duckdb").manifest.rows > 0
