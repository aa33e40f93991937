"""Findings about a whole release: epsilon, publications, raw data, combinations of columns."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from privsql.audit.criteria.amplification import ROUNDING, breach, gamma_for
from privsql.audit.criteria.findings import Finding, Thresholds, Verdict
from privsql.errors import how_many
from privsql.release.columns import EPSILON_LIMIT
from privsql.release.manifest import Privacy

if TYPE_CHECKING:
    from privsql.audit.report.report import AuditReport

RELEASE = "release"


def met_or_not(subject: str, criterion: str, fine: bool, text: str, advice: str) -> Finding:
    """A criterion that holds, or fails with an advice."""
    if fine:
        return Finding(subject, criterion, "holds", text)
    return Finding(subject, criterion, "fails", text, advice)


def of_release(report: AuditReport) -> Iterator[Finding]:
    """Epsilon, (rho1, rho2), publications, raw data, combinations of columns."""
    yield _epsilon(report)
    yield from _rho(report)
    yield from _publications(report.privacy)
    raw = "; ".join(report.privacy.raw)
    if raw:
        yield Finding(RELEASE, "raw data", "note", f"depended on raw data: {raw}")
    else:
        text = "only the perturbed values themselves depended on raw data"
        yield Finding(RELEASE, "raw data", "holds", text)
    yield from _joint(report)


def _epsilon(report: AuditReport) -> Finding:
    privacy, finding = report.privacy, partial(Finding, RELEASE, "epsilon")
    total = sum(column.epsilon for column in report.columns)
    columns = how_many(len(report.columns), "column")
    if privacy.seeded:
        text = "drawn from a seed that may be known: nothing is promised"
        if not privacy.raw and math.isfinite(total):
            text += (
                f"; with fresh draws it would be epsilon {total:.4g}, gamma {_gamma(total)}, over"
                f" {columns}"
            )
        return finding("fails", text, "publish without --seed")
    if privacy.raw or math.isinf(privacy.epsilon):
        return finding("void", f"no epsilon for this release: {_why(report)}", _instead(report))
    most = worst(privacy)
    fine = most <= EPSILON_LIMIT
    changed = "" if most == privacy.epsilon else f", {most:.4g} after changes"
    text = (
        f"epsilon {privacy.epsilon:.4g}{changed}, gamma {_gamma(most)}, over {columns} and"
        f" {how_many(privacy.publications, 'publication')} (this one alone: {total:.4g})"
    )
    if not fine:
        text += f"; above {EPSILON_LIMIT:g} published values reveal the originals"
    advice = "lower the retentions, or publish fewer sensitive columns: their epsilons add"
    return met_or_not(RELEASE, "epsilon", fine, text, advice)


def _why(report: AuditReport) -> str:
    """Why a release has no epsilon."""
    privacy, total = report.privacy, sum(column.epsilon for column in report.columns)
    reasons = [*privacy.raw]
    if privacy.rows_per_unit > 1:
        several = f"some persons have several rows, up to {privacy.rows_per_unit:,}"
        if math.isfinite(total):
            together = privacy.rows_per_unit * total
            several += f", and each loses {total:.4g}, up to {together:.4g} together"
        reasons.append(several)
    return "; ".join(reasons) or "some values are published as they are"


def _publications(privacy: Privacy) -> Iterator[Finding]:
    finding = partial(Finding, RELEASE, "publications", "note")
    if privacy.states > 1:
        yield finding(
            f"the source had {privacy.states} states: epsilon is {privacy.changed:.4g} for a person"
            " whose values changed every time"
        )
    if privacy.batches:
        yield finding(
            f"{how_many(privacy.batches, 'batch', 'batches')} of clients, in no ledger here: a"
            " person with rows in several of them loses as much in each"
        )
    if not privacy.memory:
        yield finding(
            "a one-off: publishing the same people again adds to epsilon",
            "publish with a key (`privsql key new`), which repeats the same draws",
        )


def _rho(report: AuditReport) -> Iterator[Finding]:
    """(rho1, rho2) over all columns and publications: columns may be correlated."""
    privacy, asked = report.privacy, report.asked
    if privacy.seeded or privacy.raw or math.isinf(privacy.epsilon):
        return  # epsilon says that nothing holds
    if len(report.columns) == 1 and privacy.publications == 1:
        return  # its column says it
    gamma, allowed = math.exp(min(worst(privacy), 700.0)), gamma_for(asked.rho1, asked.rho2)
    yield met_or_not(
        RELEASE,
        "rho1-rho2",
        gamma <= allowed * (1 + ROUNDING),
        f"all published values of a person together: gamma {gamma:.4g}; {rho_text(asked)} allows"
        f" {allowed:.4g}. Upward a prior of {asked.rho1:g} reaches at most"
        f" {breach(asked.rho1, gamma).high:.3g}, downward {asked.rho2:g} falls to no less than"
        f" {breach(asked.rho2, gamma).low:.3g}",
        f"bring epsilon down to {math.log(allowed):.3g} in all: `privsql advise SPEC --rho"
        f" {asked.rho1:g} {asked.rho2:g}` gives the retentions",
    )


def _instead(report: AuditReport) -> str:
    """What to change where a release has no epsilon."""
    if several_rows(report.privacy):
        return "reduce the source to one row per person; then each row's epsilon is the person's"
    if not report.privacy.raw:
        return "a retention below 1, and a replacement probability above 0 for every value"
    if all("observed" in reason for reason in report.privacy.raw):
        return "list every value that is possible as the domain, and delete observed = true"
    return (
        'compute from published values only: [groups] from = "published", domains that are'
        " listed, uniform, replace, matrix, or finegrain with a given prior"
    )


def worst(privacy: Privacy) -> float:
    """Epsilon of those it is largest for: persons whose values changed between publications."""
    return max(privacy.epsilon, privacy.changed) if privacy.states > 1 else privacy.epsilon


def several_rows(privacy: Privacy) -> bool:
    """Whether rows are not persons: their draws repeat, and their losses add."""
    # Releases of 0.1.0 have no number of rows, only the reason.
    return privacy.rows_per_unit > 1 or any("several rows" in each for each in privacy.raw)


def _joint(report: AuditReport) -> Iterator[Finding]:
    joint, finding = report.joint, partial(Finding, RELEASE, "(s, rho1, rho2)")
    if joint is None:
        if len(report.columns) > 1:
            text = (
                "combinations of columns were not checked: OLAP theorem 5 needs a retention and"
                " a listed replacement in every column"
            )
            yield finding("note", text)
        return
    text = (
        f"combinations of {', '.join(joint.columns)}: no (s, {rho_text(report.asked)}) breach for s"
        f" below {joint.limit_sets:.4g}, for single ones below {joint.limit:.4g}"
        f" ({joint.limit_small:.4g} for values of vanishing mass)"
    )
    verdict: Verdict = "holds" if joint.most < joint.limit_sets else "open"
    if joint.observed is None:
        known = (
            "s needs the raw table" if verdict == "open" else f"s cannot be above {joint.most:.4g}"
        )
        yield finding(verdict, f"{text}; {known}")
        return
    if not joint.observed < joint.limit:
        verdict = "fails"
    text += f"; in the raw table s reaches {max(joint.observed, joint.most):.4g}"
    text += ", so no single one violates it, but sets of them may" * (verdict == "open")
    advice = None if verdict == "holds" else "lower the retentions of correlated columns"
    yield finding(verdict, text, advice)


def of_ratios(report: AuditReport) -> Iterator[Finding]:
    """What Laplace noise on answers would have revealed instead."""
    if not report.ratios:
        return
    parts = ", ".join(f"b = {each.scale:g}: {each.groups:,} groups" for each in report.ratios)
    text = (
        "for comparison, Laplace noise on answers instead of perturbation would reveal the ratio"
        f" within a group (b/x <= 1/20): {parts} (a Taylor approximation, slightly exceeded"
        " at 1/20)"
    )
    yield Finding(RELEASE, "ratios", "note", text)


def rho_text(asked: Thresholds) -> str:
    """The pair that is asked, as it is written."""
    return f"({asked.rho1:g}, {asked.rho2:g})"


def _gamma(epsilon: float) -> str:
    return f"{math.exp(epsilon):.4g}" if epsilon < 700 else "too large to state"
