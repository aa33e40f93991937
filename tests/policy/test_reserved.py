"""Statements that are always answered, and how close an account is."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from privsql.errors import Error, NotSupportedError, ProgrammingError
from privsql.fronts.pgwire.releases import House
from privsql.policy.history import History
from privsql.session.gate import Served
from privsql.session.session import Session
from tests.policy.republished import CHEAP, GROUP, TOTAL, WITHOUT, ask, publish


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish(tmp_path_factory.mktemp("reserved"))


def code(house: House, question: str, user: str = "ann") -> str:
    version = house.versions()["wards"]
    with house.lease(version, user) as session:
        try:
            session.run(question)
        except Error as problem:
            return problem.code
    return ""


def test_reserved_statements_are_never_refused(release: Path) -> None:
    with History(None) as history:
        house = House([release], history=history, always=[TOTAL, CHEAP])
        # What would make a reserved answer impossible is refused, though nothing was asked yet.
        assert code(house, WITHOUT) == "difference"
        assert [code(house, question) for question in (TOTAL, CHEAP, WITHOUT)] == [
            "",
            "",
            "difference",
        ]
        house.close()
        # What was given stays in the account when nothing is reserved any more.
        plain = House([release], history=history)
        assert code(plain, WITHOUT) == "difference"
        assert code(plain, WITHOUT, "eve") == ""
        plain.close()


def test_statements_of_the_policy_are_reserved(tmp_path: Path) -> None:
    wards = publish(tmp_path, more=f'always = ["{TOTAL}"]\n')
    with History(None) as history:
        house = House([wards], history=history)
        assert code(house, WITHOUT) == "difference"
        house.close()


@pytest.mark.parametrize(
    "always",
    [
        [f"{TOTAL} AND {GROUP}"],
        [TOTAL, WITHOUT],
        ["SELECT town, shift, COUNT(*) FROM wards WHERE ill = 'flu' GROUP BY ALL"],
        ["SELECT nothing FROM wards"],
        ["SELECT COUNT(*) FROM elsewhere"],
    ],
)
def test_a_set_that_cannot_be_kept_stops_the_server(release: Path, always: list[str]) -> None:
    with History(None) as history, pytest.raises(ProgrammingError) as problem:
        House([release], history=history, always=always)
    assert always[-1] in str(problem.value)


def test_earlier_answers_go_before_newly_reserved_ones(
    release: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with History(tmp_path / "history") as history:
        assert ask(release, history, WITHOUT) == [""]
        house = House([release], history=history, always=[TOTAL])
        with caplog.at_level(logging.WARNING, "privsql"):
            assert code(house, TOTAL) == "difference"
        assert "stay refused" in caplog.text
        assert code(house, TOTAL, "eve") == ""
        house.close()


def test_a_user_sees_how_close_the_account_is(release: Path) -> None:
    with History(None) as history:
        session = Session(release, served=Served("ann", history))
        (before,) = session.run("SHOW privsql.account").table.to_pylist()
        assert before == {
            "table": "wards",
            "answers": 0,
            "any": 0.0,
            "total": 0.0,
            "group_rows": "10 to 99",
        }
        session.run(TOTAL)
        (after,) = session.run("SHOW privsql.account").table.to_pylist()
        # Each of six groups is a sixth of the total.
        assert after["answers"] == 1
        assert after["any"] == pytest.approx(1 / 6 / 0.9, abs=1e-3)
        assert after["total"] == pytest.approx(1 / 6 / 0.8, abs=1e-3)
        outcome = session.run(
            f"{TOTAL} AND (town = 'a' AND shift = 'x' OR town = 'b' AND pay < 20)"
        )
        assert [notice.code for notice in outcome.notices if notice.code == "account"] == [
            "account"
        ]
        again = session.run(f"{TOTAL} AND shift = 'x'")
        assert not [notice for notice in again.notices if notice.code == "account"]
        session.close()


def test_embedded_use_has_no_account(release: Path) -> None:
    session = Session(release)
    with pytest.raises(NotSupportedError, match="no account"):
        session.run("SHOW privsql.account")
    session.close()
