"""From the final table of a query to its outcome: typed columns and separate error bars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from privsql.answer.notices import bar_notices
from privsql.answer.outcome import Outcome, ResultColumn
from privsql.errors import Notice
from privsql.session.settings import Settings
from privsql.sql.outer.parts import Out

INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UBIGINT", "UHUGEINT")


def outcome_of(
    table: pa.Table,
    outs: Sequence[Out],
    described: Sequence[tuple[str, str]],
    settings: Settings,
) -> Outcome:
    """The columns that were asked for, and the error bars that come after them."""
    visible = table.select(list(range(len(outs))))
    names = [described[i][0] if i < len(described) else out.name for i, out in enumerate(outs)]
    columns = []
    for i, out in enumerate(outs):
        floating = pa.types.is_floating(visible.schema.field(i).type)
        whole = described[i][1]
        # An exact integer that came out as a DOUBLE went through an estimate somewhere.
        hidden = floating and not out.estimate and whole in INTEGERS
        estimate = out.estimate or hidden
        kind = "DOUBLE" if floating and estimate else whole
        columns.append(ResultColumn(names[i], kind, estimate))
    bars: dict[int, pa.Table] = {}
    notices: list[Notice] = []
    at = len(outs)
    for i, out in enumerate(outs):
        if out.estimate:
            bars[i] = _bars(visible.column(i), table.select(list(range(at, at + 4))))
            at += 4
        elif columns[i].estimate:
            bars[i] = _no_bars(table.num_rows)
            why = "it is computed from an estimate inside a sub-query or a function"
            notices.append(Notice("no-error", f"{names[i]!r} has no error bar: {why}"))
    shown = ((names[i], visible.column(i), bars[i], outs[i]) for i in bars if outs[i].estimate)
    notices += bar_notices(shown)
    estimated = bool(bars)
    method = "iterative" if settings.estimator == "iterative" else "inversion"
    return Outcome(
        "rows",
        tuple(columns),
        visible.rename_columns(names),
        bars,
        tuple(notices),
        method if estimated else "exact",
        settings.confidence_level,
        settings.error_bars,
    )


def _bars(values: pa.ChunkedArray[Any], found: pa.Table) -> pa.Table:
    """The error bars of a column; where there is no value there is nothing to be sure of."""
    names = ["stderr", "low", "high", "reliable"]
    if not values.null_count:
        return found.rename_columns(names)
    there = values.is_valid()
    reliable = found.column(3)
    # That an estimate came to nothing has to be said; that nothing was asked for has not.
    said = pc.or_kleene(there, pc.invert(reliable))
    shown = [*((there, each) for each in found.columns[:3]), (said, reliable)]
    kept = [pc.if_else(mask, each, pa.scalar(None, each.type)) for mask, each in shown]
    return pa.table(kept, names=names)


def _no_bars(rows: int) -> pa.Table:
    nothing = pa.nulls(rows, pa.float64())
    unknown = pa.nulls(rows, pa.bool_())
    return pa.table({"stderr": nothing, "low": nothing, "high": nothing, "reliable": unknown})
