"""An answer for other programs: data frames, bar charts, and the packages that those need."""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from privsql.answer.cells import exact
from privsql.answer.columns import BARS, arrays, bars, columns, unique
from privsql.answer.outcome import Outcome
from privsql.answer.table import is_number
from privsql.answer.values import values
from privsql.errors import OperationalError, ProgrammingError


class MissingExtraError(OperationalError):
    """A package that comes with one of privsql's extras is not installed."""

    code = "missing-extra"


def load(module: str, *, extra: str, asked: str) -> Any:
    """Import a module that an extra brings.

    >>> load("json", extra="plot", asked="plot()").__name__
    'json'
    >>> load("no_such_module", extra="plot", asked="plot()")
    Traceback (most recent call last):
        ...
    privsql.answer.export.MissingExtraError: ERROR 58000 [missing-extra]: plot() needs the \
package no_such_module, which is not installed
    HINT: pip install 'privsql[plot]'
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.split(".")[0]
        if error.name is None or error.name.split(".")[0] != package:
            raise  # the package is there and broken: hiding that would send people astray
        raise MissingExtraError(
            f"{asked} needs the package {package}, which is not installed",
            hint=f"pip install 'privsql[{extra}]'",
        ) from None


def frame(outcome: Outcome) -> pd.DataFrame:
    """The columns that a program sees, typed as DuckDB types its own data frames."""
    return _framed([column.name for column in columns(outcome)], arrays(outcome))


def estimates(outcome: Outcome) -> pd.DataFrame:
    """One row per estimate: row, column, estimate, its bars, and the exact columns of its row."""
    import pandas as pd  # type: ignore[import-untyped]

    rows = pa.array(range(outcome.table.num_rows), pa.int64())
    keys = [i for i, column in enumerate(outcome.columns) if not column.estimate]
    names = ["row", "column", "estimate", *BARS, *(outcome.columns[i].name for i in keys)]
    parts = []
    for i, column in enumerate(outcome.columns):
        if column.estimate:
            name = pa.array([column.name] * len(rows), pa.string())
            found: list[pa.ChunkedArray[Any]] = [
                pa.chunked_array([rows]),
                pa.chunked_array([name]),
                outcome.table.column(i),
                *bars(outcome, i),
                *(outcome.table.column(key) for key in keys),
            ]
            part = _framed(names, found)
            part["reliable"] = part["reliable"].astype("boolean")
            parts.append(part)
    if not parts:
        return pd.DataFrame(columns=unique(names))
    return pd.concat(parts, ignore_index=True).sort_values("row", kind="stable", ignore_index=True)


def _framed(names: Sequence[str], found: Sequence[pa.ChunkedArray[Any]]) -> pd.DataFrame:
    """DECIMAL and HUGEINT become float64: pandas has no place for them but objects."""
    ready = [
        array.cast(pa.float64(), safe=False) if pa.types.is_decimal(array.type) else array
        for array in found
    ]
    whole: pd.DataFrame = pa.table(ready, names=unique(names)).to_pandas(date_as_object=False)
    return whole


if TYPE_CHECKING:
    import pandas as pd
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
