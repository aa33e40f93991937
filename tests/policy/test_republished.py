"""Accounts belong to the name of a served table: they outlive files, keys and rows."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from privsql.policy.history import History, HistoryError
from privsql.session.gate import Served
from privsql.session.session import Session
from tests.policy.republished import (
    CHEAP,
    CHEAP_WITHOUT,
    FLU,
    GROUP,
    ROWS,
    TOTAL,
    WITHOUT,
    ask,
    join,
    publish,
)
from tests.sizes import sized


@pytest.fixture
def history(tmp_path: Path) -> Path:
    return tmp_path / "history"


CHANGES = {
    "the same rows": ROWS,
    "rows that were added": f"{ROWS} UNION ALL SELECT * FROM ({ROWS}) LIMIT 30",
    "rows that have left": f"SELECT * FROM ({ROWS}) WHERE pay <> 17",
    "some of both": f"SELECT * FROM ({ROWS}) WHERE pay <> 17 UNION ALL SELECT 'd', 'x', 20, 'flu'",
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(("first", "second"), [(TOTAL, WITHOUT), (CHEAP, CHEAP_WITHOUT)])
def test_what_was_refused_stays_refused(
    tmp_path: Path, history: Path, change: str, first: str, second: str
) -> None:
    release = publish(tmp_path)
    assert ask(release, history, first, second) == ["", "difference"]
    publish(tmp_path, CHANGES[change])
    assert ask(release, history, second, user="eve") == [""]
    assert ask(release, history, second) == ["difference"]
    # And once more, with another server.
    assert ask(release, history, first, second)[1] == "difference"


def test_a_batch_that_is_appended_is_not_told_by_totals(tmp_path: Path, history: Path) -> None:
    release = publish(tmp_path)
    assert ask(release, history, TOTAL, CHEAP) == ["", ""]
    batch = " UNION ALL ".join("SELECT 'c', 'x', 30, 'flu'" for _ in range(5))
    publish(tmp_path, f"{ROWS} UNION ALL {batch}")
    # The total before and after: their difference is five people of one group.
    assert ask(release, history, TOTAL) == ["difference"]
    assert ask(release, history, TOTAL, user="eve") == [""]
    assert ask(release, history, f"{TOTAL} AND town <> 'c'") == [""]


FIVE = " UNION ALL ".join("SELECT 'c' AS town, 'x' AS shift, 30 AS pay, 'flu' AS ill"
                          for _ in range(5))  # fmt: skip


def test_a_batch_of_five_that_joins_is_not_told_by_totals(tmp_path: Path, history: Path) -> None:
    """Appended, not published again: before and after, by each way to ask for everybody."""
    release = publish(tmp_path)
    assert ask(release, history, TOTAL, CHEAP) == ["", ""]
    assert join(release, FIVE) == 5
    by_shift = f"SELECT shift, COUNT(*) AS n {FLU} GROUP BY shift"
    for everybody in (TOTAL, f"{TOTAL} AND pay < 1000", f"{CHEAP} OR ill = 'flu' AND pay >= 40"):
        assert ask(release, history, everybody) == ["difference"]
    with History(history) as kept:
        session = Session(release, served=Served("ann", kept))
        cells = {row["shift"]: row["n"] for row in session.run(by_shift).table.to_pylist()}
        session.close()
    # Both cells together are what the total had, and five more.
    assert sorted(n is None for n in cells.values()) == [False, True]
    assert ask(release, history, TOTAL, user="eve") == [""]


def test_what_was_refused_stays_refused_whatever_happens_to_the_file(
    tmp_path: Path, history: Path
) -> None:
    """Published again twice, rows appended between, and a new server each time."""
    release = publish(tmp_path)
    assert ask(release, history, TOTAL, CHEAP, WITHOUT) == ["", "", "difference"]
    changes = [
        lambda: join(release, "SELECT 'a' AS town, 'y' AS shift, 20 AS pay, 'none' AS ill"),
        lambda: publish(tmp_path),
        lambda: join(release, FIVE),
        lambda: publish(tmp_path, f"SELECT * FROM ({ROWS}) WHERE pay <> 17"),
    ]
    for change in changes:
        change()
        assert ask(release, history, WITHOUT, CHEAP_WITHOUT) == ["difference", "difference"]


def test_people_who_left_together_are_not_told_by_totals(tmp_path: Path, history: Path) -> None:
    batch = " UNION ALL ".join("SELECT 'c', 'x', 30, 'flu'" for _ in range(5))
    release = publish(tmp_path, f"{ROWS} UNION ALL {batch}")
    assert ask(release, history, TOTAL) == [""]
    publish(tmp_path)
    assert ask(release, history, TOTAL) == ["difference"]
    assert ask(release, history, TOTAL, user="eve") == [""]


def test_a_group_that_arrives_is_not_told_by_totals(tmp_path: Path, history: Path) -> None:
    release = publish(tmp_path)
    assert ask(release, history, TOTAL) == [""]
    batch = "SELECT 'd', 'x', i % 40, 'flu' FROM range(40) AS r(i)"
    publish(tmp_path, f"{ROWS} UNION ALL {batch}")
    assert ask(release, history, TOTAL, f"{TOTAL} AND town < 'd'") == ["difference", ""]


def test_a_running_server_goes_on_with_the_account(tmp_path: Path, history: Path) -> None:
    release = publish(tmp_path)
    with History(history) as kept:
        assert ask(release, kept, TOTAL, CHEAP) == ["", ""]
        publish(tmp_path, CHANGES["rows that were added"])
        assert ask(release, kept, WITHOUT, CHEAP_WITHOUT) == ["difference", "difference"]
        publish(tmp_path, CHANGES["rows that have left"])
        assert ask(release, kept, WITHOUT, CHEAP_WITHOUT) == ["difference", "difference"]


def test_a_renamed_column_stops_the_account_until_it_is_emptied(
    tmp_path: Path, history: Path
) -> None:
    release = publish(tmp_path)
    assert ask(release, history, CHEAP) == [""]
    publish(tmp_path, f"SELECT town, shift, pay AS wage, ill FROM ({ROWS})", "wage")
    with History(history) as kept:
        session = Session(release, served=Served("ann", kept))
        with pytest.raises(HistoryError, match="renamed") as problem:
            session.run(TOTAL)
        session.close()
    assert "privsql history clear" in str(problem.value)
    assert ask(release, history, TOTAL, user="eve") == [""]
    with History(history) as kept:
        assert kept.accounts() == [("ann", "wards", 1), ("eve", "wards", 1)]
        assert kept.clear("ann", "wards") == 1
        assert kept.clear("ann", "wards") == 0
    assert ask(release, history, WITHOUT) == [""]


def test_a_running_server_sees_that_an_account_was_emptied(tmp_path: Path, history: Path) -> None:
    release = publish(tmp_path)
    with History(history) as kept:
        assert ask(release, kept, TOTAL, WITHOUT) == ["", "difference"]
        with History(history) as other:
            assert other.clear("ann", "wards") == 1
        assert ask(release, kept, WITHOUT, TOTAL) == ["", "difference"]
        with History(history) as other:
            assert other.clear("ann", "wards") == 1
        assert ask(release, kept, TOTAL, WITHOUT) == ["", "difference"]


def test_an_entry_holds_texts_with_constants_and_no_result(tmp_path: Path, history: Path) -> None:
    release = publish(tmp_path)
    with History(history) as kept:
        session = Session(release, served=Served("ann", kept))
        session.run(f"SELECT pay // 20 AS k, COUNT(*) {FLU} AND pay < ? GROUP BY 1", [55])
        session.close()
    from privsql.policy.history import _unpack

    with sqlite3.connect(history) as connection:
        (blob,) = connection.execute("SELECT vectors FROM answers").fetchone()
    connection.close()
    vectors = _unpack(blob)
    assert {asked.key for asked in vectors} == {"(0,)", "(1,)", "(2,)"}
    (text,) = {asked.text for asked in vectors}
    assert text is not None
    assert "< 55" in text
    assert "ill" not in text
    assert {tuple(asked.weights) for asked in vectors} == {(1.0,) * 6}


def test_rows_of_a_state_are_kept_once(tmp_path: Path, history: Path) -> None:
    release = publish(tmp_path)
    for user in ("ann", "bob"):
        assert ask(release, history, TOTAL, user=user) == [""]
    publish(tmp_path, CHANGES["rows that were added"])
    assert ask(release, history, f"{TOTAL} AND {GROUP.split(' AND ')[0]}") == [""]
    with sqlite3.connect(history) as connection:
        assert connection.execute("SELECT count(*) FROM states").fetchone() == (2,)
    connection.close()


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE states SET rows = zeroblob(20)",
        "DELETE FROM states",
        "UPDATE answers SET state = 'other'",
        "UPDATE answers SET vectors = zeroblob(20)",
        "UPDATE answers SET account = 'eve'",
        "DELETE FROM answers WHERE id = 1",
    ],
)
def test_damage_stops_answers(tmp_path: Path, history: Path, damage: str) -> None:
    release = publish(tmp_path)
    assert ask(release, history, TOTAL, CHEAP) == ["", ""]
    publish(tmp_path, CHANGES["rows that were added"])
    with sqlite3.connect(history) as connection:
        connection.execute(damage)
    connection.close()
    user = "eve" if "eve" in damage else "ann"
    assert ask(release, history, TOTAL, user=user) == ["history"]


# Of three wards' rows: questions with a sub-query, and without the group by what it said then.
OLD = "pay < 34.5"
BESIDE = {
    "a value": (
        f"{TOTAL} AND pay < (SELECT AVG(pay) FROM wards)",
        f"{TOTAL} AND {OLD} AND NOT ({GROUP})",
    ),
    "a list": (
        f"{TOTAL} AND pay IN (SELECT pay FROM wards GROUP BY pay ORDER BY pay LIMIT 25)",
        f"{TOTAL} AND pay <= 34 AND NOT EXISTS (SELECT 1 FROM wards AS b WHERE b.town = wards.town"
        " AND b.shift = wards.shift AND b.town = 'c' AND b.shift = 'x')",
    ),
    "a mean of each town": (
        f"{TOTAL} AND pay < (SELECT AVG(b.pay) FROM wards AS b WHERE b.shift = wards.shift)",
        f"{TOTAL} AND pay < (CASE shift WHEN 'x' THEN 34.5 ELSE 34.5 END) AND NOT ({GROUP})",
    ),
    "a joined answer": (
        "SELECT COUNT(*) FROM wards, (SELECT AVG(pay) AS mean FROM wards) AS s WHERE pay < mean AND"
        " ill = 'flu'",
        f"{TOTAL} AND {OLD} AND NOT ({GROUP})",
    ),
}


@pytest.mark.parametrize("pair", sized(["a list", "a joined answer"], list(BESIDE)))
def test_an_account_holds_what_a_sub_query_said_then(
    tmp_path: Path, history: Path, pair: str
) -> None:
    """The mean of the next publication is another one: the rows that were counted are not."""
    first, second = BESIDE[pair]
    release = publish(tmp_path)
    assert ask(release, history, first) == [""]
    more = "SELECT 'd', 'y', 55 + (i % 3)::INTEGER, 'flu' FROM range(60) AS r(i)"
    publish(tmp_path, f"{ROWS} UNION ALL {more}")
    assert ask(release, history, second) == ["difference"]
    assert ask(release, history, second, user="eve") == [""]
