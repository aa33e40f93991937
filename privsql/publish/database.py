"""The database that a release is made in, with limited memory and spilling to disk."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import duckdb

# Memory that the database may take while it sorts and groups; it spills to disk beyond.
MEMORY = "1GB"


def working(made: Path, folder: Path) -> duckdb.DuckDBPyConnection:
    """Open a new file to write a release in, with room to spill in the folder."""
    config = {"temp_directory": str(folder / "spill"), "memory_limit": MEMORY}
    return quiet(duckdb.connect(str(made), config=config))  # type: ignore[arg-type]


def store(con: duckdb.DuckDBPyConnection, create: str, relation: duckdb.DuckDBPyRelation) -> None:
    """Write what a relation finds, by the beginning of a statement: ``CREATE TABLE t AS``."""
    # As a statement of its own: the relation's own create() does not notice Ctrl-C.
    con.execute(f"{create} {relation.sql_query()}")


def quiet(connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """Turn off the connection's own progress bars.

    DuckDB draws them wherever it takes Python for interactive: at a prompt, in a notebook,
    under ``python -c``.  We have a bar of our own, and standard output may be a batch.  In a
    notebook without ipywidgets there is no bar, and DuckDB does not even let one be turned off.
    """
    with suppress(duckdb.InvalidInputException):
        connection.execute("SET enable_progress_bar = false")
    return connection
