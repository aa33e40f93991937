"""SQL over perturbed data: counts are reconstructed and every answer carries its error.

A publisher keeps each sensitive value with some probability and otherwise replaces it by
a random one.  What that does to one column is a *channel* (``privsql.channels``):

    original value  --- T[i, j] = P(published j | original i) --->  published value

A query sees a column only through its conditions, which split the domain into *cells*; the
channel between cells is small and exact.  k columns make a tensor of *states*, counted in
one scan of the published table, and the kernels of ``udfs`` turn published state counts
back into original ones, with error bars:

    published states y  --- y A^-1, or the likelihood's maximum --->  original states x

The package is the DB-API 2.0 module (PEP 249) of its releases: ``connect`` opens one, and
every error that a user can cause is a ``privsql.Error``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from privsql.advise.job import advise as advise
    from privsql.answer.kinds import BINARY as BINARY
    from privsql.answer.kinds import DATETIME as DATETIME
    from privsql.answer.kinds import NUMBER as NUMBER
    from privsql.answer.kinds import ROWID as ROWID
    from privsql.answer.kinds import STRING as STRING
    from privsql.answer.kinds import Binary as Binary
    from privsql.answer.kinds import Date as Date
    from privsql.answer.kinds import DateFromTicks as DateFromTicks
    from privsql.answer.kinds import Time as Time
    from privsql.answer.kinds import TimeFromTicks as TimeFromTicks
    from privsql.answer.kinds import Timestamp as Timestamp
    from privsql.answer.kinds import TimestampFromTicks as TimestampFromTicks
    from privsql.answer.result import Answer as Answer
    from privsql.audit.job import audit as audit
    from privsql.errors import DatabaseError as DatabaseError
    from privsql.errors import DataError as DataError
    from privsql.errors import Error as Error
    from privsql.errors import IntegrityError as IntegrityError
    from privsql.errors import InterfaceError as InterfaceError
    from privsql.errors import InternalError as InternalError
    from privsql.errors import NotSupportedError as NotSupportedError
    from privsql.errors import OperationalError as OperationalError
    from privsql.errors import ProgrammingError as ProgrammingError
    from privsql.errors import Warning as Warning
    from privsql.fronts.dbapi.connection import Connection as Connection
    from privsql.fronts.dbapi.connection import Cursor as Cursor
    from privsql.fronts.dbapi.connection import connect as connect
    from privsql.publish.job import publish as publish

__version__ = "0.2.0.dev0"

apilevel = "2.0"
threadsafety = 2  # threads may share the module and connections
paramstyle = "qmark"

# Loaded when they are first asked for: importing privsql must stay quick.
_ROOMS = ("publish", "release", "channels", "errors", "audit", "advise", "learn")
_NAMES = {
    "privsql.fronts.dbapi.connection": ("connect", "Connection", "Cursor"),
    "privsql.answer.result": ("Answer",),
    "privsql.answer.kinds": (
        *("STRING", "BINARY", "NUMBER", "DATETIME", "ROWID"),
        *("Date", "Time", "Timestamp", "Binary"),
        *("DateFromTicks", "TimeFromTicks", "TimestampFromTicks"),
    ),
    "privsql.errors": (
        *("Warning", "Error", "InterfaceError", "DatabaseError", "DataError"),
        *("OperationalError", "IntegrityError", "InternalError", "ProgrammingError"),
        "NotSupportedError",
    ),
}
_HOME = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Load a package, or a name that it offers, on first use."""
    if name in _ROOMS:
        return importlib.import_module(f"privsql.{name}")
    if name in _HOME:
        found = globals()[name] = getattr(importlib.import_module(_HOME[name]), name)
        return found
    raise AttributeError(f"module 'privsql' has no attribute {name!r}")


def __dir__() -> list[str]:
    """All names, loaded or not, for completion."""
    return sorted({*globals(), *_ROOMS, *_HOME})
