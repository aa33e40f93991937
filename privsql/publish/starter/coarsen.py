"""Public columns made coarser until hardly anybody is alone in their combination.

A row is alone if no row of another person has the same public values.  Equal rows are counted
once, at the finest levels; each try groups these counts again.

    while more than 1% of the rows are alone   the column whose next level helps most takes it
    where no level is left                     the column that causes most goes: decide
    at the end                                 levels that turn out not to be needed are taken back

Of very many rows a sample is looked at, where more rows are alone than among all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import duckdb
from duckdb import ColumnExpression, FunctionExpression

from privsql.publish.database import store
from privsql.publish.source import Source, readable
from privsql.publish.starter.evidence import Progress
from privsql.publish.starter.ladders import Level

LIMIT = 0.01
# Of more rows a sample of about so many.
MANY = 5_000_000
# Where more rows are alone than this, all columns are made coarser at once.
FAR = 0.5

TABLE = "privsql_combinations"

Levels = tuple[int | None, ...]


@dataclass(frozen=True)
class Coarse:
    """The level of each column, None where none is coarse enough, and the share of rows alone."""

    levels: Levels
    alone: float


@dataclass(frozen=True)
class _Counts:
    """Equal rows and how many they are, at the finest levels, with every coarser level."""

    connection: duckdb.DuckDBPyConnection
    ladders: tuple[tuple[Level, ...], ...]
    rows: int
    persons: bool  # rows belong to persons who may have several
    known: dict[Levels, int] = field(default_factory=dict)

    def alone(self, levels: Levels) -> int:
        """How many rows are alone when columns are published at these levels."""
        if levels not in self.known:
            self.known[levels] = self._counted(levels)
        return self.known[levels]

    def _counted(self, levels: Levels) -> int:
        keys = [f"c{i}_{level}" for i, level in enumerate(levels) if level is not None]
        if not keys:
            return 0  # nothing is published to find anybody by
        people = ", min(least) AS least, max(greatest) AS greatest" if self.persons else ""
        table = self.connection.table(TABLE)
        groups = table.aggregate(f"sum(n) AS n{people}", ", ".join(keys))
        one = groups.filter("least = greatest" if self.persons else "n = 1")
        return int(one.aggregate("sum(n)").fetchall()[0][0] or 0)

    def coarser(self, levels: Levels) -> Iterator[Levels]:
        """Every way to take one column to its next level."""
        for i, level in enumerate(levels):
            if level is not None and level + 1 < len(self.ladders[i]):
                yield (*levels[:i], level + 1, *levels[i + 1 :])

    def fewer(self, levels: Levels) -> Iterator[Levels]:
        """Every way to leave one column out."""
        for i, level in enumerate(levels):
            if level is not None:
                yield (*levels[:i], None, *levels[i + 1 :])

    def all_coarser(self, levels: Levels) -> Levels:
        """Every column at its next level, where it has one."""
        return tuple(
            level if level is None else min(level + 1, len(steps) - 1)
            for level, steps in zip(levels, self.ladders, strict=True)
        )


def coarsened(
    raw: Source,
    rows: int,
    ladders: Sequence[tuple[Level, ...]],
    unit: str | None,
    progress: Progress | None = None,
) -> Coarse:
    """The finest levels found at which at most 1% of the rows are alone."""
    start: Levels = tuple(0 if steps else None for steps in ladders)
    if not rows or all(level is None for level in start):
        return Coarse(start, 0.0)
    if progress:
        progress("counting rows that are alone in their public columns")
    with readable(), _counts(raw, rows, tuple(ladders), unit) as counts:
        levels = _searched(counts, start)
        return Coarse(levels, counts.alone(levels) / max(counts.rows, 1))


def _searched(counts: _Counts, levels: Levels) -> Levels:
    limit = LIMIT * counts.rows
    while (alone := counts.alone(levels)) > limit:
        further = list(counts.coarser(levels))
        if not further:
            break
        far = alone > FAR * counts.rows
        levels = counts.all_coarser(levels) if far else min(further, key=counts.alone)
    while counts.alone(levels) > limit:
        levels = min(counts.fewer(levels), key=counts.alone)
    for i in range(len(levels)):
        levels = _refined(counts, levels, i, limit)
    return levels


def _refined(counts: _Counts, levels: Levels, i: int, limit: float) -> Levels:
    """One column as fine as the others allow."""
    while (level := levels[i]) is not None and level > 0:
        finer = (*levels[:i], level - 1, *levels[i + 1 :])
        if counts.alone(finer) > limit:
            break
        levels = finer
    return levels


@contextmanager
def _counts(
    raw: Source, rows: int, ladders: tuple[tuple[Level, ...], ...], unit: str | None
) -> Iterator[_Counts]:
    """Count equal rows into a table that exists for the search only, in memory."""
    keys = [f"c{i}_{j}" for i, steps in enumerate(ladders) for j in range(len(steps))]
    values = [
        level.value.alias(f"c{i}_{j}")
        for i, steps in enumerate(ladders)
        for j, level in enumerate(steps)
    ]
    people = ""
    if unit is not None:
        values.append(FunctionExpression("hash", ColumnExpression(unit)).alias("person"))
        people = ", min(person) AS least, max(person) AS greatest"
    chosen = raw.relation.select(*values)
    if rows > MANY:
        share = f"{100 * MANY / rows:.6f} PERCENT (bernoulli, 16)"
        chosen = raw.connection.sql(f"FROM ({chosen.sql_query()}) USING SAMPLE {share}")
    grouped = ", ".join(keys)
    counted = chosen.aggregate(f"{grouped}, count(*) AS n{people}", grouped)
    store(raw.connection, f"CREATE OR REPLACE TEMP TABLE {TABLE} AS", counted)
    try:
        table = raw.connection.table(TABLE)
        seen = int(table.aggregate("sum(n)").fetchall()[0][0] or 0)
        yield _Counts(raw.connection, ladders, seen, unit is not None)
    finally:
        raw.connection.execute(f"DROP TABLE {TABLE}")
