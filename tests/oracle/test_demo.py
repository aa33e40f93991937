"""The demo's own release, 300,000 rows, against its raw table: errors are what chance allows."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy.special import bdtr, ndtr

from privsql.fronts.demo import questions as demo
from privsql.fronts.demo.recipe import clinic
from privsql.publish.job import publish
from tests.oracle.demo import Asked, Cell, Questions, answered, cells
from tests.oracle.sessions import session_class
from tests.sizes import sized

SEED = 14
WHOLE = sized(60, 600)  # questions of all patients
DAYS = sized(4, 1)  # of a slice
FAR = 5.0
CHANCE = 1e-4  # of a false alarm, each check, had the seed not been fixed


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Table, spec and release of ``privsql demo``, seeds and all."""
    made = tmp_path_factory.mktemp("demo")
    table = clinic(demo.ROWS, np.random.default_rng(demo.TABLE_SEED))
    pq.write_table(table, made / demo.SOURCE)
    (made / demo.SPEC).write_text(demo.SPEC_TEXT, encoding="utf-8")
    publish(None, made / demo.RELEASE, spec=made / demo.SPEC, seed=demo.PUBLISH_SEED)
    return made


@pytest.fixture(scope="module")
def session(folder: Path) -> Iterator[Any]:
    made = session_class()(folder / demo.RELEASE)
    yield made
    made.close()


@pytest.fixture(scope="module")
def raw(folder: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": 1}) as con:
        con.execute("CREATE TABLE patients AS FROM read_parquet(?)", [str(folder / demo.SOURCE)])
        yield con


def far(found: list[Cell]) -> list[Cell]:
    """Cells beyond FAR standard errors, and those called exact that are not."""
    return [
        cell
        for cell in found
        if (cell.z is not None and abs(cell.z) > FAR)
        or (cell.stderr == 0 and not math.isclose(cell.estimate or 0, cell.truth or 0))
    ]


def shown(found: list[Cell]) -> str:
    return "\n".join(map(str, found[:20]))


# --- the statements that 0.1.0 answered wrongly ----------------------------------------


@pytest.mark.parametrize(
    ("sql", "keys", "truths"),
    [
        (
            "SELECT SUM(CASE WHEN disease='flu' THEN 1 ELSE 0 END) s,"
            " COUNT(*) FILTER (WHERE disease='flu') c FROM patients",
            0,
            [40_922.0, 40_922.0],
        ),
        ("SELECT AVG((disease='flu')::INT) FROM patients", 0, [40_922 / 300_000]),
        (
            "SELECT district, AVG(CASE WHEN disease LIKE 'f%' THEN 1.0 ELSE 0 END) FROM patients"
            " WHERE smoker='yes' GROUP BY 1",
            1,
            [0.144966, 0.133415, 0.128478, 0.130375, 0.135819],
        ),
    ],
)
def test_a_condition_inside_a_value_is_not_ignored(
    session: Any, raw: duckdb.DuckDBPyConnection, sql: str, keys: int, truths: list[float]
) -> None:
    found = list(cells(Asked(sql, keys), session, raw))
    assert sorted(cell.truth or 0 for cell in found) == pytest.approx(sorted(truths), abs=1e-6)
    assert all(cell.z is not None for cell in found)
    assert not far(found), shown(found)


def test_a_sum_and_a_count_of_one_condition_agree(session: Any) -> None:
    """Whatever stands beside them."""
    both = "SUM(CASE WHEN disease='flu' THEN 1 ELSE 0 END) AS s, COUNT_IF(disease='flu') AS c"
    (row,) = session.run(f"SELECT {both} FROM patients").table.to_pylist()
    (alone,) = session.run("SELECT COUNT_IF(disease='flu') AS c FROM patients").table.to_pylist()
    assert row["s"] == pytest.approx(row["c"], rel=1e-12)
    assert row["c"] == pytest.approx(alone["c"], rel=1e-12)


# --- random questions --------------------------------------------------------------------


def test_no_answer_is_far_from_the_truth(session: Any, raw: duckdb.DuckDBPyConnection) -> None:
    """Of N cells, however they depend on each other, one is beyond 5 with N * 5.7e-7 at most."""
    questions = Questions(random.Random(SEED))
    found = answered(lambda _: questions.whole(), WHOLE, session, raw)
    told = [cell for cell in found if cell.z is not None]
    expected = len(told) * 2 * float(ndtr(-FAR))
    print(f"{len(found)} cells, {len(told)} with errors, {expected:.2g} expected beyond {FAR}")
    assert not far(found), shown(far(found))
    assert len(told) > 0.7 * len(found)
    assert expected < 0.01


def test_errors_are_those_that_are_promised(session: Any, raw: duckdb.DuckDBPyConnection) -> None:
    """Cells that share no row: z is standard normal, and independent from cell to cell.

    The number beyond 1.96 is binomial; the mean of n is normal with variance 1/n; the sum of
    squares has mean n and variance 2n.  Bounds are exceeded by chance with 1e-4 each.  Only cells
    that are called reliable promise so much.
    """
    questions = Questions(random.Random(SEED + 1))
    found = answered(lambda i: questions.sliced(DAYS * i, DAYS), 365 // DAYS, session, raw)
    z = np.array([cell.z for cell in found if cell.z is not None and cell.reliable])
    n, beyond = len(z), int((np.abs(z) > 1.96).sum())
    print(f"{len(found)} cells, {n} reliable: mean {z.mean():.3f}, square {(z @ z) / n:.3f},")
    print(f"{beyond} beyond 1.96 where {0.05 * n:.1f} are expected")
    assert not far(found), shown(far(found))
    assert n > 0.6 * len(found)
    assert n > 200
    assert bdtr(beyond, n, 0.05) > CHANCE, "too few are beyond"
    assert bdtr(beyond - 1, n, 0.05) < 1 - CHANCE, "too many are beyond"
    wide = 3.9  # of a normal, both sides: 1e-4
    assert abs(z.mean()) < wide / math.sqrt(n)
    assert abs((z @ z) / n - 1) < wide * math.sqrt(2 / n)


def test_questions_repeat_and_say_what_people_say() -> None:
    one, two = (Questions(random.Random(3)) for _ in "ab")
    asked = [one.whole() for _ in range(200)]
    assert asked == [two.whole() for _ in range(200)]
    text = "\n".join(each.sql for each in asked)
    for each in ("SUM(CASE", "AVG((", "::INT", "FILTER", "IF(", "/ COUNT(*)", "GROUP BY", "LIKE"):
        assert each in text


def test_a_cell_that_is_wrong_is_far() -> None:
    asked = Asked("SELECT 1", 0)
    assert far([Cell(asked, 0, 10.0, 16.0, 1.0, True), Cell(asked, 0, 10.0, 12.0, 0.0, True)])
    assert not far([Cell(asked, 0, 10.0, 14.0, 1.0, True), Cell(asked, 0, 10.0, 10.0, 0.0, True)])
    assert not far([Cell(asked, 0, None, None, None, None)])
