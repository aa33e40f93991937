"""Packages that are functions as well: ``privsql.publish(...)``, ``.audit(...)``, ``.advise(...)``.

Package and verb have one name, and importing the package binds it: so the package itself is
callable.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any


class _Verb(ModuleType):
    """A package whose module ``job`` holds the function of its name."""

    def _function(self) -> Callable[..., Any]:
        name = self.__name__.rpartition(".")[2]
        found: Callable[..., Any] = getattr(importlib.import_module(f"{self.__name__}.job"), name)
        return found

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self._function()(*arguments, **options)

    @property
    def __signature__(self) -> inspect.Signature:
        """What ``help`` and ``inspect`` show: the function's own."""
        return inspect.signature(self._function())


def callable_package(name: str) -> None:
    """Make a package callable."""
    sys.modules[name].__class__ = _Verb
