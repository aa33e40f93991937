"""Data and operators of the fine-grain study: 40 frequencies, a tolerance, three operators.

uniform   one retention for all values, that of the strictest (eq. 2)
upward    the paper's program (fig. 3): no posterior rises too far
both      ours: none falls too far either (reconstruction, 9.5)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from study import Study, stored

from privsql.channels import Channel, FineGrain, Uniform
from privsql.publish.perturb.finegrain import gammas, optimal_retentions, theta_rhos

Array = NDArray[np.float64]
Codes = NDArray[np.intp]

WAYS = ("uniform", "upward", "both")
LABELS = {
    "uniform": "uniform",
    "upward": "fine-grain, the paper's (upward)",
    "both": "fine-grain, both sides",
}
COLOURS = {"uniform": "tab:gray", "upward": "tab:red", "both": "tab:blue"}

# Rows and values of the paper's two data sets.
ROWS, VALUES = 95_946, 40

# Example 1 of the paper: (rho1, rho2) of four diseases, all of frequency 1/4.
DISEASES = ("SARS", "HIV", "H1N1", "cancer")
RHOS = ((1 / 10, 1 / 7), (1 / 10, 1 / 4), (1 / 9, 19 / 35), (1 / 8, 18 / 25))


@dataclass(frozen=True)
class Case:
    """A column: its values, how many rows have each, and values that one question asks for."""

    label: str
    values: tuple[str, ...]
    counts: Codes
    asked: tuple[str, ...]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.counts.sum())

    @property
    def size(self) -> int:
        """Number m of values."""
        return len(self.counts)

    @property
    def shares(self) -> Array:
        """Frequencies f_i."""
        return self.counts / self.counts.sum()

    @cached_property
    def codes(self) -> Codes:
        """The column itself, as positions in the domain."""
        return np.repeat(np.arange(self.size), self.counts)


@dataclass(frozen=True)
class Operator:
    """What one tolerance allows, in one of the three ways."""

    way: str
    theta: float
    gamma: Array  # allowed to each value
    retentions: Array

    @property
    def channel(self) -> Channel:
        """The perturbation itself."""
        if self.way == "uniform":
            return Uniform(float(self.retentions[0]), len(self.retentions))
        return FineGrain(self.retentions)


def operator(case: Case, theta: float, way: str) -> Operator:
    """The operator of the tolerance rule: rho1_i = f_i, rho2_i = theta f_i (paper, V)."""
    gamma = gammas(theta_rhos(case.shares, theta))
    if way == "uniform":
        p = np.full(case.size, Uniform.from_gamma(float(gamma.min()), case.size).retention)
    else:
        p = optimal_retentions(gamma, case.shares, sides=way)
    return Operator(way, theta, gamma, p)


def zipf(delta: float, rows: int = ROWS, size: int = VALUES) -> Case:
    """Counts in proportion to 1/i^delta, rounded so that they add up to ``rows``."""
    wanted = np.arange(1, size + 1) ** -delta
    wanted *= rows / wanted.sum()
    counts = np.floor(wanted).astype(np.intp)
    counts[np.argsort(counts - wanted, kind="stable")[: rows - counts.sum()]] += 1
    values = tuple(f"value {i + 1}" for i in range(size))
    return Case(f"generated, Zipf delta = {delta:g}", values, counts, values[::4])


def reactions(study: Study) -> Case:
    """The 40 most frequent reactions of VAERS 2014, or a generated column of their shape."""
    found = None if study.quick else stored("vaers2014_top40_counts.parquet")
    if found is None:
        case = zipf(1.2, 6_000 if study.quick else 28_550)
        return Case("generated, as skewed as VAERS", case.values, case.counts, case.asked)
    values = tuple(found["reaction"].to_pylist())
    counts = found["count"].to_numpy().astype(np.intp)
    asked = tuple(value for value in values if value.startswith("Injection site"))
    return Case("VAERS 2014, top 40", values, counts, asked)
