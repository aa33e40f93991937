"""Every type that an answer can have, text and binary, read by psycopg; and values back."""

from __future__ import annotations

import datetime as dt
from contextlib import suppress
from decimal import Decimal
from typing import Any
from uuid import UUID

import duckdb
import psycopg
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.adapt import PyFormat, Transformer
from psycopg.pq import Format

from privsql.fronts.pgwire.errors import BinaryValueError, TextValueError
from privsql.fronts.pgwire.protocol import encode as encoding
from privsql.fronts.pgwire.protocol import results as sending
from privsql.fronts.pgwire.protocol.decode import argument
from privsql.fronts.pgwire.protocol.types import kind_of, kind_of_oid

UTC = dt.UTC

CASES: list[tuple[str, str, Any]] = [
    ("true", "BOOLEAN", True),
    ("false", "BOOLEAN", False),
    ("(-128)::TINYINT", "TINYINT", -128),
    ("255::UTINYINT", "UTINYINT", 255),
    ("(-32768)::SMALLINT", "SMALLINT", -32768),
    ("65535::USMALLINT", "USMALLINT", 65535),
    ("(-2147483648)::INTEGER", "INTEGER", -(2**31)),
    ("4294967295::UINTEGER", "UINTEGER", 2**32 - 1),
    ("(-9223372036854775808)::BIGINT", "BIGINT", -(2**63)),
    ("18446744073709551615::UBIGINT", "UBIGINT", Decimal(2**64 - 1)),
    ("12345678901234567890123::HUGEINT", "HUGEINT", Decimal("12345678901234567890123")),
    ("1.5::FLOAT", "FLOAT", 1.5),
    ("0.1::DOUBLE", "DOUBLE", 0.1),
    ("1e300::DOUBLE", "DOUBLE", 1e300),
    ("'inf'::DOUBLE", "DOUBLE", float("inf")),
    ("'-inf'::DOUBLE", "DOUBLE", float("-inf")),
    ("12345.67::DECIMAL(9,2)", "DECIMAL(9,2)", Decimal("12345.67")),
    ("(-0.0000000001)::DECIMAL(20,10)", "DECIMAL(20,10)", Decimal("-0.0000000001")),
    ("0::DECIMAL(5,2)", "DECIMAL(5,2)", Decimal("0.00")),
    ("10000::DECIMAL(9,1)", "DECIMAL(9,1)", Decimal("10000.0")),
    ("'ä \\ \"x\"'", "VARCHAR", 'ä \\ "x"'),
    ("''", "VARCHAR", ""),
    ("DATE '2024-02-29'", "DATE", dt.date(2024, 2, 29)),
    ("DATE '0001-01-01'", "DATE", dt.date(1, 1, 1)),
    ("DATE '1999-12-31'", "DATE", dt.date(1999, 12, 31)),
    ("TIME '01:02:03.5'", "TIME", dt.time(1, 2, 3, 500000)),
    (
        "TIMESTAMP '2024-02-29 10:20:30.000001'",
        "TIMESTAMP",
        dt.datetime(2024, 2, 29, 10, 20, 30, 1),
    ),
    ("TIMESTAMP '1969-12-31 23:59:59'", "TIMESTAMP", dt.datetime(1969, 12, 31, 23, 59, 59)),
    ("TIMESTAMP_S '2024-01-01 10:00:00'", "TIMESTAMP_S", dt.datetime(2024, 1, 1, 10)),
    (
        "TIMESTAMPTZ '2024-07-01 12:00:00+00'",
        "TIMESTAMP WITH TIME ZONE",
        dt.datetime(2024, 7, 1, 12, tzinfo=UTC),
    ),
    ("INTERVAL '3 days 04:05:06.5'", "INTERVAL", dt.timedelta(3, 4 * 3600 + 306, 500000)),
    ("INTERVAL '-1 day 01:00:00'", "INTERVAL", dt.timedelta(-1, 3600)),
    (
        "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::UUID",
        "UUID",
        UUID("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    ),
    ("'\\x00\\xFFab'::BLOB", "BLOB", b"\x00\xffab"),
    ("'{\"a\": [1, null]}'::JSON", "JSON", {"a": [1, None]}),
    ("{'a': 1, 'b': 'x'}", "STRUCT(a INTEGER, b VARCHAR)", {"a": 1, "b": "x"}),
    ("MAP {'k': 2}", "MAP(VARCHAR, INTEGER)", {"k": 2}),
    ("[1, NULL, 3]", "INTEGER[]", [1, None, 3]),
    ("[]::INTEGER[]", "INTEGER[]", []),
    (
        "['a b', 'NULL', NULL, 'x,{y}', '\"q\\']",
        "VARCHAR[]",
        ["a b", "NULL", None, "x,{y}", '"q\\'],
    ),
    ("[1, 2]::INTEGER[2]", "INTEGER[2]", [1, 2]),
    ("[DATE '2024-01-01']", "DATE[]", [dt.date(2024, 1, 1)]),
    ("[1.5, 2.25]::DECIMAL(5,2)[]", "DECIMAL(5,2)[]", [Decimal("1.50"), Decimal("2.25")]),
    ("[[1], [2, 3]]", "INTEGER[][]", [[1], [2, 3]]),
    ("'b'::ENUM('a', 'b')", "ENUM('a', 'b')", "b"),
    ("'101'::BIT", "BIT", "101"),
    ("12345678901234567890::BIGNUM", "BIGNUM", Decimal("12345678901234567890")),
    ("(-5)::BIGNUM", "BIGNUM", Decimal(-5)),
    ("NULL", '"NULL"', None),
    ("NULL::DATE", "DATE", None),
    ("NULL::INTEGER[]", "INTEGER[]", None),
]


def cells(table: pa.Table, types: list[str], binary: int, zone: str = "UTC") -> list[list[Any]]:
    kinds = [kind_of(each) for each in types]
    encoders = [encoding.encoder(kind, bool(binary), zone) for kind in kinds]
    arrays = encoding.encoded(table, encoders)
    return [array.to_pylist() for array in arrays]


@pytest.mark.parametrize("binary", [0, 1], ids=["text", "binary"])
@pytest.mark.parametrize(("expression", "duckdb_type", "value"), CASES, ids=[c[0] for c in CASES])
def test_values_are_read_by_psycopg_as_they_are(expression, duckdb_type, value, binary):
    with duckdb.connect() as connection:
        # Three rows with a NULL between: what is beside a value must not leak into it.
        relation = connection.sql(
            f"SELECT CASE WHEN i <> 1 THEN {expression} END AS x FROM range(3) AS r(i) ORDER BY i"
        )
        table = relation.to_arrow_table()
        assert str(connection.sql(f"SELECT {expression}").types[0]) == duckdb_type
    (found,) = cells(table, [duckdb_type], binary)
    assert found[1] is None
    loader = Transformer().get_loader(kind_of(duckdb_type).oid, Format(binary))
    for data in (found[0], found[2]):
        assert (None if data is None else loader.load(data)) == value


def test_nan_is_not_a_number_for_clients_too():
    table = pa.table([pa.array([float("nan"), 1.0])], names=["x"])
    assert cells(table, ["DOUBLE"], 0) == [[b"NaN", b"1"]]


def test_times_outside_of_python_are_written_as_postgresql_does():
    with duckdb.connect() as connection:
        table = connection.sql(
            "SELECT * FROM (VALUES ('infinity'::DATE, '-infinity'::TIMESTAMP),"
            " ('0044-03-15 (BC)'::DATE, '10000-01-01 01:02:03'::TIMESTAMP), (NULL, NULL))"
        ).to_arrow_table()
    assert cells(table, ["DATE", "TIMESTAMP"], 0) == [
        [b"infinity", b"0044-03-15 BC", None],
        [b"-infinity", b"10000-01-01 01:02:03", None],
    ]
    days, micros = cells(table, ["DATE", "TIMESTAMP"], 1)
    assert days[0] == b"\x7f\xff\xff\xff"
    assert micros[0] == b"\x80" + bytes(7)


def test_timestamps_with_a_zone_are_written_in_the_clients_zone():
    with duckdb.connect() as connection:
        table = connection.sql(
            "SELECT unnest([TIMESTAMPTZ '2024-01-01 12:00:00+00', '2024-07-01 12:00:00.25+00'])"
        ).to_arrow_table()
    kind = ["TIMESTAMP WITH TIME ZONE"]
    assert cells(table, kind, 0, "Europe/Berlin") == [
        [b"2024-01-01 13:00:00+01", b"2024-07-01 14:00:00.25+02"]
    ]
    assert cells(table, kind, 0, "Asia/Kolkata")[0][0] == b"2024-01-01 17:30:00+05:30"


def test_rows_are_framed_as_the_protocol_says():
    table = pa.table([pa.array([1, None]), pa.array(["a", "bc"])], names=["x", "y"])
    made = b"".join(sending.rows(table, [kind_of("INTEGER"), kind_of("VARCHAR")], [0, 0], "UTC"))
    assert made == (
        b"D\0\0\0\x10\0\x02\0\0\0\x011\0\0\0\x01aD\0\0\0\x10\0\x02\xff\xff\xff\xff\0\0\0\x02bc"
    )


def test_a_large_table_is_encoded_in_slices_that_add_up():
    count = 20_000
    table = pa.table(
        [pa.chunked_array([list(range(9_000)), list(range(9_000, count))])], names=["i"]
    )
    parts = list(sending.rows(table, [kind_of("BIGINT")], [1], "UTC"))
    assert len(parts) > 1
    assert max(map(len, parts)) <= 2 * encoding.BYTES
    assert b"".join(parts) == b"".join(
        b"D\0\0\0\x12\0\x01\0\0\0\x08" + i.to_bytes(8, "big") for i in range(count)
    )


# -- values that clients bind ----------------------------------------------------------------

GIVEN: list[Any] = [
    True,
    7,
    -(2**31),
    2**40,
    1.25,
    float("inf"),
    Decimal("12345.678900"),
    Decimal("-0.00001"),
    Decimal("1E+10"),
    dt.date(1999, 12, 31),
    dt.time(23, 59, 59, 999999),
    dt.datetime(1969, 7, 20, 20, 17, 40, 5),
    dt.datetime(2024, 7, 1, 12, tzinfo=UTC),
    UUID("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    b"\x00\xff",
    [1, None, 3],
    ["a b", None, 'x"y\\', "NULL", ""],
    [],
    [dt.date(2024, 1, 1)],
]


@pytest.mark.parametrize("form", [PyFormat.TEXT, PyFormat.BINARY], ids=["text", "binary"])
@pytest.mark.parametrize("value", GIVEN, ids=repr)
def test_values_that_psycopg_binds_arrive_as_they_are(value, form):
    dumper = Transformer().get_dumper(value, form)
    kind = kind_of_oid(dumper.oid)
    if kind is None:  # an empty list has no type of its own
        kind = kind_of("VARCHAR[]")
    data = dumper.dump(value)
    if isinstance(value, bytes) and form == PyFormat.TEXT:
        data = data.replace(b"\\\\", b"\\")  # doubled where no connection says otherwise
    found = argument(bytes(data), kind, dumper.format == Format.BINARY, 1)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("x", "INTEGER"),
        ("1_000", "INTEGER"),
        ("99999999999", "INTEGER"),
        ("1.5", "BIGINT"),
        ("yess", "BOOLEAN"),
        ("2024-13-01", "DATE"),
        ("1e99999", "DECIMAL"),
        ("NaNN", "DOUBLE"),
        ("{1,2", "INTEGER[]"),
        ("{1,,2}", "INTEGER[]"),
        ("{1}x", "INTEGER[]"),
        ("a\0b", "VARCHAR"),
        ("zz", "UUID"),
    ],
)
def test_a_text_that_is_no_value_is_refused_without_being_repeated(text, kind):
    with pytest.raises(TextValueError) as raised:
        argument(text.encode(), kind_of(kind), False, 3)
    assert "$3" in raised.value.reason
    assert text not in raised.value.reason


@given(st.binary(max_size=40), st.sampled_from([k[1] for k in CASES]))
def test_no_bytes_do_anything_else_than_be_refused(data, duckdb_type):
    for binary in (False, True):
        with suppress(TextValueError, BinaryValueError):
            argument(data, kind_of(duckdb_type), binary, 1)


def test_oids_are_those_of_psycopg():
    for duckdb_type in {case[1] for case in CASES}:
        kind = kind_of(duckdb_type)
        info = psycopg.adapters.types.get(kind.oid)
        assert info is not None
        name = kind.name.removesuffix("[]")
        assert info.name == name
        assert (info.array_oid == kind.oid) == (kind.element is not None)
