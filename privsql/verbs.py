"""Packages that are functions as well: ``privsql.publish(...)``, ``.audit(...)``, ``.advise(...)``.

Package and verb have one name, and importing the package binds it: so the package itself is
callable.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any


class _Verb(ModuleType):
    """A package whose module ``job`` holds the function of its name."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        name = self.__name__.rpartition(".")[2]
        return getattr(importlib.import_module(f"{self.__name__}.job"), name)(*arguments, **options)


def callable_package(name: str) -> None:
    """Make a package callable."""
    sys.modules[name].__class__ = _Verb
