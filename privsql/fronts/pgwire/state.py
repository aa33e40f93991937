"""The state of a connection between messages, and the effect of each command.

    statements   prepared, by name                 portals   bound or declared, by name
    status       I idle, T in a transaction, E in one that has failed
    run_time     what SET changes

A release is read-only, so a transaction protects nothing.  But programs rely on how it
behaves: after an error nothing is answered until it ends, and cursors and local settings end
with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from privsql.errors import Error
from privsql.fronts.pgwire import prepared as preparing
from privsql.fronts.pgwire.cursors import Portal, Prepared, Reply, keep, moved, shown
from privsql.fronts.pgwire.errors import (
    AbortedError,
    NoTransactionError,
    ReadOnlyError,
    TakenCursorError,
    TakenStatementError,
    UnknownCursorError,
    UnknownParameterError,
    UnknownStatementError,
    warning_fields,
)
from privsql.fronts.pgwire.protocol.results import Copy
from privsql.fronts.pgwire.protocol.types import TEXT, kind_of
from privsql.fronts.pgwire.scheduler import Scheduler
from privsql.fronts.pgwire.settings import RunTime
from privsql.fronts.pgwire.status.metrics import measured
from privsql.fronts.pgwire.workers import Answer, Asker, Column, Desk, Job
from privsql.session.session import ACCOUNT_NAME
from privsql.sql.nodes import Unsupported
from privsql.sql.postgres.read import Command

T = TypeVar("T")
ENDS = ("commit", "rollback")
ROWS = ("query", "catalog", "constant")


class Dialogue:
    """The state of one connection and the commands that work on it."""

    def __init__(self, desk: Desk, asker: Asker, run_time: RunTime) -> None:
        self.desk, self.asker, self.run_time = desk, asker, run_time
        self.status = "I"
        self.statements: dict[str, Prepared] = {}
        self.portals: dict[str, Portal] = {}
        self.noted = False  # the journal has what became of the statement
        self._job: Job | None = None
        self._savepoints: list[str] = []

    # -- work in threads -----------------------------------------------------------------

    def cancel(self) -> None:
        """End the statement under way, if there is one."""
        if self._job is not None:
            self._job.cancel()

    async def read(self, text: str) -> Sequence[Command]:
        """The commands of a text."""
        found = self.desk.known(self.asker, text)
        if found is None:
            found = await self._threaded(self.desk.reading, self.desk.read, text)
        return found

    async def refused(self, text: str, command: Command | None, problem: Error) -> Error:
        """The error to tell; the statement is in the journal then, if there is one."""
        if self.noted or not text:
            return problem
        work = self.desk.refused
        return await self._threaded(self.desk.reading, work, text, command, problem)

    async def _threaded(self, pool: Scheduler, work: Callable[..., T], *given: Any) -> T:
        """What a method of the desk says to this asker."""
        return await pool.run(self.asker.user, work, self.asker, *given)

    @measured
    async def answer(
        self, command: Command, arguments: Sequence[Any], types: Sequence[str] = ()
    ) -> Answer:
        """Run a command that returns rows."""
        if len(arguments) < command.parameters:
            raise UnknownParameterError(
                f"there is no parameter ${len(arguments) + 1}",
                hint="prepare the statement and give its values, or write them out",
            )
        for name, value, local in command.settings:
            self.run_time.set(name, value, local=local)
        job = Job(self.asker, command, arguments, types, self.run_time)
        known = self.desk.instant(job)
        if known is not None:
            self.noted = True
            return known
        self._job, loop = job, asyncio.get_running_loop()
        limit = self.run_time.timeout
        timer = None if limit is None else loop.call_later(limit, job.cancel)
        try:
            return await self.desk.asking.run(self.asker.user, self.desk.answer, job)
        finally:
            self._job, self.noted = None, job.noted
            if timer is not None:
                timer.cancel()

    # -- statements and portals ----------------------------------------------------------

    def prepare(self, name: str, made: Prepared) -> None:
        """Keep a statement; one without a name takes the place of the last."""
        taken = TakenStatementError(f'prepared statement "{name}" already exists')
        keep(self.statements, name, made, taken, "DEALLOCATE ALL")

    def statement(self, name: str) -> Prepared:
        """A prepared statement."""
        if name not in self.statements:
            raise UnknownStatementError(f'prepared statement "{name}" does not exist')
        return self.statements[name]

    def open(self, portal: Portal) -> None:
        """Keep a portal; one without a name takes the place of the last."""
        taken = TakenCursorError(f'cursor "{portal.name}" already exists')
        keep(self.portals, portal.name, portal, taken, "CLOSE ALL")

    def portal(self, name: str) -> Portal:
        """A portal or cursor."""
        if name not in self.portals:
            raise UnknownCursorError(f'portal "{name}" does not exist')
        return self.portals[name]

    async def types(self, prepared: Prepared) -> None:
        """Settle the types of a statement's parameters."""
        if prepared.kinds is not None:
            return
        command, given = prepared.command, prepared.given
        known = {n: given[n].duckdb for n in range(1, prepared.used + 1) if n in given}
        found = list(known.values())
        if command is not None and len(known) < prepared.used:
            work, asked = self.desk.types, command.inner or command
            found = await self._threaded(self.desk.asking, work, asked, known)
        kinds = [given.get(n) or kind_of(kind) for n, kind in enumerate(found, 1)]
        # A client may settle the types of more than there are: it must give values for them too.
        kinds += [given.get(n, TEXT) for n in range(len(kinds) + 1, prepared.wanted + 1)]
        prepared.kinds, prepared.types = kinds, found

    async def columns(self, prepared: Prepared) -> tuple[Column, ...] | None:
        """The columns of a statement's rows, None where it has none; it is not run."""
        command = prepared.command
        if command is None or not (command.returns_rows or command.kind == "execute"):
            return None
        if command.kind == "show" and command.name == ACCOUNT_NAME:
            return self.desk.account_columns
        if command.kind == "show":
            return shown(self.run_time, command.name).columns
        if command.kind == "fetch":
            return self.portal(command.name).declared.columns
        if command.kind == "execute":
            return await self.columns(self.statement(command.name))
        key = (self.desk.state(self.asker), tuple(sorted(self.run_time.options.items())))
        if prepared.described is None or prepared.described[0] != key:
            await self.types(prepared)
            work, given = self.desk.describe, (command, prepared.types, self.run_time)
            prepared.described = key, await self._threaded(self.desk.asking, work, *given)
        return prepared.described[1]

    def origins(self, command: Command | None) -> list[tuple[int, int]]:
        """Where the columns of a command's rows come from, by number."""
        if command is not None and command.kind == "fetch" and command.name in self.portals:
            command = self.portals[command.name].prepared.command
        elif command is not None and command.kind == "execute" and command.name in self.statements:
            command = self.statements[command.name].command
        return self.desk.origins(self.asker, command)

    # -- transactions --------------------------------------------------------------------

    def check(self, command: Command | None) -> None:
        """Refuse everything but its end in a transaction that has failed."""
        if self.status == "E" and (command is None or command.kind not in ENDS):
            raise AbortedError(
                "current transaction is aborted, commands ignored until end of transaction block",
                hint="ROLLBACK",
            )

    def failed(self) -> None:
        """Something went wrong."""
        if self.status == "T":
            self.status = "E"

    def sync(self) -> None:
        """The end of one exchange: outside of a transaction, portals end with it."""
        if self.status == "I":
            self._close_portals()

    def _close_portals(self) -> None:
        self.portals = {name: each for name, each in self.portals.items() if each.hold}

    # -- commands ------------------------------------------------------------------------

    async def execute(
        self, command: Command, arguments: Sequence[Any] = (), types: Sequence[str] = ()
    ) -> Reply:
        """Carry a command out; where there is nothing to say, its tag is the reply."""
        self.check(command)
        if command.kind in ROWS:
            return Reply(command.tag, await self.answer(command, arguments, types))
        work = _WORK.get(command.kind)
        if work is None:
            raise ReadOnlyError(
                f"{command.name or command.kind.upper()} is not a query",
                hint="privsql answers SELECT and changes no data",
            )
        reply = await work(self, command, arguments) or Reply(command.tag)
        if not self.noted:  # as its inner statement is
            self.noted = True
            await self.desk.note(self.asker.user, command.original)
        return reply

    async def _begin(self, command: Command, _: Sequence[Any]) -> Reply:
        if self.status == "T":
            text = "there is already a transaction in progress"
            return Reply(command.tag, warning=warning_fields(text, "25001"))
        self.status = "T"
        self.run_time.begin()
        return Reply(command.tag)

    async def _end(self, command: Command, _: Sequence[Any]) -> Reply:
        if command.name:  # ROLLBACK TO
            self._savepoint_known(command.name)
            self.status = "T"
            return Reply(command.tag)
        if self.status == "I":
            text = "there is no transaction in progress"
            return Reply(command.tag, warning=warning_fields(text, "25P01"))
        committed = command.kind == "commit" and self.status == "T"
        self.status = "I"
        self._savepoints.clear()
        self._close_portals()
        self.run_time.end(committed)
        return Reply(command.tag if committed else "ROLLBACK")

    async def _savepoint(self, command: Command, _: Sequence[Any]) -> None:
        if self.status == "I":
            raise NoTransactionError("SAVEPOINT can only be used in transaction blocks")
        self._savepoints.append(command.name)

    async def _release(self, command: Command, _: Sequence[Any]) -> None:
        at = self._savepoint_known(command.name)
        del self._savepoints[at:]

    def _savepoint_known(self, name: str) -> int:
        if name not in self._savepoints:
            raise NoTransactionError(f'savepoint "{name}" does not exist')
        return len(self._savepoints) - 1 - self._savepoints[::-1].index(name)

    # -- settings ------------------------------------------------------------------------

    async def _set(self, command: Command, _: Sequence[Any]) -> None:
        if command.name in ("transaction", "default_transaction"):
            for name, value in command.options.items():
                self.run_time.set(f"{command.name}_{name}", value, local=command.local)
        elif command.name != "constraints":
            self.run_time.set(command.name, command.value or "", local=command.local)

    async def _reset(self, command: Command, _: Sequence[Any]) -> None:
        self.run_time.reset(command.name)

    async def _show(self, command: Command, _: Sequence[Any]) -> Reply:
        if command.name == ACCOUNT_NAME:
            return Reply(command.tag, await self._threaded(self.desk.asking, self.desk.accounts))
        return Reply(command.tag, shown(self.run_time, command.name))

    async def _discard(self, command: Command, _: Sequence[Any]) -> None:
        if command.name.lower() == "all":
            if self.status != "I":
                raise NoTransactionError("DISCARD ALL cannot run inside a transaction block")
            self.statements.clear()
            self.portals.clear()
            self.run_time.reset("all")

    async def _nothing(self, command: Command, _: Sequence[Any]) -> None:
        """Nobody is ever notified of anything, so there is nothing to listen for."""

    # -- cursors -------------------------------------------------------------------------

    async def _declare(self, command: Command, arguments: Sequence[Any]) -> None:
        if self.status == "I" and not command.hold:
            raise NoTransactionError("DECLARE CURSOR can only be used in transaction blocks")
        inner = command.inner
        if inner is None or inner.kind not in ROWS:
            raise Unsupported("a cursor is for a query")
        if command.name in self.portals:
            raise TakenCursorError(f'cursor "{command.name}" already exists')
        formats = (1,) if command.options.get("binary") else ()
        answer = await self.answer(inner, arguments)
        self.open(Portal(command.name, Prepared(inner), (), formats, command.hold, answer))

    async def _fetch(self, command: Command, _: Sequence[Any]) -> Reply:
        portal = self.portal(command.name)
        answer = portal.declared
        picked, portal.position = moved(
            portal.position, answer.table.num_rows, command.direction, command.count
        )
        if command.kind == "move":
            return Reply(f"{command.tag} {len(picked)}")
        table = answer.table.take(pa.array(picked, pa.int64()))
        notices = () if portal.said else answer.notices
        portal.said = True
        return Reply(command.tag, Answer(answer.columns, table, notices))

    async def _close(self, command: Command, _: Sequence[Any]) -> None:
        if command.name:
            self.portal(command.name)
            del self.portals[command.name]
        else:
            self.portals.clear()

    async def _copy(self, command: Command, arguments: Sequence[Any]) -> Reply:
        if command.inner is None or command.inner.kind not in ROWS:
            raise Unsupported("COPY is for a query", hint="COPY (SELECT ...) TO STDOUT")
        how = Copy.of(command.options)
        return Reply(command.tag, await self.answer(command.inner, arguments), how)


_Work = Callable[[Dialogue, Command, Sequence[Any]], Awaitable[Reply | None]]
_WORK: dict[str, _Work] = {
    "begin": Dialogue._begin,
    "commit": Dialogue._end,
    "rollback": Dialogue._end,
    "savepoint": Dialogue._savepoint,
    "release": Dialogue._release,
    "set": Dialogue._set,
    "reset": Dialogue._reset,
    "show": Dialogue._show,
    "discard": Dialogue._discard,
    "listen": Dialogue._nothing,
    "declare": Dialogue._declare,
    "fetch": Dialogue._fetch,
    "move": Dialogue._fetch,
    "close": Dialogue._close,
    "copy": Dialogue._copy,
    "prepare": preparing.prepare,
    "execute": preparing.execute,
    "deallocate": preparing.deallocate,
}
