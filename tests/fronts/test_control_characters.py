"""Nothing in a release or a statement can steer the terminal of whoever looks at it.

Names of tables and columns, public values and domains hold ESC, BEL, a line break, C1 controls and
marks that reverse the direction of text; every command is run on a real terminal.
"""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import privsql
from privsql.errors import DataError, Place
from privsql.fronts.cli.main import main
from tests.fronts.pgwire.conftest import Running, serving
from tests.fronts.test_cli import environment
from tests.programs import on_terminal

ODD = "\x1b[31m\x07\n\x7f\x9b2J\u202e\u2028\t."
# What a bar of progress writes itself: hide and show the cursor, and the same line again.
PROGRESS = re.compile(r"\x1b\[\?25[lh]|\x1b\[1A|\x1b\[2K|\r")
PUBLIC, SENSITIVE = f"city{ODD}", f"illness{ODD}"
SPEC = f"""
[release]
table = "t"
source = "t.parquet"
[columns.{json.dumps(PUBLIC)}]
role = "public"
[columns.{json.dumps(SENSITIVE)}]
role = "sensitive"
mechanism = "uniform"
retention = 0.5
domain = ["none", {json.dumps(ODD)}]
"""


def named(name: str) -> str:
    return '"' + name + '"'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("odd")
    rng = np.random.default_rng(1)
    cities = rng.choice([ODD, "=1+1", "plain"], 600).tolist()
    ill = rng.choice(["none", ODD], 600).tolist()
    pq.write_table(pa.table({PUBLIC: cities, SENSITIVE: ill}), made / "t.parquet")
    (made / "t.toml").write_text(SPEC)
    privsql.publish(None, made / "t.duckdb", spec=made / "t.toml", seed=1)
    return made


def seen(folder: Path, *words: str, given: str | None = None) -> str:
    """What a terminal gets of both streams; it has no size, as a pseudo-terminal's often has."""
    ours, theirs = pty.openpty()
    heard: list[bytes] = []
    reading = threading.Thread(target=lambda: heard.extend(iter(lambda: _part(ours), b"")))
    reading.start()
    asked = folder / "given.sql"
    asked.write_text(given or "")
    on_terminal(words, theirs, cwd=folder, env=environment(NO_COLOR="1"), given=asked)
    os.close(theirs)
    reading.join(60)
    os.close(ours)
    return b"".join(heard).decode().replace("\r\n", "\n")


def _part(terminal: int) -> bytes:
    try:
        return os.read(terminal, 10_000)
    except OSError:  # how Linux says that the other side was closed
        return b""


GROUPED = (
    f"SELECT {named(PUBLIC)}, count(*) FILTER (WHERE {named(SENSITIVE)} = 'none') AS"
    f" {named('n' + ODD)} FROM t GROUP BY 1 ORDER BY 1"
)
ASKED = {
    "table": ("query", "t.duckdb", GROUPED),
    "csv": ("query", "t.duckdb", GROUPED, "--format", "csv"),
    "safe csv": ("query", "t.duckdb", GROUPED, "--format", "csv", "--safe-csv"),
    "json": ("query", "t.duckdb", GROUPED, "--format", "json"),
    "explain": ("explain", "t.duckdb", GROUPED),
    "verbose": ("explain", "t.duckdb", GROUPED, "--verbose"),
    "explain as json": ("explain", "t.duckdb", GROUPED, "--format", "json"),
    "info": ("info", "t.duckdb"),
    "info as json": ("info", "t.duckdb", "--json"),
    "audit": ("audit", "t.duckdb"),
    "unknown column": ("query", "t.duckdb", f"SELECT {named('x' + ODD)} FROM t"),
    "syntax": ("query", "t.duckdb", f"SELECT '{ODD}' FROM FROM t"),
    "notice": (
        "query",
        "t.duckdb",
        f"SELECT count(*) FROM t WHERE {named(SENSITIVE)} = 'nobody{ODD}'",
    ),
    "publish": ("publish", "t.toml", "-o", "again.duckdb", "--force"),
}


@pytest.mark.parametrize("what", ASKED)
def test_a_terminal_gets_no_control_character(folder, what):
    text = seen(folder, *ASKED[what])
    assert "Traceback" not in text
    assert any(sign in text for sign in ("\\x1b[31m", "\\u001b[31m", "\\x9b2J"))
    if what == "publish":
        text = PROGRESS.sub("", text)
    if text.startswith("ERROR"):  # a tab stays one, so that the caret stands below the right place
        text = text.replace("\t", "")
    assert [line for line in text.split("\n") if not line.isprintable()] == []


def test_the_shell_writes_none_either(folder):
    said = f"{GROUPED};\n\\d\n\\d t\n\\d+\nEXPLAIN VERBOSE {GROUPED};\nSELECT '{ODD}' FROM FROM;\n"
    text = seen(folder, "shell", "t.duckdb", "--keep-going", given=said)
    assert text.count("\\x1b[31m") > 5
    assert "ERROR" in text
    assert [line for line in text.split("\n") if not line.replace("\t", "").isprintable()] == []


def test_files_and_pipes_get_the_data_as_it_is(folder):
    def asked(*more: str) -> str:
        done = CliRunner().invoke(main, ["query", str(folder / "t.duckdb"), GROUPED, *more])
        assert done.exit_code == 0, done.stderr
        return done.stdout_bytes.decode()

    rows = list(csv.reader(io.StringIO(asked("--format", "csv"), newline="")))
    assert rows[0] == [PUBLIC, f"n{ODD}"]
    assert {row[0] for row in rows[1:]} == {ODD, "=1+1", "plain"}
    found = json.loads(asked("--format", "json"))
    assert {row[PUBLIC] for row in found} == {ODD, "=1+1", "plain"}
    safe = list(csv.reader(io.StringIO(asked("--format", "csv", "--safe-csv"), newline="")))
    assert {row[0] for row in safe[1:]} == {ODD, "'=1+1", "plain"}
    assert [row[1:] for row in safe[1:]] == [row[1:] for row in rows[1:]]


SQL = (
    "SELECT '=1+1' AS a, '+x' AS \"=b\", '-x' AS c, '@x' AS d, chr(9) || 'x' AS e,"
    " chr(13) || 'x' AS f, 'a=b' AS g, -5 AS h, -1.5::DOUBLE AS i, NULL AS j, '' AS k, '-1' AS l,"
    " DATE '2024-01-01' AS m, '＝1' AS n"
)


def test_formulas_are_text_on_demand(folder, tmp_path):
    def rows(*more: str) -> list[list[str]]:
        path = tmp_path / "answer.csv"
        words = ["query", str(folder / "t.duckdb"), SQL, "-o", str(path), "--force", *more]
        done = CliRunner().invoke(main, words)
        assert done.exit_code == 0, done.stderr
        return list(csv.reader(io.StringIO(path.read_bytes().decode(), newline="")))

    plain, safe = rows(), rows("--safe-csv")
    assert plain[1][:6] == ["=1+1", "+x", "-x", "@x", "\tx", "\rx"]
    assert safe[0][:3] == ["a", "'=b", "c"]
    assert safe[1] == [
        *("'=1+1", "'+x", "'-x", "'@x", "'\tx", "'\rx", "a=b", "-5", "-1.5", "", "", "'-1"),
        *("2024-01-01", "'＝1"),
    ]


@pytest.mark.parametrize("more", [(), ("--format", "json"), ("-o", "x.parquet")])
def test_safe_csv_is_for_csv(folder, more):
    done = CliRunner().invoke(main, ["query", str(folder / "t.duckdb"), SQL, "--safe-csv", *more])
    assert done.exit_code == 2
    assert "--safe-csv is for CSV" in done.stderr


def test_an_error_is_printed_without_them_wherever_it_is(folder):
    problem = DataError(f"a{ODD}", hint=f"b{ODD}", place=Place(f"SELECT{ODD} x", 6, 9))
    for text in (str(problem), problem.for_people()):
        assert all(line.replace("\t", "").isprintable() for line in text.split("\n"))
    assert problem.reason == f"a{ODD}"


def test_carets_stay_below_what_they_mean():
    text = "SELECT '\x1b\x9b' , nope"
    first, second = str(Place(text, text.index("nope"), len(text))).split("\n")
    assert first.index("nope") == second.index("^")
    first, second = str(Place(text, text.index("'"), text.index(" ,"))).split("\n")
    assert first[first.index("'") : first.rindex("'") + 1] == "'\\x1b\\x9b'"
    assert second.count("^") == len("'\\x1b\\x9b'")


@pytest.fixture(scope="module")
def flagged(folder: Path) -> Iterator[Running]:
    """A server whose notices name public values."""
    made = folder / "flagged"
    made.mkdir()
    spec = made / "f.toml"
    spec.write_text(SPEC + '[policy]\npersonal_groups = "flag"\nmin_rows = 0\n')
    privsql.publish(str(folder / "t.parquet"), made / "f.duckdb", spec=spec, seed=1)
    with serving([made / "f.duckdb"], made) as running:
        yield running


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT {named(PUBLIC)}, count(*) FROM t WHERE {named(SENSITIVE)} = 'none' GROUP BY 1",
        f"SELECT count(*) FROM t WHERE {named(SENSITIVE)} = 'x{ODD}'",
        f"SELECT {named('no' + ODD)} FROM t",
        f"SELECT 1 FROM {named('no' + ODD)}",
        f"SHOW {named('no' + ODD.replace('.', ''))}",
        f"SELECT no{ODD}",
        f"EXECUTE {named(ODD)}",
    ],
    ids=["value", "constant", "column", "table", "setting", "syntax", "statement"],
)
def test_notices_and_errors_over_the_wire_are_printable(flagged: Running, sql: str) -> None:
    """psql writes them to its terminal as they come."""
    client = flagged.client()
    found = client.query(sql)
    client.close()
    told = [each for each in found if each.kind in ("N", "E")]
    assert told
    for each in told:
        said = "".join(each.fields[key] for key in ("M", "H") if key in each.fields)
        assert said.replace("\n", "").replace("\t", "").isprintable(), said
    if "GROUP BY" in sql:
        assert any("x1b[31m" in each.fields["M"] for each in told)
