"""The audit log: nothing torn is read, nothing is lost, nothing of a result is in it."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import signal
import stat
import subprocess
import sys
import textwrap
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privsql.errors import DataError, OperationalError
from privsql.policy import journal as module
from privsql.policy.journal import DECISIONS, Entry, Journal, JournalError, digest
from tests.policy import journals
from tests.policy.journals import files, read

ENTRY = Entry(
    "ann",
    "SELECT COUNT(*) FROM patients WHERE disease = 'flu'",
    "answered",
    tables=("patients",),
    groups="00ff",
    seconds=0.25,
)


def statements(path):
    """Every statement of a log that is read, the oldest first, and how many lines are bad."""
    found, bad = [], 0
    for each in files(path):
        reading = read(each)
        found += [entry.statement for entry in reading]
        bad += reading.bad
    return found, bad


def test_a_line_says_what_became_of_a_statement(tmp_path):
    log = Journal(tmp_path / "audit.jsonl")
    log.append(ENTRY)
    line = json.loads((tmp_path / "audit.jsonl").read_text())
    assert line.pop("check")
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "user": "ann",
        "statement": ENTRY.statement,
        "characters": len(ENTRY.statement),
        "digest": digest(ENTRY.statement),
        "decision": "answered",
        "reason": "",
        "tables": ["patients"],
        "groups": "00ff",
        "seconds": 0.25,
    }
    (found,) = read(tmp_path / "audit.jsonl")
    assert (found.user, found.tables, found.seconds) == ("ann", ("patients",), 0.25)


def test_what_is_long_is_cut_and_can_still_be_recognised(tmp_path):
    log = Journal(tmp_path / "log", characters=20)
    long = "SELECT " + "x" * 10_000
    log.append(Entry("u" * 10_000, long, "failed", "timeout", ("t" * 10_000,) * 1_000))
    (found,) = read(tmp_path / "log")
    assert found.statement == long[:20]
    assert found.characters == len(long)
    assert found.digest == digest(long)
    assert len(found.user) == 200
    assert len(found.tables) == 50
    assert (tmp_path / "log").stat().st_size < 12_000


@pytest.mark.parametrize(
    "wrong",
    [
        {"decision": "42 rows"},
        {"reason": "the answer was 17"},
        {"reason": "x" * 41},
        {"groups": "[1, 2]"},
    ],
)
def test_there_is_no_room_for_a_result(wrong):
    with pytest.raises(DataError):
        Entry(**({"user": "ann", "statement": "SELECT 1", "decision": "answered"} | wrong))


@pytest.mark.parametrize("odd", ["\ud800", "\0", "a\nb\r\u2028\x85", '"}\n{"', "日本", "\x7f\\"])
def test_odd_texts_stay_one_line(tmp_path, odd):
    log = Journal(tmp_path / "log")
    for _ in range(2):
        log.append(Entry(odd, odd, "refused", "syntax", (odd,)))
    first, second = read(tmp_path / "log")
    assert first.statement == first.user == first.tables[0] == odd
    assert second.digest == digest(odd)
    assert (tmp_path / "log").read_bytes().count(b"\n") == 2


def test_files_are_their_owners_alone(tmp_path):
    old = os.umask(0)
    try:
        log = Journal(tmp_path / "log", size=1)
        log.append(ENTRY)
        log.append(ENTRY)
    finally:
        os.umask(old)
    for name in ("log", "log.1", "log.lock"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


# --- what a crash leaves ---------------------------------------------------------------


def test_cut_anywhere_only_whole_lines_are_read_and_writing_goes_on(tmp_path):
    """Every byte offset: complete lines are read, the torn one is not, the next is whole."""
    path = tmp_path / "log"
    log = Journal(path)
    for i in range(3):
        log.append(Entry("ann", f"SELECT {i}", DECISIONS[i]))
    whole = path.read_bytes()
    ends = [i + 1 for i, byte in enumerate(whole) if byte == ord("\n")]
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        # A line of which only the newline is missing is all there.
        complete = sum(end - 1 <= cut for end in ends)
        torn = cut not in (0, *ends, *(end - 1 for end in ends))
        assert statements(path) == ([f"SELECT {i}" for i in range(complete)], int(torn))
        log.append(Entry("ann", "SELECT 'next'", "answered"))
        found, bad = statements(path)
        assert found == [*(f"SELECT {i}" for i in range(complete)), "SELECT 'next'"]
        assert bad == int(torn)


def test_a_changed_byte_is_noticed(tmp_path):
    path = tmp_path / "log"
    Journal(path).append(ENTRY)
    whole = path.read_bytes()
    for at in range(len(whole) - 1):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert list(read(path)) == []
    path.write_bytes(bytes(len(whole)))
    reading = read(path)
    assert list(reading) == []
    assert reading.bad == 1


@given(st.binary(max_size=300))
def test_garbage_is_never_an_entry(data):
    assert all(journals._entry(line) is None for line in data.split(b"\n"))


def test_lines_that_are_right_and_say_something_else_are_bad(tmp_path):
    path = tmp_path / "log"
    lines = []
    for body in (b"[]", b"{}", b'{"user":1}', b'{"tables":3}', b'{"tables":[1]}', b"[" * 5000):
        check = digest(body[:-1] + b"}")[:16].encode()
        lines.append(body[:-1] + b',"check":"' + check + b'"}\n')
    path.write_bytes(b"".join(lines))
    reading = read(path)
    assert list(reading) == []
    assert reading.bad == len(lines)


def test_a_line_without_end_does_not_fill_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(journals, "_LONGEST_LINE", 1_000)
    path = tmp_path / "log"
    path.write_bytes(b"x" * 10_500 + b"\n")
    Journal(path).append(ENTRY)
    reading = read(path)
    assert [entry.statement for entry in reading] == [ENTRY.statement]
    assert reading.bad == 1


KILLED = """
import sys
from privsql.policy.journal import Entry, Journal
log = Journal(sys.argv[1], size=20_000, keep=1_000)
i = 0
while True:
    log.append(Entry("ann", f"SELECT {i}", "answered"))
    print(i, flush=True)
    i += 1
"""


@pytest.mark.parametrize("patience", [0.05, 0.2, 0.4])
def test_killed_while_writing_what_was_acknowledged_is_there(tmp_path, patience):
    path = tmp_path / "log"
    child = subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    time.sleep(patience)
    child.send_signal(signal.SIGKILL)
    rest = child.communicate()[0].split(b"\n")
    told = max([0, *(int(each) for each in rest[:-1])])
    found, _ = statements(path)
    assert found == [f"SELECT {i}" for i in range(len(found))]
    assert len(found) > told
    Journal(path).append(ENTRY)  # and the lock is nobody's
    assert statements(path)[0][-1] == ENTRY.statement


# --- rotation --------------------------------------------------------------------------


def test_old_files_are_put_away_and_the_oldest_dropped(tmp_path):
    path = tmp_path / "log"
    log = Journal(path, size=1, keep=3)
    for i in range(10):
        log.append(Entry("ann", f"SELECT {i}", "answered"))
    assert [each.name for each in files(path)] == ["log.3", "log.2", "log.1", "log"]
    assert statements(path) == ([f"SELECT {i}" for i in (6, 7, 8, 9)], 0)


def test_a_crash_between_two_renamings_loses_nothing(tmp_path):
    path = tmp_path / "log"
    log = Journal(path, size=1, keep=5)
    for i in range(4):
        log.append(Entry("ann", f"SELECT {i}", "answered"))
    (tmp_path / "log.3").replace(tmp_path / "log.4")
    (tmp_path / "log.2").replace(tmp_path / "log.3")  # and there it died
    log.append(Entry("ann", "SELECT 4", "answered"))
    assert statements(path)[0] == [f"SELECT {i}" for i in range(5)]


def _write(path, name, times):
    log = Journal(path, size=5_000, keep=10_000)
    for i in range(times):
        log.append(Entry(name, f"{name} {i}", "answered"))


def test_processes_and_threads_rotate_together_and_lose_nothing(tmp_path):
    path, times = tmp_path / "log", 300
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_write, args=(path, f"p{n}", times)) for n in range(2)]
    threads = [threading.Thread(target=_write, args=(path, f"t{n}", times)) for n in range(2)]
    for worker in (*workers, *threads):
        worker.start()
    for worker in (*workers, *threads):
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0]
    found, bad = statements(path)
    assert bad == 0
    assert len(files(path)) > 10
    assert len(found) == 4 * times
    for name in ("p0", "p1", "t0", "t1"):
        mine = [each for each in found if each.startswith(name)]
        assert mine == [f"{name} {i}" for i in range(times)]


def test_a_process_that_was_forked_has_a_lock_of_its_own(tmp_path):
    """The child of a process that holds the lock must wait."""
    body = f"""
    import os, time
    from privsql.policy.journal import Entry, Journal
    log = Journal({str(tmp_path / "log")!r})
    with log._locked():
        child = os.fork()
        if child == 0:
            log.append(Entry("child", "SELECT 2", "answered"))
            os._exit(0)
        time.sleep(0.3)
        print(os.path.getsize(log.path), flush=True)
    os.waitpid(child, 0)
    print(os.path.getsize(log.path) > 0)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(body)], capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("0\nTrue\n", "")


# --- failing closed --------------------------------------------------------------------


def test_a_log_that_cannot_be_opened_is_told_at_once(tmp_path):
    with pytest.raises(JournalError) as caught:
        Journal(tmp_path / "nowhere" / "log")
    assert caught.value.code == "journal"
    assert isinstance(caught.value, OperationalError)
    assert "nowhere" not in str(caught.value)
    with pytest.raises(JournalError):
        list(read(tmp_path / "nothing"))


@pytest.mark.parametrize("step", ["write", "fsync", "open", "short"])
def test_a_line_that_cannot_be_written_is_an_error_and_the_next_one_is_whole(
    tmp_path, monkeypatch, step
):
    path = tmp_path / "log"
    log = Journal(path, sync=True)
    log.append(Entry("ann", "SELECT 1", "answered"))
    write = os.write

    def full(*_args, **_more):
        raise OSError(errno.ENOSPC, "no space left on device")

    with monkeypatch.context() as patch:
        if step == "short":
            patch.setattr(module.os, "write", lambda file, data: write(file, data[:30]))
        else:
            patch.setattr(module.os, step, full)
        with pytest.raises(JournalError):
            log.append(Entry("ann", "SELECT 2", "answered"))
    log.append(Entry("ann", "SELECT 3", "answered"))
    found, bad = statements(path)
    assert found == ["SELECT 1", *(["SELECT 2"] if step == "fsync" else []), "SELECT 3"]
    assert bad == (step == "short")


def test_a_lock_that_is_never_given_back_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 0.05)
    log = Journal(tmp_path / "log")
    with log._locked(), pytest.raises(JournalError):
        log.append(ENTRY)
    log.append(ENTRY)
    assert len(list(read(log.path))) == 1


@pytest.mark.parametrize("wrong", [{"size": 0}, {"keep": 0}, {"characters": 0}])
def test_options_that_cannot_be_meant(tmp_path, wrong):
    with pytest.raises(DataError):
        Journal(tmp_path / "log", **wrong)
