"""The value of a split, and its significance.

A node holds N rows, N_k of class k, in shares ``pi_k = N_k / N``.  A split sends ``n_L`` of them,
``n_Lk`` of class k, to the left, a share ``lambda = n_L / N``.  What it finds is how far the
classes of the left side are from what chance would send there:

    d_k = n_Lk - lambda N_k  =  sum over the node's rows of (1[left] - lambda)(1[class k] - pi_k)

All of these counts are reconstructed, so d_k has an error due to the perturbation.  To first
order the errors of lambda and pi_k cancel out of the second form: its standard error s_k is that
of a sum of one fixed function of the row, which the query layer gives, covariances included.

**Test.**  The split is noise unless some ``|d_k| > z s_k``, where z is the two-sided normal
quantile of Sidak's level for all c candidates of all columns and K classes (two classes
have d_1 = -d_2 and count as one):

    1 - a = confidence^(1 / (c K)),      z = Phi^-1(1 - a / 2)

Sidak's inequality holds for normal errors however they are correlated.  So a node where
nothing depends on the target is split with probability at most 1 - confidence.  The error is
that of the perturbation alone: with retention 1 it is zero, and every difference is taken for one.

**Worth.**  The decrease of impurity is a function of the d_k,

    gini      1 - sum pi_k^2           decrease  sum_k d_k^2 / (N^2 lambda (1 - lambda))
    entropy   - sum pi_k log2 pi_k     decrease  to second order the same, 2 ln 2 pi_k below d_k^2

Both grow with d_k^2, whose mean is too large by s_k^2: a rare value looks worth splitting off
because it is badly known.  So a split is worth what its interval leaves of the decrease,

    worth = decrease * sum_k max(|d_k| - z s_k, 0)^2 / sum_k d_k^2

which is above zero exactly where the split is more than noise.  The intervals hold for all
candidates together, so also for the one that is chosen because it looks best.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
CRITERIA = ("gini", "entropy")
# Of N: a smaller d_k is rounding.
ROUNDING = 1e-9


def shares(counts: Floats) -> Floats:
    """Class shares; reconstructed counts may be negative, shares may not.

    Negative counts count as none.  That is a bias, so it is done last, for probabilities only.

    >>> shares(np.array([30.0, -2.0])).tolist()
    [1.0, 0.0]
    """
    cut = np.clip(counts, 0.0, None)
    total = cut.sum()
    if total <= 0:
        return np.full(cut.size, 1 / cut.size)
    return np.asarray(cut / total)


def impurity(counts: Floats, criterion: str) -> float:
    """Of the classes of one node.

    >>> impurity(np.array([5.0, 5.0]), "gini"), impurity(np.array([5.0, 5.0]), "entropy")
    (0.5, 1.0)
    """
    pi = shares(counts)
    if criterion == "gini":
        return float(1 - (pi**2).sum())
    some = pi[pi > 0]
    return float(-(some * np.log2(some)).sum())


@dataclass(frozen=True)
class Weighed:
    """One candidate: d_k for each class, the share of the left side, the plug-in decrease."""

    d: Floats
    share: float
    decrease: float


def weigh(node: Floats, left: Floats, criterion: str) -> Weighed:
    """Weigh a split by the counts of a node's classes and of its left side.

    >>> weigh(np.array([50.0, 50.0]), np.array([50.0, 0.0]), "gini")
    Weighed(d=array([ 25., -25.]), share=0.5, decrease=0.5)
    """
    total, share = node.sum(), left.sum() / node.sum()
    d = left - share * node
    if criterion == "gini":
        decrease = (d**2).sum() / (total**2 * share * (1 - share))
    else:
        sides = share * impurity(left, criterion) + (1 - share) * impurity(node - left, criterion)
        decrease = impurity(node, criterion) - sides
    return Weighed(d, float(share), float(decrease))


def classes_tested(classes: int) -> list[int]:
    """The classes whose d_k are tested: of two the last, for the other is its negative."""
    return [classes - 1] if classes == 2 else list(range(classes))


def threshold(confidence: float, tests: int) -> float:
    """The quantile z of Sidak's level for this many two-sided tests.

    >>> round(threshold(0.95, 1), 4), round(threshold(0.95, 20), 4)
    (1.96, 3.016)
    """
    level = -np.expm1(np.log(confidence) / max(tests, 1))
    return NormalDist().inv_cdf(1 - level / 2)


def worth(found: Weighed, stderr: Floats, z: float, total: float) -> float:
    """What the interval leaves of the decrease; zero where the split may be noise.

    >>> found = weigh(np.array([50.0, 50.0]), np.array([50.0, 0.0]), "gini")
    >>> worth(found, np.array([5.0, 5.0]), 2.0, 100.0)
    0.18
    """
    size = np.abs(found.d)
    if not size.max() > ROUNDING * abs(total):
        return 0.0
    # Where there is no error to hold it against, nothing is significant.
    left = np.maximum(np.nan_to_num(size - z * stderr, nan=0.0), 0.0)
    return float(found.decrease * (left**2).sum() / (size**2).sum())
