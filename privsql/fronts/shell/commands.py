"""Backslash commands of the shell."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from privsql.errors import OperationalError, ProgrammingError, wrapped
from privsql.fronts.shell import describe as describing
from privsql.fronts.shell.display import ALL, listing
from privsql.fronts.shell.info import Info
from privsql.release.folder import size_of

if TYPE_CHECKING:
    from privsql.fronts.shell.loop import Shell


class Leave(Exception):  # noqa: N818 - a wish, not an error
    """The shell is to end."""


@dataclass(frozen=True)
class Command:
    """A command: how it is written, what it does, and for whom."""

    usage: str
    help: str
    run: Callable[[Shell, str], None]


def run(shell: Shell, line: str) -> None:
    """Run a line that begins with a backslash."""
    name, _, rest = line.strip().rstrip(";").partition(" ")
    command = COMMANDS.get(name)
    if command is None:
        raise ProgrammingError("there is no such command", hint="\\? lists all of them")
    command.run(shell, rest.strip())


def _describe(shell: Shell, rest: str) -> None:
    told, display = shell.told, shell.display()
    shell.say(describing.table(told, rest, display) if rest else describing.tables(told, display))


def _describe_release(shell: Shell, rest: str) -> None:
    if rest:  # as psql's: more about a table
        _describe(shell, rest)
        return
    release = shell.session.release
    found = Info(release.path, release.manifest, shell.told.catalog.rows, size_of(release.path))
    shell.say(wrapped(found.text(), shell.display().width))


def _timing(shell: Shell, rest: str) -> None:
    if rest not in ("", "on", "off"):
        raise ProgrammingError("\\timing takes on or off")
    shell.timing = rest == "on" if rest else not shell.timing
    shell.say(f"Timing is {'on' if shell.timing else 'off'}.")


def _expand(shell: Shell, rest: str) -> None:
    if rest and rest not in ("on", "off", "auto"):
        raise ProgrammingError("\\x takes on, off or auto")
    shell.expanded = rest or ("auto" if shell.expanded == "on" else "on")
    said = "automatic: where a table is too wide" if shell.expanded == "auto" else shell.expanded
    shell.say(f"Expanded display is {said}.")


def _rows(shell: Shell, rest: str) -> None:
    if rest == "all":
        shell.rows = ALL
    elif rest.isascii() and rest.isdigit() and int(rest) > 0:
        shell.rows = int(rest)
    elif rest:
        raise ProgrammingError("\\rows takes a number above 0, or all")
    else:
        shell.rows = ALL if shell.rows != ALL else shell.ROWS
    shell.say(f"{'All' if shell.rows == ALL else shell.rows} rows of an answer are shown.")


def _settings(shell: Shell, rest: str) -> None:
    if rest:
        raise ProgrammingError("\\set takes no argument", hint="write SET privsql.name = value;")
    now = asdict(shell.session.settings)
    rows = [[f"privsql.{name}", str(value).lower()] for name, value in now.items()]
    shell.say(listing(["setting", "value"], rows, shell.display()))


def _edit(shell: Shell, rest: str) -> None:
    if rest:
        raise ProgrammingError(
            "\\e takes no argument", hint="\\i FILE runs the statements of a file"
        )
    if not shell.interactive:
        raise ProgrammingError("\\e needs a terminal")
    shell.begun = edited(shell.begun or shell.last)


def _include(shell: Shell, rest: str) -> None:
    if not rest:
        raise ProgrammingError("\\i needs a file", hint="\\i FILE")
    try:
        text = Path(rest).expanduser().read_text(encoding="utf-8-sig")  # some editors mark it
    except UnicodeDecodeError:
        raise ProgrammingError("the file is not valid UTF-8") from None
    except (OSError, RuntimeError, ValueError) as problem:
        why = getattr(problem, "strerror", None) or "no such file"
        raise OperationalError(f"the file cannot be read: {why.lower()}") from None
    shell.script(text)


def _help(shell: Shell, rest: str) -> None:
    width = max(len(command.usage) for command in COMMANDS.values())
    lines = [f"  {command.usage:{width}}  {command.help}" for command in COMMANDS.values()]
    shell.say("\n".join([*lines, *KEYS]))


def _leave(shell: Shell, rest: str) -> None:
    raise Leave


def edited(text: str) -> str:
    """A text after its author has been at it with $VISUAL or $EDITOR."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory(prefix="privsql-") as folder:
        path = Path(folder) / "statement.sql"  # the folder is its owner's alone
        path.write_text(text + "\n" * (not text.endswith("\n")), encoding="utf-8")
        try:
            code = subprocess.run([*shlex.split(editor), str(path)], check=False).returncode  # noqa: S603 - the user's own
        except (OSError, ValueError):
            raise OperationalError(
                "the editor cannot be started", hint="set EDITOR to an installed program"
            ) from None
        if code:
            raise OperationalError(f"the editor ended with code {code}; the statement is unchanged")
        try:
            return path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            raise OperationalError("the edited file cannot be read") from None


COMMANDS = {
    command.usage.split()[0]: command
    for command in (
        Command("\\d [TABLE]", "tables, or columns and how each was perturbed", _describe),
        Command("\\d+", "the release: columns, promises, policy, size", _describe_release),
        Command("\\x [on|off|auto]", "one line per value; auto: for wide tables", _expand),
        Command("\\rows [N|all]", "rows of an answer that are shown", _rows),
        Command("\\timing [on|off]", "how long each statement takes", _timing),
        Command("\\set", "the settings; SET privsql.name = value; changes one", _settings),
        Command("\\e", "edit the statement, or the last one, in $VISUAL or $EDITOR", _edit),
        Command("\\i FILE", "run the statements of a file", _include),
        Command("\\?", "this help", _help),
        Command("\\q", "leave", _leave),
    )
}  # fmt: skip
KEYS = (
    "A statement ends with ; and may take several lines.  EXPLAIN RECONSTRUCTION SELECT ...; shows",
    "how it would be answered, EXPLAIN RECONSTRUCTION VERBOSE all of it.  Tab completes, Ctrl-R",
    "searches the history, Ctrl-C clears the line or cancels the statement that runs, Ctrl-D",
    "leaves.",
)
