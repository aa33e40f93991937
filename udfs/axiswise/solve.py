"""Estimates, covariances and effective rows of all cells of an answer, or of the first of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np

from udfs.axiswise.contraction import Contraction
from udfs.axiswise.effective import MOST_ENTRIES, Effective
from udfs.axiswise.program import Ints, Program
from udfs.kron import Array


@dataclass(frozen=True)
class First:
    """Only the first cells, by the sum of some pieces: so many, and all that tie with the last."""

    pieces: Ints
    count: int  # 0: all of them
    descending: bool


@dataclass(frozen=True)
class Solved:
    """Cells by group and class, and what is known of each: one row a piece or a pair."""

    group: Ints  # (cells,)
    wanted: Ints  # (cells,): which of the wanted classes
    estimate: Array  # (pieces, cells)
    observed: Array
    second: Array
    fourth: Array
    mass: Array
    covariance: Array  # (pairs, cells)


def solve(program: Program, first: First) -> Solved:
    """All cells, or the first of them, in the order of groups and classes."""
    if not first.count:
        return _joined([_all(part, at) for part, at in _parts(program)], program)
    group, wanted = _first(program, first)
    chosen = np.unique(group)
    if len(chosen) == 0:
        return _joined([], program)
    few = program.on(program.published.among(chosen))
    whole = _joined([_all(part, at) for part, at in _parts(few)], few)
    size = len(program.wanted)
    at = np.searchsorted(chosen, group) * size + wanted
    rest = {each.name: getattr(whole, each.name)[:, at] for each in fields(Solved)[2:]}
    return Solved(group, wanted, **rest)


def _parts(program: Program) -> Iterator[tuple[Program, int]]:
    """The program on so many groups at once as fit, and which is the first of them."""
    if not program.published.groups:
        return  # no published row fits
    published = program.published.sorted()
    cells = int(np.prod([len(program.kron.factors[x]) for x in program.keyed], dtype=np.int64))
    widest = max((_width(program, t) for t in range(len(program.functions))), default=1)
    most = max(1, MOST_ENTRIES // (cells * widest))
    if most >= published.groups:
        yield program.on(published), 0
        return
    for start in range(0, published.groups, most):
        stop = min(start + most, published.groups)
        yield program.on(published.of(start, stop)), start


def _width(program: Program, t: int) -> int:
    """Cells of the columns without keys that piece t is a function of."""
    sizes = [
        len(factor)
        for x, factor in enumerate(program.kron.factors)
        if x not in program.keyed and program.functions[t][x] is not None
    ]
    return int(np.prod(sizes, dtype=np.int64))


def _at(program: Program, found: Array) -> Array:
    """The wanted classes of what was worked out for all: ``(G, classes...)`` to ``(G, wanted)``."""
    if not program.keyed:
        return np.repeat(found[:, None], len(program.wanted), axis=1)
    made: Array = found[(slice(None), *program.wanted.T)]
    return made


def _all(program: Program, start: int) -> Solved:
    """All cells of some groups."""
    groups, classes = program.published.groups, len(program.wanted)
    contraction = Contraction(program)
    rows = Effective(program, contraction)
    pieces = range(len(program.functions))

    def stacked(made: Sequence[Array]) -> Array:
        # A list of groups alone has no piece, nor a pair.
        return np.array(made).reshape(len(made), groups * classes)

    def cells(found: Sequence[Array]) -> Array:
        return stacked([_at(program, each).ravel() for each in found])

    none = np.zeros(contraction.shape)
    weights = [rows.of(t) if program.effective else (none, none) for t in pieces]
    return Solved(
        np.repeat(np.arange(start, start + groups), classes),
        np.tile(np.arange(classes), groups),
        cells([contraction.sum_of(t, inverted=True) for t in pieces]),
        cells([contraction.sum_of(t, inverted=False) for t in pieces]),
        cells([second for second, _ in weights]),
        cells([fourth for _, fourth in weights]),
        stacked([np.tile(program.mass(t), groups) for t in pieces]),
        cells([contraction.covariance(pair) for pair in program.pairs]),
    )


def _joined(parts: Sequence[Solved], program: Program) -> Solved:
    if len(parts) == 1:
        return parts[0]
    if not parts:
        none, piece = np.empty(0, dtype=np.intp), np.empty((len(program.functions), 0))
        pair = np.empty((len(program.pairs), 0))
        return Solved(none, none, piece, piece, piece, piece, piece, pair)
    return Solved(
        *(
            np.concatenate([getattr(part, each.name) for part in parts], axis=-1)
            for each in fields(Solved)
        )
    )


def _first(program: Program, first: First) -> tuple[Ints, Ints]:
    """Groups and wanted classes of the first cells, and of those that tie with the last.

    Sums of the same numbers in another order tie as well: equal is equal to rounding.
    """
    groups: list[Ints] = []
    classes: list[Ints] = []
    values: list[Array] = []
    best = np.empty(0)
    for part, start in _parts(program):
        contraction = Contraction(part)
        whole = sum(contraction.sum_of(int(t), inverted=True) for t in first.pieces)
        found = _at(part, np.asarray(whole))
        if first.descending:
            found = -found
        best = np.concatenate([best, found.ravel()])
        if len(best) > first.count:
            best = np.partition(best, first.count - 1)[: first.count]
        group, wanted = np.nonzero(found <= _last(best, first.count))
        groups.append(group + start)
        classes.append(wanted)
        values.append(found[group, wanted])
    if not groups:
        return np.empty(0, dtype=np.intp), np.empty(0, dtype=np.intp)
    kept = np.concatenate(values) <= _last(best, first.count)
    return np.concatenate(groups)[kept], np.concatenate(classes)[kept]


def _last(best: Array, count: int) -> float:
    """The value that is last among the first, or all that there is."""
    return float(best.max() + 1e-9 * np.abs(best).max()) if len(best) >= count else np.inf
