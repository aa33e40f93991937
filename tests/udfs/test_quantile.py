"""Quantiles against DuckDB's own where nothing is perturbed, and against slow kernels else."""

from __future__ import annotations

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression

from tests.strategies import publish_states, random_channel, seeds
from udfs.errors import KernelError
from udfs.intervals import critical, woodruff_interval
from udfs.invert import invert
from udfs.kron import Kron, retention_factor
from udfs.quantile import quantile
from udfs.variance import effective_rows, variance

Z = critical(0.95)
SHARES = ["0", "1", "0.5", "0.25", "0.75", "0.9", "0.95", "0.99", "0.07", "0.29", "0.1", "0.001"]


@pytest.fixture(scope="module")
def con():
    with duckdb.connect() as connection:
        yield connection


def test_duckdbs_quantiles_where_nothing_was_perturbed(con):
    """Values are even numbers, so that a position taken for a value shows."""
    rng = np.random.default_rng(3)
    for rows in [1, 2, 3, 7, 20, 29, 50, *rng.integers(4, 400, 12).tolist(), 100, 700]:
        width = int(rng.integers(1, 40))
        values = np.sort(rng.choice(1000, width, replace=False)) * 2
        data = rng.integers(0, width, rows)
        y = np.bincount(data, minlength=width + 1)[None].astype(float)
        y[0, width] = 50.0  # a state that is not counted
        places = [*range(width), -1]
        table = values[data].tolist()
        for share in [*SHARES, f"0.{rng.integers(1, 9999):04d}"]:
            expected = con.execute(
                f"SELECT quantile_disc(v, {share}), quantile_cont(v, {share})"
                " FROM (SELECT unnest($1) AS v)",
                [table],
            ).fetchone()
            found = [
                quantile((y, y, y), places, float(share), kind, Kron([np.eye(width + 1)]), Z)
                for kind in ("disc", "cont")
            ]
            answers = []
            for one in found:
                low, high = values[one.lower[0]], values[one.upper[0]]
                answers.append(low * (1 - one.fraction[0]) + high * one.fraction[0])
                assert (one.low, one.high) == (one.lower, one.upper)
                assert one.reliable
                assert one.known
            # DuckDB multiplies and adds in one step, which rounds once less.
            assert answers == pytest.approx(expected, rel=1e-15), (rows, share)


def test_decimal_shares_land_on_whole_ranks(con):
    """0.07 * 100 is above 7 in floats, and not in DuckDB's decimals."""
    for percent in range(101):
        share = f"{percent / 100:.2f}"
        for rows in (100, 300, 1000):
            (expected,) = con.execute(
                f"SELECT quantile_disc(i, {share}) FROM range({rows}) t(i)"
            ).fetchone()
            y = np.ones((1, rows))
            below = _at(y, float(share), rows)
            assert below == expected, (share, rows)


def _at(y, q, rows):
    # One row a value: the rank is the position.  A short way around a big identity matrix.
    from udfs.quantile import _locate, _ranks

    rank, _, _ = _ranks(q, np.array([float(rows)]), "disc")
    return int(_locate(np.cumsum(y, axis=1), rank)[0])


def random_case(seed, states=6):
    rng = np.random.default_rng(seed)
    kind = ["uniform", "replace", "finegrain", "matrix"][int(rng.integers(4))]
    factors = [random_channel(rng, kind, states).matrix, random_channel(rng, "uniform", 2).matrix]
    kron = Kron(factors)
    places = np.repeat(rng.permutation(states), 2)
    places[1::2] = -1  # the second column's condition is false
    if rng.random() < 0.5:
        places[places == places.max()] = -1
    products = rng.integers(0, 60, (4, kron.size)).astype(float)
    weight = rng.integers(1, 3, (4, kron.size))
    return rng, kron, places, (products, products * weight, products * weight**3)


@settings(max_examples=60)
@given(seed=seeds, share=st.sampled_from([0, 0.1, 0.5, 0.83, 1]))
def test_interval_is_woodruffs_with_the_errors_at_every_position(seed, share):
    _, kron, places, (products, squares, fourths) = random_case(seed)
    found = quantile((products, squares, fourths), places, share, "disc", kron, Z)
    counted = (places >= 0).astype(float)
    functions = [((places >= 0) & (places <= i)) - share * counted for i in range(places.max() + 1)]
    excess, spread, rows = [], [], []
    for g in functions:
        excess.append(invert(products, kron) @ g)
        spread.append(variance(products, squares, g, kron))
        rows.append(effective_rows(squares, fourths, g, kron))
    slow = woodruff_interval(*(np.stack(part, axis=1) for part in (excess, spread, rows)), Z)
    known = invert(products, kron) @ counted > 0
    np.testing.assert_array_equal(found.known, known)
    np.testing.assert_array_equal(found.low[known], np.minimum(slow.low, found.lower)[known])
    np.testing.assert_array_equal(found.high[known], np.maximum(slow.high, found.upper)[known])
    np.testing.assert_array_equal(found.reliable[known], slow.reliable[known])


@settings(max_examples=60)
@given(seed=seeds, share=st.sampled_from([0.02, 0.4, 0.5, 0.9]))
def test_effective_rows_by_products_are_those_of_the_kernel(seed, share):
    from udfs.quantile import _Functions, _indicators

    _, kron, places, (_, squares, fourths) = random_case(seed)
    below = _indicators(places, kron.size)
    fast = _Functions(below, share, kron).effective_rows(squares, fourths)
    for i, row in enumerate(below):
        slow = effective_rows(squares, fourths, row - share * below[-1], kron)
        np.testing.assert_allclose(fast[:, i], slow, rtol=1e-7)


@settings(max_examples=60)
@given(seed=seeds)
def test_estimate_is_read_off_the_monotone_fit(seed):
    rng, kron, places, sums = random_case(seed)
    share = float(rng.random())
    found = quantile(sums, places, share, "disc", kron, Z)
    states = invert(sums[0], kron)
    for group in range(len(states)):
        steps = np.zeros(places.max() + 1)
        np.add.at(steps, places[places >= 0], states[group, places >= 0])
        total = steps.sum()
        if total <= 0:
            continue
        fit = isotonic_regression(np.cumsum(steps)).x
        reached = fit >= max(share * total, min(1, total)) - 1e-9
        expected = int(np.argmax(reached)) if reached.any() else len(steps) - 1
        assert found.lower[group] == min(expected, len(steps) - 1)


def test_interval_covers_the_true_median():
    rng = np.random.default_rng(5)
    m, releases = 30, 1500
    kron = Kron([retention_factor(0.4, np.full(m, 1 / m))])
    original = np.round(5000 * np.exp(-0.5 * ((np.arange(m) - 11.3) / 6) ** 2) / 15).astype(int)
    published = publish_states(rng, original, kron.dense, releases)
    truth = int(np.searchsorted(np.cumsum(original), original.sum() / 2))
    found = quantile((published,) * 3, np.arange(m), 0.5, "cont", kron, Z)
    held = (found.low <= truth) & (truth <= found.high)
    assert found.reliable.all()
    assert held.mean() >= 0.94
    assert (found.high - found.low).mean() < 5
    assert abs(found.lower.mean() - truth) < 0.5


def test_no_rows_have_no_quantile():
    kron = Kron([retention_factor(0.5, [0.5, 0.5])])
    y = np.array([[0.0, 0.0], [0.0, 10.0], [10.0, 0.0]])
    found = quantile((y, y, y), [0, -1], 0.5, "cont", kron, Z)
    np.testing.assert_array_equal(found.known, [False, False, True])
    nothing = quantile((y, y, y), [-1, -1], 0.5, "disc", kron, Z)
    assert not nothing.known.any()


def test_many_groups_in_blocks_equal_one_by_one(monkeypatch):
    rng, kron, places, _ = random_case(9)
    y = rng.integers(0, 60, (50, kron.size)).astype(float)
    whole = quantile((y, y, y), places, 0.3, "cont", kron, Z)
    monkeypatch.setattr("udfs.quantile.BLOCK", 7 * kron.size)
    parts = quantile((y, y, y), places, 0.3, "cont", kron, Z)
    for name in ("lower", "upper", "fraction", "low", "high", "reliable", "known"):
        np.testing.assert_allclose(getattr(whole, name), getattr(parts, name), rtol=1e-9)


def test_a_wrong_call_is_told():
    kron, y = Kron([np.eye(2)]), np.ones((1, 2))
    with pytest.raises(KernelError, match="between 0 and 1"):
        quantile((y, y, y), [0, 1], float("nan"), "disc", kron, Z)
    with pytest.raises(KernelError, match="whole number"):
        quantile((y, y, y), [0, 0.5], 0.5, "disc", kron, Z)
    with pytest.raises(KernelError, match="each of the 2 states"):
        quantile((y, y, y), [0], 0.5, "disc", kron, Z)
