"""A session without reconstruction: plain DuckDB behind the protocol of a session.

It lets the connection be tested apart from the query layer.  Columns whose names start with
"est" count as estimates, with bars of 10 to either side.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

import duckdb
import pyarrow as pa

from privsql.answer.outcome import Notice, Outcome, ResultColumn
from privsql.errors import ProgrammingError

NOTHING = pa.table({})


def bars(values: list[float | None]) -> pa.Table:
    return pa.table(
        {
            "stderr": pa.array([None if v is None else 5.0 for v in values], pa.float64()),
            "low": pa.array([None if v is None else v - 10 for v in values], pa.float64()),
            "high": pa.array([None if v is None else v + 10 for v in values], pa.float64()),
            "reliable": pa.array([None if v is None else True for v in values], pa.bool_()),
        }
    )


@dataclass
class FakeSession:
    """Answers whatever DuckDB answers, and remembers how it was asked."""

    con: duckdb.DuckDBPyConnection = field(default_factory=duckdb.connect)
    asked: list[tuple[str, Any, dict[str, object]]] = field(default_factory=list)
    interrupted: threading.Event = field(default_factory=threading.Event)
    closed: bool = False
    running: int = 0
    most_at_once: int = 0

    def run(self, sql: str, parameters: Any = None, **options: object) -> Outcome:
        assert not self.closed, "the connection must not let this through"
        self.asked.append((sql, parameters, options))
        if sql == "WAIT":
            return self._wait()
        self.running += 1
        self.most_at_once = max(self.most_at_once, self.running)
        try:
            return self._answer(sql, parameters, bool(options.get("error_bars")))
        except duckdb.Error as error:
            raise ProgrammingError(type(error).__name__) from None
        finally:
            self.running -= 1

    def _wait(self) -> Outcome:
        assert self.interrupted.wait(timeout=30), "nobody interrupted"
        return Outcome("set", (), NOTHING)

    def _answer(self, sql: str, parameters: Any, error_bars: bool) -> Outcome:
        if sql.lstrip().upper().startswith("SET"):
            return Outcome("set", (), NOTHING, notices=(Notice("set", sql),))
        (statement,) = self.con.extract_statements(sql)
        done = self.con.execute(statement, parameters)
        if statement.type != duckdb.StatementType.SELECT:
            done.fetchall()
            return Outcome("set", (), NOTHING)
        columns = tuple(
            ResultColumn(name, str(kind), estimate=name.startswith("est"))
            for name, kind, *_ in done.description
        )
        rows = done.fetchall()
        lists = list(zip(*rows, strict=True)) if rows else [()] * len(columns)
        arrays = [
            pa.array(values, pa.float64() if column.estimate else None)
            for column, values in zip(columns, lists, strict=True)
        ]
        table = pa.Table.from_arrays(arrays, names=[column.name for column in columns])
        return Outcome(
            "rows",
            columns,
            table,
            bars={i: bars(list(lists[i])) for i, c in enumerate(columns) if c.estimate},
            notices=(Notice("fake", "nothing was reconstructed"),),
            estimator="inversion",
            error_bars=error_bars,
        )

    def explain(self, sql: str, parameters: Any = None, **options: object) -> str:
        return f"explained: {sql} with {parameters}"

    def expand(self, sql: str, parameters: Any = None) -> list[Any]:
        return [f"expanded: {sql} with {parameters}"]

    def statements(self, sql: str) -> list[str]:
        found = self.con.extract_statements(sql)
        return [statement.query.strip().rstrip(";") for statement in found]

    def interrupt(self) -> None:
        self.interrupted.set()

    def close(self) -> None:
        assert not self.closed, "a session is closed once"
        self.closed = True
        self.con.close()
