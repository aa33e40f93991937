"""Batch files: rows that a client perturbed, with their rules and a hash.

A CSV batch has both in its first and last line, a Parquet batch in its key-value metadata.
The hash finds accidents, not forgeries.  In CSV an empty field is NULL.

A random number of the batch's own goes into the hash.  Two clients with equal rows then have
batches of their own, neither of which is taken for a repetition of the other; and the hash,
which a release shows, tells nobody which of its rows came together.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from privsql.channels import Channel, Domain
from privsql.errors import DataError, NotSupportedError
from privsql.publish.types import called, plain
from privsql.release.manifest import Manifest

HEADER, NUMBERED, FOOTER = "# privsql batch, rules ", ", number ", "# sha256 "

# What a Parquet batch says of itself.
RULES, SHA256, COUNTS = "privsql.rules", "privsql.sha256", "privsql.rows"
NUMBER = "privsql.number"

# Rows that are perturbed and mixed together while they stream by.
CHUNK = 1 << 18


@dataclass(frozen=True)
class Batch:
    """A verified batch: the hash that identifies it, and its rows."""

    digest: str
    rows: Iterator[pa.RecordBatch]


def rules(
    table: str, public: Iterable[str], sensitive: Iterable[tuple[str, Domain, Channel]]
) -> str:
    """Name the rules of a release: equal digests mean that rows belong together."""
    described = [
        table,
        list(public),
        [[name, domain.to_dict(), channel.to_dict()] for name, domain, channel in sensitive],
    ]
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()


def write_csv(under: str, names: Sequence[str], made: Iterator[pa.RecordBatch], out: TextIO) -> int:
    """Write rows that were made under these rules as a CSV batch; returns their number."""
    digest, done = hashlib.sha256(), 0

    def write(lines: Iterable[Sequence[Any]]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(lines)
        digest.update(text.getvalue().encode())
        out.write(text.getvalue())

    # Not before the first rows were read: what is refused at once writes nothing.
    first = list(islice(made, 1))
    head = f"{HEADER}{under}{NUMBERED}{secrets.token_hex(16)}\n"
    digest.update(head.encode())
    out.write(head)
    write([names])
    for batch in chain(first, made):
        write(zip(*(_texts(name, batch.column(name)) for name in names), strict=True))
        out.flush()  # who reads a stream must not wait for the next rows
        done += batch.num_rows
    out.write(f"{FOOTER}{digest.hexdigest()}\n")
    return done


def _texts(name: str, values: pa.Array[Any]) -> list[str]:
    kind = values.type
    values = plain(values)
    try:
        if pa.types.is_binary(values.type) or pa.types.is_nested(values.type):
            raise pa.ArrowNotImplementedError
        return [text or "" for text in values.cast(pa.string()).to_pylist()]
    except pa.ArrowException:
        raise NotSupportedError(
            f"column {name}: a column of type {called(kind)} is not written as CSV",
            hint="write a Parquet batch: -o batch.parquet",
        ) from None


def write_parquet(under: str, made: Iterator[pa.RecordBatch], path: Path) -> int:
    """Write rows that were made under these rules as a Parquet batch; returns their number."""
    number, counts = secrets.token_hex(16), []
    digest = hashlib.sha256(number.encode())
    first = next(made, None)
    if first is None:
        raise DataError("there are no rows to perturb")
    with pq.ParquetWriter(path, first.schema, compression="zstd") as writer:
        for batch in chain([first], made):
            _hash(digest, batch)
            writer.write_batch(batch)
            counts.append(batch.num_rows)
        said = {RULES: under, SHA256: digest.hexdigest(), COUNTS: json.dumps(counts)}
        writer.add_key_value_metadata(said | {NUMBER: number})
    return sum(counts)


def _hash(digest: Any, batch: pa.RecordBatch) -> None:
    """Hash values however Arrow lays them out: which are NULL, lengths, and bytes."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        array: Any = column.storage if isinstance(column, pa.ExtensionArray) else column
        parts: list[Any] = [name.encode(), np.packbits(array.is_null().to_numpy(False))]
        values = array.drop_null()
        kind, start, count = values.type, values.offset, len(values)
        if pa.types.is_boolean(kind):
            parts.append(np.packbits(values.to_numpy(False)))
        elif pa.types.is_string(kind) or pa.types.is_binary(kind):
            offsets = np.zeros(1, np.int32)
            if count:
                offsets = np.frombuffer(values.buffers()[1], np.int32)[start : start + count + 1]
                low, high = int(offsets[0]), int(offsets[-1])
                parts.append(memoryview(values.buffers()[2] or b"")[low:high])
            parts.append(np.diff(offsets))
        elif (
            pa.types.is_primitive(kind)
            or pa.types.is_decimal(kind)
            or pa.types.is_fixed_size_binary(kind)
        ):
            width = kind.bit_width // 8
            if count:
                parts.append(values.buffers()[1].slice(start * width, count * width))
        else:
            raise NotSupportedError(
                f"column {name}: a column of type {kind} cannot be part of a batch",
                hint="use numbers, text, dates and times",
            )
        for part in parts:
            digest.update(memoryview(part).nbytes.to_bytes(8, "little"))
            digest.update(part)


def read_batch(path: Path, manifest: Manifest) -> Batch:
    """Open a batch, once its hash and its rules were checked; rows are as they were written."""
    public = [column.name for column in manifest.public]
    sensitive = [(c.name, c.domain, c.channel) for c in manifest.sensitive]
    names = [*public, *(name for name, _, _ in sensitive)]
    try:
        with path.open("rb") as file:
            parquet = file.read(4) == b"PAR1"
        made_under, batch = _parquet_batch(path) if parquet else _csv_batch(path, names)
    except OSError as problem:
        raise DataError(f"cannot read {path}: {problem.strerror or 'I/O error'}") from None
    if made_under != rules(manifest.table, public, sensitive):
        raise DataError(
            f"{path} was made with other rules than the release",
            hint="perturb the rows with the spec of this release",
        )
    return batch


def _csv_batch(path: Path, names: Sequence[str]) -> tuple[str, Batch]:
    # Mapped, so that memory stays flat; an empty file cannot be.
    text = pa.memory_map(str(path)).read_buffer() if path.stat().st_size else pa.py_buffer(b"")
    first, newline, _ = bytes(text.slice(0, min(200, text.size))).partition(b"\n")
    last = bytes(text.slice(max(0, text.size - 200)))
    _, mark, said = last.rpartition(FOOTER.encode())
    if not first.startswith(HEADER.encode()) or not newline or not mark:
        raise _not_whole(path)
    begin, end = len(first) + 1, text.size - len(said) - len(mark)
    body = text.slice(begin, max(0, end - begin))
    digest = hashlib.sha256(text.slice(0, max(begin, end))).hexdigest()
    if digest.encode() != said.strip():
        raise _changed(path)
    options = pacsv.ConvertOptions(
        column_types={name: pa.string() for name in names},
        strings_can_be_null=True,
        null_values=[""],
    )
    parse = pacsv.ParseOptions(newlines_in_values=True)

    def rows() -> Iterator[pa.RecordBatch]:
        try:
            file: Any = pa.BufferReader(body)
            yield from pacsv.open_csv(file, parse_options=parse, convert_options=options)
        except pa.ArrowException:
            raise DataError(f"{path} cannot be read as CSV") from None

    under = first[len(HEADER) :].decode(errors="replace").partition(NUMBERED)[0]
    return under, Batch(digest, rows())


def _parquet_batch(path: Path) -> tuple[str, Batch]:
    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowException, OSError):
        raise _not_whole(path) from None
    said = file.metadata.metadata or {}
    if not {key.encode() for key in (RULES, SHA256, COUNTS, NUMBER)} <= said.keys():
        file.close()
        raise _not_whole(path)

    def rows() -> Iterator[pa.RecordBatch]:
        with pq.ParquetFile(path) as file:
            for i in range(file.num_row_groups):
                yield from file.read_row_group(i).combine_chunks().to_batches()

    digest = hashlib.sha256(said[NUMBER.encode()])
    try:
        with file:
            groups = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        whole = groups == json.loads(said[COUNTS.encode()])
        for batch in rows():
            _hash(digest, batch)
    except (pa.ArrowException, OSError, ValueError):
        raise _changed(path) from None
    if not whole or digest.hexdigest().encode() != said[SHA256.encode()]:
        raise _changed(path)
    return said[RULES.encode()].decode(errors="replace"), Batch(digest.hexdigest(), rows())


def _not_whole(path: Path) -> DataError:
    return DataError(f"{path} is not a complete batch", hint="make one with `privsql perturb`")


def _changed(path: Path) -> DataError:
    return DataError(f"{path} was changed after it was made, or cut short")


def from_text(name: str, domain: Domain, values: pa.Array[Any]) -> pa.Array[Any]:
    """Values of a domain, which text may stand for."""
    if domain.kind == "text" or not pa.types.is_string(values.type):
        return values
    try:
        return values.cast(domain.arrow_type)
    except pa.ArrowException:
        raise DataError(f"column {name}: some values cannot be read as {domain.kind}") from None
