"""The server: connections, their limits, and shutdown.

    listen ── Channel ── enter ── Connection.serve ── end
                 a task each; statements run in the desk's threads

A client that misbehaves ends its own connection and nothing else.  When the server stops, nobody
new is let in, answers under way get some time to end, then they are canceled.
"""

from __future__ import annotations

import asyncio
import ipaddress
import itertools
import logging
import secrets
import socket
import ssl
import struct
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from os import PathLike
from pathlib import Path

from privsql.errors import Error, OperationalError, ProgrammingError
from privsql.fronts.pgwire.auth.login import LONGEST, Security, enter
from privsql.fronts.pgwire.auth.scram import binding_of
from privsql.fronts.pgwire.auth.throttle import Throttle
from privsql.fronts.pgwire.auth.users import Users
from privsql.fronts.pgwire.connection import Connection
from privsql.fronts.pgwire.errors import (
    BusyError,
    IdleError,
    RefusedError,
    ShutdownError,
    UnknownDatabaseError,
    error_fields,
)
from privsql.fronts.pgwire.protocol import codec
from privsql.fronts.pgwire.protocol.transport import Channel, Closed
from privsql.fronts.pgwire.releases import House
from privsql.fronts.pgwire.scheduler import at_once
from privsql.fronts.pgwire.settings import RunTime
from privsql.fronts.pgwire.state import Dialogue
from privsql.fronts.pgwire.status.pages import Connections
from privsql.fronts.pgwire.workers import Desk
from privsql.policy.journal import JournalError

NAME = 63  # characters of a user's name in the log, as PostgreSQL keeps
log = logging.getLogger("privsql.pgwire")


@dataclass(frozen=True)
class Allowance:
    """What clients may use of a server."""

    connections: int = 600  # that have logged in
    strangers: int = 64  # that have not: they log in, cancel, or make room for the next
    message: int = 16_000_000  # bytes
    authentication: float = 10.0  # seconds
    idle: float | None = 3600.0  # seconds without a question, or without reading an answer
    workers: int = 4  # statements at once
    look: float = 1.0  # seconds between two looks for a release that was published again
    patience: float = 10.0  # seconds that answers get to end when the server stops


@dataclass(eq=False)
class _Client:
    """One connection, as the server knows it."""

    channel: Channel
    number: int
    secret: bytes
    task: asyncio.Task[None] | None = None
    dialogue: Dialogue | None = None
    user: str = ""  # as it was claimed
    state: str = "idle"
    since: float = field(default_factory=time.monotonic)
    address: str = ""

    def moved(self, state: str) -> None:
        self.state, self.since = state, time.monotonic()

    def claims(self, user: str) -> None:
        self.user = user

    def cancel(self) -> None:
        """End the statement under way, if there is one."""
        if self.dialogue is not None:
            self.dialogue.cancel()

    @property
    def shown(self) -> str:
        """Who and where from, for the log: short, and without what could forge a line of it."""
        name = self.user if len(self.user) <= NAME else self.user[:NAME] + "..."
        return f"{self.address or 'nowhere'} as {name!a}"


class Server:
    """Serves a house to PostgreSQL clients until it is told to stop."""

    def __init__(self, house: House, security: Security, allowance: Allowance) -> None:
        self.security, self.allowance = security, allowance
        self._desk = Desk(house, self.allowance.workers)
        self.metrics = self._desk.metrics
        self._house = house
        self._clients: dict[int, _Client] = {}
        self._numbers = itertools.count(1)
        self._server: asyncio.Server | None = None
        self._looking: list[asyncio.Task[None]] = []
        self._stopping = False
        self._throttle = Throttle()

    async def start(self, host: str, port: int) -> list[tuple[str, int]]:
        """Listen; returns the addresses, with the port that was chosen for port 0."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                partial(Channel, self._begun, LONGEST), host, port, backlog=512
            )
        except OSError as problem:
            raise OperationalError(f"cannot listen on {host}:{port}: {problem.strerror}") from None
        self._looking = [
            asyncio.create_task(self._look_for_news()),
            asyncio.create_task(self._tidy()),
            asyncio.create_task(self._look_for_sleepers()),
        ]
        return [each.getsockname()[:2] for each in self._server.sockets]

    async def stop(self) -> None:
        """Accept no more clients, let running statements finish for a while, then cancel them."""
        self._stopping = True
        if self._server is not None:
            self._server.close()
        for task in self._looking:
            task.cancel()
        until = time.monotonic() + self.allowance.patience
        while self._clients and time.monotonic() < until:
            for client in list(self._clients.values()):
                if client.state == "idle":
                    self._dismiss(client, ShutdownError("the server is shutting down"))
            await asyncio.sleep(0.02)
        for client in list(self._clients.values()):
            client.cancel()
            self._dismiss(client, ShutdownError("the server is shutting down"))
        tasks = [each.task for each in self._clients.values() if each.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=self.allowance.patience)
        await asyncio.to_thread(self._desk.close)

    # -- status --------------------------------------------------------------------------

    @property
    def listening(self) -> bool:
        """Whether clients are let in."""
        return self._server is not None and not self._stopping

    def connections(self) -> Connections:
        """How many there are now."""
        there = list(self._clients.values())
        return Connections(len(there), sum(each.dialogue is None for each in there))

    # -- clients -------------------------------------------------------------------------

    def _begun(self, channel: Channel) -> None:
        self._make_room()
        self.metrics.connected()
        number = next(self._numbers) & 0x7FFFFFFF
        client = _Client(channel, number, secrets.token_bytes(4), address=channel.address)
        self._clients[number] = client
        channel.lost = client.cancel  # nobody waits for the answer any more
        made = channel.transport.get_extra_info("socket")
        if made is not None:
            with suppress(OSError):
                made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        client.task = asyncio.get_running_loop().create_task(self._serve(client))

    def _make_room(self) -> None:
        """End the oldest of those who have not logged in, from the address with most of them."""
        strangers = [each for each in self._clients.values() if each.dialogue is None]
        if len(strangers) < self.allowance.strangers:
            return
        crowds = Counter(each.address for each in strangers)
        most = max(crowds.values())
        oldest = next(each for each in strangers if crowds[each.address] == most)
        oldest.channel.abort()
        self._clients.pop(oldest.number)
        if oldest.task is not None:
            oldest.task.cancel()

    async def _serve(self, client: _Client) -> None:
        channel = client.channel
        try:
            await self._entered(client)
        except (Closed, ConnectionError, asyncio.CancelledError):
            pass
        except Error as problem:
            log.info("a connection from %s was ended: %s", client.shown, problem.code)
            self.metrics.failed(problem)
            told = await self._denied(client, problem)
            channel.say(codec.fields(b"E", error_fields(told, severity="FATAL")))
        except Exception as problem:
            log.error("a connection failed with a %s", type(problem).__name__, exc_info=problem)
        finally:
            self._clients.pop(client.number, None)
            channel.close()

    async def _entered(self, client: _Client) -> None:
        channel = client.channel
        try:
            async with asyncio.timeout(self.allowance.authentication):
                found = await enter(
                    channel,
                    self.security,
                    self._house,
                    self._cancel,
                    client.claims,
                    self._throttle,
                )
        except TimeoutError:
            log.info("a connection from %s took too long to log in", client.shown)
            raise Closed from None
        if found is None:
            return
        if self._stopping:
            raise ShutdownError("the server is shutting down")
        known = sum(each.dialogue is not None for each in self._clients.values())
        if known >= self.allowance.connections:
            raise BusyError("sorry, too many clients already")
        channel.most = self.allowance.message
        asker, settings = found
        run_time = RunTime(asker.user, settings)
        client.dialogue = Dialogue(self._desk, replace(asker, process=client.number), run_time)
        for name, value in run_time.news():
            channel.say(codec.parameter_status(name, value))
        channel.say(codec.backend_key(client.number, client.secret))
        await Connection(channel, client.dialogue, client.moved).serve()

    async def _denied(self, client: _Client, problem: Error) -> Error:
        """Note that somebody was not let in; the error that is to be told."""
        if client.dialogue is None and isinstance(problem, RefusedError | UnknownDatabaseError):
            given = (client.user, "", "denied", problem.code, (), client.address)
            try:
                await asyncio.to_thread(self._house.note, *given)
            except JournalError as other:
                return other
        return problem

    def _cancel(self, body: bytes) -> None:
        """A request to end somebody's statement: only who knows the secret may."""
        if len(body) != 8:
            return
        number, secret = struct.unpack("!i4s", body)
        client = self._clients.get(number)
        if client is not None and secrets.compare_digest(secret, client.secret):
            client.cancel()

    def _dismiss(self, client: _Client, problem: Error) -> None:
        """End a connection that waits for its client."""
        client.channel.say(codec.fields(b"E", error_fields(problem, severity="FATAL")))
        client.channel.close()
        if client.task is not None:
            client.task.cancel()

    # -- time ----------------------------------------------------------------------------

    async def _look_for_news(self) -> None:
        """See whether a release was published again."""
        while True:
            await asyncio.sleep(self.allowance.look)
            try:
                await asyncio.to_thread(self._house.refresh)
            except Exception as problem:
                log.error("looking for new releases failed", exc_info=problem)

    async def _tidy(self) -> None:
        """Twice a second: what is not used is closed, what will be is made."""
        while True:
            await asyncio.sleep(0.5)
            try:
                await asyncio.to_thread(self._desk.tidy)
            except Exception as problem:
                log.error("tidying up failed", exc_info=problem)

    async def _look_for_sleepers(self) -> None:
        """End connections that ask nothing, or read nothing, for too long."""
        limit = self.allowance.idle
        while limit is not None:
            await asyncio.sleep(min(5.0, limit / 4))
            late = time.monotonic() - limit
            for client in list(self._clients.values()):
                if client.since < late and client.dialogue is not None:
                    if client.state == "idle":
                        words = "terminating connection due to idle-session timeout"
                        self._dismiss(client, IdleError(words))
                    elif client.state == "sending":
                        client.channel.abort()


def secured(
    users: Users | None,
    *,
    tls_cert: str | PathLike[str] | None = None,
    tls_key: str | PathLike[str] | None = None,
    require_tls: bool = False,
) -> Security:
    """How people are let in; a certificate and its key make TLS possible."""
    if tls_cert is None:
        if require_tls:
            raise ProgrammingError(
                "TLS cannot be required without a certificate", hint="give --tls-cert and --tls-key"
            )
        return Security(users)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(tls_cert, tls_key, _no_password)
        binding = binding_of(Path(tls_cert).read_bytes())
    except (OSError, ssl.SSLError, ValueError):
        raise OperationalError("the certificate or its key cannot be used") from None
    return Security(users, context, binding, require_tls)


def _no_password() -> str:
    """Asked for where a key is encrypted; otherwise OpenSSL would ask the terminal, and wait."""
    raise OperationalError(
        "the key of the certificate is encrypted",
        hint="give one that is not, readable by the server alone: openssl pkey -in KEY -out PLAIN",
    )


def check_address(host: str, security: Security, *, insecure: bool = False) -> None:
    """Refuse to be reached from elsewhere without passwords and TLS, unless told so.

    A name is resolved: every address that it stands for must be of this machine.
    """
    try:
        found = {each[4][0] for each in socket.getaddrinfo(host, None)}
        away = [each for each in found if not ipaddress.ip_address(each).is_loopback]
    except (OSError, ValueError):
        raise OperationalError(f"there is no address {host}") from None
    if not away or insecure:
        return
    if security.users is None or not security.require_tls:
        raise ProgrammingError(
            f"{host} can be reached from other machines",
            hint="give a users file and --require-tls, or listen on 127.0.0.1",
        )


async def serve(
    paths: Sequence[str | PathLike[str]],
    host: str = "127.0.0.1",
    port: int = 5433,
    *,
    security: Security | None = None,
    allowance: Allowance | None = None,
    insecure: bool = False,
    house: House | None = None,
    ready: asyncio.Future[list[tuple[str, int]]] | None = None,
) -> None:
    """Serve releases until this task is canceled.

    ``house`` is for callers who give it a history, a journal and limits; ``ready`` is told the
    addresses.
    """
    security = security or Security()
    check_address(host, security, insecure=insecure)
    allowance = allowance or Allowance()
    if house is None:
        house = await asyncio.to_thread(House, paths, sessions=at_once(allowance.workers))
    server = Server(house, security, allowance)
    try:
        addresses = await server.start(host, port)
        if ready is not None:
            ready.set_result(addresses)
        await asyncio.Event().wait()
    finally:
        await asyncio.shield(server.stop())
