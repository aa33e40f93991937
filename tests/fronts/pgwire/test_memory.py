"""Statements that want more memory than there is: each gets an error, the server and others go on.

DuckDB's own limit counts none of these values; each was seen to take gigabytes without the
limit of a process (see ``privsql.engines.processes.child``).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from privsql.policy.limits import Limits
from tests.fronts.pgwire.conftest import Running, one, serving, text

LIMITS = Limits(memory="100MB", threads=1, seconds=40)
# Bytes of a child that is allowed two databases of 100 MB: those, its stacks, room, and libraries.
MOST = 900 << 20

MANY = "repeat('xxxxxxxxxx', 10000)"  # as much as a question about a release may write out
DOUBLED = ", ".join(f"t{i} AS (SELECT s || s AS s FROM t{i - 1})" for i in range(1, 40))

# Without a release, and over the catalog; LATER are siblings of them, or take longer to get there.
CONSTANTS = [
    "SELECT length(repeat('abcdefghij', 400000000))",
    "SELECT length(repeat(relname, 100000000)) FROM pg_class",
    "SELECT len(range(1, 1000000000))",
    f"SELECT length(string_agg({MANY}, '')) FROM generate_series(1, 1000000) t(i)",
    f"WITH t0 AS (SELECT 'xxxxxxxxxx' AS s), {DOUBLED} SELECT length(s) FROM t39",
    "SELECT length(printf('%2000000000d', 1))",
]
LATER = [
    "SELECT length(repeat('abcdefghij', 400000000)) FROM pg_class",
    "SELECT length(lpad('x', 1000000000, 'y'))",
    "SELECT length(rpad('x', 1000000000, 'y'))",
    "SELECT array_length(array_agg(i), 1) FROM generate_series(1, 300000000) t(i)",
    f"SELECT length(replace({MANY}, 'x', {MANY}))",
    f"SELECT length(regexp_replace({MANY}, 'x', {MANY}, 'g'))",
    "WITH RECURSIVE t(n, s) AS (SELECT 1, 'xxxxxxxxxx' UNION ALL SELECT n + 1, s || s FROM t"
    " WHERE n < 36) SELECT max(length(s)) FROM t",
    "SELECT len(list_resize([1], 1000000000, 0))",
    "SELECT length(json_array(repeat('x', 1000000000))::VARCHAR)",
    "SELECT length(concat_ws(',', repeat('x', 900000000), repeat('y', 900000000)))",
    "SELECT length(to_json(range(1, 300000000))::VARCHAR)",
    "SELECT length(hex(repeat('x', 1500000000)))",
    "SELECT len(string_split(repeat('x,', 500000000), ','))",
    "SELECT i, repeat('x', 100000) FROM generate_series(1, 100000) t(i) ORDER BY 2, 1",
    "SELECT count(*) FROM (SELECT DISTINCT i FROM generate_series(1, 200000000) t(i)) u",
    f"SELECT count(*) FROM patients WHERE length(replace({MANY}, 'x', {MANY} || job)) > 5",
    f"SELECT disease, length(replace({MANY}, 'x', {MANY})), count(*) FROM patients GROUP BY 1",
]
# An analyst's own expressions beside the release, and in a reconstruction.
QUESTIONS = [
    f"SELECT length(string_agg(job || {MANY}, '')) FROM patients",
    f"WITH t0 AS (SELECT disease || {MANY} AS s, count(*) AS n FROM patients GROUP BY disease),"
    f" {DOUBLED} SELECT max(length(s)) FROM t39",
]


@pytest.fixture(scope="module")
def small(release: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with serving([release], tmp_path_factory.mktemp("small"), limits=LIMITS) as made:
        yield made


class Peak:
    """The most memory that a process below this one has at a time."""

    def __init__(self) -> None:
        self.bytes = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.02):
            self.bytes = max([self.bytes, *map(resident, descendants(os.getpid()))])


def descendants(pid: int) -> list[int]:
    parents = {}
    for each in Path("/proc").glob("[0-9]*/stat"):
        try:
            said = each.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        parents[int(each.parent.name)] = int(said[1])
    found = [pid]
    for each in found:
        found += [child for child, parent in parents.items() if parent == each]
    return found[1:]


def resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


@pytest.mark.parametrize(
    "sql", [*CONSTANTS, *QUESTIONS, *(pytest.param(each, marks=pytest.mark.soak) for each in LATER)]
)
def test_a_statement_that_takes_too_much_is_ended_and_others_go_on(small: Running, sql: str):
    ann, bob = small.client(user="ann"), small.client(user="bob")
    before = resident(os.getpid())
    with Peak() as peak:
        ann.send("Q", text(sql))
        # Meanwhile, and whether or not it is over by then.
        assert one(bob.query("SELECT count(*) FROM patients"), "D").cells == [b"4000"]
        found = one(ann.until("Z"), "E").fields
    # Some fill memory so slowly that their time is up before.
    assert found["C"] == "53200" or (found["C"] == "57014" and sql in LATER), found
    assert peak.bytes < MOST
    assert resident(os.getpid()) - before < 150 << 20  # the server's own
    assert one(ann.query("SELECT count(*) FROM patients"), "D").cells == [b"4000"]
    assert one(bob.query("SELECT 1"), "D").cells == [b"1"]


def test_what_fits_is_answered(small: Running):
    client = small.client()
    cells = one(client.query("SELECT length(repeat('abcdefghij', 1000000))"), "D").cells
    assert cells == [b"10000000"]
    rows = client.query("SELECT repeat('x', 1000000) FROM generate_series(1, 30) t(i)")
    assert sum(len(each.cells[0] or b"") for each in rows if each.kind == "D") == 30_000_000


def test_an_error_of_memory_is_in_the_journal(small: Running):
    client = small.client(user="carl")
    client.query(CONSTANTS[0])
    entries = [each for each in small.entries() if each.user == "carl"]
    assert [(each.decision, each.reason) for each in entries] == [("failed", "memory")]


def test_the_process_of_a_session_that_was_ended_is_replaced(small: Running):
    """Hundreds of such statements leave no process behind."""
    client = small.client(user="dora")
    until = time.monotonic() + 30
    for _ in range(4):
        client.query(CONSTANTS[0])
        client.query(QUESTIONS[0])
    while len(descendants(os.getpid())) > 12 and time.monotonic() < until:
        time.sleep(0.1)
    assert len(descendants(os.getpid())) <= 12


def test_a_catalog_whose_process_was_ended_is_made_again_before_it_is_asked_for(small: Running):
    client = small.client(user="eve")
    lookups = small.server._desk._lookups
    client.query("SELECT 1")
    assert lookups._idle
    while lookups._idle:
        assert one(client.query(CONSTANTS[0]), "E").fields["C"] == "53200"
    until = time.monotonic() + 60
    while not lookups._idle and time.monotonic() < until:
        time.sleep(0.05)
    assert lookups._idle
