"""Users' answers in histories of formats 1 and 2, and those that were given since.

In format 1 the secret numbers of rows (``vectors``) depended on each other; format 2 has
independent ones, under a digest of atoms of their own, so vectors in both coordinates never meet
in one account.  Each new answer of a user who has such entries is judged in all of them.
"""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from scipy import sparse

from privsql.policy.functions import Atoms
from privsql.policy.history_file import HINT, HistoryError, HistoryFile, sealed
from privsql.policy.sketch.leverage import Admission, Cells, Leverage, chunks
from privsql.policy.wide import TOGETHER

Key = tuple[str, str, str]
OPTIMISTIC = 2


@dataclass
class _Known:
    """One user's answers in memory, up to the entry ``last`` with its seal."""

    leverage: Leverage
    last: int = 0
    seal: bytes = b""
    lock: threading.Lock = field(default_factory=threading.Lock)


class SketchAccounts:
    """The accounts of a history's entries of formats 1 and 2."""

    def __init__(self, file: HistoryFile) -> None:
        self._file = file
        self._known: dict[Key, _Known] = {}
        self._gate = threading.Lock()

    def holds(self, user: str, release: str, atoms: Atoms | None = None) -> bool:
        """Whether this user has been answered anything, in these coordinates or in any."""
        query = "SELECT 1 FROM answered WHERE account = ? AND release = ?"
        given: tuple[str, ...] = (user, release)
        if atoms is not None:
            query, given = f"{query} AND atoms = ?", (*given, atoms.digest)
        with self._file.reading() as connection:
            return connection.execute(f"{query} LIMIT 1", given).fetchone() is not None

    def check(self, user: str, release: str, atoms: Atoms, cells: Cells) -> Admission:
        """Which cells may be answered; their vectors are stored when this returns."""
        key = (user, release, atoms.digest)
        with self._gate:
            known = self._known.setdefault(key, _Known(Leverage(atoms)))
        with known.lock:
            for _ in range(OPTIMISTIC):
                with self._file.reading():
                    self._read(key, known)
                proposal = known.leverage.propose(cells)
                if proposal.admission.added.shape[0] == 0:
                    # In the span then is in the span now: nothing to store, nothing to race.
                    return proposal.admission
                with self._file.writing():
                    if not self._newer(key, known):
                        row = self._store(key, known, proposal.admission.added)
                        break
            else:
                with self._file.writing():
                    self._read(key, known)
                    proposal = known.leverage.propose(cells)
                    row = self._store(key, known, proposal.admission.added)
            known.last, known.seal = row
            known.leverage.commit(proposal)
        return proposal.admission

    def _newer(self, key: Key, known: _Known) -> bool:
        found = self._file.connection.execute(
            "SELECT max(id) FROM answered WHERE account = ? AND release = ? AND atoms = ?", key
        ).fetchone()[0]
        return (found or 0) != known.last

    def _read(self, key: Key, known: _Known) -> None:
        """Read entries that this process has not seen, and verify the old ones."""
        rows = self._file.connection.execute(
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

    def _store(self, key: Key, known: _Known, vectors: sparse.csr_array) -> tuple[int, bytes]:
        if vectors.shape[0] == 0:
            return known.last, known.seal
        blob = pack(vectors)
        seal = _seal(known.seal, key, blob)
        done = self._file.connection.execute(
            "INSERT INTO answered (account, release, atoms, vectors, seal) VALUES (?, ?, ?, ?, ?)",
            (*key, blob, seal),
        )
        return int(done.lastrowid or 0), seal


def _seal(before: bytes, key: Key, blob: bytes) -> bytes:
    return sealed(before, [*(part.encode() for part in key), blob])


def pack(vectors: sparse.csr_array) -> bytes:
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
