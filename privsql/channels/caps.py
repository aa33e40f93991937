"""The largest private group, and what of a channel it depends on (RECON eq. 10).

    s = -2 (f kept + false) ln(delta) / (lambda kept f)^2

f is the frequency of a value in the group, lambda the relative error that an estimate of f must
be able to reach with a chance of at least delta.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from privsql.channels.channel import Array, Channel
from privsql.channels.mechanisms import FineGrain, Replace, Uniform
from privsql.errors import ChannelError

# Chances nearer than this are one.
EDGE = 1e-9


def cap_of(
    frequency: ArrayLike,
    kept: ArrayLike,
    false: ArrayLike,
    relative_error: float,
    probability: float,
) -> Array:
    """Eq. 10 for any channel: a value is published from itself with chance ``kept + false``.

    ``false`` is the chance to publish the value from another one; see :func:`chances`.
    Arrays broadcast.  The bound is Chernoff's for an estimate that is too *small*, and
    holds for ``lambda < 1 + false / (kept f)``; an estimate cannot be further below f than
    that, so beyond it the formula says nothing and the answer is infinite (so it is for
    f = 0 and for a value that leaves no trace, kept = 0).

    >>> cap_of([0.5, 1.0], 0.5, 0.25, 0.3, 0.3).round(2)
    array([214.04,  80.26])
    >>> cap_of(0.5, 0.5, 0.25, 2.5, 0.3)
    array(inf)
    """
    if not 0 < probability < 1 or not relative_error > 0:
        raise ChannelError("lambda must be above 0, delta between 0 and 1, both excluded")
    signal = np.asarray(kept, float) * np.asarray(frequency, float)
    mean = signal + np.asarray(false, float)
    with np.errstate(divide="ignore", invalid="ignore"):
        largest = -2 * mean * np.log(probability) / (relative_error * signal) ** 2
    return np.where((signal > 0) & (relative_error * signal < mean), largest, np.inf)


def chances(channel: Channel) -> tuple[Array, Array]:
    """``(kept, false)`` of every value for :func:`cap_of`, shape (m,) each.

        false_i = min over k != i of T[k, y],   kept_i = T[i, y] - false_i

    y is the published value that shows i: i itself, or in a matrix the y with the largest kept_i
    (one that turns values round would else seem to show nothing, and no group would be cut).
    uniform: p and (1-p)/m, eq. 10 itself; replace: p and (1-p) q_i.  Where the chance to
    publish i differs between the other values (fine-grain, matrices) the smallest one gives
    the smallest s, the safe side; fine-grain: ``false_i = (1 - max p_k)/m``, O(m).

    >>> chances(Uniform(0.5, 4))
    (array([0.5, 0.5, 0.5, 0.5]), array([0.125, 0.125, 0.125, 0.125]))
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
        most = np.where(np.arange(m) == p.argmax(), second, first)
        diagonal, least = p + (1 - p) / m, (1 - most) / m
        return np.abs(diagonal - least), least
    matrix = channel.matrix
    first, second = np.sort(matrix, axis=0)[:2]
    others = np.where(np.arange(m)[:, None] == matrix.argmin(axis=0), second, first)
    excess = matrix - others
    # The diagonal where it shows as much as any: it is what the paper looks at.
    own = excess.diagonal() >= excess.max(axis=1) - EDGE
    at = np.arange(m), np.where(own, np.arange(m), excess.argmax(axis=1))
    return excess[at], others[at]
