"""The first page of an audit: may this go out?  One sentence, three lights, what to change.

    public columns     who is alone by them, what identifies, what tells a sensitive column
    sensitive values   what perturbation leaves of them
    analysts           what can be learned of everyone, and of single groups

A light is red where the release should not go out as it is, amber where its publisher has to
accept something first.  Figures of utility never turn one red.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from privsql.audit.criteria.amplification import breach
from privsql.audit.criteria.findings import UNMET, Finding
from privsql.audit.criteria.public_columns import TOLD, UNIQUE, link_text
from privsql.audit.criteria.release_verdicts import several_rows, worst
from privsql.audit.report.text import share
from privsql.release.columns import EPSILON_LIMIT

if TYPE_CHECKING:
    from privsql.audit.report.report import AuditReport

Colour = Literal["green", "amber", "red"]
Answer = Literal["yes", "if", "no"]

# Criteria by what sensitive values lose, and by what can be learned of groups.
LOSS = (
    *("epsilon", "rho1-rho2", "fine-grain", "(s, rho1, rho2)", "identity/swap", "small sums"),
    "raw data",
)
GROUPS = "(lambda, delta)"

# A release with so many times as many rows alone as asked for should not go out.
TOO_MANY = 10


@dataclass(frozen=True)
class Light:
    """One of three: a colour, why, and what to change."""

    name: str
    colour: Colour
    text: str
    change: tuple[str, ...] = ()
    why: str = ""  # in a few words, where it is not green


@dataclass(frozen=True)
class Front:
    """The first page."""

    answer: Answer
    sentence: str
    lights: tuple[Light, ...]


def front_page(report: AuditReport) -> Front:
    """The answer and its three lights."""
    lights = (_public(report), _sensitive(report), _analysts(report))
    red = [light for light in lights if light.colour == "red"]
    amber = [light for light in lights if light.colour == "amber"]
    if red:
        return Front("no", f"No, not as it is: {_listed([each.why for each in red])}.", lights)
    if amber:
        named = _listed([each.why for each in amber])
        return Front("if", f"Yes, if its publisher accepts that {named}.", lights)
    return Front("yes", "Yes: nothing that was checked speaks against it.", lights)


def _public(report: AuditReport) -> Light:
    """Identifiers, uniqueness, and columns that tell a sensitive one."""
    name, found = "Public columns", report.uniqueness
    if found is None or not found.columns:
        return Light(name, "green", "There are none: nothing tells people apart.")
    told = [link for link in report.links if link.verdict == "tells"]
    unsure = sorted({link.public for link in report.links if link.verdict == "open"})
    alone = f"{share(found.alone, found.rows)} of the rows are alone in their public values"
    many = found.share > report.asked.alone
    said = [f"{alone} ({found.alone:,} of {found.rows:,})."]
    why = [f"{each} identifies nearly every person" for each in found.identifying]
    why += [f"{link.public} nearly determines {link.sensitive}" for link in told]
    why += [alone] * (many and not found.identifying)
    if found.identifying:
        said.insert(0, f"{_listed(found.identifying)} identifies nearly every person.")
    said += [f"{link_text(link)}." for link in told]
    change = [f.advice for f in report.findings if f.criterion in (UNIQUE, TOLD) and f.advice]
    wanted = tuple(dict.fromkeys(change))
    if unsure:
        said.append(f"Whether {_listed(unsure)} determines a sensitive column is not certain.")
        why.append(f"{_listed(unsure)} may determine a sensitive column")
    if found.identifying or told or found.share > TOO_MANY * report.asked.alone:
        return Light(name, "red", " ".join(said), wanted, _listed(why))
    if many or unsure:
        return Light(name, "amber", " ".join(said), wanted, _listed(why))
    return Light(name, "green", " ".join([*said, "None determines a sensitive column."]))


def _sensitive(report: AuditReport) -> Light:
    """What a person's published values give away."""
    name, privacy = "Sensitive values", report.privacy
    unmet = [f for f in report.findings if f.criterion in LOSS and f.verdict in UNMET]
    change = tuple(dict.fromkeys(f.advice for f in unmet if f.advice))
    text = _loss(report)
    if not unmet:
        return Light(name, "green", text)
    red = any(f.verdict == "fails" for f in unmet)
    if math.isinf(privacy.epsilon) and not privacy.raw:
        together = privacy.rows_per_unit * sum(column.epsilon for column in report.columns)
        red = red or not several_rows(privacy) or together > EPSILON_LIMIT
    why = "published values may reveal the original ones"
    if privacy.seeded or math.isinf(privacy.epsilon):
        why = "no epsilon is promised"
    if not red and not any(f.verdict == "void" for f in unmet):
        text += " Whether rare values are protected cannot be decided from what is at hand."
        why = "rare values may be less protected"
        change = change or ("audit with the raw table (--raw) to decide",)
    return Light(name, "red" if red else "amber", text, change, why)


def _loss(report: AuditReport) -> str:
    """What a row tells about a person, without a formula."""
    privacy, rho1 = report.privacy, report.asked.rho1
    if privacy.seeded or math.isinf(privacy.epsilon):
        return privacy.statement()
    most = worst(privacy)
    high = breach(rho1, math.exp(min(most, 700.0))).high
    limit = f", above the limit of {EPSILON_LIMIT:g}" if most > EPSILON_LIMIT else ""
    return (
        f"All published values of one {privacy.unit} together have an epsilon of {most:.3g}{limit}:"
        f" who took something for {rho1:.0%} likely takes it for at most {_most(high)} likely after"
        " reading them."
    )


def _most(chance: float) -> str:
    """A chance in percent, never rounded to certainty."""
    return f"{chance:.0%}" if chance < 0.99 else f"{math.floor(chance * 1000) / 10:.1f}%"


def _analysts(report: AuditReport) -> Light:
    """What can be learned of the whole table, and of single personal groups."""
    name = "What analysts can learn"
    widths = [c for c in report.columns if c.reached_error is not None]
    said = []
    if widths:
        shown = _listed([f"{c.name} ±{100 * (c.reached_error or 0):.2g}" for c in widths])
        said.append(
            f"Shares over all rows are known to these percentage points: {shown}"
            f" ({1 - report.asked.miss:.0%} of the time)."
        )
    failing = [f for f in report.findings if f.criterion == GROUPS and f.verdict in ("fails",)]
    unsure = [f for f in report.findings if f.criterion == GROUPS and f.verdict == "open"]
    if not failing and not unsure:
        said.append("Shares within single personal groups are too imprecise to be of use.")
        return Light(name, "green", " ".join(said))
    said.append(_groups(report, failing or unsure))
    change = tuple(dict.fromkeys(f.advice for f in failing or unsure if f.advice))
    refused = report.policy is not None and report.policy.personal_groups == "refuse"
    if failing and report.protection is not None and report.asked_own:
        why = "personal groups exceed what the release was protected by"
        return Light(name, "red", " ".join(said), change, why)
    if refused:
        said.append("A server refuses such questions; who holds the file can compute them.")
        return Light(name, "green", " ".join(said))
    why = "shares within single personal groups can be estimated"
    return Light(name, "amber", " ".join(said), change, why)


def _groups(report: AuditReport, findings: list[Finding]) -> str:
    named = {finding.subject for finding in findings}
    groups = [group for group in report.groups if group.column in named]
    most = max((group.violating or group.most for group in groups), default=(0, 0))
    estimate = "" if report.known else "about " if groups[0].violating else "up to "
    return (
        f"In {estimate}{most[0]:,} of {groups[0].groups:,} personal groups the share of the most"
        f" frequent value can be estimated to within {report.asked.relative_error:.0%}."
    )


def _listed(names: list[str] | tuple[str, ...]) -> str:
    """Names in a sentence.

    >>> _listed(["a"]), _listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else list(names))
