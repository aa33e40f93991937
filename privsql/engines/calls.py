"""Statements on one database, each on its own cursor and thread, each cancelable.

    caller ── cursor ──> worker thread runs the statement
       └── waits for it, for an interruption, for the end of its time, for Ctrl-C;
           in the last three cases it interrupts the cursor until the worker has ended

Some of DuckDB's functions do not look for an interruption until a value is done, and one value
may be a gigabyte.  Then the caller does not wait: the statement is *left*, its worker goes on
to be interrupted, and when too many are left nothing new begins until one of them has ended.

A statement of ours may take several of these; what limits them together is the ``watch``.

The thread is what makes Ctrl-C work.  DuckDB looks for signals between its own tasks only,
and one task may take minutes; the caller, who merely waits, hears them at once.  DuckDB also
forgets an interruption that comes before a statement has begun, so it is repeated.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import duckdb

from privsql.engines.breaks import Break, Broken
from privsql.engines.problems import CanceledError, translated
from privsql.engines.watch import Watch, current
from privsql.engines.workers import Worker, take
from privsql.errors import (
    Error,
    InterfaceError,
    OperationalError,
    interruptible,
)

T = TypeVar("T")
Cursor = duckdb.DuckDBPyConnection

# Seconds between two interruptions of a statement that has not ended yet.
PATIENCE = 0.05

# Seconds that a caller waits for a statement that was interrupted, and how many may be left.
GRACE = 1.0
LEFT = 2

# Seconds that the end of the program waits for those.
FAREWELL = 20.0

# Seconds after which a function of ours, in Python, is broken off: it may have many rows to do.
BREAKING = 0.1


class _Call(Generic[T]):
    """One statement under way."""

    def __init__(self, cursor: Cursor, work: Callable[[Cursor], T]) -> None:
        self.cursor, self.work = cursor, work
        self.woken = threading.Event()  # it has ended, or somebody wants it to
        self.ended = threading.Event()
        self.result: list[T] = []
        self.problem: Exception | None = None
        self._break = Break()

    def run(self) -> None:
        try:
            self._break.able(self._work)
        except Broken:
            self.problem = duckdb.InterruptException("broken")
        finally:
            self.ended.set()
            self.woken.set()

    def _work(self) -> None:
        try:
            self.result.append(self.work(self.cursor))
        except Exception as problem:
            # A function of ours that was broken fails, and DuckDB has its own words for that.
            struck = self._break.struck and not isinstance(problem, Error)
            self.problem = duckdb.InterruptException("broken") if struck else problem

    def stop(self, seconds: float = math.inf) -> bool:
        """Interrupt until it has ended, or time is up; whether it has ended."""
        begun = time.monotonic()
        while not self.ended.is_set() and time.monotonic() < begun + seconds:
            self.cursor.interrupt()
            self.ended.wait(PATIENCE)
            if time.monotonic() > begun + BREAKING:
                self._break.strike()
        return self.ended.is_set()


# The threads of every statement that was left, in any database.
_STILL: set[threading.Thread] = set()


def left() -> int:
    """How many statements are still being ended."""
    return len(_STILL)


@atexit.register
def _wait_for_left() -> None:
    """Python ends threads at its own end, and DuckDB's C++ aborts the program when it is one."""
    until = time.monotonic() + FAREWELL
    still = list(_STILL)
    for thread in still:
        thread.join(max(0.0, until - time.monotonic()))
    if any(thread.is_alive() for thread in still):
        _hush()


def _hush() -> None:
    """Close stderr for good: DuckDB's binding lists there whatever it could not free.

    A statement that does not end keeps its cursor, and with it every type and function of the
    binding.  This is the end of the program, which has said what it had to say.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.flush()
    with contextlib.suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 2)
        os.close(nowhere)


class Calls:
    """The statements of one connection; safe among threads.  Owns the connection.

    ``ending`` takes the connection when all of them have ended; by default it is closed.
    """

    def __init__(
        self,
        connection: Cursor,
        *,
        prepare: Sequence[str] = (),
        ending: Callable[[Cursor], None] = Cursor.close,
    ) -> None:
        self._connection = connection
        self._prepare = prepare
        self._ending = ending
        self._lock = threading.Lock()
        self._open = True
        self._under_way: set[_Call[object]] = set()
        self._left: set[_Call[object]] = set()

    def run(self, work: Callable[[Cursor], T], *, tidying: bool = False) -> T:
        """Do ``work`` on a cursor of its own; what it raises comes out as our errors.

        ``tidying`` is short, and is done for statements whose time is up as well.
        """
        watch = current()
        if watch is None:
            return self._run(work, Watch())
        shared = Watch() if tidying else watch
        return watch.shielded(lambda: self._run(work, shared))

    def _run(self, work: Callable[[Cursor], T], watch: Watch) -> T:
        watch.check()
        call = self._begin(work)
        worker = take("privsql statement")
        try:
            worker.begin(call.run)
            # One that was canceled while the cursor was made was not yet there to be woken.
            in_time = watch.problem() is not None or call.woken.wait(watch.remaining())
            call.stop(GRACE)
        except BaseException:  # Ctrl-C, at any point, or no thread to be had
            if worker.begun:
                call.stop(GRACE)
            raise
        finally:
            if call.ended.is_set() or not worker.begun:
                self._finish(call)
            else:
                self._leave(call, worker)
        if not call.ended.is_set() or isinstance(call.problem, duckdb.InterruptException):
            canceled = CanceledError("the statement was canceled")
            raise watch.problem() or (canceled if in_time else watch.late()) from None
        # A statement that was done before the interruption reached it has an answer.
        if call.problem is None:
            return call.result[0]
        raise translated(call.problem) from None

    def _finish(self, call: _Call[T]) -> None:
        call.ended.set()
        with self._lock:
            self._under_way.discard(call)
            self._left.discard(call)
        call.cursor.close()

    def _leave(self, call: _Call[T], worker: Worker) -> None:
        """Nobody waits for it any more; somebody must still end it."""
        worker.retire()

        def end() -> None:
            call.stop()
            self._finish(call)
            worker.thread.join()
            _STILL.difference_update((worker.thread, ender))

        ender = threading.Thread(target=end, name="privsql left", daemon=True)
        _STILL.update((worker.thread, ender))
        with self._lock:
            self._left.add(call)  # type: ignore[arg-type]
        ender.start()

    def _begin(self, work: Callable[[Cursor], T]) -> _Call[T]:
        with self._lock:
            if not self._open:
                raise InterfaceError("the connection is closed", hint="open the release again")
            if len(self._left) >= LEFT:
                raise OperationalError(
                    "earlier statements that timed out are still being canceled",
                    hint="try again in a moment",
                )
            with interruptible():
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
        ended = [call.ended.wait(2 * GRACE) for call in under_way]
        # A connection that still works would wait for the end of it; the program's end does not.
        if first and all(ended):
            self._ending(self._connection)
