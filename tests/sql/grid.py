"""A release with a sensitive grid of as many values as are wanted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import privsql

SPEC = """
[release]
table = "staff"
[groups]
merge = "none"
[policy]
personal_groups = "allow"
min_rows = 0
[columns.job]
role = "public"
[columns.salary]
role = "sensitive"
mechanism = "uniform"
retention = 0.5
accept_epsilon = true
domain = {{ lower = 0, upper = {last}, step = 1 }}
[columns.senior]
role = "sensitive"
mechanism = "replace"
retention = 0.6
replacing = [0.7, 0.3]
domain = [false, true]
"""


def publish(folder: Path, values: int, rows: int = 500) -> Path:
    """Publish a few rows of it."""
    rng = np.random.default_rng(values)
    table = pa.table(
        {
            "job": np.array(["eng", "law"])[rng.integers(0, 2, rows)],
            "salary": rng.integers(0, values, rows),
            "senior": rng.random(rows) < 0.4,
        }
    )
    pq.write_table(table, folder / "staff.parquet")
    (folder / "staff.toml").write_text(SPEC.format(last=values - 1), encoding="utf-8")
    release = folder / "staff.duckdb"
    source = str(folder / "staff.parquet")
    privsql.publish(source, release, spec=folder / "staff.toml", seed=6)
    return release
