"""The types of PEP 249: type codes of ``description``, and constructors of values."""

from __future__ import annotations

import time
from datetime import date, datetime
from datetime import time as clock
from typing import NamedTuple

from privsql.answer.outcome import ResultColumn


class TypeObject:
    """A kind of column: equal to every type code of ``description`` that is of this kind.

    >>> STRING == "VARCHAR", NUMBER == "DECIMAL(18,3)", NUMBER == "INTEGER[]"
    (True, True, False)
    """

    def __init__(self, name: str, *types: str) -> None:
        self.name = name
        self.types = frozenset(types)

    def __eq__(self, other: object) -> bool:
        """Compare with DuckDB's name of a type, or with another kind."""
        if isinstance(other, str):
            nested = other.endswith("]")
            return not nested and other.split("(")[0].strip().upper() in self.types
        return self is other

    def __hash__(self) -> int:
        """By identity: a kind is equal to several names, so no better hash exists."""
        return id(self)

    def __repr__(self) -> str:
        """The name that PEP 249 gives it."""
        return f"privsql.{self.name}"


STRING = TypeObject("STRING", "VARCHAR", "ENUM", "UUID", "JSON")
BINARY = TypeObject("BINARY", "BLOB", "BIT")
NUMBER = TypeObject(
    "NUMBER",
    *("BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "BIGNUM"),
    *("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"),
    *("FLOAT", "DOUBLE", "DECIMAL"),
)
DATETIME = TypeObject(
    "DATETIME",
    *("DATE", "TIME", "TIME_NS", "TIME WITH TIME ZONE", "TIMESTAMP WITH TIME ZONE"),
    *("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "INTERVAL"),
)
ROWID = TypeObject("ROWID")  # a release has no row ids

Date = date
Time = clock
Timestamp = datetime
Binary = bytes


def DateFromTicks(ticks: float) -> date:  # noqa: N802 - the name is PEP 249's
    """The local date at so many seconds since the epoch."""
    return date(*time.localtime(ticks)[:3])


def TimeFromTicks(ticks: float) -> clock:  # noqa: N802 - the name is PEP 249's
    """The local time of day at so many seconds since the epoch."""
    return clock(*time.localtime(ticks)[3:6])


def TimestampFromTicks(ticks: float) -> datetime:  # noqa: N802 - the name is PEP 249's
    """The local date and time at so many seconds since the epoch."""
    return datetime(*time.localtime(ticks)[:6])


class Description(NamedTuple):
    """What is known about a column of a result; the seven fields of PEP 249."""

    name: str
    type_code: str
    display_size: None
    internal_size: None
    precision: int | None
    scale: int | None
    null_ok: None


def describe(column: ResultColumn) -> Description:
    """Seven fields, most of which DuckDB does not know.

    >>> describe(ResultColumn("cost", "DECIMAL(18,3)"))[:2]
    ('cost', 'DECIMAL(18,3)')
    >>> describe(ResultColumn("cost", "DECIMAL(18,3)"))[4:6]
    (18, 3)
    """
    precision = scale = None
    if column.type.startswith("DECIMAL(") and column.type.endswith(")"):
        precision, scale = map(int, column.type[len("DECIMAL(") : -1].split(","))
    return Description(column.name, column.type, None, None, precision, scale, None)
