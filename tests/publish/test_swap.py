from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from scipy import stats

from privsql.channels import Replace
from privsql.errors import ChannelError, DomainError
from privsql.publish.perturb import swap
from tests.strategies import seeds

SHARES = np.array([0.5, 0.3, 0.15, 0.05])
MECHANISMS = {"identity": swap.identity, "swap": swap.swap}


def estimate(
    selected: np.ndarray, matching: np.ndarray, p: float, mechanism: str
) -> tuple[float, float]:
    """Rows of a public condition P whose original value lies in S: (estimate, variance).

    selected    the row satisfies P, shape (n,)
    matching    its published value lies in S, shape (n,)

        x = (n_PS - (1-p) n_P n_S/N) / p
        Var = sum k^2 p^2 (G^2 - G),   G = (1_S - (1-p) n_S/N) / p,
        k = (1_P - (1-p) n_P/N) / p for identity, (1_P - n_P/N) / p for swap

    (reconstruction, 3; rows are not independent, so the variance is an approximation; with
    P everything, swap's answer is exact and its variance 0).

    >>> rows = np.array([True, True, False, False])
    >>> estimate(rows, np.array([True, False, True, False]), 0.5, "swap")
    (1.0, 0.75)
    """
    n = len(selected)
    if n == 0:
        return 0.0, 0.0
    share_p, share_s = float(selected.mean()), float(matching.mean())
    count = float((selected & matching).sum() - (1 - p) * n * share_p * share_s) / p
    spread = 1.0 if mechanism == "swap" else 1 - p
    k = (selected - spread * share_p) / p
    g = (matching - (1 - p) * share_s) / p
    return count, float(p * p * np.sum(k * k * (g * g - g)))


@given(seed=seeds)
def test_swap_keeps_the_column_and_identity_its_values(seed):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 9, rng.integers(0, 200))
    before = codes.copy()
    assert sorted(swap.swap(codes, 0.3, rng)) == sorted(codes)
    assert set(swap.identity(codes, 0.3, rng)) <= set(codes)
    np.testing.assert_array_equal(codes, before)
    np.testing.assert_array_equal(swap.swap(codes, 1.0, rng), codes)
    np.testing.assert_array_equal(swap.identity(codes, 1.0, rng), codes)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_frequencies_follow_the_channel(mechanism):
    rng, p = np.random.default_rng(1), 0.4
    codes = rng.choice(4, 200_000, p=SHARES)
    published = MECHANISMS[mechanism](codes, p, rng)
    counts = np.bincount(codes)
    seen = np.bincount(codes * 4 + published, minlength=16).reshape(4, 4)
    expected = counts[:, None] * Replace(p, counts / len(codes)).matrix
    assert stats.chi2.sf(((seen - expected) ** 2 / expected).sum(), 12) > 1e-3
    np.testing.assert_allclose(np.bincount(published), counts, rtol=0.03)
    found = Replace(p, swap.estimated_replacing(published, 4))
    np.testing.assert_allclose(found.replacing, SHARES, atol=0.005)


def test_replacing():
    np.testing.assert_array_equal(swap.estimated_replacing(np.array([1, 1]), 3), [0, 1, 0])
    with pytest.raises(DomainError, match="outside"):
        swap.estimated_replacing(np.array([3]), 3)
    with pytest.raises(DomainError, match="without rows"):
        swap.estimated_replacing(np.array([], int), 3)
    with pytest.raises(ChannelError):
        swap.swap(np.array([1]), 0.0, np.random.default_rng(1))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_estimate_and_its_error(mechanism):
    """Unbiased, and 95% intervals cover about that."""
    rng, p, n = np.random.default_rng(2), 0.3, 4000
    codes = rng.choice(4, n, p=SHARES)
    selected = rng.random(n) < np.where(codes == 1, 0.6, 0.2)
    truth = int((selected & (codes == 1)).sum())
    found = []
    for _ in range(1500):
        matching = MECHANISMS[mechanism](codes, p, rng) == 1
        found.append(estimate(selected, matching, p, mechanism))
    values, variances = np.array(found).T
    assert abs(values.mean() - truth) < 4 * values.std() / np.sqrt(len(values))
    assert np.mean(variances) == pytest.approx(values.var(), rel=0.12)
    covered = np.abs(values - truth) < 1.96 * np.sqrt(variances)
    assert 0.93 < covered.mean() < 0.97


def test_estimate_agrees_with_the_channel():
    rng, p = np.random.default_rng(3), 0.6
    codes = swap.identity(rng.choice(4, 3000, p=SHARES), p, rng)
    selected = rng.random(3000) < 0.4
    inverse = Replace(p, swap.estimated_replacing(codes, 4)).inverse(np.eye(4)[2])
    value, _ = estimate(selected, codes == 2, p, "identity")
    assert value == pytest.approx(inverse[codes[selected]].sum())


def test_one_column_answers():
    codes = np.random.default_rng(4).choice(4, 500, p=SHARES)
    value, variance = estimate(np.ones(500, bool), codes == 0, 0.5, "swap")
    assert (value, variance) == (pytest.approx((codes == 0).sum()), 0.0)
    assert estimate(np.zeros(0, bool), np.zeros(0, bool), 0.5, "identity") == (0.0, 0.0)
