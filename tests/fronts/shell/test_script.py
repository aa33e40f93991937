"""The shell without a terminal: a script comes in, nothing is asked, and its exit code tells."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass

import pytest
from click.testing import CliRunner

from privsql.fronts.cli.main import main
from tests.fronts.shell.screen import privsql

SCRIPT = """-- a script; with a comment
\\d
SELECT disease, count(*) AS n
FROM patients  -- ; not yet
GROUP BY disease;
SELECT ';
\\q' AS text; SELECT 11 AS one;
SELECT count(*) FROM patients WHERE nothing = 1;
SELECT 22 AS last"""


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


def piped(given: str, *arguments, **more: str) -> Done:
    """The command as a process, with a pipe for its input."""
    done = subprocess.run(
        [*map(str, privsql("shell", *arguments))],
        input=given.encode(),
        capture_output=True,
        timeout=120,
        env={**os.environ, **more},
    )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


def run(given: str | bytes, *arguments, **more: str) -> Done:
    """The same without a process of its own, whose start takes seconds."""
    done = CliRunner().invoke(main, ["shell", *map(str, arguments)], input=given, env=more)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return Done(done.exit_code, done.stdout, done.stderr)


@pytest.mark.parametrize(("keep_going", "ask"), [(False, piped), (True, run)])
def test_a_script_ends_at_its_first_failure_unless_told_otherwise(release, folder, keep_going, ask):
    state = folder / "no state"
    more = ["--keep-going"] * keep_going
    done = ask(SCRIPT, release, *more, XDG_STATE_HOME=str(state), TERM="xterm")
    assert done.code == 1
    assert done.err.startswith("ERROR 42703 [unknown-name]: ")
    assert "\nLINE 1: SELECT count(*) FROM patients WHERE nothing = 1\n" in done.err
    assert "Traceback" not in done.err
    assert " patients | published " in done.out
    assert " NULL    |   1" in done.out
    assert " ;\\n\\q\n" in done.out  # a backslash in a string is no command
    assert " one\n-----\n  11\n" in done.out
    assert ("  22\n" in done.out) == keep_going
    assert "privsql>" not in done.out
    assert "\x1b" not in done.out + done.err
    assert not state.exists()  # a script leaves no history


def test_what_succeeds_ends_with_0_and_shows_all_rows(release):
    done = run(
        "\\timing\nSELECT age, count(*) FROM patients GROUP BY age;\n\\i none.sql\n\\q\nSELECT 1;",
        *(release, "--keep-going", "--error-bars"),
    )
    assert done.code == 1  # \i
    assert "no such file" in done.err
    assert done.out.count("\n") > 121
    assert "shown" not in done.out
    assert "Time: " in done.out
    assert "count_star()_stderr" in done.out
    assert "exact" not in done.out  # nothing after \q
    done = run("\ufeffSELECT 1; \n -- the end\n", release)
    assert (done.code, done.err) == (0, "")


def test_what_cannot_be_run_is_told_in_a_line(release, tmp_path):
    done = run("SELECT 1;", tmp_path / "none.duckdb")
    assert done.code == 1
    assert done.err.startswith("ERROR ")
    assert "Traceback" not in done.err
    done = run(b"SELECT '\xff';", release)
    assert (done.code, done.out) == (1, "")
    assert "not valid UTF-8" in done.err
    assert run("", release, "--confidence-level", "2").code == 2


def test_nothing_that_is_shown_can_steer_a_terminal(release):
    odd = "'\x1b[31mred'"
    script = f"""SELECT {odd} AS "a\x1b[2J";
    EXPLAIN SELECT count(*) FROM patients WHERE disease = {odd};
    EXPLAIN VERBOSE SELECT count(*) FROM patients WHERE job = {odd} AND disease = 'flu';
    SELECT {odd} FROM nowhere;
    \\d {odd}
    """
    done = run(script, release, "--keep-going")
    answer, _, explained = done.out.partition("estimated by inversion")
    assert "\\x1b[31mred" in answer
    assert "disease: uniform" in explained
    assert done.err.count("ERROR") == 2
    assert "\x1b" not in done.out + done.err
