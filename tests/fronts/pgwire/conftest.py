"""A real server in a thread, and a client that speaks bytes."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from privsql.fronts.pgwire.auth.login import Security
from privsql.fronts.pgwire.releases import House
from privsql.fronts.pgwire.server import Allowance, Server
from privsql.policy.history import History
from privsql.policy.journal import Journal
from privsql.policy.limits import Limits
from tests.policy.journals import read
from tests.sql.clinic import publish

SMALL = Limits(memory="400MB", threads=1, seconds=60)


@dataclass
class Running:
    """A server that listens."""

    port: int
    server: Server
    house: House
    loop: asyncio.AbstractEventLoop
    journal: Path | None = None

    def entries(self) -> list[Any]:
        assert self.journal is not None
        return list(read(self.journal))

    def refresh(self) -> list[str]:
        return self.house.refresh()

    def client(self, **settings: str) -> Client:
        made = Client(self.port)
        made.start(**{"user": "ann", "database": "privsql", **settings})
        return made

    def dsn(self, **more: str) -> str:
        given = {"host": "127.0.0.1", "port": str(self.port), "user": "ann", "dbname": "privsql"}
        return " ".join(f"{name}={value}" for name, value in {**given, **more}.items())


@contextmanager
def serving(
    paths: list[Path],
    folder: Path,
    *,
    security: Security | None = None,
    allowance: Allowance | None = None,
    limits: Limits = SMALL,
    **more: Any,
) -> Iterator[Running]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    journal = folder / "journal"
    history = History(folder / "history")
    house = House(paths, history=history, journal=Journal(journal), limits=limits, **more)
    allowance = allowance or Allowance(patience=2.0, workers=2, look=3600)
    server = Server(house, security or Security(), allowance)

    def run(work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(60)

    ((_, port),) = run(server.start("127.0.0.1", 0))
    try:
        yield Running(port, server, house, loop, journal)
    finally:
        run(server.stop())
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
        history.close()


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish(tmp_path_factory.mktemp("wire"), 0.5)


@pytest.fixture(scope="session")
def running(release: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with serving([release], tmp_path_factory.mktemp("served")) as made:
        yield made


@pytest.fixture
def client(running: Running) -> Iterator[Client]:
    made = running.client()
    yield made
    made.close()


OPEN: list[Client] = []


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    """Sockets of tests that fail are closed as well."""
    yield
    while OPEN:
        OPEN.pop().close()


# -- a client of bytes ---------------------------------------------------------------------


@dataclass
class Message:
    kind: str
    body: bytes

    @property
    def fields(self) -> dict[str, str]:
        """Of an error or a notice."""
        parts = self.body.rstrip(b"\0").split(b"\0")
        return {part[:1].decode(): part[1:].decode() for part in parts}

    @property
    def text(self) -> str:
        return self.body.rstrip(b"\0").decode()

    @property
    def cells(self) -> list[bytes | None]:
        """Of a DataRow."""
        (count,) = struct.unpack_from("!H", self.body)
        at, found = 2, []
        for _ in range(count):
            (size,) = struct.unpack_from("!i", self.body, at)
            at += 4
            found.append(None if size < 0 else self.body[at : at + size])
            at += max(0, size)
        assert at == len(self.body)
        return found

    @property
    def columns(self) -> list[tuple[str, int, int]]:
        """Of a RowDescription: name, OID, format."""
        (count,) = struct.unpack_from("!H", self.body)
        at, found = 2, []
        for _ in range(count):
            stop = self.body.index(b"\0", at)
            name = self.body[at:stop].decode()
            _, _, oid, _, _, form = struct.unpack_from("!ihIhih", self.body, stop + 1)
            found.append((name, oid, form))
            at = stop + 19
        return found


def text(value: str) -> bytes:
    return value.encode() + b"\0"


@dataclass
class Client:
    """PostgreSQL's protocol, one message at a time."""

    port: int
    socket: socket.socket = field(init=False)
    status: dict[str, str] = field(default_factory=dict)
    key: bytes = b""

    def __post_init__(self) -> None:
        self.socket = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        OPEN.append(self)

    def close(self) -> None:
        self.socket.close()

    def send(self, kind: str, body: bytes = b"") -> None:
        self.socket.sendall(kind.encode() + struct.pack("!i", len(body) + 4) + body)

    def first(self, code: int, body: bytes = b"") -> None:
        self.socket.sendall(struct.pack("!ii", len(body) + 8, code) + body)

    def exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = self.socket.recv(count - len(data))
            if not part:
                raise EOFError
            data += part
        return data

    def receive(self) -> Message:
        kind, size = struct.unpack("!ci", self.exactly(5))
        return Message(kind.decode(), self.exactly(size - 4))

    def until(self, *kinds: str) -> list[Message]:
        found = [self.receive()]
        while found[-1].kind not in kinds:
            found.append(self.receive())
        return found

    def start(self, **settings: str) -> list[Message]:
        body = b"".join(text(name) + text(value) for name, value in settings.items())
        self.first(3 << 16, body + b"\0")
        found = self.until("Z", "E")
        for message in found:
            if message.kind == "S":
                name, value, _ = message.body.split(b"\0")
                self.status[name.decode()] = value.decode()
            elif message.kind == "K":
                self.key = message.body
        return found

    def query(self, sql: str) -> list[Message]:
        self.send("Q", text(sql))
        return self.until("Z")

    # -- extended ------------------------------------------------------------------------

    def parse(self, sql: str, name: str = "", oids: tuple[int, ...] = ()) -> None:
        body = text(name) + text(sql) + struct.pack(f"!H{len(oids)}I", len(oids), *oids)
        self.send("P", body)

    def bind(
        self,
        values: tuple[bytes | None, ...] = (),
        *,
        portal: str = "",
        name: str = "",
        formats: tuple[int, ...] = (),
        results: tuple[int, ...] = (),
    ) -> None:
        body = text(portal) + text(name) + struct.pack(f"!H{len(formats)}h", len(formats), *formats)
        body += struct.pack("!H", len(values))
        for value in values:
            body += (
                struct.pack("!i", -1) if value is None else struct.pack("!i", len(value)) + value
            )
        self.send("B", body + struct.pack(f"!H{len(results)}h", len(results), *results))

    def describe(self, kind: str, name: str = "") -> None:
        self.send("D", kind.encode() + text(name))

    def execute(self, portal: str = "", most: int = 0) -> None:
        self.send("E", text(portal) + struct.pack("!i", most))

    def sync(self) -> list[Message]:
        self.send("S")
        return self.until("Z")


def kinds(messages: list[Message]) -> str:
    return "".join(message.kind for message in messages)


def one(messages: list[Message], kind: str) -> Message:
    (found,) = [message for message in messages if message.kind == kind]
    return found
