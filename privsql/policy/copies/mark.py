"""The high-water mark of a history: the newest entry of each account, in a second file.

    history        entries, and the random name of the history
    history.mark   the same name; for each account how many entries there were and the newest seal

A history that was put back to an older copy is a history in itself: nothing inside it shows what
is missing.  The mark does.  A server compares both when it starts, and does not start where
entries of an account are missing, or where the mark is.  While it answers, it raises the mark
every second and when it stops, always after the entries are on the disk: so a crash leaves a
mark that is too low, never one that is too high.

An account that lost entries is *closed* once an operator has restored a backup: nothing is answered
to it until the operator accepts the loss.  Whoever can write both files can put both back; a mark
on another disk shows that as well.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from privsql.errors import NotSupportedError, OperationalError, how_many, printable
from privsql.files import lock, sync_folder, written
from privsql.policy.copies.contents import (
    EMPTIED,
    NAME,
    Point,
    Points,
    count,
    emptied,
    failing,
    holds,
    note,
    noted,
    opened,
    points,
    points_of,
)
from privsql.policy.history import HistoryError

FORMAT = 1
SHOWN = 5  # accounts that an error names
NEVER = Point(0, 0, "")  # emptied


class AccountClosed(NotSupportedError, code="account-closed", sqlstate="42501"):  # noqa: N818
    """A user's answers were lost with a newer history, so nothing more is answered to him."""


@dataclass(frozen=True)
class Loss:
    """An account with fewer entries than it had; ``before`` None: nobody knows."""

    account: str
    before: int | None
    now: int

    def __str__(self) -> str:
        """For the operator."""
        who = printable(self.account) or "everybody (a server without users)"
        if self.before is None:
            return f"{who}: {how_many(self.now, 'entry', 'entries')}, newer ones may be lost"
        return f"{who}: {self.now:,} of {how_many(self.before, 'entry', 'entries')}"


@dataclass(frozen=True)
class Restored:
    """What an operator has put in the place of a lost history.

    ``accounts`` are the entries that it has of each account, ``unknown`` says that no mark was
    left: any account may have lost entries, but those in ``accepted``.
    """

    time: str
    accounts: Mapping[str, Points] = field(default_factory=dict)
    unknown: bool = False
    accepted: tuple[str, ...] = ()


@dataclass(frozen=True)
class Mark:
    """What is known of a history."""

    history: str
    accounts: Mapping[str, Points] = field(default_factory=dict)
    restored: Restored | None = None


def beside(history: Path) -> Path:
    """Where the mark of a history is, unless it is told."""
    return history.with_name(f"{history.name}.mark")


def _typed(history: Path, path: Path) -> str:
    """A history and its mark as the arguments of a command."""
    return f"{history}" if path == beside(history) else f"{history} --mark {path}"


def read_mark(path: Path) -> Mark | None:
    """Read a mark; None where there is none."""
    try:
        document = json.loads(path.read_bytes())
        if document.pop("check") != _check(document) or document["format"] != FORMAT:
            raise ValueError("check")
        restored = document["restored"]
        return Mark(
            document["history"],
            _points(document["accounts"]),
            restored
            and Restored(
                restored["time"],
                _points(restored["accounts"]),
                restored["unknown"],
                tuple(restored["accepted"]),
            ),
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise HistoryError(
            f"the mark {path} cannot be read",
            hint="put back an undamaged copy of it; without any, move it away, and"
            " `privsql history accept` the history as it is",
        ) from None


def write_mark(path: Path, mark: Mark) -> None:
    """Write a mark, whole or not at all."""
    restored = mark.restored
    document: dict[str, Any] = {
        "format": FORMAT,
        "history": mark.history,
        "accounts": _plain(mark.accounts),
        "restored": restored
        and {
            "time": restored.time,
            "accounts": _plain(restored.accounts),
            "unknown": restored.unknown,
            "accepted": list(restored.accepted),
        },
    }
    document["check"] = _check(document)
    with written(path, force=True, mode=0o600) as stream:
        stream.write(json.dumps(document, indent=1).encode() + b"\n")
    sync_folder(path)


def new_name() -> str:
    """A name for a history that has none."""
    return secrets.token_hex(16)


@contextmanager
def held(path: Path, *, shared: bool = False) -> Iterator[None]:
    """Keep commands from changing the mark, or be the only one that does."""
    try:
        handle = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as problem:
        reason = (problem.strerror or "unknown error").lower()
        raise HistoryError(f"the mark {path} cannot be used: {reason}") from None
    try:
        _locked(handle, shared)
        yield
    finally:
        os.close(handle)


def _locked(handle: int, shared: bool) -> None:
    try:
        lock(handle, shared=shared)
    except BlockingIOError:
        raise HistoryError(
            "the history is in use by a server or a command",
            hint="stop the server, or wait for the command",
        ) from None


def losses(connection: sqlite3.Connection, mark: Mark) -> list[Loss]:
    """Accounts of which the history has not all entries that the mark knows of."""
    return [
        Loss(account, entries(known), count(connection, account))
        for account, known in sorted(mark.accounts.items())
        if not holds(connection, account, known)
    ]


def closed(connection: sqlite3.Connection, mark: Mark) -> list[Loss]:
    """Accounts that lost entries in a way that the operator knows of."""
    if mark.restored is None:
        return []
    return [loss for loss in losses(connection, mark) if _known(connection, mark.restored, loss)]


def entries(known: Points) -> int:
    """How many entries an account has, over all tables."""
    return sum(point.entries for point in known.values())


def check_present(history: Path, path: Path | None = None) -> None:
    """Refuse to begin a new history where the mark tells of an old one."""
    if path is not None and not path.parent.is_dir():
        raise OperationalError(
            f"there is no folder {path.parent} for the mark", hint="make it first"
        )
    path = path or beside(history)
    mark = None if history.exists() else read_mark(path)
    if mark is not None and (mark.accounts or mark.restored):
        number = how_many(len(mark.accounts), "account")
        raise HistoryError(
            f"the history {history} is missing, and its mark {path} knows of entries of {number}",
            hint="put it back, or restore a backup: privsql history restore FILE -o"
            f" {_typed(history, path)}; to begin with nothing: privsql history accept"
            f" {_typed(history, path)}",
        )


class Keeper:
    """Compares a history with its mark, then raises the mark while a server runs.

    >>> import tempfile
    >>> from privsql.policy.history import History
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "history"
    ...     History(path).close()
    ...     with Keeper(path) as keeper:
    ...         keeper.check("ann")
    ...     len(read_mark(beside(path)).accounts)
    0
    """

    def __init__(self, history: Path, path: Path | None = None) -> None:
        self._history, self._path = history, path or beside(history)
        self._turn = threading.Lock()
        self._stack = ExitStack()
        self._seen: dict[str, int] = {}  # the newest row of each table
        self._version = -1
        self.healthy = True

    def __enter__(self) -> Keeper:
        """Compare; a history that lost entries is an error."""
        with self._stack:
            # A server that may only read the folder of its mark cannot raise it either.
            self._stack.enter_context(held(self._path, shared=True))
            self._connection = self._stack.enter_context(opened(self._history))
            with failing(self._history):
                self._mark = self._compared()
                self._closed = {loss.account: loss for loss in closed(self._connection, self._mark)}
                self._raise_mark(always=True)
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """Raise the mark for the last time."""
        with self._stack:
            self.advance()

    @property
    def closed(self) -> Sequence[Loss]:
        """Accounts that are closed, as far as they are known."""
        return list(self._closed.values())

    @property
    def restored(self) -> Restored | None:
        """What the operator has restored, if anything of it is not accepted."""
        return self._mark.restored

    def check(self, account: str) -> None:
        """Refuse a question of an account that is closed."""
        restored = self._mark.restored
        unknown = restored is not None and restored.unknown and account not in restored.accepted
        if account in self._closed or unknown:
            raise AccountClosed(
                "the account is closed: the history was restored from a copy, and newer answers"
                " may be missing from it",
                hint="the operator of the server opens it with `privsql history accept`",
            )

    def advance(self) -> None:
        """Raise the mark to what the history has now."""
        with self._turn, failing(self._history):
            try:
                self._raise_mark()
                self.healthy = True
            except BaseException:
                self.healthy = False
                raise

    def _compared(self) -> Mark:
        mark, name = read_mark(self._path), noted(self._connection, NAME)
        found = points(self._connection)
        if mark is None and name is not None and found:
            raise HistoryError(
                f"the mark {self._path} of the history {self._history} is missing",
                hint="put it back; without it nobody can tell whether the history is the newest"
                f" one: to go on, privsql history accept {_typed(self._history, self._path)}",
            )
        mark = mark or Mark(name or new_name(), found)
        if name not in (None, mark.history):
            raise HistoryError(
                f"the mark {self._path} is not that of the history {self._history}",
                hint="put back the history, or the mark, that belongs to the other",
            )
        restored = mark.restored
        lost = [
            loss
            for loss in losses(self._connection, mark)
            if restored is None or not _known(self._connection, restored, loss)
        ]
        if lost:
            raise _rolled_back(self._history, self._path, lost)
        if name is None:
            note(self._connection, NAME, mark.history)
        return mark

    def _raise_mark(self, *, always: bool = False) -> None:
        """Under SQLite's write lock, so that of two servers neither writes an older mark."""
        version = self._connection.execute("PRAGMA data_version").fetchone()[0]
        if version == self._version and not always:
            return
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            newer = points(self._connection, self._seen)
            known = dict(self._mark.accounts)
            for account, times in emptied(self._connection).items():
                if known.get(account, {}).get(EMPTIED, NEVER).row != times:
                    known[account] = newer[account] = points_of(self._connection, account)
            for account, found in newer.items():
                if account not in self._closed:
                    known[account] = {**known.get(account, {}), **found}
            if newer or always:
                self._mark = replace(self._mark, accounts=known)
                write_mark(self._path, self._mark)
        finally:
            self._connection.execute("ROLLBACK")
        for found in newer.values():
            for table, point in found.items():
                self._seen[table] = max(self._seen.get(table, 0), point.row)
        self._version = version


def _known(connection: sqlite3.Connection, restored: Restored, loss: Loss) -> bool:
    """Whether an account is as it was restored."""
    base = restored.accounts.get(loss.account, {})
    return loss.now == entries(base) and holds(connection, loss.account, base)


def _rolled_back(history: Path, path: Path, lost: Sequence[Loss]) -> HistoryError:
    shown = ", ".join(map(str, lost[:SHOWN])) + (", ..." if len(lost) > SHOWN else "")
    return HistoryError(
        f"the history {history} is older than its mark {path}: entries of"
        f" {how_many(len(lost), 'account')} are missing ({shown})",
        hint="put back the newest history; to go on with this one, with these accounts closed:"
        f" privsql history accept {_typed(history, path)}",
    )


def _plain(accounts: Mapping[str, Points]) -> dict[str, Any]:
    return {
        account: {table: [p.entries, p.row, p.seal] for table, p in known.items()}
        for account, known in accounts.items()
    }


def _points(accounts: Mapping[str, Mapping[str, Sequence[Any]]]) -> dict[str, dict[str, Point]]:
    return {
        account: {table: Point(int(n), int(row), str(seal)) for table, (n, row, seal) in k.items()}
        for account, k in accounts.items()
    }


def _check(document: Mapping[str, Any]) -> str:
    text = json.dumps({k: v for k, v in document.items() if k != "check"}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
