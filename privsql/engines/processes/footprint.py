"""Resident memory of a server's processes: what is not loaded, and what is given back."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType


class _Absent(MetaPathFinder):
    """Says of pandas that it is not installed."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> None:
        """Nothing for other modules, which are found by those that follow."""
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not used in this process", name=name)


def without_pandas() -> None:
    """Keep pandas out of a process that never uses it.

    pyarrow imports it, where it is installed, to see whether a value is one of its objects:
    35 MB for nothing.  It is prepared for an import that fails.
    """
    if not any(isinstance(each, _Absent) for each in sys.meta_path):
        sys.meta_path.insert(0, _Absent())


# Parameters of mallopt(3): arenas, and the size from which a block goes back when it is freed.
_ARENA_MAX, _MMAP_THRESHOLD = -8, -3


def lean() -> None:
    """Have the C library keep little for later: threads that allocate in turn share arenas."""
    tune = getattr(ctypes.CDLL(None), "mallopt", None)
    if tune is not None:
        tune(_ARENA_MAX, 2)
        tune(_MMAP_THRESHOLD, 1 << 19)


def trim() -> None:
    """Give memory that was freed back to the system, where the C library can."""
    release = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if release is not None:
        release(0)
