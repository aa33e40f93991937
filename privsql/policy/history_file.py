"""The file of a history: SQLite, for its owner alone, written under a lock and never half.

answers    what each user was answered about a served table (``history``), in a sealed chain
states     the public rows that those answers were over, once a state
emptied    accounts that an operator emptied, with the last entry that went
releases   the releases that were served under the name of a table
answered   entries of formats 1 and 2 (``sketch``)
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import struct
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from privsql.errors import OperationalError
from privsql.files import sync
from privsql.release.formats import check_format

VERSION = 3
APPLICATION = 0x70_72_76_68  # "prvh"
# What format 3 adds.
EXACT = """
CREATE TABLE states (
    served TEXT NOT NULL,
    state TEXT NOT NULL,
    digest BLOB NOT NULL,
    rows BLOB NOT NULL,
    PRIMARY KEY (served, state)
) STRICT;
CREATE TABLE answers (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    account TEXT NOT NULL,
    served TEXT NOT NULL,
    state TEXT NOT NULL,
    vectors BLOB NOT NULL,
    seal BLOB NOT NULL
) STRICT;
CREATE INDEX answers_by ON answers (account, served, id);
CREATE TABLE emptied (
    account TEXT NOT NULL,
    served TEXT NOT NULL,
    last INTEGER NOT NULL,
    PRIMARY KEY (account, served)
) STRICT;
CREATE TABLE releases (
    release TEXT NOT NULL,
    served TEXT NOT NULL,
    PRIMARY KEY (release, served)
) STRICT;
"""
SCHEMA = f"""
CREATE TABLE answered (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    account TEXT NOT NULL,
    release TEXT NOT NULL,
    atoms TEXT NOT NULL,
    vectors BLOB NOT NULL,
    seal BLOB NOT NULL
) STRICT;
CREATE INDEX answered_by ON answered (account, release, atoms, id);
{EXACT}
"""
HINT = "restore the history file, or move it away: then the answers of all users are forgotten."


class HistoryError(OperationalError, code="history", sqlstate="58030"):
    """The history of answers cannot be read or written, so nothing can be answered."""


class HistoryFile:
    """One connection to the file, for one thread at a time; ``path`` None is in memory."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lock = threading.RLock()
        self._process = os.getpid()
        with typed():
            if path is not None and not path.exists():
                _create(path)
            self.connection = _open(path)
            self._file = None if path is None else _identity(path)

    def close(self) -> None:
        """Close it."""
        with self._lock:
            self.connection.close()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Read what is there now."""
        with self._lock, typed():
            self._same_file()
            yield self.connection

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction under the write lock: either all of it is on the disk, or nothing."""
        with self._lock, typed():
            self._same_file()
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield self.connection
                self.connection.execute("COMMIT")
            except BaseException:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                raise

    def _same_file(self) -> None:
        """An unlinked file still takes writes, and loses them with the process."""
        if os.getpid() != self._process:
            raise HistoryError(
                "a history cannot be used across a fork", hint="open it in each process."
            )
        if self._path is not None and _identity(self._path) != self._file:
            raise HistoryError("the history file was replaced while in use", hint=HINT)


def sealed(before: bytes, parts: Sequence[bytes]) -> bytes:
    """The seal of an entry: a digest of the one before it and of all that it holds."""
    whole = (before, *parts)
    return hashlib.sha256(b"".join(struct.pack("<q", len(p)) + p for p in whole)).digest()


@contextmanager
def typed() -> Iterator[None]:
    """What SQLite and the system say, as an error that stops the answer."""
    try:
        yield
    except sqlite3.OperationalError as error:
        kind = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if kind in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise HistoryError(
                "the history is in use by another process", hint="ask again."
            ) from error
        raise HistoryError("the history cannot be read or written", hint=HINT) from error
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise HistoryError("the history is damaged, or is not a history", hint=HINT) from error
    except OSError as error:
        raise HistoryError("the history file cannot be used", hint=HINT) from error


def _create(path: Path) -> None:
    """Make the file aside and link it into place: it is never seen without its schema."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".new")
    os.close(handle)  # mkstemp gives mode 0600, and SQLite's own files beside it inherit that
    try:
        connection = sqlite3.connect(name, isolation_level=None)
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.executescript(SCHEMA)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.close()
        try:
            os.link(name, path)
        except FileExistsError:
            return  # another process was first
        sync(path.parent)
    finally:
        os.unlink(name)


def _open(path: Path | None) -> sqlite3.Connection:
    connection = sqlite3.connect(
        ":memory:" if path is None else str(path),
        isolation_level=None,
        check_same_thread=False,
        timeout=10,
    )
    try:
        if path is None:
            connection.executescript(SCHEMA)
            return connection
        os.chmod(path, 0o600)
        marks = [
            connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("application_id", "user_version")
        ]
        if marks[0] != APPLICATION:
            # An empty file too: SQLite would take it for a new one and start from nothing.
            raise HistoryError("the file is not a history", hint=HINT)
        check_format(marks[1], VERSION, "the history", where="HISTORY", error=HistoryError)
        # Not the quick one: it does not see an index that has lost a user's entry.
        if connection.execute("PRAGMA integrity_check(1)").fetchone()[0] != "ok":
            raise HistoryError("the history is damaged", hint=HINT)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
    except BaseException:
        connection.close()
        raise
    return connection


def _identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino
