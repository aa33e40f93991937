"""What an answer costs, next to the plain DuckDB query on the same published table.

20 million rows of eight sensitive integers (PRIVSQL_BENCH_ROWS for fewer), conditions that
each hold for 40 to 50% of rows, and public keys of 100, 10,000 and a million values.  Ours
is everything from the text to the estimate with its error bars; the other side is DuckDB
alone.  Where a peer is installed that answers the same count privately, it is timed too; see
``peers``.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import sqlglot
from sqlglot.optimizer.qualify import qualify

import privsql
from privsql.engines.embedded import Embedded
from privsql.release.store import open_release
from privsql.session.session import Session
from privsql.sql.outer.compile import Compiler
from privsql.sql.parse.statement import only, statements
from privsql.sql.plan.planner import PlanWriter, Wanted, read_parameters, whole
from tests.bench.peers import Question, beside
from tests.bench.ratio import Case

ROWS = int(os.environ.get("PRIVSQL_BENCH_ROWS", "20_000_000"))
KEYS = {"g100": 100, "g10k": 10_000, "g1m": 1_000_000}
BELOW = (50, 45, 40, 50, 45, 40, 50, 45)
CONDITIONS = [f"x{j} < {below}" for j, below in enumerate(BELOW)]

HEAD = """
[release]
table = "t"
[groups]
merge = "none"
[policy]
personal_groups = "flag"
min_rows = 0
"""

NUMBERS = "".join(
    [
        *(
            f'[columns.{name}]\nrole = "public"\n' + "grouping = false\n" * (name != "g100")
            for name in KEYS
        ),
        *(
            f'[columns.x{j}]\nrole = "sensitive"\nmechanism = "uniform"\nretention = 0.5\n'
            "domain = { lower = 0, upper = 99, step = 1 }\n"
            for j in range(8)
        ),
    ]
)
ILLNESSES = ", ".join(f"'illness {i}'" for i in range(12))
CATEGORIES = f"""
[columns.job]
role = "public"
[columns.illness]
role = "sensitive"
mechanism = "uniform"
retention = 0.5
domain = [{ILLNESSES}]
[columns.smoker]
role = "sensitive"
mechanism = "uniform"
retention = 0.5
domain = [false, true]
"""


def _numbers(rows: int) -> str:
    columns = [
        *(f"(hash(i * 16 + {8 + n}) % {size})::INTEGER AS {name}"
          for n, (name, size) in enumerate(KEYS.items())),
        *(f"(hash(i * 16 + {j}) % 100)::INTEGER AS x{j}" for j in range(8)),
    ]  # fmt: skip
    return f"SELECT {', '.join(columns)} FROM range({rows}) AS r(i)"


def _people(rows: int) -> str:
    return (
        "SELECT 'job ' || (hash(i * 16) % 20)::VARCHAR AS job,"
        " 'illness ' || (hash(i * 16 + 1) % 12)::VARCHAR AS illness,"
        f" hash(i * 16 + 2) % 3 = 0 AS smoker FROM range({rows}) AS r(i)"
    )


def release(folder: Path, name: str, spec: str, made: Callable[[int], str]) -> Path:
    """A release of many rows: a few are published, all the others put in their place.

    What is timed does not depend on what the values mean, and publishing would take minutes.
    """
    source, path = folder / f"{name}.parquet", folder / f"{name}.duckdb"
    with duckdb.connect() as con:
        pq.write_table(con.sql(made(5_000)).to_arrow_table(), source)
    (folder / f"{name}.toml").write_text(HEAD + spec)
    privsql.publish(str(source), path, spec=folder / f"{name}.toml", seed=1)
    manifest = open_release(path).manifest
    with duckdb.connect(str(path)) as con:
        rows = made(ROWS)
        if manifest.multiplicity:
            rows = f"SELECT *, count(*) AS privsql_multiplicity FROM ({rows}) GROUP BY ALL"
        names = ", ".join(row[0] for row in con.execute("DESCRIBE t").fetchall())
        key = manifest.groups.columns[0]
        if manifest.grouped:
            groups = f"(SELECT {key}, privsql_group FROM privsql.tuples)"
            rows = f"SELECT * FROM ({rows}) JOIN {groups} USING ({key})"
        con.execute("DELETE FROM t")
        con.execute(f"INSERT INTO t SELECT {names} FROM ({rows}) ORDER BY ALL")
        stored = con.execute("SELECT count(*) FROM t").fetchall()[0][0]
        many = "sum(privsql_multiplicity)" if manifest.multiplicity else "count(*)"
        con.execute(
            f"UPDATE privsql.tuples SET privsql_rows = n FROM"
            f" (SELECT {key} AS k, {many} AS n FROM t GROUP BY k) WHERE {key} = k"
        )
        text = replace(manifest, rows=stored).to_json()
        digest = hashlib.sha256(text.encode()).hexdigest()
        con.execute("UPDATE privsql.manifest SET document = ?, digest = ?", [text, digest])
    return path


@contextmanager
def cases() -> Iterator[list[Case]]:
    """All cases; the releases are made when the first of them is asked for."""
    with tempfile.TemporaryDirectory() as name:
        # A folder that stays saves the minute that the releases take.
        lazy = Lazily(Path(os.environ.get("PRIVSQL_BENCH_FOLDER", name)))
        try:
            yield [
                *counts(lazy),
                *grouped(lazy),
                *many(lazy),
                *personal(lazy),
                planning(lazy),
                *peers(lazy),
            ]
        finally:
            lazy.close()


class Lazily:
    """Sessions and plain engines on the releases."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._paths: dict[str, Path] = {}
        self._sessions: dict[str, Session] = {}
        self._engines: dict[str, Embedded] = {}

    def path(self, name: str) -> Path:
        if name not in self._paths:
            spec, made = (NUMBERS, _numbers) if name == "numbers" else (CATEGORIES, _people)
            kept = self._folder / f"{name}.duckdb"
            self._paths[name] = kept if kept.exists() else release(self._folder, name, spec, made)
        return self._paths[name]

    def session(self, name: str) -> Session:
        if name not in self._sessions:
            unjudged = name == "unjudged"
            made = Session(self.path("numbers" if unjudged else name))
            if unjudged:
                made._planning._judged = False
            self._sessions[name] = made
        return self._sessions[name]

    def ask(self, text: str, name: str = "numbers", **options: object) -> Callable[[], object]:
        return lambda: self.session(name).run(text, **options)

    def plain(self, text: str, name: str = "numbers") -> Callable[[], object]:
        def work() -> object:
            if name not in self._engines:
                self._engines[name] = Embedded(self.path(name))
            return self._engines[name].scan(text)

        return work

    def uncompacted(self, text: str) -> Callable[[], object]:
        """The query on a plain table of the same people, row by row."""
        found: list[duckdb.DuckDBPyConnection] = []

        def work() -> object:
            if not found:
                file = str(self._folder / "uncompacted.duckdb")
                with duckdb.connect(file) as con:
                    con.execute(f"CREATE TABLE IF NOT EXISTS t AS {_people(ROWS)}")
                found.append(duckdb.connect(file, read_only=True))
            return found[0].execute(text).to_arrow_table()

        return work

    def close(self) -> None:
        for each in (*self._sessions.values(), *self._engines.values()):
            each.close()


def _case(name: str, ours: Callable[[], object], other: Callable[[], object], limit: float,
          rounds: int = 7) -> Case:  # fmt: skip
    return Case(f"query {name}", ours, other, limit, rounds=rounds, cpu=True)


def counts(lazy: Lazily) -> list[Case]:
    limits = {1: 1.3, 2: 2.3, 3: 2.3, 4: 2.3, 5: 2.3, 6: 3.0, 8: 3.6}
    found = []
    for k, limit in limits.items():
        text = f"SELECT COUNT(*) FROM t WHERE {' AND '.join(CONDITIONS[:k])}"
        found.append(_case(f"COUNT, k = {k}", lazy.ask(text), lazy.plain(text), limit))
    text = f"SELECT COUNT(*) FROM t WHERE {' AND '.join(CONDITIONS[:3])}"
    found.append(
        _case(
            "COUNT, k = 3, likelihood", lazy.ask(text, estimator="iterative"), lazy.plain(text), 5
        )
    )
    return found


def grouped(lazy: Lazily) -> list[Case]:
    where = " AND ".join(CONDITIONS[:3])
    return [
        _case(
            f"COUNT, k = 3, {KEYS[key]:,} groups, to the count of all rows",
            lazy.ask(f"SELECT {key}, COUNT(*) FROM t WHERE {where} GROUP BY {key}"),
            lazy.plain(f"SELECT {key}, COUNT(*) FROM t GROUP BY {key}"),
            limit,
            rounds=5,
        )
        for key, limit in zip(KEYS, (2.6, 2.5, 2.0), strict=True)
    ]


def many(lazy: Lazily) -> list[Case]:
    filters = ", ".join(
        f"COUNT(*) FILTER (WHERE x{j % 8} < {20 + 3 * j}) AS c{j}" for j in range(10)
    )
    ten = f"SELECT {filters} FROM t"
    five = f"SELECT COUNT(*) FROM t WHERE {' OR '.join(f'x{j} < {20 + j}' for j in range(5))}"
    sick = "SELECT COUNT(*) FROM t WHERE illness IN ('illness 1', 'illness 2', 'illness 3')"
    return [
        _case("ten FILTERs", lazy.ask(ten), lazy.plain(ten), 1.3),
        _case("five-way OR", lazy.ask(five), lazy.plain(five), 1.3),
        _case(
            "COUNT, compacted, to the uncompacted table",
            lazy.ask(sick, "people"),
            lazy.uncompacted(sick),
            0.2,
        ),
    ]


def personal(lazy: Lazily) -> list[Case]:
    """The check of personal groups, to the same answer without it.

    Groups are told by 100 public tuples where conditions are on grouping columns, and by the rows
    themselves where a measure chooses among them.
    """
    where = " AND ".join(CONDITIONS[:3])
    asked = {
        ("personal check, 100 tuples", 1.1): f"SELECT COUNT(*) FROM t WHERE g100 < 50 AND {where}",
        ("personal check, a measure", 1.3): f"SELECT COUNT(*) FROM t WHERE g10k < 5000 AND {where}",
        (
            "personal check, 100 groups",
            1.1,
        ): f"SELECT g100, COUNT(*) FROM t WHERE {where} GROUP BY 1",
        ("personal check, 10,000 groups of a measure", 1.3): (
            f"SELECT g10k, COUNT(*) FROM t WHERE {where} GROUP BY 1"
        ),
    }
    return [
        _case(name, lazy.ask(text), lazy.ask(text, "unjudged"), limit)
        for (name, limit), text in asked.items()
    ]


def planning(lazy: Lazily) -> Case:
    """From text to SQL, without running either."""
    text = (
        f"SELECT g100, COUNT(*) AS n, AVG(x3) AS a FROM t WHERE {' AND '.join(CONDITIONS[:3])}"
        " GROUP BY g100 HAVING COUNT(*) > 10 ORDER BY n DESC LIMIT 5"
    )

    def ours() -> object:
        session = lazy.session("numbers")
        statement = statements(text)[0]
        if statement.tree is None:
            raise AssertionError("there is a query in it")
        tree = statement.tree.copy()
        parameters = read_parameters(tree, None)
        compiler = Compiler(session.catalog, statement.text)
        compiled = compiler.compile(tree)
        databases = session._planning._planner._databases
        writer = PlanWriter(session.catalog, parameters, databases, Wanted())
        plans = [writer.plan(part, f"p{n}") for n, part in enumerate(compiler.parts)]
        return parameters.bind(whole(compiled, plans))

    def theirs() -> object:
        schema = {"t": dict(lazy.session("numbers").catalog.columns)}
        return qualify(
            sqlglot.parse_one(text, dialect="duckdb"), schema=schema, dialect="duckdb"
        ).sql("duckdb")

    return _case("from text to SQL, to sqlglot's parse, qualify and print", ours, theirs, 3, 15)


def peers(lazy: Lazily) -> list[Case]:
    """The same count by libraries that add noise to answers, where they are installed."""
    text = f"SELECT COUNT(*) FROM t WHERE {' AND '.join(CONDITIONS[:3])}"
    remembered, raw = lazy.ask(text), lazy.plain(text)

    def exact() -> int:
        return int(raw()["count_star()"][0].as_py())  # type: ignore[index]

    def anew() -> object:
        lazy.session("numbers")._loading._plans._known.clear()
        return remembered()

    def planned() -> object:
        session = lazy.session("numbers")
        return session._planning.plan(only(text), None, session.settings)

    ours = {"privsql, plan remembered": remembered, "privsql, planned anew": anew}
    question = Question(text, lambda: lazy.path("numbers"), exact, ours, planned)
    return [beside(question, remembered, raw, limit=2.3)]
