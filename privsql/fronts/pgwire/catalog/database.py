"""Creation of the catalog database: PostgreSQL 15's relations, filled from releases.

``shapes.json`` is derived from a real PostgreSQL by ``tests/wire/derive_shapes.py``.  Relations of
pg_catalog are in the schema ``pgc``, those of information_schema in ``pgi``.  What differs from
one connection to another is a view over the variable ``pg``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

import duckdb
import pyarrow as pa

from privsql.engines import databases
from privsql.fronts.pgwire.catalog import macros as catalog_macros
from privsql.fronts.pgwire.catalog import rows as catalog_rows
from privsql.fronts.pgwire.catalog.rows import Release, Row, shown
from privsql.release.names import quoted

MEMORY_LIMIT = "256MB"
SCHEMAS = {"pg_catalog": "pgc", "information_schema": "pgi"}

# PostgreSQL's type -> DuckDB's and Arrow's; all others are text.
_TYPES: dict[str, tuple[str, pa.DataType]] = {
    "bool": ("BOOLEAN", pa.bool_()),
    "int2": ("SMALLINT", pa.int16()),
    "int4": ("INTEGER", pa.int32()),
    "cardinal_number": ("INTEGER", pa.int32()),
    "int8": ("BIGINT", pa.int64()),
    "float4": ("FLOAT", pa.float32()),
    "float8": ("DOUBLE", pa.float64()),
    "numeric": ("DOUBLE", pa.float64()),
    "oid": ("UINTEGER", pa.uint32()),
    "xid": ("UINTEGER", pa.uint32()),
    "timestamptz": ("TIMESTAMPTZ", pa.timestamp("us", "UTC")),
    "time_stamp": ("TIMESTAMPTZ", pa.timestamp("us", "UTC")),
    "interval": ("INTERVAL", pa.month_day_nano_interval()),
    "int2vector": ("SMALLINT[]", pa.list_(pa.int16())),
    "oidvector": ("UINTEGER[]", pa.list_(pa.uint32())),
    "bytea": ("BLOB", pa.binary()),
}
_TEXT = ("VARCHAR", pa.string())

# What format_type() says, where it is not the type's own name.
_FORMATS = {
    "bool": "boolean",
    "int2": "smallint",
    "int4": "integer",
    "int8": "bigint",
    "float4": "real",
    "float8": "double precision",
    "bpchar": "character",
    "varchar": "character varying",
    "timestamp": "timestamp without time zone",
    "timestamptz": "timestamp with time zone",
    "time": "time without time zone",
    "timetz": "time with time zone",
    "char": '"char"',
    "varbit": "bit varying",
    "any": '"any"',
}

_SETTINGS = "getvariable('pg').settings[lower(name)]"
_ROLES = """
    SELECT * FROM (
        SELECT 10::UINTEGER AS oid, 'privsql' AS rolname, true AS rolsuper, false AS rolcanlogin
        UNION ALL
        SELECT 16383::UINTEGER, getvariable('pg').user, false, true
        WHERE getvariable('pg').user <> 'privsql'
    )
"""


def variable(user: str, database: str, pid: int, settings: Mapping[str, str]) -> str:
    """The statement that tells a connection who asks."""
    names = ", ".join(_quoted(name.lower()) for name in settings)
    values = ", ".join(map(_quoted, settings.values()))
    return (
        f"SET VARIABLE pg = {{'user': {_quoted(user)}, 'database': {_quoted(database)},"
        f" 'pid': {int(pid)}, 'settings': MAP([{names}]::VARCHAR[], [{values}]::VARCHAR[])}}"
    )


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''").replace("\0", "") + "'"


@cache
def shapes() -> dict[str, Any]:
    """What was derived from PostgreSQL."""
    text = resources.files(__package__).joinpath("shapes.json").read_text("utf-8")
    return dict(json.loads(text))


def filled(releases: Mapping[str, Release]) -> duckdb.DuckDBPyConnection:
    """A locked database with the catalog of these releases."""
    connection = databases.connected(memory_limit=MEMORY_LIMIT, threads=1, temporary="")
    try:
        # In one transaction: hundreds of small ones take several times as long.
        connection.execute("BEGIN")
        _Filling(connection).fill(releases)
        connection.execute("COMMIT")
        databases.lock(connection)
    except BaseException:
        connection.close()
        raise
    return connection


class _Filling:
    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._columns: dict[tuple[str, str], list[tuple[str, str]]] = {}

    def fill(self, releases: Mapping[str, Release]) -> None:
        self._connection.execute(variable("", "", 0, {}))
        relations = shapes()["relations"]
        for schema in SCHEMAS.values():
            self._connection.execute(f"CREATE SCHEMA {schema}")
        for schema, name, _, _, columns in relations:
            self._create(SCHEMAS[schema], name, columns)
        rows = {name: self._rows(name, found) for name, found in shapes()["rows"].items()}
        types = {int(row["oid"]): row for row in rows["pg_type"]}
        formats = {oid: _formatted(row, types) for oid, row in types.items()}
        tables = shown(releases)
        rows["pg_class"] = [
            *catalog_rows.own_class(relations),
            *catalog_rows.class_rows(tables),
        ]
        rows["pg_attribute"] = [
            *catalog_rows.own_attributes(relations, types),
            *catalog_rows.attribute_rows(tables, types),
        ]
        rows["pg_type"] += catalog_rows.type_rows(tables, types[2249])
        rows["pg_description"] = catalog_rows.description_rows(tables)
        rows["pg_namespace"] = [
            {"oid": oid, "nspname": name, "nspowner": catalog_rows.OWNER}
            for oid, name in (
                (catalog_rows.PG_CATALOG, "pg_catalog"),
                (catalog_rows.PUBLIC, "public"),
                (catalog_rows.INFORMATION, "information_schema"),
            )
        ]
        rows["pg_tables"] = [
            {"schemaname": "public", "tablename": t.name, "tableowner": "privsql"}
            | dict.fromkeys(("hasindexes", "hasrules", "hastriggers", "rowsecurity"), False)
            for t in tables
        ]
        for name, found in rows.items():
            self._insert("pgc", name, found)
        self._insert("pgi", "tables", catalog_rows.information_tables(tables))
        self._insert("pgi", "columns", catalog_rows.information_columns(tables, formats))
        self._insert(
            "pgi",
            "schemata",
            [
                {"schema_name": name, "schema_owner": "privsql"}
                for name in ("pg_catalog", "public", "information_schema")
            ],
        )
        self._beside(formats | {t.row_type: t.name for t in tables}, types)
        self._views()
        for statement in catalog_macros.statements():
            self._connection.execute(statement)

    def _create(self, schema: str, name: str, columns: Sequence[Sequence[Any]]) -> None:
        kinds = [(column, kind) for column, kind, _ in columns]
        self._columns[schema, name] = kinds
        listed = ", ".join(f"{quoted(c)} {_type(kind)[0]}" for c, kind in kinds)
        self._connection.execute(f"CREATE TABLE {schema}.{quoted(name)} ({listed})")

    def _rows(self, name: str, rows: Sequence[Sequence[Any]]) -> list[Row]:
        columns = self._columns["pgc", name]
        return [
            {c: _value(value, kind) for (c, kind), value in zip(columns, row, strict=True)}
            for row in rows
        ]

    def _insert(self, schema: str, name: str, rows: Sequence[Row]) -> None:
        columns = self._columns[schema, name]
        arrays = [
            pa.array([row.get(column) for row in rows], _type(kind)[1]) for column, kind in columns
        ]
        self._connection.register("incoming", pa.table(arrays, names=[c for c, _ in columns]))
        target = f"{schema}.{quoted(name)}"
        self._connection.execute(f"INSERT INTO {target} SELECT * FROM incoming")  # noqa: S608
        self._connection.unregister("incoming")

    def _beside(self, formats: Mapping[int, str], types: Mapping[int, Row]) -> None:
        """Tables for macros: how types are written, and the keywords."""
        self._connection.execute(
            "CREATE TABLE pgc._formats (oid UINTEGER, shown VARCHAR, name VARCHAR)"
        )
        names = [types[oid]["typname"] if oid in types else text for oid, text in formats.items()]
        table = pa.table(
            [
                pa.array(list(formats), pa.uint32()),
                pa.array(list(formats.values()), pa.string()),
                pa.array(names, pa.string()),
            ],
            names=["oid", "shown", "name"],
        )
        self._connection.register("incoming", table)
        self._connection.execute("INSERT INTO pgc._formats SELECT * FROM incoming")
        words = shapes()["keywords"]
        columns = ("word", "catcode", "barelabel", "catdesc", "baredesc")
        self._connection.register(
            "incoming",
            pa.table({name: [row[i] for row in words] for i, name in enumerate(columns)}),
        )
        self._connection.execute("CREATE TABLE pgc.keywords AS SELECT * FROM incoming")
        self._connection.unregister("incoming")

    # -- what differs between connections -----------------------------------------------

    def _views(self) -> None:
        database = "getvariable('pg').database"
        self._replace("pgi", "tables", {"table_catalog": database})
        self._replace("pgi", "columns", {"table_catalog": database, "udt_catalog": database})
        self._replace("pgi", "schemata", {"catalog_name": database})
        self._replace("pgc", "pg_settings", {"setting": f"coalesce({_SETTINGS}, setting)"})
        self._view(
            "pgc",
            "pg_database",
            {
                "oid": f"{catalog_rows.DATABASE}",
                "datname": database,
                "datdba": "10",
                "encoding": "6",
                "datlocprovider": "'c'",
                "datistemplate": "false",
                "datallowconn": "true",
                "datconnlimit": "-1",
                "datfrozenxid": "0",
                "datminmxid": "0",
                "dattablespace": "1663",
                "datcollate": "'C'",
                "datctype": "'C'",
            },
            "(SELECT 1)",
        )
        roles = f"({_ROLES})"
        self._view(
            "pgc",
            "pg_roles",
            {
                "rolname": "rolname",
                "rolsuper": "rolsuper",
                "rolinherit": "true",
                "rolcreaterole": "rolsuper",
                "rolcreatedb": "rolsuper",
                "rolcanlogin": "rolcanlogin",
                "rolreplication": "false",
                "rolconnlimit": "-1",
                "rolpassword": "'********'",
                "rolbypassrls": "false",
                "oid": "oid",
            },
            roles,
        )
        self._view(
            "pgc",
            "pg_user",
            {
                "usename": "rolname",
                "usesysid": "oid",
                "usecreatedb": "rolsuper",
                "usesuper": "rolsuper",
                "userepl": "false",
                "usebypassrls": "false",
                "passwd": "'********'",
            },
            f"{roles} WHERE rolcanlogin",
        )
        self._view(
            "pgc",
            "pg_stat_activity",
            {
                "datid": f"{catalog_rows.DATABASE}",
                "datname": database,
                "pid": "getvariable('pg').pid",
                "usesysid": "16383",
                "usename": "getvariable('pg').user",
                "state": "'active'",
                "backend_type": "'client backend'",
            },
            "(SELECT 1)",
        )
        self._view(
            "pgi", "information_schema_catalog_name", {"catalog_name": database}, "(SELECT 1)"
        )

    def _replace(self, schema: str, name: str, values: Mapping[str, str]) -> None:
        """The table under another name, and a view that puts values into it."""
        self._connection.execute(f'ALTER TABLE {schema}."{name}" RENAME TO "_{name}"')
        put = ", ".join(f"{value} AS {column}" for column, value in values.items())
        self._connection.execute(
            f'CREATE VIEW {schema}."{name}" AS'  # noqa: S608
            f' SELECT * REPLACE ({put}) FROM {schema}."_{name}"'
        )

    def _view(self, schema: str, name: str, values: Mapping[str, str], source: str) -> None:
        """A view in place of the table: these values, and NULL in all other columns."""
        listed = ", ".join(
            f"CAST({values.get(column, 'NULL')} AS {_type(kind)[0]}) AS {quoted(column)}"
            for column, kind in self._columns[schema, name]
        )
        self._connection.execute(f'DROP TABLE {schema}."{name}"')
        self._connection.execute(
            f'CREATE VIEW {schema}."{name}" AS SELECT {listed} FROM {source}'  # noqa: S608
        )


def _type(kind: str) -> tuple[str, pa.DataType]:
    if kind.startswith("_") and kind != "_pg_statistic":
        name, arrow = _type(kind[1:])
        return f"{name}[]", pa.list_(arrow)
    if kind == "anyarray":
        return _TEXT
    return _TYPES.get(kind, _TEXT)


def _value(value: Any, kind: str) -> Any:
    """A value of ``shapes.json``: PostgreSQL writes the numbers of objects as text."""
    if value is None:
        return None
    if isinstance(value, list):
        return [_value(each, kind.removesuffix("vector").removeprefix("_")) for each in value]
    if kind in ("oidvector", "int2vector"):
        return [int(each) for each in str(value).split()]
    return int(value) if kind in ("oid", "xid") else value


def _formatted(row: Row, types: Mapping[int, Row]) -> str:
    """What format_type() says of a type."""
    element = types.get(row["typelem"]) if row["typcategory"] == "A" else None
    if element is not None and element["typarray"] == row["oid"]:
        return _formatted(element, types) + "[]"
    name = str(row["typname"])
    return _FORMATS.get(name, name)
