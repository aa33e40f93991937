"""The part of an answer that is shown: rows of cells, shortened, and a footer.

Text and HTML show the same grid; this module decides what is in it, and says so where
something was left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import starmap
from typing import Any

import pyarrow as pa
from rich.cells import cell_len, set_cell_size

from privsql.answer.cells import Cell, estimate, exact
from privsql.answer.columns import bars
from privsql.answer.outcome import Outcome
from privsql.answer.values import values
from privsql.errors import how_many, printable

DOTS = "..."
WIDEST = 40  # a cell of words that is wider is cut


def padded(
    name: str, numeric: bool, cells: Sequence[Cell], widest: int | None = WIDEST
) -> list[str]:
    """Header and cells of one column, padded to one width; errors stand under each other."""
    error = max((cell_len(cell.error) for cell in cells), default=0)
    value = max((cell_len(cell.value) for cell in cells), default=0)
    mark = any(cell.unreliable for cell in cells)
    parts = [cut(name, widest)]
    for cell in cells:
        if error:
            line = f"{pad(cell.value, value, right=True)} {_aligned(cell.error, error)}"
            parts.append(line + (" ?" if cell.unreliable else "  ") * mark)
        else:  # only words are cut: half an interval would be a wrong one
            parts.append(cut(cell.value, widest))
    width = max(map(cell_len, parts))
    return [pad(part, width, right=numeric and not error) for part in parts]


def pad(part: str, width: int, *, right: bool = False) -> str:
    """Fill up with blanks; ``right``: before the text."""
    room = " " * max(0, width - cell_len(part))
    return room + part if right else part + room


def cut(part: str, widest: int | None) -> str:
    """Text that is too wide, ending in dots.

    >>> cut("construction", 8)
    'const...'
    """
    if widest is None or cell_len(part) <= widest:
        return part
    return set_cell_size(part, widest - len(DOTS)).rstrip() + DOTS


def _aligned(error: str, width: int) -> str:
    """``±`` stays at the left and its number moves right, so that digits line up."""
    if error.startswith("± "):
        return "± " + pad(error[2:], width - 2, right=True)
    return pad(error, width)


ROWS = 40  # shown of a longer answer: its beginning and its end


@dataclass(frozen=True)
class Grid:
    """Header and cells.  ``gap`` is the number of rows shown before those left out."""

    names: list[str]
    numeric: list[bool]
    cells: list[list[Cell]]  # one list a row
    gap: int | None
    footer: list[str]


def grid(outcome: Outcome, max_rows: int = ROWS) -> Grid:
    """Cells of an answer, at most ``max_rows`` rows of them.

    A part of the rows is converted only: a million of them must not take a million cells.
    """
    rows = outcome.table.num_rows
    if rows > max_rows:
        gap = (max_rows + 1) // 2
        keep = [*range(gap), *range(rows - (max_rows - gap), rows)]
    else:
        gap, keep = None, list(range(rows))
    shown = []
    kept = pa.array(keep, pa.int64())  # none of them has no type otherwise
    for i, column in enumerate(outcome.columns):
        found = values(column.type, outcome.table.column(i).take(kept))
        if column.estimate:
            taken = (bar.take(kept).to_pylist() for bar in bars(outcome, i))
            shown.append(list(starmap(_cell, zip(found, *taken, strict=True))))
        else:
            shown.append(list(map(exact, found)))
    return Grid(
        names=[printable(column.name) for column in outcome.columns],
        numeric=[is_number(kind) for kind in outcome.table.schema.types],
        cells=[list(row) for row in zip(*shown, strict=True)],
        gap=gap,
        footer=_footer(outcome, shown, len(keep)),
    )


def _cell(value: Any, stderr: float | None, low: Any, high: Any, reliable: bool | None) -> Cell:
    """A cell of a column of estimates, where a value that is none of numbers may be exact."""
    if stderr == 0 and low is None and high is None:
        return exact(value)
    return estimate(value, low, high, reliable)


def is_number(kind: pa.DataType) -> bool:
    """Whether values of a type are aligned at the right, and can be drawn."""
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def _footer(outcome: Outcome, shown: list[list[Cell]], kept: int) -> list[str]:
    rows = outcome.table.num_rows
    size = how_many(rows, "row")
    if kept < rows:
        size += f", {kept} shown"
    cells = [cell for column in shown for cell in column]
    level = f"{100 * outcome.level:.6g}%"
    lines = []
    if any(column.estimate for column in outcome.columns):
        by = "" if outcome.estimator == "exact" else f" by {outcome.estimator}"
        lines.append(f"{size}; estimates{by}, errors at {level}")
        signs = {cell.error[:1] for cell in cells if cell.error not in ("", "± ?")}
        if "±" in signs:
            lines.append(f"±: half of the {level} interval")
        if "[" in signs:
            lines.append(
                f"[low, high]: the {level} interval, where it is not symmetric about the value"
            )
        if any(cell.error == "± ?" for cell in cells):
            lines.append("± ?: no standard error is available for this value")
        if any(cell.unreliable for cell in cells):
            lines.append(f"? at the end: unreliable, too few rows for an interval at {level}")
    else:
        lines.append(f"{size}; exact" if outcome.kind == "rows" else size)
    return lines + notices(outcome)


def notices(outcome: Outcome) -> list[str]:
    """Each notice on a line of its own."""
    return [printable(str(notice)) for notice in outcome.notices]
