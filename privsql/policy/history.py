"""The history of each user's answers: one file, written before an answer is sent.

    check:  read what others stored  ->  propose  ->  store, synchronously  ->  commit  ->  answer

A crash after storing costs an answer that was never given; a crash before it costs nothing.
Nothing is ever forgotten in silence: each entry seals the one before it (a chain of digests
for each user and served table), and a file that is damaged, swapped or not writable is an error,
so no answer leaves.  Two servers may share the file: an entry is only written under SQLite's
write lock and only if nobody else wrote for this user since it was decided.

An account belongs to a user and the *name* of a served table, whichever file, key or state of rows
is behind that name.  So an entry holds what can be evaluated anew: for each vector the text of its
row function with all constants, the key of its cell, and weights of public tuples, which
``states`` has with their values and all public rows of the time (``public_rows``).  It holds no
statement, no sensitive value and no result.  ``served_table`` says how answers over earlier
states are judged.  Only an operator's command empties an account (``clear``).

An older copy in its place, or none, is shown by a mark beside the file (``policy.copies``).
Whoever may write both can put both back, so they belong to the server alone (mode 0600).

Entries of formats 1 and 2 are kept as they are (``policy.sketch``): each new answer about the
same release is judged there, too.  They cannot be evaluated anew, so when another release is
served under the name of its table, such a user is answered nothing until an operator empties
the account.
"""

from __future__ import annotations

import hashlib
import json
import logging
import struct
import threading
import zlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from privsql.errors import DataError, Error
from privsql.policy.account import Account, Part, Proposal, Standing
from privsql.policy.base import Asked, Base
from privsql.policy.functions import Bools
from privsql.policy.history_file import (
    EXACT,
    HINT,
    SCHEMA,
    VERSION,
    HistoryError,
    HistoryFile,
    sealed,
)
from privsql.policy.public_rows import PublicRows
from privsql.policy.served_table import Cell, Renamed, ServedTable, Serving

if TYPE_CHECKING:
    from privsql.policy.sketch.accounts import SketchAccounts

__all__ = ["EXACT", "SCHEMA", "VERSION", "Admitted", "History", "HistoryError"]

# Accounts of users who ask rarely are dropped from memory and rebuilt from the file.
MOST_ENTRIES = 2**27
OPTIMISTIC = 2
MAPPED = "an operator must empty the account: privsql history clear."
log = logging.getLogger("privsql.history")

Key = tuple[str, str]  # user, name of the served table


@dataclass(frozen=True)
class Admitted:
    """Which cells may be answered, the cap that was met, and how the account stands now."""

    cells: Bools
    cap: str | None
    before: Standing
    after: Standing


@dataclass
class _Known:
    """One user's accounts in memory, one for each base, up to the entry ``last``."""

    bases: tuple[Base, ...]
    accounts: tuple[Account, ...]
    last: int = 0
    seal: bytes = b""
    emptied: int = 0
    vectors: set[bytes] = field(default_factory=set)  # digests of what was answered
    answers: int = 0


class History:
    """All users' answers; ``path`` None keeps them in memory only."""

    def __init__(self, path: Path | str | None = None) -> None:
        self._file = HistoryFile(None if path is None else Path(path))
        self._known: OrderedDict[tuple[Key, str], _Known] = OrderedDict()
        self._locks: dict[Key, threading.RLock] = {}
        self._gate = threading.RLock()  # guards the dictionaries
        self._tables: dict[str, ServedTable] = {}
        self._older: SketchAccounts | None = None

    def __enter__(self) -> History:
        """Use as a context, to close it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def close(self) -> None:
        """Close the file."""
        with self._gate:
            for table in self._tables.values():
                table.close()
            self._tables.clear()
        self._file.close()

    def account_of(self, user: str) -> str:
        """The account that a user's answers are written to."""
        return user

    @property
    def sketched(self) -> SketchAccounts:
        """The accounts of entries of formats 1 and 2."""
        with self._gate:
            if self._older is None:
                from privsql.policy.sketch.accounts import SketchAccounts

                self._older = SketchAccounts(self._file)
            return self._older

    # -- tables --------------------------------------------------------------------------

    def table(self, serving: Serving) -> ServedTable:
        """What is served under a name, with the states that answers are over."""
        with self._gate:
            known = self._tables.get(serving.name)
            if known is None or known.serving.state != serving.state:
                known = self._tables[serving.name] = ServedTable(
                    serving, self._states(serving.name)
                )
        if known.load(serving):
            self._name(serving)
        return known

    def _name(self, serving: Serving) -> None:
        """Note which release is served under a name, where older entries know releases alone."""
        with self._file.reading() as connection:
            if connection.execute("SELECT 1 FROM answered LIMIT 1").fetchone() is None:
                return
        with self._file.writing() as connection:
            connection.execute(
                "INSERT OR IGNORE INTO releases (release, served) VALUES (?, ?)",
                (serving.release, serving.name),
            )

    def _states(self, name: str) -> dict[str, _Stored]:
        with self._file.reading() as connection:
            found = connection.execute(
                "SELECT state FROM states WHERE served = ? ORDER BY rowid", (name,)
            ).fetchall()
        return {state: _Stored(self._file, name, state) for (state,) in found}

    # -- deciding ------------------------------------------------------------------------

    def check(self, user: str, table: ServedTable, cells: Sequence[Cell]) -> Admitted:
        """Which cells may be answered; their vectors are stored when this returns."""
        key = (self.account_of(user), table.serving.name)
        # Functions are evaluated before anybody has to wait for this.
        state = table.serving.state
        table.base.prepare((asked for cell in cells for asked in cell), state)
        for cell in cells:
            for asked in cell:
                table.base.part(asked, state)
        with self._lock(key):
            self._not_older(key, table)
            for _ in range(OPTIMISTIC):
                known = self._read(key, table)
                made = self._propose(known, table, cells)
                if not made.added:
                    # In the span then is in the span now: nothing to store, nothing to race.
                    return made.admitted
                rows = self._rows_to_store(table)
                with self._file.writing():
                    if self._last(key) == known.last and self._emptied(key) == known.emptied:
                        self._store(key, known, table, made, rows)
                        break
            else:
                rows = self._rows_to_store(table)
                with self._file.writing():
                    known = self._read(key, table)
                    made = self._propose(known, table, cells)
                    self._store(key, known, table, made, rows)
            self._commit(known, made)
        self._forget()
        return made.admitted

    def reserve(self, table: ServedTable, cells: Sequence[Cell]) -> None:
        """Put cells into every account of a table from its start."""
        with self._gate:
            table.reserved = tuple(cells)
            for name in [name for name in self._known if name[0][1] == table.serving.name]:
                del self._known[name]

    def give_up(self, name: str) -> None:
        """Reserve nothing for a table any more."""
        with self._gate:
            table = self._tables.get(name)
            if table is not None and table.reserved:
                self.reserve(table, ())

    def standing(self, user: str, table: ServedTable) -> Standing:
        """How close a user's answers are to the limits, exactly."""
        key = (self.account_of(user), table.serving.name)
        with self._lock(key):
            known = self._read(key, table)
            found = [account.standing(exact=True) for account in known.accounts]
            return max(found, key=lambda each: each.share).counting(known.answers)

    def _lock(self, key: Key) -> threading.RLock:
        with self._gate:
            return self._locks.setdefault(key, threading.RLock())

    def _propose(self, known: _Known, table: ServedTable, cells: Sequence[Cell]) -> _Made:
        """Cells that every account admits; a cell that was answered before is admitted as it is."""
        state = table.serving.state
        digests = [[_digest(asked, state) for asked in cell] for cell in cells]
        old = [known.vectors.issuperset(each) for each in digests]
        left = [c for c, known_before in enumerate(old) if not known_before]
        before = known.accounts[0].standing()
        if not left:
            every = np.ones(len(cells), dtype=np.bool_)
            return _Made(Admitted(every, None, before, before), [], {})
        cap: str | None = None
        kept = left
        while True:
            proposals = []
            for base, account in zip(known.bases, known.accounts, strict=True):
                parts = [_parts(base, cells[c], state) for c in left]
                proposal = account.propose(parts)
                proposals.append(proposal)
                cap = cap or proposal.admission.cap
                kept = [c for c, yes in zip(left, proposal.admission.admitted, strict=True) if yes]
                if len(kept) < len(left):
                    break
            if len(kept) == len(left) or len(known.bases) == 1:
                break
            # What one account turns away must not weigh on the others: they decide again.
            left = kept
        admitted = np.array(old, dtype=np.bool_)
        admitted[kept] = True
        added: dict[bytes, Asked] = {}
        # What lies in the span of reserved answers is stored as well: they may be given up.
        if table.reserved or any(proposal.admission.added for proposal in proposals):
            for c in kept:
                new = dict(zip(digests[c], cells[c], strict=True))
                added |= {name: new[name] for name in new if name not in known.vectors}
        after = proposals[0].standing
        return _Made(Admitted(admitted, cap, before, after), proposals, added)

    def _commit(self, known: _Known, made: _Made) -> None:
        for account, proposal in zip(known.accounts, made.proposals, strict=True):
            account.commit(proposal)
        known.vectors.update(made.added)
        known.answers += len(made.added)

    # -- memory --------------------------------------------------------------------------

    def _forget(self) -> None:
        """Drop the accounts that were used longest ago; the file has them."""
        with self._gate:
            held = {key: _entries(known) for key, known in self._known.items()}
            total = sum(held.values())
            for key in list(self._known)[:-1]:
                if total <= MOST_ENTRIES:
                    break
                total -= held[key]
                del self._known[key]

    # -- file ----------------------------------------------------------------------------

    def _last(self, key: Key) -> int:
        found = self._file.connection.execute(
            "SELECT max(id) FROM answers WHERE account = ? AND served = ?", key
        ).fetchone()[0]
        return found or 0

    def _emptied(self, key: Key) -> int:
        found = self._file.connection.execute(
            "SELECT last FROM emptied WHERE account = ? AND served = ?", key
        ).fetchone()
        return 0 if found is None else int(found[0])

    def _read(self, key: Key, table: ServedTable) -> _Known:
        """A user's accounts with all entries, those that this process has not seen included."""
        name = (key, table.serving.state)
        with self._gate:
            known = self._known.get(name)
        with self._file.reading() as connection:
            emptied = self._emptied(key)
            if known is not None and known.emptied != emptied:
                known = None
            since = 0 if known is None else known.last
            rows = connection.execute(
                "SELECT id, state, vectors, seal FROM answers WHERE account = ? AND served = ?"
                " AND id >= ? ORDER BY id",
                (*key, since),
            ).fetchall()
        if known is not None and known.last:
            if not rows or rows[0][0] != known.last or rows[0][3] != known.seal:
                raise HistoryError("the history has lost entries", hint=HINT)
            rows = rows[1:]
        if known is None or rows:
            known = self._restored(key, table, known, rows, emptied)
        with self._gate:
            self._known[name] = known
            self._known.move_to_end(name)
        return known

    def _restored(
        self,
        key: Key,
        table: ServedTable,
        known: _Known | None,
        rows: Sequence[tuple[int, str, bytes, bytes]],
        emptied: int,
    ) -> _Known:
        """The accounts with some more entries, which were answered and are not judged."""
        seal = b"" if known is None else known.seal
        found: list[tuple[str, list[Asked]]] = []
        for _, state, blob, stored in rows:
            if state != table.serving.state and state not in table.earlier:
                table.earlier.update(self._states(key[1]))
                if state not in table.earlier:
                    raise HistoryError("the history has lost the rows of an answer", hint=HINT)
                known = None  # its bases do not know this state
            seal = sealed(seal, _sealed_parts(key, state, blob))
            if seal != stored:
                raise HistoryError("an entry of the history is damaged", hint=HINT)
            found.append((state, _unpack(blob)))
        try:
            made = self._rebuilt(table, known, found)
        except Renamed:
            raise HistoryError(
                f"public columns of {key[1]} were renamed or left out, and answers given before"
                " cannot be compared",
                hint=MAPPED,
            ) from None
        made.last = rows[-1][0] if rows else made.last
        made.seal, made.emptied = seal, emptied
        return made

    def _rebuilt(
        self, table: ServedTable, known: _Known | None, found: Sequence[tuple[str, list[Asked]]]
    ) -> _Known:
        bases = table.bases([state for state, _ in found])
        fresh: _Known | None = None
        if known is None or (len(bases) > 1 and bases != known.bases):
            limits, caps = table.serving.limits, table.serving.caps
            accounts = tuple(Account(base.functions, limits, caps) for base in bases)
            fresh = known = _Known(bases, accounts)
        for base, account in zip(known.bases, known.accounts, strict=True):
            parts: list[Part] = []
            for state in dict.fromkeys(state for state, _ in found):
                base.prepare((a for of, some in found if of == state for a in some), state)
            for state, vectors in found:
                for asked in vectors:
                    parts += _restored_part(base, asked, state)
            try:
                account.restore(parts)
            except DataError as problem:
                raise HistoryError(problem.reason, hint=MAPPED) from None
        for state, vectors in found:
            known.vectors.update(_digest(asked, state) for asked in vectors)
            known.answers += len(vectors)
        if fresh is not None and table.reserved:
            self._reserve(fresh, table)
        return known

    def _reserve(self, known: _Known, table: ServedTable) -> None:
        """Put reserved answers into accounts; those that earlier ones forbid stay refused."""
        state = table.serving.state
        for base, account in zip(known.bases, known.accounts, strict=True):
            proposal = account.propose([_parts(base, cell, state) for cell in table.reserved])
            account.commit(proposal)
            left = int((~proposal.admission.admitted).sum())
            if left:
                log.warning(
                    "%d reserved answers about %s stay refused to a user: earlier answers to that"
                    " user and these would single out one personal group",
                    left,
                    table.serving.name,
                )

    def _rows_to_store(self, table: ServedTable) -> bytes | None:
        """The public rows of a state that the file does not have yet."""
        with self._file.reading() as connection:
            found = connection.execute(
                "SELECT 1 FROM states WHERE served = ? AND state = ?", table.key
            ).fetchone()
        return table.public.to_bytes() if found is None else None

    def _store(
        self, key: Key, known: _Known, table: ServedTable, made: _Made, rows: bytes | None
    ) -> None:
        if not made.added:
            return
        connection, state = self._file.connection, table.serving.state
        if rows is not None:
            connection.execute(
                "INSERT OR IGNORE INTO states (served, state, digest, rows) VALUES (?, ?, ?, ?)",
                (*table.key, hashlib.sha256(rows).digest(), rows),
            )
        blob = _pack(list(made.added.values()))
        seal = sealed(known.seal, _sealed_parts(key, state, blob))
        done = connection.execute(
            "INSERT INTO answers (account, served, state, vectors, seal) VALUES (?, ?, ?, ?, ?)",
            (*key, state, blob, seal),
        )
        known.last, known.seal = int(done.lastrowid or 0), seal

    # -- entries of formats 1 and 2 ------------------------------------------------------

    def _not_older(self, key: Key, table: ServedTable) -> None:
        """Refuse users with entries about another release of the same name that cannot be read."""
        with self._file.reading() as connection:
            found = connection.execute(
                "SELECT 1 FROM answered JOIN releases USING (release) WHERE account = ?"
                " AND served = ? AND release <> ? LIMIT 1",
                (*key, table.serving.release),
            ).fetchone()
        if found is not None:
            raise HistoryError(
                f"answers about an earlier release of {key[1]} were written by an earlier version"
                " and cannot be compared with this one",
                hint=MAPPED,
            )

    # -- operators -----------------------------------------------------------------------

    def accounts(self) -> list[tuple[str, str, int]]:
        """Users, served tables, and the number of entries of each."""
        with self._file.reading() as connection:
            found = connection.execute(
                "SELECT account, served, count(*) FROM answers GROUP BY account, served"
                " ORDER BY account, served"
            ).fetchall()
        return [(str(user), str(served), int(many)) for user, served, many in found]

    def clear(self, user: str, name: str) -> int:
        """Empty a user's account of a served table; how many entries it had."""
        key = (self.account_of(user), name)
        with self._lock(key), self._file.writing() as connection:
            last = self._last(key)
            many = connection.execute(
                "DELETE FROM answers WHERE account = ? AND served = ?", key
            ).rowcount
            many += connection.execute(
                "DELETE FROM answered WHERE account = ? AND release IN"
                " (SELECT release FROM releases WHERE served = ?)",
                key,
            ).rowcount
            if many:
                connection.execute(
                    "INSERT INTO emptied (account, served, last) VALUES (?, ?, ?)"
                    " ON CONFLICT (account, served) DO UPDATE SET last = last + excluded.last + 1",
                    (*key, last + 1),
                )
        with self._gate:
            for each in [each for each in self._known if each[0] == key]:
                del self._known[each]
            self._older = None
        return many


@dataclass(frozen=True)
class _Made:
    """What accounts propose, and the vectors to be stored for it."""

    admitted: Admitted
    proposals: list[Proposal]
    added: dict[bytes, Asked]


@dataclass(frozen=True)
class _Stored:
    """Public rows of an earlier state, read when they are needed."""

    file: HistoryFile
    served: str
    state: str

    def __call__(self) -> PublicRows:
        """Read them."""
        with self.file.reading() as connection:
            row = connection.execute(
                "SELECT digest, rows FROM states WHERE served = ? AND state = ?",
                (self.served, self.state),
            ).fetchone()
        if row is None or hashlib.sha256(row[1]).digest() != row[0]:
            raise HistoryError("the rows of an earlier state are damaged", hint=HINT)
        try:
            return PublicRows.from_bytes(row[1])
        except (DataError, ValueError, KeyError, OSError) as problem:
            raise HistoryError("the rows of an earlier state are damaged", hint=HINT) from problem


def _entries(known: _Known) -> int:
    return sum(account.entries for account in known.accounts)


def _parts(base: Base, cell: Cell, state: str) -> list[Part]:
    found = (base.part(asked, state) for asked in cell)
    return [part for part in found if part is not None]


def _restored_part(base: Base, asked: Asked, state: str) -> list[Part]:
    try:
        part = base.part(asked, state)
    except HistoryError:
        raise
    except Error as problem:
        log.warning("an earlier answer cannot be evaluated: %s", problem.reason)
        raise HistoryError(
            "an earlier answer cannot be evaluated on the table as it is now", hint=MAPPED
        ) from None
    return [] if part is None else [part]


def _sealed_parts(key: Key, state: str, blob: bytes) -> list[bytes]:
    return [*(part.encode() for part in (*key, state)), blob]


def _digest(asked: Asked, state: str) -> bytes:
    made = hashlib.blake2b(digest_size=16)
    for part in (state.encode(), (asked.text or "").encode(), asked.key.encode()):
        made.update(struct.pack("<q", len(part)) + part)
    made.update(asked.atoms.astype("<i8").tobytes() + b"|")
    made.update(asked.weights.astype("<f8").tobytes())
    return made.digest()


def _pack(vectors: Sequence[Asked]) -> bytes:
    """Texts and keys, lengths of the vectors, indices of tuples, weights; little-endian."""
    texts = sorted({asked.text for asked in vectors if asked.text is not None})
    numbers = {text: n for n, text in enumerate(texts)}
    names = [[-1 if asked.text is None else numbers[asked.text], asked.key] for asked in vectors]
    head = json.dumps([texts, names]).encode()
    lengths = np.array([asked.atoms.size for asked in vectors], dtype="<i4")
    parts = [struct.pack("<q", len(head)), head, lengths.tobytes()]
    parts += [asked.atoms.astype("<i4").tobytes() for asked in vectors]
    parts += [asked.weights.astype("<f8").tobytes() for asked in vectors]
    return zlib.compress(b"".join(parts), 1)


def _unpack(blob: bytes) -> list[Asked]:
    try:
        plain = zlib.decompress(blob)
        (size,) = struct.unpack_from("<q", plain)
        texts, names = json.loads(plain[8 : 8 + size])
        at = 8 + size
        lengths = np.frombuffer(plain, "<i4", len(names), at)
        total = int(lengths.sum())
        at += 4 * len(names)
        atoms = np.frombuffer(plain, "<i4", total, at).astype(np.int64)
        weights = np.frombuffer(plain, "<f8", total, at + 4 * total).astype(np.float64)
        ends = np.cumsum(lengths)
        return [
            Asked(None if n < 0 else texts[n], key, atoms[high - many : high],
                  weights[high - many : high])
            for (n, key), many, high in zip(names, lengths, ends, strict=True)
        ]  # fmt: skip
    except (zlib.error, struct.error, ValueError, IndexError, TypeError) as error:
        raise HistoryError("an entry of the history is damaged", hint=HINT) from error
