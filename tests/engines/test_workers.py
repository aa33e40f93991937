"""Threads that are used again."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from privsql.engines import workers


def ran_in(worker):
    done, found = threading.Event(), []

    def work():
        found.append(threading.current_thread())
        done.set()

    worker.begin(work)
    assert done.wait(10)
    return found[0]


@pytest.fixture
def none_idle(monkeypatch):
    monkeypatch.setattr(workers, "_idle", [])


def idle(worker):
    for _ in range(10_000):
        with workers._lock:
            if worker in workers._idle:
                return
        threading.Event().wait(0.001)
    raise AssertionError("it does not become idle")


def test_an_idle_thread_is_used_again_under_the_new_name(none_idle):
    first = workers.take("one")
    thread = ran_in(first)
    idle(first)
    second = workers.take("two")
    assert second is first
    assert not second.begun
    assert thread.name == "two"
    assert ran_in(second) is thread


def test_a_retired_thread_ends_whether_idle_or_at_work(none_idle):
    resting = workers.take("resting")
    ran_in(resting)
    idle(resting)
    resting.retire()
    resting.thread.join(10)
    assert not resting.thread.is_alive()
    assert not workers._idle
    hold, busy = threading.Event(), workers.take("busy")
    busy.begin(hold.wait)
    busy.retire()
    assert busy.thread.is_alive()
    hold.set()
    busy.thread.join(10)
    assert not busy.thread.is_alive()
    assert not workers._idle


def test_no_more_threads_wait_than_are_allowed(none_idle):
    taken = [workers.take("many") for _ in range(workers.MOST_IDLE + 3)]
    hold = threading.Event()
    for worker in taken:
        worker.begin(hold.wait)
    hold.set()

    def settled() -> bool:
        # A statement of another test may just have ended: its thread waits then in place of ours.
        with workers._lock:
            alive = [worker for worker in taken if worker.thread.is_alive()]
            return len(workers._idle) == workers.MOST_IDLE and set(alive) <= set(workers._idle)

    for _ in range(10_000):
        if settled():
            break
        threading.Event().wait(0.001)
    assert settled()


def test_work_of_many_callers_is_done_once_each(none_idle):
    def ask(i):
        worker, done, found = workers.take("asked"), threading.Event(), []
        worker.begin(lambda: (found.append(i), done.set()))
        assert done.wait(30)
        return found

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(ask, range(2000))) == [[i] for i in range(2000)]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_has_threads_of_its_own(none_idle):
    first = workers.take("parent")
    ran_in(first)
    idle(first)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            second = workers.take("child")
            code = 0 if second is not first and ran_in(second).is_alive() else 1
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
