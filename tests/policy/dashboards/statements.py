"""Statements as BI tools write them: keys, conditions, a few aggregates.

A statement is kept in parts, because whoever measures has to know which of them belong to public
columns, to measures and to sensitive columns; ``Statement.sql`` is what is typed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

MEASURES = ("cost", "visited")
# Sensitive columns, and how many values each may have.
SENSITIVE = {"smoker": 2, "disease": 8, "income": 2}
WORD = re.compile(r"'[^']*'|[a-z_]+")


def columns(text: str) -> set[str]:
    """Words of an expression, strings left out.

    >>> sorted(columns("cost < 50 AND district = 'east'"))
    ['cost', 'district']
    """
    return {word for word in WORD.findall(text) if not word.startswith("'")}


def is_sensitive(text: str) -> bool:
    """Whether an expression looks at a sensitive column."""
    return bool(columns(text) & set(SENSITIVE))


def is_measured(text: str) -> bool:
    """Whether an expression looks at a measure."""
    return bool(columns(text) & set(MEASURES))


@dataclass(frozen=True)
class Aggregate:
    """One aggregate, under conditions of its own.

    >>> Aggregate("SUM", "cost", ("smoker = 'yes'", "cost < 100")).sql
    "SUM(cost) FILTER (WHERE smoker = 'yes' AND cost < 100)"
    >>> Aggregate("SUM", "cost", ("smoker = 'yes'",), form="case").sql
    "SUM(CASE WHEN smoker = 'yes' THEN cost ELSE 0 END)"
    >>> Aggregate("RATE", "", ("smoker = 'yes'",)).sql
    "AVG(CASE WHEN smoker = 'yes' THEN 1.0 ELSE 0.0 END)"
    """

    function: str = "COUNT"  # COUNT, SUM, AVG, or RATE: the share of rows with the conditions
    argument: str = "*"
    where: tuple[str, ...] = ()
    form: str = "filter"  # or "case"

    @property
    def sql(self) -> str:
        """As it is typed."""
        condition = " AND ".join(self.where)
        if self.function == "RATE":
            return f"AVG(CASE WHEN {condition} THEN 1.0 ELSE 0.0 END)"
        if self.form == "case" and condition:
            value, function = ("1", "SUM") if self.argument == "*" else (self.argument, "SUM")
            return f"{function}(CASE WHEN {condition} THEN {value} ELSE 0 END)"
        made = f"{self.function}({self.argument})"
        return f"{made} FILTER (WHERE {condition})" if condition else made

    @property
    def told(self) -> tuple[str, ...]:
        """Weights whose sums the answer tells; its error is made of their squares."""
        if self.function in ("COUNT", "RATE"):
            return ("1",)
        squares = f"({self.argument}) * ({self.argument})"
        own = (self.argument, squares)
        return own if self.function == "SUM" else ("1", *own)


@dataclass(frozen=True)
class Statement:
    """One SELECT over the published table.

    >>> print(Statement(("district",), (Aggregate(),), ("disease = 'flu'", "cost < 50")).sql)
    SELECT district, COUNT(*) AS n0 FROM patients WHERE disease = 'flu' AND cost < 50 GROUP BY 1
    """

    keys: tuple[str, ...]
    aggregates: tuple[Aggregate, ...]
    where: tuple[str, ...] = ()
    tail: str = ""
    share: bool = False  # each first count also as a share of all of them
    table: str = "patients"

    @property
    def sql(self) -> str:
        """As it is typed."""
        shown = [*self.keys, *(f"{a.sql} AS n{i}" for i, a in enumerate(self.aggregates))]
        if self.share:
            first = self.aggregates[0].sql
            shown.append(f"{first} / SUM({first}) OVER () AS share")
        parts = [f"SELECT {', '.join(shown)} FROM {self.table}"]
        if self.where:
            parts.append(f"WHERE {' AND '.join(self.where)}")
        if self.keys:
            parts.append(f"GROUP BY {', '.join(str(i + 1) for i in range(len(self.keys)))}")
        if self.tail:
            parts.append(self.tail)
        return " ".join(parts)

    @property
    def classes(self) -> int:
        """How many cells each cell of its public keys is divided into by sensitive ones."""
        made = 1
        for key in self.keys:
            made *= SENSITIVE.get(key, 1)
        return made

    def tells(self, aggregate: Aggregate) -> bool:
        """Whether an aggregate depends on sensitive values."""
        return any(map(is_sensitive, (*self.keys, *self.where, *aggregate.where)))


def where(statements: Iterable[Statement], *conditions: str) -> list[Statement]:
    """The same statements under more conditions."""
    return [replace(each, where=(*conditions, *each.where)) for each in statements]
