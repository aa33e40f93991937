"""Statements on one database: each on a cursor and a thread of its own, and each can be ended.

    caller ── cursor ──> worker thread runs the statement
       └── waits for it, for an interruption, for the end of its time, for Ctrl-C;
           in the last three cases it interrupts the cursor until the worker has ended

The thread is what makes Ctrl-C work.  DuckDB looks for signals between its own tasks only,
and one task may take minutes; the caller, who merely waits, hears them at once.  DuckDB also
forgets an interruption that comes before a statement has begun, so it is repeated.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import duckdb

from privsql.engines.problems import CanceledError, TimedOutError, translated
from privsql.errors import Error, InterfaceError, ProgrammingError

T = TypeVar("T")
Cursor = duckdb.DuckDBPyConnection

# Seconds between two interruptions of a statement that has not ended yet.
PATIENCE = 0.02


class _Call(Generic[T]):
    """One statement under way."""

    def __init__(self, cursor: Cursor, work: Callable[[Cursor], T]) -> None:
        self.cursor, self.work = cursor, work
        self.woken = threading.Event()  # it has ended, or somebody wants it to
        self.ended = threading.Event()
        self.result: list[T] = []
        self.problem: Exception | None = None

    def run(self) -> None:
        try:
            self.result.append(self.work(self.cursor))
        except Exception as problem:
            self.problem = problem
        finally:
            self.ended.set()
            self.woken.set()

    def stop(self) -> None:
        """Interrupt until it has ended."""
        while not self.ended.is_set():
            self.cursor.interrupt()
            self.ended.wait(PATIENCE)


class Calls:
    """The statements of one connection; safe among threads.  Owns the connection."""

    def __init__(
        self,
        connection: Cursor,
        *,
        timeout: float | None = None,
        prepare: Sequence[str] = (),
    ) -> None:
        self._connection = connection
        self._timeout = timeout
        self._prepare = prepare
        self._lock = threading.Lock()
        self._open = True
        self._under_way: set[_Call[object]] = set()

    def run(self, work: Callable[[Cursor], T]) -> T:
        """Do ``work`` on a cursor of its own; what it raises comes out as our errors."""
        call = self._begin(work)
        worker = threading.Thread(target=call.run, name="privsql statement", daemon=True)
        try:
            worker.start()
            in_time = call.woken.wait(self._timeout)
            call.stop()
        except BaseException:  # Ctrl-C, at any point, or no thread to be had
            if worker.ident is not None:
                call.stop()
            raise
        finally:
            with self._lock:
                self._under_way.discard(call)
            if call.ended.is_set() or worker.ident is None:
                call.ended.set()
                call.cursor.close()
        # A statement that was done before the interruption reached it has an answer.
        if call.problem is None:
            return call.result[0]
        if isinstance(call.problem, duckdb.InterruptException):
            raise self._ended_early(in_time) from None
        raise translated(call.problem) from None

    def _begin(self, work: Callable[[Cursor], T]) -> _Call[T]:
        with self._lock:
            if not self._open:
                raise InterfaceError("the connection is closed", hint="open the release again")
            try:
                cursor = self._connection.cursor()
                # A cursor takes over the database, but not the search path.
                for statement in self._prepare:
                    cursor.execute(statement)
            except duckdb.Error as problem:
                raise translated(problem) from None
            call = _Call(cursor, work)
            self._under_way.add(call)  # type: ignore[arg-type]
        return call

    def _ended_early(self, in_time: bool) -> Error:
        if in_time:
            return CanceledError("the statement was canceled")
        return TimedOutError(
            f"the statement took longer than {self._timeout:g} seconds",
            hint="ask for fewer groups or conditions, or raise the time limit",
        )

    def interrupt(self) -> None:
        """End what is under way, with a ``CanceledError`` to whoever waits for it."""
        with self._lock:
            for call in self._under_way:
                call.woken.set()

    def close(self) -> None:
        """End what is under way and close the connection."""
        with self._lock:
            first, self._open = self._open, False
            under_way = list(self._under_way)
        for call in under_way:
            call.woken.set()
        for call in under_way:
            call.ended.wait()
        if first:
            self._connection.close()


def checked_timeout(timeout: float | None) -> float | None:
    """A time limit in seconds, or none."""
    if timeout is not None and not 0 < timeout <= threading.TIMEOUT_MAX:
        raise ProgrammingError("a time limit is a number of seconds above 0")
    return timeout
