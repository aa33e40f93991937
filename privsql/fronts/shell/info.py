r"""What a release is, in about ten lines: ``privsql info`` and ``\d+``.

Everything comes from the manifest and the table of public tuples; no published row is read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privsql.errors import how_many, printable
from privsql.fronts.shell.describe import domain, policy_text, retention
from privsql.release.folder import size_of
from privsql.release.manifest import Manifest, SensitiveColumn
from privsql.release.names import ROWS, TUPLES
from privsql.release.store import Release

# Sensitive columns that have a line of their own; beyond, all but the last of these, and names.
SHOWN = 6

# What becomes of a value that is not kept; docs/publisher.md has the same table.
WORDS = {
    "uniform": "otherwise any value of the domain",
    "replace": "otherwise drawn from a stated distribution",
    "finegrain": "otherwise any value of the domain",
    "identity": "otherwise a value of another row",
    "swap": "otherwise exchanged with other rows",
    "matrix": "perturbed by a stated matrix",
    "decoy": "one of a few values found together",
}
UNITS = ("bytes", "kB", "MB", "GB", "TB")


@dataclass(frozen=True)
class Info:
    """A release as it is described."""

    path: Path
    manifest: Manifest
    rows: int  # of the source, where some stand for several or were left out
    size: int  # bytes of the file

    def text(self) -> str:
        """About ten lines for a person."""
        return "\n".join(printable(line) for line in self._lines())

    def document(self) -> dict[str, Any]:
        """All of it for a program; docs/manifest.md describes the fields."""
        made = json.loads(self.manifest.to_json())
        sensitive = {column.name: column for column in self.manifest.sensitive}
        return {
            "file": str(self.path),
            "bytes": self.size,
            "table": made["table"],
            "rows": self.rows,
            "stored_rows": made["rows"],
            "created": made["created"],
            "software": made["software"],
            "format": made["format"],
            "release": made["release"],
            "columns": [
                *({**column, "role": "public"} for column in made["public"]),
                *(
                    {
                        **{key: value for key, value in column.items() if key != "channel"},
                        "role": "sensitive",
                        "retention": _retentions(sensitive[column["name"]]),
                        "values": sensitive[column["name"]].domain.size,
                        "words": column_text(sensitive[column["name"]]),
                    }
                    for column in made["sensitive"]
                ),
            ],
            "privacy": {**made["privacy"], "statement": self.manifest.privacy.statement()},
            "groups": made["groups"],
            "protection": made["protection"],
            "policy": made["policy"],
        }

    def _lines(self) -> Iterator[str]:
        manifest = self.manifest
        stored = "" if manifest.rows == self.rows else f" (stored as {manifest.rows:,})"
        size = _size(self.size)
        yield f"{self.path.name}: table {manifest.table}, {self.rows:,} rows{stored}, {size}"
        yield (
            f"made on {manifest.created} by {manifest.software}, format {manifest.format},"
            f" release {manifest.release[:12]}"
        )
        for title, grouping in (("public", True), ("public, not for groups", False)):
            named = [f"{c.name} {c.type}" for c in manifest.public if c.grouping is grouping]
            groups = f"; {how_many(manifest.groups.count, 'personal group')}" if grouping else ""
            if named:
                yield f"{title}, unchanged: {', '.join(named)}{groups}"
        columns = manifest.sensitive
        shown = len(columns) if len(columns) <= SHOWN else SHOWN - 1
        yield from (f"sensitive: {c.name} {c.type}: {column_text(c)}" for c in columns[:shown])
        if columns[shown:]:
            yield (
                f"sensitive: {len(columns) - shown} more:"
                f" {', '.join(column.name for column in columns[shown:])}"
            )
        if manifest.protection is not None:
            asked = manifest.protection
            yield (
                f"groups are cut to lambda {asked.relative_error:g}, delta"
                f" {asked.probability:g} (reconstruction privacy)"
            )
        yield f"promise: {manifest.privacy.statement()}"
        yield f"policy: {policy_text(manifest.policy)}"


def info_of(release: Release) -> Info:
    """Describe a release that was opened."""
    with release.connection() as connection:
        ((rows,),) = connection.table(TUPLES).aggregate(f"sum({ROWS})").fetchall()
    return Info(release.path, release.manifest, int(rows or 0), size_of(release.path))


def column_text(column: SensitiveColumn) -> str:
    """What was done to a sensitive column, and the values that it can have."""
    kept = retention(column.channel)
    how = f"kept with probability {kept}, " if kept else ""
    loss = f"epsilon {column.epsilon:.4g}" if column.epsilon != float("inf") else "no epsilon"
    return f"{how}{WORDS[column.mechanism]} ({column.mechanism}, {loss}); {domain(column.domain)}"


def _retentions(column: SensitiveColumn) -> float | list[float] | None:
    """The probability that a value is kept; one for each value where they differ."""
    kept = getattr(column.channel, "retention", None)
    each = getattr(column.channel, "retentions", None)
    return kept if each is None else [float(one) for one in each]


def _size(count: int) -> str:
    """Bytes in the unit that leaves one to three digits before the point.

    >>> _size(512), _size(5_230_000)
    ('512 bytes', '5.23 MB')
    """
    value, unit = float(count), 0
    while value >= 1000 and unit < len(UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.0f} {UNITS[0]}" if unit == 0 else f"{value:.3g} {UNITS[unit]}"
