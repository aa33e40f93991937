"""In-memory databases that reach nothing outside: how one is made, locked, filled and asked."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence

import duckdb
import pyarrow as pa

from privsql.engines.calls import Cursor
from privsql.errors import ProgrammingError

Parameters = Sequence[object] | Mapping[str, object]


# Said of results that are fetched as Arrow without a relation.  Making the relation plans the
# statement twice, which for our long ones costs far more than a copy of their few rows.
warnings.filterwarnings("ignore", message="Arrow output on a DB-API", module=r"privsql\.engines")


def _checked(
    cursor: Cursor, sql: str, parameters: Parameters
) -> tuple[duckdb.Statement, dict[str, object] | list[object]]:
    """One SELECT and as many values as it takes."""
    statements = cursor.extract_statements(sql)
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise ProgrammingError("only one SELECT at a time can be run here")
    wanted, given = len(statements[0].named_parameters), len(parameters)
    if wanted != given:
        raise ProgrammingError(f"the statement takes {wanted} parameters; {given} were given")
    values = dict(parameters) if isinstance(parameters, Mapping) else list(parameters)
    return statements[0], values


def selected(cursor: Cursor, sql: str, parameters: Parameters) -> duckdb.DuckDBPyRelation:
    """The relation of one SELECT; it has not run yet."""
    statement, values = _checked(cursor, sql, parameters)
    return cursor.sql(statement, params=values)


def fetched(sql: str, parameters: Parameters) -> Callable[[Cursor], pa.Table]:
    """Work that runs one SELECT and returns its rows."""

    def work(cursor: Cursor) -> pa.Table:
        cursor.execute(*_checked(cursor, sql, parameters))
        table = cursor.to_arrow_table()
        if table is None:
            raise ProgrammingError("the statement has no rows to give")
        return table

    return work


def quoted(name: str) -> str:
    """A name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def connected(
    *, memory_limit: str | None, threads: int | None, temporary: str
) -> duckdb.DuckDBPyConnection:
    """An empty in-memory database that loads no extension and reads no variable by itself."""
    config: dict[str, str | bool | int | float | list[str]] = {
        # Over a whole domain, or an estimate that is zero, a quotient is NULL and no mistake.
        "error_on_division_by_zero": "false",
        "autoload_known_extensions": "false",
        "autoinstall_known_extensions": "false",
        "temp_directory": temporary,
        # Here, because a cursor does not take over what was SET for another.
        "python_enable_replacements": "false",
    }
    if memory_limit is not None:
        config["memory_limit"] = memory_limit
    if threads is not None:
        config["threads"] = threads
    try:
        return duckdb.connect(":memory:", config=config)
    except duckdb.Error:
        raise ProgrammingError(
            "the memory limit or the number of threads cannot be used",
            hint="write a memory limit like '2GB', and threads as a number above 0",
        ) from None


def lock(connection: duckdb.DuckDBPyConnection) -> None:
    """Close every way to files and extensions, for good."""
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def store(cursor: Cursor, name: str, table: pa.Table) -> None:
    """Copy a table into the in-memory database, where every cursor sees it."""
    cursor.register("privsql_incoming", table)
    try:
        cursor.execute(
            f"CREATE OR REPLACE TABLE memory.main.{quoted(name)} AS FROM privsql_incoming"
        )
    finally:
        cursor.unregister("privsql_incoming")
