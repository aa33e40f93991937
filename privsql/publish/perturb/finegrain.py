"""The largest retention of each value that its own privacy allows (FINE IV, V).

    maximise    sum_i f_i (p_i + (1-p_i)/m)
    subject to  T[i,i] <= gamma_i T[j,i]   upward:    (m-1) p_i + gamma_i p_j <= gamma_i - 1
                T[j,j] <= gamma_i T[i,j]   downward:  (m-1) p_j + gamma_i p_i <= gamma_i - 1
                floor <= p_i <= 1          for all i and all j != i

FINE fig. 3 has the upward part only and hands its m(m-1) rows to a solver.  The program is
in fact a weighted quantile, so it is solved here exactly by sorting, O(m log m).

**Why.**  Let t = p_a be a largest retention, s the largest of the others, and let

    u_i = (gamma_i - 1) / (m - 1 + gamma_i)                  the uniform operator at gamma_i.

For i != a the binding j is a; for a itself it is whoever has s.  All constraints become

    p_i <= u_i - sigma_i (t - u_i)   (i != a)        s <= u_a - kappa_a (t - u_a)

with ``sigma_i = gamma_i/(m-1)``, ``kappa_a = (m-1)/gamma_a = 1/sigma_a`` upward.  Downward
adds the same lines with the two slopes exchanged; all pass through (u_i, u_i), so beyond
u_i the steeper one binds, ``sigma_i = kappa_i = max(gamma_i/(m-1), (m-1)/gamma_i)``, and
before u_i none binds more than p_i <= t does.  (p_i <= 1 never binds: any other value j
asks ``gamma_j p_i <= gamma_j - 1``.)  Given a and t, the best p_i is the largest allowed:

    F_a(t) = f_a t + sum_{i != a} f_i min(t, s_a(t), u_i - sigma_i (t - u_i))

concave and piecewise linear in t.  Two cases are left.

A.  t <= u_a: s_a(t) >= t, and F_a(t) = S(t) = sum_i f_i min(t, u_i - sigma_i (t - u_i)) is
    the same for every such a.  S rises by f_i before u_i and falls by sigma_i f_i after it:
    its maximum is a weighted quantile of the u_i.
B.  t > u_a, one value above its own uniform retention.  As F_a is concave this helps only
    if F_a rises to the right of u_a:

        f_a > kappa_a sum_{u_i > u_a} f_i + sum_{u_i < u_a} sigma_i f_i  (ties: the larger slope)

    For two such values with u_a < u_b, ``f_a > kappa_a f_b`` and ``f_b > sigma_a f_a``
    contradict ``kappa_a sigma_a >= 1``: **at most one value** can be there.  Its breakpoints,
    where the lines of a and i cross, are sorted in turn.

A floor only shortens the range of t; some t remains if and only if floor <= min u_i.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from privsql.channels.channel import Array, as_floats, checked_number, gamma_of_rho
from privsql.errors import ChannelError

# The "large value" of gamma_i that FINE V gives a value without a privacy concern.
NO_CONCERN = 1e9

# The prior of a value that does not occur: gamma_i is then theta to nine digits.
ABSENT = 1e-12

# Slopes and retentions closer than this, relatively, differ by rounding alone.
ROUNDING = 1e-12

SIDES = ("both", "upward")


def gammas(rhos: Sequence[tuple[float, float] | None]) -> Array:
    """Amplification allowed to each value (FINE eq. 5); None is a value without a concern.

        gamma_i = rho2_i (1-rho1_i) / (rho1_i (1-rho2_i))

    >>> gammas([(1 / 10, 1 / 7), (1 / 10, 1 / 4), (1 / 9, 19 / 35), (1 / 8, 18 / 25)]).round(9)
    array([ 1.5,  3. ,  9.5, 18. ])
    """
    if not len(rhos):
        raise ChannelError("a fine-grain channel needs (rho1, rho2) for each value")
    return np.array([NO_CONCERN if rho is None else gamma_of_rho(*rho) for rho in rhos])


def theta_rhos(frequencies: ArrayLike, theta: float) -> list[tuple[float, float] | None]:
    """Tolerance rule of FINE V: a posterior of at most theta times the frequency.

        rho1_i = f_i
        rho2_i = theta rho1_i                       if rho1_i <  1/theta
        gamma_i "a large value", no concern         if rho1_i >= 1/theta  (None here)

    The paper knows only values that occur; one that does not gets the limit, gamma = theta.
    Beware: the frequencies can be read back from retentions made this way (section 7), so
    a release that takes them from raw data has no epsilon.

    >>> theta_rhos([0.6, 0.3, 0.1], 2)
    [None, (0.3, 0.6), (0.1, 0.2)]
    """
    shares = _shares(frequencies)
    factor = checked_number(theta, "theta")
    if not factor > 1:
        raise ChannelError("theta must be above 1: at 1 published values carry no information")
    if factor * ABSENT >= 1:
        raise ChannelError("theta is so large that it protects no value")
    priors = np.maximum(shares, ABSENT).tolist()
    # Rounding may leave theta * f at 1 for f just below 1/theta: no concern either.
    return [(f, factor * f) if f < 1 / factor and factor * f < 1 else None for f in priors]


def optimal_retentions(
    gamma: ArrayLike, frequencies: ArrayLike, *, sides: str = "both", floor: float = 0.0
) -> Array:
    """Retentions ``p`` of largest record utility that respect every ``gamma_i``.

    ``sides = "both"`` keeps posteriors from rising and from falling; ``"upward"`` is the
    paper's program, which lets them fall (section 9.5).  No retention is below ``floor``.
    Of several optima the one with the smallest largest retention is taken, and in it every
    value, also one of frequency 0, is kept as much as the constraints allow.

    >>> gamma = [1.5, 3, 9.5, 18]
    >>> optimal_retentions(gamma, [1, 1, 1, 1], sides="upward").round(4)
    array([0.    , 0.3333, 0.3333, 0.3333])
    >>> optimal_retentions(gamma, [1, 1, 1, 1]).round(4)
    array([0.    , 0.1667, 0.1667, 0.1667])
    """
    shares = _shares(frequencies)
    allowed = _numbers(gamma, "gamma")
    m = len(shares)
    if len(allowed) != m:
        raise ChannelError(f"{len(allowed)} gammas do not fit {m} frequencies")
    if not (allowed > 1).all():
        raise ChannelError(
            "every gamma must be above 1: at 1 published values carry no information"
        )
    if sides not in SIDES:
        raise ChannelError(f"sides must be one of {', '.join(SIDES)}")
    if m == 1:
        _check_floor(floor, 1.0)
        return np.ones(1)
    allowed = np.minimum(allowed, NO_CONCERN)
    own = (allowed - 1) / (m - 1 + allowed)
    bound = _check_floor(floor, float(own.min()))
    falls = allowed / (m - 1)  # sigma
    caps = 1 / falls  # kappa
    if sides == "both":
        falls = caps = np.maximum(falls, caps)
    reach = own + (own - bound) / falls  # the t at which p_i comes down to the floor
    top = _common_top(shares, own, falls, reach)
    best = np.minimum(top, own - falls * (top - own))
    one = _one_above(shares, own, falls, caps)
    if one is not None:
        other = _alone(one, shares, own, falls, caps, reach, bound)
        if other is not None and shares @ (other - best) > ROUNDING:
            best = other
    best[np.abs(best - bound) < ROUNDING] = bound
    return np.maximum(best, bound)


def _common_top(shares: Array, own: Array, falls: Array, reach: Array) -> float:
    """Case A: the smallest t at which S(t) stops rising, within the floor's reach."""
    order = np.argsort(own, kind="stable")
    f = shares[order]
    # Slope of S just after the k-th u: those beyond it still rise, the others fall.
    after = (f.sum() - np.cumsum(f)) - np.cumsum(f * falls[order])
    best = own[order[int(np.argmax(after <= ROUNDING))]]
    return float(min(best, reach.min()))


def _one_above(shares: Array, own: Array, falls: Array, caps: Array) -> int | None:
    """Case B: the only value that can gain from a retention above its own u, if there is one.

    Ties in u are left to the exact slope in ``_alone``; here they only may add candidates,
    of which the most frequent is the one.
    """
    order = np.argsort(own, kind="stable")
    u, f = own[order], shares[order]
    first, last = np.searchsorted(u, u, side="left"), np.searchsorted(u, u, side="right")
    mass = np.concatenate([[0.0], np.cumsum(f)])
    falling = np.concatenate([[0.0], np.cumsum(f * falls[order])])
    slope = f - caps[order] * (mass[-1] - mass[last]) - falling[first]
    candidates = order[slope > ROUNDING]
    if not len(candidates):
        return None
    return int(candidates[np.argmax(shares[candidates])])


def _alone(
    a: int, shares: Array, own: Array, falls: Array, caps: Array, reach: Array, floor: float
) -> Array | None:
    """Case B: the best retentions with t = p_a above u_a, or None if there are none.

    For i != a, p_i is the lower of the line of i and the cap that a sets.  F_a falls ever
    steeper; walk its breakpoints, the crossings of the two lines, while it still rises.
    """
    others = np.arange(len(own)) != a
    u, kappa = own[a], caps[a]
    f, own_i, sigma = shares[others], own[others], falls[others]
    end = min(float(reach[others].min()), float(u + (u - floor) / kappa))
    if end <= u:
        return None
    at_start = own_i - sigma * (u - own_i)
    capped = (at_start > u) | ((at_start == u) & (sigma <= kappa))
    slope = shares[a] - float(f @ np.where(capped, kappa, sigma))
    if slope <= ROUNDING:
        return None
    # The lines cross later only if the one that binds now is the flatter one.
    crosses = np.where(capped, sigma > kappa, sigma < kappa)
    steps = np.abs(sigma - kappa)[crosses]
    where = u + np.abs(at_start - u)[crosses] / steps
    order = np.argsort(where, kind="stable")
    after = slope - np.cumsum((f[crosses] * steps)[order])
    stops = np.flatnonzero(after <= ROUNDING)
    top = min(end, float(where[order[stops[0]]])) if len(stops) else end
    best: Array = np.minimum(u - kappa * (top - u), own - falls * (top - own))
    best[a] = top
    return best


def _check_floor(floor: float, largest: float) -> float:
    """Return the floor, or refuse one that no retentions can reach and say which they can."""
    bound = checked_number(floor, "floor")
    if bound < 0:
        raise ChannelError("floor must lie between 0 and 1")
    if bound > largest * (1 + ROUNDING):
        digits = 3 - math.ceil(math.log10(largest))
        works = math.floor(largest * 10**digits) / 10**digits
        raise ChannelError(
            "no retentions are private enough and all at least the floor",
            hint=f"the largest floor that works is {works:g}, the retention of a uniform"
            " channel for the strictest value",
        )
    return min(bound, largest)


def _shares(frequencies: ArrayLike) -> Array:
    """Frequencies as shares that sum to one; counts will do."""
    f = _numbers(frequencies, "frequencies")
    if (f < 0).any() or not 0 < f.sum() < np.inf:
        raise ChannelError("frequencies must not be negative and not all be zero")
    return f if abs(f.sum() - 1) < ROUNDING else f / f.sum()


def _numbers(values: ArrayLike, name: str) -> Array:
    """Return one finite number for each value, or refuse."""
    array = as_floats(values, f"{name} must be numbers")
    if array.ndim != 1 or not array.size:
        raise ChannelError(f"{name} must be one number for each value")
    if not np.isfinite(array).all():
        raise ChannelError(f"{name} must be finite numbers")
    return array
