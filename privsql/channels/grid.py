"""Grids: domains of equally spaced values between two public bounds.

Values are rounded to the grid before they are perturbed.  Positions on it are integers, so
nothing drifts: with ``u`` the unit of the kind (1, a power of ten, a day, a microsecond),

    value(i) = (origin + i * stride) * u          0 <= i < points
    code(v)  = floor((v / u - origin) / stride + 1/2)

which rounds to the nearest point and halfway *up*, for negative values as well.

Steps of months and years are the calendar's: ``u`` is then a month, ``v / u`` the number of the
month that v lies in, and ``code(v) = floor((v / u - origin) / stride)``.  So a day is counted to
the month, quarter or year in which it lies, and the points are the first days of these.

>>> age = Grid.of(0, 120)
>>> age.size, age.count(Interval.between(25, 45)), age.count(Interval.open(25, 45))
(121, 21, 19)
>>> age.mass(Interval.between(25, 45)) == 21 / 121    # (45-25+1)/(120-0+1), and not 20/120
True
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsql.channels.domain import (
    FAMILY,
    NULL,
    OUTSIDE,
    Codes,
    Domain,
    Value,
    check_keys,
    from_json,
    nulls_of,
)
from privsql.channels.intervals import DAY, EPOCH, Interval, is_nan, place, plain
from privsql.channels.steps import Months, parse_step, step_text
from privsql.errors import DomainError, with_article

Point = int | float | Decimal | date
Step = int | float | Decimal | timedelta | Months | str

KINDS = ("integer", "decimal", "real", "date", "timestamp")

# What a bound or a step of a type makes of a grid, the first of them that there is.
KIND_OF = {datetime: "timestamp", date: "date", float: "real", Decimal: "decimal"}

# Digits of a bound or step, counted in units.  18 fit an int64.  15 survive a double: grid
# points are then different doubles, and each prints as the decimal that it stands for.
DIGITS = {"decimal": 18, "real": 15}

INT64 = range(-(2**63), 2**63)

ARROW_TYPES: dict[str, pa.DataType] = {
    "integer": pa.int64(),
    "real": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
}

DEFAULT_STEPS: dict[str, Step] = {"integer": 1, "date": timedelta(days=1)}

# Months are numbered from the year 0, which Python's dates do not have.
MONTHS = range(12, 12 * 10_000)
EPOCH_MONTHS = 12 * EPOCH.year

# Nanoseconds in one tick of Arrow's times.
ARROW_TICKS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


@dataclass(frozen=True)
class Grid(Domain):
    """``lower, lower + step, ..., upper``, both ends included.

    Reals are decimals too: ``lower``, ``upper`` and ``step`` of a DOUBLE column are exact
    decimals, and its values the doubles nearest to the points between them.

    >>> Grid.of(0.0, 0.3, 0.1, nullable=True).values().to_pylist()
    [0.0, 0.1, 0.2, 0.3, None]
    >>> Grid.of(date(2024, 1, 1), date(2024, 12, 30), "1 week").points
    53
    >>> Grid.of(date(2024, 1, 1), date(2024, 6, 30), "1 month").values().to_pylist()[-2:]
    [datetime.date(2024, 5, 1), datetime.date(2024, 6, 1)]
    """

    described_as = "grid"

    kind: str
    lower: Point
    upper: Point
    step: int | Decimal | timedelta | Months
    nullable: bool = False
    # The same in whole units: what the arithmetic is done with.
    scale: int = field(init=False, repr=False, compare=False)
    origin: int = field(init=False, repr=False, compare=False)
    stride: int = field(init=False, repr=False, compare=False)
    points: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        """Bring the bounds to the types of the kind, and check that they make a grid."""
        if self.kind not in KINDS:
            raise DomainError(f"the kind of a grid must be one of {', '.join(KINDS)}")
        if not isinstance(self.nullable, bool):
            raise DomainError("nullable must be true or false")
        lower, upper = (_point(self.kind, getattr(self, end), end) for end in ("lower", "upper"))
        step = _step(self.kind, self.step)
        if isinstance(step, Months):
            self._set_calendar(lower, upper, step)
            return
        scale = max(map(_decimals, (lower, upper, step)))
        unit = _unit(self.kind, scale)
        origin, top, stride = (int(each / unit) for each in (lower, upper, step))
        self._set(scale=scale, origin=origin, stride=stride)
        self._check(origin, top, stride)
        timed = FAMILY[self.kind] == "time"
        self._set(
            lower=self._point_at(origin),
            upper=self._point_at(top),
            step=timedelta(microseconds=int(step)) if timed else self._point_at(stride),
            points=(top - origin) // stride + 1,
        )

    def _set_calendar(self, lower: Fraction, upper: Fraction, step: Months) -> None:
        """Bring the bounds to the first moments of months, outwards.

        A lower bound that is one keeps its phase, so that years can begin in April.
        """
        origin, last, stride = _months_at(lower), _months_at(upper), step.count
        if stride <= 0:
            raise DomainError("the step of a grid must be above 0")
        if lower > upper:
            raise DomainError("the lower bound of a grid lies above the upper one")
        if origin.denominator != 1:
            origin = Fraction(origin // stride * stride)
        start, points = int(origin), int((last - origin) // stride) + 1
        if start < MONTHS[0]:  # there is no year 0
            start, points = MONTHS[0], int((last - MONTHS[0]) // stride) + 1
        self._set(scale=0, origin=start, stride=stride, points=points, step=step)
        self._set(lower=self._point_at(start), upper=self._point_at(start + (points - 1) * stride))

    @property
    def calendar(self) -> bool:
        """Whether the steps are months or years, which differ in length."""
        return isinstance(self.step, Months)

    @property
    def step_text(self) -> str:
        """The step as a spec writes it."""
        timed = isinstance(self.step, timedelta | Months)
        return step_text(cast(timedelta, self.step)) if timed else str(self.step)

    @property
    def reach(self) -> tuple[Decimal | datetime | None, Decimal | datetime | None]:
        """The first value that has a code, and the first after all that have one.

        None is beyond what Python's times hold.

        >>> Grid.of(0, 100, 5).reach
        (Decimal('-2.5'), Decimal('102.5'))
        """
        steps = Fraction(-1, 2), self.points - Fraction(1, 2)
        if self.calendar:
            ends = [_first_day(self.origin + n * self.stride) * DAY for n in (0, self.points)]
        else:
            unit = _unit(self.kind, self.scale)
            ends = [(self.origin + n * self.stride) * unit for n in steps]  # type: ignore[misc]
        if FAMILY[self.kind] == "number":
            with localcontext(prec=60):
                low, high = (
                    Decimal(e.numerator) / Decimal(e.denominator) for e in map(Fraction, ends)
                )
            return low, high
        found = [_moment(Fraction(end)) for end in ends]
        return found[0], found[1]

    def _set(self, **values: object) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _check(self, origin: int, top: int, stride: int) -> None:
        if stride <= 0:
            raise DomainError("the step of a grid must be above 0")
        if origin > top:
            raise DomainError("the lower bound of a grid lies above the upper one")
        digits = DIGITS.get(self.kind)
        if digits is not None and max(abs(origin), abs(top), stride) >= 10**digits:
            raise DomainError(
                f"{with_article(self.kind)} grid has at most {digits} digits from the first of its"
                " bounds to the last of its step",
                hint="choose narrower bounds or a coarser step",
            )
        # The span is a code, the next one may be NULL's and one more is the size.
        if not all(each in INT64 for each in (origin, top, stride, top - origin + 2)):
            raise DomainError("64 bits do not hold the bounds of this grid and their distance")
        rest = (top - origin) % stride
        if rest:
            fitting = [str(self._point_at(top - rest))]
            with suppress(OverflowError):  # after the year 9999
                fitting.append(str(self._point_at(top - rest + stride)))
            raise DomainError(
                "the upper bound of a grid is a whole number of steps above the lower one",
                hint=f"the nearest that fit: {' and '.join(fitting)}",
            )

    @classmethod
    def of(
        cls,
        lower: Point,
        upper: Point,
        step: Step | None = None,
        *,
        nullable: bool = False,
        kind: str | None = None,
    ) -> Grid:
        """Describe a grid in Python's or TOML's types; the kind follows from them.

        A step of time is a timedelta or text such as ``"15 minutes"``.  Integers have a
        step of 1 and dates of a day unless another is given.

        >>> Grid.of(datetime(2024, 1, 1), datetime(2024, 1, 2), "15 minutes").points
        97
        >>> Grid.of(0, 1, 0.3)
        Traceback (most recent call last):
        privsql.errors.DomainError: ERROR 22023 [domain]: the upper bound of a grid is a whole
            number of steps above the lower one
        HINT: the nearest that fit: 0.9 and 1.2
        """
        kind = kind or _kind(plain(lower), plain(upper), plain(step))
        if step is None:
            if kind not in DEFAULT_STEPS:
                raise DomainError(f"{with_article(kind)} grid needs a step")
            step = DEFAULT_STEPS[kind]
        return cls(kind, lower, upper, cast(timedelta, step), nullable)

    @classmethod
    def snapped(
        cls, lower: Point, upper: Point, step: Step | None = None, *, nullable: bool = False
    ) -> Grid:
        """As :meth:`of`, but an upper bound of time between two points moves up to the next.

        >>> Grid.snapped(date(2024, 1, 1), date(2024, 1, 31), "1 week").upper
        datetime.date(2024, 2, 5)
        """
        made = parse_step(step) if isinstance(step, str) else step
        fixed = isinstance(made, timedelta) and made > timedelta(0)
        if fixed and isinstance(lower, date) and type(lower) is type(upper) and lower < upper:
            rest = (upper - lower) % made  # type: ignore[operator]
            with suppress(OverflowError):  # after the year 9999
                upper += made - rest if rest else timedelta(0)  # type: ignore[operator]
        return cls.of(lower, upper, step, nullable=nullable)

    @property
    def arrow_type(self) -> pa.DataType:
        """int64, decimal128, float64, date32 or timestamp[us]."""
        if self.kind == "decimal":
            return pa.decimal128(18, self.scale)
        return ARROW_TYPES[self.kind]

    def _point_at(self, units: int) -> int | Decimal | date:
        if self.kind == "integer":
            return units
        if self.calendar:
            first = date(units // 12, units % 12 + 1, 1)
            return first if self.kind == "date" else datetime.combine(first, time())
        if self.kind == "date":
            return EPOCH.date() + timedelta(days=units)
        if self.kind == "timestamp":
            return EPOCH + timedelta(microseconds=units)
        # From its digits, because arithmetic would round to the caller's context.
        return Decimal((int(units < 0), tuple(map(int, str(abs(units)))), -self.scale))

    def value_at(self, index: int) -> Value | None:
        """The value with this index; None for NULL."""
        if not 0 <= index < self.size:
            raise DomainError(f"index {index} is not in 0 to {self.size - 1}")
        if index == self.null_index:
            return None
        point = self._point_at(self.origin + index * self.stride)
        return float(cast(Decimal, point)) if self.kind == "real" else point

    def slice(self, interval: Interval) -> range:
        """The indices of an interval's values, however many there are.

        >>> Grid.of(Decimal("0.00"), Decimal("1.00"), Decimal("0.25")).slice(Interval.above(0.3))
        range(2, 5)
        """
        self.refuse_bounds(interval)
        if self.calendar:
            low, high = (
                None if bound is None else _months_at(cast(Fraction, place(bound, self.kind)))
                for bound in (interval.low, interval.high)
            )
            months = Interval(low, high, interval.low_closed, interval.high_closed)
            return months.steps(
                Fraction(self.origin), Fraction(self.stride), self.points, "integer"
            )
        unit = _unit(self.kind, self.scale)
        return interval.steps(self.origin * unit, self.stride * unit, self.points, self.kind)

    def _interval(self, interval: Interval) -> Sequence[range]:
        return [self.slice(interval)]

    def _position(self, value: object) -> Fraction | float:
        """``(v / u - origin) / stride``, exact; a float only where it is infinite."""
        if self.calendar:
            month = _months_at(cast(Fraction, place(value, self.kind)))
            return (month - self.origin) / self.stride
        return (place(value, self.kind) / _unit(self.kind, self.scale) - self.origin) / self.stride

    def _index(self, value: object) -> int | None:
        position = math.nan if is_nan(value) else self._position(value)
        if isinstance(position, float) or position.denominator != 1:
            return None
        return int(position) if 0 <= position < self.points else None

    def _codes(self, chunk: pa.Array[Any]) -> Codes:
        given, unit = chunk.type, _unit(self.kind, self.scale)
        timed = FAMILY[self.kind] == "time"
        if self.calendar and (days := _days(chunk)) is not None:
            codes = self._around(days)
        elif timed and pa.types.is_date(given):
            ratio = DAY / unit if pa.types.is_date32(given) else 1000 / unit
            codes = self._nearest(_integers(chunk), ratio)
        elif timed and isinstance(given, pa.TimestampType) and given.tz is None:
            ratio = Fraction(ARROW_TICKS[given.unit], 1000) / unit
            codes = self._nearest(_integers(chunk), ratio)
        elif timed or not _is_number(given):
            raise self.refuse_type(given)
        elif pa.types.is_floating(given):
            raw = chunk.cast(pa.float64()).fill_null(0.0).to_numpy()
            codes = self._nearest_double(np.asarray(raw))
        elif pa.types.is_decimal(given):
            codes = self._nearest_decimal(chunk)
        elif pa.types.is_uint64(given):
            raw = np.asarray(chunk.fill_null(0).to_numpy())
            codes = self._nearest(np.minimum(raw, INT64[-1]).astype(np.int64), 1 / unit)
            codes[raw > INT64[-1]] = OUTSIDE
        else:
            codes = self._nearest(_integers(chunk), 1 / unit)
        codes[nulls_of(chunk)] = NULL
        return codes

    def _nearest(self, raw: Codes, ratio: Fraction) -> Codes:
        """Codes of ``raw * ratio`` units, where either side of the ratio is 1.

        A value is split into whole units and whether another half is there; finer digits
        cannot matter, because ties lie at whole or half units.  Nothing here overflows:
        values are held against the bounds before anything is subtracted.
        """
        top = self.origin + (self.points - 1) * self.stride
        # The commonest grid, every integer from one to another, needs no rounding.
        plain = ratio == 1 and self.stride == 1 and len(raw) > 0
        if plain and self.origin <= raw.min() and raw.max() <= top:
            return raw - self.origin
        # The first and the last half unit that are rounded to a point of the grid.
        (low, low_half), (high, high_half) = (
            divmod(edge, 2) for edge in (2 * self.origin - self.stride, 2 * top + self.stride - 1)
        )
        if ratio.denominator == 1:
            factor = int(ratio)
            unit = raw
            if factor > 1:
                unit = np.clip(raw, low // factor - 1, high // factor + 1) * factor
            half = np.zeros(len(raw), dtype=np.bool_)
        else:
            whole = ratio.denominator
            unit = raw // whole
            rest = raw - unit * whole
            half = rest >= whole - rest
        outside = (unit < low) | ((unit == low) & (half < low_half))
        outside |= (unit > high) | ((unit == high) & (half > high_half))
        clipped = np.clip(unit, self.origin, top)
        half &= clipped == unit
        offset = clipped - self.origin
        codes = offset // self.stride
        # Up if 2 * rest + half >= stride.
        codes += offset - codes * self.stride >= np.where(
            half, self.stride // 2, self.stride // 2 + self.stride % 2
        )
        codes[outside] = OUTSIDE
        return codes

    def _around(self, days: Codes) -> Codes:
        """Codes of days, each to the point before it."""
        first, after = (_first_day(self.origin + steps * self.stride) for steps in (0, self.points))
        inside = (days >= first) & (days < after)
        months = np.where(inside, days, first).astype("datetime64[D]").astype("datetime64[M]")
        codes: Codes = (months.astype(np.int64) + EPOCH_MONTHS - self.origin) // self.stride
        codes[~inside] = OUTSIDE
        return codes

    def _nearest_decimal(self, chunk: pa.Array[Any]) -> Codes:
        given = chunk.type
        ratio = Fraction(10) ** (self.scale - given.scale)
        if given.bit_width > 128 or max(ratio.numerator, ratio.denominator) > 10**18:
            return self._nearest_exact(chunk.to_pylist())
        chunk = chunk.cast(pa.decimal128(38, given.scale))
        words = np.frombuffer(cast(bytes, chunk.buffers()[1]), dtype=np.int64)[2 * chunk.offset :]
        low, high = words[: 2 * len(chunk)].reshape(-1, 2).T
        fits = high == low >> 63  # the upper word only carries the sign
        codes = self._nearest(np.where(fits, low, 0), ratio)
        if not fits.all():
            codes[~fits] = self._nearest_exact(chunk.filter(pa.array(~fits)).to_pylist())
        return codes

    def _nearest_double(self, raw: NDArray[np.float64]) -> Codes:
        top = self.origin + (self.points - 1) * self.stride
        codes = np.full(len(raw), OUTSIDE, dtype=np.int64)
        if 10 * max(abs(self.origin), abs(top)) + 5 * self.stride >= 10**15:
            codes[:] = self._nearest_exact(raw.tolist())
            return codes
        # In so few digits the position below is right to a quarter step, and the tie above
        # the point under it has at most 15 digits.  Hence it is the decimal of its own double,
        # and comparing the doubles compares the decimals.
        unit = 10.0**self.scale
        with np.errstate(over="ignore", invalid="ignore"):
            position = (raw - self.origin / unit) / (self.stride / unit)
        near = (position > -2) & (position < self.points + 1)  # neither NaN nor infinite
        below = np.floor(position[near]).astype(np.int64)
        tie = (2 * self.origin + (2 * below + 1) * self.stride) / (2 * unit)
        found = below + (raw[near] >= tie)
        codes[near] = np.where((found >= 0) & (found < self.points), found, OUTSIDE)
        return codes

    def _nearest_exact(self, values: Sequence[Any]) -> Codes:
        """One value after the other, for digits that no vector holds."""
        known: dict[Any, int] = {None: NULL}
        for value in set(values) - {None}:
            position = math.nan if is_nan(value) else self._position(value)
            if not isinstance(position, float):
                position = math.floor(position + Fraction(1, 2))
            inside = 0 <= position < self.points
            known[value] = int(position) if inside else OUTSIDE
        # A NaN is not found again under its own name.
        return np.array([known.get(value, OUTSIDE) for value in values], dtype=np.int64)

    def _decode(self, codes: Codes) -> pa.Array[Any]:
        null = codes == self.points if self.nullable else None
        at = codes if null is None else np.where(null, 0, codes)
        units = self.origin + (at * self.stride if self.stride > 1 else at)
        if self.calendar:
            months = (units - EPOCH_MONTHS).astype("datetime64[M]")
            units = months.astype("datetime64[D]").astype(np.int64)
            units = units if self.kind == "date" else units * DAY
        if self.kind == "real":
            # Two exact doubles: their quotient is the double nearest to the point.
            return pa.array(units / 10.0**self.scale, pa.float64(), mask=null)
        if self.kind == "date":
            return pa.array(units.astype(np.int32), pa.int32(), mask=null).cast(pa.date32())
        if self.kind == "decimal":
            words = np.stack([units, units >> 63], axis=1)
            valid = None if null is None else pa.array(~null).buffers()[1]
            buffers = [valid, pa.py_buffer(words.tobytes())]
            return pa.Array.from_buffers(self.arrow_type, len(codes), buffers)
        return pa.array(units, pa.int64(), mask=null).cast(self.arrow_type)

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain JSON: decimals and times as text."""

        def write(value: object) -> int | str:
            if isinstance(value, timedelta | Months):
                return step_text(value)
            return value if isinstance(value, int) else str(value)

        return {
            "domain": "grid",
            "kind": self.kind,
            "lower": write(self.lower),
            "upper": write(self.upper),
            "step": write(self.step),
            "nullable": self.nullable,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Grid:
        """Read what :meth:`to_dict` wrote."""
        check_keys(data, "kind", "lower", "upper", "step", "nullable")
        kind, step = data["kind"], data["step"]
        if kind not in KINDS:
            raise DomainError("key 'kind' of a grid is not a kind of grid")
        lower, upper = (cast(Point, from_json(kind, data[k], k)) for k in ("lower", "upper"))
        if FAMILY[kind] == "number":
            step = from_json(kind, step, "step")
        elif not isinstance(step, str):
            raise DomainError("key 'step' of a grid of times is text")
        return cls.of(lower, upper, step, nullable=data["nullable"], kind=kind)


def _months_at(here: Fraction) -> Fraction:
    """The number of a month at a place in time, and half a one where it has begun before."""
    day = (EPOCH + timedelta(microseconds=math.floor(here))).date()
    month = 12 * day.year + day.month - 1
    return month + Fraction(0 if here == _first_day(month) * DAY else 1, 2)


def _moment(here: Fraction) -> datetime | None:
    """The first moment at a place in time or after it."""
    try:
        return EPOCH + timedelta(microseconds=math.ceil(here))
    except OverflowError:
        return None


def _first_day(month: int) -> int:
    """Days from 1970 to the first day of a month."""
    return int(np.datetime64(month - EPOCH_MONTHS, "M").astype("datetime64[D]").astype(np.int64))


def _days(chunk: pa.Array[Any]) -> Codes | None:
    """Days since 1970, begun ones; None for what is no date or time without a zone."""
    given = chunk.type
    if pa.types.is_date32(given):
        return _integers(chunk)
    if pa.types.is_date64(given):
        return _integers(chunk) // (DAY // 1000)
    if isinstance(given, pa.TimestampType) and given.tz is None:
        return _integers(chunk) // (DAY * 1000 // ARROW_TICKS[given.unit])
    return None


def _is_number(given: pa.DataType) -> bool:
    return pa.types.is_integer(given) or pa.types.is_floating(given) or pa.types.is_decimal(given)


def _integers(chunk: pa.Array[Any]) -> Codes:
    if pa.types.is_date32(chunk.type):
        chunk = chunk.cast(pa.int32())
    chunk = chunk.cast(pa.int64())
    return np.asarray((chunk.fill_null(0) if chunk.null_count else chunk).to_numpy())


def _unit(kind: str, scale: int) -> Fraction:
    if FAMILY[kind] == "time":
        return Fraction(DAY if kind == "date" else 1)
    return Fraction(1, 10**scale)


def _kind(*given: object) -> str:
    types = set(map(type, given))
    return next((kind for python, kind in KIND_OF.items() if python in types), "integer")


def _point(kind: str, value: object, name: str) -> Fraction:
    """The exact place of a bound; refuses what cannot be one."""
    value = plain(value)
    number: Any = int if kind == "integer" else int | float | Decimal
    wanted = date if FAMILY[kind] == "time" else number
    wrong = isinstance(value, bool) or (kind == "date" and isinstance(value, datetime))
    if wrong or not isinstance(value, wanted):
        raise DomainError(
            f"the {name} of {with_article(kind)} grid cannot be"
            f" {with_article(type(value).__name__)}"
        )
    if isinstance(value, float | Decimal) and not (
        math.isfinite(value) and -40 < Decimal(value).adjusted() < 40
    ):
        raise DomainError(f"the {name} of a grid must be a finite number of few digits")
    # A bound is a decimal, also of reals.
    here = place(value, "decimal")
    if isinstance(here, float):
        raise DomainError(f"the {name} of a grid must be finite")
    return here


def _decimals(value: Fraction) -> int:
    for scale in range(19):
        if 10**scale % value.denominator == 0:
            return scale
    raise DomainError("a grid has at most 18 digits after the point")


def _step(kind: str, step: object) -> Fraction | Months:
    if FAMILY[kind] == "number":
        return _point(kind, step, "step")
    if isinstance(step, str):
        step = parse_step(step)
    if isinstance(step, Months):
        return step
    if not isinstance(step, timedelta):
        raise DomainError(
            f"the step of {with_article(kind)} grid cannot be {with_article(type(step).__name__)}",
            hint="write it with its unit, such as '1 day', '1 month' or '15 minutes'",
        )
    length = step // timedelta(microseconds=1)
    if kind == "date" and length % DAY:
        raise DomainError(
            "the step of a date grid must be whole days",
            hint="give the bounds as timestamps for a finer step",
        )
    return Fraction(length)
