"""Units: the person of a row, as two words of 64 bits.

The draws of a publication are a function of the unit, so a person must get the same words
however the identifier happens to be stored, and two persons must never share them:

    whole numbers    (value, sign and tag): any width, decimals and floats without a fraction,
                     and text that is the plain way to write one ("17", but not "017")
    dates, times     (days, tag); (seconds, nanoseconds and tag), whatever the unit of storage
    text, binary     128 bits of a keyed MAC:  c = AES(k, length);  c = AES(k, c xor block) ...
    rows             (position in the source, tag and table)

The length in front makes CBC-MAC sound for messages of different lengths, and the key keeps
anyone who does not have it from looking for identifiers that collide.  Blocks are encrypted
for all rows in step, so the cost a row is that of its own blocks.

>>> import pyarrow as pa
>>> numbers = unit_words(pa.array([17], pa.int8()))
>>> all((numbers == unit_words(pa.array([17], t))).all() for t in (pa.uint64(), pa.float64()))
True
>>> (numbers == unit_words(pa.array(["17"]))).all(), (numbers == unit_words(pa.array(["x"]))).all()
(np.True_, np.False_)
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privsql.errors import DataError, how_many
from privsql.publish.keys.randomness import CHUNK, KEY_BYTES, Blocks, Words
from privsql.publish.types import plain
from privsql.release.names import quoted

# The lowest byte of the second word says what the first one counts.
INTEGER, DATE, TIMESTAMP, ROW = 1, 2, 3, 4

# What a MAC is of, so that a number and a text of equal bytes differ.
TEXT, NUMBER = 1, 2

NO_KEY = bytes(KEY_BYTES)

# Rows of one unit that are told as they are.
EXACT = 10

BLOCK = 16

# The plain way to write a whole number that surely fits in 64 bits.
PLAIN = r"^(0|-?[1-9][0-9]{0,17})$"
PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}

# KEEP[k] keeps the first k bytes of a block.
KEEP = np.tril(np.full((BLOCK + 1, BLOCK), 255, dtype=np.uint8), -1)


def unit_words(array: pa.Array[Any] | pa.ChunkedArray[Any], key: bytes = NO_KEY) -> Words:
    """Words of each row's unit, shape ``(n, 2)``; rows without one are refused.

    ``key`` is ``Randomness.unit_key``.
    """
    chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
    words: Words = np.empty((len(array), 2), dtype=np.uint64)
    start = missing = 0
    for chunk in chunks:
        for offset in range(0, len(chunk), CHUNK):
            part = _plain(chunk.slice(offset, CHUNK))
            # A float that is no number is nobody either.
            null: Any = pc.is_null(part, nan_is_null=pa.types.is_floating(part.type))
            missing += null.true_count
            if not missing:
                words[start : start + len(part)] = _words(part, key)
            start += len(part)
    if missing:
        raise DataError(
            f"{how_many(missing, 'row has', 'rows have')} no unit: the column that identifies the"
            " person is NULL",
            hint="drop these rows, or give each its own identifier",
        )
    return words


def rows_per_unit(relation: duckdb.DuckDBPyRelation, name: str) -> int:
    """Most rows that one unit has, counted by the database; 0 where there are no rows."""
    unit = quoted(name)
    counted = relation.aggregate(f"{unit}, count(*) AS n", unit)
    return int(counted.aggregate("max(n)").fetchall()[0][0] or 0)


def rows_told(most: int) -> int:
    """A bound on the rows of one unit that may be public: exact to 10, then 20, 50, 100, 200 ...

    How many rows the person has who has most of all is a fact about one person; a promise needs a
    bound only.

    >>> [rows_told(most) for most in (0, 1, 4, 10, 11, 37, 51, 1_000)]
    [1, 1, 4, 10, 20, 50, 100, 1000]
    """
    if most <= EXACT:
        return max(most, 1)
    unit = int(10 ** (len(str(most)) - 1))
    return next(step * unit for step in (1, 2, 5, 10) if step * unit >= most)


def row_units(start: int, count: int, table: str = "") -> Words:
    """Words of ``count`` rows from position ``start``, where a row is a person.

    Positions mean nothing across tables, so the table's name is part of them.  The memory is
    that of the order: a row that moves within its source is somebody else.

    >>> row_units(5, 2)[:, 0].tolist()
    [5, 6]
    """
    name = hashlib.sha256(table.casefold().encode("utf-8", "surrogatepass")).digest()
    return _tagged(np.arange(start, start + count), (int.from_bytes(name[:7], "little") << 8) | ROW)


def _plain(array: Any) -> Any:
    """Undo the encodings that Arrow has for the same values."""
    kind = array.type
    if pa.types.is_run_end_encoded(kind):
        return _plain(pc.call_function("run_end_decode", [array]))
    if pa.types.is_dictionary(kind):
        return _plain(array.dictionary_decode())
    if isinstance(array, pa.ExtensionArray):
        known = plain(array)  # a UUID is the same person as its text
        return _plain(array.storage if known is array else known)
    if pa.types.is_string_view(kind) or pa.types.is_string(kind):
        return array.cast(pa.large_string())
    if pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        return array.cast(pa.binary()).cast(pa.large_binary())
    return array.cast(pa.large_binary()) if pa.types.is_binary(kind) else array


def _decimal_text(array: Any) -> Any:
    """Write decimals without exponents and trailing zeros, so that their scale is no matter."""
    if array.type.scale == 0:
        return array.cast(pa.string()).cast(pa.large_string())
    texts = [f"{value:f}" for value in array.to_pylist()]
    return pa.array(
        [t.rstrip("0").rstrip(".") if "." in t else t for t in texts], pa.large_string()
    )


def _words(array: Any, key: bytes) -> Words:
    kind = array.type
    if pa.types.is_integer(kind):
        return _integers(array.to_numpy(zero_copy_only=False))
    if pa.types.is_large_string(kind):
        return _texts(array, key, TEXT)
    if pa.types.is_large_binary(kind):
        return _mac(array, key, TEXT)
    if pa.types.is_decimal(kind):
        return _texts(_decimal_text(array), key, NUMBER)
    if pa.types.is_floating(kind):
        return _integers(_whole(array.to_numpy(zero_copy_only=False).astype(np.float64)))
    if pa.types.is_date(kind):
        days = array.cast(pa.date32()).cast(pa.int32()).to_numpy(zero_copy_only=False)
        return _tagged(days.astype(np.int64), DATE)
    if pa.types.is_timestamp(kind):
        ticks = array.cast(pa.int64()).to_numpy(zero_copy_only=False)
        rate = PER_SECOND[kind.unit]
        seconds, rest = np.divmod(ticks, rate)
        nanoseconds = (rest * (PER_SECOND["ns"] // rate)).astype(np.uint64)
        return _tagged(seconds, nanoseconds << np.uint64(8) | np.uint64(TIMESTAMP))
    raise DataError(
        f"a column of type {kind} cannot identify persons",
        hint="use whole numbers, text, binary, dates or timestamps",
    )


def _tagged(first: NDArray[Any], second: NDArray[np.uint64] | int) -> Words:
    words: Words = np.empty((len(first), 2), dtype=np.uint64)
    words[:, 0] = first.view(np.uint64)
    words[:, 1] = second
    return words


def _integers(values: NDArray[Any]) -> Words:
    """Words of whole numbers from -2^63 to 2^64 - 1, each its own."""
    # Extending the sign, -1 and 2^64 - 1 have the same bits; the sign tells them apart.
    wide = values.astype(np.int64 if values.dtype.kind == "i" else np.uint64, copy=False)
    return _tagged(wide, (values < 0).astype(np.uint64) << np.uint64(8) | np.uint64(INTEGER))


def _whole(values: NDArray[np.float64]) -> NDArray[np.int64]:
    # Above 2^53 neighbours share a float, and would share their draws.
    wrong = int(((values != np.floor(values)) | (np.abs(values) > 2**53)).sum())
    if wrong:
        raise DataError(
            f"{how_many(wrong, 'row has', 'rows have')} a unit that is not a whole number, or too"
            " large for a float",
            hint="store the identifiers as integers or text",
        )
    return values.astype(np.int64)


def _texts(array: Any, key: bytes, what: int) -> Words:
    """Words of text, where plain whole numbers count as numbers."""
    matched: Any = pc.match_substring_regex(array, PLAIN)
    whole = matched.to_numpy(zero_copy_only=False)
    if whole.all():
        return _integers(array.cast(pa.int64()).to_numpy(zero_copy_only=False))
    words = _mac(array, key, what)
    if whole.any():
        numbers = array.filter(matched).cast(pa.int64())
        words[whole] = _integers(numbers.to_numpy(zero_copy_only=False))
    # Nineteen digits and more may or may not fit: rare, and worth no vectorising.
    lengths = pc.binary_length(array).to_numpy(zero_copy_only=False)
    for row in np.flatnonzero(~whole & (lengths >= 19) & (lengths <= 20)):
        text = array[row.item()].as_py()
        if re.fullmatch(r"-?[1-9][0-9]*", text) and -(2**63) <= int(text) < 2**64:
            dtype = np.int64 if text.startswith("-") else np.uint64
            words[row] = _integers(np.array([int(text)], dtype=dtype))[0]
    return words


def _mac(array: Any, key: bytes, what: int) -> Words:
    """CBC-MAC of each row's bytes, the length in front, the last block filled with zeros."""
    cipher = Blocks(key)
    offsets = np.frombuffer(array.buffers()[1], dtype=np.int64)
    offsets = offsets[array.offset : array.offset + len(array) + 1]
    low, high = int(offsets[0]), int(offsets[-1])
    data = array.buffers()[2]
    # A block may be read past the end of the last text: it must find zeros there.
    padded = np.zeros(high - low + BLOCK, dtype=np.uint8)
    if high > low:
        padded[: high - low] = np.frombuffer(data, dtype=np.uint8)[low:high]
    windows = np.lib.stride_tricks.sliding_window_view(padded, BLOCK)
    lengths = np.diff(offsets)
    # Longest first, so that the rows that have a k-th block are the first ones.
    order = np.argsort(-lengths, kind="stable")
    begins, left = (offsets[:-1] - low)[order], lengths[order]
    state = cipher(_tagged(left, what)).copy()
    while (active := int(np.searchsorted(-left, 0, side="left"))) > 0:
        block = windows[begins[:active]] & KEEP[np.minimum(left[:active], BLOCK)]
        state[:active] = cipher(state[:active] ^ block.view("<u8"))
        begins, left = begins + BLOCK, left - BLOCK
    words: Words = np.empty_like(state)
    words[order] = state
    return words
