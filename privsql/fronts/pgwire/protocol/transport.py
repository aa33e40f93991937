"""The byte streams of one connection, with limits on messages and buffers.

What a client sends faster than it is read stays in the network, and so does what it does not
read: at most ``HIGH`` bytes wait here, or one message of the largest size that is allowed.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable

from privsql.fronts.pgwire.errors import ProtocolError

HIGH = 1 << 18
LOW = 1 << 16
_HEAD = struct.Struct("!BI")


class Closed(Exception):  # noqa: N818 - an end, not an error
    """The other side has gone."""


class Channel(asyncio.Protocol):
    """One connection's bytes; ``most`` is the longest message that it takes."""

    def __init__(self, begun: Callable[[Channel], None], most: int) -> None:
        self.most = most
        self.gone = False
        self.lost: Callable[[], None] | None = None
        self._begun = begun
        self._transport: asyncio.Transport | None = None
        self._data = bytearray()
        self._at = 0
        self._arrived = asyncio.Event()  # bytes, or the end of them
        self._writable = asyncio.Event()
        self._writable.set()
        self._held = False  # reading is paused
        self._out: list[bytes] = []
        self.kept = 0  # bytes that were said and not sent

    # -- asyncio -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client, or the same one with TLS."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101
        first = self._transport is None
        self.over(transport)
        if first:
            self._begun(self)

    def data_received(self, data: bytes) -> None:
        """Some bytes."""
        self._data += data
        if len(self._data) - self._at > HIGH and not self._held and self._transport is not None:
            self._held = True
            self._transport.pause_reading()
        self._arrived.set()

    def eof_received(self) -> bool:
        """The client says no more: nobody waits for answers."""
        self.gone = True
        self._arrived.set()
        return False

    def connection_lost(self, _: Exception | None) -> None:
        """Nobody is there any more."""
        self.gone = True
        self._arrived.set()
        self._writable.set()
        if self.lost is not None:
            self.lost()

    def pause_writing(self) -> None:
        """The client reads slowly."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """It has read."""
        self._writable.set()

    # -- in ------------------------------------------------------------------------------

    async def first(self, longest: int) -> tuple[int, bytes]:
        """A message without a kind: its first number and the rest."""
        await self._until(8)
        size, code = struct.unpack_from("!Ii", self._data, self._at)
        if not 8 <= size <= longest:
            raise ProtocolError("the first message has an invalid length")
        await self._until(size)
        return code, self._take(8, size)

    async def message(self) -> tuple[int, bytes]:
        """The next message: its kind and its body."""
        await self._until(5)
        kind, size = _HEAD.unpack_from(self._data, self._at)
        if size < 4 or size > self.most:
            raise ProtocolError(
                "a message has an invalid length",
                hint=f"messages may have up to {self.most} bytes",
            )
        await self._until(size + 1)
        return kind, self._take(5, size + 1)

    @property
    def waiting(self) -> bool:
        """Whether there are bytes that were not read yet."""
        return len(self._data) > self._at

    def _take(self, head: int, size: int) -> bytes:
        start = self._at
        found = bytes(memoryview(self._data)[start + head : start + size])
        self._at += size
        if self._at == len(self._data) or self._at > HIGH:
            self._forget()
        return found

    def _forget(self) -> None:
        """Let go of what was read."""
        del self._data[: self._at]
        self._at = 0

    async def _until(self, count: int) -> None:
        """Wait for so many bytes that were not read yet."""
        while len(self._data) - self._at < count:
            if self.gone or self._transport is None:
                raise Closed
            self._forget()
            if self._held:
                self._held = False
                self._transport.resume_reading()
            self._arrived.clear()
            await self._arrived.wait()

    # -- out -----------------------------------------------------------------------------

    def say(self, data: bytes) -> None:
        """Keep what is to be sent; many small messages go out together."""
        self._out.append(data)
        self.kept += len(data)

    def flush(self) -> None:
        """Send what was kept."""
        if self._out and self._transport is not None and not self.gone:
            self._transport.write(self._out[0] if len(self._out) == 1 else b"".join(self._out))
        self._out.clear()
        self.kept = 0

    async def drain(self) -> None:
        """Send, and wait until the client has read most of it."""
        self.flush()
        if not self.gone:
            await self._writable.wait()
        if self.gone:
            raise Closed

    # -- the connection ------------------------------------------------------------------

    def over(self, transport: asyncio.Transport) -> None:
        """Go on over TLS."""
        self._transport = transport
        transport.set_write_buffer_limits(HIGH, LOW)

    @property
    def transport(self) -> asyncio.Transport:
        """What carries the bytes."""
        if self._transport is None:
            raise Closed
        return self._transport

    @property
    def address(self) -> str:
        """Where the client is; nothing where that is not known."""
        peer = self.transport.get_extra_info("peername")
        return str(peer[0]) if peer else ""

    def close(self) -> None:
        """Send what is left, then close."""
        self.flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self.gone = True
        if self._transport is not None:
            self._transport.abort()
