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

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from privsql.audit.criteria.amplification import Array
from privsql.audit.criteria.columns import audit_column, joint_limits
from privsql.audit.criteria.findings import ColumnAudit, Thresholds, thresholds
from privsql.audit.criteria.trials import cap_bounds
from privsql.audit.criteria.verdicts import findings
from privsql.audit.groups import audit_groups
from privsql.audit.report.report import AuditReport
from privsql.audit.report.tables import columns_table, findings_table, values_table
from privsql.release.manifest import Manifest, SensitiveColumn

# Columns of the publisher's tables that are reconstructed.
RECONSTRUCTED = ("s_observed", "posterior", "record_utility")
RECONSTRUCTED_VALUES = ("share", "error")

GROUPS: dict[str, pa.DataType] = {
    "column_name": pa.string(),
    "group_number": pa.int64(),
    "rows": pa.int64(),
    "cap_least": pa.float64(),
    "cap_most": pa.float64(),
    "verdict": pa.string(),
}


def public_tables(manifest: Manifest, sizes: Array) -> dict[str, pa.Table]:
    """All tables by name; ``sizes`` are the rows of each personal group, which are public."""
    asked = thresholds(manifest.protection)
    rows = float(sizes.sum())
    columns = tuple(_column(column, rows, asked, manifest) for column in manifest.sensitive)
    stated = [column for column in manifest.sensitive if _stated(column, manifest)]
    cut = manifest.protection is not None
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
            audit_groups(
                column.name, column.channel, None, sizes, sizes, asked, known=False, hidden=cut
            )
            for column in stated
        ),
        joint=joint_limits(stated, asked) if len(stated) == len(columns) else None,
        ratios=(),  # they compare with another method, and say nothing of this release
        findings=(),
        merged=manifest.groups.merge != "none",
    )
    report = replace(report, findings=findings(report))
    return {
        "audit_findings": findings_table(report),
        "audit_columns": columns_table(report).drop_columns(list(RECONSTRUCTED)),
        "audit_values": values_table(report).drop_columns(list(RECONSTRUCTED_VALUES)),
        "audit_groups": _groups(stated, sizes, asked, cut=cut),
    }


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


def _groups(
    columns: Sequence[SensitiveColumn], sizes: Array, asked: Thresholds, *, cut: bool
) -> pa.Table:
    """One row per column and non-empty group: its rows, its bounds, and its verdict."""
    present = np.flatnonzero(sizes > 0)
    rows = sizes[present]
    schema, parts = pa.schema(GROUPS), []
    for column in columns:
        least, most = cap_bounds(column.channel, asked.relative_error, asked.probability)
        fails = "open" if cut else "fails"
        verdict = np.where(rows <= least, "holds", np.where(rows > most, fails, "open"))
        parts.append(
            pa.table(
                {
                    "column_name": pa.repeat(column.name, len(rows)),
                    "group_number": pa.array(present, pa.int64()),
                    "rows": pa.array(np.rint(rows).astype(np.int64)),
                    "cap_least": pa.repeat(least, len(rows)),
                    "cap_most": pa.repeat(most, len(rows)),
                    "verdict": pa.array(verdict.tolist(), pa.string()),
                },
                schema=schema,
            )
        )
    return pa.concat_tables([schema.empty_table(), *parts])
