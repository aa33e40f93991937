"""Answers that are given again: to any connection of their user, and to nobody else."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from privsql.session.session import Session
from tests.fronts.pgwire.conftest import Running, kinds, one, serving
from tests.sql.clinic import publish

SQL = "SELECT disease, count(*) AS n FROM patients GROUP BY disease ORDER BY disease"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements that were answered anew."""
    found: list[str] = []
    answer = Session._run

    def noting(session: Session, sql: str, *given: object) -> object:
        found.append(sql)
        return answer(session, sql, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(Session, "_run", noting)
    return found


@pytest.fixture
def again(tmp_path: Path) -> Iterator[tuple[Running, Path]]:
    path = publish(tmp_path, 0.5)
    served = tmp_path / "served"
    served.mkdir()
    with serving([path], served) as running:
        yield running, path


def cells(running: Running, user: str, sql: str = SQL) -> list[list[bytes | None]]:
    """What a new connection of somebody is told."""
    client = running.client(user=user)
    found = [message.cells for message in client.query(sql) if message.kind == "D"]
    client.close()
    return found


def test_every_session_of_a_user_gives_what_was_answered_and_no_other_user_gets_it(
    again: tuple[Running, Path], asked: list[str]
):
    running, path = again
    first = cells(running, "ann")
    assert cells(running, "ann") == first
    assert len(asked) == 1
    # Two sessions of one user: the other has never heard the question.
    version = running.house.versions()["patients"]
    with running.house.lease(version, "ann"), running.house.lease(version, "ann") as other:
        assert other.remembers(SQL) is False  # its text in DuckDB's dialect is another
        text = next(iter(asked))
        assert other.remembers(text)
        assert other.run(text).table.num_rows == len(first)
    assert len(asked) == 1
    cells(running, "bob")
    assert len(asked) == 2
    # Other settings, another statement: another question.
    client = running.client(user="ann")
    client.query("SET privsql.confidence_level = 0.5")
    client.query(SQL)
    assert len(asked) == 3
    # Published again: another version.
    other_folder = path.parent / "other"
    other_folder.mkdir()
    shutil.copyfile(publish(other_folder, 0.5, seed=8), path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)
    assert running.refresh() == ["patients"]
    assert cells(running, "ann") != first
    assert len(asked) == 4


def test_a_remembered_answer_is_logged_and_needs_no_thread(
    again: tuple[Running, Path], asked: list[str]
):
    running, _ = again
    client = running.client()
    before = client.query(SQL)
    running.server._desk.asking.close(wait=True)  # nobody answers any more
    assert kinds(client.query(SQL)) == kinds(before)
    assert len(asked) == 1
    assert one(client.query("SELECT count(*) FROM patients"), "E").fields["C"] == "57P01"
    lines = [entry.statement for entry in running.entries() if entry.decision == "answered"]
    assert lines == [SQL, SQL]
