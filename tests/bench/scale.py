"""How much memory, time and disk a large publication takes.

python -m tests.bench scale [rows]

A Parquet file of six columns is made by streaming, then published by a process of its own,
whose peak of resident memory is the verdict.  Not part of ``make bench``: a hundred million
rows take minutes and some gigabytes of disk.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb

ROWS = 100_000_000
LIMIT = 2 * 10**9

SPEC = """
[release]
table = "people"
[columns.city]
role = "public"
[columns.job]
role = "public"
[columns.year]
role = "public"
[columns.illness]
role = "sensitive"
mechanism = "uniform"
retention = 0.3
domain = [{illnesses}]
[columns.age]
role = "sensitive"
mechanism = "uniform"
retention = 0.3
domain = {{ lower = 0, upper = 99, step = 1 }}
[columns.visits]
role = "sensitive"
mechanism = "uniform"
retention = 0.3
domain = {{ lower = 0, upper = 49, step = 1 }}
"""

MADE = """
SELECT 'city ' || (hash(i, 1) % 50)::VARCHAR AS city,
       'job ' || (hash(i, 2) % 20)::VARCHAR AS job,
       (1990 + hash(i, 3) % 30)::SMALLINT AS year,
       'illness ' || (hash(i, 4) % 12)::VARCHAR AS illness,
       (hash(i, 5) % 100)::INTEGER AS age,
       (hash(i, 6) % 50)::INTEGER AS visits
FROM range($rows) AS t(i)
"""

# The child measures itself: nobody else knows when it is done, and what it needed.
CHILD = """
import resource, sys, time
import privsql
start = time.perf_counter()
report = privsql.publish(sys.argv[1], sys.argv[2], spec=sys.argv[3])
seconds = time.perf_counter() - start
usage = resource.getrusage(resource.RUSAGE_SELF)
unit = 1 if sys.platform == "darwin" else 1024
print(report.rows, seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * unit)
"""


def made(folder: Path, rows: int) -> Path:
    """Write the source; rows stream from a generator to the file."""
    source = folder / "raw.parquet"
    with duckdb.connect(config={"memory_limit": "1GB", "temp_directory": str(folder)}) as con:
        con.sql(MADE, params={"rows": rows}).write_parquet(str(source))
    return source


def published(folder: Path, source: Path) -> tuple[int, float, float, int]:
    """Publish in a process of its own: rows, seconds, seconds of processors, peak memory."""
    spec = folder / "spec.toml"
    spec.write_text(SPEC.format(illnesses=", ".join(f'"illness {i}"' for i in range(12))))
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(source), str(folder / "out.duckdb"), str(spec)],
        capture_output=True,
        text=True,
        check=True,
    )
    rows, seconds, cpu, peak = done.stdout.split()
    return int(rows), float(seconds), float(cpu), int(peak)


def main(words: list[str]) -> int:
    rows = int(words[0].replace(",", "").replace("_", "")) if words else ROWS
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        start = time.perf_counter()
        source = made(folder, rows)
        print(f"{rows:,} rows x 6 columns, {source.stat().st_size / 1e9:.2f} GB of Parquet,"
              f" made in {time.perf_counter() - start:.0f} s", flush=True)  # fmt: skip
        _, seconds, cpu, peak = published(folder, source)
        size = (folder / "out.duckdb").stat().st_size
    kept = peak <= LIMIT
    print(
        f"{'ok  ' if kept else 'MISS'} publish: {seconds:.0f} s ({cpu:.0f} s of processors),"
        f" {rows / seconds:,.0f} rows/s, peak memory {peak / 1e9:.2f} GB <= {LIMIT / 1e9:g},"
        f" release {size / 1e9:.2f} GB"
    )
    return int(not kept)
