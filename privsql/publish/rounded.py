"""Codes of raw values, and how many of them the grid of a column moved.

Values are rounded to the grid before they are perturbed, and analysts ask about rounded ones.
The counts are of raw data, so they are told to the publisher, who has it, and are no part of a
release.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from privsql.channels import Domain, Grid
from privsql.channels.domain import Codes
from privsql.errors import DataError, DomainError, how_many
from privsql.publish.types import plain, restored


@dataclass(frozen=True)
class Rounded:
    """What rounding did to a column: how many of its values, NULL aside, are others now."""

    column: str
    grid: Grid
    moved: int
    values: int

    def __str__(self) -> str:
        """Print as the report says it.

        >>> print(Rounded("docvis", Grid.of(0, 125, 5), 8123, 12037))
        docvis: 8,123 of 12,037 values rounded to the grid 0..125 step 5
        """
        grid = self.grid
        return (
            f"{self.column}: {self.moved:,} of {how_many(self.values, 'value')}"
            f" rounded to the grid {grid.lower}..{grid.upper} step {grid.step_text}"
        )


@contextmanager
def naming(column: str) -> Iterator[None]:
    """Name the column in errors of its domain."""
    try:
        yield
    except DomainError as problem:
        raise DataError(f"column {column}: {problem.reason}", hint=problem.hint) from None


def codes_of(name: str, domain: Domain, values: Any) -> Codes:
    """Codes of raw values, with the column named where some are outside its domain."""
    with naming(name):
        return domain.codes(values)


class Rounding:
    """Counts moved values while batches stream by."""

    def __init__(self) -> None:
        self._found: dict[str, Rounded] = {}

    def codes(self, name: str, domain: Domain, values: Any) -> Codes:
        """Codes of raw values, which are counted in."""
        codes = codes_of(name, domain, values)
        if isinstance(domain, Grid):
            self._add(name, domain, values, codes)
        return codes

    def _add(self, name: str, domain: Grid, values: Any, codes: Codes) -> None:
        kind = values.type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
            values = values.cast(kind)
        before = self._found.get(name, Rounded(name, domain, 0, 0))
        moved = 0
        if not _every_value(kind, domain):
            try:
                points = plain(restored(domain.decode(codes), kind))
            except pa.ArrowException:
                return  # the type does not hold the domain, which is refused elsewhere
            moved = pc.sum(pc.not_equal(plain(values), points)).as_py() or 0
        total = len(values) - values.null_count
        self._found[name] = Rounded(name, domain, before.moved + moved, before.values + total)

    @property
    def found(self) -> tuple[Rounded, ...]:
        """What was counted, by column."""
        return tuple(self._found.values())


def _every_value(kind: pa.DataType, domain: Grid) -> bool:
    """Whether a type has nothing between the points of a grid."""
    whole = pa.types.is_integer(kind) and domain.kind == "integer"
    daily = pa.types.is_date32(kind) and domain.kind == "date"
    return (whole or daily) and domain.stride == 1 and not domain.calendar
