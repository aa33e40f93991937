"""Conversion between Arrow list columns of a DuckDB UDF and arrays.

A column of state counts is a list a row; the factors of the transition matrix are a list
of matrices a row, nearly always the same in every row because the query wrote them as a
constant.  Rows that share their factors are answered in one batch.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from udfs.errors import InputError, KernelError
from udfs.kron import Array, Kron, transition

Column: TypeAlias = "pa.ChunkedArray[Any]"
Arrow: TypeAlias = "pa.Array[Any]"
Lists: TypeAlias = "pa.ListArray[Any]"

# Which rows of a column: all of them, or some.
Rows = slice | NDArray[np.intp]

Pieces = list[tuple[Rows, Array]]

T = TypeVar("T", bound=np.generic)


def numbers(column: Column, name: str) -> Array:
    """A column of plain numbers, shape ``(rows,)``."""
    if column.null_count:
        raise KernelError(f"{name} must not be NULL")
    return _finite(column.to_numpy().astype(np.float64, copy=False), name)


def ends(column: Column, name: str) -> Array:
    """A column of numbers that may be infinite: ends of what is possible, rows of the exact."""
    values = column.to_numpy().astype(np.float64, copy=False)
    if column.null_count or np.isnan(values).any():
        raise KernelError(f"{name} must be numbers")
    return values


def ragged(column: Column, name: str) -> tuple[NDArray[np.intp], Array]:
    """A column of lists as the lists' lengths and their numbers one after another."""
    return _ragged(_combined(column), name)


def _ragged(array: Lists, name: str) -> tuple[NDArray[np.intp], Array]:
    if array.null_count:
        raise KernelError(f"{name} must not be NULL")
    lengths, values = _level(array)
    if values.null_count:
        raise KernelError(f"{name} must not hold NULL")
    flat = values.to_numpy(zero_copy_only=False).astype(np.float64, copy=False)
    return lengths, _finite(flat, name)


def states(column: Column, name: str, kron: Kron, rows: Rows) -> Array:
    """The chosen rows of a column of lists over states, shape ``(rows, S)``."""
    if not isinstance(rows, slice):
        column = column.take(rows)
    lengths, values = ragged(column, name)
    wrong = lengths != kron.size
    if wrong.any():
        raise KernelError(
            f"{name} has a list of {lengths[wrong][0]} where the factors have"
            f" {kron.size} states ({kron!r})"
        )
    return values.reshape(-1, kron.size)


def dense(
    states: tuple[NDArray[np.intp], Array], amounts: tuple[NDArray[np.intp], Array], size: int
) -> Array:
    """Vectors over states from ragged lists of states and amounts, shape ``(rows, size)``.

        v[r, s] = sum of amounts[r][i] over the i with states[r][i] = s

    A scan returns only states that it saw; kernels want all of them.

    >>> dense((np.array([2, 0]), np.array([3.0, 3.0])), (np.array([2, 0]), np.ones(2)), 4)
    array([[0., 0., 0., 2.],
           [0., 0., 0., 0.]])
    """
    lengths, place = states
    if not np.array_equal(lengths, amounts[0]):
        raise KernelError("states and amounts must be equally long")
    if size < 0 or not ((place >= 0) & (place < size)).all():
        raise KernelError("a state must lie between 0 and size - 1")
    row = np.repeat(np.arange(len(lengths)) * size, lengths)
    flat = np.bincount(row + place.astype(np.intp), amounts[1], minlength=len(lengths) * size)
    return flat.astype(np.float64, copy=False).reshape(len(lengths), size)


def by_length(column: Column, name: str) -> Iterator[tuple[Rows, Array]]:
    """Rows whose lists are equally long, with those lists as one array ``(rows, length)``."""
    lengths, values = ragged(column, name)
    starts = np.cumsum(lengths) - lengths
    for length in np.unique(lengths):
        if length == 0:
            raise KernelError(f"{name} must not be an empty list")
        rows = np.flatnonzero(lengths == length)
        yield rows, values[starts[rows][:, None] + np.arange(length)]


def by_factors(column: Column) -> Iterator[tuple[Kron, Rows]]:
    """Rows that share their factors, with the transition matrix that these make."""
    array = _combined(column)
    if len(array) == 0:
        return
    levels = _nested(array)
    if _is_constant(*levels):
        first = (level[: len(level) // len(array)] for level in levels[1:])
        yield _kron(*first), slice(None)
        return
    # Where each row's matrices, their rows and their entries begin.
    counts, sizes, widths, entries = levels
    matrix = _starts(counts)
    line = _starts(sizes)[matrix]
    entry = _starts(widths)[line]
    groups: dict[tuple[bytes, bytes, bytes], list[int]] = {}
    spans = [np.stack([at[:-1], at[1:]], axis=1).tolist() for at in (matrix, line, entry)]
    for row, ((a, b), (c, d), (e, f)) in enumerate(zip(*spans, strict=True)):
        key = (sizes[a:b].tobytes(), widths[c:d].tobytes(), entries[e:f].tobytes())
        groups.setdefault(key, []).append(row)
    for members in groups.values():
        (a, b), (c, d), (e, f) = (span[members[0]] for span in spans)
        yield _kron(sizes[a:b], widths[c:d], entries[e:f]), np.array(members, dtype=np.intp)


def alike(table: Array) -> Iterator[Rows]:
    """Rows of a table, shape ``(rows, width)``, that are equal to one another.

    >>> [rows.tolist() for rows in alike(np.array([[0.0, 1.0], [2.0, 1.0], [0.0, 1.0]]))]
    [[0, 2], [1]]
    """
    if (table == table[:1]).all():
        yield slice(None)
        return
    groups: dict[bytes, list[int]] = {}
    for row, values in enumerate(np.ascontiguousarray(table)):
        groups.setdefault(values.tobytes(), []).append(row)
    for members in groups.values():
        yield np.array(members, dtype=np.intp)


def among(rows: Rows, chosen: Rows) -> Rows:
    """Which rows of a column are the chosen ones among some of its rows."""
    if isinstance(rows, slice):
        return chosen
    found: NDArray[np.intp] = rows[chosen]
    return found


def parts(column: Column, names: Sequence[str], name: str) -> tuple[NDArray[np.intp], list[Arrow]]:
    """A column of lists of structs as the lists' lengths and the structs' fields, flat.

    A NULL among the structs is left out, as aggregates do.
    """
    lengths, values = _level(_combined(column))
    if not isinstance(values, pa.StructArray):
        raise KernelError(f"{name} must be lists of structs")
    if values.null_count:
        there = values.is_valid().to_numpy(zero_copy_only=False)
        owner = np.repeat(np.arange(len(lengths)), lengths)
        lengths = np.bincount(owner[there], minlength=len(lengths))
        values = values.take(np.flatnonzero(there))
    return lengths, [values.field(field) for field in names]


def equal_lists(array: Arrow, name: str) -> Array:
    """Lists of one length, shape ``(rows, length)``; that is one at the least."""
    if not isinstance(array, pa.ListArray):
        raise KernelError(f"{name} must be lists")
    lengths, values = _ragged(array, name)
    width = int(lengths[0])
    if width == 0 or (lengths != width).any():
        raise KernelError(f"{name} must be equally long lists, and not empty")
    return values.reshape(-1, width)


def scatter(pieces: list[tuple[Rows, NDArray[T]]], rows: int) -> NDArray[T]:
    """Put batched results back in the order of the rows."""
    if len(pieces) == 1 and isinstance(pieces[0][0], slice):
        return pieces[0][1]
    result: NDArray[T] = np.empty((rows, *pieces[0][1].shape[1:]), dtype=pieces[0][1].dtype)
    for chosen, values in pieces:
        result[chosen] = values
    return result


def list_array(pieces: Pieces, rows: int) -> Lists:
    """Arrays ``(rows, length)``, of possibly different lengths, as a column of lists."""
    if len(pieces) == 1 and isinstance(pieces[0][0], slice):
        flat = pieces[0][1].ravel()
        offsets = np.arange(rows + 1, dtype=np.int32) * np.int32(pieces[0][1].shape[1])
        return pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat))
    lengths = np.zeros(rows, dtype=np.int32)
    for chosen, values in pieces:
        lengths[chosen] = values.shape[1]
    offsets = _starts(lengths).astype(np.int32)
    flat = np.empty(offsets[-1])
    for chosen, values in pieces:
        starts = offsets[:-1][chosen]
        flat[starts[:, None] + np.arange(values.shape[1])] = values
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat))


def nullable(values: Array) -> Arrow:
    """Numbers with NULL where there is none: NaN is no answer in SQL."""
    return pa.array(values, mask=np.isnan(values))


def inner(column: Column, row: int, name: str) -> list[Array]:
    """The lists within one row's list, as arrays."""
    array = _combined(column)
    if array.null_count:
        raise KernelError(f"{name} must not be NULL")
    own: Arrow = array.slice(row, 1).flatten()
    if not isinstance(own, pa.ListArray):
        raise KernelError(f"{name} must be lists of lists")
    lengths, values = _ragged(own, name)
    return np.split(values, np.cumsum(lengths)[:-1]) if len(lengths) else []


def innermost(column: Column, row: int, name: str) -> list[list[Array]]:
    """The lists of lists within one row's list, as arrays."""
    array = _combined(column)
    if array.null_count:
        raise KernelError(f"{name} must not be NULL")
    own: Arrow = array.slice(row, 1).flatten()
    if not isinstance(own, pa.ListArray):
        raise KernelError(f"{name} must be lists of lists")
    counts, _ = _level(own)
    flat = own.flatten()
    if not isinstance(flat, pa.ListArray):
        raise KernelError(f"{name} must be lists of lists of lists")
    lengths, values = _ragged(flat, name)
    each = iter(np.split(values, np.cumsum(lengths)[:-1]) if len(lengths) else [])
    return [list(itertools.islice(each, int(count))) for count in counts]


def list_of_lists(tables: Sequence[Array]) -> Lists:
    """Arrays ``(lists, length)``, one a row, as a column of lists of lists."""
    within = [pa.array(row) for table in tables for row in table]
    lengths = np.array([len(row) for row in within], dtype=np.int32)
    counts = np.array([len(table) for table in tables], dtype=np.int32)
    values = pa.concat_arrays(within) if within else pa.array([], type=pa.float64())
    lists: Lists = pa.ListArray.from_arrays(_offsets(lengths), values)
    made: Lists = pa.ListArray.from_arrays(_offsets(counts), lists)
    return made


def _offsets(lengths: NDArray[Any]) -> Any:
    return pa.array(_starts(lengths).astype(np.int32))


def _finite(values: Array, name: str) -> Array:
    if not np.isfinite(values).all():
        raise InputError(f"{name} must be finite numbers")
    return values


def _combined(column: Column) -> Lists:
    # DuckDB hands over one chunk a call; anything else is joined.
    array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if not isinstance(array, pa.ListArray):
        raise KernelError("expected a column of lists")
    return array


def _level(array: Lists) -> tuple[NDArray[np.intp], Arrow]:
    """Lengths of lists without NULL among them, and their elements one after another."""
    # As ``flatten`` does, without its detour through Arrow's compute functions.
    offsets = array.offsets.to_numpy()
    first, last = int(offsets[0]), int(offsets[-1])
    values = array.values
    if first != 0 or last != len(values):
        values = values.slice(first, last - first)
    return np.subtract(offsets[1:], offsets[:-1], dtype=np.intp), values


def _nested(array: Lists) -> tuple[NDArray[Any], ...]:
    """Lengths at the three levels of a list of matrices, and the matrices' entries."""
    lengths = []
    level: Arrow = array
    for _ in range(3):
        if level.null_count or not isinstance(level, pa.ListArray):
            raise KernelError("factors must not hold NULL")
        found, level = _level(level)
        lengths.append(found)
    if level.null_count:
        raise KernelError("factors must not hold NULL")
    return (*lengths, level.to_numpy(zero_copy_only=False))


def _is_constant(*levels: NDArray[Any]) -> bool:
    rows = len(levels[0])
    if rows == 1:
        return True
    for level in levels:
        if len(level) % rows:
            return False
        width = len(level) // rows
        # Each row equals the one before it.
        if not np.array_equal(level[width:], level[: len(level) - width]):
            return False
    return True


def _starts(lengths: NDArray[Any]) -> NDArray[np.intp]:
    """Where each of so long stretches begins, and where the last one ends."""
    starts = np.zeros(len(lengths) + 1, dtype=np.intp)
    np.cumsum(lengths, out=starts[1:])
    return starts


def _kron(sizes: NDArray[Any], widths: NDArray[Any], entries: NDArray[Any]) -> Kron:
    """The transition matrix from rows a matrix, entries a row, and the entries."""
    key = (sizes.tobytes(), widths.tobytes(), entries.tobytes())
    found = _KNOWN.get(key)
    if found is None:
        flat, starts = entries.tolist(), _starts(widths).tolist()
        lines = iter([flat[a:b] for a, b in itertools.pairwise(starts)])
        found = transition([list(itertools.islice(lines, size)) for size in sizes.tolist()])
        if len(_KNOWN) >= 64:
            _KNOWN.clear()
        _KNOWN[key] = found
    return found


# A query calls a UDF once for every 2,048 rows with the same factors, and a Kron keeps
# its inverse: without this every call would invert again.
_KNOWN: dict[tuple[bytes, bytes, bytes], Kron] = {}
