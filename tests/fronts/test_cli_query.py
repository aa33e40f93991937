"""`privsql query` and `privsql explain`: what is read, what is written where, what is refused."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

import privsql
from privsql.files import written
from privsql.fronts.cli import common as cli_common
from privsql.fronts.cli import output as cli_output
from privsql.fronts.cli.main import main
from tests.sql.clinic import publish

FLU = "SELECT count(*) AS n FROM patients WHERE disease = 'flu'"


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish(tmp_path_factory.mktemp("clinic"), 0.5, policy="refuse", least=10)


@pytest.fixture(scope="module")
def con(release: Path):
    with privsql.connect(release) as opened:
        yield opened


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: str | Path, given: str | bytes | None = None) -> Result:
    done = CliRunner().invoke(main, [*map(str, words)], input=given, prog_name="privsql")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def fails(done: Result, code: int, *words: str) -> None:
    assert (done.exit_code, done.stdout) == (code, ""), done.output
    for each in words:
        assert each in done.stderr, done.stderr
    assert done.stderr.startswith("ERROR " if code == 1 else "Usage: privsql")


# -- tables --------------------------------------------------------------------------------


def test_a_table_is_what_an_answer_prints(release, con):
    sql = "SELECT disease, count(*) AS n, avg(age) AS age FROM patients GROUP BY disease ORDER BY n"
    done = run("query", release, sql)
    assert done.exit_code == 0
    assert done.stdout == f"{con.sql(sql)}\n"
    assert " ± " in done.stdout
    assert done.stderr == ""


def test_notices_go_to_stderr(release):
    sql = (
        "SELECT job, gender, favourite, count(*) AS n FROM patients WHERE disease = 'flu'"
        " GROUP BY ALL"
    )
    for form in ("table", "csv", "json"):
        done = run("query", release, sql, "--format", form)
        assert done.exit_code == 0
        assert "NOTICE" not in done.stdout
        assert done.stderr.startswith("NOTICE [personal-group]: 18 cells are not answered")
        assert done.stderr.count("\n") == 1


def test_a_pipe_gets_every_row_and_a_terminal_what_it_shows(release, monkeypatch):
    sql = "SELECT age, " + ", ".join(f"count(*) AS number_{i}" for i in range(20))
    sql += " FROM patients GROUP BY age ORDER BY age"
    whole = run("query", release, sql).stdout
    assert [line.split()[0] for line in whole.splitlines()[2:123]] == [*map(str, range(121))]
    assert "number_11" in whole
    monkeypatch.setattr(cli_output, "is_terminal", lambda stream: True)
    monkeypatch.setenv("COLUMNS", "80")
    cut = run("query", release, sql).stdout
    assert "121 rows, 40 shown" in cut
    assert max(map(len, cut.splitlines()[:40])) <= 80


def test_several_statements_run_in_order(release):
    text = f"SET privsql.confidence_level = 0.5; {FLU}; SELECT 2 AS two -- ;\n;"
    done = run("query", release, text)
    first, second = done.stdout.split("\n\n")
    assert "errors at 50%" in first
    assert second == " two\n-----\n   2\n1 row; exact\n"


def test_what_returns_nothing_prints_nothing(release):
    done = run("query", release, "SET privsql.error_bars = true")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "")
    fails(
        run("query", release, "SET privsql.error_bars = true", "--format", "csv"),
        1,
        "csv holds one answer, and these statements return none",
    )


def test_statements_override_options(release):
    asked = ("--confidence-level", "0.8", "--estimator", "iterative")
    shown = "SHOW privsql.confidence_level; SHOW privsql.estimator"
    assert "0.8\n" in (out := run("query", release, shown, *asked).stdout)
    assert "iterative\n" in out
    shown = "SET privsql.confidence_level = 0.7; SHOW privsql.confidence_level"
    assert run("query", release, shown, *asked, "--format", "csv").stdout.endswith("\n0.7\n")


def test_simultaneous_intervals_are_wider(release):
    sql = "SELECT disease, count(*) AS n FROM patients GROUP BY disease ORDER BY 1"
    more = ("--error-bars", "--format", "json")
    alone = json.loads(run("query", release, sql, *more).stdout)
    together = json.loads(run("query", release, sql, "--simultaneous", *more).stdout)
    for one, other in zip(alone, together, strict=True):
        assert other["n_low"] < one["n_low"] < one["n"] < one["n_high"] < other["n_high"]


# -- where SQL comes from ------------------------------------------------------------------


def test_sql_from_a_file_or_stdin(release, here):
    expected = run("query", release, FLU).stdout
    (here / "q.sql").write_text(FLU)
    (here / "bom.sql").write_bytes(b"\xef\xbb\xbf" + FLU.encode())
    for words, given in (
        (["-f", "q.sql"], None),
        (["--file", "bom.sql"], None),
        (["-f", "-"], FLU),
        (["-"], FLU),
        ([], FLU),
    ):
        assert run("query", release, *words, given=given).stdout == expected


def test_letters_beyond_ascii_are_read_as_utf8(release, here):
    (here / "q.sql").write_text("SELECT 'é 漢' AS x", encoding="utf-8")
    assert run("query", release, "-f", "q.sql", "--format", "csv").stdout == "x\né 漢\n"


def test_unreadable_sql(release, here):
    (here / "bad.sql").write_bytes(b"SELECT '\xff'")
    (here / "wide.sql").write_text("SELECT 1", encoding="utf-16")
    fails(run("query", release, "-f", "bad.sql"), 1, "bad.sql is not valid UTF-8: byte 9", "HINT")
    fails(run("query", release, "-f", "wide.sql"), 1, "wide.sql is not valid UTF-8")
    fails(run("query", release, given=b"\xff"), 1, "stdin is not valid UTF-8")
    fails(run("query", release, "-f", "."), 1, "[operational]: .: is a directory")
    fails(run("query", release, "-f", "none.sql"), 1, "none.sql: no such file or directory")
    for empty in ("", " \n", "-- nothing\n;;"):
        fails(run("query", release, empty), 1, "there is no statement in this text", "HINT: give")
        fails(run("explain", release, given=empty), 1, "there is no statement in this text")


def test_no_sql_or_twice_is_a_mistake_of_the_command(release, here, monkeypatch):
    fails(run("query", release, "SELECT 1", "-f", "q.sql"), 2, "SQL and --file are both given")
    monkeypatch.setattr("privsql.fronts.cli.statements.is_terminal", lambda stream: True)
    fails(run("query", release), 2, "There is no SQL: give SQL as an argument, in a file")


@pytest.mark.parametrize(
    ("text", "line", "caret"),
    [
        ("SELECT nope FROM patients", "LINE 1: SELECT nope FROM patients", "nope"),
        (
            "-- SELECT nope FROM patients\nSET privsql.error_bars = true;\n"
            "SELECT 1;\n/* SELECT nope FROM patients */ SELECT nope FROM patients; SELECT 3",
            "LINE 4: /* SELECT nope FROM patients */ SELECT nope FROM patients; SELECT 3",
            "nope",
        ),
        ("SELECT 1;\n\nSELECT 'a' FRO b c", "LINE 3: SELECT 'a' FRO b c", "FRO"),
        ("SELECT 1;\n\nSELECT 'a' x b c", "LINE 3: SELECT 'a' x b c", "b"),
        (
            "SELECT 1;\nSET privsql.estimator = 'x'",
            "LINE 2: SET privsql.estimator = 'x'",
            "SET privsql.estimator = 'x'",
        ),
    ],
)
def test_an_error_points_into_the_whole_text(release, text, line, caret):
    for command in ("query", "explain"):
        done = run(command, release, "-", given=text)
        assert done.exit_code == 1
        _, shown, under, *_ = done.stderr.splitlines()
        assert shown == line
        at = line.rindex(caret)
        assert under == " " * at + "^" * len(caret)


def test_words_of_ours_move_no_caret(release):
    done = run("explain", release, "SELECT  nope FROM patients", "--format", "csv")
    fails(done, 1, "LINE 1: SELECT  nope FROM patients\n                ^^^^\n")


def test_sql_may_begin_with_a_comment(release):
    assert run("query", release, "-- one\nSELECT 1 AS n", "--format", "csv").stdout == "n\n1\n"
    fails(run("query", release, "--one"), 2, "No such option")


# -- what cannot be asked ------------------------------------------------------------------


def test_releases_that_are_none(release, here):
    (here / "cut.duckdb").write_bytes(release.read_bytes()[:100_000])
    (here / "foreign.duckdb").write_text("hello")
    for name, said in (
        ("none.duckdb", "ERROR 58000 [operational]: there is no release at none.duckdb"),
        ("cut.duckdb", "ERROR XX001 [integrity]: cut.duckdb cannot be read"),
        ("foreign.duckdb", "ERROR XX001 [integrity]: foreign.duckdb cannot be read"),
        (".", "ERROR 58000 [operational]: . is a folder, but not one of a release"),
    ):
        fails(run("query", name, "SELECT 1", "-o", "x.csv"), 1, said)
        fails(run("explain", name, "SELECT 1"), 1, said)
    assert sorted(os.listdir()) == ["cut.duckdb", "foreign.duckdb"]


def test_a_refusal_has_the_projects_format(release):
    sql = (
        "SELECT count(*) FROM patients WHERE job = 'eng' AND gender = 'F' AND favourite = 'flu'"
        " AND disease = 'hiv'"
    )
    done = run("query", release, sql)
    fails(done, 1)
    lines = done.stderr.splitlines()
    assert lines[0].startswith("ERROR 42501 [personal-group]: ")
    assert [line.split(" ")[0] for line in lines[1:]] == ["LINE", "", "HINT:"]


def test_a_terminal_has_the_sqlstate_last_and_no_line_beyond_its_width(release, monkeypatch):
    monkeypatch.setattr(cli_common, "terminal_width", lambda stream: 60)
    sql = (
        "SELECT count(*) FROM patients WHERE job = 'eng' AND gender = 'F' AND favourite = 'flu'"
        " AND disease = 'hiv'"
    )
    done = run("query", release, sql)
    fails(done, 1, "ERROR [personal-group]: ")
    lines = done.stderr.splitlines()
    assert max(map(len, lines)) <= 60
    assert "one personal group (SQLSTATE 42501)" in " ".join(done.stderr.split())
    where = next(i for i, line in enumerate(lines) if line.startswith("LINE 1: "))
    at = lines[where + 1]
    assert lines[where][at.index("^") : len(at)] == "job = 'eng'"


def test_notices_are_wrapped_on_a_terminal_alone(release, monkeypatch):
    sql = "SELECT disease, count(*) AS n FROM patients GROUP BY 1 ORDER BY n LIMIT 1"
    whole = run("query", release, sql).stderr
    assert len(whole.splitlines()) == 1
    monkeypatch.setattr(cli_common, "terminal_width", lambda stream: 60)
    done = run("query", release, sql).stderr
    assert max(map(len, done.splitlines())) <= 60
    assert done.split() == whole.split()


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_one_answer_a_file(release, form):
    done = run("query", release, "SELECT 1; SELECT 2", "--format", form)
    fails(done, 1, f"{form} holds one answer, and these statements return 2", "HINT")


def test_parquet_is_not_for_a_terminal(release, monkeypatch):
    monkeypatch.setattr(cli_output, "is_terminal", lambda stream: True)
    fails(
        run("query", release, "SELECT 1", "--format", "parquet"),
        2,
        "cannot be written to a terminal",
    )


@pytest.mark.parametrize("level", ["0", "1", "-1", "95", "many"])
def test_a_level_is_between_0_and_1(release, level):
    fails(run("query", release, "SELECT 1", "--confidence-level", level), 2, "--confidence-level")


def test_nothing_that_is_not_a_number_is_a_level(release):
    fails(run("query", release, "SELECT 1", "--confidence-level", "nan"), 1, "between 0 and 1")


# -- files ---------------------------------------------------------------------------------


def test_the_name_tells_the_format(release, here):
    for name, begin in (
        ("a.csv", b"n\n"),
        ("a.json", b'[\n{"n": '),
        ("a.JSON", b'[\n{"n": '),
        ("a.parquet", b"PAR1"),
        ("a.txt", b" n\n--"),
    ):
        done = run("query", release, FLU, "-o", name)
        assert (done.exit_code, done.output) == (0, "")
        assert (here / name).read_bytes().startswith(begin)
    run("query", release, FLU, "-o", "a.csv", "--format", "json", "--force")
    assert (here / "a.csv").read_bytes() == (here / "a.json").read_bytes()
    assert run("query", release, FLU, "-o", "-").stdout.startswith(" n\n")


def test_a_file_has_what_stdout_would(release, here):
    text = f"{FLU}; SELECT 1 AS one"
    run("query", release, text, "-o", "a.txt")
    assert (here / "a.txt").read_text() == run("query", release, text).stdout


def test_a_file_that_is_there_stays(release, here):
    (here / "a.csv").write_text("mine")
    fails(run("query", release, FLU, "-o", "a.csv"), 1, "a.csv exists already", "--force")
    assert (here / "a.csv").read_text() == "mine"
    assert run("query", release, FLU, "-o", "a.csv", "--force").exit_code == 0
    assert (here / "a.csv").read_text().startswith("n\n")


def test_a_failure_changes_nothing(release, here):
    (here / "a.txt").write_text("mine")
    for text in ("SELECT 1; SELECT nope FROM patients", "SELECT FROM", f"{FLU}; SELECT age"):
        fails(run("query", release, text, "-o", "a.txt", "--force"), 1)
        fails(run("query", release, text, "-o", "b.txt"), 1)
    fails(run("query", release, FLU, "-o", "no/b.csv"), 1, "there is no folder no")
    fails(run("query", release, FLU, "-o", "."), 1, ". is a folder")
    assert os.listdir() == ["a.txt"]
    assert (here / "a.txt").read_text() == "mine"


def test_what_is_read_is_never_overwritten(release, here):
    os.link(release, "r.duckdb")
    (here / "q.sql").write_text(FLU)
    before = release.read_bytes()
    fails(
        run("query", "r.duckdb", FLU, "-o", "r.duckdb", "--force"), 1, "is an input of this command"
    )
    done = run("query", "r.duckdb", "-f", "q.sql", "-o", "q.sql", "--force")
    fails(done, 1, "q.sql is an input of this command")
    assert release.read_bytes() == before
    assert (here / "q.sql").read_text() == FLU


def test_a_write_that_fails_leaves_the_old_file(here):
    target = here / "a.csv"
    target.write_text("mine")

    def half(name: Path, *, force: bool, then: Callable[[], object]) -> None:
        with written(name, force=force) as stream:
            stream.write(b"half")
            then()

    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        half(target, force=True, then=stop)
    with pytest.raises(privsql.OperationalError, match="b exists already"):
        half(here / "b", force=False, then=lambda: (here / "b").write_text("somebody was faster"))
    assert sorted(os.listdir()) == ["a.csv", "b"]
    assert (target.read_text(), (here / "b").read_text()) == ("mine", "somebody was faster")


def test_a_file_gets_the_users_mask_and_a_link_stays(here):
    before = os.umask(0o027)
    try:
        with written(here / "a", force=False) as stream:
            stream.write(b"1")
    finally:
        os.umask(before)
    assert (here / "a").stat().st_mode & 0o777 == 0o640
    (here / "link").symlink_to("a")
    with written(here / "link", force=True) as stream:
        stream.write(b"2")
    assert (here / "link").is_symlink()
    assert (here / "a").read_bytes() == b"2"


def test_a_device_is_written_to(release):
    assert run("query", release, "SELECT 1", "--format", "csv", "-o", "/dev/null").exit_code == 0


# -- explain -------------------------------------------------------------------------------


def test_explain_is_what_the_connection_explains(release):
    with privsql.connect(release) as con:  # of its own: tables are numbered by statement
        expected = con.explain(FLU).rstrip("\n") + "\n"
    with privsql.connect(release) as con:
        everything = con.explain(FLU, verbose=True).rstrip("\n") + "\n"
    assert len(expected.splitlines()) <= 10 < len(everything.splitlines())
    for text in (FLU, f"EXPLAIN RECONSTRUCTION {FLU}"):
        assert run("explain", release, text).stdout == expected
        assert run("explain", release, text, "--verbose").stdout == everything
    assert run("query", release, f"EXPLAIN RECONSTRUCTION {FLU}").stdout == expected
    for words in ("EXPLAIN RECONSTRUCTION VERBOSE", "explain verbose"):
        assert run("query", release, f"{words} {FLU}").stdout == everything


def test_explain_in_other_formats(release):
    with privsql.connect(release) as con:
        rows = con.sql(f"EXPLAIN RECONSTRUCTION {FLU}").fetchall()
    for text in (FLU, f"EXPLAIN RECONSTRUCTION {FLU}"):
        done = run("explain", release, text, "--format", "json")
        assert [tuple(row.values()) for row in json.loads(done.stdout)] == rows


def test_explain_keeps_to_the_settings(release):
    plain = run("explain", release, FLU).stdout
    iterative = run("explain", release, FLU, "--estimator", "iterative").stdout
    assert "estimated by inversion" in plain
    assert "iterative" in iterative
    text = f"SET privsql.estimator = 'iterative'; {FLU}"
    assert run("explain", release, text).stdout == iterative
    fails(run("explain", release, "EXPLAIN SELECT FROM"), 1)


def test_both_commands_have_the_same_options():
    assert isinstance(main, click.Group)
    names = {
        name: {option for p in main.commands[name].params for option in p.opts}
        for name in ("query", "explain")
    }
    assert names["query"] - names["explain"] == {"--error-bars", "--safe-csv"}
    assert names["explain"] - names["query"] == {"-v", "--verbose"}
