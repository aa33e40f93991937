"""Releases of privsql asked in SQL: what the kernels of the sweeps are held against."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from splu_data import Array, Case, Pool

import privsql
from udfs.invert import invert
from udfs.kron import Kron

SETS = 6  # column sets of a pool that are asked: those with most of its queries


@dataclass(frozen=True)
class Asked:
    """Answers of some releases to the queries of a pool that some GROUP BYs cover."""

    errors: Array  # mean relative error of each release
    covered: Array  # share of the 95% intervals that hold the truth, of each release
    apart: float  # largest distance of SQL from the kernel on the same rows, in rows
    queries: int


def spec(given: Case, group_size: int) -> str:
    """Every sensitive column in decoy groups; nothing is refused, as in the paper."""
    lines = ["[release]", 'table = "people"', "[groups]", 'merge = "none"']
    lines += ["[policy]", 'personal_groups = "allow"', "min_rows = 0"]
    for column in given.columns:
        lines += [f"[columns.{column}]", 'role = "public"']
    for target, size in zip(given.targets, given.sizes, strict=True):
        lines += [f"[columns.{target}]", 'role = "sensitive"', 'mechanism = "decoy"']
        lines += [f"group_size = {group_size}", f"domain = {list(range(size))}"]
    return "\n".join(lines) + "\n"


def asked(given: Case, pool: Pool, group_size: int, seeds: range) -> Asked:
    """Publish with each seed and ask; answers are compared with the kernel's and the truth."""
    queries = Counter(pool.column_sets[condition] for condition in pool.condition)
    sets = sorted(columns for columns, _ in queries.most_common(SETS))
    chosen = np.array([pool.column_sets[condition] in sets for condition in pool.condition])
    errors, covered, apart = [], [], 0.0
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        pq.write_table(given.table(), folder / "people.parquet")
        (folder / "people.toml").write_text(spec(given, group_size))
        for seed in seeds:
            out = folder / f"{seed}.duckdb"
            report = privsql.publish(
                str(folder / "people.parquet"), out, spec=folder / "people.toml", seed=seed
            )
            by_name = {column.name: column.channel for column in report.manifest.sensitive}
            kron = Kron([by_name[target].matrix for target in given.targets])
            table = _answers(out, given, pool, sets)
            estimates = pool.asked(table["n"])[chosen]
            kernel = pool.asked(invert(table["seen"], kron))[chosen]
            apart = max(apart, float(np.abs(estimates - kernel).max()))
            truth = pool.answers[chosen]
            errors.append(np.mean(np.abs(estimates - truth) / truth))
            low, high = pool.asked(table["n_low"])[chosen], pool.asked(table["n_high"])[chosen]
            covered.append(np.mean((low <= truth) & (truth <= high)))
    return Asked(np.array(errors), np.array(covered), apart, int(chosen.sum()))


def _answers(
    release: Path, given: Case, pool: Pool, sets: list[tuple[int, ...]]
) -> dict[str, Array]:
    """Estimate, published count and interval: {name: (conditions, joint values)}."""
    names = ("n", "n_low", "n_high", "seen")
    found = {name: np.zeros((len(pool.conditions), pool.width)) for name in names}
    numbers = {key: i for i, key in enumerate(zip(pool.column_sets, pool.conditions, strict=True))}
    with privsql.connect(release) as con:
        for columns in sets:
            public = [given.columns[c] for c in columns]
            listed = ", ".join((*public, *given.targets))
            text = f"SELECT {listed}, COUNT(*) AS n, privsql_observed(n) AS seen FROM people"
            answer = con.sql(f"{text} GROUP BY {listed}", error_bars=True).arrow()
            for row in answer.to_pylist():
                place = numbers.get((columns, tuple(row[name] for name in public)))
                if place is None:
                    continue
                value = 0
                for target, size in zip(given.targets, given.sizes, strict=True):
                    value = value * size + row[target]
                for name in names:
                    found[name][place, value] = row[name] if row[name] is not None else np.nan
    return found
