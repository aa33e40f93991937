"""Releases for the tests of the classifiers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import privsql


def release(
    folder: Path,
    columns: dict[str, Any],
    *,
    sensitive: dict[str, Any],
    retention: float = 0.5,
    policy: str = 'personal_groups = "allow"\nmin_rows = 0\nrows = "allow"',
    seed: int = 1,
    name: str = "made",
) -> Path:
    """Publish columns; those with a domain in ``sensitive`` are perturbed, the rest is public.

    A domain is a list of values, or a pair of bounds.  ``columns`` are lists or arrays.
    """
    pq.write_table(pa.table(columns), folder / f"{name}.parquet")
    lines = ["[release]", 'table = "people"']
    for column in columns:
        lines.append(f"[columns.{json.dumps(column)}]")
        if column not in sensitive:
            lines.append('role = "public"')
            continue
        lines += ['role = "sensitive"', 'mechanism = "uniform"', f"retention = {retention}"]
        domain = sensitive[column]
        lines.append("accept_epsilon = true")
        if isinstance(domain, tuple):
            lower, upper = domain
            lines.append(f"domain = {{ lower = {lower}, upper = {upper}, step = 1 }}")
        else:
            if None in columns[column]:
                lines.append("nullable = true")
            lines.append(f"domain = {json.dumps(domain)}")
    lines += ["[policy]", policy]
    spec = folder / f"{name}.toml"
    spec.write_text("\n".join(lines))
    out = folder / f"{name}-{seed}-{retention}.duckdb"
    privsql.publish(str(folder / f"{name}.parquet"), out, spec=spec, seed=seed)
    return out


def people(rows: int = 4000, seed: int = 5) -> dict[str, Any]:
    """Three kinds of features and a target that depends on each.

    ``job`` and ``age`` are for the sensitive side, ``city`` for the public one.  Three
    classes: "ill" mostly above 30 in job b, "hurt" mostly in job c in the south.
    """
    rng = np.random.default_rng(seed)
    job = rng.choice(["a", "b", "c"], rows, p=[0.5, 0.3, 0.2])
    age = rng.integers(0, 60, rows)
    city = rng.choice(["north", "south", "west"], rows)
    draw = rng.random(rows)
    ill = draw < np.where((job == "b") & (age > 30), 0.85, 0.1)
    hurt = ~ill & (draw > np.where((job == "c") & (city == "south"), 0.3, 0.95))
    state = np.where(ill, "ill", np.where(hurt, "hurt", "well"))
    return {"job": job, "age": age, "city": city, "state": state}


DOMAINS: dict[str, Any] = {"job": ["a", "b", "c"], "age": (0, 59), "state": ["hurt", "ill", "well"]}
