"""Derivatives of SQL expressions, for error propagation.

    d(a / b) = da / b  -  a db / b^2

An expression is differentiated as a tree, so the derivative is SQL again and is evaluated
beside the value.  What the columns' own derivatives are is told by a function, ``slope``:
1 for the column in question, 0 for constants, another column for an intermediate result.
What is no smooth function (text, integer division, a window) has no derivative, and an answer
made so has no error bar.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce

from sqlglot import exp

from privsql.sql.expressions import nonzero, quotient
from privsql.sql.nodes import bare, columns_of, copied, given, number, wrapped

FLOATS = ("DOUBLE", "FLOAT", "REAL", "DECIMAL")

Slope = Callable[[str], exp.Expr]


class NotSmooth(Exception):  # noqa: N818 - a fact, not a fault
    """The expression has no derivative."""


def by(name: str) -> Slope:
    """Slopes of the columns when differentiating by one of them."""
    return lambda each: number(1 if each == name else 0)


def moves(node: exp.Expr, slope: Slope) -> bool:
    """Whether anything in an expression moves (sub-queries are constants)."""
    return any(not is_zero(slope(each.name)) for each in columns_of(node))


def depends(node: exp.Expr, name: str) -> bool:
    """Whether a column occurs in an expression."""
    return any(each.name == name for each in columns_of(node))


def derivative(node: exp.Expr, slope: Slope) -> exp.Expr:
    """The derivative, simplified where a part is 0 or 1.

    >>> from sqlglot import parse_one
    >>> derivative(parse_one("a / b"), by("b")).sql()
    '-(a / NULLIF((b * b), 0))'
    """
    node = bare(node)
    if not moves(node, slope):
        return number(0)
    if isinstance(node, exp.Column):
        return slope(node.name)
    rule = _RULES.get(type(node))
    if rule is None:
        raise NotSmooth
    return rule(node, slope)


def slopes_of(node: exp.Expr, names: Iterable[str]) -> dict[str, exp.Expr]:
    """Derivatives by those columns that occur in an expression."""
    return {name: derivative(node, by(name)) for name in names if depends(node, name)}


def is_zero(node: exp.Expr) -> bool:
    """Whether a derivative vanished."""
    return isinstance(node, exp.Literal) and node.this == "0"


def _is_one(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and node.this == "1"


def add(one: exp.Expr, two: exp.Expr) -> exp.Expr:
    """A sum without useless zeros."""
    if is_zero(one):
        return two
    return one if is_zero(two) else exp.Add(this=wrapped(one), expression=wrapped(two))


def added(parts: Iterable[exp.Expr]) -> exp.Expr:
    """A sum of a few parts, from the first to the last."""
    return reduce(add, parts, number(0))


def sum_of(parts: Sequence[exp.Expr]) -> exp.Expr:
    """A sum of many parts as a balanced tree: a long chain would be deeper than Python's stack."""
    if len(parts) <= 1:
        return parts[0] if parts else number(0)
    middle = len(parts) // 2
    return add(sum_of(parts[:middle]), sum_of(parts[middle:]))


def multiply(one: exp.Expr, two: exp.Expr) -> exp.Expr:
    """A product without useless zeros and ones."""
    if is_zero(one) or is_zero(two):
        return number(0)
    if _is_one(one):
        return two
    return one if _is_one(two) else exp.Mul(this=wrapped(one), expression=wrapped(two))


def negate(node: exp.Expr) -> exp.Expr:
    """The negative, of zero zero."""
    return node if is_zero(node) else exp.Neg(this=wrapped(node))


def divide(one: exp.Expr, two: exp.Expr) -> exp.Expr:
    """A quotient, NULL rather than an error where the divisor is zero."""
    if is_zero(one):
        return one
    below = bare(two)
    if not isinstance(below, exp.Nullif):
        below = nonzero(wrapped(below))
    return quotient(one, copied(below))


def size_of(node: exp.Expr) -> exp.Expr:
    """How large an expression would be if nothing in it cancelled: sums of absolute values.

    >>> from sqlglot import parse_one
    >>> size_of(parse_one("a - (b - 2 * c)")).sql()
    'ABS(a) + (ABS(b) + (2 * ABS(c)))'
    """
    node = bare(node)
    if isinstance(node, exp.Literal):
        return node
    if isinstance(node, exp.Neg):
        return size_of(node.this)
    if isinstance(node, exp.Add | exp.Sub):
        return add(size_of(node.this), size_of(node.expression))
    if isinstance(node, exp.Mul):
        return multiply(size_of(node.this), size_of(node.expression))
    return exp.Abs(this=node)


def _sum(node: exp.Expr, slope: Slope) -> exp.Expr:
    right = derivative(node.expression, slope)
    return add(derivative(node.this, slope), right if isinstance(node, exp.Add) else negate(right))


def _product(node: exp.Expr, slope: Slope) -> exp.Expr:
    left = multiply(derivative(node.this, slope), node.expression)
    return add(left, multiply(node.this, derivative(node.expression, slope)))


def _quotient(node: exp.Expr, slope: Slope) -> exp.Expr:
    top, bottom = node.this, node.expression
    first = divide(derivative(top, slope), bottom)
    below = derivative(bottom, slope)
    if is_zero(below):
        return first
    square = exp.Mul(this=wrapped(bottom), expression=wrapped(bottom))
    return add(first, negate(divide(multiply(top, below), square)))


def _case(node: exp.Expr, slope: Slope) -> exp.Expr:
    # CASE WHEN <condition> THEN x END is smooth wherever it is not NULL.
    guard = len(node.args["ifs"]) == 1 and node.args.get("default") is None
    if any(moves(when.this, slope) for when in node.args["ifs"]) and not guard:
        raise NotSmooth
    subject = node.args.get("this")
    if subject is not None and moves(subject, slope):
        raise NotSmooth
    made = copied(node)
    for when in made.args["ifs"]:
        when.set("true", derivative(when.args["true"], slope))
    if made.args.get("default") is not None:
        made.set("default", derivative(made.args["default"], slope))
    return made


def _cast(node: exp.Expr, slope: Slope) -> exp.Expr:
    if not node.args["to"].sql("duckdb").upper().startswith(FLOATS):
        raise NotSmooth
    return derivative(node.this, slope)


def _chain(outer: Callable[[exp.Expr], exp.Expr]) -> Callable[..., exp.Expr]:
    def rule(node: exp.Expr, slope: Slope) -> exp.Expr:
        return multiply(outer(node.this), derivative(node.this, slope))

    return rule


def _power(node: exp.Expr, slope: Slope) -> exp.Expr:
    if moves(node.expression, slope):
        raise NotSmooth
    less = exp.Sub(this=wrapped(node.expression), expression=number(1))
    steep = exp.Mul(
        this=wrapped(node.expression),
        expression=exp.Pow(this=wrapped(node.this), expression=less),
    )
    return multiply(steep, derivative(node.this, slope))


def _coalesce(node: exp.Expr, slope: Slope) -> exp.Expr:
    made = exp.Case(ifs=[])
    parts = [node.this, *node.expressions]
    for part in parts[:-1]:
        made.append("ifs", exp.If(this=given(part), true=derivative(part, slope)))
    made.set("default", derivative(parts[-1], slope))
    return made


def _first(node: exp.Expr, slope: Slope) -> exp.Expr:
    """``nullif(x, constant)``, or ``greatest`` as in a floor at zero: the slope of x."""
    others = [node.expression] if isinstance(node, exp.Nullif) else node.expressions
    if len(others) != 1 or moves(others[0], slope):
        raise NotSmooth
    return derivative(node.this, slope)


_RULES: dict[type[exp.Expr], Callable[[exp.Expr, Slope], exp.Expr]] = {
    exp.Add: _sum,
    exp.Sub: _sum,
    exp.Mul: _product,
    exp.Div: _quotient,
    exp.Neg: lambda node, slope: negate(derivative(node.this, slope)),
    exp.Case: _case,
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.Nullif: _first,
    exp.Coalesce: _coalesce,
    # Rounding is for the eye: the error is that of what was rounded.
    exp.Round: lambda node, slope: derivative(node.this, slope),
    exp.Pow: _power,
    exp.Sqrt: _chain(lambda x: divide(number(0.5), exp.Sqrt(this=copied(x)))),
    exp.Ln: _chain(lambda x: divide(number(1), x)),
    exp.Exp: _chain(lambda x: exp.Exp(this=copied(x))),
    exp.Abs: _chain(lambda x: exp.Sign(this=copied(x))),
    exp.Greatest: _first,
}
