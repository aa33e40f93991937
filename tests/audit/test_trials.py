"""Caps and tails of a group: against convolution and simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom

from examples.papers.formulas import chernoff_tails, exact_tail
from privsql.audit.criteria.trials import Tails, exact_of, group_cap, two_binomials
from privsql.channels import FineGrain, Uniform
from privsql.channels.caps import cap_of
from privsql.errors import ChannelError


def convolved(n, x, kept, false, error):
    """Both tails from the whole distribution of the published count."""
    total = np.convolve(
        binom.pmf(np.arange(x + 1), x, kept + false), binom.pmf(np.arange(n - x + 1), n - x, false)
    )
    counts = np.arange(n + 1)
    off = (counts - n * false) / kept - x  # n (F' - f)
    return total[off < -error * x - 1e-9].sum(), total[off > error * x + 1e-9].sum()


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("m", [2, 10])
@pytest.mark.parametrize(("n", "x"), [(1, 1), (10, 0), (10, 7), (40, 40), (300, 20), (300, 290)])
def test_exact_tails_are_those_of_the_whole_distribution(n, x, p, m):
    found = exact_tail(n, x / n, p, m, 0.3)
    wanted = convolved(n, x, p, (1 - p) / m, 0.3)
    assert (found.lower, found.upper) == pytest.approx(wanted, abs=1e-13)


def test_a_count_on_the_edge_is_not_beyond_it():
    """mu - lambda p x is whole here: rounding must not push the edge to either side."""
    found = exact_tail(80, 0.5, 0.5, 2, 0.3)  # mu 40, spread 6
    assert found.lower == pytest.approx(convolved(80, 40, 0.5, 0.25, 0.3)[0], abs=1e-13)
    assert found.lower != pytest.approx(convolved(80, 40, 0.5, 0.25, 0.2999)[0], abs=1e-6)


@pytest.mark.parametrize(("n", "f", "p", "m"), [(60, 0.5, 0.5, 2), (200, 0.1, 0.3, 8)])
def test_exact_tails_agree_with_simulation(n, f, p, m):
    rng = np.random.default_rng(11)
    runs, x = 200_000, round(n * f)
    false = (1 - p) / m
    seen = rng.binomial(x, p + false, runs) + rng.binomial(n - x, false, runs)
    estimates = (seen / n - false) / p
    found = exact_tail(n, f, p, m, 0.3)
    for chance, missed in (
        (found.lower, estimates < f * 0.7 - 1e-12),
        (found.upper, estimates > f * 1.3 + 1e-12),
    ):
        assert abs(missed.mean() - chance) < 5 * math.sqrt(chance / runs)


def test_a_million_rows_take_no_time_and_are_near_normal():
    from scipy.stats import norm

    n, x, p, m = 1_000_000, 2_000, 0.3, 50
    found = exact_tail(n, x / n, p, m, 0.3)
    false = (1 - p) / m
    deviation = math.sqrt(x * (p + false) * (1 - p - false) + (n - x) * false * (1 - false))
    assert found.lower == pytest.approx(norm.cdf(-0.3 * p * x / deviation), rel=0.05)


@pytest.mark.parametrize(("m", "f"), [(2, 0.5), (2, 0.75), (2, 1.0), (10, 0.3), (50, 0.1)])
def test_chernoff_is_loose_where_the_paper_takes_it_for_the_chance(m, f):
    """Section 9.2: at |g| = s_g an estimate is within 30% with chance .90 and more, not .70."""
    p, error, delta = 0.5, 0.3, 0.3
    cap = float(group_cap(f, p, m, error, delta))
    bound = chernoff_tails(cap, f, p, m, error)
    assert bound.lower == pytest.approx(delta)  # the paper's reading: within with chance .7
    exact = exact_tail(math.floor(cap), f, p, m, error)
    assert exact.within > 0.88
    assert exact.lower < bound.lower / 3
    assert exact.upper < bound.upper / 3


@pytest.mark.parametrize("n", [20, 100, 1_000])
@pytest.mark.parametrize("f", [0.1, 0.5, 1.0])
def test_chernoff_bounds_the_exact_tails(n, f):
    bound, exact = chernoff_tails(n, f, 0.4, 5, 0.3), exact_tail(n, f, 0.4, 5, 0.3)
    assert exact.lower <= bound.lower
    assert exact.upper <= bound.upper
    assert bound.within <= exact.within


def test_no_estimate_is_further_below_than_the_range():
    assert group_cap(0.5, 0.5, 2, 2.5, 0.3) == math.inf
    assert chernoff_tails(100, 0.5, 0.5, 2, 2.5).lower == 0
    assert exact_tail(100, 0.5, 0.5, 2, 2.5).lower == 0
    assert chernoff_tails(0, 0.5, 0.5, 2, 0.3) == Tails(0.0, 0.0)


def test_which_counts_are_two_binomials():
    assert two_binomials(Uniform(0.5, 4))
    assert two_binomials(FineGrain([0.3, 0.3, 0.3]))
    assert two_binomials(FineGrain([0.3, 0.5]))
    assert not two_binomials(FineGrain([0.3, 0.5, 0.3]))


@pytest.mark.parametrize(
    "call",
    [
        lambda: group_cap(0.5, 0.5, 2, 0.3, 1.0),
        lambda: cap_of(0.5, 0.5, 0.2, 0.0, 0.5),
        lambda: exact_of(10, 11, 0.5, 0.25, 0.3),
    ],
)
def test_refused(call):
    with pytest.raises(ChannelError):
        call()
