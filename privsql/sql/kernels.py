"""The sensitive half: functions over states, and what inverting them gives."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from privsql.sql.calculus import add
from privsql.sql.columns import (
    FUNCTION,
    FUNCTION_ALL,
    INVERSE,
    INVERSE_ALL,
    KEY,
    MASSES,
    MEAN,
    MEAN_ALL,
    ORDERED,
    PLACE,
    PRODUCT,
    PRODUCT_ALL,
    RANK,
    TAIL,
    TAIL_ALL,
    Pair,
)
from privsql.sql.sums import Step, Sums
from privsql.sql.tree import (
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
from privsql.sql.writing import call, dot, products, same


class Kernels(Sums):
    """Writes the tables of states, functions and kernels, and the scan's states."""

    @staticmethod
    def _cross(query: exp.Select, source: exp.Expr) -> None:
        if query.args.get("from_") is None:
            query.set("from_", exp.From(this=source))
        else:
            query.append("joins", exp.Join(this=source, kind="CROSS"))

    @staticmethod
    def _join(query: exp.Select, source: exp.Expr, on: exp.Expr | None, side: str = "") -> None:
        if on is None:
            query.append("joins", exp.Join(this=source, kind="CROSS"))
        else:
            query.append("joins", exp.Join(this=source, on=on, side=side))

    def _function(self, t: int) -> exp.Expr:
        """The sensitive half of a piece over the table of states."""
        piece = self._pieces[t]
        value: exp.Expr = number(1.0)
        if piece.factor is not None:
            value = cast(wrapped(self._states.written[sql(piece.factor)]), "DOUBLE")
        truth = every(self._states.written[sql(node)] for node in piece.truths)
        if truth is None:
            return value
        return exp.Case(ifs=[exp.If(this=truth, true=value)], default=number(0.0))

    def _states_step(self) -> Step:
        state: exp.Expr = number(0)
        stride = self._states.count
        query = exp.Select()
        for i, axis in enumerate(self._states.axes):
            stride //= axis.count
            state = add(state, exp.Mul(this=column("cell", f"axis{i}"), expression=number(stride)))
            self._cross(query, table(self._name(f"axis{i}"), f"axis{i}"))
        if self._hidden:
            hidden = exp.Select(
                expressions=[column(name) for name in self._hidden], distinct=exp.Distinct()
            ).from_(table(self._name("scan")), copy=False)
            self._cross(query, derived(hidden, "hidden"))
        choose(query, named(cast(state, "BIGINT"), "state"), *map(column, self._hidden))
        for t in range(len(self._pieces)):
            choose(query, named(self._function(t), FUNCTION(t)))
        for i, key in enumerate(self._block.keys):
            if key.sensitive:
                choose(query, named(self._states.written[sql(key.expression)].copy(), KEY(i)))
        choose(query, named(self._kept(), "kept"))
        for i, aggregate in self._of_kind("quantile", "mode"):
            if aggregate.ordered is None:
                raise AssertionError("the block lacks a part that its kind has")
            written = self._states.written[sql(aggregate.ordered)]
            order = exp.Order(expressions=[exp.Ordered(this=written.copy(), nulls_first=False)])
            rank = exp.Window(this=call("dense_rank"), order=order, over="OVER")
            choose(query, named(written.copy(), ORDERED(i)), named(rank, RANK(i)))
        return Step(self._name("states"), query)

    def _kept(self) -> exp.Expr:
        """Whether WHERE can hold in a state: values that it excludes make no group."""
        ways: exp.Expr | None = None
        for branch in self._block.where:
            way = every(self._states.written[sql(node)] for node in branch.truths)
            if way is None:
                return exp.Boolean(this=True)
            ways = way if ways is None else exp.Or(this=wrapped(ways), expression=wrapped(way))
        return ways if ways is not None else exp.Boolean(this=False)

    def _coded_step(self) -> Step:
        """The scan with the number of each published state."""
        state: exp.Expr = number(0)
        stride = self._states.count
        query = exp.Select().from_(table(self._name("scan"), "scan"), copy=False)
        for i, axis in enumerate(self._states.axes):
            stride //= axis.count
            if axis.count == 1:
                continue
            name = f"codes{i}"
            state = add(state, exp.Mul(this=column("cell", name), expression=number(stride)))
            on = every(
                same(column(c, "scan"), column(c, name))
                for c in axis.codes.column_names
                if c != "cell"
            )
            self._join(query, table(self._name(name), name), on)
        star = exp.Column(this=exp.Star(), table=exp.to_identifier("scan"))
        choose(query, star, named(cast(state, "BIGINT"), "state"))
        return Step(self._name("coded"), query)

    def _functions(self, n: int, chosen: Sequence[int]) -> Step:
        classes, hidden = self._classes(chosen), self._hidden
        groups = [*hidden, *classes]
        within = every(same(column(name, "states"), column(name, "classes")) for name in classes)

        def listed(value: exp.Expr) -> exp.Expr:
            ordered = exp.Ordered(this=column("state", "states"), nulls_first=False)
            return call("list", exp.Order(this=value, expressions=[ordered]))

        owner = "classes" if classes else "states"
        query = exp.Select(expressions=[column(name, owner) for name in groups])
        choose(query, named(exp.Count(this=exp.Star()), "present"))
        for t in range(len(self._pieces)):
            value: exp.Expr = column(FUNCTION(t), "states")
            if within is not None:
                value = exp.Case(ifs=[exp.If(this=within.copy(), true=value)], default=number(0.0))
            choose(query, named(listed(value), FUNCTION(t)))
        for u in dict.fromkeys(u for _, u in self._cross_pairs):
            choose(query, named(listed(column(FUNCTION(u), "states")), FUNCTION_ALL(u)))
        for i, aggregate in self._of_kind("quantile"):
            for t in self._base[aggregate.bases[0]]:
                counted: exp.Expr = exp.NEQ(
                    this=column(FUNCTION(t), "states"), expression=number(0)
                )
                if within is not None:
                    counted = exp.And(this=counted, expression=wrapped(within))
                rank = exp.Sub(this=column(RANK(i), "states"), expression=number(1))
                place = exp.Case(ifs=[exp.If(this=counted, true=rank)], default=number(-1))
                choose(query, named(listed(place), PLACE(i, t)))
        states = table(self._name("states"), "states")
        if classes:
            # Classes exist per hidden row: a mixed key has other values for each.
            distinct = exp.Select(expressions=[*map(column, groups)], distinct=exp.Distinct())
            distinct.from_(table(self._name("states")), copy=False)
            distinct.set("where", exp.Where(this=column("kept")))
            query.set("from_", exp.From(this=derived(distinct, "classes")))
            self._join(
                query,
                states,
                every(same(column(h, "states"), column(h, "classes")) for h in hidden),
            )
        else:
            query.set("from_", exp.From(this=states))
        if groups:
            query.group_by(*(column(name, owner) for name in groups), copy=False)
        return Step(self._name(f"functions{n}"), query)

    def _kernels(self, n: int) -> Step:
        query = exp.Select(expressions=[exp.Star()]).from_(
            table(self._name(f"functions{n}")), copy=False
        )
        self._cross(query, table(self._name("constants")))
        for t in range(len(self._pieces)):
            inverse = call("privsql_inverse", column(FUNCTION(t)), column("factors"))
            choose(query, named(column(FUNCTION(t)) if self._fixed else inverse, INVERSE(t)))
        for i, _ in self._of_kind("quantile"):
            values = exp.Select(
                expressions=[
                    call("list_sort", call("list_distinct", call("list", column(ORDERED(i)))))
                ]
            ).from_(table(self._name("states")), copy=False)
            choose(query, named(exp.Subquery(this=values), ORDERED(i)))
        for u in dict.fromkeys(u for _, u in self._cross_pairs):
            inverse = call("privsql_inverse", column(FUNCTION_ALL(u)), column("factors"))
            choose(query, named(inverse, INVERSE_ALL(u)))
        if self._piece_pairs or self._cross_pairs:
            query = exp.Select(expressions=[exp.Star()]).from_(
                derived(query, "inverted"), copy=False
            )
        for t, u in self._piece_pairs:
            both = products(column(FUNCTION(t)), column(FUNCTION(u)))
            choose(
                query,
                named(call("privsql_inverse", both, column("factors")), MEAN(t, u)),
                named(products(column(INVERSE(t)), column(INVERSE(u))), PRODUCT(t, u)),
            )
        for t, u in self._cross_pairs:
            both = products(column(FUNCTION(t)), column(FUNCTION_ALL(u)))
            choose(
                query,
                named(call("privsql_inverse", both, column("factors")), MEAN_ALL(t, u)),
                named(products(column(INVERSE(t)), column(INVERSE_ALL(u))), PRODUCT_ALL(t, u)),
            )
        chosen = self._block.sets[n]
        whole = [(t, u, self._whole(t, u, chosen)) for t, u in self._piece_pairs]
        crossed = [(t, u, self._whole(t, u, chosen)) for t, u in self._cross_pairs]
        if any(axis is not None for *_, axis in (*whole, *crossed)):
            query = exp.Select(expressions=[exp.Star()]).from_(derived(query, "paired"), copy=False)
            for t, u, axis in whole:
                if axis is not None:
                    tail = self._tail(t, u, axis)
                    choose(query, named(tail, TAIL(t, u)))
            for t, u, axis in crossed:
                if axis is not None:
                    tail = self._tail(t, u, axis, over_all=True)
                    choose(query, named(tail, TAIL_ALL(t, u)))
        return Step(self._name(f"kernels{n}"), query)

    def _tail(self, t: int, u: int, i: int, over_all: bool = False) -> exp.Expr:
        """The part of the whole column of axis i in the covariance of two pieces."""
        f, g = FUNCTION(t), (FUNCTION_ALL if over_all else FUNCTION)(u)
        pair = Pair(t, u, over_all)
        axis = self._states.axes[i]
        masses = column(MASSES(i))
        if axis.mechanism == "decoy":
            weighed = products(masses, column(f))
            expected = call("privsql_expected", weighed.copy(), column("factors"))
            return exp.Sub(this=dot(weighed, column(g)), expression=dot(expected, column(g)))
        error = exp.Sub(
            this=dot(masses, column(pair.product)),
            expression=dot(masses.copy(), column(pair.mean)),
        )
        lost = 1.0 if axis.mechanism == "swap" else (1 - axis.retention) ** 2
        return exp.Mul(this=number(lost), expression=exp.Paren(this=error))


def quotient(top: exp.Expr, bottom: exp.Expr) -> exp.Expr:
    """``top / bottom``."""
    return exp.Div(this=wrapped(top), expression=wrapped(bottom), typed=False, safe=False)
