"""Appending batches to a release, by writing a new file and renaming it.

    lock ── release opened ── batch checked ── rows of both ── groups numbered ── new file

The lock comes first: what is read before it may be replaced by somebody else before it is
written again, and their rows would be lost.  Values are compared by the database alone, as
publishing compares them: NULL equals NULL, NaN equals NaN and -0.0 equals 0.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa

from privsql.errors import DataError, IntegrityError, NotSupportedError
from privsql.publish.append.batches import from_text, read_batch
from privsql.publish.append.fitting import insert_fitted
from privsql.publish.database import store, working
from privsql.publish.groups.numbering import marked
from privsql.publish.prepare import WHOLE
from privsql.publish.report import Notes
from privsql.publish.rounded import Rounding
from privsql.publish.staging import staging
from privsql.publish.types import as_written
from privsql.release.manifest import Manifest
from privsql.release.names import (
    GROUP,
    MULTIPLICITY,
    RESERVED,
    ROWS,
    TUPLES,
    domain_table,
    published_table,
    quoted,
    values_table,
)
from privsql.release.shapes import as_file, commit_release, in_shape
from privsql.release.store import attach, count_rows, open_release, write_manifest


def append(release: str | Path, batch: str | Path, notes: Notes | None = None) -> int:
    """Add the rows of a batch to a release, by writing a new file; returns their number.

    ``notes`` takes how many values a grid moved: none, if `perturb` made the batch.
    """
    rounding = Rounding()
    # Two names of one file must meet at one lock, and a link must stay one.
    target = Path(release).resolve()
    parquet = target.is_dir()
    with staging(target, force=True, folder=parquet) as folder:
        manifest = open_release(target).manifest
        _check_mechanisms(manifest)
        given = read_batch(Path(batch), manifest)
        if given.digest in manifest.batches:
            raise DataError(
                f"{batch} is in the release already",
                hint="each batch counts once; nothing was changed",
            )
        batches = tuple(sorted((*manifest.batches, given.digest)))
        manifest = replace(manifest, batches=batches, identity="")
        made, old = folder / "release.duckdb", target
        if parquet:
            old = folder / "old.duckdb"
            as_file(target, old)
        with closing(working(made, folder)) as con:
            attach(con, old, "ATTACH $path AS old (READ_ONLY, TYPE duckdb)")
            count = _rebuild(con, manifest, _checked(given.rows, manifest, rounding))
        made = in_shape(made, folder=parquet)
        open_release(made)  # what cannot be opened must not replace what can
        commit_release(made, target)
    if notes is not None:
        notes.round(rounding)
    return count


def _check_mechanisms(manifest: Manifest) -> None:
    """Refuse a release that new rows would make untrue: its rows depend on each other."""
    whole = [column.name for column in manifest.sensitive if column.mechanism in WHOLE]
    if manifest.protection is None and not whole:
        return
    reason = (
        "its personal groups were cut down (reconstruction privacy)"
        if not whole
        else f"{', '.join(whole)} drew from the whole column"
    )
    raise NotSupportedError(
        f"rows cannot be added to a release that was made of a whole table: {reason}",
        hint="publish all rows together again, or publish these as a release of their own",
    )


def _checked(
    rows: Iterable[pa.RecordBatch], manifest: Manifest, rounding: Rounding
) -> Iterator[pa.RecordBatch]:
    """Rows with the columns of the release, each sensitive value one of its domain."""
    public = [column.name for column in manifest.public]
    names = [*public, *(column.name for column in manifest.sensitive)]
    for batch in rows:
        if batch.schema.names != names:
            raise DataError("the batch does not have the columns of the release")
        arrays = batch.columns[: len(public)]
        for column in manifest.sensitive:
            values = from_text(column.name, column.domain, batch.column(len(arrays)))
            codes = rounding.codes(column.name, column.domain, values)
            arrays.append(column.domain.decode(codes))
        yield as_written(batch, len(public), names, arrays)


def _rebuild(
    con: duckdb.DuckDBPyConnection, manifest: Manifest, rows: Iterable[pa.RecordBatch]
) -> int:
    """Write the release again with the rows added, in the order of its content; count them."""
    public = [column.name for column in manifest.public]
    names = [*public, *(column.name for column in manifest.sensitive)]
    con.execute("CREATE SCHEMA privsql")
    _copy_domains(con, manifest)
    old = con.table(f"old.main.{quoted(manifest.table)}")
    # As text: each expression would be held against the names of all columns.
    shown = ", ".join(map(quoted, names))
    times = MULTIPLICITY if manifest.multiplicity else "1"
    store(con, "CREATE TEMP TABLE added AS", old.project(shown).limit(0))
    kinds = dict(zip(old.columns, old.types, strict=True))
    gathered = 0
    for batch in rows:
        insert_fitted(con, "added", batch, kinds, public, gathered)
        gathered += batch.num_rows
    old_rows = old.project(f"{shown}, {times}::BIGINT AS {ROWS}")
    new_rows = con.table("added").project(f"{shown}, 1::BIGINT AS {ROWS}")
    store(con, "CREATE TEMP TABLE all_rows AS", old_rows.union(new_rows))
    groups = _renumber(con, manifest)
    joined = con.table("all_rows")
    if manifest.grouped:
        joined = marked(con, manifest.groups.columns, "all_rows")
    content = ", ".join([shown, *[GROUP] * manifest.grouped])
    if manifest.multiplicity:
        final = joined.aggregate(f"{content}, sum({ROWS})::BIGINT AS {MULTIPLICITY}", content)
    else:
        final = joined.project(content)
    table = published_table(manifest.table)
    store(con, f"CREATE TABLE {table} AS", final.order(content))
    write_manifest(
        con,
        replace(
            manifest,
            rows=count_rows(con.table(table)),
            groups=replace(manifest.groups, count=groups),
            # Clients draw by themselves, under no key that we could know of.
            privacy=replace(manifest.privacy, memory=False, batches=len(manifest.batches)),
        ),
    )
    con.execute("DETACH old")
    con.execute("CHECKPOINT")
    return gathered


def _renumber(con: duckdb.DuckDBPyConnection, manifest: Manifest) -> int:
    """Group numbers after new public values came: old merging, and new values on their own."""
    names = manifest.groups.columns
    keys = ", ".join(map(quoted, names))
    total = f"sum({ROWS})::BIGINT AS {ROWS}"
    counted = con.table("all_rows").aggregate(f"{keys}, {total}" if keys else total, keys)
    store(con, "CREATE TEMP TABLE counted AS", counted)
    tuples = con.table("counted")
    labels = [f"{RESERVED}label_{place}" for place in range(len(names))]
    for name, label in zip(names, labels, strict=True):
        _label(con, name)
        values = con.table(values_table(name)).set_alias("t")
        tuples = tuples.set_alias("s").join(values, _same(name)).project(f"s.*, t.label AS {label}")
    # One number for each combination of labels, in their order.
    rank = f"dense_rank() OVER (ORDER BY {', '.join(labels)}) - 1" if labels else "0"
    numbered = tuples.project(
        ", ".join([*map(quoted, names), ROWS, f"({rank})::UINTEGER AS {GROUP}"])
    )
    store(con, f"CREATE TABLE {TUPLES} AS", numbered.order(keys) if keys else numbered)
    written = con.table(TUPLES)
    if count_rows(written) != count_rows(con.table("counted")):
        raise IntegrityError("the values of a public column do not have one label each")
    return _largest(written, GROUP) + 1


def _label(con: duckdb.DuckDBPyConnection, name: str) -> None:
    """Write the labels of a public column's values: the old ones, and new ones after them."""
    old = con.table(f"old.{values_table(name)}")
    shown = con.table("counted").project(f"{quoted(name)} AS value").distinct()
    new = shown.set_alias("s").join(old.set_alias("t"), _same("value"), how="anti")
    place = f"row_number() OVER (ORDER BY value) + {_largest(old, 'label')}"
    added = new.project(f"value, ({place})::UINTEGER AS label")
    both = old.project("value, label").union(added)
    store(con, f"CREATE TABLE {values_table(name)} AS", both.order("value"))


def _same(name: str) -> str:
    # Rows compare NULL as equal to NULL, which single columns do not.
    return f"row(s.{quoted(name)}) = row(t.value)"


def _copy_domains(con: duckdb.DuckDBPyConnection, manifest: Manifest) -> None:
    for column in manifest.sensitive:
        table = domain_table(column.name)
        try:
            listed = con.table(f"old.{table}")
        except duckdb.CatalogException:  # too large to be listed
            continue
        store(con, f"CREATE TABLE {table} AS", listed)


def _largest(relation: duckdb.DuckDBPyRelation, name: str) -> int:
    return int(relation.aggregate(f"max({name})").fetchall()[0][0])
