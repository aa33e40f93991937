"""The process from which children are forked: libraries loaded, one thread, no database.

A server has threads, and a fork of a process with threads may find locks held by threads
that it does not have.  So the first child that is needed starts another Python, which
imports what children use and then does nothing but fork.  It ends with the server.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from contextlib import suppress

from privsql.engines.processes.footprint import without_pandas
from privsql.errors import OperationalError

_REQUEST = struct.Struct("!Q")
_PID = struct.Struct("!I")

# One thread, so that forking is safe; memory that was freed goes back to the system.
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_TRIM_THRESHOLD_": "1000000",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "PYTHONUNBUFFERED": "1",
}

_lock = threading.Lock()
_running: list[tuple[subprocess.Popen[bytes], socket.socket]] = []
_modules = ["privsql.engines.processes.child", "privsql.engines.embedded", "privsql.engines.memory"]


def preload(module: str) -> None:
    """Have a module imported before children are forked, if none has been yet."""
    if module not in _modules:
        _modules.append(module)


def forked(files: list[int], limit: int) -> int:
    """The number of a new process that has these files and may have so many bytes more."""
    with _lock:
        for attempt in (1, 2):
            try:
                control = _started()
                socket.send_fds(control, [_REQUEST.pack(limit)], files)
                answer = control.recv(_PID.size)
                if len(answer) == _PID.size:
                    return int(_PID.unpack(answer)[0])
            except OSError:
                pass
            _stop()
            if attempt == 2:
                break
    raise OperationalError(
        "no process can be started for the statement", hint="try again in a moment"
    )


def _started() -> socket.socket:
    if not _running:
        ours, theirs = socket.socketpair()
        begin = "from privsql.engines.processes.zygote import main; main()"
        command = [sys.executable, "-c", begin, str(theirs.fileno()), *_modules]
        try:
            process = subprocess.Popen(  # noqa: S603 - ourselves
                command,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={**os.environ, **_ENVIRONMENT},
            )
        finally:
            theirs.close()
        _running.append((process, ours))
    return _running[0][1]


def _stop() -> None:
    """End it; children go on until their server closes them."""
    while _running:
        process, control = _running.pop()
        control.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(2.0)
        if process.returncode is None:
            process.kill()
            process.wait()


atexit.register(_stop)


def _forget() -> None:
    """A fork of the server has a copy of the socket and no business with it."""
    global _lock  # noqa: PLW0603 - it may be held by a thread that is not here
    _lock = threading.Lock()
    while _running:
        process, control = _running.pop()
        control.close()
        process.returncode = 0  # not ours to wait for


os.register_at_fork(after_in_child=_forget)


def _limited(limit: int) -> None:
    """Let this process have no more than so many bytes beyond what it has."""
    import resource

    try:
        with open("/proc/self/status") as file:
            now = next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmData"))
    except (OSError, StopIteration):
        return
    most = now + limit
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard == resource.RLIM_INFINITY or most < hard:
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def main() -> None:
    """Fork at each request until the server has gone: ``python -c ... FILE MODULE ...``."""
    control = socket.socket(fileno=int(sys.argv[1]))
    # The server ends us, by closing the sockets; a signal to the group is for the server alone.
    for ours in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ours, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    without_pandas()
    for module in sys.argv[2:]:
        importlib.import_module(module)
    from privsql.engines.processes import child

    gc.collect()
    gc.freeze()
    while True:
        data, files, _, _ = socket.recv_fds(control, _REQUEST.size, 2)
        if not data:
            os._exit(0)
        pid = os.fork()
        if pid == 0:
            control.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _limited(_REQUEST.unpack(data)[0])
            child.host(*files)
        for each in files:
            os.close(each)
        control.sendall(_PID.pack(pid))
