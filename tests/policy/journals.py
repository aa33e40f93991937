"""Readers of the audit log: a line counts only if its checksum is right."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

from privsql.errors import DataError
from privsql.policy.journal import MEGABYTE, Entry, _told, digest

# A line that no writer here can have written: a reader must not fill its memory with it.
_LONGEST_LINE = 4 * MEGABYTE
_CHECK = re.compile(rb',"check":"([0-9a-f]{16})"\}\Z')


class Reading(Iterator[Entry]):
    """The valid lines of one file, in its order; ``bad`` counts the others as they pass."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.bad = 0
        self._entries = self._read(Path(path))

    def __next__(self) -> Entry:
        """The next valid line."""
        return next(self._entries)

    def _read(self, path: Path) -> Iterator[Entry]:
        with _told(), path.open("rb") as file:
            while line := file.readline(_LONGEST_LINE):
                whole = line.endswith(b"\n") or len(line) < _LONGEST_LINE
                while not whole:
                    rest = file.readline(_LONGEST_LINE)
                    whole = rest.endswith(b"\n") or not rest
                    line = b"?"
                body = line.removesuffix(b"\n")
                entry = _entry(body)
                if entry is not None:
                    yield entry
                elif body:
                    self.bad += 1


def read(path: str | os.PathLike[str]) -> Reading:
    """Read one file of a log."""
    return Reading(path)


def files(path: str | os.PathLike[str]) -> list[Path]:
    """The files of a log, the oldest first."""
    present = Path(path)
    found: list[tuple[int, Path]] = []
    for each in present.absolute().parent.glob(f"{present.name}.*"):
        number = each.name.removeprefix(f"{present.name}.")
        if number.isascii() and number.isdigit():
            found.append((int(number), present.with_name(each.name)))
    older = [each for _, each in sorted(found, reverse=True)]
    return [*older, *([present] if present.exists() else [])]


def _entry(line: bytes) -> Entry | None:
    """What a line says, or None where it is not as it was written."""
    match = _CHECK.search(line)
    if match is None:
        return None
    body = line[: match.start()] + b"}"
    if digest(body)[:16].encode() != match[1]:
        return None
    try:
        fields = json.loads(body)
        tables = tuple(fields["tables"])
        if not all(isinstance(name, str) for name in tables):
            return None
        return Entry(**{**fields, "tables": tables})
    except (ValueError, TypeError, KeyError, DataError, RecursionError):
        return None
