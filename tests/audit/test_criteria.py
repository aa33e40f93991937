"""Breaches of one channel: the papers' figures, and a slow look at every prior."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import exp1, expi

from examples.papers.fine_utility import record_utility
from examples.papers.formulas import finegrain_check, laplace_ratio
from privsql.audit.criteria.amplification import (
    breach,
    gamma_for,
    identity_limit,
    reconstructible_rows,
    s_limit,
    s_limit_many,
    value_gammas,
)
from privsql.channels import FineGrain, Matrix, Replace, Uniform
from privsql.errors import ChannelError
from tests.channels.decoys import proportional

RHOS = [
    (1 / 10, 1 / 7),
    (1 / 10, 1 / 4),
    (1 / 9, 19 / 35),
    (1 / 8, 18 / 25),
]

CHANNELS = [
    Uniform(0.3, 5),
    Replace(0.4, [0.1, 0.2, 0.3, 0.4]),
    FineGrain([0.0, 0.3, 0.6, 0.1]),
    FineGrain([0.2, 0.9, 0.5]),
    Matrix([[0.6, 0.2, 0.2], [0.1, 0.8, 0.1], [0.25, 0.25, 0.5]]),
]


def safe(gamma: float, rho1: float, rho2: float) -> bool:
    """Whether (rho1, rho2) is safe, ``rho2 (1-rho1) / (rho1 (1-rho2)) >= gamma``."""
    return gamma <= gamma_for(rho1, rho2) * (1 + 1e-9)


def test_gammas_of_the_fine_grain_example():
    assert [gamma_for(*rho) for rho in RHOS] == pytest.approx([1.5, 3, 9.5, 18])
    assert math.log(gamma_for(0.1, 0.25)) == pytest.approx(math.log(3))


def test_constants_of_olap():
    assert s_limit(0.2, 0.1, 0.95) == pytest.approx(68)
    assert s_limit_many([0.2, 0.2], 0.1, 0.95) == pytest.approx(273.6)
    assert identity_limit(0.2, 0.95) == pytest.approx(0.9375)
    # A rare set (s < 1) of a uniform column: the same limit.
    assert s_limit(0.2, 0.9375, 0.95) == pytest.approx(1)


def test_utilities_of_the_fine_grain_example():
    fine = record_utility([1, 1, 1, 1], [0, 1 / 3, 1 / 3, 1 / 3])
    uniform = Uniform.from_gamma(1.5, 4)
    assert fine == 0.4375
    assert uniform.matrix[0, 0] == pytest.approx(1 / 3)
    # Section 9.5: the paper calls this gain 24%.
    assert fine / uniform.matrix[0, 0] - 1 == pytest.approx(0.3125)
    assert fine / uniform.matrix[0, 0] - 1 != pytest.approx(0.24, abs=0.05)


@pytest.mark.parametrize("rho", RHOS)
@pytest.mark.parametrize("m", [2, 4, 50])
def test_retentions_are_the_largest_that_keep_a_guarantee(rho, m):
    gamma = gamma_for(*rho)
    for p in (
        Uniform.from_rho(*rho, m).retention,
        Uniform.from_gamma(gamma, m).retention,
        Uniform.from_epsilon(math.log(gamma), m).retention,
    ):
        assert Uniform(p, m).gamma == pytest.approx(gamma)
        assert safe(Uniform(p, m).gamma, *rho)
        assert not safe(Uniform(p * 1.001, m).gamma, *rho)


@pytest.mark.parametrize("gamma", [1.0, 1.5, 3.0, 18.0, math.inf])
def test_breaches_go_both_ways_at_once(gamma):
    for rho1, rho2 in RHOS:
        up, down = breach(rho1, gamma), breach(rho2, gamma)
        assert up.low <= rho1 <= up.high
        assert (up.high <= rho2 + 1e-12) == (down.low >= rho1 - 1e-12) == safe(gamma, rho1, rho2)
    assert breach(0.0, gamma) == breach(0.0, 1.0)
    assert breach(1.0, gamma) == breach(1.0, 1.0)


def slow_posteriors(channel, value, prior, rng):
    """Posteriors of a value whose prior is fixed, over other priors and all published values."""
    m = channel.size
    others = [np.eye(m - 1)[k] for k in range(m - 1)]
    others += [rng.dirichlet(np.ones(m - 1)) for _ in range(20)]
    found = []
    for rest in others:
        full = np.insert(rest * (1 - prior), value, prior)
        joint = full[:, None] * channel.matrix
        seen = joint.sum(axis=0) > 0
        found += (joint[value, seen] / joint[:, seen].sum(axis=0)).tolist()
    return found


@pytest.mark.parametrize("channel", CHANNELS, ids=repr)
def test_value_gammas_bound_every_posterior_and_are_reached(channel):
    rng = np.random.default_rng(5)
    up, down = value_gammas(channel)
    assert max(up.max(), down.max()) == pytest.approx(channel.gamma)
    for value in range(channel.size):
        for prior in (0.02, 0.3, 0.9):
            found = slow_posteriors(channel, value, prior, rng)
            assert max(found) == pytest.approx(breach(prior, up[value]).high)
            assert min(found) == pytest.approx(breach(prior, down[value]).low)


def test_value_gammas_without_bounds():
    for channel in (proportional([10] * 6, 3), Replace(0.5, [1.0, 0.0])):
        assert np.isinf(value_gammas(channel)[0]).any()
    assert value_gammas(Uniform(0.5, 1))[0].tolist() == [1.0]


def test_the_papers_fine_grain_program_lets_a_belief_fall():
    """Section 9.5: a prior of 1/7 on the first value falls to 1/13, below rho1 = 1/10."""
    paper = FineGrain([0, 1 / 3, 1 / 3, 1 / 3])
    assert finegrain_check(paper, RHOS, sides="upward").all()
    assert finegrain_check(paper, RHOS).tolist() == [False, True, True, True]
    down = value_gammas(paper)[1]
    assert breach(1 / 7, down[0]).low == pytest.approx(1 / 13)
    lowest = min(slow_posteriors(paper, 0, 1 / 7, np.random.default_rng(1)))
    assert lowest == pytest.approx(1 / 13)
    assert lowest < RHOS[0][0]
    assert finegrain_check(FineGrain([0, 1 / 6, 1 / 6, 1 / 6]), RHOS).all()


@pytest.mark.parametrize("p", [0.1, 0.2, 0.5])
def test_no_breach_below_the_limit_of_s(p):
    """OLAP thm 4, by the posterior itself: it is below rho2 for s below the limit, any mass."""
    rho1, rho2 = 0.1, 0.95
    limit = s_limit(p, rho1, rho2)
    for share in (0.001, 0.05, 0.1):
        for s in (0.1, 1, 0.999 * limit):
            mass = share / s
            if mass <= 1:
                # Kept, or replaced into the set: P(X in S, Y in S) / P(Y in S).
                both = share * (p + (1 - p) * mass)
                seen = p * share + (1 - p) * mass
                assert both / seen < rho2
    # At a prior of rho1 itself the limit is met exactly.
    share, mass = rho1, rho1 / limit
    posterior = share * (p + (1 - p) * mass) / (p * share + (1 - p) * mass)
    assert posterior == pytest.approx(rho2)


def test_limit_of_several_columns():
    """Exact fractions; the limit falls as the sets grow; one column of thm 5 is no looser."""
    p, rho1, rho2 = Fraction(1, 5), Fraction(1, 10), Fraction(19, 20)
    masses = [Fraction(1, 4), Fraction(1, 10), Fraction(1, 100)]
    exact = rho2 * (1 - rho1) / (1 - rho2)
    for mass in masses:
        exact *= (1 - p) / ((1 - p) * mass + p)
    found = s_limit_many([0.2] * 3, 0.1, 0.95, [float(mass) for mass in masses])
    assert found == pytest.approx(float(exact))
    assert found < s_limit_many([0.2] * 3, 0.1, 0.95)


def test_rows_that_reconstruct():
    """OLAP thm 1 by simulation: far fewer misses than delta, as the bound is loose."""
    rng = np.random.default_rng(3)
    p, error, delta, b, f = 0.3, 0.1, 0.2, 0.4, 0.25
    n = math.ceil(reconstructible_rows(error, delta, p))
    assert n == math.ceil(4 * math.log(10) / 0.03**2)
    kept = rng.binomial(round(n * f), p + (1 - p) * b, 2_000)
    seen = kept + rng.binomial(n - round(n * f), (1 - p) * b, 2_000)
    estimates = (seen / n - (1 - p) * b) / p
    assert (np.abs(estimates - f) > error).mean() <= delta


TABLE_2 = {
    10: (0.000008, 0.0002, 0.0008, 0.005, 0.02),
    20: (0.000032, 0.0008, 0.0032, 0.02, 0.08),
    40: (0.000128, 0.0032, 0.0128, 0.08, 0.32),
    200: (0.0032, 0.08, 0.32, 2, 8),
}


@pytest.mark.parametrize("b", TABLE_2)
def test_table_2_of_recon(b):
    found = [laplace_ratio(b, x) for x in (5000, 1000, 500, 200, 100)]
    assert [each.bias for each in found] == pytest.approx(TABLE_2[b])
    assert [each.variance for each in found] == pytest.approx(2 * np.array(TABLE_2[b]))


def test_the_papers_bound_of_a_ratio_is_exceeded():
    """Section 9.12: E[x/X] = (a/2)(e^-a Ei(a) + e^a E1(a)), a = x/b, as a principal value."""
    for a, beyond in ((20, 1.02), (10, 1.1)):
        mean = a / 2 * (math.exp(-a) * expi(a) + math.exp(a) * exp1(a))
        bound = laplace_ratio(1, a)
        assert mean - 1 > bound.bias * beyond  # y = x: the bias itself
        assert bound.meaningful
    assert not laplace_ratio(1, 1).meaningful  # a bias of 2 on a ratio of at most 1


@pytest.mark.parametrize(
    "call",
    [
        lambda: gamma_for(0.5, 0.1),
        lambda: breach(1.5, 2),
        lambda: breach(0.5, 0.5),
        lambda: breach(0.5, math.nan),
        lambda: s_limit(0, 0.1, 0.2),
        lambda: s_limit_many([], 0.1, 0.2),
        lambda: s_limit_many([0.5], 0.1, 0.2, [1.5]),
        lambda: identity_limit(2, 0.5),
        lambda: reconstructible_rows(0, 0.1, 0.5),
        lambda: laplace_ratio(1, 0),
        lambda: finegrain_check(Uniform(0.5, 3), RHOS),
        lambda: finegrain_check(Uniform(0.5, 4), RHOS, sides="down"),
    ],
)
def test_refused(call):
    with pytest.raises(ChannelError):
        call()
