"""Many at once: 500 who wait, 64 who ask, and those who vanish in the middle of an answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from privsql.errors import TooLargeError
from privsql.fronts.pgwire import cursors
from tests.fronts.pgwire.alone import Alone, alone, reset
from tests.fronts.pgwire.conftest import Client, Running, kinds, one, text

IDLE, BUSY, ROUNDS = 500, 64, 3
LONG = "SELECT i, repeat('x', 100) FROM generate_series(1, 60000) t(i)"


@pytest.fixture(scope="module")
def loaded(release: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alone]:
    with alone(release, tmp_path_factory.mktemp("loaded")) as made:
        yield made


def test_five_hundred_wait_while_sixty_four_ask(loaded: Alone) -> None:
    first = loaded.client()
    loaded.answers(first)
    sockets, before = loaded.sockets, loaded.megabytes
    waiting = [loaded.client() for _ in range(IDLE)]
    assert (loaded.megabytes - before) / IDLE < 0.2  # 200 kB each
    asking = [loaded.client() for _ in range(BUSY)]
    barrier = threading.Barrier(BUSY)

    def ask(number: int) -> list[bytes | None]:
        barrier.wait(30)
        cells = []
        for turn in range(ROUNDS):
            sql = f"SELECT count(*) + {number % 8 + turn} FROM patients WHERE cost >= 0"
            cells += one(asking[number].query(sql), "D").cells
        return cells

    with ThreadPoolExecutor(BUSY) as pool:
        found = list(pool.map(ask, range(BUSY)))
    expected = [
        [str(4000 + number % 8 + turn).encode() for turn in range(ROUNDS)] for number in range(BUSY)
    ]
    assert found == expected
    for client in waiting[::50]:
        loaded.answers(client)
    for client in (*waiting, *asking):
        client.close()
    loaded.calm(sockets, loaded.status("Threads"))
    loaded.uncomplaining()


def test_who_vanishes_in_the_middle_of_an_answer_leaves_nothing(loaded: Alone) -> None:
    def vanish(client: Client) -> None:
        client.send("Q", text(LONG))
        client.exactly(2000)
        reset(client.socket)

    witness = loaded.client()
    sockets = loaded.sockets
    sizes = []
    for _ in range(3):
        for client in [loaded.client() for _ in range(12)]:
            vanish(client)
        loaded.answers(witness)
        loaded.calm(sockets, loaded.status("Threads"))
        sizes.append(loaded.megabytes)
    threads = loaded.status("Threads")
    for client in [loaded.client() for _ in range(12)]:
        vanish(client)
    loaded.calm(sockets, threads)
    assert loaded.megabytes - sizes[1] < 60  # the allocator keeps what it once had
    loaded.uncomplaining()


@pytest.mark.parametrize("kind", ["statements", "cursors"])
def test_a_connection_keeps_no_more_than_it_may(running: Running, monkeypatch, kind: str) -> None:
    monkeypatch.setattr(cursors, "MOST_BYTES", 1_000_000)
    client = running.client()
    client.query("BEGIN")
    found = []
    for number in range(12):
        if kind == "statements":
            client.parse(f"SELECT '{'x' * 20_000}'", f"s{number}")
            found += client.sync()
        else:
            rows = "generate_series(1, 20000)"
            found += client.query(f"DECLARE c{number} CURSOR FOR SELECT * FROM {rows}")
        if found[-1].body == b"E":
            break
    assert one(found, "E").fields["C"] == TooLargeError.sqlstate
    assert 3 < kinds(found).count("Z") < 12
    client.query("ROLLBACK")
    client.query("DEALLOCATE ALL")
    assert one(client.query("SELECT 1"), "D").cells == [b"1"]
