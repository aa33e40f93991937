"""Error bars of an analyst's expression over estimates.

    one estimate itself          its own interval
    a straight line in one       that interval, moved and stretched
    a ratio of two lines         Fieller's interval
    anything else that is smooth estimate +- z * standard error, errors by the delta method

with all covariances.  What is not smooth has no error bar: NULL, and a notice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlglot import exp

from privsql.sql.calculus import NotSmooth, add, by, depends, derivative, is_zero, multiply
from privsql.sql.writing import call, deviation, field, wald
from privsql.sql.tree import (
    bare,
    cast,
    column,
    number,
    wrapped,
)

FIELDS = ("stderr", "low", "high", "reliable")


@dataclass(frozen=True)
class Bars:
    """Expressions for an estimate's standard error, ends and reliability."""

    stderr: exp.Expression
    low: exp.Expression
    high: exp.Expression
    reliable: exp.Expression
    known: bool = True

    def field(self, name: str) -> exp.Expression:
        """One of them by name."""
        node: exp.Expression = getattr(self, name)
        return node.copy()


def none() -> Bars:
    """No error is to be had."""
    nothing = cast(exp.Null(), "DOUBLE")
    return Bars(nothing, nothing.copy(), nothing.copy(), cast(exp.Null(), "BOOLEAN"), known=False)


def exact(node: exp.Expression) -> Bars:
    """An answer without error."""
    return Bars(number(0.0), node.copy(), node.copy(), exp.Boolean(this=True))


# Columns of an estimate: its error bars by field, or None where it has none of its own.
Own = Callable[[str], Bars]
# Covariance and effective rows of estimates by their columns' names.
Covariance = Callable[[str, str], exp.Expression | None]
Effective = Callable[[str], exp.Expression]


def bars_of(
    node: exp.Expression,
    estimates: list[str],
    own: Own,
    covariance: Covariance,
    effective: Effective,
) -> Bars:
    """Error bars of an expression; ``estimates`` are the columns in it that are uncertain."""
    node = bare(node)
    used = [name for name in estimates if depends(node, name)]
    if not used:
        return exact(node)
    if isinstance(node, exp.Column):
        return own(node.name)
    try:
        slopes = {name: derivative(node, by(name)) for name in used}
        if any(_inside_query(node, name) for name in used):
            raise NotSmooth
    except NotSmooth:
        return none()
    if len(used) == 1:
        name = used[0]
        if is_zero(slopes[name]):
            return none()
        if not depends(slopes[name], name):
            return _line(node, name, slopes[name], own(name))
    total = _variance(slopes, slopes, covariance)
    if total is None:
        return none()
    spread = deviation(total)
    rows: exp.Expression = effective(used[0])
    if len(used) > 1:
        rows = exp.Least(this=rows, expressions=[effective(name) for name in used[1:]])
    ratio = _ratio(node, used, covariance)
    if ratio is not None:
        struct = call("privsql_fieller_interval", *ratio, rows, column("z"))
        low, high, good = (field(struct, part) for part in ("low", "high", "reliable"))
        return _unless_certain(node, Bars(spread, low, high, good))
    return _unless_certain(node, Bars(spread, *wald(node, spread, rows)))


def _unless_certain(node: exp.Expression, bars: Bars) -> Bars:
    """Where nothing was replaced there is no error; what variances say there is rounding."""
    fields = []
    for name, plain in zip(FIELDS, (number(0.0), node, node, exp.Boolean(this=True)), strict=True):
        sure = exp.If(this=column("certain"), true=plain.copy())
        fields.append(exp.Case(ifs=[sure], default=bars.field(name)))
    return Bars(*fields)


def _inside_query(node: exp.Expression, name: str) -> bool:
    return any(
        each.name == name
        for query in node.find_all(exp.Query)
        for each in query.find_all(exp.Column)
    )


def _line(node: exp.Expression, name: str, slope: exp.Expression, own: Bars) -> Bars:
    """A straight line in one estimate."""
    if not own.known:
        return none()
    ends = [_substituted(node, name, end) for end in (own.low, own.high)]
    up = exp.GTE(this=wrapped(slope), expression=number(0))
    first, second = (
        exp.Case(ifs=[exp.If(this=up.copy(), true=one)], default=two)
        for one, two in ((ends[0], ends[1]), (ends[1], ends[0]))
    )
    stderr = multiply(exp.Abs(this=slope.copy()), own.field("stderr"))
    return Bars(stderr, first, second, own.field("reliable"))


def _substituted(node: exp.Expression, name: str, by: exp.Expression) -> exp.Expression:
    made = node.copy()
    if isinstance(made, exp.Column):
        return by.copy()
    for each in list(made.find_all(exp.Column)):
        if each.name == name:
            each.replace(wrapped(by))
    return made


def _variance(
    left: dict[str, exp.Expression], right: dict[str, exp.Expression], covariance: Covariance
) -> exp.Expression | None:
    total: exp.Expression = number(0)
    for one, d_one in left.items():
        for two, d_two in right.items():
            if is_zero(d_one) or is_zero(d_two):
                continue
            shared = covariance(one, two)
            if shared is None:
                return None
            total = add(total, multiply(multiply(d_one, d_two), shared))
    return total


def _ratio(
    node: exp.Expression, used: list[str], covariance: Covariance
) -> list[exp.Expression] | None:
    """Numerator, denominator and their (co)variances, where both are straight lines."""
    if not isinstance(node, exp.Div) or not any(depends(node.expression, name) for name in used):
        return None
    top, bottom = node.this, node.expression
    slopes = []
    for part in (top, bottom):
        found = {name: derivative(part, by(name)) for name in used if depends(part, name)}
        if any(depends(slope, name) for slope in found.values() for name in used):
            return None
        slopes.append(found)
    parts = []
    for one, two in ((0, 0), (0, 1), (1, 1)):
        variance = _variance(slopes[one], slopes[two], covariance)
        if variance is None:
            return None
        parts.append(cast(wrapped(variance), "DOUBLE"))
    return [cast(wrapped(top), "DOUBLE"), cast(wrapped(bottom), "DOUBLE"), *parts]
