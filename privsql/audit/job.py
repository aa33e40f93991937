"""An audit from start to end: a release and, at its publisher's, the raw table, to a report.

    release ── opened, found whole ── groups and values counted, one scan a sensitive column
            ── public columns counted: who is alone, what tells a sensitive column
            ── columns ── groups ── combinations ── findings ── AuditReport

Without raw data original frequencies are reconstructed from the published values, and the
report says so.  Nothing is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from privsql.audit.counting import (
    Cells,
    group_sizes,
    group_trials,
    joint_counts,
    published_cells,
    raw_cells,
    reconstructed,
)
from privsql.audit.criteria.amplification import Array, s_limit_many
from privsql.audit.criteria.columns import audit_column, joint_limits, replacing, retentions
from privsql.audit.criteria.findings import JointAudit, RatioAudit, Thresholds, thresholds
from privsql.audit.criteria.verdicts import findings
from privsql.audit.groups import audit_groups, duplicated_trials, effective_rows
from privsql.audit.links import Link, links
from privsql.audit.raw import side_by_side, spare
from privsql.audit.report.report import AuditReport
from privsql.audit.uniqueness import Uniqueness, counted_in, uniqueness
from privsql.channels.domain import MATERIALISE_LIMIT
from privsql.errors import DataError
from privsql.release.manifest import Manifest, SensitiveColumn
from privsql.release.spec import Spec, read_spec
from privsql.release.store import Release, open_release

# Scales of Laplace noise, as in RECON table 2.
SCALES = (10.0, 20.0, 40.0, 200.0)


def audit(
    release: str | Path | Release,
    raw: str | Path | Sequence[str] | None = None,
    *,
    spec: str | Path | Spec | None = None,
    **asked_for: Any,
) -> AuditReport:
    """Audit a release, with the raw table it was made from where that is at hand.

    ``raw`` is CSV, Parquet or a table of a DuckDB file (``file.duckdb::table``), as for
    publishing; ``spec`` recodes it as publishing did.  What is asked can be given by the names of
    :class:`Thresholds`; lambda and delta are otherwise the release's own where it was protected
    by them.
    """
    opened = release if isinstance(release, Release) else open_release(release)
    manifest = opened.manifest
    asked = thresholds(manifest.protection, **asked_for)
    known = raw is not None
    wanted = spec if isinstance(spec, Spec) or spec is None else read_spec(spec)
    with side_by_side(opened, raw, wanted) as con:
        sizes = group_sizes(con, manifest)
        cells, shares = [], []
        for column in manifest.sensitive:
            counted = (raw_cells if known else published_cells)(con, manifest, column)
            if known:
                _same(counted.rows, sizes, manifest)
            cells.append(counted if known else reconstructed(counted, column.channel))
            shares.append(_shares(column, counted, known=known))
        trials = _trials(con, manifest, sizes, cells)
        joint = _joint(con, manifest, asked, known=known)
        unique, told = _public(con, manifest, known=known)
    effective = effective_rows(sizes, trials)
    total = float(sizes.sum())
    columns = [
        audit_column(column, effective, each, asked, total=total)
        for column, each in zip(manifest.sensitive, shares, strict=True)
    ]
    hidden = manifest.protection is not None and manifest.protection.scaling == "duplicate"
    groups = [
        audit_groups(
            column.name, column.channel, each, sizes, trials, asked, known=known, hidden=hidden
        )
        for column, each in zip(manifest.sensitive, cells, strict=True)
        if column.mechanism != "decoy"  # its rows are no independent trials
    ]
    found = AuditReport(
        release=str(opened.path),
        table=manifest.table,
        rows=round(total),
        trials=round(float(trials.sum())),
        effective=effective,
        known=known,
        asked=asked,
        privacy=manifest.privacy,
        protection=manifest.protection,
        columns=tuple(columns),
        groups=tuple(groups),
        joint=joint,
        ratios=tuple(_ratio(scale, sizes) for scale in SCALES),
        findings=(),
        merged=manifest.groups.merge != "none",
        uniqueness=unique,
        links=told,
        alone_in_group=int((sizes == 1).sum()),
        policy=manifest.policy,
    )
    return replace(found, findings=findings(found))


def _public(
    con: duckdb.DuckDBPyConnection, manifest: Manifest, *, known: bool
) -> tuple[Uniqueness, tuple[Link, ...]]:
    """The risk of the public columns."""
    relation, times, sampled = counted_in(manifest, known=known)
    found = uniqueness(con, relation, [column.name for column in manifest.public], times)
    told = links(con, manifest, found.columns, known=known)
    return replace(found, sampled=sampled), told


def _trials(
    con: duckdb.DuckDBPyConnection, manifest: Manifest, sizes: Array, cells: list[Cells | None]
) -> Array:
    """Independent trials of each group; what the caps allowed where duplicates hide them."""
    if manifest.protection is None:
        return sizes
    if manifest.protection.scaling == "duplicate":
        channels = [column.channel for column in manifest.sensitive]
        return duplicated_trials(channels, cells, sizes, manifest.protection)
    return group_trials(con, manifest)


def _same(rows: Array, sizes: Array, manifest: Manifest) -> None:
    """Refuse a raw source whose groups have other sizes than those of the release."""
    more = rows - sizes
    if (more < 0).any() or more.sum() > spare(manifest):
        raise DataError(
            "the raw source does not match the release:"
            f" {int((more != 0).sum()):,} personal groups have different row counts",
            hint="name the source that this release was made from, as it was then",
        )


def _shares(column: SensitiveColumn, cells: Cells, *, known: bool) -> Array | None:
    """Original frequencies of a column over all rows, counted or reconstructed; shape (m,)."""
    channel = column.channel
    if channel.size > MATERIALISE_LIMIT:
        return None
    counts = cells.totals
    if not known:
        # Not from the groups' counts, which are cut to what can be and would be biased in sum.
        values = np.arange(channel.size)
        one = Cells(np.zeros_like(values), values, counts, np.array([counts.sum()]), channel.size)
        whole = reconstructed(one, channel)
        if whole is None:
            return None
        counts = whole.totals
    total = counts.sum()
    return counts / total if total > 0 else None


def _joint(
    con: duckdb.DuckDBPyConnection, manifest: Manifest, asked: Thresholds, *, known: bool
) -> JointAudit | None:
    """Combinations of one value a column, held against OLAP thm 5."""
    joint = joint_limits(manifest.sensitive, asked)
    if joint is None or not known:
        return joint
    codes, counts = joint_counts(con, manifest)
    shares = counts / counts.sum()
    drawn = [replacing(column.channel) for column in manifest.sensitive]
    masses = np.array([q[code] for q, code in zip(drawn, codes, strict=True) if q is not None])
    rare = shares <= asked.rho1
    if not rare.any():
        return replace(joint, observed=0.0, most=0.0)
    with np.errstate(divide="ignore"):
        ratios = shares[rare] / masses[:, rare].prod(axis=0)
    # The limit is that of the combination that comes nearest to its own.
    kept = retentions(manifest.sensitive)
    p = np.array(kept)[:, None]
    room = ((1 - p) / ((1 - p) * masses[:, rare] + p)).prod(axis=0)
    worst = int((ratios / np.maximum(room, 1e-300)).argmax())
    limit = s_limit_many(kept, asked.rho1, asked.rho2, masses[:, rare][:, worst].tolist())
    return replace(joint, limit=limit, observed=float(ratios[worst]), most=float(ratios.max()))


def _ratio(scale: float, sizes: Array) -> RatioAudit:
    """Groups whose ratios Laplace noise of this scale gives away, ``b/x <= 1/20``."""
    given = sizes[sizes >= 20 * scale]
    largest = 2 * (scale / float(given.min())) ** 2 if len(given) else 0.0
    return RatioAudit(scale, len(given), round(float(given.sum())), largest)
