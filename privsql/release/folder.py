"""A release as a folder of Parquet, which anything that reads Parquet can read.

    manifest.json                  the manifest, and what each file of the folder must be
    tuples-<digest>.parquet        privsql.tuples
    values-<n>-<digest>.parquet    privsql."values of Y"
    domain-<n>-<digest>.parquet    privsql."domain of X"
    rows/part-<n>-<digest>.parquet the published rows

A file carries the start of its SHA-256 in its name, so a new version of a release never
overwrites a file of the old one.  ``manifest.json`` is replaced last: it is the commit, and a file
that it does not name belongs to nobody and is swept.  A reader sees the old release or the new one.

Rows are divided by a hash of their published content and sorted inside, so the number of parts and
their digests follow from the published rows alone, whoever writes them in whatever order.

A folder is attached as ``release``, as a file is: its rows as a view over Parquet, the tables
beside them, which are small, as copies.  Whoever can read the folder holds the release.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from duckdb.sqltypes import DuckDBPyType

from privsql.errors import Error, IntegrityError, OperationalError
from privsql.files import sync
from privsql.release.names import RESERVED, ROW_NUMBER, TUPLES, quoted

MANIFEST = "manifest.json"
ROWS_FOLDER = "rows"

# The layout of a folder, beside the format of the manifest inside.
LAYOUT = 1

# Rows of a part, about.  Their number follows from the rows of a release alone.
PART_ROWS = 4_000_000
GROUP_ROWS = 122_880

# Bytes that are hashed whenever a folder is opened.  A larger folder is checked by the size and the
# end of each file, where Parquet keeps its schema and the place and size of every column.
HASHED = 256 * 2**20
END = 64 * 1024

# Types that Parquet keeps whole.  Others (HUGEINT, INTERVAL, TIME WITH TIME ZONE, ...) it has as
# something near or not at all: they are written as text, and read back as what they were.
_KEPT = frozenset(
    (
        *("boolean", "tinyint", "smallint", "integer", "bigint"),
        *("utinyint", "usmallint", "uinteger", "ubigint", "float", "double", "decimal"),
        *("varchar", "blob", "date"),
        *("timestamp", "timestamp_ms", "timestamp_ns", "timestamp with time zone"),
    )
)
_NESTED = frozenset(("list", "array", "struct", "map"))

_NAME = re.compile(r"(rows/)?[a-z]+(-[0-9]+)?-[0-9a-f]{16}\.parquet")
_CHUNK = 2**20
# Row numbers of all parts together: the number of the part, and the row in it.
_MOST_ROWS = 2**36


@dataclass(frozen=True)
class Part:
    """One file of a folder: the table that it belongs to, and what it must be."""

    file: str
    table: str
    rows: int
    bytes: int
    sha256: str
    end: str  # SHA-256 of its last bytes


@dataclass(frozen=True)
class Index:
    """What ``manifest.json`` says: the manifest of the release as text, and its files."""

    manifest: str
    digest: str
    table: str
    columns: tuple[tuple[str, str], ...]  # of the published table, hidden ones included
    parts: tuple[Part, ...]

    def of(self, table: str) -> list[Part]:
        """The files of one table, in their order."""
        return [part for part in self.parts if part.table == table]


def is_folder(path: Path) -> bool:
    """Whether a path is a folder that holds, or held, a release."""
    return (path / MANIFEST).is_file()


def wants_folder(out: str | os.PathLike[str]) -> bool:
    """Whether what a user named as the target of a release is a folder.

    >>> wants_folder("clinic/"), wants_folder("clinic.duckdb")
    (True, False)
    """
    return str(out).endswith(("/", os.sep)) or os.path.isdir(out)


def stamp(path: Path) -> tuple[int, int, int]:
    """What changes when a release is replaced; of a folder, of the file that is replaced last."""
    state = (path / MANIFEST if path.is_dir() else path).stat()
    return state.st_ino, state.st_mtime_ns, state.st_size


def size_of(path: Path) -> int:
    """Bytes of a release; 0 where it was moved away."""
    try:
        if not path.is_dir():
            return path.stat().st_size
        return sum(part.bytes for part in read_index(path).parts)
    except (OSError, Error):
        return 0


# -- reading ----------------------------------------------------------------------------------


def read_index(path: Path) -> Index:
    """Read ``manifest.json``; a file that is damaged or of another layout is refused by name."""
    where = path / MANIFEST
    try:
        document = json.loads(where.read_bytes())
        layout = document["layout"]
        if layout == LAYOUT:
            index = Index(
                document["manifest"],
                document["digest"],
                document["table"],
                tuple((str(name), str(kind)) for name, kind in document["columns"]),
                tuple(Part(**part) for part in document["parts"]),
            )
            if all(_NAME.fullmatch(part.file) for part in index.parts):
                return index
    except OSError as problem:
        raise OperationalError(f"cannot open {where}: {problem.strerror}") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise _unfit(f"{where} is damaged, or not that of a release") from None
    if isinstance(layout, int) and layout > LAYOUT:
        raise IntegrityError(
            f"{path} has layout {layout}, this version of privsql reads layout {LAYOUT}",
            hint="open it with the version of privsql that made it",
        )
    raise _unfit(f"{where} is damaged, or not that of a release")


def check_parts(path: Path, index: Index, *, whole: bool | None = None) -> None:
    """Refuse a folder of which a file is missing, cut short or changed.

    ``whole`` reads every byte; None does so where the folder is small.
    """
    if whole is None:
        whole = sum(part.bytes for part in index.parts) <= HASHED
    for part in index.parts:
        file = path / part.file
        try:
            size = file.stat().st_size
            digest = sha256(file) if whole else _end_of(file)
        except FileNotFoundError:
            raise _unfit(f"{path} is damaged: {part.file} is missing") from None
        except OSError as problem:
            raise OperationalError(f"cannot open {file}: {problem.strerror}") from None
        if size < part.bytes:
            raise _unfit(f"{path} is damaged: {part.file} was cut short")
        if digest != (part.sha256 if whole else part.end):
            raise _unfit(f"{path} is damaged: {part.file} is not the file that was published")


def attach_folder(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Attach a folder as ``release``, with nothing but its own files open to the connection."""
    index = read_index(path)
    check_parts(path, index)
    connection.execute("ATTACH ':memory:' AS release")
    connection.execute("CREATE SCHEMA release.privsql")
    connection.execute("CREATE TABLE release.privsql.manifest (document VARCHAR, digest VARCHAR)")
    connection.execute(
        "INSERT INTO release.privsql.manifest VALUES ($1, $2)", [index.manifest, index.digest]
    )
    try:
        for table in dict.fromkeys(part.table for part in index.parts):
            files = [str((path / part.file).absolute()) for part in index.of(table)]
            if table == index.table:
                _view(connection, index, files)
            else:
                copied = connection.read_parquet(files)
                copied.create(f"release.{table}")
    except (duckdb.Error, UnicodeError):
        raise _unfit(f"a table in {path} is damaged") from None
    # Files of Parquet are opened again by every scan; no other file is.
    places = [str((path / part.file).absolute()) for part in index.of(index.table)]
    connection.execute("SET allowed_paths = $1", [places])


def _view(connection: duckdb.DuckDBPyConnection, index: Index, files: Sequence[str]) -> None:
    """The published rows under the name of their table, numbered as rows of a table are."""
    stored = connection.read_parquet(list(files))
    found = dict(zip(stored.columns, map(str, stored.types), strict=True))
    columns = []
    for name, kind in index.columns:
        column = quoted(name)
        same = found[name] == kind
        columns.append(column if same else f"CAST({column} AS {kind}) AS {column}")
    if ROW_NUMBER not in {name.lower() for name, _ in index.columns}:
        columns.append(f"file_index * {_MOST_ROWS} + file_row_number AS {ROW_NUMBER}")
    listed = ", ".join(_literal(file) for file in files)
    connection.execute(
        f"CREATE VIEW release.main.{quoted(index.table)} AS"  # noqa: S608
        f" SELECT {', '.join(columns)} FROM read_parquet([{listed}])"
    )


# -- writing ----------------------------------------------------------------------------------


def write_folder(
    connection: duckdb.DuckDBPyConnection,
    folder: Path,
    *,
    table: str,
    order: Sequence[str],
    beside: Iterable[str],
) -> None:
    """Write the release that is attached to a connection into an empty folder.

    ``order`` are the columns that rows are divided and sorted by: their published content.
    ``beside`` are the tables beside the rows, as ``names`` has them.
    """
    (folder / ROWS_FOLDER).mkdir()
    text, digest = connection.execute("SELECT document, digest FROM privsql.manifest").fetchall()[0]
    relation = connection.table(f"release.main.{quoted(table)}")
    columns = [
        (name, kind)
        for name, kind in zip(relation.columns, relation.types, strict=True)
        if name in order or name.startswith(RESERVED)
    ]
    rows = int(relation.aggregate("count(*)").fetchall()[0][0])
    parts = list(_rows(connection, folder, table, columns, order, rows))
    for number, name in enumerate(beside):
        kind = name.split('"')[1].split(" ")[0]  # tuples, or the first word of "values of X"
        stem = kind if name == TUPLES else f"{kind}-{number}"
        # As they are stored: numbers of groups and codes of values are places in them.
        query = f"SELECT * FROM release.{name} ORDER BY rowid"  # noqa: S608
        nullable = _nullable(connection.table(f"release.{name}"))
        parts.append(_written(connection, query, folder, stem, name, nullable))
    document = {
        "layout": LAYOUT,
        "manifest": text,
        "digest": digest,
        "table": table,
        "columns": [(name, str(kind)) for name, kind in columns],
        "parts": [asdict(part) for part in parts],
    }
    index = folder / MANIFEST
    index.write_text(json.dumps(document, ensure_ascii=False, indent=1), encoding="utf-8")
    sync(index)
    sync(folder / ROWS_FOLDER)


def _rows(
    connection: duckdb.DuckDBPyConnection,
    folder: Path,
    table: str,
    columns: Sequence[tuple[str, DuckDBPyType]],
    order: Sequence[str],
    rows: int,
) -> Iterable[Part]:
    """The published rows, divided by their content."""
    count = -(-rows // PART_ROWS)
    shown = ", ".join(
        quoted(name) if _kept(kind) else f"CAST({quoted(name)} AS VARCHAR) AS {quoted(name)}"
        for name, kind in columns
    )
    sorted_by = ", ".join(quoted(name) for name in order)
    # Of all parts alike: a reader may take the first one's schema for that of all.
    nullable = _nullable(connection.table(f"release.main.{quoted(table)}"))
    for number in range(count):
        query = f"SELECT {shown} FROM release.main.{quoted(table)} AS t"  # noqa: S608
        if count > 1:
            query += f" WHERE hash(row({sorted_by})) % {count} = {number}"
        stem = f"{ROWS_FOLDER}/part-{number}"
        yield _written(connection, f"{query} ORDER BY {sorted_by}", folder, stem, table, nullable)


def _written(
    connection: duckdb.DuckDBPyConnection,
    query: str,
    folder: Path,
    stem: str,
    name: str,
    nullable: Collection[str],
) -> Part:
    """Write one file, under a name with its digest; columns not in ``nullable`` are full."""
    made = folder / f"{stem}.writing"
    table = connection.sql(query).to_arrow_table().combine_chunks()
    # What has no NULL says so, or scans would look for one in every row (they take 2 to 3 times as
    # long then).  Written by Arrow: DuckDB's bytes depend on what it happens to know of a column.
    fields = [field.with_nullable(field.name in nullable) for field in table.schema]
    pq.write_table(
        table.cast(pa.schema(fields)),
        made,
        row_group_size=GROUP_ROWS,
        compression="zstd",
        store_schema=False,
    )
    sync(made)
    digest = sha256(made)
    file = f"{stem}-{digest[:16]}.parquet"
    os.replace(made, folder / file)
    made = folder / file
    return Part(file, name, len(table), made.stat().st_size, digest, _end_of(made))


def _nullable(relation: duckdb.DuckDBPyRelation) -> set[str]:
    """The columns that have a NULL."""
    counts = ", ".join(f"count(*) - count({quoted(name)})" for name in relation.columns)
    missing = relation.aggregate(counts).fetchall()[0]
    return {name for name, many in zip(relation.columns, missing, strict=True) if many}


def commit_folder(made: Path, target: Path) -> None:
    """Bring a folder into view: whole at once, or by its ``manifest.json`` over an older one."""
    sync(made)
    if not target.exists():
        os.replace(made, target)
        sync(target.absolute().parent)
        return
    (target / ROWS_FOLDER).mkdir(exist_ok=True)
    index = read_index(made)
    for part in index.parts:
        os.replace(made / part.file, target / part.file)
    sync(target / ROWS_FOLDER)
    sync(target)
    os.replace(made / MANIFEST, target / MANIFEST)
    sync(target)
    _sweep(target, index)


def _sweep(folder: Path, index: Index) -> None:
    """Remove files that a release once had and no longer names; files of others stay."""
    named = {part.file for part in index.parts}
    for file in (*folder.glob("*.parquet"), *(folder / ROWS_FOLDER).glob("*.parquet")):
        place = file.relative_to(folder).as_posix()
        if _NAME.fullmatch(place) and place not in named:
            file.unlink(missing_ok=True)


def link_folder(source: Path, made: Path, *, copied: bool = False) -> None:
    """A folder of its own with the files of a release: links to them, or copies."""
    (made / ROWS_FOLDER).mkdir(parents=True)
    try:
        # The manifest first: where it is replaced meanwhile, a file that it names is missed.
        shutil.copyfile(source / MANIFEST, made / MANIFEST)
        for part in read_index(made).parts:
            (shutil.copyfile if copied else os.link)(source / part.file, made / part.file)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def sha256(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _end_of(path: Path) -> str:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - END))
        return hashlib.sha256(file.read()).hexdigest()


def _kept(kind: DuckDBPyType) -> bool:
    """Whether Parquet keeps values of a type as they are."""
    if kind.id in _NESTED:
        parts = [each for _, each in kind.children if isinstance(each, DuckDBPyType)]
        return all(map(_kept, parts))
    return kind.id in _KEPT


def _literal(text: str) -> str:
    """A text within a statement that takes no bound values (COPY, CREATE VIEW)."""
    return "'" + text.replace("'", "''") + "'"


def _unfit(reason: str) -> IntegrityError:
    return IntegrityError(reason, hint="get the release again from its publisher")
