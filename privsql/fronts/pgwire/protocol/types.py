"""DuckDB's types as PostgreSQL's, and back.

What PostgreSQL lacks becomes the next larger type that holds every value: a UBIGINT and a
HUGEINT are ``numeric``, a TINYINT is ``int2``.  A list is an array; a list of lists is ``json``,
because PostgreSQL's arrays are rectangles and DuckDB's lists need not be.  Structures and maps
are ``json`` as well.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache

from privsql.sql.postgres.types import WRITTEN


@dataclass(frozen=True)
class Kind:
    """A type as clients are told of it.

    ``name`` chooses the encoding, ``size`` is -1 where it varies.
    """

    name: str
    oid: int
    size: int
    duckdb: str  # a parameter of this type is one of these
    array: int = 0  # OID of arrays of it
    modifier: int = -1
    element: Kind | None = None


_ROWS = (
    ("bool", 16, 1, "BOOLEAN", 1000),
    ("bytea", 17, -1, "BLOB", 1001),
    ("char", 18, 1, "VARCHAR", 1002),
    ("name", 19, 64, "VARCHAR", 1003),
    ("int8", 20, 8, "BIGINT", 1016),
    ("int2", 21, 2, "SMALLINT", 1005),
    ("int4", 23, 4, "INTEGER", 1007),
    ("text", 25, -1, "VARCHAR", 1009),
    ("oid", 26, 4, "BIGINT", 1028),
    ("json", 114, -1, "JSON", 199),
    ("float4", 700, 4, "FLOAT", 1021),
    ("float8", 701, 8, "DOUBLE", 1022),
    ("bpchar", 1042, -1, "VARCHAR", 1014),
    ("varchar", 1043, -1, "VARCHAR", 1015),
    ("date", 1082, 4, "DATE", 1182),
    ("time", 1083, 8, "TIME", 1183),
    ("timestamp", 1114, 8, "TIMESTAMP", 1115),
    ("timestamptz", 1184, 8, "TIMESTAMP WITH TIME ZONE", 1185),
    ("interval", 1186, 16, "INTERVAL", 1187),
    ("numeric", 1700, -1, "DECIMAL", 1231),
    ("uuid", 2950, 16, "UUID", 2951),
    ("regproc", 24, 4, "VARCHAR", 1008),
    ("regclass", 2205, 4, "VARCHAR", 2210),
    ("regtype", 2206, 4, "VARCHAR", 2211),
    ("unknown", 705, -2, "VARCHAR", 0),
    ("jsonb", 3802, -1, "JSON", 3807),
    ("int2vector", 22, -1, "VARCHAR", 1006),
    ("oidvector", 30, -1, "VARCHAR", 1013),
)
KINDS = {row[0]: Kind(*row) for row in _ROWS}
TEXT = KINDS["text"]
JSON = KINDS["json"]

_OURS = {kind.duckdb: kind.name for kind in KINDS.values()}
_OURS |= {
    # Several of PostgreSQL's types are these.
    "VARCHAR": "text",
    "BIGINT": "int8",
    "JSON": "json",
    "TINYINT": "int2",
    "UTINYINT": "int2",
    "USMALLINT": "int4",
    "UINTEGER": "int8",
    "UBIGINT": "numeric",
    "HUGEINT": "numeric",
    "UHUGEINT": "numeric",
    "BIGNUM": "numeric",
    "TIME_NS": "time",
    "TIME WITH TIME ZONE": "time",
    "TIMESTAMP_S": "timestamp",
    "TIMESTAMP_MS": "timestamp",
    "TIMESTAMP_NS": "timestamp",
    # Other names of DuckDB's.
    "TEXT": "text",
    "INT": "int4",
    "REAL": "float4",
    "NUMERIC": "numeric",
    "BYTEA": "bytea",
    "TIMESTAMPTZ": "timestamptz",
    "TIMETZ": "time",
    # Names that a catalog may use for what DuckDB has no type for.
    "OID": "oid",
    "NAME": "name",
    '"CHAR"': "char",
    "INT2VECTOR": "int2vector",
    "OIDVECTOR": "oidvector",
}
_NAMES = {**WRITTEN, "float": "float8"}
_BY_OID = {kind.oid: kind for kind in KINDS.values()}
_BY_ARRAY = {kind.array: kind for kind in KINDS.values() if kind.array}
_LIST = re.compile(r"^(?P<element>.*)\[[0-9]*\]$", re.DOTALL)
_DECIMAL = re.compile(r"^DECIMAL\(([0-9]+),\s*([0-9]+)\)$")


def array_of(element: Kind) -> Kind:
    """Arrays of a type."""
    name, duckdb = f"{element.name}[]", f"{element.duckdb}[]"
    return Kind(name, element.array, -1, duckdb, 0, element.modifier, element)


@lru_cache(maxsize=1024)
def kind_of(duckdb: str) -> Kind:
    """PostgreSQL's type for one of DuckDB's.

    >>> kind_of("DECIMAL(5,2)").modifier, kind_of("INTEGER[]").oid, kind_of("INTEGER[][]").name
    (327686, 1007, 'json')
    """
    if match := _LIST.match(duckdb):
        element = kind_of(match["element"])
        nested = element.element is not None or not element.array or element is JSON
        return JSON if nested else array_of(element)
    if match := _DECIMAL.match(duckdb):
        modifier = (int(match[1]) << 16 | int(match[2])) + 4
        return replace(KINDS["numeric"], duckdb=duckdb, modifier=modifier)
    if duckdb.startswith(("STRUCT(", "MAP(", "UNION(")):
        return JSON
    return KINDS[_OURS.get(duckdb, "text")]


@lru_cache(maxsize=1024)
def kind_of_oid(oid: int) -> Kind | None:
    """The type that a client means by an OID, or None where we have none like it.

    >>> kind_of_oid(1007).duckdb, kind_of_oid(4711)
    ('INTEGER[]', None)
    """
    if oid in _BY_OID:
        return _BY_OID[oid]
    element = _BY_ARRAY.get(oid)
    return None if element is None else array_of(element)


def kind_of_name(name: str) -> Kind | None:
    """The type of a name that PREPARE gives, or None.

    >>> kind_of_name("Integer").oid, kind_of_name("text[]").oid, kind_of_name("point")
    (23, 1009, None)
    """
    word = " ".join(name.lower().split())
    if word.endswith("[]"):
        element = kind_of_name(word[:-2])
        return None if element is None or not element.array else array_of(element)
    return KINDS.get(_NAMES.get(word, word))
