"""From bases to aggregates: formulas, covariances, intervals, as nested SELECTs.

bases                base<k>, base_covariance<k>_<l>
intermediate         means and spreads, with their slopes by each base
values               aggregate<i>, slope<i>_<k> by base k, effective<i>
covariances          covariance<i>_<j>
                     = sum over k, l of slope<i>_<k> slope<j>_<l> base_covariance<k>_<l>
intervals            stderr<i>, low<i>, high<i>, reliable<i>
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlglot import exp

from privsql.sql.bind.aggregates import SPREADS, Formula, counted, formula, unless_zero
from privsql.sql.bind.block import Aggregate, Domain
from privsql.sql.catalog import PUBLISHED
from privsql.sql.expressions import KNOWN_ROWS, call, deviation, field, same, wald
from privsql.sql.nodes import (
    cast,
    choose,
    column,
    derived,
    every,
    named,
    number,
    sql,
    table,
    wrapped,
)
from privsql.sql.outer.calculus import Slope, add, derivative, is_zero, moves, multiply
from privsql.sql.outer.ratios import doubtful, unless
from privsql.sql.reconstruct.columns import (
    AGGREGATE,
    BARS,
    BASE,
    BASE_COVARIANCE,
    BASE_WITH_TOTAL,
    BESIDE,
    CERTAIN,
    CONDITION_ROWS,
    COVARIANCE,
    CRITICAL,
    EFFECTIVE,
    EXACT,
    FOURTH,
    GROUPING,
    HIGH,
    INTERVAL,
    INVERTED,
    KEY,
    LEAST,
    LEVEL,
    LOW,
    MASS,
    MOST,
    OBSERVED,
    OBSERVED_BASE,
    POSITION,
    RELIABLE,
    ROWS,
    SECOND,
    SLOPE,
    STDERR,
    WITH_TOTAL,
)
from privsql.sql.reconstruct.quantiles import located, looked_up
from privsql.sql.reconstruct.sums import Bases, counted_piece, varying


class Estimates:
    """Writes the last tables of a reconstruction."""

    def __init__(self, bases: Bases) -> None:
        self._bases = bases
        self._formulas = {
            i: self._formula(i, aggregate)
            for i, aggregate in enumerate(bases.block.aggregates)
            if aggregate.kind == "linear"
        }
        # Slopes of intermediate results by bases: name -> base -> expression.
        self._slopes: dict[str, dict[int, exp.Expr]] = {}

    def _formula(self, i: int, aggregate: Aggregate) -> Formula:
        def v(one: int, two: int) -> exp.Expr:
            low, high = sorted((aggregate.bases[one], aggregate.bases[two]))
            return column(BASE_COVARIANCE(low, high))

        made = formula(aggregate.call.name, lambda n: column(BASE(aggregate.bases[n])), v, LEVEL(i))
        if (
            self._bases.iterative
            and not self._bases.fixed
            and aggregate.call.name in ("sum", "count_if")
        ):
            # That no row is the likeliest does not make SUM the NULL of no rows.
            most = column(MOST(aggregate.bases[1]))
            value = unless_zero(most, column(BASE(aggregate.bases[0])))
            made = replace(made, value=value)
        return made

    def effective_rows(self) -> dict[int, dict[int, exp.Expr]]:
        """Effective rows of the pieces of each aggregate that is not exact, over the bases."""
        return {
            i: self._pieces(aggregate)
            for i, aggregate in enumerate(self._bases.block.aggregates)
            if aggregate.kind == "linear" and not self._bases.fixed and not self._is_sure(aggregate)
        }

    def _is_sure(self, aggregate: Aggregate) -> bool:
        return {t for k in varying(aggregate) for t in self._bases.base[k]} <= self._bases.sure

    def write(self, name: Callable[[str], str], n: int, chosen: Sequence[int]) -> exp.Select:
        """The table of one grouping set."""
        query = self._start(name, n, chosen)
        levels = max((len(f.levels) for f in self._formulas.values()), default=0)
        for level in range(levels):
            query = self._more(query, f"level{level}")
            for i, made in self._formulas.items():
                if level < len(made.levels):
                    for key, node in made.levels[level].items():
                        self._intermediate(query, i, key, node)
        query = self._more(query, "sums")
        query.append("joins", exp.Join(this=table(name("z")), kind="CROSS"))
        slopes: dict[int, dict[int, exp.Expr]] = {}
        for i, aggregate in enumerate(self._bases.block.aggregates):
            if aggregate.kind == "linear":
                slopes[i] = self._linear(query, i, aggregate)
            elif aggregate.kind == "domain":
                choose(query, named(self._from_domain(aggregate), AGGREGATE(i)))
            elif aggregate.kind == "mode":
                choose(query, *_no_bars(i))
        query = self._more(query, "values")
        for i, j in self._bases.pairs:
            known = i in slopes and j in slopes
            node = self._covariance(slopes[i], slopes[j], i, j) if known else exp.Null()
            if any(self._bases.block.aggregates[a].call.name in SPREADS for a in (i, j)):
                # The slope of a root of something below zero is no number, and no error.
                nan = cast(exp.Literal.string("nan"), "DOUBLE")
                node = exp.Nullif(this=cast(node, "DOUBLE"), expression=nan)
            choose(query, named(cast(node, "DOUBLE"), COVARIANCE(i, j)))
        for i, j in self._bases.totals:
            whole: exp.Expr = exp.Null()
            if i in slopes:
                whole = self._with_total(slopes[i], i, self._bases.block.aggregates[j].bases[0])
            choose(query, named(cast(whole, "DOUBLE"), WITH_TOTAL(i, j)))
        for i, aggregate in enumerate(self._bases.block.aggregates):
            if aggregate.kind == "quantile":
                choose(query, named(located(i, aggregate, self._bases.states), POSITION(i)))
        # An interval is a struct: made once, then taken apart.
        for i, aggregate in enumerate(self._bases.block.aggregates):
            struct = self._struct(i, aggregate) if aggregate.kind == "linear" else None
            if struct is not None:
                choose(query, named(struct, INTERVAL(i)))
        query = self._more(query, "estimates")
        choose(query, named(self._bases.certain.copy(), CERTAIN))
        for i, aggregate in enumerate(self._bases.block.aggregates):
            if aggregate.kind == "linear":
                fields = self._interval(i, aggregate)
                for family, node in zip(BARS.values(), fields, strict=True):
                    choose(query, named(node, family(i)))
            elif aggregate.kind == "quantile":
                choose(query, *looked_up(i, aggregate, self._bases.states))
        return query

    @staticmethod
    def _more(query: exp.Select, name: str) -> exp.Select:
        """A SELECT of everything so far, to which columns are added."""
        return exp.Select(expressions=[exp.Star()]).from_(derived(query, name), copy=False)

    def _start(self, name: Callable[[str], str], n: int, chosen: Sequence[int]) -> exp.Select:
        query = exp.Select(
            expressions=[exp.Column(this=exp.Star(), table=exp.to_identifier("own"))]
        )
        for i in range(len(self._bases.block.keys)):
            if i not in chosen:
                choose(query, named(exp.Null(), KEY(i)))
            choose(query, named(number(int(i not in chosen)), GROUPING(i)))
        query.from_(table(name(f"bases{n}"), "own"), copy=False)
        exact = {i: a for i, a in enumerate(self._bases.block.aggregates) if a.kind == "exact"}
        if not self._bases.scan.beside:
            known = {text: n for n, (_, text) in enumerate(self._bases.scan.exact)}
            for i, aggregate in exact.items():
                choose(
                    query,
                    named(column(EXACT(known[sql(aggregate.call.node)]), "own"), AGGREGATE(i)),
                )
            # They are columns of the answer now.
            if known:
                star = query.expressions[0].this
                star.set("except_", [exp.to_identifier(EXACT(n)) for n in known.values()])
            return query
        # Aggregates that cannot be put together from states have a scan of their own.
        on = every(
            [
                *(same(column(KEY(i), "own"), column(KEY(i), "beside")) for i in chosen),
                *(
                    exp.EQ(
                        this=column(GROUPING(i), "beside"), expression=number(int(i not in chosen))
                    )
                    for i in range(len(self._bases.block.keys))
                ),
            ]
        )
        other = table(name("beside"), "beside")
        kind = {"kind": "CROSS"} if on is None else {"side": "LEFT", "on": on}
        query.append("joins", exp.Join(this=other, **kind))
        for i in exact:
            choose(query, named(column(BESIDE(i), "beside"), AGGREGATE(i)))
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

    def _intermediate(self, query: exp.Select, i: int, name: str, node: exp.Expr) -> None:
        choose(query, named(node.copy(), name))
        slopes: dict[int, exp.Expr] = {}
        for k in dict.fromkeys(self._bases.block.aggregates[i].bases):
            if not self._bases.fixed and moves(node, self._slope(k)):
                slopes[k] = derivative(node, self._slope(k))
                choose(query, named(slopes[k], f"{name}_by{k}"))
        self._slopes[name] = slopes

    def _linear(self, query: exp.Select, i: int, aggregate: Aggregate) -> dict[int, exp.Expr]:
        made = self._formulas[i]
        value: exp.Expr = cast(wrapped(made.value), "DOUBLE")
        doubt = self._doubt(aggregate)
        choose(query, named(value if doubt is None else unless(doubt, value), AGGREGATE(i)))
        observed: exp.Expr = exp.Null()
        if aggregate.call.name in ("count", "count_if", "sum"):
            observed = column(OBSERVED_BASE(aggregate.bases[0]))
        elif aggregate.call.name == "avg":
            top, bottom = (column(OBSERVED_BASE(k)) for k in aggregate.bases)
            below = exp.Nullif(this=bottom, expression=number(0))
            observed = exp.Div(this=top, expression=below, typed=False, safe=False)
        choose(query, named(cast(observed, "DOUBLE"), OBSERVED(i)))
        choose(query, named(self._effective(aggregate), EFFECTIVE(i)))
        slopes: dict[int, exp.Expr] = {}
        for k in dict.fromkeys(aggregate.bases):
            if not self._bases.fixed and moves(made.smooth, self._slope(k)):
                slopes[k] = derivative(made.smooth, self._slope(k))
                if not isinstance(slopes[k], exp.Literal):
                    choose(query, named(slopes[k], SLOPE(i, k)))
        return slopes

    def _covariance(
        self, left: dict[int, exp.Expr], right: dict[int, exp.Expr], i: int, j: int
    ) -> exp.Expr:
        """``sum_kl d a_i/d b_k  d a_j/d b_l  v_kl``."""
        total: exp.Expr = number(0)
        for k, one in left.items():
            for other, two in right.items():
                d_one = one if isinstance(one, exp.Literal) else column(SLOPE(i, k))
                d_two = two if isinstance(two, exp.Literal) else column(SLOPE(j, other))
                shared = column(BASE_COVARIANCE(min(k, other), max(k, other)))
                total = add(total, multiply(multiply(d_one, d_two), shared))
        return total if is_zero(total) else exp.Paren(this=total)

    def _with_total(self, slopes: dict[int, exp.Expr], i: int, other: int) -> exp.Expr:
        """Covariance of aggregate i with a base summed over all cells of sensitive keys."""
        total: exp.Expr = number(0)
        for k, one in slopes.items():
            slope = one if isinstance(one, exp.Literal) else column(SLOPE(i, k))
            total = add(total, multiply(slope, column(BASE_WITH_TOTAL(k, other))))
        return total if is_zero(total) else exp.Paren(this=total)

    def _effective(self, aggregate: Aggregate) -> exp.Expr:
        """Effective rows of an aggregate: those of its worst piece.

        A piece that varies with nothing (its K is the same in all states, or it has no rows) is
        known: KNOWN_ROWS.  Not so where rows were sampled, unless it is the count of them all.
        """
        found = list(self._pieces(aggregate).values())
        if len(found) <= 1:
            return found[0] if found else number(KNOWN_ROWS)
        return exp.Least(this=found[0], expressions=found[1:])

    def _pieces(self, aggregate: Aggregate) -> dict[int, exp.Expr]:
        found: dict[int, exp.Expr] = {}
        for t in dict.fromkeys(t for k in varying(aggregate) for t in self._bases.base[k]):
            if t in self._bases.sure:
                continue
            w, u = column(SECOND(t)), column(FOURTH(t))
            square = exp.Mul(this=w, expression=w.copy())
            ratio = exp.Div(this=square, expression=u, typed=False, safe=False)
            some = exp.GT(this=u.copy(), expression=number(0))
            known = number(0.0 if self._bases.scan.weighted else KNOWN_ROWS)
            made = exp.Case(ifs=[exp.If(this=some, true=ratio)], default=known)
            if t in self._bases.settled:
                everyone = exp.EQ(
                    this=column(ROWS), expression=number(self._bases.states.rows or 0)
                )
                made = exp.Case(ifs=[exp.If(this=everyone, true=known.copy())], default=made)
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
        value = column((INVERTED if self._bases.iterative else BASE)(k))
        doubt = doubtful(value, column(BASE_COVARIANCE(k, k)), rows)
        if isinstance(self._bases.certain, exp.Boolean):
            return doubt
        return exp.And(this=exp.Not(this=wrapped(self._bases.certain.copy())), expression=doubt)

    def _sampled_only(self, k: int) -> bool:
        """Whether a count is uncertain by sampling alone: a sum of weights, never about zero."""
        if not self._bases.scan.weighted:
            return False
        public = not any(key.sensitive for key in self._bases.block.keys) and not any(
            piece.truths or piece.factor for piece in self._bases.block.bases[k]
        )
        axes = self._bases.states.axes
        return public or (bool(axes) and all(axis.fixed for axis in axes))

    # -- intervals ----------------------------------------------------------------------

    def _interval(self, i: int, aggregate: Aggregate) -> tuple[exp.Expr, ...]:
        """Standard error, ends and reliability of one aggregate."""
        value = column(AGGREGATE(i))
        exact = number(0.0), value, value.copy(), exp.Boolean(this=True)
        if self._bases.fixed or self._is_sure(aggregate):
            return exact
        found = self._uncertain(i, aggregate)
        sures: list[exp.Expr] = []
        if not isinstance(self._bases.certain, exp.Boolean):
            sures.append(column(CERTAIN))
        if not self._bases.scan.weighted:
            # Nothing sensitive tells rows apart here, or there are none: an exact answer.
            sures.append(exp.GTE(this=column(EFFECTIVE(i)), expression=number(KNOWN_ROWS)))
        if not sures:
            return found
        known = sures[0] if len(sures) == 1 else exp.Or(this=sures[0], expression=sures[1])
        return tuple(
            exp.Case(ifs=[exp.If(this=known, true=plain)], default=node)
            for plain, node in zip(exact, found, strict=True)
        )

    def _uncertain(self, i: int, aggregate: Aggregate) -> tuple[exp.Expr, ...]:
        value = column(AGGREGATE(i))
        spread = deviation(column(COVARIANCE(i, i)))
        there = exp.Not(this=exp.Is(this=value, expression=exp.Null()))
        if aggregate.call.name in SPREADS:
            # What came out below zero has no value, so it has no error either.
            spread = exp.Case(ifs=[exp.If(this=there, true=spread)])
        rows = column(EFFECTIVE(i))
        if self._struct(i, aggregate) is not None:
            struct = column(INTERVAL(i))
            ends = self._cut(i, aggregate, field(struct, "low"), field(struct, "high"))
            if aggregate.call.name != "avg":
                return spread, *ends, field(struct, "reliable")
            # An average that is the same whatever the data has an interval that is a point.
            low, high = field(struct, "low"), field(struct, "high")
            point = exp.EQ(this=low, expression=high)
            shown = [
                exp.Case(
                    ifs=[
                        exp.If(this=exp.Not(this=wrapped(there)), true=exp.Null()),
                        exp.If(this=point, true=exact),
                    ],
                    default=node,
                )
                for node, exact in zip((spread, *ends), (number(0.0), value, value), strict=True)
            ]
            return *shown, exp.And(this=there, expression=field(struct, "reliable"))
        # The likelihood's interval is the inversion's, cut to what is possible.
        base = INVERTED if self._bases.iterative else BASE
        simple = aggregate.call.name in ("count", "count_if", "sum")
        middle = column(base(aggregate.bases[0])) if simple and self._bases.iterative else value
        low_end, high_end, good = wald(middle, spread, rows)
        return spread, *self._cut(i, aggregate, low_end, high_end), good

    def _struct(self, i: int, aggregate: Aggregate) -> exp.Expr | None:
        """The interval of a count under conditions on one column, or of an average."""
        if self._bases.fixed or self._is_sure(aggregate):
            return None
        if aggregate.call.name != "avg":
            return self._score(i, aggregate)
        # The likelihood's interval is the inversion's, cut to what is possible.
        base = INVERTED if self._bases.iterative else BASE
        one, two = aggregate.bases
        low, high = sorted((one, two))
        names = (
            base(one),
            base(two),
            BASE_COVARIANCE(one, one),
            BASE_COVARIANCE(low, high),
            BASE_COVARIANCE(two, two),
        )
        return call("privsql_fieller_interval", *map(column, (*names, EFFECTIVE(i), CRITICAL)))

    def _cut(
        self, i: int, aggregate: Aggregate, low: exp.Expr, high: exp.Expr
    ) -> tuple[exp.Expr, ...]:
        """The likelihood's estimate lies in the possible range, and so does its interval."""
        if not self._bases.iterative:
            return low, high
        floor: exp.Expr = cast(exp.Literal.string("-infinity"), "DOUBLE")
        ceiling: exp.Expr = cast(exp.Literal.string("infinity"), "DOUBLE")
        if aggregate.call.name in ("count", "count_if", "sum"):
            k = aggregate.bases[0]
            floor, ceiling = column(LEAST(k)), column(MOST(k))
        struct = call("privsql_constrain", column(AGGREGATE(i)), low, high, floor, ceiling)
        return field(struct, "low"), field(struct, "high")

    def _score(self, i: int, aggregate: Aggregate) -> exp.Expr | None:
        """A count under conditions on one column has the score interval, also written as a sum.

        The published count is binomial there; the condition's mass m makes the 2 x 2 channel.
        """
        t = counted_piece(aggregate, self._bases.base, self._bases.scored)
        if t is None:
            return None
        retention, mass = self._bases.scored[t], column(MASS(t))
        miss = exp.Paren(this=exp.Mul(this=number(1 - retention), expression=mass))
        hit = exp.Paren(this=exp.Add(this=number(retention), expression=miss.copy()))
        rows = []
        for chance in (miss, hit):
            rest = exp.Paren(this=exp.Sub(this=number(1.0), expression=chance.copy()))
            rows.append(exp.Array(expressions=[rest, chance.copy()]))
        factors = exp.Array(expressions=[exp.Array(expressions=rows)])
        n = cast(column(CONDITION_ROWS(t) if self._bases.halves[t] else ROWS), "DOUBLE")
        return call("privsql_score_interval", column(OBSERVED(i)), n, factors, column(CRITICAL))

    # -- domains --------------------------------------------------------------------------

    def _from_domain(self, aggregate: Domain) -> exp.Expr:
        """MIN or MAX of a sensitive column: of its public domain."""
        (owner,) = {c.name for c in aggregate.ordered.find_all(exp.Column)}
        made = exp.Select(expressions=[call(aggregate.call.name, aggregate.ordered.copy())])
        made.from_(table(self._bases.domain(owner), PUBLISHED), copy=False)
        return exp.Subquery(this=made)


def _no_bars(i: int) -> list[exp.Expr]:
    made: list[exp.Expr] = [
        named(cast(exp.Null(), "DOUBLE"), family(i))
        for family in (STDERR, LOW, HIGH, EFFECTIVE, OBSERVED)
    ]
    return [*made, named(cast(exp.Null(), "BOOLEAN"), RELIABLE(i))]
