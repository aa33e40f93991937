"""The sensitive part of sums: tables of states, of functions over them, and their inversion."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import reduce

from sqlglot import exp

from privsql.sql.bind.block import Quantile
from privsql.sql.expressions import call, dot, double, products, same
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
    ranked,
    select,
    sql,
    star_of,
    table,
    when,
    wrapped,
)
from privsql.sql.outer.calculus import added
from privsql.sql.reconstruct import columns
from privsql.sql.reconstruct.columns import FUNCTION, FUNCTION_ALL, INVERSE, INVERSE_ALL, Pair
from privsql.sql.reconstruct.sums import Step, Sums


def _function(sums: Sums, t: int) -> exp.Expr:
    """The sensitive half of a piece over the table of states."""
    piece = sums.pieces[t]
    value: exp.Expr = number(1.0)
    if piece.factor is not None:
        value = double(sums.states.written[sql(piece.factor)])
    truth = every(sums.states.written[sql(node)] for node in piece.truths)
    return value if truth is None else when(truth, value, number(0.0))


def states(sums: Sums) -> Step:
    """Every state with the functions of all pieces."""
    query = exp.Select()
    for i in range(len(sums.states.axes)):
        joined(query, table(sums.table_of(f"axis{i}"), f"axis{i}"))
    if sums.hidden:
        hidden = select(table(sums.table_of("scan")), *map(column, sums.hidden))
        joined(query, derived(hidden.distinct(copy=False), "hidden"))
    define(query, columns.STATE, state_of(sums, "axis", range(len(sums.states.axes))))
    choose(query, *map(column, sums.hidden))
    for t in range(len(sums.pieces)):
        define(query, FUNCTION(t), _function(sums, t))
    for i, key in enumerate(sums.block.keys):
        if key.sensitive:
            define(query, columns.KEY(i), copied(sums.states.written[sql(key.expression)]))
    define(query, columns.KEPT, kept(sums))
    for i, aggregate in sums.distributions():
        written = sums.states.written[sql(aggregate.ordered)]
        define(query, columns.ORDERED(i), copied(written))
        define(query, columns.RANK(i), ranked(copied(written)))
    return Step(sums.table_of("states"), query)


def state_of(sums: Sums, owner: str, used: Collection[int]) -> exp.Expr:
    """The number of a state, from the cells of some axes; those of others are the first."""
    parts, stride = [], sums.states.count
    for i, axis in enumerate(sums.states.axes):
        stride //= axis.count
        if i in used:
            cell = column(columns.CELL, f"{owner}{i}")
            parts.append(exp.Mul(this=cell, expression=number(stride)))
    return cast(added(parts), "BIGINT")


def kept(sums: Sums) -> exp.Expr:
    """Whether WHERE can hold in a state: values that it excludes make no group."""
    ways = [
        every(sums.states.written[sql(node)] for node in branch.truths)
        for branch in sums.block.where
    ]
    if None in ways:
        return exp.Boolean(this=True)
    either = [way for way in ways if way is not None] or [exp.Boolean(this=False)]
    return reduce(lambda a, b: exp.Or(this=wrapped(a), expression=wrapped(b)), either)


def coded(sums: Sums) -> Step:
    """The scan with the number of each published state."""
    query = select(table(sums.table_of("scan"), "scan"), star_of("scan"))
    used = [i for i, axis in enumerate(sums.states.axes) if axis.count > 1]
    join_codes(query, sums, used)
    define(query, columns.STATE, state_of(sums, "codes", used))
    return Step(sums.table_of("coded"), query)


def join_codes(query: exp.Select, sums: Sums, used: Iterable[int]) -> None:
    """Join a scan with the cells of some axes."""
    for i in used:
        name = f"codes{i}"
        codes = [c for c in sums.states.axes[i].codes.column_names if c != columns.CELL]
        on = every(same(column(each, "scan"), column(each, name)) for each in codes)
        joined(query, table(sums.table_of(name), name), on)


def functions(sums: Sums, n: int, chosen: Sequence[int]) -> Step:
    """Per class of sensitive keys, functions as lists over states."""
    classes, hidden = sums.sensitive_keys(chosen), sums.hidden
    groups = [*hidden, *classes]
    within = every(same(column(name, "states"), column(name, "classes")) for name in classes)

    def listed(value: exp.Expr) -> exp.Expr:
        ordered = exp.Ordered(this=column(columns.STATE, "states"), nulls_first=False)
        return call("list", exp.Order(this=value, expressions=[ordered]))

    owner = "classes" if classes else "states"
    query = exp.Select(expressions=[column(name, owner) for name in groups])
    define(query, "present", exp.Count(this=exp.Star()))
    for t in range(len(sums.pieces)):
        value: exp.Expr = column(FUNCTION(t), "states")
        if within is not None:
            value = when(copied(within), value, number(0.0))
        define(query, FUNCTION(t), listed(value))
    for u in sums.crossed:
        define(query, FUNCTION_ALL(u), listed(column(FUNCTION(u), "states")))
    for i, aggregate in sums.of_kind(Quantile):
        for t in sums.base[aggregate.bases[0]]:
            counted: exp.Expr = exp.NEQ(this=column(FUNCTION(t), "states"), expression=number(0))
            if within is not None:
                counted = exp.And(this=counted, expression=wrapped(within))
            if aggregate.public:  # that a public value is there is counted beside the state
                there = given(column(columns.ORDERED(i), "states"))
                counted = exp.And(this=counted, expression=there)
            rank = exp.Sub(this=column(columns.RANK(i), "states"), expression=number(1))
            define(query, columns.PLACE(i, t), listed(when(counted, rank, number(-1))))
    if classes:
        # Classes exist per hidden row: a mixed key has other values for each.
        kept = select(table(sums.table_of("states")), *map(column, groups))
        kept.distinct(copy=False).where(column(columns.KEPT), copy=False)
        joined(query, derived(kept, "classes"))
    on = every(same(column(name, "states"), column(name, "classes")) for name in hidden)
    joined(query, table(sums.table_of("states"), "states"), on)
    query.group_by(*(column(name, owner) for name in groups), copy=False)
    return Step(sums.table_of(f"functions{n}"), query)


def kernels(sums: Sums, n: int) -> Step:
    """Functions inverted, and the products that covariances need."""
    query = select(table(sums.table_of(f"functions{n}")), exp.Star())
    joined(query, table(sums.table_of("constants")))

    def inverse(function: exp.Expr) -> exp.Expr:
        return call("privsql_inverse", function, column("factors"))

    for t in range(len(sums.pieces)):
        function = column(FUNCTION(t))
        define(query, INVERSE(t), function if sums.fixed else inverse(function))
    for i, _ in sums.of_kind(Quantile):
        values = call("list_distinct", call("list", column(columns.ORDERED(i))))
        ordered = select(table(sums.table_of("states")), call("list_sort", values))
        define(query, columns.ORDERED(i), exp.Subquery(this=ordered))
    for u in sums.crossed:
        define(query, INVERSE_ALL(u), inverse(column(FUNCTION_ALL(u))))
    pairs = [Pair(t, u) for t, u in sums.piece_pairs]
    pairs += [Pair(t, u, over_all=True) for t, u in sums.cross_pairs]
    if pairs:
        query = select(derived(query, "inverted"), exp.Star())
    for pair in pairs:
        define(query, pair.mean, inverse(products(*map(column, pair.functions))))
        define(query, pair.product, products(*map(column, pair.inverses)))
    whole = {pair: sums.whole(pair.t, pair.u, sums.block.sets[n]) for pair in pairs}
    tails = {pair: _tail(sums, pair, i) for pair, i in whole.items() if i is not None}
    if tails:
        query = select(derived(query, "paired"), exp.Star())
        choose(query, *(named(tail, pair.tail) for pair, tail in tails.items()))
    return Step(sums.table_of(f"kernels{n}"), query)


def _tail(sums: Sums, pair: Pair, i: int) -> exp.Expr:
    """The part of the whole column of axis i in the covariance of two pieces."""
    axis, masses = sums.states.axes[i], column(columns.MASSES(i))
    if axis.mechanism == "decoy":
        f, g = map(column, pair.functions)
        weighed = products(masses, f)
        expected = call("privsql_expected", copied(weighed), column("factors"))
        return exp.Sub(this=dot(weighed, g), expression=dot(expected, copied(g)))
    second, first = (dot(copied(masses), column(name)) for name in (pair.product, pair.mean))
    error = exp.Paren(this=exp.Sub(this=second, expression=first))
    lost = 1.0 if axis.mechanism == "swap" else (1 - axis.retention) ** 2
    return exp.Mul(this=number(lost), expression=error)
