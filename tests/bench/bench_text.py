"""What privsql's way from text to SQL costs, next to sqlglot's own parse, qualify and print.

The statements are those of ``tests.suites`` that are answered: 43 of web analytics, 22 of a
warehouse, 13 of a star schema, 150 of dashboards, 64 of ibis.  Ours is everything from the text
to the printed scans and reconstructions.  What planning asks of DuckDB on the way (types of
columns, expressions over domains) is asked before, and answered from a record while it is timed:
that is DuckDB's time.  The second case has it in.
"""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import sqlglot
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.qualify import qualify

from privsql.errors import Error
from privsql.session.session import Session
from privsql.sql.parameters import Printed
from privsql.sql.parse.statement import only
from privsql.sql.plan.query import Answered, Databases, QueryPlanner
from tests.bench.ratio import Case
from tests.suites.data import WORLDS
from tests.suites.run import SUITES, statements

RETENTION = 0.5


@dataclass(frozen=True)
class Asked:
    """The statements of a suite that are answered, and what plans them."""

    session: Session
    schema: dict[str, dict[str, str]]
    recorded: Databases
    texts: list[str]

    def ours(self) -> None:
        """Plan all of them; the same names are given each time."""
        planner = QueryPlanner(self.session.catalog, self.recorded)
        for text in self.texts:
            _plan(planner, self.session, text)

    def theirs(self) -> None:
        """Parse, qualify and print all of them."""
        for text in self.texts:
            _qualified(text, self.schema)


def _plan(planner: QueryPlanner, session: Session, text: str) -> None:
    planned = planner.plan(only(text), None, session._planning._wanted)
    if isinstance(planned, Answered):
        assert planned.final.printed.sql


def _qualified(text: str, schema: Mapping[str, Any]) -> str:
    tree = sqlglot.parse_one(text, dialect="duckdb")
    return qualify(tree, schema=dict(schema), dialect="duckdb").sql("duckdb")


def recorded(databases: Databases) -> Databases:
    """The same answers, each of which is asked for once."""
    known: dict[tuple[str, str, str], Any] = {}

    def asked(what: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def answer(printed: Printed, *more: Any) -> Any:
            key = (what, printed.sql, repr(printed.parameters))
            if key not in known:
                try:
                    known[key] = function(printed, *more)
                except Error as problem:
                    known[key] = problem
            if isinstance(known[key], Error):
                raise known[key]
            return known[key]

        return answer

    return replace(
        databases,
        run=asked("run", databases.run),
        describe=asked("describe", databases.describe),
        mirror=asked("mirror", databases.mirror),
        audit=None,
        exact=asked("exact", databases.exact),
        evaluated=asked("evaluated", databases.evaluated),
    )


def _opened(suite: str, folder: Path) -> Asked:
    world = WORLDS[suite]()
    session = Session(world.publish(folder, RETENTION), tables=world.dimensions)
    with duckdb.connect() as con:
        schema = {session.catalog.table: dict(session.catalog.columns)}
        for name, table in world.dimensions.items():
            shown = con.from_arrow(table)
            schema[name] = dict(zip(shown.columns, map(str, shown.types), strict=True))
    planner = QueryPlanner(session.catalog, session._planning._planner._databases)
    texts = []
    for statement in statements(suite):
        try:
            _plan(planner, session, statement.sql)
            _qualified(statement.sql, schema)
        except (Error, SqlglotError):  # refused, or about tables that sqlglot was not told of
            continue
        texts.append(statement.sql)
    return Asked(session, schema, recorded(session._planning._planner._databases), texts)


@contextmanager
def cases() -> Iterator[list[Case]]:
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        stack.callback(gc.unfreeze)
        suites: list[Asked] = []

        def opened() -> list[Asked]:
            if not suites:
                for suite in SUITES:
                    made = _opened(suite, Path(stack.enter_context(_folder(name, suite))))
                    stack.callback(made.session.close)
                    suites.append(made)
                # What is held here is no garbage of either side, and is not looked through.
                gc.collect()
                gc.freeze()
            return suites

        def planned() -> None:
            for each in opened():
                each.ours()

        def asked() -> None:
            for each in opened():
                for text in each.texts:
                    each.session._planning.plan(only(text), None, each.session.settings)

        def theirs() -> None:
            for each in opened():
                each.theirs()

        to = "to sqlglot's parse, qualify and print"
        yield [
            Case(f"text to SQL, the suites, {to}", planned, theirs, 5, rounds=7, cpu=True),
            Case(f"text to plan, DuckDB included, {to}", asked, theirs, 9, rounds=7, cpu=True),
        ]


@contextmanager
def _folder(name: str, suite: str) -> Iterator[str]:
    folder = Path(name) / suite
    folder.mkdir()
    yield str(folder)
