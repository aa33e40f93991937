"""Derivatives of SQL expressions, for carrying errors through an analyst's arithmetic.

    d(a / b) = da / b  -  a db / b^2

An expression is differentiated by a column as a tree, so the derivative is SQL again and is
evaluated beside the value.  What is no smooth function (text, integer division, a window)
has no derivative, and an answer made so has no error bar.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from privsql.sql.tree import bare, columns_of, number, wrapped

FLOATS = ("DOUBLE", "FLOAT", "REAL", "DECIMAL")


class NotSmooth(Exception):
    """The expression has no derivative by this column."""


def depends(node: exp.Expression, name: str) -> bool:
    """Whether a column occurs in an expression (sub-queries are constants)."""
    return any(each.name == name for each in columns_of(node))


def derivative(node: exp.Expression, name: str) -> exp.Expression:
    """The derivative by the column ``name``, simplified where a part is 0 or 1.

    >>> from sqlglot import parse_one
    >>> derivative(parse_one("a / b"), "b").sql()
    '-(a * 1 / (b * b))'
    """
    node = bare(node)
    if not depends(node, name):
        return number(0)
    if isinstance(node, exp.Column):
        return number(1)
    rule = _RULES.get(type(node))
    if rule is None:
        raise NotSmooth
    return rule(node, name)


def is_zero(node: exp.Expression) -> bool:
    """Whether a derivative vanished."""
    return isinstance(node, exp.Literal) and node.this == "0"


def _is_one(node: exp.Expression) -> bool:
    return isinstance(node, exp.Literal) and node.this == "1"


def add(one: exp.Expression, two: exp.Expression) -> exp.Expression:
    """A sum without useless zeros."""
    if is_zero(one):
        return two
    return one if is_zero(two) else exp.Add(this=wrapped(one), expression=wrapped(two))


def multiply(one: exp.Expression, two: exp.Expression) -> exp.Expression:
    """A product without useless zeros and ones."""
    if is_zero(one) or is_zero(two):
        return number(0)
    if _is_one(one):
        return two
    return one if _is_one(two) else exp.Mul(this=wrapped(one), expression=wrapped(two))


def negate(node: exp.Expression) -> exp.Expression:
    """The negative, of zero zero."""
    return node if is_zero(node) else exp.Neg(this=wrapped(node))


def divide(one: exp.Expression, two: exp.Expression) -> exp.Expression:
    """A quotient, NULL rather than an error where the divisor is zero."""
    if is_zero(one):
        return one
    below = two if isinstance(bare(two), exp.Nullif) else exp.Nullif(this=wrapped(two), expression=number(0))
    return exp.Div(this=wrapped(one), expression=wrapped(below), typed=False, safe=False)


def _sum(node: exp.Expression, name: str) -> exp.Expression:
    right = derivative(node.expression, name)
    return add(derivative(node.this, name), right if isinstance(node, exp.Add) else negate(right))


def _product(node: exp.Expression, name: str) -> exp.Expression:
    left = multiply(derivative(node.this, name), node.expression)
    return add(left, multiply(node.this, derivative(node.expression, name)))


def _quotient(node: exp.Expression, name: str) -> exp.Expression:
    top, bottom = node.this, node.expression
    first = divide(derivative(top, name), bottom)
    below = derivative(bottom, name)
    if is_zero(below):
        return first
    square = multiply(wrapped(bottom), wrapped(bottom))
    return add(first, negate(divide(multiply(top, below), square)))


def _case(node: exp.Expression, name: str) -> exp.Expression:
    if any(depends(when.this, name) for when in node.args["ifs"]) and not _guard(node):
        raise NotSmooth
    subject = node.args.get("this")
    if subject is not None and depends(subject, name):
        raise NotSmooth
    made = node.copy()
    for when in made.args["ifs"]:
        when.set("true", derivative(when.args["true"], name))
    if made.args.get("default") is not None:
        made.set("default", derivative(made.args["default"], name))
    return made


def _guard(node: exp.Expression) -> bool:
    """``CASE WHEN <condition> THEN x END``: smooth wherever it is not NULL."""
    return len(node.args["ifs"]) == 1 and node.args.get("default") is None


def _inside(node: exp.Expression, name: str) -> exp.Expression:
    return derivative(node.this, name)


def _cast(node: exp.Expression, name: str) -> exp.Expression:
    if not node.args["to"].sql("duckdb").upper().startswith(FLOATS):
        raise NotSmooth
    return derivative(node.this, name)


def _chain(outer: Callable[[exp.Expression], exp.Expression]) -> Callable[..., exp.Expression]:
    def rule(node: exp.Expression, name: str) -> exp.Expression:
        return multiply(outer(node.this), derivative(node.this, name))

    return rule


def _power(node: exp.Expression, name: str) -> exp.Expression:
    if depends(node.expression, name):
        raise NotSmooth
    less = exp.Sub(this=wrapped(node.expression), expression=number(1))
    slope = exp.Mul(
        this=wrapped(node.expression),
        expression=exp.Pow(this=wrapped(node.this), expression=less),
    )
    return multiply(slope, derivative(node.this, name))


def _coalesce(node: exp.Expression, name: str) -> exp.Expression:
    made = exp.Case(ifs=[])
    parts = [node.this, *node.expressions]
    for part in parts[:-1]:
        known = exp.Not(this=exp.Is(this=wrapped(part), expression=exp.Null()))
        made.append("ifs", exp.If(this=known, true=derivative(part, name)))
    made.set("default", derivative(parts[-1], name))
    return made


def _nullif(node: exp.Expression, name: str) -> exp.Expression:
    if depends(node.expression, name):
        raise NotSmooth
    return derivative(node.this, name)


def _round(node: exp.Expression, name: str) -> exp.Expression:
    # Rounding is for the eye: the error is that of what was rounded.
    return derivative(node.this, name)


_RULES: dict[type[exp.Expression], Callable[[exp.Expression, str], exp.Expression]] = {
    exp.Add: _sum,
    exp.Sub: _sum,
    exp.Mul: _product,
    exp.Div: _quotient,
    exp.Neg: lambda node, name: negate(derivative(node.this, name)),
    exp.Case: _case,
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.Nullif: _nullif,
    exp.Coalesce: _coalesce,
    exp.Round: _round,
    exp.Pow: _power,
    exp.Sqrt: _chain(
        lambda x: divide(number(0.5), exp.Sqrt(this=x.copy())),
    ),
    exp.Ln: _chain(lambda x: divide(number(1), x)),
    exp.Exp: _chain(lambda x: exp.Exp(this=x.copy())),
    exp.Abs: _chain(lambda x: exp.Sign(this=x.copy())),
    exp.Greatest: lambda node, name: _inside(node, name) if _floor(node) else _refuse(),
}


def _floor(node: exp.Expression) -> bool:
    return len(node.expressions) == 1 and not list(columns_of(node.expressions[0]))


def _refuse() -> exp.Expression:
    raise NotSmooth
