"""The embedded engine: what it sees, what it never lets out, and who else may use the file."""

from __future__ import annotations

import os
import re
import shutil
import threading
import time

import duckdb
import pyarrow as pa
import pytest

from privsql.engines import Embedded, OutOfMemoryError
from privsql.errors import (
    DataError,
    Error,
    IntegrityError,
    InterfaceError,
    OperationalError,
    ProgrammingError,
)
from privsql.release.store import open_release
from tests.engines.conftest import SECRET, make

DIM = pa.table({"job": ["eng", "law"], "sector": ["tech", "law"]})


@pytest.fixture
def engine(clinic):
    opened = Embedded(clinic, tables={"jobs": DIM})
    yield opened
    opened.close()


def count(engine: Embedded) -> int:
    return engine.scan("SELECT count(*) AS n FROM patients")["n"][0].as_py()


# --- what it sees ------------------------------------------------------------------


def test_scans_name_the_table_and_what_explains_it(engine):
    assert count(engine) == 3000
    assert engine.scan("SELECT count(*) AS n FROM release.main.patients")["n"][0].as_py() == 3000
    assert engine.scan("SELECT * FROM privsql.tuples").num_rows == 2
    assert engine.scan('SELECT * FROM privsql."domain of disease"').num_rows == 3
    rows = engine.scan("SELECT count(*) AS n FROM patients WHERE job = ? OR job = ?", ["eng", "x"])
    assert 0 < rows["n"][0].as_py() < 3000


def test_a_file_of_any_name_is_the_same_to_scans(clinic, tmp_path):
    for name in ("privsql.duckdb", "memory.duckdb", "release.duckdb", "temp.db", "it's; 1.duckdb"):
        shutil.copy(clinic, tmp_path / name)
        opened = Embedded(tmp_path / name)
        assert count(opened) == 3000
        assert opened.scan("SELECT * FROM privsql.tuples").num_rows == 2
        opened.close()


def test_public_tables_stand_beside_the_published_one(engine):
    rows = engine.scan(
        "SELECT sector, count(*) AS n FROM patients JOIN jobs USING (job) GROUP BY ALL ORDER BY 1"
    )
    assert rows["sector"].to_pylist() == ["law", "tech"]
    assert sum(rows["n"].to_pylist()) == 3000


@pytest.mark.parametrize("name", ["patients", "PATIENTS", "manifest", "tuples", "privsql_x", ""])
def test_a_public_table_cannot_take_a_name_of_the_release(clinic, name):
    with pytest.raises(ProgrammingError, match="that name is taken"):
        Embedded(clinic, tables={name: DIM})


def test_public_tables_of_one_name_are_refused(clinic):
    with pytest.raises(ProgrammingError, match="that name is taken"):
        Embedded(clinic, tables={"jobs": DIM, "Jobs": DIM})


def test_odd_names_of_public_tables_are_names(clinic):
    odd = 'a "b".c; DROP TABLE patients'
    engine = Embedded(clinic, tables={odd: DIM})
    assert engine.scan('SELECT * FROM "a ""b"".c; DROP TABLE patients"').num_rows == 2
    engine.close()


def test_even_a_table_that_slipped_in_does_not_hide_the_published_one(engine):
    """The search path finds the release first."""
    engine._calls.run(lambda c: c.execute("CREATE TABLE memory.main.patients AS SELECT 1 AS n"))
    assert count(engine) == 3000


def test_integer_sums_are_decimals_in_arrow(engine):
    rows = engine.scan("SELECT sum(length(job)) AS s, count(*) AS n, avg(1) AS a FROM patients")
    assert [str(kind) for kind in rows.schema.types] == ["decimal128(38, 0)", "int64", "double"]


# --- what it does not let in or out ------------------------------------------------


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('/etc/hostname')",
        "SELECT * FROM '/etc/hostname'",
        "SELECT * FROM glob('/*')",
        "SELECT content FROM read_text('/etc/hostname')",
        "SELECT * FROM DIM",  # a variable of this program
        "SELECT getenv('HOME')",
        "ATTACH '/tmp/other.duckdb'",
        "COPY patients TO '/tmp/patients.csv'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET threads = 3",
        "SET enable_external_access = true",
        "PRAGMA database_list",
        "CREATE TABLE memory.main.x AS SELECT 1",
        "DELETE FROM patients",
        "SELECT 1; SELECT 2",
        "",
        "-- nothing",
    ],
)
def test_nothing_but_a_select_over_its_tables(engine, sql):
    with pytest.raises(Error):
        engine.scan(sql)
    assert count(engine) == 3000


def test_the_lock_holds_without_the_check_of_statements(engine):
    for sql in (
        "SET threads = 3",
        "SET enable_external_access = true",
        "SET python_enable_replacements = true",
        "ATTACH '/tmp/other.duckdb'",
        "COPY (SELECT 1) TO '/tmp/privsql-escaped.csv'",
        "DELETE FROM release.patients",
        "INSTALL httpfs",
    ):
        with pytest.raises(Error):
            engine._calls.run(lambda cursor, sql=sql: cursor.execute(sql))
    assert not os.path.exists("/tmp/privsql-escaped.csv")


@pytest.mark.parametrize(
    ("expression", "kind"),
    [
        ("note::INTEGER", DataError),
        ("note::DATE", DataError),
        ("note::JSON", DataError),
        ("note::UUID", DataError),
        ("note::ENUM('a')", DataError),
        ("strptime(note, '%d')", DataError),
        ("date_trunc(note, DATE '2020-01-01')", DataError),
        ("regexp_matches(note, note || '(')", DataError),
        ("error(note)", DataError),
        ("note LIKE note ESCAPE note", Error),
        ("json_extract(note, note)", Error),
        ("(SELECT note FROM patients)", DataError),
        ("(length(note) * 1000)::TINYINT", DataError),
        ("9223372036854775807 + length(note)", DataError),
    ],
)
def test_errors_of_values_do_not_quote_them(engine, expression, kind):
    with pytest.raises(kind) as caught:
        engine.scan(f"SELECT max({expression}) FROM patients")
    problem = caught.value
    assert SECRET not in str(problem)
    assert not re.search(r"\d{2}", str(problem).removeprefix(f"ERROR {problem.sqlstate}"))
    assert problem.__cause__ is None
    assert problem.__suppress_context__
    assert problem.hint


def test_errors_of_the_statement_name_what_is_wrong(engine):
    with pytest.raises(ProgrammingError, match='"nothing" not found') as caught:
        engine.scan("SELECT nothing FROM patients")
    assert "Candidate" not in str(caught.value)
    assert "LINE" not in str(caught.value)
    with pytest.raises(ProgrammingError, match="nowhere does not exist") as caught:
        engine.scan("SELECT * FROM nowhere")
    assert "Did you mean" not in str(caught.value)
    with pytest.raises(ProgrammingError, match="syntax error"):
        engine.scan("SELEC 1")


@pytest.mark.parametrize("parameters", [[], [1, 2]])
def test_as_many_parameters_as_the_statement_takes(engine, parameters):
    with pytest.raises(ProgrammingError, match=f"takes 1 parameters; {len(parameters)} were given"):
        engine.scan("SELECT ?", parameters)


def test_parameters_of_strange_kinds_are_our_errors(engine):
    for strange in (object(), "\ud800", 10**60):
        with pytest.raises(Error):
            engine.scan("SELECT ? = job FROM patients", [strange])
    with pytest.raises(Error):
        engine.scan("SELECT '\ud800'")


def test_too_little_memory_is_said(clinic):
    engine = Embedded(clinic, memory_limit="20MB", threads=1)
    with pytest.raises(OutOfMemoryError, match="more memory"):
        engine.scan("SELECT list(repeat(note, 50)) FROM patients, range(1000)")
    assert count(engine) == 3000
    engine.close()
    assert not list(clinic.parent.glob("*.tmp"))


def test_large_scans_spill_beside_the_release_and_clean_up(clinic):
    """Two at once, with external access off."""
    engines = [Embedded(clinic, memory_limit="40MB", threads=1) for _ in range(2)]
    found = []

    def sort(engine):
        rows = engine.scan(
            "SELECT bool_and(s = repeat(?, 30) || i) AS fine, max(r) AS n FROM (SELECT i,"
            " repeat(?, 30) || i AS s, row_number() OVER (ORDER BY hash(i)) AS r"
            " FROM range(1000000) t(i))",
            [str(id(engine) % 7), str(id(engine) % 7)],
        )
        found.append(rows.to_pylist()[0])

    threads = [threading.Thread(target=sort, args=(engine,)) for engine in engines]
    for thread in threads:
        thread.start()
    spilled = set()
    while any(thread.is_alive() for thread in threads):
        spilled |= {path.name for path in clinic.parent.glob("*.tmp/*storage*")}
        time.sleep(0.01)
    for engine in engines:
        engine.close()
    assert spilled
    assert found == [{"fine": True, "n": 1000000}] * 2
    assert not list(clinic.parent.glob("*.tmp"))


@pytest.mark.parametrize("options", [{"memory_limit": "much"}, {"threads": 0}])
def test_options_that_cannot_be_used_are_refused(clinic, options):
    with pytest.raises(ProgrammingError):
        Embedded(clinic, **options)


def test_options_are_those_of_the_database(clinic):
    engine = Embedded(clinic, memory_limit="123MiB", threads=1)
    rows = engine.scan(
        "SELECT current_setting('memory_limit') AS m, current_setting('threads') AS t,"
        " current_setting('enable_external_access') AS e, current_setting('lock_configuration') AS"
        " l, current_setting('autoload_known_extensions') AS a,"
        " current_setting('python_enable_replacements') AS p"
    ).to_pylist()
    assert rows == [{"m": "123.0 MiB", "t": 1, "e": False, "l": True, "a": False, "p": False}]
    engine.close()


# --- the same file in one program --------------------------------------------------


def test_a_later_engine_sees_the_new_release_and_an_earlier_one_the_old(tmp_path):
    path = make(tmp_path)
    first = Embedded(path)
    second = Embedded(path)
    assert count(first) == count(second) == 3000
    make(tmp_path, rows=4000, force=True)
    third = Embedded(path)
    assert count(third) == 4000
    # The earlier ones keep the file that they opened, also for what they never read before.
    assert count(first) == count(second) == 3000
    assert first.scan("SELECT max(note) AS n FROM patients")["n"][0].as_py() == f"{SECRET} 999"
    with open_release(path).connection() as audit:
        assert audit.execute("SELECT count(*) FROM patients").fetchall() == [(4000,)]
    for engine in (first, second, third):
        engine.close()
    last = Embedded(path)
    assert count(last) == 4000
    last.close()


def test_a_file_that_vanished_or_became_another_is_told(clinic, tmp_path):
    path = tmp_path / "a.duckdb"
    with pytest.raises(OperationalError, match="there is no release"):
        Embedded(path)
    assert not path.exists()
    duckdb.connect(str(path)).close()
    with pytest.raises(IntegrityError, match="not a release"):
        Embedded(path)
    path.write_bytes(b"not a database at all" * 1000)
    with pytest.raises(IntegrityError, match="cannot be read"):
        Embedded(path)


def test_a_file_open_for_writing_is_told(clinic, tmp_path):
    path = tmp_path / "a.duckdb"
    shutil.copy(clinic, path)
    with (
        duckdb.connect(str(path)),
        pytest.raises(OperationalError, match="already open in this program"),
    ):
        Embedded(path)
    Embedded(path).close()


def test_threads_share_an_engine(engine):
    found, problems = [], []

    def ask(number):
        try:
            for _ in range(5):
                rows = engine.scan("SELECT count(*) + ? AS n FROM patients", [number])
                found.append(rows["n"][0].as_py() - number)
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert found == [3000] * 40


def test_a_closed_engine_says_so(clinic):
    engine = Embedded(clinic)
    engine.close()
    engine.close()
    engine.interrupt()
    with pytest.raises(InterfaceError, match="closed"):
        count(engine)
    # and has let go of the file
    duckdb.connect(str(clinic)).close()
