"""Constrained maximum likelihood: non-negative original counts, with a certificate.

``maximum_likelihood`` answers the problem of ``udfs.iterate`` (OLAP 4.2.2 asks it, and
approaches it by EM) and picks, group by group, the cheapest exact way:

1. **inversion** ``y A^-1``, where it is nowhere negative: it fits y perfectly, and nothing
   fits better;
2. a **formula**, where one column was perturbed by retention replacement
   (``fill_retention``);
3. a second-order iteration otherwise (``udfs.newton``), many groups at a time;
4. accelerated EM (``udfs.iterate``) for whatever that did not certify.

Whichever it was, the certificate is computed on what is returned, and ``converged`` is
that certificate against the tolerance, not a belief of the method about itself.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from udfs.errors import KernelError
from udfs.iterate import (
    MOST_STATES,
    TINY,
    Likelihood,
    System,
    accelerated,
    certificate,
    checked_channel,
    checked_counts,
    system_of,
)
from udfs.kron import ROW_SUM_TOLERANCE, Array, Kron
from udfs.newton import QUICK, TOGETHER, quick_together, solve_one, solve_together

# A share this far below zero may be rounding of the inversion; the certificate decides.
ROUNDING = 1e-9

# Entries of a channel that differ by less are the same number, computed differently.
SAME = 1e-13

# Numbers in a block of groups, so that memory stays bounded whatever their count: SMALL of
# all groups, whose inversion then stays in the cache, and BLOCK of those that are hard.
SMALL, BLOCK = 1 << 16, 1 << 19


def fill_retention(counts: ArrayLike, retention: float, replacing: ArrayLike) -> Array:
    """Constrained likelihood of one retention-replacement column, without iterating.

        x_j = max(0, y_j / nu - (1 - p) n q_j) / p,     nu such that sum_j x_j = n

    ``counts`` y (..., m), ``retention`` p in (0, 1], ``replacing`` q (m,).  Where it comes
    from: ``mu_j = p x_j + (1-p) n q_j``, so a positive x_j wants ``p y_j / mu_j`` equal to
    the multiplier of the total.  Positive are the values with the largest ``y_j / q_j``:
    with the first k of them, of mass Y and Q, ``nu = Y / (n (p + (1-p) Q))``, and k is the
    last one for which the k-th value is still positive.  O(m log m).  (reconstruction 4)

    >>> fill_retention([10.0, 30.0, 60.0], 0.5, [0.5, 0.25, 0.25])
    array([ 0., 25., 75.])
    >>> fill_retention([40.0, 30.0, 30.0], 0.5, [0.5, 0.25, 0.25])  # inversion, (y - 50 q)/.5
    array([30., 35., 35.])
    """
    weights = np.asarray(replacing, dtype=np.float64)
    if weights.ndim != 1 or not weights.size:
        raise KernelError("a replacement distribution is a vector of probabilities")
    if not (weights.min() >= 0 and abs(weights.sum() - 1) <= ROW_SUM_TOLERANCE):
        raise KernelError("a replacement distribution must be non-negative and sum to one")
    if not 0 < retention <= 1:
        raise KernelError(f"retention must lie in (0, 1]; it is {retention:g}")
    observed = checked_counts(counts, Kron([np.eye(len(weights))]))
    total = observed.sum(axis=-1, keepdims=True)
    shares = observed / np.where(total > 0, total, 1.0)
    redrawn = (1 - retention) * weights
    with np.errstate(divide="ignore", invalid="ignore"):
        # 0/0 is a value that nobody holds and nobody is given: last in line.
        density = np.where(shares > 0, shares / redrawn, 0.0)
    order = np.argsort(-density, axis=-1, kind="stable")
    ranked, mass = np.take_along_axis(shares, order, axis=-1), redrawn[order]
    seen, given = ranked.cumsum(axis=-1), retention + mass.cumsum(axis=-1)
    last = (ranked * given > mass * seen).sum(axis=-1, keepdims=True) - 1
    last = np.maximum(last, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        level = np.take_along_axis(given, last, axis=-1) / np.take_along_axis(seen, last, axis=-1)
        kept = np.where(shares > 0, np.maximum(shares * level - redrawn, 0), 0.0)
        filled = kept * (total / kept.sum(axis=-1, keepdims=True))
    return np.where(total > 0, filled, 0.0)


def maximum_likelihood(
    counts: ArrayLike, kron: Kron, *, tolerance: float = 1e-10, limit: int = 100
) -> Likelihood:
    """Most likely original counts that are not negative, each group for itself.

        maximise sum_q y_q log (x A)_q   over   x >= 0,  sum x = sum y      (OLAP 4.2.2)

    ``counts`` (..., S) published state counts; ``kron`` the transition matrix between
    states (row-stochastic, invertible).  A group is ``converged`` when its certificate is
    at most ``tolerance`` nats a row; ``limit`` bounds the rounds of the second-order
    method before accelerated EM takes over.  A group without rows gives zeros.

    >>> a = Kron([[[0.75, 0.25], [0.25, 0.75]]] * 2)
    >>> answer = maximum_likelihood([[90, 10, 20, 0], [45, 25, 30, 20]], a)
    >>> answer.estimate.round(6)
    array([[120.,   0.,   0.,   0.],
           [ 65.,  15.,  25.,  15.]])
    >>> answer.converged, answer.inverted
    (array([ True,  True]), array([False,  True]))
    """
    observed = checked_counts(counts, kron)
    shape = observed.shape[:-1]
    flat = observed.reshape(-1, kron.size)
    groups = len(flat)
    form = retention_form(kron)
    if groups == 1 and form is None and kron.size <= MOST_STATES:
        quickly = _alone(flat[0], shape, kron, tolerance, limit)
        if quickly.converged:
            return quickly
    result = Likelihood(
        np.zeros(flat.shape),
        np.zeros(groups),
        np.zeros(groups, dtype=np.int64),
        np.ones(groups, dtype=np.bool_),
        np.zeros(groups, dtype=np.bool_),
    )
    with np.errstate(all="ignore"):
        if form is not None:
            checked_channel(kron)
            _by_formula(flat, form, kron, tolerance, result)
        elif kron.size > MOST_STATES:
            _by_em(flat, np.arange(groups), kron, tolerance, result)
        elif groups:
            _many(flat, kron, tolerance, limit, result)
    return Likelihood(
        result.estimate.reshape(observed.shape),
        result.gap.reshape(shape),
        result.rounds.reshape(shape),
        result.converged.reshape(shape),
        result.inverted.reshape(shape),
    )


def retention_form(kron: Kron) -> tuple[float, Array] | None:
    """``(retention, replacing)`` if A is one column of retention replacement, else None.

    That is: every column of the matrix is constant off the diagonal.  Then the constants
    are ``(1-p) q_j`` and ``p = 1 - sum_j (1-p) q_j``.  A 2 x 2 matrix always is, as long as
    p comes out positive.

    >>> retention_form(Kron([[[0.75, 0.25], [0.25, 0.75]]]))
    (0.5, array([0.5, 0.5]))
    >>> retention_form(Kron([[[0.25, 0.75], [0.75, 0.25]]])) is None
    True
    """
    if len(kron.factors) != 1:
        return None
    (matrix,) = kron.factors
    m = len(matrix)
    if m == 1:
        return 1.0, np.ones(1)
    # The diagonal replaced by another entry of its column, so that columns are constant.
    off, here = matrix.copy(), np.arange(m)
    off[here, here] = matrix[here - 1, here]
    redrawn = off[0].copy()
    if np.abs(off - redrawn).max() > SAME:
        return None
    replaced = float(redrawn.sum())
    if not replaced < 1:
        return None
    if replaced == 0:
        return 1.0, np.full(m, 1 / m)
    return 1 - replaced, redrawn / replaced


def _alone(
    observed: Array, shape: tuple[int, ...], kron: Kron, tolerance: float, limit: int
) -> Likelihood:
    """One group, with as few array operations as possible: at S = 8 they are the cost."""
    total = float(np.add.reduce(observed))
    system = system_of(kron)
    gap, rounds, inverted = 0.0, 0, False
    x = observed
    if total > 0:
        with np.errstate(all="ignore"):
            y = observed / total
            x, low = y.copy(), -1.0
            if system.inverse is not None:
                x = np.dot(y, system.inverse)
                low = float(np.minimum.reduce(x))
                np.maximum(x, 0, out=x)
            spill = float(np.add.reduce(x))
            x /= spill
            gap = np.inf
            if low >= -ROUNDING:
                ratio = y / (np.dot(system.transposed, x) + TINY)
                gap = float(np.maximum.reduce(np.dot(system.matrix, ratio))) - 1
                inverted = gap <= tolerance
            if not inverted:
                x, gap, rounds = solve_one(y, x, spill - 1, system, tolerance, limit)
    return Likelihood(
        (x * (total / (float(np.add.reduce(x)) + TINY))).reshape((*shape, -1)),
        np.full(shape, max(gap, 0.0)),
        np.full(shape, rounds),
        np.full(shape, gap <= tolerance),
        np.full(shape, inverted),
    )


def _many(flat: Array, kron: Kron, tolerance: float, limit: int, result: Likelihood) -> None:
    """Many groups: inversion and quick steps in small blocks, the hard ones pooled."""
    system = system_of(kron)
    size = max(1, SMALL // kron.size)
    left = [
        _easy(flat, slice(begin, begin + size), system, tolerance, result)
        for begin in range(0, len(flat), size)
    ]
    hard = np.concatenate(left)
    size = max(1, BLOCK // kron.size)
    for begin in range(0, len(hard), size):
        _hard(flat, hard[begin : begin + size], system, tolerance, limit, result)
    _by_em(flat, hard[~(result.gap[hard] <= tolerance)], kron, tolerance, result)


def _easy(
    flat: Array, at: slice, system: System, tolerance: float, result: Likelihood
) -> NDArray[np.intp]:
    """Settle the groups of ``at`` that are easy and return the others.

    Arrays have the states first, so that vectors are long and sums over states cheap.
    """
    y = np.array(flat[at].T, order="C")  # a copy even where the layout would do
    totals = y.sum(axis=0)
    y /= totals + TINY
    x, gap, _ = _inverted(y, system, tolerance)
    inverted = gap <= tolerance
    rest = np.flatnonzero(~inverted & (totals > 0))
    if system.size <= TOGETHER and system.inverse is not None:
        tried = x.take(rest, axis=1)
        gap[rest], result.rounds[at.start + rest] = quick_together(
            y.take(rest, axis=1), tried, system, tolerance, steps=QUICK
        )
        x[:, rest] = tried
    gap[totals == 0] = 0
    x *= totals / (x.sum(axis=0) + TINY)
    result.estimate[at] = x.T
    result.gap[at] = np.maximum(gap, 0)
    result.inverted[at] = inverted & (totals > 0)
    left: NDArray[np.intp] = at.start + rest[~(gap[rest] <= tolerance)]
    return left


def _hard(
    flat: Array,
    groups: NDArray[np.intp],
    system: System,
    tolerance: float,
    limit: int,
    result: Likelihood,
) -> None:
    """The second-order method for ``groups``, together or one by one."""
    y = np.array(flat[groups].T, order="C")
    totals = y.sum(axis=0)
    y /= totals
    x, gap, spill = _inverted(y, system, tolerance)
    rounds = np.zeros(len(groups), dtype=np.int64)
    if system.size <= TOGETHER:
        x, gap, rounds = solve_together(y, x, spill, system, tolerance, limit)
    else:
        for column in range(len(groups)):
            x[:, column], gap[column], rounds[column] = solve_one(
                y[:, column].copy(), x[:, column], float(spill[column]), system, tolerance, limit
            )
    x *= totals / x.sum(axis=0)
    result.estimate[groups] = x.T
    result.gap[groups] = np.maximum(gap, 0)
    result.rounds[groups] += rounds


def _inverted(y: Array, system: System, tolerance: float) -> tuple[Array, Array, Array]:
    """Inversion of shares, cut at zero and scaled: ``(x, gap, what was cut off)``.

    The gap is infinite where more than rounding was cut off.
    """
    gap = np.full(y.shape[1], np.inf)
    if system.inverse is None:
        return y.copy(), gap, np.ones(y.shape[1])
    x = system.inverse.T @ y
    feasible = np.flatnonzero(x.min(axis=0) >= -ROUNDING)
    np.maximum(x, 0, out=x)
    spill = x.sum(axis=0)
    x /= spill + TINY
    expected = system.transposed @ x.take(feasible, axis=1)
    expected += TINY
    ratio = np.divide(y.take(feasible, axis=1), expected, out=expected)
    gap[feasible] = (system.matrix @ ratio).max(axis=0) - 1
    return x, gap, spill - 1


def _by_formula(
    flat: Array,
    form: tuple[float, Array],
    kron: Kron,
    tolerance: float,
    result: Likelihood,
) -> None:
    """All groups of one retention-replacement column at once."""
    retention, replacing = form
    totals = flat.sum(axis=1)
    result.estimate[:] = fill_retention(flat, retention, replacing)
    result.gap[:] = certificate(flat, result.estimate, kron)
    redrawn = totals[:, None] * ((1 - retention) * replacing)
    result.inverted[:] = (flat >= redrawn).all(axis=1) & (totals > 0)
    _by_em(flat, np.flatnonzero(~(result.gap <= tolerance)), kron, tolerance, result)


def _by_em(
    flat: Array, groups: NDArray[np.intp], kron: Kron, tolerance: float, result: Likelihood
) -> None:
    """Accelerated EM from what there is; ``converged`` says how far it came."""
    if not len(groups):
        return
    y = flat[groups]
    start = result.estimate[groups]
    blend = 1e-6 * y.sum(axis=1, keepdims=True) / kron.size
    start = np.where(np.isfinite(start).all(axis=1, keepdims=True), start, 0) + blend
    answer = accelerated(y, kron, tolerance=tolerance, start=start)
    result.estimate[groups] = answer.estimate
    result.gap[groups] = answer.gap
    result.rounds[groups] += answer.rounds
    result.converged[groups] = answer.gap <= tolerance
