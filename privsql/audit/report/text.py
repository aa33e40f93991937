"""The report of an audit as text."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING

from privsql.audit.criteria.findings import GroupAudit
from privsql.audit.criteria.trials import Tails
from privsql.errors import wrapped

if TYPE_CHECKING:
    from privsql.audit.report.report import AuditReport

WIDTH = 100
MARKS = {"holds": "ok  ", "fails": "FAIL", "open": "?   ", "void": "VOID"}

# Groups whose tails are listed.
SHOWN = 5


def summary_text(report: AuditReport, width: int = WIDTH) -> str:
    """What was checked, how many criteria hold, and which do not."""
    counts = Counter(each.verdict for each in report.findings)
    source = (
        "frequencies are those of the raw table (for its publisher only)"
        if report.known
        else "frequencies are reconstructed from the release"
    )
    said = [f"{counts['holds']} met", f"{counts['fails']} failed", f"{counts['void']} void"]
    if counts["open"]:
        said.append(f"{counts['open']} open (cannot be decided from the release alone)")
    lines = [
        f"Audit of {report.release}: {report.table}, {report.rows:,} rows; {source}",
        f"Criteria: {', '.join(said)}",
        *_wrapped(report.privacy.statement(), "", width),
    ]
    for finding in report.findings:
        if finding.verdict in ("fails", "void"):
            lines += _wrapped(
                f"{finding.subject}, {finding.criterion}: {finding.text}", "- ", width
            )
            if finding.advice:
                lines += _wrapped(f"change: {finding.advice}", "  ", width)
    return "\n".join(lines)


def report_text(report: AuditReport, width: int = WIDTH) -> str:
    """The summary, then every finding by subject, then the groups most at risk."""
    lines = [summary_text(report, width)]
    subjects = {column.name: i for i, column in enumerate(report.columns)}
    ordered = sorted(report.findings, key=lambda each: subjects.get(each.subject, -1))
    for subject, findings in groupby(ordered, key=lambda each: each.subject):
        lines += ["", _title(subject, report)]
        for finding in findings:
            text = f"{finding.criterion}: {finding.text}"
            lines += _wrapped(text, f"{MARKS.get(finding.verdict, '    ')} ", width)
            if finding.advice:
                lines += _wrapped(f"change: {finding.advice}", "       ", width)
    for group in report.groups:
        if group.tails:
            lines += ["", *_tails(group)]
    return "\n".join(lines)


def _title(subject: str, report: AuditReport) -> str:
    column = next((column for column in report.columns if column.name == subject), None)
    if column is None:
        return "The release"
    kept = ""
    if column.retention is not None:
        low, high = column.retention
        kept = f", retention {low:.3g}" + (f" to {high:.3g}" if high > low else "")
    elif column.group_size is not None:
        kept = f", groups of {column.group_size}"
    return f"{subject} ({column.mechanism}, {column.values:,} values{kept})"


def small(chance: float) -> str:
    """A chance in two digits; what is below 1e-15 is only said to be so.

    >>> small(0.0123), small(1e-30)
    ('0.012', '<1e-15')
    """
    return f"{chance:.2g}" if chance >= 1e-15 else "<1e-15"


def both(tails: Tails | None, none: str = "") -> str:
    """The chances of two tails."""
    return none if tails is None else f"{small(tails.lower)}, {small(tails.upper)}"


def _tails(group: GroupAudit) -> list[str]:
    tails, total, groups = group.tails[:SHOWN], len(group.tails), group.groups
    lines = [
        f"Groups most at risk for {group.column} (chance that the estimate of f is too small, too"
        " large):",
        f"  {'group':>8} {'rows':>9} {'trials':>9} {'f':>6} {'s_g':>9}"
        f"  {'Chernoff':>17}  {'exact':>17}",
    ]
    lines += [
        f"  {tail.group:>8} {tail.rows:>9,} {tail.trials:>9,} {tail.frequency:>6.3f}"
        f" {tail.cap:>9,.0f}  {both(tail.chernoff):>17}  {both(tail.exact, '-'):>17}"
        for tail in tails
    ]
    if total > len(tails):
        lines.append(f"  and {total - len(tails):,} more in the tables")
    if groups > total:
        lines.append(f"  tails are computed for these {total:,} of {groups:,} groups")
    return lines


def _wrapped(text: str, mark: str, width: int) -> list[str]:
    return wrapped(mark + text, width, hang=" " * len(mark) * bool(mark.strip())).splitlines()
