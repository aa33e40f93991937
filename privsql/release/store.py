"""A release on disk: one DuckDB file with the published table and what explains it.

<table>                     the published rows; hidden columns begin with ``privsql_``
privsql.manifest            one row: the manifest's JSON and its digest
privsql.tuples              distinct public grouping values, group number, number of rows
privsql."domain of X"       the values of the sensitive column X, in domain order
privsql."values of Y"       the values of the public column Y and what they merge into
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb
from duckdb import FunctionExpression

from privsql.errors import IntegrityError, OperationalError
from privsql.release.manifest import Manifest, PublicColumn, SensitiveColumn
from privsql.release.names import GROUP, MULTIPLICITY, WEIGHT, quoted


@dataclass(frozen=True)
class Release:
    """A release that was opened and found whole."""

    path: Path
    manifest: Manifest

    @contextmanager
    def connection(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Open the file read-only, without access to anything outside, and locked so."""
        connection = _connect(self.path)
        try:
            yield connection
        finally:
            connection.close()


def write_manifest(connection: duckdb.DuckDBPyConnection, manifest: Manifest) -> None:
    """Write the manifest with its digest into a release that is being made."""
    text = manifest.to_json()
    connection.execute("CREATE TABLE privsql.manifest (document VARCHAR, digest VARCHAR)")
    connection.execute("INSERT INTO privsql.manifest VALUES (?, ?)", [text, _digest(text)])


def open_release(path: str | Path) -> Release:
    """Open a release, check its version and that its parts fit together.

    Refuses a file that is missing, truncated, damaged or not a release, each with its own
    words, and never with a traceback of the database.
    """
    where = Path(path)
    connection = _connect(where)
    try:
        manifest = _manifest(connection, where)
        _check(connection, manifest, where)
    finally:
        connection.close()
    return Release(where, manifest)


def _connect(path: Path) -> duckdb.DuckDBPyConnection:
    if not path.exists():
        raise OperationalError(f"there is no release at {path}")
    if path.is_dir():
        raise OperationalError(f"{path} is a folder, not a release")
    config: dict[str, str | bool | int | float | list[str]] = {
        "enable_external_access": "false",
        "autoload_known_extensions": "false",
        "autoinstall_known_extensions": "false",
        "lock_configuration": "true",
    }
    try:
        return duckdb.connect(str(path), read_only=True, config=config)
    except duckdb.ConnectionException as problem:
        raise OperationalError(
            f"{path} is already open in this program in another way",
            hint="close the other connection first",
        ) from problem
    except duckdb.Error:
        raise IntegrityError(
            f"{path} cannot be read: it is damaged, in use, or not a release",
            hint="make it again with `privsql publish`",
        ) from None


def _manifest(connection: duckdb.DuckDBPyConnection, path: Path) -> Manifest:
    try:
        rows = connection.execute("SELECT document, digest FROM privsql.manifest").fetchall()
    except duckdb.CatalogException:
        raise IntegrityError(
            f"{path} is a database but not a release: it has no manifest",
            hint="make one of it with `privsql publish`",
        ) from None
    except duckdb.Error:
        raise IntegrityError(f"the manifest in {path} is damaged") from None
    if len(rows) != 1 or _digest(str(rows[0][0])) != rows[0][1]:
        raise IntegrityError(f"the manifest in {path} is damaged")
    return Manifest.from_json(rows[0][0])


def _check(connection: duckdb.DuckDBPyConnection, manifest: Manifest, path: Path) -> None:
    """The table has the columns, types and number of rows that the manifest says."""
    try:
        found = connection.execute(
            "SELECT column_name, data_type FROM duckdb_columns()"
            " WHERE database_name = current_database() AND schema_name = 'main'"
            " AND table_name = $1 ORDER BY column_index",
            [manifest.table],
        ).fetchall()
        columns: list[PublicColumn | SensitiveColumn] = [*manifest.public, *manifest.sensitive]
        expected = [(column.name, column.type) for column in columns]
        hidden = [GROUP] * manifest.grouped + [WEIGHT] * manifest.weighted
        hidden += [MULTIPLICITY] * manifest.multiplicity
        names = [name for name, _ in found[len(expected) :]]
        if found[: len(expected)] != expected or names != hidden:
            raise IntegrityError(f"the table in {path} is not the one that its manifest describes")
        table = connection.table(f"main.{quoted(manifest.table)}")
        rows = table.aggregate([FunctionExpression("count")]).fetchall()[0][0]
    except duckdb.Error:
        raise IntegrityError(f"the table in {path} is damaged or missing") from None
    if rows != manifest.rows:
        raise IntegrityError(f"the table in {path} has not the number of rows it was made with")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
