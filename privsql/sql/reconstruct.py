"""The reconstruction: SQL over the scan's small result that turns sums into estimates.

It runs in an in-memory DuckDB that holds nothing but that result, the cells of the sensitive
columns and our functions.  Per set of grouping keys:

    states     every state with the atoms' values: sensitive expressions are SQL over it
    functions  per class of sensitive keys, each piece's function f as a list over states
    kernels    A^-1 f, and the products that variances need          (privsql_inverse)
    dense      per public keys, the scan's sums as lists over states   (privsql_dense)
    bases      sums of y * A^-1 f, their covariances, effective rows
    block      the aggregates, their covariances: what the analyst's SELECT reads

Hidden public columns make one list each and are added up in ``bases``: rows are independent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from sqlglot import exp

from privsql.sql.aggregates import Formula, formula
from privsql.sql.block import Aggregate, Block
from privsql.sql.calculus import add, depends, derivative, is_zero, multiply
from privsql.sql.catalog import PUBLISHED
from privsql.sql.pieces import Piece
from privsql.sql.scan import ADDITIVE, StateScan
from privsql.sql.states import States
from privsql.sql.tree import Unsupported, choose, column, every, number, sql, table, wrapped


@dataclass(frozen=True)
class Step:
    """A table of the reconstruction: its name and the query that makes it."""

    name: str
    query: exp.Expression


@dataclass(frozen=True)
class Reconstruction:
    """The steps in order; the last makes the block's table."""

    steps: tuple[Step, ...]
    pairs: frozenset[tuple[int, int]]  # aggregates whose covariance is at hand
    scored: dict[int, bool] = field(default_factory=dict)  # counts that have a score interval


def call(name: str, *arguments: exp.Expression) -> exp.Expression:
    """A function call."""
    return exp.Anonymous(this=name, expressions=list(arguments))


def alias(node: exp.Expression, name: str) -> exp.Expression:
    """``node AS name``."""
    return exp.alias_(node, name, quoted=True)


def dot(one: exp.Expression, two: exp.Expression) -> exp.Expression:
    """Sum of products of two lists."""
    return call("list_dot_product", one, two)


def same(one: exp.Expression, two: exp.Expression) -> exp.Expression:
    """Equality under which NULL is a value like any other."""
    return exp.NullSafeEQ(this=one, expression=two)


class Writer:
    """Writes the reconstruction of one block."""

    def __init__(
        self,
        block: Block,
        states: States,
        scan: StateScan,
        prefix: str,
        pairs: Iterable[tuple[int, int]],
        domain: Callable[[str], str],
        iterative: bool = False,
    ) -> None:
        self._domain = domain
        self._block = block
        self._states = states
        self._scan = scan
        self._prefix = prefix
        self._iterative = iterative
        self._pairs = sorted({(min(i, j), max(i, j)) for i, j in pairs})
        self._pieces: list[Piece] = []
        self._index: dict[str, int] = {}
        for base in block.bases:
            for piece in base:
                key = repr(piece.key())
                if key not in self._index:
                    self._index[key] = len(self._pieces)
                    self._pieces.append(piece)
        self._needed = self._base_pairs()
        # Every sum must be named before the scan is written.
        self._rows = scan.rows()
        self._halves = [scan.half(piece) for piece in self._pieces]
        for half in self._halves:
            scan.total("products", half)
        for one, two in self._piece_pairs():
            scan.total("products", self._halves[one], self._halves[two])
            scan.total("squares", self._halves[one], self._halves[two])
        for half in self._halves:
            scan.total("squares", half, half)
            scan.total("fourths", half)

    # -- names ------------------------------------------------------------------------

    def name(self, what: str) -> str:
        """The name of one of our tables."""
        return f"{self._prefix}_{what}"

    def _base(self, k: int) -> list[int]:
        return [self._index[repr(piece.key())] for piece in self._block.bases[k]]

    def _formula(self, aggregate: Aggregate, letter: str = "b") -> Formula:
        def b(i: int) -> exp.Expression:
            return column(f"{letter}{aggregate.bases[i]}")

        def v(i: int, j: int) -> exp.Expression:
            if letter != "b":
                return number(0)
            one, two = sorted((aggregate.bases[i], aggregate.bases[j]))
            return column(f"v{one}_{two}")

        return formula(aggregate.call.name, b, v)

    def _base_pairs(self) -> list[tuple[int, int]]:
        """Pairs of bases whose covariance some aggregate or pair of aggregates needs."""
        found: set[tuple[int, int]] = set()
        for i, j in self._pairs:
            for k in self._block.aggregates[i].bases:
                for other in self._block.aggregates[j].bases:
                    found.add((min(k, other), max(k, other)))
        for aggregate in self._block.aggregates:
            if aggregate.kind == "linear" and aggregate.call.name not in ("count", "count_if", "sum"):
                for k in aggregate.bases:
                    for other in aggregate.bases:
                        found.add((min(k, other), max(k, other)))
        return sorted(found)

    def _piece_pairs(self) -> list[tuple[int, int]]:
        return sorted(
            {
                (min(t, u), max(t, u))
                for k, other in self._needed
                for t in self._base(k)
                for u in self._base(other)
            }
        )

    # -- steps ------------------------------------------------------------------------

    def write(self) -> Reconstruction:
        """All steps, for every grouping set."""
        steps = [self._states_step(), self._coded_step()]
        parts = []
        for n, chosen in enumerate(self._block.sets):
            steps += self._set_steps(n, chosen)
            parts.append(exp.select("*").from_(table(self.name(f"part{n}")), copy=False))
        whole: exp.Expression = parts[0]
        for part in parts[1:]:
            whole = exp.Union(this=whole, expression=part, distinct=False, by_name=True)
        steps.append(Step(self.name("block"), whole))
        return Reconstruction(tuple(steps), frozenset(self._pairs), dict(self._scored()))

    def _scored(self) -> Iterable[tuple[int, bool]]:
        """Counts of one piece under conditions on one column: the score interval is theirs."""
        axes = [axis for axis in self._states.axes if axis.count > 1]
        single = len(axes) == 1 and axes[0].masses is not None
        for i, aggregate in enumerate(self._block.aggregates):
            if aggregate.kind != "linear" or aggregate.call.name not in ("count", "count_if"):
                continue
            pieces = self._base(aggregate.bases[0])
            plain = len(pieces) == 1 and not self._halves[pieces[0]]
            if single and plain and not self._states.hidden and not self._scan.weighted:
                yield i, True

    def _function(self, t: int) -> exp.Expression:
        """The sensitive half of a piece over the table of states."""
        piece = self._pieces[t]
        value: exp.Expression = number(1.0)
        if piece.factor is not None:
            written = self._states.written[sql(piece.factor)]
            value = exp.cast(wrapped(written), "DOUBLE")
        truth = every(wrapped(self._states.written[sql(node)]) for node in piece.truths)
        if truth is None:
            return value
        return exp.Case(ifs=[exp.If(this=truth, true=value)], default=number(0.0))

    def _hidden(self) -> list[str]:
        return [f"h{i}" for i in range(len(self._states.hidden))]

    def _classes(self, chosen: Sequence[int]) -> list[str]:
        return [f"k{i}" for i in chosen if self._block.keys[i].sensitive]

    def _public(self, chosen: Sequence[int]) -> list[str]:
        return [f"k{i}" for i in chosen if not self._block.keys[i].sensitive]

    def _states_step(self) -> Step:
        state: exp.Expression = number(0)
        stride = self._states.count
        query = exp.Select()
        for i, axis in enumerate(self._states.axes):
            stride //= axis.count
            cell = exp.Mul(this=column("cell", f"axis{i}"), expression=number(stride))
            state = cell if is_zero(state) else exp.Add(this=state, expression=cell)
            source = table(self.name(f"axis{i}"), f"axis{i}")
            query = query.from_(source, copy=False) if i == 0 else query.join(source, join_type="CROSS")
        if self._states.hidden:
            hidden = exp.select(*map(column, self._hidden())).distinct().from_(table(self.name("scan")), copy=False)
            inner = hidden.subquery("hidden")
            query = query.join(inner, join_type="CROSS") if self._states.axes else query.from_(inner, copy=False)
        query = choose(query, alias(exp.cast(state, "BIGINT"), "state"))
        query = choose(query, *(column(name) for name in self._hidden()))
        for t in range(len(self._pieces)):
            query = choose(query, alias(self._function(t), f"f{t}"))
        for i, key in enumerate(self._block.keys):
            if key.sensitive:
                query = choose(query, alias(self._states.written[sql(key.expression)].copy(), f"k{i}"))
        for i, aggregate in enumerate(self._block.aggregates):
            if aggregate.ordered is not None and aggregate.kind in ("quantile", "mode"):
                written = self._states.written[sql(aggregate.ordered)]
                ordered = exp.Order(expressions=[exp.Ordered(this=written.copy(), nulls_first=False)])
                rank = exp.Window(this=exp.Anonymous(this="dense_rank"), order=ordered, over="OVER")
                choose(query, alias(written.copy(), f"o{i}"), alias(rank, f"rank{i}"))
        return Step(self.name("states"), query)

    def _coded_step(self) -> Step:
        """The scan with the number of each published state."""
        state: exp.Expression = number(0)
        stride = self._states.count
        query = exp.select("*").from_(table(self.name("scan"), "scan"), copy=False)
        for i, axis in enumerate(self._states.axes):
            stride //= axis.count
            if axis.count == 1:
                continue
            name = f"codes{i}"
            cell = exp.Mul(this=column("cell", name), expression=number(stride))
            state = cell if is_zero(state) else exp.Add(this=state, expression=cell)
            on = every(
                same(column(c, "scan"), column(c, name)) for c in axis.codes.column_names if c != "cell"
            )
            query = query.join(table(self.name(name), name), on=on)
        query.set("expressions", [exp.Column(this=exp.Star(), table=exp.to_identifier("scan"))])
        query = choose(query, alias(exp.cast(state, "BIGINT"), "state"))
        return Step(self.name("coded"), query)

    def _set_steps(self, n: int, chosen: Sequence[int]) -> list[Step]:
        return [
            self._functions(n, chosen),
            self._kernels(n),
            self._dense(n, chosen),
            self._bases(n, chosen),
            self._part(n, chosen),
        ]

    def _functions(self, n: int, chosen: Sequence[int]) -> Step:
        classes, hidden = self._classes(chosen), self._hidden()
        order = exp.Order(expressions=[exp.Ordered(this=column("state", "s"), nulls_first=False)])
        groups = [*hidden, *classes]
        query = exp.select(*(column(name, "c" if classes else "s") for name in groups))
        within = every(same(column(name, "s"), column(name, "c")) for name in classes)
        states = table(self.name("states"), "s")
        for t in range(len(self._pieces)):
            value: exp.Expression = column(f"f{t}", "s")
            if within is not None:
                value = exp.Case(ifs=[exp.If(this=within.copy(), true=value)], default=number(0.0))
            ordered = order.copy()
            ordered.set("this", value)
            query = choose(query, alias(call("list", ordered), f"f{t}"))
        for i, aggregate in enumerate(self._block.aggregates):
            if aggregate.kind == "quantile":
                self._positions(query, i, aggregate, order, within)
        if classes:
            # Classes exist per hidden row: a mixed key has other values for each.
            distinct = (
                exp.select(*(column(name) for name in groups))
                .distinct()
                .from_(table(self.name("states")), copy=False)
            )
            on = every(same(column(name, "s"), column(name, "c")) for name in hidden)
            query = query.from_(distinct.subquery("c"), copy=False).join(
                states, on=on, join_type="INNER" if on is not None else "CROSS"
            )
            query = query.group_by(*(column(name, "c") for name in groups))
        else:
            query = query.from_(states, copy=False)
            if groups:
                query = query.group_by(*(column(name, "s") for name in groups))
        return Step(self.name(f"functions{n}"), query)

    def _positions(
        self,
        query: exp.Select,
        i: int,
        aggregate: Aggregate,
        order: exp.Order,
        within: exp.Expression | None,
    ) -> None:
        """For a quantile: the values in order, and which of them each counted state has."""
        if self._states.hidden:
            raise Unsupported(
                "a quantile beside a comparison of a sensitive with a public column",
                hint="ask for the two in separate queries",
            )
        (t,) = self._base(aggregate.bases[0])
        counted: exp.Expression = exp.NEQ(this=column(f"f{t}", "s"), expression=number(0))
        if within is not None:
            counted = exp.And(this=counted, expression=wrapped(within))
        rank = exp.Sub(this=column(f"rank{i}", "s"), expression=number(1))
        ordered = order.copy()
        ordered.set("this", exp.Case(ifs=[exp.If(this=counted, true=rank)], default=number(-1)))
        values = call("list_sort", call("list_distinct", call("list", column(f"o{i}", "s"))))
        choose(query, alias(call("list", ordered), f"at{i}"), alias(values, f"o{i}"))

    def _kernels(self, n: int) -> Step:
        factors = column("factors")
        query = exp.select("*").from_(table(self.name(f"functions{n}")), copy=False).join(
            table(self.name("constants")), join_type="CROSS"
        )
        for t in range(len(self._pieces)):
            query = choose(query, alias(call("privsql_inverse", column(f"f{t}"), factors.copy()), f"i{t}"))
        pairs = self._piece_pairs()
        if pairs:
            inner = query.subquery("inverted")
            query = exp.select("*").from_(inner, copy=False)
            for t, u in pairs:
                both = _products(column(f"f{t}"), column(f"f{u}"))
                query = choose(query, 
                    alias(call("privsql_inverse", both, factors.copy()), f"p{t}_{u}"),
                    alias(_products(column(f"i{t}"), column(f"i{u}")), f"q{t}_{u}"),
                )
        return Step(self.name(f"kernels{n}"), query)

    def _dense(self, n: int, chosen: Sequence[int]) -> Step:
        groups = [*self._public(chosen), *self._hidden()]
        query = exp.select(*map(column, groups)).from_(table(self.name("coded")), copy=False)
        size = number(self._states.count)
        for name in self._scan.sums:
            lists = [
                exp.Coalesce(this=call("list", node), expressions=[exp.cast(exp.Array(), kind)])
                for node, kind in (
                    (column("state"), "BIGINT[]"),
                    (exp.cast(column(name), "DOUBLE"), "DOUBLE[]"),
                )
            ]
            query = choose(query, alias(call("privsql_dense", *lists, size.copy()), name))
        total = exp.Coalesce(this=exp.Sum(this=column(self._rows)), expressions=[number(0)])
        query = choose(query, alias(exp.cast(total, "BIGINT"), "n"))
        for i, (exact, _) in enumerate(self._scan.exact):
            how = ADDITIVE[exact.name]
            node: exp.Expression = call(how, column(f"e{i}"))
            if exact.name in ("count", "count_if"):
                node = exp.cast(exp.Coalesce(this=node, expressions=[number(0)]), "BIGINT")
            query = choose(query, alias(node, f"e{i}"))
        if groups:
            query = query.group_by(*map(column, groups))
        return Step(self.name(f"dense{n}"), query)

    def _bases(self, n: int, chosen: Sequence[int]) -> Step:
        hidden = self._hidden()
        public, classes = self._public(chosen), self._classes(chosen)
        query = exp.select(
            *(column(name, "d") for name in public), *(column(name, "k") for name in classes)
        )
        query = query.from_(table(self.name(f"dense{n}"), "d"), copy=False)
        on = every(same(column(name, "d"), column(name, "k")) for name in hidden)
        query = query.join(
            table(self.name(f"kernels{n}"), "k"),
            on=on,
            join_type="INNER" if on is not None else "CROSS",
        )

        def total(node: exp.Expression) -> exp.Expression:
            if not hidden:
                return node
            return exp.Coalesce(this=exp.Sum(this=node), expressions=[number(0.0)])

        def sums(kind: str, t: int, u: int) -> exp.Expression:
            return column(self._scan.total(kind, self._halves[t], self._halves[u]), "d")

        rows: exp.Expression = column("n", "d")
        query = choose(query, alias(exp.cast(total(rows), "BIGINT"), "n"))
        for i, (known, _) in enumerate(self._scan.exact):
            part: exp.Expression = column(f"e{i}", "d")
            if hidden:
                part = call(ADDITIVE[known.name], part)
            choose(query, alias(part, f"e{i}"))
        for k in range(len(self._block.bases)):
            parts, seen = number(0), number(0)
            for t in self._base(k):
                y = column(self._scan.total("products", self._halves[t]), "d")
                parts = add(parts, dot(self._original(y, t), column(f"f{t}" if self._likely(t) else f"i{t}", "k")))
                seen = add(seen, dot(y.copy(), column(f"f{t}", "k")))
            query = choose(query, alias(total(parts), f"b{k}"), alias(total(seen), f"r{k}"))
        for k, other in self._needed:
            node: exp.Expression = number(0)
            for t in self._base(k):
                for u in self._base(other):
                    pair = f"{min(t, u)}_{max(t, u)}"
                    node = add(
                        node,
                        exp.Sub(
                            this=dot(sums("squares", t, u), column(f"q{pair}", "k")),
                            expression=dot(sums("products", t, u), column(f"p{pair}", "k")),
                        ),
                    )
            query = choose(query, alias(total(node), f"v{k}_{other}"))
        for t in range(len(self._pieces)):
            weights = call(
                "privsql_weights",
                sums("squares", t, t),
                column(self._scan.total("fourths", self._halves[t]), "d"),
                column(f"f{t}", "k"),
                column("factors", "k"),
            )
            for part, short in (("second", "w"), ("fourth", "u")):
                value = exp.Dot(this=exp.Paren(this=weights.copy()), expression=exp.to_identifier(part))
                query = choose(query, alias(total(value), f"{short}{t}"))
        for i in self._scores():
            t = self._base(self._block.aggregates[i].bases[0])[0]
            query = choose(query, alias(dot(column("masses", "k"), column(f"f{t}", "k")), f"m{i}"))
        for i, aggregate in enumerate(self._block.aggregates):
            if aggregate.kind == "quantile":
                (t,) = self._base(aggregate.bases[0])
                choose(query, alias(self._quantile(i, aggregate, t), f"q{i}"), column(f"o{i}", "k"))
            elif aggregate.kind == "mode":
                choose(query, alias(self._mode(n, i, aggregate, chosen), f"a{i}"))
        if hidden:
            groups = [column(name, "d") for name in public] + [column(name, "k") for name in classes]
            if groups:
                query = query.group_by(*groups)
        return Step(self.name(f"bases{n}"), query)

    def _quantile(self, i: int, aggregate: Aggregate, t: int) -> exp.Expression:
        half = self._halves[t]
        kind = "disc" if aggregate.call.name == "quantile_disc" else "cont"
        assert aggregate.fraction is not None
        sums = [
            column(self._scan.total(name, half, half if name == "squares" else ""), "d")
            for name in ("products", "squares", "fourths")
        ]
        z = exp.select(column("z")).from_(table(self.name("z")), copy=False).subquery()
        fraction = exp.cast(wrapped(aggregate.fraction), "DOUBLE")
        ends = (column(f"at{i}", "k"), fraction, exp.Literal.string(kind), column("factors", "k"), z)
        return call("privsql_quantile", *sums, *ends)

    def _mode(self, n: int, i: int, aggregate: Aggregate, chosen: Sequence[int]) -> exp.Expression:
        """The value with the largest estimated count."""
        if self._states.hidden:
            raise Unsupported("MODE beside a comparison of a sensitive with a public column")
        (t,) = self._base(aggregate.bases[0])
        y = column(self._scan.total("products", self._halves[t]), "d")
        value = column(f"o{i}", "s")
        counted: exp.Expression = exp.NEQ(this=column(f"f{t}", "s"), expression=number(0))
        within = every(
            same(column(name, "s"), column(name, "k")) for name in self._classes(chosen)
        )
        if within is not None:
            counted = exp.And(this=counted, expression=wrapped(within))
        inverted = call("privsql_invert", y, column("factors", "k"))
        entry = call(
            "list_extract", inverted, exp.Add(this=column("state", "s"), expression=number(1))
        )
        totals = (
            exp.select(alias(value, "value"), alias(exp.Sum(this=entry), "total"))
            .from_(table(self.name("states"), "s"), copy=False)
            .where(counted, copy=False)
            .group_by(value.copy(), copy=False)
        )
        best = exp.select(call("arg_max", column("value"), column("total")))
        return best.from_(totals.subquery("totals"), copy=False).subquery()

    def _scores(self) -> list[int]:
        return [i for i, _ in self._scored()]

    def _likely(self, t: int) -> bool:
        """Whether the constrained likelihood applies: counts, not sums of a measure."""
        return self._iterative and (not self._halves[t] or self._scan.indicator(self._halves[t]))

    def _original(self, y: exp.Expression, t: int) -> exp.Expression:
        if not self._likely(t):
            return y
        solved = call("privsql_likelihood", y, column("factors", "k"))
        return exp.Dot(this=exp.Paren(this=solved), expression=exp.to_identifier("estimate"))

    def _part(self, n: int, chosen: Sequence[int]) -> Step:
        """Aggregates and their covariances from the bases."""
        values, smooth = self._values(chosen)
        slopes = self._gradients(smooth)
        for (i, k), node in slopes.items():
            if not isinstance(node, exp.Literal):
                choose(values, alias(node, f"d{i}_{k}"))
        values.from_(table(self.name(f"bases{n}"), "own"), copy=False)
        if self._scan.beside:
            # Aggregates that cannot be put together from states have a scan of their own.
            on = every(
                [
                    *(same(column(f"k{i}", "own"), column(f"k{i}", "beside")) for i in chosen),
                    *(
                        exp.EQ(this=column(f"g{i}", "beside"), expression=number(int(i not in chosen)))
                        for i in range(len(self._block.keys))
                    ),
                ]
            )
            other = table(self.name("beside"), "beside")
            values.join(other, on=on, join_type="LEFT" if on is not None else "CROSS", copy=False)
        spreads = exp.select("*").from_(values.subquery("sums"), copy=False)
        for i, j in self._pairs:
            if i in smooth and j in smooth:
                choose(spreads, alias(self._covariance(i, j, slopes), f"c{i}_{j}"))
            else:
                choose(spreads, alias(exp.cast(exp.Null(), "DOUBLE"), f"c{i}_{j}"))
        outer = exp.select("*").from_(spreads.subquery("estimates"), copy=False)
        outer = outer.join(table(self.name("z")), join_type="CROSS", copy=False)
        choose(outer, alias(exp.Boolean(this=self._certain()), "certain"))
        for i in smooth:
            for name, node in zip(("s", "l", "u", "o"), self._interval(i), strict=True):
                choose(outer, alias(node, f"{name}{i}"))
        return Step(self.name(f"part{n}"), outer)

    def _values(self, chosen: Sequence[int]) -> tuple[exp.Select, dict[int, exp.Expression]]:
        query = exp.Select()
        for i in range(len(self._block.keys)):
            present = i in chosen
            choose(
                query,
                alias(column(f"k{i}", "own") if present else exp.Null(), f"k{i}"),
                alias(number(0 if present else 1), f"g{i}"),
            )
        choose(query, column("n"))
        for k, other in self._needed:
            choose(query, column(f"v{k}_{other}"))
        smooth: dict[int, exp.Expression] = {}
        for i, aggregate in enumerate(self._block.aggregates):
            if aggregate.kind == "exact":
                choose(query, alias(self._exact(i, aggregate), f"a{i}"))
            elif aggregate.kind == "linear":
                smooth[i] = self._linear(query, i, aggregate)
            elif aggregate.kind == "domain":
                choose(query, alias(self._from_domain(aggregate), f"a{i}"))
            elif aggregate.kind == "quantile":
                choose(query, *self._quantile_columns(i, aggregate))
            else:
                choose(query, column(f"a{i}"), *_no_bars(i))
        for i in self._scores():
            choose(query, column(f"m{i}"))
        return query, smooth

    def _linear(self, query: exp.Select, i: int, aggregate: Aggregate) -> exp.Expression:
        made = self._formula(aggregate)
        observed = self._formula(aggregate, "r").value
        choose(
            query,
            alias(exp.cast(wrapped(made.value), "DOUBLE"), f"a{i}"),
            alias(exp.cast(wrapped(observed), "DOUBLE"), f"r{i}"),
            alias(self._effective(aggregate), f"e{i}"),
        )
        if aggregate.call.name == "avg":
            one, two = aggregate.bases
            low, high = sorted((one, two))
            for name, source in (
                ("n", f"b{one}"),
                ("d", f"b{two}"),
                ("nn", f"v{one}_{one}"),
                ("nd", f"v{low}_{high}"),
                ("dd", f"v{two}_{two}"),
            ):
                choose(query, alias(column(source), f"a{i}_{name}"))
        return made.smooth

    def _from_domain(self, aggregate: Aggregate) -> exp.Expression:
        """MIN or MAX of a sensitive column: of its public domain."""
        assert aggregate.ordered is not None
        (owner,) = {c.name for c in aggregate.ordered.find_all(exp.Column)}
        made = exp.select(call(aggregate.call.name, aggregate.ordered.copy()))
        return made.from_(table(self._domain(owner), PUBLISHED)).subquery()

    def _quantile_columns(self, i: int, aggregate: Aggregate) -> list[exp.Expression]:
        """The quantile's value and the values at the ends of its interval."""

        def value(part: str) -> exp.Expression:
            at = exp.Add(this=_field(column(f"q{i}"), part), expression=number(1))
            return call("list_extract", column(f"o{i}"), at)

        lower, upper = value("lower"), value("upper")
        name = aggregate.call.name
        if name == "quantile_disc":
            middle: exp.Expression = lower
        else:
            fraction = _field(column(f"q{i}"), "fraction")
            if self._temporal(aggregate):
                micros = [call("epoch_us", exp.cast(node, "TIMESTAMP")) for node in (lower, upper)]
                steps = exp.Mul(
                    this=exp.Paren(this=exp.Sub(this=micros[1], expression=micros[0].copy())),
                    expression=fraction,
                )
                whole = exp.cast(exp.Round(this=steps), "BIGINT")
                middle = call("make_timestamp", exp.Add(this=micros[0].copy(), expression=whole))
            else:
                low, high = (exp.cast(node, "DOUBLE") for node in (lower, upper))
                more = exp.Mul(
                    this=exp.Paren(this=exp.Sub(this=high, expression=low.copy())), expression=fraction
                )
                middle = exp.Add(this=low.copy(), expression=more)
        return [
            alias(middle, f"a{i}"),
            alias(exp.cast(exp.Null(), "DOUBLE"), f"s{i}"),
            alias(value("low"), f"l{i}"),
            alias(value("high"), f"u{i}"),
            alias(_field(column(f"q{i}"), "reliable"), f"o{i}"),
            alias(exp.cast(exp.Null(), "DOUBLE"), f"e{i}"),
            alias(exp.cast(exp.Null(), "DOUBLE"), f"r{i}"),
        ]

    def _temporal(self, aggregate: Aggregate) -> bool:
        assert aggregate.ordered is not None
        written = self._states.written[sql(aggregate.ordered)]
        for axis in self._states.axes:
            if isinstance(written, exp.Column) and written.name in axis.cells.column_names:
                return pa.types.is_temporal(axis.cells.column(written.name).type)
        return False

    def _interval(self, i: int) -> tuple[exp.Expression, ...]:
        """Standard error, ends and reliability of one aggregate."""
        aggregate = self._block.aggregates[i]
        if self._certain():
            value = column(f"a{i}")
            return number(0.0), value, value.copy(), exp.Boolean(this=True)
        spread = deviation(column(f"c{i}_{i}"))
        rows = column(f"e{i}")
        if i in self._scores():
            struct = self._score(i)
            ends = [_field(struct, part) for part in ("low", "high", "reliable")]
            # A condition that holds for every value, or for none, is answered exactly.
            sure = exp.Or(
                this=exp.LTE(this=column(f"m{i}"), expression=number(0.0)),
                expression=exp.GTE(this=column(f"m{i}"), expression=number(1.0)),
            )
            known = (column(f"a{i}"), column(f"a{i}"), exp.Boolean(this=True))
            low, high, good = (
                exp.Case(ifs=[exp.If(this=sure.copy(), true=exact)], default=end)
                for exact, end in zip(known, ends, strict=True)
            )
            return spread, *self._cut(i, low, high), good
        if aggregate.call.name == "avg":
            struct = call(
                "privsql_fieller_interval",
                *(column(f"a{i}_{part}") for part in ("n", "d", "nn", "nd", "dd")),
                rows,
                column("z"),
            )
            low, high, good = (_field(struct, part) for part in ("low", "high", "reliable"))
            return spread, low, high, good
        low, high, good = wald(column(f"a{i}"), spread, rows)
        return spread, *self._cut(i, low, high), good

    def _cut(self, i: int, low: exp.Expression, high: exp.Expression) -> tuple[exp.Expression, ...]:
        """The likelihood's estimate lies in the possible range, and so does its interval."""
        name = self._block.aggregates[i].call.name
        if not self._iterative or name not in ("count", "count_if"):
            return low, high
        struct = call(
            "privsql_constrain", column(f"a{i}"), low, high, number(0.0), exp.cast(column("n"), "DOUBLE")
        )
        return _field(struct, "low"), _field(struct, "high")

    def _certain(self) -> bool:
        """Whether nothing was replaced: exactness follows from the channel, not from data."""
        kept = all((axis.factor == np.eye(axis.count)).all() for axis in self._states.axes)
        return kept and not self._scan.weighted

    def _score(self, i: int) -> exp.Expression:
        axis = next(axis for axis in self._states.axes if axis.count > 1)
        p = float(axis.channel.retention)  # type: ignore[attr-defined]
        miss = exp.Paren(this=exp.Mul(this=number(1 - p), expression=column(f"m{i}")))
        hit = exp.Paren(this=exp.Add(this=number(p), expression=miss.copy()))
        rows = [
            exp.Array(
                expressions=[
                    exp.Paren(this=exp.Sub(this=number(1.0), expression=chance.copy())),
                    chance.copy(),
                ]
            )
            for chance in (miss, hit)
        ]
        factors = exp.Array(expressions=[exp.Array(expressions=rows)])
        return call(
            "privsql_score_interval", column(f"r{i}"), exp.cast(column("n"), "DOUBLE"), factors, column("z")
        )

    def _exact(self, i: int, aggregate: Aggregate) -> exp.Expression:
        for n, (_, text) in enumerate(self._scan.exact):
            if text == sql(aggregate.call.node):
                return column(f"e{n}")
        return column(f"x{i}", "beside")

    def _effective(self, aggregate: Aggregate) -> exp.Expression:
        """Effective rows of an aggregate: those of its worst piece."""
        found: list[exp.Expression] = []
        for k in aggregate.bases:
            for t in self._base(k):
                w, u = column(f"w{t}"), column(f"u{t}")
                ratio = exp.Div(
                    this=exp.Mul(this=w, expression=w.copy()), expression=u, typed=False, safe=False
                )
                infinite = number(MANY_ROWS)
                found.append(
                    exp.Case(
                        ifs=[
                            exp.If(this=exp.GT(this=u.copy(), expression=number(0)), true=ratio),
                            exp.If(this=exp.GT(this=column("n"), expression=number(0)), true=infinite),
                        ],
                        default=number(0.0),
                    )
                )
        if len(found) == 1:
            return found[0]
        return exp.Least(this=found[0], expressions=found[1:])

    def _gradients(self, smooth: dict[int, exp.Expression]) -> dict[tuple[int, int], exp.Expression]:
        """Slopes of aggregates by bases, where they are not simply one."""
        found: dict[tuple[int, int], exp.Expression] = {}
        for i, node in smooth.items():
            for k in dict.fromkeys(self._block.aggregates[i].bases):
                if depends(node, f"b{k}"):
                    found[i, k] = derivative(node, f"b{k}")
        return found

    def _covariance(
        self, i: int, j: int, slopes: dict[tuple[int, int], exp.Expression]
    ) -> exp.Expression:
        """``sum_kl d a_i/d b_k  d a_j/d b_l  v_kl``."""
        total: exp.Expression = number(0)
        for (one, k), left in slopes.items():
            for (two, other), right in slopes.items():
                if one == i and two == j:
                    pair = column(f"v{min(k, other)}_{max(k, other)}")
                    ends = [
                        node if isinstance(node, exp.Literal) else column(f"d{a}_{b}")
                        for node, a, b in ((left, i, k), (right, j, other))
                    ]
                    total = add(total, multiply(multiply(ends[0], ends[1]), pair))
        return exp.cast(wrapped(total), "DOUBLE")


def _products(one: exp.Expression, two: exp.Expression) -> exp.Expression:
    """Products of two lists, entry by entry."""
    pair = exp.to_identifier("z")
    body = exp.Mul(
        this=exp.Bracket(this=exp.Column(this=pair), expressions=[exp.Literal.number(0)]),
        expression=exp.Bracket(this=exp.Column(this=pair.copy()), expressions=[exp.Literal.number(1)]),
    )
    return call("list_transform", call("list_zip", one, two), exp.Lambda(this=body, expressions=[pair.copy()]))


def _no_bars(i: int) -> list[exp.Expression]:
    nothing = exp.cast(exp.Null(), "DOUBLE")
    made = [alias(nothing.copy(), f"{letter}{i}") for letter in ("s", "l", "u", "e", "r")]
    return [*made, alias(exp.cast(exp.Null(), "BOOLEAN"), f"o{i}")]


def _field(struct: exp.Expression, name: str) -> exp.Expression:
    return exp.Dot(this=exp.Paren(this=struct.copy()), expression=exp.to_identifier(name))


def deviation(variance: exp.Expression) -> exp.Expression:
    """Root of a variance; one that is not above zero says nothing, so it gives NULL."""
    positive = exp.GT(this=wrapped(variance), expression=number(0))
    return exp.Case(ifs=[exp.If(this=positive, true=exp.Sqrt(this=wrapped(variance)))])


# Below this many effective rows an interval is not called by its level (udfs.intervals).
ENOUGH_ROWS = 20

# Effective rows of an answer that is known: more than any table has.
MANY_ROWS = 1e18


def wald(
    estimate: exp.Expression, spread: exp.Expression, rows: exp.Expression
) -> tuple[exp.Expression, exp.Expression, exp.Expression]:
    """``estimate +- z * standard error``, and whether that may be called by its level."""
    half = exp.Mul(this=column("z"), expression=wrapped(spread))
    known = exp.Not(this=exp.Is(this=wrapped(spread), expression=exp.Null()))
    good = exp.And(this=known, expression=exp.GTE(this=wrapped(rows), expression=number(ENOUGH_ROWS)))
    return (
        exp.Sub(this=wrapped(estimate), expression=exp.Paren(this=half)),
        exp.Add(this=wrapped(estimate), expression=exp.Paren(this=half.copy())),
        exp.Coalesce(this=exp.Paren(this=good), expressions=[exp.Boolean(this=False)]),
    )
