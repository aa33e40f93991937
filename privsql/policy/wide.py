"""Many cells at once: a wide GROUP BY enters an account as sparse blocks.

Cells that share no rows are orthogonal as they are.  Taken first they stay sparse, and totals
behind them vanish in their span; taken one after another behind a total, each would become
dense.  The span, and so every leverage, is the same in either order, so an account may be built
anew with the blocks first.  If all cells together pass a limit, halves of them are tried, which
decides as cell by cell would: leverages only grow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from privsql.policy.factor import SPAN, widened
from privsql.policy.functions import (
    EPSILON,
    KNOWN,
    MOST,
    Bools,
    Floats,
    Function,
    Functions,
    Ints,
)

if TYPE_CHECKING:
    from privsql.policy.account import Part, State

# So many rows at most are made orthogonal as one block.
TOGETHER = 64

Memory = dict[bytes, tuple[Floats, Ints, float]]

# From so many vectors on cells are taken together.
MANY = 64
# A vector of which less than this is new, by its square, is looked at more closely.
NEARLY = 1e-6
# Bases that are tried, and cells that are taken one by one where that is the only way.
MOST_TRIALS = 200
MOST_DENSE = 500
MOST_REBUILT = 5_000


@dataclass(frozen=True)
class Blocks:
    """Sparse orthonormal rows, and the parts that they were made of, by component."""

    rows: sparse.csr_array
    component: Ints  # of each row
    parts: tuple[tuple[Part, ...], ...]  # of each component


@dataclass(frozen=True)
class Units:
    """Vectors of length one over coordinates; those that cannot be used are not sound."""

    rows: sparse.csr_array
    sound: Bools
    wild: Bools


def decide(state: State, cells: Sequence[Sequence[Part]]) -> tuple[State, Bools]:
    """As cell by cell: the state after these cells, and which of them are admitted."""
    return _Trial(state, cells).run()


def units_of(functions: Functions, kept: Bools, parts: Sequence[Part]) -> Units:
    """All parts at length one; a part that is zero has an empty row."""
    by_function: dict[int, list[int]] = {}
    for i, part in enumerate(parts):
        number = part.function.number if isinstance(part.function, Function) else -1
        by_function.setdefault(number, []).append(i)
    sound = np.ones(len(parts), dtype=np.bool_)
    wild = np.zeros(len(parts), dtype=np.bool_)
    pieces, order = [], []
    for number, those in by_function.items():
        order += those
        if number < 0:  # at the cap on functions: later, one by one
            sound[those] = False
            pieces.append(sparse.csr_array((len(those), functions.width)))
            continue
        function = functions[number]
        alpha, finite = _weights([parts[i] for i in those], kept)
        sound[those] = finite
        if function.faint is not None:
            row = np.repeat(np.arange(len(those)), np.diff(alpha.indptr))
            sound[np.array(those)[row[function.faint[alpha.indices]]]] = False
        made, least = _multiplied(functions, function, alpha)
        wild[those] = least * 1e-3 < SPAN
        pieces.append(made)
    back = np.argsort(np.array(order, dtype=np.int64), kind="stable")
    rows = sparse.csr_array(sparse.vstack(pieces, format="csr"))
    return Units(sparse.csr_array(rows[back]), sound, wild)


def _weights(parts: Sequence[Part], kept: Bools) -> tuple[sparse.csr_array, Bools]:
    """Weights by atom with their largest near 1, and which rows are finite."""
    lengths = [part.atoms.size for part in parts]
    atoms = np.concatenate([part.atoms for part in parts])
    weights = np.concatenate([part.weights for part in parts])
    row = np.repeat(np.arange(len(parts)), lengths)
    finite = np.ones(len(parts), dtype=np.bool_)
    finite[row[~np.isfinite(weights)]] = False
    chosen = kept[atoms] & (weights != 0) & finite[row]
    row, atoms, weights = row[chosen], atoms[chosen], weights[chosen]
    top = np.zeros(len(parts))
    np.maximum.at(top, row, np.abs(weights))
    weights = np.ldexp(weights, -np.frexp(top)[1][row])
    made = sparse.csr_array((weights, (row, atoms)), shape=(len(parts), kept.size))
    return made, finite


def _multiplied(
    functions: Functions, function: Function, alpha: sparse.csr_array
) -> tuple[sparse.csr_array, Floats]:
    """Weights times a function, at length one, and the least part of an atom in each row."""
    F = function.coordinates
    where = functions.where[: F.size]
    # By atom, the function's coordinates.
    table = sparse.csr_array((F, (where, np.arange(F.size))), shape=(alpha.shape[1], F.size))
    made = sparse.csr_array(alpha @ table)
    made.eliminate_zeros()
    lengths = np.sqrt(np.bincount(where, F * F, alpha.shape[1]))
    sizes = np.abs(alpha.data) * lengths[alpha.indices]
    row = np.repeat(np.arange(alpha.shape[0]), np.diff(alpha.indptr))
    norm = np.sqrt(np.bincount(row, sizes * sizes, alpha.shape[0]))
    least = np.full(alpha.shape[0], np.inf)
    np.minimum.at(least, row[sizes > 0], sizes[sizes > 0])
    norm = np.where(norm > 0, norm, 1.0)
    made.data /= np.repeat(norm, np.diff(made.indptr))
    made = widened(made, functions.width)
    made.sort_indices()
    return made, least / norm


class _Trial:
    """The cells of one statement against one state."""

    def __init__(self, state: State, cells: Sequence[Sequence[Part]]) -> None:
        self.state = state
        self.cells = cells
        self.parts = [part for cell in cells for part in cell]
        sizes = [len(cell) for cell in cells]
        self.first = np.cumsum([0, *sizes])
        self.units = units_of(state.groups.functions, state.groups.kept, self.parts)
        self.admitted = np.zeros(len(cells), dtype=np.bool_)
        self.memory: Memory = {}
        self.rebuilt = 0  # dense answers that were taken apart again

    def run(self) -> tuple[State, Bools]:
        """What ``decide`` promises."""
        state = self._together(self._easy())
        if self._past_cap():
            # In the span they are answered; otherwise the account names the cap.
            state = self._one_by_one(state, self._past_cap())
        return state, self.admitted

    def _together(self, rest: list[int]) -> State:
        made = self._attempt(rest)
        if made is not None:
            self.admitted[rest] = True
            return made
        if sum(len(self.cells[c]) for c in rest) <= MOST_DENSE:
            return self._one_by_one(self.state, rest)
        return self._halves(rest)

    def _past_cap(self) -> list[int]:
        """Cells of a function that could not be stored."""
        return [
            c
            for c, cell in enumerate(self.cells)
            if not all(isinstance(part.function, Function) for part in cell)
        ]

    def _easy(self) -> list[int]:
        """Cells in the span of the blocks are admitted; the rest, without what is refused."""
        state, X = self.state, self.units.rows
        owner = state.groups.of_atom[state.groups.functions.where]
        row = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
        groups = state.groups.sizes.size
        pair, of = np.unique(row * groups + owner[X.indices], return_inverse=True)
        squares = np.bincount(of, X.data**2, pair.size)
        heavy = np.zeros(X.shape[0], dtype=np.bool_)
        # |v_g|^2 is a lower bound of g's leverage once v is in the span.
        heavy[pair[squares > state.groups.most] // groups] = True
        inside = np.diff(X.indptr) == 0
        if state.blocks is not None:
            Q = state.blocks.rows
            part = sparse.csr_array(X[:, : Q.shape[1]])
            within = np.asarray(X.multiply(X).sum(axis=1) - part.multiply(part).sum(axis=1))
            for _ in range(2):
                part = part - (part @ Q.T) @ Q
            left = np.asarray(part.multiply(part).sum(axis=1)) + np.maximum(within, 0.0)
            inside |= np.sqrt(left) <= SPAN
        if state.factor.count:
            near = np.flatnonzero((state.factor.shares(X) > 1 - NEARLY) & ~inside)
            for i in near:
                inside[i] = state.factor.residual(X[[i]].toarray()[0]).inside
        rest = []
        for c in range(len(self.cells)):
            mine = slice(self.first[c], self.first[c + 1])
            if bool(inside[mine].all()):
                self.admitted[c] = bool((self.units.sound & ~self.units.wild)[mine].all())
            elif bool(self.units.sound[mine].all()) and not bool(heavy[mine].any()):
                rest.append(c)
        return rest

    def _attempt(self, chosen: list[int]) -> State | None:
        """All of these cells at once; None if that is too much for a group, or too large."""
        lines = np.array(
            [i for c in chosen for i in range(self.first[c], self.first[c + 1])], dtype=np.int64
        )
        lines = lines[np.diff(self.units.rows.indptr)[lines] > 0]
        if lines.size == 0:
            return self.state
        X = sparse.csr_array(self.units.rows[lines])
        sets, wide = components(X)
        # A weight as small as noise could hide in the span of the cells beside it.
        if any(each.size > 1 and bool(self.units.wild[lines[each]].any()) for each in sets):
            return None
        # Most cells share nothing with others: all of them are one piece.
        alone = [each for each in sets if each.size == 1]
        tied = [each for each in sets if each.size > 1]
        sets = [*alone, *tied]
        made = [orthonormal(X, some, self.memory) for some in (alone, *([t] for t in tied)) if some]
        if not made or min(least for _, least in made) <= self.state.faint:
            return None
        parts = tuple(tuple(self.parts[lines[i]] for i in each) for each in sets)
        sizes = [1] * len(alone) + [rows.shape[0] for rows, _ in made[bool(alone) :]]
        rows = sparse.csr_array(sparse.vstack([rows for rows, _ in made], format="csr"))
        new = Blocks(rows, np.repeat(np.arange(len(sets)), sizes), parts)
        blocks, carried = _joined(self.state.blocks, new)
        dense = [*self.state.dense, *carried]
        behind = [self.parts[lines[i]] for i in wide]
        if len(dense) + len(behind) > len(self.state.dense) + MOST_DENSE:
            return None
        self.rebuilt += len(dense) + len(behind)
        found = self.state.rebuilt(blocks, dense, behind)
        if found is not None:
            found.added = [self.parts[i] for i in lines]
        return found

    def _one_by_one(self, state: State, rest: list[int]) -> State:
        made = state.fork()
        made.added, made.cap = list(state.added), state.cap
        for c in rest:
            self.admitted[c] = made.take(self.cells[c])
        return made

    def _halves(self, rest: list[int]) -> State:
        """Halves until they fit."""
        state, stack = self.state.fork(), [rest]
        taken: list[int] = []
        for _ in range(MOST_TRIALS):
            if not stack or self.rebuilt > MOST_REBUILT:
                break
            some = stack.pop()
            made = self._attempt(taken + some)
            if made is not None:
                state, taken = made, taken + some
            elif len(some) > 1:
                stack += [some[len(some) // 2 :], some[: len(some) // 2]]
        if stack:
            state.cap = "answers"
        self.admitted[taken] = True
        return state


def _joined(old: Blocks | None, new: Blocks) -> tuple[Blocks, list[Part]]:
    """Old and new blocks side by side, and parts of old ones that meet the new: they go behind."""
    if old is None:
        return new, []
    size = max(old.rows.shape[1], new.rows.shape[1])
    before = widened(old.rows, size)
    touched = np.zeros(size, dtype=np.bool_)
    touched[new.rows.indices] = True
    row = np.repeat(np.arange(before.shape[0]), np.diff(before.indptr))
    mixed = np.zeros(len(old.parts), dtype=np.bool_)
    mixed[old.component[row[touched[before.indices]]]] = True
    left = before - (before @ new.rows.T) @ new.rows
    open_ = np.sqrt(np.asarray(left.multiply(left).sum(axis=1))) > SPAN
    needed = np.zeros(len(old.parts), dtype=np.bool_)
    needed[old.component[open_]] = True
    carried = [part for i in np.flatnonzero(mixed & needed) for part in old.parts[i]]
    apart = np.flatnonzero(~mixed)
    number = np.cumsum(~mixed) - 1
    rows = np.flatnonzero(~mixed[old.component])
    stacked = sparse.vstack([before[rows], new.rows], format="csr")
    component = np.concatenate([number[old.component[rows]], apart.size + new.component])
    return (
        Blocks(
            sparse.csr_array(stacked),
            component,
            (*(old.parts[i] for i in apart), *new.parts),
        ),
        carried,
    )


# -- sparse rows, orthonormal without fill-in ----------------------------------------


def noise(atoms: int) -> float:
    """What rounding alone leaves of a unit vector that lies in the span, with room to spare."""
    return EPSILON * (64 + math.sqrt(atoms))


def components(units: sparse.csr_array) -> tuple[list[Ints], Ints]:
    """Sets of few rows that share no atom with one another, and the wide rows left over.

    A total ties all cells of a ROLLUP together: where a set is too large, its widest rows go.
    """
    rows, atoms = units.shape
    lengths = np.diff(units.indptr)
    kept: Ints = np.arange(rows, dtype=np.int64)
    while True:
        part = sparse.csr_array(units[kept])
        line = np.repeat(np.arange(kept.size), np.diff(part.indptr))
        ties = sparse.coo_array(
            (np.ones(part.nnz, dtype=np.int8), (line, kept.size + part.indices)),
            shape=(kept.size + atoms, kept.size + atoms),
        )
        label = csgraph.connected_components(ties.tocsr(), directed=False)[1][: kept.size]
        names, owner, counts = np.unique(label, return_inverse=True, return_counts=True)
        # A few rows over much of the table are not sparse once they are orthogonal.
        wide = (counts[owner] > 1) & (8 * lengths[kept] > atoms)
        if not wide.any():
            large = counts[owner] > TOGETHER
            if not large.any():
                break
            wide = large & (lengths[kept] > np.median(lengths[kept[large]]))
            wide = wide if wide.any() else large
        kept = kept[~wide]
    order = np.argsort(owner, kind="stable")
    sets = np.split(kept[order], np.cumsum(counts)[:-1]) if names.size else []
    return sets, np.setdiff1d(np.arange(rows), kept)


def orthonormal(
    units: sparse.csr_array, sets: list[Ints], memory: Memory
) -> tuple[sparse.csr_array, float]:
    """Orthonormal sparse rows of all sets; ``memory`` saves doing a set twice."""
    alone = np.array([part[0] for part in sets if part.size == 1], dtype=np.int64)
    pieces = [sparse.csr_array(units[alone])]
    faintest = 1.0
    for part in sets:
        if part.size == 1:
            continue
        cut = sparse.csr_array(units[part])
        key = cut.indptr.tobytes() + cut.indices.tobytes() + cut.data.tobytes()
        if key not in memory:
            atoms = np.unique(cut.indices).astype(np.int64)
            memory[key] = (*_few(cut[:, atoms].toarray(), atoms),)
        Q, atoms, least = memory[key]
        faintest = min(faintest, least)
        rows, columns = np.nonzero(Q)
        pieces.append(
            sparse.csr_array(
                (Q[rows, columns], (rows, atoms[columns])), shape=(len(Q), units.shape[1])
            )
        )
    return sparse.csr_array(sparse.vstack(pieces, format="csr")), faintest


def _few(X: Floats, atoms: Ints) -> tuple[Floats, Ints, float]:
    """Gram and Schmidt, twice, over a few rows; the smallest residual that counted as new.

    A direction is known no better than those that were taken away from it, so errors grow from
    row to row.  A residual that they reach is neither new nor in the span: then it is 0.
    """
    Q = np.empty((0, X.shape[1]))
    errors = np.empty(0)  # of the rows of Q
    least, faintest = noise(X.shape[1]), 1.0
    for x in X:
        along = np.abs(Q @ x)
        for _ in range(3):
            x = x - (Q @ x) @ Q
        left = float(np.linalg.norm(x))
        error = max(least, float(along @ errors))
        if left <= min(error, MOST):
            continue
        faintest = min(faintest, left if error <= KNOWN * left else 0.0)
        Q = np.concatenate([Q, x[np.newaxis] / left])
        errors = np.append(errors, error / left)
    return Q, atoms, faintest
