"""Quantiles as SQL: positions in the order of values, and the values at them.

``privsql_quantile`` tells between which two positions a quantile lies, and at which its interval
ends; what lies between two values depends on their type.
"""

from __future__ import annotations

from enum import Enum

import pyarrow as pa
from sqlglot import exp

from privsql.sql.bind.block import Quantile
from privsql.sql.expressions import call, field, null
from privsql.sql.nodes import Unsupported, cast, column, copied, named, number, sql, wrapped
from privsql.sql.plan.states import States
from privsql.sql.reconstruct import columns


class Scale(Enum):
    """What can lie between two values, with the type in which it is worked out."""

    NUMBER = "DOUBLE"
    TIME = "TIMESTAMP"
    ORDER = ""  # nothing: one of the two is taken


def located(i: int, aggregate: Quantile, states: States) -> exp.Expr:
    """The positions of quantile i (udfs.quantile)."""
    kind = "disc" if scale_of(aggregate, states) is Scale.ORDER else "cont"
    fraction = cast(wrapped(aggregate.fraction), "DOUBLE")
    tally, z = column(columns.TALLY(i)), column(columns.CRITICAL)
    return call("privsql_quantile", tally, fraction, exp.Literal.string(kind), z)


def looked_up(i: int, aggregate: Quantile, states: States) -> list[exp.Expr]:
    """The quantile's value and the values at the ends of its interval, of one type."""
    scale = scale_of(aggregate, states)

    def value(part: str) -> exp.Expr:
        at = exp.Add(this=field(column(columns.POSITION(i)), part), expression=number(1))
        found = call("list_extract", column(columns.ORDERED(i)), at)
        return found if scale is Scale.ORDER else cast(found, scale.value)

    lower, upper = value("lower"), value("upper")
    fraction = field(column(columns.POSITION(i)), "fraction")
    middle = lower
    if scale is Scale.TIME:
        micros = [call("epoch_us", node) for node in (lower, upper)]
        gap = exp.Paren(this=exp.Sub(this=micros[1], expression=copied(micros[0])))
        steps = cast(exp.Round(this=exp.Mul(this=gap, expression=fraction)), "BIGINT")
        middle = call("make_timestamp", exp.Add(this=copied(micros[0]), expression=steps))
    elif scale is Scale.NUMBER:
        rest = exp.Paren(this=exp.Sub(this=number(1.0), expression=copied(fraction)))
        below = exp.Mul(this=lower, expression=rest)
        middle = exp.Add(this=below, expression=exp.Mul(this=upper, expression=fraction))
    made = {
        columns.AGGREGATE: middle,
        columns.LOW: value("low"),
        columns.HIGH: value("high"),
        columns.RELIABLE: field(column(columns.POSITION(i)), "reliable"),
    }
    made |= dict.fromkeys((columns.STDERR, columns.EFFECTIVE, columns.OBSERVED), null("DOUBLE"))
    return [named(node, family(i)) for family, node in made.items()]


def scale_of(aggregate: Quantile, states: States) -> Scale:
    """What lies between two values of a quantile: the type of an expression over one column.

    As in DuckDB the median of words or truths is one of them, the lower of two.
    """
    if aggregate.call.name == "quantile_disc":
        return Scale.ORDER
    written = states.written[sql(aggregate.ordered)]
    for axis in states.axes:
        if isinstance(written, exp.Column) and written.name in axis.cells.column_names:
            return _scale(axis.cells.column(written.name).type, aggregate.call.name)
    return Scale.NUMBER


def _scale(kind: pa.DataType, name: str) -> Scale:
    numeric = pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_null
    if any(test(kind) for test in numeric):
        return Scale.NUMBER
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return Scale.TIME
    if pa.types.is_temporal(kind):
        raise Unsupported(
            f"{name.upper()} of times of day or intervals",
            hint="QUANTILE_DISC takes one of the values, without a middle between two",
        )
    return Scale.ORDER
