"""A decision tree of reconstructed counts (OLAP 6.3).

At each node one query a column gives the counts of the classes in its cells, a second one the
errors of the splits worth testing; :mod:`privsql.learn.splits` says what is worth it and what is
noise.  A split is left out when the release refuses to speak of one of its sides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from privsql.errors import ProgrammingError, TooLargeError
from privsql.learn.classifier import Classifier, Columns, checked
from privsql.learn.counts import Counts, undetermined
from privsql.learn.features import Condition, Feature
from privsql.learn.node import Node, Split, text_of
from privsql.learn.splits import (
    CRITERIA,
    ROUNDING,
    Floats,
    Weighed,
    classes_tested,
    shares,
    threshold,
    weigh,
    worth,
)

# Splits of a column whose errors are asked for: those of largest |d_k|, which are the most
# significant ones where errors are alike, and those of largest decrease, which win where
# there are no errors.  All candidates count in the correction for many tests.
MOST_TESTED = 2


@dataclass(frozen=True)
class _Candidate:
    condition: Condition
    weighed: Weighed
    order: tuple[int, int]  # of column and cell, to settle ties


class DecisionTreeClassifier(Classifier):
    """A decision tree built from the reconstructed counts of a release.

    criterion    "gini" or "entropy"
    max_depth    the longest path
    min_rows     the least estimated number of rows on either side of a split
    confidence   a node where no column tells anything about the target is split with
                 probability at most 1 - confidence; also the level of the errors that are printed
    cuts         a range is cut at quantiles into at most this many buckets

    After ``fit``: ``classes_``, ``feature_names_in_``, ``tree_`` (a :class:`Node`),
    ``n_queries_``.  ``print(tree)`` shows counts with their errors.
    """

    tree_: Node

    def __init__(
        self,
        criterion: str = "gini",
        max_depth: int = 5,
        min_rows: float = 50,
        confidence: float = 0.95,
        cuts: int = 8,
    ) -> None:
        self.criterion = criterion
        self.max_depth = max_depth
        self.min_rows = min_rows
        self.confidence = confidence
        self.cuts = cuts

    def _checked(self) -> dict[str, Any]:
        if self.criterion not in CRITERIA:
            raise ProgrammingError(
                "the criterion is not one that is known", hint=f"choose {' or '.join(CRITERIA)}"
            )
        checked("max_depth", self.max_depth, 0, 64, whole=True)
        checked("min_rows", self.min_rows, 1, np.inf)
        checked("confidence", self.confidence, 0.5, 1 - 1e-9)
        checked("cuts", self.cuts, 2, 256, whole=True)
        return {"level": self.confidence}

    def _learn(self, counts: Counts, features: Sequence[Feature]) -> None:
        root = self._node(counts, ())
        if root is None or not root.rows > 0:
            raise undetermined()
        self.tree_ = self._grow(counts, features, (), root, 0)

    # -- growing -------------------------------------------------------------------------

    def _node(self, counts: Counts, path: Sequence[Condition]) -> Node | None:
        """A node without a split; None where the release gives no answer about its rows."""
        tally = counts.by(None, path)
        if not tally.keys or np.isnan(tally.counts).any():
            return None
        of = tally.counts[:, 0]
        return Node(tuple(of.tolist()), tuple(tally.half[:, 0].tolist()))

    def _grow(
        self,
        counts: Counts,
        features: Sequence[Feature],
        path: tuple[Condition, ...],
        node: Node,
        depth: int,
    ) -> Node:
        if depth >= self.max_depth:
            return node.stopped("maximum depth")
        if node.rows < 2 * self.min_rows:
            return node.stopped("too few rows")
        if sum(count > 0.5 for count in node.counts) < 2:
            return node.stopped("one class")
        candidates, silent, large = self._candidates(counts, features, path, np.array(node.counts))
        node = node.without(silent, large)
        if not candidates:
            return node.stopped("no split leaves enough rows on both sides")
        for best, left_over in self._best_first(counts, path, np.array(node.counts), candidates):
            sides = best.condition, best.condition.other()
            left, right = (self._node(counts, (*path, side)) for side in sides)
            if left is None or right is None:
                node = node.without(1)
                continue
            return replace(
                node,
                split=Split(best.condition, best.weighed.decrease, left_over),
                left=self._grow(counts, features, (*path, sides[0]), left, depth + 1),
                right=self._grow(counts, features, (*path, sides[1]), right, depth + 1),
            )
        return node.stopped("no split exceeds noise")

    def _candidates(
        self, counts: Counts, features: Sequence[Feature], path: tuple[Condition, ...], node: Floats
    ) -> tuple[dict[int, list[_Candidate]], int, tuple[str, ...]]:
        """The splits of each column that leave enough rows, and what is left out.

        A split whose sides cannot be counted, because cells are not answered, is left out.
        """
        found: dict[int, list[_Candidate]] = {}
        silent, large = 0, []
        for f, feature in enumerate(features):
            if feature.cuts == ():
                continue
            try:
                tally = counts.by(feature, path)
            except TooLargeError:
                large.append(feature.name)
                continue
            here = []
            for b, (condition, left) in enumerate(_sides(feature, tally.keys, tally.counts)):
                if np.isnan(left).any():
                    silent += 1
                elif min(left.sum(), (node - left).sum()) >= self.min_rows:
                    here.append(_Candidate(condition, weigh(node, left, self.criterion), (f, b)))
            if here:
                found[f] = here
        return found, silent, tuple(large)

    def _best_first(
        self,
        counts: Counts,
        path: tuple[Condition, ...],
        node: Floats,
        candidates: dict[int, list[_Candidate]],
    ) -> Iterator[tuple[_Candidate, float]]:
        """The splits that are more than noise with what they are worth, best first.

        A split is worth at most its decrease, so the errors of a column are asked for only
        while one of its splits could still be the best.
        """
        classes = classes_tested(node.size)
        z = threshold(self.confidence, sum(map(len, candidates.values())) * len(classes))
        waiting = sorted(candidates.values(), key=_most)  # the best is last
        known: list[tuple[_Candidate, float]] = []
        while waiting or known:
            if waiting and (not known or _most(waiting[-1]) >= known[-1][1] - ROUNDING):
                known += self._tested(counts, path, node, _promising(waiting.pop()), z)
                # What differs by rounding only is taken in the order of the columns.
                known.sort(key=lambda pair: (-round(pair[1], 12), pair[0].order), reverse=True)
            else:
                yield known.pop()

    def _tested(
        self,
        counts: Counts,
        path: tuple[Condition, ...],
        node: Floats,
        some: Sequence[_Candidate],
        z: float,
    ) -> Iterator[tuple[_Candidate, float]]:
        """Those of some splits of a column that are more than noise."""
        total = float(node.sum())
        stderr = counts.contrasts(
            path,
            [(each.condition, each.weighed.share) for each in some],
            [(k, float(node[k]) / total) for k in classes_tested(node.size)],
        )
        if stderr is None:
            return
        if node.size == 2:
            stderr = np.repeat(stderr, 2, axis=1)
        for each, errors in zip(some, stderr, strict=True):
            left_over = worth(each.weighed, errors, z, total)
            if left_over > 0:
                yield each, left_over

    # -- using ---------------------------------------------------------------------------

    def _probabilities(self, columns: Columns, rows: int) -> Floats:
        found = np.empty((rows, self.classes_.size))
        todo = [(self.tree_, np.arange(rows))]
        while todo:
            node, at = todo.pop()
            if node.split is None or node.left is None or node.right is None:
                found[at] = shares(np.array(node.counts))
                continue
            column = columns[node.split.condition.column]
            goes = node.split.condition.mask([column[i] for i in at.tolist()])
            todo += [(node.left, at[goes]), (node.right, at[~goes])]
        return found

    def to_text(self) -> str:
        """The tree as a person reads it, counts with half of their interval."""
        self._check_fitted()
        return text_of(self.tree_, self.target_, list(self.classes_), self.confidence)

    def __str__(self) -> str:
        """The tree once there is one, the parameters before."""
        return self.to_text() if hasattr(self, "tree_") else repr(self)


def _sides(
    feature: Feature, keys: Sequence[Any], counts: Floats
) -> Iterator[tuple[Condition, Floats]]:
    """Each split of a column with the counts of its left side.

    A category against the rest; a range up to each cut, which adds its buckets up.  Of two
    categories one is enough.
    """
    if feature.cuts is None:
        for b in range(1 if len(keys) == 2 else len(keys)):
            yield Condition(feature.name, "=", keys[b]), counts[:, b]
        return
    for i, cut in enumerate(feature.cuts):
        below = [b for b, key in enumerate(keys) if key <= i]
        yield Condition(feature.name, "<=", cut), counts[:, below].sum(axis=1)


def _most(candidates: Sequence[_Candidate]) -> float:
    """The largest decrease among some splits."""
    return max(each.weighed.decrease for each in candidates)


def _promising(candidates: Sequence[_Candidate]) -> list[_Candidate]:
    """Those of largest |d_k| and those of largest decrease."""
    far = sorted(candidates, key=lambda each: -float(np.abs(each.weighed.d).max()))
    worth = sorted(candidates, key=lambda each: -each.weighed.decrease)
    wanted = {each.order for each in (*far[:MOST_TESTED], *worth[:MOST_TESTED])}
    return [each for each in candidates if each.order in wanted]
