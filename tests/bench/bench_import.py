"""How long ``import privsql`` takes, next to the libraries that it stands on.

Each timing is a new process, because a module is imported once.  The start of Python is part of
both sides, as it is for whoever waits; it is a twentieth of the other side.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.bench.ratio import Case

BELOW = "import duckdb, sqlglot, numpy"


@contextmanager
def cases() -> Iterator[list[Case]]:
    to = "to duckdb, sqlglot and numpy"
    yield [
        Case(f"import privsql, {to}", _run("import privsql"), _run(BELOW), limit=2),
        # What is put off is not gone: the same once a program has what it asks with.
        Case(
            f"import privsql and what asks, {to}",
            _run("import privsql; privsql.connect"),
            _run(BELOW),
            limit=2,
        ),
    ]


def _run(code: str) -> Callable[[], object]:
    return lambda: subprocess.run([sys.executable, "-c", code], check=True)
