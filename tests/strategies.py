"""Random channels and tables that several tests draw from."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from privsql.channels import Channel, FineGrain, Matrix, Replace, Uniform
from tests.channels.decoys import proportional

seeds = st.integers(min_value=0, max_value=2**32 - 1)


def random_channel(rng: np.random.Generator, kind: str, size: int) -> Channel:
    """A channel that is far enough from singular to compare floats."""
    if kind == "uniform":
        return Uniform(rng.uniform(0.1, 1), size)
    if kind == "replace":
        return Replace(rng.uniform(0.1, 1), rng.dirichlet(np.ones(size)))
    if kind == "finegrain":
        retentions = rng.uniform(0.1, 1, size)
        if rng.random() < 0.3:
            retentions[rng.integers(size)] = 0
        return FineGrain(retentions)
    if kind == "matrix":
        mixed = rng.dirichlet(np.ones(size), size) + 0.7 * np.eye(size)
        return Matrix(mixed / mixed.sum(axis=1, keepdims=True))
    size = max(size, 6)
    return proportional(rng.integers(80, 120, size).astype(float), 3)


kinds = st.sampled_from(["uniform", "replace", "finegrain", "matrix", "decoy"])


@st.composite
def channels(draw: st.DrawFn, max_size: int = 7) -> Channel:
    rng = np.random.default_rng(draw(seeds))
    return random_channel(rng, draw(kinds), draw(st.integers(2, max_size)))


def publish_states(
    rng: np.random.Generator, counts: np.ndarray, matrix: np.ndarray, releases: int
) -> np.ndarray:
    """State counts of many releases of one table: ``(releases, S)``.

    Rows of original state i are spread over published states by a multinomial: the same
    law as perturbing row by row, without the rows.
    """
    published = np.zeros((releases, matrix.shape[1]))
    for count, row in zip(counts, matrix, strict=True):
        if count:
            published += rng.multinomial(int(count), row, size=releases)
    return published
