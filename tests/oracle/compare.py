"""Whether an answer is the one that DuckDB gives on the raw table.

Names and order of columns, types (an exact answer keeps DuckDB's, an estimate is DOUBLE) and
rows: in order where the query orders them totally, otherwise matched by their keys.  Counts are
equal; sums are within 1e-9 of the sum of the absolute values of what was added; variances and
their kin, which subtract two large numbers, within 1e-7 of the largest square.

Groups that only a domain knows are dropped first, on both sides, where a marker tells them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from tests.oracle.generator import Case
from tests.oracle.nodes import Node, touches

Row = tuple[Any, ...]
Scale = Callable[[Node], float]

SUMS = 1e-9
SQUARES = 1e-7


@dataclass(frozen=True)
class Answer:
    """A result: names, DuckDB's types, which columns are called estimates, rows."""

    names: tuple[str, ...]
    types: tuple[str, ...]
    rows: tuple[Row, ...]
    estimates: tuple[bool, ...] | None = None  # None: the session does not say


@dataclass(frozen=True)
class Difference:
    """How an answer differs; ``kind`` is what shrinking must preserve."""

    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


def difference(case: Case, raw: Answer, got: Answer, scale: Scale) -> Difference | None:
    """The first thing that is not as it should be, or None."""
    if got.names != raw.names:
        return Difference("names", f"{got.names}, not {raw.names}")
    items = case.items
    for place, item in enumerate(items):
        wrong = _type(item, raw.types[place], got.types[place])
        if wrong is not None:
            return wrong
        if got.estimates is not None:
            wrong = _called(item, got.estimates[place])
            if wrong is not None:
                return wrong
    expected, found = _present(items, raw.rows), _present(items, got.rows)
    if len(expected) != len(found):
        text = f"{len(found)} rows, not {len(expected)}; {_unlike(items, expected, found)}"
        return Difference("rows", text)
    if case.ordered:
        pairs = list(zip(expected, found, strict=True))
        for place, (one, two) in enumerate(pairs):
            wrong = _row(items, one, two, scale)
            if wrong is not None:
                return Difference(wrong.kind, f"row {place}: {wrong.text}")
        return None
    return _matched(items, expected, found, scale)


def _type(item: Node, raw: str, got: str) -> Difference | None:
    output = item.output
    if output is None or output.typing == "any":
        return None
    estimate = not output.key and touches(item)
    wanted = "DOUBLE" if estimate else raw
    if got == wanted:
        return None
    what = "an estimate" if estimate else "a key" if output.key else "an exact answer"
    return Difference("types", f"{output.name} is {what} and {got}, not {wanted}")


def _called(item: Node, got: bool) -> Difference | None:
    output = item.output
    if output is None or output.typing == "any" or got == (not output.key and touches(item)):
        return None
    word = "an estimate" if got else "exact"
    return Difference("called", f"{output.name} is called {word} and is not")


def _present(items: Sequence[Node], rows: Sequence[Row]) -> list[Row]:
    """Rows of groups that are not empty."""
    for place, item in enumerate(items):
        if item.output is not None and item.output.marker:
            return [row for row in rows if row[place] is None or float(row[place]) != 0]
    return list(rows)


def _key(items: Sequence[Node], row: Row) -> Row:
    # With the type beside it: True is not 1.
    return tuple(
        (type(value).__name__, value)
        for item, value in zip(items, row, strict=True)
        if item.output is not None and item.output.key
    )


def _unlike(items: Sequence[Node], expected: list[Row], found: list[Row]) -> str:
    one, two = ({_key(items, row) for row in rows} for rows in (expected, found))
    missing, more = sorted(map(str, one - two))[:3], sorted(map(str, two - one))[:3]
    return f"missing {missing}, too many {more}"


def _matched(
    items: Sequence[Node], expected: list[Row], found: list[Row], scale: Scale
) -> Difference | None:
    """Rows with the same key are matched one to one: ROLLUP's NULL keys are not unique."""
    left: dict[Row, list[Row]] = defaultdict(list)
    for row in found:
        left[_key(items, row)].append(row)
    for row in expected:
        candidates = left[_key(items, row)]
        if not candidates:
            return Difference("rows", f"no row for {row}")
        reasons = []
        # NULL stands for a variance of 0 only where there is no 0: like with like first.
        candidates.sort(key=lambda other: _nulls(other) != _nulls(row))
        for place, other in enumerate(candidates):
            wrong = _row(items, row, other, scale)
            if wrong is None:
                del candidates[place]
                break
            reasons.append(wrong)
        else:
            return Difference(reasons[0].kind, f"{reasons[0].text} in {row}")
    return None


def _nulls(row: Row) -> tuple[bool, ...]:
    return tuple(value is None for value in row)


def _row(items: Sequence[Node], expected: Row, found: Row, scale: Scale) -> Difference | None:
    for item, one, two in zip(items, expected, found, strict=True):
        if not equal(item, one, two, scale):
            name = item.output.name if item.output is not None else "?"
            return Difference("values", f"{name} is {two!r}, not {one!r}")
    return None


def equal(item: Node, expected: Any, found: Any, scale: Scale) -> bool:
    """Whether two values are the same answer, by the rule of their measure."""
    output = item.output
    measure = "any" if output is None or output.key else output.measure
    if measure in ("square", "root", "corr"):
        return _spread(item, measure, expected, found, scale)
    if expected is None or found is None:
        return expected is found
    if not (_number(expected) and _number(found)):
        return type(expected) is type(found) and bool(expected == found)
    one, two = float(expected), float(found)
    if one == two or (math.isnan(one) and math.isnan(two)):
        return True
    if measure != "sum":
        return False
    off = abs(one - two)
    if off <= SUMS * abs(one) + 1e-15:
        return True
    return item.scale is not None and off <= SUMS * (abs(one) + scale(item.scale))


def _spread(item: Node, measure: str, expected: Any, found: Any, scale: Scale) -> bool:
    """Variance, deviation, correlation: none is to be had where a variance is rounding error."""
    one, two = (math.nan if value is None else float(value) for value in (expected, found))
    if math.isnan(one) or math.isnan(two):
        if math.isnan(one) or measure == "corr":
            return math.isnan(one) and math.isnan(two)
        limit = SQUARES * (scale(item.scale) if item.scale is not None else 0)
        return abs(one) ** (2 if measure == "root" else 1) <= limit
    if measure == "corr":
        return abs(one - two) <= SQUARES * max(1, abs(one))
    if measure == "root":
        one, two = one * one, two * two
    off = abs(one - two)
    if off <= SQUARES * abs(one):
        return True
    return item.scale is not None and off <= SQUARES * scale(item.scale)


def _number(value: Any) -> bool:
    return isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)
