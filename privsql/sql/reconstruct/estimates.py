"""From bases to aggregates: formulas, covariances, intervals, as nested SELECTs.

bases                base<k>, base_covariance<k>_<l>
intermediate         means and spreads, with their slopes by each base
values               aggregate<i>, slope<i>_<k> by base k, effective<i>
covariances          covariance<i>_<j>
                     = sum over k, l of slope<i>_<k> slope<j>_<l> base_covariance<k>_<l>
intervals            stderr<i>, low<i>, high<i>, reliable<i>
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import reduce

from sqlglot import exp

from privsql.sql.bind.aggregates import SPREADS, Formula, counted, formula, unless_zero
from privsql.sql.bind.block import Aggregate, Domain
from privsql.sql.catalog import PUBLISHED
from privsql.sql.expressions import (
    KNOWN_ROWS,
    call,
    deviation,
    field,
    least,
    nonzero,
    null,
    positive,
    quotient,
    same,
    wald,
)
from privsql.sql.nodes import (
    cast,
    choose,
    column,
    copied,
    define,
    derived,
    every,
    given,
    joined,
    named,
    number,
    select,
    sql,
    table,
    when,
    wrapped,
)
from privsql.sql.outer.calculus import Slope, added, derivative, is_zero, moves, multiply
from privsql.sql.outer.ratios import doubtful, unless
from privsql.sql.reconstruct import columns
from privsql.sql.reconstruct.columns import AGGREGATE, BASE, BASE_COVARIANCE, EFFECTIVE
from privsql.sql.reconstruct.quantiles import located, looked_up
from privsql.sql.reconstruct.sums import SIMPLE, Bases, counted_piece, varying


class Estimates:
    """Writes the last tables of a reconstruction."""

    def __init__(self, bases: Bases) -> None:
        self._bases = bases
        self._aggregates = bases.block.aggregates
        self._formulas = {
            i: self._formula(i, aggregate)
            for i, aggregate in enumerate(self._aggregates)
            if aggregate.kind == "linear"
        }
        # Slopes of intermediate results by bases: name -> base -> expression.
        self._slopes: dict[str, dict[int, exp.Expr]] = {}

    def _formula(self, i: int, aggregate: Aggregate) -> Formula:
        def base(n: int) -> exp.Expr:
            return column(BASE(aggregate.bases[n]))

        def v(one: int, two: int) -> exp.Expr:
            return self._shared(aggregate.bases[one], aggregate.bases[two])

        name = aggregate.call.name
        made = formula(name, base, v, columns.LEVEL(i))
        if self._bases.iterative and not self._bases.fixed and name in ("sum", "count_if"):
            # That no row is the likeliest does not make SUM the NULL of no rows.
            most = column(columns.MOST(aggregate.bases[1]))
            made = replace(made, value=unless_zero(most, base(0)))
        return made

    @staticmethod
    def _shared(k: int, other: int) -> exp.Expr:
        """Covariance of two bases."""
        return column(BASE_COVARIANCE(min(k, other), max(k, other)))

    def effective_rows(self) -> dict[int, dict[int, exp.Expr]]:
        """Effective rows of the pieces of each aggregate that is not exact, over the bases."""
        return {
            i: self._pieces(self._aggregates[i])
            for i in self._formulas
            if not self._is_sure(self._aggregates[i])
        }

    def _is_sure(self, aggregate: Aggregate) -> bool:
        """Whether an aggregate is exact in all cells."""
        pieces = {t for k in varying(aggregate) for t in self._bases.base[k]}
        return self._bases.fixed or pieces <= self._bases.sure

    def write(self, name: Callable[[str], str], n: int, chosen: Sequence[int]) -> exp.Select:
        """The table of one grouping set."""
        query = self._start(name, n, chosen)
        levels = max((len(f.levels) for f in self._formulas.values()), default=0)
        for level in range(levels):
            query = _more(query, f"level{level}")
            for i, made in self._formulas.items():
                if level < len(made.levels):
                    for key, node in made.levels[level].items():
                        define(query, key, copied(node))
                        self._slopes[key] = self._slopes_of(i, node)
                        for k, slope in self._slopes[key].items():
                            define(query, f"{key}_by{k}", slope)
        query = _more(query, "sums")
        joined(query, table(name("z")))
        slopes: dict[int, dict[int, exp.Expr]] = {}
        for i, aggregate in enumerate(self._aggregates):
            if aggregate.kind == "linear":
                slopes[i] = self._linear(query, i, aggregate)
            elif aggregate.kind == "domain":
                define(query, AGGREGATE(i), self._from_domain(aggregate))
            elif aggregate.kind == "mode":
                choose(query, *_no_bars(i))
        query = _more(query, "values")
        for i, j in self._bases.pairs:
            known = i in slopes and j in slopes
            node = self._covariance(slopes[i], slopes[j]) if known else exp.Null()
            if any(self._aggregates[a].call.name in SPREADS for a in (i, j)):
                # The slope of a root of something below zero is no number, and no error.
                nan = cast(exp.Literal.string("nan"), "DOUBLE")
                node = exp.Nullif(this=cast(node, "DOUBLE"), expression=nan)
            define(query, columns.COVARIANCE(i, j), cast(node, "DOUBLE"))
        for i, j in self._bases.totals:
            whole: exp.Expr = exp.Null()
            if i in slopes:
                whole = self._with_total(slopes[i], self._aggregates[j].bases[0])
            define(query, columns.WITH_TOTAL(i, j), cast(whole, "DOUBLE"))
        for i, aggregate in enumerate(self._aggregates):
            if aggregate.kind == "quantile":
                define(query, columns.POSITION(i), located(i, aggregate, self._bases.states))
        # An interval is a struct: made once, then taken apart.
        structs = {i: self._struct(i, self._aggregates[i]) for i in self._formulas}
        for i, struct in structs.items():
            if struct is not None:
                define(query, columns.INTERVAL(i), struct)
        query = _more(query, "estimates")
        define(query, columns.CERTAIN, copied(self._bases.certain))
        for i, aggregate in enumerate(self._aggregates):
            if aggregate.kind == "linear":
                fields = self._interval(i, aggregate, structs[i] is not None)
                for family, node in zip(columns.BARS.values(), fields, strict=True):
                    define(query, family(i), node)
            elif aggregate.kind == "quantile":
                choose(query, *looked_up(i, aggregate, self._bases.states))
        return query

    def _start(self, name: Callable[[str], str], n: int, chosen: Sequence[int]) -> exp.Select:
        star = exp.Star()
        query = select(
            table(name(f"bases{n}"), "own"), exp.Column(this=star, table=exp.to_identifier("own"))
        )
        left_out = {i: int(i not in chosen) for i in range(len(self._bases.block.keys))}
        for i, absent in left_out.items():
            if absent:
                define(query, columns.KEY(i), exp.Null())
            define(query, columns.GROUPING(i), number(absent))
        exact = {i: a.call for i, a in enumerate(self._aggregates) if a.kind == "exact"}
        if not self._bases.scan.beside:
            known = {text: columns.EXACT(n) for n, (_, text) in enumerate(self._bases.scan.exact)}
            for i, own in exact.items():
                define(query, AGGREGATE(i), column(known[sql(own.node)], "own"))
            # They are columns of the answer now.
            if known:
                star.set("except_", [exp.to_identifier(each) for each in known.values()])
            return query
        # Aggregates that cannot be put together from states have a scan of their own.
        keys = [columns.KEY(i) for i in chosen]
        on = [same(column(key, "own"), column(key, "beside")) for key in keys]
        for i, absent in left_out.items():
            flag = column(columns.GROUPING(i), "beside")
            on.append(exp.EQ(this=flag, expression=number(absent)))
        joined(query, table(name("beside"), "beside"), every(on), "LEFT")
        for i in exact:
            define(query, AGGREGATE(i), column(columns.BESIDE(i), "beside"))
        return query

    # -- values and covariances ---------------------------------------------------------

    def _slope(self, k: int) -> Slope:
        """Slopes by base k: of bases themselves, and of intermediate results."""

        def slope(name: str) -> exp.Expr:
            if name == BASE(k):
                return number(1)
            known = self._slopes.get(name, {}).get(k)
            if known is None or isinstance(known, exp.Literal):
                return number(0) if known is None else known
            return column(f"{name}_by{k}")

        return slope

    def _slopes_of(self, i: int, node: exp.Expr) -> dict[int, exp.Expr]:
        """Derivatives of an expression by the bases of aggregate i that it moves with."""
        return {
            k: derivative(node, self._slope(k))
            for k in dict.fromkeys(self._aggregates[i].bases)
            if not self._bases.fixed and moves(node, self._slope(k))
        }

    def _linear(self, query: exp.Select, i: int, aggregate: Aggregate) -> dict[int, exp.Expr]:
        """The columns of an aggregate; its slopes, as constants or columns."""
        made = self._formulas[i]
        value: exp.Expr = cast(wrapped(made.value), "DOUBLE")
        doubt = self._doubt(aggregate)
        define(query, AGGREGATE(i), value if doubt is None else unless(doubt, value))
        observed: exp.Expr = exp.Null()
        bases = [column(columns.OBSERVED_BASE(k)) for k in aggregate.bases]
        if aggregate.call.name in SIMPLE:
            observed = bases[0]
        elif aggregate.call.name == "avg":
            observed = quotient(bases[0], nonzero(bases[1]))
        define(query, columns.OBSERVED(i), cast(observed, "DOUBLE"))
        define(query, EFFECTIVE(i), self._effective(aggregate))
        slopes = self._slopes_of(i, made.smooth)
        for k, slope in slopes.items():
            if not isinstance(slope, exp.Literal):
                define(query, columns.SLOPE(i, k), slope)
                slopes[k] = column(columns.SLOPE(i, k))
        return slopes

    def _covariance(self, left: dict[int, exp.Expr], right: dict[int, exp.Expr]) -> exp.Expr:
        """``sum_kl d a_i/d b_k  d a_j/d b_l  v_kl``."""
        return _term(
            multiply(multiply(one, two), self._shared(k, other))
            for k, one in left.items()
            for other, two in right.items()
        )

    @staticmethod
    def _with_total(slopes: dict[int, exp.Expr], other: int) -> exp.Expr:
        """Covariance of an aggregate with a base summed over all cells of sensitive keys."""
        shared = {k: column(columns.BASE_WITH_TOTAL(k, other)) for k in slopes}
        return _term(multiply(slope, shared[k]) for k, slope in slopes.items())

    def _effective(self, aggregate: Aggregate) -> exp.Expr:
        """Effective rows of an aggregate: those of its worst piece.

        A piece that varies with nothing (its K is the same in all states, or it has no rows) is
        known: KNOWN_ROWS.  Not so where rows were sampled, unless it is the count of them all.
        """
        found = list(self._pieces(aggregate).values())
        return least(found) if found else number(KNOWN_ROWS)

    def _pieces(self, aggregate: Aggregate) -> dict[int, exp.Expr]:
        found: dict[int, exp.Expr] = {}
        for t in dict.fromkeys(t for k in varying(aggregate) for t in self._bases.base[k]):
            if t in self._bases.sure:
                continue
            w, u = column(columns.SECOND(t)), column(columns.FOURTH(t))
            square = exp.Mul(this=w, expression=copied(w))
            ratio = exp.Div(this=square, expression=u, typed=False, safe=False)
            known = number(0.0 if self._bases.scan.weighted else KNOWN_ROWS)
            made = when(positive(copied(u)), ratio, known)
            if t in self._bases.settled:
                everyone = number(self._bases.states.rows or 0)
                whole = exp.EQ(this=column(columns.ROWS), expression=everyone)
                made = when(whole, copied(known), made)
            found[t] = made
        return found

    def _doubt(self, aggregate: Aggregate) -> exp.Expr | None:
        """Where the rows that an average or a spread divides by are not clearly above zero."""
        at = counted(aggregate.call.name)
        if at is None or self._bases.fixed:
            return None
        k = aggregate.bases[at]
        if set(self._bases.base[k]) <= self._bases.sure or self._sampled_only(k):
            return None
        rows = self._effective(replace(aggregate, bases=(k,)))
        # The likelihood's average is as doubtful as the inversion's.
        doubt = doubtful(self._inverted(k), self._shared(k, k), rows)
        if isinstance(self._bases.certain, exp.Boolean):
            return doubt
        return exp.And(this=exp.Not(this=wrapped(copied(self._bases.certain))), expression=doubt)

    def _inverted(self, k: int) -> exp.Expr:
        """A base by inversion, whatever the estimate is made by."""
        return column((columns.INVERTED if self._bases.iterative else BASE)(k))

    def _sampled_only(self, k: int) -> bool:
        """Whether a count is uncertain by sampling alone: a sum of weights, never about zero."""
        if not self._bases.scan.weighted:
            return False
        block, axes = self._bases.block, self._bases.states.axes
        public = not block.sensitive_keys and not any(p.sensitive for p in block.bases[k])
        return public or (bool(axes) and all(axis.fixed for axis in axes))

    # -- intervals ----------------------------------------------------------------------

    def _interval(self, i: int, aggregate: Aggregate, struct: bool) -> tuple[exp.Expr, ...]:
        """Standard error, ends and reliability of one aggregate, whose interval may be a struct."""
        value = column(AGGREGATE(i))
        exact = number(0.0), value, copied(value), exp.Boolean(this=True)
        if self._is_sure(aggregate):
            return exact
        found = self._uncertain(i, aggregate, struct)
        sures: list[exp.Expr] = []
        if not isinstance(self._bases.certain, exp.Boolean):
            sures.append(column(columns.CERTAIN))
        if not self._bases.scan.weighted:
            # Nothing sensitive tells rows apart here, or there are none: an exact answer.
            sures.append(exp.GTE(this=column(EFFECTIVE(i)), expression=number(KNOWN_ROWS)))
        if not sures:
            return found
        known = reduce(lambda a, b: exp.Or(this=a, expression=b), sures)
        return tuple(when(known, plain, node) for plain, node in zip(exact, found, strict=True))

    def _uncertain(self, i: int, aggregate: Aggregate, struct: bool) -> tuple[exp.Expr, ...]:
        value, name = column(AGGREGATE(i)), aggregate.call.name
        spread = deviation(column(columns.COVARIANCE(i, i)))
        there = given(value)
        if name in SPREADS:
            # What came out below zero has no value, so it has no error either.
            spread = when(there, spread)
        if not struct:
            # The likelihood's interval is the inversion's, cut to what is possible.
            simple = name in SIMPLE and self._bases.iterative
            middle = self._inverted(aggregate.bases[0]) if simple else value
            low, high, good = wald(middle, spread, column(EFFECTIVE(i)))
            return spread, *self._cut(i, aggregate, low, high), good
        parts = (field(column(columns.INTERVAL(i)), part) for part in ("low", "high", "reliable"))
        low, high, good = parts
        ends = self._cut(i, aggregate, low, high)
        if name != "avg":
            return spread, *ends, good
        # An average that is the same whatever the data has an interval that is a point.
        none = exp.If(this=exp.Not(this=wrapped(there)), true=exp.Null())
        point = exp.EQ(this=low, expression=high)
        shown = [
            exp.Case(ifs=[none, exp.If(this=point, true=exact)], default=node)
            for node, exact in zip((spread, *ends), (number(0.0), value, value), strict=True)
        ]
        return *shown, exp.And(this=there, expression=good)

    def _struct(self, i: int, aggregate: Aggregate) -> exp.Expr | None:
        """The interval of a count under conditions on one column, or of an average."""
        if self._is_sure(aggregate):
            return None
        if aggregate.call.name != "avg":
            return self._score(i, aggregate)
        # The likelihood's interval is the inversion's, cut to what is possible.
        one, two = aggregate.bases
        shared = [self._shared(k, other) for k, other in ((one, one), (one, two), (two, two))]
        level = column(EFFECTIVE(i)), column(columns.CRITICAL)
        both = self._inverted(one), self._inverted(two)
        return call("privsql_fieller_interval", *both, *shared, *level)

    def _cut(
        self, i: int, aggregate: Aggregate, low: exp.Expr, high: exp.Expr
    ) -> tuple[exp.Expr, ...]:
        """The likelihood's estimate lies in the possible range, and so does its interval."""
        if not self._bases.iterative:
            return low, high
        floor: exp.Expr = cast(exp.Literal.string("-infinity"), "DOUBLE")
        ceiling: exp.Expr = cast(exp.Literal.string("infinity"), "DOUBLE")
        if aggregate.call.name in SIMPLE:
            k = aggregate.bases[0]
            floor, ceiling = column(columns.LEAST(k)), column(columns.MOST(k))
        struct = call("privsql_constrain", column(AGGREGATE(i)), low, high, floor, ceiling)
        return field(struct, "low"), field(struct, "high")

    def _score(self, i: int, aggregate: Aggregate) -> exp.Expr | None:
        """A count under conditions on one column has the score interval, also written as a sum.

        The published count is binomial there; the condition's mass m makes the 2 x 2 channel.
        """
        t = counted_piece(aggregate, self._bases.base, self._bases.scored)
        if t is None:
            return None
        retention, mass = self._bases.scored[t], column(columns.MASS(t))
        miss = exp.Paren(this=exp.Mul(this=number(1 - retention), expression=mass))
        hit = exp.Paren(this=exp.Add(this=number(retention), expression=copied(miss)))
        rows = []
        for chance in (miss, hit):
            rest = exp.Paren(this=exp.Sub(this=number(1.0), expression=copied(chance)))
            rows.append(exp.Array(expressions=[rest, copied(chance)]))
        factors = exp.Array(expressions=[exp.Array(expressions=rows)])
        counted_rows = columns.CONDITION_ROWS(t) if self._bases.halves[t] else columns.ROWS
        seen, z = column(columns.OBSERVED(i)), column(columns.CRITICAL)
        n = cast(column(counted_rows), "DOUBLE")
        return call("privsql_score_interval", seen, n, factors, z)

    # -- domains --------------------------------------------------------------------------

    def _from_domain(self, aggregate: Domain) -> exp.Expr:
        """MIN or MAX of a sensitive column: of its public domain."""
        (owner,) = {c.name for c in aggregate.ordered.find_all(exp.Column)}
        extreme = call(aggregate.call.name, copied(aggregate.ordered))
        return exp.Subquery(this=select(table(self._bases.domain(owner), PUBLISHED), extreme))


def _term(parts: Iterable[exp.Expr]) -> exp.Expr:
    """A sum that can stand in any other expression."""
    total = added(parts)
    return total if is_zero(total) else exp.Paren(this=total)


def _more(query: exp.Select, name: str) -> exp.Select:
    """A SELECT of everything so far, to which columns are added."""
    return select(derived(query, name), exp.Star())


def _no_bars(i: int) -> list[exp.Expr]:
    numbers = (columns.STDERR, columns.LOW, columns.HIGH, EFFECTIVE, columns.OBSERVED)
    made = [named(null("DOUBLE"), family(i)) for family in numbers]
    return [*made, named(null("BOOLEAN"), columns.RELIABLE(i))]
