"""Many cells, many sums, several grids: what an answer costs beside the raw query.

50,000 people with three sensitive grids and a town of 250 values, each kept with probability
one half, and 1,000,000 rows with a public key of 40,000 values.  The other side is DuckDB alone,
with the same query over the same published rows.  A case holds within three times its raw query
and .3 seconds, or within one second, whichever is more; those of ten million cells, which no raw
query has, within the seconds that are named.  Every question is planned anew, and asked with all
error bars.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pyarrow.parquet as pq

import privsql
from privsql.engines.embedded import Embedded
from privsql.errors import TooLargeError
from privsql.session.session import Session
from tests.bench.ratio import Case

HEAD = """
[release]
table = "t"
[groups]
merge = "none"
[policy]
personal_groups = "flag"
min_rows = 0
"""


def _sensitive(name: str, domain: str) -> str:
    kept = 'role = "sensitive"\nmechanism = "uniform"\nretention = 0.5\naccept_epsilon = true\n'
    return f"[columns.{name}]\n{kept}domain = {domain}\n"


TOWNS = ", ".join(f"'town {i}'" for i in range(250))
PEOPLE = HEAD + "".join(
    [
        '[columns.region]\nrole = "public"\n',
        _sensitive("age", "{ lower = 17, upper = 90, step = 1 }"),
        _sensitive("income", "{ lower = 0, upper = 80000, step = 200 }"),
        _sensitive("wage", "{ lower = 0, upper = 8000, step = 10 }"),
        _sensitive("married", "[false, true]"),
        _sensitive("town", f"[{TOWNS}]"),
    ]
)
VISITS = HEAD + "".join(
    ['[columns.shop]\nrole = "public"\ngrouping = false\n', _sensitive("town", f"[{TOWNS}]")]
)

PEOPLE_ROWS = (
    "SELECT 'region ' || (hash(i * 16) % 8)::VARCHAR AS region,"
    " (17 + hash(i * 16 + 1) % 74)::INTEGER AS age,"
    " (hash(i * 16 + 2) % 401 * 200)::INTEGER AS income,"
    " (hash(i * 16 + 3) % 801 * 10)::INTEGER AS wage,"
    " hash(i * 16 + 4) % 2 = 0 AS married,"
    " 'town ' || (hash(i * 16 + 5) % 250)::VARCHAR AS town FROM range(50_000) AS r(i)"
)
VISITS_ROWS = (
    "SELECT (hash(i * 16) % 40_000)::INTEGER AS shop,"
    " 'town ' || (hash(i * 16 + 5) % 250)::VARCHAR AS town FROM range(1_000_000) AS r(i)"
)

# The raw query thrice and so many seconds, or this many.
TIMES, SPARE, WITHIN = 3.0, 0.3, 1.0

SUMS = ", ".join(f"SUM(age + {i})" for i in range(90))
QUESTIONS = {
    "two sensitive keys and a sum, three grids": (
        "SELECT age, married, COUNT(*) AS n, SUM(income) AS s FROM t GROUP BY age, married"
    ),
    "a sensitive key of 250 values": "SELECT town, COUNT(*) AS n FROM t GROUP BY town",
    "a sensitive key of 250 values, an average": (
        "SELECT town, COUNT(*) AS n, AVG(income) AS a FROM t GROUP BY town"
    ),
    "a sensitive key of 250 values, by region": (
        "SELECT region, town, COUNT(*) AS n FROM t GROUP BY region, town"
    ),
    "ninety sums over one sensitive column": f"SELECT {SUMS} FROM t",
    "ninety sums, by region": f"SELECT region, {SUMS} FROM t GROUP BY region",
    "two averages over different sensitive columns": (
        "SELECT married, AVG(age) AS a, AVG(wage) AS w FROM t GROUP BY married"
    ),
    "a difference of two averages": (
        "SELECT married, AVG(wage) - AVG(age) AS d FROM t GROUP BY married"
    ),
}
CROSSED = "SELECT shop, town, COUNT(*) AS n FROM t GROUP BY shop, town"


@contextmanager
def cases() -> Iterator[list[Case]]:
    """All cases; the releases are made when the first of them is asked for."""
    with tempfile.TemporaryDirectory() as name:
        lazy = Lazily(Path(os.environ.get("PRIVSQL_BENCH_FOLDER", name)))
        try:
            people = [
                Case(
                    f"slow: {name}",
                    lazy.ask("people", text),
                    lazy.plain("people", text),
                    TIMES,
                    rounds=5,
                    cpu=True,
                    spare=SPARE,
                    within=WITHIN,
                )
                for name, text in QUESTIONS.items()
            ]
            first = f"{CROSSED} ORDER BY n DESC LIMIT 10"
            raw = lazy.plain("visits", first)
            ours = {
                "ten million cells, the first ten": (lazy.ask("visits", first), 5.0),
                "ten million cells, refused": (lazy.refused("visits", CROSSED), 1.0),
            }
            yield [
                *people,
                *(
                    Case(f"slow: {name}", work, raw, 0.0, rounds=3, cpu=True, within=within)
                    for name, (work, within) in ours.items()
                ),
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
            spec, made = (PEOPLE, PEOPLE_ROWS) if name == "people" else (VISITS, VISITS_ROWS)
            path = self._folder / f"slow_{name}.duckdb"
            if not path.exists():
                with duckdb.connect() as con:
                    source = self._folder / f"slow_{name}.parquet"
                    pq.write_table(con.sql(made).to_arrow_table(), source)
                text = self._folder / f"slow_{name}.toml"
                text.write_text(spec)
                privsql.publish(str(source), path, spec=text, seed=1)
            self._paths[name] = path
        return self._paths[name]

    def ask(self, name: str, text: str) -> Callable[[], object]:
        def work() -> object:
            if name not in self._sessions:
                self._sessions[name] = Session(self.path(name))
            self._sessions[name]._loading._plans._known.clear()
            return self._sessions[name].run(text)

        return work

    def refused(self, name: str, text: str) -> Callable[[], object]:
        asked = self.ask(name, text)

        def work() -> object:
            try:
                return asked()
            except TooLargeError as problem:
                return problem

        return work

    def plain(self, name: str, text: str) -> Callable[[], object]:
        def work() -> object:
            if name not in self._engines:
                self._engines[name] = Embedded(self.path(name))
            return self._engines[name].scan(text)

        return work

    def close(self) -> None:
        for each in (*self._sessions.values(), *self._engines.values()):
            each.close()
