"""Engines: where a scan runs, and where its result becomes an answer.

    Embedded   beside the published table: read-only, locked, nothing outside can be reached
    Memory     elsewhere: no release in sight, our functions at hand

Both run one statement at a time on a cursor of its own (``calls``), can be interrupted from
another thread, and speak in our errors, which quote no value (``problems``).  What several of
them do for one question is limited together (``watch``).
"""

from __future__ import annotations

from privsql.engines.base import Engine
from privsql.engines.databases import Most
from privsql.engines.embedded import Embedded
from privsql.engines.memory import Memory
from privsql.engines.problems import CanceledError, OutOfMemoryError, TimedOutError
from privsql.engines.watch import Watch, watching

__all__ = [
    "CanceledError",
    "Embedded",
    "Engine",
    "Memory",
    "Most",
    "OutOfMemoryError",
    "TimedOutError",
    "Watch",
    "watching",
]
