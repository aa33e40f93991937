from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from examples.papers.fine_utility import aggregate_utility, record_utility
from privsql.channels import FineGrain
from privsql.errors import ChannelError
from privsql.publish.perturb.finegrain import (
    NO_CONCERN,
    gammas,
    optimal_retentions,
    theta_rhos,
)

EXAMPLE = [(1 / 10, 1 / 7), (1 / 10, 1 / 4), (1 / 9, 19 / 35), (1 / 8, 18 / 25)]


def full_program(gamma, frequencies, sides, floor=0.0):
    """The program as printed: m (m-1) rows for each side, solved by HiGHS."""
    m, rows, bounds = len(gamma), [], []
    for i in range(m):
        for j in range(m):
            if i == j:
                continue
            up = np.zeros(m)
            up[i] += m - 1
            up[j] += gamma[i]
            rows.append(up)
            bounds.append(gamma[i] - 1)
            if sides == "both":
                down = np.zeros(m)
                down[j] += m - 1
                down[i] += gamma[i]
                rows.append(down)
                bounds.append(gamma[i] - 1)
    return linprog(
        -np.asarray(frequencies, float),
        A_ub=np.array(rows),
        b_ub=np.array(bounds),
        bounds=[(floor, 1)] * m,
        method="highs",
    )


def assert_optimal(gamma, f, sides, floor=0.0):
    p = optimal_retentions(gamma, f, sides=sides, floor=floor)
    assert (p >= floor).all()
    assert (p <= 1).all()
    matrix, m = p * np.eye(len(p)) + ((1 - p) / len(p))[:, None], len(p)
    for i in range(m):
        for j in range(m):
            if i != j:
                assert matrix[i, i] <= gamma[i] * matrix[j, i] + 1e-9
                if sides == "both":
                    assert matrix[j, j] <= gamma[i] * matrix[i, j] + 1e-9
    slow = full_program(gamma, f, sides, floor)
    assert slow.status == 0
    assert p @ np.asarray(f) == pytest.approx(-slow.fun, abs=1e-7 * sum(f))


@pytest.mark.parametrize("sides", ["both", "upward"])
def test_equals_the_full_program(sides):
    rng = np.random.default_rng(7)
    for case in range(300):
        m = int(rng.integers(2, 13))
        gamma = 1 + np.exp(rng.normal(0, 1.5, m))
        f = rng.dirichlet(np.full(m, rng.choice([0.1, 1.0, 10.0])))
        if case % 3 == 0:  # ties in gamma and in f
            gamma = rng.choice([1.2, 2.0, 5.0, m - 1.0 if m > 2 else 3.0, 40.0], m)
            f = rng.choice([0.0, 1.0, 2.0], m) + 1e-3 * (case % 2) + (np.arange(m) == 0)
        largest = ((gamma - 1) / (m - 1 + gamma)).min()
        assert_optimal(gamma, f, sides, floor=[0.0, 0.4, 1.0][case % 3] * largest)


@given(
    values=st.lists(
        st.tuples(st.sampled_from([1.001, 1.5, 2, 3, 7, 1e3]), st.sampled_from([0, 1, 2, 30])),
        min_size=2,
        max_size=6,
    ),
    sides=st.sampled_from(["both", "upward"]),
)
def test_equals_the_full_program_on_ties(values, sides):
    gamma, f = np.array(values, float).T
    assert_optimal(gamma, f + (f.sum() == 0), sides)


@pytest.mark.parametrize("sides", ["both", "upward"])
def test_a_dominating_value_rises_above_its_own_uniform_retention(sides):
    gamma, f = np.array([4.0, 3.0, 3.0, 3.0]), [0.97, 0.01, 0.01, 0.01]
    p = optimal_retentions(gamma, f, sides=sides)
    assert p[0] > (gamma[0] - 1) / (3 + gamma[0])
    assert_optimal(gamma, f, sides)


def test_worked_example():
    gamma, f = gammas(EXAMPLE), [0.25] * 4
    np.testing.assert_allclose(gamma, [1.5, 3, 9.5, 18])
    up = optimal_retentions(gamma, f, sides="upward")
    np.testing.assert_allclose(up, [0, 1 / 3, 1 / 3, 1 / 3], atol=1e-12)
    assert record_utility(f, up) == pytest.approx(0.4375)
    both = optimal_retentions(gamma, f)
    np.testing.assert_allclose(both, [0, 1 / 6, 1 / 6, 1 / 6], atol=1e-12)
    assert record_utility(f, both) == pytest.approx(0.34375)
    uniform = optimal_retentions([gamma.min()] * 4, f, sides="upward")
    assert record_utility(f, uniform) == pytest.approx(1 / 3)
    gain = record_utility(f, up) / record_utility(f, uniform) - 1
    assert gain == pytest.approx(0.3125)  # section 9.5: not the paper's 24%


def test_the_papers_program_lets_a_posterior_fall():
    # Section 9.5: rho1 = .1, rho2 = 1/7 on SARS; a prior of 1/7 must not fall below .1.
    gamma, prior = gammas(EXAMPLE), np.array([1 / 7, 6 / 7, 0, 0])

    def lowest(sides):
        channel = FineGrain(optimal_retentions(gamma, [1] * 4, sides=sides)).matrix
        return (prior[0] * channel[0] / (prior @ channel)).min()

    assert lowest("upward") == pytest.approx(1 / 13)
    assert lowest("upward") < 0.1
    assert lowest("both") >= 0.1 - 1e-12


@given(seed=st.integers(0, 2**32 - 1))
def test_two_sided_retentions_keep_every_posterior_within_its_rhos(seed):
    rng = np.random.default_rng(seed)
    m = int(rng.integers(2, 7))
    rhos = [tuple(np.sort(rng.uniform(0.02, 0.98, 2))) for _ in range(m)]
    p = optimal_retentions(gammas(rhos), rng.dirichlet(np.ones(m)))
    channel = p * np.eye(m) + ((1 - p) / m)[:, None]
    for i, (low, high) in enumerate(rhos):
        for at, holds in ((low, lambda q, h=high: q <= h + 1e-9),
                          (high, lambda q, w=low: q >= w - 1e-9)):  # fmt: skip
            for _ in range(5):
                rest = np.insert(rng.dirichlet(np.full(m - 1, 0.2)), i, 0)
                prior = at * (np.arange(m) == i) + (1 - at) * rest
                assert holds(prior[i] * channel[i] / (prior @ channel)).all()


@pytest.mark.parametrize("m", [2, 4, 46])
@pytest.mark.parametrize("gamma", [1.5, 3.0, 45.0, 400.0])
def test_equal_gammas_and_frequencies_give_the_uniform_operator(m, gamma):
    p = optimal_retentions([gamma] * m, [1 / m] * m, sides="upward")
    np.testing.assert_allclose(p, (gamma - 1) / (m - 1 + gamma))
    both = optimal_retentions([gamma] * m, [1 / m] * m)
    np.testing.assert_allclose(both, (gamma - 1) / (m - 1 + gamma))


def test_floor():
    gamma, f = gammas(EXAMPLE), [1, 1, 1, 1]
    p = optimal_retentions(gamma, f, floor=0.05)
    assert p.min() == 0.05
    assert_optimal(gamma, f, "both", 0.05)
    FineGrain(p)
    np.testing.assert_allclose(optimal_retentions(gamma, f, floor=1 / 9), 1 / 9)
    with pytest.raises(ChannelError) as caught:
        optimal_retentions(gamma, f, floor=0.12)
    assert "0.111" in str(caught.value)
    optimal_retentions(gamma, f, floor=0.111)


@pytest.mark.parametrize("largest", [0.9994, 0.111, 0.1, 0.0123456, 1e-5, 3.3e-9])
def test_the_floor_offered_works(largest):
    m = 3
    gamma = (1 + (m - 1) * largest) / (1 - largest)  # u = largest
    with pytest.raises(ChannelError) as caught:
        optimal_retentions([gamma] * m, [1] * m, floor=largest * 1.01)
    offered = float(str(caught.value.hint).split(" works is ")[1].split(",")[0])
    assert 0.98 * largest < offered
    optimal_retentions([gamma] * m, [1] * m, floor=offered)


def test_deterministic_and_frequency_zero_is_kept_too():
    gamma = [2.0, 2.0, 2.0, 5.0, 5.0]
    p = optimal_retentions(gamma, [0, 0, 0, 1, 1])
    np.testing.assert_array_equal(p, optimal_retentions(gamma, [0, 0, 0, 1, 1]))
    np.testing.assert_array_equal(p[:3], p[0])
    p = optimal_retentions(gamma, [1, 1, 1, 0, 0])
    assert (p > 0).all()
    # Counts and shares are the same thing.
    np.testing.assert_allclose(p, optimal_retentions(gamma, [7, 7, 7, 0, 0]))


def test_of_several_optima_the_evenest():
    # m = 3, upward, gamma = 2: S(t) is flat between u_0 and the reach of value 0.
    gamma, m = np.array([2.0, 8.0, 8.0]), 3
    f = np.array([2.0, 1.0, 1.0])  # slope after u_0: 2 - 2 * gamma_0/(m-1) = 0
    p = optimal_retentions(gamma, f, sides="upward")
    np.testing.assert_allclose(p, (gamma[0] - 1) / (m - 1 + gamma[0]))
    assert_optimal(gamma, f, "upward")


def test_one_value_is_kept():
    assert optimal_retentions([3.0], [1.0]).tolist() == [1.0]


def test_theta_rule():
    f = np.array([0.5, 0.25, 0.15, 0.1, 0.0])
    rhos = theta_rhos(f, 2.0)
    assert rhos[0] is None
    assert rhos[1:4] == [(0.25, 0.5), (0.15, 0.3), (0.1, 0.2)]
    found = gammas(rhos)
    assert found[0] == NO_CONCERN
    np.testing.assert_allclose(found[1:4], 2 * (1 - f[1:4]) / (1 - 2 * f[1:4]))
    assert found[4] == pytest.approx(2.0)
    fine = optimal_retentions(found, f, sides="upward")
    uniform = (found.min() - 1) / (len(f) - 1 + found.min())
    assert record_utility(f, fine) > record_utility(f, [uniform] * 5)
    assert theta_rhos([0.6, 0.3, 0.1], 1 / 0.3)[:2] == [None, None]
    for theta in (1.0, 0.5, float("nan"), 1e12):
        with pytest.raises(ChannelError):
            theta_rhos(f, theta)


def test_no_concern_at_all_keeps_nearly_everything():
    assert optimal_retentions([NO_CONCERN] * 3, [1, 1, 1]).min() > 0.999999
    huge = optimal_retentions([1e300] * 3, [1, 1, 1])
    np.testing.assert_array_equal(huge, optimal_retentions([NO_CONCERN] * 3, [1, 1, 1]))


@pytest.mark.parametrize("sides", ["both", "upward"])
def test_large_domains_take_no_time(sides):
    m = 1346
    f = 1 / np.arange(1, m + 1)
    rhos = theta_rhos(f, 5.0)
    began = time.process_time()
    p = optimal_retentions(gammas(rhos), f, sides=sides)
    assert time.process_time() - began < 2
    assert record_utility(f, p) > 1 / m


def test_utilities():
    assert record_utility([1, 3], [1.0, 0.0]) == pytest.approx(0.25 + 0.75 / 2)
    assert aggregate_utility([0.2, 0.8], [0.2, 0.8]) == 1


@pytest.mark.parametrize(
    ("gamma", "f", "options"),
    [
        ([1.0, 2.0], [1, 1], {}),
        ([2.0, float("inf")], [1, 1], {}),
        ([2.0, float("nan")], [1, 1], {}),
        ([2.0, 2.0], [1, 1, 1], {}),
        ([2.0, 2.0], [0, 0], {}),
        ([2.0, 2.0], [-1, 2], {}),
        ([], [], {}),
        (["a", "b"], [1, 1], {}),
        ([2.0, 2.0], [1, 1], {"sides": "down"}),
        ([2.0, 2.0], [1, 1], {"floor": -0.1}),
        ([2.0, 2.0], [1, 1], {"floor": 1.1}),
        ([2.0], [1], {"floor": 1.1}),
    ],
)
def test_refused(gamma, f, options):
    with pytest.raises(ChannelError):
        optimal_retentions(gamma, f, **options)


def test_rhos_refused():
    with pytest.raises(ChannelError):
        gammas([])
    with pytest.raises(ChannelError):
        gammas([(0.5, 0.2)])
