"""One client connection: the message flow of the protocol.

    Query                       read ── execute ── rows ── ReadyForQuery
    Parse Bind Describe Execute  the same in steps; after an error all is skipped until Sync

The description of a portal waits for the next message: where it is Execute the rows tell what they
are, and nothing is planned twice.  Where it is not, the statement is described and never run.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from privsql.errors import Error, InternalError, Notice, with_article
from privsql.fronts.pgwire.cursors import Portal, Prepared, Reply
from privsql.fronts.pgwire.errors import (
    BindError,
    ChangedError,
    ProtocolError,
    error_fields,
    notice_fields,
)
from privsql.fronts.pgwire.protocol import codec
from privsql.fronts.pgwire.protocol import results as sending
from privsql.fronts.pgwire.protocol.decode import argument
from privsql.fronts.pgwire.protocol.transport import HIGH, Channel, Closed
from privsql.fronts.pgwire.protocol.types import Kind, kind_of, kind_of_oid
from privsql.fronts.pgwire.state import Dialogue
from privsql.fronts.pgwire.workers import Answer, Column
from privsql.sql.parse.statement import SyntaxMistake
from privsql.sql.postgres.read import Command

# Rows that are encoded in the event loop; more of them would keep others waiting.
FEW = 1000
# Rows whose bytes are kept with the answer.
SMALL = 100
# Notices of one answer that are sent.
MOST_NOTICES = 50
log = logging.getLogger("privsql.pgwire")


class Connection:
    """The dialogue with a client who has logged in."""

    def __init__(self, channel: Channel, dialogue: Dialogue, moved: Callable[[str], None]) -> None:
        self._channel, self._dialogue = channel, dialogue
        self._moved = moved  # told "idle", "busy" or "sending", for limits of time
        self._skipping = False
        self._pending: Portal | None = None  # described when the next message is known
        self._about = Prepared(None)  # the statement that an error is in

    async def serve(self) -> None:
        """Answer until the client leaves."""
        self._ready()
        while True:
            if not self._channel.waiting:
                self._channel.flush()
                self._moved("idle")
            kind, body = await self._channel.message()
            self._moved("busy")
            if kind == _TERMINATE:
                return
            await self._message(kind, body)

    async def _message(self, kind: int, body: bytes) -> None:
        if self._skipping and kind not in _ENDS:
            return
        step = _STEPS.get(kind)
        if step is None:
            raise ProtocolError("there is no message of this kind")
        self._about, self._dialogue.noted = Prepared(None), False
        try:
            if self._pending is not None and kind not in (_QUERY, _EXECUTE):
                await self._describe_pending()
            await step(self, body)
        except (ProtocolError, Closed):
            raise
        except Exception as problem:  # a bug of ours must not end the server
            await self._failed(problem)
            self._skipping = True
        if kind in _ENDS:
            self._skipping = False
            self._dialogue.sync()
            self._ready()

    # -- simple --------------------------------------------------------------------------

    async def _query(self, body: bytes) -> None:
        text = codec.one_text(body)
        self._pending, self._about = None, Prepared(None, text=text)
        for command in await self._dialogue.read(text):
            self._about, self._dialogue.noted = Prepared(command, text=text), False
            if command.kind == "empty":
                self._channel.say(codec.EMPTY_QUERY)
                continue
            reply = await self._dialogue.execute(command)
            await self._replied(reply, Portal("", self._about), command, tell=True)

    # -- extended ------------------------------------------------------------------------

    async def _parse(self, body: bytes) -> None:
        asked = codec.parse(body)
        self._about = Prepared(None, text=asked.text)
        commands = list(await self._dialogue.read(asked.text))
        if len(commands) > 1:
            raise SyntaxMistake("cannot insert multiple commands into a prepared statement")
        command = None if commands[0].kind == "empty" else commands[0]
        if command is not None:
            self._dialogue.check(command)
        kinds = enumerate(map(kind_of_oid, asked.oids), 1)
        given = {n: kind for n, kind in kinds if kind is not None and kind.name != "unknown"}
        prepared = Prepared(command, given, asked.text)
        if asked.name and command is not None and command.kind == "query":
            # An unknown column is an error now, as in PostgreSQL; Describe finds it done.
            await self._dialogue.columns(prepared)
        self._dialogue.prepare(asked.name, prepared)
        self._channel.say(codec.PARSE_COMPLETE)

    async def _bind(self, body: bytes) -> None:
        asked = codec.bind(body)
        prepared = self._about = self._dialogue.statement(asked.statement)
        self._dialogue.check(prepared.command)
        if len(asked.values) != prepared.wanted:
            raise BindError(
                f"bind message supplies {len(asked.values)} parameters,"
                f' but prepared statement "{asked.statement}" requires {prepared.wanted}'
            )
        await self._dialogue.types(prepared)
        formats = sending.formats_of(asked.formats, prepared.wanted)
        values = [
            argument(data, kind, bool(form), number)
            for number, (data, kind, form) in enumerate(
                zip(asked.values, prepared.kinds or (), formats, strict=True), 1
            )
        ]
        self._dialogue.open(Portal(asked.portal, prepared, values, asked.results))
        self._channel.say(codec.BIND_COMPLETE)

    async def _describe(self, body: bytes) -> None:
        kind, name = codec.named(body)
        if kind == "P":
            self._pending = self._dialogue.portal(name)
            return
        prepared = self._about = self._dialogue.statement(name)
        self._dialogue.check(prepared.command)
        await self._dialogue.types(prepared)
        columns = await self._dialogue.columns(prepared)
        self._channel.say(codec.parameter_description([k.oid for k in prepared.kinds or ()]))
        self._say_described(columns, (), prepared.command)

    async def _describe_pending(self) -> None:
        portal, self._pending = self._pending, None
        if portal is not None:
            self._about = portal.prepared
            self._dialogue.check(portal.prepared.command)
            columns = await self._dialogue.columns(portal.prepared)
            self._say_described(columns, portal.formats, portal.prepared.command)

    def _say_described(
        self, columns: Sequence[Column] | None, formats: Sequence[int], command: Command | None
    ) -> None:
        if columns is None:
            self._channel.say(codec.NO_DATA)
        else:
            self._say_columns(columns, _kinds(columns), formats, command)

    async def _execute(self, body: bytes) -> None:
        name, most = codec.execute(body)
        portal = self._dialogue.portal(name)
        if self._pending is not None and self._pending is not portal:
            await self._describe_pending()
        tell, self._pending = self._pending is portal, None
        self._about = portal.prepared
        command = portal.prepared.command
        if command is None:
            self._channel.say((codec.NO_DATA if tell else b"") + codec.EMPTY_QUERY)
            return
        if portal.reply is None:
            portal.reply = await self._dialogue.execute(
                command, portal.arguments, portal.prepared.types
            )
        if tell and portal.reply.rows is None:
            self._channel.say(codec.NO_DATA)
        await self._replied(portal.reply, portal, command, tell, most)

    @staticmethod
    def _settled(portal: Portal, answer: Answer) -> list[Kind]:
        """The types that rows are sent as: those that the client was told of."""
        kinds = _kinds(answer.columns)
        if portal.prepared.described is None:
            return kinds
        told = _kinds(portal.prepared.described[1])
        if [kind.oid for kind in told] != [kind.oid for kind in kinds]:
            raise ChangedError(
                "cached plan must not change result type",
                hint="the release was published again: prepare the statement anew",
            )
        return told

    async def _close(self, body: bytes) -> None:
        kind, name = codec.named(body)
        where: dict[str, Any] = self._dialogue.statements if kind == "S" else self._dialogue.portals
        where.pop(name, None)
        self._channel.say(codec.CLOSE_COMPLETE)

    async def _flush(self, _: bytes) -> None:
        await self._channel.drain()

    async def _nothing(self, _: bytes) -> None:
        """Sync; copy messages of a client that has not heard yet that its COPY failed."""

    # -- out -----------------------------------------------------------------------------

    def _ready(self) -> None:
        for name, value in self._dialogue.run_time.news():
            self._channel.say(codec.parameter_status(name, value))
        self._channel.say(codec.READY[self._dialogue.status])

    def _say_columns(
        self,
        columns: Sequence[Column],
        kinds: Sequence[Kind],
        formats: Sequence[int],
        command: Command | None,
    ) -> None:
        forms = _formats(formats, len(kinds))
        origins = self._dialogue.origins(command)
        self._channel.say(sending.described([name for name, _ in columns], kinds, forms, origins))

    def _notices(self, notices: Sequence[Notice]) -> None:
        for notice in notices[:MOST_NOTICES]:
            self._channel.say(codec.fields(b"N", notice_fields(notice)))

    async def _replied(
        self, reply: Reply, portal: Portal, command: Command, tell: bool, most: int = 0
    ) -> None:
        """Send what a command gave: rows, after their columns if these are to be told."""
        if reply.rows is None:
            await self._rest(reply)
            return
        if command.kind == "fetch" and not portal.formats:
            portal.formats = self._dialogue.portal(command.name).formats
        kinds = self._settled(portal, reply.rows)
        if tell:
            self._say_columns(reply.rows.columns, kinds, portal.formats, command)
        await self._rows(reply.rows, reply.tag, kinds, portal, most)

    async def _rows(
        self, answer: Answer, tag: str, kinds: Sequence[Kind], portal: Portal, most: int
    ) -> None:
        """Send rows of an answer, ``most`` of them where that is not 0."""
        if not portal.said:
            self._notices(answer.notices)
            portal.said = True
        start, total = portal.position, answer.table.num_rows
        stop = min(total, start + most) if most else total
        portal.position = stop
        table = answer.table.slice(start, stop - start)
        forms = _formats(portal.formats, len(kinds))
        zone = self._dialogue.run_time.zone
        key = (start, stop, tuple(forms), tuple(kind.oid for kind in kinds), zone)
        if key in answer.encoded:
            self._channel.say(answer.encoded[key])
        elif start == 0 and stop == total <= SMALL:
            made = answer.encoded[key] = b"".join(sending.rows(table, kinds, forms, zone))
            self._channel.say(made)
        else:
            await self._send(sending.rows(table, kinds, forms, zone), stop - start)
        if most and stop - start == most:
            self._channel.say(codec.SUSPENDED)
            return
        bare = tag in ("SHOW", "EXPLAIN")
        self._channel.say(codec.complete(tag if bare else f"{tag} {stop - start}"))

    async def _rest(self, reply: Reply) -> None:
        """Send what is no rows: a copy, or that it is done."""
        if reply.warning is not None:
            self._channel.say(codec.fields(b"N", reply.warning))
        if reply.answer is None or reply.copy is None:
            self._channel.say(codec.complete(reply.tag))
            return
        answer, copy = reply.answer, reply.copy
        self._notices(answer.notices)
        kinds = _kinds(answer.columns)
        self._channel.say(codec.copy_out(len(kinds), copy.binary))
        zone, total = self._dialogue.run_time.zone, answer.table.num_rows
        names = [name for name, _ in answer.columns]
        await self._send(copy.messages(names, answer.table, kinds, zone), total)
        self._channel.say(codec.COPY_DONE + codec.complete(f"COPY {total}"))

    async def _send(self, parts: Iterator[bytes], count: int) -> None:
        """Encode and send piece by piece; the next is made when the client has read enough."""
        if count <= FEW:
            for part in parts:
                self._channel.say(part)
            if self._channel.kept > HIGH:
                await self._drain()
            return
        pool, user = self._dialogue.desk.reading, self._dialogue.asker.user
        while part := await pool.run(user, next, parts, b""):
            self._channel.say(part)
            await self._drain()

    async def _drain(self) -> None:
        self._moved("sending")
        await self._channel.drain()
        self._moved("busy")

    async def _failed(self, problem: Exception) -> None:
        self._pending = None
        self._dialogue.failed()
        text, command = self._about.text, self._about.command
        said = text if command is None else command.original
        told = problem if isinstance(problem, Error) else _bug(problem)
        told = await self._dialogue.refused(said, command, told)
        self._dialogue.desk.metrics.failed(told)
        self._channel.say(codec.fields(b"E", error_fields(told, _position(told, text, command))))


def _position(problem: Error, text: str, command: Command | None) -> int | None:
    """Where in the client's own text an error is, counted from 1."""
    place = problem.place
    if place is None:
        return None
    if command is not None and (found := command.placed(place)) is not None:
        return command.start + found + 1
    return place.start + 1 if place.text == text else None


def _bug(problem: Exception) -> Error:
    log.error("a statement failed with a %s", type(problem).__name__, exc_info=problem)
    return InternalError(
        f"the statement failed with {with_article(type(problem).__name__)}",
        hint="please report the statement as a bug",
    )


def _kinds(columns: Sequence[Column]) -> list[Kind]:
    return [kind_of(kind) for _, kind in columns]


def _formats(given: Sequence[int], count: int) -> list[int]:
    made = sending.formats_of(given, count)
    if len(made) != count:
        raise BindError(
            f"bind message has {len(made)} result formats but query has {count} columns"
        )
    return made


_QUERY, _SYNC, _EXECUTE, _TERMINATE = ord("Q"), ord("S"), ord("E"), ord("X")
_ENDS = (_QUERY, _SYNC)  # the client waits for ReadyForQuery
_STEPS: dict[int, Any] = {
    ord("P"): Connection._parse,
    ord("B"): Connection._bind,
    ord("D"): Connection._describe,
    _EXECUTE: Connection._execute,
    ord("C"): Connection._close,
    ord("H"): Connection._flush,
    _QUERY: Connection._query,
    **dict.fromkeys(b"Sdcf", Connection._nothing),
}
