"""Findings about the public columns: who is alone by them, and which tell a sensitive one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from privsql.audit.criteria.findings import Finding
from privsql.audit.criteria.release_verdicts import RELEASE
from privsql.audit.links import Link
from privsql.audit.uniqueness import Uniqueness
from privsql.errors import how_many

if TYPE_CHECKING:
    from privsql.audit.report.report import AuditReport

UNIQUE, DIVERSE, TOLD = "uniqueness", "l-diversity", "public columns"

# Columns that are named as causes.
NAMED = 3


def of_public_columns(report: AuditReport) -> Iterator[Finding]:
    """Uniqueness, and that nothing is promised about who shares public values."""
    found = report.uniqueness
    if found is None:
        return
    yield _unique(found, report)
    text = (
        "not promised: people with the same public values may all have the same sensitive value,"
        " and its estimated share in their group shows it"
    )
    yield Finding(RELEASE, DIVERSE, "note", text)


def of_links(column: str, report: AuditReport) -> Iterator[Finding]:
    """Whether a public column tells a sensitive one."""
    found = [link for link in report.links if link.sensitive == column]
    if not found:
        return
    for link in found:
        if link.verdict == "tells":
            advice = f"drop {link.public}, make it coarser, or perturb it as a sensitive column too"
            yield Finding(column, TOLD, "fails", link_text(link), advice)
    unsure = [link for link in found if link.verdict == "open"]
    if unsure:
        names = ", ".join(link.public for link in unsure)
        text = f"whether {names} determine{'s' * (len(unsure) == 1)} it is not certain from the"
        told = [link for link in unsure if link.agreement is not None]
        text += f" release alone{''.join(f'; {_agreement(link)}' for link in told)}"
        yield Finding(column, TOLD, "open", text, "audit with the raw table (--raw) to decide")
    elif all(link.verdict == "free" for link in found):
        nearest = max(found, key=lambda link: (link.agreement or 0) - (link.base or 0))
        text = f"none determines it; nearest is {nearest.public}: {_agreement(nearest)}"
        yield Finding(column, TOLD, "holds", text)


def link_text(link: Link) -> str:
    """What a public column tells of a sensitive one."""
    text = f"{link.public} nearly determines {link.sensitive}"
    if link.share is not None and link.base_share is not None:
        return (
            f"{text}: it gives the right value for {100 * link.share:.3g}% of the rows"
            f" ({100 * link.base_share:.3g}% would be right without it)"
        )
    return f"{text}: {_agreement(link)}"


def _agreement(link: Link) -> str:
    if link.agreement is None or link.base is None:
        return "not known"
    bar = f" ± {link.error:.2g}" if link.error else ""
    return (
        f"two people with the same {link.public} have the same value with chance"
        f" {link.agreement:.2f}{bar} (any two people: {link.base:.2f})"
    )


def causes(found: Uniqueness) -> list[str]:
    """Columns without which clearly fewer rows are alone, most first."""
    return [
        each.name
        for each in found.columns[:NAMED]
        if each.identifies(found.rows) or each.without < 0.8 * found.alone
    ]


def change_of(found: Uniqueness) -> str:
    """What would make fewer rows unique."""
    identifying = found.identifying
    if identifying:
        return f"drop {', '.join(identifying)}, which identifies people"
    named = causes(found) or [each.name for each in found.columns[:1]]
    effect = [f"{each.without:,}" for each in found.columns if each.name == named[0]]
    return (
        f"make {' or '.join(named)} coarser (bins, top, cut, map) or drop it: without {named[0]}"
        f" {effect[0]} rows would be alone"
    )


def _unique(found: Uniqueness, report: AuditReport) -> Finding:
    names = ", ".join(each.name for each in found.columns) or "no columns"
    text = (
        f"{found.alone:,} of {how_many(found.rows, 'row')} ({found.share:.2%}) are alone in their"
        f" combination of {names}; {found.combinations:,} combinations"
    )
    if found.sampled:
        text += " (among rows that were sampled: of all rows, other shares are alone)"
    group = report.alone_in_group
    if report.groups or group:
        text += f"; {group:,} ({group / max(report.rows, 1):.2%}) are alone in their personal group"
    if found.identifying:
        text += f"; {', '.join(found.identifying)} alone identifies nearly every row"
    fine = found.share <= report.asked.alone and not found.identifying
    advice = None if fine else change_of(found)
    text += f" (asked for: at most {report.asked.alone:.0%} alone)"
    return Finding(RELEASE, UNIQUE, "holds" if fine else "fails", text, advice)
