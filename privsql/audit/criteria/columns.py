"""The criteria of one sensitive column, from its channel and, where known, its frequencies."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from privsql.audit.criteria.amplification import (
    ROUNDING,
    Array,
    breach,
    gamma_for,
    identity_limit,
    s_limit,
    s_limit_many,
    s_limit_sets,
    value_gammas,
)
from privsql.audit.criteria.expected import rows_for_share, share_half_width
from privsql.audit.criteria.findings import ColumnAudit, JointAudit, Thresholds, ValueAudit
from privsql.audit.criteria.small_sums import (
    large_sum_utility,
    large_sum_utility_exact,
    large_sum_utility_printed,
    small_sum_privacy,
)
from privsql.channels import Channel, Decoy, FineGrain, Replace, Uniform
from privsql.channels.channel import MATRIX_LIMIT
from privsql.channels.domain import MATERIALISE_LIMIT
from privsql.release.manifest import SensitiveColumn

# Values that a report lists one by one.
LISTED = 200

# Mechanisms whose replacements are the column itself (OLAP lemma 1).
OWN = ("identity", "swap")


def audit_column(
    column: SensitiveColumn,
    rows: float,
    shares: Array | None,
    asked: Thresholds,
    *,
    total: float | None = None,
) -> ColumnAudit:
    """Every criterion of section 6 that is defined for the column.

    ``rows`` are those that tell as much as the release does (``groups.effective_rows``: fewer than
    the ``total`` where groups were cut down); ``shares`` are the original frequencies, of raw
    data or reconstructed, shape (m,).
    """
    channel = column.channel
    gamma = math.exp(min(column.epsilon, 700.0)) if column.epsilon < math.inf else math.inf
    kept = retention(channel)
    one = isinstance(channel, (Uniform, Replace))
    own = column.mechanism in OWN
    extra: dict[str, object] = {}
    if isinstance(channel, Decoy):
        wanted = (channel.group_size, asked.sum_error)
        extra = {
            "group_size": channel.group_size,
            "small_sum": small_sum_privacy(*wanted, asked.alpha),
            "large_sum_printed": large_sum_utility_printed(*wanted, asked.miss),
            "large_sum": large_sum_utility(*wanted, asked.miss),
            "large_sum_exact": large_sum_utility_exact(*wanted, asked.miss),
        }
    needed = reached = None
    if one and kept is not None:
        masses = _masses(channel, own=own)
        needed = rows_for_share(kept[0], masses, asked.error, asked.miss)
        reached = share_half_width(rows, kept[0], masses, asked.miss, total)
    diagonal = kept_chances(channel)
    return ColumnAudit(
        name=column.name,
        mechanism=column.mechanism,
        values=channel.size,
        retention=kept,
        gamma=gamma,
        epsilon=column.epsilon,
        upward=breach(asked.rho1, gamma).high,
        downward=breach(asked.rho2, gamma).low,
        s_limit=s_limit(kept[0], asked.rho1, asked.rho2) if one and kept else None,
        s_observed=_observed(channel, shares, asked.rho1) if one else None,
        s_most=_most(channel, asked.rho1) if one else None,
        broken=_broken(channel, gamma, gamma_for(asked.rho1, asked.rho2)),
        posterior=_posterior(channel, shares, asked.rho1),
        identity_limit=identity_limit(kept[0], asked.rho2) if own and kept else None,
        rows_needed=needed,
        reached_error=reached,
        record_utility=None if shares is None or diagonal is None else float(shares @ diagonal),
        per_value=_values(column, shares, (rows, total or rows), diagonal, gamma),
        **extra,  # type: ignore[arg-type]
    )


def _masses(channel: Channel, *, own: bool) -> Array:
    """Chances of single values among the replacements; any, where these are the column itself."""
    if own:
        return np.array([0.5])
    return channel.replacing if isinstance(channel, Replace) else np.array([1 / channel.size])


def retention(channel: Channel) -> tuple[float, float] | None:
    """Smallest and largest retention, for channels that have one."""
    if isinstance(channel, (Uniform, Replace)):
        return channel.retention, channel.retention
    if isinstance(channel, FineGrain):
        return float(channel.retentions.min()), float(channel.retentions.max())
    return None


def retentions(columns: Sequence[SensitiveColumn]) -> list[float]:
    """The retention of each column; all of them have one."""
    return [column.channel.retention for column in columns]  # type: ignore[attr-defined]


def replacing(channel: Channel) -> Array | None:
    """Distribution of the replacements, for channels that have one for all values."""
    if isinstance(channel, Uniform):
        return np.full(channel.size, 1 / channel.size)
    return channel.replacing if isinstance(channel, Replace) else None


def kept_chances(channel: Channel) -> Array | None:
    """``T[i, i]`` of every value; None where there are too many of them."""
    if channel.size > MATERIALISE_LIMIT:
        return None
    own, kept = replacing(channel), retention(channel)
    if own is not None and kept is not None:
        return np.asarray(kept[0] + (1 - kept[0]) * own)
    if isinstance(channel, FineGrain):
        return np.asarray(channel.retentions + (1 - channel.retentions) / channel.size)
    return channel.matrix.diagonal().copy() if channel.size <= MATRIX_LIMIT else None


def joint_limits(columns: Sequence[SensitiveColumn], asked: Thresholds) -> JointAudit | None:
    """The limit of s for combinations of values, one a column (OLAP thm 5), and its most.

    ``p/m <= rho1 / prod min q`` for combinations that rho1 is asked of, whatever the data.  None
    where a column has no retention, or no listed replacement.
    """
    listed = [column for column in columns if column.domain.size <= MATERIALISE_LIMIT]
    found = [q for column in listed if (q := replacing(column.channel)) is not None]
    if len(columns) < 2 or len(found) < len(columns):
        return None
    kept, pair = retentions(columns), (asked.rho1, asked.rho2)
    rarest = math.prod(float(q.min()) for q in found)
    return JointAudit(
        columns=tuple(column.name for column in columns),
        limit=s_limit_many(kept, *pair, [float(q.max()) for q in found]),
        limit_small=s_limit_many(kept, *pair),
        limit_sets=s_limit_sets(kept, *pair),
        observed=None,
        most=asked.rho1 / rarest if rarest > 0 else math.inf,
    )


def _observed(channel: Channel, shares: Array | None, rho1: float) -> float | None:
    """Largest ``s = p_S/m_S`` of a set with ``p_S <= rho1``.

    A set's ratio is a mean of its values' ratios, so the largest is that of a single value.
    """
    if shares is None:  # there may be too many values
        return None
    own = replacing(channel)
    if own is None:
        return None
    rare = (shares > 0) & (shares <= rho1)
    if not rare.any():
        return 0.0
    with np.errstate(divide="ignore"):
        return float((shares[rare] / own[rare]).max())


def _posterior(channel: Channel, shares: Array | None, rho1: float) -> float | None:
    """Largest ``P(X = i | Y = i) = f_i T[i,i] / (f T)_i`` of a value with ``f_i <= rho1``."""
    diagonal = kept_chances(channel)
    if shares is None or diagonal is None:
        return None
    rare = (shares > 0) & (shares <= rho1)
    published = channel.expected(shares)
    return float((shares * diagonal / np.maximum(published, 1e-300))[rare].max(initial=0.0))


def _most(channel: Channel, rho1: float) -> float:
    """What no set with ``p_S <= rho1`` exceeds, ``p_S/m_S <= rho1 / min q``, whatever the data."""
    q = float(channel.replacing.min()) if isinstance(channel, Replace) else 1 / channel.size
    return rho1 / q if q > 0 else math.inf


def _broken(channel: Channel, gamma: float, allowed: float) -> tuple[int, int]:
    """How many of all values have an amplification above what is allowed, upward and downward."""
    if gamma <= allowed * (1 + ROUNDING):
        return 0, 0
    if math.isinf(gamma) or isinstance(channel, Uniform):
        return channel.size, channel.size
    up, down = (each > allowed * (1 + ROUNDING) for each in value_gammas(channel))
    return int(up.sum()), int(down.sum())


def _values(
    column: SensitiveColumn,
    shares: Array | None,
    rows: tuple[float, float],
    diagonal: Array | None,
    gamma: float,
) -> tuple[ValueAudit, ...]:
    """The values one by one, as many as are listed."""
    if diagonal is None:
        return ()
    channel = column.channel
    names = column.domain.decode(np.arange(min(channel.size, LISTED))).to_pylist()
    up, down = value_gammas(channel)
    if math.isinf(gamma):  # rows depend on each other or on the data: no ratio of T bounds them
        up, down = np.full(len(up), np.inf), np.full(len(up), np.inf)
    errors = None if shares is None else relative_errors(channel, shares, *rows)
    return tuple(
        ValueAudit(
            i,
            float(up[i]),
            float(down[i]),
            float(diagonal[i]),
            None if shares is None else float(shares[i]),
            None if errors is None else float(errors[i]),
            "NULL" if names[i] is None else str(names[i]),
        )
        for i in range(min(channel.size, LISTED))
    )


def relative_errors(
    channel: Channel, shares: Array, rows: float, total: float | None = None
) -> Array:
    """Relative standard error of the reconstructed count of each value, shape (m,).

        Var = n sum_j f_j (sum_k T[j,k] G_i(k)^2 - 1[j = i]),    G_i = T^-1 e_i

    For retention channels ``Var_i = n (t1 (1-t1) f_i + t0 (1-t0) (1-f_i)) / p^2`` with
    ``t0 = (1-p) q_i``, ``t1 = p + t0``.  Where n rows stand for a larger total N, drawing them adds
    ``n f_i (1-f_i) (1 - n/N)``.  Infinite for a value that no row holds.
    """
    own = replacing(channel)
    if own is not None and isinstance(channel, (Uniform, Replace)):
        p = channel.retention
        t0 = (1 - p) * own
        t1 = p + t0
        variance = rows * (t1 * (1 - t1) * shares + t0 * (1 - t0) * (1 - shares)) / p**2
    else:
        squares = channel.inverse(np.eye(channel.size)) ** 2  # row i: G_i
        variance = rows * (squares @ channel.expected(shares) - shares)
    if total is not None and total > rows:
        variance = variance + rows * shares * (1 - shares) * (1 - rows / total)
    counts = rows * shares
    infinite = np.full(len(shares), np.inf)
    deviations = np.sqrt(np.maximum(variance, 0))
    return np.asarray(np.divide(deviations, counts, out=infinite, where=counts > 0))
