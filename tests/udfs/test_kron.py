from __future__ import annotations

from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import channels, seeds
from udfs import kron as module
from udfs.errors import KernelError
from udfs.invert import estimate, invert, invert_function
from udfs.kron import Kron, retention_factor, transition

factor_lists = st.lists(channels(max_size=4).map(lambda c: c.matrix), min_size=1, max_size=3)


def dense(factors: list[np.ndarray]) -> np.ndarray:
    return reduce(np.kron, factors, np.ones((1, 1)))


@given(factors=factor_lists, seed=seeds, axiswise=st.booleans())
def test_kronecker_path_equals_dense_path(factors, seed, axiswise):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "DENSE_STATES", 0 if axiswise else 10**6)
        a, big = Kron(factors), dense(factors)
        batch = np.random.default_rng(seed).normal(size=(2, 3, a.size))
        np.testing.assert_allclose(a.dense, big, atol=1e-14)
        np.testing.assert_allclose(a.rows(batch), batch @ big, atol=1e-12)
        np.testing.assert_allclose(a.columns(batch), batch @ big.T, atol=1e-12)
        solved = np.linalg.solve(big.T, batch.reshape(-1, a.size).T).T.reshape(batch.shape)
        np.testing.assert_allclose(invert(batch, a), solved, rtol=1e-7, atol=1e-7)


@given(factors=factor_lists, seed=seeds)
def test_expected_publication_inverts_to_the_original(factors, seed):
    a = transition(factors)
    original = np.random.default_rng(seed).integers(0, 1000, size=(4, a.size)).astype(float)
    np.testing.assert_allclose(invert(a.rows(original), a), original, atol=1e-6)


@given(factors=factor_lists, seed=seeds)
def test_adding_up_the_inverted_function_equals_inverting_the_states(factors, seed):
    a = transition(factors)
    rng = np.random.default_rng(seed)
    published, g = rng.normal(size=(4, a.size)), rng.normal(size=a.size)
    np.testing.assert_allclose(
        estimate(published, g, a), invert(published, a) @ g, rtol=1e-6, atol=1e-6
    )
    np.testing.assert_allclose(a.columns(invert_function(g, a)), g, atol=1e-6)


def test_no_column_is_one_state():
    a = Kron([])
    assert (a.size, a.shape, a.is_identity) == (1, (), True)
    np.testing.assert_array_equal(invert([[5.0], [7.0]], a), [[5.0], [7.0]])


def test_first_column_is_the_most_significant_bit():
    # OLAP fig. 2: state 2 of four is "P1 and not P2".
    flip_first = Kron([[[0, 1], [1, 0]], np.eye(2)])
    np.testing.assert_array_equal(flip_first.rows([1, 2, 3, 4]), [3, 4, 1, 2])


def test_condition_number_and_eigenvalues_of_the_papers_matrix():
    # OLAP 4.2.3: eigenvalues between p^k and 1; at b = 1/2 the condition number is p^-k.
    for p in (0.2, 0.5, 0.9):
        for k in (1, 2, 3, 4):
            a = Kron([retention_factor(p, [0.5, 0.5])] * k)
            assert a.condition == pytest.approx(p**-k)
            eigenvalues = np.linalg.eigvalsh(a.dense)
            assert eigenvalues.min() == pytest.approx(p**k)
            assert eigenvalues.max() == pytest.approx(1)
    uneven = Kron([retention_factor(0.5, [0.9, 0.1]), retention_factor(0.3, [0.2, 0.8])])
    eigenvalues = np.sort(np.linalg.eigvals(uneven.dense).real)
    np.testing.assert_allclose(eigenvalues, [0.15, 0.3, 0.5, 1])
    assert uneven.condition == pytest.approx(np.linalg.cond(uneven.dense))


@pytest.mark.parametrize(
    ("factors", "words"),
    [
        ([[[1, 0]]], "factor 1 must be a square matrix"),
        ([np.eye(2), [[1, 2], [3]]], "the entries of factor 2 must be numbers"),
        ([[["a", "b"], ["c", "d"]]], "the entries of factor 1 must be numbers"),
        ([[[np.nan, 1], [0, 1]]], "factor 1 has an entry that is not finite"),
        ([[[0.5, 0.6], [0.5, 0.5]]], "factor 1 has a row that does not sum to one"),
        ([[[1.5, -0.5], [0, 1]]], "factor 1 has an entry outside"),
        ([np.eye(2), [[0.3, 0.7], [0.3, 0.7]]], "factor 2 is singular"),
        ([np.zeros((0, 0))], "factor 1 must be a square matrix"),
        (5, "list of matrices"),
        (None, "list of matrices"),
    ],
)
def test_a_wrong_factor_is_named(factors, words):
    with pytest.raises(KernelError, match=words):
        transition(factors)


def test_wrong_number_of_states_is_told_with_the_shape():
    a = Kron([np.eye(2), np.eye(3)])
    with pytest.raises(KernelError, match=r"expected 6 states \(Kron\(2 x 3\)\).*found 5"):
        a.rows(np.ones(5))
    with pytest.raises(KernelError, match="found none"):
        a.rows(1.0)


def test_what_are_no_numbers_is_refused_without_quoting_it():
    a = Kron([np.eye(2)])
    for wrong in (["secret", "b"], [[1, 2], [3]]):
        with pytest.raises(KernelError, match="must be numbers") as caught:
            a.rows(wrong)
        assert "secret" not in str(caught.value)
        assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("retention", "masses"),
    [(0, [1.0]), (2, [1.0]), (0.5, [0.5, 0.6]), (0.5, [-0.5, 1.5]), (0.5, []), (0.5, [[1.0]])],
)
def test_a_factor_of_impossible_parameters_is_refused(retention, masses):
    with pytest.raises(KernelError):
        retention_factor(retention, masses)


def test_factors_cannot_be_changed_behind_the_cached_inverse():
    a = Kron([[[0.75, 0.25], [0.25, 0.75]]])
    with pytest.raises(ValueError, match="read-only"):
        a.factors[0][0, 0] = 1


def test_a_hopeless_product_of_fair_factors_is_refused():
    weak = retention_factor(1e-4, [0.5, 0.5])
    with pytest.raises(KernelError, match=r"condition number is 1e\+1[26]"):
        invert(np.ones(16), transition([weak] * 4))
