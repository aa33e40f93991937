"""The audit log: who asked what, and the decision.  Never a result.

One line of JSON for every statement and every login that fails, with a checksum as its last field:

    {"time":"...","user":"...",...,"check":"<16 hex digits of SHA-256 of what stands before>"}

A crash can cut a line off or leave zeros in its place, never more: a line is written with one
call at the end of the file, and a writer that finds a file without a last newline begins a new
line.  A reader should take a line only if its checksum is right.  That is a guard against
accidents; whoever may write the file can write false lines.

    journal         the present file
    journal.1 ...   those before, the youngest first; the last is dropped when there are too many
    journal.lock    held while a line is written or files are renamed, by threads and processes

A statement that cannot be logged must not be answered, so what goes wrong here is an error.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from privsql.errors import DataError, OperationalError
from privsql.files import lock, sync, unlock

# The last is of a login: somebody who was not let in.
DECISIONS = ("answered", "refused", "failed", "flagged", "denied")
MEGABYTE = 10**6

# Seconds to wait for others who write.
PATIENCE = 10.0

# Names are short; what is longer is somebody's trick.
_LONGEST_NAME = 200
_MOST_TABLES = 50

# The fields of a line, in their order.
_WRITTEN = "time user statement characters digest decision reason tables groups seconds"

_CODE = re.compile(r"[a-z0-9-]{0,40}")
_DIGEST = re.compile(r"[0-9a-f]{0,64}")


class JournalError(OperationalError, code="journal", sqlstate="58030"):
    """The audit log cannot be written, so nothing is answered."""


@dataclass(frozen=True)
class Entry:
    """What became of one statement.

    ``reason`` is an error's or a notice's code, ``groups`` the digest of the set of personal
    groups behind the answer; neither has room for a value.
    """

    user: str
    statement: str
    decision: str
    reason: str = ""
    tables: tuple[str, ...] = ()
    groups: str = ""
    seconds: float = 0.0
    time: str = ""  # UTC, ISO 8601; the writer's clock where it is empty
    characters: int = 0  # of the whole statement, which may be cut
    digest: str = ""  # SHA-256 of the whole statement
    address: str = ""  # of a client who was denied; no other line has the field

    def __post_init__(self) -> None:
        """Keep results out: every field but the statement is a code, a name or a number."""
        if self.decision not in DECISIONS:
            raise DataError(f"a decision is one of {', '.join(DECISIONS)}")
        if not _CODE.fullmatch(self.reason) or not _DIGEST.fullmatch(self.groups):
            raise DataError("a reason is an error's code, and groups are given by their digest")


def digest(what: str | bytes) -> str:
    """SHA-256 in hexadecimal digits; texts may hold anything.

    >>> digest("SELECT 1")[:16]
    'e004ebd5b5532a4b'
    """
    data = what.encode("utf-8", "surrogatepass") if isinstance(what, str) else what
    return hashlib.sha256(data).hexdigest()


class Journal:
    """Appends to one log.  Threads and processes may write to it at once.

    ``size`` is where a file is put away, ``keep`` how many of those stay, ``sync`` waits for
    the disk after each line (without it a power cut may take the last seconds; the end of the
    program takes nothing), ``characters`` is where statements are cut.  Files are made for
    their owner alone (mode 0600).
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        size: int = 64 * MEGABYTE,
        keep: int = 10,
        sync: bool = False,
        characters: int = 10_000,
    ) -> None:
        # The longest line holds six bytes a character: \\uXXXX.
        if size < 1 or keep < 1 or not 1 <= characters <= 500_000:
            raise DataError("the journal's size, number of files or characters are out of range")
        self.path = Path(path)
        self._size, self._keep = size, keep
        self._sync, self._characters = sync, characters
        with _told(), self._locked(), self._opened():
            pass  # a server that cannot log should say so when it starts

    def append(self, entry: Entry) -> None:
        """Write one line, or raise a ``JournalError``."""
        line = _line(self._finished(entry))
        with _told(), self._locked():
            if self._full(len(line)):
                self._rotate()
            with self._opened() as file:
                if not _ends_well(file):
                    line = b"\n" + line
                if os.write(file, line) != len(line):
                    raise OSError("only a part of a line was written")
                if self._sync:
                    os.fsync(file)

    def _finished(self, entry: Entry) -> Entry:
        statement = entry.statement
        return replace(
            entry,
            user=entry.user[:_LONGEST_NAME],
            address=entry.address[:_LONGEST_NAME],
            statement=statement[: self._characters],
            tables=tuple(name[:_LONGEST_NAME] for name in entry.tables[:_MOST_TABLES]),
            time=entry.time or datetime.now(UTC).isoformat(timespec="milliseconds"),
            characters=len(statement),
            digest=digest(statement),
            seconds=round(entry.seconds, 6),
        )

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the write lock: other threads and processes wait.

        A file of its own, because the log is renamed.  Opened anew each time, or processes
        that come of one another would hold one lock together.
        """
        handle = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _lock(handle)
            yield
        finally:
            unlock(handle)
            os.close(handle)

    @contextmanager
    def _opened(self) -> Iterator[int]:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        file = os.open(self.path, flags, 0o600)
        try:
            yield file
        finally:
            os.close(file)

    def _full(self, more: int) -> bool:
        try:
            size = self.path.stat().st_size
        except FileNotFoundError:
            return False
        return size > 0 and size + more > self._size

    def _rotate(self) -> None:
        """Rename from the oldest on; a crash in between leaves a gap, which the next one fills."""
        names = [self.path, *(_numbered(self.path, n) for n in range(1, self._keep + 1))]
        free = next((i for i, name in enumerate(names) if not name.exists()), self._keep)
        for i in range(free, 0, -1):
            names[i - 1].replace(names[i])
        if self._sync:
            sync(self.path.absolute().parent)


def _lock(file: int) -> None:
    """Wait for the lock, but not for ever: its holder may have been stopped."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            lock(file)
            return
        except BlockingIOError:
            if time.monotonic() > until:
                raise
        time.sleep(0.001)


def _numbered(path: Path, n: int) -> Path:
    return path.with_name(f"{path.name}.{n}")


def _line(entry: Entry) -> bytes:
    fields = {name: getattr(entry, name) for name in _WRITTEN.split()}
    if entry.address:
        fields["address"] = entry.address
    # ASCII: whatever a user's text holds, a line is one line and can be encoded.
    body = json.dumps(fields, ensure_ascii=True, separators=(",", ":")).encode("ascii")
    return body[:-1] + b',"check":"' + digest(body)[:16].encode() + b'"}\n'


def _ends_well(file: int) -> bool:
    """Whether a file is empty or ends with a newline."""
    size = os.fstat(file).st_size
    return size == 0 or os.pread(file, 1, size - 1) == b"\n"


@contextmanager
def _told() -> Iterator[None]:
    """The error for a failed system call, without file names."""
    try:
        yield
    except OSError:
        raise JournalError(
            "the audit log cannot be used, so nothing is answered",
            hint="the operator of the server should check the disk and the permissions of the log",
        ) from None
