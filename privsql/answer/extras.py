"""Optional packages, needed only for some output formats of an answer.

They are loaded when they are asked for, so that a server or a script that never plots
does not need them; when one is missing, the error says which extra brings it.
"""

from __future__ import annotations

import importlib
from typing import Any

from privsql.errors import OperationalError


class MissingExtraError(OperationalError):
    """A package that comes with one of privsql's extras is not installed."""

    code = "missing-extra"


def load(module: str, *, extra: str, asked: str) -> Any:
    """Import a module that an extra brings.

    >>> load("json", extra="plot", asked="plot()").__name__
    'json'
    >>> load("no_such_module", extra="plot", asked="plot()")
    Traceback (most recent call last):
        ...
    privsql.answer.extras.MissingExtraError: ERROR 58000 [missing-extra]: plot() needs the \
package no_such_module, which is not installed
    HINT: pip install 'privsql[plot]'
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.split(".")[0]
        if error.name is None or error.name.split(".")[0] != package:
            raise  # the package is there and broken: hiding that would send people astray
        raise MissingExtraError(
            f"{asked} needs the package {package}, which is not installed",
            hint=f"pip install 'privsql[{extra}]'",
        ) from None
