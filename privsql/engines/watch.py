"""The time limit of one whole statement, and its cancellation at any point.

    statement ── read and plan ── scan ── ... ── reconstruct
                 Python            DuckDB         DuckDB
                 breakable         interrupted    interrupted

DuckDB can be interrupted, and ``calls`` does so.  Python cannot, and a parser that is given
something odd may search for minutes.  So code that holds nothing, reading and planning, runs
``breakable``: when time is up another thread raises an exception in it, as Ctrl-C would.
What a database does on behalf of such code is ``shielded`` from that: there an exception
could strike between taking something and noting that it was taken.

The watch of a statement is found by those it concerns through ``current``: the databases are
called from many places, and none of them has to pass it on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from privsql.engines.breaks import Break, Broken
from privsql.engines.problems import CanceledError, TimedOutError
from privsql.engines.workers import take
from privsql.errors import Error, too_deep

T = TypeVar("T")

# Seconds between two strikes: a shield may have held one back.
PATIENCE = 0.05


class Watch:
    """How long a statement may still take, and whether somebody wants it to end."""

    def __init__(self, seconds: float | None = None) -> None:
        self._seconds = seconds
        self._until = None if seconds is None else time.monotonic() + seconds
        self._canceled = False
        self._lock = threading.Lock()
        self._wake: threading.Event | None = None  # of the breakable work under way
        self._break = Break()

    def remaining(self) -> float | None:
        """Seconds that are left, not below 0; None where there is no limit."""
        return None if self._until is None else max(0.0, self._until - time.monotonic())

    def problem(self) -> Error | None:
        """Why the statement must end, if it must."""
        if self._canceled:
            return CanceledError("the statement was canceled")
        if self.remaining() == 0:
            return self.late()
        return None

    def late(self) -> Error:
        """The error of a statement whose time is up."""
        return TimedOutError(
            f"the statement took longer than {self._seconds or 0:g} seconds",
            hint="ask for fewer groups or conditions, or raise the time limit",
        )

    def check(self) -> None:
        """Raise when the statement must end."""
        if (problem := self.problem()) is not None:
            raise problem

    def cancel(self) -> None:
        """End it, from another thread.  Databases that work for it are interrupted apart."""
        with self._lock:
            self._canceled = True
            if self._wake is not None:
                self._wake.set()

    def breakable(self, work: Callable[[], T]) -> T:
        """Do work in Python that may end anywhere; nesting deeper than Python's stack is told."""
        ended, wake, breaking = threading.Event(), threading.Event(), Break()
        with self._lock:
            self._wake, self._break = wake, breaking
        self.check()

        def guard() -> None:
            wake.wait(self.remaining())
            while not ended.wait(PATIENCE):
                breaking.strike()

        take("privsql watch").begin(guard)
        try:
            found = breaking.able(work)
        except Broken:
            raise self.problem() or self.late() from None
        except RecursionError:
            raise too_deep() from None
        finally:
            ended.set()
            wake.set()
        self.check()  # something on the way may have taken the error for another
        return found

    def shielded(self, work: Callable[[], T]) -> T:
        """Do work that must not be broken; it looks at the time by itself."""
        return self._break.shielded(work)


_CURRENT: ContextVar[Watch | None] = ContextVar("privsql statement", default=None)


def current() -> Watch | None:
    """The watch of the statement that this thread works for."""
    return _CURRENT.get()


@contextmanager
def watching(watch: Watch) -> Iterator[Watch]:
    """Make a watch the current one."""
    token = _CURRENT.set(watch)
    try:
        yield watch
    finally:
        _CURRENT.reset(token)
