"""Histories of formats 1 and 2: nothing in them is forgotten."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import duckdb
import numpy as np
import pytest

from privsql.errors import Error
from privsql.fronts.cli.conversion import convert
from privsql.policy.history import History, HistoryError
from privsql.session.gate import Served
from privsql.session.session import Session
from privsql.sql.disclosure.group_ranges import SALT, secret_number
from privsql.sql.nodes import sql
from tests.policy import republished
from tests.sql.clinic import publish

GROUP = "job = 'eng' AND gender = 'F' AND favourite = 'flu'"
CHEAP = "SELECT COUNT(*) FROM patients WHERE disease = 'flu' AND cost < 16"
# The same without one group: neither is refused alone.
WITHOUT = f"{CHEAP} AND NOT ({GROUP})"


def effective_rank(former: bool) -> float:
    """(sum of eigenvalues)^2 / (sum of their squares) of the covariance of a row's numbers."""
    numbers = ", ".join(sql(secret_number(b, former)) for b in range(16))
    with duckdb.connect() as con:
        con.execute("CREATE TABLE t AS SELECT range AS x FROM range(50000)")
        found = con.execute(
            f"SELECT {numbers} FROM t AS t",
            {SALT: 163_540_924_519_385},
        ).fetchnumpy()
    values = np.linalg.eigvalsh(np.cov(np.array(list(found.values()))))
    return float(values.sum() ** 2 / (values**2).sum())


def test_the_secret_numbers_of_a_row_are_independent() -> None:
    assert effective_rank(former=False) > 15.9
    assert effective_rank(former=True) < 4  # why format 1 had to go


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish(tmp_path_factory.mktemp("former"), 0.5, policy="refuse", least=10)


def ask(
    release: Path,
    history: Path,
    user: str,
    *questions: str,
    formats: tuple[bool, ...] | None = None,
) -> list[str]:
    """Codes of refusals; ``formats`` are those of which the user is taken to have entries."""
    with History(history) as kept:
        session = Session(release, served=Served(user, kept))
        if formats is not None:
            session._gate._formers = formats
        found = []
        for question in questions:
            try:
                session.run(question)
                found.append("")
            except Error as error:
                found.append(error.code)
        session.close()
    return found


def mark(history: Path, version: int) -> None:
    """As a file of an earlier format: its entries alone."""
    connection = sqlite3.connect(history)
    for table in ("states", "answers", "emptied", "releases"):
        connection.execute(f"DROP TABLE {table}")
    connection.execute(f"PRAGMA user_version = {version}")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


@pytest.fixture(params=[1, 2])
def earlier(release: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A history in which ann was answered with a measure, and bob without one."""
    path = tmp_path / "history"
    formats = (request.param == 1,)
    assert ask(release, path, "ann", CHEAP, formats=formats) == [""]
    everybody = CHEAP.replace(" AND cost < 16", "")
    assert ask(release, path, "bob", everybody, formats=formats) == [""]
    mark(path, request.param)
    return path


def entries(history: Path, table: str = "answered") -> list[str]:
    connection = sqlite3.connect(history)
    found = connection.execute(f"SELECT account FROM {table} ORDER BY id").fetchall()
    connection.close()
    return [user for (user,) in found]


def test_earlier_formats_are_converted_before_they_are_used(earlier: Path) -> None:
    with pytest.raises(HistoryError, match=r"format [12]") as seen:
        History(earlier)
    assert "privsql convert" in str(seen.value)
    before = entries(earlier)
    assert "to 3" in str(convert(earlier))
    assert entries(earlier) == before == ["ann", "bob"]


def test_what_was_answered_in_an_earlier_format_still_counts(release: Path, earlier: Path) -> None:
    convert(earlier)
    assert ask(release, earlier, "ann", WITHOUT) == ["difference"]
    # Without a measure as well: all of a release's vectors have the same coordinates.
    assert ask(release, earlier, "bob", WITHOUT.replace("cost < 16 AND ", "")) == ["difference"]
    assert ask(release, earlier, "eve", WITHOUT) == [""]


def test_answers_after_the_conversion_are_in_both_accounts(release: Path, earlier: Path) -> None:
    convert(earlier)
    more = CHEAP.replace("16", "20")
    assert ask(release, earlier, "ann", more) == [""]
    assert ask(release, earlier, "eve", more) == [""]
    assert entries(earlier) == ["ann", "bob", "ann"]
    assert entries(earlier, "answers") == ["ann", "eve"]
    for user in ("ann", "eve"):
        assert ask(release, earlier, user, f"{more} AND NOT ({GROUP})") == ["difference"]


def test_entries_that_cannot_be_evaluated_anew_stop_the_account(tmp_path: Path) -> None:
    wards = republished.publish(tmp_path)
    history = tmp_path / "history"
    assert ask(wards, history, "ann", republished.CHEAP, formats=(False,)) == [""]
    mark(history, 2)
    convert(history)
    # The release was served once since, so its name is known.
    assert ask(wards, history, "eve", republished.TOTAL) == [""]
    republished.publish(tmp_path)
    assert ask(wards, history, "ann", republished.TOTAL) == ["history"]
    assert ask(wards, history, "eve", republished.TOTAL) == [""]
    with History(history) as kept:
        assert kept.clear("ann", "wards") == 1
    assert ask(wards, history, "ann", republished.TOTAL) == [""]
