"""Nodes of a decision tree, and their text form."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from privsql.errors import how_many
from privsql.learn.features import Condition


@dataclass(frozen=True)
class Split:
    """How a node is split: its left side, and what that is worth."""

    condition: Condition
    decrease: float  # of impurity, as estimated
    worth: float  # what the interval leaves of it


@dataclass(frozen=True)
class Node:
    """Estimated counts of the classes of some rows, as they were reconstructed.

    ``half`` is half of each count's interval.  ``stop`` says why a leaf is one; ``silent`` is the
    number of splits that were left out because the release refuses to speak of a side, ``large``
    are columns that have more states under this path than the query layer tells apart.
    """

    counts: tuple[float, ...]
    half: tuple[float, ...]
    split: Split | None = None
    left: Node | None = None
    right: Node | None = None
    stop: str = ""
    silent: int = 0
    large: tuple[str, ...] = ()

    @property
    def rows(self) -> float:
        """The estimated number of rows."""
        return sum(self.counts)

    def stopped(self, why: str) -> Node:
        """The same as a leaf."""
        return replace(self, stop=why)

    def without(self, silent: int, large: tuple[str, ...] = ()) -> Node:
        """The same with more left out."""
        return replace(self, silent=self.silent + silent, large=self.large + large)


def text_of(root: Node, target: str, classes: Sequence[Any], level: float) -> str:
    """A tree as text: a line for each node, leaves with the class they predict.

    >>> leaf = Node((10.0, 90.25), (4.0, 5.5), stop="no split exceeds noise")
    >>> print(text_of(leaf, "ill", ["no", "yes"], 0.95))
    all rows: no 10 ± 4 | yes 90 ± 6 -> yes (no split exceeds noise)
    ill from reconstructed counts; ±: half of the 95% interval
    """
    end = f"{target} from reconstructed counts; ±: half of the {100 * level:.4g}% interval"
    return "\n".join([*_lines(root, "all rows", "", "", classes), end])


def _lines(node: Node, words: str, lead: str, below: str, classes: Sequence[Any]) -> Iterator[str]:
    parts = [
        f"{name} {count:.0f} ± {half:.0f}" if math.isfinite(half) else f"{name} {count:.0f}"
        for name, count, half in zip(classes, node.counts, node.half, strict=True)
    ]
    line = f"{lead}{words}: {' | '.join(parts)}"
    said = [node.stop] if node.stop else []
    if node.silent:
        said.append(
            f"{how_many(node.silent, 'split')} left out: not answered, a side is one personal group"
            " or too few rows"
        )
    if node.large:
        said.append(f"{', '.join(node.large)} left out: too many states")
    if node.split is None:
        best = max(range(len(node.counts)), key=lambda k: node.counts[k])
        line += f" -> {classes[best]}"
    yield f"{line} ({'; '.join(said)})" if said else line
    if node.split is not None and node.left is not None and node.right is not None:
        left, right = node.split.condition, node.split.condition.other()
        yield from _lines(node.left, str(left), f"{below}├─ ", f"{below}│  ", classes)
        yield from _lines(node.right, str(right), f"{below}└─ ", f"{below}   ", classes)
