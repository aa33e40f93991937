"""SQL given to a command: its text, its statements, and the position of an error."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from privsql.errors import DataError, Error, Place, ProgrammingError
from privsql.fronts.cli.common import from_system
from privsql.fronts.cli.output import is_terminal

HOW = "give SQL as an argument, in a file (-f FILE) or on stdin"


@dataclass(frozen=True)
class Part:
    """One statement of a text."""

    text: str
    kind: str  # query | set | reset | show | explain
    number: int  # from 0

    @property
    def answers(self) -> bool:
        """Whether it returns rows."""
        return self.kind not in ("set", "reset")


def given(sql: str | None, file: Path | None) -> str:
    """The text: the argument, a file, or stdin where ``-`` stands or a pipe ends."""
    if sql is not None and file is not None:
        raise click.UsageError(f"SQL and --file are both given: {HOW}.")
    if sql not in (None, "-"):
        return str(sql)
    if file is not None and str(file) != "-":
        try:
            return _decoded(file.read_bytes(), str(file))
        except OSError as problem:
            raise from_system(problem) from None
    if sys.stdin is None or (sql is None and file is None and is_terminal(sys.stdin)):
        raise click.UsageError(f"There is no SQL: {HOW}.")
    return _decoded(sys.stdin.buffer.read(), "stdin")


def split(text: str) -> list[Part]:
    """The statements of a text; a mistake in any of them is told before the first is asked."""
    from privsql.policy.limits import Limits
    from privsql.sql.parse.statement import statements

    limits = Limits()
    found = statements(text, characters=limits.characters, depth=limits.depth)
    if not found:
        raise ProgrammingError("there is no statement in this text", hint=HOW)
    return [Part(one.text, one.kind, i) for i, one in enumerate(found)]


@contextmanager
def placed(text: str, part: Part) -> Iterator[None]:
    """Errors of a part point into the whole text, where the reader counts lines."""
    try:
        yield
    except Error as problem:
        place = problem.place
        if place is not None and place.text.endswith(part.text):
            # Words of ours may stand before it.
            moved = _start(text, part) - len(place.text.removesuffix(part.text))
            start = max(0, place.start + moved)
            problem.place = Place(text, start, max(start, place.stop + moved))
        raise


def _start(text: str, part: Part) -> int:
    """Where a part begins: the words may stand in a comment before it, too.

    What is appended to the text before the part is a statement of its own, unless that
    place lies in a comment.
    """
    from privsql.sql.parse.statement import parts

    at = text.find(part.text)
    while at >= 0:
        try:
            before = parts(text[:at] + " x")
        except Error:  # a quote or a comment is open here
            before = []
        if len(before) == part.number + 1 and before[-1] == "x":
            return at
        at = text.find(part.text, at + 1)
    return 0


def _decoded(content: bytes, name: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise DataError(
            f"{name} is not valid UTF-8: byte {problem.start + 1} is invalid",
            hint="save it as UTF-8",
        ) from None
