"""The sensitive part of sums: functions over states, and their inversion."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from privsql.sql.calculus import add
from privsql.sql.sums import Step, Sums, masses_name
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
            choose(query, named(self._function(t), f"f{t}"))
        for i, key in enumerate(self._block.keys):
            if key.sensitive:
                choose(query, named(self._states.written[sql(key.expression)].copy(), f"k{i}"))
        choose(query, named(self._kept(), "kept"))
        for i, aggregate in self._of_kind("quantile", "mode"):
            if aggregate.ordered is None:
                raise AssertionError("the block lacks a part that its kind has")
            written = self._states.written[sql(aggregate.ordered)]
            order = exp.Order(expressions=[exp.Ordered(this=written.copy(), nulls_first=False)])
            rank = exp.Window(this=call("dense_rank"), order=order, over="OVER")
            choose(query, named(written.copy(), f"o{i}"), named(rank, f"rank{i}"))
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
        within = every(same(column(name, "s"), column(name, "c")) for name in classes)

        def listed(value: exp.Expr) -> exp.Expr:
            ordered = exp.Ordered(this=column("state", "s"), nulls_first=False)
            return call("list", exp.Order(this=value, expressions=[ordered]))

        owner = "c" if classes else "s"
        query = exp.Select(expressions=[column(name, owner) for name in groups])
        choose(query, named(exp.Count(this=exp.Star()), "present"))
        for t in range(len(self._pieces)):
            value: exp.Expr = column(f"f{t}", "s")
            if within is not None:
                value = exp.Case(ifs=[exp.If(this=within.copy(), true=value)], default=number(0.0))
            choose(query, named(listed(value), f"f{t}"))
        for u in dict.fromkeys(u for _, u in self._cross_pairs):
            choose(query, named(listed(column(f"f{u}", "s")), f"all{u}"))
        for i, aggregate in self._of_kind("quantile"):
            for t in self._base[aggregate.bases[0]]:
                counted: exp.Expr = exp.NEQ(this=column(f"f{t}", "s"), expression=number(0))
                if within is not None:
                    counted = exp.And(this=counted, expression=wrapped(within))
                rank = exp.Sub(this=column(f"rank{i}", "s"), expression=number(1))
                place = exp.Case(ifs=[exp.If(this=counted, true=rank)], default=number(-1))
                choose(query, named(listed(place), f"at{i}_{t}"))
        states = table(self._name("states"), "s")
        if classes:
            # Classes exist per hidden row: a mixed key has other values for each.
            distinct = exp.Select(expressions=[*map(column, groups)], distinct=exp.Distinct())
            distinct.from_(table(self._name("states")), copy=False)
            distinct.set("where", exp.Where(this=column("kept")))
            query.set("from_", exp.From(this=derived(distinct, "c")))
            self._join(query, states, every(same(column(h, "s"), column(h, "c")) for h in hidden))
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
            inverse = call("privsql_inverse", column(f"f{t}"), column("factors"))
            choose(query, named(column(f"f{t}") if self._fixed else inverse, f"i{t}"))
        for i, _ in self._of_kind("quantile"):
            values = exp.Select(
                expressions=[
                    call("list_sort", call("list_distinct", call("list", column(f"o{i}"))))
                ]
            ).from_(table(self._name("states")), copy=False)
            choose(query, named(exp.Subquery(this=values), f"o{i}"))
        for u in dict.fromkeys(u for _, u in self._cross_pairs):
            inverse = call("privsql_inverse", column(f"all{u}"), column("factors"))
            choose(query, named(inverse, f"iall{u}"))
        if self._piece_pairs or self._cross_pairs:
            query = exp.Select(expressions=[exp.Star()]).from_(
                derived(query, "inverted"), copy=False
            )
        for t, u in self._piece_pairs:
            both = products(column(f"f{t}"), column(f"f{u}"))
            choose(
                query,
                named(call("privsql_inverse", both, column("factors")), f"p{t}_{u}"),
                named(products(column(f"i{t}"), column(f"i{u}")), f"q{t}_{u}"),
            )
        for t, u in self._cross_pairs:
            both = products(column(f"f{t}"), column(f"all{u}"))
            choose(
                query,
                named(call("privsql_inverse", both, column("factors")), f"pall{t}_{u}"),
                named(products(column(f"i{t}"), column(f"iall{u}")), f"qall{t}_{u}"),
            )
        chosen = self._block.sets[n]
        whole = [(t, u, self._whole(t, u, chosen)) for t, u in self._piece_pairs]
        crossed = [(t, u, self._whole(t, u, chosen)) for t, u in self._cross_pairs]
        if any(axis is not None for *_, axis in (*whole, *crossed)):
            query = exp.Select(expressions=[exp.Star()]).from_(derived(query, "paired"), copy=False)
            for t, u, axis in whole:
                if axis is not None:
                    tail = self._tail(f"f{t}", f"f{u}", f"{t}_{u}", axis)
                    choose(query, named(tail, f"w{t}_{u}"))
            for t, u, axis in crossed:
                if axis is not None:
                    tail = self._tail(f"f{t}", f"all{u}", f"all{t}_{u}", axis)
                    choose(query, named(tail, f"wall{t}_{u}"))
        return Step(self._name(f"kernels{n}"), query)

    def _tail(self, f: str, g: str, pair: str, i: int) -> exp.Expr:
        """What the whole column of axis i has to say about a pair of pieces."""
        axis = self._states.axes[i]
        masses = column(masses_name(i))
        if axis.mechanism == "decoy":
            weighed = products(masses, column(f))
            expected = call("privsql_expected", weighed.copy(), column("factors"))
            return exp.Sub(this=dot(weighed, column(g)), expression=dot(expected, column(g)))
        error = exp.Sub(
            this=dot(masses, column(f"q{pair}")),
            expression=dot(masses.copy(), column(f"p{pair}")),
        )
        lost = 1.0 if axis.mechanism == "swap" else (1 - axis.retention) ** 2
        return exp.Mul(this=number(lost), expression=exp.Paren(this=error))


def quotient(top: exp.Expr, bottom: exp.Expr) -> exp.Expr:
    """``top / bottom``."""
    return exp.Div(this=wrapped(top), expression=wrapped(bottom), typed=False, safe=False)
