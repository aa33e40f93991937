from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from privsql.errors import ChannelError, TooLargeError
from privsql.publish.perturb import decoy
from tests.channels.decoys import proportional
from tests.strategies import seeds

METHODS = ["proportional", "anatomy"]

# Two frequent values, one near the limit of .18 for groups of 5, and 18 others.
SKEWED = np.r_[0.17, 0.12, np.full(18, 0.71 / 18)]


def check_partition(codes, groups, left, c):
    placed = ~left
    np.testing.assert_array_equal(groups < 0, left)
    if placed.any():
        assert (np.bincount(groups[placed]) == c).all()
    pairs = set(zip(groups[placed].tolist(), codes[placed].tolist(), strict=True))
    assert len(pairs) == placed.sum()


@given(seed=seeds, method=st.sampled_from(METHODS), cells=st.sampled_from([1, 100, 1 << 22]))
def test_groups_hold_distinct_values(seed, method, cells):
    rng = np.random.default_rng(seed)
    m, c = int(rng.integers(2, 30)), int(rng.integers(2, 12))
    codes = rng.choice(m, int(rng.integers(0, 800)), p=rng.dirichlet(np.ones(m)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoy, "BLOCK_CELLS", cells)
        patch.setattr(decoy, "STEP", 7)
        groups, left = decoy.partition(codes, c, rng, method)
    check_partition(codes, groups, left, c)
    # As many groups as there can be: all but n mod c rows where no value is too frequent.
    if len(codes) and np.bincount(codes).max() * c <= len(codes):
        assert left.sum() == len(codes) % c
    published = decoy.publish(codes, groups, c, rng)
    assert (published[left] == -1).all()
    assert {*zip(groups[~left], published[~left], strict=True)} <= {
        *zip(groups[~left], codes[~left], strict=True)
    }


def test_too_frequent_values_lose_what_cannot_be_placed():
    rng = np.random.default_rng(1)
    codes = np.repeat([0, 1, 2], [100, 10, 5])
    groups, left = decoy.partition(codes, 2, rng)
    check_partition(codes, groups, left, 2)
    assert np.bincount(codes[~left]).tolist() == [15, 10, 5]
    groups, left = decoy.partition(np.zeros(9, int), 2, rng)
    assert left.all()


def test_rows_left_over_are_random():
    rng = np.random.default_rng(2)
    codes = np.arange(23) % 6
    times = sum(decoy.partition(codes, 4, rng)[1].astype(int) for _ in range(1500))
    assert np.abs(times - 1500 * 3 / 23).max() < 4 * np.sqrt(1500 * 3 / 23)


def test_which_row_goes_where_does_not_depend_on_its_place():
    rng = np.random.default_rng(3)
    codes = np.repeat(np.arange(4), 50)
    shared = 0
    for _ in range(400):
        groups, _ = decoy.partition(codes, 2, rng)
        shared += int(groups[0] == groups[50])
    assert shared < 25  # a chance of 1/150: 2.7 expected


def test_eligibility():
    decoy.check_eligible([9, 9, 9, 9], 3)
    for totals, c in (([46, 27, 27], 2), ([0, 0], 2), ([], 3)):
        with pytest.raises(ChannelError) as refused:
            decoy.check_eligible(totals, c)
        assert "46 " not in str(refused.value)
    with pytest.raises(ChannelError, match=r"share of 0\.46"):
        decoy.check_eligible([460, 270, 270], 2)
    for c in (1, True, 2.5):
        with pytest.raises(ChannelError, match="group_size"):
            decoy.check_eligible([1, 1, 1], c)
    with pytest.raises(ChannelError, match="proportional or anatomy"):
        decoy.partition(np.arange(4), 2, np.random.default_rng(1), "other")


@pytest.mark.parametrize("method", METHODS)
def test_published_counts_are_binomial_around_f(method):
    """SPLU 4: Binomial(c f, 1/c), hence f on average."""
    rng, c = np.random.default_rng(4), 5
    codes = rng.choice(20, 2000, p=SKEWED)
    groups, _ = decoy.partition(codes, c, rng, method)
    f = np.bincount(codes, minlength=20)
    runs = np.array(
        [np.bincount(decoy.publish(codes, groups, c, rng), minlength=20) for _ in range(3000)]
    )
    variance = f * (1 - 1 / c)
    assert (np.abs(runs.mean(axis=0) - f) < 4 * np.sqrt(variance / len(runs))).all()
    np.testing.assert_allclose(runs.var(axis=0), variance, rtol=0.15)


@pytest.mark.parametrize("method", METHODS)
def test_channel_invariants(method):
    rng, c = np.random.default_rng(5), 4
    totals = np.array([200, 150, 120, 0, 120, 3, 177, 202])
    channel = decoy.decoy_channel(totals, c, rng, method=method, rounds=50)
    matrix = channel.matrix
    np.testing.assert_allclose(matrix.diagonal(), 1 / c)
    np.testing.assert_allclose(matrix.sum(axis=1), 1)
    np.testing.assert_allclose(totals @ matrix, totals)
    flows = totals[:, None] * matrix
    np.testing.assert_allclose(flows, flows.T, atol=1e-9)
    np.testing.assert_allclose(matrix[3], proportional(totals, c).matrix[3], atol=0.02)


def test_channel_of_published_totals_that_passed_the_limit_by_chance():
    channel = decoy.decoy_channel([240, 230, 180, 150, 200], 4, np.random.default_rng(1), rounds=5)
    np.testing.assert_allclose(channel.matrix.sum(axis=1), 1)


def test_channels_that_cannot_be():
    rng = np.random.default_rng(1)
    with pytest.raises(ChannelError, match="at least as many values"):
        decoy.decoy_channel([5, 5, 0], 3, rng)
    with pytest.raises(TooLargeError):
        decoy.decoy_channel(np.ones(5000), 3, rng)


def test_frequencies_follow_the_channel():
    """Chi-square of published values by original one, over fresh partitions."""
    rng, c, m = np.random.default_rng(6), 3, 6
    codes = np.repeat(np.arange(m), [50, 60, 40, 30, 70, 50])
    channel = decoy.decoy_channel(np.bincount(codes), c, rng, rounds=2000)
    seen = np.zeros((m, m))
    for _ in range(200):
        groups, _ = decoy.partition(codes, c, rng)
        np.add.at(seen, (codes, decoy.publish(codes, groups, c, rng)), 1)
    expected = channel.expected(np.diag(np.bincount(codes) * 200.0))
    # Rows of a group are dependent, which makes counts vary less, not more.
    statistic = ((seen - expected) ** 2 / expected).sum()
    assert stats.chi2.sf(statistic, m * (m - 1)) > 1e-3


def distance(totals, c, method, rounds):
    simulated = decoy.decoy_channel(totals, c, np.random.default_rng(7), method=method,
                                    rounds=rounds)  # fmt: skip
    return np.abs(simulated.matrix - proportional(totals, c).matrix).max()


def test_distance_from_quasi_independence():
    """Close for moderate shares, off near the limit; anatomy is nowhere near."""
    moderate = np.full(20, 500) + 20 * np.arange(20)
    skewed = np.round(10_000 * SKEWED).astype(int)
    assert distance(moderate, 5, "proportional", 40) < 0.002
    assert 0.002 < distance(skewed, 5, "proportional", 40) < 0.02
    assert distance(moderate, 5, "anatomy", 10) > 0.02
    assert distance(skewed, 5, "anatomy", 10) > 0.005


def expected_published(codes, groups, selected, c, m):
    """Mean over the draws, given the partition: bias without the noise of publishing."""
    table = decoy._members(groups, codes, c).reshape(-1, c)
    selected_rows = np.bincount(groups[selected], minlength=len(table))
    return np.bincount(table.ravel(), np.repeat(selected_rows, c), minlength=m) / c


@pytest.mark.parametrize("method", METHODS)
def test_bias_where_a_frequent_value_goes_with_the_condition(method):
    """Section 9.8: 90% of the most frequent value satisfy P, 30% of all others do."""
    rng, c, m, n, runs = np.random.default_rng(8), 5, 20, 100_000, 8
    errors = {"simulated": [], "closed": []}
    for _ in range(runs):
        codes = rng.choice(m, n, p=SKEWED)
        selected = rng.random(n) < np.where(codes == 0, 0.9, 0.3)
        groups, left = decoy.partition(codes, c, rng, method)
        assert not left.any()
        totals = np.bincount(decoy.publish(codes, groups, c, rng), minlength=m)
        channel = decoy.decoy_channel(totals, c, rng, method=method, rounds=2)
        y = expected_published(codes, groups, selected, c, m)
        a = totals * (c - 1) / (c * (n - totals))
        truth = np.bincount(codes[selected], minlength=m)
        errors["simulated"].append(y @ np.linalg.inv(channel.matrix) / truth - 1)
        errors["closed"].append((y - selected.sum() * a) / (1 / c - a) / truth - 1)
    bias = {name: np.mean(each, axis=0) for name, each in errors.items()}
    noise = {name: np.std(each, axis=0) / np.sqrt(runs - 1) for name, each in errors.items()}
    # At most 2%, up to the noise of the published totals and of the partition.
    assert (np.abs(bias["simulated"]) < 0.02 + 3.5 * noise["simulated"]).all()
    assert np.abs(bias["simulated"][2:].mean()) < 0.02
    assert bias["closed"][1:].mean() > 0.15
    assert bias["closed"][1] > 0.1 + 2 * noise["closed"][1]


def test_anatomy_takes_the_largest():
    counts = np.array([5, 4, 1, 1, 1])
    slots = decoy._anatomy(counts, 6, 2, np.random.default_rng(9))
    groups = [set() for _ in range(6)]
    for value, group in zip(np.repeat(np.arange(5), counts), slots, strict=True):
        groups[group].add(int(value))
    assert groups[:3] == [{0, 1}] * 3
    assert 0 in groups[3]
