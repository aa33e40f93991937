"""Output of a command: stdout, or a file that is written atomically.

A file is made beside its name and renamed at the end; a pipe or a device cannot be replaced
and gets what is written at once.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO

from privsql.errors import OperationalError
from privsql.fronts.cli_common import from_system


def check_target(target: Path, *, force: bool, sources: tuple[Path, ...] = ()) -> None:
    """Refuse a file that must not be written, before any work is done for it.

    ``sources`` are files that the command reads: no --force overwrites those.
    """
    if target.is_dir():
        raise OperationalError(f"{target} is a folder", hint="name a file in it")
    if not target.parent.is_dir():
        raise OperationalError(
            f"there is no folder {target.parent}", hint="make it first, or name another"
        )
    if not target.exists():
        return
    for source in sources:
        if source.exists() and source.samefile(target):
            raise OperationalError(
                f"{target} is an input of this command", hint="choose another name"
            )
    if target.is_file() and not force:
        raise _exists(target)


@contextmanager
def written(target: Path, *, force: bool) -> Iterator[BinaryIO]:
    """A stream whose bytes become the file when all went well; otherwise nothing changes."""
    check_target(target, force=force)
    if target.exists() and not target.is_file():
        with target.open("wb") as stream:
            yield stream
        return
    target = target.resolve()  # a link stays, and what it points to is replaced
    made = target.with_name(f".{target.name[:200]}.{secrets.token_hex(4)}.part")
    try:
        try:
            # By the user's own mask, which a temporary file of Python's would not keep to.
            handle = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        except OSError as problem:
            raise OperationalError(
                f"cannot write beside {target}: {from_system(problem).reason}"
            ) from None
        with os.fdopen(handle, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(handle)
        _show(made, target, force=force)
    finally:
        made.unlink(missing_ok=True)


@contextmanager
def destination(output: Path | None, *, force: bool) -> Iterator[BinaryIO]:
    """The file that was named, or stdout."""
    if output is None:
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()  # not at the end of the program: a closed pipe must be heard
    else:
        with written(output, force=force) as stream:
            yield stream


def is_terminal(stream: IO[str] | None) -> bool:
    """Whether a person looks at it."""
    return stream is not None and not stream.closed and stream.isatty()


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
