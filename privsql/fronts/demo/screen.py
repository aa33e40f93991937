"""Terminal output of the demo: 80 columns, numbered steps, colour."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from privsql import errors

if TYPE_CHECKING:
    from rich.console import Console

WIDTH = 79
INDENT = "    "


class Screen:
    """Writes paragraphs, quotations and tables to a console of ``rich``."""

    def __init__(self, console: Console) -> None:
        self._console = console
        # NO_COLOR asks for no colour; bold and dim letters would be one to most who set it.
        self._plain = bool(os.environ.get("NO_COLOR"))
        self._step = 0
        self._begun = True  # nothing stands above that a block must be set off from

    def step(self, title: str) -> None:
        """Begin the next step."""
        self._step += 1
        self.line()
        self.line(f"{self._step}. {title}", "bold cyan")
        self.line()
        self._begun = True

    def say(self, text: str, style: str = "") -> None:
        """A paragraph, wrapped; nothing is broken within a word."""
        self._block()
        for line in errors.wrapped(text, WIDTH, hang="").splitlines():
            self.line(line, style)

    def quote(self, text: str, style: str = "", *, near: bool = False) -> None:
        """Lines as they are: SQL, a spec, an error; ``near``: right below what stands above."""
        self._block(near)
        for line in text.splitlines():
            self.line(f"{INDENT}{line}".rstrip(), style)

    def table(self, rows: Sequence[Sequence[str]], sides: str) -> None:
        """Rows below a heading; ``sides`` has < or > for each column."""
        self._block()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for number, row in enumerate(rows):
            cells = [
                f"{cell:{side}{width}}"
                for cell, side, width in zip(row, sides, widths, strict=True)
            ]
            self.line(f"{INDENT}{'  '.join(cells)}".rstrip(), "" if number else "bold")

    def _block(self, near: bool = False) -> None:
        """An empty line between blocks."""
        if not near and not self._begun:
            self.line()
        self._begun = False

    def line(self, text: str = "", style: str = "") -> None:
        """One line."""
        self._console.print(
            text,
            style=None if self._plain else style or None,
            markup=False,
            highlight=False,
            soft_wrap=True,
        )


def wrapped(text: str) -> str:
    """Long lines broken to the width of a quotation, each part indented below its line."""
    return errors.wrapped(text, WIDTH - len(INDENT), hang=INDENT)
