"""Statements of real drivers over the wire, each as the driver that was seen to fail sends it."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import RawCursor

import privsql
from tests.fronts.pgwire.conftest import Client, Running, kinds, one, text


@pytest.fixture(scope="module")
def connection(running: Running) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(running.dsn(), autocommit=True) as made:
        yield made


def asked(connection: psycopg.Connection[Any], sql: str, *values: object) -> list[Any]:
    """The rows of a statement with ``$1``, as it is written."""
    found: list[Any] = RawCursor(connection).execute(sql, values or None).fetchall()
    return found


def state(connection: psycopg.Connection[Any], sql: str) -> str | None:
    with pytest.raises(psycopg.Error) as caught:
        connection.execute(sql)
    return caught.value.sqlstate


COUNT = "SELECT count(*) FROM patients WHERE "


@pytest.mark.parametrize(
    ("condition", "values"),
    [
        ("job IN ($1,$2)", ("eng", "law")),
        ("job IN($1,$2)AND cost<$3", ("eng", "law", 1000)),
        ("job = ANY($1)", (["eng", "law"],)),
        ("job = SOME ($1)", (["eng", "law"],)),
        ("NOT job <> ALL($1)", (["eng", "law"],)),
        ("job <> ALL($1)", (["med"],)),
        ("job=$1 OR job=$q$law$q$ AND $2=$$it's$$", ("eng", "it's")),
    ],
)
def test_parameters_need_no_space_and_arrays_no_type(connection, condition, values):
    [(expected,)] = asked(connection, COUNT + "job IN ('eng', 'law')")
    assert asked(connection, COUNT + condition, *values) == [(expected,)]


@pytest.mark.parametrize(
    ("sql", "given", "kind", "expected"),
    [
        (COUNT + "job = ANY($1)", b"{eng,law}", 1009, COUNT + "job IN ('eng', 'law')"),
        (COUNT + "job=ANY ($1)", b'{"eng",NULL}', 1009, COUNT + "job = 'eng'"),
        (COUNT + "job <> ALL($1)", b"{eng}", 1009, COUNT + "job <> 'eng'"),
        (COUNT + "cost = ANY($1)", b"{12,13}", 1007, COUNT + "cost IN (12, 13)"),
        (COUNT + "cost > ALL($1)", b"{12,90}", 1007, COUNT + "cost > 90"),
        ("SELECT 5 WHERE date '2024-02-01' = ANY($1)", b"{2024-02-01}", 1182, "SELECT 5"),
        ("SELECT typname FROM pg_type WHERE oid = ANY($1)", b"{23}", 1028, "SELECT 'int4'"),
        ("SELECT typname FROM pg_type WHERE typname <> ALL($1) AND oid=23", b"{x}", None, None),
    ],
)
def test_arrays_that_drivers_send_without_a_type(client: Client, sql, given, kind, expected):
    """node-postgres, Ruby's pg and lib/pq write them as text and leave their type to the server."""
    client.parse(sql, "q")
    client.send("D", b"S" + text("q"))
    client.send("S")
    described = one(client.until("Z"), "t").body
    if kind is not None:
        assert described == struct.pack("!hI", 1, kind)
    client.bind((given,), name="q")
    client.send("E", text("") + bytes(4))
    client.send("S")
    found = one(client.until("Z"), "D").cells
    assert found == one(client.query(expected or "SELECT 'int4'"), "D").cells


@pytest.mark.parametrize(
    ("sql", "values", "expected"),
    [
        ("SELECT relname FROM pg_class WHERE relname = ANY($1)", (["pg_type"],), [("pg_type",)]),
        ("SELECT relname FROM pg_class WHERE oid = ANY($1)", ([1247],), [("pg_type",)]),
        ("SELECT oid FROM pg_type WHERE typname=$1 AND typlen>$2", ("int4", 0), [(23,)]),
        (
            "SELECT count(*) FROM pg_type WHERE oid<>ALL($1) AND oid IN ($2,$3)",
            ([23], 23, 25),
            [(1,)],
        ),
        # numbers of functions: compared with numbers, joined, and shown by name
        (
            "SELECT t.typname, p.proname FROM pg_type t JOIN pg_proc p ON p.oid = t.typreceive"
            " WHERE t.oid IN (23, 1007) ORDER BY 1",
            (),
            [("_int4", "array_recv"), ("int4", "int4recv")],
        ),
        ("SELECT typname FROM pg_type WHERE typreceive = 0 AND oid = 1033", (), [("aclitem",)]),
        ("SELECT typname FROM pg_type WHERE typinput = 'int4in'", (), [("int4",)]),
        (
            "SELECT typinput, typinput::text, typinput::oid FROM pg_type WHERE oid = 23",
            (),
            [("int4in", "int4in", 42)],
        ),
        (
            "SELECT oid FROM pg_type WHERE typreceive::TEXT != 'array_recv' AND oid IN (23, 1007)",
            (),
            [(23,)],
        ),
        # columns of names: Npgsql's udt_name, and everybody's tablename
        (
            "SELECT udt_name::regtype::oid, (table_name)::regclass::oid = c.oid"
            " FROM information_schema.columns JOIN pg_class c ON c.oid = table_name::regclass"
            " WHERE table_name = 'patients' AND column_name = 'job'",
            (),
            [(25, True)],
        ),
        (
            "SELECT tablename::regclass, pg_total_relation_size(tablename::regclass)"
            " FROM pg_tables WHERE tablename = 'patients' AND schemaname::regnamespace = 2200",
            (),
            [("patients", 0)],
        ),
        (
            "SELECT typname::regtype, nspname::regnamespace::oid FROM pg_type JOIN pg_namespace"
            " ON nspname = 'public' WHERE typname = 'int4'",
            (),
            [("integer", 2200)],
        ),
        ("SELECT 'array_in'::regproc, 'pg_type'::regclass", (), [("array_in", "pg_type")]),
        # functions in FROM
        ("SELECT * FROM current_schema()", (), [("public",)]),
        ("SELECT * FROM string_to_array('a,b', ',')", (), [(["a", "b"],)]),
        ("SELECT s FROM generate_subscripts(ARRAY[5, 6], 1) AS s", (), [(1,), (2,)]),
        (
            "SELECT * FROM unnest(ARRAY[1, 2], ARRAY['a', 'b', 'c']) AS u(x, y)",
            (),
            [(1, "a"), (2, "b"), (None, "c")],
        ),
        (
            "SELECT u.x, u.n FROM (SELECT ARRAY[7, 8] AS k) i,"
            " LATERAL unnest(i.k, i.k) WITH ORDINALITY AS u(x, y, n) ORDER BY n",
            (),
            [(7, 1), (8, 2)],
        ),
        # columns that every table has
        (
            "SELECT c.tableoid, c.xmin IS NULL, ctid IS NULL FROM pg_class c WHERE oid = 1259",
            (),
            [(1259, False, False)],
        ),
        (
            "SELECT tableoid::regclass, age(xmin) >= 0 FROM pg_namespace WHERE nspname = 'public'",
            (),
            [("pg_namespace", True)],
        ),
        (
            "SELECT format('%I.%I', nspname, 'Odd name') FROM pg_namespace WHERE oid = 2200",
            (),
            [('public."Odd name"',)],
        ),
        ("SELECT format('%L, %s', 'it''s', 1)", (), [("'it''s', 1",)]),
        ("SELECT pg_get_indexdef(0, 1, true)", (), [(None,)]),
        (
            "SELECT (quote_ident('public') || '.' || quote_ident('pg_type'))::regclass IS NULL",
            (),
            [(False,)],
        ),
        ("SELECT json_agg(x ORDER BY x DESC) FROM (VALUES (1), (2)) v(x)", (), [([2, 1],)]),
    ],
)
def test_catalog_statements(connection, sql, values, expected):
    assert asked(connection, sql, *values) == expected


JOINED = """
    SELECT {} FROM information_schema.columns {}
    JOIN pg_catalog.pg_namespace AS ns ON ns.nspname = c.table_schema
    LEFT JOIN pg_catalog.pg_class AS cls
        ON cls.relname = c.table_name AND cls.relnamespace = ns.oid
    WHERE c.table_name = 'patients'
"""


@pytest.mark.parametrize(
    "sql",
    [
        JOINED.format("c.column_name", "AS c"),
        JOINED.format("C.*, (SELECT count(*) FROM pg_am) AS n", "C"),
        # TypeORM's, and what others ask pg_attribute
        "SELECT attname FROM pg_type t, pg_attribute a, pg_class c WHERE a.attrelid = c.oid"
        " AND t.oid = a.atttypid AND relname = 'patients' AND attnum > 0",
        'SELECT "A".attname FROM pg_class JOIN pg_attribute "A" ON attrelid = oid AND attnum > 0'
        " JOIN pg_type t ON t.oid = atttypid WHERE attrelid = 'patients'::regclass",
    ],
)
def test_columns_are_listed_in_their_order_without_being_asked(connection, sql):
    columns = "SELECT column_name FROM information_schema.columns WHERE table_name = 'patients'"
    wanted = [name for (name,) in asked(connection, f"{columns} ORDER BY ordinal_position")]
    cursor = RawCursor(connection).execute(sql)
    names = [column.name for column in cursor.description or ()]
    at = names.index("attname" if "attname" in names else "column_name")
    assert [row[at] for row in cursor] == wanted


def test_joined_rows_that_become_one_or_are_ordered_otherwise(connection):
    joined = "FROM pg_class c JOIN pg_attribute a ON attrelid = oid WHERE relname = 'patients'"
    [(count,)] = asked(connection, f"SELECT count(*) {joined}")
    assert asked(connection, f"SELECT json_object_agg(attname, 1) IS NULL, array_agg(1) {joined}")
    assert len(asked(connection, f"SELECT DISTINCT attname {joined}")) == count
    assert len(asked(connection, f"SELECT relname, attname {joined} UNION SELECT 'a', 'b'")) > 1
    names = asked(connection, f"SELECT attname {joined} ORDER BY attname DESC")
    assert names == sorted(names, reverse=True)


@pytest.mark.parametrize(
    "expression",
    ["initcap(job)", "width_bucket(cost, 0, 200, 4)", "to_char(cost, '000')", "format('%s!', job)"],
)
def test_functions_that_duckdb_lacks_group_published_rows(connection, expression):
    rows = asked(connection, f"SELECT {expression}, count(*) FROM patients GROUP BY 1")
    assert len(rows) > 1
    assert sum(row[1] for row in rows) == 4000


def test_words_of_sql_are_names_after_as(connection):
    cursor = connection.execute("SELECT 1 AS select, count(*) AS from, 2 AS Order FROM patients")
    assert [column.name for column in cursor.description] == ["select", "from", "order"]


def test_error_bars_need_no_alias(connection):
    sql = "SELECT count(*), privsql_low(count(*)), privsql_high(count(*)) FROM patients"
    cursor = connection.execute(f"{sql} WHERE disease = 'flu'")
    assert [column.name for column in cursor.description] == [
        "count",
        "privsql_low",
        "privsql_high",
    ]
    [(estimate, low, high)] = cursor.fetchall()
    assert low < estimate < high


@pytest.mark.parametrize(
    ("zone", "shown", "time"),
    [
        ("INTERVAL '+02:00' HOUR TO MINUTE", "<+02>-02", "02:00:00+02"),
        ("INTERVAL '-08:30' HOUR TO MINUTE", "<-08:30>+08:30", "15:30:00-08:30"),
        ("-5", "<-05>+05", "19:00:00-05"),
        ("5.5", "<+05:30>-05:30", "05:30:00+05:30"),
        ("'GMT+3'", "GMT+3", "21:00:00-03"),
        ("'Europe/Berlin'", "Europe/Berlin", "01:00:00+01"),
        ("LOCAL", "UTC", "00:00:00+00"),
    ],
)
def test_zones_by_their_distance(client: Client, zone, shown, time):
    assert one(client.query(f"SET TIME ZONE {zone}"), "C").text == "SET"
    assert one(client.query("SHOW TimeZone"), "D").cells == [shown.encode()]
    [cell] = one(client.query("SELECT timestamptz '2024-01-01 00:00:00+00'"), "D").cells
    assert cell is not None
    assert cell.decode().endswith(time)
    hour = one(client.query("SELECT extract(hour FROM localtimestamp - now()::timestamp)"), "D")
    expected = int(shown[1:4]) if shown.startswith("<") else {"G": -3, "E": None}.get(shown[0], 0)
    if expected is not None:
        assert hour.cells == [str(expected).encode()]
    count = client.query("SELECT count(*) FROM patients WHERE seen < now()")
    assert kinds(count).endswith("CZ")


def test_a_zone_that_is_none_is_refused(client: Client):
    for zone in ("99", "'Nowhere/Town'", "INTERVAL '2 months'"):
        assert one(client.query(f"SET TIME ZONE {zone}"), "E").fields["C"] == "22023"


SIGNATURE = b"PGCOPY\n\xff\r\n\0" + bytes(8)


def test_the_signature_of_a_binary_copy_is_with_its_first_row(client: Client):
    found = client.query("COPY (VALUES (1), (2)) TO STDOUT (FORMAT binary)")
    data = [message.body for message in found if message.kind == "d"]
    row = struct.Struct("!hii")
    assert data == [SIGNATURE + row.pack(1, 4, 1), row.pack(1, 4, 2), b"\xff\xff"]
    empty = client.query("COPY (SELECT 1 WHERE false) TO STDOUT (FORMAT binary)")
    assert [m.body for m in empty if m.kind == "d"] == [SIGNATURE + b"\xff\xff"]


def test_columns_name_their_table(connection):
    sql = "SELECT job, count(*), q.gender FROM (SELECT job, gender FROM patients) q GROUP BY 1, 3"
    result = connection.execute(sql).pgresult
    [(oid,)] = asked(connection, "SELECT 'patients'::regclass::oid")
    numbers = dict(
        asked(connection, "SELECT attname, attnum FROM pg_attribute WHERE attrelid = $1", oid)
    )
    assert result is not None
    assert [(result.ftable(i), result.ftablecol(i)) for i in range(3)] == [
        (oid, numbers["job"]),
        (0, 0),
        (oid, numbers["gender"]),
    ]
    result = connection.execute("SELECT * FROM pg_namespace").pgresult
    assert result is not None
    assert [result.ftablecol(i) for i in range(4)] == [1, 2, 3, 4]
    assert result.ftable(0) == 2615


@pytest.mark.parametrize("sql", ["proargtypes AS types", "*"])
def test_vectors_of_the_catalog_are_written_without_braces(client: Client, sql):
    found = client.query(f"SELECT {sql} FROM pg_proc WHERE proname = 'int4in' OR proname = 'lag'")
    name = "types" if sql != "*" else "proargtypes"
    [(at, oid)] = [(i, o) for i, (n, o, _) in enumerate(one(found, "T").columns) if n == name]
    assert oid == 30
    cells = [message.cells[at] for message in found if message.kind == "D"]
    assert {b"2275", b"2283 23"} <= set(cells)


def test_vectors_of_the_catalog_in_binary(running: Running):
    with psycopg.connect(running.dsn(), autocommit=True) as connection:
        cursor = connection.cursor(binary=True)
        cursor.execute("SELECT proargtypes FROM pg_proc WHERE proname = 'int4in'")
        assert cursor.pgresult is not None
        assert cursor.pgresult.get_value(0, 0) == struct.pack("!iiIiiiI", 1, 0, 26, 1, 0, 4, 2275)


def test_uuids_are_described_as_such(connection):
    sql = "SELECT 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid"
    assert connection.execute(sql).description[0].type_code == 2950


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("selec 1", "42601"),
        ("SELECT nope FROM patients", "42703"),
        ("SELECT nope FROM pg_class", "42703"),
        ("SELECT x.job FROM patients", "42P01"),
        ("SELECT count(*) FROM nope", "42P01"),
        ("SELECT * FROM pg_nope", "42P01"),
        ("SELECT nope(1)", "42883"),
        ("SELECT nope(cost) FROM patients", "42883"),
        ("SELECT * FROM nope()", "42883"),
        ("SELECT 1 + 'a'::text", "42883"),
        ("SELECT sum(job) FROM patients", "42883"),
        ("SELECT job, count(*) FROM patients", "42803"),
        ("SELECT count(*) FROM patients WHERE count(*) > 1", "42803"),
        ("SELECT sum(count(*)) FROM patients", "42803"),
        ("SELECT oid FROM pg_class a, pg_type b", "42702"),
        ("SELECT 1 UNION SELECT 1, 2", "42601"),
        ("SELECT 'x'::int", "22P02"),
        ("SELECT count(*) FROM patients WHERE cost = 'x'", "22P02"),
        ("SELECT 1 LIMIT -1", "2201W"),
        ("SELECT count(*) FROM patients GROUP BY 5", "42P10"),
        ("SELECT 1::nope", "42704"),
        ("DELETE FROM patients", "25006"),
        ("CREATE TABLE t (a int)", "25006"),
    ],
)
def test_errors_have_the_sqlstate_of_postgresql(connection, sql, expected):
    assert state(connection, sql) == expected


@pytest.mark.parametrize(
    ("sql", "position"), [("selct 1", "1"), ("  (selct 1)", "4"), ("SELECT 1; selct 2", "11")]
)
def test_a_misspelt_first_word_is_pointed_at(client: Client, sql, position):
    fields = one(client.query(sql), "E").fields
    assert (fields["C"], fields["P"]) == ("42601", position)


def test_embedded_parameters_by_name_and_misspelt_words(release):
    with privsql.connect(release) as connection:
        sql = "SELECT count(*) FROM patients WHERE job IN ($a,$b)"
        found = connection.execute(sql, {"a": "eng", "b": "law"}).fetchall()
        assert found == connection.execute(sql.replace("$a,$b", "'eng','law'")).fetchall()
        with pytest.raises(privsql.Error) as caught:
            connection.execute("selct 1")
    place = caught.value.place
    assert place is not None
    assert (caught.value.sqlstate, place.start, place.stop) == ("42601", 0, 5)
