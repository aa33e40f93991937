"""Intervals of values, and the exact position of a value in their order.

A comparison with a constant selects an interval of the domain.  Whether its ends belong to
it decides the mass of the predicate, so an end is open or closed, and places are exact
fractions rather than floats:

- a number lies at its own value.  What a float means depends on the domain: on integers its
  exact value, on decimals its shortest decimal (``0.1`` is a tenth), and on reals every
  number is first rounded to a double, as SQL does before it compares one with a DOUBLE;
- a date or a timestamp lies at its microseconds since 1970, a date at its midnight.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from operator import ge, gt, le, lt

import numpy as np

from privsql.errors import DomainError, with_article

Number = int | float | Decimal | Fraction
Bound = Number | date  # a datetime is a date too
Place = Fraction | float  # a float only for the two infinities

DAY = 86_400_000_000  # microseconds
EPOCH = datetime(1970, 1, 1)

# No domain has digits this far from the point, so numbers beyond may stand anywhere beyond:
# a literal like 1e999999999 must not be written out in full to be compared.
FAR = 400


def family(value: object) -> str | None:
    """What a value can be compared with: ``"number"``, ``"time"``, ``"text"``, ``"boolean"``.

    Python takes True for 1 and a datetime for a date; only the second is meant here.

    >>> family(1), family(True), family(date(2020, 1, 1)), family(b"x")
    ('number', 'boolean', 'time', None)
    """
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float | Decimal | Fraction):
        return "number"
    if isinstance(value, date):
        return "time"
    return "text" if isinstance(value, str) else None


def plain(value: object) -> object:
    """Return numpy's scalars as Python's, which have exact arithmetic."""
    if isinstance(value, np.bool | np.integer | np.floating | np.str_):
        return value.item()
    return value


def is_nan(value: object) -> bool:
    """Whether a float or a decimal is not a number."""
    return value.is_nan() if isinstance(value, Decimal) else value != value


def place(value: object, kind: str) -> Place:
    """Where a number or a time lies for a domain of this kind (see the module).

    >>> place(0.1, "decimal"), place(Decimal("0.1"), "integer"), place(date(1970, 1, 2), "date")
    (Fraction(1, 10), Fraction(1, 10), Fraction(86400000000, 1))
    >>> place(0.1, "integer") > Fraction(1, 10)
    True
    """
    if isinstance(value, datetime):
        if value.tzinfo is not None:
            raise DomainError(
                "a timestamp with a time zone cannot be compared with this domain",
                hint="convert it to the local time of the column and drop the zone",
            )
        return Fraction((value - EPOCH) // timedelta(microseconds=1))
    if isinstance(value, date):
        return Fraction((value - EPOCH.date()).days * DAY)
    if is_nan(value) or not isinstance(value, int | float | Decimal | Fraction):
        raise DomainError(f"{with_article(type(value).__name__)} cannot be ordered among numbers")
    if kind == "real":
        value = _double(value)
    if isinstance(value, float):
        if math.isinf(value):
            return value
        value = Fraction(value) if kind == "integer" else Decimal(repr(value))
    if isinstance(value, Decimal):
        if value.is_infinite() or (value and value.adjusted() > FAR):
            return math.copysign(math.inf, value)
        if value and value.adjusted() < -FAR:
            return Fraction(-1 if value < 0 else 1, 10**FAR)
    return Fraction(value)


def _double(value: Number) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


@dataclass(frozen=True, slots=True)
class Interval:
    """The values between two bounds; None is no bound, and an end is closed or open.

    An interval whose low end lies above its high end is empty, as ``BETWEEN`` is in SQL.
    NULL is in no interval.

    >>> print(Interval.between(25, 45), Interval.open(25, 45), Interval.above(3))
    [25, 45] (25, 45) (3, ...)
    """

    low: Bound | None = None
    high: Bound | None = None
    low_closed: bool = True
    high_closed: bool = True

    def __post_init__(self) -> None:
        """Refuse values that cannot be bounds."""
        families = set()
        for name in ("low", "high"):
            bound = plain(getattr(self, name))
            object.__setattr__(self, name, bound)
            if bound is None:
                continue
            kind = family(bound)
            if kind not in ("number", "time"):
                raise DomainError(
                    f"an interval's bound cannot be {with_article(type(bound).__name__)}",
                    hint="bounds are numbers, dates or timestamps",
                )
            if is_nan(bound):
                raise DomainError("an interval's bound cannot be NaN")
            place(bound, "integer")  # refuses time zones
            families.add(kind)
        if len(families) == 2:
            raise DomainError("an interval cannot reach from a number to a time")

    @classmethod
    def below(cls, bound: Bound) -> Interval:
        """``x < bound``."""
        return cls(None, bound, high_closed=False)

    @classmethod
    def at_most(cls, bound: Bound) -> Interval:
        """``x <= bound``."""
        return cls(None, bound)

    @classmethod
    def above(cls, bound: Bound) -> Interval:
        """``x > bound``."""
        return cls(bound, None, low_closed=False)

    @classmethod
    def at_least(cls, bound: Bound) -> Interval:
        """``x >= bound``."""
        return cls(bound, None)

    @classmethod
    def between(cls, low: Bound, high: Bound) -> Interval:
        """``low <= x <= high``, SQL's BETWEEN."""
        return cls(low, high)

    @classmethod
    def open(cls, low: Bound, high: Bound) -> Interval:
        """``low < x < high``."""
        return cls(low, high, low_closed=False, high_closed=False)

    @property
    def family(self) -> str | None:
        """``"number"``, ``"time"``, or None without bounds."""
        return family(self.high if self.low is None else self.low)

    def __str__(self) -> str:
        """Write it as mathematicians do, with ``...`` for no bound."""
        left = "[" if self.low_closed and self.low is not None else "("
        right = "]" if self.high_closed and self.high is not None else ")"
        low, high = ("..." if end is None else str(end) for end in (self.low, self.high))
        return f"{left}{low}, {high}{right}"

    def holds(self, value: Bound, kind: str) -> bool:
        """Whether a value of a domain of this kind lies in the interval."""
        here = place(value, kind)
        above, below = ge if self.low_closed else gt, le if self.high_closed else lt
        return (self.low is None or above(here, place(self.low, kind))) and (
            self.high is None or below(here, place(self.high, kind))
        )

    def steps(self, origin: Fraction, stride: Fraction, count: int, kind: str) -> range:
        """Which of the points ``origin + i * stride``, ``0 <= i < count``, lie in it.

            first = ceil((low - origin) / stride)   closed, floor(...) + 1 open
            last  = floor((high - origin) / stride) closed, ceil(...) - 1  open

        >>> Interval.open(2, 8).steps(Fraction(0), Fraction(2), 6, "integer")
        range(2, 4)
        """

        def before(bound: Bound, *, itself: bool) -> int:
            """How many points lie before a bound; ``itself``: or on it."""
            t = (place(bound, kind) - origin) / stride
            if isinstance(t, float):
                return count if t > 0 else 0
            return min(max(math.floor(t) + 1 if itself else math.ceil(t), 0), count)

        first = 0 if self.low is None else before(self.low, itself=not self.low_closed)
        stop = count if self.high is None else before(self.high, itself=self.high_closed)
        return range(first, max(first, stop))


def union(ranges: Iterable[range]) -> tuple[range, ...]:
    """Disjoint ranges in order that hold the same indices, each once.

    >>> union([range(5, 9), range(0, 3), range(7, 12), range(3, 4), range(6, 6)])
    (range(0, 4), range(5, 12))
    """
    merged: list[range] = []
    for part in sorted((r for r in ranges if r), key=lambda r: r.start):
        if merged and part.start <= merged[-1].stop:
            merged[-1] = range(merged[-1].start, max(merged[-1].stop, part.stop))
        else:
            merged.append(part)
    return tuple(merged)
