"""A small release, and ``privsql serve`` in a process of its own with one user."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import privsql
from privsql.policy.journal import Entry
from privsql.session.gate import Served as Server
from privsql.session.session import Session
from tests.policy.journals import read
from tests.specs import grid, public, sensitive, spec

ROWS = 24_000
SPEC = spec(
    "patients",
    public("city"),
    public("sex"),
    public("visit"),
    sensitive("illness", 0.5, ["cough", "flu", "none"]),
    sensitive("age", 0.5, grid(0, 99)),
    source="patients.csv",
)


@dataclass(frozen=True)
class Served:
    """Where Superset connects, and the release that is behind it."""

    uri: str
    release: Path
    log: Path

    def answer(self, sql: str) -> list[tuple[object, ...]]:
        """What ``privsql.connect`` gives."""
        return _asked(privsql.connect(self.release), sql)

    def cut(self, sql: str) -> list[tuple[object, ...]]:
        """The same without the digits that a server cuts off, as it must arrive to the last bit."""
        return _asked(privsql.Connection(Session(self.release, served=Server("ann"))), sql)

    def entries(self) -> list[Entry]:
        """What was asked so far, as it came, and what became of it."""
        return list(read(self.log))


def _asked(connection: privsql.Connection, sql: str) -> list[tuple[object, ...]]:
    """Each time on a new connection, so that no question is held against another."""
    try:
        return list(connection.execute(sql).fetchall())
    finally:
        connection.close()


def end(process: subprocess.Popen[Any]) -> None:
    """Stop a process that was started here, gently if it listens."""
    process.terminate()
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def publish(folder: Path) -> Path:
    """Visits of two cities over six months; the same perturbation each time."""
    rows = (
        f"{'north' if i % 3 else 'south'},{'FM'[i // 3 % 2]},2024-0{1 + i // 6 % 6}-15 00:00:00,"
        f"{'flu' if i % 5 == 0 else 'cough' if i % 7 == 0 else 'none'},{20 + i * 7 % 60}\n"
        for i in range(ROWS)
    )
    (folder / "patients.csv").write_text("city,sex,visit,illness,age\n" + "".join(rows))
    (folder / "patients.toml").write_text(SPEC)
    release = folder / "patients.duckdb"
    privsql.publish(None, release, spec=folder / "patients.toml", seed=1)
    return release


@contextmanager
def serving(folder: Path) -> Iterator[Served]:
    """Serve a release to the user ``ann`` until the block ends."""
    release, log, password = publish(folder), folder / "audit.log", secrets.token_urlsafe(12)
    program = Path(sys.executable).with_name("privsql")
    users = ["--users", str(folder / "users.json")]
    subprocess.run(
        [str(program), "user", "add", "ann", *users, "--password-stdin"],
        input=password + "\n",
        text=True,
        check=True,
        capture_output=True,
    )
    command = [str(program), "serve", str(release), *users, "--listen", "127.0.0.1:0"]
    state = ["--history", str(folder / "history"), "--log", str(log)]
    with (folder / "serve.err").open("w") as errors:
        process = subprocess.Popen(
            [*command, *state],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
    assert process.stdout is not None
    try:
        port = re.search(r"127\.0\.0\.1:(\d+)", process.stdout.readline())
        if port is None:
            process.wait(30)
            raise RuntimeError(f"no server: {(folder / 'serve.err').read_text()}")
        uri = f"postgresql+psycopg2://ann:{password}@127.0.0.1:{port[1]}/privsql"
        yield Served(uri, release, log)
    finally:
        end(process)
        process.stdout.close()
