"""Findings about a whole release: epsilon, publications, raw data, combinations of columns."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from privsql.audit.criteria.amplification import ROUNDING, breach, gamma_for
from privsql.audit.criteria.findings import Finding, Thresholds, Verdict
from privsql.errors import how_many
from privsql.release.manifest import Privacy

if TYPE_CHECKING:
    from privsql.audit.report.report import AuditReport

# Above this, published values reveal originals (section 1 of the design).
EPSILON_LIMIT = 5.0

RELEASE = "release"


def of_release(report: AuditReport) -> Iterator[Finding]:
    """Epsilon, (rho1, rho2), publications, raw data, combinations of columns."""
    yield from _release(report)
    yield from _joint(report)


def _release(report: AuditReport) -> Iterator[Finding]:
    privacy = report.privacy
    total = sum(column.epsilon for column in report.columns)
    columns = how_many(len(report.columns), "column")
    times = how_many(privacy.publications, "publication")
    if privacy.seeded:
        would = (
            f"; with fresh draws it would be epsilon {total:.4g}, gamma {_gamma(total)}, over"
            f" {columns}"
            if not privacy.raw and math.isfinite(total)
            else ""
        )
        yield Finding(
            RELEASE,
            "epsilon",
            "fails",
            f"drawn from a seed that may be known: nothing is promised{would}",
            "publish without --seed",
        )
    elif privacy.raw or math.isinf(privacy.epsilon):
        why = "; ".join(privacy.raw) or "some values are published as they are"
        yield Finding(
            RELEASE,
            "epsilon",
            "void",
            f"no epsilon for this release: {why}",
            _instead(report),
        )
    else:
        most = worst(privacy)
        fine = most <= EPSILON_LIMIT
        changed = "" if most == privacy.epsilon else f", {most:.4g} after changes"
        yield Finding(
            RELEASE,
            "epsilon",
            "holds" if fine else "fails",
            f"epsilon {privacy.epsilon:.4g}{changed}, gamma {_gamma(most)}, over {columns}"
            f" and {times} (this one alone: {total:.4g})"
            + ("" if fine else f"; above {EPSILON_LIMIT:g} published values reveal the originals"),
            None
            if fine
            else "lower the retentions, or publish fewer sensitive columns: their epsilons add",
        )
    yield from _release_rho(report)
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
            f"{how_many(privacy.batches, 'batch', 'batches')} of clients, in no ledger here: a"
            " person with rows in several of them loses as much in each",
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
        else "only the perturbed values themselves depended on raw data",
    )


def _release_rho(report: AuditReport) -> Iterator[Finding]:
    """(rho1, rho2) over all columns and publications: columns may be correlated."""
    privacy, asked = report.privacy, report.asked
    if privacy.seeded or privacy.raw or math.isinf(privacy.epsilon):
        return  # epsilon says that nothing holds
    if len(report.columns) == 1 and privacy.publications == 1:
        return  # its column says it
    gamma, allowed = math.exp(min(worst(privacy), 700.0)), gamma_for(asked.rho1, asked.rho2)
    fine = gamma <= allowed * (1 + ROUNDING)
    yield Finding(
        RELEASE,
        "rho1-rho2",
        "holds" if fine else "fails",
        f"all published values of a person together: gamma {gamma:.4g}; {rho_text(asked)} allows"
        f" {allowed:.4g}. Upward a prior of {asked.rho1:g} reaches at most"
        f" {breach(asked.rho1, gamma).high:.3g}, downward {asked.rho2:g} falls to no less than"
        f" {breach(asked.rho2, gamma).low:.3g}",
        None
        if fine
        else f"bring epsilon down to {math.log(allowed):.3g} in all: `privsql advise SPEC --rho"
        f" {asked.rho1:g} {asked.rho2:g}` gives the retentions",
    )


def _instead(report: AuditReport) -> str:
    """What to change where a release has no epsilon."""
    if several_rows(report.privacy):
        return "reduce the source to one row per person; then each row's epsilon is the person's"
    if not report.privacy.raw:
        return "a retention below 1, and a replacement probability above 0 for every value"
    return (
        'compute from published values only: [groups] from = "published", domains that are'
        " listed, uniform, replace, matrix, or finegrain with a given prior"
    )


def worst(privacy: Privacy) -> float:
    """Epsilon of those it is largest for: persons whose values changed between publications."""
    return max(privacy.epsilon, privacy.changed) if privacy.states > 1 else privacy.epsilon


def several_rows(privacy: Privacy) -> bool:
    """Whether rows are not persons: their draws repeat, and their losses add."""
    return any("several rows" in each for each in privacy.raw)


def _joint(report: AuditReport) -> Iterator[Finding]:
    joint, asked = report.joint, report.asked
    if joint is None:
        if len(report.columns) > 1:
            yield Finding(
                RELEASE,
                "(s, rho1, rho2)",
                "note",
                "combinations of columns were not checked: OLAP theorem 5 needs a retention and"
                " a listed replacement in every column",
            )
        return
    text = (
        f"combinations of {', '.join(joint.columns)}: no (s, {rho_text(asked)}) breach for s below"
        f" {joint.limit_sets:.4g}, for single ones below {joint.limit:.4g}"
        f" ({joint.limit_small:.4g} for values of vanishing mass)"
    )
    if joint.observed is None:
        if joint.most < joint.limit_sets:
            text += f"; s cannot be above {joint.most:.4g}"
            yield Finding(RELEASE, "(s, rho1, rho2)", "holds", text)
        else:
            yield Finding(RELEASE, "(s, rho1, rho2)", "open", f"{text}; s needs the raw table")
        return
    verdict: Verdict = "holds" if joint.most < joint.limit_sets else "open"
    if not joint.observed < joint.limit:
        verdict = "fails"
    text += f"; in the raw table s reaches {max(joint.observed, joint.most):.4g}"
    if verdict == "open":
        text += ", so no single one violates it, but sets of them may"
    yield Finding(
        RELEASE,
        "(s, rho1, rho2)",
        verdict,
        text,
        None if verdict == "holds" else "lower the retentions of correlated columns",
    )


def of_ratios(report: AuditReport) -> Iterator[Finding]:
    """What Laplace noise on answers would have revealed instead."""
    parts = ", ".join(f"b = {each.scale:g}: {each.groups:,} groups" for each in report.ratios)
    yield Finding(
        RELEASE,
        "ratios",
        "note",
        "for comparison, Laplace noise on answers instead of perturbation would reveal the ratio"
        f" within a group (b/x <= 1/20): {parts} (a Taylor approximation, slightly exceeded"
        " at 1/20)",
    )


def rho_text(asked: Thresholds) -> str:
    """The pair that is asked, as it is written."""
    return f"({asked.rho1:g}, {asked.rho2:g})"


def _gamma(epsilon: float) -> str:
    return f"{math.exp(epsilon):.4g}" if epsilon < 700 else "too large to state"
