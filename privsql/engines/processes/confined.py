"""The databases of a session in a child process: for a server, whose statements are anybody's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import pyarrow as pa

from privsql.engines.base import MemoryEngine, ScanEngine
from privsql.engines.databases import Most, Parameters
from privsql.engines.embedded import Embedded
from privsql.engines.memory import Memory
from privsql.engines.processes.child import Child, Remote
from privsql.errors import ProgrammingError
from privsql.release.store import Release

_AMOUNT = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([KMGT]?)(i?)B", re.IGNORECASE)


def bytes_of(amount: str) -> int:
    """Bytes of an amount as DuckDB reads it.

    >>> bytes_of("200MB"), bytes_of("1.5 GiB"), bytes_of("10B")
    (200000000, 1610612736, 10)
    """
    match = _AMOUNT.fullmatch(amount.strip())
    if match is None:
        raise ProgrammingError("a limit of memory cannot be used", hint="write it like '2GB'")
    base = 1024 if match[3] else 1000
    return int(float(match[1]) * base ** " KMGT".index(match[2].upper() or " "))


class Confined:
    """Databases of one session, all in one child; it begins with the first of them.

    The child may have what the two databases of a statement may have, and some room.
    """

    def __init__(self) -> None:
        self._child: Child | None = None

    @property
    def broken(self) -> bool:
        """Whether the child has ended."""
        return self._child is not None and self._child.broken

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
        made = self._begun(memory_limit, threads).make(
            Embedded,
            Path(path),
            tables=dict(tables),
            memory_limit=memory_limit,
            threads=threads,
            spill=spill,
            most=most,
        )
        return _Scanning(made)

    def memory(self, memory_limit: str) -> MemoryEngine:
        """A database for reconstruction."""
        return _Memory(self._begun(memory_limit, 1).make(Memory, memory_limit=memory_limit))

    def _begun(self, memory_limit: str, threads: int) -> Child:
        if self._child is None:
            self._child = Child(2 * bytes_of(memory_limit), threads)
        return self._child

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            self._child.close()


class _Scanning:
    def __init__(self, remote: Remote) -> None:
        self._remote = remote
        self.release = cast(Release, remote.call("__getattribute__", "release"))
        self.interrupt, self.close = remote.interrupt, remote.close

    def scan(self, sql: str, parameters: Parameters = ()) -> pa.Table:
        """Run one SELECT over the release and the public tables."""
        return cast(pa.Table, self._remote.call("scan", sql, parameters))

    def read(self, sql: str, parameters: Parameters = ()) -> pa.Table:
        """Run one SELECT of ours whose result no analyst gets: as long as it is."""
        return cast(pa.Table, self._remote.call("read", sql, parameters))


class _Memory:
    def __init__(self, remote: Remote) -> None:
        self._remote = remote
        self.interrupt, self.close = remote.interrupt, remote.close

    def load(self, name: str, table: pa.Table) -> None:
        """Copy a table in under a name, in place of one that has it."""
        self.load_all({name: table})

    def load_all(self, tables: Mapping[str, pa.Table]) -> None:
        """Copy several tables in at once."""
        self._remote.call("load_all", dict(tables))

    def forget(self, *names: str) -> None:
        """Drop tables, those that are there."""
        if not self._remote.gone:  # with a process that has ended, its tables have
            self._remote.call("forget", *names, tidying=True)

    def run(self, sql: str, parameters: Parameters = (), *, most: Most | None = None) -> pa.Table:
        """Run one SELECT over what was loaded; ``most`` is what it may return."""
        return cast(pa.Table, self._remote.call("run", sql, parameters, most=most))

    def describe(self, sql: str, parameters: Parameters = ()) -> list[tuple[str, str]]:
        """Names and DuckDB types of the columns of one SELECT, which is not run."""
        return cast(list[tuple[str, str]], self._remote.call("describe", sql, parameters))
