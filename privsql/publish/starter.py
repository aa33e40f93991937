"""A starter spec: a guess at every role and domain of a source.

Whatever is guessed is marked as a guess.  Domains are written as observed ranges or lists
for the publisher to correct: only the publisher knows which values are possible.
"""

from __future__ import annotations

import json
import math
import os
import re
from contextlib import closing
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from privsql.channels import Grid, Uniform
from privsql.errors import Error
from privsql.publish.source import Source, in_utc, open_source
from privsql.release.columns import EPSILON_LIMIT, rounded_down
from privsql.release.names import quoted

# Words in a name that usually mean a person is identified, or that something is sensitive.
IDENTIFIES = re.compile(
    r"(^|_)(name|first_?name|last_?name|surname|e_?mail|mail|phone|tel|mobile|ssn|nin|passport"
    r"|address|street|iban|account|login|user_?name|uuid|guid)($|_)",
    re.IGNORECASE,
)
UNIT = re.compile(
    r"(^|_)(id|patient|person|customer|client|user|member)(_?id|_?no)?$", re.IGNORECASE
)
SENSITIVE = re.compile(
    r"disease|diagnos|illness|symptom|hiv|drug|medic|salary|income|wage|wealth|debt|religion"
    r"|orient|politic|vote|crime|convict|reaction|score|grade|rating",
    re.IGNORECASE,
)

SPEC = """\
# A starter spec: every role and domain below is a GUESS. Check each line.
# Domains must list what is possible, not what occurs in this table.

[release]
table  = "published"                    # the name that analysts will use
source = {source}
unit   = {unit}
# key  = "publisher.key"                 # from: privsql key new publisher.key

{columns}
[groups]
merge = "chi2"                          # or "none"
from  = "published"                     # "raw" separates values better, no epsilon

[policy]
personal_groups = "refuse"              # refuse | flag | allow
"""
ROW = '"row"                          # GUESS: one row per person'

# More categories than this are not listed.
LISTED = 200


@dataclass(frozen=True)
class Facts:
    """What is read of a column to guess from."""

    name: str
    type: str
    rows: int
    distinct: int
    nulls: int
    low: Any
    high: Any

    @property
    def unique(self) -> bool:
        """Whether nearly every row has a value of its own."""
        return self.rows > 20 and self.distinct >= 0.95 * (self.rows - self.nulls) > 0

    @property
    def text(self) -> bool:
        """Whether the column holds text."""
        return self.type.startswith("VARCHAR")


def starter(source: str, beside: Path | None = None) -> str:
    """Write the TOML of a starter spec for a source.

    A spec names its source from where it lies itself: in the folder ``beside``, or here.
    """
    with closing(open_source([source])) as opened:
        raw = in_utc(opened, opened.names)  # domains of times have no zone
        facts = [_facts(raw, name, kind) for name, kind in raw.columns]
        unit = next((f for f in facts if UNIT.search(f.name) and f.unique), None)
        lines = []
        for fact in facts:
            lines += [f"[columns.{_toml(fact.name)}]", *_column(fact, raw, fact is unit), ""]
    named = _toml(_seen_from(source, beside))
    whose = f"{_toml(unit.name)}    # GUESS: whose row it is; dropped" if unit else ROW
    return SPEC.format(source=named, unit=whose, columns="\n".join(lines))


def _seen_from(source: str, folder: Path | None) -> str:
    """A source's path as the spec in a folder has to say it."""
    path, sign, table = source.partition("::")
    if folder is None or Path(path).is_absolute() or folder.resolve() == Path.cwd():
        return source
    return Path(os.path.relpath(path, folder.resolve())).as_posix() + sign + table


def _facts(raw: Source, name: str, kind: str) -> Facts:
    column = quoted(name)
    ordered = not kind.startswith(("STRUCT", "MAP", "BLOB")) and "[" not in kind
    ends = f"min({column}), max({column})" if ordered else "NULL, NULL"
    counts = f"count(*), approx_count_distinct({column}), count(*) - count({column})"
    rows, distinct, nulls, low, high = raw.figures(f"{counts}, {ends}")
    if distinct <= 2 * LISTED:
        distinct = raw.different(name)
    return Facts(name, kind, rows, distinct, nulls, low, high)


def _column(fact: Facts, raw: Source, is_unit: bool) -> list[str]:
    if is_unit:
        return ['role = "drop"                           # the unit: never published']
    if IDENTIFIES.search(fact.name) or (fact.text and fact.unique):
        why = "its name identifies people" if IDENTIFIES.search(fact.name) else "unique text"
        return [f'role = "drop"                           # GUESS: {why}']
    if SENSITIVE.search(fact.name):
        return [
            'role = "sensitive"                      # GUESS by its name',
            *_sensitive(fact, raw),
        ]
    lines = ['role = "public"                         # GUESS: is it really known to others?']
    if not fact.text and fact.distinct > LISTED:
        lines.append("grouping = false                        # GUESS: a measure, not a trait")
    return lines


def _sensitive(fact: Facts, raw: Source) -> list[str]:
    lines = ['mechanism = "uniform"', "retention = 0.2"]
    nullable = fact.nulls > 0
    if fact.low is None:
        return [*lines, 'domain = "observed"                     # nothing to guess from']
    even = isinstance(fact.low, float | Decimal | datetime)  # cannot be listed
    if fact.text or fact.type == "BOOLEAN" or (fact.distinct <= 20 and not even):
        if fact.distinct > LISTED:
            return [*lines, 'domain = "observed"                     # GUESS: too many to list']
        values = [v for v in raw.distinct(fact.name).to_pylist() if v is not None]
        listed = f"[{', '.join(_toml(value) for value in values)}]"
        note = "# GUESS: as observed; add what is possible"
        if nullable:
            return [*lines, f"domain = {{ values = {listed}, nullable = true }}  {note}"]
        return [*lines, f"domain = {listed}  {note}"]
    step: int | str = 1
    if isinstance(fact.low, date):
        step = "1 hour" if even else "1 day"
    try:
        low, high = _bounds(fact)
        size = Grid.of(low, high, step, nullable=nullable).size
    except (Error, ValueError, OverflowError):
        return [*lines, 'domain = "observed"                     # GUESS: no range that fits']
    most = Uniform.from_epsilon(EPSILON_LIMIT, size).retention
    if most < 0.2:
        lines[1] = f"retention = {rounded_down(most, 2):g}  # GUESS: what epsilon 5 allows"
    extra = ", nullable = true" if nullable else ""
    grid = f"{{ lower = {_toml(low)}, upper = {_toml(high)}, step = {_toml(step)}{extra} }}"
    return [*lines, f"domain = {grid}  # GUESS: the observed range; widen it to what is possible"]


def _bounds(fact: Facts) -> tuple[Any, ...]:
    """Observed bounds, outwards to whole numbers or hours."""
    low, high = fact.low, fact.high
    if isinstance(low, float | Decimal):
        return math.floor(low), math.ceil(high)
    if isinstance(low, datetime):
        first, last = (end.replace(minute=0, second=0, microsecond=0) for end in (low, high))
        return first, last if last == high else last + timedelta(hours=1)
    return low, high


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, int | float | Decimal):
        return str(value)
    return json.dumps(str(value), ensure_ascii=False)
