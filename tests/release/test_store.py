"""Opening a release: what is not one, or not a whole one, is told apart and refused."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import privsql
from privsql.errors import Error, IntegrityError, OperationalError
from privsql.release import store
from privsql.release.spec import parse_spec

SPEC = """
[release]
table = "t"
[columns.x]
role = "public"
[columns.y]
role = "public"
accept_unique = true
[columns.ill]
role = "sensitive"
mechanism = "uniform"
retention = 0.5
domain = ["a", "b"]
[columns.age]
role = "sensitive"
mechanism = "uniform"
retention = 0.5
domain = { lower = 0, upper = 9, step = 1 }
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> bytes:
    folder = tmp_path_factory.mktemp("made")
    rows = 3000
    table = pa.table(
        {
            "x": [i % 7 for i in range(rows)],
            "y": list(range(rows)),
            "ill": ["a"] * rows,
            "age": [i % 10 for i in range(rows)],
        }
    )
    pq.write_table(table, folder / "raw.parquet")
    privsql.publish(str(folder / "raw.parquet"), folder / "r.duckdb", spec=parse_spec(SPEC), seed=1)
    return (folder / "r.duckdb").read_bytes()


@pytest.fixture
def release(tmp_path, made) -> Path:
    (tmp_path / "r.duckdb").write_bytes(made)
    return tmp_path / "r.duckdb"


def change(release: Path, *statements: str) -> None:
    with duckdb.connect(str(release)) as con:
        for statement in statements:
            con.execute(statement)


def test_what_was_made_is_opened_and_nothing_is_left_beside_it(release):
    found = privsql.release.open(release)
    with found.connection() as con, privsql.release.open(release).connection() as other:
        assert con.execute("SELECT count(*) FROM t").fetchall() == [(found.manifest.rows,)]
        assert other.execute("SELECT count(*) FROM privsql.tuples").fetchall() == [(3000,)]
    assert os.listdir(release.parent) == ["r.duckdb"]


def test_every_cut_is_noticed(release, made):
    """Also where the tables that are read at once happen to be whole."""
    steps = range(0, len(made), max(1, len(made) // 40))
    for length in (*steps, 1, 4096, 3 * 4096, len(made) - 4096, len(made) - 1):
        release.write_bytes(made[:length])
        with pytest.raises(IntegrityError, match="damaged"):
            privsql.release.open(release)


def test_a_damaged_header_is_noticed(release, made):
    for place in (8, 4096 + 8, 2 * 4096 + 8):
        release.write_bytes(made[:place] + b"\xff" * 16 + made[place + 16 :])
        try:
            privsql.release.open(release)
        except IntegrityError:
            continue
        # There are two headers in turn, of which only the newer one counts.
        assert place != 8


@pytest.mark.parametrize("content", [b"", b"x", b"no database at all" * 1000, b"PAR1" + bytes(99)])
def test_what_is_no_database_is_refused(release, content):
    release.write_bytes(content)
    with pytest.raises(IntegrityError, match="not a release"):
        privsql.release.open(release)


@pytest.mark.parametrize(
    ("statements", "words"),
    [
        ((), "it has no manifest"),
        (("CREATE TABLE manifest AS SELECT 1 AS document",), "it has no manifest"),
        (("CREATE SCHEMA privsql", "CREATE TABLE privsql.manifest (a INTEGER)"), "is damaged"),
        (
            ("CREATE SCHEMA privsql", "CREATE TABLE privsql.manifest (document INT, digest INT)"),
            "is damaged",
        ),
        (
            (
                "CREATE SCHEMA privsql",
                "CREATE TABLE privsql.manifest AS SELECT NULL AS document,"
                f" '{hashlib.sha256(b'None').hexdigest()}' AS digest",
            ),
            "is damaged",
        ),
    ],
)
def test_a_foreign_database_is_refused(tmp_path, statements, words):
    change(tmp_path / "f.duckdb", *statements)
    with pytest.raises(IntegrityError, match=words):
        privsql.release.open(tmp_path / "f.duckdb")


TABLES = [
    *("main.t", "privsql.manifest", "privsql.tuples", 'privsql."domain of ill"'),
    *('privsql."domain of age"', 'privsql."values of x"', 'privsql."values of y"'),
]


def test_the_list_of_tables_is_whole(release):
    with duckdb.connect(str(release)) as con:
        found = con.execute("SELECT schema_name, table_name FROM duckdb_tables()").fetchall()
    assert {f"{schema}.{name}" for schema, name in found} == {t.replace('"', "") for t in TABLES}


@pytest.mark.parametrize("table", TABLES)
def test_a_missing_table_is_noticed(release, table):
    change(release, f"DROP TABLE {table}")
    with pytest.raises(IntegrityError, match=r"missing|no manifest|not the one"):
        privsql.release.open(release)


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM t WHERE x = 3",
        "INSERT INTO t SELECT * FROM t LIMIT 1",
        "ALTER TABLE t DROP COLUMN ill",
        "ALTER TABLE t ADD COLUMN more INTEGER",
        "ALTER TABLE t RENAME COLUMN ill TO well",
        "ALTER TABLE t ALTER COLUMN x TYPE VARCHAR",
        "DELETE FROM privsql.tuples WHERE x = 3",
        "DELETE FROM privsql.tuples",
        "UPDATE privsql.tuples SET privsql_rows = 2 WHERE y = 7",
        "UPDATE privsql.tuples SET privsql_group = privsql_group + 1",
        "ALTER TABLE privsql.tuples DROP COLUMN x",
        "DELETE FROM privsql.\"domain of ill\" WHERE value = 'a'",
        'ALTER TABLE privsql."values of x" DROP COLUMN label',
        "DELETE FROM privsql.manifest",
        "INSERT INTO privsql.manifest SELECT * FROM privsql.manifest",
        "UPDATE privsql.manifest SET document = replace(document, '0.5', '0.9')",
        "UPDATE privsql.manifest SET document = NULL",
        "UPDATE privsql.manifest SET digest = NULL",
        "UPDATE privsql.manifest SET digest = upper(digest)",
    ],
)
def test_a_changed_part_is_noticed(release, statement):
    change(release, statement)
    with pytest.raises(IntegrityError):
        privsql.release.open(release)


def edit(release: Path, how) -> None:
    """Edit the manifest as somebody does who knows of its digest."""
    with duckdb.connect(str(release)) as con:
        ((text,),) = con.execute("SELECT document FROM privsql.manifest").fetchall()
        data = json.loads(text)
        how(data)
        text = json.dumps(data)
        digest = hashlib.sha256(text.encode()).hexdigest()
        con.execute("UPDATE privsql.manifest SET document = ?, digest = ?", [text, digest])


@pytest.mark.parametrize(
    "how",
    [
        lambda d: d.update(rows=5),
        lambda d: d.update(rows="many"),
        lambda d: d.update(table="other"),
        lambda d: d.update(grouped=True),
        lambda d: d.update(multiplicity=True),
        lambda d: d.update(public=7),
        lambda d: d.update(privacy=[]),
        lambda d: d["privacy"].update(epsilon="none"),
        lambda d: d["groups"].update(columns=["x"]),
        lambda d: d["groups"].update(count=1),
        lambda d: d["sensitive"][0].update(domain="abc"),
        lambda d: d["sensitive"][0].update(domain=None),
        lambda d: d["sensitive"][0]["domain"].update(values=["a", "b", "c"]),
        lambda d: d["sensitive"][0].update(channel=[1]),
        lambda d: d["sensitive"].pop(),
        lambda d: d.pop("batches"),
        lambda d: d.update(batches=3),
        lambda d: d.update(format="1"),
    ],
)
def test_an_edited_manifest_that_contradicts_the_tables_is_noticed(release, how):
    edit(release, how)
    with pytest.raises(IntegrityError):
        privsql.release.open(release)


def test_another_version_is_named(release):
    edit(release, lambda d: d.update(format=99))
    with pytest.raises(IntegrityError, match="format 99") as caught:
        privsql.release.open(release)
    assert "version of privsql" in str(caught.value)


def test_what_is_no_file_is_told(tmp_path, release):
    for path, words in (
        (tmp_path / "nowhere.duckdb", "no release at"),
        (tmp_path, "is a folder"),
        (release / "inside", "no release at|cannot open"),
        (tmp_path / ("x" * 300), "cannot open|no release"),
    ):
        with pytest.raises(OperationalError, match=words):
            privsql.release.open(path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OperationalError, match="not a file"):
        privsql.release.open(tmp_path / "pipe")
    assert not (tmp_path / "nowhere.duckdb").exists()


def test_a_file_that_is_open_for_writing_is_told(release):
    with (
        duckdb.connect(str(release)),
        pytest.raises(OperationalError, match="already open in this program"),
    ):
        privsql.release.open(release)
    writing = "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print(1, flush=True); input()"
    other = subprocess.Popen(
        [sys.executable, "-c", writing, str(release)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "1\n"
        with pytest.raises(Error, match="in use"):
            privsql.release.open(release)
    finally:
        other.communicate("\n", timeout=60)
    assert privsql.release.open(release).manifest.table == "t"


def test_a_reader_can_change_nothing_and_read_nothing_else(release, tmp_path):
    (tmp_path / "secret.csv").write_text("a\n1\n")
    with privsql.release.open(release).connection() as con:
        for statement in (
            "DELETE FROM t",
            "CREATE TABLE more AS SELECT 1",
            "SELECT * FROM read_csv('secret.csv')",
            f"SELECT * FROM '{tmp_path}/secret.csv'",
            f"ATTACH '{tmp_path}/other.duckdb'",
            "COPY t TO 'out.csv'",
            "SET enable_external_access = true",
            "DETACH release",
        ):
            with pytest.raises(duckdb.Error):
                con.execute(statement)
    assert sorted(os.listdir(tmp_path)) == ["r.duckdb", "secret.csv"]


# What must not come into our databases with a file, and what a file is told to hold.
STRANGE = {
    "CREATE MACRO main.sum(a) AS 42": "functions",
    "CREATE MACRO main.count(a) AS 42": "functions",
    "CREATE MACRO main.coalesce_(a) AS 42": "functions",
    "CREATE MACRO main.hash(a, b) AS 42": "functions",
    "CREATE MACRO privsql.privsql_invert(a, b) AS 42": "functions",
    "CREATE MACRO main.duckdb_functions() AS TABLE SELECT 'none' AS database_name": "functions",
    "CREATE VIEW main.other AS SELECT 1 AS a": "views",
    "CREATE TYPE main.mood AS ENUM ('a')": "types",
    "CREATE SEQUENCE main.numbers": "sequences",
    "CREATE TABLE main.more (a INTEGER, b INTEGER GENERATED ALWAYS AS (a + 1))": "default",
    "CREATE TABLE main.more (a INTEGER DEFAULT 42)": "default",
}


@pytest.mark.parametrize("statement", STRANGE)
def test_a_file_brings_nothing_but_tables(release, statement):
    change(release, statement)
    for open_ in (privsql.release.open, privsql.connect):
        with pytest.raises(IntegrityError, match=f"it holds {STRANGE[statement]}"):
            open_(release)


@pytest.mark.parametrize("table", ["main.t", "privsql.tuples"])
def test_a_view_in_place_of_a_table_is_refused(release, table):
    schema, _ = table.split(".")
    change(
        release,
        f"ALTER TABLE {table} RENAME TO original",
        f"CREATE VIEW {table} AS SELECT * FROM {schema}.original",
    )
    with pytest.raises(IntegrityError, match="it holds views"):
        privsql.release.open(release)


def test_a_macro_would_have_answered_in_place_of_ours(release, monkeypatch):
    """Without the check a file's functions are called: the attack is real."""
    change(release, "CREATE MACRO main.sum(a) AS 42")
    monkeypatch.setattr(store, "_STRANGE", "SELECT 'x' WHERE false")
    with closing(store._connect(release)) as con:
        assert con.execute("SELECT DISTINCT sum(x) FROM t").fetchall() == [(42,)]
