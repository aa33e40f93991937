"""Backups of the history, and what shows that an older one was put back."""

from __future__ import annotations

import json
import shutil
import sqlite3
import struct
import threading
from collections.abc import Callable
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest

from privsql.errors import Error, OperationalError, ProgrammingError
from privsql.policy.copies.backup import accept, backup, restore, verify
from privsql.policy.copies.contents import points, reading
from privsql.policy.copies.mark import (
    AccountClosed,
    Keeper,
    Loss,
    beside,
    check_present,
    entries,
    read_mark,
)
from privsql.policy.history import History, HistoryError
from privsql.policy.limits import Limits
from privsql.session.gate import Served
from privsql.session.session import Session
from tests.sql.clinic import publish

SMALL = Limits(memory="200MB", threads=1)
FLU = "SELECT count(*) FROM patients WHERE disease = 'flu' AND job = '{}'"
Ask = Callable[[Path, str, str], None]


@pytest.fixture(scope="module")
def ask(tmp_path_factory) -> Ask:
    """Put a question to a release as a server would; it is entered in a history."""
    release = publish(tmp_path_factory.mktemp("clinic"), 0.5, policy="refuse", least=10)

    def asked(history: Path, user: str, job: str) -> None:
        with (
            History(history) as made,
            closing(Session(release, served=Served(user, made), limits=SMALL)) as session,
        ):
            session.run(FLU.format(job))

    return asked


@pytest.fixture(scope="module")
def stages(ask, tmp_path_factory) -> Path:
    """A marked history of ann (1 entry) and bob (1), its backup, and the same with ann's second."""
    folder = tmp_path_factory.mktemp("stages")
    path = folder / "history"
    ask(path, "ann", "eng")
    ask(path, "bob", "law")
    marked(path)
    backup(path, folder / "backup")
    ask(path, "ann", "med")
    marked(path)
    return folder


@pytest.fixture
def history(stages, tmp_path) -> Path:
    """The newer history with its mark, and the backup of the older one beside it."""
    for name in ("history", "history.mark", "backup"):
        shutil.copy(stages / name, tmp_path / name)
    return tmp_path / "history"


def marked(path: Path) -> None:
    """A server starts and stops."""
    check_present(path)
    with Keeper(path):
        pass


def held(path: Path) -> dict[str, int]:
    with reading(path) as connection:
        return {
            account: sum(point.entries for point in each.values())
            for account, each in points(connection).items()
        }


def put_back(history: Path) -> None:
    """What an operator does who has no command for it."""
    history.unlink()
    shutil.copy(history.parent / "backup", history)


def forget(history: Path, account: str) -> None:
    """Delete all entries of an account."""
    with closing(sqlite3.connect(history, isolation_level=None)) as connection:
        for table in entry_tables(connection):
            connection.execute(f"DELETE FROM {table} WHERE account = ?", (account,))


# -- backups -------------------------------------------------------------------------------


def test_a_backup_is_one_private_file_with_all_entries(history, tmp_path):
    found = backup(history, tmp_path / "copy")
    assert (found.accounts, found.entries) == (2, 3)
    assert held(tmp_path / "copy") == held(history) == {"ann": 2, "bob": 1}
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o600
    assert verify(tmp_path / "copy").made is not None
    assert verify(history).made is None
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith("copy")) == ["copy"]


def test_a_backup_while_a_server_writes_has_entries_of_one_moment(history, ask, tmp_path):
    """The writer's connection stays open, and what it wrote last is in SQLite's log alone."""
    with closing(sqlite3.connect(history, isolation_level=None)) as writer:
        assert writer.execute("PRAGMA journal_mode = WAL").fetchone() == ("wal",)
        ask(history, "cyd", "eng")
        assert history.with_name("history-wal").stat().st_size > 0
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("DELETE FROM sqlite_sequence")  # not committed: nobody sees it
        backup(history, tmp_path / "copy")
        writer.execute("ROLLBACK")
    assert held(tmp_path / "copy") == {"ann": 2, "bob": 1, "cyd": 1}


@pytest.mark.parametrize("kind", ["exists", "itself", "folder", "missing", "text", "empty"])
def test_a_backup_that_cannot_be(history, tmp_path, kind):
    target, source = tmp_path / "copy", history
    if kind == "exists":
        target.write_text("precious")
    elif kind == "itself":
        target = history
    elif kind == "folder":
        target = tmp_path / "nosuch" / "copy"
    else:
        source = tmp_path / "other"
        if kind != "missing":
            source.write_text("no database" * 100 if kind == "text" else "")
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    with pytest.raises(Error):
        backup(source, target)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir() if "-" not in p.name} == before


@pytest.mark.parametrize("what", ["entry", "seal", "lost", "page", "cut"])
def test_damage_is_found(history, tmp_path, what):
    """A changed entry, a changed seal, an entry that is gone, bytes of the file, a part of it."""
    copy = tmp_path / "copy"
    backup(history, copy)
    if what in ("page", "cut"):
        data = bytearray(copy.read_bytes())
        if what == "page":
            data[4096 + 5 : 4096 + 200] = bytes(195)
        copy.write_bytes(data if what == "page" else data[: len(data) // 2])
    else:
        with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
            (table,) = entry_tables(connection)
            first = f"rowid = (SELECT min(rowid) FROM {table} WHERE account = 'ann')"
            if what == "lost":
                connection.execute(f"DELETE FROM {table} WHERE {first}")
            else:
                column = "seal" if what == "seal" else blob_of(connection, table)
                connection.execute(f"UPDATE {table} SET {column} = zeroblob(32) WHERE {first}")
    with pytest.raises(HistoryError):
        verify(copy)
    with pytest.raises(HistoryError):
        restore(copy, tmp_path / "restored")
    assert not (tmp_path / "restored").exists()
    assert not beside(tmp_path / "restored").exists()


def entry_tables(connection: sqlite3.Connection) -> list[str]:
    tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    return [
        name
        for (name,) in tables
        if {"account", "seal"} <= {column for column, _ in columns(connection, name)}
        and connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0]
    ]


def blob_of(connection: sqlite3.Connection, table: str) -> str:
    """A column of what was answered."""
    return next(
        name for name, kind in columns(connection, table) if kind == "BLOB" and name != "seal"
    )


def columns(connection: sqlite3.Connection, table: str) -> list[tuple[str, str]]:
    return [row[1:3] for row in connection.execute(f"PRAGMA table_info({table})")]


# -- the mark ------------------------------------------------------------------------------


def test_a_history_gets_a_mark_and_agrees_with_it(history):
    found = json.loads(beside(history).read_text())
    assert sorted(found["accounts"]) == ["ann", "bob"]
    assert beside(history).stat().st_mode & 0o777 == 0o600
    assert verify(history).lost == ()
    marked(history)


def test_the_mark_rises_while_entries_are_added(history, ask):
    before = beside(history).read_bytes()
    with Keeper(history) as keeper:
        keeper.advance()
        assert beside(history).read_bytes() == before
        ask(history, "cyd", "law")
        keeper.advance()
        assert "cyd" in read_mark(beside(history)).accounts
        ask(history, "bob", "eng")
    assert entries(read_mark(beside(history)).accounts["bob"]) == 2


def test_an_older_history_stops_the_start(history):
    """Its copy is whole and sealed; only the mark knows more."""
    put_back(history)
    assert held(history) == {"ann": 1, "bob": 1}
    with pytest.raises(HistoryError, match=r"older than its mark .* \(ann: 1 of 2 entries\)") as it:
        marked(history)
    assert f"privsql history accept {history}" in it.value.hint
    assert list(verify(history).lost) == [Loss("ann", 2, 1)]


def test_an_older_history_that_grew_again_stops_the_start(history, ask):
    """As many entries as there were, by a program that knows of no mark."""
    put_back(history)
    ask(history, "ann", "law")
    assert held(history) == {"ann": 2, "bob": 1}
    with pytest.raises(HistoryError, match="older than its mark"):
        marked(history)


def test_entries_that_were_deleted_stop_the_start(history):
    forget(history, "bob")
    with pytest.raises(HistoryError, match=r"bob: 0 of 1 entry"):
        marked(history)


def test_a_history_that_is_gone_stops_the_start(history):
    history.unlink()
    with pytest.raises(HistoryError, match="is missing, and its mark"):
        marked(history)
    assert not history.exists()


@pytest.mark.parametrize("older", [False, True])
def test_a_mark_that_is_gone_stops_the_start(history, older):
    if older:
        put_back(history)
    beside(history).unlink()
    with pytest.raises(HistoryError, match=r"the mark .* is missing"):
        marked(history)


def test_the_mark_of_another_history_stops_the_start(history, ask, tmp_path):
    other = tmp_path / "other"
    ask(other, "ann", "eng")
    marked(other)
    shutil.copy(beside(other), beside(history))
    with pytest.raises(HistoryError, match="is not that of the history"):
        marked(history)
    with pytest.raises(HistoryError, match="copy of another history"):
        verify(history)
    with pytest.raises(HistoryError, match="copy of another history"):
        accept(history, everyone=True)


@pytest.mark.parametrize("text", ["", "{}", "[1]", None])
def test_a_damaged_mark_stops_the_start(history, text):
    whole = beside(history).read_text()
    beside(history).write_text(whole.replace('"ann"', '"bnn"') if text is None else text)
    with pytest.raises(HistoryError, match="cannot be read"):
        marked(history)


def test_a_history_of_an_earlier_version_gets_a_mark(ask, tmp_path):
    path = tmp_path / "history"
    ask(path, "ann", "eng")
    marked(path)
    assert list(read_mark(beside(path)).accounts) == ["ann"]


def test_nothing_was_answered_so_nothing_is_lost(tmp_path):
    path = tmp_path / "history"
    History(path).close()
    marked(path)
    path.unlink()
    check_present(path)
    History(path).close()
    marked(path)


def test_a_mark_on_another_disk(history, tmp_path):
    """The whole folder is put back, both files; the third is not."""
    away = tmp_path / "disk" / "mark"
    away.parent.mkdir()
    shutil.copy(beside(history), away)
    put_back(history)
    beside(history).unlink()
    with pytest.raises(HistoryError, match="older than its mark") as told, Keeper(history, away):
        pass
    # A command that is told without the mark would find none beside the history.
    assert f"privsql history accept {history} --mark {away}" in str(told.value.hint)
    history.unlink()
    with pytest.raises(HistoryError, match="is missing") as told:
        check_present(history, away)
    assert f"restore FILE -o {history} --mark {away};" in str(told.value.hint)
    assert f"accept {history} --mark {away}" in str(told.value.hint)


def test_a_mark_in_a_folder_that_is_none(history, tmp_path):
    with pytest.raises(OperationalError, match="there is no folder"):
        check_present(history, tmp_path / "nosuch" / "mark")


def test_commands_wait_for_servers_and_servers_share(history, tmp_path):
    with Keeper(history), Keeper(history):
        for change in (lambda: accept(history), lambda: restore(tmp_path / "backup", history)):
            with pytest.raises(HistoryError, match="in use"):
                change()
    accept(history)


def test_two_servers_never_lower_the_mark(history, ask):
    with Keeper(history) as first, Keeper(history) as second:
        ask(history, "ann", "law")
        first.advance()
        risen = read_mark(beside(history)).accounts
        second.advance()
        assert read_mark(beside(history)).accounts == risen
        done = threading.Barrier(2, timeout=30)
        for keeper in (first, second):
            threading.Thread(target=lambda k=keeper: (k.advance(), done.wait())).start()
    assert read_mark(beside(history)).accounts == risen


# -- restoring -----------------------------------------------------------------------------


def test_a_restored_backup_closes_the_accounts_that_lost_entries(history, ask):
    history.unlink()
    lost = restore(history.with_name("backup"), history)
    assert lost == [Loss("ann", 2, 1)]
    assert held(history) == {"ann": 1, "bob": 1}
    assert history.stat().st_mode & 0o777 == 0o600
    for _ in range(2):  # also after another start
        with Keeper(history) as keeper:
            assert list(keeper.closed) == lost
            keeper.check("bob")
            keeper.check("dan")
            with pytest.raises(AccountClosed, match="the account is closed") as problem:
                keeper.check("ann")
            assert problem.value.sqlstate == "42501"
            ask(history, "bob", "med")
    assert verify(history).lost == tuple(lost)
    assert entries(read_mark(beside(history)).accounts["bob"]) == 2


def test_a_loss_is_accepted_by_name(history):
    history.unlink()
    restore(history.with_name("backup"), history)
    assert accept(history) == ([], [Loss("ann", 2, 1)])
    assert accept(history, accounts=["ann"]) == ([Loss("ann", 2, 1)], [])
    assert read_mark(beside(history)).restored is None
    with Keeper(history) as keeper:
        keeper.check("ann")
    with pytest.raises(ProgrammingError, match="has lost nothing"):
        accept(history, accounts=["bob"])


def test_an_older_history_is_accepted_with_accounts_closed(history):
    """Without a name no loss is accepted: the server starts, and ann stays closed."""
    put_back(history)
    assert accept(history) == ([], [Loss("ann", 2, 1)])
    with Keeper(history) as keeper, pytest.raises(AccountClosed):
        keeper.check("ann")
    # A second rollback is not covered by what was said of the first.
    forget(history, "ann")
    with pytest.raises(HistoryError, match="older than its mark"):
        marked(history)


def test_a_backup_without_any_loss_closes_nothing(history, tmp_path):
    backup(history, tmp_path / "newest")
    history.unlink()
    assert restore(tmp_path / "newest", history) == []
    with Keeper(history) as keeper:
        assert keeper.closed == []
        keeper.check("ann")
    assert verify(history).made is None


def test_without_a_mark_every_account_is_closed(history, tmp_path):
    """On another machine nobody knows what is newer than the backup."""
    there = tmp_path / "there" / "history"
    there.parent.mkdir()
    lost = restore(tmp_path / "backup", there)
    assert lost == [Loss("ann", None, 1), Loss("bob", None, 1)]
    with Keeper(there) as keeper:
        for user in ("ann", "bob", "stranger"):
            with pytest.raises(AccountClosed):
                keeper.check(user)
    taken, left = accept(there, accounts=["ann", "stranger"])
    assert taken == [Loss("ann", None, 1), Loss("stranger", None, 0)]
    assert left == [Loss("bob", None, 1)]
    with Keeper(there) as keeper:
        keeper.check("ann")
        keeper.check("stranger")
        with pytest.raises(AccountClosed):
            keeper.check("bob")
    assert accept(there, everyone=True) == ([Loss("bob", None, 1)], [])
    with Keeper(there) as keeper:
        keeper.check("bob")
        keeper.check("anybody")
    assert verify(there).lost == ()


def test_a_mark_that_is_gone_is_accepted_account_by_account(history):
    beside(history).unlink()
    accept(history, accounts=["bob"])
    with Keeper(history) as keeper:
        keeper.check("bob")
        with pytest.raises(AccountClosed):
            keeper.check("ann")


def test_a_history_that_is_gone_is_begun_anew(history):
    history.unlink()
    taken, left = accept(history, accounts=["bob"])
    assert (taken, left) == ([Loss("bob", 1, 0)], [Loss("ann", 2, 0)])
    with Keeper(history) as keeper:
        keeper.check("bob")
        with pytest.raises(AccountClosed):
            keeper.check("ann")


def test_a_restore_never_replaces_a_history(history, tmp_path):
    before = history.read_bytes(), beside(history).read_bytes()
    with pytest.raises(OperationalError, match="exists already"):
        restore(tmp_path / "backup", history)
    assert (history.read_bytes(), beside(history).read_bytes()) == before


def test_a_restore_that_is_cut_off_is_done_again(history, monkeypatch, tmp_path):
    """The mark is written first: a start in between finds no history."""
    history.unlink()

    def fail(*_: object, **__: object) -> None:
        raise KeyboardInterrupt("power")

    with monkeypatch.context() as patched:
        patched.setattr("privsql.files.os.link", fail)  # how a new file comes into view
        with pytest.raises(KeyboardInterrupt, match="power"):
            restore(tmp_path / "backup", history)
    with pytest.raises(HistoryError, match="is missing"):
        check_present(history)
    assert restore(tmp_path / "backup", history) == [Loss("ann", 2, 1)]


# -- entries of other formats ----------------------------------------------------------------

# Tables of another format: entries of other columns, rows by digest, accounts that were emptied.
LATER = """
CREATE TABLE replies (id INTEGER PRIMARY KEY AUTOINCREMENT, account TEXT, served TEXT, state TEXT,
    vectors BLOB, seal BLOB);
CREATE TABLE IF NOT EXISTS states (served TEXT, state TEXT, digest BLOB, rows BLOB);
CREATE TABLE IF NOT EXISTS emptied (account TEXT, served TEXT, last INTEGER,
    PRIMARY KEY (account, served));
"""


@pytest.fixture
def later(history) -> Path:
    with closing(sqlite3.connect(history, isolation_level=None)) as connection:
        connection.executescript(LATER)
        connection.execute(
            "INSERT INTO states VALUES ('t', 's', ?, ?)", (sha256(b"rows").digest(), b"rows")
        )
    for account in ("ann", "bob", "ann"):
        enter(history, account)
    marked(history)
    return history


def enter(history: Path, account: str) -> None:
    """An entry that continues its account's chain."""
    with closing(sqlite3.connect(history, isolation_level=None)) as connection:
        last = connection.execute(
            "SELECT seal FROM replies WHERE account = ? ORDER BY id DESC LIMIT 1", (account,)
        ).fetchone()
        parts = [last[0] if last else b"", account.encode(), b"t", b"s", b"weights"]
        seal = sha256(b"".join(struct.pack("<q", len(p)) + p for p in parts)).digest()
        row = (account, "t", "s", b"weights", seal)
        names = "account, served, state, vectors, seal"
        connection.execute(f"INSERT INTO replies ({names}) VALUES (?, ?, ?, ?, ?)", row)


def test_entries_of_all_tables_are_marked_and_verified(later):
    found = read_mark(beside(later)).accounts
    assert {name: entries(each) for name, each in found.items()} == {"ann": 4, "bob": 2}
    assert verify(later).entries == 6
    with closing(sqlite3.connect(later, isolation_level=None)) as connection:
        connection.execute("DELETE FROM replies WHERE id = 3")
    with pytest.raises(HistoryError, match=r"ann: 3 of 4 entries"):
        marked(later)


@pytest.mark.parametrize(
    "change",
    ["UPDATE replies SET state = 'u' WHERE id = 1", "UPDATE states SET rows = x'00'"],
)
def test_damage_of_a_later_format_is_found(later, change):
    with closing(sqlite3.connect(later, isolation_level=None)) as connection:
        connection.execute(change)
    with pytest.raises(HistoryError, match="damaged"):
        verify(later)


@pytest.mark.parametrize("running", [False, True])
def test_an_account_that_an_operator_empties_has_lost_nothing(later, running):
    """Whether a server runs meanwhile or not; an older copy is noticed as before."""
    older = later.with_name("older")
    backup(later, older)
    if running:
        with Keeper(later) as keeper:
            empty(later, "ann")
            keeper.advance()
            enter(later, "ann")
    else:
        empty(later, "ann")
        marked(later)
        enter(later, "ann")
        marked(later)
    assert entries(read_mark(beside(later)).accounts["ann"]) == 1
    marked(later)
    later.unlink()
    shutil.copy(older, later)
    with pytest.raises(HistoryError, match="older than its mark"):
        marked(later)


def empty(history: Path, account: str) -> None:
    """As the command of an operator does."""
    forget(history, account)
    with closing(sqlite3.connect(history, isolation_level=None)) as connection:
        connection.execute("INSERT INTO emptied VALUES (?, 't', 4)", (account,))
