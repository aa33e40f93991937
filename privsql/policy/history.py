"""The history of each user's answers: one SQLite file, written before an answer is sent.

    check:  read what others stored  ->  propose  ->  store, synchronously  ->  commit  ->  answer

A crash after storing costs an answer that was never given; a crash before it costs nothing.
Nothing is ever forgotten in silence: each entry seals the one before it (a chain of digests
for each user and table), and a file that is damaged, swapped or not writable is an error, so
no answer leaves.  Two servers may share the file: an entry is only written under SQLite's
write lock and only if nobody else wrote for this user since it was decided.

An entry holds indices of public tuples and weights; no statement, no value, no result.
The file cannot show that it was put back to an older copy or deleted while no server ran:
whoever may write the folder can do that, so it belongs to the server alone (mode 0600).

Formats: in format 1 the secret numbers of rows (``policy.vectors``) depended on each other.
Format 2 has independent ones, under a digest of atoms of their own, so vectors in old and new
coordinates never meet in one account.  Entries of format 1 are kept as they are.  Without
measures they mean the same in both formats.  With measures the old account goes on in the old
coordinates beside the new one (``holds``): each new answer is judged in both, the worse decides.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import struct
import tempfile
import threading
import zlib
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from scipy import sparse

from privsql.errors import OperationalError
from privsql.files import sync
from privsql.policy.basis import TOGETHER
from privsql.policy.leverage import LIMIT, Admission, Atoms, Cells, Leverage, chunks
from privsql.release.formats import check_format

VERSION = 2
APPLICATION = 0x70_72_76_68  # "prvh"
SCHEMA = """
CREATE TABLE answered (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    account TEXT NOT NULL,
    release TEXT NOT NULL,
    atoms TEXT NOT NULL,
    vectors BLOB NOT NULL,
    seal BLOB NOT NULL
) STRICT;
CREATE INDEX answered_by ON answered (account, release, atoms, id);
"""
HINT = "restore the history file, or move it away: then the answers of all users are forgotten."
# Bases of users who ask rarely are dropped from memory and rebuilt from the file.
MOST_ENTRIES = 2**27
OPTIMISTIC = 2

Key = tuple[str, str, str]


class HistoryError(OperationalError, code="history", sqlstate="58030"):
    """The history of answers cannot be read or written, so nothing can be answered."""


@dataclass
class _Known:
    """One user's answers in memory, up to the entry ``last`` with its seal."""

    leverage: Leverage
    last: int = 0
    seal: bytes = b""
    lock: threading.Lock = field(default_factory=threading.Lock)


class History:
    """All users' answers; ``path`` None keeps them in memory only."""

    def __init__(self, path: Path | str | None = None, *, limit: float = LIMIT) -> None:
        self._path = None if path is None else Path(path)
        self._limit = limit
        self._known: OrderedDict[Key, _Known] = OrderedDict()
        self._gate = threading.RLock()  # guards _known
        self._database = threading.RLock()  # one connection, one thread at a time
        self._process = os.getpid()
        with _typed():
            if self._path is not None and not self._path.exists():
                _create(self._path)
            self._connection = _open(self._path)
            self._file = None if self._path is None else _identity(self._path)

    def __enter__(self) -> History:
        """Use as a context, to close it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def close(self) -> None:
        """Close the file."""
        with self._database:
            self._connection.close()

    def check(self, user: str, release: str, atoms: Atoms, cells: Cells) -> Admission:
        """Which cells may be answered; their vectors are stored when this returns."""
        key = (user, release, atoms.digest)
        known = self._of(key, atoms)
        with known.lock:
            for _ in range(OPTIMISTIC):
                with self._database, _typed():
                    self._read(key, known)
                proposal = known.leverage.propose(cells)
                if proposal.admission.added.shape[0] == 0:
                    # In the span then is in the span now: nothing to store, nothing to race.
                    return proposal.admission
                with self._writing():
                    if not self._newer(key, known):
                        row = self._store(key, known, proposal.admission.added)
                        break
            else:
                with self._writing():
                    self._read(key, known)
                    proposal = known.leverage.propose(cells)
                    row = self._store(key, known, proposal.admission.added)
            known.last, known.seal = row
            known.leverage.commit(proposal)
        self._forget()
        return proposal.admission

    def holds(self, user: str, release: str, atoms: Atoms) -> bool:
        """Whether this user has been answered anything in these coordinates."""
        with self._database, _typed():
            self._same_file()
            found = self._connection.execute(
                "SELECT 1 FROM answered WHERE account = ? AND release = ? AND atoms = ? LIMIT 1",
                (user, release, atoms.digest),
            ).fetchone()
        return found is not None

    # -- memory --------------------------------------------------------------------------

    def _of(self, key: Key, atoms: Atoms) -> _Known:
        with self._gate:
            if key not in self._known:
                self._known[key] = _Known(Leverage(atoms, limit=self._limit))
            self._known.move_to_end(key)
            return self._known[key]

    def _forget(self) -> None:
        """Drop the bases that were used longest ago; the file has them."""
        with self._gate:
            held = sum(known.leverage.entries for known in self._known.values())
            for key in list(self._known)[:-1]:
                if held <= MOST_ENTRIES:
                    break
                if not self._known[key].lock.locked():
                    held -= self._known.pop(key).leverage.entries

    # -- file ----------------------------------------------------------------------------

    def _newer(self, key: Key, known: _Known) -> bool:
        found = self._connection.execute(
            "SELECT max(id) FROM answered WHERE account = ? AND release = ? AND atoms = ?", key
        ).fetchone()[0]
        return (found or 0) != known.last

    def _read(self, key: Key, known: _Known) -> None:
        """Read entries that this process has not seen, and verify the old ones."""
        self._same_file()
        rows = self._connection.execute(
            "SELECT id, vectors, seal FROM answered WHERE account = ? AND release = ?"
            " AND atoms = ? AND id >= ? ORDER BY id",
            (*key, known.last),
        ).fetchall()
        if known.last:
            if not rows or rows[0][0] != known.last or rows[0][2] != known.seal:
                raise HistoryError("the history has lost entries", hint=HINT)
            rows = rows[1:]
        if not rows:
            return
        seal, batches = known.seal, []
        for _, blob, found in rows:
            seal = _seal(seal, key, blob)
            if seal != found:
                raise HistoryError("an entry of the history is damaged", hint=HINT)
            batches.append(_unpack(blob, known.leverage.atoms.rows.size))
        known.leverage.restore(_merged(batches))
        known.last, known.seal = rows[-1][0], seal

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """One transaction under the write lock: either all of it is on the disk, or nothing."""
        with self._database, _typed():
            self._same_file()
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def _store(self, key: Key, known: _Known, vectors: sparse.csr_array) -> tuple[int, bytes]:
        if vectors.shape[0] == 0:
            return known.last, known.seal
        blob = _pack(vectors)
        seal = _seal(known.seal, key, blob)
        done = self._connection.execute(
            "INSERT INTO answered (account, release, atoms, vectors, seal) VALUES (?, ?, ?, ?, ?)",
            (*key, blob, seal),
        )
        return int(done.lastrowid or 0), seal

    def _same_file(self) -> None:
        """An unlinked file still takes writes, and loses them with the process."""
        if os.getpid() != self._process:
            raise HistoryError(
                "a history cannot be used across a fork", hint="open it in each process."
            )
        if self._path is not None and _identity(self._path) != self._file:
            raise HistoryError("the history file was replaced while in use", hint=HINT)


@contextmanager
def _typed() -> Iterator[None]:
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
    except sqlite3.Error as error:
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


def _seal(before: bytes, key: Key, blob: bytes) -> bytes:
    parts = [before, *(part.encode() for part in key), blob]
    return hashlib.sha256(b"".join(struct.pack("<q", len(p)) + p for p in parts)).digest()


def _pack(vectors: sparse.csr_array) -> bytes:
    """Lengths of the vectors, indices of atoms, weights; little-endian."""
    lengths = np.diff(vectors.indptr).astype("<i4")
    parts = (lengths, vectors.indices.astype("<i4"), vectors.data.astype("<f8"))
    head = struct.pack("<qq", lengths.size, vectors.nnz)
    return zlib.compress(head + b"".join(part.tobytes() for part in parts), 1)


def _unpack(blob: bytes, atoms: int) -> sparse.csr_array:
    try:
        plain = zlib.decompress(blob)
        rows, entries = struct.unpack_from("<qq", plain)
        lengths = np.frombuffer(plain, "<i4", rows, 16)
        indices = np.frombuffer(plain, "<i4", entries, 16 + 4 * rows)
        data = np.frombuffer(plain, "<f8", entries, 16 + 4 * rows + 4 * entries)
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        made = sparse.csr_array((data, indices, indptr), shape=(rows, atoms))
        made.check_format(full_check=True)
    except (zlib.error, struct.error, ValueError) as error:
        raise HistoryError("an entry of the history is damaged", hint=HINT) from error
    return made


def _merged(batches: list[sparse.csr_array]) -> Iterator[sparse.csr_array]:
    """Small entries together, so that a restart takes matrix products instead of vectors."""
    for some in chunks(batches, [batch.shape[0] for batch in batches], TOGETHER - 1):
        yield sparse.csr_array(sparse.vstack(some, format="csr"))
