"""What one statement came to: rows, their error bars, and what has to be said about them.

The session makes it; connections, answers that print themselves and servers read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from privsql.errors import Notice

__all__ = ["Notice", "Outcome", "ResultColumn"]


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """A column of an answer: its name, DuckDB's type, and whether it is an estimate."""

    name: str
    type: str
    estimate: bool = False


@dataclass(frozen=True)
class Outcome:
    """The rows of an answer and what is known about their error.

    ``table`` holds the columns that were asked for, in order.  ``bars[i]`` exists for every
    column i that is an estimate: a table of as many rows with the columns ``stderr``,
    ``low``, ``high`` (DOUBLE, NULL where there is none to be had) and ``reliable`` (BOOLEAN,
    NULL likewise).  An exact answer has none and needs none.
    """

    kind: str  # "rows" | "set" | "explain"
    columns: tuple[ResultColumn, ...]
    table: pa.Table
    bars: Mapping[int, pa.Table] = field(default_factory=dict)
    notices: tuple[Notice, ...] = ()
    estimator: str = "exact"  # "exact" | "inversion" | "iterative"
    level: float = 0.95
    error_bars: bool = False  # whether the bars were asked for as columns
