"""The audit tables that an analyst may see, from the rules and the public columns alone.

A policy decides which reconstructed figures are told, and a server keeps account of them.  Tables
that hold such figures would go round it, down to the frequencies of single personal groups and
the totals that differences are taken from.  So nothing here has seen a sensitive value,
published or raw:

    left out          because
    s_observed, posterior, record_utility, share, error, frequency, cap, tails
                      reconstructed from published values
    trials            of a release that was cut down they follow the raw frequencies (SPS)
    values and groups of identity, swap, decoy, and of finegrain where raw data was looked at
                      what replaces a value, or how often, follows the raw column

A group is held between the bounds that need no estimate: s_g falls with f, the largest
frequency, and 1/m <= f <= 1, so that it violates (lambda, delta) if it has more than s(1/m)
trials and is private up to s(1).  Its trials are its rows, or fewer where groups were cut down.

Which public values were merged into one group does follow sensitive values (published ones, or
raw ones where the spec says so); sizes of groups show it, as every refusal of a group does.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pyarrow as pa

from privsql.audit.criteria.amplification import Array, s_limit_many, s_limit_sets
from privsql.audit.criteria.columns import audit_column, replacing
from privsql.audit.criteria.findings import ColumnAudit, GroupAudit, JointAudit, Thresholds
from privsql.audit.criteria.verdicts import findings
from privsql.audit.report.report import AuditReport
from privsql.audit.report.tables import columns_table, findings_table, values_table
from privsql.channels import Channel, Uniform
from privsql.channels.caps import cap_of, chances
from privsql.channels.domain import MATERIALISE_LIMIT
from privsql.release.manifest import Manifest, SensitiveColumn

# Columns of the publisher's tables that are reconstructed.
RECONSTRUCTED = ("s_observed", "posterior", "record_utility")
RECONSTRUCTED_VALUES = ("share", "error")

_GROUPS: dict[str, pa.DataType] = {
    "column_name": pa.string(),
    "group_number": pa.int64(),
    "rows": pa.int64(),
    "cap_least": pa.float64(),
    "cap_most": pa.float64(),
    "verdict": pa.string(),
}
GROUPS = pa.schema(_GROUPS)


def public_tables(manifest: Manifest, sizes: Array) -> dict[str, pa.Table]:
    """All tables by name; ``sizes`` are the rows of each personal group, which are public."""
    asked = _thresholds(manifest)
    rows = float(sizes.sum())
    columns = tuple(_column(column, rows, asked, manifest) for column in manifest.sensitive)
    bounds = {
        column.name: _bounds(column.channel, asked)
        for column in manifest.sensitive
        if _stated(column, manifest)
    }
    report = AuditReport(
        release="",
        table=manifest.table,
        rows=round(rows),
        trials=round(rows),
        effective=rows,
        known=False,
        asked=asked,
        privacy=manifest.privacy,
        protection=manifest.protection,
        columns=columns,
        groups=tuple(
            _group(name, sizes, *each, cut=manifest.protection is not None)
            for name, each in bounds.items()
        ),
        joint=_joint(manifest, asked),
        ratios=(),
        findings=(),
        merged=manifest.groups.merge != "none",
    )
    # The last finding compares with another method; it says nothing of this release.
    said = tuple(each for each in findings(report) if each.criterion != "ratios")
    report = replace(report, findings=said)
    return {
        "audit_findings": findings_table(report),
        "audit_columns": columns_table(report).drop_columns(list(RECONSTRUCTED)),
        "audit_values": values_table(report).drop_columns(list(RECONSTRUCTED_VALUES)),
        "audit_groups": _groups(bounds, sizes, cut=manifest.protection is not None),
    }


def _thresholds(manifest: Manifest) -> Thresholds:
    """The release's own lambda and delta where it was protected by them."""
    own = manifest.protection
    if own is None:
        return Thresholds()
    return Thresholds(relative_error=own.relative_error, probability=own.probability)


def _stated(column: SensitiveColumn, manifest: Manifest) -> bool:
    """Whether a channel follows from what the publisher stated, and from no raw value."""
    if column.mechanism == "finegrain":
        return not manifest.privacy.raw
    return column.mechanism in ("uniform", "replace", "matrix")


def _column(
    column: SensitiveColumn, rows: float, asked: Thresholds, manifest: Manifest
) -> ColumnAudit:
    found = audit_column(column, rows, None, asked)
    if not _stated(column, manifest):
        found = replace(found, per_value=(), s_most=None)
    # Of a release that was cut down fewer rows are left, and how many is not told.
    return found if manifest.protection is None else replace(found, reached_error=None)


def _bounds(channel: Channel, asked: Thresholds) -> tuple[float, float]:
    """``s(1)`` and ``s(1/m)``: the smallest cap of any frequency, and the largest."""
    kept, false = chances(channel)
    if isinstance(channel, Uniform):  # all values alike
        kept, false = kept[:1], false[:1]
    wanted = (asked.relative_error, asked.probability)
    least = float(cap_of(1.0, kept, false, *wanted).min())
    return least, float(cap_of(1 / channel.size, kept, false, *wanted).max())


def _group(column: str, sizes: Array, least: float, most: float, *, cut: bool) -> GroupAudit:
    """How many groups violate at least and at most; where they were cut down, at least none."""
    present = np.flatnonzero(sizes > 0)
    rows = sizes[present]

    def count(cap: float) -> tuple[int, int]:
        """Groups and people."""
        return int((rows > cap).sum()), round(float(rows[rows > cap].sum()))

    nothing = np.zeros(0)
    return GroupAudit(
        column=column,
        known=False,
        groups=len(present),
        people=round(float(rows.sum())),
        least=(0, 0) if cut else count(most),
        violating=None,
        most=count(least),
        number=present,
        rows=rows,
        trials=nothing,
        frequency=nothing,
        cap=nothing,
        tails=(),
    )


def _groups(bounds: dict[str, tuple[float, float]], sizes: Array, *, cut: bool) -> pa.Table:
    """One row per column and non-empty group: its rows, its bounds, and its verdict."""
    present = np.flatnonzero(sizes > 0)
    rows = sizes[present]
    parts = []
    for name, (least, most) in bounds.items():
        unsure = "open" if cut else "fails"
        verdict = np.where(rows <= least, "holds", np.where(rows > most, unsure, "open"))
        parts.append(
            pa.table(
                {
                    "column_name": pa.repeat(name, len(rows)),
                    "group_number": pa.array(present, pa.int64()),
                    "rows": pa.array(np.rint(rows).astype(np.int64)),
                    "cap_least": pa.repeat(least, len(rows)),
                    "cap_most": pa.repeat(most, len(rows)),
                    "verdict": pa.array(verdict.tolist(), pa.string()),
                },
                schema=GROUPS,
            )
        )
    return pa.concat_tables([GROUPS.empty_table(), *parts])


def _joint(manifest: Manifest, asked: Thresholds) -> JointAudit | None:
    """The limit of s for combinations of values, one a column (OLAP thm 5), and its most.

    ``p/m <= rho1 / prod min q`` for combinations that rho1 is asked of, whatever the data.
    """
    used = [
        (column, q)
        for column in manifest.sensitive
        if _stated(column, manifest)
        and column.domain.size <= MATERIALISE_LIMIT
        and (q := replacing(column.channel)) is not None
    ]
    if len(manifest.sensitive) < 2 or len(used) < len(manifest.sensitive):
        return None
    kept = [column.channel.retention for column, _ in used]  # type: ignore[attr-defined]
    rarest = math.prod(float(q.min()) for _, q in used)
    return JointAudit(
        columns=tuple(column.name for column, _ in used),
        limit=s_limit_many(kept, asked.rho1, asked.rho2, [float(q.max()) for _, q in used]),
        limit_small=s_limit_many(kept, asked.rho1, asked.rho2),
        limit_sets=s_limit_sets(kept, asked.rho1, asked.rho2),
        observed=None,
        most=asked.rho1 / rarest if rarest > 0 else math.inf,
    )
