"""Local perturbation: clients perturb their own rows before they send them (OLAP's setting).

    privsql perturb spec.toml < rows.csv > batch.csv      on the client's side
    privsql append release.duckdb batch.csv               where batches are gathered

A batch names the rules it was made under and carries the hash of its own rows: a CSV file in
its first and last line, a Parquet file in its key-value metadata.  The hash finds accidents,
not forgeries: a client can send any row, and each such row weighs at most 1/p for each
sensitive condition of a question (docs/manifest.md).  In CSV an empty field is NULL.
"""

from __future__ import annotations

import csv
import io
import secrets
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from randomgen import ChaCha

from privsql.errors import DataError, NotSupportedError, OperationalError, how_many
from privsql.files import commit
from privsql.publish.append.batches import CHUNK, from_text, rules, write_csv, write_parquet
from privsql.publish.append.entries import Entry
from privsql.publish.keys.ledger import ROW
from privsql.publish.keys.randomness import Randomness, SystemSource
from privsql.publish.perturb.draws import open_draws, spec_beside
from privsql.publish.perturb.retention import Sampler
from privsql.publish.perturb.rows import units_in, with_unit
from privsql.publish.prepare import WHOLE
from privsql.publish.recode import open_for
from privsql.publish.report import Notes
from privsql.publish.rounded import Rounding
from privsql.publish.source import PARQUET
from privsql.publish.staging import staging
from privsql.publish.types import as_written, common, plain
from privsql.release.spec import Spec, check_source_columns, refuse_undecided


class Local:
    """The rules of a spec, for streaming rows without access to the whole table."""

    def __init__(self, spec: Spec, randomness: Randomness) -> None:
        refuse_undecided(spec)
        ranked = [column.name for column in spec.public if column.recoding.top is not None]
        if ranked:
            raise NotSupportedError(
                f"{', '.join(ranked)}: the most frequent values are those of the whole table, which"
                " a client does not have",
                hint="list the values that stay: map with map_other",
            )
        mechanisms = (*WHOLE, "finegrain")
        whole = [c.name for c in spec.sensitive if c.mechanism in mechanisms or c.domain is None]
        if whole:
            raise NotSupportedError(
                f"{', '.join(whole)}: this mechanism needs the whole table, so a client"
                " cannot apply it to rows of its own",
                hint="choose uniform, replace or matrix with a domain that is written in the spec",
            )
        if spec.protect is not None:
            raise NotSupportedError(
                "reconstruction privacy cuts groups of the whole table, so a client cannot apply it"
            )
        self.spec, self.randomness = spec, randomness
        self.public = [column.name for column in spec.public]
        columns = [(c.name, c.domain, c.channel()) for c in spec.sensitive]
        known = [(n, d, c) for n, d, c in columns if d is not None and c is not None]
        self.sensitive = [
            (name, domain, Sampler(channel, domain)) for name, domain, channel in known
        ]
        self.names = [*self.public, *(name for name, _, _ in known)]
        self.wanted = [*self.names, *with_unit(spec)]
        self.rules = rules(spec.table, self.public, known)
        self.rounding = Rounding()
        self.mixing = np.random.Generator(ChaCha(key=secrets.randbits(256), rounds=20))

    def perturbed(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Perturb batches of the wanted columns; public ones stay as they are."""
        done = 0
        for batch in batches:
            units = units_in(batch, self.spec, self.spec.table, done, self.randomness)
            arrays = [common(column) for column in batch.columns[: len(self.public)]]
            for name, domain, sampler in self.sensitive:
                values = from_text(name, domain, plain(batch.column(len(arrays))))
                codes = self.rounding.codes(name, domain, values)
                arrays.append(domain.decode(sampler.perturb(codes, self.randomness, units, name)))
            done += batch.num_rows
            # Whoever gets the batch must not read anything off the order of its rows.
            mixed = self.mixing.permutation(batch.num_rows)
            yield as_written(batch, len(self.public), self.names, arrays).take(mixed)


def perturb(
    spec: Path, rows: Path | None, out: Path | None, *, accept_loss: bool = False
) -> tuple[int, Notes]:
    """Perturb the rows of a file as a spec says, and enter that in the ledger of its key.

    Says how many rows there were, and what whoever perturbs them has to be told.
    """
    wanted, notes = spec_beside(spec), Notes()
    refuse_undecided(wanted)
    draws = open_draws(wanted, None, notes)
    if wanted.unit == ROW:
        # Row k of every client would be drawn alike under one key.
        draws = replace(draws, randomness=SystemSource())
    entry = None
    if draws.ledger is not None:
        entry = Entry(wanted, draws, draws.ledger, accept_loss=accept_loss)
    count = perturb_file(wanted, rows, out, draws.randomness, entry=entry, notes=notes)
    if entry is not None and entry.accounting is not None:
        notes.account(entry.accounting)
    return count, notes


def perturb_file(
    spec: Spec,
    rows: Path | None,
    out: Path | None,
    randomness: Randomness,
    *,
    entry: Entry | None = None,
    notes: Notes | None = None,
) -> int:
    """Perturb the rows of a file into a batch: Parquet by the file's ending, or else CSV.

    None is standard input or output, in CSV.  A file comes into view whole or not at all.
    ``notes`` takes what whoever perturbs has to be told.
    """
    local = Local(spec, randomness)
    with ExitStack() as held:
        recodes = any(column.recoding.changes for column in spec.columns)
        if rows is None and recodes:
            raise NotSupportedError(
                "columns are recoded by the types of a whole file", hint="name the rows with -i"
            )
        if rows is not None and (recodes or _is_parquet(rows)):
            _, opened = open_for(spec, [str(rows)], notes)
            raw = held.enter_context(closing(opened))
            raw.check_types(local.public)
            read = raw.batches(local.wanted, exact=True)
        else:
            read = _csv_rows(held.enter_context(_opened(rows)), local)
        try:
            made = _writable(local, local.perturbed(read), out)
            target = None if out is None or leaves(out) else out.resolve()
            if entry is not None:
                made = entry.before(made, leaving=target is None)
            path = out
            if target is not None:
                path = held.enter_context(staging(target, force=True)) / "batch"
            count = _write(local, made, path, out)
            if entry is not None:
                # Before it is in view: after a crash in between the ledger knows of one batch
                # too many, never of one too few.
                entry.after()
            if target is not None and path is not None:
                commit(path, target)
        except OSError as problem:
            raise OperationalError(
                f"cannot write {out or 'the rows'}: {problem.strerror or 'I/O error'}"
            ) from None
    if notes is not None:
        notes.round(local.rounding)
    return count


def leaves(out: Path | None) -> bool:
    """Whether rows leave one by one: a pipe or a device is not replaced, it has what it got."""
    return out is None or (out.exists() and not out.is_file())


def _writable(
    local: Local, made: Iterator[pa.RecordBatch], out: Path | None
) -> Iterator[pa.RecordBatch]:
    """Batches, once the types of the first can be written: what cannot is never entered."""
    parquet = _is_parquet(out)
    for i, batch in enumerate(made):
        if i == 0:
            for field in batch.schema:
                _check_type(field, parquet=parquet)
            if not parquet:
                write_csv(local.rules, local.names, iter([batch.slice(0, 1)]), io.StringIO())
        yield batch


def _check_type(field: pa.Field[Any], *, parquet: bool) -> None:
    """Refuse a type that no batch can hold, by name of its column."""
    interval = pa.types.is_interval(field.type)
    if not parquet and not interval:  # write_csv says itself what it cannot write
        return
    try:
        pq.write_table(pa.schema([field]).empty_table(), pa.BufferOutputStream())
    except pa.ArrowException:
        kind = "INTERVAL" if interval else str(field.type)
        raise NotSupportedError(
            f"column {field.name}: a column of type {kind} cannot be part of a batch",
            hint="write it in the source as text or as a number (of days, of seconds), or drop it"
            " in the spec",
        ) from None


def _is_parquet(path: Path | None) -> bool:
    return path is not None and path.suffix.lower() in PARQUET


def _opened(path: Path | None) -> AbstractContextManager[TextIO]:
    if path is None:
        return nullcontext(sys.stdin)
    try:
        return path.open(encoding="utf-8-sig", newline="")
    except OSError as problem:
        raise OperationalError(f"cannot read {path}: {problem.strerror}") from None


def _csv_rows(rows: TextIO, local: Local) -> Iterator[pa.RecordBatch]:
    """The wanted columns of CSV rows, as text with NULL for an empty field."""
    try:
        reader = csv.reader(rows)
        names = next(reader, None)
        if not names:
            raise DataError("there are no rows to perturb")
        check_source_columns(local.spec, names)
        place = {name.casefold(): i for i, name in enumerate(names)}
        if len(place) < len(names):
            twins = how_many(len(names) - len(place), "column has", "columns have")
            raise DataError(f"{twins} the name of another one")
        width = len(names)
        filled = (row for row in reader if row or width == 1)  # not a blank line
        while chunk := list(islice(filled, CHUNK)):
            for row in chunk:
                if len(row) != width:
                    raise DataError(f"a row has {len(row)} fields where the header has {width}")
            table = list(zip(*chunk, strict=True))
            columns = (table[place[name.casefold()]] for name in local.wanted)
            yield pa.RecordBatch.from_arrays(
                [pa.array([text or None for text in column], pa.string()) for column in columns],
                names=local.wanted,
            )
    except UnicodeError:
        raise DataError(
            "the rows are not valid UTF-8", hint="convert them first, for example with iconv"
        ) from None
    except csv.Error:
        raise DataError("the rows cannot be read as CSV") from None


def _write(
    local: Local, made: Iterator[pa.RecordBatch], path: Path | None, named: Path | None
) -> int:
    if path is None:
        return write_csv(local.rules, local.names, made, sys.stdout)
    if _is_parquet(named):
        return write_parquet(local.rules, made, path)
    with path.open("w", encoding="utf-8", newline="") as file:
        return write_csv(local.rules, local.names, made, file)
