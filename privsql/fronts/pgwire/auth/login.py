"""Start of a connection: encryption, authentication and visible releases.

SSLRequest ── S ── TLS         GSSENCRequest ── N         CancelRequest ── end
startup (version, user, database, settings) ── SCRAM ── AuthenticationOk
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass

from privsql.fronts.pgwire.auth.scram import Exchange
from privsql.fronts.pgwire.auth.throttle import Throttle
from privsql.fronts.pgwire.auth.users import Users
from privsql.fronts.pgwire.errors import ProtocolError, RefusedError, UnknownDatabaseError
from privsql.fronts.pgwire.protocol import codec
from privsql.fronts.pgwire.protocol.transport import Channel, Closed
from privsql.fronts.pgwire.releases import House
from privsql.fronts.pgwire.workers import Asker

LONGEST = 10_000  # bytes of a message before somebody is known
DATABASE = "privsql"
_PASSWORD = ord("p")
_NOT_SETTINGS = ("user", "database", "options", "replication")


@dataclass(frozen=True)
class Security:
    """Authentication of a server; without users anyone who can connect is accepted."""

    users: Users | None = None
    tls: ssl.SSLContext | None = None
    binding: bytes | None = None  # of the certificate
    require_tls: bool = False


async def enter(
    channel: Channel,
    security: Security,
    house: House,
    cancel: Callable[[bytes], None],
    claims: Callable[[str], None] = lambda _: None,
    throttle: Throttle | None = None,
) -> tuple[Asker, dict[str, str]] | None:
    """Authenticate a client: who asks, and the settings given; None for a request to cancel.

    ``claims`` is told the name that they give, before anything is proven.
    """
    encrypted = False
    asked = 0
    while True:
        code, body = await channel.first(LONGEST)
        if code == codec.CANCEL:
            cancel(body)
            return None
        if code not in (codec.TLS, codec.GSS):
            break
        asked += 1
        if asked > 2 or encrypted:
            raise ProtocolError("encryption was asked for again")
        encrypted = await _encrypted(channel, security, code)
    if code >> 16 != 3:
        raise ProtocolError("only version 3 of the protocol is supported")
    given = codec.startup(body)
    unknown = [name for name in given if name.startswith("_pq_.")]
    if code & 0xFFFF or unknown:
        channel.say(codec.negotiate(0, unknown))
    user = given.get("user", "")
    claims(user)
    if not user:
        raise RefusedError("no PostgreSQL user name specified in startup packet")
    if "replication" in given and given["replication"].lower() not in ("false", "off", "0", "no"):
        raise RefusedError("replication is not supported")
    if security.require_tls and not encrypted:
        raise RefusedError("connections must be encrypted", hint="connect with sslmode=require")
    binding = security.binding if encrypted else None
    await _proven(channel, security, user, binding, throttle or Throttle())
    asker = _asker(security, house, user, given.get("database") or user)
    others = (*_NOT_SETTINGS, *unknown)
    settings = {name: value for name, value in given.items() if name not in others}
    settings |= _options(given.get("options", ""))
    channel.say(codec.AUTHENTICATED)
    return asker, settings


async def _encrypted(channel: Channel, security: Security, code: int) -> bool:
    """Go on encrypted if we can; whether we do."""
    if code == codec.GSS or security.tls is None:
        channel.say(b"N")
        channel.flush()
        return False
    if channel.waiting:
        # Whoever sends more before our answer has put it there for us to take as encrypted.
        raise ProtocolError("unencrypted bytes follow the request for encryption")
    transport = channel.transport
    transport.pause_reading()
    channel.say(b"S")
    channel.flush()
    loop = asyncio.get_running_loop()
    try:
        made = await loop.start_tls(transport, channel, security.tls, server_side=True)
    except (OSError, ssl.SSLError):
        raise Closed from None
    if made is None:
        raise Closed
    channel.over(made)
    return True


async def _proven(
    channel: Channel, security: Security, user: str, binding: bytes | None, throttle: Throttle
) -> None:
    """Ask for a password, and go on only if it is right."""
    if security.users is None:
        return
    # Reading the file may wait for a disk.
    found, real = await asyncio.to_thread(security.users.verifier, user)
    exchange = Exchange(found, real=real, user=user, binding=binding)
    channel.say(codec.sasl(exchange.mechanisms()))
    body = codec.Body(await _password(channel))
    mechanism, size = body.text(), body.number("i")
    first = body.take(size) if size >= 0 else b""
    body.end()
    said = exchange.first(mechanism, first)
    channel.say(codec.authentication(codec.SASL_CONTINUE, said))
    proof = await _password(channel)
    async with throttle.judging(user, channel.address):
        said = exchange.final(proof)
    channel.say(codec.authentication(codec.SASL_FINAL, said))


async def _password(channel: Channel) -> bytes:
    channel.flush()
    kind, body = await channel.message()
    if kind != _PASSWORD:
        raise ProtocolError("a password was expected")
    return body


def _asker(security: Security, house: House, user: str, database: str) -> Asker:
    """What somebody may see: a database is all releases, or one by its name."""
    found = None if security.users is None else security.users.find(user)

    def may(name: str) -> bool:
        return security.users is None or (found is not None and found.may(name))

    if database in (DATABASE, user, "postgres"):
        return Asker(user, database, may)
    if database not in house.versions(may):
        raise UnknownDatabaseError(f'database "{database}" does not exist')
    return Asker(user, database, lambda name: name == database and may(name))


def _options(text: str) -> dict[str, str]:
    r"""``-c name=value`` and ``--name=value``; a backslash keeps a space.

    >>> _options("-c statement_timeout=5s --search_path=a\\ b")
    {'statement_timeout': '5s', 'search_path': 'a b'}
    """
    words = iter(text.replace("\\ ", "\0").split())
    found: dict[str, str] = {}
    for word in words:
        said = next(words, "") if word == "-c" else word.removeprefix("--").removeprefix("-c")
        name, equals, value = said.partition("=")
        if not equals:
            raise ProtocolError("the options of the connection cannot be read")
        found[name.replace("-", "_")] = value.replace("\0", " ")
    return found
