"""Cells worked out column by column: the same as over all states, cell after cell."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pytest

from tests.sizes import sized
from udfs import variance
from udfs.axiswise import effective
from udfs.axiswise.program import Program, Published
from udfs.axiswise.solve import First, Solved, solve
from udfs.errors import InputError, KernelError
from udfs.invert import estimate
from udfs.kron import Kron

ALL = First(np.array([], dtype=np.intp), 0, True)
SUMS = 3


@dataclass(frozen=True)
class Question:
    """A program, and the same over all states: sums ``(SUMS, groups, states)``, and so on."""

    program: Program
    sums: np.ndarray
    functions: list[np.ndarray]
    classes: list[np.ndarray]  # of each wanted class, where it is


def channel(rng: np.random.Generator, size: int) -> np.ndarray:
    """Uniform replacement, replacement by shares, or any matrix."""
    kind = rng.integers(3)
    if kind == 0:
        return 0.5 * np.eye(size) + 0.5 / size
    if kind == 1:
        return 0.6 * np.eye(size) + 0.4 * rng.dirichlet(np.ones(size))
    made = rng.random((size, size)) + 4 * np.eye(size)
    return made / made.sum(axis=1, keepdims=True)


def labels_of(rng: np.random.Generator, size: int) -> np.ndarray | None:
    """Classes of a column: each of its cells, some together, or none at all."""
    kind = rng.integers(3)
    if kind == 0:
        return None
    labels = rng.integers(0, 2, size) if kind == 1 else rng.permutation(size)
    return np.unique(labels, return_inverse=True)[1].reshape(-1)


def question(rng: np.random.Generator) -> Question:
    """Three columns, some groups, pieces that are functions of one, some or all columns."""
    sizes = [int(size) for size in rng.integers(2, 6, 3)]
    kron = Kron([channel(rng, size) for size in sizes])
    groups = int(rng.integers(1, 5))
    shape = SUMS, groups, kron.size
    sums = np.where(rng.random(shape) < 0.5, rng.integers(1, 20, shape), 0).astype(float)
    owner, state = np.nonzero(sums.any(axis=0))
    order = rng.permutation(len(owner))
    owner, state = owner[order], state[order]
    cells = np.unravel_index(state, sizes)
    published = Published(
        tuple(each.astype(np.intp) for each in cells),
        owner,
        groups,
        tuple(each[owner, state] for each in sums),
    )
    labels = tuple(labels_of(rng, size) for size in sizes)
    keyed = [each for each in labels if each is not None]
    wanted = np.array(list(itertools.product(*(range(each.max() + 1) for each in keyed))))
    wanted = wanted.reshape(-1 if keyed else 1, len(keyed)).astype(np.intp)
    # Not all of them, in any order.
    wanted = rng.permutation(wanted)[: max(1, len(wanted) - 1)]

    def function(size: int) -> np.ndarray | None:
        kind = rng.integers(4)
        if kind == 0:
            return rng.normal(size=size)
        return rng.integers(0, 2, size).astype(float) if kind == 1 else None

    functions = tuple(tuple(map(function, sizes)) for _ in range(3))
    program = Program(
        published,
        kron,
        labels,
        wanted,
        functions,
        np.array([[0, 1, 2], [1, 1, 1], [2, 0, 1]]),
        np.array([[0, 0, 0, 0, 1], [0, 1, 0, 1, 2], [1, 2, 1, 2, 0], [2, 2, 1, 0, 0]]),
        np.full(3, -1),
        (None, None, None),
    )
    places = np.unravel_index(np.arange(kron.size), sizes)
    whole = [np.ones(kron.size) for _ in functions]
    for t, x in itertools.product(range(3), range(3)):
        own = functions[t][x]
        if own is not None:
            whole[t] = whole[t] * own[places[x]]
    on = [x for x in range(3) if labels[x] is not None]
    classes = []
    for row in wanted:
        inside = np.ones(kron.size)
        for x, label in zip(on, row, strict=True):
            own = labels[x]
            assert own is not None
            inside = inside * (own[places[x]] == label)
        classes.append(inside)
    return Question(program, sums, whole, classes)


def by_states(asked: Question) -> Solved:
    """Cell after cell, by the kernels that have a list over all states."""
    program, kron = asked.program, asked.program.kron
    names = ("estimate", "observed", "second", "fourth", "mass", "covariance")
    found: dict[str, list[list[float]]] = {name: [] for name in names}
    groups, classes = range(program.published.groups), range(len(program.wanted))
    for g, c in itertools.product(groups, classes):
        inside = asked.classes[c]
        row: dict[str, list[float]] = {name: [] for name in names}
        for own, (products, squares, fourths) in zip(asked.functions, program.pieces, strict=True):
            f, y = own * inside, asked.sums[:, g]
            row["estimate"].append(float(estimate(y[products], f, kron)))
            row["observed"].append(float(y[products] @ f))
            both = variance.weights(y[squares], y[fourths], f, kron)
            row["second"].append(float(both[0]))
            row["fourth"].append(float(both[1]))
            row["mass"].append(np.nan)
        for t, u, over_all, products, squares in program.pairs:
            one, two = asked.functions[t] * inside, asked.functions[u] * (1 if over_all else inside)
            y = asked.sums[:, g]
            shared = variance.covariance(y[products], y[squares], one, two, kron)
            row["covariance"].append(float(shared))
        for name in names:
            found[name].append(row[name])
    arrays = {name: np.array(rows).T for name, rows in found.items()}
    group = np.repeat(np.arange(program.published.groups), len(program.wanted))
    wanted = np.tile(np.arange(len(program.wanted)), program.published.groups)
    return Solved(group, wanted, **arrays)


NAMES = ("group", "wanted", "estimate", "observed", "second", "fourth", "mass", "covariance")


@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("room", [effective.MOST_ENTRIES, 8])
def test_cells_are_what_lists_over_states_say(part, room, monkeypatch):
    """However many groups and classes are worked out at once."""
    for module in ("effective", "solve"):
        monkeypatch.setattr(f"udfs.axiswise.{module}.MOST_ENTRIES", room)
    rng = np.random.default_rng(part)
    for _ in range(sized(6, 200)):
        asked = question(rng)
        one, two = solve(asked.program, ALL), by_states(asked)
        for name in NAMES:
            a, b = getattr(one, name), getattr(two, name)
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-7, err_msg=name)


@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize("room", [effective.MOST_ENTRIES, 8])
def test_first_cells_are_those_of_the_whole(descending, room, monkeypatch):
    monkeypatch.setattr("udfs.axiswise.solve.MOST_ENTRIES", room)
    rng = np.random.default_rng(5)
    for _ in range(sized(15, 400)):
        asked = question(rng)
        whole = solve(asked.program, ALL)
        count = int(rng.integers(1, 6))
        few = solve(asked.program, First(np.array([0, 1]), count, descending))
        total = whole.estimate[0] + whole.estimate[1]
        ordered = np.sort(-total if descending else total)
        last = ordered[min(count, len(ordered)) - 1]
        kept = (-total if descending else total) <= last + 1e-9
        # All that tie with the last one are there, and nothing else but what rounding lets tie.
        assert len(few.group) >= min(count, len(total))
        place = few.group * len(asked.program.wanted) + few.wanted
        assert set(place) <= set(np.flatnonzero(kept))
        for name in NAMES:
            a, b = getattr(few, name), getattr(whole, name)
            np.testing.assert_allclose(a, b[..., place], rtol=1e-12, err_msg=name)


def test_ties_with_the_last_cell_are_all_there():
    published = Published((np.array([0, 1, 2, 2]),), np.array([0, 0, 0, 1]), 2, (np.full(4, 7.0),))
    labels = np.arange(4)
    program = Program(
        published, Kron([np.eye(4)]), (labels,), labels[:, None], ((None,),),
        np.array([[0, -1, -1]]), np.zeros((0, 5), dtype=np.intp), np.array([-1]), (None,),
    )  # fmt: skip
    few = solve(program, First(np.array([0]), 2, True))
    assert few.estimate.tolist() == [[7.0] * 4]
    assert list(zip(few.group.tolist(), few.wanted.tolist(), strict=True)) == [
        (0, 0), (0, 1), (0, 2), (1, 2),
    ]  # fmt: skip
    assert len(solve(program, First(np.array([0]), 9, True)).group) == 8


@pytest.mark.parametrize("groups", [0, 2])
def test_a_list_of_groups_alone_has_no_sums(groups):
    state = np.arange(groups)
    published = Published((state,), state, groups, ())
    none = np.zeros((0, 3), dtype=np.intp), np.zeros((0, 5), dtype=np.intp)
    wanted = np.arange(2)[:, None]
    program = Program(
        published, Kron([np.eye(2)]), (np.arange(2),), wanted, (), *none, np.array([]), (None,)
    )
    found = solve(program, ALL)
    assert list(zip(found.group.tolist(), found.wanted.tolist(), strict=True)) == [
        (group, label) for group in range(groups) for label in range(2)
    ]
    assert found.estimate.shape == found.mass.shape == found.covariance.shape == (0, 2 * groups)


@pytest.mark.parametrize("part", range(4))
def test_without_a_published_row_there_is_no_cell(part):
    asked = question(np.random.default_rng(part)).program
    none = np.array([], dtype=np.intp)
    sums = tuple(np.array([]) for _ in range(SUMS))
    program = asked.on(Published((none,) * 3, none, 0, sums))
    for first in (ALL, First(np.array([0, 1]), 3, True)):
        found = solve(program, first)
        assert found.group.shape == found.wanted.shape == (0,)
        assert found.estimate.shape == found.second.shape == (3, 0)
        assert found.covariance.shape == (4, 0)


def test_masses_are_those_of_the_scored_column():
    masses = np.array([0.5, 0.3, 0.2])
    published = Published((np.array([0]), np.array([1])), np.array([0]), 1, (np.ones(1),))
    program = Program(
        published,
        Kron([0.5 * np.eye(3) + 0.5 * masses, np.eye(2)]),
        (np.array([0, 1, 1]), None),
        np.array([[1], [0]]),
        ((np.array([0.0, 1.0, 1.0]), None), (None, np.array([1.0, 0.0]))),
        np.zeros((2, 3), dtype=np.intp),
        np.zeros((0, 5), dtype=np.intp),
        np.array([0, -1]),
        (masses, None),
    )
    assert program.mass(0).tolist() == [0.5, 0.0]
    assert np.isnan(program.mass(1)).all()


def test_what_cannot_be_is_refused():
    published = Published((np.array([0]),), np.array([0]), 1, (np.ones(1),))
    rest = (np.zeros((1, 3), dtype=np.intp), np.zeros((0, 5), dtype=np.intp), np.array([-1]))
    with pytest.raises(KernelError, match="label"):
        Program(published, Kron([np.eye(2)]), (np.arange(3),), np.array([[0]]), ((None,),), *rest,
                (None,))  # fmt: skip
    with pytest.raises(KernelError, match="function"):
        Program(published, Kron([np.eye(2)]), (None,), np.zeros((1, 0)), ((np.ones(3),),), *rest,
                (None,))  # fmt: skip
    # Two columns that can be inverted each, but not together.
    nearly = np.array([[0.5 + 1e-7, 0.5 - 1e-7], [0.5 - 1e-7, 0.5 + 1e-7]])
    both = Published((np.array([0]),) * 2, np.array([0]), 1, (np.ones(1),))
    hopeless = Program(both, Kron([nearly] * 2), (None, None), np.zeros((1, 0), dtype=np.intp),
                       ((np.array([0.0, 1.0]), None),), *rest, (None, None))  # fmt: skip
    with pytest.raises(InputError, match="condition number"):
        solve(hopeless, ALL)
