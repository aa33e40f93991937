"""Creation of the catalog database: PostgreSQL 15's relations, filled from releases.

``shapes.json`` is derived from a real PostgreSQL by ``tests/fronts/pgwire/derive_shapes.py``.
Relations of pg_catalog are in the schema ``pgc``, those of information_schema in ``pgi``.  What
differs from one connection to another is a view over the variable ``pg``.
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
from privsql.fronts.pgwire.catalog.rows import Row
from privsql.release.manifest import Manifest
from privsql.release.names import quoted
from privsql.sql.postgres.catalog import SCHEMAS
from privsql.sql.postgres.types import DUCKDB, FORMATS

MEMORY_LIMIT = "256MB"

# Of no rows: the types of columns by their names, which hardly differ between relations.
COLUMNS = "_columns"

# PostgreSQL's type -> DuckDB's; all others are text.
_TYPES = {
    **DUCKDB,
    "cardinal_number": "INTEGER",
    "time_stamp": "TIMESTAMPTZ",
    "regproc": "UINTEGER",
}
# What a column that is never NULL has where a row does not say.
_EMPTY = {"BOOLEAN": "false", "SMALLINT": "0", "INTEGER": "0", "UINTEGER": "0", "VARCHAR": "''"}

# What differs between connections: values in a table that has the others ...
_REPLACED = {
    "pgi.tables": "getvariable('pg').database AS table_catalog",
    "pgi.columns": "getvariable('pg').database AS table_catalog,"
    " getvariable('pg').database AS udt_catalog",
    "pgi.schemata": "getvariable('pg').database AS catalog_name",
    "pgc.pg_settings": "coalesce(getvariable('pg').settings[lower(name)], setting) AS setting",
}
# ... or all of its rows, where columns that are not named are NULL.
_SEEN = {
    "pgc.pg_database": """
        SELECT 5 AS oid, getvariable('pg').database AS datname, 10 AS datdba, 6 AS encoding,
            'c' AS datlocprovider, false AS datistemplate, true AS datallowconn,
            -1 AS datconnlimit, 0 AS datfrozenxid, 0 AS datminmxid, 1663 AS dattablespace,
            'C' AS datcollate, 'C' AS datctype
    """,
    "pgc.pg_roles": """
        SELECT *, true AS rolinherit, rolsuper AS rolcreaterole, rolsuper AS rolcreatedb,
            false AS rolreplication, -1 AS rolconnlimit, '********' AS rolpassword,
            false AS rolbypassrls
        FROM (
            SELECT 10 AS oid, 'privsql' AS rolname, true AS rolsuper, false AS rolcanlogin
            UNION ALL
            SELECT 16383, getvariable('pg').user, false, true
            WHERE getvariable('pg').user <> 'privsql'
        )
    """,
    "pgc.pg_user": """
        SELECT rolname AS usename, oid AS usesysid, rolsuper AS usecreatedb, rolsuper AS usesuper,
            false AS userepl, false AS usebypassrls, '********' AS passwd
        FROM pgc.pg_roles WHERE rolcanlogin
    """,
    "pgc.pg_stat_activity": """
        SELECT 5 AS datid, getvariable('pg').database AS datname, getvariable('pg').pid AS pid,
            16383 AS usesysid, getvariable('pg').user AS usename, 'active' AS state,
            'client backend' AS backend_type
    """,
    "pgi.information_schema_catalog_name": """
        SELECT getvariable('pg').database AS catalog_name
    """,
}


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


def filled(releases: Mapping[str, Manifest]) -> duckdb.DuckDBPyConnection:
    """A locked database with the catalog of these releases."""
    connection = databases.connected(memory_limit=MEMORY_LIMIT, threads=1, temporary="")
    with databases.filling(connection):
        # In one transaction: hundreds of small ones take several times as long.
        connection.execute("BEGIN")
        _fill(connection, releases)
        connection.execute("COMMIT")
    return connection


def _fill(connection: duckdb.DuckDBPyConnection, releases: Mapping[str, Manifest]) -> None:
    connection.execute(variable("", "", 0, {}))
    relations = shapes()["relations"]
    for schema in SCHEMAS.values():
        connection.execute(f"CREATE SCHEMA {schema}")
    for schema, name, _, _, columns in relations:
        listed = ", ".join(_column(*each) for each in columns)
        connection.execute(f"CREATE TABLE {SCHEMAS[schema]}.{quoted(name)} ({listed})")
    connection.execute(f"CREATE TABLE {COLUMNS} ({_every_column(relations)})")
    rows = {name: _rows(name, found) for name, found in shapes()["rows"].items()}
    rows["pg_proc"] += catalog_rows.function_rows(shapes()["functions"])
    types = {int(row["oid"]): row for row in rows["pg_type"]}
    tables = catalog_rows.shown(releases)
    for name, found in (
        *rows.items(),
        ("pg_class", catalog_rows.own_class(relations)),
        ("pg_class", catalog_rows.class_rows(tables)),
        ("pg_attribute", catalog_rows.own_attributes(relations, types)),
        ("pg_attribute", catalog_rows.attribute_rows(tables, types)),
        ("pg_type", catalog_rows.type_rows(tables, types[2249])),
        ("pg_description", catalog_rows.description_rows(tables)),
    ):
        if found:
            _load(connection, f"INSERT INTO pgc.{name} BY NAME SELECT *", found)
    formats = [(oid, _formatted(row, types), row["typname"]) for oid, row in types.items()]
    formats += [(t.row_type, t.name, t.name) for t in tables]
    shown = [dict(zip(("oid", "shown", "name"), each, strict=True)) for each in formats]
    _load(connection, "CREATE TABLE pgc._formats AS SELECT * REPLACE (oid::UINTEGER AS oid)", shown)
    names = ("word", "catcode", "barelabel", "catdesc", "baredesc")
    words = [dict(zip(names, each, strict=True)) for each in shapes()["keywords"]]
    _load(connection, "CREATE TABLE pgc.keywords AS SELECT *", words)
    for target, source in _SEEN.items():
        _view(connection, target, source)
    for statement in catalog_macros.statements():
        connection.execute(statement)
    connection.execute(catalog_macros.script("derived"))
    for target, values in _REPLACED.items():
        schema, name = target.split(".")
        connection.execute(f'ALTER TABLE {target} RENAME TO "_{name}"')
        replaced = f'SELECT * REPLACE ({values}) FROM {schema}."_{name}"'  # noqa: S608
        connection.execute(f"CREATE VIEW {target} AS {replaced}")


def _every_column(relations: Sequence[Sequence[Any]]) -> str:
    """Each name of a column once, with the type that it has in the first table that has it."""
    found: dict[str, str] = {}
    for _, _, _, _, columns in sorted(relations, key=lambda each: (each[0], each[3])):
        for name, kind, _ in columns:
            found.setdefault(name, _type(kind))
    return ", ".join(f"{quoted(name)} {kind}" for name, kind in found.items())


def _column(name: str, kind: str, never: bool) -> str:
    made = _type(kind)
    default = f" DEFAULT {_EMPTY[made]}" if never and made in _EMPTY else ""
    return f"{quoted(name)} {made}{default}"


def _load(connection: duckdb.DuckDBPyConnection, statement: str, rows: list[Row]) -> None:
    connection.register("incoming", pa.Table.from_pylist(rows))
    connection.execute(f"{statement} FROM incoming")
    connection.unregister("incoming")


def _view(connection: duckdb.DuckDBPyConnection, target: str, source: str) -> None:
    """A view in place of a table, with the same columns and types."""
    known = connection.sql(source).columns
    listed = ", ".join(
        f"CAST({quoted(name) if name in known else 'NULL'} AS {kind}) AS {quoted(name)}"
        for name, kind, *_ in connection.sql(f"DESCRIBE {target}").fetchall()
    )
    connection.execute(f"DROP TABLE {target}")
    connection.execute(f"CREATE VIEW {target} AS SELECT {listed} FROM ({source})")  # noqa: S608


def _type(kind: str) -> str:
    if kind.startswith("_") and kind != "_pg_statistic":
        return f"{_type(kind[1:])}[]"
    return _TYPES.get(kind, "VARCHAR")


def _rows(name: str, rows: Sequence[Sequence[Any]]) -> list[Row]:
    """Rows of ``shapes.json``."""
    columns = next(columns for _, each, _, _, columns in shapes()["relations"] if each == name)
    return [
        {c: _value(value, kind) for (c, kind, _), value in zip(columns, row, strict=True)}
        for row in rows
    ]


def _value(value: Any, kind: str) -> Any:
    """A value of ``shapes.json``: PostgreSQL writes the numbers of objects as text."""
    if value is None:
        return None
    if isinstance(value, list):
        return [_value(each, kind.removesuffix("vector").removeprefix("_")) for each in value]
    if kind in ("oidvector", "int2vector"):
        return [int(each) for each in str(value).split()]
    return int(value) if kind in ("oid", "xid", "regproc") else value


def _formatted(row: Row, types: Mapping[int, Row]) -> str:
    """What format_type() says of a type."""
    element = types.get(row["typelem"]) if row["typcategory"] == "A" else None
    if element is not None and element["typarray"] == row["oid"]:
        return _formatted(element, types) + "[]"
    name = str(row["typname"])
    return FORMATS.get(name, name)
