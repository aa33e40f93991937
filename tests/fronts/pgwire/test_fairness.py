"""Threads shared out per user, connections that have not logged in, and wrong passwords."""

from __future__ import annotations

import asyncio
import resource
import select
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from privsql.fronts.pgwire.auth.login import Security
from privsql.fronts.pgwire.auth.throttle import FORGOTTEN, LONGEST, Throttle
from privsql.fronts.pgwire.auth.users import Users
from privsql.fronts.pgwire.catalog.pool import RESTED, SOON
from privsql.fronts.pgwire.errors import PasswordError, ShutdownError
from privsql.fronts.pgwire.scheduler import Scheduler, at_once
from privsql.fronts.pgwire.server import Allowance
from tests.fronts.pgwire.alone import Alone, alone
from tests.fronts.pgwire.conftest import Client, Running, one, serving, text
from tests.sizes import sized

WAIT = 60  # seconds after which a test gives up


# -- threads -----------------------------------------------------------------------------------


class Held:
    """Work that goes on until it is let go."""

    def __init__(self) -> None:
        self.begun, self.over = threading.Semaphore(0), threading.Event()

    def work(self) -> None:
        self.begun.release()
        assert self.over.wait(WAIT)


@pytest.fixture
def shared() -> Iterator[Scheduler]:
    made = Scheduler(4, "test")
    yield made
    made.close(wait=True)


def test_one_user_alone_has_all_workers_and_no_more(shared: Scheduler):
    held = Held()
    futures = [shared.submit("ann", held.work) for _ in range(10)]
    for _ in range(4):
        assert held.begun.acquire(timeout=WAIT)
    assert not held.begun.acquire(timeout=0.2)
    held.over.set()
    for each in futures:
        each.result(WAIT)


def test_work_of_others_begins_while_one_user_holds_all_workers(shared: Scheduler):
    """Each has a share, also of the workers that are taken."""
    held, others = Held(), Held()
    mine = [shared.submit("ann", held.work) for _ in range(50)]
    for _ in range(4):
        assert held.begun.acquire(timeout=WAIT)
    theirs = [shared.submit("bob", others.work) for _ in range(3)]
    for _ in range(2):  # half of four workers
        assert others.begun.acquire(timeout=WAIT)
    assert shared.submit("carl", lambda: "told").result(WAIT) == "told"
    assert not any(each.done() for each in (*mine, *theirs))
    others.over.set()
    held.over.set()
    for each in (*mine, *theirs):
        each.result(WAIT)


def test_users_take_turns():
    shared, order = Scheduler(1, "test"), []
    shared._threads = [threading.Thread(), threading.Thread()]  # all that there may be
    for user, many in (("ann", 4), ("bob", 2)):
        for _ in range(many):
            shared.submit(user, print)
    while (found := shared._next()) is not None:
        order.append(found[0])
        shared._running.clear()  # it is done
    assert order == ["ann", "bob", "ann", "bob", "ann", "ann"]
    shared.close(wait=False)


def test_no_more_threads_than_were_promised(shared: Scheduler):
    held = Held()
    futures = [shared.submit(f"user {i}", held.work) for i in range(30)]
    for _ in range(at_once(4)):
        assert held.begun.acquire(timeout=WAIT)
    assert len(shared._threads) == at_once(4)
    held.over.set()
    for each in futures:
        each.result(WAIT)
    assert not shared._running
    assert not shared._waiting


def test_what_goes_wrong_is_told_and_what_was_given_up_is_not_done(shared: Scheduler):
    with pytest.raises(ZeroDivisionError):
        shared.submit("ann", lambda: 1 / 0).result(WAIT)
    held, done = Held(), []
    futures = [shared.submit("ann", held.work) for _ in range(4)]
    for _ in range(4):
        assert held.begun.acquire(timeout=WAIT)
    given_up = shared.submit("ann", done.append, 1)
    assert given_up.cancel()
    held.over.set()
    for each in futures:
        each.result(WAIT)
    assert shared.submit("ann", lambda: 2).result(WAIT) == 2
    assert done == []


def test_a_scheduler_that_is_closed_takes_nothing():
    shared = Scheduler(2, "test")
    held = Held()
    under_way = [shared.submit("ann", held.work) for _ in range(2)]
    for _ in range(2):
        assert held.begun.acquire(timeout=WAIT)
    waiting = shared.submit("ann", lambda: 1)
    shared.close(wait=False)
    assert waiting.cancelled()
    with pytest.raises(ShutdownError):
        shared.submit("bob", lambda: 1)
    held.over.set()
    for each in under_way:
        each.result(WAIT)


def silent(client: Client) -> bool:
    """Whether nothing has come for a client."""
    poll = select.poll()  # select() takes no number above 1,023
    poll.register(client.socket, select.POLLIN)
    return not poll.poll(0)


@pytest.mark.parametrize("workers", [1, 2])
def test_sleepers_of_one_user_hold_nobody_else(release: Path, tmp_path: Path, workers: int):
    allowance = Allowance(patience=0.2, workers=workers, look=3600)
    with serving([release], tmp_path, allowance=allowance, sessions=at_once(workers)) as running:
        sleepers = [running.client(user="ann") for _ in range(3 * workers + 1)]
        for each in sleepers:
            each.send("Q", text("SELECT pg_sleep(600)"))
        bob = running.client(user="bob")
        for i in range(3):
            sql = f"SELECT count(*) + {i} FROM patients"
            assert one(bob.query(sql), "D").cells == [str(4000 + i).encode()]
        assert one(bob.query("SELECT 7"), "D").cells == [b"7"]
        assert one(bob.query("SELECT count(*) FROM pg_namespace"), "D").cells != [b"0"]
        assert all(map(silent, sleepers))


def test_a_catalog_is_ready_while_sleepers_hold_the_others(release: Path, tmp_path: Path):
    """It takes half a second to make, and longer on a busy machine."""
    with serving([release], tmp_path, allowance=Allowance(patience=0.2, look=3600)) as running:
        lookups, bob = running.server._desk._lookups, running.client(user="bob")
        bob.query("SELECT 1")
        sleepers = [running.client(user="ann") for _ in range(6)]
        for each in sleepers:
            each.send("Q", text("SELECT pg_sleep(600)"))
        for _ in range(2):  # also after somebody took it
            until = time.monotonic() + WAIT
            while not (lookups._idle and len(lookups._held) >= 4) and time.monotonic() < until:
                time.sleep(0.05)
            assert lookups._idle
            with lookups.lease(*lookups._wanted):
                assert len(lookups._held) == 5
                time.sleep(2 * SOON)
        assert all(map(silent, sleepers))


def test_of_catalogs_that_nobody_uses_one_stays(release: Path, tmp_path: Path):
    with serving([release], tmp_path) as running:
        lookups = running.server._desk._lookups
        running.client().query("SELECT 1")
        with lookups.lease(*lookups._wanted), lookups.lease(*lookups._wanted):
            pass
        lookups.tidy()
        assert len(lookups._idle) == 2
        lookups._used -= RESTED + 1
        lookups.tidy()
        assert len(lookups._idle) == 1


def test_long_texts_of_one_user_keep_nobody_from_being_read(running: Running):
    """Reading is shared out as answering is."""
    desk, held = running.server._desk, Held()
    futures = [desk.reading.submit("ann", held.work) for _ in range(9)]
    for _ in range(2):
        assert held.begun.acquire(timeout=WAIT)
    bob = running.client(user="bob")
    assert one(bob.query("SELECT 12345 AS fresh"), "D").cells == [b"12345"]
    held.over.set()
    for each in futures:
        each.result(WAIT)


# -- connections that have not logged in ---------------------------------------------------------


@pytest.fixture(scope="module")
def crowded(release: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alone]:
    with alone(release, tmp_path_factory.mktemp("crowded")) as made:
        yield made


def test_a_thousand_silent_sockets_lock_nobody_out(crowded: Alone):
    count = sized(300, 1000)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4 * count)), hard))
    witness = crowded.client(user="witness")
    strangers = []
    try:
        for i in range(count):
            strangers.append(Client(crowded.port))
            if i % 100 == 99:
                crowded.answers(crowded.client(user=f"user {i}"))
        crowded.answers(crowded.client(user="last"))
        crowded.answers(witness)
        # Most were ended; who is there is not more than may be.
        assert sum(map(silent, strangers)) <= Allowance().strangers
    finally:
        for each in strangers:
            each.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    crowded.uncomplaining()


def test_who_has_logged_in_is_not_ended_for_a_stranger(release: Path, tmp_path: Path):
    allowance = Allowance(patience=1, workers=1, look=3600, connections=3, strangers=2)
    with serving([release], tmp_path, allowance=allowance) as running:
        known = [running.client(user=name) for name in ("ann", "bob", "carl")]
        strangers = [Client(running.port) for _ in range(5)]
        late = Client(running.port)
        (told,) = [m for m in late.start(user="dora", database="privsql") if m.kind == "E"]
        assert told.fields["C"] == "53300"
        for each in known:
            assert one(each.query("SELECT 1"), "D").cells == [b"1"]
        assert sum(map(silent, strangers)) <= 2


# -- passwords -------------------------------------------------------------------------------------


class Clock:
    """Time that passes when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        until = self.now + seconds
        await asyncio.sleep(0)  # others go on
        self.now = max(self.now, until)

    def __call__(self) -> float:
        return self.now


async def attempt(throttle: Throttle, user: str, address: str, right: bool) -> None:
    try:
        async with throttle.judging(user, address):
            if not right:
                raise PasswordError("wrong")
    except PasswordError:
        assert not right


def test_each_failure_doubles_the_delay_of_its_pair_alone():
    clock = Clock()
    throttle = Throttle(clock.sleep, clock)

    async def run() -> None:
        for _ in range(8):
            await attempt(throttle, "ann", "10.0.0.1", right=False)
        assert clock.slept == [0.25, 0.5, 1.0, 2.0, LONGEST, LONGEST, LONGEST]
        clock.slept.clear()
        # Ann from elsewhere, and others from there, are not slowed down.
        await attempt(throttle, "ann", "10.0.0.2", right=True)
        await attempt(throttle, "bob", "10.0.0.1", right=True)
        assert clock.slept == []
        # The right password ends it.
        await attempt(throttle, "ann", "10.0.0.1", right=True)
        assert clock.slept == [LONGEST]
        await attempt(throttle, "ann", "10.0.0.1", right=True)
        assert clock.slept == [LONGEST]

    asyncio.run(run())


def test_attempts_of_a_pair_are_judged_one_after_another_by_however_many_connections():
    clock = Clock()
    throttle = Throttle(clock.sleep, clock)

    async def run() -> None:
        many = [attempt(throttle, "ann", "10.0.0.1", right=False) for _ in range(20)]
        await asyncio.gather(*many)
        assert len(clock.slept) == 19
        assert clock.now - 1000 > 15 * LONGEST - 1

    asyncio.run(run())


def test_a_pair_is_forgotten_in_time():
    clock = Clock()
    throttle = Throttle(clock.sleep, clock)

    async def run() -> None:
        for _ in range(3):
            await attempt(throttle, "ann", "10.0.0.1", right=False)
        clock.slept.clear()
        clock.now += FORGOTTEN + 1
        await attempt(throttle, "ann", "10.0.0.1", right=False)
        assert clock.slept == []

    asyncio.run(run())


@pytest.fixture
def passwords(release: Path, tmp_path: Path) -> Iterator[Running]:
    users = Users(tmp_path / "users")
    users.add("ann", "secret")
    users.add("bob", "secret")
    with serving([release], tmp_path, security=Security(users)) as made:
        yield made


def test_wrong_passwords_are_slowed_down_logged_and_keep_nobody_else_out(
    passwords: Running, monkeypatch: pytest.MonkeyPatch
):
    clock = Clock()
    monkeypatch.setattr(passwords.server, "_throttle", Throttle(clock.sleep, clock))
    for given in ("wrong", "worse"):
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(passwords.dsn(password=given))
    assert clock.slept == [0.25]
    psycopg.connect(passwords.dsn(user="bob", password="secret")).close()
    assert clock.slept == [0.25]
    psycopg.connect(passwords.dsn(password="secret")).close()
    assert clock.slept == [0.25, 0.5]
    psycopg.connect(passwords.dsn(password="secret")).close()
    assert clock.slept == [0.25, 0.5]
    denied = [each for each in passwords.entries() if each.decision == "denied"]
    assert [(each.user, each.reason, each.statement, each.address) for each in denied] == [
        ("ann", "password", "", "127.0.0.1")
    ] * 2
