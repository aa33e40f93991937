"""Limits on what an attacker can infer through one channel: amplification and breaches.

    prior  --- one published value of a channel with amplification gamma --->  posterior

    odds(posterior) <= gamma odds(prior)        upward
    odds(posterior) >= odds(prior) / gamma      downward

Everything here follows from the channel (p, q, T) alone and holds for every prior, so that no
formula needs data.  Reconstruction privacy, which is about groups of rows, is in ``groups``;
decoy groups are in ``sums``.  (reconstruction, 6)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privsql.channels import Channel, FineGrain, Replace, Uniform, gamma_of_rho
from privsql.channels.channel import checked_number
from privsql.errors import ChannelError

Array = NDArray[np.float64]

# Ratios that differ by less than this, relatively, differ by rounding alone.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Posterior:
    """Bounds of a posterior, whatever is published."""

    low: float
    high: float


def gamma_for(rho1: float, rho2: float) -> float:
    """Largest gamma without a (rho1, rho2) breach, ``rho2 (1-rho1) / (rho1 (1-rho2))``.

    >>> rhos = [(1 / 10, 1 / 7), (1 / 10, 1 / 4), (1 / 9, 19 / 35), (1 / 8, 18 / 25)]
    >>> [round(gamma_for(*rho), 9) for rho in rhos]
    [1.5, 3.0, 9.5, 18.0]
    """
    return gamma_of_rho(rho1, rho2)


def breach(prior: float, gamma: float) -> Posterior:
    """Where a prior can go, upward and downward, under an amplification of gamma.

        high = gamma prior / (1 + (gamma-1) prior),   low = prior / (prior + gamma (1-prior))

    There is no (rho1, rho2) breach, upward or downward, if and only if ``breach(rho1).high <=
    rho2``, which is the same as ``breach(rho2).low >= rho1``.

    >>> found = breach(0.1, 3.0)
    >>> round(found.low, 4), round(found.high, 4)
    (0.0357, 0.25)
    """
    chance, factor = _probability(prior, "the prior"), float(gamma)
    if not factor >= 1:
        raise ChannelError("gamma must be at least 1")
    if chance in (0.0, 1.0):  # certainty cannot be moved
        return Posterior(chance, chance)
    if math.isinf(factor):
        return Posterior(0.0, 1.0)
    high = factor * chance / (1 + (factor - 1) * chance)
    return Posterior(chance / (chance + factor * (1 - chance)), high)


def value_gammas(channel: Channel) -> tuple[Array, Array]:
    """Amplification of each value on its own, upward and downward, shape (m,) each.

        up_i   = max over y and k != i of T[i,y] / T[k,y]
        down_i = max over y and k != i of T[k,y] / T[i,y]

    ``up_i`` bounds how far a belief in i can rise, ``down_i`` how far it can fall.  For
    retention channels the extremes are FINE's: ``T[i,i]/T[k,i]`` and ``T[k,k]/T[i,k]``, O(m).

    >>> up, down = value_gammas(FineGrain([0, 1 / 3, 1 / 3, 1 / 3]))
    >>> up.round(4), down.round(4)
    (array([1.5, 3. , 3. , 3. ]), array([2., 3., 3., 3.]))
    """
    m = channel.size
    if m == 1:
        return np.ones(1), np.ones(1)
    if isinstance(channel, Uniform):
        return np.full(m, channel.gamma), np.full(m, channel.gamma)
    if isinstance(channel, Replace):
        others = (1 - channel.retention) * channel.replacing
        ratio = _divided(channel.retention + others, others)
        return ratio, _most_of_others(ratio)
    if isinstance(channel, FineGrain):
        p = channel.retentions
        others, diagonal = (1 - p) / m, p + (1 - p) / m
        least = -_most_of_others(-others)
        return _divided(diagonal, least), _divided(_most_of_others(diagonal), others)
    if np.isinf(channel.gamma) and not getattr(channel, "independent", True):
        return np.full(m, np.inf), np.full(m, np.inf)
    matrix = channel.matrix
    low = np.stack([-_most_of_others(-column) for column in matrix.T], axis=1)
    high = np.stack([_most_of_others(column) for column in matrix.T], axis=1)
    return _divided(matrix, low).max(axis=1), _divided(high, matrix).max(axis=1)


def s_limit(retention: float, rho1: float, rho2: float) -> float:
    """No (s, rho1, rho2) breach of one column below this s  (OLAP thm 4).

        s < (rho2 - rho1) (1-p) / ((1-rho2) p)

    s is a set's share of the original rows over its share of the replacements.  Infinite
    chances have no place here: at p = 1 the limit is 0.

    >>> round(s_limit(0.2, 0.1, 0.95), 9)
    68.0
    """
    p = _retention(retention)
    gamma_for(rho1, rho2)  # refuses what is no pair
    return (rho2 - rho1) * (1 - p) / ((1 - rho2) * p)


def s_limit_many(
    retentions: Sequence[float], rho1: float, rho2: float, masses: Sequence[float] | None = None
) -> float:
    """No (rho1, rho2) breach of a set S = S_1 x ... x S_k with p_S/m_S below this  (OLAP thm 5).

        p_S/m_S < rho2 (1-rho1) / (1-rho2) * prod (1-p_i) / ((1-p_i) m_i + p_i)

    ``masses`` are the m_i, the chances of the S_i under the replacements; without them they
    tend to 0, where the limit is largest.

    >>> round(s_limit_many([0.2, 0.2], 0.1, 0.95), 9)
    273.6
    """
    kept = np.array([_retention(p) for p in retentions])
    given = np.zeros(len(kept)) if masses is None else np.asarray(masses, float)
    if not len(kept) or given.shape != kept.shape or ((given < 0) | (given > 1)).any():
        raise ChannelError("give one retention, and one mass between 0 and 1, for each column")
    gamma_for(rho1, rho2)
    shares = (1 - kept) / ((1 - kept) * given + kept)
    return float(rho2 * (1 - rho1) / (1 - rho2) * shares.prod())


def s_limit_sets(retentions: Sequence[float], rho1: float, rho2: float) -> float:
    """No (rho1, rho2) breach of *any* S = S_1 x ... x S_k if every combination's p/m is below this.

        s p + (1-p) min(s, rho1) < C prod (1-p_i),    C = rho2 (1-rho1)/(1-rho2),  p = max p_i

    OLAP theorem 5 at the sets where it asks most, as in ``advise.retention_for_s``: p_S/m_S is a
    mean of the ratios in S, so at most s, while a set's limit falls as its masses grow.  Single
    combinations may all keep to theirs (``s_limit_many``) where a block of them does not.

    >>> round(s_limit_sets([0.2, 0.2], 0.1, 0.95), 2), round(s_limit_many([0.2, 0.2], 0.1, 0.95), 2)
    (54.32, 273.6)
    """
    p = max(_retention(each) for each in retentions)
    gamma_for(rho1, rho2)
    most = rho2 * (1 - rho1) / (1 - rho2) * math.prod(1 - each for each in retentions)
    return most if most <= rho1 else (most - (1 - p) * rho1) / p


def identity_limit(retention: float, rho2: float) -> float:
    """``identity`` and ``swap`` are safe for every rho1 below this  (OLAP lemma 1).

        rho1 < (rho2 - p) / (1 - p)

    It is also the rho1 at which ``s_limit`` is 1: rare sets (s < 1) of a uniform column keep
    to it too.  Zero or less means that no rho1 is safe.

    >>> round(identity_limit(0.2, 0.95), 9)
    0.9375
    """
    p = _retention(retention)
    return -math.inf if p == 1 else (_probability(rho2, "rho2") - p) / (1 - p)


def reconstructible_rows(error: float, delta: float, retention: float) -> float:
    """Rows from which a share is within ``error``, with a chance above 1 - delta (OLAP thm 1).

        n >= 4 ln(2/delta) / (p error)^2

    The proof (Chernoff) needs ``p error <= t``, t the published share; by Hoeffding, ``2 exp(-2 n
    (p error)^2) <= delta``, an eighth of these rows is enough for every t.  Where groups were cut
    down n is ``N^2 / sum(|g|^2 / trials_g)``, for which Hoeffding's bound holds as well.

    >>> round(reconstructible_rows(0.05, 0.05, 0.2))
    147555
    """
    p = _retention(retention)
    if not 0 < error < 1 or not 0 < delta < 1:
        raise ChannelError("the error and delta must lie strictly between 0 and 1")
    return 4 * math.log(2 / delta) / (p * error) ** 2


def rounded_down(number: float, digits: int = 4) -> float:
    """So many significant digits, never above the number.

    >>> rounded_down(0.36425), rounded_down(0.3), rounded_down(0.0123456)
    (0.3642, 0.3, 0.01234)
    """
    if number <= 0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(number)) - digits + 1)
    return float(f"{math.floor(number / unit + 1e-9) * unit:.{digits}g}")


def _divided(top: Array, bottom: Array) -> Array:
    """Ratios of chances: infinite above 0, and 1 where neither ever happens."""
    ratio = np.where(top > 0, np.inf, 1.0)
    np.divide(top, bottom, out=ratio, where=bottom > 0)
    return ratio


def _most_of_others(values: ArrayLike) -> Array:
    """For each place the largest entry of all other places."""
    array = np.asarray(values, float)
    order = np.argsort(array)
    largest = np.full(len(array), array[order[-1]])
    largest[order[-1]] = array[order[-2]]
    return largest


def _probability(value: float, name: str) -> float:
    number = checked_number(value, name)
    if not 0 <= number <= 1:
        raise ChannelError(f"{name} must lie between 0 and 1")
    return number


def _retention(value: float) -> float:
    number = checked_number(value, "retention")
    if not 0 < number <= 1:
        raise ChannelError("retention must be above 0 and at most 1")
    return number
