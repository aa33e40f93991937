"""Counts the statements of tools about the catalog that work.

    python -m tests.fronts.pgwire.introspection [recorded.json ...]

``introspection.sql`` has statements by tool.  A file of recorded ones has rows of client, statement
and how often it was sent; statements about tables of its own are left out.  One works where it is
read, described as it is named, and runs; those that do not are printed with their error.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from privsql.errors import Error
from privsql.fronts.pgwire.catalog.answers import Catalog
from privsql.fronts.pgwire.errors import state_of
from privsql.release.manifest import Manifest
from privsql.sql.postgres.read import Command, read

FILE = Path(__file__).with_name("introspection.sql")
ASKED = ("catalog", "constant")


def statements() -> Iterator[tuple[str, str]]:
    """The tool and the text of each statement of the file; one stands on a line."""
    tool = ""
    for line in FILE.read_text("utf-8").splitlines():
        if line.startswith("-- == "):
            tool = line.removeprefix("-- == ")
        elif line and not line.startswith("--"):
            yield tool, line


def recorded(path: Path) -> Iterator[tuple[str, str]]:
    """Statements that clients were seen to send."""
    for client, text, *_ in json.loads(path.read_text("utf-8")):
        yield client, text


def problem_with(catalog: Catalog, text: str) -> Error | None:
    """What is wrong with a statement, or None where it works."""
    try:
        for command in read(text):
            if command.kind in ASKED:
                _asked(catalog, command)
    except Error as problem:
        return problem
    return None


def _asked(catalog: Catalog, command: Command) -> None:
    types = catalog.types(command.text, {})
    described = catalog.describe(command.text, types)
    assert command.names is None or len(command.names) == len(described)
    if not command.parameters:
        catalog.run(command.text)


def about_the_catalog(text: str) -> bool:
    """Whether a statement is about no table but the catalog's, as far as it can be read."""
    try:
        return all(command.kind != "query" for command in read(text))
    except Error:
        return True


def counted(catalog: Catalog, given: Iterator[tuple[str, str]]) -> bool:
    """Print a table by tool; whether all work."""
    work: Counter[str] = Counter()
    every: Counter[str] = Counter()
    for tool, text in given:
        if not about_the_catalog(text):
            continue
        problem = problem_with(catalog, text)
        every[tool] += 1
        work[tool] += problem is None
        if problem is not None:
            print(f"{tool}: {state_of(problem)} {problem.reason}\n    {text[:300]}")
    for tool, count in every.items():
        print(f"{tool:32} {work[tool]:4} of {count}")
    print(f"{'all':32} {work.total():4} of {every.total()}")
    return work == every


def served(manifest: Manifest) -> Catalog:
    """The catalog of one release."""
    return Catalog({"patients": manifest}, "privsql", "ann", pid=1)


if __name__ == "__main__":
    from tests.fronts.pgwire.test_catalog import manifest

    catalog = served(manifest("patients"))
    passed = [counted(catalog, statements())]
    passed += [counted(catalog, recorded(Path(each))) for each in sys.argv[1:]]
    raise SystemExit(0 if all(passed) else 1)
