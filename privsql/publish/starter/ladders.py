"""Levels at which a public column may be published, from fine to coarse.

birth, dates     year or month, then quarter, year, five, ten, twenty years
ages             five, ten, twenty years, then young, grown, old
years            as they are, then five, ten, twenty
postcodes        as they are where they are few, then 3, 2, 1 characters
other numbers    as they are, then at most ten and five intervals
words            as they are, then the 20, 10, 5, 3 commonest
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import duckdb
from duckdb import CaseExpression, ColumnExpression, ConstantExpression, SQLExpression

from privsql.publish.source import Source, readable
from privsql.publish.starter.domains import plain, rounded_range
from privsql.publish.starter.evidence import Facts
from privsql.publish.starter.toml import written
from privsql.release.names import quoted

# With more values than this a column is not published as it is, nor in more intervals.
AS_IS = 50
FEW = 10
COMMONEST = (20, 10, 5, 3)
YEARS = (5, 10, 20)
OLDEST = 90  # one age for all who are older


@dataclass(frozen=True)
class Level:
    """One way to publish a column: lines of its spec, and what becomes of a value."""

    lines: tuple[str, ...]
    value: duckdb.Expression


def ladder(raw: Source, column: Facts, kind: str) -> tuple[Level, ...]:
    """The levels of a public column."""
    made = {"birth": _dates, "date": _dates, "age": _ages, "postcode": _postcodes}
    if kind in made:
        return tuple(made[kind](column, kind))
    if column.type == "BOOLEAN":
        return (Level((), ColumnExpression(column.name)),)
    if column.number:
        calendar = kind == "year" and column.low is not None and 1000 <= column.low <= 3000
        return tuple(_years(column) if calendar else _numbers(column))
    return tuple(_words(raw, column))


def _dates(column: Facts, kind: str) -> Iterator[Level]:
    day = quoted(column.name)
    lines: tuple[str, ...] = ()
    if column.type != "DATE" and (column.text or kind == "birth"):
        day, lines = f"TRY_CAST({day} AS DATE)", ('cast = "DATE"',)
    for part in ("year",) if kind == "birth" else ("month", "quarter", "year"):
        yield Level((*lines, f'cut = "{part}"'), SQLExpression(f"date_trunc('{part}', {day})"))
    if column.text or column.type != "DATE" or column.low is None:
        return
    for years in YEARS:
        first = column.low.year // years * years
        edges = [date(max(year, 1), 1, 1) for year in range(first, column.high.year + 1, years)]
        if 1 < len(edges) <= AS_IS:
            yield _binned(day, edges, lines)


def _ages(column: Facts, _: str) -> Iterator[Level]:
    age = quoted(column.name)
    if column.distinct <= FEW:  # groups already
        yield Level((), ColumnExpression(column.name))
    low, high = _whole_ends(column)
    high = min(high, OLDEST)
    for years in YEARS:
        edges = list(range(low // years * years, high + 1, years))
        if 1 < len(edges) <= AS_IS:
            yield _binned(age, edges)
    grown = [edge for edge in (0, 18, 65) if low // 5 * 5 <= edge <= high]
    yield _binned(age, grown or [18])


def _years(column: Facts) -> Iterator[Level]:
    year = quoted(column.name)
    if column.distinct <= AS_IS:
        yield Level((), ColumnExpression(column.name))
    low, high = _whole_ends(column)
    for years in YEARS:
        edges = list(range(low // years * years, high + 1, years))
        if 1 < len(edges) <= AS_IS:
            yield _binned(year, edges)


def _postcodes(column: Facts, _: str) -> Iterator[Level]:
    code = f"CAST({quoted(column.name)} AS VARCHAR)"
    if column.distinct <= AS_IS:
        yield Level((), ColumnExpression(column.name))
    lines = () if column.text else ('cast = "VARCHAR"',)
    for letters in (3, 2, 1):
        yield Level((*lines, f"cut = {letters}"), SQLExpression(f"left({code}, {letters})"))


def _numbers(column: Facts) -> Iterator[Level]:
    if column.distinct <= AS_IS and column.whole:
        yield Level((), ColumnExpression(column.name))
    if column.low is None or not float("-inf") < column.low < column.high < float("inf"):
        return
    lower, upper, step = rounded_range(float(column.low), float(column.high))
    if column.whole:
        lower, step = int(lower // 1), max(1, int(step))
    points = [plain(lower + step * i) for i in range(round((upper - lower) / step))]
    seen: list[list[Any]] = []
    for most in (10, 5):
        edges = points[:: -(-len(points) // most)]
        if len(edges) > 1 and edges not in seen:
            seen.append(edges)
            yield _binned(quoted(column.name), edges)


def _words(raw: Source, column: Facts) -> Iterator[Level]:
    name = ColumnExpression(column.name)
    if column.distinct <= AS_IS:
        yield Level((), name)
    values = _commonest(raw, column)
    for many in COMMONEST:
        if many < column.distinct:
            kept = name.isin(*(ConstantExpression(value) for value in values[:many]))
            known = CaseExpression(kept, name.cast("VARCHAR"))
            other = known.when(name.isnotnull(), ConstantExpression("other"))
            yield Level((f"top = {many}",), other)


def _commonest(raw: Source, column: Facts) -> list[Any]:
    """The commonest values, however many there are."""
    most = COMMONEST[0]
    if column.counts is not None:
        return [value for value, _ in column.counts[:most]]
    value = quoted(column.name)
    with readable():
        counts = raw.relation.aggregate(f"{value} AS v, count(*) AS n", value)
        found = counts.filter("v IS NOT NULL").order("n DESC, v").limit(most).fetchall()
    return [each for each, _ in found]


def _binned(value: str, edges: Sequence[Any], lines: tuple[str, ...] = ()) -> Level:
    """Half-open intervals: how many edges a value has passed."""
    passed = " + ".join(f"({value} >= {_edge(edge)})::INTEGER" for edge in edges)
    return Level((*lines, f"bins = {written(list(edges))}"), SQLExpression(passed))


def _edge(edge: Any) -> str:
    return f"DATE '{edge.isoformat()}'" if isinstance(edge, date) else written(edge)


def _whole_ends(column: Facts) -> tuple[int, int]:
    """The ends of a number, as far as a person has them."""
    low, high = (min(max(float(end), -10_000.0), 10_000.0) for end in (column.low, column.high))
    return (int(low // 1), int(high // 1)) if low == low and high == high else (0, 0)
