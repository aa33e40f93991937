"""The public rows of one state of a served table, as an account needs them.

    tuples   the distinct tuples of grouping columns: row count and personal group of each
    rows     the distinct public rows: tuple, measures, and how many rows are like it

Answers are functions of public columns, so rows that are equal in all of them need not be told
apart, and a state can be kept beside the answers that were given over it: a history evaluates
those anew when the table is published again.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsql.errors import DataError

Ints = NDArray[np.int64]

ATOM, TIMES, ROWS, GROUP = "privsql_atom", "privsql_times", "privsql_rows", "privsql_group"


@dataclass(frozen=True)
class PublicRows:
    """The public columns of a table: ``tuples`` in the order of atoms, ``rows`` by atom."""

    types: Mapping[str, str]  # DuckDB's type of each public column
    grouping: tuple[str, ...]
    tuples: pa.Table  # grouping columns, ROWS and GROUP
    rows: pa.Table | None  # ATOM, measures and TIMES; None where there are no measures

    @cached_property
    def counts(self) -> Ints:
        """Rows of each tuple."""
        return ints(self.tuples, ROWS)

    @cached_property
    def groups(self) -> Ints:
        """Personal group of each tuple."""
        return ints(self.tuples, GROUP)

    @cached_property
    def atom(self) -> Ints:
        """Tuple of each distinct row."""
        return np.arange(self.counts.size) if self.rows is None else ints(self.rows, ATOM)

    @cached_property
    def times(self) -> Ints:
        """How many rows each distinct one stands for."""
        return self.counts if self.rows is None else ints(self.rows, TIMES)

    @property
    def columns(self) -> tuple[str, ...]:
        """All public columns."""
        return tuple(self.types)

    def table(self) -> pa.Table:
        """The distinct rows with all public columns."""
        made = self.tuples.select(list(self.grouping))
        if self.rows is not None:
            made = made.take(self.atom)
            for name in self.rows.column_names:
                if name not in (ATOM, TIMES):
                    made = made.append_column(name, self.rows.column(name))
        if not made.column_names:  # a table without public columns still has rows
            made = pa.table({ATOM: pa.array(self.atom)})
        return made

    # -- as it is kept -------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """Everything, compressed."""
        head: dict[str, Any] = {"types": dict(self.types), "grouping": list(self.grouping)}
        parts = [json.dumps(head, sort_keys=True).encode(), _packed(self.tuples)]
        if self.rows is not None:
            parts.append(_packed(self.rows))
        return b"".join(len(part).to_bytes(8, "little") + part for part in parts)

    @classmethod
    def from_bytes(cls, data: bytes) -> PublicRows:
        """Read it again."""
        parts, at = [], 0
        while at < len(data):
            size = int.from_bytes(data[at : at + 8], "little")
            parts.append(data[at + 8 : at + 8 + size])
            at += 8 + size
        if at != len(data) or len(parts) not in (2, 3):
            raise DataError("the public rows of a state are damaged")
        head = json.loads(parts[0])
        tables = [_unpacked(part) for part in parts[1:]]
        rows = tables[1] if len(tables) == 2 else None
        return cls(head["types"], tuple(head["grouping"]), tables[0], rows)


def ints(table: pa.Table, name: str) -> Ints:
    """A column of whole numbers."""
    return np.asarray(table.column(name).to_numpy()).astype(np.int64)


def _packed(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _unpacked(data: bytes) -> pa.Table:
    with pa.ipc.open_stream(io.BytesIO(data)) as reader:
        return reader.read_all()
