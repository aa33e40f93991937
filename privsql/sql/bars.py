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
from privsql.sql.tree import bare, cast, column, columns_of, number, wrapped
from privsql.sql.writing import call, deviation, field, wald

FIELDS = ("stderr", "low", "high", "reliable")


@dataclass(frozen=True)
class Bars:
    """Expressions for an estimate's standard error, ends and reliability."""

    stderr: exp.Expr
    low: exp.Expr
    high: exp.Expr
    reliable: exp.Expr
    known: bool = True

    def field(self, name: str) -> exp.Expr:
        """One of them by name."""
        node: exp.Expr = getattr(self, name)
        return node.copy()


def none() -> Bars:
    """No error is to be had."""
    nothing = cast(exp.Null(), "DOUBLE")
    return Bars(nothing, nothing.copy(), nothing.copy(), cast(exp.Null(), "BOOLEAN"), known=False)


def exact(node: exp.Expr) -> Bars:
    """An answer without error."""
    return Bars(number(0.0), node.copy(), node.copy(), exp.Boolean(this=True))


# Columns of an estimate: its error bars by field, or None where it has none of its own.
Own = Callable[[str], Bars]
# Covariance and effective rows of estimates by their columns' names.
Covariance = Callable[[str, str], exp.Expr | None]
Effective = Callable[[str], exp.Expr]


def bars_of(
    node: exp.Expr,
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
    finite = _finite(node)
    if finite is not None:
        spread = exp.Case(ifs=[exp.If(this=finite, true=spread)])
    rows: exp.Expr = effective(used[0])
    if len(used) > 1:
        rows = exp.Least(this=rows, expressions=[effective(name) for name in used[1:]])
    ratio = _ratio(node, used, covariance)
    if ratio is not None:
        struct = call("privsql_fieller_interval", *ratio, rows, column("z"))
        low, high, good = (field(struct, part) for part in ("low", "high", "reliable"))
        return unless_certain(node, Bars(spread, low, high, good))
    return unless_certain(node, Bars(spread, *wald(node, spread, rows)))


def unless_certain(node: exp.Expr, bars: Bars) -> Bars:
    """Where nothing was replaced there is no error; what variances say there is rounding."""
    fields = []
    finite = _finite(node)
    for name, plain in zip(FIELDS, (number(0.0), node, node, exp.Boolean(this=True)), strict=True):
        known: exp.Expr = column("certain")
        if finite is not None:
            known = exp.And(this=known, expression=finite)
        sure = exp.If(this=known, true=plain.copy())
        fields.append(exp.Case(ifs=[sure], default=bars.field(name)))
    return Bars(fields[0], fields[1], fields[2], fields[3])


# Functions that leave the finite numbers: over zero, of what is below it, of what is large.
_UNBOUNDED = (exp.Div, exp.Ln, exp.Sqrt, exp.Exp, exp.Pow)


def _finite(node: exp.Expr) -> exp.Expr | None:
    """The condition that an expression is a number with an error, where it may be none."""
    if node.find(*_UNBOUNDED) is None:
        return None
    return call("isfinite", cast(wrapped(node), "DOUBLE"))


def _line(node: exp.Expr, name: str, slope: exp.Expr, own: Bars) -> Bars:
    """A straight line in one estimate."""
    if not own.known:
        return none()
    ends = [_substituted(node, name, end) for end in (own.low, own.high)]
    # A slope that is none (over zero) leaves no ends.
    up = exp.GTE(this=wrapped(slope), expression=number(0))
    down = exp.LT(this=wrapped(slope), expression=number(0))
    first, second = (
        exp.Case(ifs=[exp.If(this=up.copy(), true=one), exp.If(this=down.copy(), true=two)])
        for one, two in ((ends[0], ends[1]), (ends[1], ends[0]))
    )
    stderr = multiply(exp.Abs(this=slope.copy()), own.field("stderr"))
    good, finite = own.field("reliable"), _finite(node)
    if finite is not None:
        good = exp.And(this=wrapped(good), expression=finite)
    return Bars(stderr, first, second, good)


def variance_of(node: exp.Expr, estimates: list[str], covariance: Covariance) -> exp.Expr | None:
    """Variance of an expression by the delta method, or None where there is none."""
    try:
        slopes = {name: derivative(node, by(name)) for name in estimates if depends(node, name)}
    except NotSmooth:
        return None
    return _variance(slopes, slopes, covariance)


def _substituted(node: exp.Expr, name: str, by: exp.Expr) -> exp.Expr:
    made = node.copy()
    if isinstance(made, exp.Column):
        return by.copy()
    holder = exp.Paren(this=made)
    for each in list(columns_of(holder)):
        if each.name == name:
            each.replace(wrapped(by.copy()))
    inner: exp.Expr = holder.this
    return inner


def _variance(
    left: dict[str, exp.Expr], right: dict[str, exp.Expr], covariance: Covariance
) -> exp.Expr | None:
    total: exp.Expr = number(0)
    for one, d_one in left.items():
        for two, d_two in right.items():
            if is_zero(d_one) or is_zero(d_two):
                continue
            shared = covariance(one, two)
            if shared is None:
                return None
            total = add(total, multiply(multiply(d_one, d_two), shared))
    return total


def _ratio(node: exp.Expr, used: list[str], covariance: Covariance) -> list[exp.Expr] | None:
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
