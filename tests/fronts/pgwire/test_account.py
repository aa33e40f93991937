"""Accounts over the wire and on the command line: they outlive a publication that is served."""

from __future__ import annotations

from pathlib import Path

import psycopg
from click.testing import CliRunner

from privsql.fronts.cli.main import main
from tests.fronts.pgwire.conftest import Running, serving
from tests.policy.journals import read
from tests.policy.republished import ROWS, TOTAL, WITHOUT, publish


def code(running: Running, question: str) -> str:
    with psycopg.connect(running.dsn(), autocommit=True) as connection:
        try:
            connection.execute(question)
        except psycopg.Error as problem:
            return str(problem.sqlstate)
    return ""


def test_a_served_account_outlives_a_publication_and_is_emptied_by_an_operator(
    tmp_path: Path,
) -> None:
    release = publish(tmp_path)
    with serving([release], tmp_path) as running:
        assert [code(running, TOTAL), code(running, WITHOUT)] == ["", "42501"]
        publish(tmp_path, f"SELECT * FROM ({ROWS}) WHERE pay <> 17")
        assert running.house.refresh() == ["wards"]
        assert code(running, WITHOUT) == "42501"
        with psycopg.connect(running.dsn(), autocommit=True) as connection:
            cursor = connection.execute("SHOW privsql.account")
            assert [column.name for column in cursor.description or ()] == [
                "table",
                "answers",
                "any",
                "total",
                "group_rows",
            ]
            ((table, answers, largest, total, size),) = cursor.fetchall()
        assert (table, answers, size) == ("wards", 1, "10 to 99")
        assert 0 < largest <= 1
        assert 0 < total <= 1
    with serving([release], tmp_path) as running:
        assert code(running, WITHOUT) == "42501"
        files = [str(tmp_path / "history")]
        listed = CliRunner().invoke(main, ["history", "list", *files])
        assert listed.output == "ann: wards, 1 entry\n"
        typed = ["--user", "ann", "--table", "wards", *files, "--log", str(tmp_path / "journal")]
        done = CliRunner().invoke(main, ["history", "clear", *typed])
        assert done.output == "emptied the account of ann for wards: 1 entry\n"
        assert code(running, WITHOUT) == ""
    entry = next(e for e in read(tmp_path / "journal") if e.reason == "account-cleared")
    assert (entry.user, entry.tables) == ("ann", ("wards",))


def test_an_account_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    missing = CliRunner().invoke(
        main, ["history", "list", str(tmp_path / "nothing")], standalone_mode=False
    )
    assert "does not exist" in f"{missing.output}{missing.exception}"
    assert not (tmp_path / "nothing").exists()
