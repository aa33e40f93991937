"""Reusable threads.

A statement of ours takes a dozen, and starting one costs three times what handing over does.

    worker = take()        an idle one, or a new one
    worker.begin(work)     runs it there; then the thread is idle again, unless it is retired
    worker.retire()        no more work for it: what it does now is its last, and it can be joined
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from queue import SimpleQueue

# Threads that wait for work; those above the number end.
MOST_IDLE = 8

_lock = threading.Lock()
_idle: list[Worker] = []


class Worker:
    """A thread that does one thing after another."""

    def __init__(self, name: str) -> None:
        self._given: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._retired = False
        self.begun = False  # whether it was given something since it was taken
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)

    def begin(self, work: Callable[[], None]) -> None:
        """Do ``work``, which raises nothing, in this thread."""
        if not self.thread.is_alive():
            self.thread.start()
        # Nothing comes between the two: Ctrl-C is looked for after a call.
        self.begun = True
        self._given.put(work)

    def retire(self) -> None:
        """End the thread as soon as it has nothing to do."""
        with _lock:
            self._retired = True
            if self in _idle:
                _idle.remove(self)
                self._given.put(None)

    def _run(self) -> None:
        while (work := self._given.get()) is not None:
            work()
            del work  # and with it a cursor, or the end of the program would find it in use
            with _lock:
                if self._retired or len(_idle) >= MOST_IDLE:
                    return
                self.begun = False
                _idle.append(self)


def take(name: str) -> Worker:
    """A thread that is idle, or a new one."""
    with _lock:
        if not _idle:
            return Worker(name)
        worker = _idle.pop()
    worker.thread.name = name
    return worker


def _forget() -> None:
    """A child of a fork has none of its parent's threads."""
    if _lock.locked():  # by a thread that is not here
        _lock.release()
    _idle.clear()


os.register_at_fork(after_in_child=_forget)
