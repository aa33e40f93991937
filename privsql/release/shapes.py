"""A release in its other shape: a file as a folder of Parquet, a folder as a file.

The manifest is copied letter by letter, so histories of answers know the release in either shape,
and every answer is the same.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import duckdb

from privsql.files import commit
from privsql.release.folder import commit_folder, write_folder
from privsql.release.manifest import Manifest
from privsql.release.names import published_table, quoted
from privsql.release.store import attach, attach_release, checked, tables_beside


def as_folder(source: Path, made: Path) -> Manifest:
    """Write a release, in whatever shape, into a new folder."""
    made.mkdir()
    with closing(_opened(source, made)) as connection:
        manifest = checked(connection, source).manifest
        write_folder(
            connection,
            made,
            table=manifest.table,
            order=_content(manifest),
            beside=tables_beside(manifest),
        )
    return manifest


def as_file(source: Path, made: Path) -> Manifest:
    """Write a release, in whatever shape, into a new DuckDB file."""
    with closing(_opened(source, made)) as connection:
        manifest = checked(connection, source).manifest
        attach(connection, made, "ATTACH $path AS made (TYPE duckdb)")
        connection.execute("CREATE SCHEMA made.privsql")
        for table in ("privsql.manifest", *tables_beside(manifest)):
            # As they are stored: numbers of groups and codes of values are places in them.
            query = f"SELECT * FROM release.{table} ORDER BY rowid"  # noqa: S608
            connection.execute(f"CREATE TABLE made.{table} AS {query}")
        content = ", ".join(map(quoted, _content(manifest)))
        columns = ", ".join(map(quoted, [*_content(manifest), *manifest.hidden]))
        connection.execute(
            f"CREATE TABLE made.main.{quoted(manifest.table)} AS"  # noqa: S608
            f" SELECT {columns} FROM {published_table(manifest.table)} ORDER BY {content}"
        )
        connection.execute("CHECKPOINT made")
        connection.execute("USE memory")
        connection.execute("DETACH made")
    return manifest


def _content(manifest: Manifest) -> list[str]:
    """The published columns, by which rows are sorted."""
    public = [column.name for column in manifest.public]
    return [*public, *(column.name for column in manifest.sensitive)]


def _opened(source: Path, made: Path) -> duckdb.DuckDBPyConnection:
    """A database that spills beside what is made, with the release attached."""
    connection = duckdb.connect(":memory:", config={"temp_directory": f"{made.absolute()}.tmp"})
    try:
        attach_release(connection, source)
        connection.execute("RESET allowed_paths")
    except BaseException:
        connection.close()
        raise
    return connection


def in_shape(made: Path, *, folder: bool) -> Path:
    """A release that was made as a file, in the shape that it is wanted in."""
    if not folder:
        return made
    written = made.with_name("made")
    as_folder(made, written)
    return written


def commit_release(made: Path, target: Path) -> None:
    """Bring a release into view at its place, in one step."""
    if made.is_dir():
        commit_folder(made, target)
    else:
        commit(made, target)
