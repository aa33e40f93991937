"""Histories of format 1: their secret numbers depended on each other, and nothing is forgotten."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import numpy as np
import pytest

from privsql.errors import Error
from privsql.fronts.cli.conversion import convert
from privsql.policy import vectors
from privsql.policy.history import History, HistoryError
from privsql.session.gate import Served
from privsql.session.session import Session
from privsql.sql.disclosure import group_ranges
from privsql.sql.disclosure.group_ranges import SALT, secret_number
from privsql.sql.nodes import sql
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


def ask(release: Path, history: Path, user: str, *questions: str) -> list[str]:
    with History(history) as kept:
        session = Session(release, served=Served(user, kept))
        found = []
        for question in questions:
            try:
                session.run(question)
                found.append("")
            except Error as error:
                found.append(error.code)
        session.close()
    return found


@contextmanager
def first_format() -> Iterator[None]:
    """What was done when format 1 was written."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group_ranges, "secret_number", lambda b, former: secret_number(b, True))
        patch.setattr(vectors, "INDEPENDENT", "")
        yield


def mark(history: Path, version: int) -> None:
    connection = sqlite3.connect(history)
    connection.execute(f"PRAGMA user_version = {version}")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


@pytest.fixture
def earlier(release: Path, tmp_path: Path) -> Path:
    """A history of format 1 in which ann was answered with a measure, and bob without one."""
    path = tmp_path / "history"
    with first_format():
        assert ask(release, path, "ann", CHEAP) == [""]
        assert ask(release, path, "bob", CHEAP.replace(" AND cost < 16", "")) == [""]
    mark(path, 1)
    return path


def digests(history: Path) -> list[tuple[str, str]]:
    connection = sqlite3.connect(history)
    found = connection.execute("SELECT account, atoms FROM answered ORDER BY id").fetchall()
    connection.close()
    return found


def test_format_1_is_converted_before_it_is_used(earlier: Path) -> None:
    with pytest.raises(HistoryError, match="format 1") as seen:
        History(earlier)
    assert "privsql convert" in str(seen.value)
    before = digests(earlier)
    assert "format 1 to 2" in str(convert(earlier))
    assert digests(earlier) == before


def test_what_was_answered_in_format_1_still_counts(release: Path, earlier: Path) -> None:
    convert(earlier)
    assert ask(release, earlier, "ann", WITHOUT) == ["difference"]
    # Without a measure as well: all of a release's vectors have the same coordinates.
    assert ask(release, earlier, "bob", WITHOUT.replace("cost < 16 AND ", "")) == ["difference"]
    assert ask(release, earlier, "eve", WITHOUT) == [""]


def test_old_and_new_coordinates_never_meet(release: Path, earlier: Path) -> None:
    """An answer after the conversion is in both accounts, each in its own coordinates."""
    convert(earlier)
    more = CHEAP.replace("16", "20")
    old = digests(earlier)
    assert ask(release, earlier, "ann", more) == [""]
    assert ask(release, earlier, "eve", more) == [""]
    added = digests(earlier)[len(old) :]
    assert [user for user, _ in added] == ["ann", "ann", "eve"]
    assert added[0] == old[0]
    assert added[1][1] == added[2][1] != old[0][1]
    # And what was answered since is known in either.
    assert ask(release, earlier, "ann", f"{more} AND NOT ({GROUP})") == ["difference"]
    assert ask(release, earlier, "eve", f"{more} AND NOT ({GROUP})") == ["difference"]
