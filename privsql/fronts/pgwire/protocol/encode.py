"""Arrow columns encoded as protocol rows, column by column.

    column ── text or binary ──> an Arrow array of byte strings
    arrays ── join ────────────> one buffer: D, length, count, then length and bytes of each cell

Arrow casts and joins in C++, so a million rows take about as long as PostgreSQL takes for them.
Types that few answers have (intervals, arrays, structures, ``numeric`` in binary) are made value
by value, in ``values``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from privsql.fronts.pgwire.protocol import values
from privsql.fronts.pgwire.protocol.types import Kind

# The stubs know neither arrays of an unknown type nor constants among the arguments.
Array = Any
pc: Any = pyarrow.compute
Encode = Callable[[Array], Array]

# Rows and bytes that are encoded at once: what a slow reader makes a server hold.
ROWS = 8192
BYTES = 1 << 20

EPOCH_DAYS = 10957  # from 1970 to 2000, where PostgreSQL's time begins
EPOCH = EPOCH_DAYS * 86_400_000_000

# Days and microseconds of the years 1 to 9999, which Arrow prints as PostgreSQL does.
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_DAY = 86_400_000_000


def encoder(kind: Kind, binary: bool, zone: str) -> Encode:
    """What makes byte strings of a column of this type."""
    if binary:
        return lambda column: _binary(column, kind)
    return lambda column: _text(column, kind, zone)


def encoded(table: pa.Table, encoders: Sequence[Encode]) -> list[Array]:
    """The columns of a slice as byte strings, NULL where there is none."""
    return [encode(_one(table.column(i))).cast(pa.binary()) for i, encode in enumerate(encoders)]


def data_rows(columns: Sequence[Array], count: int, kind: bytes = b"D") -> pa.Buffer | bytes:
    """DataRow messages of all rows, one after the other; COPY has the same with another letter.

    The length of a row is 6 + sum over columns of (4 + bytes of the cell); NULL is length -1.
    """
    lengths = [
        np.asarray(pc.fill_null(pc.binary_length(column), -1), dtype=np.int64) for column in columns
    ]
    total = np.full(count, 6 + 4 * len(columns), dtype=np.int64)
    for each in lengths:
        total += np.maximum(each, 0)
    head = np.empty(count, dtype=[("kind", "S1"), ("size", ">i4"), ("columns", ">i2")])
    head["kind"], head["size"], head["columns"] = kind, total, len(columns)
    pieces = [fixed(head)]
    for column, length in zip(columns, lengths, strict=True):
        pieces += [fixed(length.astype(">i4")), column.fill_null(b"")]
    return joined(pieces)


def joined(pieces: Sequence[Array]) -> pa.Buffer | bytes:
    """Arrays of byte strings side by side, as one buffer."""
    made: Any = pc.binary_join_element_wise(*pieces, b"") if len(pieces) > 1 else pieces[0]
    offsets = np.frombuffer(made.buffers()[1], dtype=np.int32)[made.offset :][: len(made) + 1]
    data = made.buffers()[2]
    return b"" if data is None else data.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))


def fixed(values_: np.ndarray[Any, Any], nulls: Array = None) -> Array:
    """An array of byte strings of one width, made of the memory of a numpy array."""
    count, width = len(values_), values_.dtype.itemsize
    offsets = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    data = pa.py_buffer(np.ascontiguousarray(values_).tobytes())
    buffers = [None, pa.py_buffer(offsets.tobytes()), data]
    made: Any = pa.Array.from_buffers(pa.binary(), count, buffers)
    return made if nulls is None else pc.if_else(nulls, pa.scalar(None, pa.binary()), made)


def slices(table: pa.Table) -> Iterator[pa.Table]:
    """Parts of a table that are small enough to be encoded at once."""
    each = max(1, table.nbytes // max(1, table.num_rows))
    step = max(1, min(ROWS, BYTES // each))
    for at in range(0, table.num_rows, step):
        yield table.slice(at, step)


def _one(column: pa.ChunkedArray[Any]) -> Array:
    array: Array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if isinstance(array.type, pa.DictionaryType):
        return array.cast(array.type.value_type)
    return array


# -- text ------------------------------------------------------------------------------------


def _text(column: Array, kind: Kind, zone: str) -> Array:
    shape = column.type
    if pa.types.is_null(shape):
        return pa.nulls(len(column), pa.binary())
    if (element := kind.element) is not None:
        return values.array_texts(column, lambda inner: _text(inner, element, zone))
    if pa.types.is_timestamp(shape):
        return _timestamp_text(column, zone)
    for has_shape, text in _TEXTS:
        if has_shape(shape):
            return text(column)
    return values.texts(column, kind)


def _plain_text(column: Array) -> Array:
    return column.cast(pa.string())


def _float_text(column: Array) -> Array:
    """Arrow prints the shortest digits that give the number back, as PostgreSQL does."""
    made: Any = column.cast(pa.string())
    odd = pc.invert(pc.is_finite(column))
    if pc.any(odd).as_py():
        names = pc.if_else(
            pc.is_nan(column), "NaN", pc.if_else(pc.greater(column, 0), "Infinity", "-Infinity")
        )
        made = pc.if_else(pc.fill_null(odd, False), names, made)
    return made


def _decimal_text(column: Array) -> Array:
    made: Any = column.cast(pa.string())
    odd = pc.fill_null(pc.match_substring(made, "E"), False)
    if not pc.any(odd).as_py():
        return made
    return values.each("{:f}".format, column.to_pylist())


def _date_text(column: Array) -> Array:
    days = column.cast(pa.date32()).cast(pa.int32())
    if _within(days, _FIRST_DAY, _LAST_DAY):
        return column.cast(pa.string())
    return values.each(values.date_text, days.to_pylist())


def _timestamp_text(column: Array, zone: str) -> Array:
    """PostgreSQL leaves zeros at the end of a fraction out, and so do we."""
    aware = column.type.tz is not None
    instants = column.cast(pa.timestamp("us", column.type.tz), safe=False)
    micros = instants.cast(pa.int64())
    # A day less at each end, because a zone may move a time by so much.
    if not _within(micros, (_FIRST_DAY + 1) * _DAY, (_LAST_DAY - 1) * _DAY):
        return values.each(partial(values.timestamp_text, aware=aware), micros.to_pylist())
    if not aware:
        return _short(instants.cast(pa.string()))
    local = pc.local_timestamp(instants.cast(pa.timestamp("us", zone)))
    seconds = pc.divide(pc.subtract(local.cast(pa.int64()), micros), 1_000_000)
    offsets = pc.dictionary_encode(seconds)
    names = values.each(values.offset_text, offsets.dictionary.to_pylist())
    return pc.binary_join_element_wise(
        _short(local.cast(pa.string())), names.take(offsets.indices), ""
    )


def _time_text(column: Array) -> Array:
    return _short(column.cast(pa.time64("us"), safe=False).cast(pa.string()))


def _short(texts: Array) -> Array:
    """Leave out zeros at the end of a fraction, and the point after which nothing is left."""
    return pc.utf8_rtrim(pc.utf8_rtrim(texts, "0"), ".")


def _within(numbers: Array, low: int, high: int) -> bool:
    ends: Any = pc.min_max(numbers).as_py()
    return ends["min"] is None or (ends["min"] >= low and ends["max"] <= high)


_TEXTS: tuple[tuple[Callable[[pa.DataType], bool], Encode], ...] = (
    (pa.types.is_boolean, lambda column: pc.if_else(column, "t", "f")),
    (pa.types.is_integer, _plain_text),
    (pa.types.is_floating, _float_text),
    (pa.types.is_decimal, _decimal_text),
    (pa.types.is_date, _date_text),
    (pa.types.is_time, _time_text),
    (pa.types.is_string, _plain_text),
    (pa.types.is_large_string, _plain_text),
)


# -- binary ----------------------------------------------------------------------------------

_NUMBERS = {
    "int2": ">i2",
    "int4": ">i4",
    "int8": ">i8",
    "oid": ">u4",
    "float4": ">f4",
    "float8": ">f8",
}


def _binary(column: Array, kind: Kind) -> Array:
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), pa.binary())
    if (element := kind.element) is not None:
        return values.array_bytes(column, lambda inner: _binary(inner, element), element.oid)
    if kind.name in _NUMBERS:
        return _numbers(column, _NUMBERS[kind.name])
    if kind.name == "bool":
        return _numbers(column.cast(pa.int8()), "i1")
    if kind.name == "date":
        days = column.cast(pa.date32()).cast(pa.int32())
        return _moved(days, EPOCH_DAYS, ">i4")
    if kind.name in ("timestamp", "timestamptz"):
        micros = column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.int64())
        return _moved(micros, EPOCH, ">i8")
    if kind.name == "time":
        return _numbers(column.cast(pa.time64("us"), safe=False).cast(pa.int64()), ">i8")
    if kind.name in ("text", "name", "varchar", "bpchar", "char", "unknown", "json"):
        return _text(column, kind, "UTC")
    return values.binaries(column, kind)


def _numbers(column: Array, code: str) -> Array:
    plain, nulls = _numpy(column)
    return fixed(plain.astype(code), nulls)


def _moved(column: Array, by: int, code: str) -> Array:
    """Numbers from 1970 on as numbers from 2000 on; both ends of the range mean infinity."""
    plain, nulls = _numpy(column)
    ends = np.iinfo(plain.dtype)
    infinite = (plain == ends.max) | (plain == -ends.max)
    low = np.where(plain < 0, ends.min, ends.max)
    moved = np.where(infinite, low, np.maximum(plain, ends.min + by) - by)
    return fixed(moved.astype(code), nulls)


def _numpy(column: Array) -> tuple[np.ndarray[Any, Any], Array]:
    """The numbers, 0 where there is none, and where that is."""
    if not column.null_count:
        return np.asarray(column.to_numpy(zero_copy_only=False)), None
    return np.asarray(column.fill_null(0).to_numpy(zero_copy_only=False)), column.is_null()
