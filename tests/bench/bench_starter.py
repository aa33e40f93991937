"""What `init` costs, next to DuckDB's own SUMMARIZE of the same file."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

from privsql.publish.starter import starter
from tests.bench.ratio import Case

ROWS = 2_000_000
LIMIT = 3.0

# Twenty columns: ids, dates, places, measures, answers, free text.
TABLE = f"""
SELECT i AS id, 'P-' || lpad((i * 7919 % {ROWS})::VARCHAR, 8, '0') AS code,
    DATE '1930-01-01' + (hash(i) % 27000)::INTEGER AS born, (hash(i + 1) % 80 + 18)::INTEGER AS age,
    ['f', 'm'][(hash(i + 2) % 2 + 1)::INTEGER] AS sex, 'city ' || (hash(i + 3) % 300) AS city,
    (10000 + hash(i + 4) % 20000)::VARCHAR AS zip,
    TIMESTAMP '2024-01-01' + to_minutes((hash(i + 5) % 500000)::INTEGER) AS seen,
    ['flu', 'none', 'hiv', 'cold'][(hash(i + 6) % 4 + 1)::INTEGER] AS disease,
    (hash(i + 13) % 8000000 / 100)::DOUBLE AS income, (hash(i + 14) % 1000003)::DOUBLE / 7 AS x1,
    hash(i + 15)::DOUBLE / 1e19 AS x2, hash(i + 16)::DOUBLE / 1e17 AS x3,
    (hash(i + 7) % 5)::INTEGER AS q1, (hash(i + 8) % 5)::INTEGER AS q2,
    (hash(i + 9) % 5)::INTEGER AS q3, (hash(i + 10) % 7)::INTEGER AS q4,
    'note ' || i || ' with some words of free text' AS note, hash(i + 11) % 2 = 0 AS smoker,
    (hash(i + 12) % 1000)::INTEGER AS steps
FROM range({ROWS}) r(i)
"""


@contextmanager
def cases() -> Iterator[list[Case]]:
    with tempfile.TemporaryDirectory() as name:
        yield [_case(Path(name) / f"raw.{kind}") for kind in ("parquet", "csv")]


def _case(path: Path) -> Case:
    with duckdb.connect() as con:
        made = con.sql(TABLE)
        write = made.write_parquet if path.suffix == ".parquet" else made.write_csv
        write(str(path))

    def summarize() -> None:
        with duckdb.connect() as con:
            con.sql(f"SUMMARIZE FROM '{path}'").fetchall()

    what = f"init, {ROWS:,} rows x 20 columns of {path.suffix[1:]}, to SUMMARIZE"
    return Case(what, lambda: starter(str(path)), summarize, LIMIT, rounds=3)
