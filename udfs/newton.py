"""A primal-dual interior point method for non-negative shares.

With shares (``sum y = sum x = 1``) the problem of ``udfs.iterate`` has the same answer as

    maximise  f(x) = sum_q y_q log (x A)_q - sum_i x_i     over  x >= 0

because scaling x moves f to its best at ``sum x = 1``.  Its optimality conditions, with
the gradient ``g = A (y / mu)``, ``mu = x A``, and slacks ``t``, are

    t = 1 - g(x),   x_i t_i = 0,   x >= 0,   t >= 0 .

One round is a Newton step on them, after Mehrotra: a predictor towards ``x t = 0`` tells
how much of the complementarity to ask for, and a corrector with the same factor adds the
second-order term.  Both solve, with ``H = A diag(y / mu^2) A^T`` (S x S),

    (H + diag(t / x)) dx = g - 1 + c / x,     dt = c / x - t - (t / x) dx

for ``c = 0`` and then ``c_i = sigma * mean(x t) - dx_i dt_i``.  x and t stay positive, so
``mu`` does; after each round x is scaled to sum to one, which can only help.  Bad
conditioning does little harm (diag(t/x) is a ridge exactly where it is needed): 5 to 15
rounds do, where a projected Newton method clips its way through hundreds.

When the certificate is below CROSSING, ``x_i > t_i`` tells which states are positive: the
others are set to zero and one or two plain Newton steps on the positive ones square the
error.  If that does not certify, the interior rounds go on from where they were.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from udfs.iterate import PIN, TINY, System
from udfs.kron import Array

# From this gap on the positive states are usually known, and Newton on them is cheaper.
CROSSING = 1e-5

# Newton steps that a guess of the positive states is given, before the interior rounds and
# after them; among more than QUICK_STATES states the first guess is seldom right.
QUICK, POLISHING, QUICK_STATES = 5, 2, 64

# Up to this many states groups are solved together, states first; above, one by one.
TOGETHER = 16

# Numbers that one batched step works on, measured: fewer pay for calls, more for memory.
CACHED = 1 << 18

# No product x_i t_i may fall below this share of their mean: t is lifted.  Without it about
# one group in ten thousand cycles, its small products shortening every step.
CENTRAL = 0.1

# After so many rounds a group is put back well inside, which the rare one needs whose x t
# went to zero before its gradient fitted.
RESTART = 30

# A pivot below this share of its diagonal entry is rounding.
PIVOT = 1e-15


def solve_one(
    y: Array, x: Array, spill: float, system: System, tolerance: float, limit: int
) -> tuple[Array, float, int]:
    """Best shares of one group: ``(x, gap, rounds)``.

    ``y`` (S,) observed shares; ``x`` (S,) the inversion with its negatives, of total
    ``-spill``, cut off, and scaled to sum to one.
    """
    from scipy.linalg.lapack import dpotrf, dpotrs  # quick to name, slow to import

    size = system.size
    made = 0
    if size <= QUICK_STATES:
        exact, certified, made = quick_one(y, x.copy(), system, tolerance, steps=QUICK)
        if certified <= tolerance:
            return exact, certified, made
    matrix, transposed = system.matrix, system.transposed
    step = np.empty((2, size))
    mild = 0.5 * spill + 1e-3
    both, mu, ratio, g = _inside(y, x, min(0.2, mild), min(0.1, mild), system)
    best, least = both[0].copy(), float(np.maximum.reduce(g)) - 1
    crossing = max(CROSSING, tolerance)
    for rounds in range(1, limit + 1):
        if rounds % RESTART == 0:
            both, mu, ratio, g = _inside(y, both[0], 0.5, 0.1, system)
        x, t = both
        hessian = system.hessian(ratio / mu)
        bound = t / x
        hessian.ravel()[:: size + 1] += bound
        factor, failed = dpotrf(hessian.T, 1, 0, 1)
        if failed:
            factor = _ridged(system.hessian(ratio / mu), bound)
        excess = g - system.ones
        dx = dpotrs(factor, excess, 1)[0]
        dt = -t - bound * dx
        step[0] = dx
        step[1] = dt
        low = float(np.minimum.reduce(step / both, axis=None))
        ahead = both + (step if low > -1 else step * (-1 / low))
        now = float(np.dot(x, t))
        sigma = (float(np.dot(ahead[0], ahead[1])) / now) ** 3
        target = (sigma * now / size - dx * dt) / x
        dx = dpotrs(factor, excess + target, 1, 1)[0]
        step[0] = dx
        step[1] = target - t - bound * dx
        low = float(np.minimum.reduce(step / both, axis=None))
        reach = max(0.9, 1 - least)
        both += step if low > -reach else step * (-reach / low)
        x = both[0]
        x /= np.add.reduce(x)
        t = both[1]
        np.maximum(t, CENTRAL * float(np.dot(x, t)) / size / x, out=t)
        mu = np.dot(transposed, x)
        mu += system.tiny
        ratio = y / mu
        g = np.dot(matrix, ratio)
        gap = float(np.maximum.reduce(g)) - 1
        if gap < least:
            best, least = x.copy(), gap
        elif gap != gap:
            break
        if gap <= crossing:
            exact, certified, _ = quick_one(
                y, x * (x > both[1]), system, tolerance, steps=POLISHING, fixed=True
            )
            if certified <= min(tolerance, max(gap, 1e-13)):
                return exact, certified, made + rounds
            if gap <= tolerance:
                return best, least, made + rounds
    return best, least, made + rounds


def _inside(
    y: Array, x: Array, blend: ArrayLike, lift: ArrayLike, system: System
) -> tuple[Array, Array, Array, Array]:
    """A start away from all bounds: ``(x and t, mu, y / mu, g)``, states first.

    x and t are one array, (2, S) or (2, S, N), so that one ratio test serves for both.
    """
    both = np.empty((2, *y.shape))
    x = np.multiply(x, np.subtract(1, blend), out=both[0])
    x += np.multiply(0.5, blend) * (y + 1 / system.size)
    mu = np.dot(system.transposed, x)
    ratio = y / mu
    g = np.dot(system.matrix, ratio)
    t = np.maximum(1 - g, 0, out=both[1])
    t += lift
    return both, mu, ratio, g


def _ridged(hessian: Array, bound: Array) -> Array:
    """Factor of ``H + diag(bound)`` with the smallest ridge that makes it one."""
    from scipy.linalg.lapack import dpotrf  # quick to name, slow to import

    diagonal = hessian.diagonal() + bound
    ridge = 1e-14
    while True:
        trial = hessian.copy()
        trial.ravel()[:: len(trial) + 1] = diagonal * (1 + ridge) + ridge * hessian.trace()
        factor, failed = dpotrf(trial.T, 1, 0, 1)
        if not failed or not ridge < 1e9:
            return np.asarray(factor)
        ridge *= 100


def quick_one(
    y: Array, x: Array, system: System, tolerance: float, *, steps: int, fixed: bool = False
) -> tuple[Array, float, int]:
    """Newton on the states that are positive or want to be, others at zero: a guess.

    ``(x, gap, steps made)``, x being overwritten; ``fixed`` keeps at zero what the interior
    rounds put there.  There is no line search and no promise: a step may overshoot, cycle
    or meet a singular matrix.  Where the likelihood is close to a parabola, which is where
    counts are large, it is done in three; otherwise the certificate says no.
    """
    from scipy.linalg.lapack import dposv  # quick to name, slow to import

    matrix, transposed, size = system.matrix, system.transposed, system.size
    zeros, ones, tiny = system.zeros, system.ones, system.tiny
    step = 0
    while True:
        x /= np.add.reduce(x)
        mu = np.dot(transposed, x)
        mu += tiny
        ratio = y / mu
        g = np.dot(matrix, ratio)
        gap = float(np.maximum.reduce(g)) - 1
        # At least one step even where the start is good: it squares the error.
        if (step and gap <= tolerance) or step == steps or gap != gap:
            return x, gap, step
        shut = x <= zeros
        if not fixed:
            shut &= g <= ones
        ratio /= mu
        hessian = system.hessian(ratio)
        hessian.ravel()[:: size + 1] += shut * system.pins
        g -= ones
        _, d, failed = dposv(hessian.T, g, 1, 1, 1)
        if failed:
            return x, gap, step
        d += x
        x = np.maximum(d, zeros, out=d)
        x[shut] = 0
        step += 1


def solve_together(
    y: Array, x: Array, spill: Array, system: System, tolerance: float, limit: int
) -> tuple[Array, Array, NDArray[np.int64]]:
    """Best shares of many groups of few states: ``(x, gap, rounds)``.

    All arrays have the states first, ``y`` and ``x`` (S, N), and mean what they mean in
    ``solve_one``: the same rounds, one vector operation for all groups.
    """
    size, groups = y.shape
    mild = 0.5 * spill + 1e-3
    inside = _inside(y, x, np.minimum(0.2, mild), np.minimum(0.1, mild), system)[0]
    belt = np.concatenate((y, inside[0], inside[1]))
    x, t = belt[size : 2 * size], belt[2 * size :]
    gap = np.full(groups, np.inf)
    rounds = np.zeros(groups, dtype=np.int64)
    everyone = np.arange(groups)
    _conveyor(belt, gap, rounds, everyone, system, max(CROSSING, tolerance), limit)
    exact = np.where(x > t, x, 0.0)
    certified, _ = quick_together(y, exact, system, tolerance, steps=POLISHING, fixed=True)
    better = certified <= np.minimum(tolerance, np.maximum(gap, 1e-13))
    # The few whose positive states were not what they seemed go on inside.
    rest = np.flatnonzero(~better & ~(gap <= tolerance) & (rounds < limit))
    if len(rest):
        _conveyor(belt, gap, rounds, rest, system, tolerance, limit)
    return np.where(better, exact, x), np.where(better, certified, gap), rounds


def _conveyor(
    belt: Array,
    gaps: Array,
    rounds: NDArray[np.int64],
    queue: NDArray[np.int64],
    system: System,
    tolerance: float,
    limit: int,
) -> None:
    """Take the groups of ``queue`` to ``gap <= tolerance``; all arrays change in place.

    ``belt`` (3 S, N) holds y, x, t.  As many groups as fit the cache are worked on; those
    that are done leave and others take their place, so that the vectors stay long.
    """
    size = len(belt) // 3
    width = _width(size)
    at, taken = queue[:width], width
    block = belt.take(at, axis=1)
    age = rounds[at]
    while True:
        yb, xb, tb = block[:size], block[size : 2 * size], block[2 * size :]
        mu = system.transposed @ xb
        mu += TINY
        ratio = yb / mu
        g = system.matrix @ ratio
        gap = g.max(axis=0) - 1
        # NaN leaves too: it will not come back, and its group is not certified.
        active = (gap > tolerance) & (age < limit)
        staying = np.flatnonzero(active)
        if len(staying) < len(at):
            leaving = np.flatnonzero(~active)
            gone = at.take(leaving)
            belt[:, gone] = block.take(leaving, axis=1)
            gaps[gone], rounds[gone] = gap.take(leaving), age.take(leaving)
            fresh = queue[taken : taken + width - len(staying)]
            taken += len(fresh)
            at = np.concatenate((at.take(staying), fresh))
            if not len(at):
                return
            age = np.concatenate((age.take(staying), rounds.take(fresh)))
            block = block.take(staying, axis=1)
            if len(fresh):
                block = np.concatenate((block, belt.take(fresh, axis=1)), axis=1)
                continue
            ratio, mu = ratio.take(staying, axis=1), mu.take(staying, axis=1)
            g, gap = g.take(staying, axis=1), gap.take(staying)
            xb, tb = block[size : 2 * size], block[2 * size :]
        _round(xb, tb, ratio, mu, g, gap, system)
        age += 1
        stuck = np.flatnonzero(age % RESTART == RESTART - 1)
        if len(stuck):
            back = _inside(
                block[:size].take(stuck, axis=1), xb.take(stuck, axis=1), 0.5, 0.1, system
            )[0]
            xb[:, stuck], tb[:, stuck] = back
            age[stuck] += 1


def _width(size: int) -> int:
    """Number of groups of one batched step."""
    return max(64, CACHED // (size * (size + 1)))


def _round(
    x: Array, t: Array, ratio: Array, mu: Array, g: Array, gap: Array, system: System
) -> None:
    """One predictor-corrector round on states-first arrays; x and t change in place."""
    size = len(x)
    bound = t / x
    ratio /= mu
    lower, pivots = _factor(system.packed @ ratio, bound, size)
    excess = np.subtract(g, 1, out=g)
    dx = excess.copy()
    _solve(lower, pivots, dx)
    dt = bound * dx
    dt += t
    np.negative(dt, out=dt)
    low = np.minimum((dx / x).min(axis=0), (dt / t).min(axis=0))
    reach = 1 / np.maximum(-low, 1)
    now = np.einsum("sn,sn->n", x, t)
    ahead = np.einsum("sn,sn->n", x + reach * dx, t + reach * dt)
    shrunk = ahead / now
    centre = shrunk * shrunk * ahead / size  # a power would cost ten times as much
    dx *= dt
    target = np.subtract(centre, dx, out=dx)
    target /= x
    excess += target
    dx = excess
    _solve(lower, pivots, dx)
    bound *= dx
    target -= t
    target -= bound
    dt = target
    low = np.minimum((dx / x).min(axis=0), (dt / t).min(axis=0))
    most = np.maximum(0.9, 1 - gap)
    reach = most / np.maximum(-low, most)
    dx *= reach
    x += dx
    dt *= reach
    t += dt
    x /= x.sum(axis=0)
    least = (CENTRAL / size) * np.einsum("sn,sn->n", x, t)
    np.maximum(t, least / x, out=t)


def _factor(packed: Array, bound: Array, size: int) -> tuple[list[Array], list[Array]]:
    """``L D L^T`` of the matrices ``packed + diag(bound)``, one a group.

    ``packed`` (S (S+1) / 2, N) holds the columns of the lower triangles.  Returns the
    columns of L below its unit diagonal and 1/D.  Right-looking: S steps, each a handful
    of operations on all groups at once.
    """
    begins = [j * size - j * (j - 1) // 2 for j in range(size)]
    columns = [packed[b : b + size - j] for j, b in enumerate(begins)]
    for j, column in enumerate(columns):
        column[0] += bound[j]
    floors = [PIVOT * column[0] for column in columns]
    lower, pivots = [], []
    for j, column in enumerate(columns):
        pivot = 1 / np.maximum(column[0], floors[j])
        scaled = column[1:] * pivot
        for i in range(j + 1, size):
            columns[i] -= scaled[i - j - 1] * column[i - j :]
        lower.append(scaled)
        pivots.append(pivot)
    return lower, pivots


def _solve(lower: list[Array], pivots: list[Array], right: Array) -> None:
    """Solve ``L D L^T z = right`` in place, ``right`` (S, N)."""
    size = len(pivots)
    for j in range(size - 1):
        right[j + 1 :] -= lower[j] * right[j]
    for j in range(size):
        right[j] *= pivots[j]
    for j in range(size - 2, -1, -1):
        right[j] -= np.einsum("sn,sn->n", lower[j], right[j + 1 :])


def quick_together(
    y: Array, x: Array, system: System, tolerance: float, *, steps: int, fixed: bool = False
) -> tuple[Array, NDArray[np.int64]]:
    """``quick_one`` for many groups, ``x`` (S, N) in place: ``(gap, steps made)``.

    The gap is infinite, and x as it was, where the guess did not come to an end.
    """
    size, groups = y.shape
    gaps, made = np.full(groups, np.inf), np.full(groups, steps)
    width = _width(size)
    for begin in range(0, groups, width):
        at = np.arange(begin, min(begin + width, groups))
        yb, xb = y[:, begin : begin + width], x[:, begin : begin + width].copy()
        for step in range(steps + 1):
            xb /= xb.sum(axis=0)
            mu = system.transposed @ xb
            mu += TINY
            ratio = yb / mu
            g = system.matrix @ ratio
            gap = g.max(axis=0) - 1
            if step:
                done = gap <= tolerance
                leaving = np.flatnonzero(done)
                gone = at.take(leaving)
                x[:, gone] = xb.take(leaving, axis=1)
                gaps[gone], made[gone] = gap.take(leaving), step
                staying = np.flatnonzero(~done)
                if step == steps or not len(staying):
                    break
                at = at.take(staying)
                yb, xb = yb.take(staying, axis=1), xb.take(staying, axis=1)
                ratio, mu = ratio.take(staying, axis=1), mu.take(staying, axis=1)
                g = g.take(staying, axis=1)
            free = xb > 0
            if not fixed:
                free |= g > 1
            ratio /= mu
            lower, pivots = _factor(system.packed @ ratio, np.where(free, 0.0, PIN), size)
            g -= 1
            _solve(lower, pivots, g)
            xb += g
            np.maximum(xb, 0, out=xb)
            xb *= free
    return gaps, made
