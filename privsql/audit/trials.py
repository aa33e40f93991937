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
    frequency: ArrayLike,
    retention: float,
    size: int,
    relative_error: float,
    probability: float,
) -> Array:
    """Largest group that is (lambda, delta)-reconstruction-private, s_g  (RECON eq. 10).

        s_g = -2 (f p + (1-p)/m) ln(delta) / (lambda p f)^2,   for lambda < 1 + (1-p)/(m p f)

    f is the largest frequency of a value in the group.  Outside the range of lambda an
    estimate cannot be that much too small, and the answer is infinite.

    >>> group_cap([0.5, 1.0], 0.5, 2, 0.3, 0.3).round(2)
    array([214.04,  80.26])
    """
    return cap_of(frequency, retention, (1 - retention) / size, relative_error, probability)


def cap_of(
    frequency: ArrayLike,
    kept: ArrayLike,
    false: ArrayLike,
    relative_error: float,
    probability: float,
) -> Array:
    """Eq. 10 for a value that is published from itself by ``kept + false``; all broadcast.

    ``s = -2 (f kept + false) ln(delta) / (lambda kept f)^2``.
    """
    if not 0 < probability < 1 or not relative_error > 0:
        raise ChannelError("lambda must be above 0, delta between 0 and 1, both excluded")
    signal = np.asarray(kept, float) * np.asarray(frequency, float)
    mean = signal + np.asarray(false, float)
    with np.errstate(divide="ignore", invalid="ignore"):
        largest = -2 * mean * math.log(probability) / (relative_error * signal) ** 2
    # From 1 + false/signal on, an estimate cannot be that much too small.
    capped: Array = np.where((signal > 0) & (relative_error * signal < mean), largest, np.inf)
    return capped


def chances(channel: Channel) -> tuple[Array, Array]:
    """``(kept, false)`` of each value, shape (m,) each.

        false_i = min over k != i of T[k,y],    kept_i = T[i,y] - false_i

    y is what i is told by: i itself, p and (1-p) q_i for retention channels.  In a matrix it is
    the y with the largest kept_i (one that turns values round would else seem to tell nothing).
    Where other values differ in their chance to be published as y (fine-grain, matrices), the
    smallest chance gives the smallest cap.
    """
    m = channel.size
    if m == 1:
        return np.zeros(1), np.ones(1)
    if isinstance(channel, Uniform):
        # Views of one number: a grid may have more points than memory has room for.
        kept, false = np.float64(channel.retention), np.float64((1 - channel.retention) / m)
        return np.broadcast_to(kept, (m,)), np.broadcast_to(false, (m,))
    if isinstance(channel, Replace):
        return np.full(m, channel.retention), (1 - channel.retention) * channel.replacing
    if isinstance(channel, FineGrain):
        p = channel.retentions
        second, first = np.sort(p)[-2:]
        diagonal = p + (1 - p) / m
        false = (1 - np.where(np.arange(m) == p.argmax(), second, first)) / m
        return diagonal - false, false
    matrix = channel.matrix
    first, second = np.sort(matrix, axis=0)[:2]
    least = np.where(np.arange(m)[:, None] == matrix.argmin(axis=0), second, first)
    excess = matrix - least
    # The diagonal where it is as good as any: it is what the papers look at.
    told = np.where(excess.diagonal() >= excess.max(axis=1) - EDGE, np.arange(m), excess.argmax(1))
    at = np.arange(m), told
    return excess[at], least[at]


def two_binomials(channel: Channel) -> bool:
    """Whether a published count is a sum of two binomials: all others have one chance."""
    if isinstance(channel, FineGrain) and np.ptp(channel.retentions) == 0:
        return True
    return isinstance(channel, (Uniform, Replace)) or channel.size == 2


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


def chernoff_of(
    rows: float, frequency: float, kept: float, false: float, relative_error: float
) -> Tails:
    """:func:`chernoff_tails` of a value with these chances."""
    mean = rows * (frequency * kept + false)
    if not mean > 0:
        return Tails(0.0, 0.0)
    w = relative_error * rows * kept * frequency / mean
    lower = math.exp(-(w**2) * mean / 2) if w <= 1 else 0.0
    return Tails(lower, math.exp(-(w**2) * mean / (2 + w)))


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


def exact_of(rows: int, count: int, kept: float, false: float, relative_error: float) -> Tails:
    """:func:`exact_tail` of a value with these chances that ``count`` of the rows hold.

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
