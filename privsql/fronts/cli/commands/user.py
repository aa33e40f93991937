"""`privsql user`: users of a server and the releases each may query."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from privsql.errors import DataError, OperationalError
from privsql.fronts.cli.common import PATH, say

if TYPE_CHECKING:
    from privsql.fronts.pgwire.auth.users import Users

_FILE = click.option("--users", "path", required=True, type=PATH, help="The users file.")


@click.group()
def user() -> None:
    """Manage the users of `privsql serve`, in a file of salted verifiers.

    The file contains no passwords and has mode 0600; a server reads changes at the next login.

    \b
    Examples:
      privsql user add ann --users users.json
      privsql user list --users users.json
    """


@user.command("add")
@click.argument("name")
@_FILE
@click.option(
    "--release",
    "releases",
    multiple=True,
    show_default="all",
    help="A table this user may query; repeatable.",
)
@click.option("--password-stdin", is_flag=True, help="Read the password from stdin: one line.")
@click.option("--force", is_flag=True, help="Change the password and releases of an existing user.")
def user_add(
    name: str, path: Path, releases: tuple[str, ...], password_stdin: bool, force: bool
) -> None:
    """Add a user; the password is asked for, or read from stdin, and never an argument.

    \b
    Examples:
      privsql user add ann --users users.json
      privsql user add bob --users users.json --release patients --password-stdin < bob.password
    """
    from privsql.fronts.pgwire.auth.users import ALL, Users

    if not name.isprintable() or name != name.strip():
        raise DataError("a user name must consist of printable characters")
    users = Users(path)
    known = users.find(name) is not None
    if known and not force:
        raise OperationalError(
            f"{name} is a user already",
            hint="--force changes the password and the releases; `user remove` removes",
        )
    users.add(name, _password(password_stdin), releases or (ALL,))
    click.echo(f"{'changed' if known else 'added'} {name}: {_seen(releases or (ALL,))}")


@user.command("list")
@_FILE
def user_list(path: Path) -> None:
    """List the users and the releases each may query.

    \b
    Example:
      privsql user list --users users.json
    """
    users = existing(path)
    for name in users.names():
        found = users.find(name)
        if found is not None:  # removed at this moment
            say(f"{name}: {_seen(found.releases)}")


@user.command("remove")
@click.argument("name")
@_FILE
def user_remove(name: str, path: Path) -> None:
    """Remove a user, who can no longer log in; open connections stay.

    The user's answers stay in the history, and count for anyone who gets the name later.

    \b
    Example:
      privsql user remove ann --users users.json
    """
    if not existing(path).remove(name):
        raise OperationalError(
            f"there is no user {name}", hint="`privsql user list` names all of them"
        )
    click.echo(f"removed {name}")


def existing(path: Path) -> Users:
    """The users of an existing file; one without users lets no one in."""
    from privsql.fronts.pgwire.auth.users import Users

    if not path.exists():
        raise OperationalError(
            f"there is no users file {path}",
            hint=f"make one with `privsql user add NAME --users {path}`",
        )
    return Users(path)


def _seen(releases: tuple[str, ...]) -> str:
    from privsql.fronts.pgwire.auth.users import ALL

    return "all releases" if ALL in releases else ", ".join(releases)


def _password(from_stdin: bool) -> str:
    if from_stdin:
        # As bytes: a terminal's idea of an encoding must not change a password.
        try:
            text = sys.stdin.buffer.read(1_000_000).decode()
        except UnicodeDecodeError:
            raise DataError("the password on stdin is not valid UTF-8") from None
        text = text.removesuffix("\n").removesuffix("\r")
        if "\n" in text:
            raise DataError("there is more than one line on stdin", hint="give the password alone")
        return text
    if not sys.stdin.isatty():
        raise OperationalError(
            "there is no terminal to ask for the password", hint="give --password-stdin"
        )
    return str(click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
