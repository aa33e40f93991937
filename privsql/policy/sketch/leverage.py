"""Differences and dominance: what a user's answers together reveal about one group.

An answered aggregate is a vector over atoms, the distinct public tuples, with

    v_a = W_a / sqrt(n_a),    W_a = sum of the weights of the n_a rows of atom a

so COUNT has sqrt(n_a) on the atoms that it selects.  The best linear estimate of a weighting
x within group g from all answers leaves a residual of at least sqrt(1 - leverage(g)) |x|,
where leverage(g) is the largest squared singular value of an orthonormal basis of the answers
restricted to g's atoms.  A cell that would bring any group above the limit is not admitted:
subtraction, complements, chains and one heavy weight all end there.  A cell in the span of
older answers says nothing new and always is.  (reconstruction, 8)

Where a residual is rounding noise, and where it is so faint that its direction is not known:

    0 ........ noise ........ FAINT ........ 1    norm of the residual of a unit vector
      in the span   not admitted    a new direction

In the span, unless a weight of the vector is itself as small as noise and could hide there.
Weights that differ by less than noise (1e-13 of each other) count as equal: digits of an
answer that fine are rounded away before it is shown.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from privsql.errors import DataError, InternalError
from privsql.policy.functions import Atoms, Floats, Ints
from privsql.policy.sketch.basis import FAINT, SLACK, Basis, Layout
from privsql.policy.sketch.combination import combine, parts
from privsql.policy.wide import TOGETHER, Memory, noise

Bools = NDArray[np.bool_]
T = TypeVar("T")

# Leverage above which a group is as good as told.
LIMIT = 0.9

# Multiplications of a check cell by cell, and bases tried for a wide GROUP BY, before it gives up.
MOST_WORK = 10**10
MOST_TRIALS = 200


@dataclass(frozen=True)
class Cells:
    """Aggregates of one statement: raw weights W (vectors x atoms), and whose each vector is."""

    weights: sparse.csr_array
    owner: Ints  # cell number of each vector, ascending
    count: int


@dataclass(frozen=True)
class Admission:
    """Which cells may be answered, and the raw vectors that must be remembered for it."""

    admitted: Bools
    added: sparse.csr_array
    full: bool  # a cell was turned away because of cost, not because of leverage


@dataclass(frozen=True)
class Proposal:
    """An admission that is not yet in force."""

    admission: Admission
    basis: Basis
    token: object


class Leverage:
    """One user's answers over one state of a table; ``propose``, store, then ``commit``."""

    def __init__(
        self,
        atoms: Atoms,
        *,
        limit: float = LIMIT,
        most_rank: int = 20_000,
        most_entries: int = 2**25,
    ) -> None:
        self.atoms = atoms
        self.most_rank = most_rank
        self.most_entries = most_entries
        self._root = np.sqrt(atoms.rows.astype(np.float64))
        self._basis = Basis.empty(Layout.of(atoms.groups, most_entries // 4), limit)
        self._known: set[bytes] = set()
        self._token: object = None

    @property
    def entries(self) -> int:
        """Numbers held in memory."""
        return self._basis.entries

    # -- deciding ------------------------------------------------------------------------

    def propose(self, cells: Cells) -> Proposal:
        """Decide for each cell in the order given; nothing changes until ``commit``."""
        raw = canonical(cells.weights, self.atoms.rows.size)
        admitted = np.ones(cells.count, dtype=np.bool_)
        finite = _by_row(np.maximum, 1.0 * ~np.isfinite(raw.data), raw.indptr) == 0
        admitted[cells.owner[~finite]] = False
        new = np.array([key not in self._known for key in _keys(raw)], dtype=np.bool_)
        new &= (np.diff(raw.indptr) > 0) & finite
        trial = _Trial(self, raw, cells.owner, new)
        waiting = [int(c) for c in np.unique(cells.owner[new]) if admitted[c]]
        admitted[waiting] = False
        admitted[trial.run(waiting)] = True
        self._token = object()
        added = sparse.csr_array(raw[np.array(trial.added, dtype=np.int64)])
        return Proposal(Admission(admitted, added, trial.full), trial.basis, self._token)

    def commit(self, proposal: Proposal) -> None:
        """Put the newest proposal in force."""
        if proposal.token is not self._token:
            # Its rows may have been overwritten by a later proposal's.
            raise InternalError("only the newest proposal can be committed, and only once")
        self._token = None
        self._basis = proposal.basis
        self._known.update(_keys(proposal.admission.added))

    def restore(self, batches: Iterable[sparse.csr_array]) -> None:
        """Take in stored vectors without judging them: they have been answered."""
        self._token = None
        for batch in batches:
            raw = canonical(batch, self.atoms.rows.size)
            units = self.units(raw)
            basis = None
            if units.shape[0] >= TOGETHER:
                basis, _ = combine(self._basis, units, {}, self.most_entries)
            if basis is not None:
                basis.measure()
            else:
                basis = self._basis.fork()
                for X in parts(units):
                    since = basis.rank
                    for x, norm in zip(X, basis.residuals(X), strict=True):
                        left = basis.refine(x, float(norm), since)
                        if left > noise(basis.layout.atoms):
                            U = x[np.newaxis] / left
                            gain = basis.layout.squares(U)
                            basis.add(U, np.minimum(basis.bound, basis.trace) + gain)
            self._basis = basis
            self._known.update(_keys(raw))

    def units(self, raw: sparse.csr_array) -> sparse.csr_array:
        """Rows scaled to v, in the layout's order of atoms, of norm one; none may be zero."""
        top = _by_row(np.maximum, np.abs(raw.data), raw.indptr)
        lengths = np.diff(raw.indptr)
        # First by a power of two near the largest, or squares overflow.
        data = np.ldexp(raw.data, np.repeat(-np.frexp(top)[1], lengths)) / self._root[raw.indices]
        data /= np.repeat(np.sqrt(_by_row(np.add, data**2, raw.indptr)), lengths)
        place = self._basis.layout.place[raw.indices]
        made = sparse.csr_array((data, place, raw.indptr), shape=raw.shape)
        made.sort_indices()
        return made


class _Trial:
    """One proposal in the making: a fork of the basis, and the vectors it took in."""

    def __init__(self, over: Leverage, raw: sparse.csr_array, owner: Ints, new: Bools) -> None:
        self.over = over
        self.rows = np.flatnonzero(new)
        self.units = over.units(sparse.csr_array(raw[self.rows]))
        # Before the fork, or each refused proposal would grow a copy of its own.
        over._basis.reserve(min(self.rows.size, TOGETHER))
        self.basis = over._basis.fork()
        self.noise = noise(over.atoms.rows.size)
        least = _by_row(np.minimum, np.abs(self.units.data), self.units.indptr)
        self.wild = least * 1e-3 < self.noise
        self.of = owner[self.rows]
        self.added: list[int] = []
        self.full = False
        self.large = False  # the last attempt was given up for its size

    def run(self, waiting: list[int]) -> list[int]:
        """The cells that are admitted."""
        span = {c: range(*np.searchsorted(self.of, [c, c + 1])) for c in waiting}
        many = sum(len(rows) for rows in span.values())
        if many < TOGETHER:
            return self.one_by_one(span)
        # A wide GROUP BY: most of its cells go in together, or none can be told alone.
        inside, span = self.easy(span)
        taken = self.together(list(span), span)
        if taken is None:
            work = many * (many + self.basis.dimension) * self.over.atoms.rows.size
            taken = self.one_by_one(span) if work <= MOST_WORK else self.halving(span)
        return inside + taken

    def one_by_one(self, span: dict[int, range]) -> list[int]:
        """In order; each vector against the basis as it then is."""
        taken = []
        for some in chunks(span, map(len, span.values()), TOGETHER):
            lines = [row for c in some for row in span[c]]
            X = self.units[np.array(lines)].toarray()
            since = self.basis.rank
            norms = dict(zip(lines, self.basis.residuals(X), strict=True))
            at = {row: i for i, row in enumerate(lines)}
            for c in some:
                rows = list(span[c])
                if self.take(rows, X[[at[r] for r in rows]], [norms[r] for r in rows], since):
                    taken.append(c)
        return taken

    def take(self, rows: list[int], X: Floats, norms: Sequence[float], since: int) -> bool:
        """All vectors of a cell, or none."""
        basis, mark = self.basis, self.basis.rank
        fresh, sound = [], True
        for row, x, norm in zip(rows, X, norms, strict=True):
            left = basis.refine(x, float(norm), since)
            if left > FAINT:
                basis.push(x / left)
                fresh.append(row)
            elif left > self.noise or self.wild[row]:
                sound = False
        U = basis.buffer[mark : basis.rank].copy()
        basis.rank = mark
        if not sound or not fresh:
            return sound
        size = basis.dimension + len(U)
        if size > self.over.most_rank or (mark + len(U)) * U.shape[1] > self.over.most_entries:
            self.full = True
            return False
        bound = basis.fits(U)
        if bound is None:
            return False
        basis.add(U, bound)
        self.added += [int(self.rows[row]) for row in fresh]
        return True

    def easy(self, span: dict[int, range]) -> tuple[list[int], dict[int, range]]:
        """Cells that lie in the span already, and the rest without those of one heavy group."""
        layout = self.basis.layout
        group = np.repeat(np.arange(layout.sizes.size), layout.sizes)
        # |v_g|^2 is a lower bound of g's leverage once v is in the span.
        squares = sparse.csr_array(
            (self.units.data**2, group[self.units.indices], self.units.indptr.copy()),
            shape=(self.units.shape[0], layout.sizes.size),
        )
        squares.sum_duplicates()
        heavy = _by_row(np.maximum, squares.data, squares.indptr) > self.basis.limit + SLACK
        share = np.zeros(self.units.shape[0])
        if self.basis.rank:
            share += ((self.units @ self.basis.rows.T) ** 2).sum(axis=1)
        if self.basis.blocks is not None:
            share += np.asarray((self.units @ self.basis.blocks.T).power(2).sum(axis=1)).ravel()
        left = np.ones(self.units.shape[0])
        near = np.flatnonzero(share > 1 - 1e-6)
        if self.basis.blocks is not None and near.size:
            # Sums of answered cells are many and stay sparse; only what is left needs all rows.
            S, part = self.basis.blocks, sparse.csr_array(self.units[near])
            for _ in range(2):
                part = part - (part @ S.T) @ S
            left[near] = np.sqrt(np.asarray(part.multiply(part).sum(axis=1)).ravel())
            near = near[left[near] > self.noise]
        for low in range(0, near.size, TOGETHER):
            some = near[low : low + TOGETHER]
            left[some] = self.basis.residuals(self.units[some].toarray())
        inside, rest = [], {}
        for c, rows in span.items():
            mine = slice(rows.start, rows.stop)
            if heavy[mine].any() or self.wild[mine].any():
                continue
            if left[mine].max() > FAINT:
                rest[c] = rows
            elif left[mine].max() <= self.noise:
                inside.append(c)
        return inside, rest

    def together(self, cells: list[int], span: dict[int, range]) -> list[int] | None:
        """All of these cells at once; None if that is too much for a group, or too large."""
        rows = np.array([row for c in cells for row in span[c]], dtype=np.int64)
        if rows.size == 0:
            return []
        basis = self.attempt(rows, {})
        if basis is None:
            return None
        self.basis = basis
        self.added += [int(r) for r in self.rows[rows]]
        return cells

    def attempt(self, rows: Ints, memory: Memory) -> Basis | None:
        units = sparse.csr_array(self.units[rows])
        basis, faintest = combine(self.over._basis, units, memory, self.over.most_entries)
        self.large = basis is None or basis.dimension > self.over.most_rank
        if basis is None or self.large:
            return None
        return basis if faintest > FAINT and basis.measure() else None

    def halving(self, span: dict[int, range]) -> list[int]:
        """As cell by cell would decide, since leverages only grow: halves until they fit."""
        memory: Memory = {}
        taken: list[int] = []
        stack = [list(span)]
        for _ in range(MOST_TRIALS):
            if not stack:
                break
            some = stack.pop()
            rows = np.array([r for c in taken + some for r in span[c]], dtype=np.int64)
            basis = self.attempt(rows, memory)
            if basis is not None:
                self.basis, taken = basis, taken + some
            elif len(some) > 1:
                stack += [some[len(some) // 2 :], some[: len(some) // 2]]
            else:
                self.full |= self.large
        self.full |= bool(stack)
        self.added += [int(self.rows[r]) for c in taken for r in span[c]]
        return taken


def canonical(weights: sparse.csr_array, atoms: int) -> sparse.csr_array:
    """One spelling of a set of vectors: sorted, no stored zeros, float64 and int32."""
    if weights.shape[1] != atoms:
        raise DataError("a vector must have one weight for each atom")
    made: sparse.csr_array = weights.astype(np.float64, copy=True)
    made.sum_duplicates()
    made.eliminate_zeros()
    made.indices = made.indices.astype(np.int32)
    return made


def _keys(raw: sparse.csr_array) -> Iterator[bytes]:
    for low, high in zip(raw.indptr[:-1], raw.indptr[1:], strict=True):
        text = raw.indices[low:high].tobytes() + raw.data[low:high].tobytes()
        yield hashlib.blake2b(text, digest_size=16).digest()


def _by_row(function: np.ufunc, data: Floats, indptr: NDArray[np.integer]) -> Floats:
    """A reduction of each row; 0 for an empty one."""
    found = np.zeros(len(indptr) - 1)
    some = np.flatnonzero(np.diff(indptr))
    if some.size:
        found[some] = function.reduceat(data, indptr[some])
    return found


def chunks(things: Iterable[T], sizes: Iterable[int], most: int) -> Iterator[list[T]]:
    """Things in their order, together while their sizes sum to no more than ``most``."""
    some: list[T] = []
    size = 0
    for thing, more in zip(things, sizes, strict=True):
        if some and size + more > most:
            yield some
            some, size = [], 0
        some.append(thing)
        size += more
    if some:
        yield some
