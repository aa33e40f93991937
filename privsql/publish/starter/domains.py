"""Domains for sensitive columns: listed values, or a round range with 20 to 50 points.

Values are listed where at least ``ENOUGH`` rows have them; the others become one value.  A range
is rounded outwards, so that its ends are not values of the data.

>>> rounded_range(12_340, 187_220)
(0, 190000, 10000)
"""

from __future__ import annotations

import calendar
import math
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from privsql.publish.starter.evidence import Facts
from privsql.publish.starter.toml import written

# A value that fewer rows have is not written into a spec.
ENOUGH = 10
# More values are not listed.
LISTED = 50
OTHER = "other"
LEAST, MOST = 20, 50
MONTHS = [(1, "1 month"), (3, "3 months"), (12, "1 year"), (60, "5 years"), (120, "10 years")]


@dataclass(frozen=True)
class Drawn:
    """A domain as lines of a spec, with the number of its values."""

    lines: tuple[str, ...]
    size: int


def drawn(column: Facts) -> Drawn | str:
    """The domain of a sensitive column, or why none can be guessed."""
    if column.type == "BOOLEAN":
        return _finished(column, "[true, false]", 2, observed=False)
    if column.text:
        return _listed(column)
    if column.dated:
        return _days(column)
    return _numbers(column)


def _finished(column: Facts, domain: str, size: int, *extra: str, observed: bool = True) -> Drawn:
    lines = [f"domain = {domain}", *extra]
    if column.missing:
        lines.append("nullable = true")
    if observed:
        lines.append(
            "observed = true  # taken from the data: epsilon does not cover it; delete this line"
            " once the domain is what is possible"
        )
    return Drawn(tuple(lines), size + (column.missing > 0))


def _listed(column: Facts) -> Drawn | str:
    counts = column.counts or ()
    kept = [str(value) for value, rows in counts[:LISTED] if rows >= ENOUGH]
    if not kept:
        return f"no value has {ENOUGH} rows, so none can be listed"
    rest = len(counts) - len(kept)
    values = sorted(kept)
    if not rest:
        if len(values) < 2:
            return "it has one value, and where it is missing says as much"
        return _finished(column, written(values), len(values))
    if OTHER not in values:
        values.append(OTHER)
    note = (
        f'other = "{OTHER}"  # {rest:,} rarer value{"s" * (rest > 1)} become{"s" * (rest == 1)} it'
    )
    return _finished(column, written(values), len(values), note)


def _numbers(column: Facts) -> Drawn | str:
    low, high = _finite(column.low), _finite(column.high)
    if low is None or high is None or column.between is None:
        return "its numbers have no range"
    if column.whole and high - low < MOST:
        return _ranged(column, *_whole_ends(column, int(low), int(high)), 1)
    inner = column.between
    lower, upper, step = rounded_range(float(low), float(high))
    close = rounded_range(*inner)
    # A few far values would make every step wide.
    if close[2] * 2 < step:
        note = "clip = true  # the few values outside move to the end of the range"
        return _ranged(column, *close, note)
    return _ranged(column, lower, upper, step)


def _whole_ends(column: Facts, low: int, high: int) -> tuple[int, int]:
    """Ends of a short range; one that few rows have moves outwards to a multiple of five."""
    rows = dict(column.counts or ())
    if rows.get(low, 0) < ENOUGH:
        low = low // 5 * 5
    if rows.get(high, 0) < ENOUGH:
        high = -(-high // 5) * 5
    return low, high


def _ranged(column: Facts, lower: Any, upper: Any, step: Any, *extra: str) -> Drawn | str:
    size = round((upper - lower) / step) + 1
    if size < 2:
        return "it has one value, and where it is missing says as much"
    grid = f"{{ lower = {written(lower)}, upper = {written(upper)}, step = {written(step)} }}"
    return _finished(column, grid, size, *extra)


def _finite(value: Any) -> float | None:
    number = float(value) if isinstance(value, int | float | Decimal) else math.nan
    return value if number - number == 0 else None


def rounded_range(low: float, high: float) -> tuple[Any, Any, Any]:
    """Bounds and step: the coarsest of 1, 2, 2.5 and 5 times a power of ten with 20 values.

    >>> rounded_range(-0.31, 0.42), rounded_range(5.0, 5.0)
    ((Decimal('-0.325'), Decimal('0.425'), Decimal('0.025')), (5, 6, 1))
    """
    if high <= low:
        floor = math.floor(low)
        return floor, floor + 1, 1
    power = math.floor(math.log10((high - low) / LEAST)) + 1
    for exponent in (power, power - 1, power - 2):
        for digits in ("5", "2.5", "2", "1"):
            step = Decimal(digits).scaleb(exponent)
            first = (Decimal(repr(low)) / step).to_integral_value("ROUND_FLOOR")
            last = (Decimal(repr(high)) / step).to_integral_value("ROUND_CEILING")
            if 0 < first <= 2:  # a range that begins at nothing is rounder
                first = Decimal(0)
            if last - first + 1 >= LEAST:
                return plain(first * step), plain(last * step), plain(step)
    raise AssertionError("one of three powers leaves 20 values")


def plain(number: Decimal | int) -> int | Decimal:
    """A number without digits that it does not need.

    >>> plain(Decimal("20.0")), plain(Decimal("0.50"))
    (20, Decimal('0.5'))
    """
    number = Decimal(number)
    return int(number) if number == number.to_integral_value() else number.normalize()


def _days(column: Facts) -> Drawn | str:
    low, high = column.low, column.high
    if not isinstance(low, date):
        return "its dates have no range"
    months = 12 * (high.year - low.year) + high.month - low.month + 1
    fitting = [(many, text) for many, text in MONTHS if months / many <= MOST]
    many, text = (fitting or MONTHS[-1:])[0]
    if months < 2:
        return _within_a_month(column)
    first = _month(12 * low.year + low.month - 1, many, 0)
    last = _month(12 * high.year + high.month - 1, many, 1)
    if first is None or last is None:
        return "its dates go beyond the calendar"
    size = (12 * (last.year - first.year) + last.month - first.month) // many + 1
    return _dated(column, first, last, text, size)


def _month(number: int, many: int, further: int) -> date | None:
    year, month = divmod((number // many + further) * many, 12)
    return date(year, month + 1, 1) if 1 <= year <= 9999 else None


def _within_a_month(column: Facts) -> Drawn:
    low = column.low
    first = date(low.year, low.month, 1)
    days = calendar.monthrange(low.year, low.month)[1]
    return _dated(column, first, date(low.year, low.month, days), "1 day", days)


def _dated(column: Facts, first: date, last: date, step: str, size: int) -> Drawn:
    ends = [first, last]
    if column.type.startswith("TIMESTAMP"):
        ends = [datetime(end.year, end.month, end.day) for end in ends]
    grid = f'{{ lower = {written(ends[0])}, upper = {written(ends[1])}, step = "{step}" }}'
    return _finished(column, grid, size)
