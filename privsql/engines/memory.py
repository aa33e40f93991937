"""The in-memory database of the reconstruction, with the kernels and without any release.

The scan's small result is loaded, reconstruction and the rest of the query are SQL over it.
An analyst's own expressions run here and nowhere else, so here is nothing but that result.

One thread, because our functions hold the interpreter's lock anyway, and no spilling to disk.
Types are DuckDB's in Arrow: a HUGEINT, which every integer SUM is, comes out as
decimal128(38, 0) and goes in again as DECIMAL(38,0).
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from privsql.engines import databases
from privsql.engines.calls import Calls, Cursor
from privsql.engines.databases import Parameters
from privsql.release.names import quoted
from udfs.register import register

MEMORY_LIMIT = "2GB"


class Memory:
    """A database for reconstruction; make one a session, as that takes tens of milliseconds.

    Threads may share it; tables are seen by all of them, so names are theirs to keep apart.
    """

    def __init__(self, *, memory_limit: str = MEMORY_LIMIT) -> None:
        connection = databases.connected(memory_limit=memory_limit, threads=1, temporary="")
        with databases.filling(connection):
            register(connection, fresh=True)
        self._calls = Calls(connection)

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
