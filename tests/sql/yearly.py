"""Hundreds of releases of one small table by year: a public column ``rep`` tells them apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import privsql
from tests.specs import measure, public, sensitive, spec

SPEC = spec(
    "visits",
    public("rep"),
    public("year"),
    measure("cost"),
    sensitive("disease", 0.5, ["flu", "hiv", "none"]),
    sensitive("smoker", 0.6, [False, True]),
    more="""
[groups]
merge = "none"
[policy]
personal_groups = "allow"
min_rows = 0
""",
)

YEARS = (2018, 2019, 2020, 2021, 2022, None)


def raw(rows: int, seed: int = 3) -> pa.Table:
    """Visits in five years and in one that is not known; most are in the first."""
    rng = np.random.default_rng(seed)
    year = rng.choice(6, rows, p=[0.3, 0.25, 0.15, 0.12, 0.1, 0.08])
    disease = rng.choice(3, rows, p=[0.5, 0.2, 0.3])
    return pa.table(
        {
            "year": pa.array([YEARS[i] for i in year], pa.int32()),
            "cost": pa.array(100 + 300 * (disease == 1) + rng.integers(0, 500, rows), pa.int32()),
            "disease": np.array(["flu", "hiv", "none"])[disease],
            "smoker": rng.random(rows) < 0.2 + 0.2 * (disease == 0),
        }
    )


def publish(folder: Path, copies: int, rows: int, seed: int = 9) -> tuple[Path, pa.Table]:
    """Publish so many copies of the table at once, and return the table."""
    table = raw(rows)
    rep = pa.array(np.repeat(np.arange(copies, dtype=np.int32), rows))
    stack = pa.concat_tables([table] * copies).add_column(0, "rep", rep)
    source, out = folder / "visits.parquet", folder / "visits.duckdb"
    pq.write_table(stack, source)
    (folder / "visits.toml").write_text(SPEC, encoding="utf-8")
    privsql.publish(str(source), out, spec=folder / "visits.toml", seed=seed)
    return out, table
