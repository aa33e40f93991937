"""What one published row reveals about its person.

Somebody who knows the release knows the channel of each sensitive column and, reconstructed, how
common each combination of original values is.  Bayes' rule makes of that what a row is worth:

    P(x | y)  is proportional to  prior(x) T_1[x_1, y_1] ... T_k[x_k, y_k]

with x the original values of the row and y the published ones.  Whatever the prior is, odds
between two values change by a factor of at most exp(epsilon).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Worth:
    """The probability of a value before and after seeing it in the published row."""

    prior: float
    posterior: float


def posterior(prior: Floats, matrices: Sequence[Floats], published: Sequence[int]) -> Floats:
    """Chance of each combination of original values, given the published ones.

    ``prior`` has one axis for each column, ``matrices`` hold T[original, published].  At
    retention 1/2 two values are kept with 3/4; a value that one in ten has is then held by one
    in four of those whose row says so:

    >>> posterior(np.array([0.9, 0.1]), [np.array([[0.75, 0.25], [0.25, 0.75]])], [1])
    array([0.75, 0.25])
    """
    joint = np.asarray(prior, dtype=np.float64)
    for axis, (matrix, value) in enumerate(zip(matrices, published, strict=True)):
        shape = [1] * joint.ndim
        shape[axis] = -1
        joint = joint * matrix[:, value].reshape(shape)
    return np.asarray(joint / joint.sum())


def worth(prior: Floats, matrices: Sequence[Floats], published: Sequence[int]) -> Worth:
    """What a row reveals about its last column: whether the published value is the original one."""
    shares = prior / prior.sum()
    after = posterior(shares, matrices, published)
    value = published[-1]
    return Worth(float(shares[..., value].sum()), float(after[..., value].sum()))
