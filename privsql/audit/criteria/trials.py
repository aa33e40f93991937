"""Reconstruction privacy of one group: its cap, Chernoff bounds and exact tails.

A personal group of n rows holds a value x = n f times.  Published, the value is seen

    O = Binomial(x, kept + false) + Binomial(n - x, false)   times,   F' = (O/n - false) / kept,

with ``kept = p`` and ``false = (1-p) q`` for retention channels (RECON lemma 2).  The paper
bounds the chance that F' is off by more than lambda f by Chernoff; the exact chance is the
tail of two binomials, and far smaller (reconstruction, 9.2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privsql.channels import Channel, FineGrain, Replace, Uniform
from privsql.channels.caps import cap_of, chances
from privsql.errors import ChannelError

Array = NDArray[np.float64]

# Standard deviations (and ten more) around a binomial's mean; less than 1e-19 of it lies beyond.
REACH = 10.0

# Counts closer to a tail's edge than this are on it: edges come from products of fractions.
EDGE = 1e-9


@dataclass(frozen=True)
class Tails:
    """Chances that an estimate of f is too small and too large by more than lambda f."""

    lower: float
    upper: float

    @property
    def within(self) -> float:
        """Chance to be within lambda f (a bound of it, if the tails are bounds)."""
        return max(0.0, 1 - self.lower - self.upper)


def group_cap(
    frequency: ArrayLike, retention: float, size: int, relative_error: float, probability: float
) -> Array:
    """Largest group that is (lambda, delta)-reconstruction-private, s_g  (RECON eq. 10).

        s_g = -2 (f p + (1-p)/m) ln(delta) / (lambda p f)^2,   for lambda < 1 + (1-p)/(m p f)

    f is the largest frequency of a value in the group.  Outside the range of lambda an
    estimate cannot be that much too small, and the answer is infinite.

    >>> group_cap([0.5, 1.0], 0.5, 2, 0.3, 0.3).round(2)
    array([214.04,  80.26])
    """
    return cap_of(frequency, retention, (1 - retention) / size, relative_error, probability)


def cap_bounds(channel: Channel, relative_error: float, probability: float) -> tuple[float, float]:
    """``s(1)`` and ``s(1/m)``: the smallest cap of any frequency, and the largest."""
    kept, false = chances(channel)
    if isinstance(channel, Uniform):  # all values alike
        kept, false = kept[:1], false[:1]
    least, most = (
        cap_of(frequency, kept, false, relative_error, probability)
        for frequency in (1.0, 1 / channel.size)
    )
    return float(least.min()), float(most.max())


def two_binomials(channel: Channel) -> bool:
    """Whether a published count is a sum of two binomials: all others have one chance."""
    if isinstance(channel, FineGrain) and np.ptp(channel.retentions) == 0:
        return True
    return isinstance(channel, (Uniform, Replace)) or channel.size == 2


def chernoff_of(
    rows: float, frequency: float, kept: float, false: float, relative_error: float
) -> Tails:
    """The paper's bounds of both tails  (RECON cor. 3).

        upper < U = exp(-w^2 mu / (2 + w)),    lower < L = exp(-w^2 mu / 2)  for w <= 1
        mu = n (f kept + false),    w = lambda n kept f / mu

    For w > 1 a count would have to be below zero: the lower tail is 0.

    >>> tails = chernoff_of(214.04, 0.5, 0.5, 0.25, 0.3)
    >>> round(tails.lower, 3), round(tails.upper, 3)
    (0.3, 0.326)
    """
    mean = rows * (frequency * kept + false)
    if not mean > 0:
        return Tails(0.0, 0.0)
    w = relative_error * rows * kept * frequency / mean
    lower = math.exp(-(w**2) * mean / 2) if w <= 1 else 0.0
    return Tails(lower, math.exp(-(w**2) * mean / (2 + w)))


def exact_of(rows: int, count: int, kept: float, false: float, relative_error: float) -> Tails:
    """Both tails exactly, for a value that x = ``count`` of the n rows hold.

        P(O < mu - lambda kept x),   P(O > mu + lambda kept x),   mu = kept x + n false
        O = Binomial(x, kept + false) + Binomial(n-x, false)

    ``P(A + B <= t) = sum_a P(A = a) P(B <= t - a)``, over the smaller of the two binomials and
    ten standard deviations around its mean.  What is left out is below 1e-19, so a tail far below
    that is only known to be so.
    """
    from scipy.special import bdtr, bdtrc
    from scipy.stats import binom

    if not 0 <= count <= rows:
        raise ChannelError("a value is held by at least 0 and at most all of the rows")
    mean = count * kept + rows * false
    spread = relative_error * kept * count
    below = math.ceil(mean - spread - EDGE) - 1  # the largest count that is too small
    above = math.floor(mean + spread + EDGE) + 1  # the smallest that is too large
    mine, theirs = (count, min(kept + false, 1.0)), (rows - count, false)
    if mine[0] > theirs[0]:
        mine, theirs = theirs, mine
    reach = REACH * math.sqrt(mine[0] * mine[1] * (1 - mine[1])) + REACH
    first = max(0, math.floor(mine[0] * mine[1] - reach))
    last = min(mine[0], math.ceil(mine[0] * mine[1] + reach))
    values = np.arange(first, last + 1)
    weights = np.asarray(binom.pmf(values, *mine))
    n, chance = theirs
    # bdtr is P(B <= k) and bdtrc P(B > k), both for 0 <= k <= n.
    k = below - values
    small = np.where(k < 0, 0.0, np.where(k >= n, 1.0, bdtr(np.clip(k, 0, n), n, chance)))
    k = above - 1 - values
    large = np.where(k < 0, 1.0, np.where(k >= n, 0.0, bdtrc(np.clip(k, 0, n), n, chance)))
    return Tails(float(weights @ small), float(weights @ large))
