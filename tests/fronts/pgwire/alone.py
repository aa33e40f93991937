"""A server in a process of its own, whose memory, threads and complaints can be seen."""

from __future__ import annotations

import re
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.fronts.pgwire.conftest import Client, one, text

COUNT = "SELECT count(*) FROM patients"
ROWS = b"4000"


@dataclass
class Alone:
    """A process that serves."""

    port: int
    pid: int
    said: Path  # its standard error

    def status(self, name: str) -> int:
        """A number of /proc/pid/status: VmRSS in kB, Threads."""
        found = re.search(rf"{name}:\s+(\d+)", Path(f"/proc/{self.pid}/status").read_text())
        assert found is not None
        return int(found[1])

    @property
    def megabytes(self) -> float:
        return self.status("VmRSS") / 1024

    @property
    def sockets(self) -> int:
        """Those of clients and the one that listens, without those to its own children."""
        tables = (Path(f"/proc/{self.pid}/net/{name}").read_text() for name in ("tcp", "tcp6"))
        lines = [line.split() for table in tables for line in table.splitlines()[1:]]
        network = {f"socket:[{words[9]}]" for words in lines}
        links = Path(f"/proc/{self.pid}/fd").iterdir()
        return sum(_target(link) in network for link in links)

    def client(self, user: str = "ann") -> Client:
        made = Client(self.port)
        made.socket.settimeout(30)
        made.start(user=user, database="privsql")
        return made

    def answers(self, client: Client, sql: str = COUNT, cell: bytes = ROWS) -> None:
        """Somebody else's connection works."""
        assert one(client.query(sql), "D").cells == [cell]

    def calm(self, sockets: int, threads: int, seconds: float = 30) -> None:
        """Connections that ended are gone, and their threads too."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self.sockets <= sockets and self.status("Threads") <= threads:
                return
            time.sleep(0.1)
        raise AssertionError(
            f"{self.sockets} sockets ({sockets}), {self.status('Threads')} threads ({threads})"
        )

    def uncomplaining(self) -> None:
        """Nothing went wrong that was not meant to."""
        said = self.said.read_text()
        assert "failed with a" not in said, said[-3000:]
        assert "Traceback" not in said, said[-3000:]


def _target(link: Path) -> str:
    with suppress(OSError):
        return str(link.readlink())
    return ""


@contextmanager
def alone(release: Path, folder: Path) -> Iterator[Alone]:
    """Serve a release until this ends."""
    said = folder / "said"
    with said.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.fronts.pgwire.clients.serving", str(release)],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=Path(__file__).parents[3],
        )
        assert process.stdout is not None
        try:
            port = int(process.stdout.readline())
            yield Alone(port, process.pid, said)
            assert process.poll() is None, said.read_text()[-3000:]
        finally:
            process.terminate()
            process.wait(30)
            process.stdout.close()


def reset(made: socket.socket) -> None:
    """Close so that the other side sees an error, not an end."""
    with suppress(OSError):
        made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    made.close()


def message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


def startup(**settings: str) -> bytes:
    given = {"user": "ann", "database": "privsql", **settings}
    body = b"".join(text(name) + text(value) for name, value in given.items()) + b"\0"
    return struct.pack("!ii", len(body) + 8, 3 << 16) + body
