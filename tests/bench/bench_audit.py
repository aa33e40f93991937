"""What an audit costs, next to one GROUP BY over the same columns of the raw table.

10 million rows, 100,000 personal groups (three public columns), ten sensitive values.  The
release is published once.  Both sides read the raw table from the same DuckDB file; the audit
also opens the release, checks it, finds the group of each public tuple, holds every group
against its cap and computes the exact tails of the thousand that are worst off.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path

import duckdb

import privsql
from privsql.audit.job import audit
from tests.bench.ratio import Case
from tests.specs import grid, public, sensitive, spec

ROWS = int(os.environ.get("PRIVSQL_BENCH_AUDIT_ROWS", "10000000"))

SPEC = spec(
    "people",
    public("region"),
    public("job"),
    public("age"),
    sensitive("illness", 0.5, grid(0, 9)),
    more='[groups]\nmerge = "none"\n',
)


@contextmanager
def cases() -> Iterator[list[Case]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        raw, release = folder / "raw.duckdb", folder / "release.duckdb"

        @cache
        def made() -> None:
            """Publish when a case is run, and not when it is only listed."""
            with duckdb.connect(str(raw)) as con:
                con.execute("SET threads = 1; SELECT setseed(0.5)")
                con.execute(
                    "CREATE TABLE people AS SELECT (random() * 20)::INT % 20 AS region,"
                    " (random() * 50)::INT % 50 AS job, (random() * 100)::INT % 100 AS age,"
                    f" (random() * random() * 10)::INT % 10 AS illness FROM range({ROWS})"
                )
            (folder / "spec.toml").write_text(SPEC)
            privsql.publish(str(raw), release, spec=folder / "spec.toml", seed=1)
            found = audit(release, raw).groups[0]
            assert found.people == ROWS
            assert ROWS < 10**7 or (found.groups == 10**5 and len(found.tails) == 1_000)

        def ours(source: Path | None) -> None:
            made()
            audit(release, source)

        def grouped() -> None:
            made()
            with duckdb.connect(str(raw), read_only=True) as con:
                con.sql(
                    "SELECT region, job, age, illness, count(*) AS n FROM people GROUP BY ALL"
                ).to_arrow_table()

        yield [
            Case(
                f"audit: {what}, to one raw GROUP BY",
                partial(ours, source),
                grouped,
                limit=5,
                rounds=5,
                note=f"{ROWS:,} rows",
            )
            for what, source in (("with raw data", raw), ("the release alone", None))
        ]
