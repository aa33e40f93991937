"""A child process that runs statements within a limit of memory.

    server ── Child ──> requests: (object, method, arguments, seconds) ──> result or error
                   ──> control: the number of a request that is to end

DuckDB's own limit counts what its operators keep.  It does not count values: a string that a
function makes, the lists and texts of aggregates, expressions that are evaluated while a statement
is bound, a result that becomes Arrow.  ``SELECT length(repeat('abcdefghij', 400000000))`` took 8 GB
with a limit of 200 MB.  A check of sizes before a statement runs cannot hold this: a sub-query that
doubles a text forty times names no size at all.  So a server lets statements run in
processes whose memory the system limits (RLIMIT_DATA).  There an allocation that goes too far
fails, DuckDB reports it, and if the process cannot go on it ends: the statement gets an
error and its session another process.  A process that does not end when it is told to is killed, so
nothing that was canceled goes on.

Processes are forked by the ``zygote``, which has the libraries in memory and no thread, so that
one takes milliseconds to make and shares its code with the others.  Where the system does not
enforce the limit (macOS), DuckDB's is what remains.
"""

from __future__ import annotations

import itertools
import os
import pickle
import shutil
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, NoReturn, TypeVar, cast

from privsql.engines import calls
from privsql.engines.problems import CanceledError, OutOfMemoryError, TimedOutError, translated
from privsql.engines.processes import zygote
from privsql.engines.processes.footprint import trim
from privsql.engines.watch import Watch, current, watching
from privsql.errors import Error, InterfaceError

# Seconds between two looks whether a statement should have ended, and how long a process gets then.
LOOK = 0.2
GRACE = 3.0

# Seconds after which a process that has nothing to do gives freed memory back.
IDLE = 2.0

# Bytes of a part of an answer that is sent by itself, without a copy.
LARGE = 1 << 16

# Bytes of address space of each thread, and threads that are there whatever a database takes.
STACK = 8 << 20
THREADS = 16

# Bytes for results on their way, and for what the allocators keep.
ROOM = 192 << 20

T = TypeVar("T")
_COUNT = struct.Struct("!I")


def _send(connection: Connection, value: object) -> None:
    """Send an object; large buffers follow it as they are."""
    aside: list[memoryview] = []

    def within(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < LARGE:
            return True
        aside.append(raw)
        return False

    head = pickle.dumps(value, protocol=5, buffer_callback=within)
    connection.send_bytes(_COUNT.pack(len(aside)) + head)
    for each in aside:
        connection.send_bytes(each)


def _received(connection: Connection) -> Any:
    head = connection.recv_bytes()
    (count,) = _COUNT.unpack_from(head)
    buffers = [connection.recv_bytes() for _ in range(count)]
    return pickle.loads(memoryview(head)[_COUNT.size :], buffers=buffers)  # noqa: S301


# -- in the server ---------------------------------------------------------------------------


class Child:
    """One process.  One request at a time; any thread may end it.

    ``memory`` is how many bytes it may have beyond what it begins with, ``threads`` how many its
    databases take.
    """

    def __init__(self, memory: int, threads: int = 1) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._objects = itertools.count(1)
        self._under_way = 0
        self._ended = 0  # the last request that somebody wants to end
        self._folders: list[str] = []
        self.broken = False
        pairs = [socket.socketpair(), socket.socketpair()]
        try:
            limit = memory + ROOM + STACK * (THREADS + threads)
            self._pid = zygote.forked([theirs.fileno() for _, theirs in pairs], limit)
        except BaseException:
            for ours, _ in pairs:
                ours.close()
            raise
        finally:
            for _, theirs in pairs:
                theirs.close()
        self._requests, self._control = (Connection(ours.detach()) for ours, _ in pairs)

    def make(self, kind: Callable[..., Any], *given: Any, **named: Any) -> Remote:
        """An object in the process; what makes it is known there by its name."""
        number = next(self._objects)
        found = self.ask(0, "", (number, kind, *given), named)
        if isinstance(found, str):
            self._folders.append(found)
        return Remote(self, number)

    def run(self, work: Callable[..., T], *given: Any) -> T:
        """What a function returns there."""
        return cast(T, self.ask(0, "run", (work, *given)))

    def ask(
        self,
        number: int,
        method: str,
        given: tuple[Any, ...] = (),
        named: dict[str, Any] | None = None,
        *,
        tidying: bool = False,
    ) -> Any:
        """What a method of an object returns; ``tidying`` is done even when time is up."""
        watch, request = current(), (number, method, given, named or {})
        if watch is None:
            return self._ask(request, Watch())
        shared = Watch() if tidying else watch
        return watch.shielded(lambda: self._ask(request, shared))

    def _ask(self, request: tuple[Any, ...], watch: Watch) -> Any:
        watch.check()
        with self._lock:
            if self.broken:
                raise InterfaceError("the connection is closed", hint="ask again")
            self._under_way = next(self._numbers)
            try:
                _send(self._requests, (self._under_way, *request, watch.remaining()))
                good, found, spoilt = self._reply(watch)
            except (EOFError, OSError):
                self._kill()
                raise watch.problem() or ended() from None
            if spoilt:
                self._kill()
        if good:
            return found
        if isinstance(found, CanceledError | TimedOutError):
            raise watch.problem() or found from None
        raise found

    def _reply(self, watch: Watch) -> tuple[bool, Any, bool]:
        until: float | None = None
        while not self._requests.poll(LOOK):
            if self._ended != self._under_way and watch.problem() is None:
                continue
            self.interrupt()
            until = until or time.monotonic() + GRACE
            if time.monotonic() > until:
                self._kill()
                raise watch.problem() or CanceledError("the statement was canceled")
        good, found, spoilt = _received(self._requests)
        return good, found, spoilt

    def interrupt(self) -> None:
        """End the request under way, if there is one."""
        self._ended = self._under_way
        with suppress(OSError, ValueError):
            self._control.send_bytes(_COUNT.pack(self._ended))

    def close(self) -> None:
        """End the process and what it spilled to disk."""
        self.interrupt()
        if self._lock.acquire(timeout=GRACE):
            self._lock.release()
        self._kill()

    def _kill(self) -> None:
        if self.broken:
            return
        self.broken = True
        self._requests.close()
        self._control.close()
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        for each in self._folders:
            shutil.rmtree(each, ignore_errors=True)


class Remote:
    """An object in a child."""

    def __init__(self, child: Child, number: int) -> None:
        self._child, self._number = child, number

    def call(self, method: str, *given: Any, tidying: bool = False, **named: Any) -> Any:
        """Call a method of it."""
        return self._child.ask(self._number, method, given, named, tidying=tidying)

    @property
    def gone(self) -> bool:
        """Whether its process has ended."""
        return self._child.broken

    def interrupt(self) -> None:
        """End what is under way in its process."""
        self._child.interrupt()

    def close(self) -> None:
        """Forget it."""
        if not self.gone:
            with suppress(Error):
                self._child.ask(0, "close", (self._number,), tidying=True)


def ended() -> OutOfMemoryError:
    """The error of a statement whose process has ended."""
    return OutOfMemoryError(
        "the process that ran the statement has ended: it needs more memory than it may use",
        hint="ask for fewer or shorter values, or raise the memory limit",
    )


# -- in the child ----------------------------------------------------------------------------


class _Host:
    """The objects of a child, and the request that it works on."""

    def __init__(self, requests: Connection, control: Connection) -> None:
        self._requests, self._control = requests, control
        self._objects: dict[int, Any] = {}
        self._folders: list[str] = []
        self._lock = threading.Lock()
        self._number, self._canceled = 0, 0
        self._watch = Watch()

    def serve(self) -> NoReturn:
        threading.Thread(target=self._listen, daemon=True).start()
        while True:
            try:
                if not self._requests.poll(IDLE):
                    trim()
                request = _received(self._requests)
            except (EOFError, OSError):
                self._leave()
            self._answer(*request)

    def _answer(
        self,
        number: int,
        target: int,
        method: str,
        given: tuple[Any, ...],
        named: dict[str, Any],
        seconds: float | None,
    ) -> None:
        watch = Watch(seconds)
        with self._lock:
            self._number, self._watch = number, watch
            if self._canceled >= number:
                watch.cancel()
        try:
            with watching(watch):
                found = self._done(target, method, given, named)
            _send(self._requests, (True, found, bool(calls.left())))
        except Exception as problem:
            told = translated(problem)
            # Memory that was asked for and is not to be had may be missing anywhere.
            spoilt = bool(calls.left()) or isinstance(told, OutOfMemoryError)
            _send(self._requests, (False, told, spoilt))

    def _done(self, target: int, method: str, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if target:
            return getattr(self._objects[target], method)(*given, **named)
        if method == "run":
            work, *rest = given
            return work(*rest)
        if method == "close":
            self._objects.pop(given[0]).close()
            return None
        number, kind, *rest = given
        self._objects[number] = made = kind(*rest, **named)
        folder = getattr(made, "spilling", None)
        if folder is not None:
            self._folders.append(folder)
        return folder

    def _listen(self) -> None:
        """Hear which request is to end; when the server has gone, so does this process."""
        while True:
            try:
                (number,) = _COUNT.unpack(self._control.recv_bytes())
            except (EOFError, OSError):
                self._leave()
            with self._lock:
                self._canceled = max(self._canceled, number)
                if self._number > number:
                    continue
                self._watch.cancel()
            for each in list(self._objects.values()):
                each.interrupt()

    def _leave(self) -> NoReturn:
        for each in self._folders:
            shutil.rmtree(each, ignore_errors=True)
        os._exit(0)


def host(requests: int, control: int) -> NoReturn:
    """Answer requests until the other side has gone."""
    _Host(Connection(requests), Connection(control)).serve()
