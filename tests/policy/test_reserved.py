"""Statements that are always answered, and how close an account is."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from click.testing import CliRunner

from privsql.errors import Error, NotSupportedError, ProgrammingError
from privsql.fronts.cli.main import main
from privsql.fronts.pgwire.releases import House
from privsql.policy.account import Caps
from privsql.policy.history import History
from privsql.policy.personal import CAPS, TooClose
from privsql.session.gate import Served
from privsql.session.session import Session
from tests.policy.republished import CHEAP, FLU, GROUP, TOTAL, WITHOUT, ask, publish


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


@pytest.mark.parametrize(
    ("text", "words"),
    [(f"{TOTAL};\n{WITHOUT};", WITHOUT), (None, "cannot be read as SQL statements")],
)
def test_a_file_of_statements_that_cannot_be_kept_stops_the_command(
    release: Path, tmp_path: Path, text: str | None, words: str
) -> None:
    """As ``privsql serve --always`` reads it; it ends before it listens."""
    always = tmp_path / "dashboards.sql"
    if text is not None:
        always.write_text(text, encoding="utf-8")
    arguments = ["serve", release, "--always", always, "--listen", "127.0.0.1:0"]
    state = {"XDG_STATE_HOME": str(tmp_path)}
    done = CliRunner().invoke(main, [str(each) for each in arguments], env=state)
    assert done.exit_code == 1
    assert words in " ".join(done.stderr.split())


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


TOWNS = """
    SELECT 'g' || least(i // 100, 20) AS town, 'x' AS shift, i % 50 AS pay,
           (['flu', 'none'])[1 + i % 2] AS ill FROM range(4000) AS r(i)
"""


def test_a_user_is_warned_before_the_account_runs_dry(tmp_path: Path) -> None:
    """From 80 and from 95 of 100 of a limit on, once each; a size is said, never which group."""
    release = publish(tmp_path, TOWNS)
    with History(None) as history:
        session = Session(release, served=Served("ann", history))

        def told(condition: str) -> list[str]:
            notices = session.run(f"SELECT COUNT(*) {FLU} AND ({condition})").notices
            return [notice.text for notice in notices if notice.code == "account"]

        assert told("shift = 'x'") == []
        # The 100 rows of one town and 50 of another, 100 / 150 of .8; then 64 of a third as well.
        (first,) = told("town = 'g0' OR town = 'g1' AND pay < 25")
        assert "83%" in first
        (second,) = told("town = 'g0' OR town = 'g2' AND pay < 32")
        assert "98%" in second
        assert "SHOW privsql.account" in second
        assert told("town = 'g5' OR town = 'g6'") == []
        with pytest.raises(TooClose):
            told("town = 'g0' OR town = 'g4' AND pay < 32")
        (shown,) = session.run("SHOW privsql.account").table.to_pylist()
        session.close()
    assert shown["total"] == pytest.approx(0.977, abs=2e-3)
    assert set(shown) == {"table", "answers", "any", "total", "group_rows"}
    assert shown["group_rows"] == "100 to 999"


@pytest.mark.parametrize("cap", ["functions", "answers", "groups"])
def test_at_a_cap_what_follows_is_answered_and_the_cap_is_named(
    release: Path, monkeypatch: pytest.MonkeyPatch, cap: str
) -> None:
    by_shift = f"SELECT shift, COUNT(*) {FLU} AND pay {{}} 40 GROUP BY shift"
    with History(None) as history:
        session = Session(release, served=Served("ann", history))
        assert session.run(by_shift.format("<")).notices == ()
        assert session.run(f"SELECT shift, COUNT(*) {FLU} GROUP BY shift").notices == ()
        (table,) = history._tables.values()
        functions = table.base.functions
        if cap == "functions":
            functions.most_bytes = functions.held
        else:
            (known,) = history._known.values()
            caps = {"answers": Caps(answers=4), "groups": Caps(watched=0)}[cap]
            monkeypatch.setattr(known.accounts[0]._state, "caps", caps)
        # What follows: the complement, which is a function of its own, and the same once more.
        for again in (by_shift.format(">="), by_shift.format("<"), CHEAP):
            found = session.run(again)
            assert found.notices == ()
            assert None not in [v for row in found.table.to_pylist() for v in row.values()]
        wide = f"SELECT town, COUNT(*) {FLU} AND pay < 30 GROUP BY town"
        notices = {notice.code: notice.text for notice in session.run(wide).notices}
        assert CAPS[cap] in notices["account-cap"]
        assert "cannot be compared with them" in notices["difference"]
        with pytest.raises(TooClose, match=CAPS[cap]):
            session.run(f"{TOTAL} AND pay < 30 AND town = 'a'")
        session.close()


def test_embedded_use_has_no_account(release: Path) -> None:
    session = Session(release)
    with pytest.raises(NotSupportedError, match="no account"):
        session.run("SHOW privsql.account")
    session.close()
