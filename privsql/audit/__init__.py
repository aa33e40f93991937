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

from privsql.audit.criteria import (
    Disclosure,
    Posterior,
    breach,
    epsilon_of,
    finegrain_check,
    gamma_for,
    identity_limit,
    laplace_ratio,
    reconstructible_rows,
    retention_for,
    s_limit,
    s_limit_many,
    safe,
    value_gammas,
)
from privsql.audit.sums import (
    large_sum_utility,
    large_sum_utility_exact,
    large_sum_utility_printed,
    miss_chance,
    small_sum_privacy,
)
from privsql.audit.trials import Tails, cap_of, chernoff_tails, exact_tail, group_cap

__all__ = [
    "Disclosure",
    "Posterior",
    "Tails",
    "breach",
    "cap_of",
    "chernoff_tails",
    "epsilon_of",
    "exact_tail",
    "finegrain_check",
    "gamma_for",
    "group_cap",
    "identity_limit",
    "laplace_ratio",
    "large_sum_utility",
    "large_sum_utility_exact",
    "large_sum_utility_printed",
    "miss_chance",
    "reconstructible_rows",
    "retention_for",
    "s_limit",
    "s_limit_many",
    "safe",
    "small_sum_privacy",
    "value_gammas",
]


class _Callable(ModuleType):
    """A callable package, because package and verb share a name."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        from privsql.audit.job import audit

        return audit(*arguments, **options)


sys.modules[__name__].__class__ = _Callable
