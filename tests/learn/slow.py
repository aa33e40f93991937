"""Classifiers over raw rows, written plainly, to hold the others against."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any


def cut_points(values: list[Any], cuts: int) -> list[Any]:
    """The distinct quantiles j / cuts: the least value with at least that share up to it."""
    ordered = sorted(values)
    found = {ordered[max(0, math.ceil(len(ordered) * j / cuts) - 1)] for j in range(1, cuts)}
    return sorted(found)


def impurity(classes: list[Any], criterion: str) -> float:
    shares = [count / len(classes) for count in Counter(classes).values()]
    if criterion == "gini":
        return 1 - sum(share**2 for share in shares)
    return -sum(share * math.log2(share) for share in shares)


def questions(rows: list[dict], feature: str, cuts: list[Any] | None):
    """(words, does it hold) of each split of a column, over all its values."""
    if cuts is not None:
        for cut in cuts:
            yield f"{feature} <= {cut}", lambda row, cut=cut: row[feature] <= cut
        return
    values = sorted({row[feature] for row in rows})
    for value in values[:1] if len(values) == 2 else values:
        yield f"{feature} = {value}", lambda row, value=value: row[feature] == value


def grown(
    rows: list[dict],
    target: str,
    features: dict[str, list[Any] | None],
    *,
    criterion: str,
    depth: int,
    min_rows: int,
    everything: list[dict] | None = None,
) -> tuple:
    """(counts by class) of a leaf, (counts, words, left, right) of a split."""
    everything = rows if everything is None else everything
    classes = [row[target] for row in rows]
    counts = tuple(classes.count(each) for each in sorted({row[target] for row in everything}))
    best: tuple[float, Any, Any, Any] | None = None
    if depth and len(rows) >= 2 * min_rows and sum(n > 0 for n in counts) > 1:
        for feature, cuts in features.items():
            for words, holds in questions(everything, feature, cuts):
                left = [row for row in rows if holds(row)]
                right = [row for row in rows if not holds(row)]
                if min(len(left), len(right)) < min_rows:
                    continue
                inside = sum(
                    len(side) / len(rows) * impurity([row[target] for row in side], criterion)
                    for side in (left, right)
                )
                decrease = impurity(classes, criterion) - inside
                if decrease > 1e-12 and (best is None or decrease > best[0] + 1e-12):
                    best = decrease, words, left, right
    if best is None:
        return (counts,)
    options = {"criterion": criterion, "depth": depth - 1, "min_rows": min_rows}
    sides = (grown(side, target, features, everything=everything, **options) for side in best[2:])
    return (counts, best[1], *sides)


def shape(node: Any) -> tuple:
    """A node of the real thing in the same form."""
    counts = tuple(round(count) for count in node.counts)
    assert all(abs(a - b) < 1e-6 for a, b in zip(counts, node.counts, strict=True))
    if node.split is None:
        return (counts,)
    return (counts, str(node.split.condition), shape(node.left), shape(node.right))
