"""The database for reconstruction: tables in, answers out, and nothing else in reach."""

from __future__ import annotations

import decimal

import pyarrow as pa
import pytest

from privsql.engines import Memory
from privsql.engines.memory import MOST_IDLE
from privsql.errors import DataError, Error, InterfaceError, InternalError, ProgrammingError

HALF = "[[[0.75, 0.25], [0.25, 0.75]]]"
TABLE = pa.table({"job": ["eng", "law"], "y": [[45.0, 55.0], [30.0, 70.0]]})


@pytest.fixture(scope="module")
def shared():
    opened = Memory()
    yield opened
    opened.close()


@pytest.fixture
def memory(shared):
    yield shared
    for name in ("scan", "other"):
        shared.forget(name)


def test_a_scans_result_is_reconstructed(memory):
    memory.load("scan", TABLE)
    sql = f"SELECT job, privsql_invert(y, {HALF}) AS x FROM scan WHERE job <> ? ORDER BY job"
    rows = memory.run(sql, ["art"])
    assert rows.to_pydict() == {"job": ["eng", "law"], "x": [[40.0, 60.0], [10.0, 90.0]]}


def test_loading_again_replaces_and_forgetting_drops(memory):
    memory.load("scan", TABLE)
    memory.load("scan", pa.table({"n": [1]}))
    assert memory.run("SELECT * FROM scan").to_pydict() == {"n": [1]}
    memory.forget("scan")
    memory.forget("scan")
    with pytest.raises(ProgrammingError, match="scan does not exist"):
        memory.run("SELECT * FROM scan")


def test_uuids_stay_uuids_from_one_database_to_the_next(memory):
    text = "00000000-0000-4000-8000-000000000007"
    sql = f"SELECT '{text}'::UUID AS u, 1 AS n, '{text}' AS t UNION ALL SELECT NULL, 2, NULL"
    found = memory.run(sql)
    memory.load("scan", found)
    memory.load("other", found.slice(0, 0))
    kinds = [("u", "UUID"), ("n", "INTEGER"), ("t", "VARCHAR")]
    assert [memory.describe(f"FROM {name}") for name in ("scan", "other")] == [kinds, kinds]
    texts = memory.run("SELECT u::VARCHAR AS u FROM scan ORDER BY n")["u"].to_pylist()
    assert texts == [text, None]


def test_what_was_loaded_does_not_change_with_the_program(memory):
    memory.load("other", TABLE)
    memory.load("scan", TABLE.slice(0, 1))
    assert memory.run("SELECT count(*) AS n FROM scan, other")["n"][0].as_py() == 2
    # The way in is not left open.
    with pytest.raises(ProgrammingError):
        memory.run("SELECT * FROM privsql_incoming")


def test_describing_does_not_run(memory):
    memory.load("scan", TABLE)
    sql = "SELECT job, sum(len(y)) AS s, ?::DOUBLE AS d, y, error(job) AS e FROM scan GROUP BY ALL"
    described = memory.describe(sql, [1])
    assert described[:4] == [
        ("job", "VARCHAR"),
        ("s", "HUGEINT"),
        ("d", "DOUBLE"),
        ("y", "DOUBLE[]"),
    ]
    with pytest.raises(DataError):
        memory.run(sql, [1])
    with pytest.raises(ProgrammingError, match='"nothing" not found'):
        memory.describe("SELECT nothing FROM scan")


def test_types_keep_through_a_round(memory):
    rows = memory.run("SELECT sum(i) AS s, 1.50::DECIMAL(4,2) AS d FROM range(5) t(i)")
    assert rows.schema.types == [pa.decimal128(38, 0), pa.decimal128(4, 2)]
    memory.load("scan", rows)
    assert memory.describe("SELECT s, d FROM scan") == [
        ("s", "DECIMAL(38,0)"),
        ("d", "DECIMAL(4,2)"),
    ]
    assert memory.run("SELECT s FROM scan").to_pydict() == {"s": [decimal.Decimal(10)]}


def test_columns_of_one_name_stay_two(memory):
    rows = memory.run("SELECT 1 AS a, 2 AS a")
    assert rows.column_names == ["a", "a"]
    assert rows.column(1)[0].as_py() == 2


def test_numbers_that_a_kernel_cannot_use_are_told_in_its_words(memory):
    with pytest.raises(DataError) as caught:
        memory.run("SELECT privsql_invert([1, 2], [[[0.5, 0.5], [0.5, 0.5]]])")
    assert caught.value.reason == ("factor 1 is singular: published values carry no information")
    with pytest.raises(DataError, match="observed must be finite numbers"):
        memory.run("SELECT privsql_invert([1, 'inf'::DOUBLE], [[[0.75, 0.25], [0.25, 0.75]]])")


@pytest.mark.parametrize(
    "call",
    [
        "privsql_invert([1, 2], [[[1.5, -0.5], [0.0, 1.0]]])",
        "privsql_invert([1, 2, 3], [[[0.75, 0.25], [0.25, 0.75]]])",
        "privsql_score_interval(7, 5, [[[0.75, 0.25], [0.25, 0.75]]], 1.96)",
    ],
)
def test_a_call_that_a_kernel_refuses_is_a_bug_of_ours_and_nobodys_mistake(memory, call):
    with pytest.raises(InternalError) as caught:
        memory.run(f"SELECT {call}")
    assert caught.value.reason.startswith("the reconstruction failed: ")
    assert "report" in str(caught.value.hint)


def test_rounding_in_a_channel_is_nobodys_mistake(memory):
    """Masses that add up to a little more than 1 make a chance of a little less than 0."""
    little = "[[[1.0000000000000002, -2.2e-16], [0.25, 0.75]]]"
    found = memory.run(f"SELECT privsql_invert([10, 20], {little})").column(0).to_pylist()
    assert found[0] == pytest.approx([10 - 20 / 3, 80 / 3])


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('/etc/hostname')",
        "SELECT * FROM '/etc/hostname'",
        "SELECT * FROM TABLE",
        "ATTACH ':memory:' AS x",
        "SET threads = 2",
        "CREATE TABLE x AS SELECT 1",
        "DROP TABLE scan",
    ],
)
def test_nothing_outside_is_in_reach(memory, sql):
    memory.load("scan", TABLE)
    with pytest.raises(Error):
        memory.run(sql)
    assert memory.run("SELECT * FROM scan").num_rows == 2


def test_the_database_is_locked_and_single_threaded(memory):
    rows = memory.run(
        "SELECT current_setting('threads') AS t, current_setting('enable_external_access') AS e,"
        " current_setting('lock_configuration') AS l, current_setting('temp_directory') AS d,"
        " current_setting('python_enable_replacements') AS p"
    )
    assert rows.to_pylist() == [{"t": 1, "e": False, "l": True, "d": "", "p": False}]
    databases = memory.run("SELECT database_name AS d FROM duckdb_databases() WHERE NOT internal")
    assert databases["d"].to_pylist() == ["memory"]


def test_a_closed_one_says_so():
    memory = Memory()
    memory.close()
    memory.close()
    for use in (
        lambda: memory.load("a", TABLE),
        lambda: memory.forget("a"),
        lambda: memory.run("SELECT 1"),
        lambda: memory.describe("SELECT 1"),
    ):
        with pytest.raises(InterfaceError, match="closed"):
            use()


def test_the_next_one_finds_nothing_of_a_closed_one():
    """A closed database is given on, emptied; one with another limit is another database."""
    first = Memory(memory_limit="71MB")
    first.load("scan", TABLE)
    first.load('a "b".c', TABLE)
    database = first._calls._connection
    first.close()
    other, second = Memory(memory_limit="72MB"), Memory(memory_limit="71MB")
    try:
        assert second._calls._connection is database
        assert other._calls._connection is not database
        assert second.run("SELECT count(*) AS n FROM duckdb_tables()")["n"].to_pylist() == [0]
        assert second.run(f"SELECT privsql_invert([45, 55], {HALF})").num_rows == 1
        with pytest.raises(Error):
            second.run("SET threads = 2")
    finally:
        other.close()
        second.close()


def test_databases_that_wait_are_few_and_their_tables_are_gone():
    opened = [Memory(memory_limit="73MB") for _ in range(MOST_IDLE + 2)]
    closed = [each._calls._connection for each in opened]
    for each in opened:
        each.load("scan", TABLE)
        each.close()
    again = [Memory(memory_limit="73MB") for _ in opened]
    try:
        assert sum(each._calls._connection in closed for each in again) == MOST_IDLE
        for each in again:
            with pytest.raises(ProgrammingError, match="scan does not exist"):
                each.run("SELECT * FROM scan")
    finally:
        for each in again:
            each.close()
