"""Atomic replacement of a file: a reader sees the old one or the new one."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from privsql.errors import OperationalError


def write_whole(path: Path, write: Callable[[Path], None], *, force: bool) -> None:
    """Let ``write`` make a file beside the target, then rename it into view."""
    check_target(path, force=force)
    try:
        with tempfile.TemporaryDirectory(prefix=".privsql-", dir=path.parent) as folder:
            made = Path(folder) / "made"
            write(made)
            os.replace(made, path)
    except OSError as problem:
        raise OperationalError(f"cannot write {path}: {problem.strerror or 'I/O error'}") from None


def check_target(path: Path, *, force: bool) -> None:
    """Refuse a target that cannot be written, or may not be, before any work is done."""
    if path.is_dir():
        raise OperationalError(f"{path} is a folder", hint="name a file")
    if not path.parent.is_dir():
        raise OperationalError(f"there is no folder {path.parent}")
    if path.exists() and not force:
        raise OperationalError(
            f"{path} exists already", hint="choose another name, or overwrite it with --force"
        )
