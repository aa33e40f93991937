"""The reconstruction column by column: no list over all states, however many keys are sensitive.

Where every sensitive expression of a block looks at one column alone, a piece is a product of
functions of one column each, and so is a class of sensitive keys.  Then one call of
``privsql_cells`` answers all cells from the published states that were seen:

    located    the scan with the cell of each column
    axis       per column, the functions of all pieces and the class of each cell, as lists
    classes    per class of sensitive keys that WHERE leaves, its place on each column
    groups     per public keys, rows and exact aggregates, with a number
    gathered   everything above as one row of lists
    solved     a row for each group and class
    bases      the same table as the other way makes    (see ``writer``)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product

import pyarrow as pa
from sqlglot import exp

from privsql.sql.bind.block import Block, owners, pieces_of_block
from privsql.sql.catalog import WHOLE, Catalog
from privsql.sql.expressions import call, double, field, or_zero, positive, same
from privsql.sql.nodes import (
    bare,
    cast,
    choose,
    column,
    columns_of,
    define,
    derived,
    every,
    joined,
    named,
    number,
    ranked,
    select,
    sql,
    star_of,
    table,
    when,
)
from privsql.sql.outer.calculus import added, sum_of
from privsql.sql.plan.states import States
from privsql.sql.reconstruct import columns
from privsql.sql.reconstruct.columns import EXACT, FUNCTION, Pair
from privsql.sql.reconstruct.functions import kept
from privsql.sql.reconstruct.sums import Step, Sums
from privsql.sql.scan.state_scan import together

# The columns of ``solved`` beside those of pieces and pairs.
GROUP, CLASS = "cell_group", "cell_class"
FIRST = "first"  # the table, and its column, that says which cells are wanted


def separable(catalog: Catalog, block: Block) -> bool:
    """Whether everything sensitive in a block is a product of functions of one column each.

    Rows with weights, and columns perturbed as a whole, have errors that are no such products.
    Where nothing is estimated there is nothing to do.
    """
    if catalog.weighted or not any(block.bases):
        return False
    if any(a.kind not in ("linear", "exact") for a in block.aggregates):
        return False
    nodes = [node for base in block.bases for piece in base for node in piece.sensitive]
    nodes += [node for branch in block.where for node in branch.truths]
    nodes += [key.expression for key in block.keys if key.sensitive]
    for node in nodes:
        found = owners(node, catalog, block.joins)
        if len(found) != 1 or "" in found:
            return False
        if catalog.sensitive[found.pop()].mechanism in WHOLE:
            return False
    return True


@dataclass(frozen=True)
class First:
    """The first cells of an answer by the sum of some pieces, which are all that is wanted."""

    pieces: tuple[int, ...]
    count: int
    descending: bool

    def table(self, wanted: bool = True) -> pa.Table:
        """What the reconstruction reads; not ``wanted``, it makes all cells."""
        listed = [self.count, int(self.descending), *self.pieces] if wanted else []
        return pa.table({FIRST: pa.array([listed], type=pa.list_(pa.int64()))})


def first_of(read: exp.Select, block: Block) -> First | None:
    """What a SELECT wants of its block, where that is only the cells that a count ranks first.

    ``ORDER BY n DESC, ... LIMIT 10 OFFSET 20`` reads the first 30 by n, and those that tie with
    the last of them.
    """
    if any(read.args.get(part) is not None for part in ("distinct", "where", "qualify")):
        return None
    order, limit, offset = (read.args.get(part) for part in ("order", "limit", "offset"))
    others = (node for node in read.find_all(exp.Window, exp.Query) if node is not read)
    if order is None or limit is None or next(others, None) is not None:
        return None
    if limit.args.get("limit_options") is not None:
        return None
    ranked_by = order.expressions[0]
    chosen = _projected(read, bare(ranked_by.this))
    numbers = [_whole(node.expression) for node in (limit, offset) if node is not None]
    place = columns.AGGREGATE.number(chosen.name) if isinstance(chosen, exp.Column) else None
    if place is None or None in numbers or len(block.sets) != 1 or not block.sensitive_keys:
        return None
    aggregate = block.aggregates[place]
    if aggregate.kind != "linear" or aggregate.call.name != "count":
        return None
    pieces = pieces_of_block(block)[1][aggregate.bases[0]]
    count = sum(each for each in numbers if each is not None)
    return First(tuple(pieces), count, bool(ranked_by.args.get("desc"))) if count else None


def _projected(read: exp.Select, node: exp.Expr) -> exp.Expr:
    """What ORDER BY means by a number or an alias."""
    place = _whole(node)
    if place is not None and 0 < place <= len(read.expressions):
        return bare(read.expressions[place - 1].unalias())
    if isinstance(node, exp.Column):
        named_so = [each for each in read.expressions if each.alias == node.name]
        return bare(named_so[0].unalias()) if named_so else node
    return node


def _whole(node: exp.Expr | None) -> int | None:
    plain = isinstance(node, exp.Literal) and not node.is_string and node.this.isdigit()
    return int(node.this) if plain and node is not None else None


class Axiswise:
    """Writes the steps of one block up to its bases."""

    def __init__(self, sums: Sums, first: First | None = None) -> None:
        self._sums = sums
        self._first = first
        self._order = {name: i for i, name in enumerate(sums.scan.sums)}

    # -- what does not depend on grouping sets --------------------------------------------

    def located(self) -> Step:
        """The scan with the cell of each column."""
        sums = self._sums
        query = select(table(sums.table_of("scan"), "scan"), star_of("scan"))
        for i, axis in enumerate(sums.states.axes):
            place: exp.Expr = cast(number(0), "BIGINT")
            if axis.count > 1:
                name = f"codes{i}"
                codes = [each for each in axis.codes.column_names if each != columns.CELL]
                on = every(same(column(each, "scan"), column(each, name)) for each in codes)
                joined(query, table(sums.table_of(name), name), on)
                place = column(columns.CELL, name)
            define(query, columns.CELL_OF(i), place)
        return Step(sums.table_of("located"), query)

    def _owner(self, node: exp.Expr) -> int:
        """The column that a sensitive expression looks at; the first one for a constant."""
        for each in columns_of(self._sums.states.written[sql(node)]):
            found = columns.TRUTH.numbers(each.name)
            if found is not None:
                return found[0]
        return 0

    def _function(self, t: int, i: int) -> exp.Expr | None:
        """Piece t's function of column i; None where that is 1."""
        written, piece = self._sums.states.written, self._sums.pieces[t]
        truth = every(written[sql(node)] for node in piece.truths if self._owner(node) == i)
        value: exp.Expr = number(1.0)
        if piece.factor is not None and self._owner(piece.factor) == i:
            value = double(written[sql(piece.factor)])
        elif truth is None:
            return None
        return value if truth is None else when(truth, value, number(0.0))

    def _keys(self, chosen: Sequence[int], i: int) -> list[exp.Expr]:
        """The sensitive keys that look at column i."""
        sums = self._sums
        keys = [sums.block.keys[n] for n in chosen if sums.block.keys[n].sensitive]
        mine = [key.expression for key in keys if self._owner(key.expression) == i]
        return [sums.states.written[sql(node)] for node in mine]

    def _keyed(self, chosen: Sequence[int]) -> list[int]:
        """The columns with keys."""
        return [i for i in range(len(self._sums.states.axes)) if self._keys(chosen, i)]

    def _labelled(self, chosen: Sequence[int], i: int) -> exp.Expr:
        """The cells of column i, with the class of each where it has keys."""
        source = table(self._sums.table_of(f"axis{i}"), f"axis{i}")
        keys = self._keys(chosen, i)
        if not keys:
            return source
        query = select(source, exp.Star())
        rank = ranked(*(key.copy() for key in keys))
        define(query, columns.LABEL(i), exp.Sub(this=rank, expression=number(1)))
        return derived(query, f"axis{i}")

    # -- a grouping set -------------------------------------------------------------------

    def steps(self, n: int, chosen: Sequence[int]) -> list[Step]:
        """All steps of one grouping set up to its bases."""
        axes = range(len(self._sums.states.axes))
        return [
            *(self._axis(n, chosen, i) for i in axes),
            self._classes(n, chosen),
            self._groups(n, chosen),
            self._gathered(n, chosen),
            self._solved(n, chosen),
            self._bases(n, chosen),
        ]

    def _axis(self, n: int, chosen: Sequence[int], i: int) -> Step:
        """The functions of one column as one row of lists."""
        query = exp.Select()

        def listed(value: exp.Expr) -> exp.Expr:
            ordered = exp.Ordered(this=column(columns.CELL), nulls_first=False)
            return call("list", exp.Order(this=value, expressions=[ordered]))

        for t in range(len(self._sums.pieces)):
            function = self._function(t, i)
            define(query, FUNCTION(t), _numbers() if function is None else listed(function))
        label = listed(column(columns.LABEL(i))) if self._keys(chosen, i) else _numbers("BIGINT")
        define(query, columns.LABEL(i), label)
        # Of a column that none of this looks at there is still one row.
        define(query, "cells", exp.Count(this=exp.Star()))
        query.from_(self._labelled(chosen, i), copy=False)
        return Step(self._sums.table_of(f"functions{n}_{i}"), query)

    def _classes(self, n: int, chosen: Sequence[int]) -> Step:
        """The classes that WHERE leaves, each with its number."""
        sums, keyed = self._sums, self._keyed(chosen)
        names = [*sums.sensitive_keys(chosen), *map(columns.LABEL, keyed)]
        query = exp.Select()
        if not keyed:
            define(query, CLASS, cast(number(0), "BIGINT"))
            return Step(sums.table_of(f"classes{n}"), query)
        holds = kept(sums)
        seen = {found[0] for each in columns_of(holds)
                if (found := columns.TRUTH.numbers(each.name)) is not None}  # fmt: skip
        for i in sorted({*keyed, *seen}):
            joined(query, self._labelled(chosen, i))
        for k in chosen:
            key = sums.block.keys[k]
            if key.sensitive:
                define(query, columns.KEY(k), sums.states.written[sql(key.expression)].copy())
        choose(query, *map(column, map(columns.LABEL, keyed)))
        query.where(holds, copy=False)
        query.distinct(copy=False)
        made = select(derived(query, "classes"), *map(column, names))
        rank = ranked(*map(column, map(columns.LABEL, keyed)))
        define(made, CLASS, exp.Sub(this=rank, expression=number(1)))
        return Step(sums.table_of(f"classes{n}"), made)

    def _groups(self, n: int, chosen: Sequence[int]) -> Step:
        """Per public keys, rows and exact aggregates."""
        sums = self._sums
        keys = sums.public_keys(chosen)
        query = select(table(sums.table_of("located")), *map(column, keys))
        rows = exp.Sum(this=column(sums.row_count))
        define(query, columns.ROWS, cast(or_zero(rows), "BIGINT"))
        for i, (exact, _) in enumerate(sums.scan.exact):
            define(query, EXACT(i), together(exact.name, column(EXACT(i))))
        halves = {sums.halves[t] for t in sums.scored(chosen) if sums.halves[t]}
        for half in sorted(halves):
            total = exp.Sum(this=column(sums.column_of("products", half).name))
            define(query, f"rows_{half}", double(or_zero(total)))
        query.group_by(*map(column, keys), copy=False)
        if chosen and not keys:
            # No rows are in no group, of whatever values the domain has.
            query.having(positive(rows.copy()), copy=False)
        made = select(derived(query, "groups"), exp.Star())
        rank = ranked(*map(column, keys)) if keys else number(1)
        place = cast(exp.Sub(this=rank, expression=number(1)), "BIGINT")
        define(made, GROUP, place)
        return Step(sums.table_of(f"groups{n}"), made)

    def _gathered(self, n: int, chosen: Sequence[int]) -> Step:
        """The published states as lists."""
        sums = self._sums
        query = exp.Select()

        def listed(name: str, value: exp.Expr, kind: str) -> None:
            define(
                query, name, exp.Coalesce(this=call("list", value), expressions=[_numbers(kind)])
            )

        for i in range(len(sums.states.axes)):
            listed(columns.CELL_OF(i), column(columns.CELL_OF(i), "located"), "BIGINT")
        listed(GROUP, column(GROUP, "groups"), "BIGINT")
        for name in self._order:
            listed(name, cast(or_zero(column(name, "located")), "DOUBLE"), "DOUBLE")
        query.from_(table(sums.table_of("located"), "located"), copy=False)
        keys = sums.public_keys(chosen)
        on = every(same(column(key, "located"), column(key, "groups")) for key in keys)
        joined(query, table(sums.table_of(f"groups{n}"), "groups"), on)
        return Step(sums.table_of(f"gathered{n}"), query)

    def _pairs(self) -> list[Pair]:
        sums = self._sums
        made = [Pair(t, u) for t, u in sums.piece_pairs]
        return [*made, *(Pair(t, u, over_all=True) for t, u in sums.cross_pairs)]

    def _sum(self, kind: str, one: str, two: str = "") -> int:
        return self._order[self._sums.scan.total(kind, one, two)]

    def _solved(self, n: int, chosen: Sequence[int]) -> Step:
        """A row for each group and class."""
        sums, axes = self._sums, range(len(self._sums.states.axes))
        pieces, keyed = range(len(sums.pieces)), self._keyed(chosen)
        places = [[self._sum("products", half), -1, -1] for half in sums.halves]
        if not sums.fixed:
            places = [
                [self._sum("products", h), self._sum("squares", h, h), self._sum("fourths", h)]
                for h in sums.halves
            ]
        pairs = [
            [pair.t, pair.u, int(pair.over_all), self._sum("products", *both),
             self._sum("squares", *both)]
            for pair in self._pairs()
            for both in [(sums.halves[pair.t], sums.halves[pair.u])]
        ]  # fmt: skip
        first = _numbers("BIGINT")
        if self._first is not None:
            first = exp.Subquery(this=select(table(sums.table_of(FIRST)), column(FIRST)))
        classes, scored = sums.table_of(f"classes{n}"), sums.scored(chosen)

        def wanted(i: int) -> exp.Expr:
            order = exp.Ordered(this=column(CLASS), nulls_first=False)
            every_one = call("list", exp.Order(this=column(columns.LABEL(i)), expressions=[order]))
            listed = exp.Coalesce(this=every_one, expressions=[_numbers("BIGINT")])
            return exp.Subquery(this=select(table(classes), listed))

        groups = select(table(sums.table_of(f"groups{n}")), exp.Count(this=exp.Star()))
        functions = [[column(FUNCTION(t), f"functions{i}") for i in axes] for t in pieces]
        answer = call(
            "privsql_cells",
            _lists([column(columns.CELL_OF(i), "gathered") for i in axes], "BIGINT[][]"),
            column(GROUP, "gathered"),
            exp.Subquery(this=groups),
            _lists([column(name, "gathered") for name in self._order], "DOUBLE[][]"),
            _lists([column(columns.LABEL(i), f"functions{i}") for i in axes], "BIGINT[][]"),
            _lists(map(wanted, keyed), "BIGINT[][]"),
            _lists([_lists(row, "DOUBLE[][]") for row in functions], "DOUBLE[][][]"),
            _written(places, "BIGINT[][]"),
            _written(pairs, "BIGINT[][]"),
            cast(exp.Array(expressions=[number(scored.get(t, -1)) for t in pieces]), "BIGINT[]"),
            column("masses", "constants"),
            first,
            column("factors", "constants"),
        )
        query = exp.Select(expressions=[named(answer, "solved")])
        query.from_(table(sums.table_of(f"gathered{n}"), "gathered"), copy=False)
        for i in axes:
            joined(query, table(sums.table_of(f"functions{n}_{i}"), f"functions{i}"))
        joined(query, table(sums.table_of("constants"), "constants"))
        made = exp.Select()

        def entries(name: str, place: int | None = None) -> exp.Expr:
            part = field(column("solved"), name)
            if place is not None:
                part = call("list_extract", part, number(place + 1))
            return call("unnest", part)

        define(made, GROUP, entries("group"))
        define(made, CLASS, entries("class"))
        for name, family in _OF_PIECES.items():
            for t in pieces:
                define(made, family(t), entries(name, t))
        for place, pair in enumerate(self._pairs()):
            define(made, _name(pair), entries("covariance", place))
        made.from_(derived(query, "answered"), copy=False)
        return Step(sums.table_of(f"solved{n}"), made)

    def _bases(self, n: int, chosen: Sequence[int]) -> Step:
        """The bases of all cells."""
        sums = self._sums
        public, sensitive = sums.public_keys(chosen), sums.sensitive_keys(chosen)
        query = exp.Select(
            expressions=[
                *(column(name, "groups") for name in public),
                *(column(name, "classes") for name in sensitive),
                column(columns.ROWS, "groups"),
                *(column(EXACT(i), "groups") for i in range(len(sums.scan.exact))),
            ]
        )
        for k, pieces in enumerate(sums.base):
            for family, of_piece in (
                (columns.BASE, columns.ESTIMATE),
                (columns.OBSERVED_BASE, columns.OBSERVED_SUM),
            ):
                define(query, family(k), added(column(of_piece(t), "solved") for t in pieces))
        for k, other in sums.needed:
            shared = self._covariance(k, other, chosen)
            define(query, columns.BASE_COVARIANCE(k, other), shared)
        for k, other in sums.total_pairs:
            shared = self._covariance(k, other, chosen, over_all=True)
            define(query, columns.BASE_WITH_TOTAL(k, other), shared)
        for t in range(len(sums.pieces)):
            for family in (columns.SECOND, columns.FOURTH):
                define(query, family(t), column(family(t), "solved"))
        for t in sums.scored(chosen):
            define(query, columns.MASS(t), column(columns.MASS(t), "solved"))
            if sums.halves[t]:
                rows = column(f"rows_{sums.halves[t]}", "groups")
                define(query, columns.CONDITION_ROWS(t), rows)
        query.from_(table(sums.table_of(f"solved{n}"), "solved"), copy=False)
        for name, place in (("groups", GROUP), ("classes", CLASS)):
            on = exp.EQ(this=column(place, "solved"), expression=column(place, name))
            joined(query, table(sums.table_of(f"{name}{n}"), name), on)
        return Step(sums.table_of(f"bases{n}"), query)

    def _covariance(
        self, k: int, other: int, chosen: Sequence[int], over_all: bool = False
    ) -> exp.Expr:
        """Covariance of two bases, of which pieces that are known exactly have no part."""
        sums, parts = self._sums, []
        sure = sums.sure(chosen)
        for t, u in product(sums.base[k], sums.base[other]):
            pair = Pair(t, u, True) if over_all else Pair(min(t, u), max(t, u))
            known = sums.fixed or {t, u} & sure
            parts.append(number(0.0) if known else column(_name(pair), "solved"))
        return sum_of(parts)


# What is known of each piece, by the name that the function gives it.
_OF_PIECES = {
    "estimate": columns.ESTIMATE,
    "observed": columns.OBSERVED_SUM,
    "second": columns.SECOND,
    "fourth": columns.FOURTH,
    "mass": columns.MASS,
}


def _name(pair: Pair) -> str:
    family = columns.SHARED_ALL if pair.over_all else columns.SHARED
    return family(pair.t, pair.u)


def _numbers(kind: str = "DOUBLE") -> exp.Expr:
    """An empty list of numbers."""
    return cast(exp.Array(), f"{kind}[]")


def _lists(nodes: Iterable[exp.Expr], kind: str) -> exp.Expr:
    return cast(exp.Array(expressions=list(nodes)), kind)


def _written(rows: Sequence[Sequence[int]], kind: str) -> exp.Expr:
    """Lists of numbers as they are."""
    made = [exp.Array(expressions=[number(each) for each in row]) for row in rows]
    return cast(exp.Array(expressions=made), kind)


def axis_constants(states: States, massed: Iterable[int]) -> pa.Table:
    """One row with the channels of all columns, and the masses of the cells of some."""
    masses = [axis.masses if i in set(massed) else None for i, axis in enumerate(states.axes)]
    listed = [[] if each is None else each.tolist() for each in masses]
    factors = [factor.tolist() for factor in states.factors]
    cells, matrices = pa.list_(pa.list_(pa.float64())), pa.list_(pa.list_(pa.list_(pa.float64())))
    return pa.table(
        {"factors": pa.array([factors], type=matrices), "masses": pa.array([listed], type=cells)}
    )
