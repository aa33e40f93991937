"""Rounding of estimates to the digits that matter.

    SUM(CASE WHEN <one group> THEN 1.0000001 ELSE 1 END)

says how many of that group there are in its last digits, whatever is refused.  So where answers
are refused behind a server, a block keeps of an estimate what its error leaves worth knowing:

    stderr      three significant digits                         s' = round(s, 3 digits)
    estimate, low, high, observed: multiples of a hundredth      s'/100 * round(x / (s'/100))
    covariances                                                   four significant digits

An estimate without an error keeps three digits.  (reconstruction, 8)

Weights of the analyst's own making can put one count into the tens and another into the units
(41 for one group and -39 for another), which a hundredth lets through: there it is a tenth.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from privsql.sql.bind.block import Block
from privsql.sql.expressions import call
from privsql.sql.nodes import cast, column, named, number, star_of, when, wrapped
from privsql.sql.reconstruct.columns import AGGREGATE, COVARIANCE, HIGH, LOW, OBSERVED, STDERR
from privsql.sql.scan.state_scan import half_of

DIGITS, FINER = 3, 4
PARTS, FEW_PARTS = 100.0, 10.0


def rounded(block: Block, pairs: Iterable[tuple[int, int]]) -> exp.Select:
    """SELECT of a block's table ``b`` with coarse estimates; FROM is the caller's."""
    replaced: list[exp.Expr] = []
    kinds = ("linear", "distinct")
    linear = {i for i, a in enumerate(block.aggregates) if a.kind in kinds}
    for i in sorted(linear):
        error = significant(column(STDERR(i), "block"), DIGITS)
        own = all(
            half_of(piece).indicator for k in block.aggregates[i].bases for piece in block.bases[k]
        )
        parts = PARTS if own else FEW_PARTS
        step = exp.Div(this=wrapped(error), expression=number(parts), typed=False, safe=False)
        for family in (AGGREGATE, LOW, HIGH, OBSERVED):
            value = column(family(i), "block")
            near = exp.Mul(
                this=call("round", exp.Div(this=value, expression=wrapped(step))),
                expression=wrapped(step),
            )
            # A multiple of 0.462 is printed as one: without 0.0000000000001 behind it.
            coarse = call("round", near, _places(column(STDERR(i), "block"), DIGITS + 2))
            known = exp.GT(this=column(STDERR(i), "block"), expression=number(0))
            chosen = when(known, coarse, significant(value, DIGITS))
            replaced.append(named(chosen, family(i)))
        replaced.append(named(error, STDERR(i)))
    for i, j in pairs:
        if i in linear and j in linear:
            name = COVARIANCE(i, j)
            replaced.append(named(significant(column(name, "block"), FINER), name))
    return exp.Select(expressions=[star_of("block", replaced)])


def significant(value: exp.Expr, digits: int) -> exp.Expr:
    """A number rounded to so many significant digits; 0 and NULL are what they are."""
    coarse = call("round", value, _places(value, digits))
    nothing = exp.EQ(this=value, expression=number(0))
    unknown = exp.Is(this=value, expression=exp.Null())
    return when(exp.Or(this=nothing, expression=unknown), value, coarse)


def _places(value: exp.Expr, digits: int) -> exp.Expr:
    """Places behind the point (or, below 0, before it) that so many digits of a number reach."""
    size = call("floor", call("log10", exp.Abs(this=value)))
    return cast(exp.Sub(this=number(digits - 1), expression=size), "INTEGER")
