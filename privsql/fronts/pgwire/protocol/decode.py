"""Bound values of a client, decoded from bytes and a type.

A value is bound, never pasted.  What is no value of its type is an error that does not repeat it:
whoever reads a server's log need not learn what people look for.
"""

from __future__ import annotations

import datetime as dt
import re
import struct
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from functools import partial, reduce
from typing import Any
from uuid import UUID

from privsql.fronts.pgwire.errors import BinaryValueError, TextValueError
from privsql.fronts.pgwire.protocol.types import Kind
from privsql.sql.postgres.types import elements

_EPOCH = dt.datetime(2000, 1, 1)
_TRUE = ("t", "tr", "tru", "true", "y", "ye", "yes", "on", "1")
_FALSE = ("f", "fa", "fal", "fals", "false", "n", "no", "of", "off", "0")
_NUMERIC = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?\s*")
_MOST_DIGITS = 2000


def argument(data: bytes | None, kind: Kind, binary: bool, number: int) -> Any:
    """One value; ``number`` is the parameter's, for errors."""
    if data is None:
        return None
    wrong: type[BinaryValueError | TextValueError] = BinaryValueError if binary else TextValueError
    try:
        return from_binary(data, kind) if binary else from_text(data.decode(), kind)
    except (ValueError, struct.error, OverflowError, IndexError, InvalidOperation):
        raise wrong(
            f"the value of parameter ${number} is not a valid {kind.name}",
            hint="give a value of that type, or cast the parameter in the statement",
        ) from None


# -- text ------------------------------------------------------------------------------------


def from_text(text: str, kind: Kind) -> Any:
    """A value from its text.

    >>> from privsql.fronts.pgwire.protocol.types import kind_of
    >>> from_text("{1,NULL}", kind_of("INTEGER[]"))
    [1, None]
    """
    if "\0" in text:
        raise ValueError
    if kind.element is not None:
        return _array(text, kind.element)
    # DuckDB reads every spelling of an interval; as text it is cast where it is used.
    return _TEXTS.get(kind.name, str)(text)


def _boolean(text: str) -> bool:
    word = text.strip().lower()
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise ValueError


def _integer(text: str, most: int = 2**63) -> int:
    if len(text) > 64 or "_" in text:
        raise ValueError
    value = int(text)
    if not -most <= value < most:
        raise OverflowError
    return value


def _float(text: str) -> float:
    if "_" in text:
        raise ValueError
    return float(text)


def _decimal(text: str) -> Decimal:
    if not _NUMERIC.fullmatch(text) or len(text) > _MOST_DIGITS:
        raise ValueError
    return Decimal(text.strip())


def _timestamp(text: str) -> dt.datetime:
    # PostgreSQL drops the zone of a text that is to be a timestamp without one.
    return _instant(text).replace(tzinfo=None)


def _timestamptz(text: str) -> dt.datetime:
    value = _instant(text)
    return value if value.tzinfo is not None else value.replace(tzinfo=dt.UTC)


def _instant(text: str) -> dt.datetime:
    """Python wants zones of two or four digits and no space before them."""
    found = re.sub(r"\s+([+-][0-9:]+)$", r"\1", text.strip())
    return dt.datetime.fromisoformat(re.sub(r"(:[0-9.]+[+-][0-9]{2})$", r"\1:00", found))


_ESCAPED = re.compile(rb"\\(\\|[0-3][0-7]{2})?")


def _bytea(text: str) -> bytes:
    r"""Hexadecimal after ``\x``, or the older way: octal numbers after a backslash.

    >>> _bytea(r"\x00ff"), _bytea(r"a\000")
    (b'\x00\xff', b'a\x00')
    """
    if text.startswith("\\x"):
        return bytes.fromhex(text[2:])

    def one(match: re.Match[bytes]) -> bytes:
        code = match[1]
        if code is None:
            raise ValueError
        return b"\\" if code == b"\\" else bytes([int(code, 8)])

    return _ESCAPED.sub(one, text.encode())


_TEXTS: dict[str, Callable[[str], Any]] = {
    "bool": _boolean,
    "int2": partial(_integer, most=2**15),
    "int4": partial(_integer, most=2**31),
    "int8": _integer,
    "oid": _integer,
    "float4": _float,
    "float8": _float,
    "numeric": _decimal,
    "date": lambda text: dt.date.fromisoformat(text.strip()[:10]),
    "time": lambda text: dt.time.fromisoformat(text.strip()),
    "timestamp": _timestamp,
    "timestamptz": _timestamptz,
    "uuid": lambda text: UUID(text.strip()),
    "bytea": _bytea,
}


def _array(text: str, element: Kind) -> list[Any]:
    found = elements(text)
    if found is None:
        raise ValueError
    return [None if each is None else from_text(each, element) for each in found]


# -- binary ----------------------------------------------------------------------------------


def from_binary(data: bytes, kind: Kind) -> Any:
    """A value from the bytes that PostgreSQL has for it."""
    if kind.element is not None:
        return _array_binary(data, kind.element)
    return _BINARIES.get(kind.name, _letters)(data)


def _letters(data: bytes) -> str:
    text = data.decode()
    if "\0" in text:
        raise ValueError
    return text


def _one(form: str, data: bytes) -> Any:
    return struct.unpack(form, data)[0]


def _since(data: bytes, epoch: dt.datetime = _EPOCH) -> dt.datetime:
    return epoch + dt.timedelta(microseconds=_one("!q", data))


def _numeric_binary(data: bytes) -> Decimal:
    count, weight, sign, scale = struct.unpack_from("!hhHH", data)
    digits = struct.unpack_from(f"!{count}H", data, 8)
    if len(data) != 8 + 2 * count or sign not in (0, 0x4000, 0xC000) or abs(weight) > 500:
        raise ValueError
    if sign == 0xC000:
        return Decimal("NaN")
    whole = reduce(lambda whole, digit: whole * 10_000 + digit, digits, 0)
    value = Decimal(whole).scaleb(4 * (weight - count + 1)) if count else Decimal(0)
    made = f"{value:f}"
    point = made.find(".")
    if point >= 0:
        made = made[: point + 1 + scale].rstrip(".")
    return -Decimal(made) if sign else Decimal(made)


def _interval_binary(data: bytes) -> str:
    micros, days, months = struct.unpack("!qii", data)
    return f"{months} months {days} days {micros} microseconds"


_BINARIES: dict[str, Callable[[bytes], Any]] = {
    "bool": partial(_one, "!?"),
    "int2": partial(_one, "!h"),
    "int4": partial(_one, "!i"),
    "int8": partial(_one, "!q"),
    "oid": partial(_one, "!I"),
    "float4": partial(_one, "!f"),
    "float8": partial(_one, "!d"),
    "numeric": _numeric_binary,
    "date": lambda data: _EPOCH.date() + dt.timedelta(days=_one("!i", data)),
    "time": lambda data: _since(data).time(),
    "timestamp": _since,
    "timestamptz": partial(_since, epoch=_EPOCH.replace(tzinfo=dt.UTC)),
    "interval": _interval_binary,
    "uuid": lambda data: UUID(bytes=data),
    "bytea": bytes,
    "jsonb": lambda data: data[1:].decode(),
}


def _array_binary(data: bytes, element: Kind) -> list[Any]:
    dimensions, _, _ = struct.unpack_from("!iiI", data)
    if dimensions == 0:
        return []
    if dimensions != 1:
        raise ValueError
    count, _ = struct.unpack_from("!ii", data, 12)
    if not 0 <= count <= len(data) // 4:
        raise ValueError
    found: list[Any] = []
    at = 20
    for _ in range(count):
        (size,) = struct.unpack_from("!i", data, at)
        at += 4
        if size == -1:
            found.append(None)
            continue
        if size < 0 or at + size > len(data):
            raise ValueError
        found.append(from_binary(data[at : at + size], element))
        at += size
    if at != len(data):
        raise ValueError
    return found
