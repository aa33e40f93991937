"""The starter spec as TOML, with the evidence beside each column, and a summary for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from privsql.errors import how_many
from privsql.publish.starter.budget import EPSILON, Share
from privsql.publish.starter.evidence import Facts
from privsql.publish.starter.toml import comment, key, written

SPEC = """\
# A starter spec. Every role below is a GUESS from the evidence beside it: check each of them.
# Roles: drop (never published), public (published, not protected), sensitive (perturbed).
{decide}
[release]
table = "published"  # the name that analysts will use
source = {source}
unit = {unit}
epsilon = {epsilon:g}  # of the whole release; sensitive columns share it equally
# key = "publisher.key"  # from: privsql key new publisher.key

{columns}
[groups]
merge = "chi2"  # or "none"
from = "published"  # "raw" separates values better, no epsilon

[policy]
personal_groups = "refuse"  # refuse | flag | allow
"""
DECIDE = """\
# Where role = "decide", nothing could be guessed: write one of the three. `publish` waits for it.
"""


@dataclass(frozen=True)
class Entry:
    """One column of the spec."""

    facts: Facts
    role: str
    why: str
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Draft:
    """A starter spec, and what there is to say about it."""

    text: str
    entries: tuple[Entry, ...]
    shares: tuple[Share, ...]
    alone: float  # share of the rows that are alone in their public columns
    unit: Entry | None

    def summary(self) -> tuple[str, ...]:
        """What was guessed, what is to be decided, and how wide answers will be."""
        roles = [entry.role for entry in self.entries]
        counted = [f"{roles.count(role)} {role}" for role in dict.fromkeys(ORDER) if role in roles]
        lines = [f"{how_many(len(roles), 'column')}: {', '.join(counted)}"]
        undecided = [entry.facts.name for entry in self.entries if entry.role == "decide"]
        if undecided:
            lines.append(f"decide before you publish: {comment(', '.join(undecided))}")
        if self.unit is not None and not self.unit.facts.unique:
            lines.append(
                f"a person has several rows: the unit is {comment(self.unit.facts.name)}, with"
                f" up to {self.unit.facts.most:,} rows"
            )
        if "public" in roles:
            alone = f"{100 * self.alone:.1f}% of the rows are alone in their combination"
            lines.append(f"public columns: {alone}")
        return (*lines, *self._widths())

    def _widths(self) -> list[str]:
        if not self.shares:
            return ['no column looks sensitive: give at least one role = "sensitive"']
        many = len(self.shares)
        errors = ", ".join(f"{comment(s.name)} {100 * s.error:.1f}" for s in self.shares)
        lines = [
            f"a share of the whole table will be known to ± percentage points (epsilon"
            f" {EPSILON:g}{f' shared by {many} columns' if many > 1 else ''}): {errors}"
        ]
        thin = [f"{comment(s.name)} ({s.why_thin})" for s in self.shares if s.why_thin]
        if thin:
            lines.append(
                f"WARNING: epsilon {EPSILON:g} is too thin a budget for {', '.join(thin)}: drop"
                " sensitive columns that nobody needs, or make their domains coarser"
            )
        return lines


ORDER = ("drop", "public", "sensitive", "decide")


def composed(
    source: str,
    entries: Sequence[Entry],
    shares: Sequence[Share],
    alone: float,
    unit: Entry | None,
) -> Draft:
    """Write the spec."""
    text = SPEC.format(
        decide=DECIDE if any(entry.role == "decide" for entry in entries) else "",
        source=written(source),
        unit=_unit(unit),
        epsilon=EPSILON,
        columns="\n".join(map(_column, entries)),
    )
    return Draft(text, tuple(entries), tuple(shares), alone, unit)


def _unit(unit: Entry | None) -> str:
    if unit is None:
        return '"row"  # GUESS: one row per person'
    facts = unit.facts
    rows = "one row each"
    if not facts.unique:
        rows = f"{facts.stated / max(facts.distinct, 1):.1f} rows each, at most {facts.most:,}"
    return f"{written(facts.name)}  # GUESS: whose row it is, {rows}"


def _column(entry: Entry) -> str:
    facts = comment(entry.facts.describe())
    lines = [f"[columns.{key(entry.facts.name)}]  # {facts}"]
    lines += [f"role = {written(entry.role)}  # GUESS: {comment(entry.why)}"]
    return "\n".join([*lines, *entry.lines, ""])
