"""The main loop of the shell: reads, runs, prints, and continues after errors."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from privsql.errors import Error, ProgrammingError, printable
from privsql.fronts.cli.common import terminal_width
from privsql.fronts.shell import commands
from privsql.fronts.shell import display as showing
from privsql.fronts.shell import style as looks
from privsql.fronts.shell.describe import Told
from privsql.fronts.shell.display import ALL, Display
from privsql.fronts.shell.execution import cancelable
from privsql.fronts.shell.input import LEAVING, command_of, complete, meaningful, split
from privsql.release.tables import read_files
from privsql.session.session import Session

if TYPE_CHECKING:
    from privsql.fronts.shell.terminal import Terminal


class Failed(Exception):  # noqa: N818 - told already
    """A statement failed, and what follows it is not to run."""


class Shell:
    """Answers what is typed or piped in, until it ends."""

    ROWS = 40  # of an answer that a terminal shows at first

    def __init__(self, session: Session, *, keep_going: bool) -> None:
        self.session = session
        self.told = Told(session.release.manifest, session.catalog)
        self.out = sys.stdout
        self.interactive = sys.stdin.isatty() and self.out.isatty()
        self.looks = looks.Looks(looks.wanted(self.out))
        self.keep_going = keep_going
        self.failures = 0
        self.timing = False
        self.expanded = "auto"
        self.rows = self.ROWS if self.interactive else ALL
        self.begun = ""  # a statement that is not finished, for the next prompt
        self.last = ""  # the statement before, for \e

    # -- the two ways to be used ------------------------------------------------------------

    def talk(self, terminal: Terminal) -> None:
        r"""Ask and answer on a terminal, until Ctrl-D or ``\q``."""
        while True:
            try:
                begun, self.begun = self.begun, ""
                text = terminal.ask(begun)
            except KeyboardInterrupt:
                continue
            except EOFError:
                return
            try:
                self._typed(text)
            except commands.Leave:
                return
            except Failed:
                continue
            except KeyboardInterrupt:  # between statements, or while an answer is printed
                self.say("canceled")

    def script(self, text: str) -> None:
        """Run statements and commands one after the other; the first failure ends it.

        A line that begins with a backslash, outside of a statement, is a command.
        """
        pending = ""
        for line in text.splitlines(keepends=True):
            if line.lstrip().startswith("\\") and complete(pending):
                self._all(pending)
                self._command(line)
                pending = ""
            else:
                pending += line
                if ";" in line and complete(pending):
                    self._all(pending)
                    pending = ""
        self._all(pending)

    # -- one text ---------------------------------------------------------------------------

    def _typed(self, text: str) -> None:
        command = command_of(text)
        if command is not None:
            self.begun = command[0].strip()
            if self.begun:  # what follows goes on below it, as it was typed
                self.begun += "\n"
            self._command(command[1])
            return
        word = text.strip().rstrip(";").strip().casefold()
        if word in LEAVING:
            raise commands.Leave
        if word == "help":
            self._command("\\?")
            return
        if meaningful(text):
            self.last = text.strip()
        self._all(text)

    def _command(self, line: str) -> None:
        try:
            commands.run(self, line)
        except Error as problem:
            self._failed(problem)

    def _all(self, text: str) -> None:
        """Run all statements of a text."""
        ended, rest = split(text)
        for statement in [*ended, *([rest] if rest else [])]:
            self._statement(statement)

    def _statement(self, text: str) -> None:
        begun = time.perf_counter()
        try:
            said = cancelable(lambda: self._answered(text), self.session.interrupt)
        except Error as problem:
            self._failed(problem)
        else:
            self.say(said)
        if self.timing:
            self.say(f"Time: {_duration(time.perf_counter() - begun)}")

    def _answered(self, text: str) -> str:
        """What there is to print; made on the thread that Ctrl-C ends."""
        first = meaningful(text)[0].plain
        if first == "explain":
            lines = self.session.explain(text).rstrip("\n").splitlines()
            return "\n".join(map(printable, lines))
        outcome = self.session.run(text)
        if not outcome.columns:
            return first.upper()  # SET, RESET
        return showing.answer(outcome, self.display())

    def _failed(self, problem: Error) -> None:
        """Print an error; on a terminal and with --keep-going, continue."""
        self.failures += 1
        if self.interactive:
            self.say(showing.problem(problem, self.display()))
        else:
            self.out.flush()
            plain = Display(looks.Looks(looks.wanted(sys.stderr)))
            print(showing.problem(problem, plain), file=sys.stderr, flush=True)
        # On a terminal too: what follows in the same text was meant to come after it.
        if self.interactive or not self.keep_going or problem.code == "canceled":
            raise Failed

    # -- what is said -----------------------------------------------------------------------

    def say(self, text: str) -> None:
        """Print."""
        print(text, file=self.out, flush=True)

    def greet(self, version: str) -> None:
        """Print the banner."""
        manifest = self.told.manifest
        table = printable(manifest.table)
        self.say(f"privsql {version}: table {table}, {manifest.rows:,} published rows")
        self.say("\\? for help, \\d for the columns, \\q to leave; a statement ends with ;")

    def display(self) -> Display:
        """How answers are shown now: a terminal may have been resized."""
        return Display(self.looks, terminal_width(self.out), self.rows, self.expanded)


def _duration(seconds: float) -> str:
    """A time as a person reads it.

    >>> _duration(0.0123), _duration(12.3), _duration(75)
    ('12.3 ms', '12.3 s', '1 min 15 s')
    """
    if seconds < 1:
        return f"{1000 * seconds:.1f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{int(seconds // 60)} min {seconds % 60:.0f} s"


def open_shell(
    release: Path,
    *,
    version: str,
    keep_going: bool,
    tables: Mapping[str, Path] | None = None,
    **settings: object,
) -> int:
    """Open a release, answer until the input ends; the exit code."""
    session = Session(release, tables=read_files(tables or {}), **settings)  # type: ignore[arg-type]
    shell = Shell(session, keep_going=keep_going)
    try:
        if shell.interactive:
            from privsql.fronts.shell.terminal import Terminal, history_file

            history = history_file()
            names = tuple(commands.COMMANDS)
            terminal = Terminal(shell.told, names, shell.looks.coloured, history)
            shell.greet(version)
            if history is None:
                shell.say("There is no folder for the history: it will not be saved.")
            shell.talk(terminal)
            return 0
        with suppress(Failed, commands.Leave):
            shell.script(_piped())
        return 1 if shell.failures else 0
    finally:
        shell.session.close()


def _piped() -> str:
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ProgrammingError("the input is not valid UTF-8") from None
