"""Publishing a case by plain perturbation (UP) and by sampling (SPS), kernel by kernel.

    UP      every row is perturbed
    SPS     the paper's letter: s_g from raw f, value by value a sample, perturbed, duplicated
    grid    ours: all rows perturbed, f reconstructed and rounded up to a public grid, weights
    one     ours with f = 1 for every group

A sweep needs some 500 publications, too many to make files of.  ``Published`` in
``recon_release`` makes releases at the default setting and holds them against this.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from recon_data import Array, Case, Codes, Pool

from privsql.audit.criteria.trials import group_cap
from privsql.channels import Uniform
from privsql.publish.groups.group_caps import caps, sample, sample_duplicate
from privsql.publish.groups.units import row_units
from privsql.publish.keys.randomness import Seeded
from privsql.publish.perturb.retention import Sampler

Way = Literal["UP", "SPS", "grid", "one"]


@dataclass(frozen=True)
class Setting:
    """Parameters of table 6 of the paper, with its defaults."""

    retention: float = 0.5
    relative_error: float = 0.3  # lambda
    probability: float = 0.3  # delta

    @property
    def wanted(self) -> tuple[float, float]:
        """(lambda, delta)."""
        return self.relative_error, self.probability


DEFAULT = Setting()
SWEEPS: dict[str, tuple[str, list[Setting]]] = {
    "p": ("retention p", [replace(DEFAULT, retention=p) for p in (0.1, 0.3, 0.5, 0.7, 0.9)]),
    "lambda": (
        "lambda",
        [replace(DEFAULT, relative_error=e) for e in (0.1, 0.2, 0.3, 0.4, 0.5)],
    ),
    "delta": ("delta", [replace(DEFAULT, probability=d) for d in (0.1, 0.2, 0.3, 0.4, 0.5)]),
}


@dataclass(frozen=True)
class Drawn:
    """One publication: estimates of all groups, and what an attacker can count."""

    estimates: Array  # reconstructed rows, shape (groups, m)
    trials: Codes  # independent draws of each group
    rows: Codes  # published rows, with repetition: positions in the table
    weights: Array  # of the rows
    published: Codes  # published value of each position


def violations(case: Case, setting: Setting) -> tuple[float, float]:
    """Shares of non-empty groups and of records above s_g: v_g, v_r (RECON 6.2)."""
    rows = case.counts.sum(axis=1)
    limit = group_cap(case.frequencies, setting.retention, case.size, *setting.wanted)
    over = rows > limit
    return float(over.mean()), float(rows[over].sum() / rows.sum())


def draw(case: Case, setting: Setting, way: Way, seed: int) -> Drawn:
    """Publish once and reconstruct every group, ``F' = (O/n - (1-p)/m) / p`` (RECON lemma 2)."""
    channel = Uniform(setting.retention, case.size)
    rng = np.random.default_rng(seed)
    units = row_units(0, case.rows)
    published = Sampler(channel).perturb(case.sensitive, Seeded(seed), units, case.target)
    rows, weights = np.arange(case.rows), np.ones(case.rows)
    asked: dict[str, Any] = {
        "relative_error": setting.relative_error,
        "probability": setting.probability,
    }
    if way == "SPS":
        limits = caps(case.groups, [case.sensitive], [channel], cap="exact", source="raw", **asked)
        # Copies of a row carry one draw: perturbing first and copying then is the same.
        rows = sample_duplicate(case.groups, case.sensitive, limits, rng)
        weights = np.ones(len(rows))
    elif way != "UP":
        limits = caps(case.groups, [published], [channel], cap=way, **asked)
        keep, scaled = sample(case.groups, limits, rng.random(len(case.groups)))
        rows, weights = np.flatnonzero(keep), scaled[keep]
    shape = case.counts.shape
    flat = case.groups[rows] * case.size + published[rows]
    seen = np.bincount(flat, weights, minlength=shape[0] * shape[1]).reshape(shape)
    trials = np.bincount(case.groups[np.unique(rows)], minlength=shape[0])
    # T is symmetric, so applying its inverse to counts is the same as y T^-1.
    return Drawn(channel.inverse(seen), trials, rows, weights, published)


def pool_errors(case: Case, pool: Pool, setting: Setting, way: Way, seeds: range) -> Array:
    """Mean relative error over the pool, of each publication."""
    return np.array(
        [pool.errors(draw(case, setting, way, seed).estimates).mean() for seed in seeds]
    )
