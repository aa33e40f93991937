"""Output of EXPLAIN RECONSTRUCTION: blocks, columns, cells and widths, as text and rows.

Everything is plain strings and numbers by now.  The text is for a person and leaves out what is
long; the rows are for a program and have all of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import pyarrow as pa
from sqlglot.errors import SqlglotError

from privsql.errors import printable
from privsql.sql.parse.lexing import parsed
from privsql.sql.scan.forms import WORDS

# Shown of a column in the text; the rows have them all.
SHOWN_CELLS = 12
SHOWN_FACTOR = 6


@dataclass(frozen=True)
class ExplainedCell:
    """Values of a column that the query does not distinguish."""

    meaning: str
    mass: float | None  # under the replacement distribution, where there is one


@dataclass(frozen=True)
class ExplainedColumn:
    """A sensitive column as the query sees it."""

    name: str
    mechanism: str
    values: int
    sent: str  # what the scan brings of it
    cells: tuple[ExplainedCell, ...]  # none where the scan tells none apart
    factor: tuple[tuple[float, ...], ...]  # the channel between cells
    condition: float


@dataclass(frozen=True)
class ExplainedAggregate:
    """An aggregate: how it is answered, and how far off it may be."""

    sql: str
    answered: str  # exact | estimated | from the public domain
    width: str
    row_error: float | None = None  # the largest standard deviation that one row adds
    interval: str = ""  # which one, and when it is called reliable
    short: str = ""  # the width in a few words


# The estimator of a block whose groups are those that could exist.
LISTED = "listed"


@dataclass(frozen=True)
class ExplainedBlock:
    """One SELECT over published rows."""

    number: int
    estimator: str  # exact | listed | inversion | iterative
    why: str
    conditions: tuple[str, ...]  # public ones
    keys: tuple[tuple[str, str], ...]  # expression, public or sensitive
    joins: tuple[tuple[str, str], ...]
    columns: tuple[ExplainedColumn, ...]
    hidden: tuple[str, ...]  # public expressions that make groups of their own
    aggregates: tuple[ExplainedAggregate, ...]
    scans: tuple[str, ...]
    steps: tuple[tuple[str, str], ...]  # name and SQL
    form: str = ""  # of the scan (see ``forms``); none where nothing is estimated
    policy: str = ""  # what the policy of the release would say to it

    @property
    def how(self) -> str:
        """How it is answered, in a few words."""
        known = {
            "exact": "exact, no sensitive column is involved",
            LISTED: "groups that could exist, by public rows and domains",
        }
        return known.get(self.estimator, f"estimated by {self.estimator}")

    @property
    def states(self) -> int:
        """How many states there are; 0 where they are not distinguished."""
        return prod(len(one.cells) for one in self.columns)

    @property
    def condition(self) -> float:
        """Condition number of the whole channel: those of the columns multiply."""
        return prod(one.condition for one in self.columns)

    def rows(self) -> Iterator[tuple[str, str, str]]:
        """Rows of item, name and value."""
        yield "estimator", self.estimator, self.why
        for text in self.conditions:
            yield "public condition", "", text
        for text, role in self.keys:
            yield "key", text, role
        for text, role in self.joins:
            yield "join", text, role
        for text in self.hidden:
            yield "hidden key", text, "public, compared with a sensitive column"
        for one in self.columns:
            yield "column", one.name, f"{one.mechanism}, {one.values} values; {one.sent}"
            for i, cell in enumerate(one.cells):
                yield "cell", f"{one.name} {i}", cell.meaning
                if cell.mass is not None:
                    yield "mass", f"{one.name} {i}", repr(cell.mass)
            if one.cells:
                yield "factor", one.name, repr([list(row) for row in one.factor])
            yield "condition number", one.name, repr(one.condition)
        if self.columns:
            yield "states", "", str(self.states) if self.states else "not distinguished"
            yield "condition number", "", repr(self.condition)
        for aggregate in self.aggregates:
            yield "aggregate", aggregate.sql, aggregate.answered
            yield "expected width", aggregate.sql, aggregate.width
            if aggregate.interval:
                yield "interval", aggregate.sql, aggregate.interval
        if self.policy:
            yield "policy", "", self.policy
        if self.form:
            yield "scan form", self.form, WORDS[self.form]
        for i, text in enumerate(self.scans):
            yield "scan", str(i), text
        for name, text in self.steps:
            yield "step", name, text

    def lines(self) -> Iterator[str]:
        """As text for a person."""
        yield f"block {self.number}: {self.how}"
        yield f"  why: {self.why}"
        if self.policy:
            yield f"  policy: {self.policy}"
        for text in self.conditions:
            yield f"  public condition, evaluated as it stands: {text}"
        for text, role in self.keys:
            origin = "" if role == "public" else "; its groups come from the public domain"
            yield f"  key, {role}{origin}: {text}"
        for text, role in self.joins:
            yield f"  join, {role}: {text}"
        for text in self.hidden:
            yield f"  public, but compared with a sensitive column, so it makes groups: {text}"
        if self.columns:
            sizes = " x ".join(str(len(one.cells)) for one in self.columns)
            product = f"{sizes} = " if len(self.columns) > 1 else ""
            count = f"{product}{self.states}" if self.states else "not distinguished"
            yield f"  states: {count}; condition number {self.condition:.4g}"
        for one in self.columns:
            yield from _column_lines(one)
        yield "  aggregates:"
        for aggregate in self.aggregates:
            yield f"    {aggregate.sql}: {aggregate.answered}; {aggregate.width}"
            if aggregate.interval:
                yield f"      interval: {aggregate.interval}"
        if not self.aggregates:
            yield "    none: the groups themselves are asked for"
        if self.form:
            yield f"  scan form: {self.form}; {WORDS[self.form]}"
        for text in self.scans:
            yield "  scan, on the published table:"
            yield from _indented(_pretty(text))
        if self.steps:
            yield "  reconstruction, in memory:"
        for name, text in self.steps:
            yield f"    {name}:"
            yield from _indented(_pretty(text), 6)


@dataclass(frozen=True)
class Explained:
    """How a query would be answered."""

    blocks: tuple[ExplainedBlock, ...]
    query: str  # what reads the blocks' tables
    outputs: tuple[tuple[str, str], ...]  # columns, exact or estimate

    def text(self) -> str:
        """As text for a person."""
        lines: list[str] = []
        for block in self.blocks:
            lines += [*block.lines(), ""]
        lines.append("answer, in memory:")
        lines += [f"  column {name!r}: {kind}" for name, kind in self.outputs]
        lines += _indented(_pretty(self.query), 2)
        return "\n".join(printable(line, keep="\n") for line in lines) + "\n"

    def rows(self) -> list[tuple[int | None, str, str, str]]:
        """All of it for a program: block (NULL for the whole query), item, name, value."""
        return [
            *((block.number, *row) for block in self.blocks for row in block.rows()),
            *((None, "output", name, kind) for name, kind in self.outputs),
            (None, "query", "", self.query),
        ]

    def table(self) -> pa.Table:
        """The rows as a table with the columns block, item, name and value."""
        kinds: dict[str, pa.DataType] = {"block": pa.int64()}
        kinds |= dict.fromkeys(("item", "name", "value"), pa.string())
        rows = [dict(zip(kinds, row, strict=True)) for row in self.rows()]
        return pa.Table.from_pylist(rows, schema=pa.schema(kinds))


def _column_lines(one: ExplainedColumn) -> Iterator[str]:
    yield f"  {one.name}: {one.mechanism}, {one.values} values; {one.sent}"
    for i, cell in enumerate(one.cells[:SHOWN_CELLS]):
        mass = "" if cell.mass is None else f"    mass {cell.mass:.6g}"
        yield f"    cell {i}: {cell.meaning}{mass}"
    if len(one.cells) > SHOWN_CELLS:
        yield f"    ... {len(one.cells) - SHOWN_CELLS} more"
    if len(one.cells) <= SHOWN_FACTOR:
        for i, row in enumerate(one.factor):
            lead = "channel between cells" if i == 0 else ""
            yield f"    {lead:22}[{'  '.join(f'{entry:.6f}' for entry in row)}]"
    yield f"    condition number {one.condition:.4g}"


def _indented(text: str, by: int = 4) -> list[str]:
    return [" " * by + line for line in text.splitlines()]


def _pretty(text: str) -> str:
    """A statement over several lines; as it is where sqlglot cannot read it again."""
    try:
        return parsed(text).sql("duckdb", pretty=True)
    except SqlglotError:
        return text
