"""A release, a server in a process of its own, and clients, installed where they are missing."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import privsql
from tests.sizes import SOAK
from tests.specs import public, sensitive, spec

PROGRAMS = Path(__file__).with_name("programs")
collect_ignore = ["programs", "checks"]  # they run in the clients' own environments
PACKAGES = [
    "psycopg[binary]>=3.2",
    "psycopg2-binary>=2.9",
    "asyncpg>=0.29",
    "sqlalchemy>=2.0",
    "pandas>=2.2",
    "pgcli>=4.1",
    "jupysql>=0.10",
    "ipython>=8",
]
SPEC = spec(
    "sales",
    public("region"),
    public("qty"),
    public("amount"),
    public("ts"),
    sensitive("illness", 0.5, ["flu", "none"]),
    source="rows.csv",
)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One process at a time installs: workers of one run share what is there."""
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _installed(command: list[str], what: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode:
        pytest.skip(f"{what} could not be installed: {done.stderr.strip()[-200:]}")


@pytest.fixture(scope="session")
def python(request) -> Path:
    """The interpreter of an environment with the Python clients in it: in ``make test`` our own."""
    if not SOAK:
        return Path(sys.executable)
    given = os.environ.get("PRIVSQL_CLIENTS")
    if given:
        return Path(given) / "bin" / "python"
    shared = Path(request.config.cache.mkdir("wire-clients"))
    home = shared / "python"
    found = home / "bin" / "python"
    with _alone(shared):
        if not (home / "complete").exists():
            venv.create(home, with_pip=True, clear=True)
            _installed([str(found), "-m", "pip", "install", "-q", *PACKAGES], "the Python clients")
            (home / "complete").touch()
    return found


@pytest.fixture(scope="session")
def node(request) -> Path:
    """A folder with node-postgres in it."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node and npm are not installed")
    shared = Path(request.config.cache.mkdir("wire-clients"))
    home = shared / "node"
    with _alone(shared):
        home.mkdir(exist_ok=True)
        if not (home / "node_modules" / "pg" / "package.json").exists():
            _installed(["npm", "install", "--prefix", str(home), "pg@8"], "node-postgres")
    return home / "node_modules"


@pytest.fixture(scope="session")
def server(tmp_path_factory) -> dict[str, str]:
    """Where clients connect, as variables for their programs."""
    home = tmp_path_factory.mktemp("served")
    lines = [
        f"{'north' if i % 3 else 'south'},{i % 7},{i % 100}.5,2024-01-0{1 + i % 9} 00:00:00,"
        f"{'flu' if i % 5 == 0 else 'none'}\n"
        for i in range(3000)
    ]
    (home / "rows.csv").write_text("region,qty,amount,ts,illness\n" + "".join(lines))
    (home / "rows.toml").write_text(SPEC)
    privsql.publish(None, home / "sales.duckdb", spec=home / "rows.toml", seed=1)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.fronts.pgwire.clients.serving", str(home / "sales.duckdb")],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[4],
    )
    assert process.stdout is not None
    port = process.stdout.readline().strip()
    assert port not in ("", "0")
    url = f"127.0.0.1:{port}/sales"
    yield {
        "WIRE_HOST": "127.0.0.1",
        "WIRE_PORT": port,
        "WIRE_DATABASE": "sales",
        "WIRE_DSN": f"host=127.0.0.1 port={port} user=ana dbname=sales",
        "WIRE_URL": f"postgresql://ana@{url}",
    }
    process.terminate()
    process.wait(30)
    process.stdout.close()
