"""Reconstruction errors of many publications at once, by the kernels that SQL answers use.

Rows are perturbed independently, and a query sees a row only through its state, so the published
state counts of one publication are a sum over original states i of Multinomial(x_i, A[i, :]).
Drawing that is publishing the rows and counting, only faster.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from olap_data import Array, Counts

from udfs.invert import invert
from udfs.iterate import expectation_maximisation
from udfs.kron import Kron, retention_factor, transition
from udfs.mle import maximum_likelihood

# "until two consecutive x iterates do not differ much": the paper does not say how much.
STOP = 1e-3
WAYS = {
    "randomized": "published, not reconstructed",
    "inversion": "inversion",
    "converged": "iterative, converged",
    "stopped": f"iterative from y, stopped at {STOP:g}",
}


def channel(retention: float, masses: Sequence[float]) -> Kron:
    """The transition matrix between the states of one predicate a column."""
    return transition([retention_factor(retention, [1 - b, b]) for b in masses])


def draw(rng: np.random.Generator, original: Counts, kron: Kron, runs: int) -> Array:
    """Published state counts of so many publications, shape (runs, S)."""
    chances = kron.dense / kron.dense.sum(axis=1, keepdims=True)
    return np.array(
        [rng.multinomial(original, chances).sum(axis=0) for _ in range(runs)], dtype=np.float64
    )


def distance(estimate: Array, original: Counts) -> Array:
    """The paper's error: l1 distance of the shares, between 0 and 2 for possible ones."""
    found: Array = np.abs(estimate - original).sum(axis=-1) / original.sum()
    return found


def estimates(published: Array, kron: Kron) -> dict[str, Array]:
    """Original state counts by each way."""
    exact = maximum_likelihood(published, kron)
    if not exact.converged.all():
        raise RuntimeError("a likelihood was not certified")
    early = expectation_maximisation(published, kron, tolerance=STOP, start="observed")
    return {
        "randomized": published,
        "inversion": invert(published, kron),
        "converged": exact.estimate,
        "stopped": early.estimate,
    }


def errors(published: Array, original: Counts, kron: Kron) -> dict[str, Array]:
    """The error of each run by each way."""
    found = estimates(published, kron)
    return {way: distance(estimate, original) for way, estimate in found.items()}


def independent(
    rng: np.random.Generator,
    rows: int,
    share: float,
    masses: Sequence[float],
    retention: float,
    runs: int,
) -> dict[str, Array]:
    """Errors on columns that know nothing of each other: a new table for each run."""
    k, kron = len(masses), channel(retention, masses)
    shares = np.array([1.0])
    for _ in range(k):
        shares = np.outer(shares, [1 - share, share]).ravel()
    found: list[dict[str, Array]] = []
    for _ in range(runs):
        original = rng.multinomial(rows, shares)
        found.append(errors(draw(rng, original, kron, 1), original, kron))
    return {way: np.concatenate([one[way] for one in found]) for way in WAYS}
