"""Threads shared out among users in turn.

    waiting   a queue of work for each user
    turn      the next thread takes from the queue of the next user

A user alone may have all workers.  Once others ask, each of them is entitled to an equal share,
also while all workers are taken: for that there are as many threads again in reserve.  So one
user's long statements, or hundreds of them, keep nobody else waiting.  What is left is waiting for
one's own statements, and for others who use their own shares.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from privsql.fronts.pgwire.errors import ShutdownError

T = TypeVar("T")
_Work = tuple["Future[Any]", Callable[..., Any], tuple[Any, ...]]


def at_once(workers: int) -> int:
    """The most statements that may run at a time: workers, and as many in reserve."""
    return 2 * workers


class Scheduler:
    """Runs work in ``workers`` threads, and within users' shares in as many more."""

    def __init__(self, workers: int, name: str) -> None:
        self._workers, self._name = workers, name
        self._turn = threading.Condition()
        self._waiting: OrderedDict[str, deque[_Work]] = OrderedDict()  # the first is next
        self._running: Counter[str] = Counter()
        self._threads: list[threading.Thread] = []
        self._free = 0  # threads that wait for work
        self._closed = False

    async def run(self, user: str, work: Callable[..., T], *given: Any) -> T:
        """Do work for a user in a thread, and wait for what it returns."""
        return await asyncio.wrap_future(self.submit(user, work, *given))

    def submit(self, user: str, work: Callable[..., T], *given: Any) -> Future[T]:
        """Put work at the end of a user's queue."""
        made: Future[T] = Future()
        with self._turn:
            if self._closed:
                raise ShutdownError("the server is shutting down")
            self._waiting.setdefault(user, deque()).append((made, work, given))
            waiting = sum(map(len, self._waiting.values()))
            if waiting > self._free and len(self._threads) < at_once(self._workers):
                name = f"{self._name} {len(self._threads)}"
                self._threads.append(threading.Thread(target=self._run, name=name, daemon=True))
                self._threads[-1].start()
            self._turn.notify_all()
        return made

    def _run(self) -> None:
        while True:
            with self._turn:
                self._free += 1
                while (found := self._next()) is None:
                    if self._closed:
                        self._free -= 1
                        return
                    self._turn.wait()
                self._free -= 1
            user, work = found
            _done(*work)
            del work  # and with it the answer
            with self._turn:
                self._running -= Counter([user])  # those at 0 are dropped
                self._turn.notify_all()

    def _next(self) -> tuple[str, _Work] | None:
        """Work of the next user in turn who may have a thread."""
        busy = self._running.total()
        share = -(-self._workers // max(1, len(self._running.keys() | self._waiting.keys())))
        for user in self._waiting:
            if busy >= self._workers and self._running[user] >= share:
                continue
            work = self._waiting[user].popleft()
            if self._waiting[user]:
                self._waiting.move_to_end(user)
            else:
                del self._waiting[user]
            self._running[user] += 1
            return user, work
        return None

    def close(self, *, wait: bool) -> None:
        """Take no more work, and none that waits; ``wait`` for what is under way."""
        with self._turn:
            self._closed = True
            for queue in self._waiting.values():
                for future, _, _ in queue:
                    future.cancel()
            self._waiting.clear()
            self._turn.notify_all()
        for thread in self._threads if wait else ():
            thread.join()


def _done(future: Future[Any], work: Callable[..., Any], given: tuple[Any, ...]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(work(*given))
    except BaseException as problem:
        future.set_exception(problem)
