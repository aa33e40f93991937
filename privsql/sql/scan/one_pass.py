"""What all scan forms share: rows of the published table in a sub-select, and sums over them.

A row's public half of each piece (``v``) is computed in the sub-select, beside what the form wants
of each row; the outer SELECT adds up

    n        rows                               y(v)      sum of  m W   v
    squares  sum of  m W^2 v v'                 products  sum of  m W   v v'
    fourths  sum of  m W^4 v^4

(m multiplicity, W weight).  Without weights squares and products are the same sum, and for
``v`` of 0 and 1 all of them are; equal ones are sent once.  (reconstruction, 3)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from sqlglot import exp

from privsql.sql.bind.aggregates import Call
from privsql.sql.bind.block import Block
from privsql.sql.bind.pieces import Piece
from privsql.sql.catalog import PUBLISHED, Catalog
from privsql.sql.expressions import call, product_of
from privsql.sql.nodes import (
    cast,
    choose,
    column,
    copied,
    define,
    every,
    given,
    named,
    number,
    select,
    sql,
    table,
    when,
    wrapped,
)
from privsql.sql.plan.states import joined_to
from privsql.sql.reconstruct import columns
from privsql.sql.reconstruct.columns import ROW_WEIGHT, TIMES

GROUP = "privsql_group"
WEIGHT = "privsql_weight"
MULTIPLICITY = "privsql_multiplicity"

# Powers of the weight in each kind of sum.
POWERS = {"products": 1, "squares": 2, "fourths": 4}


@dataclass(frozen=True)
class Half:
    """The public half of a piece as the scan computes it; None is the constant 1."""

    node: exp.Expr | None
    indicator: bool  # only 0 and 1


def half_of(piece: Piece) -> Half:
    """The public half of a piece, 0 where its guards do not hold."""
    if not piece.guards and piece.value is None:
        return Half(None, True)
    guard = every(piece.guards)
    value = number(1) if piece.value is None else cast(wrapped(piece.value), "DOUBLE")
    if guard is None:
        return Half(value, False)
    return Half(cast(when(guard, value, number(0)), "DOUBLE"), piece.value is None)


def source(catalog: Catalog, block: Block, inner: exp.Select) -> exp.Select:
    """FROM and WHERE of a scan: the published table, public joins, public conditions."""
    made = inner.from_(table(catalog.table, PUBLISHED), copy=False)
    for join in block.rows.joins:
        if not block.joins[join.alias]:
            made = joined_to(made, join.table, join.alias, join.on, join.kind)
    for guard in block.guards:
        made.where(copied(guard), copy=False)
    return made


class Scan(Protocol):
    """A scan of some form: what it has in common with the others, and its SQL."""

    @property
    def shared(self) -> Pass:
        """Its halves, sums and exact aggregates."""

    def write(self) -> exp.Expr:
        """The scan as a tree, once all of its sums are named."""


class Pass:
    """One pass over the table: public halves of rows, sums and exact aggregates, each by name."""

    def __init__(self, catalog: Catalog, block: Block, form: str) -> None:
        self.catalog = catalog
        self.form = form
        self.halves: dict[str, Half] = {}
        self.sums: dict[str, exp.Expr] = {}
        self.exact: list[tuple[Call, str]] = []  # with their SQL
        self.beside = False  # whether exact aggregates have a scan of their own
        # Where the personal groups behind sums are wanted as well (see membership): columns of
        # rows, and aggregates over them.
        self.watched: tuple[list[exp.Expr], list[exp.Expr]] = ([], [])
        self._block = block
        self._known_halves: dict[str, str] = {}
        self._known_sums: dict[object, str] = {}

    @property
    def weighted(self) -> bool:
        """Whether rows carry weights."""
        return self.catalog.weighted

    @property
    def keys(self) -> dict[str, exp.Expr]:
        """Public keys by their columns."""
        keys = enumerate(self._block.keys)
        return {columns.KEY(i): key.expression for i, key in keys if not key.sensitive}

    def half(self, piece: Piece) -> str:
        """Name the public half of a piece: ``public<i>``, or "" for the constant 1."""
        half = half_of(piece)
        if half.node is None:
            return ""
        known = self._known_halves
        name = known.setdefault(sql(half.node), columns.PUBLIC(len(known)))
        self.halves.setdefault(name, half)
        return name

    def indicator(self, half: str) -> bool:
        """Whether a public half is only 0 or 1."""
        return self.halves[half].indicator

    def sum_as(self, key: object, make: Callable[[], exp.Expr]) -> str:
        """Name a sum, the same for the same key."""
        if key not in self._known_sums:
            self._known_sums[key] = columns.SUM(len(self._known_sums))
            self.sums[self._known_sums[key]] = make()
        return self._known_sums[key]

    def added(self, names: Sequence[str | None], weight: int) -> str:
        """Name the sum of products of row columns, times m and powers of W."""
        terms = [TIMES] * self.catalog.multiplicity + [ROW_WEIGHT] * (weight * self.weighted)
        terms += [name for name in names if name]
        return self.sum_as(" ".join(terms), lambda: _sum_of(terms))

    def rows(self) -> str:
        """Name the number of published rows."""
        return self.added((), 0)

    def total(self, kind: str, one: str, two: str = "") -> str:
        """Name a sum: kind ``products``, ``squares`` or ``fourths`` of halves."""
        factors = [name for name in (one, two) if name]
        if kind == "fourths" and one and not self.indicator(one):
            factors = [one] * 4
        return self.added(self.multiplied(factors), POWERS[kind])

    def multiplied(self, halves: Iterable[str]) -> tuple[str, ...]:
        """The factors of a product of halves: 0 and 1 are their own squares."""
        kept: list[str] = []
        for name in sorted(halves):
            if not (self.indicator(name) and name in kept):
                kept.append(name)
        return tuple(kept)

    def select(self, nodes: Sequence[exp.Expr]) -> exp.Select:
        """The rows, with what the form wants of each."""
        inner = exp.Select(expressions=[*(named(node, key) for key, node in self.keys.items())])
        choose(inner, *nodes)
        for name, half in self.halves.items():
            if half.node is not None:
                define(inner, name, half.node)
        if self.catalog.multiplicity:
            define(inner, TIMES, column(MULTIPLICITY, PUBLISHED))
        if self.weighted:
            define(inner, ROW_WEIGHT, column(WEIGHT, PUBLISHED))
        for i, (exact, _) in enumerate(self.exact):
            argument, condition = _parts_of(exact)
            if argument is not None:
                define(inner, columns.ARGUMENT(i), copied(argument))
            if condition is not None:
                define(inner, columns.FILTER(i), copied(condition))
        choose(inner, *self.watched[0])
        if not inner.expressions:
            define(inner, "one", number(1))
        return source(self.catalog, self._block, inner)

    def summed(self, rows: exp.Expr, groups: Sequence[str]) -> exp.Select:
        """The sums over rows, per public keys and further columns."""
        groups = [*self.keys, *groups]
        outer = select(rows, *map(column, groups))
        for name, node in self.sums.items():
            define(outer, name, copied(node))
        for i, (exact, _) in enumerate(self.exact):
            define(outer, columns.EXACT(i), self._exact(i, exact))
        choose(outer, *self.watched[1])
        if not outer.expressions:
            define(outer, "one", _sum_of([]))
        return outer.group_by(*map(column, groups), copy=False)

    def _exact(self, i: int, exact: Call) -> exp.Expr:
        """An exact aggregate within a group."""
        node: exp.Expr = call(exact.name, column(columns.ARGUMENT(i)))
        if exact.name == "count":
            node = _sum_of([TIMES] * self.catalog.multiplicity)
        if _parts_of(exact)[1] is not None:
            node = exp.Filter(this=node, expression=exp.Where(this=column(columns.FILTER(i))))
        return node


def _sum_of(terms: Sequence[str]) -> exp.Expr:
    """The sum of products of columns; of none, the number of rows."""
    if not terms:
        return exp.Count(this=exp.Star(), big_int=True)
    return exp.Sum(this=product_of(map(column, terms)))


def _parts_of(exact: Call) -> tuple[exp.Expr | None, exp.Expr | None]:
    """Argument and condition of an exact aggregate; COUNT(x) counts where x is not NULL."""
    if exact.name != "count":
        return exact.arguments[0], exact.filter
    return None, count_condition(exact)


def count_condition(exact: Call) -> exp.Expr | None:
    """Where a COUNT counts a row; None for everywhere."""
    inner = exact.arguments[0] if exact.arguments else exp.Star()
    if isinstance(inner, exp.Star):
        return exact.filter
    known = given(inner)
    if exact.filter is None:
        return known
    return exp.And(this=wrapped(exact.filter), expression=known)
