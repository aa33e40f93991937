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
        ("SELECT age::text FROM patients", "refused", "rows", ["patients"]),
        ("SELECT count(*) FROM patients WHERE agee > 3", "failed", "unknown-name", ["patients"]),
        ("SELEC 1", "failed", "syntax", []),
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


def test_constants_and_commands_have_a_line_too_and_what_they_contain_has_one(new):
    running, client, before = new
    said = [
        "SELECT 1",
        "SET application_name = 'x'",
        "SHOW application_name",
        "BEGIN",
        "DECLARE c CURSOR FOR SELECT 2",
        "FETCH 1 FROM c",
        "COMMIT",
        "PREPARE p AS SELECT 3",
        "EXECUTE p",
        "COPY (SELECT 4) TO STDOUT",
        "SELECT pg_sleep(0)",
    ]
    for sql in (*said, "", " ; "):
        client.query(sql)
    entries = running.entries()[before:]
    assert {entry.decision for entry in entries} == {"answered"}
    kept = dict(zip(said, (entry.statement for entry in entries), strict=True))
    # A statement inside of another is what was answered.
    inner = {said[4]: "SELECT 2", said[8]: "SELECT 3", said[9]: "SELECT 4"}
    assert kept == {sql: inner.get(sql, sql) for sql in said}


def test_a_statement_that_was_canceled_has_a_line(new):
    running, client, before = new
    client.query("SET statement_timeout = '300ms'")
    for sql in ("SELECT pg_sleep(60)", "SELECT 1; SELECT pg_sleep(60); SELECT 2"):
        assert one(client.query(sql), "E").fields["C"] == "57014"
    lines = [(entry.statement, entry.reason) for entry in running.entries()[before:]]
    assert lines == [
        ("SET statement_timeout = '300ms'", ""),
        ("SELECT pg_sleep(60)", "canceled"),
        ("SELECT 1", ""),
        ("SELECT pg_sleep(60)", "canceled"),
    ]


def test_a_login_that_fails_has_a_line_of_its_own_kind(noted: Running):
    before = len(noted.entries())
    client = Client(noted.port)
    found = client.start(user="ann", database="nowhere\x1b[2J")
    assert one(found, "E").fields["C"] == "3D000"
    assert "\x1b" not in one(found, "E").fields["M"]
    (entry,) = noted.entries()[before:]
    assert (entry.user, entry.decision, entry.reason) == ("ann", "denied", "database")
    assert (entry.statement, entry.address) == ("", "127.0.0.1")


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
