"""The audit log of a server: what the analyst wrote, answered or not, once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from privsql.policy.journal import Journal, JournalError
from tests.fronts.pgwire.conftest import Client, Running, kinds, one, serving


@pytest.fixture(scope="module")
def noted(release: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with serving([release], tmp_path_factory.mktemp("noted")) as made:
        yield made


@pytest.fixture
def new(noted: Running) -> Iterator[tuple[Running, Client, int]]:
    client = noted.client()
    yield noted, client, len(noted.entries())
    client.close()


@pytest.mark.parametrize(
    ("sql", "decision", "reason", "tables"),
    [
        ("select Count(*) from public.patients", "answered", "", ["patients"]),
        ("SELECT age::text FROM patients", "refused", "unsupported", ["patients"]),
        ("SELECT count(*) FROM patients WHERE agee > 3", "failed", "unknown-name", ["patients"]),
        ("SELEC 1", "refused", "unsupported", []),
        ("SELECT (1", "failed", "syntax", []),
        ("INSERT INTO patients VALUES (1)", "refused", "unsupported", []),
        ("SELECT * FROM nobody", "failed", "unknown-name", ["nobody"]),
        ("SELECT nspname FROM pg_namespace", "answered", "", ["pg_namespace"]),
        ("SELECT nope FROM pg_namespace", "failed", "unknown-name", ["pg_namespace"]),
        ("DECLARE c CURSOR FOR SELECT 1", "failed", "transaction", []),
    ],
)
@pytest.mark.parametrize("way", ["simple", "extended"])
def test_every_statement_about_a_table_and_every_refusal_is_written_once(
    new, way, sql, decision, reason, tables
):
    running, client, before = new
    if way == "simple":
        client.query(f"/* a tool's remark */ {sql};")
    else:
        client.parse(sql)
        client.bind()
        client.describe("P")
        client.execute()
        client.sync()
    (entry,) = running.entries()[before:]
    # What cannot be read is kept with all that stands around it.
    assert sql in entry.statement
    assert (entry.user, entry.decision, entry.reason) == ("ann", decision, reason)
    assert list(entry.tables) == tables


def test_what_is_asked_again_is_written_as_it_was_said(new):
    running, client, before = new
    sql = "SELECT COUNT (*) FROM patients WHERE disease ILIKE 'FLU'"
    client.query(sql)
    client.query(sql)
    assert [entry.statement for entry in running.entries()[before:]] == [sql, sql]


def test_a_constant_and_a_command_are_not_worth_a_line(new):
    running, client, before = new
    for sql in ("SELECT 1", "SET application_name = 'x'", "BEGIN", "COMMIT", ""):
        client.query(sql)
    assert running.entries()[before:] == []


def test_each_of_several_statements_has_its_line(new):
    running, client, before = new
    client.query("SELECT count(*) FROM patients; DROP TABLE patients; SELECT 1")
    lines = [(entry.statement, entry.decision) for entry in running.entries()[before:]]
    assert lines == [
        ("SELECT count(*) FROM patients", "answered"),
        ("DROP TABLE patients", "refused"),
    ]


def test_what_cannot_be_written_is_not_told(new, monkeypatch: pytest.MonkeyPatch):
    _, client, _ = new

    def fails(*_: object) -> None:
        raise JournalError("the audit log cannot be written")

    monkeypatch.setattr(Journal, "append", fails)
    for sql in ("SELECT nspname FROM pg_namespace", "SELECT count(*) FROM patients", "DROP x"):
        found = client.query(sql)
        assert kinds(found) == "EZ"
        assert one(found, "E").fields["C"] == "58030"
    monkeypatch.undo()
    assert "D" in kinds(client.query("SELECT count(*) FROM patients"))
