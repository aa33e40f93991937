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
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import TypeVar

from privsql.errors import Error, InternalError

T = TypeVar("T")
WAIT = 0.05  # seconds between looks at the signal


def cancelable(call: Callable[[], T], interrupt: Callable[[], None]) -> T:
    """Do a call; Ctrl-C ends it through ``interrupt``, and it raises whatever that makes of it."""
    ended: Future[T] = Future()
    with _watched() as asked:
        # A daemon: a statement that DuckDB does not let go must not keep the shell from leaving.
        threading.Thread(
            target=_run, args=(call, ended), name="privsql statement", daemon=True
        ).start()
        while not wait([ended], WAIT).done:
            if asked.is_set():
                interrupt()
    return ended.result()


def _run(call: Callable[[], T], ended: Future[T]) -> None:
    try:
        ended.set_result(call())
    except Error as problem:
        ended.set_exception(problem)
    except Exception as problem:
        # Its words may quote the data; its name does not.
        told = InternalError(
            f"privsql failed on the statement ({type(problem).__name__})",
            hint="the shell goes on; please report the statement",
        )
        ended.set_exception(told)


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
