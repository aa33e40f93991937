from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privsql.channels import (
    Cells,
    Decoy,
    FineGrain,
    Matrix,
    Replace,
    Uniform,
    amplification,
    channel_from_dict,
)
from privsql.channels.channel import MATRIX_LIMIT
from privsql.errors import ChannelError, DataError, TooLargeError
from tests.channels.decoys import proportional
from tests.strategies import channels, seeds


@given(channel=channels(), seed=seeds)
def test_every_channel_agrees_with_its_matrix(channel, seed):
    rng = np.random.default_rng(seed)
    matrix = channel.matrix
    assert matrix.shape == (channel.size, channel.size)
    assert (matrix >= 0).all()
    np.testing.assert_allclose(matrix.sum(axis=1), 1)
    batch = rng.normal(size=(2, 3, channel.size))
    np.testing.assert_allclose(channel.expected(batch), batch @ matrix, atol=1e-12)
    np.testing.assert_allclose(
        channel.inverse(batch), batch @ np.linalg.inv(matrix).T, rtol=1e-6, atol=1e-6
    )
    np.testing.assert_allclose(channel.inverse(batch) @ matrix.T, batch, atol=1e-7)


@given(channel=channels(), seed=seeds)
def test_expected_publication_inverts_to_the_original(channel, seed):
    counts = np.random.default_rng(seed).integers(0, 1000, size=channel.size)
    published = channel.expected(counts)
    back = published @ channel.inverse(np.eye(channel.size)).T
    np.testing.assert_allclose(back, counts, atol=1e-6)


@given(channel=channels())
def test_gamma_is_the_largest_ratio_in_a_column(channel):
    matrix = channel.matrix
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = matrix[:, None, :] / matrix[None, :, :]
    slow = np.nanmax(np.where(np.isnan(ratios), 1, ratios))
    if isinstance(channel, Decoy):
        assert channel.gamma == channel.epsilon == math.inf
    else:
        assert channel.gamma == pytest.approx(slow)
        assert channel.epsilon == pytest.approx(math.log(slow))
    assert amplification(matrix) == pytest.approx(slow)


@given(channel=channels())
def test_channels_survive_json(channel):
    text = json.dumps(channel.to_dict())
    again = channel_from_dict(json.loads(text))
    assert again == channel
    assert hash(again) == hash(channel)
    assert type(again) is type(channel)
    np.testing.assert_array_equal(again.matrix, channel.matrix)


def test_different_channels_are_not_equal():
    assert Uniform(0.5, 2) != Replace(0.5, [0.5, 0.5])
    assert Uniform(0.5, 2) != Uniform(0.4, 2)
    assert Uniform(0.5, 2) != "uniform"


# --- conversions -------------------------------------------------------------------


@given(p=st.floats(0.01, 0.99), m=st.integers(2, 2000))
def test_retention_from_epsilon_and_back(p, m):
    channel = Uniform(p, m)
    assert channel.epsilon == pytest.approx(math.log(1 + m * p / (1 - p)))
    assert Uniform.from_epsilon(channel.epsilon, m).retention == pytest.approx(p)


def test_retention_from_rho_is_the_largest_without_a_breach():
    rho1, rho2, m = 0.1, 0.5, 8
    channel = Uniform.from_rho(rho1, rho2, m)
    # Worst prior for upward: rho1 on the value, the rest anywhere else.
    truthful, other = channel.matrix[0, 0], channel.matrix[1, 0]
    posterior = rho1 * truthful / (rho1 * truthful + (1 - rho1) * other)
    assert posterior == pytest.approx(rho2)


def test_retention_is_not_the_chance_of_a_truthful_output():
    channel = Uniform(0.2, 5)
    assert channel.matrix[2, 2] == pytest.approx(0.2 + 0.8 / 5)


# --- large domains -----------------------------------------------------------------


def test_a_large_domain_needs_no_matrix():
    m = 1_000_000
    channel = Uniform(0.5, m)
    g = np.arange(m, dtype=float)
    inverted = channel.inverse(g)
    assert inverted[0] == pytest.approx((0 - 0.5 * (m - 1) / 2) / 0.5)
    fine = FineGrain(np.linspace(0.1, 0.9, m))
    np.testing.assert_allclose(
        fine.retentions * fine.inverse(g) + (1 - fine.retentions) * fine.inverse(g).mean(),
        g,
        atol=1e-4,
    )
    with pytest.raises(TooLargeError, match=str(MATRIX_LIMIT)):
        _ = channel.matrix


@pytest.mark.parametrize("least", [0.0, 1e-300, 1e-18, 1e-16, 1e-14, 1e-8, 0.01])
def test_fine_grain_with_one_tiny_retention_inverts_without_cancellation(least):
    fine = FineGrain([least, 0.5, 0.5, 0.3])
    # Exact for 0; the smallest retention moves the answer by less than itself.
    expected = np.linalg.solve(fine.matrix, [1.0, 2, 3, 7])
    np.testing.assert_allclose(fine.inverse([1.0, 2, 3, 7]), expected, rtol=1e-9)


def test_epsilon_is_never_above_what_was_asked_for():
    for epsilon in (0.01, 1, 5, 20, 30):
        assert Uniform.from_epsilon(epsilon, 7).epsilon == pytest.approx(epsilon, rel=1e-3)


def test_fine_grain_of_1346_values_inverts_as_its_matrix_does():
    rng = np.random.default_rng(3)
    fine = FineGrain(rng.uniform(0.05, 0.9, 1346))
    g = rng.normal(size=1346)
    np.testing.assert_allclose(fine.inverse(g), np.linalg.solve(fine.matrix, g), atol=1e-8)


# --- decoys ------------------------------------------------------------------------


@given(seed=seeds, c=st.integers(2, 6))
def test_decoys_keep_the_expected_count_of_each_value(seed, c):
    rng = np.random.default_rng(seed)
    totals = rng.integers(1, 100, size=rng.integers(4 * c, 6 * c)).astype(float)
    cap = 0.8 / c * totals.sum()
    totals = np.minimum(totals, cap)
    channel = proportional(totals, c)
    np.testing.assert_allclose(channel.expected(totals), totals, rtol=1e-9)
    np.testing.assert_allclose(np.diagonal(channel.matrix), 1 / c)
    # Sharing a group is mutual: pairs (i, j) are as many as pairs (j, i).
    pairs = totals[:, None] * channel.matrix
    np.testing.assert_allclose(pairs, pairs.T, rtol=1e-8)


def test_lumped_decoys_claim_no_epsilon_either():
    channel = proportional([10.0] * 4, 2)
    assert channel.lump(Cells.of([0, 0, 1, 1])).epsilon == math.inf
    again = channel_from_dict(channel.lump(Cells.of([0, 1, 2, 3])).to_dict())
    assert again.epsilon == math.inf


def test_decoys_with_a_value_that_nobody_has():
    channel = proportional([0.0, 10, 10, 10, 10], 2)
    np.testing.assert_allclose(channel.matrix[:, 0], [0.5, 0, 0, 0, 0])
    np.testing.assert_allclose(channel.matrix[0], [0.5, 0.125, 0.125, 0.125, 0.125])


# --- what is refused ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Uniform(0, 3), "retention 0 keeps nothing"),
        (lambda: Uniform(-0.1, 3), "must be above 0"),
        (lambda: Uniform(1.1, 3), "at most 1"),
        (lambda: Uniform(math.nan, 3), "finite"),
        (lambda: Uniform(math.inf, 3), "finite"),
        (lambda: Uniform(True, 3), "must be a number"),
        (lambda: Uniform("0.5", 3), "must be a number"),
        (lambda: Uniform(0.5, 0), "at least 1"),
        (lambda: Uniform(0.5, 2.0), "whole number"),
        (lambda: Uniform(0.5, True), "whole number"),
        (lambda: Replace(0.5, [0.5, 0.6]), "sum to one"),
        (lambda: Replace(0.5, [1.5, -0.5]), "between 0 and 1"),
        (lambda: Replace(0.5, []), "not be empty"),
        (lambda: Replace(0.5, [[1.0]]), "1 dimension"),
        (lambda: Replace(0.5, ["a", "b"]), "must hold numbers"),
        (lambda: Replace(0.5, [math.nan, 1]), "finite"),
        (lambda: Replace(0, [1.0]), "keeps nothing"),
        (lambda: FineGrain([0, 0, 0.5]), "2 values have retention 0"),
        (lambda: FineGrain([1e-12, 1e-12, 0.5]), "too small"),
        (lambda: FineGrain([0.5, 1.5]), "between 0 and 1"),
        (lambda: Matrix([[0.5, 0.5], [0.5, 0.5]]), "singular"),
        (lambda: Matrix([[0.5, 0.5], [0.6, 0.5]]), "row 2 does not"),
        (lambda: Matrix([[1.0, 0.0]]), "square"),
        (lambda: Matrix([[1.0, 0.0], [1.0]]), "rows of one length"),
        (lambda: Decoy(1, np.eye(2)), "at least 2"),
        (lambda: Decoy(2, np.eye(2)), "chance 1/c"),
        (lambda: Decoy(3, [[0.6, 0.4], [0.4, 0.6]]), "more distinct values"),
        (lambda: Uniform.from_gamma(1, 4), "above 1"),
        (lambda: Uniform.from_epsilon(0, 4), "above 0"),
        (lambda: Uniform.from_epsilon(40, 4), "at most 30"),
        (lambda: Uniform(1e-300, 3), "too small"),
        (lambda: Uniform(10**400, 3), "finite"),
        (lambda: Replace(1e-18, [0.5, 0.5]), "too small"),
        (lambda: Uniform(0.5, 2).inverse(["a", "b"]), "must be numbers"),
        (lambda: Uniform(0.5, 2).inverse([[1, 2], [3]]), "must be numbers"),
        (
            lambda: channel_from_dict({"mechanism": "uniform", "retention": 1, "size": 2, "x": 1}),
            "has no parameter 'x'",
        ),
        (
            lambda: channel_from_dict(
                {"mechanism": "matrix", "matrix": [[1.0]], "independent": "no"}
            ),
            "true or false",
        ),
        (lambda: Uniform.from_rho(0.5, 0.4, 4), "rho1 < rho2"),
        (lambda: Uniform(0.5, 3).inverse([1, 2]), "each of 3 values, found 2"),
        (lambda: Uniform(0.5, 3).expected(5), "found none"),
        (lambda: channel_from_dict({}), "name of its mechanism"),
        (lambda: channel_from_dict({"mechanism": "nope"}), "name of its mechanism"),
        (lambda: channel_from_dict({"mechanism": ["uniform"]}), "name of its mechanism"),
        (lambda: channel_from_dict([1]), "table of names"),
        (lambda: channel_from_dict({"mechanism": "matrix"}), 'matrix channel needs "matrix"'),
    ],
)
def test_what_is_no_channel_is_refused_with_a_reason(make, words):
    with pytest.raises(ChannelError, match=words) as caught:
        make()
    assert isinstance(caught.value, DataError)
    assert str(caught.value).startswith("ERROR 22023 [channel]: ")


def test_lumping_cells_that_are_not_lumpable_is_refused():
    with pytest.raises(ChannelError, match="perturbed differently") as caught:
        FineGrain([0.1, 0.5, 0.5]).lump(Cells.of([0, 0, 1]))
    assert "refine" in caught.value.hint


def test_a_domain_of_one_value_tells_nothing_and_hides_nothing():
    for channel in (Uniform(0.5, 1), Replace(0.5, [1.0]), FineGrain([0.5]), Matrix([[1.0]])):
        np.testing.assert_array_equal(channel.matrix, [[1.0]])
        np.testing.assert_allclose(channel.inverse([7.0]), [7.0])
        assert channel.epsilon == 0


def test_retention_one_is_the_identity_with_no_epsilon():
    channel = Uniform(1, 3)
    np.testing.assert_array_equal(channel.matrix, np.eye(3))
    assert channel.epsilon == math.inf
