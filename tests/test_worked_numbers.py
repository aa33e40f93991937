"""Worked numbers of the papers and of the mathematics page, one test each."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from privsql.channels import FineGrain, Grid, Interval, Replace, Uniform, gamma_of_rho
from tests.channels.decoys import proportional
from udfs.invert import invert
from udfs.kron import Kron, retention_factor


def test_transition_matrix_of_one_predicate():
    """OLAP 4.1: [[(1-p)a + p, (1-p)b], [(1-p)a, (1-p)b + p]]."""
    p, a, b = 0.2, 0.85, 0.15
    expected = [[(1 - p) * a + p, (1 - p) * b], [(1 - p) * a, (1 - p) * b + p]]
    np.testing.assert_allclose(Replace(p, [a, b]).matrix, expected)
    np.testing.assert_allclose(retention_factor(p, [a, b]), expected)


def test_single_column_estimator():
    """OLAP 4.1: n_o = (n_r - n(1-p)b) / p."""
    n, n_r, p, b = 10_000, 2_600, 0.2, 0.15
    a = Kron([retention_factor(p, [1 - b, b])])
    assert invert([n - n_r, n_r], a)[1] == pytest.approx((n_r - n * (1 - p) * b) / p)


def test_age_salary_and_rent():
    """OLAP 4.2: R = [[.85, .15], [.6, .4], [.65, .35]].

    The paper takes columns as a continuum, b = (high-low)/(max-min).  On a grid the same
    masses belong to half-open ranges of domains that hold max-min steps.
    """
    columns = [
        (Grid.of(0, 99), 30, 45),
        (Grid.of(25_000, 199_000, 1_000), 50_000, 120_000),
        (Grid.of(500, 2_499), 700, 1_400),
    ]
    masses = [
        domain.mass(Interval(low, high, low_closed=True, high_closed=False))
        for domain, low, high in columns
    ]
    table = [[1 - b, b] for b in masses]
    np.testing.assert_allclose(table, [[0.85, 0.15], [0.6, 0.4], [0.65, 0.35]], atol=1e-15)
    # ... and the 2^3 matrix they make has the entries that the paper spells out.
    p = 0.3
    a = Kron([retention_factor(p, row) for row in table])
    for i in range(8):
        for j in range(8):
            bits = [((i >> r) & 1, (j >> r) & 1) for r in (2, 1, 0)]
            entry = np.prod([(1 - p) * table[r][v] + p * (u == v) for r, (u, v) in enumerate(bits)])
            assert a.dense[i, j] == pytest.approx(entry)


def test_closed_integer_ranges_hold_both_ends():
    """Section 9.10: (high-low+1)/(max-min+1), not (high-low)/(max-min)."""
    age = Grid.of(0, 120)
    assert age.mass(Interval(25, 45)) == pytest.approx(21 / 121)


def test_lemma_2():
    """RECON lemma 2: E[O*] = n(fp + (1-p)/m), F' = (O*/n - (1-p)/m)/p, E[F'] = f."""
    n, f, p, m = 400, 0.35, 0.2, 5
    channel = Uniform(p, m)
    counts = np.array([n * f, *[n * (1 - f) / (m - 1)] * (m - 1)])
    published = channel.expected(counts)
    assert published[0] == pytest.approx(n * (f * p + (1 - p) / m))
    assert (published[0] / n - (1 - p) / m) / p == pytest.approx(f)
    two = Kron([retention_factor(p, [1 - 1 / m, 1 / m])])
    assert invert([n - published[0], published[0]], two)[1] / n == pytest.approx(f)


def test_gammas_of_the_fine_grain_example():
    """FINE example 1: gamma = 1.5, 3, 9.5, 18."""
    rhos = [("1/10", "1/7"), ("1/10", "1/4"), ("1/9", "19/35"), ("1/8", "18/25")]
    gammas = [gamma_of_rho(float(Fraction(low)), float(Fraction(high))) for low, high in rhos]
    assert gammas == pytest.approx([1.5, 3, 9.5, 18])


def test_uniform_retention_of_a_gamma():
    """Section 7: p = (gamma-1)/(m-1+gamma); FINE's uniform operator at gamma = 1.5, m = 4."""
    channel = Uniform.from_gamma(1.5, 4)
    assert channel.retention == pytest.approx(0.5 / 4.5)
    assert channel.gamma == pytest.approx(1.5)
    assert channel.matrix[0, 0] == pytest.approx(1 / 3)


def test_fine_grain_operator_of_figure_2():
    matrix = FineGrain([0, 1 / 3, 1 / 3, 1 / 3]).matrix
    np.testing.assert_allclose(matrix[0], [1 / 4] * 4)
    np.testing.assert_allclose(matrix[2], [1 / 6, 1 / 6, 1 / 2, 1 / 6])


@pytest.mark.parametrize(("p", "gammas"), [(1 / 3, "upward"), (1 / 6, "both")])
def test_fine_grain_example_meets_its_constraints(p, gammas):
    """Section 7: upward T[i,i] <= gamma_i T[j,i]; downward T[j,j] <= gamma_i T[i,j]."""
    gamma = [1.5, 3, 9.5, 18]
    matrix = FineGrain([0, p, p, p]).matrix
    pairs = [(i, j) for i in range(4) for j in range(4) if i != j]
    assert all(matrix[i, i] <= gamma[i] * matrix[j, i] + 1e-12 for i, j in pairs)
    downward = all(matrix[j, j] <= gamma[i] * matrix[i, j] + 1e-12 for i, j in pairs)
    assert downward == (gammas == "both")  # section 9.5: the paper's operator fails it


def test_decoys_of_equal_totals_follow_the_counted_chance():
    """Section 9.7: P(s among the decoys of t | t.s != s) = f(c-1)/(N-f)."""
    m, f, c = 6, 50, 3
    n = m * f
    matrix = proportional([f] * m, c).matrix
    off = matrix[~np.eye(m, dtype=bool)]
    np.testing.assert_allclose(off, f * (c - 1) / (c * (n - f)))


def test_epsilon_of_uniform():
    """Section 1: epsilon = ln(1 + m p/(1-p))."""
    assert Uniform(0.2, 10).epsilon == pytest.approx(np.log(1 + 10 * 0.2 / 0.8))
