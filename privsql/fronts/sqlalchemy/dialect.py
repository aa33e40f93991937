"""SQLAlchemy's dialect for releases: ``create_engine("privsql:///clinic.duckdb")``.

Embedded: the engine opens the file in this process, over the DB-API of the package.  (A release
behind ``privsql serve`` is a PostgreSQL database to SQLAlchemy: ``postgresql+psycopg://``.)

    create_engine("privsql:////data/clinic.duckdb?error_bars=true&confidence_level=0.9")
    create_engine("privsql:///clinic.duckdb", connect_args={"tables": {"places": frame}})

- The settings of ``SET privsql.*`` can be given in the URL.  A connection that goes back to the
  pool gets those again, so nobody inherits what another user has SET.
- Parameters are written ``$1``, ``$2``: an expression that stands in SELECT and in GROUP BY then
  names the same parameter twice, where two ``?`` would be two expressions.  Text of one's own may
  use ``?``, ``$1`` (``exec_driver_sql``) or ``:name`` (``text``).
- Notices are ``result.context.notices``, and those of the last statement of a connection are
  ``connection.info["notices"]``, for callers that never see a result (pandas).  They are logged
  as well, at INFO to ``sqlalchemy.dialects.privsql``.
- A release does not change: commit, rollback, savepoints and isolation levels succeed and do
  nothing.  An engine keeps the file that it opened; after ``publish --force`` call
  ``engine.dispose()``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import fields
from types import ModuleType
from typing import Any

from sqlalchemy import event, exc, pool
from sqlalchemy.engine import URL, Connection, Engine, default
from sqlalchemy.engine.interfaces import ConnectArgsType, DBAPIConnection

from privsql.errors import InterfaceError, Notice, ProgrammingError
from privsql.fronts.pgwire.settings import own_value
from privsql.fronts.sqlalchemy import catalog as shown
from privsql.fronts.sqlalchemy import compiler as sql
from privsql.session.settings import Settings

log = logging.getLogger("sqlalchemy.dialects.privsql")

SCHEMA = "main"
LEVELS = ("AUTOCOMMIT", "READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")


class PrivsqlContext(default.DefaultExecutionContext):
    """One statement under way; it keeps what the cursor had to say beyond its rows."""

    notices: tuple[Notice, ...] = ()

    def post_exec(self) -> None:
        """Take the notices before the cursor is closed, which is when its rows are fetched."""
        self.notices = tuple(getattr(self.cursor, "notices", ()))
        self.root_connection.info["notices"] = self.notices
        for notice in self.notices:
            log.info("%s", notice)


def _about(told: Callable[[shown.Table], Any]) -> Any:
    """A method that tells something of a table, if there is such a table."""

    def method(
        self: Any, connection: Connection, table_name: str, schema: str | None = None, **kw: Any
    ) -> Any:
        return told(self._table(connection, table_name, schema))

    return method


class PrivsqlDialect(default.DefaultDialect):
    """A release as SQLAlchemy sees it."""

    name = "privsql"
    driver = "privsql"
    default_schema_name = SCHEMA
    default_isolation_level = "SERIALIZABLE"
    default_paramstyle = "numeric_dollar"
    supports_statement_cache = True
    supports_native_boolean = True
    supports_native_decimal = True  # values arrive as they are: an estimate stays a float
    supports_native_uuid = True
    supports_comments = True
    supports_alter = False
    supports_sane_rowcount = False
    postfetch_lastrowid = False
    div_is_floordiv = False
    cte_follows_insert = True

    preparer = sql.PrivsqlPreparer
    statement_compiler = sql.PrivsqlCompiler
    type_compiler_cls = sql.PrivsqlTypeCompiler
    execution_ctx_cls = PrivsqlContext
    colspecs = sql.COLSPECS

    def __init__(self, paramstyle: str | None = None, **more: Any) -> None:
        given: Any = paramstyle or self.default_paramstyle
        super().__init__(paramstyle=given, **more)

    # -- connections -------------------------------------------------------------------

    @classmethod
    def import_dbapi(cls) -> ModuleType:
        """The package is its own DB-API module."""
        import privsql

        return privsql

    @classmethod
    def get_pool_class(cls, url: URL) -> type[pool.Pool]:
        """A connection takes time to open and one statement at a time: keep some, wait for them."""
        return pool.QueuePool

    def create_connect_args(self, url: URL) -> ConnectArgsType:
        """``privsql:///relative`` and ``privsql:////absolute``, with settings as options."""
        if url.host or url.port or url.username or url.password:
            raise exc.ArgumentError(
                "privsql:// opens a file, with three slashes before its name;"
                " a server is postgresql+psycopg://user@host:port/name"
            )
        if not url.database:
            raise exc.ArgumentError("name the release: privsql:///release.duckdb")
        return [url.database], _settings(url.query)

    @classmethod
    def engine_created(cls, engine: Engine) -> None:
        """Settings belong to whoever has the connection."""
        event.listen(engine.pool, "connect", _opened)
        event.listen(engine.pool, "checkin", _returned)

    def is_disconnect(self, e: Any, connection: Any, cursor: Any) -> bool:
        """A closed connection is to be replaced; nothing else can cut the way to a file."""
        return isinstance(e, InterfaceError) and e.reason == "the connection is closed"

    # -- transactions: nothing changes, so every promise about changes is kept -----------

    def do_savepoint(self, connection: Connection, name: str) -> None:
        """Do nothing."""

    do_rollback_to_savepoint = do_release_savepoint = do_savepoint

    def get_isolation_level_values(self, dbapi_conn: DBAPIConnection) -> Any:
        """All that SQL knows."""
        return LEVELS

    def get_isolation_level(self, dbapi_connection: DBAPIConnection) -> Any:
        """The strictest."""
        return self.default_isolation_level

    def set_isolation_level(self, dbapi_connection: DBAPIConnection, level: Any) -> None:
        """Do nothing."""

    # -- what there is -------------------------------------------------------------------

    def initialize(self, connection: Connection) -> None:
        """Ask nothing: all that SQLAlchemy would find out is known."""

    def get_schema_names(self, connection: Connection, **kw: Any) -> list[str]:
        """DuckDB's one schema."""
        return [SCHEMA]

    def get_table_names(
        self, connection: Connection, schema: str | None = None, **kw: Any
    ) -> list[str]:
        """The published table, and public tables that were given beside it."""
        return list(self._tables(connection, schema))

    def has_table(
        self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any
    ) -> bool:
        """Whether a query could name it."""
        return table_name.casefold() in map(str.casefold, self._tables(connection, schema))

    # The comment of a column says whether it was perturbed, that of a table what is promised.
    get_columns = _about(lambda table: list(table.columns))
    get_table_comment = _about(lambda table: {"text": table.comment})
    # A published row has no key, and a table has nothing else beside it.
    get_pk_constraint = _about(lambda table: {"constrained_columns": [], "name": None})
    get_table_options = _about(lambda table: {})
    get_foreign_keys = get_indexes = _about(lambda table: [])
    get_unique_constraints = get_check_constraints = get_indexes

    def _none(self, connection: Connection, schema: str | None = None, **kw: Any) -> list[str]:
        """A release has tables only."""
        return []

    get_view_names = get_materialized_view_names = get_sequence_names = _none
    get_temp_table_names = get_temp_view_names = _none

    def get_view_definition(
        self, connection: Connection, view_name: str, schema: str | None = None, **kw: Any
    ) -> str:
        """There is no view."""
        raise exc.NoSuchTableError(view_name)

    def has_sequence(
        self, connection: Connection, sequence_name: str, schema: str | None = None, **kw: Any
    ) -> bool:
        """There is none."""
        return False

    def _tables(self, connection: Connection, schema: str | None) -> Mapping[str, shown.Table]:
        known = schema is None or schema.casefold() == SCHEMA
        return shown.tables(connection.connection.dbapi_connection) if known else {}

    def _table(self, connection: Connection, name: str, schema: str | None) -> shown.Table:
        for each, table in self._tables(connection, schema).items():
            if each.casefold() == name.casefold():
                return table
        raise exc.NoSuchTableError(f"{schema}.{name}" if schema else name)


# -- settings in the URL -------------------------------------------------------------------


_OPTIONS = tuple(each.name for each in fields(Settings))


def _settings(query: Mapping[str, str | tuple[str, ...]]) -> dict[str, object]:
    """The options of a URL with their types; what they may be, the session says."""
    found: dict[str, object] = {}
    for name, text in query.items():
        short = name.removeprefix("privsql.")
        if short not in _OPTIONS:
            raise exc.ArgumentError(
                f"privsql:// has no option {name!r}; there are {', '.join(_OPTIONS)}"
            )
        if not isinstance(text, str):
            raise exc.ArgumentError(f"the option {name!r} is given twice")
        found[short] = own_value(short, text)
    # A wrong one is found here, where the URL is at hand, and not at the first query.
    try:
        Settings().with_options(found)
    except ProgrammingError as problem:
        raise exc.ArgumentError(str(problem)) from None
    return found


def _opened(connection: Any, record: Any) -> None:
    record.info["settings"] = shown.session(connection).settings


def _returned(connection: Any, record: Any) -> None:
    if connection is None:  # it broke
        return
    record.info.pop("notices", None)
    shown.session(connection).settings = record.info["settings"]
