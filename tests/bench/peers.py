"""The same count by peers, where they are installed: SmartNoise SQL and pyqrlew.

What is compared is processor time, not privacy.  The peers keep the raw data, add noise to
each answer (epsilon 1, one row each person) and reconstruct nothing; ours reads a table that
was perturbed once.  Here all of them read one table, which the peers take for raw data.

SmartNoise SQL asks the database for the exact count and adds noise in Python.  It has no reader
for DuckDB: the one for PostgreSQL is given a DuckDB connection ("on DuckDB").  Its ``from_df``
copies the frame into SQLite in memory; "on SQLite" is its reader for that, on a table filled
here in batches, because ``from_df`` makes a Python object of each value first.  pyqrlew rewrites
the query into one that adds the noise in SQL, in the dialect of PostgreSQL; DuckDB runs it as it
is.  Loading and connecting are not timed, on either side.

The peers need libraries of other versions than ours, so each runs in a process of its own:

    PRIVSQL_BENCH_PEER_PYTHON   interpreters to look for the peers in, separated as in PATH;
                                without it, the one that runs the benchmark

    python -m venv a && a/bin/pip install smartnoise-sql duckdb
    python -m venv b && b/bin/pip install pyqrlew duckdb
    PRIVSQL_BENCH_PEER_PYTHON=a/bin/python:b/bin/python python -m tests.bench peers

A process times itself (all of its threads) and all sides take turns.  Run as a script this
file is such a process, in an interpreter that has neither privsql nor the other tests: nothing
but the standard library is imported at the top.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module, metadata, util
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.bench.ratio import Case

Work = Callable[[], object]

VARIABLE = "PRIVSQL_BENCH_PEER_PYTHON"
ROUNDS = 7
REWRITING = "from text to SQL"
# Noise of standard deviation 1.4 and 5.3: farther off is another query, not noise.
FAR = 100
COLUMNS = [f"x{j}" for j in range(8)]


@dataclass(frozen=True)
class Peer:
    name: str
    package: str
    modules: tuple[str, ...]


PEERS = {
    "smartnoise": Peer("SmartNoise SQL", "smartnoise-sql", ("snsql", "duckdb")),
    "qrlew": Peer("pyqrlew", "pyqrlew", ("pyqrlew", "sqlalchemy", "duckdb")),
}


class PeerError(Exception):
    """A peer that cannot be measured; the text says why."""


# -- the benchmark's side -------------------------------------------------------------


@dataclass(frozen=True)
class Question:
    """A count of one table of a DuckDB file, and what of ours is timed beside the peers."""

    text: str
    path: Callable[[], Path]
    raw: Callable[[], int]
    ours: Mapping[str, Work]
    rewriting: Work


def beside(question: Question, ours: Work, raw: Work, limit: float) -> Case:
    """The count once more; before it is first timed the peers answer it, for the record.

    There is no limit on how ours compares with a peer: the verdict is ours to the raw count.
    """
    from tests.bench.ratio import Case

    compared: list[bool] = []

    def work() -> object:
        if not compared:
            compared.append(True)
            for line in comparison(question):
                print(f"     {line}", flush=True)
        return ours()

    name = "query COUNT, k = 3, beside its peers"
    return Case(name, work, raw, limit, rounds=ROUNDS, cpu=True)


def comparison(question: Question, rounds: int = ROUNDS) -> Iterator[str]:
    """Lines that say what each side took, in seconds of processors."""
    exact = question.raw()
    sides = {"DuckDB, the raw COUNT": timed(question.raw)}
    rewriting = {"privsql": timed(question.rewriting)}
    sides.update({name: timed(work) for name, work in question.ours.items()})
    with ExitStack() as stack:
        for key, peer in PEERS.items():
            try:
                process = stack.enter_context(Process(key, question))
                works = {side: process.timed(side, exact) for side in process.sides}
                for run in works.values():
                    run()  # A peer that cannot answer is left out whole.
                rewriting[process.title] = works.pop(REWRITING)
                sides.update({f"{process.title}, {side}": run for side, run in works.items()})
            except PeerError as problem:
                yield f"{peer.name} is not measured: {problem}"
        try:
            yield from table("the count", sides, rounds)
            yield from table(f"{REWRITING} alone", rewriting, rounds)
        except PeerError as problem:
            yield f"the peers are not measured: {problem}"


def timed(work: Work) -> Callable[[], float]:
    def run() -> float:
        start = time.process_time()
        work()
        return time.process_time() - start

    return run


def table(title: str, sides: Mapping[str, Callable[[], float]], rounds: int) -> list[str]:
    """All sides in turn; each with its median, and its ratio to the first of the same round."""
    for run in sides.values():
        run()
    found = [[run() for run in sides.values()] for _ in range(rounds)]
    lines = [f"peers, {title}: median of {rounds} of cpu, and of its ratio to the first"]
    for n, name in enumerate(sides):
        seconds = statistics.median(row[n] for row in found)
        ratios = sorted(row[n] / row[0] for row in found)
        low, _, high = statistics.quantiles(ratios, n=4, method="inclusive")
        lines.append(
            f"  {name:<50} {1e3 * seconds:9.1f} ms {statistics.median(ratios):8.2f}x"
            f"  [{low:.2f}, {high:.2f}]"
        )
    return lines


class Process:
    """A peer in the first interpreter that has it, waiting to be told what to run."""

    def __init__(self, key: str, question: Question) -> None:
        self._peer = PEERS[key]
        command = [found(self._peer), __file__, key, str(question.path()), question.text]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            ready = self._reply()
        except PeerError:
            self._end()
            raise
        self.sides: list[str] = ready["sides"]
        self.title = f"{self._peer.name} {ready['version']}"

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def timed(self, side: str, exact: int) -> Callable[[], float]:
        """Have one side run once; an answer that is far from the exact one does not count."""

        def run() -> float:
            assert self._process.stdin is not None
            try:
                print(side, file=self._process.stdin, flush=True)
            except BrokenPipeError:
                raise PeerError(f"{self.title} has ended") from None
            reply = self._reply()
            if side != REWRITING and abs(reply["answer"] - exact) > FAR:
                raise PeerError(f"{self.title}, {side} answers something other than the count")
            return float(reply["seconds"])

        return run

    def _reply(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise PeerError(f"{self._peer.name} ended with code {self._process.wait()}")
        reply: dict[str, Any] = json.loads(line)
        if "problem" in reply:
            raise PeerError(reply["problem"])
        return reply

    def _end(self) -> None:
        """It ends when there is nothing more to read."""
        self._process.communicate()


def found(peer: Peer) -> str:
    """The first interpreter that has all that the peer needs."""
    pythons = [each for each in os.environ.get(VARIABLE, "").split(os.pathsep) if each]
    missing = []
    for python in pythons or [sys.executable]:
        try:
            asked = [python, __file__, "missing", *peer.modules]
            said = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()
        except (OSError, subprocess.CalledProcessError):
            said = ["an interpreter that runs"]
        if not said:
            return python
        missing.append(" and ".join(said))
    raise PeerError(
        f"not installed; without {', without '.join(missing)} ({VARIABLE} names other interpreters)"
    )


# -- the peer's side: in its own interpreter ------------------------------------------


def main(words: Sequence[str]) -> int:
    if words[0] == "missing":
        print(*(name for name in words[1:] if util.find_spec(name) is None))
        return 0
    # Libraries may print; what they print must not be taken for a reply.
    with os.fdopen(os.dup(1), "w") as out:
        os.dup2(2, 1)
        try:
            key, path, text = words
            sides = {"smartnoise": smartnoise, "qrlew": qrlew}[key](path, text)
            version = metadata.version(PEERS[key].package)
            print(json.dumps({"version": version, "sides": list(sides)}), file=out, flush=True)
            for line in sys.stdin:
                print(json.dumps(run_once(sides[line.strip()])), file=out, flush=True)
        except Exception as problem:
            said = " ".join(f"{type(problem).__name__}: {problem}".split())[:200]
            print(json.dumps({"problem": said}), file=out, flush=True)
            return 1
    return 0


def run_once(work: Work) -> dict[str, object]:
    start = time.process_time()
    answer = work()
    return {"seconds": time.process_time() - start, "answer": answer}


def smartnoise(path: str, text: str) -> dict[str, Work]:
    duckdb, snsql = import_module("duckdb"), import_module("snsql")
    database = duckdb.connect(path, read_only=True)
    text = text.replace(" t ", " main.t ")
    columns = {name: {"type": "int", "lower": 0, "upper": 99} for name in COLUMNS}
    described = {"rows": row_count(database), "row_privacy": True, **columns}

    def reader(connection: object, engine: str) -> Any:
        return snsql.from_connection(
            connection,
            privacy=snsql.Privacy(epsilon=1.0),
            metadata={"": {"main": {"t": described}}},
            engine=engine,
        )

    on_duckdb = reader(Connection(database), "postgres")
    on_sqlite = reader(sqlite_copy(database), "sqlite")

    def rewritten() -> None:
        on_duckdb._rewrite(text)

    return {
        "on DuckDB": lambda: int(on_duckdb.execute(text)[1][0]),
        "on SQLite": lambda: int(on_sqlite.execute(text)[1][0]),
        REWRITING: rewritten,
    }


class Connection:
    """As much of a DB-API connection as the reader for PostgreSQL uses, over DuckDB.

    DuckDB's own refuses to commit where no transaction was begun, and its cursors cannot be
    iterated.
    """

    def __init__(self, database: Any) -> None:
        self._database = database

    def cursor(self) -> Connection:
        return Connection(self._database.cursor())

    def execute(self, sql: str) -> None:
        self._database.execute(sql)

    @property
    def description(self) -> Any:
        return self._database.description

    def __iter__(self) -> Iterator[Any]:
        return iter(self._database.fetchall())

    def commit(self) -> None:
        pass

    def rollback(self) -> None:
        pass


def sqlite_copy(database: Any) -> Any:
    lite = import_module("sqlite3").connect(":memory:")
    lite.execute(f"CREATE TABLE t ({', '.join(f'{name} INTEGER' for name in COLUMNS)})")
    rows = database.cursor().execute(f"SELECT {', '.join(COLUMNS)} FROM t")
    while batch := rows.fetchmany(100_000):
        lite.executemany(f"INSERT INTO t VALUES ({', '.join('?' * len(COLUMNS))})", batch)
    lite.commit()
    return lite


def qrlew(path: str, text: str) -> dict[str, Work]:
    duckdb = import_module("duckdb")
    database = duckdb.connect(path, read_only=True)
    dataset = qrlew_dataset(row_count(database))
    joins: list[tuple[str, str, str]] = []
    unit = [("t", joins, "_PRIVACY_UNIT_ROW_")]
    budget = {"epsilon": 1.0, "delta": 1e-6}

    def rewritten() -> str:
        relation = dataset.relation(text)
        private = relation.rewrite_with_differential_privacy(
            dataset, unit, budget, max_multiplicity=1.0
        )
        return str(private.relation().to_query())

    def rewritten_and_run() -> int:
        return int(database.execute(rewritten()).fetchall()[0][0])

    return {"on DuckDB": rewritten_and_run, REWRITING: rewritten}


def qrlew_dataset(rows: int) -> Any:
    """What pyqrlew knows of the table: its columns, their bounds, and its size.

    It reads them through SQLAlchemy, whose dialect for DuckDB does not work with the release
    of SQLAlchemy that pyqrlew brings.  So they are read from an empty table in SQLite, and the
    size is put in: noisy counts are cut at it.
    """
    alchemy, pyqrlew = import_module("sqlalchemy"), import_module("pyqrlew")
    engine = alchemy.create_engine("sqlite://")
    with engine.begin() as connection:
        names = ", ".join(f"{name} INTEGER" for name in COLUMNS)
        connection.execute(alchemy.text(f"CREATE TABLE t ({names})"))
    empty = pyqrlew.Dataset.from_database("bench", engine)
    kind = "sarus_data_spec/sarus_data_spec"
    schema = {"@type": f"{kind}.Schema", **json.loads(empty.schema)}
    size = {"@type": f"{kind}.Size", **json.loads(empty.size)}
    size["statistics"]["union"]["fields"][0]["statistics"]["struct"]["size"] = str(rows)
    made = {"transform": "0", "arguments": [], "named_arguments": {}}
    whole = {
        "@type": f"{kind}.Dataset",
        "uuid": schema["dataset"],
        "name": "bench",
        "spec": {"transformed": made},
        "properties": {},
    }
    dataset = pyqrlew.Dataset.from_str(*map(json.dumps, (whole, schema, size)))
    for name in COLUMNS:
        dataset = dataset.with_range(None, "t", name, 0, 99)
    return dataset


def row_count(database: Any) -> int:
    return int(database.execute("SELECT count(*) FROM t").fetchall()[0][0])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
