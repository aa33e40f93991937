"""Non-negative counts over states: the problem, its certificate, expectation maximisation.

Published state counts ``y`` (shape ``(..., S)``, non-negative, not all whole: weighted
counts and sums of a non-negative measure are allowed) came out of original counts ``x``
through the transition matrix ``A``.  The constrained likelihood asks for

    maximise  L(x) = sum_q y_q log (x A)_q     over  x >= 0,  sum_i x_i = n = sum_q y_q

(reconstruction 4; the problem that OLAP 4.2.2 iterates on).  L is concave, so an answer
can prove itself.  With ``mu = x A`` and the gradient ``g_i = sum_q A_iq y_q / mu_q``,

    sum_i x_i g_i = sum_q y_q = n,
    L(x*) - L(x) <= sum_i g_i (x*_i - x_i) <= n (max_i g_i - 1)

for the best ``x*`` and any ``x`` that sums to n.  ``gap = max_i g_i - 1`` is therefore an
upper bound, in nats a row, on what an answer still misses.  It is never negative, and it
is 0 exactly at the maximum.

One round of EM (OLAP 4.2.2, "iterative Bayes") re-assigns every published row to
original states by Bayes' rule under the current estimate, and counts again:

    x_i  <-  x_i * sum_q a_iq y_q / (sum_r x_r a_rq)  =  x_i g_i

It climbs the likelihood in every round and keeps the total, but near
the maximum it crawls: with three columns at retention 1/2 thousands of rounds are not
enough for eight digits (reconstruction 4).  ``udfs.mle`` does not need it.  It is kept to
reproduce the papers, whose early stopping is part of their answers (reconstruction 9.11),
and its accelerated form is the net under the second-order method.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike, NDArray

from udfs.errors import KernelError
from udfs.kron import DENSE_STATES, HOPELESS_CONDITION, Array, Kron

# Added to expected counts before they divide: an empty state then gives 0/TINY = 0, as it
# should, and no expected count that matters is moved.
TINY = 1e-300

# Above this a dense S x S factor takes seconds and hundreds of megabytes.
MOST_STATES = 2048

# A diagonal entry that pins its variable: dividing by it gives zero.
PIN = 1e60


@dataclass(frozen=True, slots=True)
class Likelihood:
    """Original counts by maximum likelihood, with their certificate.

    ``estimate``   (..., S)  non-negative, sums to the observed total of its group
    ``gap``        (...)     certificate: at most this many nats a row are missing
    ``rounds``     (...)     rounds of iteration; 0 where inversion or a formula sufficed
    ``converged``  (...)     whether the method's own stopping rule was met
    ``inverted``   (...)     whether the estimate is plain inversion, ``y A^-1``
    """

    estimate: Array
    gap: Array
    rounds: NDArray[np.int64]
    converged: NDArray[np.bool_]
    inverted: NDArray[np.bool_]


def checked_counts(counts: ArrayLike, kron: Kron) -> Array:
    """``counts`` as floats over the states of ``kron``, or a refusal that quotes none.

    >>> checked_counts([3, -1], Kron([[[0.75, 0.25], [0.25, 0.75]]]))
    Traceback (most recent call last):
        ...
    udfs.errors.KernelError: a likelihood needs counts that are finite and not negative
    """
    try:
        observed = kron.states(counts)
    except (TypeError, ValueError) as problem:
        if isinstance(problem, KernelError):
            raise
        raise KernelError("counts are not an array of numbers") from problem
    # A NaN fails the comparisons.  The reductions by name are half the cost of the methods,
    # which shows in a kernel that is done in a few dozen operations.
    low, high = np.minimum.reduce, np.maximum.reduce
    if observed.size and not (low(observed, axis=None) >= 0 and high(observed, axis=None) < np.inf):
        raise KernelError("a likelihood needs counts that are finite and not negative")
    return observed


def checked_channel(kron: Kron) -> None:
    """Refuse a matrix that no perturbation has: negative entries or rows not summing to one.

    Unlike ``transition`` it does not ask for an inverse, which EM can do without.
    """
    for position, factor in enumerate(kron.factors, start=1):
        if factor.min() < 0:
            raise KernelError(f"factor {position} has a negative entry: it is not a channel")
        if np.abs(factor.sum(axis=1) - 1).max() > 1e-9:
            raise KernelError(f"factor {position} has a row that does not sum to one")


def certificate(counts: ArrayLike, estimate: ArrayLike, kron: Kron) -> Array:
    """Upper bound on the nats per row that ``estimate`` is below the maximum, shape ``(...)``.

        gap = max_i sum_q A_iq y_q / (x A)_q  -  1,      L(x*) - L(x) <= n * gap

    An estimate that does not sum to n is first scaled to.  Infinite where the estimate
    says that an observed state is impossible; 0 for an empty group.

    >>> a = Kron([[[0.75, 0.25], [0.25, 0.75]]])
    >>> certificate([45, 55], [40, 60], a)  # inversion without a negative: the maximum
    array(0.)
    >>> certificate([45, 55], [50, 50], a)
    array(0.05)
    """
    observed = checked_counts(counts, kron)
    original = kron.states(estimate)
    if original.size and not original.min() >= 0:
        raise KernelError("a certificate needs an estimate without negative or missing counts")
    expected = kron.rows(original)
    with np.errstate(all="ignore"):
        ratio = observed / (expected + TINY)
        steepest = kron.columns(ratio).max(axis=-1)
        total = observed.sum(axis=-1)
        gap = steepest * (original.sum(axis=-1) / total) - 1
    impossible = ((expected <= 0) & (observed > 0)).any(axis=-1)
    gap = np.where(impossible, np.inf, np.where(total > 0, np.maximum(gap, 0), 0.0))
    return np.asarray(gap, dtype=np.float64)


class System:
    """What a second-order method needs of one matrix A, computed once for it.

    ``matrix`` (S, S) is A; ``inverse`` (S, S) is None where there is none worth starting
    from; ``pairs`` are the factors P_r below and ``places`` (S, S) says where H[i, j] lies
    in their product.  Both are empty where the dense product is faster.

    The Hessian ``H[i, j] = sum_q A_iq A_jq w_q`` of a Kronecker product depends on the pair
    (i_r, j_r) of each column only, and symmetrically.  So all of it follows from w by
    applying ``P_r[(i, j), q] = A_r[i, q] A_r[j, q]``, i <= j, axis by axis: fewer distinct
    numbers than H has entries, and no S^3.
    """

    def __init__(self, kron: Kron) -> None:
        checked_channel(kron)
        self.size = kron.size
        self.matrix = np.ascontiguousarray(kron.dense)
        self.transposed = np.ascontiguousarray(kron.dense.T)
        self.inverse = (
            np.ascontiguousarray(kron.inverse.dense)
            if kron.condition < HOPELESS_CONDITION
            else None
        )
        # At S = 8 an operation with a Python number costs twice one with an array.
        self.zeros, self.ones = np.zeros(self.size), np.ones(self.size)
        self.tiny, self.pins = np.full(self.size, TINY), np.full(self.size, PIN)
        self.pairs: tuple[Array, ...] = ()
        self.places: NDArray[np.intp] = np.zeros((0, 0), dtype=np.intp)
        self._packed: Array | None = None
        self._pair(_merged(kron))

    def _pair(self, factors: list[Array]) -> None:
        """Build the pair factors, where they pay."""
        halves = [len(factor) * (len(factor) + 1) // 2 for factor in factors]
        work, before, after = 0, 1, self.size
        for factor, half in zip(factors, halves, strict=True):
            after //= len(factor)
            work += before * half * len(factor) * after
            before *= half
        # Measured: fetching an entry costs about as much as four multiplications.
        if self.size < 64 or work + 4 * self.size**2 >= self.size**3 / 8:
            return
        places = np.zeros((1, 1), dtype=np.intp)
        pairs = []
        for factor, half in zip(factors, halves, strict=True):
            m = len(factor)
            upper = np.triu_indices(m)
            pairs.append(factor[upper[0]] * factor[upper[1]])
            place = np.zeros((m, m), dtype=np.intp)
            place[upper] = place[upper[1], upper[0]] = np.arange(half)
            wide = places[:, None, :, None] * half + place[None, :, None, :]
            places = wide.reshape(len(places) * m, -1)
        self.pairs, self.places = tuple(pairs), places

    @property
    def packed(self) -> Array:
        """Rows ``A_i * A_j`` for j <= i, column by column of the lower triangle."""
        if self._packed is None:
            column, row = np.triu_indices(self.size)
            self._packed = self.matrix[row] * self.matrix[column]
        return self._packed

    def hessian(self, weights: Array) -> Array:
        """``A diag(weights) A^T``, symmetric, in memory that the caller may overwrite."""
        if not self.pairs:
            dense: Array = np.dot(self.matrix * weights, self.transposed)
            return dense
        product, before, after = weights, 1, self.size
        for factor in self.pairs:
            after //= factor.shape[1]
            product = factor @ product.reshape(before, factor.shape[1], after)
            before *= len(factor)
        return product.ravel().take(self.places)


def _merged(kron: Kron) -> list[Array]:
    """The factors of ``kron``, small neighbours multiplied up to 16 x 16.

    Two products with such blocks are several times faster than eight with 2 x 2.
    """
    blocks: list[list[Array]] = [[]]
    size = 1
    for factor in kron.factors:
        size *= len(factor)
        if size > 16:
            blocks.append([])
            size = len(factor)
        blocks[-1].append(factor)
    return [Kron(block).dense for block in blocks if block]


_systems: WeakKeyDictionary[Kron, System] = WeakKeyDictionary()


def system_of(kron: Kron) -> System:
    """The system of ``kron``, built at its first use and kept as long as it lives."""
    system = _systems.get(kron)
    if system is None:
        system = _systems[kron] = System(kron)
    return system


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
    if not (tolerance >= 0 and limit >= 0):
        raise KernelError("a tolerance and a number of rounds cannot be negative")
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
