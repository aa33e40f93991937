"""Registration of the kernels as DuckDB scalar functions.

    import duckdb
    from udfs.register import register

    con = duckdb.connect()
    register(con)
    con.sql("SELECT privsql_invert([45, 55], [[[0.75, 0.25], [0.25, 0.75]]])")

Functions belong to the database instance: every cursor, every thread and every other
connection to it sees them, and they are gone when it is reopened.  Registering again
changes nothing.

DuckDB notices Ctrl-C during a Python function only when its main thread happens to run it.
A connection that answers a person should therefore ``SET threads = 1``; the kernels gain
nothing from more, as they hold the interpreter's lock.
"""

from __future__ import annotations

import atexit
import contextlib
import inspect
import threading
import weakref
from collections.abc import Callable
from functools import cache

import duckdb
import pyarrow as pa
from duckdb.func import PythonUDFType
from duckdb.sqltypes import DuckDBPyType

from udfs.errors import KernelError
from udfs.functions import FUNCTIONS, Function
from udfs.lists import Arrow, Column

# Checking what is there and adding what is not must be one step among threads.
_LOCK = threading.Lock()

# DuckDB 2.0 complains on stderr at exit about connections that hold functions and were
# not closed; they are remembered, weakly, to be closed in time.
_REGISTERED: weakref.WeakSet[duckdb.DuckDBPyConnection] = weakref.WeakSet()


def _with_parameters(function: Function) -> Callable[..., Arrow]:
    """The body under a signature of its own: DuckDB counts parameters and takes no ``*``."""

    def call(*columns: Column) -> Arrow:
        # DuckDB leaves out rows with a NULL among their arguments; there may be no other.
        return function.body(*columns) if len(columns[0]) else pa.nulls(0)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    names = [inspect.Parameter(name, kind) for name in function.parameters]
    call.__signature__ = inspect.Signature(names)  # type: ignore[attr-defined]
    call.__name__ = function.name
    return call


# DuckDB keeps no reference of its own to a function once the cursor that registered it is
# gone, and crashes when another one calls it: ours live as long as the process.
_CALLS = {function.name: _with_parameters(function) for function in FUNCTIONS}


def register(connection: duckdb.DuckDBPyConnection, *, fresh: bool = False) -> None:
    """Make the functions of ``udfs.functions`` known to the connection's database.

    Refuses when the database has a function of one of those names that is not ours.  To look
    is most of the work; who has just made the database says that it is ``fresh``.
    The connection is closed at interpreter exit if its owner has not done so.
    """
    # A cursor of our own: inside the caller's transaction a rollback would take the
    # functions away again, half way, and DuckDB then refuses their names for good.
    with _LOCK:
        _REGISTERED.add(connection)
        with connection.cursor() as own:
            present = {} if fresh else _present(own)
            for function in FUNCTIONS:
                if present.get(function.name) not in (None, _spelling(function.name)):
                    raise KernelError(
                        f"the database has another function {function.name}; expected"
                        f" {function.signature}"
                    )
            for function in FUNCTIONS:
                if function.name not in present:
                    _create(own, function)


def _present(connection: duckdb.DuckDBPyConnection) -> dict[str, tuple[list[str], str]]:
    rows = connection.execute(
        "SELECT function_name, parameter_types, return_type FROM duckdb_functions()"
        " WHERE list_contains($1, function_name)",
        [[function.name for function in FUNCTIONS]],
    ).fetchall()
    return {name: (list(types), returns) for name, types, returns in rows}


@cache
def _spelling(name: str) -> tuple[list[str], str]:
    """Types of one of our functions as the catalog spells them."""
    function = next(function for function in FUNCTIONS if function.name == name)
    spelled = [str(duckdb.dtype(kind)) for kind in function.parameters.values()]
    return spelled, str(duckdb.dtype(function.returns))


def _create(connection: duckdb.DuckDBPyConnection, function: Function) -> None:
    connection.create_function(
        function.name,
        _CALLS[function.name],
        [_type(connection, kind) for kind in function.parameters.values()],
        _type(connection, function.returns),
        type=PythonUDFType.ARROW,
    )


def _type(connection: duckdb.DuckDBPyConnection, kind: str) -> DuckDBPyType:
    """A type as DuckDB's own object: to read its name is most of a registration."""
    if kind not in _TYPES:
        _TYPES[kind] = connection.dtype(kind)
    return _TYPES[kind]


_TYPES: dict[str, DuckDBPyType] = {}


@atexit.register
def _close_all() -> None:
    _TYPES.clear()
    for connection in list(_REGISTERED):
        with contextlib.suppress(duckdb.Error):
            connection.interrupt()
        with contextlib.suppress(duckdb.Error):
            connection.close()
