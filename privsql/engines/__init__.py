"""Where a printed scan runs, and where its small result becomes an answer.

problems   DuckDB's errors as ours
breaks     Python code that another thread may stop
watch      the time of a statement
workers    threads that are used again
calls      statements on one database
recent     a bounded cache
databases  in-memory databases that reach nothing outside
embedded   beside the published table: read-only, locked
memory     elsewhere: no release in sight, our functions at hand
base       the databases of a session, wherever they run
processes  the same in child processes, within a limit of memory
"""

from __future__ import annotations

from privsql.engines.base import Engines, Here, MemoryEngine, ScanEngine
from privsql.engines.databases import Most
from privsql.engines.embedded import Embedded
from privsql.engines.memory import Memory
from privsql.engines.problems import CanceledError, OutOfMemoryError, TimedOutError
from privsql.engines.watch import Watch, watching

__all__ = [
    "CanceledError",
    "Embedded",
    "Engines",
    "Here",
    "Memory",
    "MemoryEngine",
    "Most",
    "OutOfMemoryError",
    "ScanEngine",
    "TimedOutError",
    "Watch",
    "watching",
]
