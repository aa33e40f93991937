"""Formulas of the papers that the product needs in a more general form, or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privsql.audit.criteria.amplification import ROUNDING, gamma_for, value_gammas
from privsql.audit.criteria.trials import Tails, chernoff_of, exact_of
from privsql.channels import Channel
from privsql.errors import ChannelError


def finegrain_check(
    channel: Channel, rhos: Sequence[tuple[float, float]], *, sides: str = "both"
) -> NDArray[np.bool_]:
    """Which values keep to their own (rho1_i, rho2_i), shape (m,)  (FINE eq. 3-5).

        up_i <= gamma_i (upward)    and, with sides = "both",    down_i <= gamma_i (downward)

    FINE asks for the upward half alone and claims both; in its own example a prior of 1/7
    falls to 1/13 < rho1 (reconstruction, 9.5).

    >>> rhos = [(1 / 10, 1 / 7), (1 / 10, 1 / 4), (1 / 9, 19 / 35), (1 / 8, 18 / 25)]
    >>> from privsql.channels import FineGrain
    >>> paper = FineGrain([0, 1 / 3, 1 / 3, 1 / 3])
    >>> finegrain_check(paper, rhos, sides="upward"), finegrain_check(paper, rhos)
    (array([ True,  True,  True,  True]), array([False,  True,  True,  True]))
    """
    if len(rhos) != channel.size:
        raise ChannelError(f"{len(rhos)} pairs of rho do not fit {channel.size} values")
    if sides not in ("both", "upward"):
        raise ChannelError("sides is both or upward")
    allowed = np.array([gamma_for(*rho) for rho in rhos]) * (1 + ROUNDING)
    up, down = value_gammas(channel)
    kept: NDArray[np.bool_] = (up <= allowed) & ((down <= allowed) | (sides == "upward"))
    return kept


def chernoff_tails(
    rows: float, frequency: float, retention: float, size: int, relative_error: float
) -> Tails:
    """The paper's bounds of both tails  (RECON cor. 3).

        upper < U = exp(-w^2 mu / (2 + w)),    lower < L = exp(-w^2 mu / 2)  for w <= 1
        mu = n (f p + (1-p)/m),    w = lambda n p f / mu

    For w > 1 a count would have to be below zero: the lower tail is 0.

    >>> tails = chernoff_tails(214.04, 0.5, 0.5, 2, 0.3)
    >>> round(tails.lower, 3), round(tails.upper, 3)
    (0.3, 0.326)
    """
    return chernoff_of(rows, frequency, retention, (1 - retention) / size, relative_error)


def exact_tail(
    rows: int, frequency: float, retention: float, size: int, relative_error: float
) -> Tails:
    """Both tails exactly, for a group of n rows with round(n f) of the value.

        P(O < mu - lambda p x),   P(O > mu + lambda p x),   mu = p x + n (1-p)/m
        O = Binomial(x, p + (1-p)/m) + Binomial(n-x, (1-p)/m)

    >>> tails = exact_tail(214, 0.5, 0.5, 2, 0.3)
    >>> round(tails.lower, 4), round(tails.upper, 4), round(tails.within, 3)
    (0.0045, 0.0045, 0.991)
    """
    count = round(rows * frequency)
    return exact_of(rows, count, retention, (1 - retention) / size, relative_error)


@dataclass(frozen=True)
class Disclosure:
    """What two Laplace answers tell of a ratio: bounds of bias and variance (RECON cor. 2)."""

    bias: float
    variance: float
    scale_to_count: float

    @property
    def meaningful(self) -> bool:
        """Whether a Taylor expansion in b/x says anything (reconstruction, 9.12)."""
        return self.scale_to_count <= 1 / 4


def laplace_ratio(scale: float, count: float) -> Disclosure:
    """How well two noisy answers give a ratio away  (RECON cor. 2, table 2).

        |E[Y/X] - y/x| <= 2 (b/x)^2,    Var[Y/X] <= 4 (b/x)^2

    b is the scale of Laplace noise, x the true count of the group.  It is a Taylor
    approximation: slightly exceeded already at b/x = 1/20, meaningless near 1.

    >>> laplace_ratio(20, 500)
    Disclosure(bias=0.0032, variance=0.0064, scale_to_count=0.04)
    """
    b, x = float(scale), float(count)
    if b < 0 or x <= 0:
        raise ChannelError("the scale must be at least 0 and the count above 0")
    return Disclosure(2 * (b / x) ** 2, 4 * (b / x) ** 2, b / x)
