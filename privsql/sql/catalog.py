"""Names that a statement can use: the published table and public tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from privsql.channels import Channel, Domain
from privsql.errors import Error, Place, ProgrammingError

# Qualifiers of canonical columns: the published table, and the i-th table joined to it.
PUBLISHED = "t"

# Mechanisms that look at the whole column: rows are not independent of each other.
WHOLE = ("identity", "swap", "decoy")


class UnknownName(ProgrammingError, code="unknown-name", sqlstate="42P01"):  # noqa: N818 - says what is unknown
    """A table or a column does not exist."""


class UnknownColumn(UnknownName, sqlstate="42703"):
    """A column does not exist, or is ambiguous."""


@dataclass(frozen=True)
class Sensitive:
    """A sensitive column as planning sees it."""

    name: str
    type: str
    mechanism: str
    domain: Domain
    channel: Channel


@dataclass(frozen=True)
class Catalog:
    """The published table with its columns, and public tables by name."""

    table: str
    columns: tuple[tuple[str, str], ...]  # (name, type) in the order of the table
    sensitive: Mapping[str, Sensitive]  # by name
    tables: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    weighted: bool = False
    multiplicity: bool = False
    grouped: bool = False
    rows: int = 0
    tuples: int = 0  # distinct public ones
    grouping: tuple[str, ...] = ()  # public columns that tell personal groups apart
    repeated: bool = False  # whether some persons have several rows

    @cached_property
    def measures(self) -> tuple[str, ...]:
        """Public columns that tell no personal groups apart."""
        taken = {*self.sensitive, *self.grouping}
        return tuple(name for name, _ in self.columns if name not in taken)

    @cached_property
    def _names(self) -> dict[str, str]:
        return {name.casefold(): name for name, _ in self.columns}

    @cached_property
    def _tables(self) -> dict[str, str]:
        return {name.casefold(): name for name in self.tables}

    def is_published(self, name: str) -> bool:
        """Whether a table's name is that of the published table."""
        return name.casefold() == self.table.casefold()

    def column(self, name: str) -> str | None:
        """The published column of this name as the release spells it."""
        return self._names.get(name.casefold())

    def public_table(self, name: str) -> str | None:
        """The public table of this name as it was given."""
        return self._tables.get(name.casefold())

    def no_table(self, name: str, place: Place | None = None) -> UnknownName:
        """The error that there is no table of this name."""
        hint = f"the published table is {self.table!r}"
        return UnknownName(f"there is no table {name!r}", hint=hint, place=place)


# Where a column is written: of its name, and of its table's.
Named = Callable[[str, str], Place | None]

_QUOTED = re.compile(r'"([^"]+)"|name (\w+)|near "?([^"]+)"?')


# What DuckDB says of a name that is not there.
_MISSING = (
    "not found in FROM",
    "does not exist",
    "does not have a column named",
    "FROM clause is missing",
)


# A column that a table does not have; where several names are quoted, the last is meant.
_NO_COLUMN = re.compile(r'"([^"]+)" does not have a column named "([^"]+)"')


def placed(
    problem: ProgrammingError, text: str, catalog: Catalog, named: Named = lambda _, __: None
) -> Error:
    """An error of DuckDB's binder with its place in the analyst's text, and what there is.

    ``named`` finds where a column is written, given its name and that of its table, "" for any.
    """
    qualified = _NO_COLUMN.search(problem.reason)
    match = _QUOTED.search(problem.reason)
    word = next(filter(None, match.groups()), "") if match else ""
    if qualified:
        word = qualified[2]
    place = named(word, qualified[1] if qualified else "") if word else None
    if place is None:
        found = re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text, re.I) if word else None
        place = Place(text, found.start(), found.end()) if found else None
    if any(words in problem.reason for words in _MISSING):
        columns = ", ".join(name for name, _ in catalog.columns)
        hint = f"the published table is {catalog.table}, with the columns {columns}"
        if catalog.tables:
            hint += f"; public tables are {', '.join(catalog.tables)}"
        kind = UnknownName if "Table" in problem.reason else UnknownColumn
        return kind(problem.reason.rstrip("!"), hint=hint, place=place)
    return ProgrammingError(problem.reason, hint=problem.hint, place=place)
