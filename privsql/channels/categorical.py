"""Domains given as a list of values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from functools import cached_property
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privsql.channels.domain import (
    NULL,
    OUTSIDE,
    Codes,
    Domain,
    Value,
    check_keys,
    from_json,
    nulls_of,
)
from privsql.channels.intervals import Interval, is_nan, place, plain
from privsql.errors import DomainError, with_article

CATEGORY_TYPES: dict[str, pa.DataType | None] = {
    "text": pa.string(),
    "boolean": pa.bool_(),
    "integer": pa.int64(),
    "decimal": None,  # depends on the digits
    "real": pa.float64(),
    "date": pa.date32(),
}

# Text has an order in SQL, but which one is the collation's business.
ORDERED = ("integer", "decimal", "real", "date")
NUMBERS = ("integer", "decimal", "real")

# Whole numbers up to here are doubles of their own.
EXACT = 2**53


@dataclass(frozen=True)
class Categorical(Domain):
    """Values that are listed: text, booleans, numbers or dates, of one kind.

    Floats are the doubles that they are, or the decimals that they are written as, whichever the
    column holds.

    >>> illness = Categorical(("flu", "hiv", "none"), nullable=True)
    >>> illness.codes(["none", None, "flu"]), illness.size
    (array([2, 3, 0]), 4)
    >>> Categorical((True, False)) == Categorical((1, 0))
    False
    """

    described_as = "categorical"

    categories: tuple[Value, ...]
    nullable: bool = False
    kind: str = field(init=False, repr=False)  # compared, because True == 1

    def __post_init__(self) -> None:
        """Refuse lists that are empty, mixed, repeated or cannot be stored."""
        given: object = self.categories  # TOML and JSON do not keep to the type
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise DomainError("the categories of a domain must be a list of values")
        categories = tuple(plain(value) for value in given)
        kinds = {_category_kind(value) for value in categories}
        if len(kinds) != 1:
            listed = ", ".join(sorted(kinds)) or "nothing"
            raise DomainError(f"a categorical domain lists values of one kind, not {listed}")
        if len(set(categories)) < len(categories):
            raise DomainError(
                f"{len(categories) - len(set(categories))} of the {len(categories)} categories"
                " are repeated"
            )
        if not isinstance(self.nullable, bool):
            raise DomainError("nullable must be true or false")
        object.__setattr__(self, "categories", categories)
        object.__setattr__(self, "kind", kinds.pop())
        try:
            self._arrow  # noqa: B018 - built here so that it cannot fail later
        except (pa.ArrowException, ValueError, OverflowError):
            raise DomainError(
                f"a category does not fit the column type of {with_article(self.kind)} domain",
                hint="integers have 64 bits, decimals 38 digits, text is Unicode",
            ) from None

    @property
    def points(self) -> int:
        """How many categories there are."""
        return len(self.categories)

    @cached_property
    def arrow_type(self) -> pa.DataType:
        """string, bool, int64, float64, date32, or a decimal that holds every category."""
        listed = CATEGORY_TYPES[self.kind]
        if listed is not None:
            return listed
        tuples = [value.as_tuple() for value in self.categories if isinstance(value, Decimal)]
        exponents = [e for _, _, e in tuples if isinstance(e, int)]
        scale = max(0, -min(exponents))
        digits = max(len(d) + e + scale for (_, d, _), e in zip(tuples, exponents, strict=True))
        if max(digits, scale) > 38:
            raise OverflowError
        return pa.decimal128(18 if max(digits, scale) <= 18 else 38, scale)

    @cached_property
    def _arrow(self) -> pa.Array[Any]:
        return pa.array([*self.categories, None], self.arrow_type)

    @cached_property
    def _indices(self) -> dict[object, int]:
        # Numbers and dates are found by their place, so that 1 is 1.0 as in SQL.
        return {self._key(value): index for index, value in enumerate(self.categories)}

    def _key(self, value: object) -> object:
        return place(value, self.kind) if self.kind in ORDERED else value

    def value_at(self, index: int) -> Value | None:
        """The value with this index; None for NULL."""
        if not 0 <= index < self.size:
            raise DomainError(f"index {index} is not in 0 to {self.size - 1}")
        return None if index == self.null_index else self.categories[index]

    def _index(self, value: object) -> int | None:
        return None if is_nan(value) else self._indices.get(self._key(value))

    def _interval(self, interval: Interval) -> Sequence[range]:
        if self.kind not in ORDERED:
            raise DomainError(
                f"{with_article(self.kind)} domain has no order of its own",
                hint="let the SQL engine evaluate the comparison over the domain's values,"
                " under the collation of the query",
            )
        self.refuse_bounds(interval)
        return [
            range(index, index + 1)
            for index, value in enumerate(self.categories)
            if not isinstance(value, str) and interval.holds(value, self.kind)
        ]

    def _codes(self, chunk: pa.Array[Any]) -> Codes:
        common = self._common_type(chunk.type)
        try:
            chunk, known = chunk.cast(common), self._listed_as(common)
        except pa.ArrowException:
            raise self.refuse_type(chunk.type) from None
        found = pc.index_in(chunk, value_set=known).fill_null(OUTSIDE)
        codes = np.array(found.to_numpy(), dtype=np.int64)
        codes[nulls_of(chunk)] = NULL
        return codes

    def _listed_as(self, common: pa.DataType) -> pa.Array[Any]:
        """The categories in a type; reals are the nearest that it has, or their own decimals."""
        if self.kind == "real" and pa.types.is_decimal(common):
            return pa.array([Decimal(repr(each)) for each in self.categories], common)
        return self._arrow[:-1].cast(common, safe=not pa.types.is_floating(common))

    def _common_type(self, given: pa.DataType) -> pa.DataType:
        """A type that holds the categories and every value of a column, so that no cast fails."""
        types = pa.types
        if self.kind == "text" and types.is_string(given):
            return pa.string()
        if self.kind == "text" and (types.is_large_string(given) or types.is_string_view(given)):
            return pa.large_string()
        if self.kind == "boolean" and types.is_boolean(given):
            return pa.bool_()
        if self.kind == "date" and types.is_date(given):
            return pa.date32()
        if self.kind in NUMBERS:
            if types.is_floating(given) and self._are_doubles:
                return given
            if self.kind == "integer" and types.is_integer(given) and not types.is_uint64(given):
                return pa.int64()
            if types.is_integer(given) or types.is_decimal(given):
                scale: int = getattr(given, "scale", 0)
                return pa.decimal256(76, max(scale, self._scale))
        raise self.refuse_type(given)

    @cached_property
    def _scale(self) -> int:
        """Digits after the point."""
        if self.kind != "real":
            return int(getattr(self.arrow_type, "scale", 0))
        return max(0, *(-int(Decimal(repr(each)).as_tuple().exponent) for each in self.categories))

    @property
    def _are_doubles(self) -> bool:
        """Whether no two categories are one as doubles."""
        if self.kind != "integer":
            return True
        return all(isinstance(each, int) and abs(each) <= EXACT for each in self.categories)

    def _decode(self, codes: Codes) -> pa.Array[Any]:
        return self._arrow.take(codes)

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain JSON: decimals, reals and dates as text."""
        write = repr if self.kind == "real" else str if self.kind in ("decimal", "date") else plain
        return {
            "domain": "categorical",
            "kind": self.kind,
            "values": [write(value) for value in self.categories],
            "nullable": self.nullable,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Categorical:
        """Read what :meth:`to_dict` wrote."""
        check_keys(data, "kind", "values", "nullable")
        kind, values = data["kind"], data["values"]
        if kind not in CATEGORY_TYPES:
            raise DomainError("key 'kind' of a categorical domain is not a kind of category")
        if not isinstance(values, list):
            raise DomainError("key 'values' of a domain is a list")
        listed = [from_json(kind, value, "values") for value in values]
        if kind == "real":
            listed = [float(cast(Decimal, value)) for value in listed]
        return cls(tuple(listed), data["nullable"])


def _category_kind(value: object) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, str):
        return "text"
    if isinstance(value, Decimal) and value.is_finite():
        return "decimal"
    if isinstance(value, float) and math.isfinite(value):
        return "real"
    if isinstance(value, date) and not isinstance(value, datetime):
        return "date"
    hints = {
        type(None): "NULL is not a category; write nullable = true",
        float: "a number must be finite",
        datetime: "use a range with a step",
    }
    raise DomainError(
        f"{with_article(type(value).__name__)} cannot be a category",
        hint=hints.get(type(value), "categories are text, booleans, numbers or dates"),
    )
