"""Atomic writing of a release: a reader sees the old one or the new one.

Everything is written in a folder beside the target and renamed into view at the end.  A
lock beside the target keeps a second publisher out; what a crash left behind is swept away
by the next publisher that holds the lock.
"""

from __future__ import annotations

import glob
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import duckdb

from privsql.errors import OperationalError, interruptible
from privsql.files import NO_ROOM, check_target, lock, unwritable

# What DuckDB says when there is no room for what is written.
FAILED = (
    duckdb.IOException,
    duckdb.OutOfMemoryException,
    duckdb.TransactionException,
    duckdb.FatalException,
)


@contextmanager
def staging(target: Path, *, force: bool) -> Iterator[Path]:
    """Yield a folder to write in; ``commit`` moves the result from there to the target."""
    check_target(target, force=force)
    with _locked(target.with_name(f".{target.name}.lock"), target):
        prefix = f".{_plain(target.name)}.staging-"
        for left in target.parent.glob(f"{glob.escape(prefix)}*"):
            shutil.rmtree(left, ignore_errors=True)
        try:
            folder = Path(tempfile.mkdtemp(prefix=prefix, dir=target.parent))
        except OSError as problem:
            raise unwritable(target, problem) from None
        try:
            with interruptible():
                yield folder
        except FAILED:
            raise _full(target) from None
        except OSError as problem:
            if problem.errno not in NO_ROOM:
                raise
            raise _full(target) from None
        finally:
            shutil.rmtree(folder, ignore_errors=True)


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
