"""The reconstruction: SQL over the scan's small result that turns sums into estimates.

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

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from sqlglot import exp

from privsql.sql.block import Aggregate, Block
from privsql.sql.calculus import add, is_zero
from privsql.sql.estimates import Estimates
from privsql.sql.pieces import Piece
from privsql.sql.scan import ADDITIVE, StateScan
from privsql.sql.states import Axis, States
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
from privsql.sql.writing import call, dot, field, or_zero, products, same


@dataclass(frozen=True)
class Step:
    """A table of the reconstruction: its name and the query that makes it."""

    name: str
    query: exp.Expr


class Writer:
    """Writes the reconstruction of one block, and names the sums that its scan must bring."""

    def __init__(
        self,
        block: Block,
        states: States,
        scan: StateScan,
        prefix: str,
        pairs: Iterable[tuple[int, int]],
        domain: Callable[[str], str],
        iterative: bool = False,
        totals: Iterable[tuple[int, int]] = (),
    ) -> None:
        self._block = block
        self._states = states
        self._scan = scan
        self._prefix = prefix
        self._iterative = iterative
        self._domain = domain
        self._pairs = sorted({(min(i, j), max(i, j)) for i, j in pairs})
        self._pieces: list[Piece] = []
        index: dict[str, int] = {}
        for base in block.bases:
            for piece in base:
                if index.setdefault(piece.key, len(self._pieces)) == len(self._pieces):
                    self._pieces.append(piece)
        self._base = [[index[piece.key] for piece in base] for base in block.bases]
        self._needed = self._base_pairs()
        # Covariances of a cell's aggregate with another summed over all cells (see totals).
        self._totals = sorted(set(totals))
        self._total_pairs = sorted(
            {
                (k, block.aggregates[j].bases[0])
                for i, j in self._totals
                for k in block.aggregates[i].bases
            }
        )
        # Where nothing was replaced nothing varies, and no sums are needed to say so.
        self._fixed = not scan.weighted and all(
            (axis.factor == np.eye(axis.count)).all() for axis in states.axes
        )
        self._cross_pairs = sorted(
            {
                (t, u)
                for k, other in self._total_pairs
                if not self._fixed
                for t in self._base[k]
                for u in self._base[other]
            }
        )
        self._piece_pairs = sorted(
            {
                (min(t, u), max(t, u))
                for k, other in self._needed
                if not self._fixed
                for t in self._base[k]
                for u in self._base[other]
            }
        )
        # Every sum must be named before the scan is written.
        self._rows = scan.rows()
        self._halves = [scan.half(piece) for piece in self._pieces]
        for half in self._halves:
            for kind in ("products",) if self._fixed else ("products", "squares", "fourths"):
                self._sum(kind, half, half if kind == "squares" else "")
        for one, two in (*self._piece_pairs, *self._cross_pairs):
            for kind in ("products", "squares"):
                self._sum(kind, self._halves[one], self._halves[two])
        self._hidden = [f"h{i}" for i in range(len(states.hidden))]
        # Scan columns that are below zero where a measure is: it has no constrained likelihood,
        # so that the aggregates named beside it are inverted even if ``iterative`` was asked.
        self.lowest: dict[str, tuple[int, ...]] = {}
        # Aggregates that are always inverted.
        self.inverted: tuple[int, ...] = ()
        if iterative:
            self._ask_lowest()
        # Sampled groups keep their totals, so all rows together are counted exactly.
        everyone = not (block.guards or block.keys or block.rows.joins)
        self._sure = frozenset(
            t
            for t, piece in enumerate(self._pieces)
            if scan.weighted
            and everyone
            and not (piece.guards or piece.value or piece.truths or piece.factor)
        )

    def _ask_lowest(self) -> None:
        self.inverted = tuple(i for i, _ in self._of_kind("quantile", "mode"))
        for half in dict.fromkeys(self._halves):
            if not half or self._scan.indicator(half):
                continue
            name = _lowest(half)
            least = exp.Least(this=exp.Min(this=column(half)), expressions=[number(0.0)])
            self._scan.sums[name] = least
            self.lowest[name] = tuple(
                i
                for i, aggregate in self._of_kind("linear")
                if any(self._halves[t] == half for k in aggregate.bases for t in self._base[k])
            )

    def _sum(self, kind: str, one: str, two: str = "") -> exp.Column:
        return column(self._scan.total(kind, one, two), "d")

    def _name(self, what: str) -> str:
        return f"{self._prefix}_{what}"

    def _base_pairs(self) -> list[tuple[int, int]]:
        """Pairs of bases whose covariance some aggregate or pair of aggregates needs."""
        found: set[tuple[int, int]] = set()
        everything = self._block.aggregates
        simple = ("count", "sum")
        own = [(i, i) for i, a in enumerate(everything) if a.call.name not in simple]
        for i, j in (*self._pairs, *own):
            if everything[i].kind == everything[j].kind == "linear":
                for k in _varying(everything[i]):
                    found |= {(min(k, o), max(k, o)) for o in _varying(everything[j])}
        return sorted(found)

    def _classes(self, chosen: Sequence[int]) -> list[str]:
        return [f"k{i}" for i in chosen if self._block.keys[i].sensitive]

    def _public(self, chosen: Sequence[int]) -> list[str]:
        return [f"k{i}" for i in chosen if not self._block.keys[i].sensitive]

    def _of_kind(self, *kinds: str) -> list[tuple[int, Aggregate]]:
        return [(i, a) for i, a in enumerate(self._block.aggregates) if a.kind in kinds]

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
        return (*steps, Step(self._name("block"), whole))

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
            self._certain(),
            self._totals,
            self._sure,
        )
        return [
            self._functions(n, chosen),
            self._kernels(n),
            self._dense(n, chosen),
            *modes,
            self._bases(n, chosen),
            Step(self._name(f"part{n}"), estimates.write(self._name, n, chosen)),
        ]

    def _certain(self) -> exp.Expr:
        """Whether answers are exact, which follows from the channel and never from estimates.

        They are where nothing was replaced, and swapping leaves the whole column's counts.
        """
        if self._fixed or self._scan.weighted:
            return exp.Boolean(this=self._fixed)
        axis = self._whole
        if axis is None or axis.mechanism != "swap" or any(self._halves):
            return exp.Boolean(this=False)
        return exp.EQ(this=column("n"), expression=number(self._states.rows or 0))

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
        if self._whole is not None:
            query = exp.Select(expressions=[exp.Star()]).from_(derived(query, "paired"), copy=False)
            for t, u in self._piece_pairs:
                choose(query, named(self._tail(f"f{t}", f"f{u}", f"{t}_{u}"), f"w{t}_{u}"))
            for t, u in self._cross_pairs:
                choose(query, named(self._tail(f"f{t}", f"all{u}", f"all{t}_{u}"), f"wall{t}_{u}"))
        return Step(self._name(f"kernels{n}"), query)

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
                    (cast(column(name), "DOUBLE"), "DOUBLE[]"),
                )
            ]
            dense = call("privsql_dense", *lists, number(self._states.count))
            choose(query, named(dense, name))
        choose(query, named(cast(or_zero(exp.Sum(this=column(self._rows))), "BIGINT"), "n"))
        for i, (exact, _) in enumerate(self._scan.exact):
            choose(query, named(_together(exact.name, column(f"e{i}")), f"e{i}"))
        if groups:
            query.group_by(*map(column, groups), copy=False)
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
            if _lowest(half) in self.lowest:
                least = exp.Select(expressions=[exp.Min(this=column(_lowest(half)))])
                least.from_(table(self._name("coded")), copy=False)
                fine = exp.GTE(this=exp.Subquery(this=least), expression=number(0))
                y = exp.Case(ifs=[exp.If(this=fine, true=y)])
            solved = call("privsql_likelihood", y, column("factors", "c"))
            choose(query, named(solved, _likeliest(half)))
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
            choose(query, named(total(self._covariance(k, other)), f"v{k}_{other}"))
        for k, other in self._total_pairs:
            choose(query, named(total(self._with_total(k, other)), f"x{k}_{other}"))
        for t, half in enumerate(self._halves):
            if self._fixed:
                choose(query, named(number(0.0), f"ws{t}"), named(number(0.0), f"wf{t}"))
                continue
            weights = call(
                "privsql_weights",
                self._sum("squares", half, half),
                self._sum("fourths", half),
                column(f"f{t}", "k"),
                column("factors", "k"),
            )
            for part, short in (("second", "ws"), ("fourth", "wf")):
                choose(query, named(total(field(weights, part)), f"{short}{t}"))
        if self._states.masses is not None and not hidden:
            for t in range(len(self._pieces)):
                choose(query, named(dot(column("masses", "k"), column(f"f{t}", "k")), f"m{t}"))
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

    def _estimate(self, t: int) -> exp.Expr:
        """One piece's sum over original rows."""
        inverted = dot(self._sum("products", self._halves[t]), column(f"i{t}", "k"))
        if not self._iterative:
            return inverted
        solved = column(_likeliest(self._halves[t]), "d")
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
                if _lowest(half) in self.lowest:
                    none = exp.Is(this=column(_likeliest(half), "d"), expression=exp.Null())
                    open_ = cast(exp.Literal.string(far), "DOUBLE")
                    part = exp.Case(ifs=[exp.If(this=none, true=open_)], default=part)
                total = add(total, part)
            ends.append(total)
        return ends

    def _covariance(self, k: int, other: int) -> exp.Expr:
        total: exp.Expr = number(0)
        for t in self._base[k]:
            for u in self._base[other]:
                total = add(total, self._shared(t, u, f"{min(t, u)}_{max(t, u)}"))
        return total

    def _with_total(self, k: int, other: int) -> exp.Expr:
        """Covariance of base k in a cell with another base over all cells."""
        made: exp.Expr = number(0)
        for t in self._base[k]:
            for u in self._base[other]:
                made = add(made, self._shared(t, u, f"all{t}_{u}"))
        return made

    def _shared(self, t: int, u: int, pair: str) -> exp.Expr:
        """Covariance of two pieces: ``sum m (W^2 v v' G G' - W v v' H)`` (udfs.variance)."""
        if self._fixed or {t, u} & self._sure:
            return number(0.0)
        halves = self._halves[t], self._halves[u]
        both = self._error(self._sum("squares", *halves), self._sum("products", *halves), pair)
        axis = self._whole
        if axis is None:
            return both
        # The channel was read off the published column, so that other rows have a part in
        # the answer too (see ``_whole``).
        rows = number(self._states.rows or 0)
        one, two = (self._sum("products", half) for half in halves)
        v, w = (call("list_sum", y.copy()) for y in (one, two))
        tail = column(f"w{pair}", "k")
        if axis.mechanism == "decoy":
            left = [self._left(t, rows), self._left(u, rows)]
            scale = left[0] if t == u else exp.Sqrt(this=exp.Mul(this=left[0], expression=left[1]))
            more = exp.Mul(this=_quotient(exp.Mul(this=v, expression=w), rows), expression=tail)
            return exp.Paren(
                this=exp.Add(this=exp.Mul(this=scale, expression=both), expression=more)
            )
        kept = 0.0 if axis.mechanism == "swap" else _retention(axis)
        mixed = exp.Add(
            this=exp.Mul(this=w, expression=wrapped(self._error(one, one, pair))),
            expression=exp.Mul(this=v, expression=wrapped(self._error(two, two, pair))),
        )
        lost = exp.Mul(this=number(1 - kept), expression=exp.Paren(this=mixed))
        more = exp.Mul(this=exp.Mul(this=v.copy(), expression=w.copy()), expression=tail)
        part = _quotient(exp.Sub(this=more, expression=lost), rows)
        return exp.Paren(this=exp.Add(this=both, expression=part))

    def _left(self, t: int, rows: exp.Expr) -> exp.Expr:
        """``1 - r^3``: how far a piece is from adding up the same over all rows."""
        half = self._halves[t]
        total = call("list_sum", self._sum("products", half))
        square = call("list_sum", self._sum("squares", half, half))
        whole = exp.Mul(this=rows.copy(), expression=square)
        share = _quotient(
            exp.Mul(this=total, expression=total.copy()),
            exp.Nullif(this=whole, expression=number(0)),
        )
        near = exp.Pow(this=wrapped(share), expression=number(3))
        rest = exp.Sub(this=number(1.0), expression=or_zero(near))
        return exp.Greatest(this=rest, expressions=[number(0.0)])

    @staticmethod
    def _error(second: exp.Expr, first: exp.Expr, pair: str) -> exp.Expr:
        """``second . G G' - first . H``."""
        return exp.Paren(
            this=exp.Sub(
                this=dot(second.copy(), column(f"q{pair}", "k")),
                expression=dot(first.copy(), column(f"p{pair}", "k")),
            )
        )

    @property
    def _whole(self) -> Axis | None:
        """The column perturbed as a whole whose errors are corrected for that.

        Its channel comes from its published values, so that an answer is a sum over *all* N
        rows of the table.  With D = G G' - H and V the sum of v over the selected rows:

            identity  sum k k' p^2 D,  k = (v - (1-p) V/N) / p      (reconstruction, 3)
            swap      the same with k = (v - V/N) / p: the whole column's answer is exact
            decoy     (1 - r^3) sum v v' D + V V'/N E,  r = V^2 / (N sum v^2),
                      E = q . g (g' - T g')

        Decoy's is exact for counts of the whole table (r = 1), where published counts are sums
        of multinomials over groups, and plain for few rows; between them it is no theorem but
        an interpolation, mostly on the wide side (tests.oracle.families has the figures).
        Together with another sensitive column, with hidden columns or weights the plain
        formula stands for all three, which errs on the wide side as well.
        """
        return None if self._hidden or self._scan.weighted else self._states.whole

    def _tail(self, f: str, g: str, pair: str) -> exp.Expr:
        """What the whole column has to say about a pair of pieces."""
        axis = self._whole
        if axis is None:
            raise AssertionError("the block lacks a part that its kind has")
        masses = column("masses")
        if axis.mechanism == "decoy":
            weighed = products(masses, column(f))
            expected = call("privsql_expected", weighed.copy(), column("factors"))
            return exp.Sub(this=dot(weighed, column(g)), expression=dot(expected, column(g)))
        error = exp.Sub(
            this=dot(masses, column(f"q{pair}")),
            expression=dot(masses.copy(), column(f"p{pair}")),
        )
        lost = 1.0 if axis.mechanism == "swap" else (1 - _retention(axis)) ** 2
        return exp.Mul(this=number(lost), expression=exp.Paren(this=error))

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
        choose(best, named(call("arg_max", column("value"), column("total")), "value"))
        best.from_(derived(totals, "totals"), copy=False)
        if names:
            best.group_by(*map(column, names), copy=False)
        return Step(self._name(f"mode{n}_{i}"), best)


def _varying(aggregate: Aggregate) -> tuple[int, ...]:
    """The bases that an aggregate's error comes from; SUM's count only tells NULL."""
    simple = aggregate.call.name in ("count", "count_if", "sum")
    return aggregate.bases[:1] if simple else aggregate.bases


def _lowest(half: str) -> str:
    """The scan's column that is below zero where a public half is."""
    return f"low_{half}"


def _likeliest(half: str) -> str:
    """The column with a public half's likeliest states."""
    return f"ml_{half}"


def _quotient(top: exp.Expr, bottom: exp.Expr) -> exp.Expr:
    return exp.Div(this=wrapped(top), expression=wrapped(bottom), typed=False, safe=False)


def _retention(axis: Axis) -> float:
    return float(axis.channel.retention)  # type: ignore[attr-defined]


def _together(name: str, part: exp.Expr) -> exp.Expr:
    """An exact aggregate put together from those of parts."""
    node = call(ADDITIVE[name], part)
    if name == "count":
        return cast(or_zero(node), "BIGINT")
    return node


__all__ = ["Step", "Writer", "is_zero"]
