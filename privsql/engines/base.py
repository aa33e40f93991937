"""The databases of a session, wherever they run.

ScanEngine     beside the published table
MemoryEngine   elsewhere: loaded tables, our functions
Engines        makes both: in this process, or in a child of its own
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from privsql.engines.databases import Most, Parameters
from privsql.engines.embedded import Embedded
from privsql.engines.memory import Memory
from privsql.release.store import Release


class ScanEngine(Protocol):
    """Runs scans of one release (see ``embedded``)."""

    @property
    def release(self) -> Release:
        """What is scanned."""

    def scan(self, sql: str, parameters: Parameters = ()) -> pa.Table:
        """Run one SELECT over the release and the public tables."""

    def read(self, sql: str, parameters: Parameters = ()) -> pa.Table:
        """Run one SELECT of ours whose result no analyst gets: as long as it is."""

    def interrupt(self) -> None:
        """End the scans that are under way."""

    def close(self) -> None:
        """End everything and let go of the file."""


class MemoryEngine(Protocol):
    """Runs reconstructions (see ``memory``)."""

    def load(self, name: str, table: pa.Table) -> None:
        """Copy a table in."""

    def load_all(self, tables: Mapping[str, pa.Table]) -> None:
        """Copy several tables in at once."""

    def forget(self, *names: str) -> None:
        """Drop tables."""

    def run(self, sql: str, parameters: Parameters = (), *, most: Most | None = None) -> pa.Table:
        """Run one SELECT over what was loaded."""

    def describe(self, sql: str, parameters: Parameters = ()) -> list[tuple[str, str]]:
        """Names and DuckDB types of the columns of one SELECT, which is not run."""

    def interrupt(self) -> None:
        """End what is under way."""

    def close(self) -> None:
        """End everything and forget all tables."""


class Engines(Protocol):
    """Makes the databases of one session."""

    @property
    def broken(self) -> bool:
        """Whether they can no longer be used, so that the session must be opened again."""

    def scanning(
        self,
        path: str | Path,
        *,
        tables: Mapping[str, pa.Table],
        memory_limit: str,
        threads: int,
        spill: str,
        most: Most,
    ) -> ScanEngine:
        """The database beside the published table."""

    def memory(self, memory_limit: str) -> MemoryEngine:
        """A database for reconstruction."""

    def close(self) -> None:
        """End what was made."""


class Here:
    """Databases in this process: for a program of the analyst's own."""

    broken = False

    def scanning(
        self,
        path: str | Path,
        *,
        tables: Mapping[str, pa.Table],
        memory_limit: str,
        threads: int,
        spill: str,
        most: Most,
    ) -> ScanEngine:
        """The database beside the published table."""
        return Embedded(
            path, tables=tables, memory_limit=memory_limit, threads=threads, spill=spill, most=most
        )

    def memory(self, memory_limit: str) -> MemoryEngine:
        """A database for reconstruction."""
        return Memory(memory_limit=memory_limit)

    def close(self) -> None:
        """Nothing beyond the databases, which are closed by themselves."""
