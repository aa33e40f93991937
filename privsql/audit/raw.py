# ruff: noqa: S608 - all names in these statements are quoted, or ours
"""The release and, at its publisher, the raw table it was made from, in one database.

A raw source must be the one of the release: the same columns, as many rows of each public
tuple, values inside of the domains.  Anything else would make an audit of another table.
"""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import duckdb

from privsql.channels import Categorical, Decoy
from privsql.errors import DataError, IntegrityError, OperationalError, ProgrammingError
from privsql.publish.formats import kind_of
from privsql.publish.recode import projected
from privsql.release.folder import attach_folder
from privsql.release.manifest import Manifest
from privsql.release.names import ROWS, TUPLES, quoted
from privsql.release.recoding import OTHER
from privsql.release.spec import Spec
from privsql.release.store import Release, attach

CSV, PARQUET, DUCKDB = {".csv", ".tsv", ".txt"}, {".parquet", ".pq"}, {".duckdb", ".db", ".ddb"}


@contextmanager
def side_by_side(
    release: Release, raw: str | Path | Sequence[str] | None, spec: Spec | None = None
) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection with the release as ``release`` and the raw table, if any, as ``raw``.

    Raw rows never spill to disk.  The release is read-only.  A spec recodes the raw table as it
    was recoded for publishing.
    """
    config = {"temp_directory": ""} if raw is not None else {}
    connection = duckdb.connect(":memory:", config=config)  # type: ignore[arg-type]
    try:
        with suppress(duckdb.InvalidInputException):  # a notebook without ipywidgets has no bar
            connection.execute("SET enable_progress_bar = false")
        try:
            if release.path.is_dir():
                attach_folder(connection, release.path)
            else:
                attach(connection, release.path, "ATTACH $path AS release (READ_ONLY, TYPE duckdb)")
        except duckdb.Error:
            raise OperationalError(f"{release.path} cannot be opened again") from None
        if raw is not None:
            paths = [str(raw)] if isinstance(raw, str | Path) else [str(each) for each in raw]
            with _read():
                _open(connection, paths, release.manifest, spec)
                _match(connection, release.manifest)
        with _read() if raw is not None else _whole(release):
            yield connection
    finally:
        connection.close()


def _open(
    con: duckdb.DuckDBPyConnection, paths: Sequence[str], manifest: Manifest, spec: Spec | None
) -> None:
    """Make the view ``raw``: the columns of the release, public ones in its types."""
    files = [file for path in paths for file in _files(path)]
    kinds = {kind_of(file) for file in files}
    if files and kinds <= CSV:
        found = _csv(con, files, manifest, spec)
    elif files and kinds <= PARQUET:
        found = con.read_parquet(files)
    elif kinds <= DUCKDB and len(files) == 1:
        found = _table(con, files[0])
    else:
        raise ProgrammingError(
            f"cannot read {', '.join(sorted(kinds)) or 'nothing'} as one raw source",
            hint="give CSV or Parquet files of one kind, or one DuckDB file",
        )
    named = {name.casefold(): name for name in found.columns}
    wanted = [c.name for c in manifest.public] + [c.name for c in manifest.sensitive]
    missing = [name for name in wanted if name.casefold() not in named]
    if missing:
        raise DataError(
            f"the raw source does not match the release: it has no column {', '.join(missing)}",
            hint="name the source that this release was made from",
        )
    if spec is not None:
        found = projected(found, _as_published(spec, manifest))
    found.create_view("source_rows")
    types = {column.name: f"::{column.type}" for column in manifest.public}
    there = dict(zip(found.columns, map(str, found.types), strict=True))
    # Sensitive times with a zone were published in UTC.
    types |= {
        column.name: " AT TIME ZONE 'UTC'"
        for column in manifest.sensitive
        if there[named[column.name.casefold()]] == "TIMESTAMP WITH TIME ZONE"
    }
    parts = [
        f"{quoted(named[name.casefold()])}{types.get(name, '')} AS {quoted(name)}"
        for name in wanted
    ]
    con.execute(f"CREATE TEMP VIEW raw AS SELECT {', '.join(parts)} FROM source_rows")


def _as_published(spec: Spec, manifest: Manifest) -> Spec:
    """The spec with the domains that were published, observed ones among them."""
    domains = {column.name.casefold(): column.domain for column in manifest.sensitive}
    columns = []
    for column in spec.columns:
        domain = domains.get(column.name.casefold(), column.domain)
        recoding = column.recoding
        if column.domain is None and isinstance(domain, Categorical):
            other = recoding.other or OTHER
            recoding = replace(recoding, other=other if other in domain.categories else None)
        columns.append(replace(column, domain=domain, recoding=recoding))
    return replace(spec, columns=tuple(columns))


def _csv(
    con: duckdb.DuckDBPyConnection, files: list[str], manifest: Manifest, spec: Spec | None
) -> duckdb.DuckDBPyRelation:
    """Types are guessed, but the words of a domain are words, as they were to publishing."""
    found = con.read_csv(files)  # type: ignore[arg-type]
    words = {
        column.name.casefold()
        for column in manifest.sensitive
        if isinstance(column.domain, Categorical) and column.domain.kind == "text"
    }
    words |= {name.casefold() for name in (spec.words if spec is not None else ())}
    told = {name: "VARCHAR" for name in found.columns if name.casefold() in words}
    return con.read_csv(files, dtype=told) if told else found  # type: ignore[arg-type]


def _table(con: duckdb.DuckDBPyConnection, path: str) -> duckdb.DuckDBPyRelation:
    file, _, table = path.partition("::")
    attach(con, Path(file), "ATTACH $path AS source (READ_ONLY, TYPE duckdb)")
    if not table:
        names = con.execute(
            "SELECT table_name FROM duckdb_tables() WHERE database_name = 'source'"
            " AND schema_name = 'main'"
        ).fetchall()
        if len(names) != 1:
            raise ProgrammingError(
                f"{file} has {len(names)} tables", hint=f"name one: {file}::table"
            )
        table = names[0][0]
    return con.table(f"source.main.{quoted(table)}")


def _files(path: str) -> list[str]:
    file, mark, table = path.partition("::")
    found = sorted(glob.glob(file)) if glob.has_magic(file) else [file]
    for each in found:
        if not Path(each).is_file():
            raise OperationalError(f"there is no file {each}")
    if not found:
        raise OperationalError(f"no file matches {path}")
    return [each + mark + table for each in found]


def spare(manifest: Manifest) -> int:
    """Rows that may have been dropped: no decoy group had room for them, less than one a column."""
    return sum(c.channel.group_size - 1 for c in manifest.sensitive if isinstance(c.channel, Decoy))


def _match(con: duckdb.DuckDBPyConnection, manifest: Manifest) -> None:
    """Refuse a source with other rows than the release has, as far as public values tell."""
    there = con.execute(f"SELECT sum({ROWS})::BIGINT FROM release.{TUPLES}").fetchall()[0][0]
    here = con.execute("SELECT count(*) FROM raw").fetchall()[0][0]
    if 0 <= here - there <= spare(manifest):
        return
    there_are = f"{there:,}"
    if manifest.batches:
        there_are += f", {len(manifest.batches)} batches that clients sent included"
    raise DataError(
        f"the raw source does not match the release: it has {here:,} rows, the release {there_are}",
        hint="name the source that this release was made from, as it was then",
    )


@contextmanager
def _whole(release: Release) -> Iterator[None]:
    """Turn errors of the database into errors of privsql."""
    try:
        yield
    except duckdb.Error:
        raise IntegrityError(
            f"a table in {release.path} is damaged", hint="get the release again from its publisher"
        ) from None


@contextmanager
def _read() -> Iterator[None]:
    """Turn errors of the reader into errors of privsql, without the values that they quote."""
    try:
        yield
    except (duckdb.IOException, OSError):
        raise OperationalError("the raw source cannot be read as a file of its kind") from None
    except duckdb.CatalogException:
        raise ProgrammingError("the raw source has no such table or column") from None
    except duckdb.ConversionException:
        raise DataError(
            "the raw source does not match the release: its public values have other types",
            hint="name the source that this release was made from, and the spec if it recodes them",
        ) from None
    except duckdb.OutOfMemoryException:
        raise OperationalError(
            "the raw source has too many groups for this machine's memory"
        ) from None
    except duckdb.Error:
        raise DataError(
            "the raw source cannot be read: a row does not fit the types of its columns",
            hint="mixed types in a CSV column are the usual cause; write them as text",
        ) from None
