"""The report as one HTML page: first page, figures, appendix; no script, no network.

Light and dark follow the reader's system, colours never stand alone (a light has its word), and
nothing is wider than a phone but tables, which scroll within themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from privsql.audit.criteria.expected import half_width, half_width_conditions
from privsql.audit.criteria.findings import ColumnAudit, Finding
from privsql.audit.criteria.trials import group_cap
from privsql.audit.report.charts import MOST, Axis, Line, axis_of, bars, chart, key
from privsql.audit.report.style import STYLE
from privsql.audit.report.text import (
    both,
    causes_table,
    counts_text,
    losses_table,
    share,
    title_of,
)
from privsql.files import written

if TYPE_CHECKING:
    from privsql.audit.report.report import AuditReport

# Conditions up to which widths are drawn, and values whose utility is.
CONDITIONS, VALUES = 6, 30

# Columns that are drawn in one picture.
DRAWN = 6

WORDS = {"green": "Fine", "amber": "To accept", "red": "Stop"}

Picture = tuple[str, str]


def write_page(report: AuditReport, path: Path, *, force: bool = False) -> None:
    """Write the page, or leave what is there as it was."""
    text = page(report)
    with written(path, force=force) as stream:
        stream.write(text.encode())


def page(report: AuditReport) -> str:
    """The page as text."""
    title = escape(f"Audit of {report.table}")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{title}</title><style>{STYLE}</style></head><body>"
        f"<header><h1>{title}</h1>{_audited(report)}</header>"
        f"{_front(report)}"
        f"<section><h2>Figures</h2>{_public(report)}{_sensitive(report)}"
        f"{_drawn(pictures(report))}</section>"
        f'<section class="appendix"><h2>Appendix: criteria</h2>'
        f"<p>Criteria: {escape(counts_text(report))}.</p>{_findings(report)}"
        f"{_drawn(theorems(report))}"
        f"<h3>Groups most at risk</h3>{_groups(report)}</section></body></html>\n"
    )


def _audited(report: AuditReport) -> str:
    source = (
        "Figures are those of the raw table: this page is for its publisher only."
        if report.known
        else "Figures are reconstructed from the release."
    )
    file = escape(Path(report.release).name)
    return f"<p>{file}, {report.rows:,} rows. {source}</p>"


def _front(report: AuditReport) -> str:
    """The answer, three lights, and what to change."""
    front = report.front
    lights = "".join(
        f'<li class="light {light.colour}"><h3><span class="dot"></span>{escape(light.name)}'
        f'<span class="word">{WORDS[light.colour]}</span></h3><p>{escape(light.text)}</p></li>'
        for light in front.lights
    )
    changes = "".join(
        f"<li>{escape(change[:1].upper() + change[1:])}.</li>"
        for light in front.lights
        for change in light.change
    )
    change = f"<h2>What to change</h2><ul>{changes}</ul>" if changes else ""
    return (
        f'<section class="front {front.answer}"><p class="question">May this release go out?</p>'
        f'<p class="answer">{escape(front.sentence)}</p><ul class="lights">{lights}</ul>{change}'
        f'<p class="promise">{escape(report.privacy.statement())}</p></section>'
    )


def _public(report: AuditReport) -> str:
    """Who is alone by public values."""
    found = report.uniqueness
    if found is None or not found.columns:
        return ""
    picture = bars(
        [each.label for each in found.classes],
        [each.rows / max(found.rows, 1) for each in found.classes],
        "Share of the rows",
    )
    caption = (
        "Rows by how many rows share all of their public values. Whoever shares them with nobody"
        f" (1) can be found by them: {found.alone:,} of {found.rows:,} rows"
        f" ({share(found.alone, found.rows)})."
    )
    return (
        f"<h3>Public columns</h3>{_drawn([(caption, picture)])}"
        f"{_table(*causes_table(found))}<p>“Alone by it”: rows with a value of their own in the"
        " column. “Alone without it”: rows that would still be alone if the column were dropped."
        " That people with equal public values have different sensitive values (l-diversity) is"
        " not promised.</p>"
    )


def _sensitive(report: AuditReport) -> str:
    return (
        f"<h3>Sensitive columns</h3>{_table(*losses_table(report))}"
        "<p>“Kept”: chance that a published value is the original. “A belief”: how far a belief in"
        " one person's value can rise by reading that person's row. “Shares known to”: error bar of"
        " a value's share over all rows, in percentage points.</p>"
    )


def pictures(report: AuditReport) -> Iterator[Picture]:
    """Captions with pictures of what can be learned; those with nothing to show are left out."""
    kept = _kept(report)
    if kept:
        yield from _widths(kept, report)
    yield from _utility(report)


def theorems(report: AuditReport) -> Iterator[Picture]:
    """Captions with pictures of what the criteria follow from."""
    kept = _kept(report)
    if kept:
        yield _caps(kept, report)
    yield from _tails(report)


def _kept(report: AuditReport) -> list[ColumnAudit]:
    kept = [column for column in report.columns if column.retention is not None][:DRAWN]
    return [column for column in kept if _p(column) > 0]


def _lines(
    columns: Sequence[ColumnAudit],
    points: Sequence[float],
    height: Callable[[ColumnAudit, float], float],
    label: str,
    *,
    percent: bool = True,
) -> tuple[list[Line], Axis]:
    most = MOST if percent else math.inf
    found = [
        Line(c.name, tuple((x, y) for x in points if (y := height(c, x)) <= most)) for c in columns
    ]
    heights = [y for line in found for _, y in line.points]
    return found, axis_of(heights, label, log=True, percent=percent)


def _with_key(lines: list[Line], across: Axis, up: Axis) -> str:
    return key(lines) + chart(lines, across, up)


def _widths(columns: list[ColumnAudit], report: AuditReport) -> Iterator[Picture]:
    """Error bars by count and by conditions, which the channels alone decide."""
    n = max(round(report.effective), 2)

    def by_count(column: ColumnAudit, count: float) -> float:
        return half_width(count, n, _p(column), 1 / column.values) / count

    def by_conditions(column: ColumnAudit, conditions: float) -> float:
        return half_width_conditions(conditions, n, _p(column)) / n

    counts = [n ** (i / 40) for i in range(1, 41)]
    drawn, up = _lines(columns, counts, by_count, "Error bar, in % of the count")
    caption = (
        f"How precise a count of one value is, over all {n:,} rows: half of its 95% interval."
        " Above 100% a count cannot be told from zero."
    )
    across = axis_of([1.0, *counts], "Rows that have the value", log=True)
    yield caption, _with_key(drawn, across, up)
    drawn, up = _lines(
        columns, range(1, CONDITIONS + 1), by_conditions, "Error bar, in % of all rows"
    )
    caption = (
        "How precision falls with the number of conditions on sensitive columns, each of which half"
        " of the rows meet: half of the 95% interval of a count."
    )
    yield caption, _with_key(drawn, Axis(1, CONDITIONS, False, "Conditions"), up)


def _caps(columns: list[ColumnAudit], report: AuditReport) -> Picture:
    asked = report.asked

    def cap(column: ColumnAudit, frequency: float) -> float:
        wanted = (asked.relative_error, asked.probability)
        return float(group_cap(frequency, _p(column), column.values, *wanted))

    points = [i / 50 for i in range(1, 51)]
    drawn, up = _lines(columns, points, cap, "Rows (s_g)", percent=False)
    caption = (
        "Rows up to which a personal group is private, by the share of its most frequent value, at"
        f" lambda = {asked.relative_error:g}, delta = {asked.probability:g} (uniform replacement)."
    )
    return caption, _with_key(drawn, Axis(0, 1, False, "Share of the value (f)", True), up)


def _tails(report: AuditReport) -> Iterator[Picture]:
    for group in report.groups:
        shown = [(i + 1, tail) for i, tail in enumerate(group.tails) if tail.exact is not None]
        if len(shown) < 2:
            continue
        bound = Line(
            "Chernoff bound",
            tuple((i, min(1, t.chernoff.lower + t.chernoff.upper)) for i, t in shown),
        )
        exact = Line(
            "exact chance", tuple((i, t.exact.lower + t.exact.upper) for i, t in shown if t.exact)
        )
        caption = (
            f"{group.column}: chance that an estimate of the most frequent value's share is off by"
            f" more than {report.asked.relative_error:.0%}, in the {len(shown):,} personal groups"
            " most at risk."
        )
        ranks = Axis(1, max(len(shown), 2), False, "Group, most at risk first")
        yield caption, _with_key([bound, exact], ranks, Axis(0, 1, False, "Chance", True))


def _utility(report: AuditReport) -> Iterator[Picture]:
    for column in report.columns[:DRAWN]:
        known = [v for v in column.per_value if v.error is not None]
        if not known:
            continue
        values = known[:VALUES]
        source = "raw" if report.known else "reconstructed"
        caption = f"{column.name}: error of each value's count over all rows ({source} counts)."
        if any(math.isinf(v.error or 0) for v in values):
            caption += " “none”: no row has the value."
        if column.values > len(values):
            caption += f" The first {len(values)} of {column.values:,} values."
        heights = [v.error if v.error is not None else math.inf for v in values]
        label = "Standard error, in % of the count"
        yield caption, bars([v.value for v in values], heights, label)


def _p(column: ColumnAudit) -> float:
    assert column.retention is not None  # noqa: S101 - chosen so
    return column.retention[0]


def _drawn(found: Sequence[Picture] | Iterator[Picture]) -> str:
    figures = "".join(
        f"<figure><figcaption>{escape(caption)}</figcaption>{picture}</figure>"
        for caption, picture in found
    )
    return f'<div class="figures">{figures}</div>' if figures else ""


def _table(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """A table, which a phone shows row by row with the names of its columns."""
    names = [escape(name) for name in head]
    cells = "".join(f"<th>{name}</th>" for name in names)
    rows = "".join(
        "<tr>"
        + "".join(
            f'<td data-name="{name}">{escape(cell)}</td>'
            for name, cell in zip(names, row, strict=True)
        )
        + "</tr>"
        for row in body
    )
    made = f"<thead><tr>{cells}</tr></thead><tbody>{rows}</tbody>"
    return f'<div class="wide"><table>{made}</table></div>'


def _findings(report: AuditReport) -> str:
    """Every finding by subject; blocks and no table, so that they fit a phone."""
    subjects = {column.name: i for i, column in enumerate(report.columns)}
    ordered = sorted(report.findings, key=lambda each: subjects.get(each.subject, -1))
    return "".join(
        f"<h3>{escape(title_of(subject, report))}</h3>{''.join(map(_finding, findings))}"
        for subject, findings in groupby(ordered, key=lambda each: each.subject)
    )


def _finding(finding: Finding) -> str:
    advice = f'<p class="advice">Change: {escape(finding.advice)}</p>' if finding.advice else ""
    return (
        f'<div class="finding"><p><span class="verdict {finding.verdict}">{finding.verdict}</span>'
        f" <strong>{escape(finding.criterion)}</strong>: {escape(finding.text)}</p>{advice}</div>"
    )


def _groups(report: AuditReport) -> str:
    head = ("column", "group", "rows", "trials", "f", "s_g", "Chernoff (below, above)", "exact")
    body = [
        (
            group.column,
            str(tail.group),
            f"{tail.rows:,}",
            f"{tail.trials:,}",
            f"{tail.frequency:.3f}",
            f"{tail.cap:,.0f}",
            both(tail.chernoff),
            both(tail.exact),
        )
        for group in report.groups
        for tail in group.tails[:20]
    ]
    return _table(head, body) if body else "<p>None was looked at one by one.</p>"
