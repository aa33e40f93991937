"""Reconstruction column by column: many states, many classes, and the first of many cells."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import privsql
from privsql.errors import TooLargeError
from privsql.policy.limits import Limits
from privsql.session.session import Session
from privsql.sql.parse.statement import only
from tests.specs import grid, measure, public, sensitive, spec

ROWS = 600
SHOPS = ["a", "b", "c", "d", "e", None]


def raw() -> pa.Table:
    rng = np.random.default_rng(12)
    # One shop has two rows, which are a personal group.
    shops = [None if i % 9 == 0 else "abcd"[i % 4] for i in range(ROWS - 2)] + ["e"] * 2
    return pa.table(
        {
            "shop": pa.array(shops),
            "cost": pa.array(rng.integers(0, 50, ROWS), pa.int32()),
            "age": pa.array(rng.integers(17, 57, ROWS), pa.int32()),
            "wage": pa.array(rng.integers(0, 900, ROWS) * 10, pa.int32()),
            "married": pa.array(rng.random(ROWS) < 0.4),
            "town": pa.array([f"town {n}" for n in rng.integers(0, 12, ROWS)]),
        }
    )


def published(folder: Path, retention: float, policy: str) -> Path:
    least = 5 if policy == "refuse" else 0
    rules = f'personal_groups = "{policy}"\nmin_rows = {least}\n'
    release = folder / f"{policy}-{retention}.duckdb"
    if release.exists():
        return release
    text = spec(
        "people",
        public("shop"),
        measure("cost"),
        sensitive("age", retention, grid(17, 56), accept_epsilon=True),
        sensitive("wage", retention, grid(0, 8990, 10), accept_epsilon=True),
        sensitive("married", retention, [False, True], accept_epsilon=True),
        sensitive("town", retention, [f"town {n}" for n in range(12)], accept_epsilon=True),
        more=f'[groups]\nmerge = "none"\n[policy]\n{rules}',
    )
    (folder / "people.toml").write_text(text)
    pq.write_table(raw(), folder / "people.parquet")
    source = str(folder / "people.parquet")
    privsql.publish(source, release, spec=folder / "people.toml", seed=3)
    return release


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("axes")


@pytest.fixture(scope="module")
def session(folder: Path) -> Iterator[Session]:
    made = Session(published(folder, 0.5, "allow"))
    yield made
    made.close()


def same(one: Any, two: Any) -> bool:
    """Whether two values are equal, numbers to rounding."""
    if isinstance(one, float) and isinstance(two, float):
        return math.isclose(one, two, rel_tol=1e-9, abs_tol=1e-9)
    return bool(one == two)


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


def check(one: pa.Table, two: list[tuple[Any, ...]]) -> None:
    """All values of two tables are the same."""
    assert one.num_rows == len(two)
    for row, wanted in zip(rows_of(one), two, strict=True):
        assert all(map(same, row, wanted)), (row, wanted)


AVERAGES = "AVG(age) AS a, AVG(wage) AS w, AVG(wage) - AVG(age) AS d"


def test_averages_over_columns_with_too_many_states_are_duckdbs_at_retention_one(folder):
    session = Session(published(folder, 1.0, "allow"))
    sql = f"SELECT married, COUNT(*) AS n, {AVERAGES} FROM people GROUP BY married ORDER BY 1"
    found = session.run(sql)
    assert session.forms == ("axes",)
    with duckdb.connect() as con:
        con.register("people", raw())
        expected = con.execute(sql).fetchall()
    session.close()
    check(found.table, expected)


def test_averages_over_columns_with_too_many_states_are_those_of_moments(session):
    """The class of a key is a condition: without keys, inverted rows are added up."""
    keyed = session.run(f"SELECT married, {AVERAGES} FROM people GROUP BY married ORDER BY 1")
    assert session.forms == ("axes",)
    for r, condition in enumerate(("NOT married", "married")):
        alone = session.run(f"SELECT {AVERAGES} FROM people WHERE {condition}")
        assert session.forms == ("weights",)
        for i in range(3):
            value = keyed.table.column(1 + i)[r].as_py()
            assert value == pytest.approx(alone.table.column(i)[0].as_py(), rel=1e-9)
            one, two = keyed.bars[1 + i].slice(r, 1), alone.bars[i]
            for name in ("stderr", "low", "high"):
                ours, theirs = one.column(name)[0].as_py(), two.column(name)[0].as_py()
                assert ours == pytest.approx(theirs, rel=1e-9)


FIRST = (
    "SELECT shop, town, COUNT(*) AS n, SUM(age) AS s FROM people GROUP BY shop, town"
    " ORDER BY n {desc}, shop, town LIMIT {limit} OFFSET {offset}"
)


@pytest.mark.parametrize("policy", ["allow", "flag", "refuse"])
@pytest.mark.parametrize(("desc", "limit", "offset"), [("DESC", 7, 0), ("ASC", 4, 3), ("", 90, 9)])
def test_the_first_cells_are_those_of_the_whole_answer(folder, policy, desc, limit, offset):
    session = Session(published(folder, 0.5, policy))
    few = session.run(FIRST.format(desc=desc, limit=limit, offset=offset))
    assert session.forms == ("axes",)
    # An expression is not looked through, so that all cells are made.
    every = FIRST.replace("ORDER BY n", "ORDER BY n + 0")
    whole = session.run(every.format(desc=desc, limit=limit, offset=offset))
    session.close()
    assert few.table.num_rows == min(limit, 72 - offset)
    check(few.table, rows_of(whole.table))
    for i in (2, 3):
        check(few.bars[i], rows_of(whole.bars[i]))


def test_more_cells_than_can_be_answered_are_refused_with_their_number(folder):
    session = Session(published(folder, 0.5, "allow"), limits=Limits(rows=71))
    asked = "SELECT shop, town, COUNT(*) AS n FROM people GROUP BY shop, town"
    for form in (None, "states"):
        session.form = form
        with pytest.raises(TooLargeError, match="72 cells: 6 groups of public keys times 12 "):
            session.run(asked)
    session.form = None
    assert session.run(f"{asked} ORDER BY n DESC LIMIT 3").table.num_rows == 3
    # Here all cells are needed: a rank is among all of them.
    with pytest.raises(TooLargeError, match="72 cells"):
        session.run(
            "SELECT shop, town, COUNT(*) AS n, RANK() OVER (ORDER BY COUNT(*)) FROM people"
            " GROUP BY shop, town ORDER BY n DESC LIMIT 3"
        )
    session.close()


def test_the_first_cells_may_be_hidden_ones(folder):
    """What is hidden is NULL and comes last, so that all cells must be made, if they can be."""
    asked = "SELECT shop, town, COUNT(*) AS n FROM people GROUP BY shop, town ORDER BY n LIMIT 3"
    few = Session(published(folder, 0.5, "refuse"), limits=Limits(rows=71))
    with pytest.raises(TooLargeError, match="72 cells"):
        few.run(asked)
    few.close()


@pytest.mark.parametrize(
    ("tail", "wanted"),
    [
        ("ORDER BY n DESC LIMIT 10", (10, True)),
        ("ORDER BY COUNT(*) LIMIT 3 OFFSET 4", (7, False)),
        ("ORDER BY 2 DESC, town LIMIT 5", (5, True)),
        ("ORDER BY n DESC", None),
        ("LIMIT 10", None),
        ("ORDER BY town LIMIT 10", None),
        ("ORDER BY s DESC LIMIT 10", None),
        ("ORDER BY n + 1 LIMIT 10", None),
        ("HAVING COUNT(*) > 3 ORDER BY n LIMIT 10", None),
        ("QUALIFY ROW_NUMBER() OVER (ORDER BY n) < 3 ORDER BY n LIMIT 10", None),
        ("ORDER BY n LIMIT 10 %", None),
        ("ORDER BY n LIMIT 0", None),
    ],
)
def test_only_what_a_count_ranks_first_is_left_to_be_made(session, tail, wanted):
    text = f"SELECT town, COUNT(*) AS n, SUM(age) AS s FROM people GROUP BY town {tail}"
    planned = session._planning.plan(only(text), None, session.settings, "axes")
    (plan,) = planned.plans
    found = plan.first and (plan.first.count, plan.first.descending)
    assert found == wanted


def test_rows_of_no_group_make_no_cells(session):
    none = session.run("SELECT town, COUNT(*) AS n FROM people WHERE cost > 99 GROUP BY town")
    assert none.table.num_rows == 0
    none = session.run("SELECT shop, town, COUNT(*) FROM people WHERE cost > 99 GROUP BY 1, 2")
    assert none.table.num_rows == 0
