"""Rows of Python objects, with the types that DuckDB's own driver returns.

Arrow knows fewer types than DuckDB: a HUGEINT travels as a decimal, a UUID as text, a MAP
as pairs.  The type that the session names says what they were.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa

from privsql.answer.outcome import ResultColumn


def rows(
    columns: Sequence[ResultColumn], arrays: Sequence[pa.ChunkedArray[Any]]
) -> list[tuple[Any, ...]]:
    """One tuple per row.

    >>> big = pa.chunked_array([pa.array([7], pa.decimal128(38, 0))])
    >>> rows([ResultColumn("s", "HUGEINT")], [big])
    [(7,)]
    """
    lists = [values(column.type, array) for column, array in zip(columns, arrays, strict=True)]
    return list(zip(*lists, strict=True))


def values(kind: str, array: pa.ChunkedArray[Any]) -> list[Any]:
    """The values of one column of DuckDB's type ``kind``."""
    if pa.types.is_timestamp(array.type) and array.type.unit == "ns":
        # Python's datetime ends at microseconds; what is beyond is cut, as DuckDB cuts it.
        array = array.cast(pa.timestamp("us", array.type.tz), safe=False)
    convert = _CONVERT.get(kind.split("(")[0] if not kind.endswith("]") else kind)
    found: list[Any] = array.to_pylist()
    if convert is None:
        return found
    return [None if value is None else convert(value) for value in found]


def _uuid(value: Any) -> uuid.UUID:
    return value if isinstance(value, uuid.UUID) else uuid.UUID(str(value))


def _interval(value: Any) -> timedelta:
    """A month is 30 days here, as in DuckDB's driver; timedelta has no months."""
    if isinstance(value, timedelta):
        return value
    days = 30 * value.months + value.days
    return timedelta(days=days, microseconds=value.nanoseconds // 1000)


_CONVERT: dict[str, Callable[[Any], Any]] = {
    "HUGEINT": int,
    "UHUGEINT": int,
    "UUID": _uuid,
    "MAP": dict,
    "INTERVAL": _interval,
}
