"""Naive Bayes from reconstructed counts.

    P(class k | x)  ~  P(k) * product over features f of P(x_f | k)

    P(k) = (n_k + alpha) / sum,      P(cell b | k) = (n_kb + alpha) / sum over b

with n_kb the reconstructed count of class k in cell b of one feature: one query a feature, two
columns each, so the errors do not grow with the number of features as those of a deep path do.
Counts below zero count as none, or the likelihood's maximum is asked for (``estimator``).

A rare cell has a small count and a large error, and its logarithm would speak loudest.  So the
counts of a class are first drawn towards what they were if the feature told nothing of the
class, each as far as its standard error says (``shrunk``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from privsql.errors import ProgrammingError
from privsql.learn.classifier import Classifier, Columns, checked
from privsql.learn.counts import Counts, undetermined
from privsql.learn.features import Feature
from privsql.learn.splits import Floats

ESTIMATORS = ("inversion", "iterative")


@dataclass(frozen=True)
class Likelihood:
    """Log P(cell | class) of one feature: a column for each cell."""

    feature: Feature
    cells: dict[Any, int]
    log: Floats
    silent: int  # cells that the release does not speak of


class NaiveBayes(Classifier):
    """Naive Bayes built from the reconstructed counts of a release.

    alpha       rows added to every cell (Laplace's correction)
    shrink      draw counts towards those of a feature that tells nothing, by their errors
    estimator   "inversion", with counts below zero taken for none, or "iterative"
    cuts        a range is cut at quantiles into at most this many buckets

    A cell that the release refuses to speak of, and a value that it has never heard of, tell
    nothing: the feature is left out for such a row.
    """

    def __init__(
        self, alpha: float = 1.0, estimator: str = "inversion", cuts: int = 8, shrink: bool = True
    ) -> None:
        self.alpha = alpha
        self.shrink = shrink
        self.estimator = estimator
        self.cuts = cuts

    class_log_prior_: Floats
    likelihoods_: tuple[Likelihood, ...]

    def _checked(self) -> dict[str, Any]:
        checked("alpha", self.alpha, 1e-9, np.inf)
        checked("cuts", self.cuts, 2, 256, whole=True)
        if self.estimator not in ESTIMATORS:
            raise ProgrammingError(
                "the estimator is not one that is known", hint=f"choose {' or '.join(ESTIMATORS)}"
            )
        return {"estimator": self.estimator}

    def _learn(self, counts: Counts, features: Sequence[Feature]) -> None:
        prior = counts.by(None, ()).counts[:, 0]
        if np.isnan(prior).any():
            raise undetermined()
        self.likelihoods_ = tuple(self._likelihood(counts, feature) for feature in features)
        self.class_log_prior_ = _log(prior, self.alpha)

    def _likelihood(self, counts: Counts, feature: Feature) -> Likelihood:
        tally = counts.by(feature, ())
        spoken = [b for b in range(len(tally.keys)) if not np.isnan(tally.counts[:, b]).any()]
        cells = {tally.keys[b]: i for i, b in enumerate(spoken)}
        told = tally.counts[:, spoken]
        if self.shrink:
            told = shrunk(told, np.nan_to_num(tally.half[:, spoken]) / _Z)
        log = _log(told, self.alpha)
        return Likelihood(feature, cells, log, len(tally.keys) - len(spoken))

    def _probabilities(self, columns: Columns, rows: int) -> Floats:
        total = np.repeat(self.class_log_prior_[None, :], rows, axis=0)
        for each in self.likelihoods_:
            keys = each.feature.bucket(columns[each.feature.name])
            at = np.array([each.cells.get(key, -1) for key in keys], dtype=np.int64)
            total[at >= 0] += each.log[:, at[at >= 0]].T
        total -= total.max(axis=1, keepdims=True)
        likely = np.exp(total)
        return np.asarray(likely / likely.sum(axis=1, keepdims=True))


_Z = NormalDist().inv_cdf(0.975)  # a tally's half intervals are those at 95%


def shrunk(counts: Floats, errors: Floats) -> Floats:
    """Counts n_kb drawn towards ``e_kb = N_k s_b``, the class's rows times the cell's share.

        r_kb = n_kb / e_kb,  v_kb = (error_kb / e_kb)^2
        tau_k^2 = max(0, sum over b of s_b ((r_kb - 1)^2 - v_kb))
        n_kb <- e_kb (1 + (r_kb - 1) tau_k^2 / (tau_k^2 + v_kb))

    Empirical Bayes: ratios r of a class lie around 1 with variance tau^2, which is what of
    their spread the errors do not explain, and are seen with variance v.  Shapes (classes,
    cells).  Without errors nothing changes.

    >>> counts = np.array([[50.0, 40.0, 10.0], [50.0, 60.0, -10.0]])
    >>> shrunk(counts, np.zeros((2, 3))).tolist() == counts.tolist()
    True
    >>> shrunk(counts, np.full((2, 3), 30.0)).round(1)
    array([[50., 50.,  0.],
           [50., 50.,  0.]])
    """
    cells = np.clip(counts.sum(axis=0), 0.0, None)
    if not errors.any() or cells.sum() <= 0:
        return counts
    shares = cells / cells.sum()
    expected = np.clip(counts.sum(axis=1, keepdims=True), 0.0, None) * shares
    safe = np.where(expected > 0, expected, 1.0)
    ratio, noise = counts / safe - 1.0, (errors / safe) ** 2
    tau = np.clip((shares * (ratio**2 - noise)).sum(axis=1, keepdims=True), 0.0, None)
    both = tau + noise
    kept = np.divide(tau, both, out=np.ones_like(both), where=both > 0)
    return np.asarray(expected * (1.0 + kept * ratio))


def _log(counts: Floats, alpha: float) -> Floats:
    """Logarithms of smoothed shares along the last axis."""
    cut = np.clip(counts, 0.0, None) + alpha
    return np.asarray(np.log(cut / cut.sum(axis=-1, keepdims=True)))
