"""What is read of a source to guess from: facts of every column, no guess yet.

    all rows      rows, missing, minimum, maximum, about how many values         one pass
    all rows      the values and their rows, where there are few                 one pass
    all rows      values that one row has, rows of a value, where there are many one pass
    a sample      shapes of text, quantiles of numbers

Where a column has more than ``HASHED`` values, those counted are the values whose hash falls into
a share of all hashes: a value counts with all its rows or not at all, so that memory stays flat.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from privsql.publish.source import Source, readable
from privsql.publish.types import WHOLE_NUMBERS
from privsql.release.names import quoted

Progress = Callable[[str], None]

# Columns with at most about so many values have them counted one by one.
COUNTED = 2_000
# Of more values, about so many are counted.
HASHED = 100_000
# Rows that the spread of numbers is taken from, and how many of them shapes are looked for in.
SAMPLED, SHAPED = 10_000, 2_000

INTEGERS = tuple(name.upper() for name in WHOLE_NUMBERS)

# Shapes of text, the first that most values of the sample have.
SHAPES: tuple[tuple[str, str], ...] = (
    ("an ISO date", r"\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}.*)?"),
    ("a local date", r"\d{1,2}([./-])\d{1,2}\1(\d{4}|\d{2})|\d{4}[./年]\d{1,2}[./月]\d{1,2}日?"),
    ("an e-mail address", r"\S+@\S+\.\w+"),
    ("a web address", r"(https?://|www\.)\S+"),
    ("a network address", r"\d{1,3}(\.\d{1,3}){3}|([0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}"),
    ("a UUID", r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"),
    ("an account number", r"[A-Z]{2}\d{2} ?(\w{4} ?){3,7}\w{0,4}"),
    ("a number", r"[-+]?\d{1,3}([.,' ]\d{3})*([.,]\d+)?|[-+]?\d+([.,]\d+)?"),
    ("a telephone number", r"(\+|\(|0)[\d\s()./-]{6,}\d"),
)
MOST = 0.6  # of the values of a sample

# Text is free where values are long or have many words.
FREE_WORDS, FREE_LETTERS = 4.0, 40.0


@dataclass(frozen=True)
class Facts:
    """What is known of one column."""

    name: str
    type: str
    rows: int
    missing: int
    low: Any
    high: Any
    distinct: int
    alone: float  # share of the values' rows that no other row equals
    most: int  # rows of the commonest value
    counts: tuple[tuple[Any, int], ...] | None = None  # by rows, where values are few
    shape: str | None = None
    free: bool = False
    between: tuple[float, float] | None = None  # where 99% of the sample's numbers lie

    @property
    def stated(self) -> int:
        """Rows that have a value."""
        return self.rows - self.missing

    @property
    def unique(self) -> bool:
        """Whether nearly every row has a value of its own."""
        return self.stated > 1 and (self.distinct >= 0.95 * self.stated or self.alone >= 0.9)

    @property
    def text(self) -> bool:
        """Whether the column holds text."""
        return self.type.startswith(("VARCHAR", "ENUM"))

    @property
    def whole(self) -> bool:
        """Whether the column holds whole numbers by its type."""
        return self.type in INTEGERS

    @property
    def number(self) -> bool:
        """Whether the column holds numbers."""
        return self.whole or self.type.startswith(("DOUBLE", "FLOAT", "DECIMAL"))

    @property
    def dated(self) -> bool:
        """Whether the column holds days or times of days."""
        return self.type.startswith(("DATE", "TIMESTAMP"))

    @property
    def plain(self) -> bool:
        """Whether values can be compared and counted one by one."""
        return self.text or self.number or self.dated or self.type == "BOOLEAN"

    def describe(self) -> str:
        """The evidence in a line; no value of the data is in it.

        >>> Facts("a", "BIGINT", 100, 10, 1, 90, 90, 1.0, 1).describe()
        'BIGINT; 90 different values; 100% of the rows have one of their own; 10% missing'
        """
        kind = self.type if len(self.type) <= 30 else self.type[:27] + "..."
        parts = [kind, f"{self.distinct:,} different value{'s' * (self.distinct != 1)}"]
        if self.plain:
            parts.append(f"{percent(self.alone)} of the rows have one of their own")
        if self.shape:
            parts.append(f"looks like {self.shape}")
        parts.append(f"{percent(self.missing / max(self.rows, 1))} missing")
        return "; ".join(parts)


@dataclass(frozen=True)
class _Sizes:
    """Counts of the values of one column."""

    distinct: int = 0
    alone: float = 0.0
    most: int = 0
    counts: tuple[tuple[Any, int], ...] | None = field(default=None, repr=False)


def percent(share: float) -> str:
    """A share in words that never rounds to none or all.

    >>> [percent(x) for x in (0, 0.0004, 0.034, 0.5, 0.9996, 1)]
    ['0%', 'under 1%', '3%', '50%', 'over 99%', '100%']
    """
    if 0 < share < 0.005:
        return "under 1%"
    if 0.995 <= share < 1:
        return "over 99%"
    return f"{100 * share:.0f}%"


def gathered(raw: Source, progress: Progress | None = None) -> tuple[Facts, ...]:
    """Facts of every column of a source, in order."""
    say = progress or (lambda _: None)
    with readable():
        say("reading every row: missing, least and largest values")
        first = _first_pass(raw)
        few = [f for f in first if f.plain and f.distinct <= COUNTED]
        many = [f for f in first if f.plain and f.distinct > COUNTED]
        say(f"counting the values of {len(few)} columns")
        sizes = _counted(raw, few)
        say(f"looking for values that one row has in {len(many)} columns")
        sizes |= _hashed(raw, many)
        say("looking at a sample")
        shapes = _shapes(raw, first)
    return tuple(_together(f, sizes.get(f.name), shapes.get(f.name, {})) for f in first)


def _together(facts: Facts, sizes: _Sizes | None, seen: dict[str, Any]) -> Facts:
    if sizes is not None:
        facts = replace(
            facts,
            distinct=sizes.distinct,
            alone=sizes.alone,
            most=sizes.most,
            counts=sizes.counts,
        )
    return replace(facts, **seen)


def _value(name: str, kind: str) -> str:
    """A column as it can be fetched: local times are told without their zone."""
    column = quoted(name)
    return f"CAST({column} AS TIMESTAMP)" if kind.startswith("TIMESTAMP") else column


def _first_pass(raw: Source) -> list[Facts]:
    """One aggregate over all rows; how many values there are is an estimate yet."""
    asked = ["count(*)"]
    empty = Facts("", "", 0, 0, None, None, 0, 0.0, 0)
    columns = [replace(empty, name=name, type=kind) for name, kind in raw.columns]
    for each in columns:
        column = _value(each.name, each.type)
        asked += [f"count({column})", f"approx_count_distinct({column})"]
        asked += [f"min({column})", f"max({column})"] if each.plain else ["NULL", "NULL"]
    rows, *found = raw.relation.aggregate(", ".join(asked)).fetchall()[0]
    return [
        replace(each, rows=rows, missing=rows - found[4 * i], distinct=found[4 * i + 1],
                low=found[4 * i + 2], high=found[4 * i + 3])
        for i, each in enumerate(columns)
    ]  # fmt: skip


def _counted(raw: Source, columns: Sequence[Facts]) -> dict[str, _Sizes]:
    """Values with their rows, of columns with few."""
    if not columns:
        return {}
    asked = ", ".join(f"histogram({_value(each.name, each.type)})" for each in columns)
    found = raw.relation.aggregate(asked).fetchall()[0]
    sizes = {}
    for each, histogram in zip(columns, found, strict=True):
        pairs = sorted((histogram or {}).items(), key=lambda pair: (-pair[1], str(pair[0])))
        alone = sum(rows == 1 for _, rows in pairs) / max(each.stated, 1)
        most = pairs[0][1] if pairs else 0
        sizes[each.name] = _Sizes(len(pairs), alone, most, tuple(pairs))
    return sizes


def _hashed(raw: Source, columns: Sequence[Facts]) -> dict[str, _Sizes]:
    """How many values there are and how many rows have one of their own, by hashes."""
    if not columns:
        return {}
    parts = [max(1, each.distinct // HASHED) for each in columns]
    hashes = [
        f"CASE WHEN {quoted(each.name)} IS NOT NULL AND hash({quoted(each.name)}) % {part} = 0"
        f" THEN hash({quoted(each.name)}) END"
        for each, part in zip(columns, parts, strict=True)
    ]
    rows = raw.relation.project(
        f"unnest([{', '.join(hashes)}]) AS h, unnest(range({len(columns)})) AS place"
    ).filter("h IS NOT NULL")
    values = rows.aggregate("place, h, count(*) AS n", "place, h")
    found = values.aggregate(
        "place, count(*), count(*) FILTER (n = 1), max(n), sum(n)", "place"
    ).fetchall()
    sizes = {}
    for place, distinct, single, most, seen in found:
        each, part = columns[place], parts[place]
        whole = min(distinct * part, each.stated)
        sizes[each.name] = _Sizes(whole, single / seen, most)
    return sizes


def _shapes(raw: Source, columns: Sequence[Facts]) -> dict[str, dict[str, Any]]:
    """Shapes of text and the spread of numbers, from a sample of the rows."""
    wanted = [each for each in columns if each.text or each.number]
    if not wanted or not wanted[0].rows:
        return {}
    chosen = ", ".join(
        f"CAST({quoted(each.name)} AS {'VARCHAR' if each.text else 'DOUBLE'}) AS c{i}"
        for i, each in enumerate(wanted)
    )
    query = raw.relation.project(chosen).sql_query()
    sample = f"FROM ({query}) USING SAMPLE reservoir({SAMPLED} ROWS) REPEATABLE (16)"
    rows = raw.connection.execute(sample).fetchall()
    seen: dict[str, dict[str, Any]] = {}
    for i, each in enumerate(wanted):
        values = [row[i] for row in rows if row[i] is not None]
        if each.text:
            seen[each.name] = {"shape": shape_of(values[:SHAPED]), "free": is_free(values)}
        else:
            seen[each.name] = {"between": _between(values)}
    return seen


def shape_of(values: Sequence[str]) -> str | None:
    """The shape that most values have.

    >>> shape_of(["31.12.1980", "1.2.1990"]), shape_of(["+49 30 5550001"]), shape_of(["a", "b"])
    ('a local date', 'a telephone number', None)
    """
    if not values:
        return None
    for shape, pattern in SHAPES:
        matches = re.compile(pattern)
        if sum(matches.fullmatch(value.strip()) is not None for value in values) >= MOST * len(
            values
        ):
            return shape
    return None


def is_free(values: Sequence[str]) -> bool:
    """Whether values are written freely: long, or of many words, and not always the same.

    >>> is_free(["she called twice and wants her money back", "no answer until the end of May"])
    True
    >>> is_free(["very much in favour", "against"] * 20)
    False
    """
    if not values or len(set(values)) < 0.2 * len(values):
        return False
    words = sum(len(value.split()) for value in values) / len(values)
    letters = sum(map(len, values)) / len(values)
    return words >= FREE_WORDS or letters >= FREE_LETTERS


def _between(values: Sequence[float]) -> tuple[float, float] | None:
    known = sorted(value for value in _finite(values))
    if not known:
        return None
    aside = len(known) // 200
    return known[aside], known[-1 - aside]


def _finite(values: Sequence[float]) -> Iterator[float]:
    return (value for value in values if value - value == 0)
