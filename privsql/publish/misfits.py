"""Values that do not fit the spec, found in one pass over all columns before anything is written.

    source ── batch ── values of any column ── where they cannot be read or cast: a misfit
                    ├─ codes of each sensitive column ── where there is none: a misfit
                    └─ units ── where there is none: a misfit

Codes are those that publishing computes, so what passes here is published.  Columns of CSV files
are all read, since a type that was guessed from the first rows may fail at any later one; the
file is read as text then, and what does not fit its type is one more misfit.  A misfit is told
by its column, its number and its first rows, counted from 1 after the line of names, and by what
to change; its values only where the publisher asks for them, on a terminal of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
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
from privsql.publish.recode import tried, uncastable
from privsql.publish.source import BATCH, Source, UnreadableError, readable, reread
from privsql.publish.types import READ_AS, keep_types, plain
from privsql.release.columns import ColumnSpec
from privsql.release.reading import folded
from privsql.release.spec import Spec

Mask = NDArray[np.bool_]

# Rows that are named, and different values that are shown, of each misfit.
NAMED, SHOWN = 5, 5

# Longest text that is shown of one value.
LONGEST = 40


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
        self.spec, self.domain, self.clipped = spec, domain, spec.recoding.clip
        self.outside, self.endless, self.null = _Found(), _Found(), _Found()
        self.unlike = ""

    def add(self, start: int, values: Any, lost: Mask | None = None) -> None:
        """Look at more values; those ``lost`` in reading are NULL and no misfits of this kind."""
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
            null = codes == NULL
            self.null.add(start, null if lost is None else null & ~lost, None)

    def found(self) -> Iterator[Misfit]:
        name = self.spec.name
        if self.unlike:
            change = f'write cast = "{READ_AS.get(self.domain.kind, "VARCHAR")}"'
            yield Misfit(name, 0, self.unlike, (), f"{change}, or describe the domain in its type")
        if self.outside.count and not self.clipped:
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

    def add(self, start: int, values: Any, lost: Mask | None = None) -> None:
        read = read_text(values, self.domain)
        unread = _mask(pc.and_(pc.is_valid(values), pc.is_null(read)))
        self.unread.add(start, unread, values)
        self.read.add(start, read, unread if lost is None else unread | lost)

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
        if not self.cast and not self.unread.count:
            change = f'write cast = "{kind}"'
            yield Misfit(self.spec.name, 0, f"it is text, and its domain has {what}", (), change)
        else:
            yield from self.read.found()


class _Unit:
    """The column of persons: rows without one."""

    def __init__(self, name: str) -> None:
        self.name, self.null = name, _Found()

    def add(self, start: int, values: Any, lost: Mask | None = None) -> None:
        values = plain(values)
        null: Any = pc.is_null(values, nan_is_null=pa.types.is_floating(values.type))
        missing = _mask(null)
        self.null.add(start, missing if lost is None else missing & ~lost, None)

    def found(self) -> Iterator[Misfit]:
        if self.null.count:
            yield _misfit(
                self.name,
                self.null,
                how_many(self.null.count, "row has no unit", "rows have no unit")
                + ": the column that identifies the person is NULL",
                "drop these rows, or give each its own identifier",
            )


@dataclass(frozen=True)
class _Lost:
    """Values of one column that cannot be read or cast, beside their condition and themselves."""

    name: str
    wrong: duckdb.Expression
    value: duckdb.Expression
    problem: str  # "cannot be cast to INTEGER"
    change: str
    seen: _Found = field(default_factory=_Found)

    def add(self, start: int, wrong: Any, values: Any) -> Mask:
        mask = _mask(pc.fill_null(plain(wrong), False))
        self.seen.add(start, mask, plain(values))
        return mask

    def found(self) -> Iterator[Misfit]:
        if self.seen.count:
            problem = f"{how_many(self.seen.count, 'value')} {self.problem}"
            yield _misfit(self.name, self.seen, problem, self.change)


@dataclass(frozen=True)
class _Look:
    """One column of the pass: what may be lost on the way to its value, and what it must be."""

    lost: tuple[_Lost, ...]
    value: duckdb.Expression
    check: _Column | _Text | _Unit | None = None

    @property
    def expressions(self) -> list[duckdb.Expression]:
        return [*(part for each in self.lost for part in (each.wrong, each.value)), self.value]

    @property
    def ordered(self) -> bool:
        """Whether the smallest and the largest value tell of all others."""
        return (
            not self.lost
            and isinstance(self.check, _Column)
            and isinstance(self.check.domain, Grid)
        )

    def settled(self, low: Any, high: Any, nulls: int) -> bool:
        """Whether no value between two, and none of so many NULLs, is a misfit."""
        if not isinstance(self.check, _Column) or (nulls and not self.check.domain.nullable):
            return False
        if pa.types.is_floating(low.type):  # the ends that a file states do not speak of NaN
            return False
        try:
            ends = [self.check.domain.places(plain(end)) for end in (low, high)]
        except DomainError:
            return False
        return not any((end == OUTSIDE).any() for end in ends)

    def add(self, start: int, columns: Sequence[Any]) -> None:
        lost: Mask | None = None
        for i, each in enumerate(self.lost):
            mask = each.add(start, *columns[2 * i : 2 * i + 2])
            lost = mask if lost is None else lost | mask
        if self.check is not None:
            self.check.add(start, columns[-1], lost)

    def found(self) -> Iterator[Misfit]:
        for each in self.lost:
            yield from each.found()
        if self.check is not None:
            yield from self.check.found()


def misfits(source: Source, spec: Spec, *, cast: bool = False, before: int = 0) -> Checked:
    """Look at every value once: which columns have values that the spec does not allow.

    ``source`` is not recoded yet.  ``cast``: text that can be read as what the domain has is as
    good as that.  Columns whose domain is observed have only values that cannot be read or cast.
    Rows are counted after those ``before``.
    """
    try:
        return _passed(source, {}, spec, cast=cast, before=before)
    except UnreadableError:
        read = reread(source)
        if read is None:
            raise
        found = _passed(*read, spec, cast=cast, before=before)
        if not found.misfits:  # the reader knows more of its problem
            raise
        return found


def _passed(
    source: Source, texts: Mapping[str, str], spec: Spec, *, cast: bool, before: int
) -> Checked:
    looks = list(_looks(source, texts, spec, cast=cast))
    rows = 0
    with readable():
        counted, looks = _unsettled(source, looks)
        if not looks and counted is not None:
            return Checked(counted, ())
        # Names of our own: one column may be looked at as a value and as the unit.
        chosen = [part for look in looks for part in look.expressions]
        if not chosen:
            return Checked(source.rows(), ())
        relation = source.relation.select(*(e.alias(f"c{i}") for i, e in enumerate(chosen)))
        keep_types(source.connection, True)
        for batch in relation.to_arrow_reader(BATCH):
            columns = iter(batch.columns)
            for look in looks:
                look.add(before + rows, list(islice(columns, len(look.expressions))))
            rows += batch.num_rows
    return Checked(rows, tuple(each for look in looks for each in look.found()))


def _unsettled(source: Source, looks: list[_Look]) -> tuple[int | None, list[_Look]]:
    """The number of rows, and the columns that have to be looked through value by value.

    A grid has codes for all values between two that have one, so the smallest, the largest and
    the number of NULLs settle its column: aggregates, which take a fraction of a pass.  The
    columns of CSV files are all read in any case.
    """
    able = [look for look in looks if look.ordered]
    if source.csv is not None or not able:
        return None, looks
    named = [look.value.alias(f"c{i}") for i, look in enumerate(able)]
    wanted = [f"min(c{i}), max(c{i}), count(c{i})" for i in range(len(able))]
    keep_types(source.connection, True)
    made = source.relation.select(*named).aggregate(", ".join(["count(*)", *wanted]))
    rows, *figures = made.to_arrow_table().columns
    count = int(rows[0].as_py())
    settled = {
        id(look)
        for i, look in enumerate(able)
        if look.settled(figures[3 * i], figures[3 * i + 1], count - figures[3 * i + 2][0].as_py())
    }
    return count, [look for look in looks if id(look) not in settled]


def _looks(source: Source, texts: Mapping[str, str], spec: Spec, *, cast: bool) -> Iterator[_Look]:
    relation = source.relation
    kinds = {folded(n): (n, k) for n, k in zip(relation.columns, relation.types, strict=True)}
    for column in spec.columns:
        if column.role not in ("public", "sensitive"):
            continue
        name, kind = kinds[folded(column.name)]
        lost = [*_unread(name, kind, texts, column), *_uncast(name, kind, column)]
        if column.role == "public" or column.domain is None:
            if lost or source.csv is not None:
                yield _Look(tuple(lost), ColumnExpression(name))
            continue
        value, there = tried(relation, column, name, kind)
        if there.id == "varchar" and column.domain.kind in READ_AS:
            check: _Column | _Text = _Text(column, column.domain, cast=cast)
        else:
            check = _Column(column, column.domain)
        yield _Look(tuple(lost), value, check)
    if spec.unit != ROW:
        name, kind = kinds[folded(spec.unit)]  # which may be a sensitive column as well
        yield _Look(tuple(_unread(name, kind, texts, None)), ColumnExpression(name), _Unit(name))


def _unread(
    name: str, kind: Any, texts: Mapping[str, str], column: ColumnSpec | None
) -> Iterator[_Lost]:
    """Values of a CSV file that are not of the type that its first rows have."""
    if name not in texts:
        return
    value, text = ColumnExpression(name), ColumnExpression(texts[name])
    change = "correct these in the source"
    if column is not None and column.domain is not None:
        change += ", or empty them and write nullable = true"
    elif (
        column is not None and not column.recoding.bins and not isinstance(column.recoding.cut, str)
    ):
        change += ', or write cast = "VARCHAR" to read the column as text'
    wrong = text.isnotnull() & value.isnull()
    yield _Lost(name, wrong, text, f"cannot be read as {kind}, the type of its first rows", change)


def _uncast(name: str, kind: Any, column: ColumnSpec) -> Iterator[_Lost]:
    wanted = column.recoding.cast
    if wanted is not None:
        wrong = uncastable(name, kind, wanted)
        change = "cast to a type that holds them, or clean the source first"
        yield _Lost(name, wrong, ColumnExpression(name), f"cannot be cast to {wanted}", change)


def read_text(values: Any, domain: Domain) -> Any:
    """Texts as the numbers or times of a domain, NULL where they cannot be read as such.

    Where some have digits after the point, whole numbers come as numbers with a point, as a CSV
    file has them: what they are rounded to is the domain's to say.
    """
    if domain.kind not in READ_AS or not pa.types.is_string(values.type):
        return values
    with duckdb.connect(config={"temp_directory": ""}) as con:
        texts = con.from_arrow(pa.table({"text": values}))
        kinds = [READ_AS[domain.kind], *["DOUBLE"] * (domain.kind == "integer")]
        tried = ", ".join(f"TRY_CAST(text AS {kind})" for kind in kinds)
        read = [each.combine_chunks() for each in texts.project(tried).to_arrow_table().columns]
    if len(read) == 2 and not read[0].cast(pa.float64(), safe=False).equals(read[1]):
        return read[1]
    return read[0]


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
