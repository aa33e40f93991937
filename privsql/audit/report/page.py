"""The report as one HTML page: findings, figures and pictures; no script, no network."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from privsql.audit.criteria.expected import half_width, half_width_conditions
from privsql.audit.criteria.findings import ColumnAudit
from privsql.audit.criteria.trials import group_cap
from privsql.audit.report.charts import Axis, Line, axis_of, bars, chart
from privsql.audit.report.text import both
from privsql.files import written

if TYPE_CHECKING:
    from privsql.audit.report.report import AuditReport

# Conditions up to which widths are drawn, and values whose utility is.
CONDITIONS, VALUES = 6, 60

# Columns that are drawn in one picture.
DRAWN = 6

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 72em; padding: 0 1em }
table { border-collapse: collapse; margin: 1em 0 }
td, th { border-bottom: 1px solid #ddd; padding: .3em .7em; text-align: left; vertical-align: top }
.holds { color: #00735a } .fails, .void { color: #b00020; font-weight: 600 }
.open { color: #8a5a00 }
.advice { color: #555 } figure { display: inline-block; margin: 1em 1em 1em 0 }
figcaption { max-width: 34em; color: #333 } pre { white-space: pre-wrap }
"""


def write_page(report: AuditReport, path: Path, *, force: bool = False) -> None:
    """Write the page, or leave what is there as it was."""
    text = page(report)
    with written(path, force=force) as stream:
        stream.write(text.encode())


def page(report: AuditReport) -> str:
    """The page as text."""
    title = escape(f"Audit of {report.table}")
    figures = "".join(
        f"<figure>{picture}<figcaption>{escape(caption)}</figcaption></figure>"
        for caption, picture in pictures(report)
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{title}</title><style>{STYLE}</style></head><body>"
        f"<h1>{title}</h1><pre>{escape(report.summary())}</pre>"
        f"<h2>Findings</h2>{_findings(report)}"
        f"<h2>Pictures</h2>{figures}"
        f"<h2>Groups most at risk</h2>{_groups(report)}</body></html>\n"
    )


def pictures(report: AuditReport) -> Iterator[tuple[str, str]]:
    """Captions with pictures; those that have nothing to show are left out."""
    kept = [column for column in report.columns if column.retention is not None][:DRAWN]
    kept = [column for column in kept if _p(column) > 0]
    if kept:
        yield from _curves(kept, report)
    yield from _tails(report)
    yield from _utility(report)


def _curves(columns: list[ColumnAudit], report: AuditReport) -> Iterator[tuple[str, str]]:
    """What the channels alone decide: widths by count and by conditions, and caps."""
    asked, n = report.asked, max(round(report.effective), 2)

    def lines(
        points: Sequence[float], height: Callable[[ColumnAudit, float], float], label: str
    ) -> tuple[list[Line], Axis]:
        found = [Line(c.name, tuple((x, height(c, x)) for x in points)) for c in columns]
        return found, axis_of([y for line in found for _, y in line.points], label, log=True)

    def by_count(column: ColumnAudit, count: float) -> float:
        return half_width(count, n, _p(column), 1 / column.values) / count

    def by_conditions(column: ColumnAudit, conditions: float) -> float:
        return half_width_conditions(conditions, n, _p(column)) / n

    def cap(column: ColumnAudit, share: float) -> float:
        wanted = (asked.relative_error, asked.probability)
        return float(group_cap(share, _p(column), column.values, *wanted))

    counts = [n ** (i / 40) for i in range(1, 41)]
    drawn, up = lines(counts, by_count, "half width / count")
    caption = (
        "Half of the 95% interval of one value's count, relative to the count, by the count, over"
        f" all {n:,} rows. Above 1 a count cannot be distinguished from zero."
    )
    yield caption, chart(drawn, axis_of([1.0, *counts], "count", log=True), up)
    drawn, up = lines(range(1, CONDITIONS + 1), by_conditions, "half width / rows")
    caption = (
        "Half of the 95% interval of a count, relative to all rows, by the number of conditions on"
        " columns of this retention, each true for half of the rows and of the domain."
    )
    yield caption, chart(drawn, Axis(1, CONDITIONS, False, "conditions"), up)
    drawn, up = lines([i / 50 for i in range(1, 51)], cap, "s_g (rows)")
    caption = (
        "Largest private group s_g by the largest frequency f in it, at lambda ="
        f" {asked.relative_error:g}, delta = {asked.probability:g} (uniform replacement)."
    )
    yield caption, chart(drawn, Axis(0, 1, False, "f"), up)


def _tails(report: AuditReport) -> Iterator[tuple[str, str]]:
    for group in report.groups:
        shown = [(i + 1, tail) for i, tail in enumerate(group.tails) if tail.exact is not None]
        if len(shown) < 2:
            continue
        bound = Line(
            "Chernoff", tuple((i, min(1, t.chernoff.lower + t.chernoff.upper)) for i, t in shown)
        )
        exact = Line(
            "exact", tuple((i, t.exact.lower + t.exact.upper) for i, t in shown if t.exact)
        )
        caption = (
            f"{group.column}: chance that an estimate of f is off by more than"
            f" {report.asked.relative_error:.0%}, in the {len(shown):,} groups most at risk, by"
            " rank: the paper's bound, and exactly."
        )
        ranks = Axis(1, max(len(shown), 2), False, "group, worst first")
        yield caption, chart([bound, exact], ranks, Axis(0, 1, False, "chance"))


def _utility(report: AuditReport) -> Iterator[tuple[str, str]]:
    for column in report.columns[:DRAWN]:
        values = [v for v in column.per_value if v.error is not None][:VALUES]
        if not values:
            continue
        heights = [v.error if v.error is not None else math.inf for v in values]
        source = "raw" if report.known else "reconstructed"
        caption = (
            f"{column.name}: relative standard error of each value's count over all rows, by its"
            f" place in the domain ({source} frequencies; a full bar where no row has it)."
        )
        names = [str(v.code) for v in values]
        yield caption, bars(names, heights, "value", axis_of(heights, "relative error"))


def _p(column: ColumnAudit) -> float:
    assert column.retention is not None  # noqa: S101 - chosen so
    return column.retention[0]


def _findings(report: AuditReport) -> str:
    rows = "".join(
        f"<tr><td>{escape(each.subject)}</td><td>{escape(each.criterion)}</td>"
        f'<td class="{each.verdict}">{each.verdict}</td><td>{escape(each.text)}'
        + (f'<br><span class="advice">Change: {escape(each.advice)}</span>' if each.advice else "")
        + "</td></tr>"
        for each in report.findings
    )
    head = "<tr><th>subject</th><th>criterion</th><th>verdict</th><th>what was found</th></tr>"
    return f"<table>{head}{rows}</table>"


def _groups(report: AuditReport) -> str:
    rows = ""
    for group in report.groups:
        for tail in group.tails[:20]:
            rows += (
                f"<tr><td>{escape(group.column)}</td><td>{tail.group}</td><td>{tail.rows:,}</td>"
                f"<td>{tail.trials:,}</td><td>{tail.frequency:.3f}</td><td>{tail.cap:,.0f}</td>"
                f"<td>{both(tail.chernoff)}</td><td>{both(tail.exact)}</td></tr>"
            )
    head = (
        "<tr><th>column</th><th>group</th><th>rows</th><th>trials</th><th>f</th><th>s_g</th>"
        "<th>Chernoff (below, above)</th><th>exact</th></tr>"
    )
    return f"<table>{head}{rows}</table>"
