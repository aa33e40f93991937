"""Findings in words: what holds, what fails and for whom, and what to change."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from privsql.audit.criteria.amplification import ROUNDING, gamma_for, rounded_down
from privsql.audit.criteria.columns import OWN
from privsql.audit.criteria.findings import ColumnAudit, Finding, GroupAudit, Thresholds, Verdict
from privsql.audit.criteria.public_columns import of_links, of_public_columns
from privsql.audit.criteria.release_verdicts import (
    met_or_not,
    of_ratios,
    of_release,
    rho_text,
    several_rows,
)
from privsql.audit.criteria.small_sums import AdviseError, smallest_group
from privsql.audit.report.text import small
from privsql.channels import Uniform
from privsql.errors import with_article

if TYPE_CHECKING:
    from privsql.audit.report.report import AuditReport

# Above so many values a coarser domain is the better advice.
MANY = 200


def findings(report: AuditReport) -> tuple[Finding, ...]:
    """All sentences of a report, the release first, then its columns and their groups."""
    found = [*of_release(report), *of_public_columns(report)]
    groups = {each.column: each for each in report.groups}
    for column in report.columns:
        found += _column(column, report)
        found += of_links(column.name, report)
        if column.name in groups:
            found += _group(groups[column.name], column, report)
        elif column.mechanism == "decoy":
            text = "not checked: rows of decoy groups are not independent trials"
            found.append(Finding(column.name, "(lambda, delta)", "note", text))
    return (*found, *of_ratios(report))


def _column(column: ColumnAudit, report: AuditReport) -> Iterator[Finding]:
    asked, finding = report.asked, partial(Finding, column.name)
    pair, allowed = rho_text(asked), gamma_for(asked.rho1, asked.rho2)
    if column.values == 2:
        text = (
            "the domain has two values: anyone who knows that a published value is false knows"
            " the true one (RECON assumes more than two)"
        )
        yield finding("m = 2", "note", text)
    if math.isinf(column.gamma):
        advice = "choose uniform or replace, with replacement probabilities above 0"
        kept = column.retention is not None and column.retention[1] >= 1
        if kept and column.mechanism not in (*OWN, "decoy"):
            advice = "a retention below 1"
        text = f"{column.mechanism}: no gamma bounds what a published value reveals"
        yield finding("rho1-rho2", "void", text, advice)
    else:
        fine = column.gamma <= allowed * (1 + ROUNDING)
        change = None if fine else "lower the retention"
        if not fine and column.mechanism in ("uniform", "finegrain"):
            most = Uniform.from_rho(asked.rho1, asked.rho2, column.values).retention
            change = f"retention {_down(most)} or less would do for {column.values:,} values"
            change += ", or a coarser domain" * (column.values > MANY)
        # A draw that can be repeated, or what raw data decided, is not in the channel.
        privacy = report.privacy
        bare = privacy.seeded or bool(privacy.raw) or several_rows(privacy)
        text = (
            f"gamma {column.gamma:.4g}, epsilon {column.epsilon:.4g}; {pair} allows gamma"
            f" {allowed:.4g}. Upward a prior of {asked.rho1:g} reaches at most {column.upward:.3g};"
            f" downward {asked.rho2:g} falls to no less than {column.downward:.3g}"
        )
        text += " (from its channel alone: the release does not promise it)" * bare
        verdict: Verdict = ("note" if bare else "holds") if fine else "fails"
        yield finding("rho1-rho2", verdict, text, change)
        yield from _values(column, pair, bare=bare)
    yield from _rare(column, report)
    yield from _utility(column, report)


def _values(column: ColumnAudit, pair: str, *, bare: bool) -> Iterator[Finding]:
    if column.mechanism == "uniform" or not column.per_value:
        return  # all values alike
    listed = column.per_value
    up, down = column.broken
    some = "" if len(listed) == column.values else f" (the first {len(listed)})"
    low, high = min(value.up for value in listed), max(value.up for value in listed)
    advice = "lower the retention, or raise the chance of the rarest replacement"
    if column.mechanism == "finegrain":
        advice = f'[columns."{column.name}"] sides = "both" and rho for each value keep both sides'
    yield Finding(
        column.name,
        "fine-grain",
        "fails" if up or down else "note" if bare else "holds",
        f"of {column.values} values {up} break {pair} upward and {down} downward; upward gamma"
        f" goes from {low:.4g} to {high:.4g}{some}",
        advice if up or down else None,
    )


def _rare(column: ColumnAudit, report: AuditReport) -> Iterator[Finding]:
    asked, gap = report.asked, report.asked.rho2 - report.asked.rho1
    if column.identity_limit is not None:
        text = (
            f"safe for every rho1 below {max(column.identity_limit, 0):.4g} at rho2 ="
            f" {asked.rho2:g}; rare values that outsiders know of are not protected"
        )
        advice = f"a retention below {_down(gap / (1 - asked.rho1))}"
        fine = asked.rho1 < column.identity_limit
        yield met_or_not(column.name, "identity/swap", fine, text, advice)
    if column.identity_limit is not None or column.s_limit is None:
        return
    finding = partial(Finding, column.name, "(s, rho1, rho2)")
    text = f"no (s, {rho_text(asked)}) breach for s below {column.s_limit:.4g}"
    surely = column.s_most is not None and column.s_most < column.s_limit
    if column.s_observed is None:
        rest = f"s cannot be above {column.s_most:.4g}" if surely else "s is not known"
        yield finding("holds" if surely else "open", f"{text}; {rest}")
        return
    fine = column.s_observed < column.s_limit
    source = "in the raw table" if report.known else "reconstructed from the release,"
    change = None
    if not fine and math.isfinite(column.s_observed):
        most = gap / ((1 - asked.rho2) * column.s_observed + gap)
        change = f"retention {_down(most)} or less would do"
    reached = f"{source} s reaches {column.s_observed:.4g}"
    if column.posterior is not None:
        reached += f"; the posterior of a published rare value reaches {column.posterior:.3g}"
    if not column.s_observed:
        reached = f"{source} no value has a share of {asked.rho1:g} or less"
    verdict: Verdict = "holds" if fine or surely else "fails"
    if surely and not report.known:
        reached += f", and it cannot be above {column.s_most:.4g}"
    elif not report.known:
        verdict, reached = "open", f"{reached}; these are estimates"
    yield finding(verdict, f"{text}; {reached}", change)


def _utility(column: ColumnAudit, report: AuditReport) -> Iterator[Finding]:
    asked, finding = report.asked, partial(Finding, column.name)
    if column.rows_needed is not None and column.reached_error is not None:
        yield finding("(n, eps, delta)", *_share(column, column.rows_needed, report))
    if column.small_sum is not None and column.large_sum is not None:
        fine = column.small_sum >= asked.small_sum
        text = (
            f"T_P = {column.small_sum:.3f}: a count of 1 to {asked.alpha} is off by more than"
            f" {asked.sum_error:.0%} with at least this chance (required: {asked.small_sum:g})"
        )
        yield met_or_not(column.name, "small sums", fine, text, _decoys(asked))
        text = (
            f"counts from {column.large_sum_exact:,} on are within {asked.sum_error:.0%} except"
            f" with chance {asked.miss:g} (exact binomial; Chebyshev: {column.large_sum:,.0f}; the"
            f" paper's T_f of {column.large_sum_printed:.2g} divides by n twice)"
        )
        yield finding("large sums", "note", text)


def _share(
    column: ColumnAudit, needed: float, report: AuditReport
) -> tuple[Verdict, str, str | None]:
    """How precisely the share of a value is known: a figure of utility."""
    asked = report.asked
    there = f"there are {report.trials:,}"
    unsure = ""
    if report.trials != report.rows:
        there += (
            " left after groups were cut down, worth"
            f" {math.floor(report.effective):,} rows of equal weight"
        )
        if report.duplicated:
            unsure = "; the number of independent trials among duplicated rows is not known"
    if several_rows(report.privacy):
        unsure = "; rows of one person are not independent, so they carry less information"
    text = (
        f"the share of one value over all rows is known to within {column.reached_error:.2g} with"
        f" chance {1 - asked.miss:g}, whatever the shares are; {asked.error:g} needs"
        f" {math.ceil(needed):,} rows, and {there}{unsure}"
    )
    if column.reached_error is not None and column.reached_error > asked.error:
        return "weak", text, "for more precision: more rows, or a higher retention"
    return "note" if unsure else "useful", text, None


def _decoys(asked: Thresholds) -> str:
    """Which decoy groups would give the wanted T_P, if any do."""
    try:
        size = smallest_group(asked.small_sum, asked.sum_error, asked.alpha)
    except AdviseError:
        return "a smaller alpha or e: no group size gives as much"
    return (
        f"groups of {size} or more would do, if no value has more than {0.9 / size:.3g} of the rows"
    )


def _group(group: GroupAudit, column: ColumnAudit, report: AuditReport) -> Iterator[Finding]:
    finding = partial(Finding, group.column, "(lambda, delta)")
    verdict, text = _violations(group, report.asked)
    yield finding(verdict, text, None if verdict == "holds" else _cut_down(column, report))
    if verdict == "holds" and report.merged:
        text = (
            "this applies to whole groups of merged values; the merged values themselves are"
            " published, and a part of a group may contain one value more often and exceed its"
            " own cap"
        )
        yield finding("note", text)
    if column.mechanism in OWN:
        text = (
            f"rows of {with_article(column.mechanism)} column depend on each other: caps and tails"
            " assume independence and are approximations"
        )
        yield finding("note", text)
    if group.tails:
        yield Finding(group.column, "tails", "note", _tails(group, report.asked.relative_error))
    if report.duplicated:
        text = (
            "rows were duplicated, so the number of trials is not known: groups are assumed to"
            " have as many as the caps of the release allowed, and copies reveal s_g, hence f"
        )
        yield finding("note", text, 'scaling = "weight"')


def _violations(group: GroupAudit, asked: Thresholds) -> tuple[Verdict, str]:
    """Whether groups violate (lambda, delta), and how many of them do."""
    text = f"(lambda, delta) = ({asked.relative_error:g}, {asked.probability:g}): "
    if group.known and group.violating is not None:
        broken, people = group.violating
        text += (
            f"{broken:,} of {group.groups:,} groups violate it (v_g = {group.v_g:.1%}), with"
            f" {people:,} of {group.people:,} people (v_r = {group.v_r:.1%})"
        )
        return "fails" if broken else "holds", text
    least, most = group.least[0], group.most[0]
    text += f"{least:,}" if least == most else f"at least {least:,} and at most {most:,}"
    text += f" of {group.groups:,} groups violate it, whatever the raw values are"
    if group.violating is not None:
        broken, people = group.violating
        text += (
            f"; going by frequencies reconstructed from the release, {broken:,} do (v_g ="
            f" {group.v_g:.1%}), with {people:,} people (v_r = {group.v_r:.1%})"
        )
    return "fails" if least else "holds" if not most else "open", text


def _cut_down(column: ColumnAudit, report: AuditReport) -> str:
    """What to change where groups violate (lambda, delta)."""
    if report.protection is not None and report.protection.cap != "one":
        return 'cap = "one" in [protect.reconstruction] needs no estimate of f'
    if column.mechanism in OWN:
        return "a lower retention raises every cap; uniform columns can also be cut down"
    if several_rows(report.privacy):
        return "reduce the source to one row per person: only then can groups be cut down"
    return (
        f"[protect.reconstruction] lambda = {report.asked.relative_error:g}, delta ="
        f' {report.asked.probability:g}, cap = "one" cuts such groups down; a lower retention'
        " raises every cap"
    )


def _tails(group: GroupAudit, error: float) -> str:
    """The chances of the group most at risk."""
    worst = next((tail for tail in group.tails if tail.exact is not None), None)
    if worst is None or worst.exact is None:
        return (
            "Chernoff bounds only: other values differ in their chance of being published as one"
            " value, so its count is not a sum of two binomials"
        )
    source = "" if group.known else " by reconstruction"
    return (
        f"in the group most at risk ({worst.trials:,} trials, f = {worst.frequency:.3g}{source},"
        f" s_g = {worst.cap:,.0f}) an estimate of f is within {error:.0%} with chance"
        f" {_chance(worst.exact.within)}; the Chernoff bounds on a miss are"
        f" {small(worst.chernoff.lower)} below and {small(worst.chernoff.upper)} above, the"
        f" exact chances {small(worst.exact.lower)} and {small(worst.exact.upper)}"
    )


def _chance(within: float) -> str:
    """A chance near 1 is never said to be 1.

    >>> _chance(0.5), _chance(1.0)
    ('0.5', 'above 0.9999')
    """
    return f"{within:.4g}" if within <= 0.9999 else "above 0.9999"


def _down(number: float) -> str:
    """Three digits that are not above a number."""
    return f"{rounded_down(number, 3):.3g}"
