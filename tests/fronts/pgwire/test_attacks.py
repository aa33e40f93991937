"""The attacks of tests/attacks over the wire: PostgreSQL's protocol and dialect change nothing.

What is expected is what every front decides.  A text that means nothing in PostgreSQL's dialect
is refused when it is read; then another refusal is right, but an answer never is.  Statements
take turns through the simple and the extended protocol.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from privsql.errors import Error, Notice
from privsql.errors import Place as Stretch
from privsql.policy.limits import Limits
from tests.fronts.pgwire.conftest import Client, Message, Running, serving, text
from tests.policy.attacks import Attack, Seen, Step, attacks
from tests.policy.test_attacks import AFTER, INNER, KEYS, TABLES, wanted, wards
from tests.sql.clinic import publish

ATTACKS = [attack for attack in attacks() if "served" in attack.modes]
USERS = itertools.count()
# Refusals before anything is asked: not PostgreSQL's dialect, or no table that is served here.
EARLY = {"dialect", "syntax", "unknown-name", "mixed-tables", "unsupported", "setting"}
# What is something else in PostgreSQL: said here one by one, because an answer must be explained.
OTHER = {
    # A transaction and a prepared statement reach nothing; what is asked through them is judged.
    "BEGIN": "set",
    "ROLLBACK": "set",
    "PREPARE q AS SELECT COUNT(*) FROM patients WHERE disease = ?": "set",
    "EXECUTE q('flu')": "error bind",
    "DEALLOCATE q": "set",
    # Names are looked up in our own list whatever the path; the catalog's settings are made up.
    "SET SESSION search_path = 'privsql'": "set",
    "SELECT current_setting('memory_limit')": "answered",
    # PostgreSQL's catalog, which tells what the manifest does: see ``told_by_the_catalog``.
    "SELECT * FROM information_schema.tables": "answered",
    "SELECT * FROM information_schema.columns WHERE table_name = 'patients'": "answered",
    "SELECT * FROM pg_catalog.pg_class": "answered",
    "SELECT * FROM pg_tables": "answered",
    "SELECT * FROM system.information_schema.tables": "answered",
    # A constant, under a name that is taken for nothing.
    "SELECT 1 AS privsql_group": "answered",
    # The same for everybody and no published row: the clock.
    "SELECT now(), current_date": "answered",
    "SELECT patients.disease.x FROM patients": "error programming",
    # There POSITIONAL is a name of the table, and the join has no condition.
    "SELECT COUNT(*) FROM patients POSITIONAL JOIN places WHERE disease = 'flu'": "refused fan-out",
    # A function as any other, of published rows.
    "SELECT list_transform([disease], x -> x) FROM patients": "refused rows",
    # There a dot is a dot in SIMILAR TO: nobody is counted, and nobody's group either.
    "SELECT COUNT(*) FROM patients WHERE disease = 'flu' AND job SIMILAR TO 'en.'"
    " AND gender ILIKE 'f' AND favourite GLOB 'f*'": "answered",
}
# What others answer and PostgreSQL's dialect has not.
LOST = (
    "SELECT job, gender, favourite, CAST(COUNT(*) * 1e300 AS TINYINT) AS n FROM patients"
    " WHERE disease = 'flu' GROUP BY ALL",
)


class Wire:
    """A front with a server of its own."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self._clients: dict[str, Client] = {}
        self._client: Client | None = None
        self._turn = itertools.count()

    def begin(self, user: str) -> None:
        if user not in self._clients:
            self._clients[user] = self._running.client(user=user)
        self._client = self._clients[user]

    def ask(self, sql: str, parameters: Any = None) -> Seen:
        client = self._client
        assert client is not None
        if parameters is None and next(self._turn) % 2:
            return self._told(sql, client.query(sql))
        given = list(parameters.values() if isinstance(parameters, dict) else parameters or ())
        for number, name in enumerate(parameters if isinstance(parameters, dict) else (), 1):
            sql = sql.replace(f"${name}", f"${number}")
        for number in range(1, sql.count("?") + 1 if given else 0):
            sql = sql.replace("?", f"${number}", 1)
        client.parse(sql)
        if next(self._turn) % 8 == 1:  # it is planned once more for that
            client.describe("S")
        client.bind(tuple(str(value).encode() for value in given))
        client.describe("P")
        client.execute()
        return self._told(sql, client.sync())

    def _told(self, sql: str, messages: list[Message]) -> Seen:
        """One statement is one transaction: the next must not be refused for this one's sake."""
        assert self._client is not None
        if messages[-1].body != b"I":
            self._client.query("ROLLBACK")
        return _seen(sql, messages)

    def close(self) -> None:
        for client in self._clients.values():
            client.send("X")
            client.close()


def _seen(sql: str, messages: list[Message]) -> Seen:
    """What a client makes of an exchange; an error is one of privsql's again."""
    columns: tuple[str, ...] = ()
    kind, rows, notices = "set", list[tuple[Any, ...]](), list[Notice]()
    for message in messages:
        if message.kind == "E":
            raise _error(sql, message.fields)
        if message.kind == "T":
            columns, kind = tuple(name for name, _, _ in message.columns), "rows"
        elif message.kind == "D":
            rows.append(tuple(None if cell is None else cell.decode() for cell in message.cells))
        elif message.kind == "N":
            said, _, code = message.fields["M"].rpartition(" [")
            notices.append(Notice(code.rstrip("]"), said))
    return Seen(columns, tuple(rows), tuple(notices), kind=kind)


def _error(sql: str, fields: dict[str, str]) -> Error:
    code = fields["D"].removeprefix("privsql: ")
    kind = type("WireError", (Error,), {"code": code, "sqlstate": fields["C"]})
    at = int(fields["P"]) - 1 if "P" in fields else None
    place = None if at is None else Stretch(sql, at, at + 1)
    made: Error = kind(fields["M"], hint=fields.get("H"), place=place)
    return made


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder: Path = tmp_path_factory.mktemp("attacked over the wire")
    paths = [publish(folder, 0.5, policy="refuse", least=10), wards(folder)]
    limits = Limits(memory="400MB", threads=1, seconds=10)
    with serving(paths, folder, limits=limits, tables=TABLES) as made:
        yield made


# Each is made on sessions elsewhere; here every third one, and all of them in `make soak`.
HERE = [
    attack if number % 3 == 0 else pytest.param(attack, marks=pytest.mark.soak)
    for number, attack in enumerate(ATTACKS)
]


@pytest.mark.parametrize("attack", HERE, ids=lambda attack: attack.name)
def test_attack(attacked: Running, attack: Attack) -> None:
    """Users without a past where one would tell; the others share one, as elsewhere."""
    way = Wire(attacked)
    number = "standing" if attack.leaves_nothing else f"user {next(USERS)}"
    for step in attack.steps:
        way.begin(f"{number} {step.user}".strip())
        got, expected = decided(way, step), wanted(step)
        if got == expected:
            continue
        if OTHER.get(step.sql) == got:
            continue
        word, _, code = got.partition(" ")
        assert word in ("refused", "error"), f"{got} for {step.sql}"
        assert code in EARLY, f"{got} for {step.sql}"
        if step.expected.kind in ("answered", "empty", "set"):
            assert step.sql in LOST, f"{got} for {step.sql}"
    way.begin(f"{number} {attack.steps[-1].user}".strip())
    sql, rows = AFTER[attack.release]
    assert way.ask(sql).rows == ((str(rows),),)
    way.close()


def decided(way: Wire, step: Step) -> str:
    """What became of a statement; and that it says no more than that."""
    try:
        seen = way.ask(step.sql, step.parameters)
    except Error as problem:
        silent(problem, f"{step.sql} {step.parameters}".lower())
        refused = problem.sqlstate in ("0A000", "42501") or problem.code == "too-large"
        return f"{'refused' if refused else 'error'} {problem.code}"
    if seen.kind == "set":
        return "set"
    told_by_the_catalog(step.sql, seen)
    said = [n.text for n in seen.notices if n.code in ("personal-group", "difference")]
    number = sum(int(each.split()[0]) for each in said)
    if not number:
        return "answered"
    hidden = [
        value
        for row in seen.rows
        for name, value in zip(seen.columns, row, strict=True)
        if value is None and name not in KEYS
    ]
    return f"empty {number} shown {len(hidden)}"


def silent(problem: Error, asked: str) -> None:
    """An error shows no word of ours that the statement has not."""
    said = f"{problem.reason}\n{problem.hint or ''}"
    assert problem.code != "internal", said
    assert not [word for word in INNER if word in said and word not in asked], said


def told_by_the_catalog(sql: str, seen: Seen) -> None:
    """Nothing of the inner tables, nor of the columns that no analyst may name."""
    if "information_schema" in sql or "pg_" in sql:
        cells = {str(value) for row in seen.rows for value in row}
        assert not [each for each in cells if each.startswith("privsql_")]
        assert not cells & {"tuples", "manifest", "isle", "hiv"}


@pytest.mark.parametrize(
    ("sql", "state"),
    [("SELECT 1; DROP TABLE patients", "25006"), ("SELECT 1; SELECT * FROM wards", "42501")],
)
def test_a_second_statement_is_no_way_in(attacked: Running, sql: str, state: str) -> None:
    client = attacked.client(user="second")
    found = client.query(sql)
    assert [message.fields["C"] for message in found if message.kind == "E"] == [state]
    client.send("P", b"\0" + text(sql) + b"\0\0")
    assert [message.kind for message in client.sync()] == ["E", "Z"]
