"""Small and large sums of decoy groups: SPLU's figures, and what it got wrong."""

from __future__ import annotations

import math

import numpy as np
import pytest

from privsql.audit.criteria.small_sums import (
    large_sum_utility,
    large_sum_utility_exact,
    large_sum_utility_printed,
    miss_chance,
    small_sum_privacy,
)
from privsql.errors import ChannelError


def slow(f, c, e, strict=True):
    """The sum itself, in whole tenths, so that no rounding decides which counts are in it."""
    tenths = round(10 * e)
    total = 0.0
    for x in range(c * f + 1):
        off = 10 * abs(x - f)
        if off <= tenths * f if strict else off < tenths * f:
            total += math.comb(c * f, x) * (1 / c) ** x * (1 - 1 / c) ** (c * f - x)
    return 1 - total


def test_figures_of_splu():
    assert 1 - miss_chance(5, 10, 0.3) == pytest.approx(0.52, abs=0.005)
    assert miss_chance(5, 10, 0.3) == pytest.approx(0.48, abs=0.005)
    assert small_sum_privacy(10, 0.3, 3) == pytest.approx(0.613, abs=0.0005)
    assert small_sum_privacy(10, 0.3, 3) >= 0.6


@pytest.mark.parametrize("c", [2, 10])
@pytest.mark.parametrize("f", [1, 2, 5, 10, 20, 30])
@pytest.mark.parametrize("e", [0.1, 0.3, 0.5])
def test_misses_are_the_sum(f, c, e):
    assert miss_chance(f, c, e) == pytest.approx(slow(f, c, e), abs=1e-12)


def test_the_least_over_counts():
    assert small_sum_privacy(10, 0.3, 8) == pytest.approx(
        min(slow(f, 10, 0.3) for f in range(1, 9))
    )


def test_the_papers_large_sums_are_far_off():
    """Section 9.9: c = 10, e = .3, T_E = .05 needs f >= 200 by Chebyshev, not 4.7."""
    printed = large_sum_utility_printed(10, 0.3, 0.05)
    assert printed == pytest.approx(4.714, abs=0.001)
    assert miss_chance(math.ceil(printed), 10, 0.3) > 9 * 0.05  # the paper promises .05
    assert large_sum_utility(10, 0.3, 0.05) == pytest.approx(200)


@pytest.mark.parametrize(("c", "e", "chance"), [(10, 0.3, 0.05), (2, 0.3, 0.05), (5, 0.5, 0.2)])
def test_large_sums_keep_to_their_chance_from_there_on(c, e, chance):
    exact, sound = large_sum_utility_exact(c, e, chance), large_sum_utility(c, e, chance)
    assert exact <= sound + 1
    assert all(slow(f, c, e, strict=False) <= chance for f in range(exact, exact + 60))
    assert exact == 1 or slow(exact - 1, c, e, strict=False) > chance


def test_large_sums_of_a_tiny_error_take_no_memory():
    found = large_sum_utility_exact(10, 1e-5, 0.05)
    assert found == math.ceil(large_sum_utility(10, 1e-5, 0.05)) > 10**11


def test_published_counts_of_small_sums_by_simulation():
    rng = np.random.default_rng(2)
    counts = rng.binomial(30, 0.1, 100_000)
    missed = (np.abs(counts - 3) > 0.9).mean()
    assert missed == pytest.approx(miss_chance(3, 10, 0.3), abs=0.01)


@pytest.mark.parametrize(
    "call",
    [
        lambda: small_sum_privacy(1, 0.3, 3),
        lambda: small_sum_privacy(10, 0.3, 0),
        lambda: miss_chance(0, 10, 0.3),
        lambda: large_sum_utility(10, 0, 0.05),
        lambda: large_sum_utility_exact(10, 0.3, 1.0),
    ],
)
def test_refused(call):
    with pytest.raises(ChannelError):
        call()
