"""Backing up, verifying and restoring a history.

A backup is a history of its own, made with SQLite's backup interface while servers write: all
entries of one moment.  To copy it into the place of the history is noticed (``mark``); to restore
it is to say so: accounts with entries that are newer than the backup are closed until their loss is
accepted, and where no mark is left to tell, all accounts are.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from privsql.errors import OperationalError, ProgrammingError
from privsql.files import check_target, made_whole, sync_folder
from privsql.policy.copies.contents import (
    MADE,
    NAME,
    Points,
    check_whole,
    count,
    failing,
    note,
    noted,
    opened,
    points,
    reading,
)
from privsql.policy.copies.mark import (
    Loss,
    Mark,
    Restored,
    beside,
    entries,
    held,
    losses,
    new_name,
    read_mark,
    write_mark,
)
from privsql.policy.history import History, HistoryError


@dataclass(frozen=True)
class Contents:
    """What a verified file holds; ``lost`` None: no mark is there to compare with."""

    accounts: int
    entries: int
    made: str | None  # when, if it is a backup
    lost: tuple[Loss, ...] | None


def backup(history: Path, target: Path) -> Contents:
    """Copy a history, also while a server writes it; the copy is verified."""
    check_target(target, force=False, sources=(history,))
    with reading(history) as source, made_whole(target, force=False) as made:
        _copied(source, made, _now())
        with reading(made) as copy, failing(made):
            check_whole(copy, made)
            found = _contents(copy, None)
    sync_folder(target)
    return found


def verify(path: Path, mark: Path | None = None) -> Contents:
    """Check a history or a backup: SQLite's structure, every seal, and the mark if there is one.

    ``mark`` None takes the one beside the file.
    """
    known = read_mark(mark or beside(path))
    if known is None and mark is not None:
        raise OperationalError(f"there is no mark {mark}", hint="check the name")
    with reading(path) as connection, failing(path):
        check_whole(connection, path)
        if known is not None:
            _same(noted(connection, NAME), known, path)
        return _contents(connection, known)


def restore(source: Path, target: Path, mark: Path | None = None) -> list[Loss]:
    """Put a backup in the place of a lost history; the accounts that are closed by that.

    Without a mark of the lost history all accounts are, also those that the backup lacks.
    """
    path = mark or beside(target)
    with reading(source) as connection, failing(source):
        connection.execute("BEGIN")  # one moment, should anybody write it
        check_whole(connection, source)
        name, found = noted(connection, NAME), points(connection)
        with held(path):
            known = read_mark(path)
            if known is not None:
                _same(name, known, source)
            base = Restored(_now(), found, unknown=known is None)
            state = replace(known or Mark(name or new_name()), restored=base)
            lost = _lost(connection, state)
            if known is not None and not lost:
                state = known
            with made_whole(target, force=False) as made:
                _copied(connection, made, None)
                # First: without it the file would be taken for the newest history.
                write_mark(path, state)
    sync_folder(target)
    return lost


def accept(
    history: Path, mark: Path | None = None, *, accounts: Sequence[str] = (), everyone: bool = False
) -> tuple[list[Loss], list[Loss]]:
    """Go on with a history that lost entries: the losses accepted, and the accounts left closed.

    A history that is gone is begun anew, with nothing in it.
    """
    path = mark or beside(history)
    with held(path):
        known = read_mark(path)
        if known is not None and not history.exists():
            History(history).close()
        with opened(history) as connection, failing(history):
            name, found = noted(connection, NAME), points(connection)
            if known is not None:
                _same(name, known, history)
            # Without a mark any account may have lost entries.
            state = known or Mark(name or new_name(), restored=Restored(_now(), unknown=True))
            lost = _lost(connection, state)
            taken = _taken(lost, accounts, everyone=everyone, unknown=_unknown(state))
            left = [loss for loss in lost if loss not in taken]
            note(connection, NAME, state.history)
            write_mark(path, _accepted(state, found, taken, left, everyone=everyone))
    return taken, left


def _taken(
    lost: Sequence[Loss], accounts: Sequence[str], *, everyone: bool, unknown: bool
) -> list[Loss]:
    """The losses that are named."""
    there = {loss.account for loss in lost}
    strangers = [account for account in dict.fromkeys(accounts) if account not in there]
    if strangers and not unknown:
        raise ProgrammingError(
            f"the account {strangers[0]!r} has lost nothing",
            hint="`privsql history verify` lists those that have",
        )
    # All that is known of them is that the history has no entry of theirs.
    return [
        *(loss for loss in lost if everyone or loss.account in accounts),
        *(Loss(account, None, 0) for account in strangers),
    ]


def _accepted(
    state: Mark,
    found: Mapping[str, Points],
    taken: Sequence[Loss],
    left: Sequence[Loss],
    *,
    everyone: bool,
) -> Mark:
    """The mark after losses were accepted: what the history has is all there is of them."""
    named = [loss.account for loss in taken]
    marked = {account: known for account, known in state.accounts.items() if account not in named}
    marked |= {account: found[account] for account in named if account in found}
    if everyone or not (left or _unknown(state)):
        return Mark(state.history, marked)
    earlier = state.restored.accepted if state.restored is not None else ()
    return Mark(state.history, marked, Restored(_now(), found, _unknown(state), (*earlier, *named)))


def _unknown(state: Mark) -> bool:
    return state.restored is not None and state.restored.unknown


def _lost(connection: sqlite3.Connection, state: Mark) -> list[Loss]:
    """Accounts that lost entries, or may have."""
    lost = losses(connection, state)
    if state.restored is None or not state.restored.unknown:
        return lost
    passed = {*(loss.account for loss in lost), *state.restored.accepted}
    return lost + [
        Loss(account, None, entries(each))
        for account, each in sorted(points(connection).items())
        if account not in passed
    ]


def _contents(connection: sqlite3.Connection, known: Mark | None) -> Contents:
    found = points(connection)
    return Contents(
        len(found),
        sum(count(connection, account) for account in found),
        noted(connection, MADE),
        None if known is None else tuple(_lost(connection, known)),
    )


def _same(name: str | None, known: Mark, path: Path) -> None:
    if name is not None and name != known.history:
        raise HistoryError(
            f"{path} is a copy of another history than the one that the mark is of",
            hint="take a backup of this history, or name the mark of the other with --mark",
        )


def _copied(source: sqlite3.Connection, path: Path, made: str | None) -> None:
    """Copy all of one moment into one file, without a log of SQLite's beside it; ``made``: when."""
    path.touch(0o600)
    with closing(sqlite3.connect(path, isolation_level=None)) as copy:
        source.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE")
        note(copy, MADE, made)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
