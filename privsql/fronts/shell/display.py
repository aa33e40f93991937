"""Answers and errors as the shell prints them.

     illness | n                         -[ 1 ]-+------------
    ---------+-------------              illness | flu
     flu     | 1,402 ± 348               n       | 1,402 ± 348

A table wider than the terminal is expanded, one line per value, unless the user chose otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from rich.cells import cell_len

from privsql.answer.cells import Cell, estimate, exact
from privsql.answer.columns import BARS, bars
from privsql.answer.outcome import Outcome
from privsql.answer.table import DOTS, WIDEST, Grid, cut, grid, pad, padded
from privsql.errors import Error, printable, wrapped
from privsql.fronts.shell.style import ERROR, HEADING, HINT, MARK, NOTICE, RULE, Looks

ALL = 10**9
PLAIN = Looks()


@dataclass(frozen=True)
class Display:
    """How answers are shown."""

    looks: Looks = PLAIN
    width: int | None = None  # cells of a line; None where lines have no end
    rows: int = ALL  # at most, of one answer
    expanded: str = "auto"  # on | off | auto: where a table would be too wide


def answer(outcome: Outcome, display: Display) -> str:
    """An answer with its legend and notices."""
    shown = _with_bars(outcome, grid(outcome, display.rows))
    lines = list(_table(shown, display.looks))
    wide = display.width is not None and max(map(_length, lines), default=0) > display.width
    if display.expanded == "on" or (display.expanded == "auto" and wide):
        lines = list(_expanded(shown, display))
    size, *said = shown.footer
    if shown.gap is not None:
        size += "; \\rows shows more"
    return "\n".join([*lines, size, *(_said(line, display) for line in said)])


def problem(error: Error, display: Display) -> str:
    """An error, in colour; for a terminal in the format for people, wrapped."""
    looks = display.looks
    shown = str(error) if display.width is None else error.for_people()
    lines: list[str] = []
    for line in _pointing(shown.splitlines(), display.width):
        head, colon, rest = line.partition(":")
        text = "\t".join(printable(part) for part in line.split("\t"))
        if not lines:
            text = wrapped(printable(head) + colon + printable(rest), display.width)
            lines.append(_headed(text, looks, ERROR))
        elif text.strip() and not text.strip().strip("^"):
            lines.append(looks(text, MARK))
        elif head == "HINT":
            lines.append(_headed(wrapped(text, display.width), looks, HINT))
        else:
            lines.append(text if head.startswith("LINE ") else wrapped(text, display.width))
    return "\n".join(lines)


def listing(names: list[str], rows: list[list[str]], display: Display) -> str:
    r"""A table of words that are not an answer: what ``\d`` and the like say.

    Only the last column is cut, to what the terminal has room for.
    """
    rows = [[*map(printable, row)] for row in rows]
    others = [max(cell_len(row[i]) for row in [names, *rows]) for i in range(len(names) - 1)]
    room = None if display.width is None else max(12, display.width - sum(others) - 3 * len(names))
    cells = [[*map(Cell, row[:-1]), Cell(cut(row[-1], room))] for row in rows]
    found = Grid(names, [False] * len(names), cells, None, [])
    return "\n".join(_table(found, display.looks, widest=None))


# -- errors -------------------------------------------------------------------------------


def _pointing(lines: list[str], width: int | None) -> list[str]:
    r"""The quoted line cut to the terminal's width, with its carets below the right place.

    >>> print("\n".join(_pointing(["LINE 1: " + "a" * 30 + "b" + "c" * 30, " " * 38 + "^"], 40)))
    LINE 1: ... aaaaaaaaabcccccccccccccccccc
                         ^
    """
    found = [i for i, line in enumerate(lines) if re.match(r"LINE \d+: ", line)]
    if width is None or not found or found[0] + 1 >= len(lines):
        return lines
    i = found[0]
    shown, carets = lines[i], lines[i + 1]
    if cell_len(shown) <= width:
        return lines
    lead = shown[: shown.index(": ") + 2]
    room = max(10, width - len(lead) - len(DOTS) - 1)
    begin = max(len(lead), len(carets) - len(carets.lstrip()) - room // 3)
    dots = f"{DOTS} " if begin > len(lead) else ""
    part, below = shown[begin : begin + room], carets[begin : begin + room]
    cut = [f"{lead}{dots}{part}", " " * len(lead + dots) + below]
    return [*lines[:i], *cut, *lines[i + 2 :]]


# -- cells ---------------------------------------------------------------------------------


def _with_bars(outcome: Outcome, found: Grid) -> Grid:
    """The bars as columns of their own, where they were asked for."""
    if not outcome.error_bars:
        return found
    rows, shown = outcome.table.num_rows, len(found.cells)
    first = shown if found.gap is None else found.gap
    kept = pa.array([*range(first), *range(rows - (shown - first), rows)], pa.int64())
    columns: list[tuple[str, bool, Sequence[Cell]]] = []
    for i, column in enumerate(outcome.columns):
        name = found.names[i]
        columns.append((name, found.numeric[i], [row[i] for row in found.cells]))
        if column.estimate:
            four = [bar.take(kept).to_pylist() for bar in bars(outcome, i)]
            made = zip(*map(_bars, *four), strict=True) if shown else [()] * 4
            titles = [f"{name}_{bar}" for bar in BARS]
            columns += zip(titles, (True, True, True, False), made, strict=True)
    names, numeric, cells = map(list, zip(*columns, strict=True))
    by_row = [list(row) for row in zip(*cells, strict=True)]
    return replace(found, names=names, numeric=numeric, cells=by_row)


def _bars(
    stderr: float | None, low: float | None, high: float | None, reliable: bool | None
) -> tuple[Cell, Cell, Cell, Cell]:
    """Four bars with as many decimals as their estimate has."""

    def cell(value: float | None) -> Cell:
        if value is None or low is None or high is None:
            return exact(value)
        half = (high - low) / 2
        return Cell(estimate(value, value - half, value + half, True).value)

    return cell(stderr), cell(low), cell(high), exact(reliable)


# -- lines ---------------------------------------------------------------------------------


def _table(found: Grid, looks: Looks, widest: int | None = WIDEST) -> Iterator[str]:
    """Lines of a table, as psql draws it."""
    columns = [
        padded(name, numeric, [row[i] for row in found.cells], widest)
        for i, (name, numeric) in enumerate(zip(found.names, found.numeric, strict=True))
    ]
    rows = [list(row) for row in zip(*columns, strict=True)]
    if found.gap is not None:
        rows.insert(1 + found.gap, [pad(DOTS, cell_len(cell)) for cell in rows[0]])
    bar = looks(" | ", RULE)
    yield " " + bar.join(looks(cell, HEADING) for cell in _trimmed(rows[0]))
    yield looks("-" + "-+-".join("-" * cell_len(cell) for cell in rows[0]) + "-", RULE)
    for row in rows[1:]:
        yield (" " + bar.join(_trimmed(row))).rstrip(" ")


def _trimmed(row: list[str]) -> list[str]:
    """No blanks at the end of a line."""
    return [*row[:-1], row[-1].rstrip(" ")]


def _expanded(found: Grid, display: Display) -> Iterator[str]:
    """A line for each value, under a line for each row."""
    looks = display.looks
    names = max(map(cell_len, found.names), default=0)
    room = None if display.width is None else max(10, display.width - names - 3)
    rule = min(display.width or 40, 40)
    for i, row in enumerate(found.cells):
        if i == found.gap:
            yield looks(DOTS, RULE)
        # Rows after a gap are counted from the end: their number would mislead.
        title = f"-[ {i + 1} ]" if found.gap is None or i < found.gap else "-[ ... ]"
        yield looks(title + "-" * max(0, rule - len(title)), RULE)
        for name, cell in zip(found.names, row, strict=True):
            text = str(cell) if cell.error else cut(cell.value, room)
            line = looks(pad(name, names), HEADING) + looks(" | ", RULE) + text
            yield line.rstrip(" ")


def _said(line: str, display: Display) -> str:
    text = wrapped(line, display.width)
    return _headed(text, display.looks, NOTICE) if line.startswith("NOTICE ") else text


def _headed(text: str, looks: Looks, look: str) -> str:
    """The words before the colon in colour."""
    head, colon, rest = text.partition(":")
    return looks(head + colon, look) + rest


def _length(line: str) -> int:
    return cell_len(re.sub(r"\x1b\[[0-9;]*m", "", line))
