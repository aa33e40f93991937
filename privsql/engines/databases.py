"""Sandboxed in-memory databases: created, locked, filled and queried."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from privsql.engines.calls import Cursor
from privsql.engines.recent import Recent
from privsql.errors import ProgrammingError, TooLargeError
from privsql.release.names import quoted

Parameters = Sequence[object] | Mapping[str, object]
_ONE = "only one SELECT at a time can be run here"
_KIND = b"privsql.kind"  # of a column, in the metadata of its field


# Said of results that are fetched as Arrow without a relation.  Making the relation plans the
# statement twice, which for our long ones costs far more than a copy of their few rows.
warnings.filterwarnings("ignore", message="Arrow output on a DB-API", module=r"privsql\.engines")


def checked(
    cursor: Cursor, sql: str, parameters: Parameters
) -> tuple[duckdb.Statement, dict[str, object] | list[object]]:
    """One SELECT and as many values as it takes."""
    statement = parsed(cursor, sql)
    wanted, given = len(statement.named_parameters), len(parameters)
    if wanted != given:
        raise ProgrammingError(f"the statement takes {wanted} parameters; {given} were given")
    values = dict(parameters) if isinstance(parameters, Mapping) else list(parameters)
    return statement, values


# Statements that were read before, characters of the longest of them and of all: DuckDB takes
# milliseconds to read a long one.  What is kept is its tree, bound to no database, which takes
# many times the memory of its text.
LONGEST = 100_000
_PARSED: Recent[str, duckdb.Statement] = Recent(256, lambda kept: len(kept.query), 500_000)


def parsed(cursor: Cursor, sql: str) -> duckdb.Statement:
    """The one SELECT that a text is."""
    found = _PARSED.get(sql)
    if found is None:
        statements = cursor.extract_statements(sql)
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            raise ProgrammingError(_ONE)
        found = statements[0]
        if len(sql) <= LONGEST:
            _PARSED.put(sql, found)
    return found


@dataclass(frozen=True)
class Most:
    """What a statement may return: rows, cells (rows times columns) and bytes of Arrow.

    Behind an ORDER BY of what DuckDB takes for very many rows, it makes room for as many as the
    limit says: hundreds of megabytes for a few rows.  ``counted`` has it count them as they come,
    which keeps their order where there is one thread.
    """

    rows: int
    cells: int
    bytes: int
    counted: bool = False

    def fits(self, table: pa.Table) -> bool:
        """Whether a result is small enough."""
        return (
            table.num_rows <= self.rows
            and table.num_rows * table.num_columns <= self.cells
            and table.nbytes <= self.bytes
        )


def fetched(
    sql: str, parameters: Parameters, most: Most | None = None
) -> Callable[[Cursor], pa.Table]:
    """Work that runs one SELECT and returns its rows.

    With ``most`` DuckDB stops one row after the limit.  LIMIT over a sub-query keeps its order,
    as DuckDB documents, but columns of one name get different ones.
    """

    def work(cursor: Cursor) -> pa.Table:
        text = sql if most is None else _cut(sql, most)
        statement, values = checked(cursor, text, parameters)
        cursor.execute(statement, values)
        kinds = [str(column[1]) for column in cursor.description or ()]
        table = cursor.to_arrow_table()
        if table is None:
            raise ProgrammingError("the statement returns no rows")
        if most is not None and not most.fits(table):
            raise TooLargeError(
                f"the result is larger than {most.rows} rows, {most.cells} cells"
                f" or {most.bytes} bytes",
                hint="group by fewer or coarser values, or add a LIMIT",
            )
        return _labelled(table, kinds)

    return work


def _cut(sql: str, most: Most) -> str:
    """A SELECT that returns one row more than it may at most.

    Nothing in it closes our parenthesis: DuckDB's tokens say so, which is far cheaper than
    reading the statement once more on its own.
    """
    depth, text = 0, sql.encode()
    for place, kind in duckdb.tokenize(sql):
        sign = text[place : place + 1] if kind == duckdb.token_type.operator else b""
        depth += (sign == b"(") - (sign == b")")
        if depth < 0:
            break
    if depth:
        raise ProgrammingError(_ONE)
    limit = f"(SELECT {most.rows + 1})" if most.counted else f"{most.rows + 1}"
    return f"SELECT * FROM (\n{sql}\n) LIMIT {limit}"  # noqa: S608


def _labelled(table: pa.Table, kinds: Sequence[str]) -> pa.Table:
    """Write on columns of UUIDs, which Arrow has as text, what they are: ``store`` reads it."""
    for index, kind in enumerate(kinds):
        if kind == "UUID":
            labelled = table.field(index).with_metadata({_KIND: kind.encode()})
            table = table.set_column(index, labelled, table.column(index))
    return table


def connected(
    *, memory_limit: str | None, threads: int | None, temporary: str, spill: str | None = None
) -> duckdb.DuckDBPyConnection:
    """An empty in-memory database that loads no extension and reads no variable by itself."""
    config: dict[str, str | bool | int | float | list[str]] = {
        # Over a whole domain, or an estimate that is zero, a quotient is NULL and no mistake.
        "error_on_division_by_zero": "false",
        "autoload_known_extensions": "false",
        "autoinstall_known_extensions": "false",
        "allow_community_extensions": "false",
        "temp_directory": temporary,
        "async_threads": 1,
        # Here, because a cursor does not take over what was SET for another.
        "python_enable_replacements": "false",
    }
    if memory_limit is not None:
        config["memory_limit"] = memory_limit
    if threads is not None:
        config["threads"] = threads
    try:
        connection = duckdb.connect(":memory:", config=config)
        if spill is not None:
            # Given with the rest, DuckDB shows this limit but does not keep to it.
            connection.execute("SET max_temp_directory_size = $1", [spill])
        return connection
    except duckdb.Error:
        raise ProgrammingError(
            "a limit of memory or disk, or the number of threads, cannot be used",
            hint="write a limit like '2GB', and threads as a number above 0",
        ) from None


@contextmanager
def filling(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Fill a new database, then close every way to files and extensions, for good."""
    try:
        yield
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
    except BaseException:
        connection.close()
        raise


def store(cursor: Cursor, name: str, table: pa.Table) -> None:
    """Copy a table into the in-memory database, where every cursor sees it."""
    cursor.register("privsql_incoming", table)
    casts = [
        f"CAST({quoted(field.name)} AS UUID) AS {quoted(field.name)}"
        for field in table.schema
        if (field.metadata or {}).get(_KIND) == b"UUID"
    ]
    columns = f"* REPLACE ({', '.join(casts)})" if casts else "*"
    try:
        cursor.execute(
            f"CREATE OR REPLACE TABLE memory.main.{quoted(name)} AS"  # noqa: S608
            f" SELECT {columns} FROM privsql_incoming"
        )
    finally:
        cursor.unregister("privsql_incoming")
