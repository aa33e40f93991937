"""What holds, what fails and for whom, and what to change: figures turned into sentences."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from privsql.audit.criteria import gamma_for, retention_for
from privsql.audit.findings import ColumnAudit, Finding, GroupAudit, Thresholds
from privsql.audit.text import small

if TYPE_CHECKING:
    from privsql.audit.report import AuditReport

# Above this, published values give originals away (section 1 of the design).
EPSILON_LIMIT = 5.0

RELEASE = "release"

# Mechanisms whose replacements are the column itself.
OWN = ("identity", "swap")

# Above so many values a coarser domain is the better advice.
MANY = 200


def findings(report: AuditReport) -> tuple[Finding, ...]:
    """All sentences of a report, the release first, then its columns and their groups."""
    found = [*_release(report), *_joint(report)]
    groups = {each.column: each for each in report.groups}
    for column in report.columns:
        found += _column(column, report)
        if column.name in groups:
            found += _group(groups[column.name], column, report)
    return (*found, *_ratios(report))


def _release(report: AuditReport) -> Iterator[Finding]:
    privacy = report.privacy
    total = sum(column.epsilon for column in report.columns)
    columns = f"{len(report.columns)} column{'s' * (len(report.columns) != 1)}"
    times = f"{privacy.publications} publication{'s' * (privacy.publications != 1)}"
    if privacy.seeded:
        yield Finding(
            RELEASE,
            "epsilon",
            "fails",
            "drawn from a seed that may be known: nothing is promised",
            "publish without --seed",
        )
    elif privacy.raw or math.isinf(privacy.epsilon):
        why = "; ".join(privacy.raw) or "some values are published as they are"
        yield Finding(
            RELEASE,
            "epsilon",
            "void",
            f"no epsilon for this release: {why}",
            'compute from published values only: [groups] from = "published", domains that are'
            " listed, uniform, replace, matrix, or finegrain with a given prior",
        )
    else:
        verdict = "holds" if privacy.epsilon <= EPSILON_LIMIT else "fails"
        yield Finding(
            RELEASE,
            "epsilon",
            "holds" if verdict == "holds" else "fails",
            f"epsilon {privacy.epsilon:.4g}, gamma {_gamma(privacy.epsilon)}, over {columns} and"
            f" {times} (this one alone: {total:.4g})"
            + ("" if verdict == "holds" else f"; above {EPSILON_LIMIT:g} originals are given away"),
            None
            if verdict == "holds"
            else "lower the retentions, or publish fewer sensitive columns: their epsilons add",
        )
    if privacy.states > 1:
        yield Finding(
            RELEASE,
            "publications",
            "note",
            f"the source had {privacy.states} states: epsilon is {privacy.changed:.4g} for a person"
            " whose values changed every time",
        )
    if privacy.batches:
        yield Finding(
            RELEASE,
            "publications",
            "note",
            f"{privacy.batches} batches came from clients, which no ledger here knows: who has"
            " rows in several of them loses as much in each",
        )
    if not privacy.memory:
        yield Finding(
            RELEASE,
            "publications",
            "note",
            "a one-off: publishing the same people again adds to epsilon",
            "publish with a key (`privsql key new`), which repeats the same draws",
        )
    yield Finding(
        RELEASE,
        "raw data",
        "note" if privacy.raw else "holds",
        f"depended on raw data: {'; '.join(privacy.raw)}"
        if privacy.raw
        else "nothing depended on raw data but the perturbed values themselves",
    )


def _joint(report: AuditReport) -> Iterator[Finding]:
    joint, asked = report.joint, report.asked
    if joint is None:
        return
    pair = _rho(asked)
    text = (
        f"combinations of {', '.join(joint.columns)}: no (s, {pair}) breach for s below"
        f" {joint.limit:.4g} ({joint.limit_small:.4g} for values of vanishing mass)"
    )
    if joint.observed is None:
        yield Finding(RELEASE, "(s, rho1, rho2)", "open", f"{text}; s needs the raw table")
        return
    fine = joint.observed < joint.limit
    yield Finding(
        RELEASE,
        "(s, rho1, rho2)",
        "holds" if fine else "fails",
        f"{text}; in the raw table s reaches {joint.observed:.4g}",
        None if fine else "lower the retentions of columns that go together",
    )


def _column(column: ColumnAudit, report: AuditReport) -> Iterator[Finding]:
    asked, name = report.asked, column.name
    pair, allowed = _rho(asked), gamma_for(asked.rho1, asked.rho2)
    if column.values == 2:
        yield Finding(
            name,
            "m = 2",
            "note",
            "the domain has two values: who knows that a published value is false knows the other"
            " (RECON assumes more than two)",
        )
    if math.isinf(column.gamma):
        yield Finding(
            name,
            "rho1-rho2",
            "void",
            f"{column.mechanism}: no gamma bounds what a value gives away",
            "choose uniform or replace, every value with a replacing probability",
        )
    else:
        fine = column.gamma <= allowed * (1 + 1e-9)
        advice = None
        if not fine and column.mechanism in ("uniform", "finegrain"):
            most = retention_for(column.values, rho=(asked.rho1, asked.rho2))
            advice = f"retention {_down(most)} or less would do for {column.values:,} values"
            if column.values > MANY:
                advice += ", or a coarser domain"
        yield Finding(
            name,
            "rho1-rho2",
            "holds" if fine else "fails",
            f"gamma {column.gamma:.4g}, epsilon {column.epsilon:.4g}; {pair} allows gamma"
            f" {allowed:.4g}. Upward a prior of {asked.rho1:g} reaches at most {column.upward:.3g};"
            f" downward {asked.rho2:g} falls to no less than {column.downward:.3g}",
            advice if fine else advice or "lower the retention",
        )
        yield from _values(column, allowed, pair)
    yield from _rare(column, report)
    yield from _utility(column, report)


def _values(column: ColumnAudit, allowed: float, pair: str) -> Iterator[Finding]:
    if column.mechanism in ("uniform",) or not column.per_value:
        return  # all values alike
    listed = column.per_value
    up = sum(value.up > allowed * (1 + 1e-9) for value in listed)
    down = sum(value.down > allowed * (1 + 1e-9) for value in listed)
    some = "" if len(listed) == column.values else f" (the first {len(listed)})"
    yield Finding(
        column.name,
        "fine-grain",
        "fails" if up or down else "holds",
        f"of {column.values} values{some} {up} break {pair} upward and {down} downward; upward"
        f" gamma goes from {min(v.up for v in listed):.4g} to {max(v.up for v in listed):.4g}",
        f'[columns."{column.name}"] sides = "both" and rho for each value keep both sides'
        if up or down
        else None,
    )


def _rare(column: ColumnAudit, report: AuditReport) -> Iterator[Finding]:
    asked = report.asked
    if column.identity_limit is not None:
        fine = asked.rho1 < column.identity_limit
        yield Finding(
            column.name,
            "identity/swap",
            "holds" if fine else "fails",
            f"safe for every rho1 below {max(column.identity_limit, 0):.4g} at rho2 ="
            f" {asked.rho2:g}; rare values that outsiders know of are not protected",
            None if fine else f"a retention below {_down(_most_identity(asked))}",
        )
    elif column.s_limit is not None:
        text = f"no (s, {_rho(asked)}) breach for s below {column.s_limit:.4g}"
        if column.s_observed is None:
            yield Finding(column.name, "(s, rho1, rho2)", "open", f"{text}; s is not known")
            return
        fine = column.s_observed < column.s_limit
        source = "in the raw table" if report.known else "reconstructed from the release,"
        advice = None
        if not fine and math.isfinite(column.s_observed):
            gap = asked.rho2 - asked.rho1
            most = gap / ((1 - asked.rho2) * column.s_observed + gap)
            advice = f"retention {_down(most)} or less would do"
        reached = f"{source} s reaches {column.s_observed:.4g}"
        if column.posterior is not None:
            reached += f"; a published rare value is believed up to {column.posterior:.3g}"
        if not column.s_observed:
            reached = f"{source} no value has a share of {asked.rho1:g} or less"
        yield Finding(
            column.name,
            "(s, rho1, rho2)",
            "holds" if fine else "fails",
            f"{text}; {reached}",
            advice,
        )


def _most_identity(asked: Thresholds) -> float:
    return (asked.rho2 - asked.rho1) / (1 - asked.rho1)


def _utility(column: ColumnAudit, report: AuditReport) -> Iterator[Finding]:
    asked = report.asked
    if column.rows_needed is not None and column.reached_error is not None:
        fine = report.trials >= column.rows_needed
        cut = "" if report.trials == report.rows else " left after groups were cut down"
        yield Finding(
            column.name,
            "(n, eps, delta)",
            "holds" if fine else "fails",
            f"a share within {asked.error:g} with chance {1 - asked.miss:g} needs"
            f" {math.ceil(column.rows_needed):,} rows, and there are {report.trials:,}{cut}, which"
            f" give {column.reached_error:.3g} (OLAP theorem 1, a loose bound)",
            None if fine else "more rows, a higher retention, or a wider error",
        )
    if column.small_sum is not None and column.large_sum is not None:
        fine = column.small_sum >= asked.small_sum
        yield Finding(
            column.name,
            "small sums",
            "holds" if fine else "fails",
            f"T_P = {column.small_sum:.3f}: a count of 1 to {asked.alpha} is off by more than"
            f" {asked.sum_error:.0%} with at least this chance (wanted: {asked.small_sum:g})",
            None if fine else "a smaller alpha or e; the group size hardly changes it",
        )
        yield Finding(
            column.name,
            "large sums",
            "note",
            f"counts from {column.large_sum_exact:,} on are within {asked.sum_error:.0%} but for"
            f" chance {asked.miss:g} (exact binomial; Chebyshev: {column.large_sum:,.0f}; the"
            f" paper's T_f of {column.large_sum_printed:.2g} divides by n twice)",
        )


def _group(group: GroupAudit, column: ColumnAudit, report: AuditReport) -> Iterator[Finding]:
    asked = report.asked
    what = f"(lambda, delta) = ({asked.relative_error:g}, {asked.probability:g})"
    if group.known and group.violating is not None:
        broken = group.violating[0]
        text = (
            f"{what}: {broken:,} of {group.groups:,} groups violate it (v_g ="
            f" {group.v_g:.1%}), with {group.violating[1]:,} of {group.people:,} people (v_r ="
            f" {group.v_r:.1%})"
        )
        verdict = "fails" if broken else "holds"
    else:
        least, most = group.least[0], group.most[0]
        range_of = f"{least:,}" if least == most else f"at least {least:,} and at most {most:,}"
        text = (
            f"{what}: {range_of} of {group.groups:,} groups violate it, whatever the raw values are"
        )
        if group.violating is not None:
            text += (
                f"; by frequencies reconstructed from the release {group.violating[0]:,} do (v_g ="
                f" {group.v_g:.1%}), with {group.violating[1]:,} people (v_r = {group.v_r:.1%})"
            )
        verdict = "fails" if group.least[0] else "holds" if not group.most[0] else "open"
    advice = None
    if verdict != "holds":
        advice = (
            f"[protect.reconstruction] lambda = {asked.relative_error:g}, delta ="
            f" {asked.probability:g} cuts such groups down; a lower retention raises every cap"
        )
        if report.protection is not None:
            advice = 'cap = "one" in [protect.reconstruction] needs no estimate of f'
        elif column.mechanism in OWN:
            advice = "a lower retention raises every cap; uniform columns can also be cut down"
    kind = "fails" if verdict == "fails" else "holds" if verdict == "holds" else "open"
    yield Finding(
        group.column,
        "(lambda, delta)",
        kind,  # type: ignore[arg-type]
        text,
        advice,
    )
    if column.mechanism in OWN:
        yield Finding(
            group.column,
            "(lambda, delta)",
            "note",
            f"rows of a {column.mechanism} column depend on each other: caps and tails, which take"
            " them for independent, are approximations",
        )
    shown = [tail for tail in group.tails if tail.exact is not None]
    if shown:
        worst = shown[0]
        assert worst.exact is not None  # noqa: S101 - chosen so
        yield Finding(
            group.column,
            "tails",
            "note",
            f"of the group worst off ({worst.trials:,} trials, f = {worst.frequency:.3g}, s_g ="
            f" {worst.cap:,.0f}) an estimate of f is within {asked.relative_error:.0%} with chance"
            f" {worst.exact.within:.4g}; Chernoff bounds a miss by {small(worst.chernoff.lower)}"
            f" below and {small(worst.chernoff.upper)} above, exactly it is"
            f" {small(worst.exact.lower)} and {small(worst.exact.upper)}",
        )
    elif group.tails:
        yield Finding(
            group.column,
            "tails",
            "note",
            "only Chernoff's bounds: other values differ in their chance to be published as one"
            " value, so its count is no sum of two binomials",
        )
    if report.protection is not None and report.protection.scaling == "duplicate":
        yield Finding(
            group.column,
            "(lambda, delta)",
            "note",
            "rows were duplicated, so trials are not known: groups are taken to have the most"
            " that their caps allow, and copies show s_g, hence f",
            'scaling = "weight"',
        )


def _ratios(report: AuditReport) -> Iterator[Finding]:
    parts = ", ".join(f"b = {each.scale:g}: {each.groups:,} groups" for each in report.ratios)
    yield Finding(
        RELEASE,
        "ratios",
        "note",
        "for comparison, Laplace noise on answers instead of perturbation would give away the"
        f" ratio inside a group (b/x <= 1/20): {parts} (a Taylor approximation, slightly exceeded"
        " at 1/20)",
    )


def _rho(asked: Thresholds) -> str:
    return f"({asked.rho1:g}, {asked.rho2:g})"


def _gamma(epsilon: float) -> str:
    return f"{math.exp(epsilon):.4g}" if epsilon < 700 else "beyond all measure"


def _down(number: float) -> str:
    """Three digits that are not above a number."""
    unit = 10.0 ** (math.floor(math.log10(number)) - 2)
    return f"{math.floor(number / unit + 1e-9) * unit:.3g}"
