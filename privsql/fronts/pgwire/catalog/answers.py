"""PostgreSQL's catalog, as clients query it for tables, types and settings.

It is answered from an in-memory DuckDB of its own, whose relations have PostgreSQL's shapes.
No published row is in it, nor anything that the manifest does not tell.  The database is made
once for a set of releases and shared by all connections that see the same set; who asks is
told to it before every statement.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import duckdb
import pyarrow as pa

from privsql.engines import databases
from privsql.engines.calls import Calls, Cursor
from privsql.engines.recent import Recent
from privsql.errors import ProgrammingError
from privsql.fronts.pgwire.catalog.database import COLUMNS, filled, variable
from privsql.fronts.pgwire.errors import UnknownColumnError, UnknownFunctionError
from privsql.release.manifest import Manifest
from privsql.sql.parse.parameter_types import catalog_types
from privsql.sql.postgres.commands import UnknownRelation

T = TypeVar("T")

_NONE: Mapping[str, str] = {}  # settings that were changed
# Databases that are kept for the next connection.
KEPT = 8
MOST = databases.Most(rows=1_000_000, cells=10_000_000, bytes=256 << 20, counted=True)

# DuckDB's words for a name that is not there, and PostgreSQL's, by which clients know it.
_MISSING: tuple[tuple[str, type[ProgrammingError], str], ...] = (
    (r'Table with name "?([^"\s]+?)"? does', UnknownRelation, 'relation "{}" does not exist'),
    (r"Function with name (\S+) does", UnknownFunctionError, "function {}() does not exist"),
    # A function of DuckDB's that PostgreSQL has not.
    (
        r'unction (?:with name )?"([^"]+)" is (?:a table function|not in the catalog)',
        UnknownFunctionError,
        "function {}() does not exist",
    ),
    (r'Referenced column "([^"]+)"', UnknownColumnError, 'column "{}" does not exist'),
    (r'not have a column named "([^"]+)"', UnknownColumnError, 'column "{}" does not exist'),
    (
        r'Referenced table "([^"]+)" not found',
        UnknownRelation,
        'missing FROM-clause entry for table "{}"',
    ),
)

# Whoever still uses a database that is forgotten here keeps it open.
_shared: Recent[str, Calls] = Recent(KEPT)
_seen: Recent[tuple[tuple[str, int], ...], tuple[dict[str, Manifest], Calls]] = Recent(KEPT)
_lock = threading.Lock()


class Catalog:
    """Answers commands of the kinds ``catalog`` and ``constant``.

    ``releases`` are manifests by the name of their table.
    """

    def __init__(
        self, releases: Mapping[str, Manifest], database: str, user: str, *, pid: int = 0
    ) -> None:
        self._database, self._user, self._pid = database, user, pid
        self._calls = _calls(releases)

    def describe(self, text: str, types: Sequence[str] = ()) -> list[tuple[str, str]]:
        """Names and types of the columns of one SELECT, which is not run.

        ``types`` are DuckDB's, of the parameters; those that are missing are text.
        """

        def work(cursor: Cursor) -> list[tuple[str, str]]:
            statement = self._prepared(cursor, text, _NONE)
            values = {name: _absent(name, types) for name in statement.named_parameters}
            relation = cursor.sql(statement, params=values)
            kinds = [_shown(str(kind)) for kind in relation.types]
            return list(zip(relation.columns, kinds, strict=True))

        return self._ran(work)

    def types(self, text: str, given: Mapping[int, str]) -> list[str]:
        """DuckDB's types of the parameters of one SELECT, by what stands beside them."""

        def describe(query: str) -> str | None:
            try:
                return self.describe(query)[0][1].replace("OID", "UINTEGER")
            except ProgrammingError:
                return None

        return catalog_types(text, COLUMNS, given, describe)

    def run(
        self, text: str, parameters: Sequence[Any] = (), settings: Mapping[str, str] = _NONE
    ) -> pa.Table:
        """Run one SELECT; ``settings`` are those that the connection has changed."""

        def work(cursor: Cursor) -> pa.Table:
            statement = self._prepared(cursor, text, settings)
            values = {
                name: parameters[int(name) - 1]
                for name in statement.named_parameters
                if name.isdigit() and 0 < int(name) <= len(parameters)
            }
            return databases.fetched(text, values, MOST)(cursor)

        return self._ran(work)

    def _ran(self, work: Callable[[Cursor], T]) -> T:
        try:
            return self._calls.run(work)
        except ProgrammingError as problem:
            raise _missing(problem) from None

    def interrupt(self) -> None:
        """End what is under way on this database, whoever asked for it: others ask again."""
        self._calls.interrupt()

    def _prepared(self, cursor: Cursor, text: str, settings: Mapping[str, str]) -> duckdb.Statement:
        cursor.execute(variable(self._user, self._database, self._pid, settings))
        return databases.parsed(cursor, text)


def _missing(problem: ProgrammingError) -> ProgrammingError:
    """The same error in PostgreSQL's words, if it is about a name that is not there.

    >>> _missing(ProgrammingError("Table with name pg_x does not exist!")).reason
    'relation "pg_x" does not exist'
    >>> _missing(ProgrammingError('Function "glob" is a table function but')).reason
    'function glob() does not exist'
    """
    for pattern, kind, words in _MISSING:
        if match := re.search(pattern, problem.reason):
            return kind(words.format(match[1]), hint=problem.hint)
    return problem


def _shown(kind: str) -> str:
    """DuckDB's type; numbers of objects are the only UINTEGER here, and are called ``OID``."""
    return kind.replace("UINTEGER", "OID") if kind.removesuffix("[]") == "UINTEGER" else kind


def _absent(name: str, types: Sequence[str]) -> duckdb.Value:
    at = int(name) - 1 if name.isdigit() else len(types)
    kind = types[at] if at < len(types) else "VARCHAR"
    return duckdb.Value(None, duckdb.sqltype("UINTEGER" if kind == "OID" else kind))


def _calls(releases: Mapping[str, Manifest]) -> Calls:
    """The database of a set of releases, made if there is none.

    Manifests that were seen before are recognised as the same objects, because writing them
    out for every statement would cost more than most statements.
    """
    manifests = dict(sorted(releases.items()))
    seen = tuple((name, id(each)) for name, each in manifests.items())
    with _lock:
        known = _seen.get(seen)
        if known is None:
            key = "\0".join(f"{name}\0{each.to_json()}" for name, each in manifests.items())
            found = _shared.get(key) or Calls(filled(manifests))
            _shared.put(key, found)
            # With the manifests, so that no other object can be given their numbers.
            known = manifests, found
            _seen.put(seen, known)
        return known[1]
