"""A small HTTP server: a few pages without arguments, each made anew when it is asked for.

It runs in the event loop that serves clients, so a loop that hangs answers no health check.  It is
bounded: one request a connection, of a few kilobytes, within a few seconds; when there are too
many connections the one that is open longest is dropped, so slow clients keep nobody out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus

from privsql.errors import OperationalError

LONGEST = 4096  # bytes of a request
SECONDS = 3.0  # for reading a request and sending its answer
MOST = 8  # connections at the same time
log = logging.getLogger("privsql.pgwire")


@dataclass(frozen=True)
class Page:
    """One answer."""

    code: int
    text: str
    kind: str = "text/plain; charset=utf-8"


class Endpoint:
    """Serves pages by their path until it is stopped."""

    def __init__(self, pages: Mapping[str, Callable[[], Page]]) -> None:
        self._pages = pages
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.StreamWriter, asyncio.Task[None] | None] = {}

    async def start(self, host: str, port: int) -> list[tuple[str, int]]:
        """Listen; returns the addresses, with the port that was chosen for port 0."""
        try:
            self._server = await asyncio.start_server(
                self._met, host, port, limit=LONGEST, backlog=16
            )
        except OSError as problem:
            reason = problem.strerror or "no such address"
            raise OperationalError(
                f"cannot listen on {host}:{port} for the status: {reason}",
                hint="give --status another address, or end the program that uses this one",
            ) from None
        return [each.getsockname()[:2] for each in self._server.sockets]

    async def stop(self) -> None:
        """Drop every connection and listen no more."""
        if self._server is None:
            return
        self._server.close()
        tasks = [task for task in self._open.values() if task is not None]
        for writer in list(self._open):
            writer.transport.abort()
        if tasks:
            await asyncio.wait(tasks, timeout=SECONDS)
        self._server = None

    async def _met(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while len(self._open) >= MOST:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.transport.abort()
        self._open[writer] = asyncio.current_task()
        try:
            with suppress(TimeoutError, OSError, asyncio.IncompleteReadError):
                async with asyncio.timeout(SECONDS):
                    writer.write(await self._answer(reader))
                    writer.close()
                    await writer.wait_closed()
        finally:
            self._open.pop(writer, None)
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader) -> bytes:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return _response(Page(431, "the request is too long\n"))
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return _response(Page(400, "not a request of HTTP/1.1\n"))
        method, target = words[0], words[1].split(b"?", 1)[0]
        make = self._pages.get(target.decode("latin-1"))
        if make is None:
            there = ", ".join(sorted(self._pages))
            return _response(Page(404, f"no such page; there are {there}\n"))
        if method not in (b"GET", b"HEAD"):
            return _response(Page(405, "only GET and HEAD\n"), ("Allow: GET, HEAD",))
        try:
            page = make()
        except Exception as problem:  # a bug of ours must not end the server
            log.error("a page of the status failed", exc_info=problem)
            page = Page(500, "the page cannot be made\n")
        return _response(page, body=method == b"GET")


def _response(page: Page, more: tuple[str, ...] = (), *, body: bool = True) -> bytes:
    data = page.text.encode()
    lines = (
        f"HTTP/1.1 {page.code} {HTTPStatus(page.code).phrase}",
        f"Content-Type: {page.kind}",
        f"Content-Length: {len(data)}",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        "Connection: close",
        *more,
    )
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + (data if body else b"")
