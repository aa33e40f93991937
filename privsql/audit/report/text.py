"""The report of an audit as text."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from privsql.audit.criteria.findings import GroupAudit
from privsql.audit.criteria.trials import Tails
from privsql.audit.uniqueness import Uniqueness
from privsql.errors import wrapped

if TYPE_CHECKING:
    from privsql.audit.report.report import AuditReport

WIDTH = 100
MARKS = {"holds": "ok  ", "fails": "FAIL", "open": "?   ", "void": "VOID"}

# Groups whose tails are listed.
SHOWN = 5


def summary_text(report: AuditReport, width: int = WIDTH) -> str:
    """The first page: the answer, three lights, what to change, and what was audited."""
    front = report.front
    lines = ["May this release go out?", *_wrapped(front.sentence, "  ", width), ""]
    for light in front.lights:
        mark = f"{light.colour.upper():<6} "
        lines += _wrapped(f"{light.name}: {light.text}", mark, width)
        for change in light.change:
            lines += _wrapped(f"change: {change}", " " * len(mark), width)
    source = (
        "figures are those of the raw table (for its publisher only)"
        if report.known
        else "figures are reconstructed from the release"
    )
    audited = f"Audit of {report.release}: {report.table}, {report.rows:,} rows; {source}"
    counts = f"Criteria (see the appendix): {counts_text(report)}"
    lines += ["", *_wrapped(audited, "", width), *_wrapped(counts, "", width)]
    return "\n".join([*lines, *_wrapped(report.privacy.statement(), "", width)])


def counts_text(report: AuditReport) -> str:
    """How many criteria of the appendix are met."""
    counts = Counter(each.verdict for each in report.findings)
    said = [f"{counts['holds']} met", f"{counts['fails']} failed", f"{counts['void']} void"]
    if counts["open"]:
        said.append(f"{counts['open']} open (cannot be decided from what is at hand)")
    return ", ".join(said)


def report_text(report: AuditReport, width: int = WIDTH) -> str:
    """The first page, the figures, and an appendix of every criterion by subject."""
    lines = [summary_text(report, width), "", "FIGURES", *_figures(report, width)]
    lines += ["", "APPENDIX: CRITERIA"]
    subjects = {column.name: i for i, column in enumerate(report.columns)}
    ordered = sorted(report.findings, key=lambda each: subjects.get(each.subject, -1))
    for subject, findings in groupby(ordered, key=lambda each: each.subject):
        lines += ["", title_of(subject, report)]
        for finding in findings:
            text = f"{finding.criterion}: {finding.text}"
            lines += _wrapped(text, f"{MARKS.get(finding.verdict, '    ')} ", width)
            if finding.advice:
                lines += _wrapped(f"change: {finding.advice}", "       ", width)
    for group in report.groups:
        if group.tails:
            lines += ["", *_tails(group)]
    return "\n".join(lines)


def _figures(report: AuditReport, width: int) -> list[str]:
    """Tables of the public and of the sensitive columns."""
    lines: list[str] = []
    found = report.uniqueness
    if found is not None and found.columns:
        lines += ["", "Rows by how many share all of their public values:"]
        head = ("rows that share them", "combinations", "rows", "share")
        body = [
            (each.label, f"{each.combinations:,}", f"{each.rows:,}", share(each.rows, found.rows))
            for each in found.classes
        ]
        lines += table_lines(head, body)
        lines += ["", "Public columns, those that make most rows unique first:"]
        lines += table_lines(*causes_table(found), width=width)
    lines += ["", "Sensitive columns:"]
    return [*lines, *table_lines(*losses_table(report), width=width)]


def causes_table(found: Uniqueness) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """What each public column does to the number of rows that are alone."""
    head = ("column", "values", "alone by it", "alone without it")
    body: list[tuple[str, ...]] = [
        (each.name, f"{each.values:,}", share(each.alone, found.rows),
         share(each.without, found.rows))
        for each in found.columns
    ]  # fmt: skip
    return head, body


def losses_table(report: AuditReport) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """What each sensitive column loses, and how precisely its shares are known."""
    rho1 = f"{report.asked.rho1:.0%}"
    head = ("column", "values", "kept", "epsilon", f"a belief of {rho1}", "shares known to")
    body: list[tuple[str, ...]] = []
    for column in report.columns:
        kept = "-" if column.retention is None else f"{column.retention[0]:.3g}"
        if column.retention is not None and column.retention[1] > column.retention[0]:
            kept += f" to {column.retention[1]:.3g}"
        error = column.reached_error
        body.append(
            (
                column.name,
                f"{column.values:,}",
                kept,
                f"{column.epsilon:.3g}" if math.isfinite(column.epsilon) else "none",
                f"up to {column.upward:.1%}" if math.isfinite(column.gamma) else "unbounded",
                "-" if error is None else f"±{100 * error:.2g} points",
            )
        )
    return head, body


def share(part: float, whole: float) -> str:
    """A share in percent; one that is not zero is not said to be.

    >>> share(1, 8), share(0, 8), share(18, 4_000), share(1, 100_000)
    ('12.5%', '0%', '0.45%', '<0.1%')
    """
    if not part:
        return "0%"
    found = part / max(whole, 1)
    return "<0.1%" if found < 0.001 else f"{100 * found:.3g}%"


def table_lines(
    head: Sequence[str], body: Sequence[Sequence[str]], width: int = WIDTH
) -> list[str]:
    """Columns below their names: the first to the left, the others to the right."""
    widths = [max(len(row[i]) for row in (head, *body)) for i in range(len(head))]
    # A long name of a column must not push the figures off the page.
    widths[0] = min(widths[0], max(width - sum(widths[1:]) - 2 * len(widths) - 2, 12))
    return [
        "  " + "  ".join(
            [_short(row[0], widths[0]).ljust(widths[0]),
             *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))]
        )
        for row in (head, *body)
    ]  # fmt: skip


def _short(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def title_of(subject: str, report: AuditReport) -> str:
    """What a subject of findings is, with its mechanism."""
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
