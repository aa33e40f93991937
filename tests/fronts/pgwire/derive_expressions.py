"""Asks a live PostgreSQL 15 what expressions are called and what they give.

    python -m tests.fronts.pgwire.derive_expressions host=/var/run/postgresql user=postgres

reads the expressions of ``expressions.tsv`` and writes its other two columns anew: the name of
the column and its value as text.  An expression that PostgreSQL refuses is an error here.
"""

from __future__ import annotations

import csv
import io
import subprocess
import sys
from pathlib import Path

FILE = Path(__file__).with_name("expressions.tsv")

# The row that expressions are about.
SOURCE = """
    (SELECT 7 AS a, 2 AS b, -7 AS m, 'Flu shot' AS s, 'a_b' AS u, true AS t, NULL::int AS z,
        timestamp '2024-05-06 07:08:09.25' AS ts, date '2024-02-29' AS d,
        2.5::float8 AS f, 10.25::numeric(6, 2) AS n) AS t
"""


def expressions() -> list[list[str]]:
    """Rows of the file: expression, name, value."""
    lines = FILE.read_text("utf-8").splitlines()
    return [line.split("\t", 2) for line in lines if line]


def asked(connection: str, expression: str) -> tuple[str, str]:
    done = subprocess.run(
        [
            *("psql", "-X", "--csv", "-q", "-v", "ON_ERROR_STOP=1", connection),
            *("-c", "SET timezone = 'UTC'", "-c", f"SELECT {expression} FROM {SOURCE}"),
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    rows = list(csv.reader(io.StringIO(done.stdout)))
    return rows[0][0], rows[1][0] if len(rows) > 1 and rows[1] else ""


if __name__ == "__main__":
    made = [[e[0], *asked(" ".join(sys.argv[1:]), e[0])] for e in expressions()]
    FILE.write_text("".join("\t".join(row) + "\n" for row in made), "utf-8")
