"""Local perturbation: clients perturb their own rows before they send them (OLAP's setting).

    privsql perturb spec.toml < rows.csv > batch.csv      on the client's side
    privsql append release.duckdb batch.csv               where batches are gathered

A batch names the rules it was made under and carries the hash of its own rows: a CSV file in
its first and last line, a Parquet file in its key-value metadata.  The hash finds accidents,
not forgeries: a client can send any row, and each such row weighs at most 1/p for each
sensitive condition of a question (docs/manifest.md).  In CSV an empty field is NULL.

Rows are read as publishing reads them.  Those of a file are all looked at before the first leaves;
those of a pipe, which may stay open, piece by piece: a piece with a row that does not fit stops the
stream before anything of it is written, when earlier ones have left.  The spec
is somebody else's, who may have written anything into it, so what leaves as it is and what each
column loses is told first, and the client agrees on a command line of its own.
"""

from __future__ import annotations

import io
import secrets
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from randomgen import ChaCha

from privsql.errors import DataError, NotSupportedError, OperationalError
from privsql.files import commit
from privsql.publish.append.batches import CHUNK, rules, write_csv, write_parquet
from privsql.publish.append.consent import Leaving
from privsql.publish.append.entries import Entry
from privsql.publish.append.stream import Lines, Stream, piped, stopped
from privsql.publish.checks import checked, open_for
from privsql.publish.formats import PARQUET, STDIN, is_text, spooled
from privsql.publish.keys.ledger import ROW
from privsql.publish.keys.randomness import Randomness, SystemSource
from privsql.publish.misfits import read_text
from privsql.publish.perturb.draws import open_draws, spec_beside
from privsql.publish.perturb.retention import Sampler
from privsql.publish.perturb.rows import units_in, with_unit
from privsql.publish.prepare import WHOLE
from privsql.publish.report import Notes
from privsql.publish.rounded import Rounding
from privsql.publish.source import Source
from privsql.publish.staging import private_folder, staging
from privsql.publish.types import as_written, common, plain
from privsql.release.spec import Spec, refuse_undecided


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
                values = read_text(plain(batch.column(len(arrays))), domain)
                codes = self.rounding.codes(name, domain, values)
                arrays.append(domain.decode(sampler.perturb(codes, self.randomness, units, name)))
            done += batch.num_rows
            # Whoever gets the batch must not read anything off the order of its rows.
            mixed = self.mixing.permutation(batch.num_rows)
            yield as_written(batch, len(self.public), self.names, arrays).take(mixed)


def perturb(
    spec: Path,
    rows: Path | None,
    out: Path | None,
    *,
    accept_loss: bool = False,
    accept_public: Collection[str] = (),
    accept_epsilon: bool = False,
    show_values: bool = False,
    say: Callable[[str], None] | None = None,
) -> tuple[int, Notes]:
    """Perturb the rows of a file as a spec says, and enter that in the ledger of its key.

    Says how many rows there were, and what whoever perturbs them has to be told.  Public columns
    leave as they are: each is to be named in ``accept_public``, or ``["all"]``.  Columns with
    an epsilon above 5 need ``accept_epsilon``, whatever the spec says.  ``say`` is told all of it
    before a row is read.
    """
    wanted, notes = spec_beside(spec), Notes()
    refuse_undecided(wanted)
    leaving = Leaving.of(wanted)
    if say is not None:
        for line in leaving.lines():
            say(line)
    if isinstance(accept_public, str):
        accept_public = [accept_public]
    leaving.check(accept_public, accept_epsilon=accept_epsilon)
    draws = open_draws(wanted, None, notes)
    if wanted.unit == ROW:
        # Row k of every client would be drawn alike under one key.
        draws = replace(draws, randomness=SystemSource())
    entry = None
    if draws.ledger is not None:
        entry = Entry(wanted, draws, draws.ledger, accept_loss=accept_loss)
    count = perturb_file(
        wanted, rows, out, draws.randomness, entry=entry, notes=notes, show_values=show_values
    )
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
    show_values: bool = False,
) -> int:
    """Perturb the rows of a file into a batch: Parquet by the file's ending, or else CSV.

    None is standard input or output.  A file comes into view whole or not at all.  ``notes`` takes
    what whoever perturbs has to be told.
    """
    local = Local(spec, randomness)
    with ExitStack() as held:
        told = notes or Notes()
        left = leaves(out)
        read = _read(local, rows, told, held, show_values=show_values, left=left)
        try:
            made = _writable(local, local.perturbed(read), out)
            target = None if out is None or left else out.resolve()
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
    told.round(local.rounding)
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


def _read(
    local: Local,
    path: Path | None,
    notes: Notes,
    held: ExitStack,
    *,
    show_values: bool,
    left: bool,
) -> Iterator[pa.RecordBatch]:
    """The wanted columns of a file, all of it checked, or of a pipe, checked piece by piece."""
    handle = piped() if path is None else None
    if handle is None:
        given = STDIN if path is None else str(path)
    else:
        lines, folder = Lines(handle), held.enter_context(private_folder())
        if is_text(lines.look()):
            return _streamed(local, lines, folder, notes, show_values=show_values, left=left)
        given = spooled(folder, lines.taken())
    text = _text(local.spec)
    opened = open_for(local.spec, [given], notes, text=text, cast=True, show_values=show_values)
    raw = held.enter_context(closing(opened.source))
    raw.check_types(local.public)
    return _chunks(raw, local)


def _text(spec: Spec) -> list[str]:
    """Columns that stay text in CSV: what is public there stays as it is written.

    Few rows say little of a type: 01 may be a number here and a word in other people's rows.  It is
    made to fit the type of the release when the batch is appended.
    """
    return [column.name for column in spec.public if not column.recoding.changes]


def _streamed(
    local: Local,
    lines: Lines,
    folder: Path,
    notes: Notes,
    *,
    show_values: bool,
    left: bool,
) -> Iterator[pa.RecordBatch]:
    """Rows of a pipe, each piece of which is checked before anything of it is handed on."""
    spec, rows = local.spec, 0
    # The first rows of a stream may be few: numbers are read as what the domain says.
    numbers = [
        column.name
        for column in spec.sensitive
        if column.domain is not None
        and column.domain.kind in ("integer", "decimal", "real", "boolean")
        and not column.recoding.changes
    ]
    sources = Stream(lines, folder, [*spec.words, *_text(spec), *numbers]).sources()
    while True:
        piece = Notes()
        try:
            source = next(sources, None)
            if source is None:
                break
            opened = checked(source, spec, piece, cast=True, show_values=show_values, before=rows)
            opened.source.check_types(local.public)
        except DataError as problem:
            raise stopped(problem, rows, left=left) from None
        notes.merge(piece)
        yield from _chunks(opened.source, local)
        rows += opened.rows
    notes.move(notes.clipped, notes.others)


def _chunks(raw: Source, local: Local) -> Iterator[pa.RecordBatch]:
    """The wanted columns, so many rows at a time."""
    for batch in raw.batches(local.wanted, exact=True):
        for start in range(0, batch.num_rows, CHUNK):
            yield batch.slice(start, CHUNK)


def _write(
    local: Local, made: Iterator[pa.RecordBatch], path: Path | None, named: Path | None
) -> int:
    if path is None:
        return write_csv(local.rules, local.names, made, sys.stdout)
    if _is_parquet(named):
        return write_parquet(local.rules, made, path)
    with path.open("w", encoding="utf-8", newline="") as file:
        return write_csv(local.rules, local.names, made, file)
