"""Resource limits of one statement.

Every limit ends in an error that names it, and the session goes on.  Time is that of the whole
statement: reading it, planning, each scan, reconstruction.  Memory is that of DuckDB, once for
the database beside the published table and once for the one that answers; behind a server, the
process of both may have no more than that and some room, whatever the memory is for
(``engines.processes``).  What Python needs to read a statement is held by its length and depth.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field

from privsql.errors import ProgrammingError

GIGABYTE = 10**9


def machine_memory() -> int:
    """Bytes of the machine's memory."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # not every system tells
        return 8 * GIGABYTE


def _memory() -> str:
    """Half of the machine's memory, 4 GB at most.

    A server that shares its machine should say less: two databases may use this each.
    """
    return f"{min(4 * GIGABYTE, machine_memory() // 2) // 10**6}MB"


@dataclass(frozen=True)
class Limits:
    """What one statement may use.

    >>> Limits(seconds=30).rows
    1000000
    """

    seconds: float | None = 300  # the whole statement; None is no limit
    memory: str = field(default_factory=_memory)  # of each database
    threads: int = field(default_factory=lambda: os.cpu_count() or 1)  # of the scan
    spill: str = "20GB"  # on disk, beside the release, while a scan sorts or groups
    characters: int = 2_000_000  # of the text that is given, comments and all
    depth: int = 100  # of parentheses, brackets, CASE and signs within each other
    rows: int = 1_000_000  # of an answer, and groups of a scan
    cells: int = 20_000_000  # rows times columns, those of error bars included
    bytes: int = 500_000_000  # of an answer

    def __post_init__(self) -> None:
        """Refuse limits that limit nothing or everything."""
        for name in ("seconds", "threads", "characters", "depth", "rows", "cells", "bytes"):
            value = getattr(self, name)
            if value is None and name == "seconds":
                continue
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not math.isfinite(value) or value <= 0:
                raise ProgrammingError(f"the limit {name!r} is a number above 0")
