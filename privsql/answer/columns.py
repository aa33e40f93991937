"""The columns of an answer as a program sees them, error bars included when asked for.

A session hands out values and bars apart.  ``error_bars`` means that the bars are wanted as
columns of the answer: each estimate n is then followed by n_stderr, n_low, n_high and
n_reliable, in data frames, in Arrow and in what a cursor fetches alike.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from privsql.answer.outcome import Outcome, ResultColumn

BARS = {"stderr": "DOUBLE", "low": "DOUBLE", "high": "DOUBLE", "reliable": "BOOLEAN"}


def columns(outcome: Outcome) -> tuple[ResultColumn, ...]:
    """The columns that a program sees, in order.

    >>> asked = (ResultColumn("job", "VARCHAR"), ResultColumn("n", "DOUBLE", estimate=True))
    >>> empty = pa.table({"job": pa.array([], pa.string()), "n": pa.array([], pa.float64())})
    >>> [c.name for c in columns(Outcome("rows", asked, empty, error_bars=True))]
    ['job', 'n', 'n_stderr', 'n_low', 'n_high', 'n_reliable']
    """
    if not outcome.error_bars:
        return outcome.columns
    found = []
    for i, column in enumerate(outcome.columns):
        found.append(column)
        if column.estimate:
            kinds = {bar: _type_of(outcome, i, bar) for bar in BARS}
            found += [ResultColumn(f"{column.name}_{bar}", kind) for bar, kind in kinds.items()]
    return tuple(found)


def _type_of(outcome: Outcome, i: int, bar: str) -> str:
    """The type of a bar; the ends of a quantile of dates are dates."""
    if i in outcome.bars:
        kind = outcome.bars[i].schema.field(bar).type
        if pa.types.is_temporal(kind):
            return "DATE" if pa.types.is_date(kind) else "TIMESTAMP"
    return BARS[bar]


def arrays(outcome: Outcome) -> list[pa.ChunkedArray[Any]]:
    """The values of :func:`columns`, in the same order.

    They go by position because a query may name two columns alike.
    """
    found: list[pa.ChunkedArray[Any]] = []
    for i, column in enumerate(outcome.columns):
        found.append(outcome.table.column(i))
        if outcome.error_bars and column.estimate:
            found += bars(outcome, i)
    return found


def bars(outcome: Outcome, i: int) -> list[pa.ChunkedArray[Any]]:
    """The four bars of estimate i; all NULL where the session had none to give."""
    if i in outcome.bars:
        return [outcome.bars[i].column(bar) for bar in BARS]
    rows = outcome.table.num_rows
    nothing = [pa.nulls(rows, pa.float64())] * 3 + [pa.nulls(rows, pa.bool_())]
    return [pa.chunked_array([array]) for array in nothing]


def table(outcome: Outcome) -> pa.Table:
    """All columns as one Arrow table, with unique names."""
    names = unique(column.name for column in columns(outcome))
    return pa.table(arrays(outcome), names=names)


def unique(names: Iterable[str]) -> list[str]:
    """Names in the same order, a repeated one numbered as DuckDB does.

    >>> unique(["n", "n", "n_1", "m"])
    ['n', 'n_1', 'n_1_1', 'm']
    """
    taken: set[str] = set()
    found = []
    for name in names:
        free, i = name, 0
        while free in taken:
            i += 1
            free = f"{name}_{i}"
        taken.add(free)
        found.append(free)
    return found
