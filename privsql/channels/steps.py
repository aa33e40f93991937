"""Steps of time in text form: a whole number and a unit of fixed length."""

from __future__ import annotations

import re
from contextlib import suppress
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


def parse_step(text: str) -> timedelta:
    """Read a step of time: a whole number and a unit from microseconds to weeks.

    >>> parse_step("15 minutes")
    datetime.timedelta(seconds=900)
    """
    found = re.fullmatch(r"\s*(\d{1,18})\s*([a-z]+?)s?\s*", text, re.IGNORECASE | re.ASCII)
    unit = found[2].lower() if found else ""
    if found and unit in TIME_UNITS:
        with suppress(OverflowError):
            return timedelta(microseconds=int(found[1]) * TIME_UNITS[unit])
    if unit in ("month", "quarter", "year", "decade", "century", "centurie"):
        raise DomainError(
            "months and years vary in length, so they cannot be the step of a grid",
            hint="use days or weeks, or list the first days of the months as categories",
        )
    raise DomainError(
        "a step of time is a whole number and a unit",
        hint=f"such as '15 minutes'; the units are {', '.join(TIME_UNITS)}",
    )


def step_text(step: timedelta) -> str:
    """Write a step of time in the largest unit that divides it.

    >>> step_text(timedelta(minutes=90)), step_text(timedelta(days=1))
    ('90 minutes', '1 day')
    """
    length = step // timedelta(microseconds=1)
    unit = next(unit for unit, size in TIME_UNITS.items() if length % size == 0)
    count = length // TIME_UNITS[unit]
    return f"{count} {unit}{'s' * (count != 1)}"
