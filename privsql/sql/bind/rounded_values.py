"""The effect of rounding to a grid on a condition, in words.

Values of a grid were rounded to it before they were perturbed, so a condition is answered about
rounded values.  Where the type of the column is finer than the grid that is another condition
than the one that was written:

    docvis INTEGER on 0, 5, ..., 125       docvis > 3       docvis >= 5
                                           docvis = 3       no rounded value
                                           docvis > 0       docvis >= 5, and 1 and 2 were 0

All of it follows from the type, the bounds and the step, which are public.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction

from privsql.channels import Grid, Interval
from privsql.channels.steps import Months
from privsql.errors import DomainError
from privsql.sql.catalog import Sensitive

# Microseconds between two values of a type.
_TICKS = {
    "DATE": Fraction(86_400_000_000),
    "TIMESTAMP_S": Fraction(1_000_000),
    "TIMESTAMP_MS": Fraction(1_000),
    "TIMESTAMP": Fraction(1),
    "TIMESTAMP_NS": Fraction(1, 1000),
}
_INTEGERS = re.compile(r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?")
_DECIMAL = re.compile(r"DECIMAL\(\d+, ?(\d+)\)")
_SECOND = timedelta(seconds=1)

# Where a comparison with one value is true.
_HELD = {
    "<": (Interval.below,),
    "<=": (Interval.at_most,),
    ">": (Interval.above,),
    ">=": (Interval.at_least,),
    "<>": (Interval.below, Interval.above),
}

# Values of a list that are written out.
_FEW = 5


@dataclass(frozen=True)
class Judged:
    """The remarks on a comparison: on rounding, and on constants outside the domain."""

    rounded: str = ""
    outside: str = ""


def is_coarse(kind: str, domain: Grid) -> bool:
    """Whether a type has values between the points of a grid.

    >>> is_coarse("INTEGER", Grid.of(0, 120)), is_coarse("INTEGER", Grid.of(0, 125, 5))
    (False, True)
    """
    step = domain.step
    if isinstance(step, Months):
        return True
    size = Fraction(step // timedelta(microseconds=1) if isinstance(step, timedelta) else step)
    tick = Fraction(0)
    if isinstance(step, timedelta):
        tick = _TICKS.get(kind, tick)
    elif _INTEGERS.fullmatch(kind):
        tick = Fraction(1)
    elif found := _DECIMAL.fullmatch(kind):
        tick = Fraction(1, 10 ** int(found[1]))
    return size > tick


def is_worth_telling(kind: str, domain: Grid) -> bool:
    """Whether an answer that names no value between the points needs a notice of rounding.

    A moment's fraction of a second is not: times are seldom kept to the microsecond.
    """
    return is_coarse(kind, domain) and not (
        isinstance(domain.step, timedelta) and domain.step <= _SECOND
    )


def grid_text(domain: Grid) -> str:
    """The points of a grid, as people say it.

    >>> grid_text(Grid.of(0, 125, 5)), grid_text(Grid.of(3, 13, 5))
    ('multiples of 5', 'steps of 5 from 3')
    """
    if isinstance(domain.step, timedelta | Months):
        return f"steps of {domain.step_text} from {_plain(domain.lower)}"
    if domain.origin % domain.stride == 0:
        return f"multiples of {_plain(domain.step)}"
    return f"steps of {_plain(domain.step)} from {_plain(domain.lower)}"


def judge(column: Sensitive, sign: str, values: Sequence[object]) -> Judged | None:
    """What to say of ``column sign values``, or None; values are what DuckDB compares with."""
    domain = column.domain
    if not isinstance(domain, Grid) or column.type == "FLOAT" or None in values:
        return None  # a FLOAT is rounded once more when it is compared
    try:
        outside = [value for value in values if _outside(domain, value)]
        coarse = is_coarse(column.type, domain)
        between = [value for value in values if coarse and _between(domain, value)]
        if not outside and not between:
            return None
        held = _held(domain, sign, values)
    except (DomainError, TypeError):
        return None  # it is no value that this column compares with
    text = f"{column.name} {_written(sign, values)}"
    count = sum(map(len, held))
    ends = f"{_plain(domain.lower)} to {_plain(domain.upper)}"
    if count in (0, domain.points):
        some = "every" if count else "no"
        if between:
            return Judged(rounded=f"{text} holds for {some} rounded value")
        return Judged(outside=f"{text} holds for {some} value of its domain, {ends}")
    told = Judged()
    if between:
        answered = f"{column.name} {_answered(domain, sign, held)}"
        told = Judged(rounded=f"{text} was answered as {answered}")
    if outside:
        shown = " and ".join(map(_shown, outside[:_FEW]))
        lie = "lies" if len(outside) == 1 else "lie"
        return Judged(told.rounded, f"{shown} {lie} outside the domain of {column.name}, {ends}")
    return told


def _outside(domain: Grid, value: object) -> bool:
    below, above = Interval.below(value), Interval.above(value)  # type: ignore[arg-type]
    if domain.count([value]):  # type: ignore[list-item]
        return False
    return domain.count(below) == 0 or domain.count(above) == 0


def _between(domain: Grid, value: object) -> bool:
    return not domain.count([value]) and not _outside(domain, value)  # type: ignore[list-item]


def _held(domain: Grid, sign: str, values: Sequence[object]) -> tuple[range, ...]:
    """The points at which a comparison is true."""
    if sign in ("=", "IN"):
        return domain.ranges(values)  # type: ignore[arg-type]
    if sign == "BETWEEN":
        return domain.ranges(Interval.between(*values))  # type: ignore[arg-type]
    return domain.ranges([made(values[0]) for made in _HELD[sign]])  # type: ignore[arg-type]


def _answered(domain: Grid, sign: str, held: Sequence[range]) -> str:
    """The comparison with points of the grid that is true at the same points."""
    first, last = domain.value_at(held[0].start), domain.value_at(held[-1].stop - 1)
    if sign in ("<", "<="):
        return f"<= {_shown(last)}"
    if sign in (">", ">="):
        return f">= {_shown(first)}"
    if sum(map(len, held)) == 1:
        return f"= {_shown(first)}"
    if sign == "BETWEEN":
        return f"BETWEEN {_shown(first)} AND {_shown(last)}"
    return _written("IN", [domain.value_at(i) for each in held for i in each])


def _written(sign: str, values: Sequence[object]) -> str:
    if sign == "BETWEEN":
        return f"BETWEEN {_shown(values[0])} AND {_shown(values[1])}"
    if sign == "IN":
        more = ", ..." if len(values) > _FEW else ""
        return f"IN ({', '.join(map(_shown, values[:_FEW]))}{more})"
    return f"{sign} {_shown(values[0])}"


def _shown(value: object) -> str:
    """A constant as SQL writes it."""
    return f"'{_plain(value)}'" if isinstance(value, date) else _plain(value)


def _plain(value: object) -> str:
    if isinstance(value, Decimal) and value.is_finite() and -20 < value.adjusted() < 20:
        text = f"{value:f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return str(value)
