"""The publisher's key, and the ledger of what was published under it.

The **key** makes the draws of a publication repeatable for its holder alone
(:mod:`privsql.publish.randomness`).  It is a small text file that only its owner may read:

    privsql publisher key: keep it secret, whoever reads it can undo the perturbation
    version: 1
    id: 66687aadf862bd77
    key: AAAA...

The **ledger** beside it (``clinic.key.ledger``) has one line of JSON for each publication.
It answers what a person has lost so far.  The same column with the same parameters repeats
the same draws, and a second look at them shows nothing new: its loss counts once.  Any other
parameters, another unit or another key for the same persons are new draws, and losses add:

    epsilon(column) = sum of epsilon over the different draws of that column

The ledger holds no value, no count and nothing of the key but its name.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
import secrets
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from privsql.errors import IntegrityError, OperationalError, ProgrammingError
from privsql.publish.randomness import KEY_BYTES, Keyed

HEADER = "privsql publisher key: keep it secret, whoever reads it can undo the perturbation"
VERSION = 1
FILE_LIMIT = 4096

# Where a row is a person, a person is a place in one source.
ROW = "row"


class KeyFileError(OperationalError):
    """A key file cannot be made, read or understood."""

    code = "key"


class LedgerError(ProgrammingError):
    """A publication would add to what persons have lost already."""

    code = "ledger"
    sqlstate = "42501"


@dataclass(frozen=True)
class PublisherKey:
    """A key, its public name, and a word about the file if one is due."""

    key: bytes = field(repr=False)
    key_id: str
    path: Path
    warning: str | None = None

    def randomness(self) -> Keyed:
        """Draws under this key."""
        return Keyed(self.key)

    def ledger(self) -> Ledger:
        """Open the ledger beside the key."""
        return Ledger(self.path.with_name(self.path.name + ".ledger"), self.key_id)


def key_name(key: bytes) -> str:
    """Name a key: 8 bytes of its SHA-256, which tell keys apart and nothing about them.

    >>> key_name(bytes(32))
    '66687aadf862bd77'
    """
    return hashlib.sha256(key).digest()[:8].hex()


def new_key(path: str | Path) -> PublisherKey:
    """Make a key and write it to a new file that only its owner may read."""
    path, key = Path(path), secrets.token_bytes(KEY_BYTES)
    lines = [HEADER, f"version: {VERSION}", f"id: {key_name(key)}"]
    text = "\n".join([*lines, f"key: {base64.b64encode(key).decode()}", ""])
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise KeyFileError(
            f"{path} exists already; a key is never overwritten",
            hint="use this key, or choose another name for the new one",
        ) from None
    except OSError as error:
        raise KeyFileError(f"{path} cannot be written: {error.strerror}") from None
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(text)
            file.flush()
            os.fsync(descriptor)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise KeyFileError(f"{path} cannot be written: {error.strerror}") from None
    _sync_folder(path)
    return PublisherKey(key, key_name(key), path)


def read_key(path: str | Path) -> PublisherKey:
    """Read a key file; no error quotes what it found there."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            mode, content = os.fstat(file.fileno()).st_mode, file.read(FILE_LIMIT + 1)
    except FileNotFoundError:
        raise KeyFileError(
            f"there is no key at {path}", hint=f"make one: privsql key new {path}"
        ) from None
    except OSError as error:
        raise KeyFileError(f"{path} cannot be read: {error.strerror}") from None
    key = _parsed(path, content)
    warning = None
    if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
        warning = f"{path} is open to others than its owner; close it: chmod 600 {path}"
    return PublisherKey(key, key_name(key), path, warning)


def _parsed(path: Path, content: bytes) -> bytes:
    lines = content.decode("ascii", "replace").splitlines()
    if len(content) > FILE_LIMIT or not lines or lines[0].strip() != HEADER:
        raise KeyFileError(
            f"{path} is not a key of privsql", hint="privsql key new makes one at a new name"
        )
    fields = dict(line.partition(":")[::2] for line in lines[1:] if line.strip())
    fields = {name.strip(): value.strip() for name, value in fields.items()}
    if fields.get("version") != str(VERSION):
        raise KeyFileError(f"{path} is a key of a version that this privsql does not know")
    try:
        key = base64.b64decode(fields.get("key", ""), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != KEY_BYTES or key_name(key) != fields.get("id"):
        raise KeyFileError(
            f"the key in {path} is damaged: it does not fit its own id",
            hint="bring the file back from a copy; a new key would draw anew for everyone",
        )
    return key


@dataclass(frozen=True)
class Loss:
    """One publication of one column: how it was perturbed, and what that may give away."""

    mechanism: str
    parameters: str  # retention.digest: the channel and the domain
    epsilon: float

    def __post_init__(self) -> None:
        """Refuse what would make the sum of losses smaller, or no number."""
        if not self.epsilon >= 0:
            raise ValueError("a loss is a number of at least 0, or infinite")


@dataclass(frozen=True)
class Publication:
    """One line of the ledger.

    ``source`` names the state of the source (a digest); it matters where a row is a person,
    since only an unchanged source has every person at the same place.
    """

    time: str
    table: str
    release: str
    unit: str
    columns: Mapping[str, Loss]
    key_id: str
    source: str = ""

    def draws(self, column: str) -> tuple[str, ...]:
        """What the draws of a column are a function of; equal draws are looked at once."""
        loss, table = self.columns[column], self.table.casefold()
        place = (table, self.source) if self.unit == ROW else ()
        return (self.key_id, self.unit.casefold(), loss.mechanism, loss.parameters, *place)

    def shares_persons(self, other: Publication) -> bool:
        """Whether two publications may be about the same persons: one table, or one unit."""
        same_unit = self.unit.casefold() == other.unit.casefold() and self.unit != ROW
        return same_unit or self.table.casefold() == other.table.casefold()

    def to_json(self) -> str:
        """Write the line; JSON has no infinity, so epsilons are text."""
        columns = {
            name: {**vars(c), "epsilon": repr(c.epsilon)} for name, c in self.columns.items()
        }
        return json.dumps({**vars(self), "columns": columns}, sort_keys=True)

    @classmethod
    def from_json(cls, line: str) -> Publication:
        """Read a line back; ValueError, TypeError or KeyError if it is none."""
        data: dict[str, Any] = json.loads(line)
        losses = {
            name: Loss(**{**loss, "epsilon": float(loss["epsilon"])})
            for name, loss in dict(data["columns"]).items()
        }
        return cls(**{**data, "columns": losses})


@dataclass(frozen=True)
class Accounting:
    """What persons will have lost after the publication that was checked.

    Infinity is what a column without an epsilon costs.
    """

    publications: int
    columns: Mapping[str, float]  # every column published of these persons, now or before
    repeated: tuple[str, ...]  # columns whose draws were published before
    added: tuple[str, ...]  # columns published before with other draws

    @property
    def epsilon(self) -> float:
        """Total over all columns."""
        return sum(self.columns.values())

    def __str__(self) -> str:
        """Say it in a line."""
        times = "first publication" if self.publications == 1 else f"{self.publications} in all"
        parts = ", ".join(f"{name} {loss:.4g}" for name, loss in self.columns.items())
        return f"epsilon {self.epsilon:.4g} ({parts}); {times}"


class Ledger:
    """The publications under a key, one line of JSON each, only ever added to."""

    def __init__(self, path: str | Path, key_id: str) -> None:
        self.path = Path(path)
        self.key_id = key_id
        self._held: int | None = None

    def __repr__(self) -> str:
        """Show where it is."""
        return f"Ledger({str(self.path)!r}, key_id={self.key_id!r})"

    @contextmanager
    def locked(self, *, wait: bool = False) -> Iterator[None]:
        """Keep every other publisher out from the check to the record."""
        with self._open(exclusive=True, wait=wait) as descriptor:
            self._held = descriptor
            try:
                yield
            finally:
                self._held = None

    def publications(self) -> list[Publication]:
        """Read all lines; a last one that was never finished is no publication."""
        if self._held is None and not self.path.exists():
            return []
        with self._open(exclusive=False) as descriptor:
            return self._read(descriptor)[0]

    def check(
        self,
        table: str,
        unit: str,
        columns: Mapping[str, Loss],
        *,
        source: str = "",
        accept_loss: bool = False,
    ) -> Accounting:
        """Account for a publication that is about to be made; nothing is written.

        New draws of a column that these persons had published before are refused unless
        ``accept_loss``, and then their epsilons add.
        """
        planned = Publication("", table, "", unit, dict(columns), self.key_id, source)
        before = [entry for entry in self.publications() if entry.shares_persons(planned)]
        draws: dict[str, dict[tuple[str, ...], float]] = {}
        names: dict[str, str] = {}
        repeated: list[str] = []
        added: list[str] = []
        for entry in [*before, planned]:
            for name, loss in entry.columns.items():
                known = draws.setdefault(name.casefold(), {})
                if entry is planned and known:
                    (repeated if entry.draws(name) in known else added).append(name)
                known[entry.draws(name)] = max(loss.epsilon, known.get(entry.draws(name), 0.0))
                names[name.casefold()] = name
        if added and not accept_loss:
            raise LedgerError(
                f"{', '.join(added)} of the same persons was published before with other"
                " parameters, another unit, another key or from a changed source: fresh draws"
                " add to what is known of each person",
                hint="publish with the earlier parameters, or accept the loss with --accept-loss;"
                " other persons deserve another key",
            )
        totals = {names[name]: sum(known.values()) for name, known in draws.items()}
        return Accounting(len(before) + 1, totals, tuple(repeated), tuple(added))

    def record(
        self, table: str, unit: str, columns: Mapping[str, Loss], release: str, *, source: str = ""
    ) -> Publication:
        """Add a publication that was made, and return once it is on the disk."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        entry = Publication(now, table, release, unit, dict(columns), self.key_id, source)
        with self._open(exclusive=True) as descriptor:
            end, whole = self._read(descriptor)[1:]
            line = f"{'' if whole else chr(10)}{entry.to_json()}\n".encode()
            try:
                os.ftruncate(descriptor, end)  # what is left of a line that was never finished
                os.lseek(descriptor, end, os.SEEK_SET)
                while line:
                    line = line[os.write(descriptor, line) :]
                os.fsync(descriptor)
            except OSError as error:
                raise self._unusable(error) from None
        _sync_folder(self.path)
        return entry

    @contextmanager
    def _open(self, *, exclusive: bool, wait: bool = True) -> Iterator[int]:
        if self._held is not None:
            yield self._held
            return
        flags = os.O_RDWR | os.O_CREAT if exclusive else os.O_RDONLY
        try:
            descriptor = os.open(self.path, flags, 0o600)
        except OSError as error:
            raise self._unusable(error) from None
        try:
            try:
                _lock(descriptor, exclusive, wait)
            except BlockingIOError:
                raise OperationalError(
                    "another publication under this key is running", hint="wait until it has ended"
                ) from None
            except OSError as error:
                raise self._unusable(error) from None
            yield descriptor
        finally:
            os.close(descriptor)  # which also gives the lock back

    def _unusable(self, error: OSError) -> OperationalError:
        return OperationalError(f"the ledger {self.path} cannot be used: {error.strerror}")

    def _read(self, descriptor: int) -> tuple[list[Publication], int, bool]:
        """Publications, where the last of them ends, and whether it ends with its line."""
        os.lseek(descriptor, 0, os.SEEK_SET)
        content = b""
        while part := os.read(descriptor, 1 << 20):
            content += part
        entries, end = [], 0
        lines = content.split(b"\n")
        for number, line in enumerate(lines, start=1):
            torn = number == len(lines)
            if line or not torn:
                try:
                    entries.append(Publication.from_json(line.decode()))
                except (ValueError, TypeError, KeyError, AttributeError):
                    if torn:
                        break
                    raise IntegrityError(
                        f"line {number} of the ledger {self.path} is damaged",
                        hint="bring it back from a copy: losses cannot be counted without it",
                    ) from None
                end += len(line) + (not torn)
        return entries, end, end == 0 or content[end - 1 : end] == b"\n"


def _lock(descriptor: int, exclusive: bool, wait: bool) -> None:
    """Lock a file against other publishers; released when it is closed."""
    if sys.platform == "win32":  # opened files are the only lock there
        return
    import fcntl

    kind = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
    fcntl.flock(descriptor, kind if wait else kind | fcntl.LOCK_NB)


def _sync_folder(path: Path) -> None:
    """Make a new name in a folder survive a crash, where the system knows how to."""
    with suppress(OSError):
        descriptor = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
