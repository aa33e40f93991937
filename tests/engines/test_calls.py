"""Ending a statement: from another thread, by its time, by Ctrl-C, by closing."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading
import time

import duckdb
import pytest

from privsql.engines import CanceledError, Embedded, Memory, TimedOutError, Watch, watching
from privsql.engines.calls import Calls
from privsql.errors import InterfaceError, InternalError, OperationalError

# Hours of work, in one task.
ENDLESS = "SELECT count(*) FROM range(10000000) a(i), range(10000000) b(j) WHERE hash(i, j) % 7 = 3"
KERNELS = (
    "SELECT sum(privsql_em([i, 1, 2, 3], [[[0.51, 0.49], [0.49, 0.51]],"
    " [[0.51, 0.49], [0.49, 0.51]]], 1e-300, 100).gap) FROM range(1, 10000000) s(i)"
)


@pytest.fixture
def memory():
    opened = Memory()
    yield opened
    opened.close()


def interrupted(run, interrupt):
    """What ``run`` raises when somebody interrupts it shortly after it began."""
    timer = threading.Timer(0.3, interrupt)
    timer.start()
    begun = time.monotonic()
    try:
        with pytest.raises(OperationalError) as caught:
            run()
    finally:
        timer.join()
    assert time.monotonic() - begun < 30
    return caught.value


@pytest.mark.parametrize("sql", [ENDLESS, KERNELS])
def test_interrupting_cancels_and_the_next_statement_runs(memory, sql):
    problem = interrupted(lambda: memory.run(sql), memory.interrupt)
    assert isinstance(problem, CanceledError)
    assert (problem.code, problem.sqlstate) == ("canceled", "57014")
    memory.interrupt()  # nothing is under way: nothing happens to what comes
    assert memory.run("SELECT 1 AS n")["n"][0].as_py() == 1


def test_a_scan_is_interrupted_too(clinic):
    engine = Embedded(clinic)
    problem = interrupted(lambda: engine.scan(ENDLESS), engine.interrupt)
    assert problem.code == "canceled"
    assert engine.scan("SELECT count(*) AS n FROM patients")["n"][0].as_py() == 3000
    engine.close()


def test_all_that_is_under_way_is_interrupted(memory):
    problems = []

    def ask():
        try:
            memory.run(ENDLESS)
        except OperationalError as problem:
            problems.append(problem.code)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    while len(memory._calls._under_way) < 3:
        time.sleep(0.01)
    memory.interrupt()
    for thread in threads:
        thread.join(30)
    assert problems == ["canceled"] * 3


def test_an_interruption_before_duckdb_has_begun_is_not_lost():
    """DuckDB forgets those: a cursor that is idle is not interrupted later."""
    calls = Calls(duckdb.connect())
    begin = threading.Event()

    def late(cursor):
        begin.wait()
        time.sleep(0.1)
        return cursor.sql(ENDLESS).fetchall()

    def interrupt():
        calls.interrupt()
        begin.set()

    assert interrupted(lambda: calls.run(late), interrupt).code == "canceled"
    calls.close()


def test_time_runs_out():
    memory = Memory()
    begun = time.monotonic()
    late = pytest.raises(TimedOutError, match=r"longer than 0\.3 seconds")
    with late as caught, watching(Watch(0.3)):
        memory.run(ENDLESS)
    assert 0.3 <= time.monotonic() - begun < 30
    assert (caught.value.code, caught.value.sqlstate) == ("timeout", "57014")
    assert memory.run("SELECT 1 AS n")["n"][0].as_py() == 1
    memory.close()


def test_closing_ends_what_is_under_way():
    memory = Memory()
    problem = interrupted(lambda: memory.run(ENDLESS), memory.close)
    assert problem.code == "canceled"
    with pytest.raises(InterfaceError):
        memory.run("SELECT 1")


def test_an_answer_that_was_done_in_time_is_given_though_someone_interrupts():
    calls = Calls(duckdb.connect())

    def work(cursor):
        calls.interrupt()
        time.sleep(0.05)
        return 5

    assert calls.run(work) == 5
    calls.close()


def test_a_bug_is_called_one_and_quotes_nothing():
    calls = Calls(duckdb.connect())

    def work(cursor):
        return {}["a value"]

    with pytest.raises(InternalError, match="KeyError") as caught:
        calls.run(work)
    assert "a value" not in str(caught.value)
    calls.close()


def test_nothing_is_left_behind(memory):
    before = threading.active_count()
    for _ in range(20):
        memory.run("SELECT 1")
    interrupted(lambda: memory.run(ENDLESS), memory.interrupt)
    time.sleep(0.2)
    assert threading.active_count() == before
    assert memory._calls._under_way == set()


@pytest.mark.parametrize("sql", [ENDLESS, KERNELS])
def test_ctrl_c_in_the_main_thread(sql):
    """The statement ends, the connection can be used again, and nothing is said at exit."""
    body = f"""
    from privsql.engines import Memory
    memory = Memory()
    print("ready", flush=True)
    try:
        memory.run("{sql}")
    except KeyboardInterrupt:
        print("stopped", memory.run("SELECT 41 + 1 AS n")["n"][0].as_py(), flush=True)
    """
    child = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(body)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(timeout=0.7)  # it is at work
        child.send_signal(signal.SIGINT)
        printed, errors = child.communicate(timeout=60)
    finally:
        child.kill()
        child.communicate()
    assert printed == "stopped 42\n"
    assert errors == ""
    assert child.returncode == 0


def test_ctrl_c_that_duckdb_sees_first_is_ctrl_c():
    """While a cursor is prepared, on the thread that gets signals."""

    class Struck:
        def cursor(self):
            return self

        def execute(self, statement):
            raise RuntimeError("Query interrupted")

    with pytest.raises(KeyboardInterrupt):
        Calls(Struck(), prepare=["SELECT 1"]).run(lambda cursor: cursor)
