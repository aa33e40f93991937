"""Types without an Arrow equivalent: UUID, JSON, HUGEINT, TIMETZ and others.

Rows travel from the source to the release as Arrow batches.  Left to itself, DuckDB then
writes such values as something near: TIMETZ without its offset, HUGEINT as a DECIMAL that
does not hold all of it.  So public columns travel *exactly*, as Arrow's extension types,
which the release reads back as what they were:

    exact     the source's type, and nothing is computed with it     public columns
    plain     text, numbers, booleans, as domains and units know     sensitive columns, units

An ENUM arrives as text: its values are what they were, its list is not needed.

>>> plain(restored(pa.array([1, -1, None]), HUGEINT)).to_pylist()
[Decimal('1'), Decimal('-1'), None]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

HUGEINT = pa.opaque(pa.binary(16), "hugeint", "DuckDB")
UHUGEINT = pa.opaque(pa.binary(16), "uhugeint", "DuckDB")
DECIMAL = pa.decimal128(38, 0)

# Whole numbers, as DuckDB calls their types.
SIGNED = ("tinyint", "smallint", "integer", "bigint", "hugeint")
WHOLE_NUMBERS = (*SIGNED, *(f"u{name}" for name in SIGNED))

# Types that text is read as, by the kind of a domain, in DuckDB's words.
READ_AS = {
    "integer": "BIGINT",
    "decimal": "DECIMAL(18,4)",
    "real": "DOUBLE",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "boolean": "BOOLEAN",
}

# Where the sixteen bytes of a UUID stand in its text, and where the hyphens do.
DIGITS = np.array([i for i in range(36) if i not in (8, 13, 18, 23)])
HEX = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), np.uint8)


def keep_types(con: duckdb.DuckDBPyConnection, keep: bool) -> None:
    """What a connection reads as Arrow from now on keeps its type, or comes plain."""
    con.execute(f"SET arrow_lossless_conversion = {str(keep).lower()}")


@contextmanager
def exactly(con: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Tables that are read as Arrow meanwhile keep their types."""
    keep_types(con, True)
    try:
        yield
    finally:
        keep_types(con, False)


def plain(array: Any) -> Any:
    """Values that travelled exactly, as domains and units know them.

    HUGEINT becomes a decimal of the same sixteen bytes; what 38 digits do not hold is outside
    of every domain.
    """
    kind = array.type
    if not isinstance(kind, pa.BaseExtensionType):
        return array
    if isinstance(array, pa.ChunkedArray):
        return plain(array.combine_chunks())
    if kind.extension_name == "arrow.bool8":
        return array.storage.cast(pa.bool_())
    if kind.extension_name == "arrow.uuid":
        return _uuid_text(array.storage)
    if kind in (HUGEINT, UHUGEINT):
        storage = array.storage
        return pa.Array.from_buffers(DECIMAL, len(storage), storage.buffers(), offset=array.offset)
    return array.storage if kind.extension_name == "arrow.json" else array


def common(array: Any) -> Any:
    """Values for other readers than DuckDB: without its wrapping where that adds nothing."""
    name = getattr(array.type, "extension_name", None)
    return plain(array) if name == "arrow.bool8" else array


def called(kind: pa.DataType) -> str:
    """A type as an error names it.

    >>> called(pa.opaque(pa.binary(8), "time_tz", "DuckDB")), called(pa.int8())
    ('TIME_TZ', 'int8')
    """
    return kind.type_name.upper() if isinstance(kind, pa.OpaqueType) else str(kind)


def restored(values: Any, kind: pa.DataType, *, safe: bool = True) -> Any:
    """Plain values as the type that they came in; raises what Arrow raises if they do not fit.

    ``safe = False`` is for integers that are known to.
    """
    if values.type == kind:
        return values
    if pa.types.is_integer(kind) and pa.types.is_integer(values.type):
        return values.cast(kind, safe=safe)
    if pa.types.is_dictionary(kind):
        return values.cast(kind.value_type)
    if not isinstance(kind, pa.BaseExtensionType):
        if pa.types.is_decimal(kind) and pa.types.is_integer(values.type):
            # Arrow wants room for any integer on the way, however small these are.
            values = values.cast(DECIMAL)
        return values.cast(kind)
    if kind in (HUGEINT, UHUGEINT):
        numbers = values.cast(DECIMAL)
        storage = pa.Array.from_buffers(
            kind.storage_type, len(numbers), numbers.buffers(), offset=numbers.offset
        )
    elif kind.extension_name == "arrow.uuid":
        found = values.cast(pa.string()).dictionary_encode()
        storage = _uuid_bytes(found.dictionary).take(found.indices)
    else:
        storage = values.cast(kind.storage_type)
    return from_stored(storage, kind)


def as_written(
    batch: pa.RecordBatch, public: int, names: Sequence[str], arrays: Sequence[Any]
) -> pa.RecordBatch:
    """Columns made of a batch, the first ``public`` of them with the fields that it has there.

    Some types are known by the metadata of their field only.
    """
    fields = [
        (batch.schema.field(i) if i < public else pa.field(name, array.type))
        .with_name(name)
        .with_type(array.type)
        for i, (name, array) in enumerate(zip(names, arrays, strict=True))
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def stored(array: Any) -> Any:
    """What Arrow can compare: equal where the values are equal as DuckDB sees them."""
    return array.storage if isinstance(array, pa.ExtensionArray) else array


def from_stored(array: Any, kind: pa.DataType) -> Any:
    """Undo :func:`stored`."""
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, array)
    return array


def _uuid_text(storage: Any) -> Any:
    """Write UUIDs as text does, without a Python object for each."""
    filled = storage.fill_null(bytes(16))
    raw = np.frombuffer(filled.buffers()[1], np.uint8).reshape(-1, 16)
    raw = raw[filled.offset : filled.offset + len(filled)]
    text = np.full((len(raw), 36), ord("-"), np.uint8)
    text[:, DIGITS] = HEX.reshape(-1, 2)[raw].reshape(-1, 32)
    offsets = pa.py_buffer(np.arange(0, 36 * len(raw) + 1, 36, dtype=np.int64).data)
    made: Any = pa.Array.from_buffers(
        pa.large_string(), len(raw), [None, offsets, pa.py_buffer(text.data)]
    )
    return pc.if_else(storage.is_valid(), made, pa.scalar(None, pa.large_string()))


def _uuid_bytes(texts: Any) -> Any:
    try:
        return pa.array(
            [None if text is None else UUID(text).bytes for text in texts.to_pylist()],
            pa.binary(16),
        )
    except ValueError:
        raise pa.ArrowInvalid("not a UUID") from None
