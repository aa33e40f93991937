"""Tables and their columns: DESCRIBE, SHOW TABLES and SUMMARIZE as outcomes with DuckDB's columns.

    DESCRIBE t        names and types of the manifest
    SHOW TABLES       the published table, and public tables
    SUMMARIZE t       one row a column; figures of a sensitive column are estimates with their bars,
                      its range and the number of its values are those of its domain

A summary asks one statement for each figure or few of them, by the way of every question, so the
policy decides on each; what is refused is NULL, and a notice says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import pyarrow as pa

from privsql.answer.outcome import Notice, Outcome, ResultColumn
from privsql.engines import MemoryEngine
from privsql.errors import NotSupportedError, ProgrammingError
from privsql.session.settings import Settings
from privsql.sql.catalog import Catalog, Sensitive
from privsql.sql.parse.about import (
    ALL_TABLES,
    FRACTIONS,
    SUMMARIZE,
    TABLES,
    as_text,
    is_moment,
    range_of,
    range_values,
    summary_queries,
)

Columns = Sequence[tuple[str, str]]

# The columns of each answer as DuckDB has them.
DESCRIBED = tuple(
    ResultColumn(name, "VARCHAR")
    for name in ("column_name", "column_type", "null", "key", "default", "extra")
)
NAMED = (ResultColumn("name", "VARCHAR"),)
LISTED = (
    *(ResultColumn(name, "VARCHAR") for name in ("database", "schema", "name")),
    *(ResultColumn(name, "VARCHAR[]") for name in ("column_names", "column_types")),
    ResultColumn("temporary", "BOOLEAN"),
)
UNIQUE = "approx_unique"
ESTIMATED = ("avg", "std", *FRACTIONS)
SUMMARIZED = (
    *(ResultColumn(name, "VARCHAR") for name in ("column_name", "column_type", "min", "max")),
    ResultColumn(UNIQUE, "BIGINT"),
    *(ResultColumn(name, "VARCHAR", estimate=True) for name in ESTIMATED),
    ResultColumn("count", "BIGINT"),
    ResultColumn("null_percentage", "DECIMAL(9,2)", estimate=True),
)
_ARROW = {
    "VARCHAR": pa.string(),
    "VARCHAR[]": pa.list_(pa.string()),
    "BOOLEAN": pa.bool_(),
    "BIGINT": pa.int64(),
    "DECIMAL(9,2)": pa.decimal128(9, 2),
}
_BAR_TYPES: dict[str, pa.DataType] = {
    "stderr": pa.float64(),
    "low": pa.float64(),
    "high": pa.float64(),
    "reliable": pa.bool_(),
}
BARS: pa.Schema = pa.schema(_BAR_TYPES)
_NONE: dict[str, Any] = dict.fromkeys(BARS.names)

# A table in memory while values of it are written out.
LOADED = "privsql_summary"

# The database and schema that DuckDB names for tables in memory.
_WHERE = {"database": "memory", "schema": "main"}


def described(columns: Columns, key: str = "") -> Outcome:
    """Columns of a table or of an answer; ``key`` is one that identifies rows."""
    rows = [
        {
            "column_name": name,
            "column_type": kind,
            "null": "NO" if name == key else "YES",
            "key": "UNI" if name == key else None,
        }
        for name, kind in columns
    ]
    return _outcome(DESCRIBED, rows)


def listed(tables: Mapping[str, Columns], *, whole: bool) -> Outcome:
    """All tables, or their names alone."""
    rows = [
        {
            **_WHERE,
            "name": name,
            "column_names": [column for column, _ in columns],
            "column_types": [kind for _, kind in columns],
            "temporary": False,
        }
        for name, columns in sorted(tables.items())
    ]
    return _outcome(LISTED if whole else NAMED, rows)


@dataclass(frozen=True)
class Summary:
    """Makes the summary of the published table.

    ``ask`` answers one statement; ``memory`` writes values as DuckDB does.
    """

    catalog: Catalog
    memory: MemoryEngine
    ask: Callable[[str, Settings], Outcome]
    settings: Settings

    def outcome(self) -> Outcome:
        """One row for each column."""
        columns = self.catalog.columns
        settings = self.settings
        if settings.simultaneous:
            # Bonferroni's: intervals of all statements hold together at the level asked for.
            count = sum(len(self._queries(*column)) for column in columns)
            level = 1 - (1 - settings.confidence_level) / max(1, count)
            settings = replace(settings, confidence_level=level)
        rows: list[_Row] = []
        notices: dict[Notice, None] = {}
        for name, kind in columns:
            row = _Row(name, kind)
            for text in self._queries(name, kind):
                row.add(self._asked(name, kind, text, settings, notices))
            rows.append(row)
        sensitive = self.catalog.sensitive
        for row in rows:
            row.finish()
            if row.name in sensitive:
                row.values |= self._domain(sensitive[row.name])
        if sensitive:
            text = "min, max and approx_unique of sensitive columns are those of the public domain"
            notices[Notice("domain", f"{text}, not of rows")] = None
        bars = {
            i: pa.Table.from_pylist([row.bars.get(c.name, _NONE) for row in rows], BARS)
            for i, c in enumerate(SUMMARIZED)
            if c.estimate
        }
        estimated = any(row.estimated for row in rows)
        method = "iterative" if self.settings.estimator == "iterative" else "inversion"
        return replace(
            _outcome(SUMMARIZED, [row.values for row in rows]),
            bars=bars,
            notices=tuple(notices),
            estimator=method if estimated else "exact",
            level=self.settings.confidence_level,
            error_bars=self.settings.error_bars,
        )

    def _queries(self, name: str, kind: str) -> list[str]:
        public, estimated = name not in self.catalog.sensitive, self._estimated(name)
        return summary_queries(self.catalog.table, name, kind, public=public, estimated=estimated)

    def _estimated(self, name: str) -> bool:
        """Whether figures of a column are estimates."""
        return name in self.catalog.sensitive or self.catalog.weighted

    def _asked(
        self, name: str, kind: str, text: str, settings: Settings, notices: dict[Notice, None]
    ) -> Iterator[_Figure]:
        """The figures of one statement; none where it is refused, which a notice says."""
        try:
            found = self.ask(text, settings)
        except (NotSupportedError, ProgrammingError) as problem:
            notices[Notice("not-summarized", f"{name}: {problem.reason}")] = None
            return
        for notice in found.notices:
            notices[notice] = None
        names = tuple(column.name for column in found.columns)
        table = found.table.rename_columns(list(names))
        moments = names == ("avg",) and is_moment(kind) and self._estimated(name)
        written = self._written(table, as_text(LOADED, names, moments=moments))
        (raw,) = table.to_pylist()
        for i, label in enumerate(names):
            bars = found.bars[i].to_pylist()[0] if i in found.bars else None
            if moments and bars is not None:  # as those of all dates: no numbers
                bars = _NONE | {"reliable": bars["reliable"]}
            yield _Figure(label, raw[label], written[label], bars)

    def _domain(self, column: Sensitive) -> dict[str, Any]:
        """The range and the number of the values of a domain."""
        values = pa.table({"value": range_values(column.domain)})
        found = self._written(values, range_of(LOADED, "value", column.type))
        return {**found, UNIQUE: column.domain.points}

    def _written(self, table: pa.Table, query: str) -> dict[str, Any]:
        """The one row of a query over a table that is loaded for it as ``LOADED``."""
        self.memory.load(LOADED, table)
        try:
            found: dict[str, Any]
            (found,) = self.memory.run(query).to_pylist()
        finally:
            self.memory.forget(LOADED)
        return found


@dataclass(frozen=True)
class _Figure:
    """One value of an answer: as it is, as text, and with its bars where it is an estimate."""

    name: str
    value: Any
    text: str | None
    bars: Mapping[str, Any] | None


class _Row:
    """A row of a summary as it is put together."""

    def __init__(self, name: str, kind: str) -> None:
        self.name = name
        self.values: dict[str, Any] = {"column_name": name, "column_type": kind}
        self.bars: dict[str, Mapping[str, Any]] = {}
        self.estimated = False
        self._counts: dict[str, _Figure] = {}

    def add(self, figures: Iterator[_Figure]) -> None:
        """Enter the figures of one statement."""
        for each in figures:
            if each.name in ("rows", "given"):
                self._counts[each.name] = each
            elif each.name == UNIQUE:
                self.values[each.name] = each.value
            else:
                self.values[each.name] = each.text
                if each.name in ESTIMATED and each.value is not None:
                    self._bar(each.name, each.value, each.bars)

    def finish(self) -> None:
        """Enter what follows from counts."""
        rows, given = self._counts.get("rows"), self._counts.get("given")
        if rows is None or given is None or rows.value is None:
            return
        self.values["count"] = round(rows.value)
        if not rows.value or given.value is None:
            return
        percent = 100 / rows.value

        def share(value: float | None) -> float | None:
            return None if value is None else 100 - percent * value

        missing = share(float(given.value))
        self.values["null_percentage"] = Decimal(f"{missing:.2f}")
        bars = given.bars and {
            "stderr": None if given.bars["stderr"] is None else percent * given.bars["stderr"],
            "low": share(given.bars["high"]),
            "high": share(given.bars["low"]),
            "reliable": given.bars["reliable"],
        }
        self._bar("null_percentage", missing, bars)

    def _bar(self, name: str, value: Any, bars: Mapping[str, Any] | None) -> None:
        """The bars of a figure as numbers; those of an exact one have no width."""
        self.estimated |= bars is not None
        if bars is None:
            at = float(value) if isinstance(value, int | float | Decimal) else None
            self.bars[name] = {"stderr": 0.0, "low": at, "high": at, "reliable": True}
            return
        ends = [bars[end] for end in ("stderr", "low", "high")]
        plain = [float(e) if isinstance(e, int | float | Decimal) else None for e in ends]
        self.bars[name] = dict(zip(BARS.names, [*plain, bars["reliable"]], strict=True))


def _outcome(columns: tuple[ResultColumn, ...], rows: Sequence[Mapping[str, Any]]) -> Outcome:
    schema = pa.schema([pa.field(each.name, _ARROW[each.type]) for each in columns])
    full = [{name: row.get(name) for name in schema.names} for row in rows]
    return Outcome("rows", columns, pa.Table.from_pylist(full, schema))


def summarized(found: pa.Table) -> Outcome:
    """DuckDB's own summary of a public table."""
    return _outcome(_exact(SUMMARIZED), found.to_pylist())


def nothing(kind: str, settings: Settings, *, estimates: bool) -> Outcome:
    """An answer without rows, for its columns; ``estimates`` is told of a summary."""
    kinds = {TABLES: NAMED, ALL_TABLES: LISTED, SUMMARIZE: SUMMARIZED}
    columns = kinds.get(kind, DESCRIBED)
    made = _outcome(columns if estimates else _exact(columns), [])
    return replace(made, error_bars=settings.error_bars)


def _exact(columns: tuple[ResultColumn, ...]) -> tuple[ResultColumn, ...]:
    return tuple(replace(column, estimate=False) for column in columns)
