from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression
from scipy.stats import norm

from tests.strategies import seeds
from udfs.errors import KernelError
from udfs.intervals import (
    Bounds,
    constrain,
    critical,
    fieller_interval,
    score_interval,
    wald_interval,
    woodruff_interval,
)
from udfs.kron import Kron, retention_factor

Z = critical(0.95)


def two_state(p: float, b: float) -> Kron:
    return Kron([retention_factor(p, [1 - b, b])])


# --- critical values ---------------------------------------------------------------


def test_critical_value_is_the_normal_quantile():
    assert critical(0.95) == pytest.approx(norm.ppf(0.975))
    assert critical(0.5) == pytest.approx(norm.ppf(0.75))


def test_sidak_holds_for_all_cells_together():
    for cells in (1, 7, 100, 10**6):
        one = 2 * norm.sf(critical(0.9, cells))
        assert (1 - one) ** cells == pytest.approx(0.9)


@pytest.mark.parametrize("level", [0.0, 1.0, -1, 2, float("nan")])
def test_a_level_outside_its_range_is_refused(level):
    with pytest.raises(KernelError, match="confidence level"):
        critical(level)


def test_no_cells_are_refused():
    with pytest.raises(KernelError, match="cell"):
        critical(0.95, 0)


# --- score -------------------------------------------------------------------------


@given(
    n=st.integers(1, 400),
    p=st.floats(0.05, 0.99),
    b=st.sampled_from([0.001, 0.01, 0.2, 0.5, 0.9, 0.999]),
    share=st.floats(0, 1),
)
def test_score_interval_holds_exactly_the_counts_that_are_not_rejected(n, p, b, share):
    """Independent slow way: try every possible count."""
    y = round(share * n)
    a, c = p + (1 - p) * b, (1 - p) * b
    x = np.arange(n + 1)
    spread = np.sqrt(x * a * (1 - a) + (n - x) * c * (1 - c))
    accepted = x[np.abs(y - c * n - (a - c) * x) - 0.5 <= Z * spread]
    bounds = score_interval(y, n, two_state(p, b), Z)
    inside = x[(x >= bounds.low - 1e-9) & (x <= bounds.high + 1e-9)]
    np.testing.assert_array_equal(inside, accepted)
    assert bounds.low <= (y - c * n) / p <= bounds.high


def test_score_interval_of_a_channel_that_flips():
    flips = Kron([[[0.2, 0.8], [0.7, 0.3]]])
    same = Kron([[[0.8, 0.2], [0.3, 0.7]]])
    one = score_interval([30.0], [100.0], flips, Z)
    other = score_interval([70.0], [100.0], same, Z)
    np.testing.assert_allclose([one.low, one.high], [other.low, other.high])


def test_score_interval_far_outside_the_range_uses_the_variance_of_the_nearer_end():
    p, b, n = 0.02, 0.999, 100.0
    a, c = p + (1 - p) * b, (1 - p) * b
    bounds = score_interval([0.0, n], [n, n], two_state(p, b), Z)
    below = (-0.5 - c * n - Z * np.sqrt(n * c * (1 - c))) / p
    above = (n + 0.5 - c * n + Z * np.sqrt(n * a * (1 - a))) / p
    assert bounds.low[0] == pytest.approx(below)
    assert bounds.high[1] == pytest.approx(above)
    assert (bounds.low <= (np.array([0, n]) - c * n) / p).all()
    assert (bounds.high >= (np.array([0, n]) - c * n) / p).all()


@pytest.mark.parametrize(("hits", "rows"), [(5, 4), (-1, 4), (1, -4), (np.nan, 4), (1, np.inf)])
def test_score_interval_of_impossible_counts_is_refused(hits, rows):
    with pytest.raises(KernelError, match="between 0 and the number of rows"):
        score_interval(hits, rows, two_state(0.5, 0.5), Z)


@pytest.mark.parametrize("z", [0.0, -1.0, np.nan, np.inf])
def test_a_critical_value_is_above_zero(z):
    for interval in (
        lambda: score_interval(1, 4, two_state(0.5, 0.5), z),
        lambda: wald_interval(1, 1, 50, z),
        lambda: fieller_interval(1, 2, (1, 0, 1), 50, z),
        lambda: woodruff_interval([1.0], [1.0], [50.0], z),
    ):
        with pytest.raises(KernelError, match="critical value"):
            interval()


def test_score_interval_without_perturbation_or_without_rows_is_exact():
    exact = score_interval([3.0], [10.0], Kron([np.eye(2)]), Z)
    assert (exact.low, exact.high) == (3.0, 3.0)
    empty = score_interval([0.0], [0.0], two_state(0.5, 0.5), Z)
    assert (empty.low, empty.high) == (0.0, 0.0)


def test_score_interval_needs_two_states():
    with pytest.raises(KernelError, match="two states"):
        score_interval(1, 2, Kron([np.eye(3)]), Z)
    with pytest.raises(KernelError, match="singular"):
        score_interval(1, 2, Kron([[[0.5, 0.5], [0.5, 0.5]]]), Z)


# --- Wald --------------------------------------------------------------------------


def test_wald_interval_and_its_two_ways_of_saying_no():
    bounds = wald_interval([10.0] * 4, [4.0, 4.0, 0.0, -1.0], [20.0, 19.9, 100, 100], 2.0)
    np.testing.assert_array_equal(bounds.low, [6, 6, np.nan, np.nan])
    np.testing.assert_array_equal(bounds.high, [14, 14, np.nan, np.nan])
    np.testing.assert_array_equal(bounds.reliable, [True, False, False, False])


# --- Fieller -----------------------------------------------------------------------


@given(seed=seeds)
def test_fieller_interval_holds_exactly_the_ratios_that_are_not_rejected(seed):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(2, 2))
    cov = root @ root.T
    top, bottom = rng.normal(scale=5), rng.normal(scale=5)
    bounds = fieller_interval(top, bottom, (cov[0, 0], cov[0, 1], cov[1, 1]), 100, Z)
    bounded = bottom**2 > Z**2 * cov[1, 1]
    assert bool(np.isfinite(bounds.low)) == bounded
    # Called by its level only where the denominator's square is twice as large.
    assert bool(bounds.reliable) == (bottom**2 >= 2 * Z**2 * cov[1, 1])
    if bounded:
        ratio = np.linspace(bounds.low - 3, bounds.high + 3, 2001)
        spread = cov[0, 0] - 2 * ratio * cov[0, 1] + ratio**2 * cov[1, 1]
        accepted = (top - ratio * bottom) ** 2 <= Z**2 * spread
        inside = (ratio >= bounds.low) & (ratio <= bounds.high)
        edge = np.minimum(np.abs(ratio - bounds.low), np.abs(ratio - bounds.high)) < 1e-6
        np.testing.assert_array_equal(inside[~edge], accepted[~edge])
        assert bounds.low <= top / bottom <= bounds.high


def test_fieller_with_an_exact_denominator_is_wald():
    bounds = fieller_interval(40.0, 100.0, (25.0, 0.0, 0.0), 100, 2.0)
    assert (bounds.low, bounds.high) == (pytest.approx(0.3), pytest.approx(0.5))


def test_fieller_of_an_exact_ratio_has_no_width():
    bounds = fieller_interval(40.0, 100.0, (0.0, 0.0, 0.0), 0, 2.0)
    assert (float(bounds.low), float(bounds.high), bool(bounds.reliable)) == (0.4, 0.4, True)


def test_fieller_never_excludes_its_own_estimate():
    """Estimated variances need not fit together; then there is no interval."""
    bounds = fieller_interval(-1.6334, 1.14264, (0.09268, -4.1124, 0.0041859), 100, 1.96)
    assert np.isnan(bounds.low)
    assert not bounds.reliable


def test_an_end_that_runs_away_is_none():
    """Just above the border one end is 10^4 times the ratio; farther off it is a number."""
    close, clear = 2.0 * (1 + 1e-5), 2.2
    bounds = fieller_interval(2.0, [close, clear], (0.0, 0.0, 1.0), 100, 2.0)
    assert np.isnan(bounds.high).tolist() == [True, False]
    assert np.isfinite(bounds.low).all()
    assert bounds.low[1] < 2.0 / clear < bounds.high[1]
    assert not bounds.reliable.any()


@pytest.mark.parametrize("factor", [1.0, -0.3, 1e6])
def test_a_ratio_that_is_the_same_whatever_the_data_is_a_point(factor):
    """N is a multiple of D: the three terms of the variance cancel."""
    v = 7.3
    variances = (factor**2 * v, factor * v, v)
    bounds = fieller_interval(factor * 40.1, 40.1, variances, 5, 2.0)
    assert bounds.low == bounds.high == pytest.approx(factor)
    assert bounds.reliable
    # A millionth of its variance more, and it has a width.
    wider = fieller_interval(
        factor * 40.1, 40.1, (variances[0] * (1 + 1e-6), *variances[1:]), 50, 2
    )
    assert wider.low < factor < wider.high


def test_fieller_of_a_variance_below_zero_says_nothing():
    bounds = fieller_interval([40.0, 40.0], 100.0, ([-1.0, 4.0], 0.0, [1.0, -1.0]), 100, 2.0)
    assert np.isnan(bounds.low).all()
    assert not bounds.reliable.any()


# --- Woodruff ----------------------------------------------------------------------


@given(seed=seeds, m=st.integers(1, 12), q=st.floats(0.01, 0.99))
def test_quantile_is_where_the_monotone_fit_turns_non_negative(seed, m, q):
    rng = np.random.default_rng(seed)
    counts = rng.normal(10, 15, size=m)
    excess = np.cumsum(counts) - q * abs(counts.sum())
    excess[-1] = abs(excess[-1])
    fit = isotonic_regression(excess).x
    expected = np.argmax(fit >= -1e-9)
    found = woodruff_interval(excess, np.ones(m), np.full(m, 50.0), Z)
    assert found.estimate == expected
    assert found.low <= expected <= found.high <= m - 1


@given(seed=seeds)
def test_exact_distribution_gives_the_usual_quantile(seed):
    rng = np.random.default_rng(seed)
    values = np.sort(rng.integers(0, 8, size=rng.integers(1, 30)))
    counts = np.bincount(values, minlength=8)
    q = 0.5
    excess = np.cumsum(counts) - q * len(values)
    usual = values[int(np.ceil(q * len(values))) - 1]
    positions = woodruff_interval(excess, np.zeros(8), np.full(8, 50.0), Z)
    assert positions.estimate == usual
    assert positions.low <= usual <= positions.high
    assert positions.reliable


def test_woodruff_is_batched_and_holds_its_estimate():
    excess = np.array([[-30.0, -5, 12, 50], [3.0, 10, 20, 50]])
    positions = woodruff_interval(excess, np.full((2, 4), 25.0), np.full((2, 4), 50.0), Z)
    np.testing.assert_array_equal(positions.estimate, [2, 0])
    np.testing.assert_array_equal(positions.low, [1, 0])
    np.testing.assert_array_equal(positions.high, [2, 1])


def test_woodruff_with_a_variance_below_zero_is_wide_and_says_so():
    positions = woodruff_interval([-30.0, -5, 12, 50], [-1.0, 25, 25, -1e-12], [50] * 4, Z)
    assert positions.low == 0
    assert not positions.reliable


def test_woodruff_ignores_the_last_position_which_holds_all_rows():
    # Its excess may be below zero by rounding, and its variance anything.
    found = woodruff_interval([-30.0, -20, -10, -1e-12], [25.0, 25, 25, 1e6], [50] * 4, Z)
    assert (found.low, found.estimate, found.high) == (2, 3, 3) or found.low == 3
    assert found.estimate == 3
    sure = woodruff_interval([20.0, 30, 40, 50], [4.0, 4, 4, 1e6], [50, 50, 50, 0], Z)
    assert (sure.low, sure.high, bool(sure.reliable)) == (0, 0, True)


def test_woodruff_needs_effective_rows_at_every_position_of_the_interval():
    excess, spread = [-30.0, -5, 12, 50], [16.0, 25, 25, 0]
    assert woodruff_interval(excess, spread, [0, 50, 50, 50], Z).reliable
    assert not woodruff_interval(excess, spread, [0, 50, 19, 50], Z).reliable


def test_woodruff_refuses_lists_that_do_not_fit():
    for lists in (([], [], []), ([1.0], [1.0, 2.0], [1.0]), (1.0, 1.0, 1.0), ([1], [1], [1, 2])):
        with pytest.raises(KernelError, match="equally long"):
            woodruff_interval(*lists, Z)


# --- constrained -------------------------------------------------------------------


def test_constrained_bounds_hold_the_estimate_and_have_width():
    low = np.array([-90.0, -5.0, 990.0, 20.0, np.nan])
    high = np.array([-10.0, 30.0, 1080.0, 40.0, np.nan])
    estimate = np.array([0.0, 12.0, 1000.0, 50.0, 5.0])
    cut = constrain(Bounds(low, high, np.ones(5, bool)), estimate, 0.0, 1000.0)
    np.testing.assert_array_equal(cut.low, [0, 0, 990, 20, np.nan])
    np.testing.assert_array_equal(cut.high, [40, 30, 1000, 50, np.nan])


def test_a_range_that_ends_before_it_begins_is_refused():
    with pytest.raises(KernelError, match="ends below"):
        constrain(Bounds(np.zeros(1), np.ones(1), np.ones(1, bool)), [0.5], 1.0, 0.0)


def test_what_are_no_numbers_is_refused_without_quoting_it():
    with pytest.raises(KernelError, match="estimate must be numbers") as caught:
        wald_interval(["secret"], [1.0], [50.0], Z)
    assert "secret" not in str(caught.value)
    with pytest.raises(KernelError, match="level"):
        critical("a")


def test_constrained_bounds_above_the_range_keep_width_below_it():
    cut = constrain(
        Bounds(np.array([1100.0]), np.array([1180.0]), np.ones(1, bool)), [1000.0], 0.0, 1000.0
    )
    assert (cut.low.item(), cut.high.item()) == (960.0, 1000.0)
