"""From a column of the spec to its domain and channel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np

from privsql.channels import Channel, Domain, FineGrain
from privsql.errors import DataError, InternalError
from privsql.publish.perturb.draws import Draws
from privsql.publish.perturb.finegrain import gammas, optimal_retentions, theta_rhos
from privsql.publish.report import Notes
from privsql.publish.rounded import codes_of
from privsql.publish.source import Source
from privsql.release.columns import EPSILON_LIMIT, FineGrainSpec
from privsql.release.spec import ColumnSpec, Spec

# Mechanisms that look at the whole column at once.
WHOLE = ("identity", "swap", "decoy")


@dataclass(frozen=True)
class Column:
    """A sensitive column as it will be perturbed.

    ``channel`` is None for mechanisms that need the whole column: theirs follows from
    what was published.
    """

    spec: ColumnSpec
    type: str
    domain: Domain
    channel: Channel | None

    @property
    def name(self) -> str:
        """Name of the column."""
        return self.spec.name


@dataclass(frozen=True)
class Job:
    """A publication: what it is made from, and the database that it is made in."""

    spec: Spec
    raw: Source
    columns: Sequence[Column]
    draws: Draws
    notes: Notes
    con: duckdb.DuckDBPyConnection


def resolve(spec: ColumnSpec, kind: str, source: Source, notes: Notes) -> Column:
    """Settle domain and channel of a sensitive column."""
    if spec.domain is None:
        raise InternalError(f"column {spec.name} has no domain")
    if spec.observed:
        notes.depends_on_raw(f"the domain of {spec.name} was observed")
    if spec.conversion:
        notes.say(f"{spec.name}: {spec.conversion}")
    if spec.notice:
        notes.say(f"{spec.name}: {spec.notice}")
    channel = spec.channel()
    if spec.finegrain is not None:
        channel = _fine(spec.name, spec.finegrain, spec.domain, source, notes)
    if spec.mechanism in WHOLE:
        notes.depends_on_raw(f"{spec.mechanism} on {spec.name} draws from the data itself")
    elif channel is not None and channel.epsilon > EPSILON_LIMIT + 1e-9 and not spec.accept_epsilon:
        raise DataError(
            f"column {spec.name}: one published value has an epsilon of"
            f" {channel.epsilon:.2f}, above {EPSILON_LIMIT:g}",
            hint="lower the retention, coarsen the step, or write accept_epsilon = true",
        )
    return Column(spec, kind, spec.domain, channel)


def _fine(
    name: str, wanted: FineGrainSpec, domain: Domain, source: Source, notes: Notes
) -> FineGrain:
    if wanted.prior_from == "raw":
        prior = frequencies(source, name, domain)
        notes.warn(f"the retentions of {name} were derived from raw frequencies")
        notes.depends_on_raw(f"the retentions of {name} follow from raw frequencies")
    elif wanted.prior is not None:
        prior = np.asarray(wanted.prior)
    else:
        prior = np.full(domain.size, 1 / domain.size)
    rhos = wanted.rho if wanted.theta is None else theta_rhos(prior, wanted.theta)
    gamma = gammas(rhos or ())
    # With many values no retention can reach the usual floor: then half of what can.
    own = (gamma - 1) / (domain.size - 1 + gamma)
    floor = min(wanted.floor, 0.5 * float(own.min())) if wanted.floor == 0.01 else wanted.floor
    retentions = optimal_retentions(gamma, prior, sides=wanted.sides, floor=floor)
    notes.say(f"{name}: retentions from {retentions.min():.4g} to {retentions.max():.4g}")
    return FineGrain(retentions)


def frequencies(source: Source, name: str, domain: Domain) -> np.ndarray[Any, Any]:
    """Raw frequencies of a column: only for what the spec asks from raw data."""
    counts = np.zeros(domain.size)
    for batch in source.batches([name]):
        counts += np.bincount(codes_of(name, domain, batch.column(0)), minlength=len(counts))
    if not counts.any():
        raise DataError("the source has no rows", hint="publish a source with at least one row")
    total: np.ndarray[Any, Any] = counts / counts.sum()
    return total
