"""Superset in an environment of its own, initialised, and on a free port of this machine."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import time
import urllib.request
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.fronts.pgwire.superset.served import end

# privsql is not among them: Superset wants SQLAlchemy 1.4, and needs no more than a driver.
PACKAGES = ["apache-superset>=6.1,<7", "psycopg2-binary>=2.9"]
# Superset 6.1 imports the first two and does not ask for them; its caches do not take what newer
# versions of the third give them.
PACKAGES += ["cachetools", "rich", "flask-caching<2.4"]
CONFIGURATION = """
import os
SECRET_KEY = os.environ["SUPERSET_TEST_KEY"]
SQLALCHEMY_DATABASE_URI = "sqlite:///" + os.environ["SUPERSET_TEST_METADATA"]
"""


@dataclass(frozen=True)
class Superset:
    """A folder with Superset's programs, and its empty metadata to start from."""

    folder: Path
    key: str

    @property
    def python(self) -> Path:
        return self.folder / "environment" / "bin" / "python"

    @property
    def password(self) -> str:
        """Of the user ``admin``: known to this folder alone, like the key."""
        return self.key

    def variables(self, metadata: Path) -> dict[str, str]:
        """Superset's own settings and nothing of ours: no PYTHONPATH, no PG* of the caller."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTHON", "PG", "SUPERSET", "FLASK", "VIRTUAL_ENV"))
        }
        return {
            **kept,
            "FLASK_APP": "superset",
            "SUPERSET_HOME": str(metadata.parent),
            "SUPERSET_CONFIG_PATH": str(self.folder / "superset_config.py"),
            "SUPERSET_TEST_KEY": self.key,
            "SUPERSET_TEST_METADATA": str(metadata),
        }

    def run(self, metadata: Path, *words: str) -> None:
        """One of Superset's commands; what it said is shown if it fails."""
        done = subprocess.run(
            [str(self.python.with_name("superset")), *words],
            env=self.variables(metadata),
            cwd=metadata.parent,
            capture_output=True,
            text=True,
            timeout=1200,
        )
        if done.returncode:
            raise RuntimeError(f"superset {words[0]}: {(done.stdout + done.stderr)[-2000:]}")


def installed(folder: Path, tell: Callable[[str], None]) -> Superset:
    """Make what is missing in ``folder``; a second run finds all of it."""
    folder.mkdir(parents=True, exist_ok=True)
    secret = folder / "key"
    if not secret.exists():
        secret.touch(mode=0o600)
        secret.write_text(secrets.token_urlsafe(42))
    found = Superset(folder, secret.read_text())
    (folder / "superset_config.py").write_text(CONFIGURATION)
    stamp, wanted = folder / "installed", "\n".join(PACKAGES)
    if not stamp.exists() or stamp.read_text() != wanted:
        tell("installing Superset: some minutes")
        venv.create(folder / "environment", with_pip=True, clear=True)
        done = subprocess.run(
            [str(found.python), "-m", "pip", "install", "--quiet", *PACKAGES],
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise RuntimeError(f"Superset cannot be installed: {done.stderr[-2000:]}")
        stamp.write_text(wanted)
    if not (folder / "metadata.db").exists():
        tell("initialising Superset: a minute or two")
        started = folder / "starting" / "metadata.db"
        shutil.rmtree(started.parent, ignore_errors=True)
        started.parent.mkdir()
        found.run(started, "db", "upgrade")
        admin = ["--username", "admin", "--firstname", "A", "--lastname", "A"]
        secret_part = ["--email", "admin@localhost", "--password", found.password]
        found.run(started, "fab", "create-admin", *admin, *secret_part)
        found.run(started, "init")
        started.rename(folder / "metadata.db")  # last: half of it would pass for the whole
    return found


@contextmanager
def running(superset: Superset, folder: Path) -> Iterator[str]:
    """Run Superset over a fresh copy of its metadata; its address."""
    metadata = folder / "metadata.db"
    shutil.copy(superset.folder / "metadata.db", metadata)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = ["run", "--host", "127.0.0.1", "--port", str(port), "--with-threads"]
    said = folder / "superset.log"
    with said.open("w") as log:
        process = subprocess.Popen(
            [str(superset.python.with_name("superset")), *words],
            env=superset.variables(metadata),
            cwd=folder,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        _wait(f"http://127.0.0.1:{port}/health", process, said)
        yield f"http://127.0.0.1:{port}"
    finally:
        end(process)


def _wait(address: str, process: subprocess.Popen[bytes], said: Path, seconds: int = 600) -> None:
    until = time.monotonic() + seconds
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while time.monotonic() < until and process.poll() is None:
        try:
            direct.open(address, timeout=10).close()
        except OSError:
            time.sleep(0.5)
        else:
            return
    raise RuntimeError(f"Superset does not start: {said.read_text()[-2000:]}")
