"""The tables ``privsql.audit_*`` of a release: the public part of an audit, made on demand.

The tables stand in a database of their own, with no release and no other table in it, so a
statement about them can reach nothing else, whatever it says.  They depend on the rules and the
public columns only (``privsql.audit.report.public_tables``): no policy is gone round.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from privsql.engines import MemoryEngine, ScanEngine
from privsql.errors import TooLargeError
from privsql.release.manifest import Manifest

SIZES = (
    "SELECT privsql_group AS number, sum(privsql_rows)::BIGINT AS size"
    " FROM privsql.tuples GROUP BY ALL"
)


class Audited:
    """The tables of one session's release, which does not change while it is open."""

    def __init__(
        self, engine: ScanEngine, manifest: Manifest, database: Callable[[], MemoryEngine]
    ) -> None:
        self._engine = engine
        self._manifest = manifest
        self._database = database
        self._memory: MemoryEngine | None = None

    def memory(self) -> MemoryEngine:
        """The database with the tables."""
        if self._memory is None:
            from privsql.audit.report.public_tables import public_tables

            tables = public_tables(self._manifest, self._sizes())
            made = self._database()
            try:
                made.load_all(tables)
            except BaseException:
                made.close()
                raise
            self._memory = made  # not before: loading may have been canceled
        return self._memory

    def _sizes(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Rows of each personal group, shape (G,)."""
        try:
            found = self._engine.scan(SIZES)
        except TooLargeError:
            raise TooLargeError(
                "there are too many personal groups for the tables of an audit here",
                hint="run `privsql audit` on the release's file",
            ) from None
        sizes = np.zeros(self._manifest.groups.count)
        sizes[found.column("number").to_numpy()] = found.column("size").to_numpy()
        return sizes

    def interrupt(self) -> None:
        """Stop what is under way."""
        if self._memory is not None:
            self._memory.interrupt()

    def close(self) -> None:
        """Forget the tables."""
        if self._memory is not None:
            self._memory.close()
