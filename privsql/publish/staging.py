"""Atomic writing of a release: a reader sees the old one or the new one.

Everything is written in a folder beside the target and renamed into view at the end.  A
lock beside the target keeps a second publisher out; what a crash left behind is swept away
by the next publisher that holds the lock.
"""

from __future__ import annotations

import errno
import fcntl
import glob
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

from privsql.errors import OperationalError

# What the system says when there is no room for what is written.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def staging(target: Path, *, force: bool) -> Iterator[Path]:
    """Yield a folder to write in; ``commit`` moves the result from there to the target."""
    _check(target, force=force)
    lock = target.with_name(f".{target.name}.lock")
    with _locked(lock, target):
        prefix = f".{_plain(target.name)}.staging-"
        for left in target.parent.glob(f"{glob.escape(prefix)}*"):
            shutil.rmtree(left, ignore_errors=True)
        try:
            folder = Path(tempfile.mkdtemp(prefix=prefix, dir=target.parent))
        except OSError as problem:
            raise _unwritable(target, problem) from None
        try:
            yield folder
        except (duckdb.InterruptException, RuntimeError) as problem:
            # Ctrl-C, as the database tells it.
            if isinstance(problem, RuntimeError) and str(problem) != "Query interrupted":
                raise
            raise KeyboardInterrupt from None
        except (duckdb.IOException, duckdb.TransactionException, duckdb.FatalException):
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


def _check(target: Path, *, force: bool) -> None:
    """Refuse a target that no file can be renamed to, or none may be."""
    try:
        mode = target.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        mode = None
    except (OSError, ValueError) as problem:
        raise _unwritable(target, problem) from None
    if mode is not None and stat.S_ISDIR(mode):
        raise OperationalError(f"{target} is a folder", hint="name a file for the release")
    if not target.parent.is_dir():
        raise OperationalError(f"there is no folder {target.parent}")
    if mode is not None and not force:
        raise OperationalError(
            f"{target} exists already", hint="choose another name, or overwrite it with --force"
        )


def _unwritable(target: Path, problem: OSError | ValueError) -> OperationalError:
    reason = getattr(problem, "strerror", None) or "not a path"
    return OperationalError(f"cannot write beside {target}: {reason}")


def _full(target: Path) -> OperationalError:
    return OperationalError(
        f"the release could not be written beside {target}",
        hint="is the disk full? nothing was changed",
    )


def commit(made: Path, target: Path) -> None:
    """Rename the finished file to its target, once it is on disk."""
    _sync(made)
    os.replace(made, target)
    _sync(target.parent)


@contextmanager
def _locked(lock: Path, target: Path) -> Iterator[None]:
    """Hold the lock file, which exists only while somebody holds it."""
    handle = _take(lock, target)
    try:
        yield
    finally:
        # Before it is let go, so that nobody else's is removed.
        lock.unlink(missing_ok=True)
        os.close(handle)


def _take(lock: Path, target: Path) -> int:
    while True:
        try:
            handle = os.open(lock, os.O_CREAT | os.O_RDWR, 0o600)
        except OSError as problem:
            raise _unwritable(target, problem) from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise OperationalError(
                f"{target} is being published by another process", hint="wait for that to end"
            ) from None
        # The file may have been removed by its holder between opening and locking it.
        if lock.exists() and os.path.samestat(os.stat(lock), os.fstat(handle)):
            return handle
        os.close(handle)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
