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

from privsql.sql.block import Aggregate
from privsql.sql.calculus import add, is_zero
from privsql.sql.estimates import Estimates
from privsql.sql.scan import ADDITIVE
from privsql.sql.spreads import Spreads
from privsql.sql.sums import Step, likeliest_name, lowest_name, masses_name, sampled_names
from privsql.sql.tree import (
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
from privsql.sql.writing import call, dot, field, or_zero, same


class Writer(Spreads):
    """Writes the reconstruction of one block, and names the sums that its scan must bring."""

    # -- steps ------------------------------------------------------------------------

    def write(self) -> tuple[Step, ...]:
        """All steps in order; the last makes the block's table."""
        steps = [self._states_step(), self._coded_step()]
        whole: exp.Expr | None = None
        for n, chosen in enumerate(self._block.sets):
            steps += self._set_steps(n, chosen)
            part = exp.Select(expressions=[exp.Star()]).from_(
                table(self._name(f"part{n}")), copy=False
            )
            whole = (
                part
                if whole is None
                else exp.Union(this=whole, expression=part, distinct=False, by_name=True)
            )
        if whole is None:
            raise AssertionError("the block lacks a part that its kind has")
        return (*steps, Step(self._name("block"), whole, self.inverted))

    def _set_steps(self, n: int, chosen: Sequence[int]) -> list[Step]:
        modes = [self._mode_step(n, i, a, chosen) for i, a in self._of_kind("mode")]
        estimates = Estimates(
            self._block,
            self._states,
            self._scan,
            self._base,
            self._halves,
            self._pairs,
            self._needed,
            self._domain,
            self._iterative,
            self._certain(chosen),
            self._totals,
            self._sure(chosen),
            {t: self._states.axes[i].retention for t, i in self._scored(chosen).items()},
            self._settled(chosen),
        )
        return [
            self._functions(n, chosen),
            self._kernels(n),
            self._dense(n, chosen),
            *modes,
            self._bases(n, chosen),
            Step(self._name(f"part{n}"), estimates.write(self._name, n, chosen)),
        ]

    def _certain(self, chosen: Sequence[int]) -> exp.Expr:
        """Whether answers are exact, which follows from the channel and never from estimates.

        They are where nothing was replaced, and swapping leaves the whole column's counts.
        """
        if self._fixed or self._scan.weighted:
            return exp.Boolean(this=self._fixed)
        varying = {t for t in range(len(self._pieces)) if self._along(t, chosen) != frozenset()}
        if not varying or not varying <= self._settled(chosen) or any(self._halves):
            return exp.Boolean(this=False)
        return exp.EQ(this=column("n"), expression=number(self._states.rows or 0))

    def _dense(self, n: int, chosen: Sequence[int]) -> Step:
        groups = [*self._public(chosen), *self._hidden]
        query = exp.Select(expressions=[*map(column, groups)]).from_(
            table(self._name("coded")), copy=False
        )
        for name in self._scan.sums:
            if name in self.lowest:
                continue
            lists = [
                exp.Coalesce(this=call("list", node), expressions=[cast(exp.Array(), kind)])
                for node, kind in (
                    (column("state"), "BIGINT[]"),
                    (cast(or_zero(column(name)), "DOUBLE"), "DOUBLE[]"),
                )
            ]
            dense = call("privsql_dense", *lists, number(self._states.count))
            choose(query, named(dense, name))
        choose(query, named(cast(or_zero(exp.Sum(this=column(self._rows))), "BIGINT"), "n"))
        for i, (exact, _) in enumerate(self._scan.exact):
            choose(query, named(_together(exact.name, column(f"e{i}")), f"e{i}"))
        if groups:
            query.group_by(*map(column, groups), copy=False)
        elif chosen:
            # No rows are in no group, of whatever values the domain has.
            some = exp.GT(this=exp.Sum(this=column(self._rows)), expression=number(0))
            query.having(some, copy=False)
        if self._iterative:
            query = self._likely(query)
        return Step(self._name(f"dense{n}"), query)

    def _likely(self, dense: exp.Select) -> exp.Select:
        """The likeliest original states of every vector that is not negative.

        Whether a measure is negative anywhere is decided for the whole result: cells that
        switch one by one add up to nonsense.  (reconstruction, 5)
        """
        star = exp.Column(this=exp.Star(), table=exp.to_identifier("d"))
        query = exp.Select(expressions=[star]).from_(derived(dense, "d"), copy=False)
        self._cross(query, table(self._name("constants"), "c"))
        for half in dict.fromkeys(self._halves):
            y: exp.Expr = self._sum("products", half)
            if lowest_name(half) in self.lowest:
                least = exp.Select(expressions=[exp.Min(this=column(lowest_name(half)))])
                least.from_(table(self._name("coded")), copy=False)
                fine = exp.GTE(this=exp.Subquery(this=least), expression=number(0))
                y = exp.Case(ifs=[exp.If(this=fine, true=y)])
            solved = call("privsql_likelihood", y, column("factors", "c"))
            choose(query, named(solved, likeliest_name(half)))
        return query

    def _bases(self, n: int, chosen: Sequence[int]) -> Step:
        hidden = self._hidden
        public, classes = self._public(chosen), self._classes(chosen)
        groups = [*(column(name, "d") for name in public), *(column(name, "k") for name in classes)]
        query = exp.Select(expressions=[node.copy() for node in groups])
        query.from_(table(self._name(f"dense{n}"), "d"), copy=False)
        on = every(same(column(name, "d"), column(name, "k")) for name in hidden)
        self._join(query, table(self._name(f"kernels{n}"), "k"), on)

        def total(node: exp.Expr) -> exp.Expr:
            return or_zero(exp.Sum(this=node)) if hidden else node

        choose(query, named(cast(total(column("n", "d")), "BIGINT"), "n"))
        for i, (known, _) in enumerate(self._scan.exact):
            own: exp.Expr = column(f"e{i}", "d")
            choose(query, named(_together(known.name, own) if hidden else own, f"e{i}"))
        for k, pieces in enumerate(self._base):
            made, seen = number(0), number(0)
            for t in pieces:
                y = self._sum("products", self._halves[t])
                made = add(made, self._estimate(t))
                seen = add(seen, dot(y.copy(), column(f"f{t}", "k")))
            choose(query, named(total(made), f"b{k}"), named(total(seen), f"r{k}"))
            if self._iterative:
                plain = number(0)
                for t in pieces:
                    y = self._sum("products", self._halves[t])
                    plain = add(plain, dot(y, column(f"i{t}", "k")))
                ends = zip(("j", "lo", "hi"), (plain, *self._range(k)), strict=True)
                choose(query, *(named(total(node), f"{name}{k}") for name, node in ends))
        for k, other in self._needed:
            shared = self._covariance(k, other, chosen, total)
            choose(query, named(shared, f"v{k}_{other}"))
        for k, other in self._total_pairs:
            whole = self._with_total(k, other, chosen, total)
            choose(query, named(whole, f"x{k}_{other}"))
        for t in range(len(self._halves)):
            for node, short in zip(self._weights(t), ("ws", "wf"), strict=True):
                choose(query, named(node if self._fixed else total(node), f"{short}{t}"))
        for t, axis in self._scored(chosen).items():
            mass = dot(column(masses_name(axis), "k"), column(f"f{t}", "k"))
            choose(query, named(call("any_value", mass) if hidden else mass, f"m{t}"))
            if self._halves[t]:
                counted = call("list_sum", self._sum("products", self._halves[t]))
                choose(query, named(total(counted), f"n{t}"))
        for i, aggregate in self._of_kind("quantile"):
            choose(query, named(self._tallies(i, aggregate), f"q{i}"))
            values: exp.Expr = column(f"o{i}", "k")
            choose(query, named(call("any_value", values) if hidden else values, f"o{i}"))
        for i, _ in self._of_kind("mode"):
            source = table(self._name(f"mode{n}_{i}"), f"mode{i}")
            keys = [same(column(g.name, g.table), column(g.name, f"mode{i}")) for g in groups]
            self._join(query, source, every(keys), "LEFT")
            best: exp.Expr = column("value", f"mode{i}")
            choose(query, named(call("any_value", best) if hidden else best, f"a{i}"))
        if hidden and groups:
            query.group_by(*groups, copy=False)
        return Step(self._name(f"bases{n}"), query)

    def _weights(self, t: int) -> list[exp.Expr]:
        """The two sums that a piece's effective rows are made of (udfs.variance.weights).

        A function that is the same in all states adds nothing to them.  Where rows were sampled
        it has the sample's error all the same, so that each row counts by ``W (W - 1) v^2``.
        """
        if self._fixed:
            return [number(0.0), number(0.0)]
        half = self._halves[t]
        weights = call(
            "privsql_weights",
            self._sum("squares", half, half),
            self._sum("fourths", half),
            column(f"f{t}", "k"),
            column("factors", "k"),
        )
        found = [field(weights, part) for part in ("second", "fourth")]
        if not self._scan.weighted:
            return found
        varies = exp.GT(this=found[1].copy(), expression=number(0))
        level = call("list_extract", column(f"i{t}", "k"), number(1))
        made: list[exp.Expr] = []
        for node, name, power in zip(found, sampled_names(half), (2, 4), strict=True):
            own = call("list_sum", column(name, "d"))
            scale = exp.Pow(this=level.copy(), expression=number(power))
            sampled = exp.Mul(this=own, expression=scale)
            made.append(exp.Case(ifs=[exp.If(this=varies.copy(), true=node)], default=sampled))
        return made

    def _estimate(self, t: int) -> exp.Expr:
        """One piece's sum over original rows."""
        inverted = dot(self._sum("products", self._halves[t]), column(f"i{t}", "k"))
        if not self._iterative:
            return inverted
        solved = column(likeliest_name(self._halves[t]), "d")
        # What did not converge is no answer: NULL.
        likely = exp.Case(
            ifs=[
                exp.If(
                    this=field(solved, "converged"),
                    true=dot(field(solved, "estimate"), column(f"f{t}", "k")),
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
            for t in self._base[k]:
                half = self._halves[t]
                here = call(function, column(f"f{t}", "k"))
                part: exp.Expr = exp.Mul(
                    this=call("list_sum", self._sum("products", half)), expression=here
                )
                if lowest_name(half) in self.lowest:
                    none = exp.Is(this=column(likeliest_name(half), "d"), expression=exp.Null())
                    open_ = cast(exp.Literal.string(far), "DOUBLE")
                    part = exp.Case(ifs=[exp.If(this=none, true=open_)], default=part)
                total = add(total, part)
            ends.append(total)
        return ends

    def _tallies(self, i: int, aggregate: Aggregate) -> exp.Expr:
        """The distribution of a quantile's value, in independent parts."""
        if aggregate.fraction is None:
            raise AssertionError("the block lacks a part that its kind has")
        parts = []
        for t in self._base[aggregate.bases[0]]:
            half = self._halves[t]
            tally = call(
                "privsql_tally",
                self._sum("products", half),
                self._sum("squares", half, half),
                self._sum("fourths", half),
                column(f"at{i}_{t}", "k"),
                cast(wrapped(aggregate.fraction), "DOUBLE"),
                exp.Greatest(this=call("len", column(f"o{i}", "k")), expressions=[number(1)]),
                column("factors", "k"),
            )
            parts.append(call("list", tally) if self._hidden else exp.Array(expressions=[tally]))
        made = parts[0]
        for part in parts[1:]:
            made = call("list_concat", made, part)
        return made

    def _mode_step(self, n: int, i: int, aggregate: Aggregate, chosen: Sequence[int]) -> Step:
        """Per keys, the value with the largest estimated count."""
        pieces = self._base[aggregate.bases[0]]
        public, classes = self._public(chosen), self._classes(chosen)
        inverted = exp.Select(expressions=[exp.Star()]).from_(
            table(self._name(f"dense{n}"), "d"), copy=False
        )
        self._cross(inverted, table(self._name("constants"), "c"))
        count: exp.Expr = number(0)
        counted: exp.Expr | None = None
        for t in pieces:
            y = self._sum("products", self._halves[t])
            choose(inverted, named(call("privsql_invert", y, column("factors", "c")), f"x{t}"))
            at = exp.Add(this=column("state", "s"), expression=number(1))
            entry = call("list_extract", column(f"x{t}", "d"), at)
            count = add(count, exp.Mul(this=entry, expression=column(f"f{t}", "s")))
            here = exp.NEQ(this=column(f"f{t}", "s"), expression=number(0))
            counted = here if counted is None else exp.Or(this=counted, expression=here)
        groups = [*(column(g, "d") for g in public), *(column(g, "s") for g in classes)]
        value = column(f"o{i}", "s")
        totals = exp.Select(expressions=[*(g.copy() for g in groups), named(value, "value")])
        choose(totals, named(exp.Sum(this=count), "total"))
        totals.from_(derived(inverted, "d"), copy=False)
        on = every(same(column(name, "d"), column(name, "s")) for name in self._hidden)
        self._join(totals, table(self._name("states"), "s"), on)
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
        return Step(self._name(f"mode{n}_{i}"), best)


def _together(name: str, part: exp.Expr) -> exp.Expr:
    """An exact aggregate put together from those of parts."""
    node = call(ADDITIVE[name], part)
    if name == "count":
        return cast(or_zero(node), "BIGINT")
    return node


__all__ = ["Step", "Writer", "is_zero"]
