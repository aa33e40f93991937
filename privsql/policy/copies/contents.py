"""What a history file holds of each account, whatever the format of its entries.

An entry is a row of a table that has the columns ``account`` and ``seal``.  Entries are added in
the order of their row numbers and are never changed, and each seals the one before it:

    seal = SHA-256 of (the seal before, each other column but the row number), lengths included

So the number of an account's entries together with the newest one stands for all of them.  Where
an operator empties an account, a table ``emptied`` counts up.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import struct
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from privsql.errors import Error, OperationalError
from privsql.policy.history_file import APPLICATION, VERSION, HistoryError
from privsql.release.formats import check_format

# Tables of entries, with how many of their columns name a chain.
CHAINS = {"answered": ("account", "release", "atoms"), "answers": ("account", "served")}
EMPTIED = "emptied"
# Of a history, kept by ``mark``: its random name.  Of a backup: when it was made.
NAME, MADE = "history", "backup"


@dataclass(frozen=True)
class Point:
    """The newest entry of an account in one table: how many there are with it, and its seal."""

    entries: int
    row: int
    seal: str


Points = Mapping[str, Point]  # by table; under EMPTIED a row counts how often, with no seal


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Read a file, also while a server writes it; nothing is changed."""
    with opened(path) as connection:
        connection.execute("PRAGMA query_only = ON")
        yield connection


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """Open an existing history; what is no history, or has another format, is an error."""
    if not os.path.lexists(path):
        raise OperationalError(f"there is no history {path}", hint="check the name")
    with failing(path):
        # A file that is not there is not made: it would be an empty history.
        uri = f"{path.absolute().as_uri()}?mode=rw"
        with closing(
            sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
        ) as made:
            found = [
                made.execute(f"PRAGMA {word}").fetchone()[0]
                for word in ("application_id", "user_version")
            ]
            if found[0] != APPLICATION:
                raise HistoryError(f"{path} is not a history")
            check_format(found[1], VERSION, "the history", where=path, error=HistoryError)
            yield made


@contextmanager
def failing(path: Path) -> Iterator[None]:
    """What SQLite says, as an error that names the file: its operator may know it."""
    try:
        yield
    except Error:
        raise
    except sqlite3.DatabaseError as problem:
        code = getattr(problem, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise HistoryError(f"{path} is in use by another process", hint="try again") from None
        raise HistoryError(f"{path} is damaged, or is not a history") from None


def check_whole(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a file that SQLite finds damaged, or in which an entry is not as it was sealed."""
    if connection.execute("PRAGMA integrity_check(1)").fetchone()[0] != "ok":
        raise HistoryError(f"{path} is damaged")
    for table in _tables(connection):
        if not _sealed(connection, table):
            raise HistoryError(f"an entry of {path} is damaged, or one before it is missing")
    if "states" in _columns(connection) and not all(
        hashlib.sha256(rows).digest() == digest
        for rows, digest in connection.execute("SELECT rows, digest FROM states")
    ):
        raise HistoryError(f"the rows of an answer in {path} are damaged")


def _sealed(connection: sqlite3.Connection, table: str) -> bool:
    """Whether every entry has the seal that follows from it and from those before."""
    columns = _columns(connection)[table]
    chain = [columns.index(name) for name in CHAINS.get(table, ("account",))]
    parts = [at for at, name in enumerate(columns) if name not in ("id", "seal")]
    seals: dict[tuple[object, ...], bytes] = {}
    for row in connection.execute(f"SELECT * FROM {_quoted(table)} ORDER BY rowid"):  # noqa: S608
        key = tuple(row[at] for at in chain)
        whole = [seals.get(key, b""), *(_bytes(row[at]) for at in parts)]
        made = b"".join(struct.pack("<q", len(part)) + part for part in whole)
        seals[key] = hashlib.sha256(made).digest()
        if row[columns.index("seal")] != seals[key]:
            return False
    return True


def _bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def points(
    connection: sqlite3.Connection, after: Mapping[str, int] | None = None
) -> dict[str, dict[str, Point]]:
    """The newest entry of each account in each table; ``after``: of those with newer rows."""
    found: dict[str, dict[str, Point]] = {}
    for table in _tables(connection):
        row = (after or {}).get(table, 0)
        newest = connection.execute(
            f"SELECT account, max(rowid) FROM {_quoted(table)} WHERE rowid > ? GROUP BY account",  # noqa: S608
            (row,),
        ).fetchall()
        for account, last in newest:
            point = _point(connection, table, account, last)
            if point is not None:
                found.setdefault(account, {})[table] = point
    for account, times in emptied(connection).items():
        if account in found or after is None:
            found.setdefault(account, {})[EMPTIED] = Point(0, times, "")
    return found


def points_of(connection: sqlite3.Connection, account: str) -> dict[str, Point]:
    """The newest entry of one account in each table."""
    return points(connection).get(account, {})


def emptied(connection: sqlite3.Connection) -> dict[str, int]:
    """Accounts that an operator has emptied, with numbers that only grow."""
    if EMPTIED not in _columns(connection):
        return {}
    rows = connection.execute("SELECT account, sum(last) FROM emptied GROUP BY account").fetchall()
    return {str(account): int(times) for account, times in rows}


def holds(connection: sqlite3.Connection, account: str, known: Points) -> bool:
    """Whether all entries of an account up to the given ones are there, unchanged.

    An account that an operator has emptied since then has nothing to be compared with.
    """
    before = known[EMPTIED].row if EMPTIED in known else 0
    now = emptied(connection).get(account, 0)
    if now != before:
        return now > before
    tables = _tables(connection)
    return all(
        table in tables and _point(connection, table, account, point.row) == point
        for table, point in known.items()
        if table != EMPTIED
    )


def count(connection: sqlite3.Connection, account: str) -> int:
    """How many entries an account has."""
    return sum(
        connection.execute(
            f"SELECT count(*) FROM {_quoted(table)} WHERE account = ?",  # noqa: S608
            (account,),
        ).fetchone()[0]
        for table in _tables(connection)
    )


def note(connection: sqlite3.Connection, name: str, text: str | None) -> None:
    """Write a remark about the file into it; None removes it."""
    connection.execute(
        "CREATE TABLE IF NOT EXISTS remarks (name TEXT PRIMARY KEY, text TEXT NOT NULL) STRICT"
    )
    connection.execute("DELETE FROM remarks WHERE name = ?", (name,))
    if text is not None:
        connection.execute("INSERT INTO remarks VALUES (?, ?)", (name, text))


def noted(connection: sqlite3.Connection, name: str) -> str | None:
    """A remark about the file, if there is one."""
    there = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'remarks'").fetchone()
    if there is None:
        return None
    found = connection.execute("SELECT text FROM remarks WHERE name = ?", (name,)).fetchone()
    return None if found is None else str(found[0])


def _point(connection: sqlite3.Connection, table: str, account: str, row: int) -> Point | None:
    name = _quoted(table)
    found = connection.execute(
        f"SELECT hex(seal) FROM {name} WHERE rowid = ? AND account = ?",  # noqa: S608
        (row, account),
    ).fetchone()
    if found is None:
        return None
    entries = connection.execute(
        f"SELECT count(*) FROM {name} WHERE account = ? AND rowid <= ?",  # noqa: S608
        (account, row),
    ).fetchone()[0]
    return Point(entries, row, found[0].lower())


def _tables(connection: sqlite3.Connection) -> list[str]:
    """Tables of entries."""
    found = _columns(connection)
    return [table for table, columns in found.items() if {"account", "seal"} <= set(columns)]


def _columns(connection: sqlite3.Connection) -> dict[str, list[str]]:
    """The columns of each table."""
    names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
    return {
        str(table): [
            str(row[1]) for row in connection.execute(f"PRAGMA table_info({_quoted(table)})")
        ]
        for (table,) in names.fetchall()
    }


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
