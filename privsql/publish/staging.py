"""Folders for what is being made: beside a release, and private ones for raw rows.

    staging          beside the target, renamed into view at the end: a reader sees the old
                     release or the new one; a lock keeps a second publisher out
    private_folder   in the system's temporary folder, for its owner alone: rows of standard
                     input, parts that are joined, pilots of `advise`

What a crash left behind is swept away by the next publication, whoever holds no lock.
"""

from __future__ import annotations

import glob
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import duckdb

from privsql.errors import OperationalError, interruptible
from privsql.files import NO_ROOM, check_folder, check_target, lock, unwritable
from privsql.release.folder import MANIFEST

# What DuckDB says when there is no room for what is written.
FAILED = (
    duckdb.IOException,
    duckdb.OutOfMemoryException,
    duckdb.TransactionException,
    duckdb.FatalException,
)

# Private folders begin with this, and so do their locks, which end in ``LOCK``.
PRIVATE, LOCK = "privsql-private-", ".lock"

# Room that a row needs while it is published: the staged rows, and what sorting them takes.  More
# columns than these need more.  As much as IN_MEMORY stays in memory, and a row of the release
# itself is small.  Measured with little memory: a million rows of 8 columns take 126 bytes each in
# memory and on disk together, 300,000 of 16 columns 293.
ROW_BYTES, ROW_COLUMNS = 150, 8
IN_MEMORY, RELEASED_BYTES = 10**9, 5

# A need above this is told before any row is written.
TOLD = 10**9


@contextmanager
def staging(target: Path, *, force: bool, folder: bool = False) -> Iterator[Path]:
    """Yield a folder to write in; ``commit`` moves the result from there to the target.

    ``folder``: the target is a folder of Parquet, and ``commit_folder`` moves it there.
    """
    if folder:
        check_folder(target, MANIFEST, force=force)
    else:
        check_target(target, force=force)
    sweep()
    with _locked(target.with_name(f".{target.name}.lock"), target):
        prefix = f".{_plain(target.name)}.staging-"
        for left in target.parent.glob(f"{glob.escape(prefix)}*"):
            shutil.rmtree(left, ignore_errors=True)
        try:
            made = Path(tempfile.mkdtemp(prefix=prefix, dir=target.parent))
        except OSError as problem:
            raise unwritable(target, problem) from None
        try:
            with interruptible():
                yield made
        except FAILED:
            raise _full(target) from None
        except OSError as problem:
            if problem.errno not in NO_ROOM:
                raise
            raise _full(target) from None
        finally:
            shutil.rmtree(made, ignore_errors=True)


@contextmanager
def private_folder() -> Iterator[Path]:
    """Yield a folder that only its owner can read, deleted at the end or by the next sweep."""
    sweep()
    path = Path(tempfile.gettempdir()) / f"{PRIVATE}{secrets.token_hex(8)}"
    try:
        # Locked before the folder is there: a folder without a holder is a leftover.
        with _held(path.with_name(path.name + LOCK)):
            path.mkdir(mode=0o700)
            try:
                yield path
            finally:
                shutil.rmtree(path, ignore_errors=True)
    except OSError as problem:
        if problem.errno not in NO_ROOM:
            raise
        raise OperationalError(
            "there is not enough temporary disk space for the rows of the source",
            hint="set TMPDIR to a larger disk",
        ) from None


@contextmanager
def _held(path: Path) -> Iterator[None]:
    handle = open_locked(path, os.O_CREAT | os.O_RDWR)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)


def sweep() -> None:
    """Delete private folders whose makers were killed; those of running ones stay."""
    try:
        parent = Path(tempfile.gettempdir())
    except OSError:  # a disk so full that there is no temporary folder
        return
    for each in parent.glob(f"{PRIVATE}*"):
        folder = each.with_name(each.name.removesuffix(LOCK))
        # Other people's are none of ours, and links are nobody's; held ones are in use.
        with suppress(OSError):
            mine = each.lstat().st_uid == os.getuid() and not each.is_symlink()
            if mine:
                with _held(folder.with_name(folder.name + LOCK)):
                    shutil.rmtree(folder, ignore_errors=True)


def check_room(
    folder: Path,
    rows: int,
    columns: int,
    usage: Callable[[Path], Any] = shutil.disk_usage,
    *,
    ignored: bool = False,
) -> str | None:
    """Refuse a disk without room for the work, or say how much is needed where that is much.

    The need is an estimate: where it is ``ignored``, a small disk is told and not refused.
    """
    worked = rows * ROW_BYTES * max(columns, ROW_COLUMNS) // ROW_COLUMNS
    need = max(worked - IN_MEMORY, rows * RELEASED_BYTES)
    free = usage(folder).free
    if free < need and not ignored:
        raise OperationalError(
            f"publishing {rows:,} rows needs about {_size(need)} of temporary disk space beside"
            f" the release, and {_size(free)} are free there",
            hint="write the release to a larger disk, or try with --ignore-disk: the need is an"
            " estimate; nothing was changed",
        )
    if need < TOLD:
        return None
    return (
        f"publishing {rows:,} rows needs about {_size(need)} of temporary disk space beside the"
        f" release; {_size(free)} are free"
    )


def _size(count: float) -> str:
    """A number of bytes, for people.

    >>> _size(150_000_000_000), _size(2_340_000), _size(12)
    ('150 GB', '2.3 MB', '0.0 MB')
    """
    for unit, factor in (("TB", 10**12), ("GB", 10**9)):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count / 10**6:.1f} MB"


def _plain(name: str) -> str:
    """A name without question marks: what follows one is no path to the database.

    Different names stay different, or one publisher would sweep away what another writes.

    >>> _plain("a?b"), _plain("a%3Fb")
    ('a%3Fb', 'a%253Fb')
    """
    return name.replace("%", "%25").replace("?", "%3F")


def _full(target: Path) -> OperationalError:
    return OperationalError(
        f"the release could not be written beside {target}",
        hint="is the disk full? nothing was changed",
    )


@contextmanager
def _locked(path: Path, target: Path) -> Iterator[None]:
    """Hold the lock file, which exists only while somebody holds it."""
    try:
        handle = open_locked(path, os.O_CREAT | os.O_RDWR)
    except BlockingIOError:
        raise OperationalError(
            f"{target} is being published by another process", hint="wait for that to end"
        ) from None
    except OSError as problem:
        raise unwritable(target, problem) from None
    try:
        yield
    finally:
        # Before it is let go, so that nobody else's is removed.
        path.unlink(missing_ok=True)
        os.close(handle)


def open_locked(path: Path, flags: int, *, shared: bool = False, wait: bool = False) -> int:
    """Open and lock a file; a ``BlockingIOError`` where another holds it and ``wait`` is false."""
    while True:
        handle = os.open(path, flags, 0o600)
        with ExitStack() as unless_kept:
            unless_kept.callback(os.close, handle)
            lock(handle, shared=shared, wait=wait)
            # It may have been removed or replaced by its holder between opening and locking it.
            if path.exists() and os.path.samestat(os.stat(path), os.fstat(handle)):
                unless_kept.pop_all()
                return handle
