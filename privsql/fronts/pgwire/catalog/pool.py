"""Catalog databases in processes of their own, one for each statement under way.

Statements over the catalog and those without a table are anybody's SQL (``SELECT repeat('x', 9)``),
so they run within a limit of memory like all others (see ``engines.processes.child``), and a
statement shares its process with no other while it runs.  While statements hold all of them for
longer (``SELECT pg_sleep(60)``), one is kept ready: it takes half a second to make, for which
nobody else should wait.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import pyarrow as pa

from privsql.engines.processes import zygote
from privsql.engines.processes.child import Child, Remote
from privsql.errors import Error
from privsql.fronts.pgwire.catalog.answers import Catalog
from privsql.fronts.pgwire.catalog.database import MEMORY_LIMIT
from privsql.release.manifest import Manifest

# Databases that wait for the next statement.
MOST_IDLE = 2
# Seconds that a statement holds one until another is made, and after which a second one that is
# idle is ended.
SOON, RESTED = 0.3, 60.0
_BYTES = int(MEMORY_LIMIT.removesuffix("MB")) * 10**6
zygote.preload(__name__)


class Asking(NamedTuple):
    """Who asks: a user of a database by one connection."""

    database: str
    user: str
    process: int


class Lookup:
    """The catalog of a set of releases, in a child."""

    def __init__(self, releases: Mapping[str, Manifest]) -> None:
        self._releases = dict(releases)
        self._catalog(Asking("", "", 0))  # makes the database

    def _catalog(self, asking: Asking) -> Catalog:
        return Catalog(self._releases, asking.database, asking.user, pid=asking.process)

    def describe(self, asking: Asking, text: str, types: Sequence[str]) -> list[tuple[str, str]]:
        """Names and types of the columns of one SELECT, which is not run."""
        return self._catalog(asking).describe(text, types)

    def types(self, asking: Asking, text: str, given: Mapping[int, str]) -> list[str]:
        """DuckDB's types of the parameters of one SELECT."""
        return self._catalog(asking).types(text, given)

    def run(
        self,
        asking: Asking,
        text: str,
        types: Sequence[str],
        parameters: Sequence[Any],
        settings: Mapping[str, str],
    ) -> tuple[list[tuple[str, str]], pa.Table]:
        """The columns and rows of one SELECT."""
        catalog = self._catalog(asking)
        return catalog.describe(text, types), catalog.run(text, parameters, settings)

    def interrupt(self) -> None:
        """End what is under way."""
        self._catalog(Asking("", "", 0)).interrupt()

    def close(self) -> None:
        """Nothing: the process ends."""


class Lookups:
    """Catalogs for statements; ``memory`` is the limit of one in bytes, if it is less than ours."""

    def __init__(self, memory: int) -> None:
        self._memory = min(memory, _BYTES)
        self._lock = threading.Lock()
        self._idle: list[tuple[tuple[int, ...], Child, Remote]] = []
        self._closed = False
        self._replacing = False  # one is being made
        self._held: dict[int, float] = {}  # since when, by process
        self._wanted: tuple[tuple[int, ...], Mapping[str, Manifest]] | None = None
        self._used = time.monotonic()

    @contextmanager
    def lease(self, state: tuple[int, ...], releases: Mapping[str, Manifest]) -> Iterator[Remote]:
        """A catalog for one statement; ``state`` numbers the versions that it describes."""
        child, remote = self._taken(state) or self._made(releases)
        with self._lock:
            self._held[id(child)] = self._used = time.monotonic()
            self._wanted = state, releases
        try:
            yield remote
        finally:
            with self._lock:
                del self._held[id(child)]
            self._given(state, child, remote)
            if child.broken:
                self._replace(state, releases)

    def tidy(self) -> None:
        """Have one idle while statements hold the others, and no second one for nobody."""
        now, ended = time.monotonic(), []
        with self._lock:
            slow = any(since < now - SOON for since in self._held.values())
            wanted = self._wanted if slow else None
            if self._used < now - RESTED and not self._held:
                ended, self._idle = self._idle[:-1], self._idle[-1:]
        for _, child, _ in ended:
            child.close()
        if wanted is not None:
            self._replace(*wanted)

    def _replace(self, state: tuple[int, ...], releases: Mapping[str, Manifest]) -> None:
        """Make a catalog for the next statement, which may be another user's, if none is idle."""
        with self._lock:
            if self._replacing or self._idle or self._closed:
                return
            self._replacing = True

        def work() -> None:
            try:
                with suppress(Error):
                    self._given(state, *self._made(releases))
            finally:
                self._replacing = False

        threading.Thread(target=work, name="privsql catalog", daemon=True).start()

    def _taken(self, state: tuple[int, ...]) -> tuple[Child, Remote] | None:
        with self._lock:
            for at in reversed(range(len(self._idle))):
                if self._idle[at][0] == state:
                    return self._idle.pop(at)[1:]
        return None

    def _made(self, releases: Mapping[str, Manifest]) -> tuple[Child, Remote]:
        child = Child(self._memory)
        try:
            return child, child.make(Lookup, dict(releases))
        except BaseException:
            child.close()
            raise

    def _given(self, state: tuple[int, ...], child: Child, remote: Remote) -> None:
        ended = [child]
        with self._lock:
            if not child.broken and not self._closed:
                self._idle.append((state, child, remote))
                ended = [each for _, each, _ in self._idle[:-MOST_IDLE]]
                del self._idle[:-MOST_IDLE]
        for each in ended:
            each.close()

    def close(self) -> None:
        """End the processes that are idle; the others end with their statements."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for _, child, _ in idle:
            child.close()
