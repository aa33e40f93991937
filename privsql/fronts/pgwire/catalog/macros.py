"""PostgreSQL's system functions, as macros of the catalog database.

Most are in ``functions.sql``, over the relations of ``views.sql``; those that are alike are made
here.

What differs from one connection to another is in the variable ``pg``, a structure that is set
before every statement: ``user``, ``database``, ``pid`` and ``settings``.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources

from privsql.sql.postgres.catalog import CONSTANT, PRIVILEGES

# Reading is allowed, and nothing else is; the name of a privilege is the last parameter.
_READABLE = "lower({}) IN ('select', 'usage', 'connect', 'temp', 'temporary', 'execute')"

MOST_PAIRS = 12  # of json_build_object(), which takes any number


def script(name: str) -> str:
    """The text of an SQL file beside this module."""
    return resources.files(__package__).joinpath(f"{name}.sql").read_text("utf-8")


def statements() -> Iterator[str]:
    """Views and macros, in an order in which each finds those that it needs."""
    yield script("views")
    for constant, functions in CONSTANT.items():
        yield from _alike(functions, constant)
    yield from _alike(PRIVILEGES, _READABLE)
    pairs = [[(f"k{i}", f"v{i}") for i in range(n)] for n in range(1, MOST_PAIRS + 1)]
    yield "CREATE MACRO pgc.json_build_object" + ", ".join(
        f"({', '.join(f'{k}, {v}' for k, v in each)})"
        f" AS json_object({', '.join(f'{k}::VARCHAR, {v}' for k, v in each)})"
        for each in pairs
    )
    yield script("functions")


def _alike(functions: str, body: str) -> Iterator[str]:
    """Macros that differ in name and parameters only; ``{}`` in the body is the last of them."""
    for name, *counts in (each.split("/") for each in functions.split()):
        forms = [list("abcd"[: int(count)]) for count in counts]
        made = ", ".join(f"({', '.join(form)}) AS ({body.format(*form[-1:])})" for form in forms)
        yield f"CREATE MACRO pgc.{name}{made}"
