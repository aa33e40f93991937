"""The answers of one statement, held against each other where nothing else is kept.

Nothing was answered before, so most statements are harmless by far, and a bound says so from inner
products alone.  Let V be the statement's vectors at length one, G = V V^T, and V_g the part of V in
group g.  With P the projection on their span and P_g its part in g,

    leverage(g) = |P_g|_2 <= trace P_g = trace of G^-1 V_g V_g^T        and total(g) <= leverage(g)

so where the trace of every group is below both limits, every cell would be admitted: leverages
only grow with answers, so each cell is harmless together with those before it.  An answer is
alpha(atom) f_k(row), so G and the traces take the products of the functions by atom and no more:

    M_a[k, l] = <f_k, f_l> on atom a
    G[p, q]   = sum over a of alpha_p(a) alpha_q(a) M_a[k_p, k_q]
    trace_g   = sum over a in g, p and q of G^-1[p, q] alpha_p(a) alpha_q(a) M_a[k_p, k_q]

Numbers.  Sums over rows are made in pairs and those over A atoms as they come, so an entry of G is
within (A + 64) eps of the true one, the matrix of all P within d = P (A + 64) eps, and, where its smallest
eigenvalue s is at least 1,000 d, its inverse within a share d / (s - d) < 1 / 900 of the true one.
Hence a trace that is below 99 of 100 of a limit is below it, and likewise the largest eigenvalue
of G^-1/2 V_g V_g^T G^-1/2, which is the leverage and looked at where the trace is not.  Otherwise, and where G is closer
to singular than that, the statement is judged by exact leverage (``policy.account``), which alone refuses.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from privsql.policy.account import Account, Limits, Part
from privsql.policy.base import Asked, Base, Unusable, Values
from privsql.policy.within.classes import EPSILON, Floats, Ints

# More than this is left to exact leverage, which takes many cells together.
MOST_FUNCTIONS, MOST_VECTORS = 12, 400
# What a computed trace may be of a limit, and how far G is from singular beside its rounding.
SURE, CLEAR = 0.99, 1_000.0
# Functions of earlier statements that are kept for the next: they cost time as well as save it.
MOST_KEPT = 48
# Groups whose trace is too large and that are looked at more closely.
MOST_LOOKED_AT = 200

Cell = Sequence[Asked]


class Statement:
    """Judges the cells of a statement, block after block."""

    def __init__(self, base: Base, limits: Limits) -> None:
        self.base, self.limits = base, limits
        self._cells: list[Cell] = []  # admitted so far, while bounds do
        self._account: Account | None = None

    def admit(self, cells: Sequence[Cell]) -> list[bool]:
        """Which cells may be answered together with those before them."""
        if self._account is None:
            every = [*self._cells, *cells]
            if harmless(self.base, every, self.limits):
                self._cells = every
                return [True] * len(cells)
            if len(self.base.functions) > MOST_KEPT:
                self.base.renew()
            self._account = Account(self.base.functions, self.limits)
            self._account.restore(part for cell in self._parts(self._cells) for part in cell)
        proposal = self._account.propose(self._parts(cells))
        self._account.commit(proposal)
        return [bool(yes) for yes in proposal.admission.admitted]

    def _parts(self, cells: Sequence[Cell]) -> list[list[Part]]:
        base = self.base
        base.prepare((asked for cell in cells for asked in cell), base.key)
        found = [[base.part(asked, base.key) for asked in cell] for cell in cells]
        return [[part for part in cell if part is not None] for cell in found]


def harmless(base: Base, cells: Sequence[Cell], limits: Limits) -> bool:
    """Whether a bound shows that cells keep to both limits, with nothing answered before."""
    asked = [each for cell in cells for each in cell]
    if not asked:
        return True
    try:
        values = base.evaluated({(each.text, each.key) for each in asked}, MOST_FUNCTIONS)
    except Unusable:
        return False
    if values is None:
        return False
    number, functions = _distinct(values)
    vectors = _vectors(base, asked, number, limits)
    if len(vectors) > MOST_VECTORS:
        return False
    enough = SURE * min(limits.any, limits.total)
    bound = bounds(base, functions, vectors, enough)
    return bound is not None and float(bound.max()) <= enough


def _distinct(
    values: dict[tuple[str | None, str], Values | None],
) -> tuple[dict[tuple[str | None, str], int], list[Values]]:
    """Functions that differ, and the number of each text and key; -1 is zero everywhere."""
    number: dict[tuple[str | None, str], int] = {}
    known: dict[bytes, int] = {}
    functions: list[Values] = []
    for name, each in values.items():
        if each is None or not bool(each.any()):
            number[name] = -1
            continue
        same = each.dtype.str.encode() + each.tobytes()
        if same not in known:
            known[same] = len(functions)
            functions.append(each)
        number[name] = known[same]
    return number, functions


Vectors = dict[tuple[int, bytes], Floats]


def _vectors(
    base: Base, asked: Sequence[Asked], number: dict[tuple[str | None, str], int], limits: Limits
) -> Vectors:
    """Vectors that differ: number of a function and weights by atom, without groups that all know."""
    public = base.public
    _, group = np.unique(public.groups, return_inverse=True)
    share = np.bincount(group, public.counts) / public.counts.sum()
    kept = (share <= limits.any)[group]
    made: Vectors = {}
    for each in asked:
        k = number[each.text, each.key]
        weights = np.zeros(public.counts.size)
        weights[each.atoms] = each.weights
        weights[~kept] = 0.0
        if k >= 0 and bool(weights.any()):
            made[k, weights.tobytes()] = weights
    return made


def bounds(
    base: Base, functions: Sequence[Values], vectors: Vectors, enough: float
) -> Floats | None:
    """By group, a bound on its leverage; None where rounding might matter.

    A trace that is more than ``enough`` makes way for the leverage itself.
    """
    public = base.public
    size = public.counts.size
    if not vectors:
        return np.zeros(1)
    starts = np.searchsorted(public.atom, np.arange(size))
    made = _Products(functions, vectors, starts, public.times)
    G = made.gram(np.arange(size))
    length = np.sqrt(np.diag(G))
    if not bool((np.isfinite(length) & (length > 0)).all()):
        return None
    values, basis = np.linalg.eigh(G / np.outer(length, length))
    if not values[0] >= CLEAR * len(length) * (size + 64) * EPSILON:
        return None
    # With C C^T = G^-1, the leverage of g is the largest eigenvalue of C^T V_g V_g^T C.
    C = basis / np.sqrt(values) / length[:, np.newaxis]
    _, group = np.unique(public.groups, return_inverse=True)
    found = np.asarray(np.bincount(group, made.weighed(C @ C.T)))
    doubtful = np.flatnonzero(found > enough)
    if doubtful.size > MOST_LOOKED_AT:
        return found
    for g in doubtful:
        inner = C.T @ made.gram(np.flatnonzero(group == g)) @ C
        found[g] = np.linalg.eigvalsh(inner)[-1]
        if found[g] > enough:
            break
    return found


class _Products:
    """Inner products of functions by atom, and of vectors that are weights times functions."""

    def __init__(
        self, functions: Sequence[Values], vectors: Vectors, starts: Ints, times: Ints
    ) -> None:
        owner = np.array([k for k, _ in vectors], dtype=np.int64)
        V = np.array(list(vectors.values()))
        self.V = V / np.abs(V).max(axis=1, keepdims=True)
        self.lines = {int(k): np.flatnonzero(owner == k) for k in np.unique(owner)}
        self.M: dict[tuple[int, int], Floats] = {}
        scaled: dict[int, Values] = {}
        for k in self.lines:
            each = functions[k]
            scaled[k] = each if each.dtype == np.bool_ else each / np.abs(each).max()
        alike = bool((times == 1).all())
        for k, one in scaled.items():
            left = one if alike else one * times
            for n, two in scaled.items():
                if n <= k:
                    bits = left.dtype == two.dtype == np.bool_
                    both = np.logical_and(left, two) if bits else left * two
                    self.M[k, n] = np.add.reduceat(both, starts, dtype=np.float64)

    def gram(self, atoms: Ints) -> Floats:
        """Inner products of all vectors, over some atoms."""
        made = np.zeros((len(self.V), len(self.V)))
        W = self.V[:, atoms]
        for (k, n), M in self.M.items():
            block = (W[self.lines[k]] * M[atoms]) @ W[self.lines[n]].T
            made[np.ix_(self.lines[k], self.lines[n])] = block
            made[np.ix_(self.lines[n], self.lines[k])] = block.T
        return made

    def weighed(self, inverse: Floats) -> Floats:
        """By atom, the sum of inner products over it, each times a number."""
        found = np.zeros(self.V.shape[1])
        for (k, n), M in self.M.items():
            one, two = self.lines[k], self.lines[n]
            cross = ((inverse[np.ix_(one, two)] @ self.V[two]) * self.V[one]).sum(axis=0)
            found += cross * M * (1 if k == n else 2)
        return found
