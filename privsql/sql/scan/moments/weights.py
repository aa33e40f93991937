"""The two moment forms of a scan: inverted rows added up as counts or as weights.

Conditions alone are counted: every G is then a polynomial in truth values,

    (a - c)(b - d) = ab - d a - c b + cd,

and ``count_if`` of a, of b and of both is what DuckDB adds up fastest.  Where that makes too
many counts, and for values, rows carry their weight as a DOUBLE.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import isfinite, prod
from typing import Any

from sqlglot import exp

from privsql.errors import DataError
from privsql.sql.bind.block import Block
from privsql.sql.catalog import Catalog
from privsql.sql.expressions import call, dot, double, product_of
from privsql.sql.nodes import (
    cast,
    column,
    copied,
    define,
    derived,
    every,
    named,
    number,
    select,
    when,
    wrapped,
)
from privsql.sql.reconstruct.columns import CONDITION, PARTIAL, ROW_WEIGHT, WEIGHT, Family
from privsql.sql.scan.forms import WEIGHTS
from privsql.sql.scan.moments.factors import Columns, Part, Product
from privsql.sql.scan.one_pass import Pass

Form = dict[frozenset[str], float]  # a polynomial in truth values: which hold -> coefficient
Squares = Mapping[tuple[int, int], Product]  # products of two pieces, by their places


class MomentScan:
    """Writes the scan that adds up inverted rows."""

    def __init__(self, catalog: Catalog, block: Block, columns: Columns) -> None:
        self.shared = Pass(catalog, block, WEIGHTS)
        self._columns = columns
        self._rowwise: dict[str, exp.Expr] = {}  # what is computed for each row
        self._truths: dict[tuple[str, bytes], str] = {}
        self._pairs: dict[frozenset[str], frozenset[str]] = {}
        self._weights: dict[tuple[Any, ...], str | None] = {}

    def _row(self, node: exp.Expr, family: Family) -> str:
        """Name something that is computed for each row."""
        name = family(len(self._rowwise))
        self._rowwise[name] = node
        return name

    def _kept(self, part: Part) -> list[exp.Expr]:
        """Its truths, without those that hold for all values."""
        return [node for node in part.truths if not self._columns.truth(node).all()]

    def _true(self, part: Part) -> exp.Expr:
        """The condition under which a part that is only 0 or 1 is 1.

        A factor may carry it as well as a truth: ``CASE WHEN x = 'a' THEN 1 ELSE 0 END``.
        """
        kept = self._kept(part)
        for factor in part.factors:
            if not self._columns.value(factor).all():
                kept.append(exp.NEQ(this=double(factor), expression=literal(0.0)))
        condition = every(kept) or exp.Boolean(this=True)
        if any(self._columns.may_be_null(node) for node in (*part.truths, *part.factors)):
            condition = exp.Is(this=wrapped(condition), expression=exp.Boolean(this=True))
        return condition

    def truth(self, part: Part) -> str:
        """Name a condition that is evaluated for each row."""
        if part.key not in self._truths:
            self._truths[part.key] = self._row(self._true(part), CONDITION)
        return self._truths[part.key]

    def together(self, names: frozenset[str]) -> str:
        """Count the rows in which conditions are all true."""

        def count() -> exp.Expr:
            self._both(names)
            return cast(call("count_if", column(_joined(names))), "BIGINT")

        return self.shared.sum_as(names, count)

    def _both(self, names: frozenset[str]) -> None:
        """All conditions together, as one more condition and all of the others."""
        if len(names) > 1 and names not in self._pairs:
            rest = names - {max(names, key=_place)}
            self._both(rest)
            self._pairs[names] = rest

    def write(self) -> exp.Expr:
        """The scan as a tree.

        Conjunctions grow by one condition a sub-select: DuckDB would not find what
        ``a AND b AND c`` and ``a AND b`` have in common.
        """
        rowwise = [named(node, name) for name, node in self._rowwise.items()]
        source = derived(self.shared.select(rowwise), "rows")
        for size in range(2, 1 + max(map(len, self._pairs), default=1)):
            level = select(source, exp.Star())
            for names, rest in self._pairs.items():
                if len(names) == size:
                    (more,) = names - rest
                    both = exp.And(this=column(_joined(rest)), expression=column(more))
                    define(level, _joined(names), both)
            source = derived(level, "rows")
        return self.shared.summed(source, ())

    def _weight(self, part: Part, inverted: bool) -> exp.Expr:
        """``g - c``, or g itself; division by p is left for later."""
        value = product_of(map(double, part.factors or [self._true(part)]))
        condition = every(self._kept(part))
        if part.factors and condition is not None:
            value = when(condition, value, number(0.0))
        shift = self._columns.shift(part) if inverted else 0.0
        if shift:
            value = exp.Sub(this=wrapped(value), expression=number(shift))
        return wrapped(value)

    def weight(self, product: Product, inverted: bool = True) -> str | None:
        """Name the row's weight without its constant; None where it is 1."""
        key = (product.key, inverted)
        if key not in self._weights:
            halves = [self.shared.halves[half].node for half in product.halves]
            factors = [wrapped(copied(node)) for node in halves if node is not None]
            factors += [self._weight(part, inverted) for part in product.parts]
            made = self._row(product_of(factors), WEIGHT) if factors else None
            self._weights[key] = made
        return self._weights[key]

    def largest(self, half: str) -> str:
        """Name the largest ``W^2 v^2`` of a row."""
        factors = [ROW_WEIGHT] * 2 * self.shared.weighted + [half] * 2 * bool(half)
        largest = exp.Max(this=product_of(map(column, factors)))
        return self.shared.sum_as(("most", half), lambda: largest)


def _place(name: str) -> int:
    return CONDITION.number(name) or 0


def _joined(names: frozenset[str]) -> str:
    return "_".join(sorted(names, key=_place))


# Conditions of two pieces that may be counted together: each and all of them make 2^k counts.
MOST_TOGETHER = 8


def countable(catalog: Catalog, products: Sequence[Product], squares: Squares) -> bool:
    """Whether everything that is added up is a condition, so that it can be counted."""
    everything = [*products, *squares.values()]
    if catalog.weighted or catalog.multiplicity:
        return False
    if any(p.halves or not all(x.indicator for x in p.parts) for p in everything):
        return False
    return all(len(keys) <= MOST_TOGETHER for keys in _counted_together(products, squares))


def _counted_together(products: Sequence[Product], squares: Squares) -> Iterator[set[Any]]:
    """The conditions of each piece, and of each two that are multiplied."""
    for pair in (*squares, *((t, t) for t in range(len(products)))):
        yield {part.key for t in pair for part in products[t].parts}


def counting_pays(block: Block, products: Sequence[Product], squares: Squares) -> bool:
    """Whether counting conditions together is cheaper than weighing rows.

    A count costs about a third of a sum of DOUBLEs, and half of one under GROUP BY.
    """
    everything = [*products, *squares.values()]
    needed: set[frozenset[Any]] = set()
    for keys in _counted_together(products, squares):
        for size in range(1, len(keys) + 1):
            needed |= {frozenset(chosen) for chosen in combinations(sorted(keys), size)}
    weights = {p.key: len(p.parts) for p in everything if p.parts}
    pairs = {(products[t].key, products[u].key) for t, u in squares if products[t].parts}
    sums = len(weights) + len(pairs)
    each = 16.0 if block.keys else 7.0
    return each * len(needed) <= 12 * sum(weights.values()) + 30 * sums


@dataclass
class Sums:
    """Sums over rows, as SQL over the scan's columns (DOUBLEs in the sub-select "d")."""

    scan: MomentScan
    columns: Columns
    products: Sequence[Product]
    squares: Squares
    counted: bool
    # Names and sums.
    totals: dict[tuple[str, object], tuple[str, exp.Expr]] = field(default_factory=dict)

    def _form(self, product: Product, inverted: bool = True) -> Form:
        made: Form = {frozenset(): product.constant}
        for part in product.parts:
            made = _multiplied(made, self._factor(part, [part], inverted))
        return made

    def _factor(self, part: Part, own: Sequence[Part], inverted: bool = True) -> Form:
        """One part, true where its own conditions are, as a polynomial."""
        places = frozenset(self.scan.truth(each) for each in own)
        if not inverted:
            return {places: 1.0}
        p = self.columns.retention(part.column)
        return {places: 1 / p, frozenset(): -self.columns.shift(part) / p}

    def _linear(self, form: Form) -> exp.Expr:
        """A polynomial in truth values, summed over rows."""
        names, weights = [], []
        for chosen, weight in form.items():
            if weight:
                names.append(self.scan.together(chosen) if chosen else self.scan.shared.rows())
                weights.append(weight)
        if len(names) <= 1:
            return scaled(weights[0], column(names[0])) if names else number(0)
        counts = exp.Array(expressions=[column(name) for name in names])
        return dot(counts, exp.Array(expressions=[literal(weight) for weight in weights]))

    def _named(self, kind: str, key: object, make: Callable[[], exp.Expr]) -> exp.Expr:
        """A sum over rows as a column, so that it is written once."""
        if (kind, key) not in self.totals:
            self.totals[kind, key] = PARTIAL(len(self.totals)), make()
        return column(self.totals[kind, key][0])

    def scale(self, product: Product) -> float:
        """What a row's weight is left to be multiplied with."""
        return product.constant / prod(self.columns.retention(p.column) for p in product.parts)

    def first(self, product: Product) -> exp.Expr:
        """``sum m W G``."""

        def make() -> exp.Expr:
            if self.counted:
                return self._linear(self._form(product))
            name = self.scan.shared.added([self.scan.weight(product)], 1)
            return scaled(self.scale(product), column(name))

        return self._named("first", (product.constant, product.key), make)

    def seen(self, product: Product) -> exp.Expr:
        """``sum m W g`` over published rows."""
        if self.counted:
            return self._linear(self._form(product, inverted=False))
        name = self.scan.shared.added([self.scan.weight(product, inverted=False)], 1)
        return scaled(product.constant, column(name))

    def second(self, one: Product, two: Product) -> exp.Expr:
        """``sum m W^2 G G'``."""

        def make() -> exp.Expr:
            if self.counted:
                return self._linear(_multiplied(self._form(one), self._form(two)))
            names = [self.scan.weight(one), self.scan.weight(two)]
            scale = self.scale(one) * self.scale(two)
            return scaled(scale, column(self.scan.shared.added(sorted(names, key=str), 2)))

        keys = sorted([(one.constant, one.key), (two.constant, two.key)])
        return self._named("second", tuple(keys), make)

    def expected(self, t: int, u: int) -> exp.Expr:
        """``sum m W H``: the inverted product of two pieces."""
        product = self.squares[t, u]
        if not self.counted or t == u:
            return self.first(product)

        def make() -> exp.Expr:
            # On one column both conditions together are a third, with a mass of its own.
            made: Form = {frozenset(): product.constant}
            sides = [{p.column: p for p in self.products[i].parts} for i in (t, u)]
            for part in product.parts:
                own = [side[part.column] for side in sides if part.column in side]
                made = _multiplied(made, self._factor(part, own))
            return self._linear(made)

        return self._named("expected", (t, u), make)


def literal(value: float) -> exp.Expr:
    """A DOUBLE as a literal, which is shorter than a cast and read back without loss."""
    if not isfinite(value):
        raise DataError(
            "an expression is infinite or not a number for some value of a sensitive column's"
            " domain",
            hint="leave such values out, as in SUM(CASE WHEN x > 0 THEN ln(x) END)",
        )
    text = repr(abs(float(value)))
    node = exp.Literal.number(text if "e" in text else f"{text}e0")
    return node if value >= 0 else exp.Paren(this=exp.Neg(this=node))


def scaled(factor: float, node: exp.Expr) -> exp.Expr:
    """A multiple of an expression."""
    return node if factor == 1.0 else exp.Mul(this=literal(factor), expression=node)


def _multiplied(one: Form, two: Form) -> Form:
    """The product of two polynomials in truth values, which are their own squares."""
    made: Form = {}
    for a, x in one.items():
        for b, y in two.items():
            made[a | b] = made.get(a | b, 0.0) + x * y
    return made
