"""Processes with a limit of memory: what they may have, how they end, and what is left of them."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from privsql.engines import (
    CanceledError,
    Memory,
    OutOfMemoryError,
    TimedOutError,
    Watch,
    watching,
)
from privsql.engines.processes import zygote
from privsql.engines.processes.child import Child
from privsql.engines.processes.confined import Confined
from privsql.engines.processes.footprint import without_pandas
from privsql.errors import DataError, InterfaceError, Place, ProgrammingError

ROOM = 100 << 20


@pytest.fixture
def child() -> Iterator[Child]:
    made = Child(ROOM)
    yield made
    made.close()


# What children are asked to do here, known to them by name.


def taken(size: int) -> int:
    return len(bytearray(size))


def failing() -> None:
    raise DataError("wrong", hint="ask", place=Place("abc", 1, 2))


def dying() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def number() -> int:
    return os.getpid()


def modules() -> tuple[int, bool]:
    import sys

    pa.array(["a"])  # would import pandas
    return len(os.listdir("/proc/self/fd")), "pandas" in sys.modules


class Stubborn:
    """An object that hears nothing: its whole process stands still."""

    def __init__(self, folder: str) -> None:
        self.spilling = folder
        Path(folder).mkdir()

    def work(self) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)

    def interrupt(self) -> None:
        pass


def alive(pid: int) -> bool:
    """Whether a process is there; its parent, the zygote, waits for it at once."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "zombie" not in Path(f"/proc/{pid}/status").read_text()


def gone(pid: int) -> bool:
    until = time.monotonic() + 20
    while alive(pid) and time.monotonic() < until:
        time.sleep(0.01)
    return not alive(pid)


def test_memory_beyond_the_limit_is_refused_and_the_process_is_given_up(child: Child):
    assert child.run(taken, 50 << 20) == 50 << 20
    with pytest.raises(OutOfMemoryError) as raised:
        child.run(taken, 2 << 30)
    assert raised.value.sqlstate == "53200"
    assert child.broken
    with pytest.raises(InterfaceError):
        child.run(number)


def test_a_process_that_dies_is_an_error_of_its_statement(child: Child):
    pid = child.run(number)
    with pytest.raises(OutOfMemoryError, match="has ended"):
        child.run(dying)
    assert child.broken
    assert gone(pid)


def test_errors_come_through_whole(child: Child):
    with pytest.raises(DataError) as raised:
        child.run(failing)
    assert (raised.value.reason, raised.value.hint) == ("wrong", "ask")
    assert raised.value.place == Place("abc", 1, 2)
    assert not child.broken


def test_large_tables_come_through_and_go_in(child: Child):
    memory = child.make(Memory, memory_limit="64MB")
    table = pa.table({"i": range(100_000), "s": [str(i) for i in range(100_000)]})
    memory.call("load_all", {"t": table})
    assert memory.call("run", "FROM t ORDER BY i", ()).equals(table)


def test_a_request_is_ended_from_another_thread(child: Child):
    memory = child.make(Memory, memory_limit="64MB")
    long = "SELECT count(*) FROM range(100000000000) t(i) WHERE i % 7 = 8"
    timer = threading.Timer(0.2, memory.interrupt)
    timer.start()
    with pytest.raises(CanceledError):
        memory.call("run", long, ())
    timer.join()
    assert not child.broken
    # One that is asked for before the request begins, and one that ended before.
    watch = Watch()
    watch.cancel()
    with watching(watch), pytest.raises(CanceledError):
        memory.call("run", "SELECT 1", ())
    assert memory.call("run", "SELECT 1 AS a", ()).to_pylist() == [{"a": 1}]


def test_the_time_of_a_statement_holds_in_the_process(child: Child):
    memory = child.make(Memory, memory_limit="64MB")
    with watching(Watch(0.3)), pytest.raises(TimedOutError, match=r"longer than 0\.3 seconds"):
        memory.call("run", "SELECT count(*) FROM range(100000000000) t(i) WHERE i % 7 = 8", ())


def test_what_cannot_be_interrupted_is_killed_with_what_it_spilled(child: Child, tmp_path: Path):
    folder = tmp_path / "spilled"
    made = child.make(Stubborn, str(folder))
    pid = child.run(number)
    assert folder.exists()
    timer = threading.Timer(0.1, made.interrupt)
    timer.start()
    with pytest.raises(CanceledError):
        made.call("work")
    timer.join()
    assert child.broken
    assert gone(pid)
    assert not folder.exists()


def test_tables_are_not_dropped_in_a_process_that_has_ended():
    """Or tidying up would hide why a statement failed."""
    engines = Confined()
    memory = engines.memory("64MB")
    memory.load("t", pa.table({"a": [1]}))
    assert engines._child is not None
    engines._child.close()
    memory.forget("t")
    assert engines.broken


def test_a_zygote_that_was_killed_is_started_again(child: Child):
    pid = child.run(number)
    process, _ = zygote._running[0]
    process.kill()
    process.wait()
    other = Child(ROOM)
    assert other.run(number) != pid
    assert child.run(number) == pid  # children live as long as their server wants
    other.close()


def test_children_end_with_the_program_that_has_them(child: Child):
    pid = child.run(number)
    child._requests.close()
    child._control.close()
    assert gone(pid)


def test_a_child_has_no_file_of_others_and_no_pandas(child: Child):
    other = Child(ROOM)
    first, found = child.run(modules)
    second, _ = other.run(modules)
    assert not found
    assert first == second < 12
    other.close()


def test_pandas_stays_out_of_a_process_that_asks_for_it(child: Child):
    assert child.run(_import_refused)


def _import_refused() -> bool:
    import sys

    before = list(sys.meta_path)
    without_pandas()  # once
    try:
        import pandas  # noqa: F401
    except ModuleNotFoundError:
        return sys.meta_path == before
    return False


@pytest.mark.parametrize("amount", ["", "12", "many MB", "-1GB"])
def test_an_amount_of_memory_that_is_none_is_refused(amount: str):
    with pytest.raises(ProgrammingError):
        Confined().memory(amount)
