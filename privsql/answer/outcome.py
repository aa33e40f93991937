"""The outcome of one statement: rows, error bars and notices.

The session makes it; connections, answers that print themselves and servers read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from privsql.errors import Notice

__all__ = ["Notice", "Outcome", "Personal", "ResultColumn"]


@dataclass(frozen=True, slots=True)
class Personal:
    """What the policy of the release found about the cells of an answer.

    A cell is one aggregate of one group.  Numbers, never which person: the notices say the same.

    >>> bool(Personal("refuse", cells=18))
    False
    """

    policy: str  # "refuse" | "flag" | "allow"
    cells: int = 0  # that involve a sensitive column
    personal: int = 0  # whose rows are one personal group
    few: int = 0  # over fewer rows than the release asks for
    close: int = 0  # which past answers would make personal
    refused: int = 0  # that were not answered

    def __bool__(self) -> bool:
        """Whether any cell was personal, over few rows or too close to what was refused."""
        return bool(self.personal or self.few or self.close)

    def __add__(self, other: Personal) -> Personal:
        """Both together."""
        return Personal(
            self.policy,
            self.cells + other.cells,
            self.personal + other.personal,
            self.few + other.few,
            self.close + other.close,
            self.refused + other.refused,
        )


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
    personal: Personal = field(default_factory=lambda: Personal("allow"))
