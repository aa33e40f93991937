"""From a raw table to a release: the only package that reads raw rows.

The package is also the function that people call: ``privsql.publish(source, release,
spec=...)`` is :func:`privsql.publish.job.publish`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """A callable package, because package and verb share a name."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        from privsql.publish.job import publish

        return publish(*arguments, **options)


sys.modules[__name__].__class__ = _Callable
