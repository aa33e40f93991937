"""What a file of rows is, by its name and by its first bytes, and what is none.

    rows.csv  rows.csv.gz  rows.csv.zst  rows.tsv  rows.txt     CSV, compressed or not
    rows.parquet  rows.pq                                       Parquet
    rows.duckdb  rows.db  rows.ddb  rows.duckdb::table          a table of a DuckDB file
    -                                                           standard input, any of these

A name promises a kind; the first bytes must keep the promise, or the file is refused by name
before anything is read of it.  So are files of privsql's own: a release holds published values
and a batch perturbed ones, and neither is raw data.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from privsql.errors import DataError, OperationalError, ProgrammingError
from privsql.publish.staging import PRIVATE

CSV, PARQUET, DUCKDB = {".csv", ".tsv", ".txt"}, {".parquet", ".pq"}, {".duckdb", ".db", ".ddb"}

# Compressed CSV: endings after the name's own, with the names that Arrow has for them.
PACKED = {".gz": "gzip", ".zst": "zstd"}

# Standard input, where a path could stand; the name of its copy; and how errors call it.
STDIN, SPOOLED, SAID = "-", "stdin", "standard input"

# What a batch of `privsql perturb` begins with, and the key of one in Parquet.
BATCH_LINE, BATCH_KEY = b"# privsql batch", b"privsql.rules"

# First bytes of files that are not text, and what they are.
MAGIC = (
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"%PDF", "a PDF document"),
    (b"PK\x03\x04", "a ZIP archive or a spreadsheet"),
    (b"\xd0\xcf\x11\xe0", "a spreadsheet or document of an old office program"),
    (b"PAR1", "a Parquet file"),
    (b"SQLite format 3\x00", "an SQLite database"),
    (b"\x1f\x8b", "compressed by gzip"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd"),
    (b"BZh", "compressed by bzip2"),
    (b"\xfd7zXZ", "compressed by xz"),
    (b"\x7fELF", "a program"),
)
ENDINGS = {b"\x1f\x8b": ".csv.gz", b"\x28\xb5\x2f\xfd": ".csv.zst", b"PAR1": ".parquet"}

# How much of a file is looked at.
LOOK = 8192


def kind_of(file: str) -> str:
    """The ending that says what a file is: ``.csv`` of ``rows.csv.gz``.

    >>> kind_of("a/rows.CSV.gz"), kind_of("x.duckdb::patients"), kind_of("rows.zst")
    ('.csv', '.duckdb', '.csv')
    """
    path = Path(file.partition("::")[0])
    if path.suffix.lower() in PACKED:
        return Path(path.stem).suffix.lower() or ".csv"
    return path.suffix.lower()


def check_files(files: Sequence[str]) -> set[str]:
    """Refuse files that are empty or not what their names say; return their kinds."""
    kinds = set()
    for file in files:
        kind = kind_of(file)
        path = Path(file.partition("::")[0])
        # A pipe can be read only once: a look at it would be missing in its rows.
        if path.is_file() and kind in CSV | PARQUET | DUCKDB:
            _check(path, kind)
        kinds.add(kind)
    return kinds


def said(path: Path) -> str:
    """A file as errors name it."""
    copied = path.name.partition(".")[0] == SPOOLED and path.parent.name.startswith(PRIVATE)
    return SAID if copied else str(path)


def spooled(folder: Path, begun: bytes = b"") -> str:
    """Copy standard input into a private folder, named by what it is; returns the path.

    ``begun`` are bytes that were read of it already.
    """
    stream: Any = getattr(sys.stdin, "buffer", None)
    made = folder / SPOOLED
    with made.open("wb") as file:
        file.write(begun)
        if stream is None:  # replaced by a stream of text
            file.write(sys.stdin.read().encode())
        else:
            shutil.copyfileobj(stream, file)
    with made.open("rb") as file:
        start = file.read(16)
    ending = next((end for magic, end in ENDINGS.items() if start.startswith(magic)), ".csv")
    return str(made.rename(made.with_suffix(".duckdb" if _is_duckdb(start) else ending)))


def is_text(start: bytes) -> bool:
    """Whether a file that begins so may be CSV that is not compressed."""
    return bool(start) and _what(start) is None and b"\x00" not in start


def one_stdin(paths: Sequence[str]) -> bool:
    """Whether the source is standard input, which stands alone."""
    if STDIN in paths and len(paths) > 1:
        raise ProgrammingError(
            "standard input is a source of its own and cannot be one of several",
            hint="name files, or - alone",
        )
    return STDIN in paths


def _is_duckdb(start: bytes) -> bool:
    return start[8:12] == b"DUCK"


def _check(path: Path, kind: str) -> None:
    try:
        with path.open("rb") as file:
            start = file.read(LOOK)
    except OSError as problem:
        raise OperationalError(f"cannot read {path}: {problem.strerror}") from None
    if not start:
        raise DataError(
            f"{said(path)} is empty", hint="a source has a line of names and at least one row"
        )
    if kind in DUCKDB and not _is_duckdb(start):
        raise _not(path, "a DuckDB file", start)
    if kind in PARQUET:
        if not start.startswith(b"PAR1"):
            raise _not(path, "a Parquet file", start)
        _check_parquet(path)
    if kind in CSV:
        _check_text(path, start)


def _check_parquet(path: Path) -> None:
    try:
        with pq.ParquetFile(path) as file:
            found = file.metadata.metadata or {}
    except (pa.ArrowException, OSError):
        return  # the reader says what is wrong with it
    if BATCH_KEY in found:
        raise _batch(path)


def _check_text(path: Path, start: bytes) -> None:
    packing: Any = PACKED.get(path.suffix.lower())
    if packing is not None:
        try:
            with pa.input_stream(str(path), compression=packing) as file:
                start = file.read(LOOK)
        except (pa.ArrowException, OSError):
            raise _not(path, f"compressed by {packing}", start) from None
        if not start:
            raise DataError(f"{said(path)} holds nothing", hint="it was compressed empty")
    if start.startswith(BATCH_LINE):
        raise _batch(path)
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(
            f"{said(path)} is not valid UTF-8: it is UTF-16",
            hint="convert it first, for example with iconv",
        )
    if _what(start) is not None or b"\x00" in start:
        raise _not(path, "CSV", start)


def _what(start: bytes) -> str | None:
    if _is_duckdb(start):
        return "a DuckDB file"
    return next((what for magic, what in MAGIC if start.startswith(magic)), None)


def _not(path: Path, wanted: str, start: bytes) -> DataError:
    what = _what(start)
    found = f"it is {what}" if what else "it holds other data"
    if what is None and b"\x00" in start:
        found = "it holds binary data"
    return DataError(
        f"{said(path)} is not {wanted}: {found}",
        hint="a source is CSV (also .gz and .zst), Parquet or DuckDB, as its name says",
    )


def _batch(path: Path) -> DataError:
    return DataError(
        f"{said(path)} is a batch that `privsql perturb` made: its values are perturbed already",
        hint="add it to a release with `privsql append`, or name the raw data",
    )


def release_refused(path: Path) -> DataError:
    """The error for a release that was named as a source."""
    return DataError(
        f"{said(path)} is a release: its values are perturbed already, and it is not raw data",
        hint="name the raw data; `privsql query` asks a release",
    )
