"""Domains: the possible values of a sensitive column, which are public.

A domain is a list of values in a fixed order, numbered from 0, with NULL last where the
column may hold it.  It is a list of categories (:mod:`privsql.channels.categorical`) or a
grid between two bounds (:mod:`privsql.channels.grid`).  It is never read off the data:
which values *could* be there tells nobody which *are*.

Two things are asked of it.  Publishing asks for the **code** of each value, its number in
the domain.  A query asks for the **mass** of a predicate, the chance that a replaced value
satisfies it:

    b(P) = sum of replacing[i] over the values i with P  (:meth:`Cells.sums`)
         = count(P) / size  if uniform                   (:meth:`Domain.mass`)

An error in ``b`` is an error in every answer, hence counts are exact integers.

>>> from privsql.channels import Categorical
>>> Categorical(("flu", "hiv", "none")).mass({"flu", "hiv"})
0.6666666666666666
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from privsql.channels.intervals import Interval, family, plain, union
from privsql.errors import DomainError, TooLargeError, how_many, with_article

Value = str | bool | int | float | Decimal | date  # a datetime is a date too
Selection = Interval | Iterable[Interval | Value | None]
Codes = NDArray[np.int64]

# Larger domains are never written out as an array of their values.
MATERIALISE_LIMIT = 2**20

# What a class writes in place of a code; no index is negative.
OUTSIDE, NULL = -1, -2

# Which kinds of domain compare with which values.
FAMILY = {
    "text": "text",
    "boolean": "boolean",
    "integer": "number",
    "decimal": "number",
    "real": "number",
    "date": "time",
    "timestamp": "time",
}


class Domain(ABC):
    """The possible values of a column in a fixed order, NULL last."""

    described_as: ClassVar[str]
    _known: ClassVar[dict[str, type[Domain]]] = {}

    kind: str
    nullable: bool

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Remember the class's name in descriptions, for ``domain_from_dict``."""
        super().__init_subclass__(**kwargs)
        Domain._known[cls.described_as] = cls

    @property
    @abstractmethod
    def points(self) -> int:
        """How many values there are besides NULL."""

    @property
    def size(self) -> int:
        """How many values there are, NULL included."""
        return self.points + self.nullable

    @property
    def null_index(self) -> int | None:
        """The index of NULL, the last, or None where the column holds no NULL."""
        return self.points if self.nullable else None

    @property
    @abstractmethod
    def arrow_type(self) -> pa.DataType:
        """The type of :meth:`values` and :meth:`decode`."""

    @abstractmethod
    def value_at(self, index: int) -> Value | None:
        """The value with this index; None for NULL."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """All of it as plain JSON; :func:`domain_from_dict` reads it back."""

    @classmethod
    @abstractmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Domain:
        """Read what :meth:`to_dict` wrote."""

    def values(self) -> pa.Array[Any]:
        """All values in domain order, NULL last; refused above MATERIALISE_LIMIT."""
        if self.size > MATERIALISE_LIMIT:
            raise TooLargeError(
                f"a domain of {self.size} values is too large to be written out",
                hint=f"at most {MATERIALISE_LIMIT} values can be; choose a coarser step,"
                " or compare the column with constants only",
            )
        return self.decode(np.arange(self.size))

    def codes(self, values: Any) -> Codes:
        """The index of each value, from an Arrow array or any sequence.

        A grid rounds to its nearest point first, and halfway up.  Values that are outside
        the domain are counted in the error and never shown.
        """
        codes = self.places(values)
        if codes.min(initial=0) >= 0:
            return codes
        nulls, outside = codes == NULL, int((codes == OUTSIDE).sum())
        foreign = 0 if self.nullable else int(nulls.sum())
        if not outside and not foreign:
            codes[nulls] = self.points
            return codes
        lying = how_many(outside, "lies outside the domain", "lie outside the domain")
        null = f"{how_many(foreign, 'is NULL', 'are NULL')}, which the domain does not have"
        problems = [text for count, text in ((outside, lying), (foreign, null)) if count]
        raise DomainError(
            f"of {how_many(len(codes), 'value')}, {' and '.join(problems)}",
            hint="widen the domain (nullable = true for NULL), or clean the source first",
        )

    def places(self, values: Any) -> Codes:
        """The index of each value as :meth:`codes` has it, or OUTSIDE, or NULL, nullable or not."""
        parts = [self._chunk(chunk) for chunk in _chunks(values)]
        return parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, np.int64), *parts])

    def _chunk(self, chunk: pa.Array[Any]) -> Codes:
        if pa.types.is_null(chunk.type):
            return np.full(len(chunk), NULL, dtype=np.int64)
        if not isinstance(chunk, pa.DictionaryArray):
            return self._codes(chunk)
        # Entries of the dictionary that no row uses may be anything.
        if len(chunk.dictionary) == 0:
            return np.full(len(chunk), NULL, dtype=np.int64)
        indices = chunk.indices.cast(pa.int64())
        codes: Codes = self._chunk(chunk.dictionary)[indices.fill_null(0).to_numpy()]
        codes[nulls_of(indices)] = NULL
        return codes

    @abstractmethod
    def _codes(self, chunk: pa.Array[Any]) -> Codes:
        """Codes of one plain array, with OUTSIDE and NULL where there is none."""

    def decode(self, codes: ArrayLike) -> pa.Array[Any]:
        """The values with these codes: ``decode(codes(v))`` is v on the domain."""
        array = np.asarray(codes)
        if array.size == 0:
            array = array.astype(np.int64)
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise DomainError("codes are a list of integers")
        if array.size and not 0 <= array.min() <= array.max() < self.size:
            wrong = int(((array < 0) | (array >= self.size)).sum())
            raise DomainError(f"{wrong} of {array.size} codes are not in 0 to {self.size - 1}")
        return self._decode(array.astype(np.int64, copy=False))

    @abstractmethod
    def _decode(self, codes: Codes) -> pa.Array[Any]:
        """Values of codes that were checked."""

    def ranges(self, selection: Selection) -> tuple[range, ...]:
        """The indices of a selection, as disjoint ranges in order.

        A selection is an interval, or a collection of intervals and values that means
        their union.  A value that the domain does not have is not a selection.  None is *the
        value NULL*: it selects NULL if the domain has it, which SQL writes ``IS NULL``
        (``= NULL`` is not a selection).
        """
        if isinstance(selection, Interval):
            return union(self._interval(selection))
        if isinstance(selection, str) or not isinstance(selection, Iterable):
            raise DomainError(
                f"{with_article(type(selection).__name__)} is not a selection",
                hint="give an Interval, or a set of values",
            )
        found: list[range] = []
        for part in selection:
            if isinstance(part, Interval):
                found.extend(self._interval(part))
            elif (index := self._find(plain(part))) is not None:
                found.append(range(index, index + 1))
        return union(found)

    def _find(self, value: object) -> int | None:
        if value is None:
            return self.null_index
        if family(value) != FAMILY[self.kind]:
            raise DomainError(
                f"{with_article(type(value).__name__)} cannot be a value of"
                f" {with_article(self.kind)} domain"
            )
        return self._index(value)

    @abstractmethod
    def _index(self, value: object) -> int | None:
        """Index of a value of the right family, not rounded; None if it is not there."""

    @abstractmethod
    def _interval(self, interval: Interval) -> Sequence[range]:
        """Indices in an interval."""

    def refuse_bounds(self, interval: Interval) -> None:
        """Refuse an interval of times on numbers, and of numbers on times."""
        if interval.family not in (None, FAMILY[self.kind]):
            raise DomainError(
                f"the bounds of the interval do not compare with {with_article(self.kind)}"
            )

    def refuse_type(self, given: pa.DataType) -> DomainError:
        """The error for a column of a type that the domain cannot hold."""
        return DomainError(
            f"a column of type {given} does not fit {with_article(self.kind)} domain",
            hint="cast the column, or describe the domain in the column's own type",
        )

    def count(self, selection: Selection) -> int:
        """How many values a selection holds, each counted once."""
        return sum(map(len, self.ranges(selection)))

    def mass(self, selection: Selection) -> float:
        """Chance that a value drawn uniformly is in the selection: rounded once."""
        return self.count(selection) / self.size


def _chunks(values: Any) -> list[pa.Array[Any]]:
    if isinstance(values, pa.ChunkedArray):
        return list(values.chunks)
    if isinstance(values, pa.Array):
        return [values]
    if isinstance(values, list | tuple):
        types = set(map(type, values))
        if date in types and datetime in types:
            # Arrow would cut the hours off all of them.
            values = [datetime.combine(v, time()) if type(v) is date else v for v in values]
    try:
        made = pa.array(values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        # Not chained: Arrow's message quotes the value.
        raise DomainError(
            "the values are not a sequence of one type that a column can have",
            hint="integers must fit 64 bits; do not mix decimals with floats or booleans",
        ) from None
    return list(made.chunks) if isinstance(made, pa.ChunkedArray) else [made]


def nulls_of(chunk: pa.Array[Any]) -> NDArray[np.bool_]:
    """Where an array is NULL."""
    if chunk.null_count == 0:
        return np.zeros(len(chunk), dtype=np.bool_)
    return np.asarray(chunk.is_null().to_numpy(zero_copy_only=False), dtype=np.bool_)


def from_json(kind: str, value: object, key: str) -> Value:
    """Read one value of a kind from plain JSON, or name the key that is wrong."""
    if kind == "boolean" and isinstance(value, bool):
        return value
    if kind == "integer" and isinstance(value, int) and not isinstance(value, bool):
        return value
    readers: dict[str, Callable[[str], Value]] = {
        "text": str,
        "decimal": Decimal,
        "real": Decimal,
        "date": date.fromisoformat,
        "timestamp": datetime.fromisoformat,
    }
    if kind in readers and isinstance(value, str):
        with suppress(ValueError, ArithmeticError):
            return readers[kind](value)
    raise DomainError(f"key {key!r} of a domain cannot be read as {kind}")


def check_keys(data: Mapping[str, Any], *keys: str) -> None:
    """Refuse a description with keys missing or foreign, and name them."""
    for problem, names in (
        ("lacks", [key for key in keys if key not in data]),
        ("does not know", [key for key in data if key not in (*keys, "domain")]),
    ):
        if names:
            raise DomainError(f"the domain's description {problem} {', '.join(map(repr, names))}")
    if type(data["kind"]) is not str:
        raise DomainError("key 'kind' of a domain is text")
    if type(data["nullable"]) is not bool:
        raise DomainError("key 'nullable' of a domain is true or false")


def domain_from_dict(data: Mapping[str, Any]) -> Domain:
    """Read what a domain's ``to_dict`` wrote, from JSON that may be malformed.

    >>> domain_from_dict({"domain": "categorical", "kind": "boolean",
    ...                   "values": [False, True], "nullable": False})
    Categorical(categories=(False, True), nullable=False)
    """
    if not isinstance(data, Mapping):
        raise DomainError("a domain's description is an object with named keys")
    name = data.get("domain")
    if not isinstance(name, str) or name not in Domain._known:
        listed = " or ".join(map(repr, Domain._known))
        raise DomainError(f"key 'domain' of a domain's description is {listed}")
    return Domain._known[name].from_dict(data)
