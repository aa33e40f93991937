"""Constrained likelihood: certified, never below EM or scipy, the same alone and together."""

from __future__ import annotations

import gc
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

import udfs.iterate
import udfs.mle
import udfs.newton
from tests.udfs.likelihood import log_likelihood
from udfs.errors import KernelError
from udfs.iterate import System, accelerated, certificate, expectation_maximisation, system_of
from udfs.kron import Array, Kron, retention_factor, transition
from udfs.mle import fill_retention, maximum_likelihood, retention_form
from udfs.newton import quick_one, solve_one, solve_together

TOLERANCE = 1e-10


def binary(k: int, retention: float = 0.5, mass: float = 0.5) -> Kron:
    return transition([retention_factor(retention, [1 - mass, mass])] * k)


def published(rng: np.random.Generator, kron: Kron, rows: int, concentration: float) -> Array:
    """Observed counts of skewed original shares, drawn as publishing draws them."""
    shares = rng.dirichlet(np.full(kron.size, concentration))
    chances = kron.rows(shares)
    return rng.multinomial(rows, chances / chances.sum()).astype(float)


def infeasible(
    rng: np.random.Generator, kron: Kron, rows: int, concentration: float = 0.1
) -> Array:
    for _ in range(1000):
        counts = published(rng, kron, rows, concentration)
        if kron.inverse.rows(counts).min() < 0:
            return counts
    raise AssertionError("no infeasible case was drawn")


def random_factor(rng: np.random.Generator, m: int) -> Array:
    kind = rng.integers(5)
    if kind == 0:
        retention = float(rng.choice([0.05, 0.2, 0.5, 0.9, 1 - 1e-6]))
        return retention_factor(retention, rng.dirichlet(np.ones(m)))
    if kind == 1:
        keep = rng.uniform(0.05, 0.95, m)  # fine-grain, FINE eq. 1
        return np.diag(keep) + ((1 - keep) / m)[:, None]
    if kind == 2:
        return 0.7 * np.eye(m) + 0.3 * np.roll(np.eye(m), 1, axis=1)  # zeros in the channel
    if kind == 3:
        return rng.dirichlet(np.full(m, 0.5), m)
    masses = rng.dirichlet(np.ones(m))
    masses[0] = 0.0
    return retention_factor(0.3, masses / masses.sum())


def check(counts: Array, kron: Kron, **options: Any) -> udfs.iterate.Likelihood:
    """An answer with everything that must hold of any answer."""
    answer = maximum_likelihood(counts, kron, **options)
    totals = np.sum(counts, axis=-1)
    assert answer.estimate.shape == np.shape(counts)
    assert answer.gap.shape == answer.rounds.shape == answer.converged.shape == totals.shape
    assert (answer.estimate >= 0).all()
    np.testing.assert_allclose(answer.estimate.sum(axis=-1), totals, rtol=1e-12)
    assert answer.converged.all(), answer.gap
    assert (answer.gap <= TOLERANCE).all()
    # The gap that was reported is the gap of what was returned.
    assert (certificate(counts, answer.estimate, kron) <= TOLERANCE + 1e-13).all()
    return answer


# --- the certificate itself


def test_certificate_bounds_what_is_missing() -> None:
    rng = np.random.default_rng(3)
    kron = transition([random_factor(rng, 3), retention_factor(0.4, [0.3, 0.7])])
    counts = published(rng, kron, 500, 0.3)
    best = log_likelihood(counts, maximum_likelihood(counts, kron).estimate, kron)
    for _ in range(200):
        other = rng.dirichlet(np.full(kron.size, 0.5)) * 500
        missing = best - log_likelihood(counts, other, kron)
        assert -1e-7 <= missing <= 500 * certificate(counts, other, kron) + 1e-7


def test_certificate_is_first_order_not_a_belief() -> None:
    kron = binary(2)
    counts = np.array([90.0, 10.0, 20.0, 0.0])
    answer = maximum_likelihood(counts, kron).estimate
    moved = answer + np.array([-1.0, 0.5, 0.5, 0.0])
    assert certificate(counts, answer, kron) < 1e-12
    assert certificate(counts, moved, kron) > 1e-4


def test_certificate_where_an_observed_state_is_impossible() -> None:
    kron = transition([[[1.0, 0.0], [0.5, 0.5]]])
    assert certificate([3.0, 1.0], [4.0, 0.0], kron) == np.inf
    assert log_likelihood([3.0, 1.0], [4.0, 0.0], kron) == -np.inf


def test_certificate_scales_its_estimate() -> None:
    kron, counts = binary(1), np.array([45.0, 55.0])
    np.testing.assert_allclose(
        certificate(counts, [1.0, 1.0], kron), certificate(counts, [50.0, 50.0], kron), rtol=1e-12
    )


# --- one retention-replacement column


@pytest.mark.parametrize("retention", [0.05, 0.3, 0.7, 1.0])
def test_formula_agrees_with_the_general_solver(retention: float) -> None:
    rng = np.random.default_rng(int(retention * 100))
    for m in (2, 3, 7, 20):
        masses = rng.dirichlet(np.ones(m))
        kron = transition([retention_factor(retention, masses)])
        counts = np.stack([published(rng, kron, rows, 0.2) for rows in (1, 5, 50, 5000)])
        filled = fill_retention(counts, retention, masses)
        assert (certificate(counts, filled, kron) < 1e-11).all()
        system = System(kron)
        for row, expected in zip(counts, filled, strict=True):
            start = np.maximum(row @ np.linalg.inv(kron.dense), 0)
            shares = row / row.sum()
            if np.allclose(expected, row @ np.linalg.inv(kron.dense)):
                continue  # inversion: the interior method is for the others
            found, gap, _ = solve_one(
                shares, start / start.sum(), float(start.sum() / row.sum() - 1), system, 1e-12, 100
            )
            assert gap <= 1e-12
            np.testing.assert_allclose(found * row.sum(), expected, atol=1e-6 * row.sum())


def test_formula_by_hand() -> None:
    # p = 1/2, q = (1/2, 1/4, 1/4), y = (10, 30, 60): value 0 is empty, nu = .9/.75 = 1.2.
    np.testing.assert_allclose(
        fill_retention([10, 30, 60], 0.5, [0.5, 0.25, 0.25]), [0, 25, 75], atol=1e-12
    )


def test_formula_with_values_that_are_never_drawn() -> None:
    counts = np.array([[5.0, 0.0, 0.0, 7.0], [0.0, 0.0, 9.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    masses = [0.0, 0.0, 0.5, 0.5]
    filled = fill_retention(counts, 0.4, masses)
    kron = transition([retention_factor(0.4, masses)])
    assert (filled[counts == 0] == 0).all()
    assert (certificate(counts, filled, kron) < 1e-12).all()
    np.testing.assert_allclose(filled.sum(axis=1), [12, 9, 0])


def test_formula_keeps_everything_at_retention_one() -> None:
    counts = [3.0, 0.0, 5.0]
    np.testing.assert_allclose(fill_retention(counts, 1.0, [0.2, 0.3, 0.5]), counts)


def test_formula_is_what_one_column_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(udfs.mle, "system_of", _refuse)
    rng = np.random.default_rng(0)
    masses = rng.dirichlet(np.ones(1200))
    kron = Kron([retention_factor(0.2, masses)])
    answer = check(rng.multinomial(4000, masses, size=3).astype(float), kron)
    assert (answer.rounds == 0).all()


def _refuse(*_: object) -> None:
    raise AssertionError("this path must not be taken")


def test_retention_form_is_recognised() -> None:
    found = retention_form(Kron([retention_factor(0.3, [0.2, 0.3, 0.5])]))
    assert found is not None
    np.testing.assert_allclose(found[0], 0.3)
    np.testing.assert_allclose(found[1], [0.2, 0.3, 0.5])
    identity = retention_form(Kron([np.eye(3)]))
    assert identity is not None
    assert identity[0] == 1
    fine = np.diag([0.2, 0.5, 0.8]) + (np.array([0.8, 0.5, 0.2]) / 3)[:, None]
    assert retention_form(Kron([fine])) is None
    assert retention_form(binary(2)) is None
    swapped = Kron([[[0.2, 0.8], [0.9, 0.1]]])  # retention -.7: publishing lies more than not
    assert retention_form(swapped) is None
    check(np.array([90.0, 10.0]), swapped)


# --- inversion


def test_inversion_is_returned_where_it_is_feasible() -> None:
    rng = np.random.default_rng(1)
    kron = binary(3)
    original = rng.uniform(5, 50, (20, 8))
    counts = kron.rows(original)
    answer = check(counts, kron)
    assert answer.inverted.all()
    assert (answer.rounds == 0).all()
    np.testing.assert_allclose(answer.estimate, original, rtol=1e-12)
    alone = check(counts[0], kron)
    assert alone.inverted
    np.testing.assert_allclose(alone.estimate, original[0], rtol=1e-12)


def test_inversion_with_rounding_below_zero_is_accepted_and_cut() -> None:
    kron = binary(3, retention=0.3)
    original = np.array([40.0, 0.0, 0.0, 1e6, 0.0, 3.0, 0.0, 0.0])
    counts = kron.rows(original)
    assert kron.inverse.rows(counts).min() < 0  # rounding
    for given_counts in (counts, np.stack([counts, counts])):
        answer = check(given_counts, kron)
        assert np.all(answer.inverted)
        assert np.abs(answer.estimate - original).max() < 1e-6


def test_cutting_is_not_called_inversion_when_it_costs() -> None:
    """Slightly negative is rounding only if the certificate says so."""
    kron = binary(3, retention=0.3)
    original = np.array([-8e-10, 0.2, 0.1, 0.1, 0.3, 0.1, 0.1, 0.1])
    counts = kron.rows(original) * 1e6
    cut = np.maximum(kron.inverse.rows(counts), 0)
    assert certificate(counts, cut, kron) > TOLERANCE
    for given_counts in (counts, np.stack([counts, counts])):
        assert not check(given_counts, kron).inverted.any()


def test_inversion_is_not_claimed_where_it_is_infeasible() -> None:
    rng = np.random.default_rng(2)
    kron = binary(3)
    counts = infeasible(rng, kron, 300)
    answer = check(counts, kron)
    assert not answer.inverted
    assert answer.rounds > 0
    assert (answer.estimate == 0).any()  # exactly, not a small rest of an interior point


def test_a_matrix_without_a_usable_inverse_still_has_a_likelihood() -> None:
    kron = transition([retention_factor(1e-4, [0.5, 0.5])] * 4)
    assert not kron.condition < 1e12
    rng = np.random.default_rng(4)
    check(rng.multinomial(500, np.full(16, 1 / 16)).astype(float), kron)
    check(rng.multinomial(500, np.full(16, 1 / 16), size=5).astype(float), kron)


# --- certified whatever comes


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    seed=st.integers(0, 2**32 - 1),
    sizes=st.lists(st.sampled_from([2, 2, 2, 3, 4, 6]), min_size=0, max_size=4),
    rows=st.sampled_from([1.0, 3.0, 40.0, 1e3, 1e6, 1e9, 0.37]),
    style=st.sampled_from(["drawn", "fractions", "zeros", "one state"]),
    groups=st.sampled_from([None, 1, 4]),
)
def test_every_answer_is_certified(
    seed: int, sizes: list[int], rows: float, style: str, groups: int | None
) -> None:
    rng = np.random.default_rng(seed)
    kron = Kron([random_factor(rng, m) for m in sizes])
    if not kron.condition < 1e9 or kron.size > 128:
        return
    shape = (kron.size,) if groups is None else (groups, kron.size)
    if style == "drawn":
        chances = np.maximum(kron.rows(rng.dirichlet(np.full(kron.size, 0.1), groups)), 0)
        chances /= chances.sum(axis=-1, keepdims=True)
        counts = rng.multinomial(max(int(rows), 1), chances).astype(float)
    elif style == "one state":
        counts = np.zeros(shape)
        counts[..., rng.integers(kron.size)] = rows
    else:
        counts = rng.gamma(0.2, 1.0, shape) + 1e-12
        if style == "zeros":
            counts *= rng.random(shape) < 0.5
            counts[..., 0] += 1e-6
        counts *= rows
    check(counts, kron)


@pytest.mark.parametrize(
    ("k", "m", "retention", "rows"),
    [
        (4, 2, 0.05, 3000),
        (8, 2, 0.5, 20_000),
        (9, 2, 0.2, 5000),
        (2, 16, 0.3, 2000),
        (3, 8, 0.95, 300),
    ],
)
def test_hard_sizes(k: int, m: int, retention: float, rows: int) -> None:
    rng = np.random.default_rng(k * m)
    kron = transition(
        [retention_factor(retention, rng.dirichlet(np.full(m, 5.0))) for _ in range(k)]
    )
    answer = check(infeasible(rng, kron, rows), kron)
    assert 0 < answer.rounds < 40


# Two groups found by a random sweep, on which Mehrotra's method alone goes round in circles.
CYCLING = [
    (
        [
            [[0.531, 0.469], [0.521, 0.479]],
            [[0.606, 0.394], [0.394, 0.606]],
            [[0.899, 0.101], [0.008, 0.992]],
        ],
        [70, 25, 29, 14, 53, 26, 35, 18],
    ),
    (
        [
            [[0.380, 0.620], [0.180, 0.820]],
            0.784 * np.eye(4) + 0.054,
            [[0.903, 0.097], [0.196, 0.804]],
        ],
        [7, 20, 16, 24, 3, 12, 2, 2, 28, 83, 29, 44, 10, 30, 5, 9],
    ),
]


@pytest.mark.parametrize(("factors", "counts"), CYCLING)
def test_small_products_are_lifted(
    factors: list[Any], counts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the lift these cycle, and then a restart certifies them."""
    monkeypatch.setattr(udfs.newton, "QUICK_STATES", 0)
    system = System(transition(factors))
    assert system.inverse is not None
    y = np.array(counts) / sum(counts)
    start = np.maximum(y @ system.inverse, 0)
    spill = float(start.sum()) - 1
    start /= 1 + spill

    def rounds() -> list[tuple[int, bool]]:
        _, gap, made = solve_one(y, start, spill, system, TOLERANCE, 100)
        _, gaps, many = solve_together(
            y[:, None], start[:, None], np.array([spill]), system, TOLERANCE, 100
        )
        return [(made, gap <= TOLERANCE), (int(many[0]), bool(gaps[0] <= TOLERANCE))]

    assert all(made < 12 and certified for made, certified in rounds())
    monkeypatch.setattr(udfs.newton, "CENTRAL", 0.0)
    assert all(30 <= made < 50 and certified for made, certified in rounds())
    monkeypatch.setattr(udfs.newton, "RESTART", 1000)
    assert all(made == 100 and not certified for made, certified in rounds())


def test_interior_answers_have_exact_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(udfs.mle, "QUICK", 1)  # leaves nearly all to the interior rounds
    rng = np.random.default_rng(17)
    kron = binary(4)
    counts = np.stack([infeasible(rng, kron, 300) for _ in range(200)])
    estimate = check(counts, kron).estimate
    assert (estimate == 0).any(axis=1).mean() > 0.95
    assert (estimate[estimate > 0] < 1e-9).mean() < 0.05


def test_many_groups_of_each_layout_are_certified() -> None:
    rng = np.random.default_rng(7)
    for shape in ([2], [2, 2], [3, 2], [2, 2, 2], [4, 4], [3, 3, 2], [5, 5]):
        kron = transition([retention_factor(0.3, rng.dirichlet(np.full(m, 4.0))) for m in shape])
        shares = rng.dirichlet(np.full(kron.size, 0.2), 400)
        counts = rng.multinomial(rng.integers(1, 400, 400), kron.rows(shares) * (1 - 1e-12))
        check(counts.astype(float), kron)


# --- against others


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), k=st.integers(1, 3), rows=st.sampled_from([20, 400, 10**6]))
def test_never_below_em(seed: int, k: int, rows: int) -> None:
    rng = np.random.default_rng(seed)
    kron = transition([random_factor(rng, int(rng.integers(2, 4))) for _ in range(k)])
    counts = published(rng, kron, rows, 0.2)
    ours = log_likelihood(counts, maximum_likelihood(counts, kron).estimate, kron)
    em = expectation_maximisation(counts, kron, tolerance=0, limit=5000)
    assert ours >= log_likelihood(counts, em.estimate, kron) - 1e-9 * rows


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), zeros=st.booleans())
def test_never_below_scipy(seed: int, zeros: bool) -> None:
    rng = np.random.default_rng(seed)
    kron = transition([random_factor(rng, int(rng.integers(2, 4))) for _ in range(2)])
    counts = published(rng, kron, 200, 0.3)
    if zeros:
        counts[rng.integers(kron.size)] = 0
    rows = counts.sum()
    if rows == 0:
        return
    shares = counts / rows

    def height(x: Array) -> float:
        mu = np.maximum(kron.rows(x), 1e-12)
        return -float(shares @ np.log(mu))

    def slope(x: Array) -> Array:
        return -kron.columns(shares / np.maximum(kron.rows(x), 1e-12))

    with np.errstate(all="ignore"):
        other = minimize(
            height,
            np.full(kron.size, 1 / kron.size),
            jac=slope,
            method="SLSQP",
            bounds=[(0, 1)] * kron.size,
            constraints={"type": "eq", "fun": lambda x: x.sum() - 1, "jac": np.ones_like},
            options={"ftol": 1e-14, "maxiter": 500},
        )
    theirs = np.maximum(other.x, 0)
    theirs *= rows / theirs.sum()
    ours = maximum_likelihood(counts, kron).estimate
    assert log_likelihood(counts, ours, kron) >= log_likelihood(counts, theirs, kron) - 1e-9 * rows


def test_agrees_with_scipy_where_scipy_is_good() -> None:
    kron = binary(2)
    counts = np.array([70.0, 5.0, 20.0, 25.0])
    other = minimize(
        lambda x: -float(counts @ np.log(kron.rows(x))),
        np.full(4, 30.0),
        jac=lambda x: -kron.columns(counts / kron.rows(x)),
        method="SLSQP",
        bounds=[(0, None)] * 4,
        constraints={"type": "eq", "fun": lambda x: x.sum() - 120},
        options={"ftol": 1e-15, "maxiter": 500},
    )
    np.testing.assert_allclose(maximum_likelihood(counts, kron).estimate, other.x, atol=1e-3)


def test_newton_and_accelerated_em_agree() -> None:
    rng = np.random.default_rng(9)
    kron = binary(3, retention=0.6)
    counts = infeasible(rng, kron, 500)
    em = accelerated(counts, kron, tolerance=1e-9, limit=100_000)
    assert em.converged
    np.testing.assert_allclose(maximum_likelihood(counts, kron).estimate, em.estimate, atol=0.01)


# --- batches


@pytest.mark.parametrize("shape", [[2, 2], [2, 2, 2], [4, 4], [3, 3, 3]])
def test_together_equals_one_by_one(shape: list[int]) -> None:
    rng = np.random.default_rng(sum(shape))
    kron = transition([retention_factor(0.4, rng.dirichlet(np.full(m, 4.0))) for m in shape])
    counts = np.stack([published(rng, kron, int(rows), 0.3) for rows in rng.integers(5, 900, 60)])
    together = check(counts, kron)
    assert not together.inverted.all()
    for group, row in enumerate(counts):
        alone = check(row, kron)
        assert alone.inverted == together.inverted[group]
        difference = np.abs(alone.estimate - together.estimate[group]).max()
        assert difference <= 1e-5 * row.sum()


def test_interior_rounds_together_equal_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The conveyor alone, without quick steps before it and with fewer places than groups."""
    monkeypatch.setattr(udfs.newton, "QUICK_STATES", 0)
    monkeypatch.setattr(udfs.newton, "CACHED", 1)
    rng = np.random.default_rng(11)
    kron = binary(3)
    system = system_of(kron)
    y = np.stack([infeasible(rng, kron, 200, 0.5) for _ in range(300)]).T / 200
    assert system.inverse is not None
    start = np.maximum(system.inverse.T @ y, 0)
    spill = start.sum(axis=0) - 1
    start /= 1 + spill
    x, gap, rounds = solve_together(y, start, spill, system, TOLERANCE, 100)
    assert (gap <= TOLERANCE).all()
    assert rounds.min() > 0
    for group in range(0, 300, 7):
        alone, _, made = solve_one(
            y[:, group], start[:, group], float(spill[group]), system, TOLERANCE, 100
        )
        assert abs(made - rounds[group]) <= 5
        np.testing.assert_allclose(x[:, group], alone, atol=1e-6)


def test_quick_steps_promise_nothing_they_did_not_reach() -> None:
    rng = np.random.default_rng(5)
    kron = transition([retention_factor(0.05, [0.5, 0.5])] * 4)
    system = system_of(kron)
    assert system.inverse is not None
    refused = 0
    for _ in range(30):
        y = infeasible(rng, kron, 3000) / 3000
        start = np.maximum(y @ system.inverse, 0)
        x, gap, _ = quick_one(y, start / start.sum(), system, TOLERANCE, steps=3)
        refused += gap > TOLERANCE
        np.testing.assert_allclose(gap, certificate(y, x, kron), atol=1e-9)
    assert refused > 0


def test_empty_groups_and_leading_axes() -> None:
    kron = binary(2)
    counts = np.zeros((3, 2, 4))
    counts[1, 1] = [90, 10, 20, 0]
    answer = check(counts, kron)
    assert answer.estimate.shape == (3, 2, 4)
    np.testing.assert_allclose(answer.estimate[1, 1], [120, 0, 0, 0], atol=1e-6)
    assert answer.estimate.sum() == pytest.approx(120)
    assert not answer.inverted[0, 0]
    assert (check(np.zeros(4), kron).estimate == 0).all()
    assert maximum_likelihood(np.zeros((0, 4)), kron).estimate.shape == (0, 4)


def test_no_sensitive_column() -> None:
    answer = check(np.array([[7.0], [0.0]]), Kron([]))
    np.testing.assert_array_equal(answer.estimate, [[7.0], [0.0]])


def test_scale_invariance() -> None:
    rng = np.random.default_rng(6)
    kron = binary(4, retention=0.3)
    counts = infeasible(rng, kron, 400)
    once = maximum_likelihood(counts, kron).estimate
    for scale in (1e-6, 0.1, 3.0, 1e7):
        np.testing.assert_allclose(
            maximum_likelihood(counts * scale, kron).estimate, once * scale, atol=1e-6 * 400 * scale
        )


def test_the_hessian_by_columns_is_the_dense_one() -> None:
    rng = np.random.default_rng(8)
    used = 0
    for shape in ([2] * 6, [3, 4, 5], [2, 2, 9, 2], [8, 8], [64]):
        kron = Kron([rng.dirichlet(np.ones(m), m) for m in shape])
        system = System(kron)
        used += bool(system.pairs)
        weights = rng.random(kron.size)
        expected = (kron.dense * weights) @ kron.dense.T
        np.testing.assert_allclose(system.hessian(weights), expected, rtol=1e-12)
    assert 0 < used < 5


def test_a_system_lives_as_long_as_its_matrix() -> None:
    before = len(udfs.iterate._systems)
    kron = binary(2)
    assert system_of(kron) is system_of(kron)
    assert len(udfs.iterate._systems) == before + 1
    del kron
    gc.collect()
    assert len(udfs.iterate._systems) <= before


# --- honesty and refusals


def test_unconverged_is_said() -> None:
    rng = np.random.default_rng(10)
    kron = transition([retention_factor(0.05, [0.5, 0.5])] * 4)
    counts = np.stack([infeasible(rng, kron, 3000) for _ in range(3)])
    for some in (counts, counts[0]):
        answer = maximum_likelihood(some, kron, tolerance=-1.0, limit=3)
        assert not np.any(answer.converged)
        np.testing.assert_allclose(answer.estimate.sum(axis=-1), 3000)
        np.testing.assert_allclose(answer.gap, certificate(some, answer.estimate, kron))


def test_accelerated_em_takes_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(udfs.newton, "QUICK_STATES", 0)
    monkeypatch.setattr(udfs.newton, "CROSSING", 0.0)
    rng = np.random.default_rng(12)
    kron = binary(2)
    counts = infeasible(rng, kron, 60, 0.5)
    answer = maximum_likelihood(counts, kron, tolerance=1e-8, limit=1)
    assert answer.converged
    assert answer.gap <= 1e-8
    assert answer.rounds > 1


def test_too_many_states_for_a_dense_factor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(udfs.mle, "MOST_STATES", 4)
    monkeypatch.setattr(udfs.mle, "system_of", _refuse)
    rng = np.random.default_rng(13)
    kron = binary(3, retention=0.8)
    answer = maximum_likelihood(infeasible(rng, kron, 300), kron, tolerance=1e-8)
    assert answer.converged
    assert answer.gap <= 1e-8


@pytest.mark.parametrize("bad", [[1.0, -2.0, 3.0, 4.0], [1.0, np.nan, 1, 1], [np.inf, 1, 1, 1]])
def test_counts_that_mean_nothing_are_refused(bad: list[float]) -> None:
    for call in (maximum_likelihood, expectation_maximisation, accelerated):
        with pytest.raises(KernelError, match="finite and not negative") as caught:
            call(bad, binary(2))
        assert "2.0" not in str(caught.value)


def test_matrices_that_are_no_channel_are_refused() -> None:
    negative = Kron([[[1.2, -0.2], [0.3, 0.7]]])
    loose = Kron([[[0.5, 0.3], [0.3, 0.7]], [[0.9, 0.1], [0.1, 0.9]]])
    for call in (maximum_likelihood, expectation_maximisation, accelerated):
        with pytest.raises(KernelError, match="negative entry"):
            call([1.0, 2.0], negative)
        with pytest.raises(KernelError, match="sum to one"):
            call([1.0, 2.0, 3.0, 4.0], loose)


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(KernelError, match="4 states"):
        maximum_likelihood([1.0, 2.0], binary(2))
    with pytest.raises(KernelError, match="numbers"):
        maximum_likelihood(["a", "b", "c", "d"], binary(2))
    with pytest.raises(KernelError, match="retention"):
        fill_retention([1.0, 2.0], 0.0, [0.5, 0.5])
    with pytest.raises(KernelError, match="sum to one"):
        fill_retention([1.0, 2.0], 0.5, [0.5, 0.6])
    with pytest.raises(KernelError, match="vector"):
        fill_retention([1.0, 2.0], 0.5, [[0.5, 0.5]])
    with pytest.raises(KernelError, match="negative"):
        certificate([1.0, 2.0], [-1.0, 4.0], binary(1))


def test_the_input_is_left_alone() -> None:
    rng = np.random.default_rng(14)
    kron = binary(2)
    counts = np.stack([infeasible(rng, kron, 50, 0.5) for _ in range(5)])
    for given_counts, matrix in (
        (counts, kron),
        (counts[0], kron),
        (counts.reshape(-1, 1), Kron([])),
        (counts[:, :2], binary(1)),
    ):
        kept = given_counts.copy()
        maximum_likelihood(given_counts, matrix)
        expectation_maximisation(given_counts, matrix, limit=5)
        accelerated(given_counts, matrix, limit=5)
        np.testing.assert_array_equal(given_counts, kept)


def test_a_block_of_one_group_is_not_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its transpose is contiguous, so that no copy would be made of it by itself."""
    monkeypatch.setattr(udfs.mle, "SMALL", 4)
    rng = np.random.default_rng(16)
    kron = binary(2)
    counts = np.stack([infeasible(rng, kron, 50, 0.5) for _ in range(5)])
    kept = counts.copy()
    check(counts, kron)
    np.testing.assert_array_equal(counts, kept)


def test_more_likely_than_any_neighbour() -> None:
    """A direct look at the maximum, without gradients: moving a row loses likelihood."""
    rng = np.random.default_rng(15)
    kron = binary(2, retention=0.4)
    counts = infeasible(rng, kron, 300, 0.5)
    answer = maximum_likelihood(counts, kron).estimate
    best = log_likelihood(counts, answer, kron)
    for step in (1.0, 0.1):
        for here, there in pairwise([0, 1, 2, 3, 0, 2, 1, 3, 2, 0, 3, 1, 0]):
            if answer[here] >= step:
                moved = answer.copy()
                moved[here] -= step
                moved[there] += step
                assert log_likelihood(counts, moved, kron) < best
