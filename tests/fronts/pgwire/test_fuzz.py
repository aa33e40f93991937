"""Whatever bytes arrive, the server goes on: no crash, no hang, no growth, nobody else harmed.

Cases are numbered, and a number is its own seed.  WIRE_FUZZ=20000 runs as many of them.
"""

from __future__ import annotations

import os
import random
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from privsql.engines.workers import MOST_IDLE
from privsql.fronts.pgwire.scheduler import at_once
from tests.fronts.pgwire.alone import Alone, alone, message, reset, startup
from tests.fronts.pgwire.conftest import text
from tests.sizes import sized

CASES = int(os.environ.get("WIRE_FUZZ", sized("400", "20000")))
# What a run may add to a server that is warm: caches of texts are bounded, at 512 of each kind.
GROWTH = 60  # MB
HALF_OPEN = 40
SESSIONS = 4  # that a server opens at most, where it is told nothing else


def _bind(values: list[bytes], form: int = 0) -> bytes:
    body = b"\0\0" + struct.pack("!HhH", 1, form, len(values))
    for value in values:
        body += struct.pack("!i", len(value)) + value
    return message(b"B", body + struct.pack("!Hh", 1, form))


def _parse(sql: str, name: str = "", oid: int = 0) -> bytes:
    return message(b"P", text(name) + text(sql) + struct.pack("!HI", 1, oid))


DESCRIBE = message(b"D", b"P\0")
EXECUTE = message(b"E", b"\0" + struct.pack("!i", 0))
SYNC = message(b"S", b"")
COUNTED = "SELECT count(*) FROM patients WHERE cost > $1"
# Dialogues as drivers have them, one message an element.
REAL: list[list[bytes]] = [
    [message(b"Q", text("SELECT job, count(*) FROM patients GROUP BY job"))],
    [message(b"Q", text("SELECT 1; SELECT 'a', NULL, now(); SHOW all")), message(b"X", b"")],
    [_parse(COUNTED), _bind([b"33"]), DESCRIBE, EXECUTE, SYNC],
    [_parse(COUNTED, oid=23), _bind([struct.pack("!i", 5)], 1), DESCRIBE, EXECUTE, SYNC],
    [_parse(COUNTED, "s1"), message(b"D", b"Ss1\0"), SYNC, message(b"C", b"Ss1\0"), SYNC],
    [
        message(b"Q", text("BEGIN")),
        message(b"Q", text("DECLARE c CURSOR FOR SELECT * FROM generate_series(1, 50)")),
        message(b"Q", text("FETCH 7 FROM c")),
        message(b"Q", text("COPY (SELECT 1, 'x') TO STDOUT")),
        message(b"Q", text("ROLLBACK")),
    ],
    [message(b"Q", text("SELECT relname FROM pg_class c, pg_namespace n WHERE n.oid > 3"))],
    [
        message(b"d", b"1\t2\n"),
        message(b"c", b""),
        message(b"f", b"no\0"),
        message(b"H", b""),
        SYNC,
    ],
]


def _mutated(rng: random.Random, messages: list[bytes]) -> bytes:
    """A dialogue that was damaged: bytes, lengths, order, ends."""
    parts = list(messages)
    how = rng.choice(("flip", "length", "order", "cut", "splice", "repeat", "kind"))
    if how == "order":
        rng.shuffle(parts)
    elif how == "repeat":
        parts = [rng.choice(parts) for _ in range(rng.randint(1, 12))]
    elif how == "length":
        at = rng.randrange(len(parts))
        size = rng.choice((0, 1, 3, 4, 5, 100, 2**16, 16_000_001, 2**31 - 1, 2**31, 2**32 - 1))
        parts[at] = parts[at][:1] + struct.pack("!I", size) + parts[at][5:]
    elif how == "kind":
        at = rng.randrange(len(parts))
        parts[at] = bytes([rng.randrange(256)]) + parts[at][1:]
    data = bytearray(b"".join(parts))
    if how == "flip":
        for _ in range(rng.randint(1, 8)):
            data[rng.randrange(len(data))] = rng.randrange(256)
    elif how == "cut":
        del data[rng.randrange(len(data)) :]
    elif how == "splice":
        at = rng.randrange(len(data))
        data[at:at] = rng.randbytes(rng.randint(1, 40))
    return bytes(data)


def _case(rng: random.Random, port: int, held: list[socket.socket]) -> None:
    """One client who means no good, or does not know better."""
    made = socket.create_connection(("127.0.0.1", port), timeout=10)
    kind = rng.choice(("noise", "first", "mutated", "mutated", "mutated", "half", "slow", "cancel"))
    with suppress(OSError):
        if kind == "noise":
            made.sendall(rng.randbytes(rng.randint(1, 3000)))
        elif kind == "first":
            made.sendall(_mutated(rng, [startup(options=f"-c a{rng.random()}=1")]))
        elif kind == "cancel":
            key = struct.pack("!ii4s", 80877102, rng.randrange(1, 2000), rng.randbytes(4))
            made.sendall(struct.pack("!i", 16) + key)
        elif kind == "half":
            data = startup() + _mutated(rng, rng.choice(REAL))
            made.sendall(data[: rng.randrange(1, len(data))])
            held.append(made)
            if len(held) > HALF_OPEN:
                reset(held.pop(rng.randrange(len(held))))
            return
        else:
            data = startup() + _mutated(rng, rng.choice(REAL))
            if kind == "slow":
                for at in range(0, min(len(data), 60), 3):
                    made.sendall(data[at : at + 3])
                data = data[60:]
            made.sendall(data)
        _leave(rng, made)
    made.close()


def _leave(rng: random.Random, made: socket.socket) -> None:
    """Read a bit or nothing, and go politely or not."""
    made.settimeout(0.02)
    if rng.random() < 0.7:
        with suppress(TimeoutError):
            for _ in range(rng.randint(1, 4)):
                if not made.recv(4096):
                    break
    if rng.random() < 0.5:
        reset(made)


@pytest.fixture(scope="module")
def fuzzed(release: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alone]:
    with alone(release, tmp_path_factory.mktemp("fuzzed")) as made:
        yield made


def test_no_bytes_harm_the_server_or_anybody_else(fuzzed: Alone) -> None:
    witness = fuzzed.client()
    fuzzed.answers(witness)
    # A session has threads of DuckDB's, and damaged names are users: there are as many sessions
    # as there may be, a catalog, and a few threads that come and go with statements.
    fuzzed.answers(witness, "SELECT count(*) FROM pg_namespace WHERE nspname = 'public'", b"1")
    for number in range(SESSIONS + 1):
        fuzzed.answers(fuzzed.client(f"user {number}"))
    held: list[socket.socket] = []
    # Threads that run and read statements begin when they are needed, and stay: those of both
    # schedulers, and those that evaluate functions of rows for the accounts.
    staying = at_once(4) + at_once(2) + MOST_IDLE
    warm, threads = 0.0, fuzzed.status("Threads") + staying
    sockets, slowest = fuzzed.sockets, 0.0
    for number in range(CASES):
        _case(random.Random(number), fuzzed.port, held)
        if number == CASES // 2:
            warm = fuzzed.megabytes
        if number % 20 == 0:
            begun = time.monotonic()
            fuzzed.answers(witness)
            slowest = max(slowest, time.monotonic() - begun)
    for each in held:
        each.close()
    fuzzed.calm(sockets, threads)
    another = fuzzed.client()
    fuzzed.answers(another, "SELECT count(*) + 0 FROM patients")
    assert fuzzed.megabytes - warm < GROWTH
    assert slowest < 5
    fuzzed.uncomplaining()


def test_many_cancels_end_nobody_elses_statement(fuzzed: Alone) -> None:
    """Right numbers with wrong secrets, hundreds of them, while somebody asks."""
    witness = fuzzed.client()
    number = struct.unpack("!i", witness.key[:4])[0]
    many = "generate_series(1, 20000) a, generate_series(1, 5000) b"
    slow = f"SELECT count(*) FROM {many} WHERE (a + b) % 7 = 3"
    witness.send("Q", text(slow))
    rng = random.Random(1)
    for _ in range(300):
        with socket.create_connection(("127.0.0.1", fuzzed.port), timeout=10) as made:
            made.sendall(struct.pack("!iii4s", 16, 80877102, number, rng.randbytes(4)))
    assert [found.kind for found in witness.until("Z")] == ["T", "D", "C", "Z"]
    fuzzed.answers(witness)
