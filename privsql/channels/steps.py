"""Steps of time in text form: a whole number and a unit.

Weeks and what is shorter have a fixed length.  Months and years do not: a grid of them has the
first moment of each as its points, and every moment belongs to the point before it.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from privsql.channels.intervals import DAY
from privsql.errors import DomainError

# In microseconds, the largest first.
TIME_UNITS = {
    "week": 7 * DAY,
    "day": DAY,
    "hour": DAY // 24,
    "minute": 60_000_000,
    "second": 1_000_000,
    "millisecond": 1_000,
    "microsecond": 1,
}

# In months.
CALENDAR_UNITS = {"month": 1, "quarter": 3, "year": 12}

# Python's dates end before so many.
MOST_MONTHS = 12 * 10_000


@dataclass(frozen=True, order=True)
class Months:
    """A step of whole months; a year is twelve.

    >>> str(Months(3)), str(Months(24) * 5)
    ('3 months', '10 years')
    """

    count: int

    def __mul__(self, times: int) -> Months:
        """As many steps as one."""
        return Months(self.count * times)

    def __str__(self) -> str:
        """Write it as :func:`parse_step` reads it."""
        unit = "month" if self.count % 12 else "year"
        number = self.count // CALENDAR_UNITS[unit]
        return f"{number} {unit}{'s' * (number != 1)}"


def parse_step(text: str) -> timedelta | Months:
    """Read a step of time: a whole number and a unit from microseconds to years.

    >>> parse_step("15 minutes"), parse_step("2 years")
    (datetime.timedelta(seconds=900), Months(count=24))
    """
    found = re.fullmatch(r"\s*(\d{1,18})\s*([a-z]+?)s?\s*", text, re.IGNORECASE | re.ASCII)
    unit = found[2].lower() if found else ""
    if found and unit in TIME_UNITS:
        with suppress(OverflowError):
            return timedelta(microseconds=int(found[1]) * TIME_UNITS[unit])
    if found and unit in CALENDAR_UNITS:
        months = int(found[1]) * CALENDAR_UNITS[unit]
        if months < MOST_MONTHS:
            return Months(months)
    raise DomainError(
        "a step of time is a whole number and a unit",
        hint="such as '15 minutes' or '1 month'; the units are"
        f" {', '.join([*reversed(CALENDAR_UNITS), *TIME_UNITS])}",
    )


def step_text(step: timedelta | Months) -> str:
    """Write a step of time in the largest unit that divides it.

    >>> step_text(timedelta(minutes=90)), step_text(timedelta(days=1)), step_text(Months(1))
    ('90 minutes', '1 day', '1 month')
    """
    if isinstance(step, Months):
        return str(step)
    length = step // timedelta(microseconds=1)
    unit = next(unit for unit, size in TIME_UNITS.items() if length % size == 0)
    count = length // TIME_UNITS[unit]
    return f"{count} {unit}{'s' * (count != 1)}"
