"""The report of a publication: facts and warnings for the publisher."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from privsql.errors import how_many
from privsql.publish.keys.ledger import Accounting
from privsql.publish.rounded import Rounded, Rounding
from privsql.release.manifest import Manifest


@dataclass(frozen=True)
class Moved:
    """What bringing values into its domain did to a column: how many are others now."""

    column: str
    moved: int
    values: int  # NULL aside
    how: str

    def __str__(self) -> str:
        """Print as the report says it.

        >>> print(Moved("age", 3, 12037, "moved to the ends of the grid 0..120"))
        age: 3 of 12,037 values moved to the ends of the grid 0..120
        """
        return f"{self.column}: {self.moved:,} of {how_many(self.values, 'value')} {self.how}"


@dataclass
class Notes:
    """Collects facts and warnings for the publisher while a job runs."""

    facts: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    raw: list[str] = field(default_factory=list)  # reasons why no epsilon holds
    rounded: tuple[Rounded, ...] = ()
    clipped: tuple[Moved, ...] = ()
    others: tuple[Moved, ...] = ()

    def say(self, fact: str) -> None:
        """Note something that was done as asked."""
        self.facts.append(fact)

    def warn(self, warning: str) -> None:
        """Note a warning for the publisher."""
        self.warnings.append(warning)

    def account(self, accounting: Accounting) -> None:
        """Note what the ledger counts, for persons who stayed the same and for those who did not.

        Publishing a table again that grew is normal use, so a change is told and not refused.
        """
        self.say(f"ledger: {accounting}")
        change = accounting.change()
        if change is not None:
            self.say(change)

    def round(self, rounding: Rounding) -> None:
        """Note how many values of each column its grid moved."""
        self.rounded = rounding.found
        for each in self.rounded:
            if each.moved:
                self.say(str(each))

    def move(self, clipped: tuple[Moved, ...], others: tuple[Moved, ...]) -> None:
        """Note how many values of each column were brought into its domain."""
        self.clipped, self.others = clipped, others
        for each in (*clipped, *others):
            if each.moved:
                self.say(str(each))

    def merge(self, other: Notes) -> None:
        """Note what was said of a later part of the same rows: numbers add, sentences are one."""
        self.clipped = _added(self.clipped, other.clipped)
        self.others = _added(self.others, other.others)
        moved = {str(each) for each in (*other.clipped, *other.others)}
        self.facts += [each for each in other.facts if each not in (*self.facts, *moved)]
        self.warnings += [each for each in other.warnings if each not in self.warnings]

    def depends_on_raw(self, what: str) -> None:
        """Note that something public was computed from raw data: no epsilon for the release."""
        self.raw.append(what)


def _added(first: tuple[Moved, ...], second: tuple[Moved, ...]) -> tuple[Moved, ...]:
    if not first:
        return second
    return tuple(
        replace(a, moved=a.moved + b.moved, values=a.values + b.values)
        for a, b in zip(first, second, strict=True)
    )


@dataclass(frozen=True)
class PublishReport:
    """The release that was made, with facts and warnings for its publisher."""

    path: Path
    manifest: Manifest
    rows: int  # published, multiplicities and weights aside
    facts: tuple[str, ...]
    warnings: tuple[str, ...]
    rounded: tuple[Rounded, ...] = ()  # of every column on a grid; no part of the release
    clipped: tuple[Moved, ...] = ()  # of every column with clip = true
    others: tuple[Moved, ...] = ()  # of every column with other

    def __str__(self) -> str:
        """Text for a person: what was made, its privacy statement, warnings."""
        lines = [f"published {self.rows:,} rows of {self.manifest.table} to {self.path}"]
        lines += [f"  {fact}" for fact in self.facts]
        lines += [
            f"  {column.name}: {column.mechanism}, {column.domain.size} values,"
            f" epsilon {column.epsilon:.3g}"
            for column in self.manifest.sensitive
        ]
        lines.append(self.manifest.privacy.statement())
        lines += [f"WARNING: {warning}" for warning in self.warnings]
        return "\n".join(lines)
