"""Files: written whole or not at all, synchronised with the disk, locked by one process at a time.

Locks are ``flock``'s, which Linux and macOS have: they belong to an open file and are released when
it is closed, also by a crash.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from privsql.errors import OperationalError

# What the system says when there is no room for what is written.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def check_target(
    target: Path, *, force: bool, sources: tuple[Path, ...] = (), device: bool = False
) -> None:
    """Refuse a file that cannot be written, or must not be, before any work is done for it.

    ``sources`` are files that are read: no --force overwrites those.  A pipe or a device can only
    be written to as a stream (``device``), not replaced.
    """
    try:
        mode = target.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        mode = 0
    except (OSError, ValueError) as problem:
        raise unwritable(target, problem) from None
    if stat.S_ISDIR(mode):
        raise OperationalError(f"{target} is a folder", hint="name a file in it")
    if not target.parent.is_dir():
        raise OperationalError(
            f"there is no folder {target.parent}", hint="make it first, or name another"
        )
    for source in sources:
        if mode and source.exists() and source.samefile(target):
            raise OperationalError(
                f"{target} is an input of this command", hint="choose another name"
            )
    if stat.S_ISREG(mode):
        if not force:
            raise _exists(target)
    elif mode and not device:
        raise OperationalError(f"{target} is not a regular file", hint="name a file")


def check_folder(target: Path, marker: str, *, force: bool) -> None:
    """Refuse a folder that cannot be made, or that is not ours to replace: ours have ``marker``."""
    try:
        if not target.parent.is_dir():
            raise OperationalError(
                f"there is no folder {target.parent}", hint="make it first, or name another"
            )
        if not target.exists():
            return
        if not target.is_dir():
            raise OperationalError(f"{target} is a file, not a folder", hint="choose another name")
        if (target / marker).exists():
            if not force:
                raise _exists(target)
        elif any(target.iterdir()):
            raise OperationalError(
                f"{target} is a folder with other files in it",
                hint="name a new folder, or an empty one",
            )
    except (OSError, ValueError) as problem:
        raise unwritable(target, problem) from None


@contextmanager
def made_whole(target: Path, *, force: bool) -> Iterator[Path]:
    """A path to write at: it becomes the file when all went well; otherwise nothing changes.

    It is in a folder of its own beside the target, where a database finds room for files of
    its own, and is renamed at the end.
    """
    check_target(target, force=force)
    target = target.resolve()  # a link stays, and what it points to is replaced
    try:
        with tempfile.TemporaryDirectory(prefix=".privsql-", dir=target.parent) as folder:
            made = Path(folder) / "made"
            yield made
            sync(made)
            _show(made, target, force=force)
    except OSError as problem:
        raise unwritable(target, problem) from None


@contextmanager
def written(target: Path, *, force: bool, mode: int = 0o666) -> Iterator[BinaryIO]:
    """A stream whose bytes become the file when all went well; otherwise nothing changes.

    A pipe or a device cannot be replaced and gets what is written at once.
    """
    if target.exists() and not target.is_file() and not target.is_dir():
        with target.open("wb") as stream:
            yield stream
        return
    with (
        made_whole(target, force=force) as made,
        # By the user's own mask, which a temporary file of Python's would not keep to.
        open(made, "wb", opener=lambda path, flags: os.open(path, flags, mode)) as stream,
    ):
        yield stream


def commit(made: Path, target: Path) -> None:
    """Rename what was made into view, once it is safely on disk."""
    sync(made)
    os.replace(made, target)
    sync_folder(target)


def sync(path: Path) -> None:
    """Return once a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_folder(path: Path) -> None:
    """Make a new name in a folder survive a crash, where the system knows how to."""
    with suppress(OSError):
        sync(path.absolute().parent)


def lock(descriptor: int, *, shared: bool = False, wait: bool = False) -> None:
    """Lock an open file; a ``BlockingIOError`` where another holds it and ``wait`` is false."""
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    fcntl.flock(descriptor, kind if wait else kind | fcntl.LOCK_NB)


def unlock(descriptor: int) -> None:
    """Release a lock before the file is closed: a child forked meanwhile has it open too."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)


def unwritable(target: Path, problem: OSError | ValueError) -> OperationalError:
    """The error for a folder in which nothing can be written."""
    reason = getattr(problem, "strerror", None) or "not a path"
    return OperationalError(f"cannot write beside {target}: {reason[:1].lower()}{reason[1:]}")


def _show(made: Path, target: Path, *, force: bool) -> None:
    """Bring a file into view by its name; only ``force`` takes the name from another."""
    if not force:
        try:
            os.link(made, target)
            return
        except FileExistsError:
            raise _exists(target) from None
        except OSError:  # a file system without links
            if target.exists():
                raise _exists(target) from None
    os.replace(made, target)


def _exists(target: Path) -> OperationalError:
    return OperationalError(
        f"{target} exists already", hint="choose another name, or overwrite it with --force"
    )
