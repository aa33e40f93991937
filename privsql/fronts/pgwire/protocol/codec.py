"""Messages of PostgreSQL's protocol 3.0, decoded and encoded.

    frontend   kind (1 byte), length (4, itself included), body     read by ``Body``
    backend    the same                                             made by the functions here

The first message of a connection has no kind.  Numbers are big-endian, texts UTF-8 that ends
with a zero byte.  A body that is too short, too long or no text is a ``ProtocolError``: whoever
sends one can no longer be understood.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from privsql.fronts.pgwire.errors import ProtocolError

PROTOCOL = 3 << 16
CANCEL = 80877102
TLS = 80877103
GSS = 80877104
SASL_CONTINUE, SASL_FINAL = 11, 12  # the server's first and last words of an exchange

_HEAD = struct.Struct("!ci")
_COLUMN = struct.Struct("!IhIhih")


class Body:
    r"""Reads the fields of one message in order.

    >>> body = Body(b"name\x00\x00\x02")
    >>> body.text(), body.number("h"), body.end()
    ('name', 2, None)
    """

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, count: int) -> bytes:
        """So many bytes."""
        stop = self._at + count
        if count < 0 or stop > len(self._data):
            raise ProtocolError("a message is shorter than its stated length")
        found = self._data[self._at : stop]
        self._at = stop
        return found

    def text(self) -> str:
        """A text that ends with a zero byte."""
        stop = self._data.find(b"\0", self._at)
        if stop < 0:
            raise ProtocolError("a text in a message does not end")
        try:
            found = self._data[self._at : stop].decode()
        except UnicodeDecodeError:
            raise ProtocolError("a text in a message is not UTF-8") from None
        self._at = stop + 1
        return found

    def number(self, form: str) -> int:
        """A number as ``struct`` writes it: ``h`` and ``i``; ``H`` for counts, ``I`` for OIDs."""
        return int(struct.unpack(f"!{form}", self.take(struct.calcsize(form)))[0])

    def byte(self) -> str:
        """One byte as a letter."""
        return self.take(1).decode("latin-1")

    def end(self) -> None:
        """Nothing may be left."""
        if self._at != len(self._data):
            raise ProtocolError("a message is longer than its stated length")


# -- what clients say ---------------------------------------------------------------------


@dataclass(frozen=True)
class Parse:
    """Prepare a statement; an OID of 0 leaves the type of a parameter open."""

    name: str
    text: str
    oids: tuple[int, ...]


@dataclass(frozen=True)
class Bind:
    """Give values to a prepared statement: a portal."""

    portal: str
    statement: str
    formats: tuple[int, ...]
    values: tuple[bytes | None, ...]
    results: tuple[int, ...]


def parse(data: bytes) -> Parse:
    """Read a Parse message."""
    body = Body(data)
    name, text = body.text(), body.text()
    oids = tuple(body.number("I") for _ in range(body.number("H")))
    body.end()
    return Parse(name, text, oids)


def bind(data: bytes) -> Bind:
    """Read a Bind message."""
    body = Body(data)
    portal, statement = body.text(), body.text()
    formats = _formats(body)
    values: list[bytes | None] = []
    for _ in range(body.number("H")):
        size = body.number("i")
        if size < -1:
            raise ProtocolError("a value has a length below -1")
        values.append(None if size == -1 else body.take(size))
    results = _formats(body)
    body.end()
    if len(formats) > 1 and len(formats) != len(values):
        raise ProtocolError(f"there are {len(formats)} formats for {len(values)} parameters")
    return Bind(portal, statement, formats, tuple(values), results)


def _formats(body: Body) -> tuple[int, ...]:
    found = tuple(body.number("h") for _ in range(body.number("H")))
    if any(each not in (0, 1) for each in found):
        raise ProtocolError("a format is neither 0 (text) nor 1 (binary)")
    return found


def one_text(data: bytes) -> str:
    """The body of a message that is one text, such as Query."""
    body = Body(data)
    found = body.text()
    body.end()
    return found


def named(data: bytes) -> tuple[str, str]:
    """The body of Describe and Close: ``S`` or ``P``, and a name."""
    body = Body(data)
    kind, name = body.byte(), body.text()
    body.end()
    if kind not in ("S", "P"):
        raise ProtocolError("neither a statement nor a portal was named")
    return kind, name


def execute(data: bytes) -> tuple[str, int]:
    """A portal's name and how many rows it may give; 0 is all."""
    body = Body(data)
    name, most = body.text(), body.number("i")
    body.end()
    return name, max(0, most)


def startup(data: bytes) -> dict[str, str]:
    """The settings of a startup message, after its version."""
    body = Body(data)
    found: dict[str, str] = {}
    while name := body.text():
        found[name] = body.text()
    body.end()
    return found


# -- what a server says -------------------------------------------------------------------


def message(kind: bytes, body: bytes = b"") -> bytes:
    r"""A message of one kind.

    >>> message(b"Z", b"I")
    b'Z\x00\x00\x00\x05I'
    """
    return _HEAD.pack(kind, len(body) + 4) + body


PARSE_COMPLETE = message(b"1")
BIND_COMPLETE = message(b"2")
CLOSE_COMPLETE = message(b"3")
NO_DATA = message(b"n")
EMPTY_QUERY = message(b"I")
SUSPENDED = message(b"s")
COPY_DONE = message(b"c")
READY = {state: message(b"Z", state.encode()) for state in "ITE"}


def text(value: str) -> bytes:
    """A text as messages hold it; a zero byte would end it early."""
    return value.replace("\0", " ").encode("utf-8", "replace") + b"\0"


def authentication(step: int, data: bytes = b"") -> bytes:
    """A step of logging in."""
    return message(b"R", struct.pack("!i", step) + data)


AUTHENTICATED = authentication(0)


def sasl(mechanisms: Iterable[str]) -> bytes:
    """Ask for a password by one of these mechanisms."""
    return authentication(10, b"".join(map(text, mechanisms)) + b"\0")


def parameter_status(name: str, value: str) -> bytes:
    """A setting that clients are told of."""
    return message(b"S", text(name) + text(value))


def backend_key(process: int, secret: bytes) -> bytes:
    """What a client needs to cancel."""
    return message(b"K", struct.pack("!i", process) + secret)


def negotiate(minor: int, unknown: Sequence[str]) -> bytes:
    """The protocol's version that is spoken here, and options that are not known."""
    names = b"".join(map(text, unknown))
    return message(b"v", struct.pack("!ii", PROTOCOL | minor, len(unknown)) + names)


def complete(tag: str) -> bytes:
    """The end of one command."""
    return message(b"C", text(tag))


def fields(kind: bytes, values: Mapping[str, str]) -> bytes:
    """An error (``E``) or a notice (``N``)."""
    body = b"".join(key.encode() + text(value) for key, value in values.items())
    return message(kind, body + b"\0")


def parameter_description(oids: Sequence[int]) -> bytes:
    """The types of a statement's parameters."""
    return message(b"t", struct.pack(f"!H{len(oids)}I", len(oids), *oids))


def row_description(columns: Sequence[tuple[str, int, int, int, int, int, int]]) -> bytes:
    """The columns of rows that follow: name, table, number in it, OID, size, modifier, format."""
    body = b"".join(text(name) + _COLUMN.pack(*kind) for name, *kind in columns)
    return message(b"T", struct.pack("!H", len(columns)) + body)


def copy_out(columns: int, binary: bool) -> bytes:
    """The beginning of a COPY to the client."""
    return message(b"H", struct.pack("!?H", binary, columns) + struct.pack("!h", binary) * columns)
