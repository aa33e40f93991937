"""The folder of the demo, replaced as a whole or left unchanged.

All is made in a folder beside it and moved into view at the end.  A folder that exists is used
when it is empty, or when it is recognisably an earlier demo's: its README.txt begins with our
line, and nothing is in it that neither the demo nor a command that it suggests makes.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from privsql.errors import OperationalError, interruptible
from privsql.fronts.demo.questions import AGAIN, PICTURE, README, RELEASE, SOURCE, SPEC

MARK = "This folder was made by `privsql demo`, and the next demo replaces it."
KNOWN = frozenset((SOURCE, SPEC, RELEASE, PICTURE, README, AGAIN))
_HINT = "name another one with --folder"


def check(folder: Path) -> None:
    """Refuse a folder that holds anything which is not an earlier demo's."""
    if not os.path.lexists(folder):
        return
    if not folder.is_dir():
        raise OperationalError(f"{folder} exists already and is not a folder", hint=_HINT)
    entries = list(folder.iterdir())
    if not entries:
        return
    if not _marked(folder / README):
        raise OperationalError(f"{folder} exists already and is not a demo's folder", hint=_HINT)
    others = sorted(e.name for e in entries if e.name not in KNOWN or e.is_dir())
    if others:
        raise OperationalError(
            f"{folder} is an earlier demo's folder, but these in it are not the demo's:"
            f" {', '.join(others[:5])}{', ...' * (len(others) > 5)}",
            hint=f"move them away, or {_HINT}",
        )


@contextmanager
def making(folder: Path) -> Iterator[Path]:
    """Yield a folder to make the demo in; when that ended well, it is moved into view."""
    check(folder)
    try:
        beside = Path(tempfile.mkdtemp(prefix=".privsql-demo-", dir=folder.absolute().parent))
    except OSError as problem:
        raise OperationalError(
            f"cannot write beside {folder}: {problem.strerror}", hint=_HINT
        ) from None
    try:
        made = beside / "made"  # mkdtemp's own mode is not the user's
        made.mkdir()
        with interruptible():
            yield made
        check(folder)
        with _undisturbed():
            _show(made, folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _marked(readme: Path) -> bool:
    try:
        with readme.open(encoding="utf-8", errors="replace") as lines:
            return lines.readline().rstrip("\n") == MARK
    except OSError:
        return False


def _show(made: Path, folder: Path) -> None:
    if not folder.exists():
        os.rename(made, folder)
        return
    # The folder itself stays: somebody's shell may stand in it.
    for name in KNOWN:
        (folder / name).unlink(missing_ok=True)
    for path in made.iterdir():
        os.replace(path, folder / path.name)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Let Ctrl-C wait for the few renames: too late to change nothing, too early to stop."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
