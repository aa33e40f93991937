"""Where raw rows come from: CSV, Parquet, or a table of a DuckDB file, one or many.

A source is opened in a connection of its own, so that nothing that is written shares a
database with raw rows.  Rows are read as Arrow batches in the order of the source.
"""

from __future__ import annotations

import glob
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from duckdb import ColumnExpression, FunctionExpression

from privsql.errors import DataError, OperationalError, ProgrammingError
from privsql.release.names import quoted

CSV, PARQUET, DUCKDB = {".csv", ".tsv", ".txt"}, {".parquet", ".pq"}, {".duckdb", ".db", ".ddb"}

# Rows a batch: large enough for vectors, small enough that memory stays flat.
BATCH = 1 << 18


@dataclass(frozen=True)
class Source:
    """An open source: its columns, and its rows in batches."""

    connection: duckdb.DuckDBPyConnection
    relation: duckdb.DuckDBPyRelation
    columns: tuple[tuple[str, str], ...]
    files: tuple[str, ...]

    @property
    def names(self) -> list[str]:
        """Names of the columns, in order."""
        return [name for name, _ in self.columns]

    def rows(self) -> int:
        """Count the rows."""
        with readable():
            counted = self.relation.aggregate([FunctionExpression("count")]).fetchall()
        return int(counted[0][0])

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Rows of the named columns, in the order of the source."""
        with readable():
            chosen = self.relation.select(*(ColumnExpression(name) for name in names))
            yield from chosen.to_arrow_reader(BATCH)

    def distinct(self, name: str) -> pa.ChunkedArray[Any]:
        """The distinct values of a column, sorted, NULL among them."""
        with readable():
            column = ColumnExpression(name)
            table = self.relation.select(column).distinct().sort(column).to_arrow_table()
            values: pa.ChunkedArray[Any] = table.column(0)
            return values

    def state(self) -> str:
        """A digest of the files: the same source has every row at the same place."""
        state = hashlib.blake2b(digest_size=16)
        for file in self.files:
            with Path(file.partition("::")[0]).open("rb") as handle:
                state.update(hashlib.file_digest(handle, "blake2b").digest())
        return state.hexdigest()

    def close(self) -> None:
        """Let go of the files."""
        self.connection.close()


def open_source(paths: Sequence[str]) -> Source:
    """Open files of one kind as one table; globs are allowed, and ``file.duckdb::table``."""
    files = [file for path in paths for file in _expand(path)]
    if not files:
        raise ProgrammingError("no source is given", hint="name one in the spec or by --source")
    kinds = {Path(file.partition("::")[0]).suffix.lower() for file in files}
    connection = duckdb.connect()
    try:
        with readable():
            if kinds <= CSV:
                relation = connection.read_csv(files)  # type: ignore[arg-type]
            elif kinds <= PARQUET:
                relation = connection.read_parquet(files)
            elif kinds <= DUCKDB and len(files) == 1:
                connection.close()
                connection, relation = _database(files[0])
            else:
                raise ProgrammingError(
                    f"cannot read {', '.join(sorted(kinds))} as one source",
                    hint="give CSV or Parquet files of one kind, or one DuckDB file",
                )
            columns = tuple(zip(relation.columns, map(str, relation.types), strict=True))
    except BaseException:
        connection.close()
        raise
    return Source(connection, relation, columns, tuple(files))


def _expand(path: str) -> list[str]:
    file, mark, table = path.partition("::")
    found = sorted(glob.glob(file)) if glob.has_magic(file) else [file]
    if not found:
        raise OperationalError(f"no file matches {path}")
    for each in found:
        if not Path(each).is_file():
            raise OperationalError(f"there is no file {each}")
    return [each + mark + table for each in found]


def _database(path: str) -> tuple[duckdb.DuckDBPyConnection, duckdb.DuckDBPyRelation]:
    file, _, table = path.partition("::")
    connection = duckdb.connect(file, read_only=True)
    try:
        if not table:
            tables = [row[0] for row in connection.execute("SHOW TABLES").fetchall()]
            if len(tables) != 1:
                raise ProgrammingError(
                    f"{file} has {len(tables)} tables", hint=f"name one: {file}::table"
                )
            table = tables[0]
        return connection, connection.table(quoted(table))
    except BaseException:
        connection.close()
        raise


class readable:  # noqa: N801 - reads as a phrase: with readable():
    """Turn the reader's errors into ours, without the values that they quote."""

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, kind: object, problem: BaseException | None, trace: object) -> None:
        """Replace an error of DuckDB or Arrow."""
        # What goes wrong in the middle of a stream reaches us through Arrow, as an OSError.
        if not isinstance(problem, duckdb.Error | pa.ArrowException | OSError):
            return
        text = str(problem)
        if isinstance(problem, duckdb.CatalogException):
            raise ProgrammingError("the source has no such table or column") from None
        if "utf-8" in text.lower() or "unicode" in text.lower():
            raise DataError(
                "the source is not valid UTF-8", hint="convert it first, for example with iconv"
            ) from None
        if isinstance(problem, duckdb.IOException):
            raise OperationalError("the source cannot be read as a file of its kind") from None
        raise DataError(
            "the source cannot be read: a row does not fit the types of its columns",
            hint="mixed types in a CSV column are the usual cause; write them as text",
        ) from None
