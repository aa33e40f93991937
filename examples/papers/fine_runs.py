"""Publishing a column many times, and how much of it survives.

A sweep is some 600 publications, too many to make files of: ``perturb`` is what ``publish``
calls, and ``fine_release`` makes releases at one point and holds them against this.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from fine_data import WAYS, Array, Case, Operator, operator
from fine_utility import aggregate_utility, record_utility
from study import spread

from privsql.audit.criteria.amplification import value_gammas
from privsql.channels import Channel
from privsql.publish.groups.units import row_units
from privsql.publish.keys.randomness import Seeded
from privsql.publish.perturb.retention import Sampler
from udfs.invert import invert
from udfs.iterate import expectation_maximisation
from udfs.kron import Kron
from udfs.mle import maximum_likelihood


@dataclass(frozen=True)
class Point:
    """One operator on one column: what was expected and what was measured, run by run."""

    operator: Operator
    record: float  # sum f_i T[i,i]
    kept: Array  # measured: share of rows that kept their value
    converged: Array  # aggregate utility at the likelihood's maximum
    stopped: Array  # ... of EM from a uniform start, until a round moves 0.1% of the rows
    inverted: Array  # ... of the inversion
    exposed: int  # values whose posterior can fall below rho1 from a prior of rho2


def publications(case: Case, channel: Channel, runs: int, seed: int) -> tuple[Array, Array]:
    """Published counts, shape (runs, m), and the share of rows left as they were."""
    units = row_units(0, case.rows)
    seen, kept = np.zeros((runs, case.size)), np.zeros(runs)
    for run in range(runs):
        drawn = Sampler(channel).perturb(case.codes, Seeded(seed + run), units, "value")
        seen[run] = np.bincount(drawn, minlength=case.size)
        kept[run] = (drawn == case.codes).mean()
    return seen, kept


def estimated(seen: Array, channel: Channel) -> Array:
    """The likelihood's maximum, which privsql calls ``iterative``."""
    return maximum_likelihood(seen, Kron([channel.matrix])).estimate


def posteriors(case: Case, channel: Channel, runs: int, seed: int) -> Array:
    """Share of the first value among the rows published as the second, run by run."""
    units = row_units(0, case.rows)
    drawn = (
        Sampler(channel).perturb(case.codes, Seeded(seed + run), units, "value")
        for run in range(runs)
    )
    return np.array([(case.codes[seen == 1] == 0).mean() for seen in drawn])


def utilities(case: Case, counts: Array) -> Array:
    """Aggregate utility of estimated counts, one a run."""
    return np.array([aggregate_utility(case.shares, found / case.rows) for found in counts])


def point(case: Case, theta: float, way: str, runs: int, seed: int) -> Point:
    """Publish ``runs`` times and reconstruct."""
    at = operator(case, theta, way)
    seen, kept = publications(case, at.channel, runs, seed)
    kron = Kron([at.channel.matrix])
    early = expectation_maximisation(seen, kron, tolerance=1e-3).estimate
    _, down = value_gammas(at.channel)
    return Point(
        at,
        record_utility(case.shares, at.retentions),
        kept,
        utilities(case, estimated(seen, at.channel)),
        utilities(case, early),
        utilities(case, invert(seen, kron)),
        int((down > at.gamma * (1 + 1e-9)).sum()),
    )


@dataclass(frozen=True)
class Sweep:
    """All points of one column."""

    case: Case
    thetas: tuple[float, ...]
    points: dict[str, list[Point]]  # by way, in the order of thetas

    def record(self, way: str) -> Array:
        """Record utility by theta."""
        return np.array([each.record for each in self.points[way]])

    def aggregate(self, way: str) -> Array:
        """Mean aggregate utility by theta."""
        return np.array([each.converged.mean() for each in self.points[way]])

    def gain(self, way: str) -> Array:
        """Record utility over that of the uniform operator, less one."""
        return self.record(way) / self.record("uniform") - 1

    @property
    def blind(self) -> float:
        """Aggregate utility of a guess of 1/m for every value, without any data."""
        return aggregate_utility(self.case.shares, np.full(self.case.size, 1 / self.case.size))

    @property
    def surprise(self) -> float:
        """Largest distance of a measured record utility from its formula, in standard errors."""
        each = [p for points in self.points.values() for p in points]
        error = [np.sqrt(p.record * (1 - p.record) / (self.case.rows * len(p.kept))) for p in each]
        return max(abs(p.kept.mean() - p.record) / e for p, e in zip(each, error, strict=True))

    def dips(self, way: str) -> str:
        """Thetas at which aggregate utility falls, by more than three standard errors."""
        pairs = zip(self.points[way], self.points[way][1:], strict=False)
        found = []
        for before, after in pairs:
            variances = before.converged.var(ddof=1) + after.converged.var(ddof=1)
            error = np.sqrt(variances / len(before.kept))
            if before.converged.mean() - after.converged.mean() > 3 * error:
                found.append(f"{after.operator.theta:g}")
        return ", ".join(found)

    def at(self, way: str, theta: float) -> Point:
        """The point of one theta."""
        return self.points[way][self.thetas.index(theta)]

    def told(self, way: str, theta: float) -> str:
        """Aggregate utility at one theta, with its spread."""
        return spread(self.at(way, theta).converged, 4)


def sweep(case: Case, thetas: tuple[float, ...], runs: int, seed: int) -> Sweep:
    """Every way at every theta."""
    points = {
        way: [
            point(case, theta, way, runs, seed + 1000 * (10 * i + j))
            for j, theta in enumerate(thetas)
        ]
        for i, way in enumerate(WAYS)
    }
    return Sweep(case, thetas, points)
