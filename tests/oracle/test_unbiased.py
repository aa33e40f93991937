"""Estimates are unbiased and their error bars are true, by simulation, for every mechanism.

One raw table is published hundreds of times (:mod:`tests.oracle.releases`); what is asked of
each mechanism and what is promised of each aggregate stands in :mod:`tests.oracle.families`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.oracle.asking import Asks, ByHand, LayerAsks, gathered
from tests.oracle.families import (
    BY_DISEASE,
    BY_JOB,
    FAMILIES,
    LINEAR_NAMES,
    PLAIN,
    planned,
    promise,
)
from tests.oracle.judging import Estimates, complaints
from tests.oracle.releases import MECHANISMS, WHOLE, Releases, releases
from tests.oracle.sessions import session_class

COPIES = 300
SEPARATE = 60  # where each copy is a file of its own

Publish = Callable[[str], Releases]


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Publish:
    """Publish each mechanism once, when it is first asked for."""
    made: dict[str, Releases] = {}

    def get(mechanism: str) -> Releases:
        if mechanism not in made:
            folder = tmp_path_factory.mktemp(mechanism)
            copies = SEPARATE if mechanism in WHOLE else COPIES
            made[mechanism] = releases(folder, mechanism, copies)
        return made[mechanism]

    return get


@pytest.fixture(scope="module")
def layers(published: Publish) -> Callable[[str], list[Asks]]:
    made: dict[str, list[Asks]] = {}

    def get(mechanism: str) -> list[Asks]:
        if mechanism not in made:
            made[mechanism] = [LayerAsks(path) for path in published(mechanism).paths]
        return made[mechanism]

    return get


CASES = [(mechanism, name, by) for mechanism in MECHANISMS for name, by in planned(mechanism)]


@pytest.mark.skipif(session_class() is None, reason="the query layer does not exist yet")
@pytest.mark.parametrize(("mechanism", "name", "by"), CASES)
def test_estimates_and_their_error_bars(
    published: Publish,
    layers: Callable[[str], list[Asks]],
    mechanism: str,
    name: str,
    by: tuple[str, ...],
) -> None:
    family = FAMILIES[name]
    cells = gathered(published(mechanism), layers(mechanism), family, by)
    found = complaints(cells, promise(family, mechanism))
    assert not found, "\n".join([family.sql(by), *found])


@pytest.mark.skipif(session_class() is None, reason="the query layer does not exist yet")
@pytest.mark.parametrize("name", FAMILIES)
def test_one_release_asked_alone_answers_as_in_the_group(
    published: Publish, layers: Callable[[str], list[Asks]], name: str
) -> None:
    """GROUP BY rep stands for separate releases: WHERE rep = r must say the same."""
    family = FAMILIES[name]
    asker = layers("uniform")[0]
    together = {line[0]: line[1:] for line in asker.ask(family, ("rep",))}
    for rep in (0, COPIES // 2):
        where = f"rep = {rep}" + (f" AND ({family.where})" if family.where else "")
        (alone,) = asker.ask(replace(family, where=where), PLAIN)
        wanted = np.array(together[rep], dtype=np.float64)
        np.testing.assert_allclose(np.array(alone, dtype=np.float64), wanted, rtol=1e-9)


@pytest.mark.skipif(session_class() is None, reason="the query layer does not exist yet")
@pytest.mark.parametrize("mechanism", ["uniform", "replace", "finegrain", "matrix", "compacted"])
def test_linear_answers_are_those_of_the_formula(
    published: Publish, layers: Callable[[str], list[Asks]], mechanism: str
) -> None:
    made = published(mechanism)
    hand = ByHand(made.paths[0])
    for name, by in planned(mechanism):
        if name not in LINEAR_NAMES:
            continue
        family = FAMILIES[name]
        got = gathered(made, layers(mechanism), family, by)
        for key, cell in gathered(made, [hand], family, by).items():
            scale = 1e-9 * np.abs(cell.values).max()
            np.testing.assert_allclose(got[key].values, cell.values, rtol=1e-9, atol=scale)
            there = ~np.isnan(cell.stderr) & ~np.isnan(got[key].stderr)
            np.testing.assert_allclose(got[key].stderr[there], cell.stderr[there], rtol=1e-6)


# --- the oracle itself ---------------------------------------------------------------


@pytest.mark.parametrize("mechanism", [m for m in MECHANISMS if m not in WHOLE])
def test_the_formula_by_hand_keeps_its_promise(published: Publish, mechanism: str) -> None:
    """Publishing and judging are right: section 3 row by row passes, for every linear family."""
    made = published(mechanism)
    hand = ByHand(made.paths[0])
    wrong = []
    for name, by in planned(mechanism):
        family = FAMILIES[name]
        if name in LINEAR_NAMES:
            found = complaints(gathered(made, [hand], family, by), promise(family, mechanism))
            wrong += [f"{name} {by}: {text}" for text in found]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("mechanism", WHOLE)
def test_whole_columns_by_hand(published: Publish, mechanism: str) -> None:
    """No bias; the error bars by hand take rows as independent, which they are not."""
    made = published(mechanism)
    askers: list[Asks] = [ByHand(path) for path in made.paths]
    for by in (PLAIN, BY_JOB):
        cells = gathered(made, askers, FAMILIES["count k=2"], by)
        found = complaints(cells, promise(FAMILIES["count k=2"], mechanism))
        assert not [text for text in found if "biased" in text]


@pytest.mark.parametrize(
    ("fault", "name", "by", "noticed"),
    [
        ("not reconstructed", "count k=1", PLAIN, "biased"),
        ("wrong retention", "count k=2", PLAIN, "biased"),
        ("wrong retention", "sum public", BY_JOB, "biased"),
        ("wrong retention", "count filter", BY_DISEASE, "biased"),
        ("small stderr", "sum sensitive", PLAIN, "of the variance"),
        ("small stderr", "count k=1", BY_JOB, "cover"),
    ],
)
def test_an_estimator_that_is_wrong_is_caught(
    published: Publish, fault: str, name: str, by: tuple[str, ...], noticed: str
) -> None:
    made = published("uniform")
    cells = gathered(made, [ByHand(made.paths[0], fault)], FAMILIES[name], by)
    found = complaints(cells, promise(FAMILIES[name], "uniform"))
    assert any(noticed in text for text in found)


def test_the_judge_speaks_of_what_is_missing() -> None:
    rng = np.random.default_rng(1)
    values, ones = rng.normal(10, 1, 500), np.ones(500)
    wanted = FAMILIES["count k=1"].promise

    def judged(**changed: object) -> list[str]:
        given = {"values": values, "stderr": ones, "low": values - 1.96, "high": values + 1.96}
        cell = Estimates(10.0, **{**given, "reliable": ones, **changed})  # type: ignore[arg-type]
        return complaints({"all": cell}, wanted)

    assert judged() == []
    assert "NULL" in judged(values=np.where(np.arange(500) < 50, np.nan, values))[0]
    assert "reliable" in judged(reliable=np.zeros(500))[0]
    assert "cover" in judged(low=values - 1, high=values + 1)[0]
    assert "cover" in judged(low=values - 9, high=values + 9)[0]
    assert judged(low=np.full(500, np.nan), high=values + 1.645) == []
    assert "variance" in judged(stderr=1.3 * ones)[0]
