"""`privsql history`: a server's history is backed up, put back, restored; the log says so."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import psycopg
import pytest

from privsql.policy.copies.mark import Keeper
from tests.fronts.test_cli_serve import patients, privsql_, served, users  # noqa: F401 - fixtures
from tests.policy.journals import read

FLU = "SELECT count(*) FROM patients WHERE disease = 'flu' AND job = '{}'"


@pytest.fixture
def state(tmp_path) -> Path:
    return tmp_path / "state" / "privsql"


def test_a_history_cannot_be_rolled_back_in_silence(patients, users, tmp_path, state):  # noqa: F811
    """The whole story of an operator, with a server that runs while the backup is made."""
    history, copy = state / "history", tmp_path / "history.backup"
    everyone = tmp_path / "users.json"
    shutil.copy(users, everyone)
    added = ["user", "add", "cyd", "--users", everyone, "--password-stdin"]
    assert privsql_(*added, given="cyd's secret\n")[0] == 0
    with served(tmp_path, patients, "--users", everyone) as server:
        server.ask(FLU.format("eng"))
        server.ask(FLU.format("eng"), "cyd")
        code, said, _ = privsql_("history", "backup", history, "-o", copy)
        assert code == 0
        assert re.fullmatch(rf"wrote {copy}: 2 entries of 2 accounts, backup of \S+\n", said)
        refused = privsql_("history", "restore", copy, "-o", history)
        assert (refused[0], "in use by a server" in refused[2]) == (1, True)
        server.ask(FLU.format("law"))
        server.signal(15)
        assert server.ended() == 0
    assert privsql_("history", "verify", history)[0] == 0

    history.unlink()
    shutil.copy(copy, history)
    files = ["--history", history, "--log", state / "audit.log"]
    serve = ["serve", patients, "--users", everyone, *files]
    code, _, said = privsql_(*serve, "--listen", "127.0.0.1:0")
    assert code == 1
    assert "is older than its mark" in said
    assert "(ann: 1 of 2 entries)" in said
    assert f"privsql history accept {history}" in said
    code, out, said = privsql_("history", "verify", copy, "--mark", state / "history.mark")
    assert (code, said) == (1, "it is older than its mark\n")
    assert "  ann: 1 of 2 entries\n" in out

    code, _, said = privsql_("history", "restore", copy, "-o", history)
    assert (code, "exists already" in said) == (1, True)
    history.unlink()
    assert privsql_("history", "restore", copy, "-o", history) == (
        0,
        f"restored {history}\nclosed, because newer entries are lost or may be (1):\n"
        "  ann: 1 of 2 entries\n",
        "",
    )
    with served(tmp_path, patients, "--users", everyone) as server:
        assert "closed are: ann: 1 of 2 entries" in server.said.read_text()
        for text in (FLU.format("eng"), "SELECT count(*) FROM patients"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="account is closed"):
                server.ask(text)
        assert server.ask("SELECT 1") == [(1,)]
        assert server.ask(FLU.format("med"), "cyd")[0][0] > 0
        server.signal(15)
        assert server.ended() == 0
    assert privsql_("history", "accept", history, "--account", "ann") == (
        0,
        "accepted (1):\n  ann: 1 of 2 entries\n",
        "",
    )
    with Keeper(history) as keeper:
        keeper.check("ann")
    assert privsql_("history", "verify", history)[0] == 0

    lines = list(read(state / "audit.log"))
    ours = [(line.user, line.statement) for line in lines if line.reason == "history"]
    assert ours == [
        ("ann", "privsql history restore: ann: 1 of 2 entries"),
        ("ann", "privsql history accept: ann: 1 of 2 entries"),
    ]
    closed = [line.statement for line in lines if line.reason == "account-closed"]
    assert len(closed) == 2


def test_without_users_there_is_one_account(patients, tmp_path, state):  # noqa: F811
    with served(tmp_path, patients) as server:
        server.ask(FLU.format("eng"))
        server.signal(15)
        assert server.ended() == 0
    code, said, _ = privsql_("history", "backup", state / "history", "-o", tmp_path / "copy")
    assert (code, "1 entry of 1 account" in said) == (0, True)
    new = tmp_path / "new" / "history"
    new.parent.mkdir()
    code, said, _ = privsql_("history", "restore", tmp_path / "copy", "-o", new)
    assert code == 0
    assert "all accounts are closed, also those without entries" in said
    assert "  everybody (a server without users): 1 entry, newer ones may be lost\n" in said
    closed = pytest.raises(psycopg.errors.InsufficientPrivilege)
    with served(tmp_path, patients, "--history", new) as server, closed:
        server.ask(FLU.format("eng"), "someone")
    code, said, _ = privsql_("history", "accept", new, "--all")
    assert (code, said.startswith("accepted (1):")) == (0, True)
    assert privsql_("history", "accept", new) == (0, "nothing is lost, as far as is known\n", "")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["backup", "nosuch", "-o", "x"], 1, "there is no history nosuch"),
        (["backup", "text", "-o", "x"], 1, "is damaged, or is not a history"),
        (["backup", "text"], 2, "Missing option '-o'"),
        (["verify", "nosuch"], 1, "there is no history nosuch"),
        (["verify", "text"], 1, "is damaged, or is not a history"),
        (["restore", "nosuch", "-o", "x"], 1, "there is no history nosuch"),
        (["restore", "text", "-o", "x"], 1, "is damaged, or is not a history"),
        (["accept", "nosuch"], 1, "there is no history nosuch"),
        (["accept", "text", "--log", "nosuch/log"], 1, "the audit log cannot be used"),
        (["restore", "text", "-o", "x", "--mark", "nosuch/mark"], 1, "is damaged, or is not"),
        (["forget"], 2, "No such command 'forget'"),
    ],
)
def test_mistakes_about_histories(tmp_path, monkeypatch, arguments, code, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text("no database" * 100)
    found = privsql_("history", *arguments)
    assert (found[0], words in found[2]) == (code, True), found
    assert not (tmp_path / "x").exists()
