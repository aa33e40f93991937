"""Expectation maximisation: the papers' iteration, and the same one accelerated.

One round of EM (OLAP 4.2.2, "iterative Bayes") re-assigns every published row to
original states by Bayes' rule under the current estimate, and counts again:

    x_i  <-  x_i * sum_q a_iq y_q / (sum_r x_r a_rq)  =  x_i g_i

It climbs the likelihood of ``udfs.simplex`` in every round and keeps the total, but near
the maximum it crawls: with three columns at retention 1/2 thousands of rounds are not
enough for eight digits (reconstruction 4).  ``udfs.mle`` does not need it.  It is kept to
reproduce the papers, whose early stopping is part of their answers (reconstruction 9.11),
and its accelerated form is the net under the second-order method.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from udfs.errors import KernelError
from udfs.kron import DENSE_STATES, Array, Kron
from udfs.simplex import (
    TINY,
    Likelihood,
    certificate,
    checked_channel,
    checked_counts,
    checked_stopping,
)

Start = Literal["uniform", "observed"] | ArrayLike

# Numbers in one block of groups: a round then stays in a cache.
BLOCK = 1 << 16


def expectation_maximisation(
    counts: ArrayLike,
    kron: Kron,
    *,
    tolerance: float = 1e-8,
    limit: int = 5000,
    start: Start = "uniform",
) -> Likelihood:
    """Plain EM until a round moves at most ``tolerance * n`` rows (l1), or ``limit`` rounds.

    ``start`` is ``"uniform"``, ``"observed"`` (the paper's ``x0 = y``, which can never
    leave an empty state: 0 stays 0 under a multiplication) or an array of the shape of
    ``counts``.

    ``converged`` says that this stopping rule was met.  That is **not** optimality: a
    small step is what a crawling iteration looks like.  ``gap`` tells how far it is.

    >>> a = Kron([[[0.75, 0.25], [0.25, 0.75]]])
    >>> expectation_maximisation([45.0, 55.0], a).estimate.round(3)
    array([40., 60.])
    >>> early = expectation_maximisation([45.0, 55.0], a, tolerance=1e-2)
    >>> early.estimate.round(1), bool(early.converged), bool(early.gap < 1e-8)
    (array([41.4, 58.6]), True, False)
    """
    checked_channel(kron)
    checked_stopping(tolerance, limit)
    groups = _Groups(counts, kron, start)
    size = max(1, BLOCK // kron.size)
    for begin in range(0, len(groups.flat), size):
        _iterate(groups, slice(begin, begin + size), tolerance, limit)
    return groups.answer()


class _Groups:
    """Groups of counts one below the other, and how far their estimates are; all ``(N, ..)``."""

    def __init__(self, counts: ArrayLike, kron: Kron, start: Start) -> None:
        self.kron = kron
        self.observed = checked_counts(counts, kron)
        self.flat = self.observed.reshape(-1, kron.size)
        self.totals = self.flat.sum(axis=1)
        self.estimate = _started(start, self.flat, self.totals, self.observed.shape, kron)
        self.rounds = np.zeros(len(self.flat), dtype=np.int64)
        self.converged = self.totals == 0

    def answer(self) -> Likelihood:
        """The estimates with their certificates, in the shape of the counts."""
        shape = self.observed.shape[:-1]
        estimate = self.estimate.reshape(self.observed.shape)
        return Likelihood(
            estimate,
            certificate(self.observed, estimate, self.kron),
            self.rounds.reshape(shape),
            self.converged.reshape(shape),
            np.zeros(shape, dtype=np.bool_),
        )


def _started(start: Start, flat: Array, totals: Array, shape: tuple[int, ...], kron: Kron) -> Array:
    if isinstance(start, str):
        if start == "uniform":
            return np.repeat(totals[:, None] / kron.size, kron.size, axis=1)
        if start == "observed":
            return flat.copy()
        raise KernelError("an iteration starts from 'uniform', 'observed' or an array of counts")
    given = checked_counts(start, kron)
    try:
        spread = np.broadcast_to(given, shape).reshape(flat.shape)
    except ValueError as problem:
        raise KernelError("a start must have the shape of the counts") from problem
    sums = spread.sum(axis=1)
    if ((sums == 0) & (totals > 0)).any():
        raise KernelError("a start must not be empty where counts are not")
    scale: Array = totals / np.where(sums > 0, sums, 1.0)
    return spread * scale[:, None]


def _iterate(groups: _Groups, block: slice, tolerance: float, limit: int) -> None:
    """Iterate one block of groups in place; groups that are done drop out."""
    kron, totals, estimate = groups.kron, groups.totals[block], groups.estimate[block]
    rounds, converged = groups.rounds[block], groups.converged[block]
    # Shares instead of counts, so that nothing overflows, and the states first, (S, groups),
    # so that a matrix product and every sum over states runs along memory.
    matrix = kron.dense if kron.size <= DENSE_STATES else None
    running = np.flatnonzero(~converged)
    y = np.ascontiguousarray((groups.flat[block][running] / totals[running, None]).T)
    x = np.ascontiguousarray((estimate[running] / totals[running, None]).T)
    for _ in range(limit):
        if not len(running):
            return
        moved = _round(y, x, matrix, kron)
        done = np.abs(moved - x).sum(axis=0) <= tolerance
        x = moved
        rounds[running] += 1
        if done.any():
            converged[running[done]] = True
            estimate[running[done]] = _counted(x[:, done], totals[running[done]])
            keep = ~done
            running = running[keep]
            y, x = np.ascontiguousarray(y[:, keep]), np.ascontiguousarray(x[:, keep])
    estimate[running] = _counted(x, totals[running])


def _counted(shares: Array, totals: Array) -> Array:
    """Counts ``(groups, S)`` of shares ``(S, groups)``, scaled to the exact total."""
    counted: Array = (shares * (totals / (shares.sum(axis=0) + TINY))).T
    return counted


def _round(y: Array, x: Array, matrix: Array | None, kron: Kron) -> Array:
    """One round of EM on states-first arrays ``(S, groups)``."""
    if matrix is None:
        moved: Array = x * kron.columns(y.T / (kron.rows(x.T) + TINY)).T
    else:
        moved = x * (matrix @ (y / (matrix.T @ x + TINY)))
    return moved


def accelerated(
    counts: ArrayLike,
    kron: Kron,
    *,
    tolerance: float = 1e-8,
    limit: int = 5000,
    start: Start = "uniform",
) -> Likelihood:
    """EM with squared extrapolation (SQUAREM, Varadhan and Roland 2008, scheme S3).

    From two EM rounds ``x -> x1 -> x2`` with ``r = x1 - x`` and ``v = x2 - x1 - r`` it
    jumps to ``x - 2 a r + a^2 v``, ``a = -|r| / |v|`` (a = -1 is ``x2`` itself), and takes
    one more round from there.  A jump that leaves the simplex is pulled back, and one that
    would end below ``L(x2)`` is dropped for ``x2``: the likelihood never falls.

    Unlike plain EM it stops on the **certificate**, ``gap <= tolerance``.  ``rounds``
    counts rounds of EM.

    >>> a = Kron([[[0.75, 0.25], [0.25, 0.75]]])
    >>> answer = accelerated([10.0, 90.0], a)
    >>> answer.estimate.round(3), bool(answer.converged)
    (array([  0., 100.]), True)
    """
    checked_channel(kron)
    groups = _Groups(counts, kron, start)
    for group in np.flatnonzero(groups.totals > 0):
        total = groups.totals[group]
        shares, groups.rounds[group], groups.converged[group] = _squared(
            groups.flat[group] / total, groups.estimate[group] / total, kron, tolerance, limit
        )
        groups.estimate[group] = shares * total
    return groups.answer()


def _squared(
    y: Array, x: Array, kron: Kron, tolerance: float, limit: int
) -> tuple[Array, int, bool]:
    """SQUAREM on one group of shares (they sum to one)."""

    def slope(shares: Array) -> Array:
        return kron.columns(y / (kron.rows(shares) + TINY))

    def height(shares: Array) -> float:
        return float(y @ np.log(kron.rows(shares) + TINY))

    rounds = 0
    while True:
        gradient = slope(x)
        if gradient.max() - 1 <= tolerance:
            return x, rounds, True
        if rounds >= limit:
            return x, rounds, False
        first = x * gradient
        second = first * slope(first)
        rounds += 2
        step = first - x
        bend = second - first - step
        length = float(np.sqrt(bend @ bend))
        reach = max(1.0, float(np.sqrt(step @ step)) / length) if length > 0 else 1.0
        best = second
        if reach > 1:
            jump = x + 2 * reach * step + reach**2 * bend
            # A state that the jump emptied may be wanted later, and EM cannot refill it.
            jump = np.maximum(jump, 1e-3 * second)
            jump /= jump.sum()
            landed = jump * slope(jump)
            rounds += 1
            if height(landed) >= height(second):
                best = landed
        x = best / best.sum()
