"""An answer as pandas data frames: its rows, or one row per estimate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa

from privsql.answer.columns import BARS, arrays, bars, columns, unique
from privsql.answer.outcome import Outcome


def frame(outcome: Outcome) -> pd.DataFrame:
    """The columns that a program sees, typed as DuckDB types its own data frames."""
    return _framed([column.name for column in columns(outcome)], arrays(outcome))


def estimates(outcome: Outcome) -> pd.DataFrame:
    """One row per estimate: row, column, estimate, its bars, and the exact columns of its row."""
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
