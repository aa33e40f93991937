"""The in-memory database of the reconstruction, with the kernels and without any release.

The scan's small result is loaded, reconstruction and the rest of the query are SQL over it.
An analyst's own expressions run here and nowhere else, so here is nothing but that result.

One thread, because our functions hold the interpreter's lock anyway, and no spilling to disk.
Types are DuckDB's in Arrow: a HUGEINT, which every integer SUM is, comes out as
decimal128(38, 0) and goes in again as DECIMAL(38,0).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping

import duckdb
import pyarrow as pa

from privsql.engines import databases
from privsql.engines.calls import Calls, Cursor
from privsql.engines.databases import Parameters
from privsql.release.names import quoted
from udfs.register import register

MEMORY_LIMIT = "2GB"

# Databases that were closed and emptied, by process and limit of memory, and how many are kept:
# making one takes thirty times as long as emptying it.
_IDLE: dict[tuple[int, str], list[Cursor]] = {}
_LOCK = threading.Lock()
MOST_IDLE = 4


def _taken(memory_limit: str) -> Cursor:
    """An empty database with our functions and nothing else in reach."""
    with _LOCK:
        idle = _IDLE.get((os.getpid(), memory_limit))
        if idle:
            return idle.pop()
    connection = databases.connected(memory_limit=memory_limit, threads=1, temporary="")
    with databases.filling(connection):
        register(connection, fresh=True)
    return connection


def _given_back(connection: Cursor, memory_limit: str) -> None:
    """Empty a database for the next session; one that cannot be emptied is closed."""
    tables = "SELECT table_name FROM duckdb_tables() WHERE database_name = 'memory'"
    try:
        for (name,) in connection.execute(tables).fetchall():
            connection.execute(f"DROP TABLE memory.main.{quoted(name)}")
        empty = not connection.execute(tables).fetchall()
    except duckdb.Error:
        empty = False
    with _LOCK:
        idle = _IDLE.setdefault((os.getpid(), memory_limit), [])
        if empty and len(idle) < MOST_IDLE:
            idle.append(connection)
            return
    connection.close()


class Memory:
    """A database for reconstruction, one a session.

    Threads may share it; tables are seen by all of them, so names are theirs to keep apart.
    One that was closed is emptied and given to the next: only SELECTs ran in it, on cursors of
    their own, so its tables are all that it could remember.
    """

    def __init__(self, *, memory_limit: str = MEMORY_LIMIT) -> None:
        self._calls = Calls(
            _taken(memory_limit), ending=lambda closed: _given_back(closed, memory_limit)
        )

    def load(self, name: str, table: pa.Table) -> None:
        """Copy a table in under a name, in place of one that has it."""
        self._calls.run(lambda cursor: databases.store(cursor, name, table))

    def load_all(self, tables: Mapping[str, pa.Table]) -> None:
        """Copy several tables in at once."""

        def work(cursor: Cursor) -> None:
            for name, table in tables.items():
                databases.store(cursor, name, table)

        self._calls.run(work)

    def forget(self, *names: str) -> None:
        """Drop tables, those that are there."""

        def work(cursor: Cursor) -> None:
            for name in names:
                cursor.execute(f"DROP TABLE IF EXISTS memory.main.{quoted(name)}")

        self._calls.run(work, tidying=True)

    def run(
        self, sql: str, parameters: Parameters = (), *, most: databases.Most | None = None
    ) -> pa.Table:
        """Run one SELECT over what was loaded; ``most`` is what it may return."""
        return self._calls.run(databases.fetched(sql, parameters, most))

    def describe(self, sql: str, parameters: Parameters = ()) -> list[tuple[str, str]]:
        """Names and DuckDB types of the columns of one SELECT, which is not run."""

        def look(cursor: Cursor) -> list[tuple[str, str]]:
            statement, values = databases.checked(cursor, sql, parameters)
            relation = cursor.sql(statement, params=values)
            return list(zip(relation.columns, map(str, relation.types), strict=True))

        return self._calls.run(look)

    def interrupt(self) -> None:
        """End what is under way; whoever waits for it gets a ``CanceledError``."""
        self._calls.interrupt()

    def close(self) -> None:
        """End everything and forget all tables."""
        self._calls.close()
