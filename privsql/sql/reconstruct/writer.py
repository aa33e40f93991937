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
from functools import reduce

from sqlglot import exp

from privsql.sql.bind.block import Distinct, Mode, Quantile
from privsql.sql.expressions import call, dot, field, is_null, or_zero, positive, same
from privsql.sql.nodes import (
    cast,
    chained,
    column,
    copied,
    define,
    derived,
    every,
    joined,
    number,
    select,
    star_of,
    table,
    union_all,
    when,
    wrapped,
)
from privsql.sql.outer.calculus import added
from privsql.sql.reconstruct import columns
from privsql.sql.reconstruct.axiswise import Axiswise
from privsql.sql.reconstruct.columns import EXACT, FUNCTION, INVERSE, ORDERED, least_of, solved_of
from privsql.sql.reconstruct.covariance import covariance
from privsql.sql.reconstruct.distinct import steps_of
from privsql.sql.reconstruct.estimates import Estimates
from privsql.sql.reconstruct.functions import coded, functions, kernels, states
from privsql.sql.reconstruct.sums import Bases, Step, Sums, added_bases
from privsql.sql.scan.state_scan import together


class Writer:
    """Writes the reconstruction of one block from the sums that its scan brings."""

    def __init__(self, sums: Sums, axiswise: Axiswise | None = None) -> None:
        self._sums = sums
        self._axiswise = axiswise  # the other way to bases, where it is taken

    # -- steps ------------------------------------------------------------------------

    def write(self) -> tuple[Step, ...]:
        """All steps in order; the last makes the block's table."""
        sums = self._sums
        axiswise = self._axiswise
        steps = [states(sums), axiswise.located() if axiswise is not None else coded(sums)]
        parts: list[exp.Expr] = []
        for n, chosen in enumerate(sums.block.sets):
            steps += self._set_steps(n, chosen)
            parts.append(select(table(steps[-1].name), exp.Star()))
        whole = union_all(parts, by_name=True)
        return (*steps, Step(sums.table_of("block"), whole, sums.inverted))

    def _set_steps(self, n: int, chosen: Sequence[int]) -> list[Step]:
        sums = self._sums
        bases = Bases(
            sums.block,
            sums.states,
            sums.scan,
            sums.base,
            sums.halves,
            sums.pairs,
            sums.domain,
            certain=self._certain(chosen),
            iterative=sums.iterative,
            totals=sums.totals,
            sure=sums.sure(chosen),
            scored={t: sums.states.axes[i].retention for t, i in sums.scored(chosen).items()},
            settled=sums.settled(chosen),
        )
        part = Estimates(bases).write(sums.table_of, n, chosen)
        counts = sums.of_kind(Distinct)
        made = Step(sums.table_of(f"part{n}"), part)
        if self._axiswise is not None:
            return [*self._axiswise.steps(n, chosen), made]
        return [
            functions(sums, n, chosen),
            kernels(sums, n),
            self._dense(n, chosen),
            *(self._mode_step(n, i, mode, chosen) for i, mode in sums.of_kind(Mode)),
            self._bases(n, chosen),
            *(s for i, d in counts for s in steps_of(sums, sums.counted(i, d, chosen), n, chosen)),
            made,
        ]

    def _certain(self, chosen: Sequence[int]) -> exp.Expr:
        """Whether answers are exact, which follows from the channel and never from estimates.

        They are where nothing was replaced, and swapping leaves the whole column's counts.
        """
        sums = self._sums
        if sums.fixed or sums.scan.weighted:
            return exp.Boolean(this=sums.fixed)
        varying = {t for t in range(len(sums.pieces)) if sums.along(t, chosen) != frozenset()}
        if not varying or not varying <= sums.settled(chosen) or any(sums.halves):
            return exp.Boolean(this=False)
        return exp.EQ(this=column(columns.ROWS), expression=number(sums.states.rows or 0))

    def _dense(self, n: int, chosen: Sequence[int]) -> Step:
        sums = self._sums
        groups = [*sums.public_keys(chosen), *sums.hidden]
        query = select(table(sums.table_of("coded")), *map(column, groups))
        for name in sums.scan.sums:
            if name not in sums.lowest:
                numbers = _list(column(columns.STATE), "BIGINT[]")
                values = _list(cast(or_zero(column(name)), "DOUBLE"), "DOUBLE[]")
                count = number(sums.states.count)
                define(query, name, call("privsql_dense", numbers, values, count))
        rows = exp.Sum(this=column(sums.row_count))
        define(query, columns.ROWS, cast(or_zero(rows), "BIGINT"))
        for i, (exact, _) in enumerate(sums.scan.exact):
            define(query, EXACT(i), together(exact.name, column(EXACT(i))))
        query.group_by(*map(column, groups), copy=False)
        if chosen and not groups:
            # No rows are in no group, of whatever values the domain has.
            query.having(positive(copied(rows)), copy=False)
        if sums.iterative:
            query = self._likely(query)
        return Step(sums.table_of(f"dense{n}"), query)

    def _likely(self, dense: exp.Select) -> exp.Select:
        """The likeliest original states of every vector that is not negative.

        Whether a measure is negative anywhere is decided for the whole result: cells that
        switch one by one add up to nonsense.  (reconstruction, 5)
        """
        sums = self._sums
        query = select(derived(dense, "dense"), star_of("dense"))
        joined(query, table(sums.table_of("constants"), "constants"))
        for half in dict.fromkeys(sums.halves):
            y: exp.Expr = sums.column_of("products", half)
            if least_of(half) in sums.lowest:
                least = exp.Min(this=column(least_of(half)))
                lowest = exp.Subquery(this=select(table(sums.table_of("coded")), least))
                y = when(exp.GTE(this=lowest, expression=number(0)), y)
            solved = call("privsql_likelihood", y, column("factors", "constants"))
            define(query, solved_of(half), solved)
        return query

    def _bases(self, n: int, chosen: Sequence[int]) -> Step:
        sums, hidden = self._sums, self._sums.hidden
        groups = self._groups(chosen, "kernels")
        query = exp.Select(expressions=[copied(node) for node in groups])
        joined(query, table(sums.table_of(f"dense{n}"), "dense"))
        on = every(same(column(name, "dense"), column(name, "kernels")) for name in hidden)
        joined(query, table(sums.table_of(f"kernels{n}"), "kernels"), on)

        def total(node: exp.Expr) -> exp.Expr:
            return or_zero(exp.Sum(this=node)) if hidden else node

        def one_of(node: exp.Expr) -> exp.Expr:
            return call("any_value", node) if hidden else node

        define(query, columns.ROWS, cast(total(column(columns.ROWS, "dense")), "BIGINT"))
        for i, (known, _) in enumerate(sums.scan.exact):
            own: exp.Expr = column(EXACT(i), "dense")
            define(query, EXACT(i), together(known.name, own) if hidden else own)
        for k in added_bases(sums.block):
            pieces = sums.base[k]
            made = {
                columns.BASE: added(self._estimate(t) for t in pieces),
                columns.OBSERVED_BASE: added(self._sum(t, FUNCTION) for t in pieces),
            }
            if sums.iterative:
                made[columns.INVERTED] = added(self._sum(t, INVERSE) for t in pieces)
                made[columns.LEAST] = self._end(k, "list_min", "-infinity")
                made[columns.MOST] = self._end(k, "list_max", "infinity")
            for family, node in made.items():
                define(query, family(k), total(node))
        for k, other in sums.needed:
            shared = covariance(sums, k, other, chosen, total)
            define(query, columns.BASE_COVARIANCE(k, other), shared)
        for k, other in sums.total_pairs:
            shared = covariance(sums, k, other, chosen, total, over_all=True)
            define(query, columns.BASE_WITH_TOTAL(k, other), shared)
        for t in sums.added:
            second, fourth = self._weights(t)
            define(query, columns.SECOND(t), second if sums.fixed else total(second))
            define(query, columns.FOURTH(t), fourth if sums.fixed else total(fourth))
        for t, axis in sums.scored(chosen).items():
            mass = dot(column(columns.MASSES(axis), "kernels"), column(FUNCTION(t), "kernels"))
            define(query, columns.MASS(t), one_of(mass))
            if sums.halves[t]:
                define(query, columns.CONDITION_ROWS(t), total(self._counted(t)))
        for i, aggregate in sums.of_kind(Quantile):
            define(query, columns.TALLY(i), self._tallies(i, aggregate))
            define(query, ORDERED(i), one_of(column(ORDERED(i), "kernels")))
        for i, _ in sums.of_kind(Mode):
            source = table(sums.table_of(f"mode{n}_{i}"), f"mode{i}")
            keys = [same(column(g.name, g.table), column(g.name, f"mode{i}")) for g in groups]
            joined(query, source, every(keys), "LEFT")
            define(query, columns.AGGREGATE(i), one_of(column("value", f"mode{i}")))
        if hidden:
            query.group_by(*groups, copy=False)
        return Step(sums.table_of(f"bases{n}"), query)

    def _groups(self, chosen: Sequence[int], classes: str) -> list[exp.Column]:
        """Public keys of the cells, and sensitive ones, which are in the table ``classes``."""
        public = [column(name, "dense") for name in self._sums.public_keys(chosen)]
        return public + [column(name, classes) for name in self._sums.sensitive_keys(chosen)]

    def _products(self, t: int) -> exp.Column:
        """The list over states with the sums of a piece's public half."""
        return self._sums.column_of("products", self._sums.halves[t])

    def _counted(self, t: int) -> exp.Expr:
        """The sum of a piece's public half over all states."""
        return call("list_sum", self._products(t))

    def _sum(self, t: int, family: columns.Family) -> exp.Expr:
        """The sum of a piece, as published or inverted."""
        return dot(self._products(t), column(family(t), "kernels"))

    def _weights(self, t: int) -> list[exp.Expr]:
        """The two sums that a piece's effective rows are made of (udfs.variance.weights).

        A function that is the same in all states adds nothing to them.  Where rows were sampled
        it has the sample's error all the same, so that each row counts by ``W (W - 1) v^2``.
        """
        sums, half = self._sums, self._sums.halves[t]
        if sums.fixed:
            return [number(0.0), number(0.0)]
        found: list[exp.Expr] = []
        for part in ("second", "fourth"):
            # Made anew for each: that is faster than a copy.
            weights = call(
                "privsql_weights",
                sums.column_of("squares", half, half),
                sums.column_of("fourths", half),
                column(FUNCTION(t), "kernels"),
                column("factors", "kernels"),
            )
            taken = exp.Dot(this=exp.Paren(this=weights), expression=exp.to_identifier(part))
            found.append(taken)
        if not sums.scan.weighted:
            return found
        varies = exp.GT(this=copied(found[1]), expression=number(0))
        level = call("list_extract", column(INVERSE(t), "kernels"), number(1))
        made: list[exp.Expr] = []
        for node, name, power in zip(found, columns.sampled_of(half), (2, 4), strict=True):
            scale = exp.Pow(this=copied(level), expression=number(power))
            sampled = exp.Mul(this=call("list_sum", column(name, "dense")), expression=scale)
            made.append(when(copied(varies), node, sampled))
        return made

    def _estimate(self, t: int) -> exp.Expr:
        """One piece's sum over original rows."""
        inverted = self._sum(t, INVERSE)
        if not self._sums.iterative:
            return inverted
        solved = column(solved_of(self._sums.halves[t]), "dense")
        likely = dot(field(solved, "estimate"), column(FUNCTION(t), "kernels"))
        # What did not converge is no answer: NULL.
        return when(is_null(solved), inverted, when(field(solved, "converged"), likely))

    def _end(self, k: int, function: str, far: str) -> exp.Expr:
        """The least or most that a base's sum can be; infinite for what is inverted."""
        parts: list[exp.Expr] = []
        for t in self._sums.base[k]:
            half = self._sums.halves[t]
            here = call(function, column(FUNCTION(t), "kernels"))
            part: exp.Expr = exp.Mul(this=self._counted(t), expression=here)
            if least_of(half) in self._sums.lowest:
                open_ = cast(exp.Literal.string(far), "DOUBLE")
                part = when(is_null(column(solved_of(half), "dense")), open_, part)
            parts.append(part)
        return added(parts)

    def _tallies(self, i: int, aggregate: Quantile) -> exp.Expr:
        """The distribution of a quantile's value, in independent parts."""
        sums, parts = self._sums, []
        values = call("len", column(ORDERED(i), "kernels"))
        for t in sums.base[aggregate.bases[0]]:
            half = sums.halves[t]
            tally = call(
                "privsql_tally",
                self._products(t),
                sums.column_of("squares", half, half),
                sums.column_of("fourths", half),
                column(columns.PLACE(i, t), "kernels"),
                cast(wrapped(aggregate.fraction), "DOUBLE"),
                exp.Greatest(this=copied(values), expressions=[number(1)]),
                column("factors", "kernels"),
            )
            parts.append(call("list", tally) if sums.hidden else exp.Array(expressions=[tally]))
        return reduce(lambda one, two: call("list_concat", one, two), parts)

    def _mode_step(self, n: int, i: int, aggregate: Mode, chosen: Sequence[int]) -> Step:
        """Per keys, the value with the largest estimated count."""
        sums = self._sums
        inverted = select(table(sums.table_of(f"dense{n}"), "dense"), exp.Star())
        joined(inverted, table(sums.table_of("constants"), "constants"))
        counts: list[exp.Expr] = []
        counted: list[exp.Expr] = []
        for t in sums.base[aggregate.bases[0]]:
            solved = call("privsql_invert", self._products(t), column("factors", "constants"))
            define(inverted, columns.SOLVED(t), solved)
            at = exp.Add(this=column(columns.STATE, "states"), expression=number(1))
            entry = call("list_extract", column(columns.SOLVED(t), "dense"), at)
            function = column(FUNCTION(t), "states")
            counts.append(exp.Mul(this=entry, expression=function))
            counted.append(exp.NEQ(this=copied(function), expression=number(0)))
        groups, value = self._groups(chosen, "states"), column(ORDERED(i), "states")
        totals = select(derived(inverted, "dense"), *(copied(g) for g in groups))
        define(totals, "value", value)
        define(totals, "total", exp.Sum(this=added(counts)))
        on = every(same(column(name, "dense"), column(name, "states")) for name in sums.hidden)
        joined(totals, table(sums.table_of("states"), "states"), on)
        totals.where(chained(exp.Or, counted), copy=False)
        totals.group_by(*groups, copied(value), copy=False)
        names = [g.name for g in groups]
        best = select(derived(totals, "totals"), *map(column, names))
        largest = call("arg_max", column("value"), column("total"))
        # Of no rows there is no most frequent value.
        some = exp.Where(this=exp.GT(this=column("total"), expression=number(0)))
        define(best, "value", exp.Filter(this=largest, expression=some))
        best.group_by(*map(column, names), copy=False)
        return Step(sums.table_of(f"mode{n}_{i}"), best)


def _list(node: exp.Expr, kind: str) -> exp.Expr:
    """All values of a group as a list, which is empty where there are none."""
    return exp.Coalesce(this=call("list", node), expressions=[cast(exp.Array(), kind)])
