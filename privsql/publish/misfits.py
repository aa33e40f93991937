"""Values that do not fit the spec, found in one pass over all columns before anything is written.

    source ── batch ── codes of each sensitive column ── where there is none: a misfit
                    └─ units ── where there is none: a misfit

Codes are those that publishing computes, so what passes here is published.  A misfit is told
by its column, its number and its first rows, counted from 1 after the line of names, and by what
to change; its values only where the publisher asks for them, on a terminal of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from duckdb import ColumnExpression
from numpy.typing import NDArray

from privsql.channels import Domain, Grid
from privsql.channels.domain import NULL, OUTSIDE
from privsql.errors import DataError, DomainError, how_many
from privsql.publish.keys.ledger import ROW
from privsql.publish.source import BATCH, Source, readable
from privsql.publish.types import keep_types, plain
from privsql.release.columns import ColumnSpec
from privsql.release.reading import folded
from privsql.release.spec import Spec

Mask = NDArray[np.bool_]

# Rows that are named, and different values that are shown, of each misfit.
NAMED, SHOWN = 5, 5

# Longest text that is shown of one value.
LONGEST = 40

# Types that text is read as, by the kind of a domain, in DuckDB's words.
READ_AS = {
    "integer": "BIGINT",
    "decimal": "DECIMAL(18,4)",
    "real": "DOUBLE",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "boolean": "BOOLEAN",
}


@dataclass(frozen=True)
class Misfit:
    """Values of a column that do not fit the spec, all for one reason."""

    column: str
    count: int
    problem: str  # as it follows the number: "values lie outside ..."
    rows: tuple[int, ...]  # the first of them, from 1
    change: str
    low: str | None = None
    high: str | None = None
    values: tuple[str, ...] = ()

    def text(self, *, show_values: bool) -> str:
        """One line for the publisher, and one more with values where they are wanted."""
        more = ", ..." if self.count > len(self.rows) else ""
        where = ""
        if self.rows:
            named = ", ".join(f"{row:,}" for row in self.rows)
            where = f" (row{'s' * (self.count > 1)} {named}{more})"
        line = f"column {self.column}: {self.problem}{where}; {self.change}"
        if not show_values or not self.values:
            return line
        ends = f"from {self.low} to {self.high}; " if self.low is not None else ""
        return f"{line}\n    {ends}such as {', '.join(self.values)}"


@dataclass(frozen=True)
class Checked:
    """What a pass over the source found: how many rows there are, and what does not fit."""

    rows: int
    misfits: tuple[Misfit, ...]

    def raise_any(self, *, show_values: bool = False) -> None:
        """Refuse the source if anything does not fit, all of it in one error."""
        if not self.misfits:
            return
        columns = len({each.column for each in self.misfits})
        lines = "\n".join(f"  {each.text(show_values=show_values)}" for each in self.misfits)
        hint = "change the spec or the source; nothing was written"
        if not show_values and any(each.values for each in self.misfits):
            hint += "; --show-values shows values that do not fit"
        raise DataError(
            f"{how_many(columns, 'column has', 'columns have')} values that do not fit the spec,"
            f" of {how_many(self.rows, 'row')}\n{lines}",
            hint=hint,
        )


@dataclass
class _Found:
    """What one column misses for one reason, while batches stream by."""

    count: int = 0
    rows: list[int] = field(default_factory=list)
    low: Any = None
    high: Any = None
    values: list[str] = field(default_factory=list)

    def add(self, start: int, mask: Mask, values: Any | None) -> None:
        count = int(mask.sum())
        if not count:
            return
        self.count += count
        places = np.flatnonzero(mask)[: NAMED - len(self.rows)]
        self.rows += [start + int(place) + 1 for place in places]
        if values is not None:
            self._show(values.filter(pa.array(mask)))

    def _show(self, values: Any) -> None:
        if pa.types.is_dictionary(values.type):
            values = values.cast(values.type.value_type)
        try:
            ends: Any = pc.min_max(values).as_py()
        except pa.ArrowException:  # a type without an order
            ends = {"min": None, "max": None}
        if ends["min"] is not None:
            self.low = ends["min"] if self.low is None else min(self.low, ends["min"])
            self.high = ends["max"] if self.high is None else max(self.high, ends["max"])
        for value in values.slice(0, 100).to_pylist():
            shown = _shown(value)
            if len(self.values) < SHOWN and shown not in self.values:
                self.values.append(shown)


class _Column:
    """One sensitive column: its values outside the domain, and its NULLs."""

    def __init__(self, spec: ColumnSpec, domain: Domain) -> None:
        self.spec, self.domain = spec, domain
        self.outside, self.endless, self.null = _Found(), _Found(), _Found()
        self.unlike = ""

    def add(self, start: int, values: Any) -> None:
        values = plain(values)
        try:
            codes = self.domain.places(values)
        except DomainError as problem:
            self.unlike = problem.reason
            return
        outside = codes == OUTSIDE
        if pa.types.is_floating(values.type) and outside.any():
            finite: Any = pc.is_finite(values).fill_null(True)
            self.endless.add(start, outside & ~_mask(finite), None)
            outside &= _mask(finite)
        self.outside.add(start, outside, values)
        if not self.domain.nullable:
            self.null.add(start, codes == NULL, None)

    def found(self) -> Iterator[Misfit]:
        name = self.spec.name
        if self.unlike:
            change = f'write cast = "{READ_AS.get(self.domain.kind, "VARCHAR")}"'
            yield Misfit(name, 0, self.unlike, (), f"{change}, or describe the domain in its type")
        if self.outside.count:
            lying = how_many(self.outside.count, "value lies", "values lie")
            yield _misfit(
                name,
                self.outside,
                f"{lying} outside {_bounds(self.domain)}",
                _widen(self.domain),
            )
        if self.endless.count:
            yield _misfit(
                name,
                self.endless,
                how_many(
                    self.endless.count,
                    "value is not a finite number",
                    "values are not finite numbers",
                ),
                "make them NULL in the source and write nullable = true, or drop their rows",
            )
        if self.null.count:
            yield _misfit(
                name,
                self.null,
                how_many(self.null.count, "value is NULL", "values are NULL"),
                "write nullable = true, or fill them in the source",
            )


class _Text:
    """A column of text where the domain has numbers or times: what cannot be read as those."""

    def __init__(self, spec: ColumnSpec, domain: Domain, *, cast: bool) -> None:
        self.spec, self.domain, self.cast = spec, domain, cast
        self.read = _Column(spec, domain)
        self.unread = _Found()

    def add(self, start: int, values: Any) -> None:
        read = read_text(values, self.domain)
        unread: Any = pc.and_(pc.is_valid(values), pc.is_null(read))
        self.unread.add(start, _mask(unread), values)
        self.read.add(start, read)

    def found(self) -> Iterator[Misfit]:
        kind = READ_AS[self.domain.kind]
        noun = {"date": "dates", "timestamp": "timestamps", "boolean": "true or false"}
        what = noun.get(self.domain.kind, "numbers")
        if self.unread.count:
            unlike = how_many(self.unread.count, "value is", "values are")
            yield _misfit(
                self.spec.name,
                self.unread,
                f"{unlike} text that cannot be read as {what}",
                "correct these in the source, or empty them and write nullable = true",
            )
        elif not self.cast:
            change = f'write cast = "{kind}"'
            yield Misfit(self.spec.name, 0, f"it is text, and its domain has {what}", (), change)
        else:
            yield from self.read.found()


class _Unit:
    """The column of persons: rows without one."""

    def __init__(self, name: str) -> None:
        self.name, self.null = name, _Found()

    def add(self, start: int, values: Any) -> None:
        values = plain(values)
        null: Any = pc.is_null(values, nan_is_null=pa.types.is_floating(values.type))
        self.null.add(start, _mask(null), None)

    def found(self) -> Iterator[Misfit]:
        if self.null.count:
            yield _misfit(
                self.name,
                self.null,
                how_many(self.null.count, "row has no unit", "rows have no unit")
                + ": the column that identifies the person is NULL",
                "drop these rows, or give each its own identifier",
            )


def misfits(source: Source, spec: Spec, *, cast: bool = False) -> Checked:
    """Look at every value once: which columns have values that the spec does not allow.

    ``cast``: text that can be read as what the domain has is as good as that.  Columns whose
    domain is observed have none.
    """
    kinds = {folded(name): kind for name, kind in source.columns}
    checks: dict[str, _Column | _Text | _Unit] = {}
    for column in spec.sensitive:
        domain = column.domain
        if domain is None:
            continue
        if kinds[folded(column.name)] == "VARCHAR" and domain.kind in READ_AS:
            checks[column.name] = _Text(column, domain, cast=cast)
        else:
            checks[column.name] = _Column(column, domain)
    if spec.unit != ROW:
        checks[""] = _Unit(spec.unit)  # which may be a sensitive column as well
    if not checks:
        return Checked(source.rows(), ())
    rows = 0
    for batch in source.batches([name or spec.unit for name in checks], exact=True):
        for check, values in zip(checks.values(), batch.columns, strict=True):
            check.add(rows, values)
        rows += batch.num_rows
    return Checked(rows, tuple(each for check in checks.values() for each in check.found()))


def uncast(source: Source, wrong: Mapping[str, tuple[duckdb.Expression, str]]) -> Checked:
    """Values that cannot be cast: by column, the condition that says so and the type."""
    if not wrong:
        return Checked(0, ())
    conditions = [condition.alias(f"wrong{i}") for i, (condition, _) in enumerate(wrong.values())]
    values = [ColumnExpression(name) for name in wrong]
    with readable():
        keep_types(source.connection, False)
        reader = source.relation.select(*conditions, *values).to_arrow_reader(BATCH)
        found, rows = [_Found() for _ in wrong], 0
        for batch in reader:
            for i, each in enumerate(found):
                mask: Any = pc.fill_null(batch.column(i), False)
                each.add(rows, _mask(mask), batch.column(len(found) + i))
            rows += batch.num_rows
    named = zip(wrong.items(), found, strict=True)
    return Checked(
        rows,
        tuple(
            _misfit(
                name,
                each,
                f"{how_many(each.count, 'value')} cannot be cast to {kind}",
                "cast to a type that holds them, or clean the source first",
            )
            for (name, (_, kind)), each in named
            if each.count
        ),
    )


def read_text(values: Any, domain: Domain) -> Any:
    """Texts as the numbers or times of a domain, NULL where they cannot be read as such."""
    if domain.kind not in READ_AS or not pa.types.is_string(values.type):
        return values
    with duckdb.connect(config={"temp_directory": ""}) as con:
        texts = con.from_arrow(pa.table({"text": values}))
        read = texts.project(f"TRY_CAST(text AS {READ_AS[domain.kind]}) AS read").to_arrow_table()
    return read.column(0).combine_chunks()


def _mask(array: Any) -> Mask:
    return np.asarray(array.to_numpy(zero_copy_only=False), dtype=np.bool_)


def _misfit(name: str, found: _Found, problem: str, change: str) -> Misfit:
    low, high = (None if end is None else _shown(end) for end in (found.low, found.high))
    return Misfit(
        name, found.count, problem, tuple(found.rows), change, low, high, tuple(found.values)
    )


def _bounds(domain: Domain) -> str:
    if isinstance(domain, Grid):
        return f"the range {domain.lower} to {domain.upper}"
    return f"the list of {how_many(domain.points, 'value')}"


def _widen(domain: Domain) -> str:
    if isinstance(domain, Grid):
        return "widen the range, or write clip = true to move them to its ends"
    if domain.kind == "text":
        return 'add them to the list, or write other = "..." with a word of it'
    return "add them to the list"


def _shown(value: object) -> str:
    """A value as it is shown: short, and harmless on a terminal."""
    text = value if isinstance(value, str) else str(value)
    text = "".join(c if c.isprintable() else "?" for c in text)
    text = text if len(text) <= LONGEST else text[:LONGEST] + "..."
    return f"'{text}'" if isinstance(value, str) else text
