"""The interface of an engine, which runs a printed scan where the table is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import pyarrow as pa

Parameters = Sequence[object] | Mapping[str, object]


class Engine(Protocol):
    """A place that holds the published table and runs plain aggregate SQL over it."""

    def scan(self, sql: str, parameters: Parameters = ()) -> pa.Table:
        """Run one SELECT and return all of its rows, or raise one of ``privsql.errors``."""
        ...

    def interrupt(self) -> None:
        """Cancel the running scans, from another thread; later ones are unaffected."""
        ...

    def close(self) -> None:
        """Cancel everything and release the table.  Closing again has no effect."""
        ...
