"""No script, command or worker of a test run ends with the complaints of DuckDB's binding.

The binding lists on stderr at exit what it could not free: connections that hold functions and
were not closed, and whatever a thread holds that is still at work.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.sql.clinic import publish

HEAD = """
import sys, threading
import privsql
con = privsql.connect(sys.argv[1])
flu = "SELECT job, count(*) AS n FROM patients WHERE disease = 'flu' GROUP BY job"
"""
# A statement that DuckDB does not end, and an end of the program that does not wait for it.
LEFT = """
from privsql.engines import calls, Watch, watching
import duckdb
calls.FAREWELL = {farewell}
engine = calls.Calls(duckdb.connect(config={{"threads": 1}}))
text = "SELECT levenshtein(repeat('a', n::INT), repeat('b', n::INT)) FROM (SELECT 60000 AS n)"
try:
    with watching(Watch(0.1)):
        engine.run(lambda cursor: cursor.execute(text).fetchall())
except privsql.Error as problem:
    print(problem.code, len(calls._STILL))
"""
SCRIPTS = {
    "asked and not closed": "answer = con.sql(flu)\nprint(answer.arrow().num_rows)",
    "an exception": "answer = con.sql(flu).arrow()\nraise ValueError('its own')",
    # As a worker of pytest-xdist: work on another thread, frames that are kept, and sys.exit.
    "a worker": """
kept = []
def work():
    own = privsql.connect(sys.argv[1])
    kept.append((sys._getframe(), own.cursor().execute(flu).fetchall(), own))
thread = threading.Thread(target=work)
thread.start()
thread.join()
sys.exit(3)
""",
    "a statement that was left": LEFT.format(farewell=0.0),
}
CODES = {"an exception": 1, "a worker": 3}


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish(tmp_path_factory.mktemp("silence"), 0.5)


def ended(*command: str | Path) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, *map(str, command)], capture_output=True, text=True, timeout=120
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_ends_in_silence(release, name):
    code, said, errors = ended("-c", HEAD + SCRIPTS[name], release)
    assert code == CODES.get(name, 0), errors
    if name == "an exception":
        assert errors.splitlines()[-1] == "ValueError: its own"
    else:
        assert errors == ""
    if name == "a statement that was left":
        assert said == "timeout 2\n"  # itself, and who ends it


def test_a_command_ends_in_silence(release):
    text = "SELECT count(*) AS n FROM patients WHERE disease = 'flu'"
    code, said, errors = ended("-m", "privsql.fronts.cli.main", "query", release, text)
    assert (code, errors) == (0, "")
    assert " ± " in said
    code, _, errors = ended(
        "-m", "privsql.fronts.cli.main", "query", release, "SELECT nosuch FROM t"
    )
    assert code == 1
    assert errors.startswith("ERROR ")
    assert "leaked" not in errors


def test_the_noise_is_real_without_us(release):
    """What is left makes noise where nobody closes stderr: the test above can fail."""
    loud = "from privsql.engines import calls\ncalls._hush = lambda: None\n"
    _, said, errors = ended("-c", HEAD + loud + SCRIPTS["a statement that was left"], release)
    assert said == "timeout 2\n"
    assert "nanobind: leaked" in errors or "terminate called" in errors
