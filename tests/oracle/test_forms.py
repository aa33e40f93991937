"""All scan forms of a query give one answer, and at retention 1 it is DuckDB's.

More on demand: ``make soak``.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import duckdb
import pytest
from sqlglot import exp

from privsql.session.session import Session
from privsql.sql.nodes import every
from privsql.sql.scan.forms import FORMS
from privsql.sql.scan.moments.factors import Part
from privsql.sql.scan.moments.weights import MomentScan
from tests.oracle.compare import difference
from tests.oracle.forms import (
    Tally,
    by_form,
    compare_exact,
    compare_forms,
    question,
    weighted_question,
)
from tests.oracle.generator import generate
from tests.oracle.nodes import Node, text
from tests.oracle.perturbed import VARIANTS, Noise, perturbed_world
from tests.oracle.running import LIMITS, published, unusable
from tests.oracle.sessions import on_raw, read
from tests.oracle.tables import World
from tests.sizes import sized

SEED = 2031
# Each form answers as many queries, in parts that processes can share; and so many questions are
# asked for that at the most.
PARTS = 5
QUOTA = sized(20, 2_000)
MOST = 20 * QUOTA


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[tuple[World, Session]]]:
    folder = tmp_path_factory.mktemp("forms-exact")
    with published(folder, SEED, ("plain", "sparse", "compacted", "replace")) as worlds:
        sessions = [Session(each.release, tables=each.tables) for each in worlds]
        yield list(zip(worlds, sessions, strict=True))
        for session in sessions:
            session.close()


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Session]]:
    folder = tmp_path_factory.mktemp("forms-noisy")
    worlds = [perturbed_world(folder, name, SEED + i) for i, name in enumerate(VARIANTS)]
    sessions = [Session(world.release, tables=world.tables) for world in worlds]
    yield sessions
    for world, session in zip(worlds, sessions, strict=True):
        world.raw.close()
        session.close()


@pytest.mark.parametrize("part", range(PARTS))
def test_every_form_gives_duckdbs_answer_at_retention_one(
    exact: list[tuple[World, Session]], part: int
) -> None:
    """People's questions until every form has its share, and the grammar's own."""
    rng, tally = random.Random(SEED + part), Tally()
    while min(tally.answered[form] for form in FORMS) < QUOTA and tally.asked < MOST:
        world, session = exact[tally.asked // 2 % len(exact) if tally.asked % 2 else 0]
        sql = question(rng, there=True, done=tally.done(QUOTA))
        rows = world.raw.execute(sql).fetchall()
        compare_exact(tally, session, sql, rows, tally.done(QUOTA))
    for _ in range(max(4, QUOTA // 10)):
        case, (world, session) = generate(rng), exact[tally.asked % len(exact)]
        if unusable(case, world):
            continue
        tally.asked += 1
        sql, parameters = case.printed()
        raw, size = on_raw(world.raw, case), partial(scale, world)
        try:
            for form, outcome in by_form(session, sql, parameters):
                tally.answered[form] += 1
                wrong = difference(case, raw, read(outcome), size)
                if wrong is not None:
                    tally.failures.append(f"[{form}] {wrong}\n  {sql} {parameters or ''}")
        except LIMITS:
            tally.limited += 1
    print(tally)
    assert not tally.failures, str(tally)
    assert all(tally.answered[form] >= QUOTA for form in FORMS), str(tally)


def scale(world: World, query: Node) -> float:
    return float(world.raw.execute(text(query)).fetchall()[0][0] or 0)


@pytest.mark.parametrize("part", range(PARTS))
def test_all_forms_say_the_same_of_a_perturbed_release(noisy: list[Session], part: int) -> None:
    """Estimates, standard errors, intervals, and what is called reliable."""
    rng, tally = random.Random(SEED + 100 + part), Tally()
    while min(tally.answered[form] for form in FORMS) < QUOTA and tally.asked < MOST:
        place = 0 if tally.asked % 3 else tally.asked // 3 % len(noisy)
        done = tally.done(QUOTA)
        compare_forms(tally, noisy[place], question(rng, done=done), done=done)
    for _ in range(max(4, QUOTA // 10)):
        sql, parameters = generate(rng).printed()
        place = tally.asked % len(noisy)
        compare_forms(tally, noisy[place], sql, parameters, ordered=False)
    print(tally)
    assert not tally.failures, str(tally)
    assert all(tally.answered[form] >= QUOTA for form in FORMS), str(tally)


# Where mutants lived: all rows of a sample, numbers other than 1, what only HAVING asks for.
ASKED = (
    "SELECT COUNT(*) AS n, COUNT(*) FILTER (WHERE smoker) AS s,"
    " COUNT(*) FILTER (WHERE smoker) * 1.0 / COUNT(*) AS r FROM visits",
    "SELECT SUM(2) AS two, SUM(CASE WHEN work = 'ams' AND sex = 'F' THEN 2 ELSE 3 END) AS c"
    " FROM visits WHERE smoker",
    "SELECT COUNT(*) AS n, COUNT(*) FILTER (WHERE d.country = 'NL') AS c"
    " FROM visits AS t JOIN cities AS d ON t.home = d.city WHERE d.country IS NOT NULL",
)


@pytest.mark.parametrize("sql", ASKED)
def test_what_is_easily_overlooked(
    exact: list[tuple[World, Session]], noisy: list[Session], sql: str
) -> None:
    tally = Tally()
    for world, session in exact:
        compare_exact(tally, session, sql, world.raw.execute(sql).fetchall())
    for session in noisy:
        compare_forms(tally, session, sql)
    assert not tally.failures, str(tally)


def test_a_sample_at_retention_one_adds_up_weights(tmp_path: Path) -> None:
    """Published rows are all there is to ask: DuckDB adds up their weights."""
    noise = Noise({}, retention=1.0, weighted=True)
    world = perturbed_world(tmp_path, "weights alone", SEED, noise=noise)
    session, rng, tally = Session(world.release, tables=world.tables), random.Random(SEED), Tally()
    with duckdb.connect(str(world.release), read_only=True) as rows:
        for _ in range(sized(30, 1_000)):
            sql, weighed = weighted_question(rng)
            compare_exact(tally, session, sql, rows.execute(weighed).fetchall())
    session.close()
    world.raw.close()
    print(tally)
    assert not tally.failures, str(tally)
    assert min(tally.answered[form] for form in ("states", "weights")) >= sized(15, 500)


# --- the test itself -----------------------------------------------------------------------


def test_a_form_that_forgets_a_condition_is_caught(
    exact: list[tuple[World, Session]], noisy: list[Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault that conditions inside of values were ignored, from 200,000 rows on."""

    def forgetful(self: MomentScan, part: Part) -> exp.Expr:
        return every(self._kept(part)) or exp.Boolean(this=True)

    monkeypatch.setattr(MomentScan, "_true", forgetful)
    world, session = exact[0]
    sql = "SELECT SUM(CASE WHEN disease = 'flu' THEN 1 ELSE 0 END) AS n FROM visits"
    tally = Tally()
    compare_exact(tally, session, sql, world.raw.execute(sql).fetchall())
    assert [line.split("]")[0] for line in tally.failures] == ["[counts"]
    compare_forms(tally, noisy[0], sql)
    assert len(tally.failures) == 2
