# ruff: noqa: S608 - all names in these statements are quoted, or ours
"""Frequencies of sensitive values per personal group, in the raw or the published table.

    raw rows        ── counted by public tuple and value ── group of the tuple ── Cells
    published rows  ── counted by group and value ───────────────────────────── Cells

One scan a sensitive column; all that follows looks at cells, never at rows.  A release that
was cut down (SPS) has fewer *trials* in a group than the group has rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsql.channels import Channel, Domain, Replace, Uniform
from privsql.channels.channel import MATRIX_LIMIT, Array
from privsql.errors import DataError, DomainError
from privsql.release.manifest import Manifest, SensitiveColumn
from privsql.release.names import GROUP, MULTIPLICITY, ROWS, TUPLES, WEIGHT, published_table, quoted

Integers = NDArray[np.int64]

# Names of our own in statements: no column of a release begins like this.
G, V, N, W = "privsql_g", "privsql_v", "privsql_n", "privsql_w"

# Below this many (group, value) cells a table of all of them is cheaper than sorting.
DENSE = 1 << 24

# Numbers of a block of groups whose frequencies are reconstructed by a matrix.
BLOCK = 1 << 22


@dataclass(frozen=True)
class Cells:
    """Counts above zero, one a (group, value), sorted by group.

    ``counts`` are rows of the original table, known or (published) reconstructed, in which
    case they are no whole numbers; ``rows`` has an entry for each group.
    """

    groups: Integers
    values: Integers
    counts: Array
    rows: Array
    size: int

    @property
    def totals(self) -> Array:
        """Rows of each value, shape (m,)."""
        return summed(self.values, self.counts, self.size)

    @cached_property
    def shares(self) -> Array:
        """Frequency of the cell's value in its group; kept, because there may be a million."""
        return self.counts / self.rows[self.groups]


def group_sizes(con: duckdb.DuckDBPyConnection, manifest: Manifest) -> Array:
    """Rows of each personal group of the original table, which are public; shape (G,)."""
    return _by_group(con, manifest, f"SELECT {GROUP} AS {G}, {ROWS} AS {N} FROM release.{TUPLES}")


def group_trials(con: duckdb.DuckDBPyConnection, manifest: Manifest) -> Array:
    """Published rows of each group: its independent trials, unless rows were duplicated."""
    return _by_group(con, manifest, _published(manifest))


def published_cells(
    con: duckdb.DuckDBPyConnection, manifest: Manifest, column: SensitiveColumn
) -> Cells:
    """Published counts of one column by group and value, by weight where rows have one."""
    rows = _published(manifest, column.name)
    found = _table(con, f"SELECT {G}, {V}, sum({W})::DOUBLE AS {N} FROM ({rows}) GROUP BY {G}, {V}")
    return _cells(found, column.name, column.domain, manifest.groups.count)


def raw_cells(con: duckdb.DuckDBPyConnection, manifest: Manifest, column: SensitiveColumn) -> Cells:
    """Original counts of one column by the release's groups; ``raw`` is the raw table."""
    keys = [quoted(name) for name in manifest.groups.columns]
    name = quoted(column.name)
    by = ", ".join([*keys, name])
    inner = f"SELECT {by}, count(*) AS {N} FROM raw GROUP BY {by}"
    text = f"SELECT 0 AS {G}, {name} AS {V}, {N} FROM ({inner})"
    if keys:
        text = f"SELECT t.{GROUP} AS {G}, r.{name} AS {V}, r.{N} FROM ({inner}) r LEFT {_on(keys)}"
    found = _table(con, text)
    if found.column(G).null_count:
        raise DataError(
            "the raw source does not match the release: it has combinations of"
            f" {', '.join(manifest.groups.columns)} that the release does not have",
            hint="name the source that this release was made from",
        )
    return _cells(found, column.name, column.domain, manifest.groups.count)


def joint_counts(
    con: duckdb.DuckDBPyConnection, manifest: Manifest
) -> tuple[list[Integers], Array]:
    """Codes of each sensitive column and how many raw rows have them together, once each.

    Raw values that a grid rounds to one point are one value.
    """
    listed = ", ".join(quoted(column.name) for column in manifest.sensitive)
    found = _table(con, f"SELECT {listed}, count(*) AS {N} FROM raw GROUP BY {listed}")
    codes = [
        codes_of(column.name, column.domain, found.column(i))
        for i, column in enumerate(manifest.sensitive)
    ]
    counts = found.column(len(codes)).to_numpy().astype(np.float64)
    if not len(counts):
        return codes, counts
    order = np.lexsort(codes)
    sorted_codes = [each[order] for each in codes]
    starts = np.flatnonzero(
        np.logical_or.reduce([np.diff(each, prepend=-1) != 0 for each in sorted_codes])
    )
    return [each[starts] for each in sorted_codes], np.add.reduceat(counts[order], starts)


def reconstructed(published: Cells, channel: Channel) -> Cells | None:
    """Original counts by group, ``x = y T^-1``, cut to what can be; None where m is too large.

    For retention channels ``x_i = (y_i - (1-p) q_i n) / p``, and a value that no row of the
    group shows is below zero: only shown ones are looked at.
    """
    rows, m = published.rows, channel.size
    if isinstance(channel, (Uniform, Replace)):
        q = 1 / m if isinstance(channel, Uniform) else channel.replacing[published.values]
        counts = published.counts - (1 - channel.retention) * q * rows[published.groups]
        return _cut(published, counts / channel.retention)
    if m > MATRIX_LIMIT:
        return None
    inverse = channel.inverse(np.eye(m)).T
    parts = []
    step = max(1, BLOCK // m)
    starts = np.searchsorted(published.groups, np.arange(0, len(rows) + step, step))
    for i, (start, stop) in enumerate(pairwise(starts.tolist())):
        table = np.zeros((min(step, len(rows) - i * step), m))
        at = published.groups[start:stop] - i * step
        table[at, published.values[start:stop]] = published.counts[start:stop]
        found = table @ inverse
        groups, values = np.nonzero(found > 0)
        parts.append((groups + i * step, values, found[groups, values]))
    joined = [np.concatenate(each) for each in zip(*parts, strict=True)]
    return _cut(Cells(joined[0], joined[1], joined[2], rows, m), joined[2])


def codes_of(name: str, domain: Domain, values: pa.ChunkedArray[Any]) -> Integers:
    """Codes of values; only different ones are looked at."""
    array: Any = values.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    try:
        encoded = array.dictionary_encode(null_encoding="encode")
        codes = domain.codes(encoded.dictionary)
    except (DomainError, pa.ArrowException) as problem:
        reason = getattr(problem, "reason", "its values have another type")
        raise DataError(
            f"column {name} does not fit the domain in the release: {reason}",
            hint="name the source that this release was made from",
        ) from None
    found: Integers = np.asarray(codes, dtype=np.int64)[encoded.indices.to_numpy()]
    return found


def _table(con: duckdb.DuckDBPyConnection, text: str) -> pa.Table:
    """Run a statement of ours: fixed words, and names that are quoted or ours."""
    found: pa.Table = con.sql(text).to_arrow_table()
    return found


def _on(keys: Sequence[str]) -> str:
    """Join ``r`` with the tuples; rows compare NULL as equal to NULL, single columns do not."""
    left, right = (", ".join(f"{side}.{key}" for key in keys) for side in "rt")
    return f"JOIN release.{TUPLES} t ON row({left}) = row({right})"


def _published(manifest: Manifest, name: str | None = None) -> str:
    """Published rows with their group, value, number of equal rows, and their weight."""
    once = MULTIPLICITY if manifest.multiplicity else "1"
    weight = f"{once} * {WEIGHT}" if manifest.weighted else once
    keys = [quoted(each) for each in manifest.groups.columns]
    value = f", {quoted(name)} AS {V}" if name else ""
    table = published_table(manifest.table)
    if manifest.grouped or not keys:
        group = GROUP if manifest.grouped else "0"
        return f"SELECT {group} AS {G}, {once} AS {N}, {weight} AS {W}{value} FROM {table}"
    by = ", ".join([*keys, *([quoted(name)] if name else [])])
    inner = f"SELECT {by}, sum({once}) AS {N}, sum({weight}) AS {W} FROM {table} GROUP BY {by}"
    value = f", r.{quoted(name)} AS {V}" if name else ""
    return f"SELECT t.{GROUP} AS {G}, r.{N}, r.{W}{value} FROM ({inner}) r {_on(keys)}"


def _cells(found: pa.Table, name: str, domain: Domain, groups: int) -> Cells:
    values = codes_of(name, domain, found.column(V))
    numbers = found.column(G).to_numpy().astype(np.int64)
    counts = found.column(N).to_numpy().astype(np.float64)
    size = domain.size
    if groups * size <= DENSE:
        table = summed(numbers * size + values, counts, groups * size)
        different = np.flatnonzero(table)
        numbers, values, counts = different // size, different % size, table[different]
    else:
        # Numbered anew: group times size may not fit a number.
        shown, places = np.unique(values, return_inverse=True)
        keys = numbers * len(shown) + places
        different, inverse = np.unique(keys, return_inverse=True)
        counts = summed(inverse, counts, len(different))
        numbers, values = different // len(shown), shown[different % len(shown)]
    return Cells(numbers, values, counts, summed(numbers, counts, groups), size)


def _cut(cells: Cells, counts: Array) -> Cells:
    """Counts between 0 and the rows of their group, of cells that are above zero."""
    counts = np.minimum(counts, cells.rows[cells.groups])
    seen = counts > 0
    return Cells(cells.groups[seen], cells.values[seen], counts[seen], cells.rows, cells.size)


def _by_group(con: duckdb.DuckDBPyConnection, manifest: Manifest, rows: str) -> Array:
    found = _table(con, f"SELECT {G}, sum({N})::DOUBLE AS {N} FROM ({rows}) GROUP BY {G}")
    return summed(found.column(G).to_numpy(), found.column(N).to_numpy(), manifest.groups.count)


def summed(places: Any, numbers: Any, count: int) -> Array:
    """Sums of numbers by place, shape (count,)."""
    sums: Array = np.bincount(places, weights=numbers, minlength=count).astype(np.float64)
    return sums
