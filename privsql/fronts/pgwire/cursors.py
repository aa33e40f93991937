"""Prepared statements, portals and replies, and the movement of cursors."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pyarrow as pa

from privsql.errors import Error, TooLargeError
from privsql.fronts.pgwire.errors import UnknownCursorError
from privsql.fronts.pgwire.protocol.results import Copy
from privsql.fronts.pgwire.protocol.types import Kind
from privsql.fronts.pgwire.settings import RunTime
from privsql.fronts.pgwire.workers import Answer, Column
from privsql.sql.postgres.read import Command

MOST_NAMES = 2000  # statements, and portals, of one connection
MOST_BYTES = 500_000_000  # of rows that wait in portals, or of text: as one answer may have


@dataclass(eq=False)
class Prepared:
    """A statement that was read; what it takes and gives is settled when somebody asks."""

    command: Command | None  # None where there is nothing in it
    given: Mapping[int, Kind] = field(default_factory=dict)  # types that the client settled
    text: str = ""  # all that was sent, in which places are told
    declared: int = 0  # parameters that PREPARE lists
    kinds: list[Kind] | None = None
    types: Sequence[str] = ()
    described: tuple[Hashable, tuple[Column, ...]] | None = None

    @property
    def used(self) -> int:
        """How many values it makes use of."""
        return 0 if self.command is None else self.command.parameters

    @property
    def wanted(self) -> int:
        """How many values it takes, those that it makes no use of as well."""
        return max(self.used, self.declared, *self.given, 0)

    @property
    def weight(self) -> int:
        """Bytes, in the worst case: its text is kept as it was sent, cut and translated."""
        return 12 * max(len(self.text), 0 if self.command is None else len(self.command.text))


@dataclass(eq=False)
class Portal:
    """A statement with its values, and how far its rows were sent."""

    name: str
    prepared: Prepared
    arguments: Sequence[Any] = ()
    formats: Sequence[int] = ()
    hold: bool = False
    answer: Answer | None = None
    reply: Reply | None = None  # what is left of an execution that was suspended
    position: int = 0  # rows that are behind
    said: bool = False  # the notices were sent

    @property
    def weight(self) -> int:
        """Bytes of the rows that wait."""
        held = self.answer or (self.reply and self.reply.answer)
        return held.table.nbytes if held else 0

    @property
    def declared(self) -> Answer:
        """The rows of a cursor."""
        if self.answer is None:
            raise UnknownCursorError(f'cursor "{self.name}" has not begun')
        return self.answer


Kept = TypeVar("Kept", Prepared, Portal)


@dataclass(frozen=True)
class Reply:
    """What is said to a command: rows, a copy of rows, or only that it is done."""

    tag: str
    answer: Answer | None = None
    copy: Copy | None = None
    warning: dict[str, str] | None = None

    @property
    def rows(self) -> Answer | None:
        """Rows that are sent as such."""
        return self.answer if self.copy is None else None


def keep(kept: dict[str, Kept], name: str, made: Kept, taken: Error, hint: str) -> None:
    """Keep a statement or portal; one without a name takes the place of the last."""
    if name and name in kept:
        raise taken
    kept.pop(name, None)
    held = sum(each.weight for each in kept.values()) + made.weight
    if len(kept) >= MOST_NAMES or held > MOST_BYTES:
        raise TooLargeError("the connection keeps too many statements or cursors", hint=hint)
    kept[name] = made


def shown(run_time: RunTime, name: str) -> Answer:
    """What SHOW answers: one parameter, or all of them."""
    if name != "all":
        return Answer(((name, "VARCHAR"),), pa.table({name: [run_time.show(name)]}))
    names, values = zip(*run_time.all(), strict=True)
    table = pa.table({"name": names, "setting": values, "description": [""] * len(names)})
    return Answer(tuple((each, "VARCHAR") for each in table.column_names), table)


def moved(at: int, rows: int, direction: str, count: int | None) -> tuple[list[int], int]:
    """The rows that a FETCH gives and where the cursor is then.

    Rows are numbered from 1; 0 is before the first and rows + 1 is after the last.

    >>> moved(0, 3, "forward", 2), moved(3, 3, "backward", None), moved(0, 3, "absolute", -1)
    (([0, 1], 2), ([1, 0], 0), ([2], 3))
    """
    if count == 0 or direction in ("absolute", "relative"):
        step = count or 0
        base = at if direction != "absolute" else rows + 1 if step < 0 else 0
        wanted = max(0, min(rows + 1, base + step))
        return ([wanted - 1] if 1 <= wanted <= rows else []), wanted
    if count is not None and count < 0:
        direction, count = ("backward" if direction == "forward" else "forward"), -count
    if direction == "forward":
        stop = rows + 1 if count is None else min(rows + 1, at + count)
        return list(range(at, min(stop, rows))), stop
    stop = 0 if count is None else max(0, at - count)
    return [row - 1 for row in range(at - 1, max(stop, 1) - 1, -1)], stop
