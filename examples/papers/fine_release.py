"""Releases of a column, asked in SQL: what the kernels are held against, and two questions.

GROUP BY value, iterative     the frequencies behind aggregate utility
WHERE value IN (...)          one condition, by inversion; beside it the 2-state shortcut
the manifest's retentions     from which raw counts can be read back
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from fine_data import Array, Case, Operator
from fine_runs import estimated

import privsql
from privsql.release import open as open_release


@dataclass(frozen=True)
class Asked:
    """What one release answers."""

    counts: Array  # of each value, iterative
    kernel: Array  # the same from the published counts, without SQL
    condition: float  # the rows of the asked values, by inversion
    covered: bool  # whether the 95% interval holds the truth
    shortcut: float  # the same by two states and the mean retention
    retentions: Array  # as the manifest tells them


def spec(case: Case, at: Operator) -> str:
    """A spec with the paper's rule, from raw frequencies and without a floor."""
    lines = ["[release]", 'table = "reports"', "[columns.value]", 'role = "sensitive"']
    lines += [f"domain = {json.dumps(case.values)}", "accept_epsilon = true"]
    if at.way == "uniform":
        lines += ['mechanism = "uniform"', f"retention = {float(at.retentions[0])!r}"]
    else:
        lines += ['mechanism = "finegrain"', f"theta = {at.theta}", 'prior = "raw"']
        lines += [f'sides = "{at.way}"', "floor = 0.0"]
    return "\n".join(lines) + "\n"


def published(case: Case, at: Operator, seed: int, folder: Path) -> Path:
    """Make a release of the column."""
    name = f"{at.way}-{at.theta:g}"
    source, wanted = folder / "reports.parquet", folder / f"{name}.toml"
    if not source.exists():
        names = np.array(case.values, dtype=object)[case.codes]
        pq.write_table(pa.table({"value": names.tolist()}), source)
    wanted.write_text(spec(case, at))
    out = folder / f"{name}-{seed}.duckdb"
    privsql.publish(str(source), out, spec=wanted, seed=seed)
    return out


def shortcut(seen: float, rows: int, retention: float, mass: float) -> float:
    """OLAP's estimate of one condition, ``(y - n (1-p) b) / p``: right if p is everybody's."""
    return (seen - rows * (1 - retention) * mass) / retention


def ask(release: Path, case: Case, at: Operator) -> Asked:
    """Ask one release everything."""
    column = open_release(release).manifest.sensitive[0]
    told = getattr(column.channel, "retentions", at.retentions)
    with privsql.connect(release) as con:
        listed = ", ".join(f"'{value}'" for value in case.asked)
        one = con.sql(
            f"SELECT COUNT(*) AS n FROM reports WHERE value IN ({listed})", error_bars=True
        )
        answer = one.arrow().to_pylist()[0]
        text = "SELECT value, COUNT(*) AS n, privsql_observed(n) AS seen FROM reports"
        options = "WITH RECONSTRUCTION OPTIONS (estimator = 'iterative')"
        rows = con.sql(f"{text.replace('SELECT', f'SELECT {options}', 1)} GROUP BY value").arrow()
    places = {value: i for i, value in enumerate(case.values)}
    counts, seen = np.zeros(case.size), np.zeros(case.size)
    for row in rows.to_pylist():
        counts[places[row["value"]]] = row["n"]
        seen[places[row["value"]]] = row["seen"]
    inside = np.isin(case.values, case.asked)
    truth = float(case.counts[inside].sum())
    return Asked(
        counts,
        estimated(seen, at.channel),
        float(answer["n"]),
        bool(answer["n_low"] <= truth <= answer["n_high"]),
        shortcut(float(seen[inside].sum()), case.rows, float(told.mean()), inside.mean()),
        np.asarray(told),
    )


def read_back(retentions: Array, theta: float, rows: int, sides: str) -> Array:
    """Raw counts from published retentions of the theta rule; NaN where they are not told.

    With t the largest retention, every other value lies on one of its own lines:

        upward    (m-1) p_i + gamma_i t = gamma_i - 1
        downward  (m-1) t + gamma_i p_i = gamma_i - 1     the stricter one if gamma_i < m-1

    which gives gamma_i, and ``f_i = (gamma_i - theta) / (theta (gamma_i - 1))``.  Values at t
    only share what is left; one alone is told by it.
    """
    m, top = len(retentions), float(retentions.max())
    gamma = (1 + (m - 1) * retentions) / (1 - top)
    if sides == "both":
        gamma = np.where(gamma < m - 1, (1 + (m - 1) * top) / (1 - retentions), gamma)
    counts = np.rint(rows * (gamma - theta) / (theta * (gamma - 1)))
    highest = retentions > top * (1 - 1e-9)
    left = rows - counts[~highest].sum()
    counts[highest] = left if highest.sum() == 1 else np.nan
    return counts
