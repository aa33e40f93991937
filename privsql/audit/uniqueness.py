"""Risk of the public columns: how many people are alone in their combination of public values.

    rows ── counted by all public columns ── sizes of combinations (k) ── classes of k
         ── counted without each of them  ── what a column adds to those who are alone
         ── counted by each of them       ── columns that identify on their own

Public values are published as they are, so whoever knows those of a person finds the person's row
where nobody else shares them.  The sensitive values of that row are perturbed all the same.  NULL
is a value like others.  Counting is by the database, and no value is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb

from privsql.release.manifest import Manifest
from privsql.release.names import MULTIPLICITY, ROWS, TUPLES, published_table, quoted

# Sizes of combinations that are told apart: from, to; the last has no end.
CLASSES: tuple[tuple[int, int | None], ...] = ((1, 1), (2, 4), (5, 9), (10, 99), (100, None))

# A column that so many of the rows have a value of their own in identifies them, if there are more
# than a few rows.
IDENTIFYING, FEW = 0.95, 20

# A name of our own in statements: no column of a release begins like this.
N = "privsql_n"


@dataclass(frozen=True)
class SizeClass:
    """Combinations that between ``least`` and ``most`` rows share, and their rows."""

    least: int
    most: int | None
    combinations: int
    rows: int

    @property
    def label(self) -> str:
        """The sizes in words.

        >>> [SizeClass(low, high, 0, 0).label for low, high in CLASSES]
        ['1', '2 to 4', '5 to 9', '10 to 99', '100 or more']
        """
        if self.most is None:
            return f"{self.least} or more"
        return f"{self.least}" + (f" to {self.most}" if self.most > self.least else "")


@dataclass(frozen=True)
class ColumnRisk:
    """One public column: what it does to the number of rows that are alone."""

    name: str
    values: int  # different ones, NULL among them
    alone: int  # rows that have a value of their own in it
    without: int  # rows that are alone by the other columns

    def identifies(self, rows: int) -> bool:
        """Whether nearly every row has a value of its own in it."""
        return rows > FEW and self.alone > IDENTIFYING * rows


@dataclass(frozen=True)
class Uniqueness:
    """How well public values tell rows apart."""

    rows: int
    combinations: int
    alone: int  # rows whose combination nobody else has
    classes: tuple[SizeClass, ...]
    columns: tuple[ColumnRisk, ...]  # those that cause most first
    sampled: bool = False  # counted in rows that stand for more, or among copies

    @property
    def share(self) -> float:
        """Share of the rows that are alone."""
        return self.alone / self.rows if self.rows else 0.0

    @property
    def identifying(self) -> tuple[str, ...]:
        """Columns that identify nearly every row on their own."""
        return tuple(each.name for each in self.columns if each.identifies(self.rows))


def uniqueness(
    con: duckdb.DuckDBPyConnection, relation: str, columns: Sequence[str], times: str = "1"
) -> Uniqueness:
    """Count a relation, a name or an expression as SQL has it, by its public columns.

    ``times`` says how many rows each row stands for: a number, or a column's name, quoted.
    """
    names = list(columns)
    classes = _classes(con, relation, names, times)
    total = sum(each.rows for each in classes)
    alone = classes[0].rows
    risks = [
        ColumnRisk(
            name,
            *_values(con, relation, name, times),
            # Fewer columns leave nobody alone who was not.
            _alone(con, relation, [n for n in names if n != name], times) if alone else 0,
        )
        for name in names
    ]
    risks.sort(key=lambda risk: (risk.without, -risk.alone, -risk.values))
    combinations = sum(each.combinations for each in classes)
    return Uniqueness(total, combinations, alone, tuple(classes), tuple(risks))


def counted_in(manifest: Manifest, *, known: bool) -> tuple[str, str, bool]:
    """Relation with the public columns of a release, its ``times``, and whether it is sampled.

    Distinct public values with their numbers of rows stand beside the published table; these are of
    all rows, also where groups were cut down.  Public measures are in the published rows alone.
    """
    if all(column.grouping for column in manifest.public):
        return f"release.{TUPLES}", ROWS, False
    if known:
        return "raw", "1", False
    times = MULTIPLICITY if manifest.multiplicity else "1"
    return published_table(manifest.table), times, manifest.protection is not None


def _grouped(relation: str, names: Sequence[str], times: str) -> str:
    """Sizes of the combinations of some columns; without any all rows are one."""
    by = ", ".join(map(quoted, names))
    tail = f" GROUP BY {by}" if names else " HAVING count(*) > 0"
    return f"SELECT sum({times})::BIGINT AS {N} FROM {relation}{tail}"  # noqa: S608 - quoted names


def _classes(
    con: duckdb.DuckDBPyConnection, relation: str, names: Sequence[str], times: str
) -> list[SizeClass]:
    ends = [f"WHEN {N} <= {most} THEN {i}" for i, (_, most) in enumerate(CLASSES) if most]
    place = f"CASE {' '.join(ends)} ELSE {len(CLASSES) - 1} END"
    grouped = _grouped(relation, names, times)
    text = f"SELECT {place} AS c, count(*), sum({N})::BIGINT FROM ({grouped}) GROUP BY c"  # noqa: S608
    found = {place: (count, rows) for place, count, rows in con.execute(text).fetchall()}
    return [SizeClass(*ends, *found.get(i, (0, 0))) for i, ends in enumerate(CLASSES)]


def _alone(con: duckdb.DuckDBPyConnection, relation: str, names: Sequence[str], times: str) -> int:
    text = f"SELECT count(*) FROM ({_grouped(relation, names, times)}) WHERE {N} = 1"  # noqa: S608
    return int(con.execute(text).fetchall()[0][0])


def _values(
    con: duckdb.DuckDBPyConnection, relation: str, name: str, times: str
) -> tuple[int, int]:
    """Different values of a column, and rows that have one of their own."""
    text = f"SELECT count(*), count(*) FILTER ({N} = 1) FROM ({_grouped(relation, [name], times)})"  # noqa: S608
    values, alone = con.execute(text).fetchall()[0]
    return int(values), int(alone)
