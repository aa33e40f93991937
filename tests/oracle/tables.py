"""A random small table, published with retention 1 and kept raw beside it.

At retention 1 every reconstruction has to give back the raw answer, whatever the mechanism
is called: uniform, replace, a matrix that is the identity, fine-grain with every p_i = 1, and
equal rows stored once.  In some variants the domains hold values that no row has, so that
groups which only a domain knows appear in answers.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import privsql
from privsql.channels.mechanisms import FineGrain
from privsql.release.store import open_release

TABLE = "visits"
TOWNS = ("ams", "ber", "cph", "Dun")
ILLS = ("flu", "hiv", "none", "cold")
DAYS = tuple(date(2024, 1, 1) + timedelta(days=7 * i) for i in range(8))
AGES = tuple(range(20, 50))
VARIANTS = ("plain", "sparse", "compacted", "replace", "matrix", "finegrain")

# Of each sensitive column: its domain in a spec, and how many values that has.
DOMAINS = {
    "disease": (f"{{ values = {list(ILLS)}, nullable = true }}", 5),
    "age": (f"{{ lower = {AGES[0]}, upper = {AGES[-1]}, step = 1, nullable = true }}", 31),
    "seen": (f'{{ lower = {DAYS[0]}, upper = {DAYS[-1]}, step = "7 days" }}', 8),
    "smoker": ("[false, true]", 2),
    "home": (f"{{ values = {list(TOWNS)}, nullable = true }}", 5),
    "work": (f"{list(TOWNS)}", 4),
}


@dataclass(frozen=True)
class Column:
    """A column as the generator sees it: how to name it and what to compare it with."""

    name: str
    type: str  # text | int | double | decimal | date | bool
    samples: tuple[Any, ...]
    sensitive: bool = False
    nullable: bool = False
    key: bool = True  # few values: GROUP BY it
    ref: str = ""
    mixed: bool = False  # computed from sensitive and public columns

    @property
    def sql(self) -> str:
        return self.ref or self.name

    def under(self, alias: str) -> Column:
        return replace(self, ref=f"{alias}.{self.name}")


COLUMNS = (
    Column("city", "text", (*TOWNS, "ber%"), nullable=True),
    Column("sex", "text", ("F", "M")),
    Column("floor", "int", (-1, 0, 1, 2, 3), nullable=True),
    Column("member", "bool", (True, False), nullable=True),
    Column("cost", "int", (10, 75, 200, 333), nullable=True, key=False),
    Column("score", "double", (-1.5, 0.125, 0.5, 2.25), nullable=True, key=False),
    Column("price", "decimal", (Decimal("1.50"), Decimal("20.25"), Decimal("77.77")), key=False),
    Column("born", "date", (date(1980, 5, 17), date(1990, 1, 1), date(2001, 12, 3)), key=False),
    Column("disease", "text", ILLS, sensitive=True, nullable=True),
    Column("age", "int", (21, 25, 30, 33, 40, 48), sensitive=True, nullable=True),
    Column("seen", "date", DAYS[1:], sensitive=True),
    Column("smoker", "bool", (True, False), sensitive=True),
    Column("home", "text", TOWNS, sensitive=True, nullable=True),
    Column("work", "text", TOWNS, sensitive=True),
)

CITIES = (
    Column("country", "text", ("NL", "DE", "DK"), nullable=True),
    Column("people", "int", (100, 870, 3600), nullable=True),
)
KINDS = (
    Column("family", "text", ("virus", "other"), nullable=True),
    Column("severity", "int", (0, 1, 2, 3), nullable=True),
)


def dimensions() -> dict[str, pa.Table]:
    """Public tables with a unique key; each lacks a value that the column holds."""
    cities = {
        "city": ["ams", "ber", "cph", "xyz"],
        "country": ["NL", "DE", "DK", "NL"],
        "people": pa.array([900, 3600, None, 5], pa.int32()),
    }
    kinds = {
        "disease": ["flu", "hiv", "cold"],
        "family": ["virus", "virus", None],
        "severity": pa.array([1, 3, 0], pa.int32()),
    }
    return {"cities": pa.table(cities), "kinds": pa.table(kinds)}


def raw_rows(rows: int, seed: int, variant: str = "plain") -> pa.Table:
    """Random rows; ``sparse`` leaves domain values and whole combinations empty."""
    rng = np.random.default_rng(seed)
    drawn = rows // 6 if variant == "compacted" else rows
    lean = variant == "sparse"

    def some(values: Any, nulls: float = 0.0, skew: bool = False) -> list[Any]:
        shares = np.geomspace(1, 0.004, len(values)) if skew else np.ones(len(values))
        codes = rng.choice(len(values), drawn, p=shares / shares.sum())
        holes = rng.random(drawn) < nulls
        return [None if hole else values[code] for code, hole in zip(codes, holes, strict=True)]

    days = [date(1970, 1, 1) + timedelta(days=int(day)) for day in rng.integers(0, 15_000, drawn)]
    scores = [None if x > 2.4 else float(x) for x in rng.normal(size=drawn).round(3)]
    price = [Decimal(int(cents)) / 100 for cents in rng.integers(0, 10_000, drawn)]
    table = pa.table(
        {
            "city": pa.array(some(TOWNS, 0.1), pa.string()),
            "sex": pa.array(some(("F", "M")), pa.string()),
            "floor": pa.array(some((-1, 0, 1, 2, 3), 0.1), pa.int32()),
            "member": pa.array(some((True, False), 0.1), pa.bool_()),
            "cost": pa.array(some(range(500), 0.05), pa.int64()),
            "score": pa.array(scores, pa.float64()),
            "price": pa.array(price, pa.decimal128(8, 2)),
            "born": pa.array(days, pa.date32()),
            "disease": pa.array(some(ILLS, 0.1, lean), pa.string()),
            "age": pa.array(some(AGES, 0.05, lean), pa.int32()),
            "seen": pa.array(some(DAYS, 0, lean), pa.date32()),
            "smoker": pa.array(some((False, True), 0, lean), pa.bool_()),
            "home": pa.array(some(TOWNS, 0.1, lean), pa.string()),
            "work": pa.array(some(TOWNS[:3] if lean else TOWNS), pa.string()),
        }
    )
    if drawn < rows:
        table = table.take(rng.integers(0, drawn, rows))
    return table


def _mechanism(name: str, size: int, variant: str) -> str:
    kept = 'mechanism = "uniform"\nretention = 1'
    if variant == "replace":
        shares = np.arange(1, size + 1) / (size * (size + 1) / 2)
        kept = f'mechanism = "replace"\nretention = 1\nreplacing = {shares.tolist()}'
    elif variant == "matrix":
        kept = f'mechanism = "matrix"\nmatrix = {np.eye(size).tolist()}'
    elif variant == "finegrain":
        # f_i >= 1/theta for every value: none is protected and each p_i as good as 1.
        kept = f'mechanism = "finegrain"\ntheta = {size + 1}'
    return kept


def spec(variant: str) -> str:
    """The spec of a table that is published as it is, by mechanisms that could do otherwise."""
    lines = [f'[release]\ntable = "{TABLE}"\n[policy]\npersonal_groups = "allow"\nmin_rows = 0']
    for column in COLUMNS:
        lines.append(f"[columns.{column.name}]")
        if column.sensitive:
            domain, size = DOMAINS[column.name]
            lines.append(f'role = "sensitive"\naccept_epsilon = true\ndomain = {domain}')
            lines.append(_mechanism(column.name, size, variant))
        else:
            lines.append('role = "public"' + "\ngrouping = false" * (not column.key))
    return "\n".join(lines) + "\n"


@dataclass
class World:
    """One random table: the release of it, and DuckDB on the raw rows."""

    variant: str
    release: Path
    raw: duckdb.DuckDBPyConnection
    tables: dict[str, pa.Table]


def raw_connection(table: pa.Table) -> duckdb.DuckDBPyConnection:
    con = duckdb.connect(":memory:", config={"threads": 1})
    con.register("given", table)
    con.execute(f"CREATE TABLE {TABLE} AS FROM given")
    for name, dimension in dimensions().items():
        con.register("given", dimension)
        con.execute(f"CREATE TABLE {name} AS FROM given")
    con.unregister("given")
    return con


def world(folder: Path, variant: str, seed: int, rows: int | None = None) -> World:
    """Publish one random table; the same seed makes the same one."""
    size = rows or int(np.random.default_rng(seed).integers(600, 2500))
    table = raw_rows(size, seed, variant)
    source, out = folder / f"{variant}.parquet", folder / f"{variant}.duckdb"
    pq.write_table(table, source)
    (folder / f"{variant}.toml").write_text(spec(variant))
    report = privsql.publish(str(source), out, spec=folder / f"{variant}.toml", seed=seed)
    if report.manifest.multiplicity != (variant == "compacted"):
        raise AssertionError(f"{variant}: compaction is not what the variant is for")
    if variant == "finegrain":
        _keep_all(out)
    return World(variant, out, raw_connection(table), dimensions())


def _keep_all(path: Path) -> None:
    """Make retentions of 1 - 1e-8, the most that the theta rule gives, exactly 1.

    No row was replaced at that, but answers would differ from DuckDB's in the eighth digit,
    and rightly so.
    """
    manifest = open_release(path).manifest
    sensitive = []
    for column in manifest.sensitive:
        kept = np.asarray(column.channel.matrix).diagonal()
        if column.mechanism != "finegrain" or not (kept > 1 - 1e-7).all():
            raise AssertionError("the variant is for fine-grain channels that keep everything")
        sensitive.append(replace(column, channel=FineGrain(np.ones(len(kept)))))
    text = replace(manifest, sensitive=tuple(sensitive)).to_json()
    digest = hashlib.sha256(text.encode()).hexdigest()
    with duckdb.connect(str(path)) as con:
        con.execute("UPDATE privsql.manifest SET document = ?, digest = ?", [text, digest])
