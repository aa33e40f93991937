"""Whatever was answered under refuse and check, least squares learns no group's count from it.

An attack that knows nothing of the check: each answered cell is a vector of weights over rows,
found by running its public parts in plain DuckDB.  Its standard error is a second answer, about
the squares of these weights.  With Q an orthonormal basis of all of them,

    residual of the best linear estimate of a weighting x within group g  =  |x - Q Q^T x|
    smallest over all x of length 1                                       =  sqrt(1 - |Q_g|^2)

where Q_g are the rows of Q that lie in g and |.| is the largest singular value.  It must not be
below sqrt(1 - 0.9).  Measures tell rows of one public tuple apart; the check knows lengths within
a tuple on average only, so there the bound is for every other table and a wider one.  A group with
more than .9 of all rows is taken to be known, and its rows are given to the attack.

SOUNDNESS=200 asks that many tables; `make soak` asks forty.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

import privsql
from privsql.errors import Error
from privsql.policy.history import History
from privsql.policy.personal import PersonalGroup
from privsql.session.gate import Served
from privsql.session.session import Session
from tests.sizes import sized

Floats = NDArray[np.float64]

TABLES = int(os.environ.get("SOUNDNESS", sized("4", "40")))
LIMIT = 0.9
SLACK = 1e-6

SPEC = """
[release]
table = "t"
{public}
[columns.m]
role = "public"
grouping = false
[columns.s]
role = "sensitive"
mechanism = "uniform"
retention = 0.5
accept_epsilon = true
domain = ["x", "y"]
[groups]
merge = "none"
[policy]
personal_groups = "refuse"
min_rows = 1
differences = "check"
"""


@dataclass(frozen=True)
class Query:
    """An aggregate over a sensitive condition, and its public parts."""

    where: str
    weight: str | None  # None for COUNT(*)
    keys: tuple[str, ...] = ()

    @property
    def sql(self) -> str:
        """The statement."""
        shown = [*self.keys, "COUNT(*)" if self.weight is None else f"SUM({self.weight})"]
        tail = f" GROUP BY {', '.join(self.keys)}" if self.keys else ""
        return f"SELECT {', '.join(shown)} AS v FROM t WHERE s = 'x' AND ({self.where}){tail}"

    def vectors(self, con: duckdb.DuckDBPyConnection) -> dict[tuple[object, ...], Floats]:
        """Weights of all rows in each cell, by its keys, from the public columns alone."""
        kept = f"CASE WHEN {self.where} THEN {self.weight or 1} ELSE 0 END"
        shown = ", ".join([*self.keys, f"({kept})::DOUBLE"])
        rows = con.execute(f"SELECT {shown} FROM t ORDER BY rowid").fetchall()
        weights = np.array([row[-1] for row in rows])
        keys = [row[:-1] for row in rows]
        return {k: weights * np.array([k == each for each in keys]) for k in set(keys)}


@dataclass(frozen=True)
class Table:
    """A small published table, its columns, and the group of each row."""

    path: Path
    columns: tuple[str, ...]
    values: int
    groups: NDArray[np.int64]
    public: pa.Table  # a line a row, equal rows as often as there are


def published(folder: Path, rng: random.Random) -> Table:
    """Publish random rows; half of the time some groups are merged."""
    columns = ("a", "b", "c")[: rng.randint(2, 3)]
    rows, values = rng.randint(10, 200), rng.randint(2, 4)
    source, release = folder / "t.parquet", folder / "t.duckdb"
    draw = np.random.default_rng(rng.randrange(10**6))
    made: dict[str, NDArray[Any]] = {
        c: (draw.random(rows) ** 1.5 * values).astype(np.int32) for c in columns
    }
    made |= {"m": draw.integers(1, 6, rows), "s": np.where(draw.random(rows) < 0.4, "x", "y")}
    pq.write_table(pa.table(made), source)
    public = "\n".join(f'[columns.{c}]\nrole = "public"' for c in columns)
    (folder / "t.toml").write_text(SPEC.format(public=public), encoding="utf-8")
    privsql.publish(str(source), release, spec=folder / "t.toml", seed=rng.randrange(10**6))
    with duckdb.connect(str(release)) as con:
        using = f"USING ({', '.join(columns)})"
        stored = {row[0] for row in con.execute("DESCRIBE t").fetchall()}
        if rng.random() < 0.5:
            # As if the values 0 and 1 of a could not be told apart.
            same = "".join(f" AND o.{c} = u.{c}" for c in columns[1:])
            con.execute(
                "UPDATE privsql.tuples AS u SET privsql_group = (SELECT max(o.privsql_group)"
                f" FROM privsql.tuples AS o WHERE greatest(o.a, 1) = greatest(u.a, 1){same})"
            )
            if "privsql_group" in stored:
                same = " AND ".join(f"o.{c} = t.{c}" for c in columns)
                con.execute(
                    "UPDATE t SET privsql_group ="
                    f" (SELECT o.privsql_group FROM privsql.tuples AS o WHERE {same})"
                )
        times = "privsql_multiplicity" if "privsql_multiplicity" in stored else "1"
        rows_of = con.sql(
            f"SELECT {', '.join(columns)}, m, u.privsql_group, unnest(range({times}))"
            f" FROM t JOIN privsql.tuples AS u {using} ORDER BY ALL"
        ).to_arrow_table()
    groups = rows_of.column("privsql_group").to_numpy().astype(np.int64)
    return Table(release, columns, values, groups, rows_of.select([*columns, "m"]))


def questions(rng: random.Random, table: Table, measures: bool) -> Iterator[Query]:
    """Conditions that come back in other queries, cut, widened and weighted."""

    def simple() -> str:
        column = rng.choice(table.columns)
        shape = rng.choice(("{} = {}", "{} <> {}", "{} <= {}", "{} > {}"))
        return shape.format(column, rng.randrange(table.values))

    def condition() -> str:
        parts = [simple() for _ in range(rng.randint(1, 3))]
        if measures and rng.random() < 0.15:
            parts.append(f"m <= {rng.randint(1, 4)}")
        text = rng.choice((" AND ", " OR ")).join(parts)
        return f"NOT ({text})" if rng.random() < 0.3 else text

    past: list[str] = ["TRUE"]
    for _ in range(rng.randint(5, 25)):
        where = condition()
        if rng.random() < 0.5:
            where = f"({rng.choice(past)}) {rng.choice(('AND', 'OR', 'AND NOT'))} ({where})"
        past.append(where)
        weight, keys = None, list[str]()
        if rng.random() < 0.3:
            keys = rng.sample(table.columns, rng.randint(1, len(table.columns)))
        if rng.random() < 0.3:
            heavy, light = rng.choice(((2, 1), (1000, 1), (1, 0), (1, -1), (1.001, 1), (3, -2)))
            weight = f"CASE WHEN {condition()} THEN {heavy} ELSE {light} END"
        elif measures and rng.random() < 0.2:
            weight = rng.choice(("m", "m - 3"))
        yield Query(where, weight, tuple(keys))


def leverage(answered: Sequence[Floats], groups: NDArray[np.int64]) -> float:
    """The largest |Q_g|^2 of all groups."""
    names, sizes = np.unique(groups, return_counts=True)
    secret = ~np.isin(groups, names[sizes > LIMIT * groups.size])
    kept = [v * secret for v in answered if (v * secret).any()]
    if not kept:
        return 0.0
    A = np.stack([v / np.linalg.norm(v) for v in kept], axis=1)
    U, values, _ = np.linalg.svd(A, full_matrices=False)
    Q = U[:, values > 1e-9 * values[0]]
    return max(float(np.linalg.norm(Q[groups == g], 2)) ** 2 for g in names)


@dataclass
class Told:
    """What a user was told."""

    answered: list[Floats]
    cells: int = 0
    refused: int = 0


def ask(session: Session, queries: Sequence[Query], con: duckdb.DuckDBPyConnection) -> Told:
    """Ask everything, and note the weights of what was answered."""
    told = Told([])
    for query in queries:
        vectors = query.vectors(con)
        try:
            rows = session.run(query.sql).table.to_pylist()
        except PersonalGroup:
            told.refused += 1
            continue
        except Error as problem:
            raise AssertionError(query.sql) from problem
        for row in rows:
            key = tuple(row[k] for k in query.keys)
            told.cells += 1
            if row["v"] is None:
                told.refused += 1
            elif key in vectors and vectors[key].any():
                told.answered += [vectors[key], vectors[key] ** 2]
    return told


@pytest.mark.parametrize("seed", range(TABLES))
def test_least_squares_learns_no_group(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    table = published(tmp_path, rng)
    measures = seed % 2 == 1
    queries = list(questions(rng, table, measures))
    session = Session(table.path, served=Served("ann", History(None)))
    with duckdb.connect() as plain:
        plain.register("given", table.public)
        plain.execute("CREATE TABLE t AS FROM given")
        told = ask(session, queries, plain)
        everything = [v for query in queries for v in query.vectors(plain).values()]
    session.close()
    found = leverage(told.answered, table.groups)
    assert math.sqrt(1 - min(found, 1.0)) >= math.sqrt(1 - LIMIT) - SLACK
    # The attack is one: given everything that was asked, it gets what it wants.
    assert told.refused or leverage(everything, table.groups) <= LIMIT + SLACK


def test_the_attack_finds_what_was_refused() -> None:
    """Without a check, two counts are enough."""
    groups = np.array([0] * 5 + [1] * 5 + [2] * 5)
    most, less = np.ones(15), (groups > 0).astype(np.float64)
    assert leverage([most], groups) == pytest.approx(1 / 3)
    assert leverage([most, less], groups) == pytest.approx(1)
    assert leverage([most + 1e3 * (groups == 2)], groups) > LIMIT
