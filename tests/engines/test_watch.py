"""The time of a whole statement: in Python, in DuckDB, and in functions that never look up."""

from __future__ import annotations

import contextlib
import cProfile
import subprocess
import sys
import textwrap
import threading
import time

import duckdb
import pytest

from privsql.engines import CanceledError, Memory, Most, TimedOutError, Watch, watching
from privsql.engines.breaks import Break, Broken
from privsql.engines.calls import GRACE, LEFT, Calls
from privsql.errors import OperationalError, TooLargeError

ENDLESS = "SELECT count(*) FROM range(10000000) a(i), range(10000000) b(j) WHERE hash(i, j) % 7 = 3"


def spin():
    while True:
        pass


def test_python_ends_when_time_is_up():
    begun = time.monotonic()
    with pytest.raises(TimedOutError, match=r"longer than 0\.2 seconds"):
        Watch(0.2).breakable(spin)
    assert 0.2 <= time.monotonic() - begun < 5


def test_python_ends_when_it_is_canceled():
    watch = Watch()
    threading.Timer(0.2, watch.cancel).start()
    with pytest.raises(CanceledError):
        watch.breakable(spin)
    with pytest.raises(CanceledError):  # and stays so
        watch.breakable(lambda: 1)


def test_no_handler_of_exceptions_stops_it():
    def stubborn():
        while True:
            try:
                spin()
            except Exception:
                continue

    with pytest.raises(TimedOutError):
        Watch(0.1).breakable(stubborn)


def test_nothing_strikes_after_the_work():
    """Many that end at about the time when the strike comes: it is inside, or nowhere."""
    for i in range(200):
        watch = Watch(0.002)
        with contextlib.suppress(TimedOutError):
            watch.breakable(lambda: sum(range(20_000)))
        total = sum(k for k in range(2_000))
        assert total == 1_999_000, i
    time.sleep(0.05)


def test_work_that_is_done_is_given_and_leaves_no_thread():
    before = threading.active_count()
    for _ in range(20):
        assert Watch(60).breakable(lambda: 7) == 7
    time.sleep(0.1)
    assert threading.active_count() <= before


def test_what_is_shielded_is_not_broken_but_what_follows_is():
    watch, done = Watch(0.1), []

    def careful():
        end = time.monotonic() + 0.4
        while time.monotonic() < end:
            pass
        done.append("put back")

    def work():
        watch.shielded(careful)
        spin()

    with pytest.raises(TimedOutError):
        watch.breakable(work)
    assert done == ["put back"]


def test_deeper_than_pythons_stack_is_told():
    def deep():
        return deep()

    with pytest.raises(TooLargeError, match="nests too deeply"):
        Watch().breakable(deep)


def test_a_strike_comes_to_work_only():
    breaking = Break()
    breaking.strike()  # nothing is under way
    assert breaking.able(lambda: 3) == 3
    threading.Timer(0.1, breaking.strike).start()
    with pytest.raises(Broken):
        breaking.able(spin)
    breaking.strike()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_strike_that_python_drops_is_not_the_last():
    """What is raised while an object is thrown away is printed and forgotten."""

    class Deaf:
        def __del__(self):
            until = time.monotonic() + 10
            while time.monotonic() < until:
                pass
            missed.append("the first strike")

    def work():
        Deaf()
        spin()

    missed: list[str] = []
    with pytest.raises(TimedOutError):
        Watch(0.1).breakable(work)
    assert missed == []


# --- together with a database ----------------------------------------------------------


def test_several_statements_have_one_time():
    memory = Memory()
    begun = time.monotonic()
    with watching(Watch(0.6)):
        memory.run("SELECT 1")
        time.sleep(0.4)
        with pytest.raises(TimedOutError, match=r"0\.6 seconds"):
            memory.run(ENDLESS)
        assert time.monotonic() - begun < 0.6 + GRACE + 1
        with pytest.raises(TimedOutError):
            memory.run("SELECT 1")
        memory.forget("nothing")  # tidying is done
    assert memory.run("SELECT 1 AS n")["n"][0].as_py() == 1
    memory.close()


def test_canceling_is_not_lost_between_two_statements():
    memory = Memory()
    with watching(Watch()) as watch:
        memory.run("SELECT 1")
        watch.cancel()
        memory.interrupt()
        with pytest.raises(CanceledError):
            memory.run("SELECT 1")
    memory.close()


def test_a_function_of_ours_is_broken_off():
    """One row, and far more steps than anybody waits for."""

    def endless(x: int) -> int:
        while True:
            x += 1

    # One thread, as in the database that answers: a function runs on the one that is struck.
    connection = duckdb.connect(config={"threads": 1})
    connection.create_function("endless", endless)
    calls = Calls(connection)
    with pytest.raises(TimedOutError), watching(Watch(0.3)):
        calls.run(lambda cursor: cursor.execute("SELECT endless(i) FROM range(3) t(i)").fetchall())
    until = time.monotonic() + 30  # a machine with other work may leave it for a moment
    while calls._left and time.monotonic() < until:
        time.sleep(0.01)
    assert calls._under_way == set()
    assert calls.run(lambda cursor: cursor.execute("SELECT 1").fetchall()) == [(1,)]
    calls.close()


def test_what_never_looks_up_is_left_and_not_many_of_them():
    """A function that waits in C hears neither DuckDB's interruption nor Python's."""
    calls, gate = Calls(duckdb.connect()), threading.Event()
    for _ in range(LEFT):
        begun = time.monotonic()
        with pytest.raises(TimedOutError), watching(Watch(0.2)):
            calls.run(lambda _: gate.wait(300))
        assert GRACE < time.monotonic() - begun < 0.2 + GRACE + 2
        assert len(calls._left) <= LEFT
    with pytest.raises(OperationalError, match="still being canceled"):
        calls.run(lambda cursor: cursor.execute("SELECT 1").fetchall())
    gate.set()
    until = time.monotonic() + 60
    while calls._left and time.monotonic() < until:
        time.sleep(0.01)
    assert calls.run(lambda cursor: cursor.execute("SELECT 1").fetchall()) == [(1,)]
    assert calls._under_way == set()
    calls.close()


def test_closing_does_not_wait_for_one_that_was_left():
    calls, gate = Calls(duckdb.connect()), threading.Event()
    with pytest.raises(TimedOutError), watching(Watch(0.2)):
        calls.run(lambda _: gate.wait(300))
    begun = time.monotonic()
    calls.close()
    assert time.monotonic() - begun < 2 * GRACE + 2
    gate.set()


def test_the_program_ends_in_order_though_one_was_left():
    """DuckDB would abort it: its threads must not be ended by Python."""
    body = """
    from privsql.engines import Memory, TimedOutError, Watch, watching
    memory = Memory()
    try:
        with watching(Watch(0.1)):
            memory.run("SELECT levenshtein(repeat('a', 40000), repeat('b', 40000) || i)"
                       " FROM range(1) t(i)")
    except TimedOutError:
        print(len(memory._calls._left))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(body)], capture_output=True, text=True, timeout=120
    )
    assert (done.stdout, done.returncode) == ("1\n", 0)


# --- what comes back -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "fits"),
    [
        ("SELECT i FROM range(10) t(i)", True),
        ("SELECT i FROM range(11) t(i)", False),
        ("SELECT i, i, i FROM range(10) t(i)", True),
        ("SELECT i, i, i, i FROM range(10) t(i)", False),
        ("SELECT repeat('x', 900)", True),
        ("SELECT repeat('x', 1100)", False),
        ("SELECT i FROM range(1000000000000) t(i)", False),
        ("SELECT i FROM range(100) t(i) ORDER BY i LIMIT 10 -- the last", True),
    ],
)
def test_the_size_of_a_result_is_limited(sql, fits):
    memory = Memory()
    most = Most(rows=10, cells=30, bytes=1_000)
    if fits:
        limited, free = memory.run(sql, most=most), memory.run(sql)
        assert limited.rename_columns(free.column_names).equals(free)
    else:
        with pytest.raises(TooLargeError, match="larger than 10 rows, 30 cells or 1000 bytes"):
            memory.run(sql, most=most)
    memory.close()


@pytest.mark.parametrize("sql", ["SELECT 1) UNION ALL (SELECT 2", "SELECT 1; DROP TABLE x", ")"])
def test_a_limit_opens_no_way_around_the_check(sql):
    memory = Memory()
    with pytest.raises(Exception, match=r"syntax error|one SELECT"):
        memory.run(sql, most=Most(10, 10, 1_000))
    memory.close()


def test_work_goes_on_under_a_profiler():
    profiler = cProfile.Profile()
    profiler.enable()
    try:
        assert Watch(60).breakable(lambda: sum(range(1000))) == 499500
        watch = Watch(60)
        assert watch.breakable(lambda: watch.shielded(lambda: sum(range(1000)))) == 499500
        with pytest.raises(TimedOutError):
            Watch(0.1).breakable(spin)
        assert sum(range(1000)) == 499500
    finally:
        profiler.disable()
