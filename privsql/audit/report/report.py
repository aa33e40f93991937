"""The report of an audit: text, JSON, SQL tables and an HTML page."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from privsql.audit.criteria.findings import (
    UNMET,
    ColumnAudit,
    Finding,
    GroupAudit,
    JointAudit,
    RatioAudit,
    Thresholds,
)
from privsql.audit.links import Link
from privsql.audit.uniqueness import Uniqueness
from privsql.release.manifest import Policy, Privacy, Protection

if TYPE_CHECKING:
    import pyarrow as pa

    from privsql.audit.report.front import Front

# Groups whose tails are listed in text and JSON; the tables have more.
SHOWN = 10


@dataclass(frozen=True)
class AuditReport:
    """Everything that an audit found.  ``print`` it, or take it as JSON, tables or a page."""

    release: str
    table: str
    rows: int
    trials: int  # rows that were published: fewer where groups were cut down
    effective: float  # rows of equal weight that would tell as much of the whole table
    known: bool  # whether the raw table was at hand
    asked: Thresholds
    privacy: Privacy
    protection: Protection | None
    columns: tuple[ColumnAudit, ...]
    groups: tuple[GroupAudit, ...]
    joint: JointAudit | None
    ratios: tuple[RatioAudit, ...]
    findings: tuple[Finding, ...]
    merged: bool = False  # whether groups are of merged public values
    uniqueness: Uniqueness | None = None
    links: tuple[Link, ...] = ()
    alone_in_group: int = 0  # people who are alone in their personal group
    policy: Policy | None = None

    def __str__(self) -> str:
        """The report as a terminal shows it: first page, figures, then every finding."""
        from privsql.audit.report.text import report_text

        return report_text(self)

    def summary(self) -> str:
        """The first page: whether the release may go out, three lights, and what to change."""
        from privsql.audit.report.text import summary_text

        return summary_text(self)

    @property
    def front(self) -> Front:
        """The first page as data."""
        from privsql.audit.report.front import front_page

        return front_page(self)

    @property
    def asked_own(self) -> bool:
        """Whether lambda and delta are those that the release was protected by."""
        own = self.protection
        return own is not None and (own.relative_error, own.probability) == (
            self.asked.relative_error,
            self.asked.probability,
        )

    @property
    def duplicated(self) -> bool:
        """Whether groups were cut down by duplicating rows, which hides their trials."""
        return self.protection is not None and self.protection.scaling == "duplicate"

    @property
    def holds(self) -> bool:
        """Whether every criterion is met: none fails, none is void, none is left open.

        Figures of utility are no criteria of privacy.
        """
        return not any(finding.verdict in UNMET for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Plain data; infinite figures are None."""
        groups = []
        for group in self.groups:
            plain = {
                name: value
                for name, value in asdict(group).items()
                if name not in ("number", "rows", "trials", "frequency", "cap")
            }
            plain["tails"] = plain["tails"][:SHOWN]
            groups.append(plain | {"v_g": group.v_g, "v_r": group.v_r})
        document = {
            "release": self.release,
            "table": self.table,
            "rows": self.rows,
            "trials": self.trials,
            "effective": self.effective,
            "frequencies": "raw" if self.known else "reconstructed",
            "front": asdict(self.front),
            "holds": self.holds,
            "thresholds": asdict(self.asked),
            "privacy": asdict(self.privacy) | {"statement": self.privacy.statement()},
            "protection": None if self.protection is None else asdict(self.protection),
            "columns": [asdict(column) for column in self.columns],
            "groups": groups,
            "uniqueness": None if self.uniqueness is None else asdict(self.uniqueness),
            "links": [asdict(link) for link in self.links],
            "alone_in_group": self.alone_in_group,
            "joint": None if self.joint is None else asdict(self.joint),
            "ratios": [asdict(each) for each in self.ratios],
            "findings": [asdict(finding) for finding in self.findings],
        }
        found: dict[str, Any] = finite(document)
        return found

    def to_json(self) -> str:
        """The document as JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=1)

    def tables(self) -> dict[str, pa.Table]:
        """``audit_columns``, ``audit_values``, ``audit_groups``, ``audit_findings``, by name.

        Those of an audit with raw data depend on it: they are the publisher's own.
        """
        from privsql.audit.report.tables import tables_of

        return tables_of(self)

    def write_tables(self, path: str | Path, *, force: bool = False) -> None:
        """Write the tables as a DuckDB file, in its schema ``privsql``."""
        from privsql.audit.report.tables import write_tables

        write_tables(self, Path(path), force=force)

    def html(self, path: str | Path, *, force: bool = False) -> None:
        """Write one page with plots that opens without network."""
        from privsql.audit.report.page import write_page

        write_page(self, Path(path), force=force)


def finite(value: Any) -> Any:
    """Plain data for JSON, which has no infinity: what has no number is None."""
    if isinstance(value, dict):
        return {name: finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
