"""Functions over classes of rows against the rows themselves."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from privsql.policy.functions import Atoms, Expressed, Function, Functions
from privsql.policy.within.classes import Classes
from tests.sizes import sized

Floats = NDArray[np.floating]

CLOSE = 1e-12


class Rows:
    """Rows with two measures."""

    def __init__(self, rng: np.random.Generator) -> None:
        atoms = int(rng.integers(2, 9))
        self.lengths = rng.integers(1, int(rng.choice([4, 60, 400])), atoms)
        self.atom = np.repeat(np.arange(atoms), self.lengths)
        size = self.atom.size
        self.times = rng.integers(1, 5, size).astype(np.float64)
        if rng.random() < 0.5:
            self.times = np.ones(size)
        counts = np.bincount(self.atom, self.times).astype(np.int64)
        self.cost = np.round(rng.gamma(2.0, 200.0, size), 2)
        self.day = 20_000.0 + rng.integers(0, 400, size)
        self.functions = Functions(Atoms(counts, np.arange(atoms)), self.lengths, self.times)

    def values(self, rng: np.random.Generator) -> NDArray[np.bool_] | Floats:
        """A condition, a weight, or both."""
        x, y = rng.choice(self.cost), rng.choice(self.day)
        conditions = [
            self.cost < x, self.cost >= x, self.cost == x, self.day < y,
            (self.cost < x) & (self.day >= y), self.cost >= 0, self.cost % 3 < 1,
        ]  # fmt: skip
        weights = [
            self.cost, self.cost * self.cost, self.day, self.day * self.day,
            self.cost - x, 3.0 * self.cost, self.cost * self.day, np.sqrt(self.cost),
        ]  # fmt: skip
        inside = conditions[int(rng.integers(len(conditions)))]
        if rng.random() < 0.5:
            return inside
        return np.asarray(weights[int(rng.integers(len(weights)))] * inside)

    def inner(self, f: Floats, g: Floats) -> Floats:
        return np.bincount(self.atom, f * g * self.times, self.lengths.size)


def scaled(values: NDArray[np.bool_] | Floats) -> Floats:
    """As it is kept: with its largest near 1."""
    if values.dtype == np.bool_:
        return values.astype(np.float64)
    return np.ldexp(values, -int(np.frexp(np.abs(values).max())[1]))


@pytest.mark.parametrize("seed", range(sized(25, 2_000)))
def test_inner_products_are_those_of_rows(seed: int) -> None:
    rng = np.random.default_rng([31, seed])
    rows = Rows(rng)
    functions = rows.functions
    asked = [each for each in (rows.values(rng) for _ in range(25)) if each.any()]
    made = [(functions.add(values), scaled(values)) for values in asked]
    where, atoms = functions.where, rows.lengths.size
    assert (np.bincount(where, minlength=atoms) <= rows.lengths).all()
    for one, f in made:
        for two, g in made:
            assert isinstance(one, Function)
            assert isinstance(two, Function)
            # An indicator is kept as it is, whatever it is scaled by.
            n = min(one.coordinates.size, two.coordinates.size)
            ours = np.bincount(where[:n], one.coordinates[:n] * two.coordinates[:n], atoms)
            size = np.sqrt(rows.inner(f, f) * rows.inner(g, g))
            known = np.ones(atoms, dtype=np.bool_)
            for each in (one, two):
                known &= True if each.faint is None else ~each.faint
            error = np.abs(ours - rows.inner(f, g))
            assert (error[known] <= CLOSE * size[known]).all(), seed


@pytest.mark.parametrize("seed", range(sized(12, 1_000)))
def test_at_the_cap_functions_are_expressed_as_they_would_be_kept(seed: int) -> None:
    rng = np.random.default_rng([32, seed])
    rows = Rows(rng)
    functions = rows.functions
    for _ in range(8):
        functions.add(rows.values(rng))
    for _ in range(4):
        values = rows.values(rng)
        room, width, held = functions.most_bytes, functions.width, functions.held
        functions.most_bytes = held
        found = functions.add(values)
        assert (functions.width, functions.held) == (width, held)
        functions.most_bytes = room
        kept = functions.add(values)
        assert isinstance(kept, Function)
        if isinstance(found, Expressed):
            np.testing.assert_array_equal(found.known, kept.coordinates[:width])
            np.testing.assert_array_equal(np.flatnonzero(found.fresh), functions.where[width:])
            np.testing.assert_array_equal(
                found.fresh[functions.where[width:]], kept.coordinates[width:]
            )


def test_weights_are_found_again_and_made_longer() -> None:
    rng = np.random.default_rng(3)
    lengths = np.full(5, 40)
    classes = Classes(lengths, None)
    cost = rng.integers(1, 500, 200) / 512
    assert classes.weight(cost * (cost < 0.5)) == (1, 1.0, True)
    classes.extend(1, cost * (cost < 0.5))
    assert classes.weight(cost * (cost < 0.2)) == (1, 1.0, False)
    assert classes.weight(4 * cost * (cost < 0.2)) == (1, 4.0, False)
    assert classes.weight(-cost * (cost < 0.7)) == (1, -1.0, True)
    assert classes.weight(cost * cost) == (2, 1.0, True)
    classes.extend(1, cost)
    np.testing.assert_array_equal(classes.weights[0], cost)
    assert len(classes.weights) == 1


def test_weights_on_rows_of_their_own_are_one() -> None:
    """A sum for each month, scaled by its own largest value: one weight, that of the total."""
    rng = np.random.default_rng(3)
    month = rng.integers(0, 12, 4_000)
    cost = np.round(10.0 ** rng.uniform(-1, 3, 4_000) * (1 + month), 2)
    atom = np.sort(rng.integers(0, 20, 4_000))
    functions = Functions(Atoms(np.bincount(atom), np.arange(20)), np.bincount(atom))
    for k in range(12):
        functions.add(cost * (month == k))
        functions.add(cost * cost * (month == k))
    functions.add(cost)
    functions.add(cost * cost)
    assert functions._space is not None
    assert len(functions._space[0].weights) == 2
    # Too far apart to be held in one unit.
    functions.add(np.where(month == 1, 1e30 + cost, 0.0))
    functions.add(np.where(month == 2, 1e-30 * cost * np.sqrt(cost), 0.0))
    assert len(functions._space[0].weights) == 4
