"""Estimates are unbiased and their error bars are true, by simulation, for every mechanism.

One raw table is published hundreds of times (:mod:`tests.oracle.releases`); what is asked of
each mechanism and what is promised of each aggregate stands in :mod:`tests.oracle.families`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from privsql.release.store import open_release
from privsql.session.session import Session
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
from tests.oracle.forms import Tally, compare_forms
from tests.oracle.judging import Estimates, complaints, coverage
from tests.oracle.releases import MECHANISMS, WHOLE, Releases, misread, redrawn, releases
from tests.sizes import sized

COPIES = sized(200, 500)
SAMPLES = 500  # of a weighted release
DRAWN = sized(200, 300)  # of columns that are perturbed as a whole, in memory
FILES = 2  # of those as files

Publish = Callable[[str], Releases]


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Publish:
    """Publish each mechanism once, when it is first asked for."""
    made: dict[str, Releases] = {}

    def get(mechanism: str) -> Releases:
        if mechanism not in made:
            folder = tmp_path_factory.mktemp(mechanism)
            copies = FILES if mechanism in WHOLE else SAMPLES if mechanism == "sps" else COPIES
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


@pytest.fixture(scope="module")
def drawn(published: Publish) -> Callable[[str], tuple[Releases, list[Asks]]]:
    """A column perturbed as a whole many times, with someone who answers each by hand."""
    made: dict[str, tuple[Releases, list[Asks]]] = {}

    def get(mechanism: str) -> tuple[Releases, list[Asks]]:
        if mechanism not in made:
            first = published(mechanism)
            manifest = open_release(first.paths[0]).manifest
            askers: list[Asks] = [
                ByHand(*redrawn(manifest, first.raw, mechanism, np.random.default_rng([7, number])))
                for number in range(DRAWN)
            ]
            made[mechanism] = Releases(mechanism, (), DRAWN, first.raw), askers
        return made[mechanism]

    return get


CASES = [(mechanism, *case) for mechanism in MECHANISMS for case in planned(mechanism)]
ROW_BY_ROW = [case for case in CASES if case[0] not in WHOLE]
AS_A_WHOLE = [case for case in CASES if case[0] in WHOLE]


@pytest.mark.parametrize(("mechanism", "name", "by"), ROW_BY_ROW)
def test_estimates_and_their_error_bars(
    published: Publish,
    layers: Callable[[str], list[Asks]],
    mechanism: str,
    name: str,
    by: tuple[str, ...],
) -> None:
    family = FAMILIES[name]
    cells = gathered(published(mechanism), layers(mechanism), family, by)
    held, reliable = coverage(cells)
    print(f"{mechanism}, {name} {by}: {held:.1%} covered, {reliable:.0%} reliable")
    found = complaints(cells, promise(family, mechanism))
    assert not found, "\n".join([family.sql(by), *found])


@pytest.mark.parametrize("mechanism", ["uniform", "sps", "compacted"])
def test_every_scan_form_says_so(published: Publish, mechanism: str) -> None:
    """The answers that are unbiased above are those of every form that can give them."""
    session, tally = Session(published(mechanism).paths[0]), Tally()
    linear = [case for case in planned(mechanism) if case[0] in LINEAR_NAMES]
    for name, by in linear[:: sized(3, 1)]:
        compare_forms(tally, session, FAMILIES[name].sql(("rep", *by)), ordered=False)
    session.close()
    print(tally)
    assert not tally.failures, str(tally)
    assert min(tally.answered[form] for form in ("states", "weights")) > 1


@pytest.mark.parametrize(("mechanism", "name", "by"), AS_A_WHOLE)
def test_columns_perturbed_as_a_whole(
    drawn: Callable[[str], tuple[Releases, list[Asks]]],
    mechanism: str,
    name: str,
    by: tuple[str, ...],
) -> None:
    """The formula by hand; the query layer's answers are the same (see below)."""
    family = FAMILIES[name]
    made, askers = drawn(mechanism)
    cells = gathered(made, askers, family, by)
    held, _ = coverage(cells)
    print(f"{mechanism}, {name} {by}: {held:.1%} covered")
    found = complaints(cells, promise(family, mechanism))
    assert not found, "\n".join([family.sql(by), *found])


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


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_linear_answers_are_those_of_the_formula(
    published: Publish, layers: Callable[[str], list[Asks]], mechanism: str
) -> None:
    made = published(mechanism)
    hands: list[Asks] = [ByHand.of(path) for path in made.paths]
    for name, by in planned(mechanism):
        if name not in LINEAR_NAMES:
            continue
        family = FAMILIES[name]
        got = gathered(made, layers(mechanism), family, by)
        for key, cell in gathered(made, hands, family, by).items():
            scale = 1e-9 * np.abs(cell.values).max()
            np.testing.assert_allclose(got[key].values, cell.values, rtol=1e-9, atol=scale)
            there = ~np.isnan(cell.stderr) & ~np.isnan(got[key].stderr)
            assert there.mean() > 0.9
            np.testing.assert_allclose(got[key].stderr[there], cell.stderr[there], rtol=1e-6)


# --- the oracle itself ---------------------------------------------------------------


@pytest.mark.parametrize("mechanism", [m for m in MECHANISMS if m not in WHOLE])
def test_the_formula_by_hand_keeps_its_promise(published: Publish, mechanism: str) -> None:
    """Publishing and judging are right: section 3 row by row passes, for every linear family."""
    made = published(mechanism)
    hand = ByHand.of(made.paths[0])
    wrong = []
    for name, by in planned(mechanism):
        if name in LINEAR_NAMES:
            found = _judged(made, hand, name, by)
            wrong += [f"{name} {by}: {text}" for text in found]
    assert not wrong, "\n".join(wrong)


def _judged(made: Releases, hand: ByHand, name: str, by: tuple[str, ...]) -> list[str]:
    """By hand nothing is called unreliable: small cells are no complaint."""
    family = FAMILIES[name]
    wanted = replace(promise(family, made.mechanism), coverage=(0.91, 0.99))
    return complaints(gathered(made, [hand], family, by), wanted)


@pytest.mark.parametrize(
    ("fault", "name", "by", "noticed"),
    [
        ("not reconstructed", "count k=1", PLAIN, "biased"),
        ("not reconstructed", "count filter", BY_DISEASE, "biased"),
        ("small stderr", "sum sensitive", PLAIN, "of the variance"),
        ("small stderr", "count k=1", BY_JOB, "cover"),
    ],
)
def test_an_estimator_that_is_wrong_is_caught(
    published: Publish, fault: str, name: str, by: tuple[str, ...], noticed: str
) -> None:
    made = published("uniform")
    found = _judged(made, ByHand.of(made.paths[0], fault), name, by)
    assert any(noticed in text for text in found)


@pytest.mark.parametrize("retention", [0.48, 0.52])
@pytest.mark.parametrize("who", ["layer", "hand"])
def test_a_retention_that_is_slightly_wrong_is_caught(
    published: Publish, tmp_path: Path, retention: float, who: str
) -> None:
    """Ages were kept at 0.5: who believes 0.52 is 7.7 standard errors off, 0.48 7.1."""
    made = published("uniform")
    wrong = misread(made.paths[0], tmp_path, "age", retention)
    asker: Asks = LayerAsks(wrong) if who == "layer" else ByHand.of(wrong)
    family = FAMILIES["count middle"]
    found = complaints(gathered(made, [asker], family, PLAIN), promise(family, "uniform"))
    assert any("biased" in text for text in found)


@pytest.mark.parametrize("name", ["count k=1", "count not in", "sum sensitive"])
@pytest.mark.parametrize("factor", [1 / 1.15, 1.15])
def test_a_standard_error_wrong_by_15_percent_is_caught(
    published: Publish, layers: Callable[[str], list[Asks]], name: str, factor: float
) -> None:
    """The layer's own answers with bars that are too short or too long."""
    family = FAMILIES[name]
    cells = gathered(published("uniform"), layers("uniform"), family, BY_JOB)
    spoilt = {key: _stretched(cell, factor) for key, cell in cells.items()}
    wanted = promise(family, "uniform")
    assert not complaints(cells, wanted)
    assert any("of the variance" in text for text in complaints(spoilt, wanted))


def _stretched(cell: Estimates, factor: float) -> Estimates:
    return replace(
        cell,
        stderr=cell.stderr * factor,
        low=cell.values + (cell.low - cell.values) * factor,
        high=cell.values + (cell.high - cell.values) * factor,
    )


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
