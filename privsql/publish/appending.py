"""Adding batches to a release, by writing a new file and renaming it into view."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from duckdb import ColumnExpression, FunctionExpression

from privsql.errors import DataError, NotSupportedError, OperationalError
from privsql.publish.batches import CHUNK, codes_in, read_batch
from privsql.publish.grouping import marked
from privsql.publish.resolve import WHOLE
from privsql.publish.staging import commit, staging
from privsql.release.manifest import Manifest
from privsql.release.names import GROUP, MULTIPLICITY, ROWS, TUPLES, quoted, values_table
from privsql.release.store import open_release, write_manifest


def append(release: str | Path, batch: str | Path) -> int:
    """Add the rows of a batch to a release, by writing a new file; say how many they were."""
    target = Path(release)
    manifest = open_release(target).manifest
    if manifest.protection is not None or any(
        column.mechanism in WHOLE for column in manifest.sensitive
    ):
        raise NotSupportedError("rows cannot be added to a release that was made of a whole table")
    rows = _checked(read_batch(Path(batch), manifest), manifest)
    with staging(target, force=True) as folder:
        made = folder / "release.duckdb"
        spill = str(folder / "spill")
        try:
            with duckdb.connect(str(made), config={"temp_directory": spill}) as con:
                count = _rebuild(con, target, manifest, rows)
        except (duckdb.IOException, duckdb.OutOfMemoryException):
            raise OperationalError(
                f"the release could not be written beside {target}",
                hint="is the disk full? nothing was changed",
            ) from None
        commit(made, target)
    return count


def _checked(rows: Iterable[pa.RecordBatch], manifest: Manifest) -> Iterator[pa.RecordBatch]:
    """Rows with the columns of the release, each sensitive value one of its domain."""
    public = [column.name for column in manifest.public]
    names = [*public, *(column.name for column in manifest.sensitive)]
    for batch in rows:
        if batch.schema.names != names:
            raise DataError("the batch does not have the columns of the release")
        arrays = batch.columns[: len(public)]
        for column in manifest.sensitive:
            codes = codes_in(column.domain, column.name, batch.column(len(arrays)))
            arrays.append(column.domain.decode(codes))
        yield pa.RecordBatch.from_arrays(arrays, names=names)


def _rebuild(
    con: duckdb.DuckDBPyConnection,
    target: Path,
    manifest: Manifest,
    rows: Iterable[pa.RecordBatch],
) -> int:
    """Write the release again with the rows added, in the order of its content; count them."""
    names = [c.name for c in (*manifest.public, *manifest.sensitive)]  # type: ignore[attr-defined]
    con.execute("CREATE SCHEMA privsql")
    with open_release(target).connection() as old:
        _copy(con, old, "staged", quoted(manifest.table), temporary=True)
        for column in manifest.sensitive:
            _copy_if_there(con, old, f"privsql.{quoted(f'domain of {column.name}')}")
        labels = {
            name: dict(old.table(values_table(name)).fetchall()) for name in manifest.groups.columns
        }
    staged = con.table("staged")
    kinds = dict(zip(staged.columns, staged.types, strict=True))
    added = staged.select(*(ColumnExpression(name) for name in names)).limit(0)
    con.execute(f"CREATE TEMP TABLE added AS {added.sql_query()}")
    gathered = 0
    for batch in rows:
        con.register("batch", pa.Table.from_batches([batch]))
        try:
            con.table("batch").select(
                *(ColumnExpression(name).cast(kinds[name]).alias(name) for name in names)
            ).insert_into("added")
        except (duckdb.DataError, duckdb.ProgrammingError, duckdb.NotSupportedError):
            raise DataError("a public value of the batch does not fit its column") from None
        con.unregister("batch")
        gathered += batch.num_rows
    # The order of the names is ours; multiplicities of new rows are one.
    old_rows = staged.select(*(ColumnExpression(name) for name in names), _times(manifest))
    new_rows = con.table("added").select(
        *(ColumnExpression(name) for name in names), duckdb.ConstantExpression(1).alias(ROWS)
    )
    con.execute(f"CREATE TEMP TABLE all_rows AS {old_rows.union(new_rows).sql_query()}")
    groups = _renumber(con, manifest, labels)
    joined = con.table("all_rows")
    if manifest.grouped:
        joined = marked(con, manifest.groups.columns, "all_rows")
    content = [ColumnExpression(name) for name in (*names, *([GROUP] * manifest.grouped))]
    if manifest.multiplicity:
        count = FunctionExpression("sum", ColumnExpression(ROWS)).cast("BIGINT").alias(MULTIPLICITY)
        final = joined.aggregate([*content, count])
    else:
        final = joined.select(*content)
    final.sort(*content).create(quoted(manifest.table))
    stored = con.table(quoted(manifest.table))
    total = int(stored.aggregate([FunctionExpression("count")]).fetchall()[0][0])
    write_manifest(
        con,
        replace(manifest, rows=total, groups=replace(manifest.groups, count=groups)),
    )
    con.execute("CHECKPOINT")
    return gathered


def _times(manifest: Manifest) -> duckdb.Expression:
    if manifest.multiplicity:
        return ColumnExpression(MULTIPLICITY).cast("BIGINT").alias(ROWS)
    return duckdb.ConstantExpression(1).cast("BIGINT").alias(ROWS)


def _renumber(
    con: duckdb.DuckDBPyConnection, manifest: Manifest, labels: dict[str, dict[Any, int]]
) -> int:
    """Group numbers after new public values came: old merging, and new values on their own."""
    names = manifest.groups.columns
    keys = [ColumnExpression(name) for name in names]
    counted = FunctionExpression("sum", ColumnExpression(ROWS)).cast("BIGINT").alias(ROWS)
    grouped = con.table("all_rows").aggregate([*keys, counted])
    tuples = (grouped.sort(*keys) if keys else grouped).to_arrow_table()
    number = np.zeros(tuples.num_rows, dtype=np.int64)
    for name in names:
        known = labels[name]
        values = tuples.column(name).to_pylist()
        for value in values:
            known.setdefault(value, max(known.values(), default=-1) + 1)
        label = np.array([known[value] for value in values], dtype=np.int64)
        number = np.unique(number * (label.max() + 1) + label, return_inverse=True)[1]
        listed = pa.table(
            {
                "value": pa.array(list(known), tuples.schema.field(name).type),
                "label": pa.array(list(known.values()), pa.uint32()),
            }
        )
        con.from_arrow(listed).sort(ColumnExpression("value")).create(values_table(name))
    con.from_arrow(tuples.append_column(GROUP, pa.array(number, pa.uint32()))).create(TUPLES)
    return int(number.max()) + 1


def _copy(
    con: duckdb.DuckDBPyConnection,
    old: duckdb.DuckDBPyConnection,
    name: str,
    table: str,
    *,
    temporary: bool = False,
) -> None:
    reader = old.table(table).to_arrow_reader(CHUNK * 10)
    con.register("copied", reader)
    if temporary:
        con.execute("CREATE TEMP TABLE staged AS SELECT * FROM copied")
    else:
        con.table("copied").create(name)
    con.unregister("copied")


def _copy_if_there(
    con: duckdb.DuckDBPyConnection, old: duckdb.DuckDBPyConnection, table: str
) -> None:
    try:
        old.table(table)
    except duckdb.CatalogException:
        return
    _copy(con, old, table, table)
