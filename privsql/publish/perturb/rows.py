"""Perturbation of streaming rows: raw batches in, published batches out.

    source ── batch ── codes of each sensitive column ── draws ── published batch ── staged

Columns whose mechanism looks at the whole column (identity, swap, decoy) are read once
before, as codes only; the second pass then takes their published codes in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from duckdb import ColumnExpression
from numpy.typing import NDArray

from privsql.channels import Channel, Domain, Replace
from privsql.channels.domain import MATERIALISE_LIMIT, Codes
from privsql.errors import DataError, DomainError
from privsql.publish.groups.units import row_units, unit_words
from privsql.publish.keys.ledger import ROW
from privsql.publish.keys.randomness import Randomness, Words
from privsql.publish.perturb import decoy, swap
from privsql.publish.perturb.retention import Sampler
from privsql.publish.prepare import WHOLE, Column, Job
from privsql.publish.rounded import Rounding, codes_of
from privsql.publish.source import Source
from privsql.publish.types import as_written, plain, restored
from privsql.release.spec import Spec

# A random number that comes with each row: it says who stays when a group is cut down.
ORDER = "privsql_order"

# Where a row stood in the source, for what the spec asks from raw data; never written.
POSITION = "privsql_position"

Progress = Callable[[int], None]


@dataclass(frozen=True)
class Whole:
    """Published codes of columns that were perturbed as a whole, and which rows are left."""

    codes: dict[str, Codes]
    kept: NDArray[np.bool_] | None


def perturb_whole(job: Job, rounding: Rounding) -> Whole:
    """Perturb the columns that need to be seen whole, each by a generator of its own."""
    published: dict[str, Codes] = {}
    kept: NDArray[np.bool_] | None = None
    for column in job.columns:
        if column.spec.mechanism not in WHOLE:
            continue
        raw = raw_codes(job.raw, column, rounding.codes)
        rng = job.draws.generator(_purpose(column))
        if column.spec.mechanism == "decoy":
            size = column.spec.group_size or 0
            decoy.check_eligible(np.bincount(raw, minlength=column.domain.size), size)
            groups, left = decoy.partition(raw, size, rng, method=_method(column))
            chosen = raw.copy()
            chosen[~left] = decoy.publish(raw[~left], groups[~left], size, rng)
            published[column.name] = chosen
            kept = ~left if kept is None else kept & ~left
        else:
            mixed = swap.identity if column.spec.mechanism == "identity" else swap.swap
            drawn = mixed(raw, column.spec.retention or 0.0, rng)
            published[column.name] = drawn.astype(np.int64, copy=False)
    return Whole(published, kept)


def published_channel(job: Job, column: Column) -> Channel:
    """Channel of a column; of one that was perturbed as a whole, from what was published of it."""
    if column.channel is not None:
        return column.channel
    staged = job.con.table("staged").select(ColumnExpression(column.name)).to_arrow_table()
    codes = column.domain.codes(staged.column(0))
    if column.spec.mechanism in ("identity", "swap"):
        estimated = swap.estimated_replacing(codes, column.domain.size)
        return Replace(column.spec.retention or 0.0, estimated)
    totals = np.bincount(codes, minlength=column.domain.size)
    rng = job.draws.generator(f"{column.name} channel")
    return decoy.decoy_channel(totals, column.spec.group_size or 0, rng, method=_method(column))


def published_batches(
    job: Job, whole: Whole, rounding: Rounding
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Published rows in the order of the source, with how many raw rows were read for each."""
    spec, columns, randomness = job.spec, job.columns, job.draws.randomness
    public = [column.name for column in spec.public]
    names = [*public, *(column.name for column in columns)]
    hidden = [ORDER, POSITION] if spec.protect is not None else []
    # Row k of a changed source is somebody else, who must not share k's draws.
    table = f"{spec.table} {job.draws.state}"
    samplers = {
        column.name: Sampler(column.channel, column.domain)
        for column in columns
        if column.channel is not None
    }
    start = 0
    for batch in job.raw.batches([*names, *with_unit(spec)], exact=True):
        rows = range(start, start + batch.num_rows)
        units = units_in(batch, spec, table, start, randomness)
        arrays: list[Any] = batch.columns[: len(public)]
        for column in columns:
            raw = batch.column(len(arrays))
            if column.name in whole.codes:
                codes = whole.codes[column.name][rows.start : rows.stop]
            else:
                original = rounding.codes(column.name, column.domain, plain(raw))
                codes = samplers[column.name].perturb(original, randomness, units, column.name)
            if start == 0:
                _check_type(column, raw.type)
            # Integers of the domain fit, as was checked, and are not looked at one by one.
            arrays.append(restored(column.domain.decode(codes), raw.type, safe=False))
        if hidden:
            zeros = np.zeros(batch.num_rows, dtype=np.int64)
            arrays.append(pa.array(randomness.words(units, ORDER, zeros)[:, 0]))
            arrays.append(pa.array(np.arange(rows.start, rows.stop)))
        made = as_written(batch, len(public), [*names, *hidden], arrays)
        if whole.kept is not None:
            made = made.filter(pa.array(whole.kept[rows.start : rows.stop]))
        start = rows.stop
        yield batch.num_rows, made


def with_unit(spec: Spec) -> list[str]:
    """The column that is read after all others: the unit, where a row is not a person."""
    return [] if spec.unit == ROW else [spec.unit]


def units_in(
    batch: pa.RecordBatch, spec: Spec, table: str, start: int, randomness: Randomness
) -> Words:
    """Units of a batch: those of its last column, or its rows, which begin at ``start``."""
    if spec.unit == ROW:
        return row_units(start, batch.num_rows, table)
    return unit_words(batch.columns[-1], randomness.unit_key)


def raw_codes(
    source: Source, column: Column, read: Callable[[str, Domain, Any], Codes] = codes_of
) -> Codes:
    """Original codes of a whole column, in the order of the source."""
    batches = source.batches([column.name])
    codes = [read(column.name, column.domain, batch.column(0)) for batch in batches]
    return np.concatenate(codes) if codes else np.empty(0, dtype=np.int64)


def _check_type(column: Column, kind: pa.DataType) -> None:
    """Refuse a domain with values that the type of the column cannot tell apart or hold."""
    domain, size = column.domain, column.domain.size
    # The points of a grid lie evenly: what holds of both ends holds in between.
    few = size <= MATERIALISE_LIMIT
    some = np.arange(size) if few else np.array([0, 1, 2, 3, size - 3, size - 2, size - 1])
    try:
        fits = bool((domain.codes(plain(restored(domain.decode(some), kind))) == some).all())
    except (pa.ArrowException, DomainError):
        fits = False
    if not fits:
        raise DataError(
            f"column {column.name}: its type, {column.type}, does not hold all of the domain",
            hint="narrow the domain, coarsen its step, or change the type in the source",
        )


def _method(column: Column) -> Literal["proportional", "anatomy"]:
    return "anatomy" if column.spec.partition == "anatomy" else "proportional"


def _purpose(column: Column) -> str:
    """What a stream is for: other parameters must not meet the same one."""
    spec = column.spec
    parts = (spec.name.casefold(), spec.mechanism, spec.retention, spec.group_size, spec.partition)
    return "\x1f".join(map(str, parts))
