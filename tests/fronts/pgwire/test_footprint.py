"""Resident memory of a server: at rest, and after many questions.

A server is a process with children that share its libraries.  Its memory is what each of them
has for itself, and the largest share of files that one of them has mapped.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from privsql.fronts.pgwire.releases import RESTED, House
from privsql.policy.history import History
from tests.demos import told
from tests.fronts.pgwire.conftest import Client, kinds
from tests.fronts.pgwire.test_memory import descendants
from tests.sizes import SOAK, sized

REST, ASKED = 200, 350  # megabytes
VALUES = ("asthma", "copd", "depression", "diabetes", "flu", "hiv", "hypertension", "none")


@contextmanager
def served(release: Path, folder: Path) -> Iterator[tuple[int, int]]:
    """The number of a process that serves as on the command line, and its port."""
    words = ["--listen", "127.0.0.1:0", "--history", "history", "--log", "log"]
    process = subprocess.Popen(
        [sys.executable, "-m", "privsql.fronts.cli.main", "serve", str(release), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=folder,
    )
    assert process.stdout is not None
    try:
        found = re.search(r":(\d+):", process.stdout.readline())
        assert found is not None
        yield process.pid, int(found[1])
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()


def megabytes(pid: int) -> float:
    """The memory of a process and its children."""
    own, files = 0, [0]
    for each in (pid, *descendants(pid)):
        try:
            said = Path(f"/proc/{each}/smaps_rollup").read_text()
        except OSError:
            continue
        sizes = {k: int(v) for k, v in re.findall(r"(\w+):\s+(\d+) kB", said)}
        own += sizes["Pss_Anon"] + sizes["Pss_Shmem"]  # shared ones once
        files.append(sizes["Rss"] - sizes["Anonymous"])
    return (own + max(files)) / 1024


def questions(table: str, sensitive: str, measure: str, keys: tuple[str, ...]) -> Iterator[str]:
    """Distinct ones, over conditions, keys and measures."""
    aggregates = ("count(*)", f"avg({measure})", f"sum({measure})")
    for i in itertools.count():
        key, aggregate = keys[i % len(keys)], aggregates[i // len(keys) % 3]
        where = f"{sensitive} = '{VALUES[i % len(VALUES)]}' AND {measure} < {50 + i}"
        yield f"SELECT {key}, {aggregate} AS n FROM {table} WHERE {where} GROUP BY {key}"


def settled(pid: int, most: float) -> float:
    """The memory once freed memory was given back; it is given some time for that."""
    until = time.monotonic() + 60
    while (found := megabytes(pid)) > most and time.monotonic() < until:
        time.sleep(0.5)
    return found


@pytest.fixture(scope="module")
def asked_about(release: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's 300,000 rows in ``make soak``, a small clinic otherwise."""
    return told(tmp_path_factory).folder / "clinic.duckdb" if SOAK else release


def test_memory_at_rest_and_after_many_questions(asked_about: Path, tmp_path: Path):
    keys = ("sex", "age", "district", "job") if SOAK else ("job", "gender")
    with served(asked_about, tmp_path) as (pid, port):
        assert settled(pid, REST) <= REST
        client = Client(port)
        client.start(user="ann", database="privsql")
        found = questions("patients", "disease", "cost", keys)
        for sql in itertools.islice(found, sized(30, 500)):
            assert kinds(client.query(sql))[-2:] in ("CZ", "EZ")  # answered or refused
        memory = settled(pid, ASKED)
        print(f"{memory:.0f} MB after {sized(30, 500)} questions")
        assert memory <= ASKED
        client.close()


FIRST = """
import os, sys

class Seen:
    def find_spec(self, name, path, target=None):
        if name in ("numpy", "pyarrow"):
            found = [os.environ.get(each) for each in os.environ["ASKED"].split()]
            raise SystemExit(print(*found))

sys.meta_path.insert(0, Seen())
from privsql.fronts.cli.main import main
main()
"""


def test_what_libraries_read_is_set_before_they_are_loaded(release: Path, tmp_path: Path):
    """Arrow's allocator keeps freed memory, and BLAS a thread and a buffer for each processor."""
    done = subprocess.run(
        [sys.executable, "-c", FIRST, "serve", str(release), "--history", "h", "--log", "l"],
        env={
            **{k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")},
            "ASKED": "ARROW_DEFAULT_MEMORY_POOL OPENBLAS_NUM_THREADS",
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "system 1\n", done.stderr


def test_a_session_that_nobody_uses_is_closed(release: Path, tmp_path: Path, monkeypatch):
    house = House([release], history=History(tmp_path / "history"))
    try:
        for user in ("ann", "bob"):
            with house.lease(house.versions()["patients"], user):
                assert descendants(os.getpid())
        house.tidy()
        assert len(house._idle) == 2
        now = time.monotonic()
        monkeypatch.setattr(time, "monotonic", lambda: now + RESTED + 1)
        house.tidy()
        assert house._idle == []
    finally:
        house.close()


def test_a_server_does_not_load_what_it_does_not_use(release: Path, tmp_path: Path):
    """pandas, which pyarrow looks for, and DuckDB's databases, which are in children."""
    with served(release, tmp_path) as (pid, port):
        client = Client(port)
        client.start(user="ann", database="privsql")
        assert "D" in kinds(client.query("SELECT disease, count(*) FROM patients GROUP BY 1"))
        for each in (pid, *descendants(pid)):
            mapped = Path(f"/proc/{each}/maps").read_text()
            assert "pandas" not in mapped
        assert len(os.listdir(f"/proc/{pid}/task")) < 30
        client.close()
