"""An answer as HTML, for notebooks.

Everything that comes from the release or from the query is escaped: a notebook runs what
it is given.
"""

from __future__ import annotations

from html import escape

from privsql.answer.cells import Cell
from privsql.answer.outcome import Outcome
from privsql.answer.table import ROWS, Grid, grid, notices
from privsql.answer.text import explanation


def html(outcome: Outcome, max_rows: int = ROWS) -> str:
    """The table that :func:`privsql.answer.text.text` prints, with all of its columns."""
    if outcome.kind == "explain" and outcome.table.num_columns == 1:
        body = f"<pre>{escape(explanation(outcome))}</pre>"
        return _whole(body, notices(outcome))
    if not outcome.columns:
        return _whole("", notices(outcome) or ["done"])
    found = grid(outcome, max_rows)
    return _whole(_table(found), found.footer)


def _whole(body: str, footer: list[str]) -> str:
    lines = "<br>".join(escape(line) for line in footer)
    small = f"<p><small>{lines}</small></p>" if lines else ""
    return f'<div class="privsql-answer">{body}{small}</div>'


def _table(found: Grid) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in found.names)
    rows = [_row(row, found.numeric) for row in found.cells]
    if found.gap is not None:
        rows.insert(found.gap, "<tr>" + "<td>&hellip;</td>" * len(found.names) + "</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _row(row: list[Cell], numeric: list[bool]) -> str:
    cells = []
    for cell, right in zip(row, numeric, strict=True):
        style = ' style="text-align: right"' if right else ""
        error = f' <span style="opacity: 0.7">{escape(cell.error)}</span>' if cell.error else ""
        mark = " <b>?</b>" if cell.unreliable else ""
        cells.append(f"<td{style}>{escape(cell.value)}{error}{mark}</td>")
    return f"<tr>{''.join(cells)}</tr>"
