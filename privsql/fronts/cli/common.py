"""Shared parts of all commands: lookup, errors, terminal output.

Exit codes are 0 (fine), 1 (refused, failed or interrupted) and 2 (the command was typed wrongly).
What was asked for goes to stdout, all else to stderr; errors are printed as the project
prints them, and only a bug of ours has a traceback.
"""

from __future__ import annotations

import difflib
import errno
import importlib
import io
import json
import os
import sys
import time
from collections import UserDict
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn, cast

import click

from privsql.errors import Error, OperationalError, interruptible, printable, wrapped
from privsql.session.settings import ESTIMATORS

if TYPE_CHECKING:
    from rich.console import Console

HELP = {"help_option_names": ["-h", "--help"], "show_default": True}
PATH = click.Path(path_type=Path)
INTERRUPTED = "interrupted; nothing was changed"


def output_option(about: str, *, required: bool = False) -> Callable[[Any], Any]:
    """``-o/--output FILE``, the same for every command that writes one; ``-`` is stdout, None."""

    def named(_: click.Context, __: click.Parameter, path: Path | None) -> Path | None:
        return None if path == Path("-") and not required else path

    return click.option(
        "-o", "--output", type=PATH, metavar="FILE", required=required, callback=named, help=about
    )


def release_option(about: str, *, required: bool = False) -> Callable[[Any], Any]:
    """``-o/--output RELEASE``, as it was typed: a slash at its end asks for a folder."""
    return click.option(
        "-o", "--output", type=click.Path(), metavar="RELEASE", required=required, help=about
    )


force_option = click.option("--force", is_flag=True, help="Overwrite an existing file.")


def together(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Several options as one, in the order of the help."""

    def decorate(function: Any) -> Any:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


# Of every command that asks: what SET changes.
setting_options = together(
    click.option(
        "--estimator",
        type=click.Choice(ESTIMATORS),
        show_default="auto",
        help="How counts are reconstructed.",
    ),
    click.option(
        "--confidence-level",
        type=click.FloatRange(0, 1, min_open=True, max_open=True),
        metavar="LEVEL",
        show_default="0.95",
        help="Confidence level of the intervals.",
    ),
    click.option(
        "--simultaneous",
        is_flag=True,
        default=None,
        help="Intervals that hold simultaneously for all cells of an answer.",
    ),
)


class Lazy(UserDict[str, Any]):
    """Commands by name, each imported on first use: ``module:attribute``."""

    def __getitem__(self, name: str) -> click.Command:
        """Import the module of a command."""
        found = super().__getitem__(name)
        if isinstance(found, str):
            module, _, attribute = found.partition(":")
            found = self[name] = getattr(importlib.import_module(module), attribute)
        return cast(click.Command, found)


class Commands(click.Group):
    """A group whose commands print errors of privsql on stderr and exit with code 1."""

    def invoke(self, context: click.Context) -> Any:
        """Run a command; an error of the user's is a message, never a traceback."""
        try:
            with interruptible():
                return super().invoke(context)
        except Error as problem:
            failed(problem)
        except KeyboardInterrupt:
            fail(INTERRUPTED)
        except OSError as problem:
            if problem.errno == errno.EPIPE:  # `| head` has seen enough; click ends silently
                raise
            failed(from_system(problem))

    def resolve_command(
        self, context: click.Context, arguments: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command; an unknown name is answered with the closest known one."""
        name = arguments[0]
        if name not in self.commands and not name.startswith("-") and not context.resilient_parsing:
            near = difflib.get_close_matches(name, list(self.commands), n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"No such command {name!r}.{hint}", ctx=context)
        return super().resolve_command(context, arguments)


def fail(text: str) -> NoReturn:
    """Say why on stderr, and end with exit code 1."""
    say(text, err=True)
    sys.exit(1)


def failed(problem: Error) -> NoReturn:
    """Print an error on stderr, and end with exit code 1."""
    text, width = str(problem), terminal_width(sys.stderr)
    if width is not None:
        from privsql.fronts.shell import display as showing
        from privsql.fronts.shell import style as looks

        display = showing.Display(looks.Looks(looks.wanted(sys.stderr)), width)
        text = showing.problem(problem, display)
    click.echo(text, err=True)
    sys.exit(1)


def say(text: str, *, err: bool = False) -> None:
    """Print for people: wrapped between words where the stream is a terminal.

    Control characters of names and values are escaped, so that no file can steer a terminal.
    """
    shown = printable(text, keep="\n")
    click.echo(wrapped(shown, terminal_width(sys.stderr if err else sys.stdout)), err=err)


def say_json(document: object) -> None:
    """Print a document for programs, which a terminal can show as well."""
    click.echo(plain_json(json.dumps(document, indent=2, ensure_ascii=False)))


def plain_json(text: str) -> str:
    r"""JSON of the same meaning in which nothing steers a terminal.

    Outside of strings JSON has line breaks only, and inside each character has an escape.

    >>> print(plain_json('{"\x9b": "é\u202e"}'))
    {"\u009b": "é\u202e"}
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def terminal_width(stream: IO[str]) -> int | None:
    """Columns of a terminal; None where the stream is none or does not know."""
    try:
        return (os.get_terminal_size(stream.fileno()).columns or None) if stream.isatty() else None
    except (OSError, ValueError):
        return None


def from_system(problem: OSError) -> OperationalError:
    """An error of the operating system as one of privsql."""
    what = problem.strerror or type(problem).__name__
    where = "" if problem.filename is None else f"{problem.filename}: "
    return OperationalError(f"{where}{what[:1].lower()}{what[1:]}")


def legible(stream: IO[str] | None) -> None:
    """Escape characters that the terminal's encoding lacks, such as ±, instead of failing."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")


def console(stream: IO[str] | None = None) -> Console:
    """Where coloured text goes: plain unless the stream is a terminal that wants colour.

    rich reads NO_COLOR, FORCE_COLOR and TERM=dumb.  Values of the data are never markup, emoji or
    something to highlight.
    """
    from rich.console import Console

    return Console(
        file=stream or sys.stdout, markup=False, emoji=False, highlight=False, soft_wrap=True
    )


class Shown:
    """Progress: a bar with rows a second on a terminal, plain lines elsewhere."""

    # Seconds between plain lines.
    EVERY = 10.0

    def __init__(self) -> None:
        self._rows = 0
        self._start = self._last = time.monotonic()
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Callable[[int], None]:
        """Begin to show."""
        if sys.stderr.isatty():
            from rich.progress import Progress, TextColumn, TimeElapsedColumn

            self._bar = Progress(
                TextColumn("publishing {task.completed:,.0f} rows, {task.fields[speed]}"),
                TimeElapsedColumn(),
                console=console(sys.stderr),
                transient=True,
            )
            self._bar.start()
            self._task = self._bar.add_task("publishing", total=None, speed="")
        return self._more

    def __exit__(self, *_: object) -> None:
        """Stop showing."""
        if self._bar is not None:
            self._bar.stop()

    def _more(self, rows: int) -> None:
        self._rows += rows
        now = time.monotonic()
        speed = f"{self._rows / max(now - self._start, 1e-9):,.0f} rows/s"
        if self._bar is not None:
            self._bar.update(self._task, completed=self._rows, speed=speed)
        elif now - self._last >= self.EVERY:
            self._last = now
            click.echo(f"{self._rows:,} rows, {speed}", err=True)
