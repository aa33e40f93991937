"""Notices that follow from the figures of an answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from privsql.answer.outcome import Outcome
from privsql.errors import Notice, how_many


class Origin(Protocol):
    """How a column was computed."""

    @property
    def why(self) -> str:
        """Why it has no error bars at all; another notice states it."""

    @property
    def ratio(self) -> bool:
        """Whether it divides by an estimate."""

    @property
    def spread(self) -> bool:
        """Whether it is made of variances or their kin."""


def bar_notices(
    columns: Iterable[tuple[str, pa.ChunkedArray[Any], pa.Table, Origin]],
) -> list[Notice]:
    """Notices about estimates that are NULL or lack an error bar or an end of it, one per reason.

    A column is its name, its values, its error bars and where it comes from.
    """
    found: dict[str, dict[str, int]] = {}
    for name, values, bars, origin in columns:
        for code, many in _gaps(values, bars, origin).items():
            at = found.setdefault(code, {})
            at[name] = at.get(name, 0) + many
    return [Notice(REASONS[code][0], _said(code, counts)) for code, counts in sorted(found.items())]


def _gaps(values: pa.ChunkedArray[Any], bars: pa.Table, origin: Origin) -> dict[str, int]:
    """How many values of a column lack something, by reason."""
    if not (values.null_count or any(bar.null_count for bar in bars.columns)):
        return {}
    there, why = values.is_valid(), bool(origin.why)
    # Of what has no bars at all nobody knows whether it is reliable.
    reliable: Any = bars.column("reliable")
    failed: Any = pc.and_not(pc.fill_null(pc.invert(reliable), why), there)
    stderr, low, high = (bars.column(bar).is_valid() for bar in ("stderr", "low", "high"))
    both, some = pc.and_(low, high), pc.or_(pc.or_(stderr, low), high)
    ends = {
        "ratio": failed if origin.ratio else None,
        "spread": failed if origin.spread and not origin.ratio else None,
        "variance": None if why else pc.and_not(_finite(values), some),
        "far": pc.and_(there, pc.and_not(some, both)),
    }
    counts = {code: _count(where) for code, where in ends.items() if where is not None}
    return {code: many for code, many in counts.items() if many}


# Code, what is the matter with one value and with several, and why.
REASONS = {
    "ratio": (
        "ratio",
        "is NULL",
        "are NULL",
        "the denominator cannot be distinguished from zero, or rests on too few rows; ask for"
        " larger groups, or for the numerator and the denominator separately",
    ),
    "spread": (
        "spread",
        "is NULL",
        "are NULL",
        "the estimate is negative, which can happen with few rows; ask for larger groups",
    ),
    "variance": (
        "no-error",
        "has no error bar",
        "have no error bar",
        "the estimated variance is not positive, which can happen with few rows",
    ),
    "far": (
        "no-end",
        "has an unbounded interval",
        "have unbounded intervals",
        "the denominator is so close to zero that the ratio is unbounded on that side",
    ),
}


def _said(code: str, counts: Mapping[str, int]) -> str:
    _, one, more, why = REASONS[code]
    many = sum(counts.values())
    names = ", ".join(map(repr, counts))
    return f"{how_many(many, 'value')} of {names} {one if many == 1 else more}: {why}"


def _finite(values: pa.ChunkedArray[Any]) -> Any:
    """Which values are finite; NULL is not, and others have their own notice."""
    if not pa.types.is_floating(values.type):
        return values.is_valid()
    finite: Any = pc.is_finite(values)
    return pc.fill_null(finite, False)


def notices_of(outcome: Outcome, counts: Sequence[int]) -> list[Notice]:
    """Notices about an answer; ``counts`` are its columns that are counts themselves."""
    found = []
    doubtful = sum(_false(bars.column("reliable")) for bars in outcome.bars.values())
    if doubtful:
        found.append(
            Notice(
                "unreliable",
                f"{how_many(doubtful, 'estimate rests', 'estimates rest')} on too few rows for an"
                f" interval at {outcome.level:.4g}",
            )
        )
    wild = sum(_wild(outcome.table.column(i)) for i in outcome.bars)
    if wild:
        found.append(
            Notice(
                "not-finite",
                f"{how_many(wild, 'estimate is', 'estimates are')} infinite or not a number: the"
                " arithmetic around aggregates divides by zero or leaves a function's range",
            )
        )
    below = sum(_negative(outcome.table.column(i)) for i in counts)
    if below:
        found.append(
            Notice(
                "out-of-range",
                f"{how_many(below, 'estimated count is', 'estimated counts are')} below zero, which"
                " an"
                " unbiased estimate can be; SET privsql.estimator = 'iterative' keeps them"
                " non-negative",
            )
        )
    if outcome.estimator == "iterative":
        found.append(
            Notice("iterative", "iterative estimates are biased: do not add up their cells")
        )
    return found


def _false(column: pa.ChunkedArray[Any]) -> int:
    return sum(chunk.false_count for chunk in column.chunks if isinstance(chunk, pa.BooleanArray))


def _wild(column: pa.ChunkedArray[Any]) -> int:
    """How many values are infinite or not a number, NULL not counted."""
    if not pa.types.is_floating(column.type):
        return 0
    return len(column) - column.null_count - _count(pc.is_finite(column))


def _negative(column: pa.ChunkedArray[Any]) -> int:
    if not pa.types.is_floating(column.type):
        return 0
    return _count(pc.less(column, pa.scalar(0.0)))


def _count(truths: Any) -> int:
    return pc.sum(truths).as_py() or 0
