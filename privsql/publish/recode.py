"""Raw values as a spec recodes them: one projection that everybody who reads raw rows uses.

    source ── cast ── map ── top, bins or cut      public columns
                  └── clip, other                  sensitive columns

Publishing, perturbing, advising and auditing with raw rows all read through it, so they read the
same.  Conditions and constants are expressions with bound values; nothing is pasted into SQL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any

import duckdb
from duckdb import CaseExpression, ColumnExpression, ConstantExpression, FunctionExpression

from privsql.channels import Categorical, Grid
from privsql.errors import DataError, how_many
from privsql.publish.report import Moved, Notes
from privsql.publish.rounded import naming
from privsql.publish.source import Source, readable
from privsql.publish.types import READ_AS, WHOLE_NUMBERS, keep_types
from privsql.release.reading import folded
from privsql.release.recoding import OTHER, Edge, Recoding
from privsql.release.spec import ColumnSpec, Spec, with_domain
from privsql.release.store import count_rows

Relation = duckdb.DuckDBPyRelation
Expression = duckdb.Expression
Type = Any  # duckdb's type of a column, which its stubs spell differently

TEXT = duckdb.sqltype("VARCHAR")
NUMBERS = (*WHOLE_NUMBERS, "decimal", "float", "double")
ZONED = "timestamp with time zone"
TIMES = ("timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns", ZONED)

# Observed values of fewer rows are not shown.
LEAST_ROWS = 10

# A public column in which more rows than this have a value of their own identifies people.
UNIQUE_SHARE = 0.95
FEW_ROWS = 20


def recoded(source: Source, spec: Spec) -> Source:
    """The same source with its values recoded; observed domains must be settled."""
    with readable():
        return replace(source, relation=projected(source.relation, spec))


def unrecoded(spec: Spec) -> Spec:
    """The spec for rows that are recoded already."""
    columns = tuple(replace(column, recoding=Recoding()) for column in spec.columns)
    return replace(spec, columns=columns)


def projected(relation: Relation, spec: Spec) -> Relation:
    """A relation with its values recoded, its columns in their order."""
    changed = {folded(c.name): c for c in spec.columns if c.recoding.changes}
    if not changed:
        return relation
    chosen = []
    for name, kind in zip(relation.columns, relation.types, strict=True):
        column = changed.get(folded(name))
        value: Expression = ColumnExpression(name)
        if column is not None:
            value = _Recoded(relation, column, value, kind).value
        chosen.append(value.alias(name))
    return relation.select(*chosen)


def moved(source: Source, spec: Spec) -> tuple[tuple[Moved, ...], tuple[Moved, ...]]:
    """Raw values that ``clip`` moves and that ``other`` stands for, by column."""
    kinds = {folded(n): (n, k) for n, k in zip(source.names, source.relation.types, strict=True)}
    wanted = [c for c in spec.sensitive if c.recoding.clip or c.recoding.other is not None]
    if not wanted:
        return (), ()
    counted: list[Expression] = []
    for column in wanted:
        name, kind = kinds[folded(column.name)]
        value, kind = _ready(ColumnExpression(name), kind, column)
        outside = _outside(value, kind, column)
        counted += [_count(outside), FunctionExpression("count", value)]
    with readable():
        row = [int(each or 0) for each in source.relation.aggregate(counted).fetchall()[0]]
    clipped, others = [], []
    for column, changed, values in zip(wanted, row[::2], row[1::2], strict=True):
        if column.recoding.clip and isinstance(column.domain, Grid):
            ends = f"moved to the ends of the grid {column.domain.lower}..{column.domain.upper}"
            clipped.append(Moved(column.name, changed, values, ends))
        else:
            became = f"not listed, became '{column.recoding.other}'"
            others.append(Moved(column.name, changed, values, became))
    return tuple(clipped), tuple(others)


def uncastable(name: str, kind: Type, wanted: str) -> Expression:
    """Whether a value cannot be cast: there is no such value, or digits would be lost."""
    value, target = ColumnExpression(name), duckdb.sqltype(wanted)
    made = value.try_cast(target)
    bad = made.isnull()
    if target.id in WHOLE_NUMBERS or target.id == "decimal":
        double = duckdb.sqltype("DOUBLE")
        if kind.id in NUMBERS:
            bad = bad | (made.try_cast(kind) != value)
        elif kind.id == "varchar":
            bad = bad | (made.try_cast(double) != value.try_cast(double))
    return value.isnotnull() & bad


def tried(relation: Relation, column: ColumnSpec, name: str, kind: Type) -> tuple[Expression, Type]:
    """A sensitive value as it will be with its type, NULL where it cannot be cast.

    Text in place of numbers or times stays what it is.
    """
    wanted = column.recoding.cast
    given, there = ColumnExpression(name), kind
    if wanted is not None:
        there = duckdb.sqltype(wanted)
        given = given.try_cast(there)
    if there.id == "varchar" and column.domain is not None and column.domain.kind in READ_AS:
        return given, there
    rest = replace(column, recoding=replace(column.recoding, cast=None))
    return _Recoded(relation, rest, given, there).value, there


def with_observed(source: Source, spec: Spec, notes: Notes) -> Spec:
    """The spec with its observed domains: values that enough rows have, the others as one.

    Values of few rows would tell who is in the table.  Text becomes 'other'; other kinds have no
    such value and are refused.
    """
    for column in spec.sensitive:
        if column.observed and column.domain is not None:
            notes.warn(
                f"the domain of {column.name} was observed and is not confirmed, so epsilon does"
                " not cover it: delete observed = true once it holds every value that is possible"
            )
    columns = tuple(
        _observed(source, column, notes)
        if column.role == "sensitive" and column.domain is None and column.observed
        else column
        for column in spec.columns
    )
    return replace(spec, columns=columns)


def _observed(source: Source, column: ColumnSpec, notes: Notes) -> ColumnSpec:
    name = next(n for n in source.names if folded(n) == folded(column.name))
    kind = dict(zip(source.names, source.relation.types, strict=True))[name]
    value, kind = _cast(ColumnExpression(name), kind, column.recoding.cast)
    with readable():
        keep_types(source.connection, False)
        values = source.relation.select(value.alias("value"))
        counted = values.aggregate("value, count(*) AS n", "value").order("value").to_arrow_table()
    pairs = zip(*(counted.column(each).to_pylist() for each in ("value", "n")), strict=True)
    counts = dict(pairs)
    nullable = column.nullable or None in counts
    counts.pop(None, None)
    if not counts:
        raise DataError(
            f"column {column.name} contains only NULL, so no domain can be observed",
            hint="write the domain in the spec, or drop the column",
        )
    kept = [each for each, rows in counts.items() if rows >= LEAST_ROWS]
    rare = len(counts) - len(kept)
    if not kept or (rare and not isinstance(kept[0], str)):
        few = how_many(rare, "value has", "values have") if kept else "all values have"
        raise DataError(
            f"column {column.name}: {few} fewer than {LEAST_ROWS} rows, so the observed domain"
            " would show who is in the table",
            hint="write the domain in the spec: a list, or { lower = 0, upper = 120, step = 5 }"
            " for numbers and dates",
        )
    recoding = column.recoding
    if rare:
        recoding = replace(recoding, other=recoding.other or OTHER)
        kept += [recoding.other] * (recoding.other not in kept)
    with naming(column.name):
        domain = Categorical(tuple(kept), nullable)
    notes.warn(f"the domain of {column.name} was taken from the data: it shows which values occur")
    return with_domain(replace(column, recoding=recoding), domain)


def check_unique(spec: Spec, source: Source) -> None:
    """Refuse public columns in which nearly every row has a value of its own."""
    names = [c.name for c in spec.public if c.grouping and not c.accept_unique]
    if not names:
        return
    sketches = [FunctionExpression("approx_count_distinct", ColumnExpression(n)) for n in names]
    with readable():
        rows, *about = source.relation.aggregate(
            [FunctionExpression("count", ConstantExpression(1)), *sketches]
        ).fetchall()[0]
        if rows <= FEW_ROWS:
            return
        # A sketch is off by a few percent: what is near is counted.
        near = [name for name, n in zip(names, about, strict=True) if n > 0.8 * rows]
        alone = {name: _alone(source.relation, name) for name in near}
    unique = [name for name, count in alone.items() if count > UNIQUE_SHARE * rows]
    if unique:
        listed = ", ".join(unique)
        raise DataError(
            f"nearly every row has a value of its own in {listed}, which identifies people",
            hint='make it coarser with bins, cut, map or top, write role = "drop", or'
            " accept_unique = true if everybody may know it",
        )


def _alone(relation: Relation, name: str) -> int:
    groups = relation.select(ColumnExpression(name).alias("value")).aggregate(
        "value, count(*) AS n", "value"
    )
    return count_rows(groups.filter("n = 1"))


@dataclass(frozen=True)
class _Recoded:
    """One column on its way."""

    relation: Relation
    column: ColumnSpec
    given: Expression
    kind: Type

    @property
    def value(self) -> Expression:
        recoding = self.column.recoding
        value, kind = _ready(self.given, self.kind, self.column)
        if recoding.mapping:
            value, kind = _mapped(value, recoding), TEXT
        if recoding.top is not None:
            value = self._top(value, recoding.top)
        elif recoding.bins:
            value = self._binned(value, kind, recoding.bins)
        elif recoding.cut is not None:
            value = self._cut(value, kind, recoding.cut)
        elif recoding.clip:
            value = _clipped(value, kind, self.column)
        elif recoding.other is not None:
            outside = _outside(value, kind, self.column)
            value = CaseExpression(outside, _text(recoding.other)).otherwise(value.cast(TEXT))
        return value

    def _top(self, value: Expression, count: int) -> Expression:
        """The most frequent values; of equally frequent ones the first in the order of text."""
        text = value.cast(TEXT)
        values = self.relation.select(text.alias("value")).filter("value IS NOT NULL")
        counted = values.aggregate("value, count(*) AS n", "value")
        rows = counted.order("n DESC, value").limit(count).fetchall()
        known = [_text(row[0]) for row in rows] or [_text(OTHER)]
        return CaseExpression(text.isnull() | text.isin(*known), text).otherwise(_text(OTHER))

    def _binned(self, value: Expression, kind: Type, edges: tuple[Edge, ...]) -> Expression:
        timed = isinstance(edges[0], date)
        if kind.id not in (("date", *TIMES) if timed else NUMBERS):
            what = "dates" if timed else "numbers"
            raise self._unfit(f"bins are of {what}", kind)
        value = _local(value, kind)
        constants = [_edge(edge, kind) for edge in edges]
        labels = bin_labels(edges, kind.id)
        made = CaseExpression(value.isnull(), ConstantExpression(None).cast(TEXT))
        if kind.id in ("float", "double"):
            made = made.when(FunctionExpression("isnan", value), _text("NaN"))
        for constant, label in zip(constants, labels, strict=False):
            made = made.when(value < constant, _text(label))
        return made.otherwise(_text(labels[-1]))

    def _cut(self, value: Expression, kind: Type, cut: str | int) -> Expression:
        if isinstance(cut, int):
            return FunctionExpression("left", value.cast(TEXT), ConstantExpression(cut))
        if kind.id not in TIMES and (kind.id != "date" or cut == "hour"):
            raise self._unfit(f'cut = "{cut}" is of {"times" if cut == "hour" else "dates"}', kind)
        made = FunctionExpression("date_trunc", ConstantExpression(cut), _local(value, kind))
        return made.cast(duckdb.sqltype("DATE")) if kind.id == "date" else made

    def _unfit(self, what: str, kind: Type) -> DataError:
        return DataError(
            f"column {self.column.name}: {what}, and its type is {kind}",
            hint='cast it: such as cast = "INTEGER" or cast = "DATE"',
        )


def bin_labels(edges: Sequence[Edge], kind: str) -> list[str]:
    """Names of the intervals between edges: below the first, each one, from the last on.

    Whole numbers and days have a last one; zeros go before numbers where text would be sorted
    differently.

    >>> bin_labels([0, 18, 30, 65], "integer")
    ['<0', '0-17', '18-29', '30-64', '65+']
    >>> bin_labels([0, 5, 6, 10], "integer")
    ['<00', '00-04', '05', '06-09', '10+']
    >>> bin_labels([0, 0.5], "double"), bin_labels([date(2024, 1, 1), date(2024, 7, 1)], "date")[1:]
    (['<0', '0 to <0.5', '0.5+'], ['2024-01-01 to 2024-06-30', '2024-07-01+'])
    """
    whole = kind in WHOLE_NUMBERS and all(isinstance(edge, int) for edge in edges)
    if not whole:
        days = kind == "date" and not isinstance(edges[0], datetime)
        between = [
            f"{low} to {date.fromordinal(high.toordinal() - 1)}"
            if days and isinstance(high, date)
            else f"{low} to <{high}"
            for low, high in pairwise(edges)
        ]
        return [f"<{edges[0]}", *between, f"{edges[-1]}+"]
    ends = [int(edge) for edge in edges if isinstance(edge, int)]
    labels = _whole_labels(ends, 0)
    if min(ends) >= 0 and labels[1:] != sorted(labels[1:]):
        labels = _whole_labels(ends, len(str(max(ends))))
    return labels


def _whole_labels(edges: Sequence[int], width: int) -> list[str]:
    between = []
    for low, high in pairwise(edges):
        sign = " to " if low < 0 else "-"
        last = f"{sign}{high - 1:0{width}d}" if high - 1 > low else ""
        between.append(f"{low:0{width}d}{last}")
    return [f"<{edges[0]:0{width}d}", *between, f"{edges[-1]:0{width}d}+"]


def _text(text: str) -> Expression:
    return ConstantExpression(text).cast(TEXT)


def _count(condition: Expression) -> Expression:
    return FunctionExpression("count_if", condition)


def _cast(value: Expression, kind: Type, wanted: str | None) -> tuple[Expression, Type]:
    if wanted is None:
        return value, kind
    target = duckdb.sqltype(wanted)
    return value.cast(target), target


def _ready(value: Expression, kind: Type, column: ColumnSpec) -> tuple[Expression, Type]:
    """A value as it can be compared with a domain: cast, or read where text is to be clipped."""
    value, kind = _cast(value, kind, column.recoding.cast)
    if column.recoding.clip and kind.id == "varchar" and column.domain is not None:
        value, kind = _cast(value, kind, READ_AS[column.domain.kind])
    return value, kind


def _mapped(value: Expression, recoding: Recoding) -> Expression:
    text = value.cast(TEXT)
    made = CaseExpression(text.isnull(), ConstantExpression(None).cast(TEXT))
    for key, becomes in recoding.mapping:
        made = made.when(text == _text(key), _text(becomes))
    return made.otherwise(text if recoding.map_other is None else _text(recoding.map_other))


def _local(value: Expression, kind: Type) -> Expression:
    """A time without its zone, in UTC: the clock of whoever publishes must not matter."""
    if kind.id != ZONED:
        return value
    return FunctionExpression("timezone", ConstantExpression("UTC"), value)


def _edge(edge: Edge, kind: Type) -> Expression:
    if isinstance(edge, float) and kind.id == "decimal":
        return ConstantExpression(Decimal(repr(edge)))
    return ConstantExpression(edge)


def _clipped(value: Expression, kind: Type, column: ColumnSpec) -> Expression:
    domain = column.domain
    if not isinstance(domain, Grid):
        return value
    low, high = _beyond(value, kind, domain)
    # An end that the type does not hold is reached by no value of it.
    first, last = (ConstantExpression(end).try_cast(kind) for end in (domain.lower, domain.upper))
    return CaseExpression(low, first).when(high, last).otherwise(value)


def _outside(value: Expression, kind: Type, column: ColumnSpec) -> Expression:
    """Whether a value is not in the domain; NULL is another matter."""
    domain = column.domain
    if isinstance(domain, Grid):
        low, high = _beyond(value, kind, domain)
        return low | high
    known = domain.categories if isinstance(domain, Categorical) else ()
    text = value.cast(TEXT)
    return text.isnotnull() & text.isnotin(*(_text(str(each)) for each in known))


def _beyond(value: Expression, kind: Type, grid: Grid) -> tuple[Expression, Expression]:
    """Whether a value lies before a grid, and after it; NaN does neither."""
    never = ConstantExpression(False)
    first, after = (None if end is None else ConstantExpression(end) for end in grid.reach)
    low = never if first is None else value < first
    high = never if after is None else value >= after
    if kind.id in ("float", "double"):
        high = high & ~FunctionExpression("isnan", value)
    return low, high
