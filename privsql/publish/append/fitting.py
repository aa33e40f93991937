"""Public values of a batch, converted exactly to the types of a release, or refused.

A cast that rounds would publish something that nobody sent, and would do so in silence.  So
every value is cast there and back, and has to come back as it went:

    3.7 ──► INTEGER 4 ──► 4.0        refused, with the column and the row of the batch
    3.0 ──► INTEGER 3 ──► 3.0        taken

Text comes back in another spelling ("1.50" as 1.5), so it is held against the digits that
its type keeps instead.  Text for FLOAT and DOUBLE is always taken: reading decimal digits as
the nearest number is what every reader of a CSV file does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from duckdb import ColumnExpression, ConstantExpression, FunctionExpression

from privsql.errors import DataError
from privsql.publish.types import WHOLE_NUMBERS
from privsql.release.names import RESERVED

# Where a row stands in its batch; no column of a release can be called so.
NUMBER = f"{RESERVED}row"

# Digits after the point that a type keeps.
DIGITS = dict.fromkeys(WHOLE_NUMBERS, 0) | {
    "timestamp_s": 0,
    "timestamp_ms": 3,
    "timestamp": 6,
    "timestamp with time zone": 6,
    "time": 6,
    "time with time zone": 6,
    "timestamp_ns": 9,
    "time_ns": 9,
}

# What text says and a date, or a time without a zone, would forget.
FORGOTTEN = {"date": "[ T].*[1-9]"} | dict.fromkeys(
    ("timestamp_s", "timestamp_ms", "timestamp", "timestamp_ns"),
    ":[0-9.:]+ *[+-][0-9]",
)

ZONED = "timestamp with time zone"
UNZONED = ("date", "timestamp_s", "timestamp_ms", "timestamp", "timestamp_ns")

Type = Any  # duckdb's type of a column, which its stubs spell differently


def insert_fitted(
    con: duckdb.DuckDBPyConnection,
    table: str,
    rows: pa.RecordBatch,
    kinds: Mapping[str, Type],
    checked: Sequence[str],
    before: int,
) -> None:
    """Insert rows into a table whose columns have these types, or say which row does not fit.

    ``checked`` are the columns to look at, ``before`` the rows of the batch that came earlier.
    """
    names = rows.schema.names
    places = pa.array(np.arange(len(rows)))
    con.register("batch", pa.Table.from_batches([rows]).append_column(NUMBER, places))
    try:
        batch = con.table("batch")
        given = dict(zip(batch.columns, batch.types, strict=True))
        for name in checked:
            row = _first_misfit(batch, name, given[name], kinds[name])
            if row is not None:
                raise DataError(
                    f"column {name}: the value in row {before + row + 1} of the batch does not fit"
                    " its column in the release without being changed",
                    hint="store it in the type that the release has, which its manifest names",
                )
        batch.select(
            *(ColumnExpression(name).cast(kinds[name]).alias(name) for name in names)
        ).insert_into(table)
    finally:
        con.unregister("batch")


def _first_misfit(batch: duckdb.DuckDBPyRelation, name: str, given: Type, kind: Type) -> int | None:
    if given == kind:
        return None
    value = ColumnExpression(name)
    made = value.try_cast(kind)
    text = str(given) == "VARCHAR"
    if text:
        wrong = made.isnull()
        for pattern in _too_much(kind):
            wrong = wrong | FunctionExpression("regexp_matches", value, ConstantExpression(pattern))
    elif {given.id, kind.id} & {ZONED} and {given.id, kind.id} & {*UNZONED}:
        # What comes back equal would depend on the clock of whoever appends.
        wrong = ConstantExpression(True)
    else:
        back = made.try_cast(given)
        wrong = back.isnull() | (back != value)
    try:
        found = batch.filter(value.isnotnull() & wrong)
        row = found.aggregate([FunctionExpression("min", ColumnExpression(NUMBER))]).fetchall()
    except (duckdb.DataError, duckdb.ProgrammingError, duckdb.NotSupportedError):
        return 0  # there is no cast at all between such types
    return None if row[0][0] is None else int(row[0][0])


def _too_much(kind: Type) -> list[str]:
    """Patterns of text that says more than the type keeps."""
    patterns = []
    digits = DIGITS.get(kind.id)
    if kind.id == "decimal":
        digits = int(dict(kind.children)["scale"])
    if digits is not None:
        patterns.append(rf"\.[0-9_]{{{digits}}}[0-9_]*[1-9]")
    if kind.id == "decimal" or kind.id in WHOLE_NUMBERS:
        patterns.append("^[^xX]*[eE]")  # an exponent hides where the point is
    if kind.id in FORGOTTEN:
        patterns.append(FORGOTTEN[kind.id])
    return patterns
