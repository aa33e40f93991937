"""One table served twice on loopback: a release by privsql, its raw rows by PostgreSQL 15.

Both take the user ``ana`` with a password (SCRAM) to the database ``sales``.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

import privsql
from tests.specs import measure, public, sensitive, spec

ROOT = Path(__file__).parents[4]
BINARIES = Path("/usr/lib/postgresql/15/bin")  # where Debian has them
USER, PASSWORD, DATABASE = "ana", "wire-secret", "sales"
ROWS = 3000

# Every type that drivers bind and fetch, exactly representable, and one column with NULLs.
RAW = f"""
SELECT
    i AS id,
    CASE WHEN i % 3 = 0 THEN 'south' ELSE 'north' END AS region,
    i % 7 AS qty,
    i % 100 + 0.5::DOUBLE AS amount,
    ((i % 50) + 0.25)::DECIMAL(10, 2) AS price,
    DATE '2024-01-01' + (i % 28)::INTEGER AS day,
    TIMESTAMP '2024-01-01 12:00:00' + to_minutes((i % 60)::INTEGER) AS ts,
    ('00000000-0000-4000-8000-' || lpad((i % 10)::VARCHAR, 12, '0'))::UUID AS member,
    i % 2 = 0 AS active,
    CASE WHEN i % 4 = 0 THEN NULL ELSE 'näh ' || (i % 4) END AS note,
    CASE WHEN i % 5 = 0 THEN 'flu' ELSE 'none' END AS illness
FROM (SELECT unnest(range({ROWS})) AS i)
"""
SPEC = spec(
    "sales",
    *(measure("id"), public("region"), measure("qty"), measure("amount"), measure("price")),
    *(measure(name) for name in ("day", "ts", "member", "active", "note")),
    sensitive("illness", 0.5, ["flu", "none"]),
    more='\n[policy]\nrows = "allow"\n',
)
TABLE = """
CREATE TABLE sales (
    id bigint, region text, qty bigint, amount double precision, price numeric(10,2), day date,
    ts timestamp, member uuid, active boolean, note text, illness text
)
"""


def address(port: int, user: str = USER, password: str = PASSWORD) -> dict[str, str]:
    """Where a program connects, as variables of its environment: libpq's, and URLs."""
    url = f"{user}:{password}@127.0.0.1:{port}/{DATABASE}"
    return {
        "PGHOST": "127.0.0.1",
        "PGPORT": str(port),
        "PGUSER": user,
        "PGPASSWORD": password,
        "PGDATABASE": DATABASE,
        "WIRE_URL": f"postgresql://{url}",
        "WIRE_JDBC": f"jdbc:postgresql://127.0.0.1:{port}/{DATABASE}",
    }


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@contextmanager
def ended(process: subprocess.Popen[str]) -> Iterator[None]:
    """Ends a server with its block."""
    try:
        yield
    finally:
        process.terminate()
        process.wait(60)
        if process.stdout is not None:
            process.stdout.close()


@contextmanager
def released(folder: Path) -> Iterator[int]:
    """The port of ``privsql serve`` for a release of the rows."""
    (folder / "sales.toml").write_text(SPEC, encoding="utf-8")
    with duckdb.connect() as con:
        con.sql(RAW).write_parquet(str(folder / "sales.parquet"))
    privsql.publish(
        str(folder / "sales.parquet"), folder / "sales.duckdb", spec=folder / "sales.toml", seed=1
    )
    command = [sys.executable, "-m", "privsql.fronts.cli.main"]
    users = str(folder / "users.json")
    subprocess.run(
        [*command, "user", "add", USER, "--users", users, "--password-stdin"],
        input=PASSWORD + "\n", text=True, check=True, stdout=subprocess.DEVNULL, cwd=ROOT,
    )  # fmt: skip
    port = free_port()
    process = subprocess.Popen(
        [
            *command, "serve", str(folder / "sales.duckdb"), "--users", users,
            "--listen", f"127.0.0.1:{port}", "--history", str(folder / "history"),
            "--log", str(folder / "audit.log"),
        ],
        text=True, stdout=subprocess.DEVNULL, cwd=ROOT,
    )  # fmt: skip
    with ended(process):
        await_port(port)
        yield port


@contextmanager
def postgresql(folder: Path) -> Iterator[int]:
    """The port of a cluster with the raw rows.  It refuses root, who becomes its user."""
    root = os.getuid() == 0
    owner = "postgres" if root else pwd.getpwuid(os.getuid()).pw_name
    other = {"user": "postgres", "group": "postgres"} if root else {}
    home = folder / "cluster"
    home.mkdir()
    if root:
        shutil.chown(home, "postgres")
        for each in (folder, folder.parent):
            each.chmod(0o755)
    data, port = home / "data", free_port()
    word = folder / "password"
    word.write_text(PASSWORD, encoding="ascii")
    word.chmod(0o644)
    subprocess.run(
        [
            BINARIES / "initdb", "-D", data, "-U", owner, "-A", "scram-sha-256",
            "--pwfile", word, "-E", "UTF8", "--locale", "C.UTF-8", "--no-sync",
        ],
        check=True, stdout=subprocess.DEVNULL, cwd=home, **other,
    )  # fmt: skip
    settings = f"-p {port} -k {home} -c listen_addresses=127.0.0.1 -c autovacuum=off -c fsync=off"
    process = subprocess.Popen(
        [BINARIES / "postgres", "-D", data, *settings.split()],
        stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, cwd=home, text=True, **other,
    )  # fmt: skip
    with ended(process):
        await_port(port)
        _loaded(folder, port, owner)
        yield port


def await_port(port: int) -> None:
    """Waits until somebody listens, a minute at most."""
    for _ in range(600):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError(f"nobody listens at port {port}")


def _loaded(folder: Path, port: int, owner: str) -> None:
    with duckdb.connect() as con:
        con.sql(RAW).write_csv(str(folder / "sales.csv"))
    for database, commands in [
        ("postgres", [f"CREATE ROLE {USER} LOGIN PASSWORD '{PASSWORD}'"]),
        ("postgres", [f"CREATE DATABASE {DATABASE} OWNER {USER}"]),
        (DATABASE, [f"SET ROLE {USER}; {TABLE}"]),
        (DATABASE, [f"\\copy sales FROM '{folder}/sales.csv' CSV HEADER"]),
    ]:
        words = [part for command in commands for part in ("-c", command)]
        # The cluster's first seconds: it listens before it takes logins.
        for _ in range(100):
            done = subprocess.run(
                ["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", database, *words],
                env={**os.environ, **address(port, owner), "PGDATABASE": database},
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            if "starting up" not in done.stderr:
                break
            time.sleep(0.1)
        if done.returncode:
            raise RuntimeError(f"psql could not load the table: {done.stderr[-500:]}")
