"""The sensitive part of sums: functions over states, and their inversion."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from privsql.sql.bind.block import Quantile
from privsql.sql.expressions import call, dot, products, same
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
from privsql.sql.outer.calculus import add
from privsql.sql.reconstruct.columns import (
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
from privsql.sql.reconstruct.sums import Step, Sums


class Functions:
    """Writes the tables of states, functions and kernels, and the scan's states."""

    def __init__(self, sums: Sums) -> None:
        self._sums = sums

    def _function(self, t: int) -> exp.Expr:
        """The sensitive half of a piece over the table of states."""
        piece = self._sums.pieces[t]
        value: exp.Expr = number(1.0)
        if piece.factor is not None:
            value = cast(wrapped(self._sums.states.written[sql(piece.factor)]), "DOUBLE")
        truth = every(self._sums.states.written[sql(node)] for node in piece.truths)
        if truth is None:
            return value
        return exp.Case(ifs=[exp.If(this=truth, true=value)], default=number(0.0))

    def states(self) -> Step:
        """Every state with the functions of all pieces."""
        state: exp.Expr = number(0)
        stride = self._sums.states.count
        query = exp.Select()
        for i, axis in enumerate(self._sums.states.axes):
            stride //= axis.count
            state = add(state, exp.Mul(this=column("cell", f"axis{i}"), expression=number(stride)))
            cross(query, table(self._sums.table_of(f"axis{i}"), f"axis{i}"))
        if self._sums.hidden:
            hidden = exp.Select(
                expressions=[column(name) for name in self._sums.hidden], distinct=exp.Distinct()
            ).from_(table(self._sums.table_of("scan")), copy=False)
            cross(query, derived(hidden, "hidden"))
        choose(query, named(cast(state, "BIGINT"), "state"), *map(column, self._sums.hidden))
        for t in range(len(self._sums.pieces)):
            choose(query, named(self._function(t), FUNCTION(t)))
        for i, key in enumerate(self._sums.block.keys):
            if key.sensitive:
                choose(query, named(self._sums.states.written[sql(key.expression)].copy(), KEY(i)))
        choose(query, named(self._kept(), "kept"))
        for i, aggregate in self._sums.distributions():
            written = self._sums.states.written[sql(aggregate.ordered)]
            order = exp.Order(expressions=[exp.Ordered(this=written.copy(), nulls_first=False)])
            rank = exp.Window(this=call("dense_rank"), order=order, over="OVER")
            choose(query, named(written.copy(), ORDERED(i)), named(rank, RANK(i)))
        return Step(self._sums.table_of("states"), query)

    def _kept(self) -> exp.Expr:
        """Whether WHERE can hold in a state: values that it excludes make no group."""
        ways: exp.Expr | None = None
        for branch in self._sums.block.where:
            way = every(self._sums.states.written[sql(node)] for node in branch.truths)
            if way is None:
                return exp.Boolean(this=True)
            ways = way if ways is None else exp.Or(this=wrapped(ways), expression=wrapped(way))
        return ways if ways is not None else exp.Boolean(this=False)

    def coded(self) -> Step:
        """The scan with the number of each published state."""
        state: exp.Expr = number(0)
        stride = self._sums.states.count
        query = exp.Select().from_(table(self._sums.table_of("scan"), "scan"), copy=False)
        for i, axis in enumerate(self._sums.states.axes):
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
            joined(query, table(self._sums.table_of(name), name), on)
        star = exp.Column(this=exp.Star(), table=exp.to_identifier("scan"))
        choose(query, star, named(cast(state, "BIGINT"), "state"))
        return Step(self._sums.table_of("coded"), query)

    def functions(self, n: int, chosen: Sequence[int]) -> Step:
        """Per class of sensitive keys, functions as lists over states."""
        classes, hidden = self._sums.sensitive_keys(chosen), self._sums.hidden
        groups = [*hidden, *classes]
        within = every(same(column(name, "states"), column(name, "classes")) for name in classes)

        def listed(value: exp.Expr) -> exp.Expr:
            ordered = exp.Ordered(this=column("state", "states"), nulls_first=False)
            return call("list", exp.Order(this=value, expressions=[ordered]))

        owner = "classes" if classes else "states"
        query = exp.Select(expressions=[column(name, owner) for name in groups])
        choose(query, named(exp.Count(this=exp.Star()), "present"))
        for t in range(len(self._sums.pieces)):
            value: exp.Expr = column(FUNCTION(t), "states")
            if within is not None:
                value = exp.Case(ifs=[exp.If(this=within.copy(), true=value)], default=number(0.0))
            choose(query, named(listed(value), FUNCTION(t)))
        for u in dict.fromkeys(u for _, u in self._sums.cross_pairs):
            choose(query, named(listed(column(FUNCTION(u), "states")), FUNCTION_ALL(u)))
        for i, aggregate in self._sums.of_kind(Quantile):
            for t in self._sums.base[aggregate.bases[0]]:
                counted: exp.Expr = exp.NEQ(
                    this=column(FUNCTION(t), "states"), expression=number(0)
                )
                if within is not None:
                    counted = exp.And(this=counted, expression=wrapped(within))
                rank = exp.Sub(this=column(RANK(i), "states"), expression=number(1))
                place = exp.Case(ifs=[exp.If(this=counted, true=rank)], default=number(-1))
                choose(query, named(listed(place), PLACE(i, t)))
        states = table(self._sums.table_of("states"), "states")
        if classes:
            # Classes exist per hidden row: a mixed key has other values for each.
            distinct = exp.Select(expressions=[*map(column, groups)], distinct=exp.Distinct())
            distinct.from_(table(self._sums.table_of("states")), copy=False)
            distinct.set("where", exp.Where(this=column("kept")))
            query.set("from_", exp.From(this=derived(distinct, "classes")))
            joined(
                query,
                states,
                every(same(column(h, "states"), column(h, "classes")) for h in hidden),
            )
        else:
            query.set("from_", exp.From(this=states))
        if groups:
            query.group_by(*(column(name, owner) for name in groups), copy=False)
        return Step(self._sums.table_of(f"functions{n}"), query)

    def kernels(self, n: int) -> Step:
        """Functions inverted, and the products that covariances need."""
        query = exp.Select(expressions=[exp.Star()]).from_(
            table(self._sums.table_of(f"functions{n}")), copy=False
        )
        cross(query, table(self._sums.table_of("constants")))
        for t in range(len(self._sums.pieces)):
            inverse = call("privsql_inverse", column(FUNCTION(t)), column("factors"))
            choose(query, named(column(FUNCTION(t)) if self._sums.fixed else inverse, INVERSE(t)))
        for i, _ in self._sums.of_kind(Quantile):
            values = exp.Select(
                expressions=[
                    call("list_sort", call("list_distinct", call("list", column(ORDERED(i)))))
                ]
            ).from_(table(self._sums.table_of("states")), copy=False)
            choose(query, named(exp.Subquery(this=values), ORDERED(i)))
        for u in dict.fromkeys(u for _, u in self._sums.cross_pairs):
            inverse = call("privsql_inverse", column(FUNCTION_ALL(u)), column("factors"))
            choose(query, named(inverse, INVERSE_ALL(u)))
        if self._sums.piece_pairs or self._sums.cross_pairs:
            query = exp.Select(expressions=[exp.Star()]).from_(
                derived(query, "inverted"), copy=False
            )
        for t, u in self._sums.piece_pairs:
            both = products(column(FUNCTION(t)), column(FUNCTION(u)))
            choose(
                query,
                named(call("privsql_inverse", both, column("factors")), MEAN(t, u)),
                named(products(column(INVERSE(t)), column(INVERSE(u))), PRODUCT(t, u)),
            )
        for t, u in self._sums.cross_pairs:
            both = products(column(FUNCTION(t)), column(FUNCTION_ALL(u)))
            choose(
                query,
                named(call("privsql_inverse", both, column("factors")), MEAN_ALL(t, u)),
                named(products(column(INVERSE(t)), column(INVERSE_ALL(u))), PRODUCT_ALL(t, u)),
            )
        chosen = self._sums.block.sets[n]
        whole = [(t, u, self._sums.whole(t, u, chosen)) for t, u in self._sums.piece_pairs]
        crossed = [(t, u, self._sums.whole(t, u, chosen)) for t, u in self._sums.cross_pairs]
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
        return Step(self._sums.table_of(f"kernels{n}"), query)

    def _tail(self, t: int, u: int, i: int, over_all: bool = False) -> exp.Expr:
        """The part of the whole column of axis i in the covariance of two pieces."""
        f, g = FUNCTION(t), (FUNCTION_ALL if over_all else FUNCTION)(u)
        pair = Pair(t, u, over_all)
        axis = self._sums.states.axes[i]
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


def cross(query: exp.Select, source: exp.Expr) -> None:
    """Add a table to FROM, every row with every row."""
    if query.args.get("from_") is None:
        query.set("from_", exp.From(this=source))
    else:
        query.append("joins", exp.Join(this=source, kind="CROSS"))


def joined(query: exp.Select, source: exp.Expr, on: exp.Expr | None, side: str = "") -> None:
    """Add a table to FROM where a condition holds; without one, every row with every row."""
    if on is None:
        query.append("joins", exp.Join(this=source, kind="CROSS"))
    else:
        query.append("joins", exp.Join(this=source, on=on, side=side))


def quotient(top: exp.Expr, bottom: exp.Expr) -> exp.Expr:
    """``top / bottom``."""
    return exp.Div(this=wrapped(top), expression=wrapped(bottom), typed=False, safe=False)
