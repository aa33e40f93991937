"""Perturbation of one column at once, as publishing does it batch by batch."""

from __future__ import annotations

from privsql.channels import Channel, Domain
from privsql.publish.keys.randomness import Codes, Randomness, Words
from privsql.publish.perturb.retention import Sampler


def perturb(
    codes: Codes,
    channel: Channel,
    randomness: Randomness,
    units: Words,
    column: str,
    *,
    domain: Domain | None = None,
) -> Codes:
    """Published codes of a column under a channel."""
    return Sampler(channel, domain).perturb(codes, randomness, units, column)
