"""Naive Bayes from reconstructed counts.

    P(class k | x)  ~  P(k) * product over features f of P(x_f | k)

    P(k) = (n_k + alpha) / sum,      P(cell b | k) = (n_kb + alpha) / sum over b

with n_kb the reconstructed count of class k in cell b of one feature: one query a feature, two
columns each, so the errors do not grow with the number of features as those of a deep path do.
Counts below zero count as none, or the likelihood's maximum is asked for (``estimator``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from privsql.errors import ProgrammingError
from privsql.learn.classifier import Classifier, Columns, Floats, checked, chosen
from privsql.learn.counts import Counts, opened
from privsql.learn.features import Feature

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
    estimator   "inversion", with counts below zero taken for none, or "iterative"
    cuts        a range is cut at quantiles into at most this many buckets

    A cell that the release refuses to speak of, and a value that it has never heard of, tell
    nothing: the feature is left out for such a row.
    """

    def __init__(self, alpha: float = 1.0, estimator: str = "inversion", cuts: int = 8) -> None:
        self.alpha = alpha
        self.estimator = estimator
        self.cuts = cuts

    class_log_prior_: Floats
    likelihoods_: tuple[Likelihood, ...]

    def fit(
        self,
        source: object,
        target: str,
        features: Sequence[str] | None = None,
        table: str | None = None,
    ) -> Self:
        """Learn ``target`` from a release: its path, a connection or a session.

        ``features`` are all other columns unless they are named; ``table`` is the release's.
        """
        checked("alpha", self.alpha, 1e-9, np.inf)
        checked("cuts", self.cuts, 2, 256, whole=True)
        if self.estimator not in ESTIMATORS:
            raise ProgrammingError(
                "the estimator is not one that is known", hint=f"choose {' or '.join(ESTIMATORS)}"
            )
        with opened(source) as session:
            counts = Counts(session, target, table, estimator=self.estimator)
            names = chosen(counts, (name for name, _ in session.catalog.columns), features)
            known = [counts.feature(name, self.cuts) for name in names]
            prior = counts.of(()).counts[:, 0]
            if np.isnan(prior).any():
                raise ProgrammingError(
                    "the release does not tell how many rows each class has",
                    hint="learn from a larger release",
                )
            likelihoods = tuple(self._likelihood(counts, feature) for feature in known)
        self.class_log_prior_ = _log(prior, self.alpha)
        self.likelihoods_ = likelihoods
        self.classes_ = np.array(counts.classes, dtype=object)
        self.feature_names_in_ = np.array(names, dtype=object)
        self.target_ = counts.target
        self.n_queries_ = counts.asked
        return self

    def _likelihood(self, counts: Counts, feature: Feature) -> Likelihood:
        tally = counts.by(feature, ())
        spoken = [b for b in range(len(tally.keys)) if not np.isnan(tally.counts[:, b]).any()]
        cells = {tally.keys[b]: i for i, b in enumerate(spoken)}
        log = _log(tally.counts[:, spoken], self.alpha)
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


def _log(counts: Floats, alpha: float) -> Floats:
    """Logarithms of smoothed shares along the last axis."""
    cut = np.clip(counts, 0.0, None) + alpha
    return np.asarray(np.log(cut / cut.sum(axis=-1, keepdims=True)))
