"""The reconstruction: SQL over the result of the scan that turns sums into estimates.

It runs in an in-memory DuckDB that holds nothing but that result, the cells of the sensitive
columns and our functions.  Per set of grouping keys:

    states     every state with the atoms' values: sensitive expressions are SQL over it
    functions  per class of sensitive keys, each piece's function f as a list over states
    kernels    A^-1 f, and the products that variances need          (privsql_inverse)
    dense      per public keys, the scan's sums as lists over states   (privsql_dense)
    bases      sums of y * A^-1 f, their covariances, effective rows
    part       the aggregates and their error bars                    (see ``estimates``)

and ``block`` is all parts together: what the analyst's SELECT reads.  Hidden public columns
make one list each and are added up in ``bases``: rows are independent.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from privsql.sql.bind.block import Mode, Quantile
from privsql.sql.expressions import call, dot, field, or_zero, same
from privsql.sql.nodes import (
    cast,
    choose,
    column,
    derived,
    every,
    named,
    number,
    table,
    wrapped,
)
from privsql.sql.outer.calculus import add, is_zero
from privsql.sql.reconstruct.columns import (
    AGGREGATE,
    BASE,
    BASE_COVARIANCE,
    BASE_WITH_TOTAL,
    CONDITION_ROWS,
    EXACT,
    FOURTH,
    FUNCTION,
    INVERSE,
    INVERTED,
    LEAST,
    MASS,
    MASSES,
    MOST,
    OBSERVED_BASE,
    ORDERED,
    PLACE,
    ROWS,
    SECOND,
    SOLVED,
    TALLY,
    least_of,
    sampled_of,
    solved_of,
)
from privsql.sql.reconstruct.covariance import Covariances
from privsql.sql.reconstruct.estimates import Estimates
from privsql.sql.reconstruct.functions import Functions, cross, joined
from privsql.sql.reconstruct.sums import Bases, Step, Sums
from privsql.sql.scan.state_scan import ADDITIVE


class Writer:
    """Writes the reconstruction of one block from the sums that its scan brings."""

    def __init__(self, sums: Sums) -> None:
        self._sums = sums
        self._functions = Functions(sums)
        self._covariances = Covariances(sums)

    # -- steps ------------------------------------------------------------------------

    def write(self) -> tuple[Step, ...]:
        """All steps in order; the last makes the block's table."""
        steps = [self._functions.states(), self._functions.coded()]
        whole: exp.Expr | None = None
        for n, chosen in enumerate(self._sums.block.sets):
            steps += self._set_steps(n, chosen)
            part = exp.Select(expressions=[exp.Star()]).from_(
                table(self._sums.table_of(f"part{n}")), copy=False
            )
            whole = (
                part
                if whole is None
                else exp.Union(this=whole, expression=part, distinct=False, by_name=True)
            )
        if whole is None:
            raise AssertionError("the block lacks a part that its kind has")
        return (*steps, Step(self._sums.table_of("block"), whole, self._sums.inverted))

    def _set_steps(self, n: int, chosen: Sequence[int]) -> list[Step]:
        modes = [self._mode_step(n, i, a, chosen) for i, a in self._sums.of_kind(Mode)]
        sums = self._sums
        bases = Bases(
            sums.block,
            sums.states,
            sums.scan,
            sums.base,
            sums.halves,
            sums.pairs,
            sums.needed,
            sums.domain,
            certain=self._certain(chosen),
            iterative=sums.iterative,
            totals=sums.totals,
            sure=sums.sure(chosen),
            scored={t: sums.states.axes[i].retention for t, i in sums.scored(chosen).items()},
            settled=sums.settled(chosen),
        )
        estimates = Estimates(bases)
        return [
            self._functions.functions(n, chosen),
            self._functions.kernels(n),
            self._dense(n, chosen),
            *modes,
            self._bases(n, chosen),
            Step(self._sums.table_of(f"part{n}"), estimates.write(self._sums.table_of, n, chosen)),
        ]

    def _certain(self, chosen: Sequence[int]) -> exp.Expr:
        """Whether answers are exact, which follows from the channel and never from estimates.

        They are where nothing was replaced, and swapping leaves the whole column's counts.
        """
        if self._sums.fixed or self._sums.scan.weighted:
            return exp.Boolean(this=self._sums.fixed)
        varying = {
            t for t in range(len(self._sums.pieces)) if self._sums.along(t, chosen) != frozenset()
        }
        if not varying or not varying <= self._sums.settled(chosen) or any(self._sums.halves):
            return exp.Boolean(this=False)
        return exp.EQ(this=column(ROWS), expression=number(self._sums.states.rows or 0))

    def _dense(self, n: int, chosen: Sequence[int]) -> Step:
        groups = [*self._sums.public_keys(chosen), *self._sums.hidden]
        query = exp.Select(expressions=[*map(column, groups)]).from_(
            table(self._sums.table_of("coded")), copy=False
        )
        for name in self._sums.scan.sums:
            if name in self._sums.lowest:
                continue
            lists = [
                exp.Coalesce(this=call("list", node), expressions=[cast(exp.Array(), kind)])
                for node, kind in (
                    (column("state"), "BIGINT[]"),
                    (cast(or_zero(column(name)), "DOUBLE"), "DOUBLE[]"),
                )
            ]
            dense = call("privsql_dense", *lists, number(self._sums.states.count))
            choose(query, named(dense, name))
        choose(
            query, named(cast(or_zero(exp.Sum(this=column(self._sums.row_count))), "BIGINT"), ROWS)
        )
        for i, (exact, _) in enumerate(self._sums.scan.exact):
            choose(query, named(_together(exact.name, column(EXACT(i))), EXACT(i)))
        if groups:
            query.group_by(*map(column, groups), copy=False)
        elif chosen:
            # No rows are in no group, of whatever values the domain has.
            some = exp.GT(this=exp.Sum(this=column(self._sums.row_count)), expression=number(0))
            query.having(some, copy=False)
        if self._sums.iterative:
            query = self._likely(query)
        return Step(self._sums.table_of(f"dense{n}"), query)

    def _likely(self, dense: exp.Select) -> exp.Select:
        """The likeliest original states of every vector that is not negative.

        Whether a measure is negative anywhere is decided for the whole result: cells that
        switch one by one add up to nonsense.  (reconstruction, 5)
        """
        star = exp.Column(this=exp.Star(), table=exp.to_identifier("dense"))
        query = exp.Select(expressions=[star]).from_(derived(dense, "dense"), copy=False)
        cross(query, table(self._sums.table_of("constants"), "constants"))
        for half in dict.fromkeys(self._sums.halves):
            y: exp.Expr = self._sums.column_of("products", half)
            if least_of(half) in self._sums.lowest:
                least = exp.Select(expressions=[exp.Min(this=column(least_of(half)))])
                least.from_(table(self._sums.table_of("coded")), copy=False)
                fine = exp.GTE(this=exp.Subquery(this=least), expression=number(0))
                y = exp.Case(ifs=[exp.If(this=fine, true=y)])
            solved = call("privsql_likelihood", y, column("factors", "constants"))
            choose(query, named(solved, solved_of(half)))
        return query

    def _bases(self, n: int, chosen: Sequence[int]) -> Step:
        hidden = self._sums.hidden
        public, classes = self._sums.public_keys(chosen), self._sums.sensitive_keys(chosen)
        groups = [
            *(column(name, "dense") for name in public),
            *(column(name, "kernels") for name in classes),
        ]
        query = exp.Select(expressions=[node.copy() for node in groups])
        query.from_(table(self._sums.table_of(f"dense{n}"), "dense"), copy=False)
        on = every(same(column(name, "dense"), column(name, "kernels")) for name in hidden)
        joined(query, table(self._sums.table_of(f"kernels{n}"), "kernels"), on)

        def total(node: exp.Expr) -> exp.Expr:
            return or_zero(exp.Sum(this=node)) if hidden else node

        choose(query, named(cast(total(column(ROWS, "dense")), "BIGINT"), ROWS))
        for i, (known, _) in enumerate(self._sums.scan.exact):
            own: exp.Expr = column(EXACT(i), "dense")
            choose(query, named(_together(known.name, own) if hidden else own, EXACT(i)))
        for k, pieces in enumerate(self._sums.base):
            made, seen = number(0), number(0)
            for t in pieces:
                y = self._sums.column_of("products", self._sums.halves[t])
                made = add(made, self._estimate(t))
                seen = add(seen, dot(y.copy(), column(FUNCTION(t), "kernels")))
            choose(query, named(total(made), BASE(k)), named(total(seen), OBSERVED_BASE(k)))
            if self._sums.iterative:
                plain = number(0)
                for t in pieces:
                    y = self._sums.column_of("products", self._sums.halves[t])
                    plain = add(plain, dot(y, column(INVERSE(t), "kernels")))
                ends = zip((INVERTED, LEAST, MOST), (plain, *self._range(k)), strict=True)
                choose(query, *(named(total(node), family(k)) for family, node in ends))
        for k, other in self._sums.needed:
            shared = self._covariances.of_bases(k, other, chosen, total)
            choose(query, named(shared, BASE_COVARIANCE(k, other)))
        for k, other in self._sums.total_pairs:
            whole = self._covariances.with_total(k, other, chosen, total)
            choose(query, named(whole, BASE_WITH_TOTAL(k, other)))
        for t in range(len(self._sums.halves)):
            for node, family in zip(self._weights(t), (SECOND, FOURTH), strict=True):
                choose(query, named(node if self._sums.fixed else total(node), family(t)))
        for t, axis in self._sums.scored(chosen).items():
            mass = dot(column(MASSES(axis), "kernels"), column(FUNCTION(t), "kernels"))
            choose(query, named(call("any_value", mass) if hidden else mass, MASS(t)))
            if self._sums.halves[t]:
                counted = call("list_sum", self._sums.column_of("products", self._sums.halves[t]))
                choose(query, named(total(counted), CONDITION_ROWS(t)))
        for i, aggregate in self._sums.of_kind(Quantile):
            choose(query, named(self._tallies(i, aggregate), TALLY(i)))
            values: exp.Expr = column(ORDERED(i), "kernels")
            choose(query, named(call("any_value", values) if hidden else values, ORDERED(i)))
        for i, _ in self._sums.of_kind(Mode):
            source = table(self._sums.table_of(f"mode{n}_{i}"), f"mode{i}")
            keys = [same(column(g.name, g.table), column(g.name, f"mode{i}")) for g in groups]
            joined(query, source, every(keys), "LEFT")
            best: exp.Expr = column("value", f"mode{i}")
            choose(query, named(call("any_value", best) if hidden else best, AGGREGATE(i)))
        if hidden and groups:
            query.group_by(*groups, copy=False)
        return Step(self._sums.table_of(f"bases{n}"), query)

    def _weights(self, t: int) -> list[exp.Expr]:
        """The two sums that a piece's effective rows are made of (udfs.variance.weights).

        A function that is the same in all states adds nothing to them.  Where rows were sampled
        it has the sample's error all the same, so that each row counts by ``W (W - 1) v^2``.
        """
        if self._sums.fixed:
            return [number(0.0), number(0.0)]
        half = self._sums.halves[t]
        weights = call(
            "privsql_weights",
            self._sums.column_of("squares", half, half),
            self._sums.column_of("fourths", half),
            column(FUNCTION(t), "kernels"),
            column("factors", "kernels"),
        )
        found = [field(weights, part) for part in ("second", "fourth")]
        if not self._sums.scan.weighted:
            return found
        varies = exp.GT(this=found[1].copy(), expression=number(0))
        level = call("list_extract", column(INVERSE(t), "kernels"), number(1))
        made: list[exp.Expr] = []
        for node, name, power in zip(found, sampled_of(half), (2, 4), strict=True):
            own = call("list_sum", column(name, "dense"))
            scale = exp.Pow(this=level.copy(), expression=number(power))
            sampled = exp.Mul(this=own, expression=scale)
            made.append(exp.Case(ifs=[exp.If(this=varies.copy(), true=node)], default=sampled))
        return made

    def _estimate(self, t: int) -> exp.Expr:
        """One piece's sum over original rows."""
        inverted = dot(
            self._sums.column_of("products", self._sums.halves[t]), column(INVERSE(t), "kernels")
        )
        if not self._sums.iterative:
            return inverted
        solved = column(solved_of(self._sums.halves[t]), "dense")
        # What did not converge is no answer: NULL.
        likely = exp.Case(
            ifs=[
                exp.If(
                    this=field(solved, "converged"),
                    true=dot(field(solved, "estimate"), column(FUNCTION(t), "kernels")),
                )
            ]
        )
        none = exp.Is(this=solved.copy(), expression=exp.Null())
        return exp.Case(ifs=[exp.If(this=none, true=inverted)], default=likely)

    def _range(self, k: int) -> list[exp.Expr]:
        """Between what a base's sum over original rows can lie; infinite for what is inverted."""
        ends: list[exp.Expr] = []
        for function, far in (("list_min", "-infinity"), ("list_max", "infinity")):
            total: exp.Expr = number(0)
            for t in self._sums.base[k]:
                half = self._sums.halves[t]
                here = call(function, column(FUNCTION(t), "kernels"))
                part: exp.Expr = exp.Mul(
                    this=call("list_sum", self._sums.column_of("products", half)), expression=here
                )
                if least_of(half) in self._sums.lowest:
                    none = exp.Is(this=column(solved_of(half), "dense"), expression=exp.Null())
                    open_ = cast(exp.Literal.string(far), "DOUBLE")
                    part = exp.Case(ifs=[exp.If(this=none, true=open_)], default=part)
                total = add(total, part)
            ends.append(total)
        return ends

    def _tallies(self, i: int, aggregate: Quantile) -> exp.Expr:
        """The distribution of a quantile's value, in independent parts."""
        parts = []
        for t in self._sums.base[aggregate.bases[0]]:
            half = self._sums.halves[t]
            tally = call(
                "privsql_tally",
                self._sums.column_of("products", half),
                self._sums.column_of("squares", half, half),
                self._sums.column_of("fourths", half),
                column(PLACE(i, t), "kernels"),
                cast(wrapped(aggregate.fraction), "DOUBLE"),
                exp.Greatest(
                    this=call("len", column(ORDERED(i), "kernels")), expressions=[number(1)]
                ),
                column("factors", "kernels"),
            )
            parts.append(
                call("list", tally) if self._sums.hidden else exp.Array(expressions=[tally])
            )
        made = parts[0]
        for part in parts[1:]:
            made = call("list_concat", made, part)
        return made

    def _mode_step(self, n: int, i: int, aggregate: Mode, chosen: Sequence[int]) -> Step:
        """Per keys, the value with the largest estimated count."""
        pieces = self._sums.base[aggregate.bases[0]]
        public, classes = self._sums.public_keys(chosen), self._sums.sensitive_keys(chosen)
        inverted = exp.Select(expressions=[exp.Star()]).from_(
            table(self._sums.table_of(f"dense{n}"), "dense"), copy=False
        )
        cross(inverted, table(self._sums.table_of("constants"), "constants"))
        count: exp.Expr = number(0)
        counted: exp.Expr | None = None
        for t in pieces:
            y = self._sums.column_of("products", self._sums.halves[t])
            choose(
                inverted,
                named(call("privsql_invert", y, column("factors", "constants")), SOLVED(t)),
            )
            at = exp.Add(this=column("state", "states"), expression=number(1))
            entry = call("list_extract", column(SOLVED(t), "dense"), at)
            count = add(count, exp.Mul(this=entry, expression=column(FUNCTION(t), "states")))
            here = exp.NEQ(this=column(FUNCTION(t), "states"), expression=number(0))
            counted = here if counted is None else exp.Or(this=counted, expression=here)
        groups = [*(column(g, "dense") for g in public), *(column(g, "states") for g in classes)]
        value = column(ORDERED(i), "states")
        totals = exp.Select(expressions=[*(g.copy() for g in groups), named(value, "value")])
        choose(totals, named(exp.Sum(this=count), "total"))
        totals.from_(derived(inverted, "dense"), copy=False)
        on = every(
            same(column(name, "dense"), column(name, "states")) for name in self._sums.hidden
        )
        joined(totals, table(self._sums.table_of("states"), "states"), on)
        totals.set("where", exp.Where(this=counted))
        totals.group_by(*groups, value.copy(), copy=False)
        names = [g.name for g in groups]
        best = exp.Select(expressions=[*map(column, names)])
        largest = call("arg_max", column("value"), column("total"))
        # Of no rows there is no most frequent value.
        some = exp.Where(this=exp.GT(this=column("total"), expression=number(0)))
        choose(best, named(exp.Filter(this=largest, expression=some), "value"))
        best.from_(derived(totals, "totals"), copy=False)
        if names:
            best.group_by(*map(column, names), copy=False)
        return Step(self._sums.table_of(f"mode{n}_{i}"), best)


def _together(name: str, part: exp.Expr) -> exp.Expr:
    """An exact aggregate put together from those of parts."""
    node = call(ADDITIVE[name], part)
    if name == "count":
        return cast(or_zero(node), "BIGINT")
    return node


__all__ = ["Step", "Writer", "is_zero"]
