"""Files of an earlier format, upgraded step by step to the current one.

    copy beside the target ── step n to n + 1, ... ── opened by today's reader ── renamed into view

A step changes a private copy in place, from its format to the next, and says the new number in it.
It never draws: the published rows of a release are compared before and after.  A step is entered
in ``STEPS`` when a format's number is raised, together with fixtures of the format that it
starts from (``tests/fixtures``).  Format 1 is the first.

A release stays known to histories of answers by the digest of its first manifest
(``Manifest.identity``); otherwise a conversion would let every user begin anew.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from privsql.errors import InternalError, NotSupportedError, OperationalError
from privsql.files import commit
from privsql.fronts.pgwire.auth import users
from privsql.policy import history, history_file
from privsql.publish.keys import key as keys
from privsql.publish.keys import ledger
from privsql.publish.staging import staging
from privsql.release import manifest
from privsql.release.folder import wants_folder
from privsql.release.formats import check_format
from privsql.release.names import ROW_NUMBER, quoted
from privsql.release.shapes import as_file, as_folder, commit_release
from privsql.release.store import (
    attach,
    attach_release,
    open_release,
    store_manifest,
    stored_manifest,
)

Step = Callable[[Path], None]


def _history_2(path: Path) -> None:
    """Entries stay as they are, under digests that no new answer has: see ``policy.history``.

    The number keeps an earlier version from writing its own coordinates into the file later.
    """
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 2")


def _history_3(path: Path) -> None:
    """Entries stay as they are, and new ones have tables of their own."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(history_file.EXACT)
        connection.execute("PRAGMA user_version = 3")


# Kind of file -> format -> what brings a copy of it to the next format.
STEPS: dict[str, dict[int, Step]] = {
    "release": {},
    "key": {},
    "ledger": {},
    "history": {1: _history_2, 2: _history_3},
    "users file": {},
}

# How files of SQLite and DuckDB begin, and where that stands.
SQLITE = b"SQLite format 3\0"
DUCKDB, DUCKDB_AT = b"DUCK", 8


@dataclass(frozen=True)
class Kind:
    """A kind of file: its current format, and how files of it are read."""

    name: str
    current: int
    found: Callable[[Path], int]  # the format that a file says it has
    opened: Callable[[Path], object]  # by today's reader, which refuses what is not whole


@dataclass(frozen=True)
class Converted:
    """What became of a file."""

    kind: str
    before: int
    after: int
    target: Path
    backup: Path | None = None

    def __str__(self) -> str:
        """Say it in a line."""
        if self.before == self.after:
            return (
                f"nothing to convert: {self.target} is a {self.kind} of format {self.before},"
                " which this version reads"
            )
        kept = "" if self.backup is None else f"; the file before is {self.backup}"
        return f"converted {self.target}: {self.kind}, format {self.before} to {self.after}{kept}"


@dataclass(frozen=True)
class Reshaped:
    """A release that was written in its other shape."""

    source: Path
    target: Path
    folder: bool

    def __str__(self) -> str:
        """Say it in a line."""
        shape = "folder of Parquet" if self.folder else "file"
        return f"wrote {self.target}: the release {self.source} as a {shape}, with equal answers"


def convert(
    path: str | Path, out: str | Path | None = None, *, force: bool = False
) -> Converted | Reshaped:
    """Upgrade a file to the current format, whole or not at all; a current one is left alone.

    A release becomes a folder of Parquet where ``out`` is a folder or ends with a slash, and a
    folder becomes a file.

    ``out`` None puts it in the place of the old file, which is kept beside it under a name that
    must be free; ``force`` lets it overwrite what is at ``out``.
    """
    source = Path(path).resolve()
    if source.is_dir() or (out is not None and wants_folder(out)):
        return _reshaped(source, Path(path), out, force=force)
    kind = _kind(source)
    before = kind.found(source)
    software = stored_manifest(source)[0].get("software") if kind.name == "release" else None
    if before >= kind.current:
        check_format(before, kind.current, f"the {kind.name}", software=software)
        kind.opened(source)
        return Converted(kind.name, before, before, Path(path))
    steps = STEPS[kind.name]
    if not steps.keys() >= set(range(before, kind.current)):
        raise NotSupportedError(
            f"there is no upgrade from format {before} of a {kind.name} to {kind.current}",
            hint="use the version of privsql that made it",
        )
    target = source if out is None else Path(out)
    backup = source.with_name(f"{source.name}.format{before}") if out is None else None
    if backup is not None and os.path.lexists(backup):
        raise OperationalError(
            f"{backup} exists already", hint="move it away, or name the new file with -o"
        )
    if out is not None and target.exists() and target.samefile(source):
        raise OperationalError(
            f"{target} is what is converted", hint="leave out -o to replace it and keep a copy"
        )
    with staging(target, force=force or out is None) as folder, _alone(kind, source):
        made = folder / "converted"
        _copy(kind, source, made)
        for n in range(before, kind.current):
            steps[n](made)
            if kind.found(made) != n + 1:
                raise InternalError(f"the upgrade of a {kind.name} from format {n} left it there")
        if kind.name == "release" and _rows(made) != _rows(source):
            raise InternalError("an upgrade changed the published rows; nothing was written")
        kind.opened(made)
        shutil.copymode(source, made)
        _replace(made, target, source, backup)
    return Converted(kind.name, before, kind.current, target if out else Path(path), backup)


def _reshaped(
    source: Path, path: Path, out: str | Path | None, *, force: bool
) -> Converted | Reshaped:
    """A release in its other shape: nothing is drawn, and every answer stays what it is."""
    current = open_release(source).manifest.format
    if out is None:
        return Converted("release", current, current, path)
    target, parquet = Path(out), wants_folder(out)
    if target.exists() and target.samefile(source):
        raise OperationalError(f"{target} is what is converted", hint="name another place with -o")
    with staging(target, force=force, folder=parquet) as folder:
        made = folder / "converted"
        (as_folder if parquet else as_file)(source, made)
        if _rows(made) != _rows(source):
            raise InternalError("a conversion changed the published rows; nothing was written")
        open_release(made)
        commit_release(made, target)
    return Reshaped(path, target, parquet)


@contextmanager
def upgraded_release(path: Path) -> Iterator[tuple[duckdb.DuckDBPyConnection, dict[str, Any]]]:
    """Open a copy of a release for a step: its tables, and its manifest to be changed.

    When the step is through, the manifest is stored with the next format's number.
    """
    document, digest = stored_manifest(path)
    with closing(duckdb.connect(":memory:")) as connection:
        attach(connection, path, "ATTACH $path AS release (TYPE duckdb)")
        connection.execute("USE release")
        yield connection, document
        document["format"] += 1
        document["identity"] = document.get("identity") or digest
        text = json.dumps(document, ensure_ascii=False, sort_keys=True, indent=1)
        store_manifest(connection, text)
        connection.execute("CHECKPOINT release")


# -- kinds --------------------------------------------------------------------------------


def _kind(path: Path) -> Kind:
    """What a file is, by how it begins."""
    try:
        with path.open("rb") as file:
            start = file.read(4096)
    except OSError as problem:
        raise OperationalError(f"cannot open {path}: {problem.strerror}") from None
    if start[DUCKDB_AT : DUCKDB_AT + len(DUCKDB)] == DUCKDB:
        return Kind("release", manifest.FORMAT, _release_format, open_release)
    if start.startswith(SQLITE):
        return Kind("history", history_file.VERSION, _history_format, _open_history)
    if start.startswith(keys.HEADER.encode()):
        return Kind("key", keys.VERSION, _key_format, keys.read_key)
    for kind in (
        Kind("users file", users.VERSION, _users_format, users.Users),
        Kind("ledger", ledger.FORMAT, _ledger_format, _open_ledger),
    ):
        with suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
            kind.found(path)
            return kind
    raise OperationalError(
        f"{path} is no release, key, ledger, history or users file of privsql",
        hint="name a file that privsql wrote",
    )


def _release_format(path: Path) -> int:
    return int(stored_manifest(path)[0]["format"])


def _key_format(path: Path) -> int:
    for line in path.read_text(encoding="ascii", errors="replace").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "version" and value.strip().isdigit():
            return int(value)
    raise OperationalError(f"the key in {path} does not say which version it has")


def _users_format(path: Path) -> int:
    document = json.loads(path.read_bytes())
    return int(document["version"]) if document["users"] is not None else 0


def _ledger_format(path: Path) -> int:
    """The earliest format of a line, or the latest if today's reader does not know it."""
    lines = [line for line in path.read_bytes().split(b"\n") if line]
    documents = [json.loads(line) for line in lines[:-1]]
    with suppress(ValueError):  # a line that was never finished
        documents.append(json.loads(lines[-1] if lines else b""))
    formats = [int(each.get("format", 1)) for each in documents if each["columns"] is not None]
    return max(formats) if max(formats) > ledger.FORMAT else min(formats)


def _history_format(path: Path) -> int:
    # From its header: to open such a file leaves files of SQLite's own beside it.
    with path.open("rb") as file:
        header = file.read(100)
    version, application = (int.from_bytes(header[at : at + 4]) for at in (60, 68))
    if application != history_file.APPLICATION:
        raise OperationalError(f"{path} is a database of SQLite, but no history of privsql")
    return version


def _open_history(path: Path) -> None:
    history.History(path).close()


def _open_ledger(path: Path) -> None:
    ledger.Ledger(path, "").publications()


# -- files --------------------------------------------------------------------------------


def _alone(kind: Kind, source: Path) -> Any:
    """Keep publishers out of a ledger meanwhile: what they enter must not be lost."""
    return ledger.Ledger(source, "").locked() if kind.name == "ledger" else nullcontext()


def _copy(kind: Kind, source: Path, made: Path) -> None:
    if kind.name != "history":
        shutil.copyfile(source, made)
        return
    # What a server wrote last is in a file beside it until it is taken in.
    try:
        with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(made)) as new:
            old.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            old.backup(new)
    except sqlite3.Error:
        raise OperationalError(f"{source} is damaged, or in use") from None
    if source.with_name(f"{source.name}-wal").exists():
        raise OperationalError(
            f"{source} is in use by a server", hint="stop it while the history is converted"
        )


def _rows(path: Path) -> tuple[Any, ...]:
    """Number and digest of the published rows, in whatever order."""
    document = stored_manifest(path)[0]
    table = quoted(str(document["table"]))
    with closing(duckdb.connect(":memory:")) as connection:
        if path.is_dir():
            attach_release(connection, path)
        else:  # of whatever format
            attach(connection, path, "ATTACH $path AS release (READ_ONLY, TYPE duckdb)")
        rows = connection.table(f"release.main.{table}")
        columns = ", ".join(quoted(name) for name in rows.columns if name != ROW_NUMBER)
        return tuple(rows.aggregate(f"count(*), sum(hash(row({columns}))::HUGEINT)").fetchall()[0])


def _replace(made: Path, target: Path, source: Path, backup: Path | None) -> None:
    """Bring the new file into view; the old one has its second name before it loses the first."""
    if backup is None:
        commit(made, target)
        return
    try:
        os.link(source, backup)
    except FileExistsError:
        raise OperationalError(f"{backup} exists already", hint="move it away") from None
    except OSError:  # a file system without links
        shutil.copy2(source, backup)
    try:
        commit(made, target)
    except BaseException:
        backup.unlink(missing_ok=True)
        raise
