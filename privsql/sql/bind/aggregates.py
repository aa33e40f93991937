"""Decomposition of SQL aggregates into sums that can be reconstructed, and a formula.

    COUNT(x)     n                            SUM(x)   s, NULL where n = 0
    AVG(x)       s / n                        VAR_POP  q/n - (s/n)^2 + Var(s/n)
    COVAR_POP    r/n - (s/n)(u/n) + Cov       CORR     covariance over root of variances

with n, s, q, r sums over rows of 1, x, x^2, x*y, each a *base*.  The square of an estimate is
too large by its variance, which is taken off again (debiased).  The formula for the value
and the smooth one through which errors are propagated are kept apart: the correction is
treated as a constant there.  (reconstruction, 3)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlglot import exp

from privsql.sql.bind.pieces import Branch, Piece, Separator, counting, pieces_of, times, within
from privsql.sql.nodes import Unsupported, column, copied, every, name_of, number, when, wrapped

# Names of DuckDB that mean the same.
SAME = {
    "count_star": "count",
    "mean": "avg",
    "favg": "avg",
    "fsum": "sum",
    "kahan_sum": "sum",
    "sumkahan": "sum",
    "sum_no_overflow": "sum",
    "variance": "var_samp",
    "stddev": "stddev_samp",
    "countif": "count_if",
    "quantile": "quantile_disc",
    "percentile_cont": "quantile_cont",
    "percentile_disc": "quantile_disc",
}
LINEAR = ("count", "count_if", "sum", "avg")
SPREADS = ("var_samp", "var_pop", "stddev_samp", "stddev_pop", "covar_samp", "covar_pop", "corr")
QUANTILES = ("quantile_cont", "quantile_disc")
ORDERED = ("median", *QUANTILES)

Base = tuple[Piece, ...]


@dataclass(frozen=True)
class Call:
    """An aggregate as it was written: its name, arguments, FILTER and DISTINCT."""

    name: str
    arguments: tuple[exp.Expr, ...]
    filter: exp.Expr | None
    distinct: bool
    node: exp.Expr


def read_call(node: exp.Expr) -> Call:
    """Take an aggregate apart."""
    condition = None
    inner = node
    if isinstance(inner, exp.Filter):
        condition = inner.expression.this
        inner = inner.this
    within_group = isinstance(inner, exp.WithinGroup)
    name = _name(inner.this if within_group else inner)
    order = inner.args.get("expression")
    if isinstance(order, exp.Order) and (within_group or name in QUANTILES):
        key = order.expressions[0]
        if key.args.get("desc"):
            raise Unsupported("a quantile in descending order", hint="ask for 1 - q instead")
        pair = (key.this, inner.this.this) if within_group else (inner.this, order.this)
        return Call(name, pair, condition, False, node)
    # Whatever sqlglot calls an argument (MAX(x, n) has a "count"), none may be overlooked.
    found = list(inner.iter_expressions())
    distinct = bool(found) and isinstance(found[0], exp.Distinct)
    if distinct:
        found[:1] = found[0].expressions
    if found and isinstance(found[0], exp.Order):  # SUM(x ORDER BY y): the order is void
        found[0] = found[0].this
    return Call(name, tuple(found), condition, distinct, node)


def _name(node: exp.Expr) -> str:
    name = name_of(node)
    return SAME.get(name, name)


def bases(call: Call, separator: Separator, where: list[Branch]) -> list[Base]:
    """The sums behind an aggregate, in the order that its formula names them."""
    if _of_public_rows(call, separator, where) and (
        call.distinct or call.name not in (*LINEAR, *SPREADS)
    ):
        raise sampled(call)
    if call.distinct:
        raise Unsupported(
            f"{call.name.upper()}(DISTINCT ...) with a sensitive column or condition",
            hint="distinct values cannot be counted among perturbed ones; GROUP BY the column"
            " instead",
        )
    rows = rows_of(call, separator, where)
    if call.name == "count_if":
        known = within(separator.value(call.arguments[0]), rows)
        return [counting(within(rows, separator.condition(call.arguments[0]))), counting(known)]
    if call.name == "count":
        if not call.arguments or isinstance(call.arguments[0], exp.Star):
            return [counting(rows)]
        if len(call.arguments) != 1:
            raise Unsupported("COUNT of several columns", hint="count one column, or *")
        return [counting(within(separator.value(call.arguments[0]), rows))]
    x = within(separator.value(call.arguments[0]), rows)
    if call.name in ("sum", "avg"):
        return [pieces_of(x), counting(x)]
    if call.name.startswith(("var_", "stddev_")):
        # Branches exclude each other: the products of two of them are nothing.
        return [pieces_of(_squares(x)), pieces_of(x), counting(x)]
    if call.name in ("covar_samp", "covar_pop", "corr"):
        return _pairwise_bases(call.name, x, within(separator.value(call.arguments[1]), rows))
    raise Unsupported(
        f"{call.name.upper()} over a sensitive column or under a sensitive condition",
        hint="COUNT, SUM, AVG, VAR, STDDEV, COVAR, CORR, MEDIAN, QUANTILE and MODE are answered",
    )


def _pairwise_bases(name: str, x: list[Branch], y: list[Branch]) -> list[Base]:
    both = times(x, y)
    # Only rows in which neither is NULL count, so x and y are cut to those.
    xs = [a & b for a in x for b in y]
    ys = [b & a for a in x for b in y]
    found = [pieces_of(both), pieces_of(xs), pieces_of(ys), counting(both)]
    if name == "corr":
        found += [pieces_of(_squares(xs)), pieces_of(_squares(ys))]
    return found


def rows_of(call: Call, separator: Separator, where: list[Branch]) -> list[Branch]:
    """The rows that WHERE and FILTER leave to an aggregate."""
    return where if call.filter is None else within(where, separator.condition(call.filter))


def _of_public_rows(call: Call, separator: Separator, where: list[Branch]) -> bool:
    """Whether nothing sensitive is in it: estimated only because rows were sampled."""
    parts = (*call.arguments, *filter(None, [call.filter]))
    return all(map(separator.is_public, parts)) and not any(branch.truths for branch in where)


def sampled(call: Call) -> Unsupported:
    """Refuse aggregates that sampled rows cannot give; sums use their weights instead."""
    name = f"{call.name.upper()}({'DISTINCT ' if call.distinct else ''}...)"
    return Unsupported(
        f"{name} where rows are estimated: this release keeps a sample of them, or the query"
        " groups by a sensitive column",
        hint="COUNT, SUM, AVG, VAR, STDDEV, COVAR and CORR are estimated from their weights",
    )


def _squares(branches: list[Branch]) -> list[Branch]:
    return [times([branch], [branch])[0] for branch in branches]


def counted(name: str) -> int | None:
    """Which base of an aggregate is the number of rows that it divides by, if any is."""
    if name == "avg":
        return 1
    if name in SPREADS:
        return 2 if name.startswith(("var", "stddev")) else 3
    return None


Cell = Callable[[int], exp.Expr]
Pair = Callable[[int, int], exp.Expr]


@dataclass(frozen=True)
class Formula:
    """An aggregate over its bases.

    ``levels`` are intermediate results by name, each level over bases and earlier levels;
    ``value`` is the aggregate, ``smooth`` the form whose derivatives carry its error.
    """

    value: exp.Expr
    smooth: exp.Expr
    levels: tuple[dict[str, exp.Expr], ...] = ()


def formula(name: str, b: Cell, v: Pair, prefix: str) -> Formula:
    """The formula of an aggregate; ``b(i)`` is its i-th base, ``v(i, j)`` their covariance.

    Intermediate results are called ``<prefix>_...``.
    """
    if name in ("count", "count_if"):
        # DuckDB's COUNT_IF of nothing is NULL, as it is a sum.
        return Formula(b(0) if name == "count" else unless_zero(b(1), b(0)), b(0))
    if name == "sum":
        return Formula(unless_zero(b(1), b(0)), b(0))
    if name == "avg":
        return Formula(_over(b(0), b(1)), _over(b(0), b(1)))
    if name in ("covar_pop", "covar_samp", "corr"):
        return _pairwise(name, b, v, prefix)
    n = b(2)
    mean, plain = column(f"{prefix}_m"), column(f"{prefix}_w")
    levels = (
        {mean.name: _over(b(1), n)},
        {plain.name: _minus_square(_over(b(0), n), mean, mean)},
    )
    extra = _covariance(mean, mean, n, v(1, 1), v(1, 2), v(1, 2), v(2, 2))
    value: exp.Expr = _positive(exp.Add(this=plain, expression=extra), _over(b(0), n))
    smooth: exp.Expr = plain
    if name.endswith("samp"):
        value, smooth = _bessel(value, n), _bessel(smooth, n)
    if name.startswith("stddev"):
        value = exp.Sqrt(this=value)
        smooth = _where_above(exp.Sqrt(this=smooth), (plain, _over(b(0), n)))
    return Formula(value, smooth, levels)


def _pairwise(name: str, b: Cell, v: Pair, prefix: str) -> Formula:
    n = b(3)
    x, y = column(f"{prefix}_x"), column(f"{prefix}_y")
    both, xx, yy = (column(f"{prefix}_{part}") for part in ("c", "xx", "yy"))
    means = {x.name: _over(b(1), n), y.name: _over(b(2), n)}
    spreads = {both.name: _minus_square(_over(b(0), n), x, y)}
    if name == "corr":
        spreads[xx.name] = _minus_square(_over(b(4), n), x, x)
        spreads[yy.name] = _minus_square(_over(b(5), n), y, y)
    extra = _covariance(x, y, n, v(1, 2), v(1, 3), v(2, 3), v(3, 3))
    value, smooth = _paren(exp.Add(this=both, expression=extra)), both
    if name == "covar_samp":
        return Formula(_bessel(value, n), _bessel(smooth, n), (means, spreads))
    if name == "covar_pop":
        return Formula(unless_zero(n, value), smooth, (means, spreads))
    honest = [
        _positive(
            exp.Add(this=part, expression=_covariance(m, m, n, v(i, i), v(i, 3), v(i, 3), v(3, 3))),
            _over(b(square), n),
        )
        for part, m, i, square in ((xx, x, 1, 4), (yy, y, 2, 5))
    ]
    root = _over(smooth, exp.Sqrt(this=exp.Mul(this=xx, expression=yy)))
    return Formula(
        _over(value, exp.Sqrt(this=exp.Mul(this=honest[0], expression=honest[1]))),
        _where_above(root, (xx, _over(b(4), n)), (yy, _over(b(5), n))),
        (means, spreads),
    )


def _product(one: exp.Expr, two: exp.Expr) -> exp.Expr:
    return _paren(exp.Mul(this=copied(one), expression=copied(two)))


def _minus_square(mean: exp.Expr, one: exp.Expr, two: exp.Expr) -> exp.Expr:
    return exp.Sub(this=mean, expression=_product(one, two))


def _covariance(
    m: exp.Expr,
    k: exp.Expr,
    n: exp.Expr,
    su: exp.Expr,
    sn: exp.Expr,
    un: exp.Expr,
    nn: exp.Expr,
) -> exp.Expr:
    """``Cov(s/n, u/n) = (Cov(s,u) - m Cov(u,n) - k Cov(s,n) + m k Var n) / n^2``.

    with m = s/n and k = u/n.
    """
    inner = _paren(exp.Sub(this=su, expression=_product(m, un)))
    inner = _paren(exp.Sub(this=inner, expression=_product(k, sn)))
    inner = _paren(exp.Add(this=inner, expression=_product(_product(m, k), nn)))
    return _over(inner, _product(n, n))


def _paren(node: exp.Expr) -> exp.Expr:
    return exp.Paren(this=node)


def _over(top: exp.Expr, bottom: exp.Expr) -> exp.Expr:
    below = exp.Nullif(this=wrapped(bottom), expression=number(0))
    return _paren(exp.Div(this=wrapped(top), expression=below, typed=False, safe=False))


def unless_zero(n: exp.Expr, value: exp.Expr) -> exp.Expr:
    """NULL where nothing was counted, as SQL's SUM of nothing."""
    return when(exp.NEQ(this=copied(n), expression=number(0)), copied(value))


def _rounding(scale: exp.Expr) -> exp.Expr:
    """What may be left of nothing where squares of this size were subtracted."""
    return exp.Mul(this=number(1e-12), expression=exp.Abs(this=copied(scale)))


def _positive(node: exp.Expr, scale: exp.Expr) -> exp.Expr:
    """NULL where an estimate of a spread came out below zero; what is rounding is zero."""
    above = exp.GT(this=wrapped(node), expression=_rounding(scale))
    near = exp.GTE(this=wrapped(node), expression=exp.Neg(this=exp.Paren(this=_rounding(scale))))
    return exp.Case(
        ifs=[exp.If(this=above, true=wrapped(node)), exp.If(this=near, true=number(0.0))]
    )


def _where_above(node: exp.Expr, *spreads: tuple[exp.Expr, exp.Expr]) -> exp.Expr:
    """NULL unless all spreads are above zero: a root has no slope there, and no error."""
    above = [exp.GT(this=copied(spread), expression=_rounding(scale)) for spread, scale in spreads]
    return when(every(above), node)


def _bessel(node: exp.Expr, n: exp.Expr) -> exp.Expr:
    """``node * n / (n - 1)``, NULL up to one row."""
    share = _over(copied(n), _paren(exp.Sub(this=copied(n), expression=number(1))))
    more = exp.GT(this=copied(n), expression=number(1))
    return when(more, exp.Mul(this=wrapped(node), expression=share))
