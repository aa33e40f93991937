"""Text and binary encoding of the less common types, value by value.

interval    months, days, microseconds     1 mon 2 days 00:00:03
numeric     digits to the base 10000       sign, weight of the first, digits after the point
array       element by element             {1,NULL,"a b"}
json        structures, maps, nested lists
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
import struct
from collections.abc import Callable, Iterable
from decimal import Decimal
from itertools import islice
from typing import Any
from uuid import UUID

import pyarrow as pa

from privsql.fronts.pgwire.protocol.types import Kind

Array = Any
TEXT = pa.string()

_DAY = 86_400_000_000
_LARGEST = {32: 2**31 - 1, 64: 2**63 - 1}
_PLAIN = re.compile(r'[^{}",\\\s]+')
_NUMERIC = struct.Struct("!hhHh")


def texts(column: Array, kind: Kind) -> Array:
    """Each value's text."""
    return each(lambda value: _text(value, kind), _python(column))


def binaries(column: Array, kind: Kind) -> Array:
    """Each value's bytes."""
    make: Callable[[Any], bytes] = {
        "numeric": numeric_bytes,
        "interval": _interval_bytes,
        "uuid": lambda value: UUID(str(value)).bytes,
        "bytea": bytes,
        "jsonb": lambda value: b"\x01" + _text(value, kind).encode(),
        "int2vector": lambda value: _vector_bytes(value, 21, "!ih"),
        "oidvector": lambda value: _vector_bytes(value, 26, "!iI"),
    }.get(kind.name, lambda value: _text(value, kind).encode())
    return each(make, _python(column), pa.binary())


def each(make: Callable[[Any], Any], found: Iterable[Any], kind: Any = TEXT) -> Array:
    """What is made of each value, and NULL of NULL."""
    return pa.array([None if value is None else make(value) for value in found], kind)


def _python(column: Array) -> list[Any]:
    if isinstance(column.type, pa.BaseExtensionType):
        column, number = column.storage, "bignum" in str(column.type)
        return [v and _bignum(v) if number else v for v in column.to_pylist()]
    found: list[Any] = column.to_pylist()
    return found


def _text(value: Any, kind: Kind) -> str:
    if kind.name == "json" and not isinstance(value, str):
        return json.dumps(_plain(value), ensure_ascii=False)
    if isinstance(value, pa.MonthDayNano):
        return interval_text(value)
    if isinstance(value, bytes):
        return "\\x" + value.hex() if kind.name == "bytea" else _bits(value)
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, list):  # a vector of the catalog
        return " ".join(map(str, value))
    return str(value)


def _plain(value: Any) -> Any:
    """What JSON has; everything else as its text.  Arrow gives a map as pairs."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        if value and all(isinstance(v, tuple) and len(v) == 2 for v in value):
            return _plain(dict(value))
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)


def _bits(value: bytes) -> str:
    """DuckDB's BIT: the first byte says how many bits of the second are padding."""
    bits = "".join(f"{byte:08b}" for byte in value[1:])
    return bits[value[0] :] if value else ""


def _bignum(value: bytes) -> Decimal:
    """DuckDB's BIGNUM: three bytes of header, whose first bit is the sign, then the digits.

    A negative number has all bits turned round.
    """
    if not value[0] & 0x80:
        return -_bignum(bytes(255 - byte for byte in value))
    return Decimal(int.from_bytes(value[3:], "big"))


# -- times -----------------------------------------------------------------------------------


def date_text(days: int) -> str:
    """A date outside the years 1 to 9999, or infinity.

    >>> date_text(-719163), date_text(2147483647), date_text(2932897)
    ('0001-12-31 BC', 'infinity', '10000-01-01')
    """
    if abs(days) == _LARGEST[32]:
        return "infinity" if days > 0 else "-infinity"
    # 400 years have 146097 days, so a date can be moved to years that Python knows.
    cycles, rest = divmod(days - -719162, 146_097)
    moved = dt.date(1, 1, 1) + dt.timedelta(days=rest)
    year = moved.year + 400 * cycles
    era = "" if year > 0 else " BC"
    return f"{year if year > 0 else 1 - year:04d}-{moved.month:02d}-{moved.day:02d}{era}"


def timestamp_text(micros: int, aware: bool) -> str:
    """A time outside the years 1 to 9999, in UTC, or infinity."""
    if abs(micros) == _LARGEST[64]:
        return "infinity" if micros > 0 else "-infinity"
    days, rest = divmod(micros, _DAY)
    day, bc, _ = date_text(days).partition(" BC")
    return f"{day} {_clock(rest)}{'+00' if aware else ''}{bc}"


def _clock(micros: int) -> str:
    seconds, fraction = divmod(micros, 1_000_000)
    made = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{made}.{fraction:06d}".rstrip("0") if fraction else made


def offset_text(seconds: int) -> str:
    """A zone's distance from UTC.

    >>> offset_text(7200), offset_text(-12600), offset_text(0)
    ('+02', '-03:30', '+00')
    """
    sign, rest = "-" if seconds < 0 else "+", abs(seconds)
    made = f"{sign}{rest // 3600:02d}"
    if rest % 3600:
        made += f":{rest // 60 % 60:02d}"
    return f"{made}:{rest % 60:02d}" if rest % 60 else made


def interval_text(value: pa.MonthDayNano) -> str:
    """An interval in the style ``postgres``.

    >>> interval_text(pa.MonthDayNano([14, -2, 3_500_000_000]))
    '1 year 2 mons -2 days +00:00:03.5'
    """
    years, months = int(value.months / 12), int(value.months - 12 * int(value.months / 12))
    parts: list[str] = []
    negative = False
    for number, name in ((years, "year"), (months, "mon"), (value.days, "day")):
        if number:
            plus = "+" if negative and number > 0 else ""
            parts.append(f"{plus}{number} {name}{'' if number == 1 else 's'}")
            negative = number < 0
    micros = value.nanoseconds // 1000
    if micros or not parts:
        sign = "-" if micros < 0 else "+" if negative else ""
        parts.append(sign + _clock(abs(micros)))
    return " ".join(parts)


def _interval_bytes(value: pa.MonthDayNano) -> bytes:
    return struct.pack("!qii", value.nanoseconds // 1000, value.days, value.months)


# -- numbers ---------------------------------------------------------------------------------


def numeric_bytes(value: Any) -> bytes:
    """PostgreSQL's ``numeric``: sum of digit[i] * 10000 ** (weight - i).

    >>> numeric_bytes(Decimal("12345.67")).hex()
    '0003000100000002000109291a2c'
    """
    number = value if isinstance(value, Decimal) else Decimal(str(value))
    sign, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int):
        return _NUMERIC.pack(0, 0, 0xC000, 0)
    scale = max(0, -exponent)
    whole = int("".join(map(str, digits)) or "0") * 10 ** max(0, exponent)
    # So many zeros that the point falls between two digits to the base 10000.
    whole *= 10 ** (-scale % 4)
    groups: list[int] = []
    while whole:
        whole, digit = divmod(whole, 10_000)
        groups.append(digit)
    groups.reverse()
    weight = len(groups) - 1 - (scale + 3) // 4
    while groups and not groups[-1]:
        groups.pop()
    head = _NUMERIC.pack(len(groups), weight if groups else 0, 0x4000 * sign, scale)
    return head + struct.pack(f"!{len(groups)}H", *groups)


# -- arrays ----------------------------------------------------------------------------------


def _lists(column: Array, encode: Callable[[Array], Array]) -> list[list[Any] | None]:
    """The elements of each list, encoded all at once."""
    if isinstance(column.type, pa.FixedSizeListType):
        column = column.cast(pa.list_(column.type.value_type))
    elements = iter(encode(column.flatten()).to_pylist())
    lengths = column.value_lengths().to_pylist()
    return [None if length is None else list(islice(elements, length)) for length in lengths]


def array_texts(column: Array, encode: Callable[[Array], Array]) -> Array:
    """Arrays as text: ``{1,NULL,"a b"}``."""
    return each(
        lambda elements: "{" + ",".join(map(_element, elements)) + "}", _lists(column, encode)
    )


def _element(value: Any) -> str:
    if value is None:
        return "NULL"
    text = value.decode() if isinstance(value, bytes) else str(value)
    if _PLAIN.fullmatch(text) and text.upper() != "NULL":
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def array_bytes(column: Array, encode: Callable[[Array], Array], oid: int) -> Array:
    """Arrays in binary: dimensions, whether there are NULLs, the element's type, elements."""

    def whole(elements: list[Any]) -> bytes:
        if not elements:
            return struct.pack("!iiI", 0, 0, oid)
        head = struct.pack("!iiIii", 1, int(None in elements), oid, len(elements), 1)
        return head + b"".join(map(_sized, elements))

    return each(whole, _lists(column, encode), pa.binary())


def _vector_bytes(value: list[int], oid: int, form: str) -> bytes:
    """A vector of the catalog in binary: an array whose first element has the number 0."""
    size = struct.calcsize(form) - 4
    cells = b"".join(struct.pack(form, size, each) for each in value)
    return struct.pack("!iiIii", 1, 0, oid, len(value), 0) + cells


def _sized(value: Any) -> bytes:
    if value is None:
        return b"\xff\xff\xff\xff"
    data = value if isinstance(value, bytes) else str(value).encode()
    return struct.pack("!i", len(data)) + data
