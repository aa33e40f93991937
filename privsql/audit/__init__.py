"""The privacy of a release: what holds, what fails and for whom, and what to change.

    criteria   what one channel lets an attacker believe (gamma, rho, s)
    trials     reconstruction privacy of a group: caps and tails
    sums       decoy groups: small sums and large ones

The package is also the function that people call: ``privsql.audit(release, raw=...)`` is
:func:`privsql.audit.job.audit`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """A callable package, because package and verb share a name."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        from privsql.audit.job import audit

        return audit(*arguments, **options)


sys.modules[__name__].__class__ = _Callable
