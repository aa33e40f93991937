"""Error bars of an analyst's expression over estimates.

    one estimate itself          its own interval
    a straight line in one       that interval, moved and stretched
    a ratio of two lines         Fieller's interval
    anything else that is smooth estimate +- z * standard error, errors by the delta method

with all covariances.  What is not smooth has no error bar: NULL, and a notice.

The variance by the delta method is a sum of terms ``d_k d_l v_kl``.  Where the terms cancel to
rounding, or all that varies has a slope of zero, the answer is the same whatever the data, and
its error is zero: a share that is always 1, nothing over something.  An estimated variance that
is not above zero otherwise says nothing, and the error is NULL.  (reconstruction, 3)

Where a denominator cannot be distinguished from zero there is no value (``ratios``), and no error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from sqlglot import exp

from privsql.sql.expressions import (
    KNOWN_ROWS,
    any_of,
    call,
    deviation,
    field,
    least,
    null,
    or_false,
    positive,
    wald,
    with_columns,
)
from privsql.sql.nodes import (
    bare,
    cast,
    column,
    columns_of,
    copied,
    every,
    given,
    number,
    when,
    wrapped,
)
from privsql.sql.outer.calculus import (
    NotSmooth,
    add,
    depends,
    is_zero,
    multiply,
    size_of,
    slopes_of,
)
from privsql.sql.outer.ratios import clear, divisor, divisors, doubtful
from privsql.sql.reconstruct.columns import (
    CERTAIN,
    CRITICAL,
    TOTAL,
    covariance_of,
    effective_of,
    size_of_total,
)

FIELDS = ("stderr", "low", "high", "reliable")

# What is left of terms that cancel, as a share of what was added up (udfs.intervals).
ROUNDING = 1e-12


@dataclass(frozen=True)
class Bars:
    """Expressions for an estimate's standard error, ends and reliability."""

    stderr: exp.Expr
    low: exp.Expr
    high: exp.Expr
    reliable: exp.Expr
    why: str = ""  # no error is to be had
    # What several of them are made of, by the name of the column that stands for it.
    shared: tuple[tuple[str, exp.Expr], ...] = ()

    @property
    def known(self) -> bool:
        """Whether an error is available at all."""
        return not self.why

    def own(self, name: str) -> exp.Expr:
        """One of them by name; whoever changes it copies it first."""
        node: exp.Expr = getattr(self, name)
        return node

    def field(self, name: str) -> exp.Expr:
        """A copy of one of them by name."""
        return copied(self.own(name))

    def written(self, name: str) -> exp.Expr:
        """One of them by name, with what they share written out."""
        return realised(self.own(name), dict(self.shared))


def realised(node: exp.Expr, made: Mapping[str, exp.Expr]) -> exp.Expr:
    """An expression in which some columns are written out."""

    def written(each: exp.Column) -> exp.Expr:
        known = None if each.table else made.get(each.name)
        return each if known is None else exp.Paren(this=copied(known))

    return with_columns(node, written)


NOT_SMOOTH = "it is not a smooth function of its estimates"
NOT_AT_HAND = "the covariance of its estimates is not known"
NO_ERROR = "a median, a quantile or a mode has no standard error to work with"


def none(why: str = NOT_AT_HAND) -> Bars:
    """No error is available."""
    return Bars(null("DOUBLE"), null("DOUBLE"), null("DOUBLE"), null("BOOLEAN"), why)


def exact(node: exp.Expr) -> Bars:
    """An answer without error."""
    return Bars(number(0.0), copied(node), copied(node), exp.Boolean(this=True))


# Columns of an estimate: its error bars by field, or None where it has none of its own.
Own = Callable[[str], Bars]
# Covariance and effective rows of estimates by their columns' names.
Covariance = Callable[[str, str], exp.Expr | None]
Effective = Callable[[str], exp.Expr]


@dataclass(frozen=True)
class Known:
    """What is known about the estimates that an expression may hold, by their columns' names.

    ``risky`` are those that may be about zero although their interval does not say so: all but
    sums of positive weights.
    """

    own: Own
    covariance: Covariance
    effective: Effective
    linear: Callable[[str], bool]
    risky: Callable[[str], bool] = lambda _: True

    def least_effective(self, names: Iterable[str]) -> exp.Expr:
        """Effective rows of the weakest of some estimates."""
        return least([self.effective(name) for name in names])


def bars_of(node: exp.Expr, estimates: list[str], known: Known) -> Bars:
    """Error bars of an expression; ``estimates`` are the columns in it that are uncertain.

    Where a denominator is about zero (``ratios``) the value is NULL, and a reliable
    interval asks more of it than that; what has no interval says at least so much.
    """
    node = bare(node)
    plain = _bars(node, estimates, known)
    if plain.known:
        return plain
    doubts = [doubt_of(below, estimates, known) for below in divisors(node, estimates)]
    doubt = any_of(each for each in doubts if each is not None)
    if doubt is None:
        return plain
    return replace(plain, reliable=when(doubt, exp.Boolean(this=False)))


def doubt_of(below: exp.Expr, estimates: list[str], known: Known) -> exp.Expr | None:
    """Where a denominator cannot be distinguished from zero; None: it always can."""
    below = bare(below)
    used = [name for name in estimates if depends(below, name)]
    if not any(known.risky(name) for name in used):
        return None
    if isinstance(below, exp.Column):
        return _doubt_of_column(below.name, known)
    terms = _terms_of(below, used, known.covariance)
    if terms is None or not all(known.linear(name) for name in used):
        # Rounded to a whole number, or no smooth function: as doubtful as what it is made of.
        return any_of(_doubt_of_column(name, known) for name in used if known.risky(name))
    doubt = doubtful(below, terms.total, known.least_effective(used))
    return _unless_settled(terms.vanish(known, used, terms.total, terms.size), doubt)


def _unless_settled(vanish: exp.Expr, doubt: exp.Expr) -> exp.Expr:
    """A doubt, but not where all is known or the variance came to nothing."""
    settled = exp.Or(this=column(CERTAIN), expression=exp.Paren(this=vanish))
    return exp.And(this=exp.Not(this=exp.Paren(this=settled)), expression=exp.Paren(this=doubt))


def _doubt_of_column(name: str, known: Known) -> exp.Expr:
    own = known.own(name)
    if TOTAL.number(name) is not None:
        # A total's interval is the one that this looks at.
        variance, rows = column(covariance_of(name, name)), column(effective_of(name))
        cancel = cancels(variance, column(size_of_total(name)))
        return _unless_settled(cancel, doubtful(column(name), variance, rows))
    if not known.linear(name):
        return doubt_by(own)
    own_variance = known.covariance(name, name) or exp.Null()
    return doubt_by(own, doubtful(column(name), own_variance, known.effective(name)))


def doubt_by(own: Bars, more: exp.Expr | None = None) -> exp.Expr:
    """Where an estimate cannot be distinguished from zero, by its own error bars."""
    zero = number(0)
    holds = exp.And(
        this=exp.LTE(this=wrapped(own.field("low")), expression=zero),
        expression=exp.GTE(this=wrapped(own.field("high")), expression=copied(zero)),
    )
    bad = exp.Not(this=wrapped(own.field("reliable")))
    doubt = exp.Or(this=bad, expression=exp.Paren(this=holds))
    # An error of zero is certainty, whatever the interval holds.
    exact = exp.EQ(this=wrapped(own.field("stderr")), expression=number(0.0))
    if more is not None:
        doubt = exp.Or(this=doubt, expression=exp.Paren(this=more))
    return exp.And(this=exp.Not(this=or_false(exact)), expression=exp.Paren(this=doubt))


def _bars(node: exp.Expr, estimates: list[str], known: Known) -> Bars:
    used = [name for name in estimates if depends(node, name)]
    if not used:
        return exact(node)
    if isinstance(node, exp.Column):
        return known.own(node.name)
    try:
        slopes = slopes_of(node, used)
    except NotSmooth:
        return none(NOT_SMOOTH)
    if len(used) == 1:
        name = used[0]
        if is_zero(slopes[name]):
            return none(NOT_SMOOTH)
        if not depends(slopes[name], name):
            return _line(node, name, slopes[name], known.own(name))
    terms = _Terms.of(slopes, slopes, known.covariance)
    if not all(known.linear(name) for name in used):
        return none(NO_ERROR)
    if terms is None:
        return none()
    value, variance, size = (column(name) for name in (VALUE, VARIANCE, SIZE))
    shared = [(VALUE, node), (VARIANCE, terms.total), (SIZE, terms.size)]
    spread = deviation(variance)
    finite = _finite(node, value)
    if finite is not None:
        spread = when(finite, spread)
    rows = known.least_effective(used)
    plain = _quotient(node)
    ratio = None if plain is None else _ratio(plain, used, known.covariance)
    vanish = terms.vanish(known, used, variance, size)
    if plain is not None and ratio is not None:
        shared.append((FIELLER, call("privsql_fieller_interval", *ratio, rows, column(CRITICAL))))
        struct = column(FIELLER)
        low, high, good = (field(struct, part) for part in ("low", "high", "reliable"))
        # NULLIF made nothing of what was there: that is no reliable ratio.
        lost = when(given(divisor(plain)), exp.Boolean(this=False))
        good = exp.Coalesce(this=good, expressions=[lost])
        if node.find(exp.Round) is not None:
            # What was rounded for the eye stays in its interval; an end that is NULL stays so.
            low, high = (
                when(given(end), both(this=end, expressions=[value]))
                for end, both in ((low, exp.Least), (high, exp.Greatest))
            )
    else:
        low, high, good = wald(value, spread, rows)
        for below in divisors(node, used):
            away = _away(below, used, known)
            good = good if away is None else exp.And(this=good, expression=away)
    found = unless_certain(value, Bars(spread, low, high, good), vanish, finite)
    return replace(found, shared=tuple(shared))


# Columns that error bars of one expression share.
VALUE, VARIANCE, SIZE, FIELLER = "let_x", "let_v", "let_m", "let_f"


def _away(below: exp.Expr, used: list[str], known: Known) -> exp.Expr | None:
    """Whether a denominator is clearly away from zero, as reliable ratios ask (udfs.intervals)."""
    slopes = slopes_of(below, used)
    terms = _Terms.of(slopes, slopes, known.covariance)
    if terms is None:
        return None
    linear = not any(depends(slope, name) for slope in slopes.values() for name in used)
    return clear(below, terms.total, known.least_effective(slopes), linear)


def unless_certain(
    value: exp.Expr, bars: Bars, vanish: exp.Expr | None = None, finite: exp.Expr | None = None
) -> Bars:
    """Where nothing was replaced there is no error; what variances say there is rounding."""
    known: exp.Expr = column(CERTAIN)
    if vanish is not None:
        known = exp.Paren(this=exp.Or(this=known, expression=wrapped(vanish)))
    if finite is not None:
        known = exp.And(this=known, expression=finite)
    sure = number(0.0), value, value, exp.Boolean(this=True)
    stderr, low, high, good = (
        when(known, plain, bars.field(name)) for name, plain in zip(FIELDS, sure, strict=True)
    )
    return Bars(stderr, low, high, good)


# Functions that leave the finite numbers: over zero, of what is below it, of what is large.
_UNBOUNDED = (exp.Div, exp.Ln, exp.Sqrt, exp.Exp, exp.Pow)


def _finite(node: exp.Expr, value: exp.Expr) -> exp.Expr | None:
    """The condition that an expression of this value is a number, where it may be none."""
    if node.find(*_UNBOUNDED) is None:
        return None
    return call("isfinite", cast(wrapped(value), "DOUBLE"))


def _line(node: exp.Expr, name: str, slope: exp.Expr, own: Bars) -> Bars:
    """A straight line in one estimate."""
    if not own.known:
        return none(own.why)

    def at(end: exp.Expr) -> exp.Expr:
        return with_columns(node, lambda c: wrapped(copied(end)) if c.name == name else c)

    low, high = at(own.low), at(own.high)
    # A slope that is none (over zero) leaves no ends.
    up = exp.GTE(this=wrapped(slope), expression=number(0))
    down = exp.LT(this=wrapped(slope), expression=number(0))
    first, second = (
        exp.Case(ifs=[exp.If(this=copied(up), true=one), exp.If(this=copied(down), true=two)])
        for one, two in ((low, high), (high, low))
    )
    stderr = multiply(exp.Abs(this=copied(slope)), own.field("stderr"))
    good, finite = own.field("reliable"), _finite(node, node)
    if finite is not None:
        good = exp.And(this=wrapped(good), expression=finite)
    return Bars(stderr, first, second, good)


def variance_of(node: exp.Expr, estimates: list[str], covariance: Covariance) -> exp.Expr | None:
    """Variance of an expression by the delta method, or None where there is none."""
    terms = _terms_of(node, estimates, covariance)
    return None if terms is None else terms.total


def _terms_of(node: exp.Expr, estimates: list[str], covariance: Covariance) -> _Terms | None:
    """The terms of an expression's variance, or None where it has none."""
    try:
        slopes = slopes_of(node, estimates)
    except NotSmooth:
        return None
    return _Terms.of(slopes, slopes, covariance)


def cancels(total: exp.Expr, size: exp.Expr) -> exp.Expr:
    """Whether nothing but rounding is left of a sum of terms of this size."""
    limit = exp.Mul(this=number(ROUNDING), expression=wrapped(size))
    rest = exp.LTE(this=exp.Abs(this=total), expression=limit)
    return exp.And(this=positive(size), expression=rest)


@dataclass(frozen=True)
class _Terms:
    """``sum d_k d_l v_kl``, the sum of the terms' sizes, and the sizes of the slopes by name."""

    total: exp.Expr
    size: exp.Expr
    slopes: dict[str, exp.Expr]

    @classmethod
    def of(
        cls, left: dict[str, exp.Expr], right: dict[str, exp.Expr], covariance: Covariance
    ) -> _Terms | None:
        """The terms of two expressions, or None where a covariance is not at hand."""
        total: exp.Expr = number(0)
        size: exp.Expr = number(0)
        for one, d_one in left.items():
            for two, d_two in right.items():
                if is_zero(d_one) or is_zero(d_two):
                    continue
                shared = covariance(one, two)
                if shared is None:
                    return None
                slope = multiply(d_one, d_two)
                total = add(total, multiply(slope, shared))
                size = add(size, multiply(size_of(slope), exp.Abs(this=shared)))
        return cls(total, size, {name: size_of(slope) for name, slope in left.items()})

    def vanish(self, known: Known, used: list[str], total: exp.Expr, size: exp.Expr) -> exp.Expr:
        """Whether the terms cancel to rounding, or nothing that varies has a slope."""
        cancel = cancels(total, size)
        fixed = []
        for name in used:
            settled: exp.Expr = exp.GTE(
                this=wrapped(known.effective(name)), expression=number(KNOWN_ROWS)
            )
            slope = self.slopes[name]
            if not isinstance(slope, exp.Literal):
                flat = exp.EQ(this=wrapped(slope), expression=number(0))
                settled = exp.Or(this=settled, expression=flat)
            fixed.append(settled)
        still = every(fixed) or exp.Boolean(this=False)
        either = exp.Or(this=exp.Paren(this=cancel), expression=exp.Paren(this=still))
        return or_false(either)


def _quotient(node: exp.Expr) -> exp.Expr | None:
    """An expression as one quotient: rounding and casts aside, constant factors on top."""
    node = bare(node)
    if isinstance(node, exp.Div):
        return node
    if isinstance(node, exp.Round | exp.Cast):
        return _quotient(node.this)
    if isinstance(node, exp.Mul):
        for factor, rest in ((node.this, node.expression), (node.expression, node.this)):
            inner = _quotient(rest)
            if inner is not None and next(columns_of(factor), None) is None:
                top = exp.Mul(this=wrapped(factor), expression=wrapped(inner.this))
                return exp.Div(this=top, expression=inner.expression, typed=False, safe=False)
    return None


def _ratio(node: exp.Expr, used: list[str], covariance: Covariance) -> list[exp.Expr] | None:
    """Numerator, denominator and their (co)variances, where both are straight lines."""
    if not isinstance(node, exp.Div) or not any(depends(node.expression, name) for name in used):
        return None
    top, bottom = node.this, node.expression
    slopes = []
    for part in (top, bottom):
        found = slopes_of(part, used)
        if any(depends(slope, name) for slope in found.values() for name in used):
            return None
        slopes.append(found)
    parts = []
    for one, two in ((0, 0), (0, 1), (1, 1)):
        terms = _Terms.of(slopes[one], slopes[two], covariance)
        if terms is None:
            return None
        parts.append(cast(wrapped(terms.total), "DOUBLE"))
    return [cast(wrapped(top), "DOUBLE"), cast(wrapped(bottom), "DOUBLE"), *parts]
