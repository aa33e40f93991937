"""Variances against the expectation over every outcome of tiny tables."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies import channels, publish_states, seeds
from udfs.invert import estimate, invert, invert_function
from udfs.kron import Kron, retention_factor
from udfs.variance import (
    covariance,
    effective_rows,
    published_floor,
    variance,
    weights,
)


@dataclass
class Tiny:
    """A table of a few rows: original state and public values of each."""

    kron: Kron
    state: np.ndarray
    v: np.ndarray
    u: np.ndarray

    def outcomes(self):
        """Every published table with its chance."""
        matrix = self.kron.dense
        for published in product(range(self.kron.size), repeat=len(self.state)):
            chance = np.prod(matrix[self.state, published])
            if chance > 0:
                yield chance, np.array(published)

    def sums(self, published, values):
        return np.bincount(published, weights=values, minlength=self.kron.size)


@st.composite
def tinies(draw):
    rng = np.random.default_rng(draw(seeds))
    factors = draw(st.lists(channels(max_size=3).map(lambda c: c.matrix), min_size=1, max_size=2))
    kron = Kron(factors)
    rows = 3 if kron.size <= 9 else 2
    return (
        Tiny(
            kron, rng.integers(kron.size, size=rows), rng.normal(size=rows), rng.normal(size=rows)
        ),
        rng.normal(size=kron.size),
        rng.integers(0, 2, size=kron.size).astype(float),
    )


@settings(max_examples=40)
@given(case=tinies())
def test_covariance_is_unbiased_and_so_is_the_estimate(case):
    table, left, right = case
    chances, sums_v, sums_u, estimated = [], [], [], []
    for chance, published in table.outcomes():
        state_v = table.sums(published, table.v)
        state_u = table.sums(published, table.u)
        cross = table.sums(published, table.v * table.u)
        chances.append(chance)
        sums_v.append(estimate(state_v, left, table.kron))
        sums_u.append(estimate(state_u, right, table.kron))
        estimated.append(covariance(cross, cross, left, right, table.kron))
    weights, a, b = np.array(chances), np.array(sums_v), np.array(sums_u)
    assert weights.sum() == pytest.approx(1)
    assert weights @ a == pytest.approx((table.v * left[table.state]).sum(), abs=1e-6)
    truth = weights @ (a * b) - (weights @ a) * (weights @ b)
    assert weights @ np.array(estimated) == pytest.approx(truth, rel=1e-6, abs=1e-6)


@settings(max_examples=25)
@given(case=tinies())
def test_variance_of_sampled_and_weighted_rows_is_unbiased(case):
    """SPS: of the rows a simple random sample is published, each with weight W = all/kept.

    The estimate then has two sources of error; sum(W^2 G^2 - W H) covers both when rows
    are kept independently (a Bernoulli sample), which is what is enumerated here.
    """
    table, left, _ = case
    weight = 1.6
    chances, answers, estimated = [], [], []
    for kept in product([False, True], repeat=len(table.state)):
        mask = np.array(kept)
        luck = np.prod(np.where(mask, 1 / weight, 1 - 1 / weight))
        for chance, published in table.outcomes():
            part, value = published[mask], table.v[mask]
            first = np.bincount(part, weights=weight * value**2, minlength=table.kron.size)
            second = np.bincount(part, weights=(weight * value) ** 2, minlength=table.kron.size)
            total = np.bincount(part, weights=weight * value, minlength=table.kron.size)
            chances.append(luck * chance)
            answers.append(estimate(total, left, table.kron))
            estimated.append(variance(first, second, left, table.kron))
    weights, a = np.array(chances), np.array(answers)
    truth = weights @ a**2 - (weights @ a) ** 2
    assert weights @ a == pytest.approx((table.v * left[table.state]).sum(), abs=1e-6)
    assert weights @ np.array(estimated) == pytest.approx(truth, rel=1e-6, abs=1e-6)


@given(case=tinies(), seed=seeds)
def test_multiplicity_equals_repeated_rows(case, seed):
    table, left, _ = case
    rng = np.random.default_rng(seed)
    published = rng.integers(table.kron.size, size=5)
    times = rng.integers(1, 4, size=5)
    stored_once = np.bincount(published, weights=times, minlength=table.kron.size)
    repeated = np.bincount(np.repeat(published, times), minlength=table.kron.size)
    np.testing.assert_allclose(
        variance(stored_once, stored_once, left, table.kron),
        variance(repeated, repeated, left, table.kron),
    )


def test_covariance_of_states_against_simulation():
    rng = np.random.default_rng(7)
    a = Kron([retention_factor(0.5, [0.7, 0.3]), retention_factor(0.4, [0.5, 0.5])])
    original = np.array([4000, 1000, 2500, 2500])
    published = sum(
        rng.multinomial(n, row, size=40_000) for n, row in zip(original, a.dense, strict=True)
    )
    states = invert(published, a)
    unit = np.eye(4)
    estimated = [
        [covariance(published, published, one, other, a).mean() for other in unit] for one in unit
    ]
    np.testing.assert_allclose(states.mean(axis=0), original, rtol=0.01)
    np.testing.assert_allclose(estimated, np.cov(states.T), rtol=0.04, atol=500)


def test_variance_of_a_count_is_sum_of_squares_less_sum():
    a = Kron([retention_factor(0.5, [0.8, 0.2]), retention_factor(0.3, [0.6, 0.4])])
    counts, g = np.array([100.0, 30, 20, 10]), np.array([0.0, 0, 0, 1])
    weights = invert_function(g, a)
    assert variance(counts, counts, g, a) == pytest.approx(counts @ weights**2 - counts @ weights)


def test_nothing_perturbed_has_no_variance():
    a = Kron([np.eye(2)])
    assert variance([3.0, 4.0], [3.0, 4.0], [0, 1], a) == 0


def test_effective_rows_of_equal_weights_is_their_number():
    a = Kron([retention_factor(0.5, [0.5, 0.5])])
    # [1, -1] inverts to weights of one size, so every row counts fully.
    counts = np.array([50.0, 50.0])
    assert effective_rows(counts, counts, [1, -1], a) == pytest.approx(100)
    assert effective_rows([0.0, 0.0], [0.0, 0.0], [1, -1], a) == 0


def test_weights_of_independent_parts_add_up():
    a = Kron([retention_factor(0.5, [0.7, 0.3])] * 2)
    counts, g = np.array([[70.0, 20, 30, 10]] * 3), np.array([0.0, 0, 0, 1])
    second, fourth = weights(counts, counts, g, a)
    assert second.shape == fourth.shape == (3,)
    alone = effective_rows(counts[0], counts[0], g, a)
    assert second.sum() ** 2 / fourth.sum() == pytest.approx(3 * alone)


def test_weights_of_what_is_known_and_of_nothing_are_zero():
    a = Kron([retention_factor(0.5, [0.7, 0.3])])
    for counts, g in (([70.0, 30.0], [2.0, 2.0]), ([0.0, 0.0], [0.0, 1.0])):
        assert [float(part) for part in weights(counts, counts, g, a)] == [0, 0]


@pytest.mark.parametrize("function", [[0.0, 1.0], [3.0, -1.0]])
def test_weights_do_not_depend_on_what_other_aggregates_cut(function):
    """Another column, and a condition of another aggregate on the same one."""
    rng = np.random.default_rng(5)
    alone = Kron([retention_factor(0.4, [0.7, 0.3])])
    beside = Kron([retention_factor(0.4, [0.7, 0.1, 0.2]), retention_factor(0.3, [0.6, 0.4])])
    cut = [0, 1, 1]
    squares, fourths = (rng.integers(0, 30, (6, 3, 2)).astype(float) for _ in range(2))
    wide = np.repeat(np.array(function)[cut], 2)
    fine = weights(squares.reshape(6, 6), fourths.reshape(6, 6), wide, beside)
    sums = []
    for table in (squares, fourths):
        whole = np.zeros((6, 2))
        for cell, value in enumerate(cut):
            whole[:, value] += table[:, cell].sum(axis=-1)
        sums.append(whole)
    np.testing.assert_allclose(fine, weights(*sums, function, alone), rtol=1e-12)


def test_groups_may_have_functions_of_their_own():
    a = Kron([retention_factor(0.4, [0.7, 0.3])])
    counts = np.array([[70.0, 20.0], [30.0, 10.0], [5.0, 9.0]])
    functions = np.array([[0.0, 1.0], [2.0, 2.0], [0.0, 1.0]])
    together = weights(counts, counts, functions, a)
    alone = [weights(y, y, f, a) for y, f in zip(counts, functions, strict=True)]
    np.testing.assert_allclose(together, np.array(alone).T)
    rows = effective_rows(counts, counts, functions, a)
    assert rows[1] == np.inf
    np.testing.assert_allclose(
        rows[[0, 2]], effective_rows(counts[[0, 2]], counts[[0, 2]], [0, 1], a)
    )


def test_effective_rows_of_a_condition_and_of_its_negation_agree():
    a = Kron([retention_factor(0.5, [0.9, 0.1])] * 2)
    counts, every = np.array([700.0, 90, 80, 6]), np.array([0.0, 0, 0, 1])
    ours = effective_rows(counts, counts, every, a)
    assert ours == pytest.approx(effective_rows(counts, counts, 1 - every, a))
    assert ours < 20


def test_effective_rows_of_what_is_known_anyway_are_unlimited():
    a = Kron([retention_factor(0.5, [0.9, 0.1])] * 2)
    assert effective_rows([700.0, 90, 80, 6], [700.0, 90, 80, 6], [1, 1, 1, 1], a) == np.inf


def test_effective_rows_counts_a_heavy_state_that_is_never_drawn_as_a_replacement():
    """Mass 0: only rows that hold the value show it, and one kept row decides the answer."""
    a = Kron([retention_factor(0.5, [0.5, 0.5, 0.0])])
    counts = np.array([50.0, 50.0, 0.0])
    assert effective_rows(counts, counts, [0, 1, 100], a) < 2
    # The same with a heavy public value instead of a heavy state.
    b = Kron([[[1.0, 0.0], [0.5, 0.5]]])
    squares, fourths = np.array([1990 + 2e6, 0.0]), np.array([1990 + 2e12, 0.0])
    assert effective_rows(squares, fourths, [0, 1], b) < 20


def test_effective_rows_is_not_deceived_by_rare_heavy_states_that_were_not_seen():
    p, b, n, releases = 0.2, 0.01, 300, 2000
    rng = np.random.default_rng(11)
    a = Kron([retention_factor(p, [1 - b, b])] * 2)
    published = publish_states(rng, np.array([n, n, n, 0]) // 3, a.dense, releases)
    g = np.array([0.0, 0, 0, 1])
    weights = invert_function(g, a)
    answer = published @ weights
    spread = np.sqrt(np.maximum(published @ weights**2 - answer, 0))
    held = np.abs(answer) <= 1.96 * spread
    plain = (published @ weights**2) ** 2 / (published @ weights**4)
    assert (plain >= 20).mean() > 0.5, "the plain rule trusts most of these releases"
    assert held[plain >= 20].mean() < 0.05, "and nearly all of those intervals are wrong"
    ours = effective_rows(published, published, g, a)
    assert (ours >= 20).sum() == 0


def test_floor_is_the_least_chance_over_original_states():
    a = Kron([retention_factor(0.5, [0.7, 0.3]), [[0.8, 0.2], [0.1, 0.9]]])
    np.testing.assert_allclose(published_floor(a), a.dense.min(axis=0))
