"""Hundreds of releases of one raw table, made quickly and honestly.

Mechanisms that perturb row by row: the table is stacked R times with a public column ``rep``
and published once by ``privsql.publish``.  Draws are independent from row to row, so the rows of
one ``rep`` are a release of the table, and ``GROUP BY rep`` asks all R of them at once.

Mechanisms that see the whole column (identity, swap, decoy) would mix the copies: there, one
release is published and the column perturbed anew, again and again, by the publisher's own
kernels, with the channel that follows.  Hundreds of those stay in memory, where the formula
answers them by hand; a few become files, on which the query layer must say the same.
"""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

import privsql
from privsql.channels import Channel, Domain, Replace, Uniform
from privsql.publish.perturb import decoy, swap
from privsql.release.manifest import Manifest
from privsql.release.store import open_release

TABLE = "clinic"
ROWS = 2_000
ILLS = ("flu", "hiv", "none", "cold")
KEPT = 0.4
DECOYS = 2

SPEC = """
[release]
table = "clinic"
[groups]
merge = "none"
[policy]
personal_groups = "allow"
min_rows = 0
"""

MATRIX = [
    [0.55, 0.15, 0.15, 0.15],
    [0.10, 0.60, 0.20, 0.10],
    [0.20, 0.10, 0.50, 0.20],
    [0.05, 0.15, 0.25, 0.55],
]

MECHANISMS = {
    "uniform": f'mechanism = "uniform"\nretention = {KEPT}',
    "replace": f'mechanism = "replace"\nretention = {KEPT}\nreplacing = [0.4, 0.1, 0.3, 0.2]',
    "finegrain": 'mechanism = "finegrain"\nfloor = 0.1\n'
    "rho = [[0.2, 0.6], [0.05, 0.3], [0.3, 0.8], [0.2, 0.5]]",
    "matrix": f'mechanism = "matrix"\nmatrix = {MATRIX}',
    "identity": f'mechanism = "identity"\nretention = {KEPT}',
    "swap": f'mechanism = "swap"\nretention = {KEPT}',
    "decoy": f'mechanism = "decoy"\ngroup_size = {DECOYS}',
    "sps": f'mechanism = "uniform"\nretention = {KEPT}',
    "compacted": f'mechanism = "uniform"\nretention = {KEPT}',
}

WHOLE = ("identity", "swap", "decoy")
ROLES = {
    "rep": 'role = "public"',
    "job": 'role = "public"',
    "cost": 'role = "public"\ngrouping = false',
    "disease": 'role = "sensitive"\ndomain = ["flu", "hiv", "none", "cold"]',
    "age": 'role = "sensitive"\nmechanism = "uniform"\nretention = 0.5\n'
    "domain = { lower = 20, upper = 59, step = 1 }",
    "smoker": 'role = "sensitive"\nmechanism = "uniform"\nretention = 0.6\ndomain = [false, true]',
}


def clinic(rows: int = ROWS, seed: int = 5) -> pa.Table:
    """People whose disease depends on their job, age on disease, cost on both."""
    rng = np.random.default_rng(seed)
    job = rng.choice(4, rows, p=[0.4, 0.3, 0.2, 0.1])
    sick = np.array([[0.3, 0.1, 0.4, 0.2], [0.2, 0.2, 0.4, 0.2], [0.3, 0.2, 0.3, 0.2], [0.25] * 4])
    drawn = (rng.random(rows)[:, None] > sick[job].cumsum(axis=1)).sum(axis=1).clip(0, 3)
    age = np.clip(rng.normal(36 + 3 * drawn, 9).round(), 20, 59).astype(np.int32)
    return pa.table(
        {
            "job": np.array(["eng", "law", "art", "doc"])[job],
            "cost": rng.integers(0, 100, rows) + 2 * age + 20 * drawn,
            "disease": np.array(ILLS)[drawn],
            "age": age,
            "smoker": rng.random(rows) < 0.2 + 0.1 * drawn,
        }
    )


@dataclass(frozen=True)
class Releases:
    """Releases of one table: ``paths[0]`` holds all copies under ``rep``, or each path is one."""

    mechanism: str
    paths: tuple[Path, ...]
    copies: int
    raw: pa.Table

    @property
    def stacked(self) -> bool:
        return len(self.paths) == 1


def spec(mechanism: str, names: list[str]) -> str:
    lines = [SPEC]
    for name in names:
        lines += [f"[columns.{name}]", ROLES[name]]
        if name == "disease":
            lines.append(MECHANISMS[mechanism])
    if mechanism == "sps":
        lines.append("[protect.reconstruction]\nlambda = 0.3\ndelta = 0.3")
        lines[0] = SPEC.replace('"allow"', '"flag"')
    return "\n".join(lines) + "\n"


def releases(folder: Path, mechanism: str, copies: int, seed: int = 1) -> Releases:
    """Publish one raw table many times."""
    raw = clinic()
    if mechanism == "compacted":  # few columns, so that rows are equal
        raw = raw.select(["job", "disease", "smoker"])
    if mechanism in WHOLE:
        return Releases(mechanism, _separate(folder, mechanism, raw, copies, seed), copies, raw)
    stack = pa.concat_tables([raw] * copies).add_column(
        0, "rep", pa.array(np.repeat(np.arange(copies, dtype=np.int32), len(raw)))
    )
    made = _publish(folder, mechanism, stack, seed)
    if open_release(made).manifest.multiplicity != (mechanism == "compacted"):
        raise AssertionError("compaction is not what the mechanism is for")
    return Releases(mechanism, (made,), copies, raw)


def _publish(folder: Path, mechanism: str, table: pa.Table, seed: int) -> Path:
    source, out = folder / f"{mechanism}.parquet", folder / f"{mechanism}.duckdb"
    pq.write_table(table, source)
    (folder / f"{mechanism}.toml").write_text(spec(mechanism, table.column_names))
    privsql.publish(str(source), out, spec=folder / f"{mechanism}.toml", seed=seed)
    return out


def _separate(
    folder: Path, mechanism: str, raw: pa.Table, copies: int, seed: int
) -> tuple[Path, ...]:
    first = _publish(folder, mechanism, raw, seed)
    manifest = open_release(first).manifest
    paths = []
    for number in range(copies):
        path = folder / f"{mechanism}-{number}.duckdb"
        shutil.copyfile(first, path)
        _redraw(path, manifest, raw, mechanism, np.random.default_rng([seed, number]))
        paths.append(path)
    return tuple(paths)


def _redraw(
    path: Path, manifest: Manifest, raw: pa.Table, mechanism: str, rng: np.random.Generator
) -> None:
    """Put other draws of the sensitive columns into a copy of a release."""
    table, changed = redrawn(manifest, raw, mechanism, rng)
    text = changed.to_json()
    names = [c.name for c in manifest.public] + [c.name for c in manifest.sensitive]
    grouping = ", ".join(c.name for c in manifest.public if c.grouping)
    with duckdb.connect(str(path)) as con:
        con.register("drawn", table)
        stored = [str(row[0]) for row in con.execute(f"DESCRIBE {TABLE}").fetchall()]
        # What else is stored with a row, as its personal group, follows from its public values.
        more = "".join(f", {name}" for name in stored if name not in names)
        con.execute(f"CREATE TEMP TABLE known AS SELECT DISTINCT {grouping}{more} FROM {TABLE}")
        con.execute(f"DELETE FROM {TABLE}")
        rows = f"SELECT {', '.join(stored)} FROM drawn JOIN known USING ({grouping})"
        con.execute(f"INSERT INTO {TABLE} {rows} ORDER BY ALL")
        digest = hashlib.sha256(text.encode()).hexdigest()
        con.execute("UPDATE privsql.manifest SET document = ?, digest = ?", [text, digest])


def redrawn(
    manifest: Manifest, raw: pa.Table, mechanism: str, rng: np.random.Generator
) -> tuple[pa.Table, Manifest]:
    """Other draws of the sensitive columns, and the manifest that goes with them."""
    table, sensitive = raw, []
    for column in manifest.sensitive:
        codes = column.domain.codes(raw.column(column.name))
        channel = column.channel
        if column.name == "disease":
            drawn, channel = perturbed_whole(mechanism, codes, column.domain, rng)
        else:
            kept = rng.random(len(codes)) < channel.retention  # type: ignore[attr-defined]
            drawn = np.where(kept, codes, rng.integers(channel.size, size=len(codes)))
        place = raw.column_names.index(column.name)
        values = column.domain.decode(drawn).cast(raw.schema.field(column.name).type)
        table = table.set_column(place, column.name, values)
        sensitive.append(replace(column, channel=channel))
    return table, replace(manifest, sensitive=tuple(sensitive))


def misread(path: Path, folder: Path, name: str, retention: float) -> Path:
    """A copy of a release whose manifest states another retention than was used for a column."""
    manifest = open_release(path).manifest
    sensitive = [
        replace(column, channel=Uniform(retention, column.channel.size))
        if column.name == name
        else column
        for column in manifest.sensitive
    ]
    copy = folder / "misread.duckdb"
    shutil.copyfile(path, copy)
    text = replace(manifest, sensitive=tuple(sensitive)).to_json()
    digest = hashlib.sha256(text.encode()).hexdigest()
    with duckdb.connect(str(copy)) as con:
        con.execute("UPDATE privsql.manifest SET document = ?, digest = ?", [text, digest])
    return copy


def perturbed_whole(
    mechanism: str, codes: NDArray[Any], domain: Domain, rng: np.random.Generator
) -> tuple[NDArray[Any], Channel]:
    """A column perturbed as a whole, and the channel that its published values imply."""
    if mechanism == "decoy":
        groups, left = decoy.partition(codes, DECOYS, rng)
        if left.any():
            raise AssertionError("rows of the test must come in whole decoy groups")
        drawn = decoy.publish(codes, groups, DECOYS, rng)
        totals = np.bincount(drawn, minlength=domain.size)
        # The publisher's 2,000 rounds take seconds; 20 leave an entry within 1%.
        return drawn, decoy.decoy_channel(totals, DECOYS, rng, rounds=20)
    kernel = swap.identity if mechanism == "identity" else swap.swap
    drawn = kernel(codes, KEPT, rng)
    return drawn, Replace(KEPT, swap.estimated_replacing(drawn, domain.size))
