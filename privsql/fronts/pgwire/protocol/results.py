"""Result rows sent in slices: RowDescription, DataRow and COPY."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from privsql.errors import NotSupportedError
from privsql.fronts.pgwire.errors import BadSettingError
from privsql.fronts.pgwire.protocol import codec
from privsql.fronts.pgwire.protocol import encode as encoding
from privsql.fronts.pgwire.protocol.types import Kind

pc: Any = pyarrow.compute
Array = Any

_SIGNATURE = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_OPTIONS = {"format", "header", "delimiter", "null", "quote", "escape", "force_quote", "encoding"}


def formats_of(given: Sequence[int], count: int) -> list[int]:
    """The format of each column: none given is text, one is for all."""
    if not given:
        return [0] * count
    return [given[0]] * count if len(given) == 1 else list(given)


def described(
    names: Sequence[str],
    kinds: Sequence[Kind],
    formats: Sequence[int],
    origins: Sequence[tuple[int, int]] = (),
) -> bytes:
    """The columns of rows that follow; ``origins`` number their tables and their places in them."""
    known = origins if len(origins) == len(names) else [(0, 0)] * len(names)
    return codec.row_description(
        [
            (name, *origin, kind.oid, kind.size, kind.modifier, form)
            for name, origin, kind, form in zip(names, known, kinds, formats, strict=True)
        ]
    )


def rows(
    table: pa.Table, kinds: Sequence[Kind], formats: Sequence[int], zone: str
) -> Iterator[bytes]:
    """DataRow messages, in pieces that are small enough to wait for a slow reader."""
    encoders = [
        encoding.encoder(kind, bool(form), zone) for kind, form in zip(kinds, formats, strict=True)
    ]
    for part in encoding.slices(table):
        yield bytes(encoding.data_rows(encoding.encoded(part, encoders), part.num_rows))


def _signed(messages: bytes) -> bytes:
    """Put the signature of the binary format into the first of some CopyData messages."""
    (size,) = struct.unpack_from("!i", messages, 1)
    head = struct.pack("!ci", b"d", size + len(_SIGNATURE))
    return head + _SIGNATURE + messages[5:]


@dataclass(frozen=True)
class Copy:
    """How COPY writes rows."""

    format: str = "text"
    header: bool = False
    delimiter: str = "\t"
    null: str = "\\N"
    quote: str = '"'
    escape: str = '"'
    force: bool = False

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Copy:
        """Read the options of a COPY.

        >>> Copy.of({"format": "csv", "header": "on"}).delimiter
        ','
        """
        options = {name.lower(): value for name, value in given.items()}
        if unknown := options.keys() - _OPTIONS:
            raise NotSupportedError(f"COPY has no option {min(unknown)[:50]!r} here")
        form = options.get("format", "text").lower()
        if form not in ("text", "csv", "binary"):
            raise NotSupportedError("COPY writes text, csv or binary")
        csv = form == "csv"
        quote = options.get("quote", '"')
        made = cls(
            form,
            options.get("header", "off").lower() in ("on", "true", "1", "match"),
            options.get("delimiter", "," if csv else "\t"),
            options.get("null", "" if csv else "\\N"),
            quote,
            options.get("escape", quote),
            options.get("force_quote", "") == "*",
        )
        single = (made.delimiter, made.quote, made.escape)
        if any(len(each.encode()) != 1 for each in single) or set(made.null) & set("\r\n"):
            raise BadSettingError("a delimiter, quote or escape of COPY is one character")
        return made

    @property
    def binary(self) -> bool:
        """Whether cells are bytes."""
        return self.format == "binary"

    def messages(
        self, names: Sequence[str], table: pa.Table, kinds: Sequence[Kind], zone: str
    ) -> Iterator[bytes]:
        """CopyData messages: one for each row, and what stands before and after them.

        The signature of the binary format is in the message of the first row, as PostgreSQL sends
        it: some drivers look for a row behind it and read no other message first.
        """
        if self.header and not self.binary:
            yield self._head(names)
        encoders = [encoding.encoder(kind, self.binary, zone) for kind in kinds]
        begun = not self.binary
        for part in encoding.slices(table):
            made = self._lines(encoding.encoded(part, encoders), part.num_rows)
            yield made if begun else _signed(made)
            begun = True
        if self.binary:
            end = codec.message(b"d", b"\xff\xff")
            yield end if begun else _signed(end)

    def _head(self, names: Sequence[str]) -> bytes:
        made = [self._texts(pa.array([name], pa.string()))[0].as_py() for name in names]
        return codec.message(b"d", self.delimiter.join(made).encode() + b"\n")

    def _lines(self, cells: Sequence[Array], count: int) -> bytes:
        if self.binary:
            return bytes(encoding.data_rows(cells, count, b"d"))
        if not cells:
            return codec.message(b"d", b"\n") * count
        texts = [self._texts(cell.cast(pa.string())).cast(pa.binary()) for cell in cells]
        line = pc.binary_join_element_wise(*texts, self.delimiter.encode())
        lines = pc.binary_join_element_wise(line, b"\n", b"")
        head = np.empty(count, dtype=[("kind", "S1"), ("size", ">i4")])
        head["kind"] = b"d"
        head["size"] = np.asarray(pc.binary_length(lines), dtype=np.int64) + 4
        return bytes(encoding.joined([encoding.fixed(head), lines]))

    def _texts(self, cell: Array) -> Array:
        """Cells as they stand in a line."""
        if self.format == "csv":
            odd = f"[\\x{{{ord(self.delimiter):x}}}\\x{{{ord(self.quote):x}}}\r\n]"
            wants = pc.or_(pc.match_substring_regex(cell, odd), pc.equal(cell, self.null))
            if self.force:
                wants = pc.is_valid(cell)
            inner = cell
            if self.escape != self.quote:
                inner = pc.replace_substring(inner, self.escape, self.escape * 2)
            inner = pc.replace_substring(inner, self.quote, self.escape + self.quote)
            quoted = pc.binary_join_element_wise(self.quote, inner, self.quote, "")
            cell = pc.if_else(wants, quoted, cell)
        else:
            cell = pc.replace_substring(cell, "\\", "\\\\")
            for raw, letter in zip("\b\f\n\r\t\v", "bfnrtv", strict=True):
                cell = pc.replace_substring(cell, raw, f"\\{letter}")
            if self.delimiter != "\t":
                cell = pc.replace_substring(cell, self.delimiter, f"\\{self.delimiter}")
        return pc.fill_null(cell, self.null)
