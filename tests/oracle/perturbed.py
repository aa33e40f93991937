"""The generator's table published with noise: every mechanism, weights and multiplicities.

At retention 1 covariances vanish and the SQL for them is never written.  Here every column is
perturbed, so that each generated query brings its whole reconstruction along.  Nothing tells
the right answer of one release, but much can be said of any: see :mod:`tests.oracle.sound`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow.parquet as pq

import privsql
from privsql.publish.perturb import decoy
from tests.oracle.tables import COLUMNS, DOMAINS, TABLE, World, dimensions, raw_connection, raw_rows

RETENTION = 0.5
ROWS = 400


def _uniform(retention: float) -> str:
    return f'mechanism = "uniform"\nretention = {retention}'


def _replace(size: int) -> str:
    shares = np.arange(1, size + 1) / (size * (size + 1) / 2)
    return f'mechanism = "replace"\nretention = {RETENTION}\nreplacing = {shares.tolist()}'


def _matrix(size: int) -> str:
    """Neighbours are likelier than others: no retention describes it."""
    apart = np.abs(np.subtract.outer(np.arange(size), np.arange(size)))
    weights = np.exp2(-apart.astype(np.float64)) * (1 + 0.1 * np.arange(size))
    noise = weights / weights.sum(axis=1, keepdims=True)
    matrix = RETENTION * np.eye(size) + (1 - RETENTION) * noise
    return f'mechanism = "matrix"\nmatrix = {matrix.tolist()}'


def _finegrain(size: int) -> str:
    rho = [[0.05 + 0.02 * i, 0.5 + 0.05 * i] for i in range(size)]
    return f'mechanism = "finegrain"\nfloor = 0.1\nrho = {rho}'


@dataclass(frozen=True)
class Noise:
    """How a variant perturbs: a mechanism for some columns, uniform for the others."""

    mechanisms: dict[str, str]
    retention: float = RETENTION
    weighted: bool = False
    multiplicity: bool = False


VARIANTS = {
    "uniform": Noise({}),
    "mixed": Noise({"seen": _replace(8), "smoker": _matrix(2), "home": _finegrain(5)}),
    "matrices": Noise({"disease": _matrix(5), "seen": _matrix(8), "work": _finegrain(4)}),
    "whole": Noise(
        {
            "disease": 'mechanism = "decoy"\ngroup_size = 3',
            "home": f'mechanism = "swap"\nretention = {RETENTION}',
            "work": f'mechanism = "identity"\nretention = {RETENTION}',
        }
    ),
    "sampled": Noise({"home": _replace(5)}, weighted=True),
    # Rows of six columns are equal, and stored once, only where few of them are replaced.
    "compacted": Noise({}, retention=0.97, multiplicity=True),
}

# Public columns that make personal groups of the sampled release: few, so that groups are large
# enough to be cut.
GROUPING = ("sex", "member")


def spec(noise: Noise) -> str:
    policy = "flag" if noise.weighted else "allow"
    lines = [
        f'[release]\ntable = "{TABLE}"\n[groups]\nmerge = "none"\n'
        f'[policy]\npersonal_groups = "{policy}"\nmin_rows = 0'
    ]
    if noise.weighted:
        lines.append("[protect.reconstruction]\nlambda = 0.6\ndelta = 0.3")
    for column in COLUMNS:
        lines.append(f"[columns.{column.name}]")
        if column.sensitive:
            domain, _ = DOMAINS[column.name]
            lines.append(f'role = "sensitive"\naccept_epsilon = true\ndomain = {domain}')
            lines.append(noise.mechanisms.get(column.name, _uniform(noise.retention)))
        else:
            grouping = column.name in GROUPING if noise.weighted else column.key
            lines.append('role = "public"' + "\ngrouping = false" * (not grouping))
    return "\n".join(lines) + "\n"


def perturbed_world(
    folder: Path, variant: str, seed: int, rows: int = ROWS, noise: Noise | None = None
) -> World:
    """Publish one random table with noise; the same seed makes the same release."""
    noise = noise or VARIANTS[variant]
    table = raw_rows(rows, seed, variant)
    source, out = folder / f"noisy-{variant}.parquet", folder / f"noisy-{variant}.duckdb"
    pq.write_table(table, source)
    (folder / f"noisy-{variant}.toml").write_text(spec(noise))
    # The channel of decoys is simulated, for seconds; a hundredth of that is within 1.3% here.
    with patch.object(decoy, "SIMULATED_ROWS", decoy.SIMULATED_ROWS // 100):
        made = privsql.publish(str(source), out, spec=folder / f"noisy-{variant}.toml", seed=seed)
    found = (made.manifest.weighted, made.manifest.multiplicity)
    if found != (noise.weighted, noise.multiplicity):
        raise AssertionError(f"{variant}: weights and multiplicities are {found}")
    return World(variant, out, raw_connection(table), dimensions())
