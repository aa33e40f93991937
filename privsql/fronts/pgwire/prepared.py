"""Prepared statements in SQL: PREPARE, EXECUTE and DEALLOCATE.

They share their names with those of the protocol, as in PostgreSQL: what one prepares the other
can bind.  A prepared statement is asked like any other each time it is executed, so every policy
is in force, and only then.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from privsql.errors import DataError
from privsql.fronts.pgwire.cursors import Prepared, Reply
from privsql.fronts.pgwire.errors import CountError, TextValueError, UnknownTypeError
from privsql.fronts.pgwire.protocol.decode import argument
from privsql.fronts.pgwire.protocol.types import Kind, kind_of_name
from privsql.sql.nodes import Unsupported
from privsql.sql.parse.statement import SyntaxMistake
from privsql.sql.postgres.read import Command

if TYPE_CHECKING:
    from privsql.fronts.pgwire.state import Dialogue

PREPARED = ("query", "catalog", "constant", "other")  # others can be prepared, to be refused then


async def prepare(dialogue: Dialogue, command: Command, _: Sequence[Any]) -> None:
    """``PREPARE name (type, ...) AS query``."""
    if command.inner is None or command.inner.kind not in PREPARED:
        raise SyntaxMistake(
            "only a query can be prepared", hint="PREPARE name (type, ...) AS SELECT ..."
        )
    given: dict[int, Kind] = {}
    for number, name in enumerate(command.arguments, 1):
        kind = kind_of_name(name)
        if kind is None:
            raise UnknownTypeError(
                f"the type of parameter ${number} is not known here",
                hint="such as int, bigint, float8, numeric, text, boolean, date or timestamp",
            )
        if kind.name != "unknown":
            given[number] = kind
    if not command.name:
        raise SyntaxMistake("a statement without a name cannot be executed", hint="name it")
    dialogue.prepare(command.name, Prepared(command.inner, given, declared=len(command.arguments)))


async def execute(dialogue: Dialogue, command: Command, _: Sequence[Any]) -> Reply:
    """``EXECUTE name (value, ...)``; values are constants, of the types that are settled."""
    prepared = dialogue.statement(command.name)
    if prepared.command is None:
        return Reply("SELECT")
    if len(command.arguments) != prepared.wanted:
        raise CountError(
            f'prepared statement "{command.name}" takes {prepared.wanted} parameters;'
            f" {len(command.arguments)} were given",
            hint="give one value for each parameter",
        )
    dialogue.check(prepared.command)
    await dialogue.types(prepared)
    values = [
        await _value(dialogue, text, kind, number)
        for number, (text, kind) in enumerate(
            zip(command.arguments, prepared.kinds or (), strict=True), 1
        )
    ]
    return await dialogue.execute(prepared.command, values, prepared.types)


async def _value(dialogue: Dialogue, text: str, kind: Kind, number: int) -> Any:
    """One value of a parameter's type.

    A string has no type of its own yet, so it is read as a bound value would be.
    """
    found = await _constant(dialogue, text)
    if found is None or (kind.duckdb == "VARCHAR" and isinstance(found, str)):
        return found
    if isinstance(found, str):
        return argument(found.encode(), kind, False, number)
    if kind.name == "numeric":
        # A cast would make it a DOUBLE.
        return Decimal(str(found)) if isinstance(found, float | int) else found
    try:
        return await _constant(dialogue, text, "text" if kind.duckdb == "VARCHAR" else kind.name)
    except DataError:
        raise TextValueError(
            f"the value of parameter ${number} is not a valid {kind.name}",
            hint="give a value of that type",
        ) from None


async def _constant(dialogue: Dialogue, text: str, kind: str = "") -> Any:
    """What an expression is; in parentheses it is one, whatever stands in it."""
    cast = f"::{kind}" if kind else ""
    found = await dialogue.read(f"SELECT (\n{text}\n){cast}")
    if len(found) == 1 and found[0].kind == "constant":
        answer = await dialogue.answer(found[0], ())
        if answer.table.num_rows == 1:
            return answer.table.column(0)[0].as_py()
    raise Unsupported("EXECUTE takes constants", hint="write each value out")


async def deallocate(dialogue: Dialogue, command: Command, _: Sequence[Any]) -> None:
    """``DEALLOCATE name`` or ``DEALLOCATE ALL``."""
    if command.name:
        dialogue.statement(command.name)
        del dialogue.statements[command.name]
    else:
        dialogue.statements.clear()
