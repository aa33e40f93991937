"""Thresholds and findings of an audit: plain data between its stages."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from privsql.audit.criteria.amplification import gamma_for
from privsql.audit.criteria.trials import Tails
from privsql.errors import ProgrammingError
from privsql.release.manifest import Protection

Array = NDArray[np.float64]

# holds: the criterion is met.  fails: it is not.  open: the release alone cannot tell, or only
# by estimates.  void: there is nothing to hold, with the reason.  note: no verdict.
# useful, weak: a figure of utility, which no criterion of privacy is about.
Verdict = Literal["holds", "fails", "open", "void", "note", "useful", "weak"]
UNMET: tuple[Verdict, ...] = ("fails", "void", "open")


@dataclass(frozen=True)
class Thresholds:
    """What is asked of a release; the defaults are those of the papers' examples."""

    rho1: float = 0.1  # OLAP 5: a prior of at most this
    rho2: float = 0.95  # must not become a posterior of at least this
    relative_error: float = 0.3  # lambda, RECON 6
    probability: float = 0.3  # delta
    error: float = 0.05  # (n, eps, delta): a share within this
    miss: float = 0.05  # with at most this chance to be outside, and T_E of large sums
    sum_error: float = 0.3  # e of small and large sums, SPLU 4
    alpha: int = 3  # counts up to this are small sums
    small_sum: float = 0.6  # T_P that is wanted
    alone: float = 0.01  # at most this share of the rows may be alone in their public values

    def __post_init__(self) -> None:
        """Refuse thresholds outside their range."""
        gamma_for(self.rho1, self.rho2)
        between = {
            "lambda": self.relative_error,
            "delta": self.probability,
            "error": self.error,
            "miss": self.miss,
            "sum_error": self.sum_error,
            "small_sum": self.small_sum,
            "alone": self.alone,
        }
        wrong = [name for name, value in between.items() if not 0 < value < 1]
        if wrong:
            raise ProgrammingError(f"{', '.join(wrong)} must lie strictly between 0 and 1")
        if self.alpha < 1:
            raise ProgrammingError("alpha must be a whole number of at least 1")


def thresholds(protection: Protection | None, **given: Any) -> Thresholds:
    """What is asked: as given, else as the release was protected, else as usual."""
    known = {field.name for field in fields(Thresholds)}
    unknown = sorted(set(given) - known)
    if unknown:
        raise ProgrammingError(
            f"an audit has no parameter {', '.join(unknown)}",
            hint=f"known parameters: {', '.join(sorted(known))}",
        )
    if protection is not None:
        given.setdefault("relative_error", protection.relative_error)
        given.setdefault("probability", protection.probability)
    return Thresholds(**given)


@dataclass(frozen=True)
class Finding:
    """One sentence of the report: about what, whether it holds, and what to change if not."""

    subject: str
    criterion: str
    verdict: Verdict
    text: str
    advice: str | None = None


@dataclass(frozen=True)
class ValueAudit:
    """One value of a domain, by its place in it: its own amplification and its utility."""

    code: int
    up: float
    down: float
    kept: float  # T[i, i]
    share: float | None  # of the original rows: raw, or reconstructed
    error: float | None  # relative standard error of its reconstructed count
    value: str = ""  # as it is written


@dataclass(frozen=True)
class ColumnAudit:
    """One sensitive column.  None: the criterion is not defined for its mechanism."""

    name: str
    mechanism: str
    values: int
    retention: tuple[float, float] | None  # smallest and largest
    gamma: float
    epsilon: float
    upward: float  # what a prior of rho1 can become
    downward: float  # what a belief of rho2 can become
    s_limit: float | None
    s_observed: float | None  # of values with a share of at most rho1, raw or reconstructed
    s_most: float | None  # the largest that there can be, rho1 / min q
    broken: tuple[int, int]  # values beyond (rho1, rho2) on their own, upward and downward
    posterior: float | None  # largest P(X = i | Y = i) of a value with a share of at most rho1
    identity_limit: float | None
    rows_needed: float | None
    reached_error: float | None
    record_utility: float | None
    group_size: int | None = None
    small_sum: float | None = None
    large_sum_printed: float | None = None
    large_sum: float | None = None
    large_sum_exact: int | None = None
    per_value: tuple[ValueAudit, ...] = ()  # the first of them, where there are many


@dataclass(frozen=True)
class GroupTail:
    """The chances of one group, by Chernoff and exactly."""

    group: int
    rows: int
    trials: int
    frequency: float
    cap: float
    chernoff: Tails
    exact: Tails | None  # None where it is not a sum of two binomials


@dataclass(frozen=True)
class GroupAudit:
    """(lambda, delta)-reconstruction privacy of one column over non-empty personal groups.

    Arrays have one entry for each non-empty group.  From raw data ``least``, ``violating`` and
    ``most`` are one number.  From a release alone ``violating`` is an estimate, between what
    fails whatever the frequencies are and what may fail if one value fills the group.
    """

    column: str
    known: bool  # frequencies are of the raw table
    groups: int
    people: int
    least: tuple[int, int]  # groups and people
    violating: tuple[int, int] | None
    most: tuple[int, int]
    number: NDArray[np.int64]
    rows: Array
    trials: Array
    frequency: Array
    cap: Array
    tails: tuple[GroupTail, ...]  # of the groups that are worst off

    @property
    def v_g(self) -> float | None:
        """Share of groups that violate."""
        return None if self.violating is None else self.violating[0] / max(self.groups, 1)

    @property
    def v_r(self) -> float | None:
        """Share of rows in groups that violate."""
        return None if self.violating is None else self.violating[1] / max(self.people, 1)


@dataclass(frozen=True)
class JointAudit:
    """(s, rho1, rho2) of combinations of values, one a sensitive column (OLAP thm 5)."""

    columns: tuple[str, ...]
    limit: float  # for single values
    limit_small: float  # as the sets' masses tend to 0, the paper's figure
    limit_sets: float  # for sets of any shape: no breach if every combination is below it
    observed: float | None  # of the combination nearest to its limit, of a share up to rho1
    most: float  # largest of any such combination; without raw data, that there can be


@dataclass(frozen=True)
class RatioAudit:
    """What Laplace noise of scale b on counts would have revealed, instead of perturbation."""

    scale: float
    groups: int  # with b/x <= 1/20
    people: int
    largest_bias: float  # of those groups, 2 (b/x)^2
