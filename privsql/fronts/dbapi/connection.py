"""DB-API 2.0 (PEP 249) connections and cursors over a session.

The package ``privsql`` is the module that PEP 249 speaks of; it takes its names from here.
A release is read-only, which settles what the standard leaves open:

- ``commit`` and ``rollback`` have nothing to do and succeed, because pools call them;
- ``callproc`` and ``nextset`` do not exist, as for databases without procedures;
- closing twice is no error, and everything else after closing is an ``InterfaceError``;
- ``executemany`` refuses statements that return rows: their answers would be lost.

Threads may share a connection: statements run one after the other (``threadsafety`` 2).
``interrupt`` is the one call that does not wait for its turn.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from privsql import errors
from privsql.answer.columns import arrays, columns
from privsql.answer.kinds import Description, describe
from privsql.answer.outcome import Notice, Outcome, ResultColumn
from privsql.answer.result import Answer
from privsql.answer.values import rows
from privsql.errors import InterfaceError, ProgrammingError

if TYPE_CHECKING:
    from privsql.session.session import Session

Parameters = Sequence[Any] | Mapping[str, Any]


def connect(
    path: str | PathLike[str], *, tables: Mapping[str, Any] | None = None, **settings: Any
) -> Connection:
    """Open a release for queries.

    ``tables`` are public tables of the analyst's own to join with, by name, beside those that the
    release brings: each an Arrow table, a data frame, or the path of a CSV, Parquet or JSON file.
    ``settings`` are those of ``SET privsql.*``, for the whole connection.
    """
    # Here and not above: a server or a test that brings its own session needs no engine.
    from privsql.session.session import Session

    if tables is not None:
        from privsql.release.tables import read_files

        tables = read_files(tables)
    return Connection(Session(Path(path), tables=tables, **settings))


class Connection:
    """A release that is open for queries (PEP 249)."""

    Warning = errors.Warning
    Error = errors.Error
    InterfaceError = errors.InterfaceError
    DatabaseError = errors.DatabaseError
    DataError = errors.DataError
    OperationalError = errors.OperationalError
    IntegrityError = errors.IntegrityError
    InternalError = errors.InternalError
    ProgrammingError = errors.ProgrammingError
    NotSupportedError = errors.NotSupportedError

    def __init__(self, session: Session) -> None:
        self._session = session
        self._turn = threading.RLock()
        self._closed = False

    def cursor(self) -> Cursor:
        """A cursor of its own: its result is not disturbed by other cursors."""
        self._open()
        return Cursor(self)

    def execute(self, sql: str, parameters: Parameters | None = None) -> Cursor:
        """Run a statement on a new cursor."""
        return self.cursor().execute(sql, parameters)

    def sql(self, sql: str, parameters: Parameters | None = None, **options: object) -> Answer:
        """Answer a statement with an object that prints itself with its error bars.

        ``options`` are settings for this statement only: ``estimator``,
        ``confidence_level``, ``error_bars``, ``simultaneous``.
        """
        outcome = self._run(sql, parameters, options)
        return Answer(
            outcome,
            lambda verbose: self.explain(sql, parameters, verbose=verbose, **options),
        )

    def explain(
        self,
        sql: str,
        parameters: Parameters | None = None,
        *,
        verbose: bool = False,
        **options: object,
    ) -> str:
        """How a statement would be answered, and how wide its intervals will be.

        About ten lines; ``verbose`` adds cells, channels, and the SQL of scan and reconstruction.
        """
        with self._turn:
            return self._open().explain(sql, _bound(parameters), verbose=verbose, **options)

    def expand(self, sql: str, parameters: Parameters | None = None) -> list[Any]:
        """The 2^k predicate-complement queries of a conjunctive count, spelled out."""
        with self._turn:
            return self._open().expand(sql, _bound(parameters))

    def interrupt(self) -> None:
        """Stop the statement that another thread runs on this connection."""
        self._open().interrupt()

    def commit(self) -> None:
        """Do nothing: a release does not change."""
        self._open()

    def rollback(self) -> None:
        """Do nothing: a release does not change."""
        self._open()

    def close(self) -> None:
        """Close the release; running statements are interrupted."""
        if self._closed:
            return
        self._closed = True
        if not self._turn.acquire(blocking=False):
            self._session.interrupt()
            self._turn.acquire()
        try:
            self._session.close()
        finally:
            self._turn.release()

    def __enter__(self) -> Self:
        """Use the connection as a context: it is closed at the end."""
        self._open()
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def _open(self) -> Session:
        if self._closed:
            raise InterfaceError(
                "the connection is closed", hint="open another with privsql.connect(path)"
            )
        return self._session

    def _run(
        self, sql: str, parameters: Parameters | None, options: Mapping[str, object]
    ) -> Outcome:
        """Run one statement, or several without parameters; the last one answers."""
        bound = _bound(parameters)
        with self._turn:
            session = self._open()
            parts = session.statements(sql) if ";" in (sql or "") else [sql]
            if not parts:
                raise ProgrammingError("there is no statement in this text")
            if len(parts) > 1 and bound:
                raise ProgrammingError(
                    f"parameters were given for {len(parts)} statements at once",
                    hint="run one statement at a time, each with its own parameters",
                )
            notices: tuple[Notice, ...] = ()
            for part in parts[:-1]:
                notices += session.run(part, None, **options).notices
                self._open()  # another thread may have closed it meanwhile
            outcome = session.run(parts[-1], bound, **options)
            return replace(outcome, notices=notices + outcome.notices) if notices else outcome


class Cursor:
    """Runs statements and holds the rows of the last one (PEP 249)."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.arraysize = 1
        self._closed = False
        self._forget()

    def _forget(self) -> None:
        self._columns: tuple[ResultColumn, ...] | None = None
        self._rows: list[tuple[Any, ...]] | None = None
        self._next = 0
        self.notices: tuple[Notice, ...] = ()

    # -- ask -------------------------------------------------------------------------

    def execute(self, operation: str, parameters: Parameters | None = None) -> Self:
        """Run a statement; parameters are bound, never pasted.

        A sequence fills ``?`` and ``$1``, a mapping fills ``:name`` and ``$name``.
        """
        self._open()
        self._forget()
        outcome = self.connection._run(operation, parameters, {})
        self.notices = outcome.notices
        if outcome.kind != "set":
            self._columns = columns(outcome)
            self._rows = rows(self._columns, arrays(outcome))
        return self

    def executemany(self, operation: str, seq_of_parameters: Iterable[Parameters]) -> Self:
        """Run a statement that returns no rows once for each set of parameters."""
        self._open()
        self._forget()
        notices: tuple[Notice, ...] = ()
        for parameters in seq_of_parameters:
            self.execute(operation, parameters)
            if self._rows is not None:
                self._forget()
                raise ProgrammingError(
                    "executemany was given a statement that returns rows; they would be lost",
                    hint="call execute for each set of parameters and fetch in between",
                )
            notices += self.notices
        self.notices = notices
        return self

    # -- read ------------------------------------------------------------------------

    @property
    def description(self) -> list[Description] | None:
        """Seven fields per column; None when the last statement returned no rows."""
        return None if self._columns is None else [describe(column) for column in self._columns]

    @property
    def rowcount(self) -> int:
        """Rows of the last result, fetched or not; -1 when there is none."""
        return -1 if self._rows is None else len(self._rows)

    @property
    def rownumber(self) -> int | None:
        """Index of the next row that is fetched; None when there is no result."""
        return None if self._rows is None else self._next

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row, or None after the last."""
        found = self._take(1)
        return found[0] if found else None

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        """The next ``size`` rows, by default ``arraysize``."""
        return self._take(self.arraysize if size is None else size)

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows that were not fetched yet."""
        return self._take(None)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Iterate over the rows that were not fetched yet."""
        return self

    def __next__(self) -> tuple[Any, ...]:
        """The next row."""
        found = self.fetchone()
        if found is None:
            raise StopIteration
        return found

    # -- the rest --------------------------------------------------------------------

    def setinputsizes(self, sizes: Sequence[Any]) -> None:
        """Do nothing, as PEP 249 allows: values are bound as they are."""
        self._open()

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """Do nothing, as PEP 249 allows: values are never cut."""
        self._open()

    def close(self) -> None:
        """Forget the rows."""
        self._forget()
        self._closed = True

    def __enter__(self) -> Self:
        """Use the cursor as a context: it is closed at the end."""
        self._open()
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def _open(self) -> None:
        self.connection._open()
        if self._closed:
            raise InterfaceError("the cursor is closed", hint="make another with con.cursor()")

    def _take(self, size: int | None) -> list[tuple[Any, ...]]:
        self._open()
        if self._rows is None:
            raise ProgrammingError(
                "there are no rows to fetch: no statement ran, or the last one returns none",
                hint="execute a SELECT first",
            )
        if size is not None and size < 0:
            raise ProgrammingError(f"{size} rows cannot be fetched", hint="ask for 0 or more")
        stop = len(self._rows) if size is None else min(len(self._rows), self._next + size)
        found = self._rows[self._next : stop]
        self._next = stop
        return found


def _bound(parameters: Any) -> Parameters | None:
    """Refuse what looks like parameters and is not: ``execute(sql, "x")`` would bind letters."""
    if parameters is None or isinstance(parameters, Mapping):
        return parameters
    if isinstance(parameters, Sequence) and not isinstance(parameters, str | bytes | bytearray):
        return parameters
    raise ProgrammingError(
        f"parameters must be a sequence or a mapping, not {type(parameters).__name__}",
        hint="write (value,) to bind a single value",
    )
