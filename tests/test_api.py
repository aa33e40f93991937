"""The public interface, one name a line: a change to it is seen and meant.

What is listed in ``tests/cases/api.list`` follows the rules in CONTRIBUTING.md, "Versions": a name
stays until it was deprecated for a minor version.  On a change that is meant, see what the
difference says about the next version and write the list again:

    python -m tests.test_api > tests/cases/api.list
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

import privsql
from privsql import errors
from privsql.learn import DecisionTreeClassifier, NaiveBayes
from privsql.release.columns import MECHANISMS
from privsql.release.spec import COLUMN_KEYS, PROTECT_KEYS, TABLE_KEYS, TABLES
from privsql.session.settings import ESTIMATORS, Settings
from privsql.sql.outer.parts import OURS
from tests.docs.reference import commands
from udfs.functions import FUNCTIONS

LISTED = Path(__file__).parent / "cases" / "api.list"


def parameters(function: Any) -> str:
    """Names and defaults as a caller sees them, without types."""
    shown: list[str] = []
    for one in inspect.signature(function).parameters.values():
        if one.name in ("self", "cls") or one.name.startswith("_"):
            continue
        if one.kind is one.KEYWORD_ONLY and "*" not in shown:
            shown.append("*")
        star = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
        default = "" if one.default is one.empty else f"={one.default!r}"
        shown.append(f"{star}{one.name}{default}")
    return f"({', '.join(shown)})"


def members(name: str, owner: type) -> Iterator[str]:
    """Public methods and properties of a class."""
    for each in sorted(dir(owner)):
        if each.startswith("_"):
            continue
        found = inspect.getattr_static(owner, each)
        if isinstance(found, (staticmethod, classmethod)):
            found = found.__func__
        yield f"{name}.{each}{parameters(found) if inspect.isfunction(found) else ''}"


def python() -> Iterator[str]:
    """Names that programs import."""
    homes = [*privsql._HOME, *privsql._ROOMS, "apilevel", "threadsafety", "paramstyle"]
    for name in sorted(homes):
        yield f"privsql.{name}"
    for name in ("connect", "advise"):
        yield f"privsql.{name}{parameters(getattr(privsql, name))}"
    for name in ("publish", "audit"):
        job = __import__(f"privsql.{name}.job", fromlist=[name])
        yield f"privsql.{name}{parameters(getattr(job, name))}"
    for owner in (privsql.Connection, privsql.Cursor, privsql.Answer):
        yield from members(f"privsql.{owner.__name__}", owner)
    for learner in (DecisionTreeClassifier, NaiveBayes):
        yield f"privsql.learn.{learner.__name__}{parameters(learner)}"
        yield from members(f"privsql.learn.{learner.__name__}", learner)
    for name, kind in sorted(vars(errors).items()):
        if inspect.isclass(kind) and issubclass(kind, errors.Error):
            yield f"error {kind.code} {kind.sqlstate} privsql.errors.{name}"


def shell() -> Iterator[str]:
    """Commands with their arguments and options."""
    for name, command in commands():
        yield name
        for one in command.params:
            if isinstance(one, click.Argument):
                yield f"{name} {one.human_readable_name}"
            elif isinstance(one, click.Option) and not one.hidden:
                yield f"{name} {' '.join((*one.opts, *one.secondary_opts))}"


def sql() -> Iterator[str]:
    """Functions and settings of statements."""
    for name in sorted(OURS):
        yield f"SQL privsql_{name}(aggregate)"
    for function in sorted(FUNCTIONS, key=lambda each: each.name):
        yield f"SQL {function.name}"
    for one in fields(Settings):
        yield f"SET privsql.{one.name} = {one.default!r}"
    for name in ESTIMATORS:
        yield f"SET privsql.estimator = {name!r}"


def spec() -> Iterator[str]:
    """Keys of a spec."""
    for table, keys in TABLES.items():
        for key in keys:
            yield f"spec [{table}] {key}"
    for key in COLUMN_KEYS:
        yield f"spec [columns.*] {key}"
    for key in PROTECT_KEYS:
        yield f"spec [protect.reconstruction] {key}"
    for key in TABLE_KEYS:
        yield f"spec [tables.*] {key}"
    for mechanism, keys in MECHANISMS.items():
        yield f"spec mechanism = {mechanism!r}: {', '.join(keys)}"


def interface() -> str:
    """The whole list."""
    return "".join(f"{line}\n" for part in (python, shell, sql, spec) for line in part())


def test_the_interface_is_the_one_that_is_listed():
    assert interface().splitlines() == LISTED.read_text(encoding="utf-8").splitlines()


def test_what_is_listed_can_be_had():
    """The list is made from the program; these are said by hand, as people type them."""
    listed = LISTED.read_text(encoding="utf-8").splitlines()
    for line in (
        "privsql.connect",
        "privsql.Connection.sql(sql, parameters=None, **options)",
        "privsql.Answer.df()",
        "privsql publish --force",
        "SQL privsql_stderr(aggregate)",
        "SQL privsql_observed(aggregate)",
        "SET privsql.confidence_level = 0.95",
        "spec [release] key",
        "spec [columns.*] retention",
        "spec [protect.reconstruction] lambda",
    ):
        assert line in listed


if __name__ == "__main__":
    sys.stdout.write(interface())
