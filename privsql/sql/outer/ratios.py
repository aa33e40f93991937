"""Ratios of estimates, NULL where the denominator is not distinguishable from zero.

A denominator D *cannot be distinguished from zero* where its interval at the session's level
contains zero,

    D^2 <= z^2 Var(D),

or where too few rows stand behind it for that interval to mean anything.  A quotient by it would
be any number at all, so it is NULL: in the SQL itself, so that conditions, orders and queries
around see NULL as well.  What is known for certain (rows that nothing sensitive tells apart, a
release in which nothing was replaced) divides as it always did, by zero too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from privsql.sql.expressions import ENOUGH_ROWS, KNOWN_ROWS, or_false, positive
from privsql.sql.nodes import bare, column, copied, number, outermost, sql, when, wrapped
from privsql.sql.outer.calculus import depends
from privsql.sql.reconstruct.columns import CRITICAL

QUOTIENTS = (exp.Div, exp.IntDiv)

# How many half-widths of its interval a reliable ratio's denominator is away from zero, as for
# Fieller's interval (udfs.intervals).
AWAY = 2**0.5

# The condition that a denominator cannot be distinguished from zero, None where it always can.
Doubt = Callable[[exp.Expr], exp.Expr | None]


def doubtful(value: exp.Expr, variance: exp.Expr, rows: exp.Expr) -> exp.Expr:
    """Whether an estimate, which is not known, cannot be distinguished from zero."""
    z = exp.Mul(this=column(CRITICAL), expression=column(CRITICAL))
    away = _farther(exp.GT, value, exp.Paren(this=z), variance)
    few = exp.LT(this=wrapped(rows), expression=number(ENOUGH_ROWS))
    unknown = exp.LT(this=wrapped(rows), expression=number(KNOWN_ROWS))
    either = exp.Or(this=few, expression=exp.Not(this=or_false(away)))
    return exp.And(this=unknown, expression=exp.Paren(this=either))


def _farther(
    than: type[exp.Binary], value: exp.Expr, scale: exp.Expr, variance: exp.Expr
) -> exp.Expr:
    """Whether the square of a value is above a multiple of its variance, which is positive."""
    square = exp.Mul(this=wrapped(value), expression=wrapped(value))
    bound = exp.Mul(this=scale, expression=wrapped(variance))
    return exp.And(this=positive(variance), expression=than(this=square, expression=bound))


def clear(value: exp.Expr, variance: exp.Expr, rows: exp.Expr, linear: bool = True) -> exp.Expr:
    """Whether a denominator is known, or as far from zero as a reliable ratio asks.

    One that is a ratio itself is skewed, and must be twice as far away.
    """
    times = AWAY if linear else 2 * AWAY
    half = exp.Paren(this=exp.Mul(this=number(times), expression=column(CRITICAL)))
    far = _farther(exp.GTE, value, exp.Mul(this=half, expression=half), variance)
    known = exp.GTE(this=wrapped(rows), expression=number(KNOWN_ROWS))
    return or_false(exp.Or(this=known, expression=exp.Paren(this=far)))


def unless(doubt: exp.Expr, value: exp.Expr) -> exp.Expr:
    """The value, NULL where there is a doubt."""
    return when(doubt, exp.Null(), value)


def divisors(node: exp.Expr, uncertain: Sequence[str]) -> list[exp.Expr]:
    """What an expression divides by that is uncertain, each once; NULLIF(d, 0) is d."""
    found: dict[str, exp.Expr] = {}
    for quotient in quotients(node):
        below = divisor(quotient)
        if any(depends(below, name) for name in uncertain):
            found.setdefault(sql(below), below)
    return list(found.values())


def divisor(quotient: exp.Expr) -> exp.Expr:
    """The denominator without parentheses and without its guard against zero."""
    below = bare(quotient.args["expression"])
    if isinstance(below, exp.Nullif) and isinstance(bare(below.expression), exp.Literal):
        below = bare(below.this)
    return below


def divides_by(query: exp.Expr) -> bool:
    """Whether a sub-query stands in a denominator."""
    node = query
    while node.parent is not None and not isinstance(node.parent, exp.Query):
        if isinstance(node.parent, QUOTIENTS) and node.arg_key == "expression":
            return True
        node = node.parent
    return False


def guard(node: exp.Expr, doubt: Doubt) -> None:
    """Make every denominator in an expression NULL where it cannot be distinguished from zero."""
    # Inner quotients come last, so that a denominator is judged as it was written.
    for quotient in quotients(node):
        condition = doubt(quotient)
        if condition is not None:
            old = quotient.args["expression"]
            quotient.set("expression", exp.Paren(this=unless(condition, copied(bare(old)))))


def quotients(node: exp.Expr) -> list[exp.Expr]:
    """Quotients in an expression, outer ones first."""
    found: list[exp.Expr] = []
    for quotient in outermost(node, lambda n: isinstance(n, QUOTIENTS)):
        found.append(quotient)
        for side in ("this", "expression"):
            found += quotients(quotient.args[side])
    return found
