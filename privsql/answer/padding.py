"""Columns of a table padded to one width, with aligned errors."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size

from privsql.answer.cells import Cell

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
