"""Bar charts of estimates with their intervals."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from privsql.answer.cells import exact
from privsql.answer.columns import bars
from privsql.answer.extras import load
from privsql.answer.grid import is_number
from privsql.answer.outcome import Outcome
from privsql.answer.values import values
from privsql.errors import ProgrammingError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LETTER = 0.09  # inches of one letter of a label, with some room


def plot(outcome: Outcome, ax: Axes | None = None) -> Axes:
    """Draw one bar for each estimate of each row, with its interval as whiskers.

    Rows are labelled by the columns that are no estimates.  An answer without estimates is
    drawn from its numbers, without whiskers.  Unreliable bars are hatched.
    """
    drawn = _drawn(outcome)
    if ax is None:
        ax = load("matplotlib.pyplot", extra="plot", asked="plot()").subplots()[1]
    rows = outcome.table.num_rows
    width = 0.8 / len(drawn)
    handles = []
    for place, i in enumerate(drawn):
        at = [row + (place - (len(drawn) - 1) / 2) * width for row in range(rows)]
        heights = [_number(value) for value in _column(outcome, i)]
        patches = ax.bar(at, heights, width=width * 0.95)
        handles.append(patches)
        if outcome.columns[i].estimate:
            _, low, high, reliable = (bar.to_pylist() for bar in bars(outcome, i))
            below = [_reach(h, end) for h, end in zip(heights, low, strict=True)]
            above = [_reach(end, h) for h, end in zip(heights, high, strict=True)]
            ax.errorbar(at, heights, yerr=[below, above], fmt="none", ecolor="black", capsize=3)
            for patch, fine in zip(patches, reliable, strict=True):
                if fine is False:
                    patch.set_hatch("//")
    # Names and values are words, never formulas: "$" must stay a dollar.
    labels = _labels(outcome, drawn)
    ax.set_xticks(range(rows), labels, parse_math=False)
    # Inches that a bar has, and inches that the longest of its labels wants.
    slot = ax.get_window_extent().width / ax.figure.dpi / max(rows, 1)
    if max(map(len, labels), default=0) * LETTER > slot:
        ax.tick_params(axis="x", labelrotation=45)
    names = [outcome.columns[i].name for i in drawn]
    if len(drawn) == 1:
        ax.set_ylabel(names[0], parse_math=False)
    else:
        for name in ax.legend(handles, names).get_texts():
            name.set_parse_math(False)
    if any(outcome.columns[i].estimate for i in drawn):
        ax.set_title(f"{100 * outcome.level:.6g}% intervals", fontsize="small")
    return ax


def _drawn(outcome: Outcome) -> list[int]:
    """The columns to draw: estimates if there are any, else numbers."""
    numbers = [i for i, kind in enumerate(outcome.table.schema.types) if is_number(kind)]
    found = [i for i in numbers if outcome.columns[i].estimate] or numbers
    if not found:
        raise ProgrammingError(
            "this answer has no numeric column to plot",
            hint="select an aggregate such as COUNT(*)",
        )
    return found


def _labels(outcome: Outcome, drawn: list[int]) -> list[str]:
    rest = [i for i in range(len(outcome.columns)) if i not in drawn]
    parts = [[exact(value).value for value in _column(outcome, i)] for i in rest]
    if not parts:
        return [""] * outcome.table.num_rows
    return [", ".join(row) for row in zip(*parts, strict=True)]


def _column(outcome: Outcome, i: int) -> list[Any]:
    return values(outcome.columns[i].type, outcome.table.column(i))


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def _reach(top: float | None, bottom: float | None) -> float:
    """Length of a whisker; none where an end is missing, or lies on the other side."""
    if top is None or bottom is None:
        return math.nan
    return max(0.0, top - bottom)
