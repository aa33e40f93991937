"""One user's account: which answers, together with earlier ones, would tell about one group.

Over the coordinates of ``policy.functions``, with Q the orthonormal basis of the user's answers
(``policy.factor``), Q_g its part in group g, P = Q^T Q and 1_g the count of the group's n_g rows:

    leverage(g) = largest eigenvalue of G_g = Q_g^T Q_g     any weighting of rows within the group
    total(g)    = |P 1_g|^2 / n_g                           the group's own count

1 - total(g) is the share of the count's variance, with equal prior variance a row, that the
answers leave open; it needs no eigenvalue.  A cell that brings a group's leverage above ``any``
or its total above ``total`` is not admitted.  Both only grow, so bounds come first:

    gain_g = |u_g|^2,  bound = min(bound, trace) + gain     u the new direction, of length one
    where bound exceeds the limit: |G_g + u u^T|_F, then its largest eigenvalue, which is kept

G_g is held for such groups only.  What is left of an answer after the passes decides what it is:

    0 ........ noise ........ FAINT ........ 1      noise = max(3e-14, 64 eps sum|c|)
      in the span   not admitted    a new direction

where noise is never taken to be more than 1e-9, and a direction needs 1,000 times its noise.

In the span is always admitted: it says nothing new.  At a cap nothing is forgotten: what lies in
the span is admitted, the rest is not, and ``Admission.cap`` names the cap.

A group with more than ``any`` of all rows is as good as told by the count of everybody, so it is
not protected and its rows count as known.  A smaller one whose share is above ``total`` may reach
that share and no more; otherwise the count of everybody would be refused.  (reconstruction, 8)
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import linalg

from privsql.errors import DataError, InternalError
from privsql.policy.factor import SPAN, Factor, Vector
from privsql.policy.functions import Bools, Expressed, Floats, Function, Functions, Ints
from privsql.policy.wide import MANY, Blocks, decide

FAINT = 1e-7
# Ties are common: 9 of 10 rows are exactly .9, and rounding must not decide them.
SLACK = 1e-9
# A group that is above its limit already is not made worse by a gain this small.
UNTOUCHED = 1e-12
# Groups are watched from this share of the limit on, when some have to be anyway.
SOON = 0.75
# Groups whose exact leverage is computed to say how close an account is.
MOST_LOOKED_AT = 200
# Directions that wait before they are added to the matrices of watched groups.
WAITING = 32


@dataclass(frozen=True)
class Limits:
    """Shares of a group that answers may determine."""

    any: float = 0.9
    total: float = 0.8

    def __post_init__(self) -> None:
        """Refuse shares that are none."""
        if not (0 < self.total <= self.any < 1):
            raise DataError("limits on leverage need 0 < total <= any < 1")


@dataclass(frozen=True)
class Caps:
    """What one account may hold."""

    answers: int = 5_000
    watched: int = 64 * 2**20  # bytes of matrices of groups


@dataclass(frozen=True)
class Part:
    """One vector of a cell: weights by atom times a function of rows."""

    function: Function | Expressed
    atoms: Ints
    weights: Floats


@dataclass(frozen=True)
class Admission:
    """Which cells may be answered, the parts that must be remembered, and a cap that was met."""

    admitted: Bools
    added: tuple[Part, ...]
    cap: str | None  # "functions", "answers" or "groups"


@dataclass(frozen=True)
class Standing:
    """How close answers are to the limits: shares of them, and the group that it concerns."""

    any: float = 0.0  # largest leverage of a group, as a share of its limit
    total: float = 0.0  # likewise of its own count
    size: int = 0  # rows of the group that is closest
    answers: int = 0

    @property
    def share(self) -> float:
        """The larger one."""
        return max(self.any, self.total)

    def counting(self, answers: int) -> Standing:
        """The same after so many answers."""
        return replace(self, answers=answers)


@dataclass(frozen=True)
class Proposal:
    """An admission that is not yet in force."""

    admission: Admission
    state: State
    token: object

    @property
    def standing(self) -> Standing:
        """How close the account would be to its limits."""
        return self.state.standing()


@dataclass(frozen=True)
class _Watched:
    """G_g of a group, up to so many of the account's directions."""

    matrix: Floats
    upto: int


class Account:
    """One user's answers over one state of a release; ``propose``, store, then ``commit``."""

    def __init__(
        self, functions: Functions, limits: Limits | None = None, caps: Caps | None = None
    ) -> None:
        self._state = State(Groups(functions, limits or Limits()), caps or Caps())
        self._token: object = None

    @property
    def rank(self) -> int:
        """Dimension of the span of all answers."""
        return self._state.factor.rank

    @property
    def entries(self) -> int:
        """Numbers held in memory."""
        return self._state.entries

    def propose(self, cells: Sequence[Sequence[Part]]) -> Proposal:
        """Decide for each cell in the order given; nothing changes until ``commit``."""
        if sum(len(cell) for cell in cells) >= MANY:
            trial, admitted = decide(self._state.fork(), cells)
        else:
            trial = self._state.fork()
            admitted = np.array([trial.take(cell) for cell in cells], dtype=np.bool_)
            self._state.learn(trial)
        self._token = object()
        made = Admission(admitted, tuple(trial.added), trial.cap)
        return Proposal(made, trial, self._token)

    def commit(self, proposal: Proposal) -> None:
        """Put the newest proposal in force."""
        if proposal.token is not self._token:
            # Its rows may have been overwritten by a later proposal's.
            raise InternalError("only the newest proposal can be committed, and only once")
        self._token = None
        self._state = proposal.state.settled()

    def restore(self, parts: Iterable[Part]) -> None:
        """Take in parts without judging them: they have been answered."""
        self._token = None
        state = self._state.fork()
        for part in parts:
            state.accept(part)
        self._state = state.settled()

    def leverages(self) -> tuple[Floats, Floats]:
        """Leverage and total of every group, exact; a look at the account, not a decision."""
        return self._state.leverages()

    def standing(self, exact: bool = False) -> Standing:
        """How close answers are to the limits; not ``exact`` are leverages of watched groups."""
        return self._state.standing(exact=exact)


class Groups:
    """What does not change: groups of coordinates, their sizes and limits."""

    def __init__(self, functions: Functions, limits: Limits) -> None:
        self.functions = functions
        _, self.of_atom = np.unique(functions.atoms.groups, return_inverse=True)
        rows = functions.atoms.rows.astype(np.float64)
        self.sizes = np.bincount(self.of_atom, rows)
        self.root = functions[0].coordinates
        share = self.sizes / rows.sum()
        self.protected = share <= limits.any
        self.kept = self.protected[self.of_atom]
        self._sorted: tuple[int, Ints, Ints] | None = None  # coordinates by group
        self.most = limits.any + SLACK
        self.most_total = np.maximum(limits.total, np.minimum(share, limits.any)) + SLACK

    def by_group(self, x: Floats) -> Floats:
        """Sums over the coordinates of each group."""
        groups = self.of_atom[self.functions.where[: x.size]]
        return np.asarray(np.bincount(groups, x, self.sizes.size), dtype=np.float64)

    def totals(self, u: Floats) -> Floats:
        """<u, 1_g>^2 / n_g: the constant function has the first coordinates."""
        inner = np.bincount(self.of_atom, u[: self.root.size] * self.root, self.sizes.size)
        return np.asarray(inner * inner / self.sizes)

    def of_blocks(self, blocks: Blocks) -> tuple[Floats, Floats]:
        """Trace and total of every group, of blocks alone."""
        rows = blocks.rows
        group = self.of_atom[self.functions.where[rows.indices]]
        trace = np.bincount(group, rows.data**2, self.sizes.size)
        row = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
        first = rows.indices < self.root.size
        counts = rows.data[first] * self.root[rows.indices[first]]
        pair, of = np.unique(row[first] * self.sizes.size + group[first], return_inverse=True)
        inner = np.bincount(of, counts, pair.size)
        total = np.bincount(pair % self.sizes.size, inner * inner, self.sizes.size)
        return np.asarray(trace), np.asarray(total / self.sizes)

    def coordinates(self, groups: Ints, width: int) -> list[Ints]:
        """The coordinates of each of these groups, in order; later ones come last."""
        known = self._sorted
        if known is None or known[0] != width:
            owner = self.of_atom[self.functions.where[:width]]
            starts = np.searchsorted(np.sort(owner), np.arange(self.sizes.size + 1))
            known = self._sorted = width, np.argsort(owner, kind="stable"), starts
        _, order, starts = known
        bounds = zip(starts[groups].tolist(), starts[groups + 1].tolist(), strict=True)
        return [order[low:high] for low, high in bounds]


class State:
    """An account as it is after some answers; ``fork`` before a change."""

    def __init__(self, groups: Groups, caps: Caps) -> None:
        self.groups = groups
        self.caps = caps
        self.factor = Factor(groups.functions)
        self.trace = np.zeros(groups.sizes.size)
        self.bound = np.zeros(groups.sizes.size)
        self.totals = np.zeros(groups.sizes.size)
        self.watched: dict[int, _Watched] = {}
        self.waiting: tuple[Floats, ...] = ()  # directions not yet in all watched matrices
        self.pushed = 0
        self.dense: tuple[Part, ...] = ()  # the answers of the factor
        self.blocks: Blocks | None = None  # and those beside it
        self.faint = FAINT
        self.added: list[Part] = []
        self.cap: str | None = None

    def fork(self) -> State:
        """A copy that may change."""
        made = copy.copy(self)
        made.factor = self.factor.fork()
        made.watched = dict(self.watched)
        made.added, made.cap = [], None
        return made

    def settled(self) -> State:
        """The same without what it says about the last proposal."""
        self.added = []
        return self

    def learn(self, trial: State) -> None:
        """Keep matrices that a proposal found out about this very state."""
        for g, found in trial.watched.items():
            if g not in self.watched and found.upto == self.pushed:
                self.watched[g] = found
        # Those may have coordinates that only the proposal's functions brought.
        self.factor.width = max(self.factor.width, trial.factor.width)

    @property
    def entries(self) -> int:
        """Numbers held."""
        held = sum(each.matrix.size for each in self.watched.values())
        return self.factor.entries + held + sum(u.size for u in self.waiting)

    # -- one cell ------------------------------------------------------------------------

    def unit(self, part: Part) -> tuple[Vector | None, bool]:
        """A part at length one, None if it is zero; and whether its function may be used."""
        function = part.function
        some = self.groups.kept[part.atoms] & (part.weights != 0)
        atoms, weights = part.atoms[some], part.weights[some]
        if atoms.size == 0:
            return None, True
        if not np.isfinite(weights).all():
            return None, False
        sound = function.faint is None or not bool(function.faint[atoms].any())
        number, F = -1, np.empty(0)
        if isinstance(function, Expressed):
            sound &= not bool(function.fresh[atoms].any())
            F = function.known
        else:
            number, F = function.number, function.coordinates
        weights = np.ldexp(weights, -int(np.frexp(np.abs(weights).max())[1]))
        where = self.groups.functions.where[: F.size]
        alpha = np.zeros(self.groups.root.size)
        alpha[atoms] = weights
        x = F * (alpha if number == 0 else alpha[where])
        lengths = np.sqrt(np.bincount(where, F * F, alpha.size))[atoms] * np.abs(weights)
        length = float(np.sqrt(x @ x))
        if length == 0:
            return None, sound and not bool(lengths.any())
        least = float(lengths[lengths > 0].min()) / length
        wild = least * 1e-3 < SPAN
        return Vector(x / length, number, atoms, weights / length, wild), sound

    def take(self, cell: Sequence[Part]) -> bool:
        """All parts of a cell, or none."""
        mark = self.factor.count
        fresh: list[Part] = []
        U: list[Floats] = []
        for part in cell:
            kept, u = self._direction(part)
            if not kept:
                self.factor.truncate(mark)
                return False
            if u is not None:
                fresh.append(part)
                U.append(u)
        if U and not self._fits(U, mark):
            self.factor.truncate(mark)
            return False
        self.added += fresh
        self.dense = (*self.dense, *fresh)
        return True

    def _direction(self, part: Part) -> tuple[bool, Floats | None]:
        """Whether a part may stay, and the new direction that it was pushed with."""
        vector, sound = self.unit(part)
        if vector is None:
            return sound, None
        found = self.factor.residual(vector.x)
        if found.inside:
            return sound and not vector.wild, None
        if not sound or found.length < FAINT or not found.known:
            if isinstance(part.function, Expressed):
                self.cap = "functions"
            return False, None
        if vector.function < 0 or self.factor.count >= self.caps.answers:
            self.cap = "functions" if vector.function < 0 else "answers"
            return False, None
        self.factor.push(vector, found)
        return True, found.x / found.length

    def accept(self, part: Part) -> bool:
        """Take in a part whatever it does; whether its direction is known."""
        vector, _ = self.unit(part)
        if vector is None:
            return True
        if vector.function < 0:
            raise DataError("an earlier answer needs more functions than may be held")
        found = self.factor.residual(vector.x)
        if found.inside:
            return True
        self.factor.push(vector, found)
        self.dense = (*self.dense, part)
        u = found.x / found.length
        gain = self.groups.by_group(u * u)
        self._add([u], np.minimum(self.bound, self.trace) + gain, gain)
        return found.known

    # -- many cells ----------------------------------------------------------------------

    def rebuilt(self, blocks: Blocks, dense: Sequence[Part], new: Sequence[Part]) -> State | None:
        """The account with these blocks first; None where a group passes a limit or a cap is met.

        ``dense`` parts have been answered and stay known even where they are faint now.
        """
        made = State(self.groups, self.caps)
        made.blocks, made.factor.blocks = blocks, blocks.rows
        made.factor.width = max(made.factor.width, blocks.rows.shape[1])
        made.trace, made.totals = self.groups.of_blocks(blocks)
        made.bound = made.trace.copy()
        if not all(made.accept(part) for part in dense):
            return None
        for part in new:
            vector, _ = made.unit(part)
            if vector is None:
                continue
            left = made.factor.residual(vector.x)
            if left.inside and vector.wild:
                return None
            if not left.inside:
                if left.length < FAINT or made.factor.count >= self.caps.answers:
                    return None
                if not made.accept(part):
                    return None
        return made if made.within(self) else None

    def within(self, before: State) -> bool:
        """Whether no group is above a limit that was not so before."""
        groups = self.groups
        told = self.totals - before.totals
        if bool(((self.totals > groups.most_total) & (told > UNTOUCHED)).any()):
            return False
        gain = self.trace - before.trace
        # The span holds the one before, so an eigenvalue has grown by no more than the trace.
        grown = np.minimum(before.bound, before.trace) + np.maximum(gain, 0.0)
        self.bound = np.minimum(np.minimum(self.bound, self.trace), grown)
        doubtful = np.flatnonzero((self.bound > groups.most) & (gain > UNTOUCHED))
        return self._exact([], doubtful, self.bound, self.factor.count)

    # -- limits --------------------------------------------------------------------------

    def _fits(self, U: list[Floats], mark: int) -> bool:
        """Whether all groups keep to their limits with new directions; if so, they are in."""
        groups = self.groups
        gain = sum((groups.by_group(u * u) for u in U), np.zeros_like(self.trace))
        told = sum((groups.totals(u) for u in U), np.zeros_like(self.trace))
        if bool(((self.totals + told > groups.most_total) & (told > UNTOUCHED)).any()):
            return False
        if len(U) == 1 and float(gain.max()) > groups.most:
            return False
        bound = np.minimum(self.bound, self.trace) + gain
        doubtful = np.flatnonzero((bound > groups.most) & (gain > UNTOUCHED))
        if not self._exact(U, doubtful, bound, mark):
            return False
        self._add(U, bound, gain)
        return True

    def _add(self, U: list[Floats], bound: Floats, gain: Floats) -> None:
        self.trace = self.trace + gain
        self.bound = bound
        self.totals = self.totals + sum(self.groups.totals(u) for u in U)
        self.waiting = (*self.waiting, *U)
        self.pushed += len(U)
        if not self.watched:
            self.waiting = ()
        elif len(self.waiting) >= WAITING:
            some = sorted(self.watched)
            ids = self.groups.coordinates(np.array(some), self.factor.width)
            # Stacked once, not cut from one direction after another.
            stacked = np.zeros((len(self.waiting), self.factor.width))
            for line, u in zip(stacked, self.waiting, strict=True):
                line[: u.size] = u
            for g, mine in zip(some, ids, strict=True):
                late = self.pushed - self.watched[g].upto
                cut = stacked[len(stacked) - late :, mine]
                self.watched[g] = self._grown(g, cut)
            self.waiting = ()

    def _exact(self, U: list[Floats], doubtful: Ints, bound: Floats, mark: int) -> bool:
        """Eigenvalues where bounds do not decide; tightens them in place."""
        if doubtful.size == 0:
            return True
        ids = self.groups.coordinates(doubtful, self.factor.width)
        if not self._watch(doubtful, ids, mark):
            return False
        for g, mine in zip(doubtful.tolist(), ids, strict=True):
            now = self._current(g, mine)
            self.watched[g] = now
            cut = np.array([_cut(u, mine) for u in U]).reshape(len(U), mine.size)
            better = top(now.matrix + cut.T @ cut, self.groups.most)
            if better > self.groups.most:
                return False
            bound[g] = min(bound[g], better)
        return True

    def _watch(self, doubtful: Ints, ids: list[Ints], mark: int) -> bool:
        """Matrices of groups that have none yet; False at the cap."""
        new = {g: mine for g, mine in zip(doubtful.tolist(), ids, strict=True)
               if g not in self.watched}  # fmt: skip
        held = sum(each.matrix.nbytes for each in self.watched.values())
        held += 8 * sum(mine.size**2 for mine in new.values())
        if held > self.caps.watched:
            self.cap = "groups"
            return False
        if new:
            # Once through all answers is dear: groups that will be in doubt soon come along.
            soon = np.flatnonzero(np.minimum(self.bound, self.trace) > SOON * self.groups.most)
            for g, mine in zip(
                soon.tolist(), self.groups.coordinates(soon, self.factor.width), strict=True
            ):
                held += 8 * mine.size**2
                if g not in self.watched and g not in new and held <= self.caps.watched // 2:
                    new[g] = mine
            parts = self.factor.columns(list(new.values()), mark)
            for g, Q in zip(new, parts, strict=True):
                self.watched[g] = _Watched(Q.T @ Q, self.pushed)
        return True

    def _current(self, g: int, mine: Ints) -> _Watched:
        """A group's matrix with the directions that were waiting, on all of its coordinates."""
        late = self.pushed - self.watched[g].upto
        missing = self.waiting[len(self.waiting) - late :]
        cut = np.array([_cut(u, mine) for u in missing]).reshape(late, mine.size)
        return self._grown(g, cut)

    def _grown(self, g: int, cut: Floats) -> _Watched:
        """A group's matrix with some more rows of Q_g."""
        known, size = self.watched[g], cut.shape[1]
        old = known.matrix.shape[0]
        if len(cut) == 0 and old == size:
            return known
        made = cut.T @ cut
        made[:old, :old] += known.matrix
        return _Watched(made, self.pushed)

    def standing(self, exact: bool = False) -> Standing:
        """How close it is to the limits; groups that are not protected are left out."""
        groups = self.groups
        shares = np.where(groups.protected, self.totals / groups.most_total, 0.0)
        g = int(shares.argmax())
        total, largest, of = float(shares[g]), 0.0, g
        if exact:
            largest, of = self._largest()
        else:
            for each in self.watched:
                if groups.protected[each] and float(self.bound[each]) > largest:
                    largest, of = float(self.bound[each]), each
        any_ = min(largest / groups.most, 1.0)
        size = int(groups.sizes[of if any_ > total else g])
        return Standing(any_, min(total, 1.0), size)

    def _largest(self) -> tuple[float, int]:
        """The largest leverage of a protected group, and the group."""
        bound = np.where(self.groups.protected, np.minimum(self.bound, self.trace), 0.0)
        best, of = 0.0, int(bound.argmax())
        for g in np.argsort(-bound)[:MOST_LOOKED_AT]:
            if bound[g] <= best:
                break
            ids = self.groups.coordinates(np.array([g]), self.factor.width)
            Q = self.factor.columns(ids, self.factor.count)[0]
            found = top(Q.T @ Q, 0.0)
            if found > best:
                best, of = found, int(g)
        return best, of

    def leverages(self) -> tuple[Floats, Floats]:
        """Of every group."""
        every = np.arange(self.groups.sizes.size)
        ids = self.groups.coordinates(every, self.factor.width)
        parts = self.factor.columns(ids, self.factor.count)
        return np.array([top(Q.T @ Q, 0.0) for Q in parts]), self.totals


def _cut(u: Floats, mine: Ints) -> Floats:
    """A direction on some coordinates; those that came after it are zero in it."""
    made = np.zeros(mine.size)
    known = mine[mine < u.size]
    made[: known.size] = u[known]
    return made


def top(G: Floats, enough: float) -> float:
    """The largest eigenvalue, or a bound on it that is at most ``enough``."""
    size = float(np.linalg.norm(G))
    if size <= enough or G.shape[0] <= 1:
        return size
    last = G.shape[0] - 1
    found = linalg.eigh(G, eigvals_only=True, subset_by_index=[last, last], check_finite=False)
    return float(found[0])
