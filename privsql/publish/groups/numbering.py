"""Personal groups of the staged rows: public values merged, tuples numbered, rows marked.

    staged ── distinct public tuples ── values that look alike merged ── group numbers ── staged

Everything is counted on published values, unless the spec asks for raw ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from duckdb import ColumnExpression
from numpy.typing import NDArray

from privsql.publish.database import store
from privsql.publish.groups.merging import Merging, apart, merge, personal_groups
from privsql.publish.prepare import Column, Job
from privsql.publish.rounded import codes_of
from privsql.publish.source import readable
from privsql.publish.types import exactly, from_stored, plain, stored
from privsql.release.manifest import Groups
from privsql.release.names import GROUP, ROWS, TUPLES, quoted, values_table
from privsql.release.store import count_rows

Counts = NDArray[np.float64]

# With so few distinct public tuples their table tells the group of a cell at once; with more
# of them, or with public measures, rows carry the number of their group.
SMALL = 100_000

# Public columns that are named in a line of the report.
NAMED = 8


def group_rows(job: Job) -> tuple[Groups, bool]:
    """Number the personal groups of the staged rows, and write the tables of groups.

    Returns what the manifest says of them, and whether rows have to carry their number.
    """
    con, spec, notes = job.con, job.spec, job.notes
    staged = con.table("staged")
    names = [column.name for column in spec.public if column.grouping]
    if not names:
        notes.warn("no public column distinguishes groups: all rows are one personal group")
        one = pa.table({GROUP: pa.array([0], pa.uint32()), ROWS: [count_rows(staged)]})
        con.from_arrow(one).create(TUPLES)
        return Groups(**vars(spec.groups), columns=(), count=1), False
    # As text: each expression would be held against the names of all columns.
    keys = ", ".join(map(quoted, names))
    counted = staged.aggregate(f"{keys}, count(*) AS {ROWS}", keys).order(keys)
    with exactly(con):
        tuples = counted.to_arrow_table()
    encoded = {name: _encoded(tuples.column(name)) for name in names}
    codes = [np.asarray(each.indices.to_numpy(zero_copy_only=False)) for each in encoded.values()]
    fields = {name: tuples.schema.field(name) for name in names}
    values = {n: from_stored(each.dictionary, fields[n].type) for n, each in encoded.items()}
    if spec.groups.merge == "none":
        merging = Merging(tuple(names), tuple(apart(len(each)) for each in values.values()))
    else:
        counted_in, relation = con, staged
        if spec.groups.source == "raw":
            notes.depends_on_raw("public values were merged by raw frequencies")
            counted_in, relation = job.raw.connection, job.raw.relation
        merging = merge(
            {
                name: [_table(counted_in, relation, name, each, column) for column in job.columns]
                for name, each in encoded.items()
            },
            codes,
            tuples.column(ROWS).to_numpy(),
            names={name: partial(_name, plain(each)) for name, each in values.items()},
            significance=spec.groups.significance,
            df="m" if spec.groups.df == "m" else "m-1",
            minimum=spec.groups.minimum,
        )
    numbers = personal_groups(codes, merging)
    count = int(numbers.max()) + 1
    _tell(job, merging, count)
    with_groups = tuples.append_column(GROUP, pa.array(numbers, pa.uint32()))
    con.from_arrow(with_groups).create(TUPLES)
    for name, labels in zip(names, merging.labels, strict=True):
        kinds = [fields[name].with_name("value"), pa.field("label", pa.uint32())]
        listed = pa.table([values[name], pa.array(labels, pa.uint32())], schema=pa.schema(kinds))
        con.from_arrow(listed).sort(ColumnExpression("value")).create(values_table(name))
    # Conditions on measures choose among rows, so rows have to carry their group then.
    measures = any(not column.grouping for column in spec.public)
    asked = replace(spec.groups, merge="none") if merging.fell_back else spec.groups
    described = Groups(**vars(asked), columns=tuple(names), count=count)
    return described, tuples.num_rows > SMALL or measures


def _tell(job: Job, merging: Merging, groups: int) -> None:
    """Report how public values were merged, and why if not as the spec asks."""
    spec, notes = job.spec, job.notes
    for warning in merging.warnings:
        notes.warn(warning)
    sizes = [
        f"{name} {len(labels):,}" + (f" -> {size:,}" if size < len(labels) else "")
        for name, labels, size in zip(merging.columns, merging.labels, merging.sizes, strict=True)
    ]
    shown = ", ".join(sizes[:NAMED]) + (", ..." if len(sizes) > NAMED else "")
    asked = "" if spec.groups.merge == "none" else f", merged using {spec.groups.source} values"
    if merging.fell_back:
        asked = ", not merged (see the warning)"
    notes.say(f"personal groups: {groups:,}{asked}; public values: {shown}")
    # Of mechanisms that have one.
    kept = [c.spec.retention for c in job.columns if c.spec.retention is not None]
    if merging.fell_back and spec.groups.source == "published" and kept:
        # Perturbation shrinks a difference of distributions to p times itself, and a statistic
        # of its square grows with the rows.
        notes.warn(
            "public values were compared on published rows, in which differences are weaker: at"
            f" retention {min(kept):.3g} the test has about the power of {min(kept) ** 2:.2g} of"
            " the rows unperturbed, so values that differ may have appeared similar. Values were"
            " therefore not merged; with other draws they might have been. A higher retention,"
            " coarser public values or a minimum count help;"
            ' [groups] from = "raw" compares raw values, and costs the release its epsilon'
        )


def marked(
    con: duckdb.DuckDBPyConnection, names: Sequence[str], table: str = "staged"
) -> duckdb.DuckDBPyRelation:
    """Rows with the number of their personal group, by the table of public tuples."""
    staged, tuples = con.table(table).set_alias("s"), con.table(TUPLES).set_alias("t")
    if not names:
        return staged.project(f"*, 0::UINTEGER AS {GROUP}")
    # Rows compare NULL as equal to NULL, which single columns do not.
    left, right = (", ".join(f"{each}.{quoted(name)}" for name in names) for each in "st")
    return staged.join(tuples, f"row({left}) = row({right})").project(f"s.*, t.{GROUP}")


def stage_again(con: duckdb.DuckDBPyConnection, relation: duckdb.DuckDBPyRelation) -> None:
    """Put what a relation finds in the place of the staged rows."""
    store(con, "CREATE TEMP TABLE staged_again AS", relation)
    con.execute("DROP TABLE staged")
    con.execute("ALTER TABLE staged_again RENAME TO staged")


def _name(values: Any, index: int) -> object:
    """A public value as a warning calls it; not every date is one of Python's."""
    try:
        value: object = values[index].as_py()
    except (ValueError, OverflowError):
        return "..."
    return value


def _encoded(column: pa.ChunkedArray[Any]) -> pa.DictionaryArray[Any, Any]:
    values: Any = _one_zero(stored(pa.concat_arrays(column.chunks)))
    encoded: pa.DictionaryArray[Any, Any] = values.dictionary_encode(null_encoding="encode")
    return encoded


def _one_zero(values: Any) -> Any:
    """Values as the database groups them: Arrow alone tells -0.0 from 0.0."""
    if not pa.types.is_floating(values.type):
        return values
    return pc.add(values, pa.scalar(0.0).cast(values.type))


def _table(
    con: duckdb.DuckDBPyConnection,
    relation: duckdb.DuckDBPyRelation,
    name: str,
    encoded: pa.DictionaryArray[Any, Any],
    column: Column,
) -> Counts:
    """How often each value of a public column comes with each value of a sensitive one."""
    with readable(), exactly(con):
        by = f"{quoted(name)}, {quoted(column.name)}"
        found = relation.aggregate(f"{by}, count(*) AS {ROWS}", by).to_arrow_table()
    public: Any = _one_zero(stored(found.column(0).combine_chunks()))
    if pa.types.is_dictionary(public.type):  # an ENUM of the source, published as text
        public = public.dictionary_decode()
    rows = pc.index_in(public, value_set=encoded.dictionary, skip_nulls=False)
    codes, bins = np.unique(
        codes_of(column.name, column.domain, plain(found.column(1))), return_inverse=True
    )
    table = np.zeros((len(encoded.dictionary), len(codes)))
    known = np.asarray(rows.is_valid().to_numpy(zero_copy_only=False), dtype=bool)
    at = np.asarray(rows.fill_null(0).to_numpy(zero_copy_only=False))
    # A raw value that no published row has any more (decoy leftovers) has no place.
    np.add.at(table, (at[known], bins[known]), found.column(2).to_numpy()[known])
    return table
