"""`privsql history`: accounts of what users were answered, backups, going on after a loss."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from privsql.errors import OperationalError, how_many
from privsql.fronts.cli.common import PATH, Commands, fail, output_option, say

if TYPE_CHECKING:
    from privsql.policy.copies.backup import Contents
    from privsql.policy.copies.mark import Loss

_MARK = click.option(
    "--mark", type=PATH, show_default="beside the history", help="The mark of the history."
)
_LOG = click.option(
    "--log",
    "journal",
    type=PATH,
    help="The audit log that records this. Default: audit.log beside the history.",
)


@click.group(cls=Commands)
def history() -> None:
    """List, empty, back up, verify and restore the accounts of a server's users.

    An account belongs to a user and the name of a served table.  It remains when the server is
    restarted and when the table is published again or grows.  An older history would let a
    user ask for what the newer one refuses; its mark, a second file, shows that.

    \b
    Examples:
      privsql history list history
      privsql history backup history -o history.backup
      privsql history verify history.backup
    """


@history.command("list")
@click.argument("path", metavar="HISTORY", type=PATH)
def history_list(path: Path) -> None:
    """List users, tables and how many entries each account has.

    \b
    Example:
      privsql history list history
    """
    from privsql.policy.history import History

    with History(_existing(path)) as kept:
        for user, table, entries in kept.accounts():
            many = how_many(entries, "entry", "entries")
            say(f"{user or '(everybody)'}: {table}, {many}")


@history.command("clear")
@click.argument("path", metavar="HISTORY", type=PATH)
@click.option("--user", required=True, help="Whose account; '' is that of a server without users.")
@click.option("--table", required=True, help="The served table.")
@_LOG
def history_clear(path: Path, user: str, table: str, journal: Path | None) -> None:
    """Empty one account: its user can be answered what was refused before.

    Differences of answers before and after can then single out a personal group.  The audit log
    says that it was emptied.

    \b
    Example:
      privsql history clear history --user ann --table patients
    """
    from privsql.policy.history import History
    from privsql.policy.journal import Entry, Journal

    log = Journal(journal or _existing(path).parent / "audit.log")
    with History(path) as kept:
        asked = f"privsql history clear --user {user!r} --table {table!r}"
        # Before, so that nothing is emptied without a line.
        log.append(Entry(user, asked, "answered", "account-cleared", (table,)))
        many = kept.clear(user, table)
    if not many:
        raise OperationalError(
            f"{user or 'everybody'} has no account of {table}",
            hint=f"`privsql history list {path}` shows them",
        )
    entries = how_many(many, "entry", "entries")
    say(f"emptied the account of {user or 'everybody'} for {table}: {entries}")


@history.command("backup")
@click.argument("path", metavar="HISTORY", type=PATH)
@output_option("Where the copy goes; the file must not exist.", required=True)
def history_backup(path: Path, output: Path) -> None:
    """Copy a history, also while a server uses it, and verify the copy.

    \b
    Example:
      privsql history backup history -o history.backup
    """
    from privsql.policy.copies.backup import backup

    say(f"wrote {output}: {_held(backup(path, output))}")


@history.command("verify")
@click.argument("path", metavar="FILE", type=PATH)
@_MARK
def history_verify(path: Path, mark: Path | None) -> None:
    """Verify a history or a backup: its structure, every seal, and its mark if there is one.

    The exit code is 1 where the file is damaged, or older than its mark.

    \b
    Examples:
      privsql history verify history.backup
      privsql history verify history.backup --mark history.mark
    """
    from privsql.policy.copies.backup import verify

    found = verify(path, mark)
    say(f"{path}: {_held(found)}, all sealed")
    if found.lost is None:
        say("no mark to compare with: newer entries may exist")
    elif found.lost:
        _list(found.lost)
        fail("it is older than its mark")
    else:
        say("it has every entry that its mark knows of")


@history.command("restore")
@click.argument("path", metavar="FILE", type=PATH)
@output_option("The history, which must not exist.", required=True)
@_MARK
@_LOG
def history_restore(path: Path, output: Path, mark: Path | None, journal: Path | None) -> None:
    """Put a verified backup in the place of a history that was lost.

    Accounts with entries that are newer than the backup are closed: nothing is answered to them
    until `privsql history accept`.  The mark of the lost history tells which; without it all
    accounts are.  Stop the server first.

    \b
    Example:
      privsql history restore history.backup -o history
    """
    from privsql.policy.copies.backup import restore
    from privsql.policy.copies.mark import beside, read_mark

    log = _Log(journal or output.parent / "audit.log")
    lost = restore(path, output, mark)
    log.write("restore", lost or [None])
    say(f"restored {output}")
    known = read_mark(mark or beside(output))
    if known is not None and known.restored is not None and known.restored.unknown:
        say("there was no mark: all accounts are closed, also those without entries")
    elif not lost:
        say("nothing is lost: it has every entry that the mark knows of")
    if lost:
        say(f"closed, because newer entries are lost or may be ({len(lost)}):")
        _list(lost)


@history.command("accept")
@click.argument("path", metavar="HISTORY", type=PATH)
@click.option(
    "--account",
    "accounts",
    multiple=True,
    metavar="NAME",
    help="A user whose loss is accepted, and whose account is opened; repeatable.",
)
@click.option("--all", "everyone", is_flag=True, help="Accept all losses; open all accounts.")
@_MARK
@_LOG
def history_accept(
    path: Path, accounts: tuple[str, ...], everyone: bool, mark: Path | None, journal: Path | None
) -> None:
    """Go on with a history that lost entries, and say which losses are accepted.

    What an account may ask depends on what it was answered: with entries lost, it may be
    answered what it was refused before.  Accounts that are not named stay closed, and a server
    starts again.  A history that is gone begins anew.  Stop the server first.

    \b
    Examples:
      privsql history accept history
      privsql history accept history --account ann
    """
    from privsql.policy.copies.backup import accept

    log = _Log(journal or path.parent / "audit.log")
    taken, left = accept(path, mark, accounts=accounts, everyone=everyone)
    log.write("accept", taken)
    for words, some in (("accepted", taken), ("closed", left)):
        if some:
            say(f"{words} ({len(some)}):")
            _list(some)
    if not taken and not left:
        say("nothing is lost, as far as is known")


def _existing(path: Path) -> Path:
    if not path.exists():
        raise OperationalError(f"{path} does not exist", hint="name the history of a server")
    return path


class _Log:
    """The audit log, opened before anything is changed: what cannot be logged is not done."""

    def __init__(self, path: Path) -> None:
        from privsql.policy.journal import Journal

        self._journal = Journal(path)

    def write(self, command: str, some: Sequence[Loss | None]) -> None:
        """A line for each account."""
        from privsql.policy.journal import Entry

        for loss in some:
            what = "" if loss is None else f": {loss}"
            text = f"privsql history {command}{what}"
            account = "" if loss is None else loss.account
            self._journal.append(Entry(account, text, "answered", "history"))


def _held(found: Contents) -> str:
    made = "" if found.made is None else f", backup of {found.made}"
    accounts = how_many(found.accounts, "account")
    return f"{how_many(found.entries, 'entry', 'entries')} of {accounts}{made}"


def _list(some: Sequence[Loss]) -> None:
    for loss in some:
        say(f"  {loss}")
