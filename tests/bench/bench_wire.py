"""The server beside PostgreSQL 15, on the same machine and in one run.

    python -m tests.bench.bench_wire

What is compared is processor time of the servers, so it is taken from the system and not by the
clocks of ``ratio``; that is why ``cases`` has none.  Both are asked by PostgreSQL's own clients:
pgbench (Parse, Bind, Describe, Execute, Sync each time) and psql.  PostgreSQL comes from Debian's
package and gets a cluster of its own in a temporary folder; without it nothing is measured.

    never asked   counts and means that nobody asked before over the demo's 300,000 rows, here and
                  there: each has a condition of its own on a measure, which the account of answers
                  has to judge; the account is that of a new user each round
    repeated      one question again and again, which the server remembers as for a dashboard,
                  against an empty query by the same messages; PostgreSQL's is printed beside it,
                  of which an empty query here is five times already: that is what asyncio takes
    rows          1,000,000 rows of 5 columns as text, from a release whose rows may be listed
    clients       statements a second with 16 clients against those with 1
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb

import privsql
from tests.bench.ratio import Case
from tests.fronts.pgwire.conftest import Client
from tests.fronts.pgwire.test_memory import descendants
from tests.specs import measure, public, sensitive, spec

ROWS = 1_000_000
ROUNDS = 5
FRESH = 12  # statements of a round
SMALL = "SELECT count(*) FROM patients WHERE disease = 'flu'"
NEVER = "SELECT {} FROM patients WHERE disease = 'flu' AND cost < {};\n"
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
    command = [sys.executable, "-m", "privsql.fronts.cli.main", "demo", "--folder", "clinic"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=folder)
    clinic = folder / "clinic"
    with duckdb.connect() as con:
        con.sql(f"SELECT * FROM '{clinic / 'clinic.parquet'}'").write_csv(
            str(folder / "clinic.csv")
        )
    return [clinic / "clinic.duckdb", sales]


def _loaded(server: Server, folder: Path) -> None:
    server.fetch(
        "CREATE TABLE sales (region text, qty bigint, amount float8, day date, illness text)"
    )
    server.fetch(f"\\copy sales FROM '{folder / 'sales.csv'}' CSV HEADER")
    server.fetch(
        "CREATE TABLE patients (patient_id bigint, sex text, age int, district text, job text,"
        " smoker text, disease text, cost int, visited date)"
    )
    server.fetch(f"\\copy patients FROM '{folder / 'clinic.csv'}' CSV HEADER")
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


def _never(mine: Server, other: Server, folder: Path) -> bool:
    """Statements that nobody asked before, over the same rows."""
    script, ratios, pairs = folder / "never.sql", [], []
    # Costs that cut the rows into parts of one size: small differences would be refused.
    with duckdb.connect() as con:
        shares = [(i + 0.5) / FRESH / (ROUNDS + 1) for i in range(FRESH * (ROUNDS + 1))]
        costs = con.execute(
            f"SELECT quantile_disc(cost, ?) FROM '{folder}/clinic/clinic.parquet'", [shares]
        ).fetchall()[0][0]
    for number in range(ROUNDS + 1):
        user = replace(mine, user=f"user{number}")
        texts = [
            NEVER.format("avg(cost)" if i % 2 else "count(*)", f"{cost}.{number}{i:03}")
            for i, cost in enumerate(costs[number :: ROUNDS + 1])
        ]
        script.write_text("".join(texts))
        # Simple, so that values are part of the text: pgbench's are else typed by nobody.
        here = user.taken(lambda: user.bench(script, "-M", "simple", "-t", "1")) / FRESH  # noqa: B023
        there = other.taken(lambda: other.bench(script, "-M", "simple", "-t", "1")) / FRESH
        if number:  # the first round warms
            ratios.append(here / there)
            pairs.append((here, there))
    here, there = (statistics.median(side) for side in zip(*pairs, strict=True))
    return _said(
        "never asked, 300,000 rows, server cpu", ratios, 60,
        f"{here * 1e3:.1f} ms against {there * 1e3:.1f} ms", least=False,
    )  # fmt: skip


def _extended(server: Server, sql: str, count: int) -> None:
    """A statement so often by Parse, Bind, Describe, Execute and Sync, sent together."""
    text = sql.encode() + b"\0"
    parts = ((b"P", b"\0" + text + bytes(2)), (b"B", bytes(8)), (b"D", b"P\0"), (b"E", bytes(5)))
    sent = b"".join(kind + struct.pack("!i", 4 + len(body)) + body for kind, body in parts)
    client = Client(server.port)
    client.start(user=server.user, database=server.database)
    for _ in range(count):
        client.socket.sendall(sent + b"S\0\0\0\4")
        found = b""
        while not found.endswith(b"Z\0\0\0\5I"):
            found += client.socket.recv(1 << 16)
        if (sql and b"SELECT 1\0" not in found) or found.startswith(b"E"):
            raise SystemExit(f"{sql}: {found!r}")
    client.send("X")
    client.close()


def _repeated(mine: Server, other: Server, folder: Path) -> bool:
    (folder / "again.sql").write_text(SMALL + ";")
    _extended(mine, SMALL, 500)
    ratios, pairs, far = [], [], []
    for _ in range(ROUNDS):
        here = mine.taken(lambda: _extended(mine, SMALL, 3000)) / 3000
        empty = mine.taken(lambda: _extended(mine, "", 5000)) / 5000
        there = other.taken(lambda: _extended(other, "", 5000)) / 5000
        ratios.append(here / empty)
        far.append(here / there)
        pairs.append((here, empty, there))
    here, empty, there = (statistics.median(side) for side in zip(*pairs, strict=True))
    kept = _said(
        "repeated, against an empty query", ratios, 5,
        f"{here * 1e6:.0f} us against {empty * 1e6:.0f} us", least=False,
    )  # fmt: skip
    print(
        f"     wire {'repeated, against an empty query of PostgreSQL':<50}"
        f" {statistics.median(far):8.2f}x  no limit"
        f"   (ours is {empty / there:.1f}x, theirs {there * 1e6:.0f} us)"
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
        f"{ROWS:,} x 5 rows as text, server cpu", ratios, 2,
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
        kept = [
            _repeated(mine, other, folder), _rows(mine, other), _clients(mine, folder),
            _never(mine, other, folder),
        ]  # fmt: skip
    return int(not all(kept))


if __name__ == "__main__":
    sys.exit(main())
