"""The server beside PostgreSQL 15, on the same machine and in one run.

    python -m tests.bench.bench_wire

What is compared is processor time of the servers, so it is taken from the system and not by the
clocks of ``ratio``; that is why ``cases`` has none.  Both are asked by PostgreSQL's own clients:
pgbench (Parse, Bind, Describe, Execute, Sync each time) and psql.  PostgreSQL comes from Debian's
package and gets a cluster of its own in a temporary folder; without it nothing is measured.

    small       SELECT count(*) on a table of one row there; a reconstructed count here.  Asked
                again, ours is an answer that the server remembers: what a dashboard does.  What
                the same count costs when nobody has asked it before is printed beside it.
    rows        1,000,000 rows of 5 columns as text, from a release whose rows may be listed
    clients     statements a second with 16 clients against those with 1
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import duckdb

import privsql
from tests.bench.ratio import Case
from tests.fronts.pgwire.test_memory import descendants
from tests.specs import measure, public, sensitive, spec
from tests.sql.clinic import publish

ROWS = 1_000_000
ROUNDS = 5
SMALL = "SELECT count(*) FROM patients WHERE disease = 'flu';"
MANY = "SELECT region, qty, amount, day, illness FROM sales"
SPEC = spec(
    "sales",
    public("region"),
    public("qty"),
    measure("amount"),
    public("day"),
    sensitive("illness", 0.5, ["flu", "none"]),
    more="""
[groups]
merge = "none"
[policy]
rows = "allow"
""",
)
RAW = f"""
    SELECT (['north', 'south', 'east'])[1 + (i % 3)::INTEGER] AS region, i % 7 AS qty,
           (hash(i) % 10000) / 100 AS amount, DATE '2024-01-01' + (i % 5)::INTEGER AS day,
           (['flu', 'none'])[1 + (hash(i * 3) % 2)::INTEGER] AS illness
    FROM range({ROWS}) AS r(i)
"""
SERVE = """
import asyncio, sys
from privsql.fronts.pgwire.server import House, serve
from privsql.policy.history import History
from privsql.policy.journal import Journal

async def main():
    folder, *paths = sys.argv[1:]
    journal = Journal(folder + "/journal")
    house = House(paths, history=History(folder + "/history"), journal=journal)
    ready = asyncio.get_running_loop().create_future()
    ready.add_done_callback(lambda done: print(done.result()[0][1], flush=True))
    await serve([], port=0, house=house, ready=ready)

asyncio.run(main())
"""


@contextmanager
def cases() -> Iterator[Sequence[Case]]:
    """None: see above."""
    yield ()


@dataclass(frozen=True)
class Server:
    """Something that speaks PostgreSQL's protocol."""

    pid: int
    port: int
    user: str
    database: str

    def cpu(self) -> float:
        """Seconds of processors that it took, with its children, those that have ended too."""
        found = 0
        for pid in (self.pid, *descendants(self.pid)):
            with suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                found += sum(map(int, fields[11:15]))
        return found / os.sysconf("SC_CLK_TCK")

    def taken(self, work: Callable[[], object]) -> float:
        before = self.cpu()
        work()
        time.sleep(0.05)  # a backend has to end before its time is its parent's
        return self.cpu() - before

    def address(self) -> list[str]:
        return ["-h", "127.0.0.1", "-p", str(self.port), "-U", self.user]

    def bench(self, script: Path, *options: str) -> float:
        """Statements a second, by pgbench."""
        command = ["pgbench", "-n", "-M", "extended", "-f", str(script), *options]
        out = _run([*command, *self.address(), self.database])
        found = re.search(r"tps = ([\d.]+)", out)
        if found is None:
            raise SystemExit(out)
        return float(found[1])

    def fetch(self, sql: str) -> None:
        """All rows of a query, by psql."""
        _run(
            ["psql", "-X", "-A", "-t", "-o", "/dev/null", "-c", sql, *self.address(), self.database]
        )


def _run(command: list[str]) -> str:
    path = f"{_binaries()}:{os.environ['PATH']}"
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PATH": path}, check=False
    )
    if done.returncode:
        raise SystemExit(f"{command[0]} failed: {done.stderr[-500:]}")
    return done.stdout


def _binaries() -> Path | None:
    """Where Debian puts PostgreSQL 15."""
    folder = Path("/usr/lib/postgresql/15/bin")
    return folder if (folder / "initdb").exists() else None


@contextmanager
def postgresql(folder: Path) -> Iterator[Server]:
    """A cluster of its own.  It refuses to run as root, so root becomes its user."""
    binaries = _binaries()
    assert binaries is not None
    user = "postgres" if os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_name
    home = folder / "cluster"
    home.mkdir()
    if os.getuid() == 0:
        shutil.chown(home, "postgres")
        folder.chmod(0o755)
    other = {"user": "postgres", "group": "postgres"} if os.getuid() == 0 else {}
    data, port = home / "data", 54000 + os.getpid() % 1000
    subprocess.run(
        [binaries / "initdb", "-D", data, "-U", user, "-A", "trust", "-E", "UTF8", "--no-sync"],
        check=True, stdout=subprocess.DEVNULL, cwd=home, **other,
    )  # fmt: skip
    settings = f"-p {port} -k {home} -c listen_addresses=127.0.0.1 -c autovacuum=off"
    process = subprocess.Popen(
        [binaries / "postgres", "-D", data, *settings.split()],
        stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, cwd=home, **other,
    )  # fmt: skip
    try:
        made = Server(process.pid, port, user, "postgres")
        for _ in range(100):
            ready = subprocess.run(
                [binaries / "pg_isready", *made.address()], stdout=subprocess.DEVNULL, check=False
            )
            if ready.returncode == 0:
                break
            time.sleep(0.1)
        yield made
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def ours(folder: Path, paths: Sequence[Path]) -> Iterator[Server]:
    """Our server as ``privsql serve`` runs it: with a journal and a history."""
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE, str(folder), *map(str, paths)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield Server(process.pid, int(process.stdout.readline()), "ann", "privsql")
    finally:
        process.terminate()
        process.wait(30)
        process.stdout.close()


def _released(folder: Path) -> list[Path]:
    (folder / "sales.toml").write_text(SPEC, encoding="utf-8")
    with duckdb.connect() as con:
        con.sql(RAW).write_parquet(str(folder / "sales.parquet"))
        con.sql(f"SELECT * FROM '{folder / 'sales.parquet'}'").write_csv(str(folder / "sales.csv"))
    sales = folder / "sales.duckdb"
    privsql.publish(str(folder / "sales.parquet"), sales, spec=folder / "sales.toml", seed=1)
    return [publish(folder, 0.5), sales]


def _loaded(server: Server, folder: Path) -> None:
    server.fetch("CREATE TABLE one AS SELECT 1 AS a")
    server.fetch(
        "CREATE TABLE sales (region text, qty bigint, amount float8, day date, illness text)"
    )
    server.fetch(f"\\copy sales FROM '{folder / 'sales.csv'}' CSV HEADER")
    server.fetch("VACUUM ANALYZE")


def _said(name: str, ratios: Sequence[float], limit: float, note: str, *, least: bool) -> bool:
    ratio = statistics.median(ratios)
    kept = ratio >= limit if least else ratio <= limit
    low, high = min(ratios), max(ratios)
    print(
        f"{'ok  ' if kept else 'MISS'} wire {name:<50} {ratio:8.2f}x  [{low:.2f}, {high:.2f}]"
        f"  {'>=' if least else '<='} {limit:g}   ({note})",
        flush=True,
    )
    return kept


def _small(mine: Server, other: Server, folder: Path) -> bool:
    again, there, fresh = folder / "again.sql", folder / "there.sql", folder / "fresh.sql"
    again.write_text(SMALL)
    there.write_text("SELECT count(*) FROM one;")
    fresh.write_text(
        "\\set a random(1, 1000000000)\n"
        "SELECT count(*) FROM patients WHERE disease = 'flu' AND cost <> :a;"
    )
    mine.bench(again, "-t", "200")
    ratios, pairs = [], []
    for _ in range(ROUNDS):
        here = mine.taken(lambda: mine.bench(again, "-t", "2000")) / 2000
        theirs = other.taken(lambda: other.bench(there, "-t", "10000")) / 10000
        ratios.append(here / theirs)
        pairs.append((here, theirs))
    here, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
    kept = _said(
        "small query, extended, server cpu: a remembered answer", ratios, 15,
        f"{here * 1e6:.0f} us against {theirs * 1e6:.0f} us", least=False,
    )  # fmt: skip
    # Values are part of the text: pgbench's are else typed by nobody.
    first = mine.taken(lambda: mine.bench(fresh, "-M", "simple", "-t", "40")) / 40
    print(
        f"     wire the same count, asked for the first time        {first / theirs:8.0f}x"
        f"  no limit   ({first * 1e3:.1f} ms)"
    )
    return kept


def _rows(mine: Server, other: Server) -> bool:
    ratios, pairs = [], []
    for number in range(ROUNDS + 1):
        here = mine.taken(lambda: mine.fetch(MANY))
        theirs = other.taken(lambda: other.fetch(MANY))
        if number:  # the first round warms
            ratios.append(here / theirs)
            pairs.append((here, theirs))
    here, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
    return _said(
        f"{ROWS:,} x 5 rows as text, server cpu", ratios, 3,
        f"{here:.2f} s against {theirs:.2f} s", least=False,
    )  # fmt: skip


def _clients(mine: Server, folder: Path) -> bool:
    script, pairs = folder / "again.sql", []
    for _ in range(ROUNDS):
        one = mine.bench(script, "-c", "1", "-T", "2")
        many = mine.bench(script, "-c", "16", "-j", "2", "-T", "2")
        pairs.append((one, many))
    one, many = (statistics.median(side) for side in zip(*pairs, strict=True))
    return _said(
        "statements a second, 16 clients against 1", [many / one for one, many in pairs], 1,
        f"{many:.0f} against {one:.0f}", least=True,
    )  # fmt: skip


def main() -> int:
    """Measure all; 1 where a limit is missed."""
    if _binaries() is None or shutil.which("psql") is None:
        print("wire: PostgreSQL 15 is not installed (Debian: postgresql-15): nothing to compare")
        return 0
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        paths = _released(folder)
        other = stack.enter_context(postgresql(folder))
        _loaded(other, folder)
        mine = stack.enter_context(ours(folder, paths))
        print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
        kept = [_small(mine, other, folder), _rows(mine, other), _clients(mine, folder)]
    return int(not all(kept))


if __name__ == "__main__":
    sys.exit(main())
