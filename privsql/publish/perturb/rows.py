"""Perturbation of streaming rows: raw batches in, published batches out.

    source ── batch ── codes of each sensitive column ── draws ── published batch ── staged

Columns whose mechanism looks at the whole column (identity, swap, decoy) are read once
before, as codes only; the second pass then takes their published codes in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsql.channels import Channel, Replace
from privsql.channels.domain import MATERIALISE_LIMIT
from privsql.errors import DataError, DomainError
from privsql.publish.groups.units import row_units, unit_words
from privsql.publish.keys.randomness import Randomness
from privsql.publish.perturb import decoy, swap
from privsql.publish.perturb.retention import Sampler
from privsql.publish.prepare import WHOLE, Column, naming
from privsql.publish.rounded import Rounding
from privsql.publish.source import Source
from privsql.publish.types import plain, restored

# A random number that comes with each row: it says who stays when a group is cut down.
ORDER = "privsql_order"

# Where a row stood in the source, for what the spec asks from raw data; never written.
POSITION = "privsql_position"

Codes = NDArray[np.int64]
Progress = Callable[[int], None]


@dataclass(frozen=True)
class Whole:
    """Published codes of columns that were perturbed as a whole, and which rows are left."""

    codes: dict[str, Codes]
    kept: NDArray[np.bool_] | None


def perturb_whole(
    source: Source,
    columns: Sequence[Column],
    generator: Callable[[str], np.random.Generator],
    rounding: Rounding,
) -> Whole:
    """Perturb the columns that need to be seen whole, each by a generator of its own."""
    published: dict[str, Codes] = {}
    kept: NDArray[np.bool_] | None = None
    for column in columns:
        if column.spec.mechanism not in WHOLE:
            continue
        raw = raw_codes(source, column, rounding)
        rng = generator(_purpose(column))
        if column.spec.mechanism == "identity":
            drawn = swap.identity(raw, column.spec.retention or 0.0, rng)
            published[column.name] = drawn.astype(np.int64, copy=False)
        elif column.spec.mechanism == "swap":
            drawn = swap.swap(raw, column.spec.retention or 0.0, rng)
            published[column.name] = drawn.astype(np.int64, copy=False)
        else:
            size = column.spec.group_size or 0
            decoy.check_eligible(np.bincount(raw, minlength=column.domain.size), size)
            groups, left = decoy.partition(raw, size, rng, method=_method(column))
            chosen = raw.copy()
            chosen[~left] = decoy.publish(raw[~left], groups[~left], size, rng)
            published[column.name] = chosen
            kept = ~left if kept is None else kept & ~left
    return Whole(published, kept)


def published_channel(
    column: Column, codes: Codes, generator: Callable[[str], np.random.Generator]
) -> Channel:
    """Channel of a column that was perturbed as a whole, from what was published of it."""
    if column.spec.mechanism in ("identity", "swap"):
        estimated = swap.estimated_replacing(codes, column.domain.size)
        return Replace(column.spec.retention or 0.0, estimated)
    totals = np.bincount(codes, minlength=column.domain.size)
    rng = generator(f"{column.name} channel")
    size = column.spec.group_size or 0
    return decoy.decoy_channel(totals, size, rng, method=_method(column))


def published_batches(
    source: Source,
    public: Sequence[str],
    columns: Sequence[Column],
    table: str,
    unit: str | None,
    randomness: Randomness,
    whole: Whole,
    rounding: Rounding,
    *,
    order: bool,
) -> Iterator[tuple[int, pa.Table]]:
    """Published rows in the order of the source, with how many raw rows were read for each."""
    names = [*public, *(column.name for column in columns)]
    wanted = names if unit is None or unit in names else [*names, unit]
    samplers = {
        column.name: Sampler(column.channel, column.domain)
        for column in columns
        if column.channel is not None
    }
    start = 0
    for batch in source.batches(wanted, exact=True):
        units = (
            row_units(start, batch.num_rows, table)
            if unit is None
            else unit_words(plain(batch.column(wanted.index(unit))), randomness.unit_key)
        )
        arrays: list[Any] = [batch.column(names.index(name)) for name in public]
        for column in columns:
            raw = batch.column(names.index(column.name))
            if column.name in whole.codes:
                codes = whole.codes[column.name][start : start + batch.num_rows]
            else:
                original = codes_of(column, plain(raw))
                rounding.add(column.name, column.domain, plain(raw), original)
                codes = samplers[column.name].perturb(original, randomness, units, column.name)
            if start == 0:
                _check_type(column, raw.type)
            # Integers of the domain fit, as was checked, and are not looked at one by one.
            arrays.append(restored(column.domain.decode(codes), raw.type, safe=False))
        # As the source writes them: some types are known by the metadata of their field only.
        fields = [batch.schema.field(i).with_name(name) for i, name in enumerate(public)]
        fields += [
            pa.field(c.name, a.type) for c, a in zip(columns, arrays[len(public) :], strict=True)
        ]
        if order:
            zeros = np.zeros(batch.num_rows, dtype=np.int64)
            arrays.append(pa.array(randomness.words(units, ORDER, zeros)[:, 0]))
            arrays.append(pa.array(np.arange(start, start + batch.num_rows)))
            fields += [pa.field(ORDER, pa.uint64()), pa.field(POSITION, pa.int64())]
        made = pa.table(arrays, schema=pa.schema(fields))
        if whole.kept is not None:
            made = made.filter(pa.array(whole.kept[start : start + batch.num_rows]))
        start += batch.num_rows
        yield batch.num_rows, made


def codes_of(column: Column, values: pa.Array[Any]) -> Codes:
    """Codes of raw values, with the column named where some are outside its domain."""
    with naming(column.name):
        return column.domain.codes(values)


def raw_codes(source: Source, column: Column, rounding: Rounding | None = None) -> Codes:
    """Original codes of a whole column, in the order of the source."""
    batches = []
    for batch in source.batches([column.name]):
        batches.append(codes_of(column, batch.column(0)))
        if rounding is not None:
            rounding.add(column.name, column.domain, batch.column(0), batches[-1])
    return np.concatenate(batches) if batches else np.empty(0, dtype=np.int64)


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
