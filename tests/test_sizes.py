"""The three speeds: what each of them leaves out."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sizes import SLOW, THINNED, slow

ROOT = Path(__file__).resolve().parents[1]
# Two tests that every speed has, one that is slow, and one that only `make soak` runs.
FILES = ["tests/test_errors.py", "tests/papers/test_fine.py"]


def collected(*places: str, **more: str) -> set[str]:
    """Names of the tests that would run."""
    given = {name: value for name, value in os.environ.items() if "PRIVSQL" not in name}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", *places],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**given, **more},
    )
    assert done.returncode == 0, done.stdout
    return {line for line in done.stdout.splitlines() if "::" in line}


def test_what_is_called_slow_is_there():
    assert [place for place in SLOW if not (ROOT / place).exists()] == []
    assert list(SLOW) == sorted(set(SLOW))


def test_what_is_thinned_is_there():
    assert [place for place in THINNED if not (ROOT / place).is_file()] == []
    assert list(THINNED) == sorted(THINNED)


def test_a_test_of_many_cases_is_thinned_and_soak_has_all():
    """A test that is named runs with all of its cases."""
    where = "tests/udfs/test_coverage.py"
    test, soak = collected(where), collected(where, PRIVSQL_SOAK="1")
    assert test < soak
    named = collected(f"{where}::test_single_condition_covers_at_any_size")
    some = named & test
    assert some < named <= soak
    assert 0.3 * len(named) < len(some) < 0.4 * len(named)


def test_a_folder_stands_for_what_is_in_it():
    assert slow("tests/fronts/pgwire/test_server.py")
    assert slow("tests/test_docs.py")
    assert not slow("tests/test_docs.pyx")
    assert not slow("privsql/sql/plan/planner.py")


def test_each_speed_leaves_out_what_it_says():
    """Nothing is lost: what a faster one runs, a slower one does."""
    quick, test, soak = (
        collected(*FILES, **more) for more in ({"PRIVSQL_QUICK": "1"}, {}, {"PRIVSQL_SOAK": "1"})
    )
    assert quick < test < soak
    assert {name.partition("::")[0] for name in quick} == {FILES[0]}
    assert soak - test == {f"{FILES[1]}::test_the_script_runs_and_tells_everything"}


@pytest.mark.soak
def test_this_runs_in_make_soak_alone():
    assert os.environ["PRIVSQL_SOAK"] == "1"
