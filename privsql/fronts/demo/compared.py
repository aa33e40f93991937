"""The same SQL run on the raw table and on the release."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from privsql.fronts.demo.questions import Question

if TYPE_CHECKING:
    import duckdb

    from privsql.fronts.dbapi.connection import Connection


@dataclass(frozen=True)
class Compared:
    """One number: its true value, its estimate and the interval."""

    label: str
    truth: float
    estimate: float
    low: float
    high: float

    @property
    def error(self) -> float:
        """Half of the interval."""
        return (self.high - self.low) / 2

    @property
    def inside(self) -> bool:
        """Whether the interval contains the true value."""
        return self.low <= self.truth <= self.high


def compare(
    question: Question, raw: duckdb.DuckDBPyConnection, con: Connection
) -> tuple[Compared, ...]:
    """Query both; rows of the two answers are matched by their label."""
    truths = {_label(row[:-1]): row[-1] for row in raw.execute(question.sql).fetchall()}
    answer = con.sql(question.sql, error_bars=True)
    names = [name.rsplit("_", 1)[-1] for name in answer.columns]
    at, low, high = names.index("stderr") - 1, names.index("low"), names.index("high")
    return tuple(
        Compared(
            _label(row[:at]), float(truths.get(_label(row[:at]), 0)), row[at], row[low], row[high]
        )
        for row in answer
    )


def held(found: Sequence[Compared]) -> int:
    """How many intervals contain the true value."""
    return sum(each.inside for each in found)


def _label(values: Sequence[Any]) -> str:
    return ", ".join(map(str, values))
