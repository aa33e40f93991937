"""SQL over perturbed data: counts are reconstructed and every answer carries its error.

A publisher keeps each sensitive value with some probability and otherwise replaces it by
a random one.  What that does to one column is a *channel* (``privsql.channels``):

    original value  --- T[i, j] = P(published j | original i) --->  published value

A query sees a column only through its conditions, which split the domain into *cells*; the
channel between cells is small and exact.  k columns make a tensor of *states*, counted in
one scan of the published table, and the kernels of ``udfs`` turn published state counts
back into original ones, with error bars:

    published states y  --- y A^-1, or the likelihood's maximum --->  original states x
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from privsql.publish.job import publish as publish

__version__ = "0.1.0"

# Loaded when they are first asked for: importing privsql must stay quick.
_LATER = ("publish", "release", "channels", "errors")


def __getattr__(name: str) -> Any:
    """Load a room the first time it is named."""
    if name in _LATER:
        return importlib.import_module(f"privsql.{name}")
    raise AttributeError(f"module 'privsql' has no attribute {name!r}")
