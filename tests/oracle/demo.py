"""Questions that people ask of the demo's clinic, and how far the answers are from the truth.

A question is SQL over the clinic's own columns: counts, shares and averages of conditions, in the
spellings that people use, by district or by age, of all patients or of some.  It is answered by
the release and by the raw table, and each cell's error is told in its standard errors.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from privsql.fronts.demo.recipe import AGES, DISEASES, DISTRICTS, JOBS, SMOKER

TABLE = "patients"


@dataclass(frozen=True)
class Asked:
    """A question: its keys come first, then one number a column."""

    sql: str
    keys: int


@dataclass(frozen=True)
class Cell:
    """One estimate beside the truth."""

    asked: Asked
    column: int  # of the numbers
    truth: float | None
    estimate: float | None
    stderr: float | None
    reliable: bool | None

    @property
    def z(self) -> float | None:
        """``(estimate - truth) / standard error``, where there is an error."""
        if self.truth is None or self.estimate is None or not self.stderr:
            return None
        return (self.estimate - self.truth) / self.stderr

    def __str__(self) -> str:
        return f"{self.estimate} ± {self.stderr} for {self.truth} (z = {self.z}): {self.asked.sql}"


class Questions:
    """Writes questions from a seeded generator."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def sensitive(self) -> str:
        """A condition on smoking, on disease, or on both."""
        rng = self.rng
        some = ", ".join(f"'{each}'" for each in rng.sample(DISEASES, rng.randint(2, 3)))
        one = rng.choice((f"disease = '{rng.choice(DISEASES)}'", f"disease IN ({some})"))
        forms = [
            one, one, one,
            f"disease <> '{rng.choice(DISEASES)}'",
            f"disease LIKE '{rng.choice(('f', 'h', 'd', 'c'))}%'",
            f"smoker = '{rng.choice(SMOKER)}'",
            f"smoker = 'yes' AND {one}",
            f"(smoker = 'yes' OR {one})",
            f"NOT ({one})",
            f"{one} AND {self.public()}",
        ]  # fmt: skip
        return rng.choice(forms)

    def public(self) -> str:
        rng = self.rng
        return rng.choice(
            (
                f"sex = '{rng.choice('FM')}'",
                f"age >= {rng.choice(AGES[1:])}",
                f"age BETWEEN {rng.choice(AGES[:3])} AND {rng.choice(AGES[3:])}",
                f"district = '{rng.choice(DISTRICTS)}'",
                f"job IN ('{rng.choice(JOBS)}', 'office')",
                f"cost > {rng.choice((50, 100, 300))}",
                f"visited >= DATE '2025-{rng.randint(2, 11):02}-01'",
            )
        )

    def number(self) -> str:
        """An aggregate in which a condition hides."""
        rng = self.rng
        p, q = self.sensitive(), self.sensitive()
        ills = rng.sample(DISEASES, 2)
        return rng.choice(
            (
                f"COUNT(*) FILTER (WHERE {p})",
                f"COUNT_IF({p})",
                f"COUNT(CASE WHEN {p} THEN 1 END)",
                f"SUM(CASE WHEN {p} THEN 1 ELSE 0 END)",
                f"SUM(CASE WHEN {p} THEN 1 END)",
                f"SUM(IF({p}, 1, 0))",
                f"SUM(({p})::INT)",
                f"SUM(CASE WHEN {p} THEN 100 ELSE 0 END)",
                f"SUM(CASE WHEN {p} THEN 2 WHEN {q} THEN 1 ELSE 0 END)",
                f"SUM(CASE disease WHEN '{ills[0]}' THEN 1 WHEN '{ills[1]}' THEN 10 ELSE 0 END)",
                f"AVG(({p})::INT)",
                f"AVG(CAST({p} AS DOUBLE))",
                f"AVG(CASE WHEN {p} THEN 1.0 ELSE 0 END)",
                f"100.0 * SUM(CASE WHEN {p} THEN 1 ELSE 0 END) / COUNT(*)",
                f"COUNT(*) FILTER (WHERE {p}) * 1.0 / COUNT(*)",
                f"SUM(CASE WHEN {p} THEN cost ELSE 0 END)",
                f"SUM(cost) FILTER (WHERE {p})",
                f"SUM(cost * (disease = '{ills[0]}')::INT)",
                f"AVG(CASE WHEN {p} THEN cost ELSE 0 END)",
                f"SUM(LEAST(cost, 100) * ({p})::INT)",
            )
        )

    def _sql(self, keys: str, numbers: Sequence[str], conditions: Sequence[str]) -> Asked:
        shown = [keys] if keys else []
        shown += [f"{number} AS n{i}" for i, number in enumerate(numbers)]
        where = f" WHERE {' AND '.join(f'({each})' for each in conditions)}" if conditions else ""
        count = keys.count(",") + 1 if keys else 0
        tail = f" GROUP BY {', '.join(str(i + 1) for i in range(count))}" if keys else ""
        return Asked(f"SELECT {', '.join(shown)} FROM {TABLE}{where}{tail}", count)

    def whole(self) -> Asked:
        """A question of all patients."""
        rng = self.rng
        keys = rng.choice(("", "", "district", "sex", "age", "job", "district, sex", "smoker"))
        conditions = [self.public] * rng.choice((0, 0, 1)) + [self.sensitive] * rng.choice(
            (0, 0, 1)
        )
        numbers = [self.number() for _ in range(rng.randint(1, 3))]
        return self._sql(keys, numbers, [make() for make in conditions])

    def sliced(self, first: int, days: int) -> Asked:
        """One number, of the patients of some days of the year, by a public column.

        Rows are perturbed one by one: cells that share no row have independent errors.
        """
        start = f"DATE '2025-01-01' + {first}"
        within = f"visited >= {start} AND visited < {start} + {days}"
        return self._sql(self.rng.choice(("district", "sex")), [self.number()], [within])


def cells(asked: Asked, session: Any, raw: duckdb.DuckDBPyConnection) -> Iterator[Cell]:
    """The cells of an answer, each beside its truth; a group that the raw table lacks is 0."""
    truths = {row[: asked.keys]: row[asked.keys :] for row in raw.execute(asked.sql).fetchall()}
    outcome = session.run(asked.sql, error_bars=True)
    columns = [column.to_pylist() for column in outcome.table.columns]
    rows = list(zip(*columns, strict=True))
    for place in range(asked.keys, len(columns)):
        bars = outcome.bars[place].to_pylist()
        for row, bar in zip(rows, bars, strict=True):
            known = truths.get(row[: asked.keys])
            truth = None if known is None else known[place - asked.keys]
            yield Cell(
                asked,
                place - asked.keys,
                None if truth is None else float(truth),
                row[place],
                bar["stderr"],
                bar["reliable"],
            )


def answered(
    make: Callable[[int], Asked], count: int, session: Any, raw: duckdb.DuckDBPyConnection
) -> list[Cell]:
    return [cell for i in range(count) for cell in cells(make(i), session, raw)]
