"""Clients of ``make test`` and of notebooks; ``matrix`` has the other drivers."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time

import pytest

from tests.fronts.pgwire.clients.conftest import PROGRAMS

# Clients that no environment of ours has: they are installed for this, which takes minutes.
SOAK = pytest.mark.soak
GROUPS = [["north", 2000], ["south", 1000]]


def ran(command: list[str], server: dict[str, str], **more: str) -> str:
    done = subprocess.run(
        command, env={**os.environ, **server, **more}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize("program", ["psycopg3", "asyncpg_"])
def test_drivers_for_python(server, python, program):
    found = json.loads(ran([str(python), str(PROGRAMS / f"{program}.py")], server))
    assert found.pop("groups") == GROUPS
    assert (found.pop("names"), found.pop("count")) == (["count"], 2000)
    assert found.pop("error").startswith("42")
    expected = {
        "cursor": 7,
        "copy": [["north", "2000"], ["south", "1000"]],
        "pipeline": [1, 3000],
        "binary False": ["3000", "2024-01-09 00:00:00"],
        "binary True": ["3000", "2024-01-09 00:00:00"],
        "rows": "42501",
        "array": [1, 2],
        "types": "int4",
    }
    assert found == {key: expected[key] for key in found}


@pytest.mark.parametrize("driver", ["psycopg", pytest.param("psycopg2", marks=SOAK)])
def test_sqlalchemy_and_pandas(server, python, driver):
    found = json.loads(ran([str(python), str(PROGRAMS / "alchemy.py"), driver], server))
    assert found["tables"] == ["sales"]
    assert found["views"] == []
    assert found["schemas"] == ["information_schema", "public"]
    assert found["columns"] == [
        ["region", "TEXT"],
        ["qty", "BIGINT"],
        ["amount", "DOUBLE PRECISION"],
        ["ts", "TIMESTAMP"],
        ["illness", "TEXT"],
    ]
    assert found["comments"] == ["public"] * 4 + ["sensitive"]
    assert found["keys"] == [[], [], []]
    assert (found["groups"], found["count"]) == (GROUPS, 2000)
    assert found["frame"] == {"region": ["north", "south"], "n": [2000, 1000]}


@pytest.fixture
def psql(server) -> list[str]:
    if shutil.which("psql") is None:
        pytest.skip("psql is not installed")
    return ["psql", "-X", "-A", "-t", "-v", "ON_ERROR_STOP=1", server["WIRE_DSN"]]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("\\d", "public|sales|table|privsql"),
        ("\\d sales", "illness|text|||"),
        ("\\d+ sales", "sensitive: perturbed (uniform, retention 0.5)"),
        ("\\dt+", "A privsql release of"),
        ("\\l", "sales|privsql|UTF8"),
        ("\\du", "ana"),
        ("\\dn", "public|privsql"),
        ("\\df count", "pg_catalog|count|bigint"),
        ("\\dT int4", "pg_catalog|integer"),
        ("\\dv", ""),
        ("\\dp", "public|sales|table"),
        ("select region, count(*) from sales group by 1 order by 1", "north|2000\nsouth|1000"),
        ("\\copy (select 1) to stdout", "1"),
    ],
)
def test_psql(server, psql, command, expected):
    assert expected in ran([*psql, "-c", command], server)


def test_psql_is_interrupted_by_a_key(server, psql):
    process = subprocess.Popen(
        [*psql, "-c", "select pg_sleep(20)"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **server},
    )
    time.sleep(1.5)  # until the statement is under way
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert "cancel" in said.lower()
    assert time.monotonic() - begun < 10


@SOAK
def test_pgcli(server, python):
    command = [str(python.with_name("pgcli")), "--less-chatty", server["WIRE_URL"], "-c"]
    out = ran([*command, "select region, count(*) from sales group by 1 order by 1"], server)
    assert "| north  | 2000  |" in out
    assert "illness" in ran([*command, "\\d sales"], server)


@SOAK
def test_jupysql(server, python):
    program = """
import os
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "sql")
shell.run_line_magic("sql", os.environ["WIRE_URL"].replace("postgresql", "postgresql+psycopg"))
answer = shell.run_line_magic("sql", "select region, count(*) n from sales group by 1 order by 1")
print("ANSWER", [tuple(row) for row in answer])
"""
    assert "ANSWER [('north', 2000), ('south', 1000)]" in ran([str(python), "-c", program], server)
