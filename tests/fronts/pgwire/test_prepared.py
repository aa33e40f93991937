"""PREPARE, EXECUTE and DEALLOCATE as PostgreSQL has them, and as no way past a policy."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.fronts.pgwire.conftest import Client, Message, Running, kinds, one, serving
from tests.sql.clinic import publish

GROUP = "SELECT count(*) FROM patients WHERE disease = 'flu' AND {}"
PERSONAL = "job = 'eng' AND gender = 'F' AND favourite = 'flu'"


def rows(messages: list[Message]) -> list[list[str | None]]:
    wrong = [message.fields for message in messages if message.kind == "E"]
    assert not wrong
    found = [message.cells for message in messages if message.kind == "D"]
    return [[None if cell is None else cell.decode() for cell in row] for row in found]


def failed(messages: list[Message]) -> tuple[str, str]:
    fields = one(messages, "E").fields
    return fields["C"], fields["D"].removeprefix("privsql: ")


@pytest.mark.parametrize(
    ("types", "query", "given", "expected"),
    [
        ("(int)", "SELECT $1 + 1", "(5)", "6"),
        ("(int)", "SELECT $1 + 1", "('5')", "6"),  # a string has no type yet
        ("(int)", "SELECT $1 + 1", "(2.5)", "4"),
        ("(int)", "SELECT $1 + 1", "(2 + 3)", "6"),
        ("(int)", "SELECT $1 + 1", "(NULL)", None),
        ("(int)", "SELECT $1", "(-1)", "-1"),
        ("(int)", "SELECT $1", "(1 -- one\n)", "1"),
        ("", "SELECT $1", "('x')", "x"),
        ("", "SELECT $1", "(5.5)", "5.5"),
        ("(text)", "SELECT $1", "(5)", "5"),
        ("(text)", "SELECT $1", "('a''b; SELECT 2')", "a'b; SELECT 2"),
        ("(unknown)", "SELECT $1", "('x')", "x"),
        ("(numeric)", "SELECT $1", "(1.2345678901234567890)", "1.2345678901234567890"),
        ("(numeric)", "SELECT $1", "('1.50')", "1.50"),
        ("(double precision)", "SELECT round($1)", "(2.5)", "2"),
        ("(bool)", "SELECT NOT $1", "('yes')", "f"),
        ("(date)", "SELECT $1 + 1", "('2024-02-28')", "2024-02-29"),
        ("(timestamp)", "SELECT $1", "(DATE '2024-02-28')", "2024-02-28 00:00:00"),
        ("(int[])", "SELECT $1", "('{1,2}')", "{1,2}"),
        ("(int, text)", "SELECT 1", "(7, 'not used')", "1"),
        ("(int)", "SELECT $2::text", "(1, 2)", "2"),
        ("", "VALUES ($1::int)", "(4)", "4"),
        ("", "SELECT count(*) FROM patients WHERE cost < $1", "(1000)", "4000"),
        ("(text)", "SELECT count(*) FROM patients WHERE cost < $1::int", "('1000')", "4000"),
        ("", "SELECT count(*) FROM pg_class WHERE relname = $1", "('patients')", "1"),
    ],
)
def test_values_become_those_of_the_parameters(
    client: Client, types: str, query: str, given: str, expected: str | None
):
    assert one(client.query(f"PREPARE q{types} AS {query}"), "C").text == "PREPARE"
    found = client.query(f"EXECUTE q{given}")
    assert rows(found) == [[expected]]
    assert one(found, "C").text == "SELECT 1"


@pytest.mark.parametrize(
    ("statement", "state"),
    [
        ("EXECUTE q", "42601"),  # too few
        ("EXECUTE q(1, 2)", "42601"),
        ("EXECUTE q('x')", "22P02"),
        ("EXECUTE q(99999999999)", "22P02"),
        ("EXECUTE q(1) x", "42601"),
        ("EXECUTE q(1 WHERE false)", "42601"),
        ("EXECUTE q(1 UNION SELECT 2)", "42601"),
        ("EXECUTE q(generate_series(1, 2))", "0A000"),
        ("EXECUTE q((SELECT count(*) FROM patients))", "0A000"),
        ("EXECUTE q((SELECT 1 FROM pg_class LIMIT 1))", "0A000"),
        ("EXECUTE q($1)", "42P02"),
        ("SELECT $1", "42P02"),
        ("SELECT count(*) FROM patients WHERE job = $2", "42P02"),
        ("EXECUTE nothing", "26000"),
        ("DEALLOCATE nothing", "26000"),
        ("PREPARE q AS SELECT 2", "42P05"),  # a name is taken until it is given back
        ("PREPARE other(nothing) AS SELECT $1", "42704"),
        ("PREPARE other AS EXECUTE q(1)", "42601"),
        ("PREPARE other AS PREPARE third AS SELECT 1", "42601"),
        ("PREPARE other AS BEGIN", "42601"),
        ("PREPARE other AS SET TimeZone = 'UTC'", "42601"),
        ("PREPARE other AS", "42601"),
        ('PREPARE "" AS SELECT 1', "42601"),
        ("EXPLAIN EXECUTE q(1)", "0A000"),
    ],
)
def test_what_is_wrong_is_said_and_leaves_the_statement(client: Client, statement: str, state: str):
    client.query("PREPARE q(int) AS SELECT $1")
    assert failed(client.query(statement))[0] == state
    assert rows(client.query("EXECUTE q(3)")) == [["3"]]


def test_a_statement_that_calls_itself_cannot_be_made(client: Client):
    assert failed(client.query("PREPARE a AS EXECUTE a"))[0] == "42601"
    assert failed(client.query("EXECUTE a"))[0] == "26000"


def test_names_are_given_back_and_are_shared_with_the_protocol(client: Client):
    client.query("PREPARE Q AS SELECT 1")
    client.query("DEALLOCATE PREPARE q")
    client.query("PREPARE q(int) AS SELECT $1 + 1")
    client.bind((b"6",), name="q")
    client.describe("P")
    client.execute()
    assert rows(client.sync()) == [["7"]]
    client.parse("SELECT $1::int * 2", "p")
    client.sync()
    assert rows(client.query("EXECUTE p(21)")) == [["42"]]
    assert one(client.query("DEALLOCATE ALL"), "C").text == "DEALLOCATE ALL"
    assert failed(client.query("EXECUTE p(1)"))[0] == "26000"
    client.query("PREPARE q AS SELECT 1")
    client.query("DISCARD ALL")
    assert failed(client.query("EXECUTE q"))[0] == "26000"


def test_execute_is_described_like_its_statement(client: Client):
    client.query("PREPARE q(text) AS SELECT job, count(*) FROM patients WHERE job = $1 GROUP BY 1")
    client.parse("EXECUTE q('law')")
    client.describe("S")
    client.bind()
    client.execute()
    found = client.sync()
    assert kinds(found) == "1tT2DCZ"
    assert [name for name, _, _ in one(found, "T").columns] == ["job", "count"]
    assert rows(found)[0][0] == "law"


def test_a_transaction_that_has_failed_executes_nothing(client: Client):
    client.query("PREPARE q AS SELECT 1")
    client.query("BEGIN")
    client.query("SELECT nothing")
    assert failed(client.query("EXECUTE q"))[0] == "25P02"
    client.query("ROLLBACK")
    assert rows(client.query("EXECUTE q")) == [["1"]]


def test_types_of_more_parameters_than_there_are_need_values(client: Client):
    client.parse("SELECT $1::int", "s", (23, 0, 25))
    client.bind((b"1", b"x", b"y"), name="s")
    client.execute()
    assert rows(client.sync()) == [["1"]]


# -- policies ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder: Path = tmp_path_factory.mktemp("strict")
    with serving([publish(folder, 0.5, policy="refuse", least=10)], folder) as made:
        yield made


@pytest.mark.parametrize(
    ("prepared", "given"),
    [
        (f"PREPARE q AS {GROUP.format(PERSONAL)}", ""),
        (
            "PREPARE q(text, text, text) AS "
            + GROUP.format("job = $1 AND gender = $2 AND favourite = $3"),
            "('eng', 'F', 'flu')",
        ),
        (
            "PREPARE q AS SELECT count(*) FROM patients WHERE disease = $4"
            " AND job = $1 AND gender = $2 AND favourite = $3",
            "('e' || 'ng', upper('f'), 'flu', lower('FLU'))",
        ),
        (
            f"PREPARE q(bool) AS {GROUP.format(f'(({PERSONAL}) OR $1)')}",
            "(false)",
        ),
        (
            f"PREPARE q(timestamp) AS {GROUP.format(PERSONAL)} AND now() > $1",
            "('2000-01-01')",
        ),
        (
            f"PREPARE q AS SELECT * FROM ({GROUP.format(PERSONAL)} AND current_date > $1) t",
            "('2000-01-01')",
        ),
    ],
)
def test_a_personal_question_is_refused_when_it_is_executed(
    strict: Running, prepared: str, given: str
):
    client = strict.client(user="hidden")
    assert kinds(client.query(prepared)) == "CZ"
    for _ in range(2):  # what is remembered of it is judged as well
        assert failed(client.query(f"EXECUTE q{given}")) == ("42501", "personal-group")
    assert failed(client.query(f"BEGIN; EXECUTE q{given}; COMMIT")) == ("42501", "personal-group")
    last = strict.entries()[-1]
    assert (last.user, last.decision, last.reason) == ("hidden", "refused", "personal-group")
    client.query("ROLLBACK")


def test_what_changes_something_can_be_prepared_and_is_refused_when_executed(client: Client):
    assert kinds(client.query("PREPARE q AS DELETE FROM patients")) == "CZ"
    assert failed(client.query("EXECUTE q")) == ("25006", "unsupported")


@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
@pytest.mark.parametrize(
    "value",
    [3, 2**40, 1.5, True, dt.date(2024, 1, 1), dt.time(1, 2), dt.timedelta(3, 2), [1, 2], b"ab"],
    ids=repr,
)
def test_a_parameter_that_is_a_column_keeps_its_type(running: Running, value: Any, binary: bool):
    with psycopg.connect(running.dsn(), autocommit=True) as connection:
        cursor = connection.cursor(binary=binary)
        found = cursor.execute("SELECT %s AS x, (%s) LIMIT %s", (value, value, 5)).fetchall()
    assert found == [(value, value)]
    assert type(found[0][0]) is type(value)
