"""Reconstruction privacy over personal groups: which violate (lambda, delta), and how badly.

A group violates it when it has more independent trials than s_g allows (RECON cor. 4).  From
raw data s_g is exact.  From a release alone it is estimated, and held between two bounds that
need no estimate: s_g falls with f, the largest frequency, and 1/m <= f <= 1, so that

    trials >  s(1/m)   violates whatever the frequencies are,
    trials <= s(1)     is private whatever they are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from privsql.audit.counting import Cells
from privsql.audit.criteria.amplification import Array
from privsql.audit.criteria.findings import GroupAudit, GroupTail, Thresholds
from privsql.audit.criteria.trials import Tails, cap_bounds, chernoff_of, exact_of, two_binomials
from privsql.channels import Channel
from privsql.channels.caps import cap_of, chances
from privsql.release.manifest import Protection

Indices = NDArray[np.intp]

# Groups whose tails are computed exactly and shown: those that are worst off.
TAILS = 1_000


def audit_groups(
    column: str,
    channel: Channel,
    cells: Cells | None,
    rows: Array,
    trials: Array,
    asked: Thresholds,
    *,
    known: bool,
    hidden: bool = False,
) -> GroupAudit:
    """Compare every non-empty group with its cap.

    ``rows`` and ``trials`` have one entry a group.  ``cells`` are original counts, known or
    reconstructed; None where they cannot be.  ``hidden``: the paper's duplicates hide the trials,
    and these are what the caps allowed; without raw data the bounds then count every row as one.
    """
    wanted = (asked.relative_error, asked.probability)
    present = np.flatnonzero(rows > 0)
    cap, binding = _caps(cells, rows, channel, wanted)
    smallest, surely = cap_bounds(channel, *wanted)

    def count(violating: NDArray[np.bool_]) -> tuple[int, int]:
        """Groups and people."""
        chosen = present[violating[present]]
        return len(chosen), round(float(rows[chosen].sum()))

    over = count(trials > cap)
    least, most = count(trials > surely), count(trials > smallest)
    if hidden:
        least, most = (0, 0), count(rows > smallest)
    frequency = np.zeros(len(rows))
    if cells is not None:
        has = binding >= 0
        frequency[has] = cells.shares[binding[has]]
    return GroupAudit(
        column=column,
        known=known,
        groups=len(present),
        people=round(float(rows.sum())),
        least=over if known else least,
        violating=None if cells is None else over,
        most=over if known else most,
        number=present,
        rows=rows[present],
        trials=trials[present],
        frequency=frequency[present],
        cap=cap[present],
        tails=_tails(cells, channel, present, rows, trials, cap, binding, asked),
    )


def duplicated_trials(
    channels: Sequence[Channel], cells: Sequence[Cells | None], rows: Array, protection: Protection
) -> Array:
    """Trials of a release whose rows were duplicated: ``min(|g|, floor(s_g))``, shape (G,).

    s_g is that of the release's own lambda and delta (what an audit asks for cannot change how
    many there are), the smallest over the columns.  On the safe side, a cap on the grid is taken
    for the exact one, which is larger, and a group whose cap came from published values (which
    duplicates have changed) for uncut.
    """
    if protection.source != "raw" and protection.cap != "one":
        return rows
    wanted = (protection.relative_error, protection.probability)
    smallest = np.full(len(rows), np.inf)
    for channel, each in zip(channels, cells, strict=True):
        if protection.cap == "one":
            smallest = np.minimum(smallest, cap_bounds(channel, *wanted)[0])
        else:
            smallest = np.minimum(smallest, _caps(each, rows, channel, wanted)[0])
    return np.where(rows > smallest, np.maximum(np.floor(np.minimum(smallest, rows)), 1), rows)


def effective_rows(rows: Array, trials: Array) -> float:
    """Effective rows of equal weight for the whole table, ``N^2 / sum(|g|^2 / trials_g)``.

    A group of |g| rows with t trials counts |g|/t for each of them, so few trials in a large group
    spoil what many in small ones tell.  N where nothing was cut down.

    >>> effective_rows(np.array([900.0, 100.0]), np.array([9.0, 100.0])).__round__(2)
    11.1
    """
    present = rows > 0
    with np.errstate(divide="ignore"):
        squares = float((rows[present] ** 2 / trials[present]).sum())
    return float(rows.sum()) ** 2 / squares if squares > 0 else 0.0


def _caps(
    cells: Cells | None, rows: Array, channel: Channel, wanted: tuple[float, float]
) -> tuple[Array, Indices]:
    """s_g of each group, and the cell that sets it (-1: none)."""
    cap = np.full(len(rows), np.inf)
    binding = np.full(len(rows), -1, dtype=np.intp)
    if cells is None or not len(cells.groups):
        return cap, binding
    kept, false = chances(channel)
    each = cap_of(cells.shares, kept[cells.values], false[cells.values], *wanted)
    # Cells are sorted by group: the first of the smallest of each stretch.
    starts = np.flatnonzero(np.diff(cells.groups, prepend=-1))
    smallest = np.minimum.reduceat(each, starts)
    groups = cells.groups[starts]
    cap[groups] = smallest
    spread = np.repeat(smallest, np.diff(starts, append=len(each)))
    hits = np.flatnonzero(each == spread)
    binding[cells.groups[hits[::-1]]] = hits[::-1]
    return cap, binding


def _tails(
    cells: Cells | None,
    channel: Channel,
    present: Indices,
    rows: Array,
    trials: Array,
    cap: Array,
    binding: Indices,
    asked: Thresholds,
) -> tuple[GroupTail, ...]:
    """Tails of the groups that exceed their caps most, equal ones computed once."""
    if cells is None:
        return ()
    some = present[(binding[present] >= 0) & np.isfinite(cap[present])]
    worst = some[np.argsort(-trials[some] / cap[some], kind="stable")[:TAILS]]
    kept, false = chances(channel)
    exact = two_binomials(channel)
    cache: dict[tuple[int, int, int], tuple[Tails, Tails | None]] = {}
    found = []
    for group in worst.tolist():
        cell = int(binding[group])
        n, share = round(float(trials[group])), float(cells.shares[cell])
        value = int(cells.values[cell])
        held = min(n, round(n * share))
        key = (n, held, 0 if channel.mechanism == "uniform" else value)
        if key not in cache:
            chance = (float(kept[value]), float(false[value]), asked.relative_error)
            tails = exact_of(n, held, *chance) if exact else None
            cache[key] = chernoff_of(n, share, *chance), tails
        people = round(float(rows[group]))
        found.append(GroupTail(group, people, n, share, float(cap[group]), *cache[key]))
    return tuple(found)
