"""Python code that another thread can interrupt, as Ctrl-C would.

    able(work)   runs it; what strikes comes out as ``Broken``, and never after ``able`` is left
    strike()     breaks it, wherever it is, unless it has ended or a shield is up
    shielded()   holds strikes back, for code that takes something and must note that it did

One strike may be lost: Python drops what is raised while it tidies up (``__del__`` and the like).
So whoever strikes does it again until the work has ended.

A thread takes notice at its next step in Python: in the middle of DuckDB's or numpy's own code
nothing happens until that comes back.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Broken(BaseException):
    """Raised in the middle of Python code; no ``except Exception`` stops it."""


class Break:
    """One stretch of work that may be broken off."""

    def __init__(self) -> None:
        self.struck = False
        self._lock = threading.Lock()
        self._thread: int | None = None  # of the work, while it goes on
        self._shields = 0

    def able(self, work: Callable[[], T]) -> T:
        """Do work that may be broken off anywhere: it must hold nothing that is to be put back."""
        try:
            with self._lock:
                self._thread = threading.get_ident()
            return work()
        finally:
            while self._thread is not None:
                try:
                    self._end()
                except Broken:  # it struck before that was through
                    continue

    def shielded(self, work: Callable[[], T]) -> T:
        """Do work in which nothing strikes; a strike under way is taken back."""
        with self._lock:
            self._shields += 1
        if self.struck:
            _let_strike()
        try:
            return work()
        finally:
            with self._lock:
                self._shields -= 1

    def strike(self) -> None:
        """Break it off, unless it has ended or a shield is up."""
        with self._lock:
            if self._thread is not None and not self._shields:
                self.struck = True
                thread = ctypes.c_ulong(self._thread)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, ctypes.py_object(Broken))

    def _end(self) -> None:
        with self._lock:
            self._thread = None
        if self.struck:
            _let_strike()


def _let_strike() -> None:
    """Let a strike that is under way come, and forget it.

    Python has a call that takes it back, but 3.11 then believes for ever that one is under way:
    every step looks for it, and under a profiler none goes on.
    """
    try:
        for _ in range(100):  # it comes at the next turn of a loop
            pass
    except Broken:
        pass
