"""Features: columns that a classifier uses, and conditions on them.

A column of categories is asked ``column = value``; a column of numbers or times is asked
``column <= cut``, with few cuts.  A condition is either side of such a question, as SQL with
the value bound, as text to read, and as a mask over original values to predict from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privsql.errors import DataError
from privsql.release.names import quoted

Mask = NDArray[np.bool_]


def missing(value: object) -> bool:
    """Whether a value is NULL: None, pandas' NA, and NaN and NaT, which are not themselves."""
    return value is None or type(value).__name__ == "NAType" or bool(value != value)


@dataclass(frozen=True)
class Feature:
    """A column, and the cuts of its range where it has an order (``cuts`` is None otherwise).

    Bucket i of a range holds the values up to ``cuts[i]`` that are above those before; the
    last holds the rest, and NULL.
    """

    name: str
    cuts: tuple[Any, ...] | None = None

    def key(self) -> tuple[str, list[Any]]:
        """What to group by, and its parameters; nothing where the range has one bucket."""
        if self.cuts is None:
            return quoted(self.name), []
        if not self.cuts:
            return "", []
        whens = " ".join(f"WHEN {quoted(self.name)} <= ? THEN {i}" for i in range(len(self.cuts)))
        return f"CASE {whens} ELSE {len(self.cuts)} END", list(self.cuts)

    def bucket(self, values: Sequence[Any]) -> list[Any]:
        """The keys of original values, as ``key`` makes them."""
        if self.cuts is None:
            return [None if missing(value) else value for value in values]
        found = np.full(len(values), len(self.cuts))
        for i in reversed(range(len(self.cuts))):
            found[Condition(self.name, "<=", self.cuts[i]).mask(values)] = i
        return [int(i) for i in found]


@dataclass(frozen=True)
class Condition:
    """``column = value`` or ``column <= value``, or the rest: all rows for which that is not so.

    NULL is a category of its own and is on the far side of every cut.

    >>> Condition("age", "<=", 40, rest=True).sql()
    ('("age" <= ?) IS NOT TRUE', [40])
    >>> print(Condition("age", "<=", 40, rest=True))
    age > 40
    """

    column: str
    operator: str  # "=" or "<="
    value: Any
    rest: bool = False

    def sql(self) -> tuple[str, list[Any]]:
        """The condition with its value bound."""
        if self.value is None:
            return f"{quoted(self.column)} IS {'NOT ' * self.rest}NULL", []
        return (
            f"({quoted(self.column)} {self.operator} ?) IS {'NOT ' * self.rest}TRUE",
            [self.value],
        )

    def other(self) -> Condition:
        """The other side."""
        return Condition(self.column, self.operator, self.value, not self.rest)

    def mask(self, values: Sequence[Any]) -> Mask:
        """Which of these original values satisfy it."""
        if self.value is None:
            found = [missing(value) for value in values]
        elif self.operator == "=":
            found = [not missing(value) and bool(value == self.value) for value in values]
        else:
            only_date = isinstance(self.value, date) and not isinstance(self.value, datetime)
            try:
                found = [
                    not missing(value) and bool((_day(value) if only_date else value) <= self.value)
                    for value in values
                ]
            except TypeError:
                raise DataError(
                    f"column {self.column} holds values that cannot be compared with its cuts",
                    hint="give the column with the type that the release has",
                ) from None
        return np.array(found, dtype=np.bool_) ^ self.rest

    def __str__(self) -> str:
        """The condition as a person reads it."""
        words = {"=": ("=", "<>"), "<=": ("<=", ">")}[self.operator][self.rest]
        shown = "NULL" if self.value is None else str(self.value)
        return f"{self.column} {words} {shown}"


def _day(value: Any) -> Any:
    """The day of a moment: pandas knows no dates."""
    return value.date() if isinstance(value, datetime) else value
