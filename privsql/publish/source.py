"""Sources of raw rows: CSV, Parquet, tables of a DuckDB file, or standard input, in parts or whole.

A source is opened in a connection of its own, so that nothing that is written shares a
database with raw rows.  Rows are read as Arrow batches in the order of the source.

    files of one kind  ── read as they are                                  ── Source
    standard input     ── copied into a private folder, read as a file      ── Source
    parts with a key   ── each copied, checked, joined one to one, sorted   ── Source

Parts are joined in memory that spills to a private folder, which goes when the source closes,
or with the next publication if this one is killed (:mod:`privsql.publish.staging`).
"""

from __future__ import annotations

import glob
import hashlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from duckdb import ColumnExpression, ConstantExpression, FunctionExpression

from privsql.errors import DataError, OperationalError, ProgrammingError, how_many
from privsql.publish.database import MEMORY, quiet, store
from privsql.publish.formats import (
    CSV,
    DUCKDB,
    PARQUET,
    check_files,
    one_stdin,
    release_refused,
    spooled,
)
from privsql.publish.staging import private_folder
from privsql.publish.types import WHOLE_NUMBERS, exactly, keep_types
from privsql.release.names import quoted
from privsql.release.store import count_rows

# Rows a batch: large enough for vectors, small enough that memory stays flat.
BATCH = 1 << 18

# An ENUM as DuckDB writes its type, whose values may hold anything, doubled quotes included.
ENUM = re.compile(r"ENUM\((?:'(?:[^']|'')*'(?:, )?)*\)")

# How the CSV reader names the place of an error.
CSV_LINE, CSV_COLUMN = r"CSV Error on Line: (\d+)", r'(?m)^Error when converting column "(.+?)"\.'

# Moments, as DuckDB calls their type.
ZONED = "TIMESTAMP WITH TIME ZONE"

# Keys of these types are equal when their numbers are.
INTEGERS = set(map(str.upper, WHOLE_NUMBERS))


@dataclass(frozen=True)
class Source:
    """An open source: its columns, and its rows in batches."""

    connection: duckdb.DuckDBPyConnection
    relation: duckdb.DuckDBPyRelation
    files: tuple[str, ...]
    # The private folder of parts that were joined, or of standard input.
    held: ExitStack = field(default_factory=ExitStack)
    # How CSV files are read, whose types are guessed from the first rows: a later one may not fit.
    csv: Mapping[str, Any] | None = None

    @cached_property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """Names and types of the columns, in order."""
        return tuple(zip(self.relation.columns, map(str, self.relation.types), strict=True))

    @property
    def names(self) -> list[str]:
        """Names of the columns, in order."""
        return [name for name, _ in self.columns]

    def rows(self) -> int:
        """Count the rows."""
        with readable():
            return count_rows(self.relation)

    def different(self, name: str) -> int:
        """Count the different values of a column, NULL among them."""
        with readable():
            return count_rows(self.relation.select(ColumnExpression(name)).distinct())

    def batches(self, names: Sequence[str], *, exact: bool = False) -> Iterator[pa.RecordBatch]:
        """Rows of the named columns, in the order of the source.

        ``exact`` keeps every type (:mod:`privsql.publish.types`); otherwise values come as
        Arrow's plain types.
        """
        with readable():
            chosen = self.relation.select(*(ColumnExpression(name) for name in names))
            # Not set back at the end, when a reader that was left half-read may be open.
            keep_types(self.connection, exact)
            yield from chosen.to_arrow_reader(BATCH)

    def check_types(self, names: Sequence[str]) -> None:
        """Refuse columns that cannot be published as what they are; no row is read for it."""
        if not names:
            return
        # Of all columns: to choose among a thousand takes longer than to look at nothing of them.
        nothing = self.relation.limit(0)
        with readable(), exactly(self.connection):
            empty = nothing.to_arrow_table()
        arrived = list(map(str, self.connection.from_arrow(empty).types))
        wanted = {name.casefold() for name in names}
        lost = []
        for name, kind, there in zip(nothing.columns, nothing.types, arrived, strict=True):
            here = ENUM.sub("VARCHAR", str(kind))
            # A union of nothing and no union are one to Arrow.
            if name.casefold() in wanted and (here != there or "UNION(" in here):
                lost.append(f"{name} ({here})")
        if lost:
            raise DataError(
                f"columns of these types cannot be published: {', '.join(lost)}",
                hint="cast them in the source, for example to VARCHAR, or drop them",
            )

    def distinct(self, name: str) -> pa.ChunkedArray[Any]:
        """The distinct values of a column, sorted, NULL among them."""
        with readable():
            keep_types(self.connection, False)
            column = ColumnExpression(name)
            table = self.relation.select(column).distinct().sort(column).to_arrow_table()
            values: pa.ChunkedArray[Any] = table.column(0)
            return values

    def figures(self, aggregates: str) -> tuple[Any, ...]:
        """One row of aggregates over all rows, values as Python has them.

        Through Arrow: DuckDB needs a package that is not there to fetch a time with a zone.
        """
        with readable():
            keep_types(self.connection, False)
            table = self.relation.aggregate(aggregates).to_arrow_table()
        return tuple(column[0].as_py() for column in table.columns)

    def state(self) -> str:
        """A digest of the files: the same source has every row at the same place."""
        state = hashlib.blake2b(digest_size=16)
        for file in self.files:
            with Path(file.partition("::")[0]).open("rb") as handle:
                state.update(hashlib.file_digest(handle, "blake2b").digest())
            state.update(file.partition("::")[2].encode())
        return state.hexdigest()

    def close(self) -> None:
        """Close the files."""
        self.connection.close()
        self.held.close()


def open_source(
    paths: Sequence[str],
    *,
    joined: Sequence[Sequence[str]] = (),
    on: str | None = None,
    text: Collection[str] = (),
) -> Source:
    """Open files of one kind as one table; globs are allowed, and ``file.duckdb::table``.

    ``-`` is standard input, which is read to its end first.
    Without ``paths``, the parts in ``joined`` are opened, each a table of its own, and put
    side by side where their key ``on`` is equal, sorted by it.  In CSV files, where types are
    guessed, the columns named in ``text`` are text: yes and no, or 01 and 02, are words then.
    """
    if joined and not paths:
        return _open_joined(joined, on, text)
    if not paths:
        raise ProgrammingError("no source is given", hint="name one in the spec or with --source")
    with ExitStack() as held:
        if one_stdin(paths):
            paths = [spooled(held.enter_context(private_folder()))]
        opened = _open_files([file for path in paths for file in _expand(path)], text)
        return replace(opened, held=held.pop_all())


def as_text(source: Source, names: Collection[str]) -> Source:
    """CSV files with some more columns as text; other sources as they are."""
    if source.csv is None or not names:
        return source
    with readable():
        told = dict.fromkeys(names, "VARCHAR")
        read = _read_csv(source.connection, source.files, told, source.csv)
        return replace(source, relation=read)


def tabled(source: Source) -> Source:
    """CSV files as a table, for whoever reads them several times; other sources as they are.

    It is in memory that spills to a private folder, and its rows are in no order.
    """
    if source.csv is None:
        return source
    with ExitStack() as held, readable():
        spill = held.enter_context(private_folder())
        held.enter_context(source.held)
        folder = str(spill).replace("'", "''")
        source.connection.execute(
            f"SET temp_directory = '{folder}'; SET memory_limit = '{MEMORY}';"
            " SET preserve_insertion_order = false"
        )
        with _roomy():
            store(source.connection, "CREATE TABLE source_rows AS", source.relation)
        made = source.connection.table("source_rows")
        return replace(source, relation=made, csv=None, held=held.pop_all())


def in_utc(source: Source, names: Collection[str]) -> Source:
    """The source with the named columns' times in UTC where they have a time zone.

    A domain of times has no zone, so sensitive times lose theirs: they are the same moments.
    """
    wanted = {name.casefold() for name in names}
    zoned = {n for n, kind in source.columns if n.casefold() in wanted and kind == ZONED}
    if not zoned:
        return source
    chosen = []
    for name in source.names:
        value: duckdb.Expression = ColumnExpression(name)
        if name in zoned:
            value = FunctionExpression("timezone", ConstantExpression("UTC"), value)
        chosen.append(value.alias(name))
    with readable():
        return replace(source, relation=source.relation.select(*chosen))


def _open_files(files: list[str], text: Collection[str]) -> Source:
    kinds = check_files(files)
    if kinds <= DUCKDB and len(files) == 1:
        opened: dict[str, Any] = {"database": files[0].partition("::")[0], "read_only": True}
    else:
        opened = {"config": {"temp_directory": ""}}  # raw rows never spill to disk
    with readable(), ExitStack() as failing:
        connection = quiet(failing.enter_context(duckdb.connect(**opened)))
        if kinds <= CSV:
            relation = _csv(connection, files, text)
        elif kinds <= PARQUET:
            relation = connection.read_parquet(files)
        elif kinds <= DUCKDB and len(files) == 1:
            check_no_release(connection, files[0])
            relation = _table(connection, files[0])
        else:
            raise ProgrammingError(
                f"cannot read {', '.join(sorted(kinds))} as one source",
                hint="give CSV or Parquet files of one kind, or one DuckDB file",
            )
        failing.pop_all()
    return Source(connection, relation, tuple(files), csv={} if kinds <= CSV else None)


def reread(source: Source) -> tuple[Source, dict[str, str]] | None:
    """CSV files whose types were guessed wrong: values that are of them, NULL in place of others.

    Beside the columns stands the text of each that is not text itself, under the name that is
    given for it.  None for other sources, where types are not guessed.
    """
    if source.csv is None:
        return None
    told = dict.fromkeys(source.names, "VARCHAR")
    texts, chosen = {}, []
    with readable():
        written = _read_csv(source.connection, source.files, told, source.csv)
        formats = _formats(source)
        for i, (name, kind) in enumerate(zip(source.names, source.relation.types, strict=True)):
            text: duckdb.Expression = ColumnExpression(written.columns[i])
            value = text
            if str(kind) != "VARCHAR":
                value = text.try_cast(kind)
                if kind.id in formats:
                    form = ConstantExpression(formats[kind.id])
                    value = FunctionExpression("try_strptime", text, form).try_cast(kind)
                texts[name] = f"privsql_text_{i}"
                chosen.append(text.alias(texts[name]))
            chosen.append(value.alias(name))
        return replace(source, relation=written.select(*chosen)), texts


def _formats(source: Source) -> dict[str, str]:
    """How days and moments are written in CSV files, where that is not ISO's way."""
    sniffed = source.connection.execute(
        "SELECT DateFormat, TimestampFormat FROM sniff_csv(?)", [source.files[0]]
    ).fetchall()
    return {
        kind: form for kind, form in zip(("date", "timestamp"), sniffed[0], strict=True) if form
    }


def open_csv(
    file: str, text: Collection[str], types: Mapping[str, str], options: Mapping[str, Any]
) -> Source:
    """Open a part of a CSV stream, with the types that an earlier part had, if there was one."""
    check_files([file])
    with readable(), ExitStack() as failing:
        connection = failing.enter_context(duckdb.connect(config={"temp_directory": ""}))
        if types:
            relation = _read_csv(quiet(connection), [file], types, options)
        else:
            relation = _csv(quiet(connection), [file], text, options)
        failing.pop_all()
    return Source(connection, relation, (file,), csv=options)


def csv_dialect(source: Source) -> tuple[dict[str, Any], int]:
    """How a CSV file is written, and how many lines stand before its names."""
    with readable():
        found = source.connection.execute(
            "SELECT Delimiter, Quote, Escape, SkipRows, DateFormat, TimestampFormat"
            " FROM sniff_csv(?, header = true)",
            [source.files[0]],
        ).fetchall()[0]
    # Quotes that its first rows do not have may come later.
    signs = ['"' if sign in (None, "", "(empty)") else sign for sign in found[1:3]]
    options = {"header": True, "delimiter": found[0], "quotechar": signs[0]}
    options |= {"escapechar": signs[1], "skiprows": found[3]}
    forms = zip(("date_format", "timestamp_format"), found[4:], strict=True)
    return options | {key: form for key, form in forms if form}, int(found[3])


def _csv(
    connection: duckdb.DuckDBPyConnection,
    files: Sequence[str],
    text: Collection[str],
    options: Mapping[str, Any] | None = None,
) -> duckdb.DuckDBPyRelation:
    relation = _read_csv(connection, files, {}, options or {})
    if len(relation.columns) == 1 and re.search(r"[,;\t|]", relation.columns[0]):
        raise DataError(
            "the source cannot be read as CSV: its lines do not have as many fields as the first",
            hint="look for missing quotes and separators",
        )
    words = {name.casefold() for name in text}
    kinds = zip(relation.columns, map(str, relation.types), strict=True)
    told = {n: "VARCHAR" for n, kind in kinds if n.casefold() in words and kind != "VARCHAR"}
    # Only what is there may be told, so the files are looked at once more.
    return _read_csv(connection, files, told, options or {}) if told else relation


def _read_csv(
    connection: duckdb.DuckDBPyConnection,
    files: Sequence[str],
    types: Mapping[str, str],
    options: Mapping[str, Any],
) -> duckdb.DuckDBPyRelation:
    told: dict[str, Any] = {"dtype": dict(types)} if types else {}
    if types and "delimiter" in options:  # nothing is left to be guessed
        told = {"columns": dict(types), "auto_detect": False}
    return connection.read_csv(list(files), **told, **options)  # type: ignore[arg-type]


def _open_joined(joined: Sequence[Sequence[str]], on: str | None, text: Collection[str]) -> Source:
    if on is None:
        raise ProgrammingError("parts of a source need a key", hint='write join = "id" beside them')
    with ExitStack() as failing:
        spill = failing.enter_context(private_folder())
        config = {"temp_directory": str(spill), "memory_limit": MEMORY}
        connection = quiet(failing.enter_context(duckdb.connect(config=config)))  # type: ignore[arg-type]
        parts = [_copied(connection, i, paths, on, text) for i, paths in enumerate(joined, 1)]
        _check_parts(parts)
        with readable(), _roomy():
            relation = _side_by_side(connection, parts)
        # One to one, so what a part has more than the whole is what others miss.
        whole = count_rows(relation)
        apart = [count_rows(part.relation) - whole for part in parts]
        if any(apart):
            rows = ", ".join(f"{n} of {part}" for n, part in zip(apart, parts, strict=True) if n)
            raise DataError(
                f"rows without a matching key in the other parts: {rows}",
                hint="each part must have the same keys",
            )
        for part in parts:
            connection.execute(f"DROP TABLE part_{part.number}")
        files = tuple(file for part in parts for file in part.files)
        return Source(connection, relation, files, failing.pop_all())


@dataclass(frozen=True)
class _Part:
    """One part of a joined source, copied into the connection that joins."""

    number: int
    relation: duckdb.DuckDBPyRelation
    key: str  # as this part spells it
    kind: str  # type of the key
    files: tuple[str, ...]

    def __str__(self) -> str:
        """Name the part in an error."""
        return f"part {self.number}"

    @property
    def others(self) -> list[str]:
        """Its columns besides the key."""
        return [name for name in self.relation.columns if name != self.key]


def _copied(
    connection: duckdb.DuckDBPyConnection,
    number: int,
    paths: Sequence[str],
    on: str,
    text: Collection[str],
) -> _Part:
    """Copy a part as it streams by; its file may be a database that only it can be open in."""
    if not paths:
        raise ProgrammingError(f"part {number} of the source names no file")
    with closing(open_source(paths, text=text)) as part:
        keys = {name.casefold(): (name, kind) for name, kind in part.columns}
        if on.casefold() not in keys:
            raise ProgrammingError(
                f'part {number} of the source has no column "{on}" to join on',
                hint=f"its columns are {', '.join(part.names[:10])}",
            )
        key, kind = keys[on.casefold()]
        with readable(), _roomy():
            keep_types(part.connection, True)
            connection.register("copied", part.relation.to_arrow_reader(BATCH))
            connection.table("copied").create(f"part_{number}")
            connection.unregister("copied")
    return _Part(number, connection.table(f"part_{number}"), key, kind, part.files)


def _check_parts(parts: Sequence[_Part]) -> None:
    """Refuse parts whose columns collide, or whose keys are not unique."""
    seen = {parts[0].key.casefold()}
    twice = []
    for name in (name for part in parts for name in part.others):
        if name.casefold() in seen:
            twice.append(name)
        seen.add(name.casefold())
    if twice:
        raise ProgrammingError(
            f"several parts of the source have the same columns: {', '.join(twice)}",
            hint="only the key may be in all of them; rename the others or leave them out",
        )
    kinds = {part.kind for part in parts}
    if len(kinds) > 1 and not kinds <= INTEGERS:
        listed = ", ".join(f"{part.kind} in {part}" for part in parts)
        raise ProgrammingError(
            f"the key has types that do not compare: {listed}",
            hint="use one type for it in all parts",
        )
    for part in parts:
        key = quoted(part.key)
        with _roomy():
            missing = count_rows(part.relation.filter(f"{key} IS NULL"))
            groups = part.relation.filter(f"{key} IS NOT NULL").aggregate("count(*) AS n", key)
            repeated = int(groups.filter("n > 1").aggregate("sum(n)").fetchall()[0][0] or 0)
        without = how_many(missing, "row has no key", "rows have no key")
        shared = f"{how_many(repeated, 'row shares its', 'rows share their')} key with another row"
        problems = [text for count, text in ((missing, without), (repeated, shared)) if count]
        if problems:
            raise DataError(
                f"{part} of the source cannot be joined: {' and '.join(problems)}",
                hint="the key must be present and unique in each part",
            )


def _side_by_side(
    connection: duckdb.DuckDBPyConnection, parts: Sequence[_Part]
) -> duckdb.DuckDBPyRelation:
    """Join checked parts into a table that is sorted by the key."""
    relation, key = parts[0].relation, quoted(parts[0].key)
    for part in parts[1:]:
        left, right = relation.set_alias("l"), part.relation.set_alias("r")
        columns = ["l.*", *(f"r.{quoted(name)}" for name in part.others)]
        relation = left.join(right, f"l.{key} = r.{quoted(part.key)}").project(", ".join(columns))
    relation.order(key).create("joined")
    return connection.table("joined")


@contextmanager
def _roomy() -> Iterator[None]:
    """The error for parts that do not fit on the disk while they are joined."""
    try:
        yield
    except duckdb.OutOfMemoryException:
        raise OperationalError(
            "there is not enough disk space for a copy of the source",
            hint="set TMPDIR to a disk with room for two copies of it",
        ) from None


def _expand(path: str) -> list[str]:
    file, mark, table = path.partition("::")
    found = sorted(glob.glob(file)) if glob.has_magic(file) else [file]
    if not found:
        raise OperationalError(f"no file matches {path}")
    for each in found:
        if Path(each).is_dir():
            raise OperationalError(f"{each} is a folder", hint=f"name files: {each}/*.parquet")
        if not Path(each).is_file():
            raise OperationalError(f"there is no file {each}")
    return [each + mark + table for each in found]


def _table(connection: duckdb.DuckDBPyConnection, path: str) -> duckdb.DuckDBPyRelation:
    """The table of a database that its path names, or else the only one."""
    file, _, table = path.partition("::")
    tables = [table] if table else [row[0] for row in connection.execute("SHOW TABLES").fetchall()]
    if len(tables) != 1:
        raise ProgrammingError(f"{file} has {len(tables)} tables", hint=f"name one: {file}::table")
    return connection.table(quoted(tables[0]))


def check_no_release(connection: duckdb.DuckDBPyConnection, file: str) -> None:
    """Refuse a release, whose rows are published ones, in place of raw rows."""
    found = connection.execute(
        "SELECT count(*) FROM duckdb_tables() WHERE schema_name = 'privsql'"
        " AND table_name = 'manifest' AND NOT internal"
    ).fetchall()[0][0]
    if found:
        raise release_refused(Path(file.partition("::")[0]))


class UnreadableError(DataError):
    """Rows whose values are not of the types of their columns."""


def _where(problem: str) -> str:
    """Which line and column the CSV reader stopped at, without the value that it quotes."""
    line, column = (re.search(each, problem) for each in (CSV_LINE, CSV_COLUMN))
    if line is None:
        return "a row does"
    named = f", column {column[1]}, does" if column else " does"
    return f"line {int(line[1]):,} of a file{named}"


@contextmanager
def readable() -> Iterator[None]:
    """Turn the reader's errors into errors of privsql, without the values that they quote."""
    try:
        yield
    except duckdb.CatalogException:
        raise ProgrammingError("the source has no such table or column") from None
    # What goes wrong in the middle of a stream reaches us through Arrow, as an OSError.
    except (duckdb.Error, pa.ArrowException, OSError) as problem:
        text = str(problem).lower()
        # The advice that follows every error of the CSV reader names UTF-8 as well.
        if "invalid unicode" in text or "not utf-8 encoded" in text:
            raise DataError(
                "the source is not valid UTF-8", hint="convert it first, for example with iconv"
            ) from None
        if isinstance(problem, duckdb.IOException):
            raise OperationalError("the source cannot be read as a file of its kind") from None
        raise UnreadableError(
            f"the source cannot be read: {_where(str(problem))} not fit the types of its columns",
            hint="mixed types in a CSV column are the usual cause; write them as text",
        ) from None
