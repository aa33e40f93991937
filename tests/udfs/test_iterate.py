"""EM climbs, keeps totals, and is slow: as the papers have it, and said so."""

from __future__ import annotations

import numpy as np
import pytest

from tests.udfs.likelihood import log_likelihood
from udfs.errors import KernelError
from udfs.iterate import accelerated, certificate, expectation_maximisation
from udfs.kron import Array, Kron, retention_factor, transition
from udfs.mle import maximum_likelihood


def binary(k: int, retention: float = 0.5) -> Kron:
    return transition([retention_factor(retention, [0.6, 0.4])] * k)


def drawn(seed: int, kron: Kron, groups: int, rows: int = 400) -> Array:
    rng = np.random.default_rng(seed)
    chances = kron.rows(rng.dirichlet(np.full(kron.size, 0.3), groups))
    return rng.multinomial(rows, chances / chances.sum(axis=1, keepdims=True)).astype(float)


def test_one_round_is_the_papers_formula() -> None:
    kron = transition([retention_factor(0.3, [0.2, 0.3, 0.5]), [[0.8, 0.2], [0.3, 0.7]]])
    y = np.array([5.0, 0.0, 7.0, 1.0, 2.0, 9.0])
    a, x = kron.dense, np.array([1.0, 2.0, 3.0, 6.0, 8.0, 4.0])
    expected = np.zeros(6)
    for p in range(6):
        for q in range(6):
            expected[p] += y[q] * a[p, q] * x[p] / sum(a[r, q] * x[r] for r in range(6))
    found = expectation_maximisation(y, kron, limit=1, tolerance=0, start=x)
    np.testing.assert_allclose(found.estimate, expected, rtol=1e-12)
    assert found.rounds == 1
    assert not found.converged


def test_em_never_falls_and_keeps_the_total() -> None:
    kron = binary(3)
    counts = drawn(1, kron, 20)
    before = np.full(20, -np.inf)
    for limit in range(1, 60):
        answer = expectation_maximisation(counts, kron, tolerance=0, limit=limit)
        now = log_likelihood(counts, answer.estimate, kron)
        assert (now >= before - 1e-9).all()
        np.testing.assert_allclose(answer.estimate.sum(axis=1), 400)
        before = now


def test_the_papers_start_freezes_empty_states() -> None:
    """Reconstruction 9.11: x0 = y cannot give a row to a state that nobody was published in."""
    weights = np.array([[0.6, 0.2, 0.2, 0.0], [0.0, 0.5, 0.5, 0.0]]) * 900
    matrix = transition([[[0.2, 0.8], [0.9, 0.1]], [[0.9, 0.1], [0.2, 0.8]]])
    stuck = expectation_maximisation(weights, matrix, start="observed", limit=20_000)
    free = expectation_maximisation(weights, matrix, start="uniform", limit=20_000)
    assert (stuck.estimate[weights == 0] == 0).all()
    assert (free.gap < 1e-4).all()
    assert (stuck.gap > 1e-2).any()  # it stopped moving, and is not the maximum
    assert stuck.converged.all()


def test_em_crawls_where_inversion_is_exact() -> None:
    """Reconstruction 4: at p = .5, k = 3, stopping early leaves a visible part of n."""
    kron = binary(3)
    original = np.array([300.0, 20.0, 40.0, 10.0, 60.0, 15.0, 25.0, 530.0])
    counts = kron.rows(original)
    exact = maximum_likelihood(counts, kron)
    assert exact.inverted
    few = expectation_maximisation(counts, kron, tolerance=0, limit=20)
    many = expectation_maximisation(counts, kron, tolerance=0, limit=2000)
    assert np.abs(few.estimate - original).sum() > 0.01 * 1000
    assert np.abs(many.estimate - original).sum() < np.abs(few.estimate - original).sum() / 10
    assert few.gap > 1e-4
    np.testing.assert_allclose(exact.estimate, original, rtol=1e-10)


def test_its_stopping_rule_is_not_optimality() -> None:
    kron = binary(3, retention=0.2)
    counts = drawn(2, kron, 10)
    answer = expectation_maximisation(counts, kron, tolerance=1e-3)
    assert answer.converged.all()
    assert (answer.gap > 1e-8).all()
    np.testing.assert_allclose(answer.gap, certificate(counts, answer.estimate, kron))


def test_limit_reached_is_said() -> None:
    kron = binary(3)
    answer = expectation_maximisation(drawn(3, kron, 4), kron, limit=3)
    assert not answer.converged.any()
    assert (answer.rounds == 3).all()


def test_groups_do_not_disturb_each_other() -> None:
    kron = binary(2)
    counts = drawn(4, kron, 30)
    counts[7] = 0
    together = expectation_maximisation(counts, kron, tolerance=1e-6)
    assert len(set(together.rounds.tolist())) > 3
    assert together.rounds[7] == 0
    assert together.converged[7]
    for group in range(30):
        alone = expectation_maximisation(counts[group], kron, tolerance=1e-6)
        assert abs(int(alone.rounds) - int(together.rounds[group])) <= 1
        np.testing.assert_allclose(alone.estimate, together.estimate[group], atol=1e-3)


def test_states_beyond_a_dense_matrix() -> None:
    """Above 512 states the product goes axis by axis; the answer is the same."""
    kron = transition([retention_factor(0.7, [0.5, 0.5])] * 10)
    counts = drawn(5, kron, 2, rows=3000)
    found = expectation_maximisation(counts, kron, tolerance=0, limit=3)
    x = np.full((2, 1024), 3000 / 1024)
    for _ in range(3):
        x = x * ((counts / (x @ kron.dense)) @ kron.dense.T)
    np.testing.assert_allclose(found.estimate, x, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("k", "retention"), [(2, 0.5), (3, 0.5), (4, 0.3)])
def test_acceleration_reaches_the_certificate(k: int, retention: float) -> None:
    kron = binary(k, retention)
    counts = drawn(6, kron, 10)
    answer = accelerated(counts, kron, tolerance=1e-8, limit=50_000)
    assert answer.converged.all()
    assert (certificate(counts, answer.estimate, kron) <= 1.01e-8).all()
    best = log_likelihood(counts, maximum_likelihood(counts, kron).estimate, kron)
    found = log_likelihood(counts, answer.estimate, kron)
    assert (best - found <= 400 * 1e-8 + 1e-9).all()


def test_acceleration_needs_far_fewer_rounds() -> None:
    kron = binary(3)
    counts = drawn(7, kron, 10)
    fast = accelerated(counts, kron, tolerance=1e-6, limit=50_000)
    slow = expectation_maximisation(counts, kron, tolerance=0, limit=int(fast.rounds.max()))
    assert (fast.gap <= 1e-6).all()
    assert np.median(slow.gap) > 10 * np.median(fast.gap)


def test_acceleration_never_falls() -> None:
    kron = binary(4, retention=0.2)
    counts = drawn(8, kron, 5)
    before = np.full(5, -np.inf)
    for limit in range(1, 120, 3):
        answer = accelerated(counts, kron, tolerance=0, limit=limit)
        now = log_likelihood(counts, answer.estimate, kron)
        assert (now >= before - 1e-9).all()
        np.testing.assert_allclose(answer.estimate.sum(axis=1), 400)
        before = now


def test_starts() -> None:
    kron = binary(1)
    counts = np.array([[45.0, 55.0], [10.0, 20.0]])
    given = expectation_maximisation(counts, kron, start=[1.0, 3.0], limit=0)
    np.testing.assert_allclose(given.estimate, [[25, 75], [7.5, 22.5]])
    with pytest.raises(KernelError, match="uniform"):
        expectation_maximisation(counts, kron, start="somewhere")  # type: ignore[arg-type]
    with pytest.raises(KernelError, match="empty"):
        expectation_maximisation(counts, kron, start=[0.0, 0.0])
    with pytest.raises(KernelError, match="shape"):
        expectation_maximisation(counts, kron, start=np.ones((3, 2)))
    with pytest.raises(KernelError, match="finite"):
        accelerated(counts, kron, start=[np.nan, 1.0])


def test_a_start_that_rules_out_what_was_seen() -> None:
    """Rows that the start calls impossible: no warning, no NaN, and a gap that says it."""
    kron = transition([[[1.0, 0.0], [0.5, 0.5]]])
    answer = expectation_maximisation([1e9, 1e9], kron, start=[1.0, 0.0])
    assert np.isfinite(answer.estimate).all()
    assert answer.gap == np.inf
