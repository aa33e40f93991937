"""Who answers: the query layer, or a stand-in that reads the raw table.

The stand-ins exist to test the oracle itself: an honest one must pass every case, and each
wrong one must be caught.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, replace
from typing import Any, Protocol

import duckdb

from tests.oracle.compare import Answer, Row
from tests.oracle.generator import Case
from tests.oracle.nodes import touches
from tests.oracle.tables import World

NUMBERS = ("TINYINT", "INTEGER", "BIGINT", "HUGEINT", "DOUBLE", "DECIMAL")


class Answers(Protocol):
    """Something that answers queries about one world."""

    def ask(self, case: Case) -> Answer: ...


def on_raw(raw: duckdb.DuckDBPyConnection, case: Case) -> Answer:
    """DuckDB's own answer on the raw table."""
    sql, parameters = case.printed()
    done = raw.execute(sql) if parameters is None else raw.execute(sql, parameters)
    names = tuple(str(column[0]) for column in done.description or ())
    types = tuple(str(column[1]) for column in done.description or ())
    return Answer(names, types, tuple(done.fetchall()))


def session_class() -> Any:
    """The query layer's session, or None while it does not exist."""
    try:
        return importlib.import_module("privsql.session.session").Session
    except (ModuleNotFoundError, AttributeError) as missing:
        if isinstance(missing, ModuleNotFoundError) and missing.name != "privsql.session.session":
            raise
        return None


class Layer:
    """The query layer on the release."""

    def __init__(self, world: World) -> None:
        self.session = session_class()(world.release, tables=world.tables)

    def ask(self, case: Case) -> Answer:
        sql, parameters = case.printed()
        return read(self.session.run(sql, parameters))


def read(outcome: Any) -> Answer:
    columns = outcome.columns
    lists = [column.to_pylist() for column in outcome.table.columns]
    rows = tuple(zip(*lists, strict=True)) if lists else ()
    return Answer(
        tuple(column.name for column in columns),
        tuple(column.type for column in columns),
        rows,
        tuple(column.estimate for column in columns),
    )


@dataclass
class StandIn:
    """Answers from the raw table, as the layer would: estimates are DOUBLE, empty groups shown.

    ``fault`` names what it does wrong.
    """

    world: World
    fault: str = ""

    def ask(self, case: Case) -> Answer:
        if self.fault == "refuses" and "median" in case.features:
            raise duckdb.NotImplementedException("a median is too much")
        answer = on_raw(self.world.raw, self._misread(case))
        outputs = [item.output for item in case.items]
        estimates = [
            output is not None and not output.key and touches(item)
            for output, item in zip(outputs, case.items, strict=True)
        ]
        doubled = [
            flag and kind.startswith(NUMBERS)
            for flag, kind in zip(estimates, answer.types, strict=True)
        ]
        rows = [
            tuple(
                float(value) if double and value is not None else value
                for value, double in zip(row, doubled, strict=True)
            )
            for row in answer.rows
        ]
        marked = [output is not None and output.marker for output in outputs]
        if any(marked):
            rows.insert(len(rows) // 2, tuple(0.0 if mark else None for mark in marked))
        types = [
            "DOUBLE" if double else kind for double, kind in zip(doubled, answer.types, strict=True)
        ]
        return self._spoilt(replace(answer, types=tuple(types), rows=tuple(rows)), doubled)

    def _misread(self, case: Case) -> Case:
        """Mistakes that are made while a query is understood."""
        wrong = {
            "complement of NULL": ("(NOT (", "(NOT COALESCE(FALSE, "),
            "or is and": (" OR ", " AND "),
            "filter forgotten": (" FILTER (WHERE ", " FILTER (WHERE TRUE OR "),
            "left is inner": ("LEFT JOIN", "INNER JOIN"),
            "sample is population": ("VAR_SAMP(", "VAR_POP("),
        }
        if self.fault not in wrong:
            return case
        return _Edited(case.root, case.style, case.complete, *wrong[self.fault])

    def _spoilt(self, answer: Answer, doubled: list[bool]) -> Answer:
        """Mistakes that are made while an answer is put together."""
        rows = list(answer.rows)
        if self.fault == "row lost":
            rows = rows[:-1]
        elif self.fault == "row twice":
            rows += rows[:1]
        elif self.fault == "order":
            rows.reverse()
        elif self.fault == "last digits":
            rows = [_scaled(row, doubled, 1 + 3e-9) for row in rows]
        elif self.fault == "null is zero":
            rows = [_zeros(row, doubled) for row in rows]
        if self.fault == "types":
            return replace(answer, types=tuple(t.replace("DOUBLE", "BIGINT") for t in answer.types))
        if self.fault == "names":
            return replace(answer, names=tuple(name.upper() for name in answer.names))
        return replace(answer, rows=tuple(rows))


@dataclass(frozen=True)
class _Edited(Case):
    """A case whose text was changed on the way."""

    old: str = ""
    new: str = ""

    def printed(self) -> tuple[str, list[Any] | dict[str, Any] | None]:
        sql, parameters = super().printed()
        return sql.replace(self.old, self.new), parameters


def _scaled(row: Row, which: list[bool], factor: float) -> Row:
    changed = zip(row, which, strict=True)
    return tuple(value * factor if flag and value is not None else value for value, flag in changed)


def _zeros(row: Row, which: list[bool]) -> Row:
    return tuple(0.0 if flag and v is None else v for v, flag in zip(row, which, strict=True))
