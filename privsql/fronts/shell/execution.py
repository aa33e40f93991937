"""A running statement and its cancellation by Ctrl-C.

DuckDB takes no notice of Ctrl-C while it runs one of our functions, and Python runs signal
handlers on the main thread only.  So the work is done on another thread, and the main one waits
for it and for the signal:

    main    ── start ── wait ──── Ctrl-C: interrupt, again and again ── wait ──> answer or error
    worker      └────── run ─────────────────────────────────────────────┘

Again and again, because an interruption before the statement has begun reaches nobody.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from privsql.errors import Error, InternalError

T = TypeVar("T")
WAIT = 0.05  # seconds between looks at the signal


class Work(Generic[T]):
    """A call that runs once, on its own thread."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._found: list[T] = []
        self._problem: Error | None = None
        self.ended = threading.Event()
        # A daemon: a statement that DuckDB does not let go must not keep the shell from leaving.
        threading.Thread(target=self._run, name="privsql statement", daemon=True).start()

    def _run(self) -> None:
        try:
            self._found.append(self._call())
        except Error as problem:
            self._problem = problem
        except Exception as problem:
            # Its words may quote the data; its name does not.
            self._problem = InternalError(
                f"privsql failed on the statement ({type(problem).__name__})",
                hint="the shell goes on; please report the statement",
            )
        finally:
            self.ended.set()

    def result(self) -> T:
        """What the call returned, once it has ended."""
        if self._problem is not None:
            raise self._problem
        return self._found[0]


def cancelable(call: Callable[[], T], interrupt: Callable[[], None]) -> T:
    """Do a call; Ctrl-C ends it through ``interrupt``, and it raises whatever that makes of it."""
    with _watched() as asked:
        work = Work(call)
        while not work.ended.wait(WAIT):
            if asked.is_set():
                interrupt()
    return work.result()


@contextmanager
def _watched() -> Iterator[threading.Event]:
    """Note Ctrl-C instead of raising: an exception could strike in the middle of anything."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    before = signal.signal(signal.SIGINT, lambda *_: asked.set())
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)
