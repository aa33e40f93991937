"""The answers of one statement, held against each other where nothing else is kept.

Nothing was answered before, so most statements are harmless by far, and inner products alone say
so.  Let V be the statement's vectors at length one, G = V V^T, V_g the part of V in group g, 1_g
the count of its n_g rows and C C^T = G^-1.  Then C^T V is an orthonormal basis of their span, so

    leverage(g) = largest eigenvalue of C^T V_g V_g^T C <= trace of G^-1 V_g V_g^T
    total(g)    = |C^T V 1_g|^2 / n_g

and where every group keeps to its limits, every cell would be admitted: leverages only grow with
answers, so each cell is harmless together with those before it.  An answer is alpha(atom) f_k(row),
so all of it takes the products of the functions by atom, M_a[k, l] = <f_k, f_l> on atom a:

    G[p, q] = sum over a of alpha_p(a) alpha_q(a) M_a[k_p, k_q]         V_g V_g^T: over a in g

Numbers.  Sums over rows are made in pairs and those over A atoms as they come, so an entry of G or
of V_g V_g^T is within e = (A + 64) eps of the true one, and a matrix of all P within d = P e.  Let
s be the smallest eigenvalue of G.  A leverage, which is at most 1, is the largest ratio of
x^T V_g V_g^T x and x^T G x, so it is wrong by at most 2 d / (s - d).  The trace adds up all entries
of G^-1, at most P |G^-1|_F <= P sqrt(P) / s, so it is at most 2 sqrt(P) d / (s - d) below the
leverage.  Where that is more than 1 of 100 of a limit, the statement is judged in an account
(``policy.account``), as it is where a bound is more than 99 of 100 of one: only accounts refuse.

An account refuses what is faint as well: a vector of which less than 1e-7 is outside of the span of
those before it, and a function likewise within an atom.  The first does not come so far: what is
left of a vector is at least sqrt(s) > sqrt(64,000 eps) > 1e-6, and more than 1,000 times the
account's rounding, 64 eps sqrt(P / s).  ``within.faint`` sees the second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from privsql.policy.account import Account, Limits, Part
from privsql.policy.base import Asked, Base, Unusable, Values
from privsql.policy.public_rows import PublicRows
from privsql.policy.within.classes import EPSILON, Bools, Floats, Ints
from privsql.policy.within.faint import Products, any_faint

# More than this is left to exact leverage, which takes many cells together.
MOST_FUNCTIONS, MOST_VECTORS = 12, 400
# What a bound may be of a limit, and how far G is from singular at least, beside its rounding.
SURE, CLEAR = 0.99, 1_000.0
# Groups whose trace is too large and that are looked at more closely.
MOST_LOOKED_AT = 200

Cell = Sequence[Asked]
Name = tuple[str | None, str]  # text and key of a function
Vectors = dict[tuple[int, bytes], Floats]


class Statement:
    """Judges the cells of a statement, block after block."""

    def __init__(self, base: Base, limits: Limits) -> None:
        self.base, self.limits = base, limits
        self._cells: list[Cell] = []  # admitted so far, while bounds do
        self._account: Account | None = None
        self._values: dict[Name, Values | None] = {}

    def admit(self, cells: Sequence[Cell]) -> list[bool]:
        """Which cells may be answered together with those before them."""
        if self._account is None:
            every = [*self._cells, *cells]
            if self._harmless(every):
                self._cells = every
                return [True] * len(cells)
            # Functions of other statements would have to be told from these.
            self.base.renew()
            self._account = Account(self.base.functions, self.limits)
            self._account.restore(part for cell in self._parts(self._cells) for part in cell)
        proposal = self._account.propose(self._parts(cells))
        self._account.commit(proposal)
        return [bool(yes) for yes in proposal.admission.admitted]

    def _harmless(self, cells: Sequence[Cell]) -> bool:
        asked = [each for cell in cells for each in cell]
        # In the order in which an account would take them.
        asked = sorted(asked, key=lambda each: bool(each.key))
        names = dict.fromkeys((each.text, each.key) for each in asked)
        if len(names) > MOST_FUNCTIONS:
            return False
        try:
            self._values |= self.base.evaluated(n for n in names if n not in self._values)
        except Unusable:
            return False
        return harmless(self.base, asked, self._values, self.limits)

    def _parts(self, cells: Sequence[Cell]) -> list[list[Part]]:
        base = self.base
        asked = [each for cell in cells for each in cell]
        base.prepare(asked, base.key, {t: v for (t, k), v in self._values.items() if t and not k})
        found = [[base.part(asked, base.key) for asked in cell] for cell in cells]
        return [[part for part in cell if part is not None] for cell in found]


def harmless(
    base: Base, asked: Sequence[Asked], values: Mapping[Name, Values | None], limits: Limits
) -> bool:
    """Whether vectors are seen to keep to both limits, with nothing answered before."""
    if not all(bool(np.isfinite(each.weights).all()) for each in asked):
        return False
    number, functions = _distinct(values)
    vectors = _vectors(base, asked, number, limits)
    if not vectors:
        return True
    if len(vectors) > MOST_VECTORS:
        return False
    made = _Products(base.public, functions, vectors)
    found = bounds(base, made, limits)
    if found is None:
        return False
    leverage, total = (float(each.max()) for each in found)
    if leverage > SURE * limits.any or total > SURE * limits.total:
        return False
    return not any_faint(base.public, functions, made.products, made.used())


def _distinct(values: Mapping[Name, Values | None]) -> tuple[dict[Name, int], list[Values]]:
    """Functions that differ, and the number of each text and key; -1 is zero everywhere."""
    number: dict[Name, int] = {}
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


def _vectors(
    base: Base, asked: Sequence[Asked], number: Mapping[Name, int], limits: Limits
) -> Vectors:
    """Vectors that differ: function and weights by atom, without groups that are not protected."""
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


def bounds(base: Base, made: _Products, limits: Limits) -> tuple[Floats, Floats] | None:
    """By group, a bound on its leverage, and its total; None where rounding might matter.

    A trace that is too much makes way for the leverage itself.
    """
    public = base.public
    size, enough = public.counts.size, SURE * limits.any
    G = made.gram(np.arange(size))
    length = np.sqrt(np.diag(G))
    if not bool((np.isfinite(length) & (length > 0)).all()):
        return None
    values, basis = np.linalg.eigh(G / np.outer(length, length))
    rounding = len(length) * (size + 64) * EPSILON
    clear = max(CLEAR, 3 / (limits.total * (1 - SURE))) * np.sqrt(len(length))
    if not values[0] >= clear * rounding:
        return None
    C = basis / np.sqrt(values) / length[:, np.newaxis]
    _, group = np.unique(public.groups, return_inverse=True)
    found: Floats = np.asarray(np.bincount(group, made.weighed(C @ C.T)), dtype=np.float64)
    counts = np.zeros((found.size, len(length)))
    np.add.at(counts, group, (made.V * made.sums).T)
    totals: Floats = np.square(counts @ C).sum(axis=1) / np.bincount(group, public.counts)
    doubtful = np.flatnonzero(found > enough)
    if doubtful.size > MOST_LOOKED_AT:
        return found, totals
    for g in doubtful:
        inner = C.T @ made.gram(np.flatnonzero(group == g)) @ C
        found[g] = np.linalg.eigvalsh(inner)[-1]
        if found[g] > enough:
            break
    return found, totals


class _Products:
    """Inner products of vectors that are weights times functions."""

    def __init__(self, public: PublicRows, functions: Sequence[Values], vectors: Vectors) -> None:
        owner = np.array([k for k, _ in vectors], dtype=np.int64)
        V = np.array(list(vectors.values()))
        self.V = V / np.abs(V).max(axis=1, keepdims=True)
        self.lines = {int(k): np.flatnonzero(owner == k) for k in np.unique(owner)}
        self.products = Products(public, functions, list(self.lines))
        self.M = self.products.M
        # By vector and atom, the sum of its function.
        self.sums = np.empty(V.shape)
        for k, some in self.lines.items():
            self.sums[some] = self.products.sums[k]

    def used(self) -> dict[int, Bools]:
        """By function, the atoms where a vector has a weight."""
        return {k: np.asarray((self.V[some] != 0).any(axis=0)) for k, some in self.lines.items()}

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
