"""Local perturbation: clients perturb their own rows before they send them (OLAP's setting).

    privsql perturb spec.toml < rows.csv > batch.csv      on the client's side
    privsql append release.duckdb batch.csv               where batches are gathered

A batch is a CSV file that names the rules it was made under and carries the hash of its own
rows.  The hash finds accidents, not forgeries: a client can send any row, and each such row
weighs at most 1/p for each sensitive condition of a question (docs/manifest.md).
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
from duckdb import ColumnExpression, FunctionExpression

from privsql.channels import Channel, Domain
from privsql.errors import DataError, DomainError, NotSupportedError
from privsql.publish.randomness import Randomness
from privsql.publish.resolve import WHOLE
from privsql.publish.retention import Sampler
from privsql.publish.staging import commit, staging
from privsql.publish.units import row_units, unit_words
from privsql.release.manifest import Manifest
from privsql.release.names import GROUP, MULTIPLICITY, ROWS, TUPLES, quoted, values_table
from privsql.release.spec import Spec, check_source_columns
from privsql.release.store import open_release, write_manifest

HEADER, FOOTER = "# privsql batch, rules ", "# sha256 "

# Rows that are perturbed together while they stream by.
CHUNK = 10_000


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


def perturb_rows(spec: Spec, rows: TextIO, out: TextIO, randomness: Randomness) -> int:
    """Perturb CSV rows as they stream by, without ever seeing the table; say how many."""
    whole = [c.name for c in spec.sensitive if c.mechanism in WHOLE or c.domain is None]
    fine = [c.name for c in spec.sensitive if c.mechanism == "finegrain"]
    if whole or fine:
        raise NotSupportedError(
            f"{', '.join(whole + fine)}: this mechanism needs the whole table, so a client"
            " cannot apply it to rows of its own",
            hint="choose uniform, replace or matrix with a domain that is written in the spec",
        )
    if spec.protect is not None:
        raise NotSupportedError(
            "reconstruction privacy cuts groups of the whole table, so a client cannot apply it"
        )
    reader = csv.reader(rows)
    names = next(reader, None)
    if not names:
        raise DataError("there are no rows to perturb")
    check_source_columns(spec, names)
    public = [column.name for column in spec.public]
    columns = [(c.name, c.domain, c.channel()) for c in spec.sensitive]
    known = [(n, d, c) for n, d, c in columns if d is not None and c is not None]
    samplers = {name: Sampler(channel, domain) for name, domain, channel in known}
    digest = hashlib.sha256()
    out.write(f"{HEADER}{rules(spec.table, public, known)}\n")
    done = 0

    def write(lines: Iterable[Sequence[Any]]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(lines)
        digest.update(text.getvalue().encode())
        out.write(text.getvalue())

    write([[*public, *(name for name, _, _ in known)]])
    place = {name.casefold(): i for i, name in enumerate(names)}
    while chunk := _taken(reader, len(names)):
        table = list(zip(*chunk, strict=True))
        units = (
            row_units(done, len(chunk), spec.table)
            if spec.unit == "row"
            else unit_words(pa.array(table[place[spec.unit.casefold()]]), randomness.unit_key)
        )
        shown: list[Sequence[Any]] = [table[place[name.casefold()]] for name in public]
        for name, domain, _ in known:
            codes = _parsed(domain, name, table[place[name.casefold()]])
            published = samplers[name].perturb(codes, randomness, units, name)
            shown.append(["" if v is None else v for v in domain.decode(published).to_pylist()])
        write(zip(*shown, strict=True))
        done += len(chunk)
    out.write(f"{FOOTER}{digest.hexdigest()}\n")
    return done


def append(release: str | Path, batch: str | Path) -> int:
    """Add the rows of a batch to a release, by writing a new file; say how many they were."""
    target = Path(release)
    manifest = open_release(target).manifest
    if manifest.weighted or any(column.mechanism in WHOLE for column in manifest.sensitive):
        raise NotSupportedError("rows cannot be added to a release that was made of a whole table")
    rows = _read_batch(Path(batch), manifest)
    with staging(target, force=True) as folder:
        made = folder / "release.duckdb"
        with duckdb.connect(str(made), config={"temp_directory": str(folder / "spill")}) as con:
            _rebuild(con, target, manifest, rows, folder)
        commit(made, target)
    return rows.num_rows


def _read_batch(path: Path, manifest: Manifest) -> pa.Table:
    try:
        text = path.read_bytes()
    except OSError as problem:
        raise DataError(f"cannot read {path}: {problem.strerror}") from None
    first, _, rest = text.partition(b"\n")
    body, mark, last = rest.rpartition(FOOTER.encode())
    if not first.startswith(HEADER.encode()) or not mark:
        raise DataError(f"{path} is not a whole batch", hint="make one with `privsql perturb`")
    if hashlib.sha256(body).hexdigest().encode() != last.strip():
        raise DataError(f"{path} was changed after it was made, or cut short")
    public = [column.name for column in manifest.public]
    sensitive = [(c.name, c.domain, c.channel) for c in manifest.sensitive]
    if first[len(HEADER) :].decode().strip() != rules(manifest.table, public, sensitive):
        raise DataError(
            f"{path} was made under other rules than the release",
            hint="perturb the rows with the spec of this release",
        )
    as_text = {name: pa.string() for name in (*public, *(name for name, _, _ in sensitive))}
    options = pacsv.ConvertOptions(column_types=as_text, strings_can_be_null=False)
    table = pacsv.read_csv(io.BytesIO(body), convert_options=options)
    for name, domain, _ in sensitive:
        codes = _parsed(domain, name, table.column(name).to_pylist())
        table = table.set_column(table.schema.get_field_index(name), name, domain.decode(codes))
    return table


def _rebuild(
    con: duckdb.DuckDBPyConnection, target: Path, manifest: Manifest, rows: pa.Table, folder: Path
) -> None:
    """Write the release again with the rows added, in the order of its content."""
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
    con.register("batch", rows)
    try:
        added = con.table("batch").select(
            *(ColumnExpression(name).cast(kinds[name]).alias(name) for name in names)
        )
        con.execute(f"CREATE TEMP TABLE added AS {added.sql_query()}")
    except duckdb.Error:
        raise DataError("a public value of the batch does not fit its column") from None
    # The order of the names is ours; multiplicities of new rows are one.
    old_rows = staged.select(*(ColumnExpression(name) for name in names), _times(manifest))
    new_rows = con.table("added").select(
        *(ColumnExpression(name) for name in names), duckdb.ConstantExpression(1).alias(ROWS)
    )
    con.execute(f"CREATE TEMP TABLE all_rows AS {old_rows.union(new_rows).sql_query()}")
    groups = _renumber(con, manifest, labels)
    joined = con.table("all_rows")
    if manifest.grouped:
        joined = _with_groups(con, manifest.groups.columns)
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
    tuples = con.table("all_rows").aggregate([*keys, counted]).sort(*keys).to_arrow_table()
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


def _with_groups(con: duckdb.DuckDBPyConnection, names: Sequence[str]) -> duckdb.DuckDBPyRelation:
    rows, tuples = con.table("all_rows").set_alias("s"), con.table(TUPLES).set_alias("t")
    left = FunctionExpression("row", *(ColumnExpression("s", name) for name in names))
    right = FunctionExpression("row", *(ColumnExpression("t", name) for name in names))
    return rows.join(tuples, left == right).select(
        *(ColumnExpression("s", name).alias(name) for name in rows.columns),
        ColumnExpression("t", GROUP).alias(GROUP),
    )


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


def _taken(reader: Iterable[list[str]], width: int) -> list[list[str]]:
    chunk: list[list[str]] = []
    for row in reader:
        if len(row) != width:
            raise DataError(f"a row has {len(row)} fields where the header has {width}")
        chunk.append(row)
        if len(chunk) == CHUNK:
            break
    return chunk


def _parsed(domain: Domain, name: str, texts: Sequence[str | None]) -> np.ndarray[Any, Any]:
    """Codes of values that are written as text; an empty field is NULL."""
    array: pa.Array[Any] = pa.array([text or None for text in texts], pa.string())
    try:
        if domain.kind != "text":
            array = array.cast(domain.arrow_type)
        return domain.codes(array)
    except pa.ArrowException:
        raise DataError(f"column {name}: some values cannot be read as {domain.kind}") from None
    except DomainError as problem:
        raise DataError(f"column {name}: {problem.reason}", hint=problem.hint) from None
