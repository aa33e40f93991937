"""Releases of a case at the default setting, asked in SQL: what the kernels are held against.

Each release has merged public values, as the paper publishes them.  One GROUP BY for each
combination of columns in the pool answers all of its queries.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from recon_data import Array, Case, Pool
from recon_runs import Setting, Way

import privsql
from privsql.channels import Uniform

PROTECT = {
    "UP": "",
    "SPS": 'cap = "exact"\nscaling = "duplicate"\nfrom = "raw"\n',
    "grid": "",
    "one": 'cap = "one"\n',
}


@dataclass(frozen=True)
class Asked:
    """Answers of one release to the pool, with their 95% intervals; one entry a query."""

    estimates: Array
    stderr: Array
    covered: Array  # 1 where the interval holds the truth
    kernel: Array  # the same estimates, from the published rows by lemma 2

    def error(self, pool: Pool) -> float:
        """Mean relative error."""
        return float(np.mean(np.abs(self.estimates - pool.answers) / pool.answers))


def spec(case: Case, setting: Setting, way: Way) -> str:
    """A spec that merges nothing (values are merged already) and refuses nothing."""
    lines = ["[release]", 'table = "people"', "[groups]", 'merge = "none"']
    lines += ["[policy]", 'personal_groups = "allow"', "min_rows = 0", 'rows = "allow"']
    for column in case.columns:
        lines += [f"[columns.{column}]", 'role = "public"']
    lines += [f"[columns.{case.target}]", 'role = "sensitive"', 'mechanism = "uniform"']
    lines += [f"retention = {setting.retention}", f"domain = {json.dumps(case.domain)}"]
    if way != "UP":
        lines += ["[protect.reconstruction]", f"lambda = {setting.relative_error}"]
        lines += [f"delta = {setting.probability}", PROTECT[way]]
    return "\n".join(lines) + "\n"


def published(case: Case, setting: Setting, way: Way, seed: int, folder: Path) -> Path:
    """Make a release of the case."""
    source, wanted = folder / "people.parquet", folder / f"{way}.toml"
    if not source.exists():
        pq.write_table(case.table(), source)
    wanted.write_text(spec(case, setting, way))
    out = folder / f"{way}-{seed}.duckdb"
    privsql.publish(str(source), out, spec=wanted, seed=seed)
    return out


def ask(release: Path, case: Case, pool: Pool, setting: Setting) -> Asked:
    """Ask a release every query of the pool."""
    shape = (len(pool.conditions), case.size)
    found = {name: np.zeros(shape) for name in ("n", "n_stderr", "n_low", "n_high", "seen")}
    values = {name: i for i, name in enumerate(case.domain)}
    numbers = {asked: i for i, asked in enumerate(pool.conditions)}
    with privsql.connect(release) as con:
        for columns in sorted({tuple(c for c, _ in asked) for asked in pool.conditions}):
            names = [case.columns[c] for c in columns]
            listed = ", ".join((*names, case.target))
            text = f"SELECT {listed}, COUNT(*) AS n, privsql_observed(n) AS seen FROM people"
            answer = con.sql(f"{text} GROUP BY {listed}", error_bars=True).arrow()
            for row in answer.to_pylist():
                labels = (int(row[name].rsplit(" ", 1)[1]) for name in names)
                place = numbers.get(tuple(zip(columns, labels, strict=True)))
                if place is not None:
                    for name, table in found.items():
                        table[place, values[row[case.target]]] = row[name] or 0.0
    seen = found["seen"]
    kernel = Uniform(setting.retention, case.size).inverse(seen)
    at = (pool.condition, pool.value)
    low, high = found["n_low"][at], found["n_high"][at]
    covered = ((low <= pool.answers) & (pool.answers <= high)).astype(float)
    return Asked(found["n"][at], found["n_stderr"][at], covered, kernel[at])
