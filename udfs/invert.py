"""Inversion: unbiased answers from published states, without building the full matrix.

Let ``y[j]`` be the number of published rows in state j (or the sum of a public column, or
of weights, over them) and ``A`` the transition matrix between states.  Rows are perturbed
independently of everything else in them, so ``E[y] = x A`` and

    x = y A^-1                                                       (OLAP 4.2.1)

is unbiased whatever the original table was.  An answer that needs the sum of a function g
over original rows, g given on states, can skip x: with ``G = A^-1 g``

    E[sum_j y[j] G[j]] = sum_i x[i] g[i].                            (reconstruction, 3)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from udfs.kron import Array, Kron


def invert(observed: ArrayLike, kron: Kron) -> Array:
    """Reconstructed state counts, or state sums, ``x = y A^-1``; shape ``(..., S)``.

    One map serves counts, weighted counts and sums of a public column: all are sums
    over rows of something that the perturbation left alone.  Nothing is clipped: an
    estimate below zero is what makes the others unbiased.

    RECON lemma 2 is its smallest case, ``F' = (O*/n - (1-p)/m) / p``:

    >>> from udfs.kron import retention_factor
    >>> p, m = 0.2, 4
    >>> one_value = Kron([retention_factor(p, [1 - 1 / m, 1 / m])])
    >>> invert([700.0, 300.0], one_value) / 1000, round((0.3 - (1 - p) / m) / p, 12)
    (array([0.5, 0.5]), 0.5)
    """
    return kron.inverse.rows(observed)


def invert_function(function: ArrayLike, kron: Kron) -> Array:
    """``G = A^-1 g``: what to add up over published states instead of g over original ones.

    ``function`` has shape ``(..., S)``.

    >>> from udfs.kron import retention_factor
    >>> invert_function([0.0, 1.0], Kron([retention_factor(0.5, [0.6, 0.4])]))
    array([-0.4,  1.6])
    >>> invert_function([1.0, 1.0], Kron([retention_factor(0.3, [0.9, 0.1])]))
    array([1., 1.])
    """
    g = kron.states(function)
    inverted = kron.inverse.columns(g)
    # Rows of A sum to one, so a constant is its own inverse; rounding would give an exact
    # count an error bar, or a variance below zero.
    constant = (g == g[..., :1]).all(axis=-1, keepdims=True)
    kept: Array = np.where(constant, g, inverted)
    return kept


def estimate(observed: ArrayLike, function: ArrayLike, kron: Kron) -> Array:
    """Reconstructed ``sum_i x[i] g[i]``; shapes ``(..., S)`` and ``(S,)`` to ``(...)``.

    >>> from udfs.kron import retention_factor
    >>> two = Kron([retention_factor(0.5, [0.6, 0.4]), retention_factor(0.5, [0.5, 0.5])])
    >>> published = two.rows([100, 20, 30, 50])
    >>> either = [0, 1, 1, 1]  # P1 OR P2: any Boolean combination is a function on states
    >>> float(estimate(published, either, two).round(9))
    100.0
    """
    total: Array = np.sum(kron.states(observed) * invert_function(function, kron), axis=-1)
    return total
