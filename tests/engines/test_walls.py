"""The second wall: what DuckDB itself refuses when everything before it has failed.

Statements are given to the cursors of both databases directly, past the parser, the guard and
the check that only one SELECT is run.
"""

from __future__ import annotations

import hashlib
import http.server
import threading

import duckdb
import pytest

from privsql.engines import Embedded, Memory, OutOfMemoryError
from privsql.engines.databases import Most
from privsql.errors import Error, ProgrammingError


@pytest.fixture(scope="module", params=["embedded", "memory"])
def database(request, clinic):
    opened = (
        Embedded(clinic, memory_limit="200MB", threads=1, spill="10MB")
        if request.param == "embedded"
        else Memory(memory_limit="200MB")
    )
    yield opened
    opened.close()


def raw(database, sql):
    """Run anything, on a cursor as statements have it."""
    return database._calls.run(lambda cursor: cursor.execute(sql).fetchall())


def asked(database, sql):
    """Run it the way that statements are run."""
    return (database.scan if isinstance(database, Embedded) else database.run)(sql)


FILES = [
    "SELECT * FROM read_csv('{folder}/secret.csv')",
    "SELECT * FROM read_csv_auto('{folder}/*.csv')",
    "SELECT * FROM sniff_csv('{folder}/secret.csv')",
    "SELECT * FROM read_parquet('{folder}/raw.parquet')",
    "SELECT * FROM parquet_metadata('{folder}/raw.parquet')",
    "SELECT * FROM parquet_schema('{folder}/raw.parquet')",
    "SELECT * FROM read_json('{folder}/secret.csv')",
    "SELECT * FROM read_text('{folder}/secret.csv')",
    "SELECT * FROM read_blob('{folder}/secret.csv')",
    "SELECT * FROM '{folder}/secret.csv'",
    "SELECT * FROM glob('{folder}/*')",
    "SELECT * FROM read_duckdb('{folder}/clinic.duckdb')",
    "SELECT * FROM '{folder}/raw.parquet'",
    "ATTACH '{folder}/other.duckdb' AS other",
    "ATTACH '{folder}/clinic.duckdb' AS again",
    "ATTACH '{folder}/clinic.duckdb' AS again (READ_WRITE)",
    "ATTACH '{folder}/other.sqlite' AS other (TYPE sqlite)",
    "COPY (SELECT 1) TO '{folder}/out.csv'",
    "COPY (SELECT 1) TO '{folder}/out.parquet' (FORMAT parquet)",
    "EXPORT DATABASE '{folder}/out'",
    "IMPORT DATABASE '{folder}/out'",
    "CREATE TABLE t AS FROM '{folder}/secret.csv'",
    "CREATE SECRET s (TYPE s3, KEY_ID 'a', SECRET 'b')",
    "CREATE PERSISTENT SECRET s (TYPE http, BEARER_TOKEN 'b')",
    "SELECT * FROM read_csv('http://localhost:{port}/x.csv')",
    "SELECT * FROM 'http://localhost:{port}/x.parquet'",
    "INSTALL httpfs",
    "FORCE INSTALL httpfs",
    "INSTALL httpfs FROM 'http://localhost:{port}'",
    "INSTALL x FROM community",
    "LOAD httpfs",
    "LOAD '{folder}/x.duckdb_extension'",
    "UPDATE EXTENSIONS",
    "PRAGMA enable_profiling='json'; PRAGMA profiling_output='{folder}/out.json'",
    "SET profiling_output = '{folder}/out.json'",
    "SET log_query_path = '{folder}/out.log'",
    "CALL enable_logging(storage='file', storage_config={{'path': '{folder}/out'}})",
]


def state(folder):
    return {
        each.name: hashlib.sha256(each.read_bytes()).hexdigest()
        for each in folder.iterdir()
        if each.is_file()
    }


@pytest.fixture(scope="module")
def server():
    """Something to reach: whatever gets through is noted."""
    reached = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            reached.append(self.path)
            self.send_error(404)

        do_HEAD = do_GET  # noqa: N815 - the name that is called

        def log_message(self, *_args):
            pass

    listening = http.server.ThreadingHTTPServer(("localhost", 0), Handler)
    threading.Thread(target=listening.serve_forever, daemon=True).start()
    yield listening.server_address[1], reached
    listening.shutdown()
    listening.server_close()


@pytest.mark.parametrize("sql", FILES)
def test_no_file_and_no_network_is_reached(database, clinic, server, sql):
    port, reached = server
    (clinic.parent / "secret.csv").write_text("a,b\n1,2\n")
    before = state(clinic.parent)
    text = sql.format(folder=clinic.parent, port=port)
    with pytest.raises(Error):
        raw(database, text)
    with pytest.raises(Error):
        asked(database, text)
    assert state(clinic.parent) == before
    assert reached == []


SETTINGS = [
    ("enable_external_access", "true"),
    ("allowed_directories", "['/']"),
    ("allowed_paths", "['/etc/hostname']"),
    ("autoload_known_extensions", "true"),
    ("autoinstall_known_extensions", "true"),
    ("allow_community_extensions", "true"),
    ("allow_unsigned_extensions", "true"),
    ("custom_extension_repository", "'http://localhost'"),
    ("extension_directory", "'/tmp'"),
    ("home_directory", "'/tmp'"),
    ("secret_directory", "'/tmp'"),
    ("temp_directory", "'/tmp'"),
    ("max_temp_directory_size", "'1TB'"),
    ("memory_limit", "'1TB'"),
    ("max_memory", "'1TB'"),
    ("threads", "64"),
    ("worker_threads", "64"),
    ("python_enable_replacements", "true"),
    ("lock_configuration", "false"),
    ("max_expression_depth", "1000000"),
    ("access_mode", "'read_write'"),
]


@pytest.mark.parametrize("how", ["SET", "SET GLOBAL", "SET SESSION", "RESET", "PRAGMA"])
@pytest.mark.parametrize(("name", "value"), SETTINGS)
def test_the_configuration_is_locked(database, how, name, value):
    sql = f"RESET {name}" if how == "RESET" else f"{how} {name} = {value}"
    asked_for = f"SELECT current_setting('{name}')"
    before = raw(database, asked_for)
    with pytest.raises(Error):
        raw(database, sql)
    with pytest.raises(ProgrammingError):
        asked(database, sql)
    assert raw(database, asked_for) == before


def test_what_is_set(database):
    rows = dict(
        raw(
            database,
            "SELECT name, value FROM duckdb_settings() WHERE name IN ('enable_external_access',"
            " 'lock_configuration', 'autoload_known_extensions', 'autoinstall_known_extensions',"
            " 'allow_community_extensions', 'allow_unsigned_extensions', 'threads',"
            " 'python_enable_replacements', 'memory_limit')",
        )
    )
    assert rows == {
        "enable_external_access": "false",
        "lock_configuration": "true",
        "autoload_known_extensions": "false",
        "autoinstall_known_extensions": "false",
        "allow_community_extensions": "false",
        "allow_unsigned_extensions": "false",
        "python_enable_replacements": "false",
        "threads": "1",
        "memory_limit": "190.7 MiB",
    }


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO release.main.patients SELECT * FROM release.main.patients",
        "UPDATE release.main.patients SET job = 'x'",
        "DELETE FROM release.main.patients",
        "DROP TABLE release.main.patients",
        "ALTER TABLE release.main.patients ADD COLUMN x INTEGER",
        "CREATE TABLE release.main.x AS SELECT 1",
        "CREATE VIEW release.main.x AS SELECT 1",
        "CREATE SCHEMA release.x",
        "CREATE INDEX i ON release.main.patients (job)",
        "TRUNCATE release.main.patients",
        "DELETE FROM release.privsql.manifest",
        "CREATE MACRO release.main.f(x) AS x",
    ],
)
def test_the_release_cannot_be_written(clinic, sql):
    engine = Embedded(clinic)
    before = clinic.read_bytes()
    with pytest.raises(Error):
        raw(engine, sql)
    engine.close()
    assert clinic.read_bytes() == before


def test_the_database_that_answers_holds_no_release(clinic):
    memory = Memory()
    found = raw(memory, "SELECT count(*) FROM duckdb_tables() WHERE NOT internal")
    assert found == [(0,)]
    with pytest.raises(Error):
        raw(memory, "SELECT * FROM release.main.patients")
    memory.close()


def test_where_this_wall_ends(clinic):
    """DuckDB lets the file that is attached be opened again.

    Whoever gets past both checks of statements could let go of the release, open its file for
    writing, or read its bytes.  It is the published file and nothing else, and a server should
    have no right to write it; that only one SELECT is run is what holds here.
    """
    engine = Embedded(clinic)
    for sql in (
        "DETACH release",
        "USE memory",
        f"ATTACH '{clinic}' AS again (READ_ONLY)",
        "SELECT 1; DETACH release",
    ):
        with pytest.raises(ProgrammingError, match="only one SELECT"):
            engine.scan(sql)
    engine.close()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1) UNION ALL (SELECT 2",
        "SELECT 'é)' || '(') FROM (SELECT 1",
        "SELECT 1) -- (",
        "SELECT (1",
        "SELECT 1) /* ( */ , (SELECT 2",
        "SELECT $$ ( $$) , (SELECT 2",
    ],
)
def test_a_statement_cannot_leave_the_limit_on_its_rows(clinic, sql):
    engine = Embedded(clinic, most=Most(10, 100, 10_000))
    with pytest.raises(ProgrammingError, match="only one SELECT"):
        engine.scan(sql)
    engine.close()


def test_parentheses_in_texts_and_comments_are_none(clinic):
    engine = Embedded(clinic, most=Most(10, 100, 10_000))
    sql = """SELECT 'é)' AS "a(", $$)$$, e'\\')' /* ) /* ( */ */ -- )\n , (1)"""
    assert engine.scan(sql).to_pylist()[0]["a("] == "é)"
    engine.close()


def test_what_is_sorted_on_disk_is_limited(clinic):
    """40 MB of memory and 10 MB of disk are not enough for this, and the disk is given back."""
    sql = "SELECT max(r) FROM (SELECT row_number() OVER (ORDER BY hash(i), s) AS r FROM (SELECT i,"
    sql += " repeat('y', 30) || i AS s FROM range(1000000) t(i)))"
    engine = Embedded(clinic, memory_limit="40MB", threads=1, spill="10MB")
    with pytest.raises(OutOfMemoryError):
        engine.scan(sql)
    engine.close()
    assert not list(clinic.parent.glob("*.tmp"))
    enough = Embedded(clinic, memory_limit="40MB", threads=1, spill="1GB")
    assert enough.scan(sql).column(0)[0].as_py() == 1_000_000
    enough.close()


def test_the_database_that_answers_has_no_disk():
    memory = Memory(memory_limit="40MB")
    with pytest.raises(OutOfMemoryError):
        memory.run("SELECT list(i || repeat('y', 30)) FROM range(2000000) t(i)")
    assert memory.run("SELECT 1 AS n")["n"][0].as_py() == 1
    memory.close()


def test_python_is_out_of_reach(database):
    secret = duckdb.connect()  # a name that stands in this frame
    for sql in ("SELECT * FROM secret", "SELECT * FROM FILES", "FROM SETTINGS"):
        with pytest.raises(Error):
            raw(database, sql)
    secret.close()
