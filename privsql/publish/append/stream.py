"""Rows of a pipe, in pieces: whole lines of CSV, gathered while they come.

    bytes ── until a piece is full, or its first line has waited ── whole lines ── a small CSV file

A pipe may stay open for days, so rows are not gathered to its end.  Each piece is read as a file
is, with the names of the first line before it; how fields are separated, and the types of columns,
follow from the first piece.  Parquet and compressed rows have to be there to their end, and are
copied whole, as standard input that is a file is.
"""

from __future__ import annotations

import os
import re
import select
import stat
import sys
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from privsql.errors import DataError
from privsql.publish.formats import LOOK, SAID, SPOOLED
from privsql.publish.source import Source, csv_dialect, open_csv

# Bytes of a piece, and seconds that its first line waits for others to be mixed with.
MOST, WAIT = 1 << 24, 1.0

# Bytes that are read at once, and those of the longest line.
BLOCK, LONGEST = 1 << 20, 1 << 26

QUOTE, LINE = b'"', b"\n"

# How an error names a line of a piece.
IN_PIECE = re.compile(r"line ([\d,]+) of a file")


def piped() -> int | None:
    """The handle of standard input where rows come while they are read; None for a file."""
    try:
        handle = sys.stdin.buffer.fileno()
        return None if stat.S_ISREG(os.fstat(handle).st_mode) else handle
    except (AttributeError, OSError, ValueError):  # replaced by a stream of Python's
        return None


@dataclass
class Lines:
    """Whole lines of a handle that stays open.

    A line end between quotes is no end of a line: lines are cut where the quotes before are even.
    """

    handle: int
    seen: bytearray = field(default_factory=bytearray)
    ended: bool = False
    _whole: int = 0  # bytes of lines that are whole
    _odd: bool = False  # whether a quote is open at the end of what was seen

    def look(self) -> bytes:
        """The first bytes; nothing is taken."""
        while len(self.seen) < LOOK and LINE not in self.seen and not self.ended:
            self._read(None)
        return bytes(self.seen[:LOOK])

    def taken(self) -> bytes:
        """Everything that was seen, for another reader."""
        return bytes(self.seen)

    def pieces(self) -> Iterator[bytes]:
        """Pieces of whole lines, the last of which may lack its end; the first has rows."""
        first = True
        while not self.ended or self.seen:
            self._fill(2 if first else 1)
            piece = bytes(self.seen[: self._whole or len(self.seen)])
            del self.seen[: len(piece)]
            self._whole = 0
            if piece:
                yield piece
            first = False

    def _fill(self, least: int) -> None:
        """Read on until a piece is full, or until its lines have waited."""
        until = None
        while not self.ended:
            if until is None and self.seen.count(LINE, 0, self._whole) >= least:
                until = time.monotonic() + WAIT
            if until is not None and self._whole >= MOST:
                return
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                return
            self._read(left)
        if self.ended:
            self._whole = len(self.seen)

    def _read(self, seconds: float | None) -> None:
        if not select.select([self.handle], [], [], seconds)[0]:
            return
        block = os.read(self.handle, BLOCK)
        self.ended = not block
        start = len(self.seen)
        self.seen += block
        self._odd ^= block.count(QUOTE) % 2 == 1
        odd, end = self._odd, len(self.seen)
        while (place := self.seen.rfind(LINE, start, end)) >= 0:
            odd ^= self.seen.count(QUOTE, place, end) % 2 == 1
            if not odd:
                self._whole = place + 1
                break
            end = place
        if len(self.seen) - self._whole > LONGEST:
            raise DataError(
                f"{SAID} has a line of more than {LONGEST >> 20} MB",
                hint="look for a quote that is not closed",
            )


class Stream:
    """Pieces of a stream, each opened as a source."""

    def __init__(self, lines: Lines, folder: Path, text: Collection[str]) -> None:
        self._lines, self._file, self._text = lines, folder / f"{SPOOLED}.csv", text

    def sources(self) -> Iterator[Source]:
        """One source after the other; each is closed before the next is made."""
        head, types = b"", dict[str, str]()
        options: dict[str, Any] = {"header": True}
        for piece in self._lines.pieces():
            self._file.write_bytes(head + piece)
            source = open_csv(str(self._file), self._text, types, options)
            if not head:
                options, skipped = csv_dialect(source)
                head = b"".join(piece.splitlines(keepends=True)[: skipped + 1])
                types = dict(source.columns)
                source = replace(source, csv=options)
            try:
                yield source
            finally:
                source.close()
                self._file.unlink(missing_ok=True)


def stopped(problem: DataError, rows: int, *, left: bool) -> DataError:
    """The error for a piece that does not fit, after so many rows, which have ``left`` or not."""
    # Each piece has the line of names, so its line 2 is the first after those rows.
    reason = IN_PIECE.sub(
        lambda line: f"line {int(line[1].replace(',', '')) + rows:,} of {SAID}", problem.reason
    )
    hint = problem.hint or ""
    if left and rows:
        hint = hint.replace("; nothing was written", "") + (
            f"; the first {rows:,} rows were written and count in the key's ledger, but the output"
            " is not a complete batch, and no release will accept it"
        )
    return DataError(reason, hint=hint.removeprefix("; ") or None)
