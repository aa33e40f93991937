"""Public tables that are joined with a published one: dimensions, read from files.

    spec.toml  [tables.countries]  ── publish ──> a table of the release, its key verified
    connect(..., tables=...), --table NAME=FILE   for one session, verified when it is joined

Nothing in such a table is perturbed or protected: it is public as it stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from privsql.errors import DataError, OperationalError, ProgrammingError, how_many
from privsql.release.manifest import Manifest, PublicColumn, PublicTable, TableColumn
from privsql.release.names import RESERVED, public_table, quoted
from privsql.release.spec import TableSpec

# Endings of files, and DuckDB's function that reads them.
READERS = {
    **dict.fromkeys((".csv", ".tsv", ".txt"), "read_csv"),
    **dict.fromkeys((".parquet", ".pq"), "read_parquet"),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), "read_json"),
}
PACKED = (".gz", ".zst")
ENDINGS = ".csv, .tsv, .parquet, .json or .ndjson"

_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
}


def read_files(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Tables by name: those that are given as the path of a file from it, others as they are."""
    return {
        name: read_file(given) if isinstance(given, str | PathLike) else given
        for name, given in tables.items()
    }


def read_file(path: str | PathLike[str]) -> pa.Table:
    """The rows of a CSV, Parquet or JSON file."""
    with closing(duckdb.connect(":memory:", config=_CONFIG)) as connection:
        rows: pa.Table = opened(connection, path).to_arrow_table()
        return rows


def opened(
    connection: duckdb.DuckDBPyConnection, path: str | PathLike[str]
) -> duckdb.DuckDBPyRelation:
    """The rows of a file as a temporary table of a connection, which has read all of it."""
    where = Path(path)
    reader = _reader(where)
    try:
        connection.execute(
            f"CREATE OR REPLACE TEMP TABLE opened AS SELECT * FROM {reader}($1)",  # noqa: S608
            [str(where.absolute())],
        )
    except duckdb.Error:
        # DuckDB's own words may quote a value of the file.
        raise DataError(
            f"{where} cannot be read as a table", hint=f"its name says that it is {where.suffix}"
        ) from None
    return connection.table("opened")


def _reader(path: Path) -> str:
    name = path.with_suffix("") if path.suffix.lower() in PACKED else path
    reader = READERS.get(name.suffix.lower())
    if reader is None:
        raise ProgrammingError(
            f"{path} is no file of a public table", hint=f"give one that ends in {ENDINGS}"
        )
    if not path.is_file():
        raise OperationalError(f"there is no file {path}")
    return reader


def write_table(connection: duckdb.DuckDBPyConnection, wanted: TableSpec) -> PublicTable:
    """Write a public table into a release that is being made, and verify its key."""
    rows = opened(connection, wanted.source)
    names = {name.casefold(): name for name in rows.columns}
    key = names.get(wanted.key.casefold())
    if key is None:
        raise _unfit(wanted, f"there is no column {wanted.key!r}", "name one that identifies rows")
    reserved = [name for name in rows.columns if name.casefold().startswith(RESERVED)]
    if reserved:
        raise _unfit(wanted, f"a column begins with {RESERVED}, which is reserved", "rename it")
    count, given, different = rows.aggregate(
        f"count(*), count({quoted(key)}), count(DISTINCT {quoted(key)})"
    ).fetchall()[0]
    wrong = [
        how_many(number, what)
        for number, what in ((count - given, "NULL"), (given - different, "duplicate"))
        if number
    ]
    if wrong:
        raise _unfit(
            wanted,
            f"the key {key!r} is not unique: {' and '.join(wrong)} in {how_many(count, 'row')}",
            "keep one row for each value of the key, and none without",
        )
    kinds = tuple(map(TableColumn, rows.columns, map(str, rows.types)))
    ordered = rows.order(quoted(key)).sql_query()
    connection.execute(f"CREATE TABLE {public_table(wanted.name)} AS {ordered}")
    connection.execute("DROP TABLE temp.opened")
    return PublicTable(wanted.name, key, count, kinds)


def described(name: str, table: pa.Table) -> PublicTable:
    """A table that was given to a session, as a release describes its own; it has no key."""
    with closing(duckdb.connect(":memory:", config=_CONFIG)) as connection:
        rows = connection.from_arrow(table)
        kinds = tuple(map(TableColumn, rows.columns, map(str, rows.types)))
    return PublicTable(name, "", table.num_rows, kinds)


def as_releases(manifest: Manifest, given: Iterable[PublicTable] = ()) -> dict[str, Manifest]:
    """A published table and the public ones beside it, each as if it were a release of its own.

    Catalogs list them so: the columns of a public table are public ones.
    """
    found = {manifest.table: manifest}
    for each in (*manifest.tables, *given):
        columns = tuple(PublicColumn(column.name, column.type) for column in each.columns)
        found[each.name] = replace(
            manifest, table=each.name, public=columns, sensitive=(), rows=each.rows, tables=()
        )
    return found


def _unfit(wanted: TableSpec, reason: str, hint: str) -> DataError:
    return DataError(f"[tables.{wanted.name}] {reason}", hint=hint)
