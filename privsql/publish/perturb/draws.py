"""The source of a job's draws: a key with its ledger, the system, or a seed for tests."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from randomgen import ChaCha

from privsql.channels import Channel, Domain
from privsql.publish.formats import STDIN
from privsql.publish.keys.fingerprint import Witness
from privsql.publish.keys.key import read_key
from privsql.publish.keys.ledger import ROW, Ledger, Loss
from privsql.publish.keys.randomness import Keyed, Randomness, Seeded, SystemSource, subkey
from privsql.publish.perturb.retention import digest
from privsql.publish.report import Notes
from privsql.release.spec import Spec, read_spec


@dataclass(frozen=True)
class Draws:
    """Where the draws of a job come from, and the ledger that remembers them."""

    randomness: Randomness
    ledger: Ledger | None
    secret: bytes = field(repr=False)
    state: str = ""  # of the source's files: changed data must not meet the same stream

    def generator(self, purpose: str) -> np.random.Generator:
        """A cryptographic stream of its own for a purpose that needs whole columns."""
        key = int.from_bytes(subkey(self.secret, "generator", purpose, self.state), "little")
        return np.random.Generator(ChaCha(key=key, rounds=20))

    def loss(
        self, name: str, mechanism: str, domain: Domain, channel: Channel, epsilon: float
    ) -> Loss:
        """What the ledger enters of a column; its state is that of the rows drawn for so far."""
        rules, drawn = digest(channel, domain), self.randomness
        state = drawn.state(name, rules) if isinstance(drawn, Witness) else ""
        return Loss(mechanism, rules, epsilon, state)


def spec_beside(path: Path) -> Spec:
    """Read a spec; the files that it names are beside it unless their paths are absolute."""
    spec = read_spec(path)
    return replace(
        spec,
        source=tuple(s if s == STDIN else str(path.parent / s) for s in spec.source),
        sources_joined=tuple(
            tuple(str(path.parent / source) for source in part) for part in spec.sources_joined
        ),
        tables=tuple(replace(t, source=str(path.parent / t.source)) for t in spec.tables),
        key=None if spec.key is None else str(path.parent / spec.key),
    )


def open_draws(spec: Spec, seed: int | None, notes: Notes) -> Draws:
    """Open the draws that a spec names, or those of a seed."""
    if seed is not None:
        notes.warn("UNSAFE: drawn from a seed, for tests only; do not distribute this release")
        seeded = Seeded(seed)
        return Draws(seeded, None, seeded.unit_key + seed.to_bytes(16, "little", signed=True))
    if spec.key is None:
        notes.warn(
            "no key: a one-off. Publishing the same people again would use fresh draws, and"
            " averaging several releases reveals values; make a key with `privsql key new`"
        )
        return Draws(SystemSource(), None, os.urandom(32))
    key = read_key(spec.key)
    if key.warning is not None:
        notes.warn(key.warning)
    # Where a row is a person, another state of the source means other draws anyway.
    draws = Keyed if spec.unit == ROW else Witness
    return Draws(draws(key.key), key.ledger(), key.key)
