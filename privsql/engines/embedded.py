"""The embedded engine: a release attached, read-only, to its own in-memory DuckDB.

A file that is opened directly is shared by all of the program under its path, with one
configuration for everyone, and another configuration is refused.  Attached to a database
in memory every engine is on its own: publishing, auditing and any number of engines go side by
side.  Publishing renames a new file over the old one; an engine that is open keeps the old
file and what it says, one that is opened later sees the new.

    release.main.<table>      the published table; found first
    release.privsql.<...>     what explains it
    memory.main.<name>        public tables that the analyst brought along
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from pathlib import Path

import duckdb
import pyarrow as pa

from privsql.engines import databases
from privsql.engines.calls import Calls, Cursor
from privsql.engines.databases import Parameters
from privsql.engines.problems import translated
from privsql.errors import Error, OperationalError, ProgrammingError
from privsql.release.folder import is_folder, stamp
from privsql.release.store import attach_release, checked

CATALOG = "release"
SEARCH_PATH = f"SET search_path = '{CATALOG}.main,memory.main'"


class Embedded:
    """Scans of one release in this process.

    ``tables`` are public tables to join with, copied in under their names.  ``spill`` is what
    sorting may use on disk, ``most`` what a scan may return.  Threads may share an engine.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        tables: Mapping[str, pa.Table] | None = None,
        memory_limit: str | None = None,
        threads: int | None = None,
        spill: str | None = None,
        most: databases.Most | None = None,
    ) -> None:
        # Beside the release, where its readers may see it and others not; of its own, because
        # DuckDB leaves a folder behind that two databases spilled into.
        folder = f"{Path(path).absolute()}.{secrets.token_hex(6)}.tmp"
        connection = databases.connected(
            memory_limit=memory_limit, threads=threads, temporary=folder, spill=spill
        )
        # Of a folder: its parts are opened by each scan, those of a file once.
        self._opened = stamp(Path(path)) if is_folder(Path(path)) else None
        with databases.filling(connection):
            attach_release(connection, Path(path))
            self.release = checked(connection, Path(path))
            for name, table in (tables or {}).items():
                _add(connection, name, table)
        self.spilling = folder
        self._most = most
        self._calls = Calls(connection, prepare=[SEARCH_PATH])

    def scan(self, sql: str, parameters: Parameters = ()) -> pa.Table:
        """Run one SELECT over the release and the public tables."""
        return self._run(databases.fetched(sql, parameters, self._most))

    def read(self, sql: str, parameters: Parameters = ()) -> pa.Table:
        """Run one SELECT of ours whose result no analyst gets: as long as it is."""
        return self._run(databases.fetched(sql, parameters))

    def _run(self, work: Callable[[Cursor], pa.Table]) -> pa.Table:
        try:
            return self._calls.run(work)
        except Error:
            path = self.release.path
            if self._opened is None or _same(path, self._opened):
                raise
            raise OperationalError(
                f"the release in {path} was replaced since it was opened", hint="open it again"
            ) from None

    def interrupt(self) -> None:
        """End the scans that are under way; each raises a ``CanceledError`` where it waits."""
        self._calls.interrupt()

    def close(self) -> None:
        """End everything and let go of the file."""
        self._calls.close()


def _same(folder: Path, before: tuple[int, int, int]) -> bool:
    try:
        return stamp(folder) == before
    except OSError:
        return False


def _add(connection: duckdb.DuckDBPyConnection, name: str, table: pa.Table) -> None:
    """Copy a public table in, under a name that the release does not use."""
    taken = connection.execute(
        "SELECT count(*) FROM duckdb_tables() WHERE lower(table_name) = lower($1)"
        " AND (database_name = $2 OR database_name = 'memory')",
        [name, CATALOG],
    ).fetchall()[0][0]
    if taken or not name or name.lower().startswith("privsql"):
        raise ProgrammingError(
            f"a public table cannot be called {name}: that name is taken",
            hint="give it another name",
        )
    try:
        databases.store(connection, name, table)
    except (duckdb.Error, pa.ArrowException) as problem:
        raise translated(problem) from None
