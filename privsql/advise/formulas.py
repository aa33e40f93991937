"""Parameters for a given guarantee: formulas, no data.

    epsilon            p = (e^epsilon - 1) q / (1 + (e^epsilon - 1) q)     q: rarest replacement
    rho1, rho2         the same with e^epsilon = rho2(1-rho1) / (rho1(1-rho2))
    s, rho1, rho2      p s + (1-p) min(s, rho1) = C (1-p)^k,   C = rho2(1-rho1)/(1-rho2)
    lambda, delta      n (lambda p)^2 = -2 ln(delta) (p + (1-p)/m)         groups of up to n
    T_P                the smallest decoy group c with T_P(c, e, alpha) >= wanted

Each retention is the largest that keeps the guarantee, rounded *down* to four digits, so that
what is written into a spec still keeps it.  (reconstruction, 1, 6 and 7)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from privsql.audit.criteria.amplification import rounded_down
from privsql.audit.criteria.small_sums import AdviseError, checked_whole, smallest_group
from privsql.channels.channel import checked_number, gamma_of_rho


@dataclass(frozen=True)
class Part:
    """One column of a split: its rarest replacement q, the retention and epsilon it gets."""

    name: str
    rarest: float
    retention: float
    epsilon: float


def epsilon_of(retention: float, rarest: float) -> float:
    """``epsilon = ln(1 + p / ((1-p) q))``; q = 1/m for a uniform column.

    >>> round(epsilon_of(0.2, 1 / 3), 4)
    0.5596
    """
    if retention >= 1 or rarest <= 0:
        return math.inf
    return math.log1p(retention / ((1 - retention) * rarest))


def retention_of(epsilon: float, rarest: float) -> float:
    """``p = (e^epsilon - 1) q / (1 + (e^epsilon - 1) q)``, the inverse of ``epsilon_of``.

    >>> round(retention_of(1.0, 1 / 3), 4)
    0.3642
    """
    if rarest <= 0:
        return 0.0
    excess = math.expm1(min(epsilon, 700.0)) * rarest
    return excess / (1 + excess)


def split_epsilon(
    total: float, columns: Sequence[tuple[str, float]], how: str = "equal"
) -> tuple[Part, ...]:
    """Share a total epsilon out over columns (name, rarest replacement): epsilons add.

    equal       every column gets total / k
    retention   every column gets the same p: ``sum_i ln(1 + p/((1-p) q_i)) = total``

    >>> [(part.name, part.retention) for part in split_epsilon(2, [("a", 1 / 3), ("b", 1 / 2)])]
    [('a', 0.3641), ('b', 0.4621)]
    """
    wanted = checked_number(total, "epsilon")
    if not 0 < wanted <= 30:
        raise AdviseError(
            "epsilon must be above 0 and at most 30", hint="a larger epsilon protects nothing"
        )
    if not columns:
        raise AdviseError("there is no column to advise on", hint="give --values, or a spec")
    if how == "equal":
        shares = [retention_of(wanted / len(columns), rarest) for _, rarest in columns]
    elif how == "retention":
        shares = [_root(lambda p: _sum(p, columns) - wanted)] * len(columns)
    else:
        raise AdviseError('a split is "equal" or "retention"')
    parts = []
    for (name, rarest), share in zip(columns, shares, strict=True):
        retention = rounded_down(share)
        if retention <= 0:
            raise AdviseError(
                f"no retention of {name} satisfies this epsilon: one of its values is never drawn",
                hint="give every value a replacement probability above 0",
            )
        parts.append(Part(name, rarest, retention, epsilon_of(retention, rarest)))
    return tuple(parts)


def epsilon_for_rho(rho1: float, rho2: float) -> float:
    """``ln gamma``, the total epsilon without a (rho1, rho2) breach.

    >>> round(math.exp(epsilon_for_rho(0.1, 0.25)), 9)
    3.0
    """
    return math.log(gamma_of_rho(rho1, rho2))


def retention_for_s(s: float, rho1: float, rho2: float, columns: int = 1) -> float:
    """Largest p without an (s, rho1, rho2) breach when k columns all have it.

        p s + (1-p) min(s, rho1) < C (1-p)^k,    C = rho2 (1-rho1) / (1-rho2)

    OLAP theorem 5 at the sets S where it asks most.  Of all S with p_S/m_S <= s and a prior
    p_S <= rho1 (so m_S <= rho1/s), the product of (1-p) m_Si + p is largest where all but one
    m_Si are 1.  One column gives theorem 4 back: ``s < (rho2-rho1)(1-p)/((1-rho2)p)``.

    >>> retention_for_s(67.999, 0.1, 0.95)
    0.2
    """
    ratio = checked_number(s, "s")
    gamma_of_rho(rho1, rho2)  # checks both
    if ratio <= 0:
        raise AdviseError("s must be above 0", hint="it bounds p_S/m_S; 1 means no prior knowledge")
    most = rho2 * (1 - rho1) / (1 - rho2)
    prior = min(ratio, rho1)
    found = _root(lambda p: p * ratio + (1 - p) * prior - most * (1 - p) ** columns)
    # Strictly below, as the theorem has it.
    return rounded_down(found * (1 - 1e-9))


def retention_for_groups(people: float, size: float, relative_error: float, chance: float) -> float:
    """Largest p at which a personal group of n people needs no cut, whatever it holds (f = 1).

        n (lambda p)^2 = -2 ln(delta) (p + (1-p)/m)                       (RECON eq. 10)

    With L = -2 ln(delta) and a = 1 - 1/m: ``p = (L a + sqrt(L^2 a^2 + 4 n lambda^2 L/m)) /
    (2 n lambda^2)``, at most 1.  Where replacements are not uniform, 1/m is the rarest one's.

    >>> retention_for_groups(80.26, 2, 0.3, 0.3)
    0.5
    """
    error, delta = checked_lambda(relative_error, chance)
    if not people >= 1 or not math.isfinite(people):
        raise AdviseError("the size of a group must be at least 1")
    bound, share = -2 * math.log(delta), 1 - 1 / size
    square = people * error**2
    root = math.sqrt((bound * share) ** 2 + 4 * square * bound / size)
    return rounded_down(min(1.0, (bound * share + root) / (2 * square)))


def checked_lambda(relative_error: float, chance: float) -> tuple[float, float]:
    """Lambda and delta, or a refusal."""
    error, delta = checked_number(relative_error, "lambda"), checked_number(chance, "delta")
    if not 0 < error < 1 or not 0 < delta < 1:
        raise AdviseError("lambda and delta must lie strictly between 0 and 1")
    return error, delta


def _sum(retention: float, columns: Sequence[tuple[str, float]]) -> float:
    return sum(epsilon_of(retention, rarest) for _, rarest in columns)


def _root(function: Callable[[float], float]) -> float:
    """Where a rising function of p in (0, 1) meets zero, from below."""
    low, high = 0.0, 1.0
    for _ in range(200):
        middle = (low + high) / 2
        if function(middle) < 0:
            low = middle
        else:
            high = middle
    return low


__all__ = ["AdviseError", "checked_whole", "rounded_down", "smallest_group"]
