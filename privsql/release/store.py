"""A release on disk: one DuckDB file, or a folder of Parquet (``folder``), and its description.

<table>                     the published rows; hidden columns begin with ``privsql_``
privsql.manifest            one row: the manifest's JSON and its digest
privsql.tuples              distinct public grouping values, group number, number of rows
privsql."domain of X"       the values of the sensitive column X, in domain order
privsql."values of Y"       the values of the public column Y and what they merge into

The file is attached under a name of ours.  Its own would become the name of the catalog,
and in a file called ``privsql.duckdb`` nobody could tell ``privsql`` from ``privsql``.

A release holds tables and nothing else.  DuckDB looks for functions in an attached file before it
takes its own, so a macro ``sum`` in it would be called in place of every sum of ours; a
view could read other tables than it is named after, and a generated column other values.  A
file with any of these is refused before a name of it is looked up.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
from duckdb import FunctionExpression

from privsql.channels.domain import MATERIALISE_LIMIT
from privsql.errors import IntegrityError, OperationalError
from privsql.release.folder import attach_folder, is_folder
from privsql.release.manifest import Manifest, PublicColumn, SensitiveColumn, document_of
from privsql.release.names import (
    GROUP,
    ROW_NUMBER,
    ROWS,
    TUPLES,
    domain_table,
    published_table,
    values_table,
)

# Bytes before the first block of a DuckDB file.
HEADERS = 3 * 4096


@dataclass(frozen=True)
class Release:
    """A release that was opened and verified."""

    path: Path
    manifest: Manifest
    identity: str  # of the manifest, as histories know it: a conversion does not change it

    def connection(self) -> closing[duckdb.DuckDBPyConnection]:
        """Open the file read-only, without access to anything outside, and locked so."""
        return closing(_connect(self.path))


def write_manifest(connection: duckdb.DuckDBPyConnection, manifest: Manifest) -> None:
    """Write the manifest with its digest into a release that is being made."""
    connection.execute("CREATE TABLE privsql.manifest (document VARCHAR, digest VARCHAR)")
    store_manifest(connection, manifest.to_json())


def store_manifest(connection: duckdb.DuckDBPyConnection, text: str) -> None:
    """Put the manifest's JSON with its digest in the place of one that may be there."""
    connection.execute("DELETE FROM privsql.manifest")
    connection.execute("INSERT INTO privsql.manifest VALUES (?, ?)", [text, _digest(text)])


def open_release(path: str | Path) -> Release:
    """Open a release, check its version and that its parts fit together.

    Refuses a file that is missing, truncated, damaged or not a release, each with its own
    words, and never with a traceback of the database.
    """
    with closing(_connect(Path(path))) as connection:
        return checked(connection, Path(path))


def checked(connection: duckdb.DuckDBPyConnection, path: Path) -> Release:
    """The release that is attached to a connection, its parts checked."""
    text, digest = manifest_text(connection, path)
    manifest = Manifest.from_json(text, path)
    _check(connection, manifest, path)
    _check_beside(connection, manifest, path)
    return Release(path, manifest, manifest.identity or digest)


def stored_manifest(path: str | Path) -> tuple[dict[str, Any], str]:
    """The manifest of a release of whatever format, as it is stored, and its digest."""
    where = Path(path)
    with closing(_connect(where)) as connection:
        text, digest = manifest_text(connection, where)
    return document_of(text), digest


def attach(connection: duckdb.DuckDBPyConnection, path: Path, statement: str) -> None:
    """Attach a file by a statement that names the alias and takes the path as ``$path``."""
    # An absolute path cannot be taken for the name of another kind of database ("md5:x").
    connection.execute(statement, {"path": str(path.absolute())})


def attach_release(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Attach a release, read-only, as ``release``, and look there for what has no catalog."""
    _check_place(path)
    if path.is_dir():
        attach_folder(connection, path)
        connection.execute("USE release")
        return
    try:
        attach(connection, path, "ATTACH $path AS release (READ_ONLY, TYPE duckdb)")
        strange = [each for (each,) in connection.execute(_STRANGE).fetchall()]
        if not strange:
            connection.execute("USE release")
    except duckdb.ResourceInUseException:
        raise OperationalError(
            f"{path} is already open in this program in another way",
            hint="close the other connection first",
        ) from None
    except duckdb.Error:
        raise IntegrityError(
            f"{path} cannot be read: it is damaged, in use, or not a release",
            hint="make it again with `privsql publish`",
        ) from None
    if strange:
        raise _unfit(f"{path} is not a release: it holds {' and '.join(sorted(strange))}")


# What a file holds beside tables.  Asked before its own schemas are searched for names.
_STRANGE = """
    SELECT 'functions' FROM duckdb_functions() WHERE database_name = 'release'
    UNION SELECT 'views' FROM duckdb_views() WHERE database_name = 'release' AND NOT internal
    UNION SELECT 'types' FROM duckdb_types() WHERE database_name = 'release' AND NOT internal
    UNION SELECT 'sequences' FROM duckdb_sequences() WHERE database_name = 'release'
    UNION SELECT 'triggers' FROM duckdb_triggers() WHERE database_name = 'release'
    UNION SELECT 'default or generated values' FROM duckdb_columns()
        WHERE database_name = 'release' AND column_default IS NOT NULL
"""


def _connect(path: Path) -> duckdb.DuckDBPyConnection:
    _check_place(path)
    config: dict[str, str | bool | int | float | list[str]] = {
        "autoload_known_extensions": "false",
        "autoinstall_known_extensions": "false",
        # Beside the file as ever, and not where the program happens to run.
        "temp_directory": f"{path.absolute()}.tmp",
    }
    with ExitStack() as failing:
        connection = failing.enter_context(duckdb.connect(":memory:", config=config))
        attach_release(connection, path)
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        failing.pop_all()
    return connection


def _check_place(path: Path) -> None:
    """Refuse a path that holds no release before the database creates or waits for it."""
    try:
        if not path.exists():
            raise OperationalError(f"there is no release at {path}")
        if path.is_dir():
            if not is_folder(path):
                raise OperationalError(f"{path} is a folder, but not one of a release")
        elif not path.is_file():
            raise OperationalError(f"{path} is not a file, so it is not a release")
    except OSError as problem:
        raise OperationalError(f"cannot open {path}: {problem.strerror}") from None


def _unfit(reason: str) -> IntegrityError:
    return IntegrityError(reason, hint="get the release again from its publisher")


def _check_length(connection: duckdb.DuckDBPyConnection, tables: Iterable[str], path: Path) -> None:
    """All blocks of the tables are in the file; the database only looks when it needs one."""
    # Blocks that are free may lie beyond the end, so the number of all blocks says nothing.
    sizes = "SELECT block_size FROM pragma_database_size() WHERE database_name = 'release'"
    last = "SELECT max(block_id) FROM pragma_storage_info($1)"
    try:
        size = connection.execute(sizes).fetchall()[0][0]
        blocks = [connection.execute(last, [table]).fetchall()[0][0] for table in tables]
    except duckdb.Error:
        raise IntegrityError(f"a table in {path} is damaged") from None
    needed = max((block for block in blocks if block is not None), default=-1) + 1
    if path.stat().st_size < HEADERS + needed * size:
        raise _unfit(f"{path} is damaged: it was cut short")


def manifest_text(connection: duckdb.DuckDBPyConnection, path: Path) -> tuple[str, str]:
    """The manifest's JSON as it is stored, of whatever format, and its digest."""
    try:
        rows = connection.execute("SELECT document, digest FROM privsql.manifest").fetchall()
    except duckdb.CatalogException:
        raise IntegrityError(
            f"{path} is a database but not a release: it has no manifest",
            hint="make one of it with `privsql publish`",
        ) from None
    except duckdb.Error:
        raise IntegrityError(f"the manifest in {path} is damaged") from None
    if len(rows) != 1 or not isinstance(rows[0][0], str) or _digest(rows[0][0]) != rows[0][1]:
        raise _unfit(f"the manifest in {path} is damaged, or was edited")
    return rows[0][0], rows[0][1]


def _check(connection: duckdb.DuckDBPyConnection, manifest: Manifest, path: Path) -> None:
    """The table has the columns, types and number of rows that the manifest says."""
    try:
        table = connection.table(published_table(manifest.table))
        found = list(zip(table.columns, map(str, table.types), strict=True))
        if path.is_dir() and found[-1][0] == ROW_NUMBER:
            del found[-1]
        columns: list[PublicColumn | SensitiveColumn] = [*manifest.public, *manifest.sensitive]
        expected = [(column.name, column.type) for column in columns]
        names = [name for name, _ in found[len(expected) :]]
        if found[: len(expected)] != expected or names != manifest.hidden:
            raise IntegrityError(f"the table in {path} is not the one that its manifest describes")
        rows = count_rows(table)
    except duckdb.Error:
        raise IntegrityError(f"the table in {path} is damaged or missing") from None
    if rows != manifest.rows:
        raise IntegrityError(
            f"the table in {path} does not have the number of rows it was made with"
        )


def _check_beside(connection: duckdb.DuckDBPyConnection, manifest: Manifest, path: Path) -> None:
    """The tables beside it are there, and say of groups and domains what the manifest says."""
    wanted, listed = tables_beside(manifest), _listed(manifest)
    wrong = _unfit(f"the tables in {path} are not those that its manifest describes")
    try:
        for table, columns in wanted.items():
            if set(connection.table(table).columns) != columns:
                raise wrong
        sizes = [count_rows(connection.table(domain_table(column.name))) for column in listed]
        ends = f"max({GROUP}), sum({ROWS})"
        last, total = connection.table(TUPLES).aggregate(ends).fetchall()[0]
    except duckdb.CatalogException:
        raise _unfit(f"a table is missing in {path} that its manifest describes") from None
    except duckdb.Error:
        raise IntegrityError(f"a table in {path} is damaged") from None
    if not path.is_dir():
        _check_length(connection, (published_table(manifest.table), *wanted), path)
    # Rows that are cut down or stored once are fewer than those that the tuples count.
    whole = manifest.protection is None and not manifest.multiplicity
    if (
        sizes != [column.domain.size for column in listed]
        or last is None
        or last + 1 != manifest.groups.count
        or (whole and total != manifest.rows)
    ):
        raise wrong


def tables_beside(manifest: Manifest) -> dict[str, set[str]]:
    """The tables beside the published rows, and their columns."""
    grouping = manifest.groups.columns
    tables = {TUPLES: {*grouping, ROWS, GROUP}}
    tables |= {values_table(name): {"value", "label"} for name in grouping}
    return tables | {domain_table(column.name): {"code", "value"} for column in _listed(manifest)}


def _listed(manifest: Manifest) -> list[SensitiveColumn]:
    return [column for column in manifest.sensitive if column.domain.size <= MATERIALISE_LIMIT]


def count_rows(relation: duckdb.DuckDBPyRelation) -> int:
    """How many rows a relation has."""
    return int(relation.aggregate([FunctionExpression("count")]).fetchall()[0][0])


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
