"""Answers as a table, CSV, JSON or Parquet.

    table     for people: each estimate with its error, as ``Answer`` prints itself
    csv       for programs: a header; NULL is nothing, an empty text is ""
    json      an array of objects, one row per line
    parquet   the types of ``Answer.arrow()``

The last three have numbers to the last bit and dates as ISO 8601; columns that are named alike
are numbered.  CSV and JSON are UTF-8 whatever the terminal speaks, and are written in parts.

No form writes a control character of the data to a terminal: JSON has escapes of its own for them,
CSV has none, so that only a terminal gets them escaped and a file or a pipe as they are.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from privsql.errors import printable
from privsql.fronts.cli.common import plain_json

if TYPE_CHECKING:
    from privsql.answer.outcome import Outcome

FORMATS = ("table", "csv", "json", "parquet")
# How text begins that spreadsheets evaluate, in the wide forms of East Asian keyboards, too.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
PART = 10_000  # rows that are Python objects at the same time
ALL = 10**9  # rows or cells of a line: more than any answer has

# A value with ``± error`` or ``[low, high]`` behind it, and the mark of an unreliable one.
_ESTIMATE = r"(?P<estimate>\S+ +(?:± *\S+|\[\S+, \S+\]))(?P<doubt> \?)?"
_STYLES = {"estimate": "cyan", "doubt": "yellow"}


def as_table(outcome: Outcome | str, *, whole: bool) -> str:
    """The table of an answer, or an explanation as it is; notices go elsewhere.

    A person at a terminal sees its first and last rows and the columns that fit; ``whole`` is for
    a pipe or a file.
    """
    if isinstance(outcome, str):
        return outcome.rstrip("\n")
    from privsql.answer.text import text

    quiet = replace(outcome, notices=())
    return text(quiet, ALL, ALL) if whole else text(quiet, whole="--format csv has them all")


def show(outcome: Outcome | str) -> None:
    """Print a table on stdout, with colour where a terminal wants it."""
    from privsql.fronts.cli.common import console
    from privsql.fronts.cli.output import is_terminal

    table = as_table(outcome, whole=not is_terminal(sys.stdout))
    estimates = not isinstance(outcome, str) and bool(outcome.bars)
    there = console()
    if not estimates or there.color_system is None:
        click.echo(table)
        return
    from rich.text import Text

    coloured = Text(table)
    coloured.highlight_regex(_ESTIMATE)
    for i, span in enumerate(coloured.spans):
        coloured.spans[i] = span._replace(style=_STYLES[str(span.style)])
    there.print(coloured)


def write_table(outcome: Outcome | str, stream: BinaryIO) -> None:
    """The whole table, for a file."""
    stream.write(as_table(outcome, whole=True).encode() + b"\n")


def write_csv(outcome: Outcome, stream: BinaryIO, *, safe: bool = False) -> None:
    r"""Comma-separated lines, quoted where RFC 4180 requires it, ended by ``\n``.

    ``safe``: text that a spreadsheet would take for a formula begins with an apostrophe.
    """

    def field(value: Any) -> str:
        if isinstance(value, str):
            value = harmless(value) if safe else value
            value = printable(value) if person else value
        return _field(value)

    person = stream.isatty()
    stream.write((",".join(map(field, _names(outcome))) + "\n").encode())
    for rows in _parts(outcome):
        stream.write("".join(",".join(map(field, row)) + "\n" for row in rows).encode())


def harmless(text: str) -> str:
    r"""Text that no spreadsheet takes for a formula.

    >>> [harmless(text) for text in ("=1+1", "-5 apples", "\tx", "a=b", "")]
    ["'=1+1", "'-5 apples", "'\tx", 'a=b', '']
    """
    return f"'{text}" if text.startswith(FORMULA) else text


def write_json(outcome: Outcome, stream: BinaryIO) -> None:
    """An array of objects, one per line."""
    keys = [_string(name) for name in _names(outcome)]
    between = "[\n"
    for rows in _parts(outcome):
        lines = (
            "{" + ", ".join(f"{k}: {as_json(v)}" for k, v in zip(keys, row, strict=True)) + "}"
            for row in rows
        )
        stream.write((between + ",\n".join(lines)).encode())
        between = ",\n"
    stream.write(b"[]\n" if between == "[\n" else b"\n]\n")


def write_parquet(outcome: Outcome, stream: BinaryIO) -> None:
    """One Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from privsql.answer.columns import table
    from privsql.errors import NotSupportedError

    found = table(outcome)
    for field in found.schema:
        try:
            pq.write_table(pa.schema([field]).empty_table(), pa.BufferOutputStream())
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError):
            raise NotSupportedError(
                f"Parquet has no type for the column {field.name}",
                hint="cast it to VARCHAR in the query, or ask for csv or json",
            ) from None
    with pq.ParquetWriter(stream, found.schema) as writer:
        writer.write_table(found)


WRITERS: dict[str, Callable[[Outcome, BinaryIO], None]] = {
    "table": write_table,
    "csv": write_csv,
    "json": write_json,
    "parquet": write_parquet,
}


def as_json(value: Any) -> str:
    """A value as JSON, with every digit of a number.

    JSON has no numbers that are not finite; they are texts, as PostgreSQL writes them.

    >>> print(as_json([None, True, 2**70, 0.1, Decimal("1.50"), "é", float("nan")]))
    [null, true, 1180591620717411303424, 0.1, 1.50, "é", "NaN"]
    >>> print(as_json({"on": date(2024, 2, 29), 1: b"ab"}))
    {"on": "2024-02-29", "1": "6162"}
    """
    if value is None or isinstance(value, bool | int):
        return json.dumps(value)
    if isinstance(value, float) and not math.isfinite(value):
        return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'
    if isinstance(value, float | Decimal):
        return as_text(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(as_json, value)) + "]"
    if isinstance(value, dict):
        pairs = (f"{_string(as_text(k))}: {as_json(v)}" for k, v in value.items())
        return "{" + ", ".join(pairs) + "}"
    return _string(as_text(value))


def as_text(value: Any) -> str:
    """A value as CSV shows it, before quotes.

    >>> [as_text(x) for x in (True, 1e300, datetime(2024, 2, 29, 12), [1, None])]
    ['true', '1e+300', '2024-02-29T12:00:00', '[1, null]']
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, date | datetime | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list | tuple | dict):
        return as_json(value)
    return str(value)


def _field(value: Any) -> str:
    if value is None:
        return ""
    found = as_text(value)
    if found == "" or any(sign in found for sign in ',"\n\r'):
        return '"' + found.replace('"', '""') + '"'
    return found


def _string(value: str) -> str:
    return plain_json(json.dumps(value, ensure_ascii=False))


def _names(outcome: Outcome) -> list[str]:
    from privsql.answer.columns import columns, unique

    return unique(column.name for column in columns(outcome))


def _parts(outcome: Outcome) -> Iterator[list[tuple[Any, ...]]]:
    from privsql.answer.columns import arrays, columns
    from privsql.answer.values import rows

    seen, found = columns(outcome), arrays(outcome)
    for start in range(0, outcome.table.num_rows, PART):
        yield rows(seen, [array.slice(start, PART) for array in found])
