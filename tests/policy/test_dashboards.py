"""Ordinary dashboards: their SQL is valid, their vectors are the planner's, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from privsql.fronts.demo import questions as demo
from privsql.policy.account import Account, Limits
from privsql.policy.personal import PersonalGroup
from privsql.session.session import Session
from tests.policy.dashboards.attempts import ATTACKS
from tests.policy.dashboards.boards import BOARDS, drilldown, slider
from tests.policy.dashboards.cells import Cells, Tally, asked
from tests.policy.dashboards.measuring import (
    LIMITS,
    Board,
    adult_release,
    attacked,
    clinic_release,
    costs,
    measured,
    report,
    tables,
)
from tests.policy.dashboards.people import People
from tests.sizes import sized

ROWS = 20_000
PAGE = Path(__file__).parents[2] / "docs" / "threat-model.md"


@pytest.fixture(scope="module")
def release() -> Iterator[Path]:
    with clinic_release(ROWS) as path:
        yield path


@pytest.fixture(scope="module")
def people(release: Path) -> People:
    return People.of(release)


def test_dashboards_have_the_size_that_the_page_says() -> None:
    for name, board in BOARDS.items():
        statements = [each.sql for each in board()]
        assert 150 <= len(statements) <= 420, name
        assert len(set(statements)) == len(statements), name


def test_the_page_lists_them() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for name, board in BOARDS.items():
        assert f"| {name} | {len(board())} | " in page, name


@pytest.mark.soak
def test_the_page_shows_what_is_measured() -> None:
    """The tables of the page, to the letter: some minutes."""
    lines: list[str] = []
    report(lines.append, BOARDS, demo.ROWS)
    assert "\n".join(lines) in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", BOARDS)
def test_cells_are_those_of_the_disclosure_check(release: Path, people: People, name: str) -> None:
    """Some statements of each dashboard, asked: as many cells, and the same are personal."""
    cells = Cells(people, people.functions())
    statements = BOARDS[name]()
    with closing(Session(release)) as session:
        for statement in statements[3 :: len(statements) // sized(6, 40)]:
            tally = Tally()
            asked(Account(cells.functions, Limits(0.99, 0.99)), cells.of(statement), tally)
            try:
                found = session.run(statement.sql).personal
            except PersonalGroup:
                assert tally.personal > 0, statement.sql
            else:
                assert (found.cells, found.refused) == (tally.cells, tally.personal), statement.sql


def test_the_dashboard_with_a_slider_is_answered_whole(people: People) -> None:
    found = measured("overview", people, slider(["district", "age", "job"]), [Limits()])
    assert found.tallies == (Tally(cells=360),)


def test_a_cap_that_was_met_is_named() -> None:
    found = Board("overview", 1, 1, 0, (Tally(cells=9, close=3, cap="functions"),))
    assert costs([found], [Limits()]).endswith("| overview | 1 | 9 | 0 | 3 (cap on functions) |")


@pytest.mark.soak
def test_dashboards_of_a_clinic_of_full_size_meet_no_cap() -> None:
    with clinic_release() as path:
        people = People.of(path)
    for name, board in BOARDS.items():
        found = measured(name, people, board(), [Limits()])
        assert found.tallies[0].cap == "", (name, found.held)


def test_lower_limits_refuse_more_of_a_drill_down(people: People) -> None:
    """Not cell by cell: what is refused leaves room for others."""
    found = measured("drill-down", people, drilldown()[:40], LIMITS[::2])
    refused = [tally.close for tally in found.tallies]
    assert 0 < refused[0] < refused[-1] < found.tallies[0].cells
    assert len({tally.personal for tally in found.tallies}) == 1


def test_attacks_end_at_the_limits(people: People) -> None:
    """No attack has a smaller error than the limits allow, and theory is what draws say."""
    limits, draws = Limits(), sized(400, 4_000)
    found = attacked(people, limits, sized(2, 9), draws)
    assert set(found) == set(ATTACKS)
    for kind, all_reached in found.items():
        most = limits.any if kind == "part" else limits.total
        for reached in all_reached:
            assert 0 < reached.total <= most + 1e-9, kind
            # A ratio of two roots of means of squares, each of `draws` squared normal numbers.
            assert reached.ratio == pytest.approx(reached.theory, rel=5 / np.sqrt(draws)), kind
            assert reached.refused > 0, kind
    best = min(found["padding"], key=lambda reached: reached.theory)
    assert best.theory == pytest.approx(1 / np.sqrt(limits.total), rel=0.02)


def test_all_tables_of_a_census_cost_one_user_many_cells() -> None:
    """One- and two-way tables by merged values; at one limit of .9 ``test_adult`` has 18 of 89."""
    limits = [Limits(0.9, 0.9), Limits()]
    with adult_release() as path:
        found = measured("ADULT", People.of(path, labels=True), tables(labels=True)[:10], limits)
    assert [(t.cells, t.personal, t.close) for t in found.tallies] == [(89, 4, 14), (89, 4, 59)]


@pytest.mark.parametrize(("share", "left"), [(0.85, 0), (0.95, 1)])
def test_groups_that_are_not_protected_are_counted(people: People, share: float, left: int) -> None:
    sizes = np.bincount(people.atoms.groups, people.atoms.rows)
    largest = float(sizes.max() / sizes.sum())
    assert people.left_out(0.9)["groups"] == 0
    found = people.left_out(largest * (0.9 / share))
    assert found["groups"] == left
    assert found["rows"] == left * sizes.max()
