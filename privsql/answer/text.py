"""An answer as plain text, for a terminal, a log or a mail.

No colour, and nothing but ``±`` beyond ASCII of our own, so that every terminal can show
it.  Widths are counted in terminal cells: a Chinese letter takes two.
"""

from __future__ import annotations

import shutil

from rich.cells import cell_len

from privsql.answer.outcome import Outcome
from privsql.answer.table import DOTS, ROWS, Grid, grid, notices, pad, padded
from privsql.errors import printable, wrapped

WHOLE = "columns and df() have them all"


def text(
    outcome: Outcome, max_rows: int = ROWS, max_width: int | None = None, whole: str = WHOLE
) -> str:
    """The answer as a table with error bars, followed by its notices.

    ``whole`` says where the columns are that did not fit.
    """
    if outcome.kind == "explain" and outcome.table.num_columns == 1:
        shown = printable(explanation(outcome), keep="\n")
        return "\n".join([*shown.splitlines(), *notices(outcome)])
    if not outcome.columns:
        return "\n".join(notices(outcome)) or "done"
    if max_width is None:
        max_width = shutil.get_terminal_size((120, 24)).columns
    found = grid(outcome, max_rows)
    lines, left_out = _table(found, max_width)
    footer = [wrapped(line, max_width) for line in found.footer]
    if left_out:
        some = f"{len(found.names)} columns, {len(found.names) - left_out} shown"
        footer.insert(0, f"{some}; {whole}")
    return "\n".join([*lines, *footer])


def explanation(outcome: Outcome) -> str:
    """The lines of an outcome of one column of text."""
    return "\n".join(str(value) for value in outcome.table.column(0).to_pylist())


def _table(found: Grid, max_width: int) -> tuple[list[str], int]:
    """Lines of a table as psql draws it, and how many columns did not fit."""
    columns = [
        padded(name, numeric, [row[i] for row in found.cells])
        for i, (name, numeric) in enumerate(zip(found.names, found.numeric, strict=True))
    ]
    columns, left_out = _fit(columns, max_width)
    rows = [list(row) for row in zip(*columns, strict=True)]
    if found.gap is not None:
        rows.insert(1 + found.gap, [pad(DOTS, cell_len(cell)) for cell in rows[0]])
    lines = [" " + " | ".join(row) for row in rows]
    rule = "-" + "-+-".join("-" * cell_len(cell) for cell in rows[0]) + "-"
    return [line.rstrip() for line in (lines[0], rule, *lines[1:])], left_out


def _fit(columns: list[list[str]], max_width: int) -> tuple[list[list[str]], int]:
    """Drop columns from the middle until the others fit; the first and the last stay."""
    widths = [cell_len(column[0]) + 3 for column in columns]
    if sum(widths) <= max_width + 1:
        return columns, 0
    room = max_width - len(DOTS) - 2
    keep = [0, len(columns) - 1] if len(columns) > 1 else [0]
    room -= sum(widths[i] for i in keep)
    first, last = 1, len(columns) - 2
    while first <= last:
        side = first if len(keep) % 2 == 0 else last
        if widths[side] > room:
            break
        room -= widths[side]
        keep.append(side)
        first, last = (first + 1, last) if side == first else (first, last - 1)
    keep.sort()
    left_out = len(columns) - len(keep)
    if not left_out:
        return columns, 0
    gap = next(i for i, column in enumerate(keep) if i != column)
    shown = [columns[i] for i in keep]
    shown.insert(gap, [DOTS] * len(columns[0]))
    return shown, left_out
