"""What was answered is remembered: over restarts, crashes, threads and servers."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from privsql.errors import OperationalError
from privsql.policy import history as module
from privsql.policy.account import Account
from privsql.policy.history import VERSION, History, HistoryError
from privsql.policy.served_table import Serving
from tests.policy.spans import asked, serving

ROOT = Path(__file__).resolve().parents[2]
TABLE = serving([30, 30, 30, 30])


def ask(history: History, *chosen: float, user: str = "ann", table: Serving = TABLE) -> bool:
    cell = asked(np.array(chosen, dtype=float))
    return bool(history.check(user, history.table(table), [cell]).cells[0])


def entries(path: Path) -> int:
    with sqlite3.connect(path) as connection:
        count = connection.execute("SELECT count(*) FROM answers").fetchone()[0]
    connection.close()
    return int(count)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.db"


@pytest.mark.parametrize("kept", [True, False])
def test_differences_are_noticed_and_users_are_apart(kept, path):
    with History(path if kept else None) as history:
        assert ask(history, 1, 1, 1, 0)
        assert not ask(history, 1, 1, 0, 0)
        assert ask(history, 1, 1, 0, 0, user="bob")
        other = serving([30, 30, 30, 30], name="u")
        assert ask(history, 1, 1, 0, 0, table=other)  # another table has accounts of its own


def test_a_restarted_server_remembers(path):
    with History(path) as history:
        assert ask(history, 1, 1, 1, 0)
    with History(path) as history:
        assert not ask(history, 1, 1, 0, 0)
        assert ask(history, 1, 1, 1, 0)
    assert entries(path) == 1  # neither a repeat nor a refusal is an entry


def test_a_restarted_server_decides_as_if_it_had_never_stopped(path):
    rng = np.random.default_rng(1)
    table = serving(rng.integers(1, 50, 60).tolist(), rng.integers(0, 30, 60).tolist())
    cells = [[asked((rng.random(60) < 0.6) * 1.0) for _ in range(n)] for n in [2] * 12 + [70]]
    with History(None) as lasting:
        for number, each in enumerate(cells):
            with History(path) as history:
                served = history.table(table)
                found = history.check("ann", served, each)
                known = history._read(("ann", "t"), served)
            served = lasting.table(table)
            expected = lasting.check("ann", served, each)
            plain = lasting._read(("ann", "t"), served)
            assert found.cells.tolist() == expected.cells.tolist(), number
            for one, two in zip(
                known.accounts[0].leverages(), plain.accounts[0].leverages(), strict=True
            ):
                np.testing.assert_allclose(one, two, atol=1e-10)
    assert plain.accounts[0].rank > 10


def test_an_entry_holds_indices_and_weights_of_tuples(path):
    with History(path) as history:
        assert ask(history, 1, 0, 2, 0.5)
    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT account, served, state, vectors FROM answers").fetchall()
    connection.close()
    assert rows[0][:3] == ("ann", "t", TABLE.state)
    (stored,) = module._unpack(rows[0][3])
    assert (stored.text, stored.key) == (None, "")
    assert stored.atoms.tolist() == [0, 2, 3]
    assert stored.weights.tolist() == [1, 2, 0.5]


def test_only_the_owner_may_read_the_file_and_what_lies_beside_it(path):
    with History(path) as history:
        ask(history, 1, 1, 0, 0)
        modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
    assert set(modes) == {"history.db", "history.db-wal", "history.db-shm"}
    assert set(modes.values()) == {0o600}
    path.chmod(0o644)
    History(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_commit_is_on_the_disk_before_it_counts(path):
    with History(path) as history:
        assert history._file.connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert history._file.connection.execute("PRAGMA synchronous").fetchone() == (2,)


# -- damage ----------------------------------------------------------------------------------


def filled(path: Path) -> None:
    with History(path) as history:
        for user in ("ann", "bob", "cid"):
            assert ask(history, 1, 1, 0, 0, user=user)
            assert ask(history, 0, 0, 1, 1, user=user)


def raises(path: Path) -> None:
    with pytest.raises(HistoryError) as caught, History(path) as history:
        ask(history, 1, 0, 1, 0)
    assert isinstance(caught.value, OperationalError)
    assert caught.value.hint
    assert str(path) not in str(caught.value)


@pytest.mark.parametrize("size", [0, 10, 5_000])
def test_a_torn_file_is_an_error(size, path):
    filled(path)
    os.truncate(path, size)
    raises(path)


def test_another_file_is_an_error(path):
    path.write_bytes(b"not a history at all, and long enough to be read" * 50)
    raises(path)


def test_another_database_is_an_error(path):
    sqlite3.connect(path).executescript(
        "CREATE TABLE answered (x); INSERT INTO answered VALUES (1)"
    )
    raises(path)


@pytest.mark.parametrize("version", [VERSION - 1, VERSION + 1])
def test_a_file_of_another_version_is_an_error(path, version):
    filled(path)
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    raises(path)


def test_noise_in_the_file_is_an_error_or_changes_nothing(path):
    filled(path)
    whole = path.read_bytes()
    rng = np.random.default_rng(2)
    caught = 0
    for at in rng.integers(0, len(whole), 150):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            with History(path) as history:
                # ann was told {0,1} and {2,3}: an answer here would be forgetting.
                assert not ask(history, 1, 0, 0, 0)
                assert ask(history, 1, 1, 1, 1)
                last = history._read(("ann", "t"), history.table(TABLE)).last
            assert last == 2
        except HistoryError:
            caught += 1
        for beside in ("-wal", "-shm"):
            Path(f"{path}{beside}").unlink(missing_ok=True)
    assert caught > 5


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE answers SET vectors = zeroblob(20) WHERE id = 1",
        "DELETE FROM answers WHERE id = 1",
        "UPDATE answers SET account = 'ann' WHERE account = 'bob'",
    ],
)
def test_an_entry_that_was_changed_or_taken_out_is_an_error(damage, path):
    filled(path)
    with sqlite3.connect(path) as connection:
        connection.execute(damage)
    connection.close()
    raises(path)


def test_entries_lost_while_the_server_runs_are_an_error(path):
    with History(path) as history:
        assert ask(history, 1, 1, 0, 0)
        with sqlite3.connect(path) as connection:
            connection.execute("DELETE FROM answers")
        connection.close()
        with pytest.raises(HistoryError):
            ask(history, 1, 1, 0, 0)


def test_a_file_that_was_taken_away_or_replaced_is_an_error(path):
    with History(path) as history:
        assert ask(history, 1, 1, 0, 0)
        path.rename(path.with_suffix(".old"))
        with pytest.raises(HistoryError):
            ask(history, 0, 0, 1, 1)
        path.write_bytes(b"")
        with pytest.raises(HistoryError):
            ask(history, 0, 0, 1, 1)


def test_a_store_that_cannot_be_written_gives_no_answer_and_changes_nothing(path):
    with History(path) as history:
        assert ask(history, 1, 1, 0, 0)
        history._file.connection.execute("PRAGMA query_only = 1")
        with pytest.raises(HistoryError):
            ask(history, 0, 1, 1, 1)
        assert ask(history, 1, 1, 0, 0)  # known already: nothing to write
        history._file.connection.execute("PRAGMA query_only = 0")
        assert ask(history, 1, 0, 1, 0)  # with {1,2,3} remembered this would be refused
    assert entries(path) == 2


def test_a_folder_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(HistoryError):
        History(tmp_path / "nowhere" / "history.db")


def test_a_locked_store_gives_no_answer(path):
    with History(path) as history:
        history._file.connection.execute("PRAGMA busy_timeout = 50")
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(HistoryError, match="in use"):
            ask(history, 1, 1, 0, 0)
        other.execute("ROLLBACK")
        other.close()
        assert ask(history, 1, 1, 0, 0)


# -- several at once -------------------------------------------------------------------------


def test_two_servers_see_each_others_entries(path):
    with History(path) as one, History(path) as two:
        assert ask(one, 1, 1, 1, 0)
        assert not ask(two, 1, 1, 0, 0)
        assert ask(two, 1, 1, 1, 1.0) is False
        assert ask(two, 1, 0, 0, 1)
        assert ask(one, 1, 0, 0, 1)
    assert entries(path) == 2


def test_an_entry_that_comes_between_deciding_and_storing_is_seen(path, monkeypatch):
    with History(path) as one, History(path) as two:
        plain, times = Account.propose, []

        def propose(self, cells):
            made = plain(self, cells)
            if not times:
                times.append(1)
                assert ask(two, 1, 1, 1, 0)  # the other server, just now
            return made

        monkeypatch.setattr(Account, "propose", propose)
        assert not ask(one, 1, 1, 0, 0)
    assert entries(path) == 1


def test_a_server_that_keeps_losing_the_race_decides_under_the_lock(path, monkeypatch):
    with History(path) as one, History(path) as two:
        plain, others, asking = Account.propose, [(1, 0, 0, 1), (1, 1, 1, 0)], []

        def propose(self, cells):
            made = plain(self, cells)
            if others and not asking:
                asking.append(1)
                assert ask(two, *others.pop(0))
                asking.clear()
            return made

        monkeypatch.setattr(Account, "propose", propose)
        assert not ask(one, 1, 1, 0, 0)
    assert entries(path) == 2


def test_a_store_that_is_always_newer_is_decided_under_the_lock(path, monkeypatch):
    with History(path) as history:
        monkeypatch.setattr(History, "_last", lambda *_: -1)
        assert ask(history, 1, 1, 1, 0)
        assert not ask(history, 1, 1, 0, 0)
    assert entries(path) == 1


def test_bases_that_are_dropped_from_memory_come_back(path, monkeypatch):
    monkeypatch.setattr(module, "MOST_ENTRIES", 1)
    with History(path) as history:
        for user in ("ann", "bob"):
            assert ask(history, 1, 1, 1, 0, user=user)
        assert len(history._known) == 1
        for user in ("ann", "bob"):
            assert not ask(history, 1, 1, 0, 0, user=user)


SERVER = """
import json, sys
import numpy as np
from privsql.policy.history import History
from tests.policy.spans import asked, serving
path, seed = sys.argv[1], int(sys.argv[2])
rng = np.random.default_rng(seed)
with History(path) as history:
    print("ready", flush=True)
    given = []
    for _ in range(40):
        sys.stdin.readline()
        chosen = (rng.random(12) < 0.5) * 1.0
        table = history.table(serving([20] * 12))
        if history.check("ann", table, [asked(chosen)]).cells[0]:
            given.append(chosen.tolist())
        print("asked", flush=True)
print(json.dumps(given))
"""


def start(source: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", source, *arguments],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def worst(given: list[list[float]]) -> float:
    V = np.array(given)
    V = V[V.any(axis=1)]
    _, values, right = np.linalg.svd(V, full_matrices=False)
    Q = right[values > 1e-9 * values[0]]
    return float((Q**2).sum(axis=0).max())


def test_two_processes_together_keep_to_the_limit(path):
    servers = [start(SERVER, str(path), str(seed)) for seed in (1, 2)]
    for server in servers:
        assert server.stdout.readline() == "ready\n"
    for _ in range(40):  # both ask at once, and neither gets ahead of the other
        for server in servers:
            server.stdin.write("go\n")
            server.stdin.flush()
        assert [server.stdout.readline() for server in servers] == ["asked\n"] * 2
    # Not by communicate, which forgets what was read ahead.
    answers = [json.loads(server.stdout.readline()) for server in servers]
    assert [server.wait(60) for server in servers] == [0, 0]
    for server in servers:
        server.stdin.close()
        server.stdout.close()
    assert all(answers)
    assert worst(answers[0] + answers[1]) <= 0.9 + 1e-9
    # and it matters: two servers that do not see each other give too much away
    apart = [start(SERVER, f"{path}{seed}", str(seed)) for seed in (1, 2)]
    given = [json.loads(s.communicate("go\n" * 40, timeout=60)[0].split("\n")[-2]) for s in apart]
    assert worst(given[0] + given[1]) > 0.9


def test_threads_of_one_server_keep_to_the_limit(path):
    table = serving([20] * 12)
    given: list[list[float]] = []
    errors: list[BaseException] = []
    with History(path) as history:

        def ask_many(seed: int) -> None:
            rng = np.random.default_rng(seed)
            try:
                for _ in range(15):
                    chosen = (rng.random(12) < 0.5) * 1.0
                    if history.check("ann", history.table(table), [asked(chosen)]).cells[0]:
                        given.append(chosen.tolist())
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=ask_many, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not errors
    assert worst(given) <= 0.9 + 1e-9


CRASH = """
import os, signal, sys
import numpy as np
from privsql.policy.history import History
from tests.policy.spans import asked, serving
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[2] == "after":
    History._commit = die
else:
    store = History._store
    History._store = lambda *a: (store(*a), die())
history = History(sys.argv[1])
table = history.table(serving([30, 30, 30, 30]))
history.check("ann", table, [asked(np.array([1.0, 1, 1, 0]))])
print("answered", flush=True)
"""


@pytest.mark.parametrize(("when", "kept"), [("after", 1), ("before", 0)])
def test_a_crash_between_storing_and_answering(when, kept, path):
    server = start(CRASH, str(path), when)
    said, _ = server.communicate(timeout=60)
    assert server.returncode == -9
    assert said == ""
    with History(path) as history:
        # Stored and not answered counts as answered; not stored was not answered.
        assert ask(history, 1, 1, 0, 0) is (kept == 0)
    assert entries(path) == 1


def test_a_forked_process_must_open_its_own(path, monkeypatch):
    with History(path) as history:
        monkeypatch.setattr(os, "getpid", lambda: -1)
        with pytest.raises(HistoryError, match="fork"):
            ask(history, 1, 1, 0, 0)
