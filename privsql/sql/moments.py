"""Moments: a scan that adds up inverted rows itself, instead of counting states.

Where a piece is a product of functions of one column each, and the columns keep or replace
their values row by row, a row's inverted weight is elementary:

    G = v * prod_x (g_x - c_x) / p_x,     c_x = (1 - p_x) (q_x . g_x),

so the scan brings ``n``, ``sum G_a``, ``sum G_a G_b`` and ``sum H_ab`` per public keys, and
plain arithmetic makes the table of bases from them.  No column is cut into cells, so sums over
a domain of a million values are answered too.  (reconstruction, 3)

Conditions alone are counted: every G is then a polynomial in truth values,

    (a - c)(b - d) = ab - d a - c b + cd,

and ``count_if`` of a, of b and of both is what DuckDB adds up fastest.  Where that makes too
many counts, and for values, rows carry their weight as a DOUBLE.

The rule of effective rows (``udfs.variance.weights``) needs counts of states.  Here both its sums
are bounded on the safe side, with L = G - mean, S the states of the block:

    second >= sum L^2
    fourth <= max L^2 * sum L^2  +  n sum_S floor_s L_s^4  +  sum_S L_s^4

An answer may be called unreliable that states would call reliable, never the other way round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from math import comb, prod
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sqlglot import exp

from privsql.channels.cells import Cells
from privsql.channels.domain import MATERIALISE_LIMIT
from privsql.channels.mechanisms import Replace, Uniform
from privsql.sql.block import Block
from privsql.sql.calculus import add, multiply
from privsql.sql.catalog import PUBLISHED, Catalog
from privsql.sql.estimates import Estimates
from privsql.sql.pieces import Piece
from privsql.sql.reconstruct import Step
from privsql.sql.scan import StateScan
from privsql.sql.states import MOST_STATES, Axis, States
from privsql.sql.tree import (
    bare,
    cast,
    choose,
    column,
    columns_of,
    derived,
    every,
    named,
    number,
    sql,
    table,
    wrapped,
)
from privsql.sql.writing import call, dot, or_zero

# Below this many rows states are cheap, and their rule of reliability is the sharper one.
MANY_ROWS = 200_000

# Cells of a column up to which its channel between cells is kept for EXPLAIN.
MOST_CELLS = 256

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Run = Callable[[exp.Expr], pa.Table]
Form = dict[frozenset[str], float]  # a polynomial in truth values: which hold -> coefficient


@dataclass(frozen=True)
class Part:
    """One column's part of a piece, ``[truths] * factors``, with its values on the domain."""

    column: str
    truths: tuple[exp.Expr, ...]
    factors: tuple[exp.Expr, ...]
    values: Floats

    @cached_property
    def key(self) -> tuple[str, bytes]:
        """What makes two parts the same function."""
        return self.column, self.values.tobytes()

    @cached_property
    def indicator(self) -> bool:
        """Whether it is only 0 or 1."""
        return bool(((self.values == 0) | (self.values == 1)).all())

    def __mul__(self, other: Part) -> Part:
        """The product of two functions of one column."""
        if self.key == other.key and self.indicator:
            return self
        truths = tuple({id(node): node for node in (*self.truths, *other.truths)}.values())
        factors = (*self.factors, *other.factors)
        return Part(self.column, truths, factors, self.values * other.values)


@dataclass(frozen=True)
class Product:
    """A function of a row: constant times public halves times one part a column."""

    constant: float
    halves: tuple[str, ...]
    parts: tuple[Part, ...]

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """What makes two products the same up to their constants."""
        return self.halves, tuple(part.key for part in self.parts)


class Columns:
    """The sensitive columns of a block: channels, and expressions over their domains."""

    def __init__(self, catalog: Catalog, run: Run, domain: Callable[[str], str]) -> None:
        self._catalog = catalog
        self._run = run
        self._domain = domain
        self._atoms: dict[str, dict[str, exp.Expr]] = {}
        self._conditions: set[str] = set()
        self._found: dict[str, Any] = {}  # pyarrow arrays
        self._values: dict[str, NDArray[Any]] = {}
        self._shifts: dict[tuple[str, bytes], float] = {}
        # Printing is what planning spends its time on: once for each node.
        self._known: dict[int, str] = {}
        self._nodes: list[exp.Expr] = []

    @property
    def names(self) -> list[str]:
        """Columns in the order of the release."""
        return [name for name in self._catalog.sensitive if name in self._atoms]

    def add(self, owner: str, node: exp.Expr, condition: bool) -> None:
        """Note an expression that will be evaluated."""
        text = sql(node)
        self._known[id(node)] = text
        self._nodes.append(node)
        self._atoms.setdefault(owner, {}).setdefault(text, node)
        if condition:
            self._conditions.add(text)

    def evaluate(self) -> None:
        """Evaluate all expressions over the domains, in one query."""
        query = exp.Select(expressions=[exp.Star()])
        texts: list[str] = []
        for name in self.names:
            made = exp.Select()
            for text, node in self._atoms[name].items():
                kind = "BOOLEAN" if text in self._conditions else "DOUBLE"
                order = [exp.Ordered(this=column("i", PUBLISHED), nulls_first=False)]
                value = exp.Order(this=cast(wrapped(node.copy()), kind), expressions=order)
                choose(made, named(call("list", value), f"a{len(texts)}"))
                texts.append(text)
            made.from_(table(self._domain(name), PUBLISHED), copy=False)
            source = derived(made, f"d{len(texts)}")
            if query.args.get("from_") is None:
                query.set("from_", exp.From(this=source))
            else:
                query.append("joins", exp.Join(this=source, kind="CROSS"))
        found = self._run(query) if texts else pa.table({})
        for i, text in enumerate(texts):
            lists: Any = found.column(i).combine_chunks()
            self._found[text] = lists.values
        for text, array in self._found.items():
            filled = array.fill_null(False if text in self._conditions else 0.0)
            self._values[text] = np.asarray(filled.to_numpy(zero_copy_only=False))
        self._cells = {name: self._cells_of(name) for name in self.names}

    def may_be_null(self, node: exp.Expr) -> bool:
        """Whether an expression is NULL for some value of the domain."""
        return bool(self._found[self._text(node)].null_count)

    def _text(self, node: exp.Expr) -> str:
        return self._known[id(node)]

    def truth(self, node: exp.Expr) -> Bools:
        """Where a condition is true."""
        found: Bools = self._values[self._text(node)].astype(np.bool_)
        return found

    def value(self, node: exp.Expr) -> Floats:
        """Values of an expression, 0 where it is NULL."""
        found: Floats = self._values[self._text(node)].astype(np.float64)
        return found

    def retention(self, name: str) -> float:
        """The column's retention."""
        return float(self._catalog.sensitive[name].channel.retention)  # type: ignore[attr-defined]

    def mass(self, name: str, values: Floats) -> float:
        """``q . g``, the mean of a function under what replaces values."""
        channel = self._catalog.sensitive[name].channel
        if isinstance(channel, Replace):
            return float(channel.replacing @ values)
        return float(values.mean())

    def shift(self, part: Part) -> float:
        """``c = (1-p) (q . g)``."""
        if part.key not in self._shifts:
            mass = self.mass(part.column, part.values)
            self._shifts[part.key] = (1 - self.retention(part.column)) * mass
        return self._shifts[part.key]

    def inverse(self, part: Part) -> Floats:
        """``T^-1 g`` over the domain."""
        found: Floats = (part.values - self.shift(part)) / self.retention(part.column)
        return found

    def _cells_of(self, name: str) -> Cells:
        labels = np.zeros(self._catalog.sensitive[name].domain.size, dtype=np.intp)
        for text, node in self._atoms[name].items():
            if text in self._conditions:
                own = self.truth(node).astype(np.intp)
            else:
                values = self.value(node)
                own = np.arange(len(values))
                if not (np.diff(values) > 0).all():
                    own = np.unique(values, return_inverse=True)[1]
            if self._found[text].null_count:
                null = np.asarray(self._found[text].is_null().to_numpy(zero_copy_only=False))
                own = np.where(null, -1, own) + 1
            wide = labels * (int(own.max(initial=0)) + 1) + own
            labels = np.unique(wide, return_inverse=True)[1].astype(np.intp)
        return Cells.of(labels)

    def cells(self, name: str) -> Cells:
        """Values that the block does not tell apart."""
        return self._cells[name]

    @property
    def states(self) -> int:
        """How many states the block has."""
        return prod(self._cells[name].count for name in self.names)

    @property
    def certain(self) -> bool:
        """Whether nothing that matters was replaced."""
        return all(self.retention(n) == 1 or self._cells[n].count == 1 for n in self.names)

    def shape(self) -> States:
        """The states as EXPLAIN and the estimates want to see them."""
        axes: list[Axis] = []
        written: dict[str, exp.Expr] = {}
        for i, name in enumerate(self.names):
            cells, sensitive = self._cells[name], self._catalog.sensitive[name]
            if cells.count > MOST_CELLS:
                return States((), (), {}, self._catalog.rows)
            atoms = self._atoms[name]
            shown: dict[str, Any] = {"cell": pa.array(np.arange(cells.count))}
            for n, text in enumerate(atoms):
                place = column(f"x{i}_{n}")
                written[text] = place
                # What was asked for may have IS TRUE around it.
                bare_text = text if wrapped(atoms[text]) is atoms[text] else f"({text})"
                true = exp.Is(this=place.copy(), expression=exp.Boolean(this=True))
                written[f"{bare_text} IS TRUE"] = true
                shown[f"x{i}_{n}"] = self._found[text].take(cells.first.tolist())
            masses = cells.sizes / cells.size
            if isinstance(sensitive.channel, Replace):
                masses = cells.sums(sensitive.channel.replacing)
            axes.append(
                Axis(
                    name,
                    tuple(atoms.values()),
                    all(text in self._conditions for text in atoms),
                    tuple(self._found[text].null_count > 0 for text in atoms),
                    pa.table(shown),
                    pa.table({"cell": shown["cell"]}),
                    sensitive.channel.lump(cells).matrix,
                    sensitive.channel,
                    masses,
                    sensitive.mechanism,
                )
            )
        return States(tuple(axes), (), written, self._catalog.rows)


class MomentScan(StateScan):
    """Writes the scan that adds up inverted rows."""

    def __init__(self, catalog: Catalog, block: Block, columns: Columns, states: States) -> None:
        super().__init__(catalog, block, states)
        self._columns = columns
        self._rowwise: dict[str, exp.Expr] = {}
        self._places: dict[tuple[str, bytes], str] = {}
        self._subsets: dict[frozenset[str], str] = {}
        self._pairs: dict[frozenset[str], frozenset[str]] = {}
        self._weights: dict[tuple[Any, ...], str | None] = {}
        self._added: dict[tuple[Any, ...], str] = {}

    def codes(self) -> list[str]:
        """No states are told apart."""
        return []

    def _coded(self) -> list[exp.Expr]:
        return [named(node, name) for name, node in self._rowwise.items()]

    def _row(self, node: exp.Expr, letter: str) -> str:
        """Name something that is computed for each row."""
        name = f"{letter}{len(self._rowwise)}"
        self._rowwise[name] = node
        return name

    def _total(self, node: exp.Expr) -> str:
        name = f"s{len(self.sums)}"
        self.sums[name] = node
        return name

    def _condition(self, part: Part) -> exp.Expr | None:
        """Its truths as SQL, without those that hold for all values."""
        kept = [node for node in part.truths if not self._columns.truth(node).all()]
        return every(node.copy() for node in kept)

    def _true(self, part: Part) -> exp.Expr:
        condition = self._condition(part) or exp.Boolean(this=True)
        if any(self._columns.may_be_null(node) for node in part.truths):
            condition = exp.Is(this=wrapped(condition), expression=exp.Boolean(this=True))
        return condition

    def truth(self, part: Part) -> str:
        """Name a condition that is evaluated for each row."""
        if part.key not in self._places:
            self._places[part.key] = self._row(self._true(part), "p")
        return self._places[part.key]

    def together(self, names: frozenset[str]) -> str:
        """Count the rows in which conditions are all true."""
        if names not in self._subsets:
            self._both(names)
            node = cast(call("count_if", column(_joined(names))), "BIGINT")
            self._subsets[names] = self._total(node)
        return self._subsets[names]

    def _both(self, names: frozenset[str]) -> None:
        """All conditions together, as one more condition and all of the others."""
        if len(names) > 1 and names not in self._pairs:
            rest = names - {max(names, key=_place)}
            self._both(rest)
            self._pairs[names] = rest

    def write(self) -> exp.Select:
        """The scan as a tree.

        Conjunctions grow by one condition a sub-select: DuckDB would not find what
        ``a AND b AND c`` and ``a AND b`` have in common.
        """
        made = super().write()
        source: exp.Expr = made.args["from_"].this
        for size in range(2, 1 + max(map(len, self._pairs), default=1)):
            level = exp.Select(expressions=[exp.Star()])
            for names, rest in self._pairs.items():
                if len(names) == size:
                    (more,) = names - rest
                    both = exp.And(this=column(_joined(rest)), expression=column(more))
                    choose(level, named(both, _joined(names)))
            source = derived(level.from_(source, copy=False), "rows")
        made.set("from_", exp.From(this=source))
        return made

    def _weight(self, part: Part, inverted: bool) -> exp.Expr:
        """``g - c``, or g itself; division by p is left for later."""
        condition = self._condition(part)
        value: exp.Expr
        if not part.factors:
            value = cast(wrapped(self._true(part)), "DOUBLE")
        else:
            value = cast(wrapped(part.factors[0].copy()), "DOUBLE")
            for factor in part.factors[1:]:
                other = cast(wrapped(factor.copy()), "DOUBLE")
                value = exp.Mul(this=value, expression=other)
            if condition is not None:
                value = exp.Case(ifs=[exp.If(this=condition, true=value)], default=number(0.0))
        shift = self._columns.shift(part) if inverted else 0.0
        if shift:
            value = exp.Sub(this=wrapped(value), expression=number(shift))
        return wrapped(value)

    def weight(self, product: Product, inverted: bool = True) -> str | None:
        """Name the row's weight without its constant; None where it is 1."""
        key = (product.key, inverted)
        if key not in self._weights:
            self._weights[key] = self._new_weight(product, inverted)
        return self._weights[key]

    def _new_weight(self, product: Product, inverted: bool) -> str | None:
        factors: list[exp.Expr] = []
        for half in product.halves:
            node = self._halves[half].node
            factors += [wrapped(node.copy())] if node is not None else []
        factors += [self._weight(part, inverted) for part in product.parts]
        if not factors:
            return None
        made = factors[0]
        for factor in factors[1:]:
            made = exp.Mul(this=made, expression=factor)
        return self._row(made, "w")

    def added(self, names: Sequence[str | None], weight: int) -> str:
        """Name the sum of products of row columns, times m and powers of W."""
        key = (*names, weight)
        if key not in self._added:
            self._added[key] = self._new_sum(names, weight)
        return self._added[key]

    def _new_sum(self, names: Sequence[str | None], weight: int) -> str:
        terms: list[exp.Expr] = []
        if self._catalog.multiplicity:
            terms.append(column("m"))
        terms += [column("w")] * (weight if self._catalog.weighted else 0)
        terms += [column(name) for name in names if name is not None]
        return self._total(_sum(terms)) if len(terms) > self._catalog.multiplicity else self.rows()

    def largest(self, half: str) -> str:
        """Name the largest ``W^2 v^2`` of a row."""
        if ("most", half) not in self._added:
            terms = [column("w")] * 2 if self._catalog.weighted else []
            terms += [column(half)] * 2 if half else []
            self._added["most", half] = self._total(exp.Max(this=_product(terms)))
        return self._added["most", half]


def _place(name: str) -> int:
    return int(name[1:])


def _joined(names: frozenset[str]) -> str:
    return "_".join(sorted(names, key=_place))


def _product(terms: Sequence[exp.Expr]) -> exp.Expr:
    made: exp.Expr = terms[0].copy()
    for term in terms[1:]:
        made = exp.Mul(this=made, expression=term.copy())
    return made


def _sum(terms: Sequence[exp.Expr]) -> exp.Expr:
    if not terms:
        return exp.Count(this=exp.Star(), big_int=True)
    return exp.Sum(this=_product(terms))


class Moments:
    """Plans one block by moments, where they apply."""

    def __init__(
        self,
        catalog: Catalog,
        block: Block,
        pairs: Iterable[tuple[int, int]],
        run: Run,
        domain: Callable[[str], str],
        observed: bool = False,
    ) -> None:
        self._catalog = catalog
        self._block = block
        self._pairs = sorted({(min(i, j), max(i, j)) for i, j in pairs})
        self._domain = domain
        self._observed = observed
        self._columns = Columns(catalog, run, domain)
        self._pieces: list[Piece] = []
        index: dict[str, int] = {}
        for base in block.bases:
            for piece in base:
                if index.setdefault(piece.key, len(self._pieces)) == len(self._pieces):
                    self._pieces.append(piece)
        self._base = [[index[piece.key] for piece in base] for base in block.bases]
        self._needed = self._base_pairs()
        self._nodes: list[list[tuple[str, exp.Expr, bool]]] = []  # owner, node, is it a truth
        self.applies = self._looked()
        if self.applies:
            self._columns.evaluate()

    # -- whether it applies ---------------------------------------------------------------

    def _owner(self, node: exp.Expr) -> str | None:
        """The one sensitive column of an expression that has no other columns."""
        found = set()
        for each in columns_of(node):
            if each.table != PUBLISHED or each.name not in self._catalog.sensitive:
                return None
            found.add(each.name)
        return found.pop() if len(found) == 1 and not node.find(exp.Query) else None

    def _looked(self) -> bool:
        block = self._block
        if len(block.sets) != 1 or sorted(block.sets[0]) != list(range(len(block.keys))):
            return False
        if any(key.sensitive for key in block.keys) or any(block.joins.values()):
            return False
        if any(a.kind not in ("linear", "exact") for a in block.aggregates):
            return False
        for piece in self._pieces:
            nodes = [(_plain(node), True) for node in piece.truths]
            nodes += [(piece.factor, False)] if piece.factor is not None else []
            mine: list[tuple[str, exp.Expr, bool]] = []
            for node, condition in nodes:
                owner = self._owner(node)
                if owner is None or not self._fits(owner):
                    return False
                self._columns.add(owner, node, condition)
                mine.append((owner, node, condition))
            self._nodes.append(mine)
        return True

    def _fits(self, name: str) -> bool:
        sensitive = self._catalog.sensitive[name]
        return (
            isinstance(sensitive.channel, Uniform | Replace)
            and sensitive.mechanism in ("uniform", "replace")
            and sensitive.domain.size <= MATERIALISE_LIMIT
        )

    @property
    def only(self) -> bool:
        """Whether there are too many states for anything else."""
        return self._columns.states > MOST_STATES

    def _base_pairs(self) -> list[tuple[int, int]]:
        found: set[tuple[int, int]] = set()
        everything = self._block.aggregates
        own = [(i, i) for i, a in enumerate(everything) if a.call.name not in ("count", "sum")]
        for i, j in (*self._pairs, *own):
            if everything[i].kind == everything[j].kind == "linear":
                for k in everything[i].bases:
                    found |= {(min(k, o), max(k, o)) for o in everything[j].bases}
        return sorted(found)

    # -- products -------------------------------------------------------------------------

    def _piece(self, t: int, half: str) -> Product:
        parts = []
        for name in self._columns.names:
            own = [(node, truth) for owner, node, truth in self._nodes[t] if owner == name]
            if not own:
                continue
            truths = tuple(node for node, truth in own if truth)
            factors = tuple(node for node, truth in own if not truth)
            values = np.ones(self._catalog.sensitive[name].domain.size)
            for node in factors:
                values = values * self._columns.value(node)
            for node in truths:
                values = np.where(self._columns.truth(node), values, 0.0)
            parts.append(Part(name, truths, factors, values))
        return _folded(1.0, (half,) if half else (), parts)

    def _times(self, one: Product, two: Product) -> Product:
        """The product of two functions of the original row."""
        parts = {part.column: part for part in one.parts}
        for part in two.parts:
            mine = parts.get(part.column)
            parts[part.column] = part if mine is None else mine * part
        halves: list[str] = []
        for half in sorted((*one.halves, *two.halves)):
            if not (half in halves and self._scan.indicator(half)):
                halves.append(half)
        ordered = [parts[name] for name in self._columns.names if name in parts]
        return _folded(one.constant * two.constant, tuple(halves), ordered)

    # -- the plan -------------------------------------------------------------------------

    def prepare(self) -> MomentScan:
        """Make the scan; its sums are named by ``steps``."""
        self._states = self._columns.shape()
        self._scan = MomentScan(self._catalog, self._block, self._columns, self._states)
        self._rows = self._scan.rows()
        self._halves = [self._scan.half(piece) for piece in self._pieces]
        self._products = [self._piece(t, half) for t, half in enumerate(self._halves)]
        self._squares = {
            (t, u): self._times(self._products[t], self._products[u])
            for k, other in self._needed
            for t in self._base[k]
            for u in self._base[other]
        }
        self._counted = self._counts_pay()
        return self._scan

    @property
    def states(self) -> States:
        """The states of the block, as far as they can be shown."""
        return self._states

    def _counts_pay(self) -> bool:
        """Whether counting conditions together is cheaper than weighing rows.

        A count costs about a third of a sum of DOUBLEs, and half of one under GROUP BY.
        """
        everything = [*self._products, *self._squares.values()]
        if self._catalog.weighted or self._catalog.multiplicity:
            return False
        if any(p.halves or not all(x.indicator for x in p.parts) for p in everything):
            return False
        needed: set[frozenset[Any]] = set()
        for one, two in [*self._squares, *((t, t) for t in range(len(self._products)))]:
            keys = {p.key for t in (one, two) for p in self._products[t].parts}
            if len(keys) > 8:
                return False
            for size in range(1, len(keys) + 1):
                needed |= {frozenset(chosen) for chosen in combinations(sorted(keys), size)}
        weights = {p.key: len(p.parts) for p in everything if p.parts}
        squares = {
            (self._products[t].key, self._products[u].key)
            for t, u in self._squares
            if self._products[t].parts
        }
        sums = len(weights) + len(squares)
        each = 16.0 if self._block.keys else 7.0
        return each * len(needed) <= 12 * sum(weights.values()) + 30 * sums

    # Sums over rows, as SQL over the scan's columns (DOUBLEs in the sub-select "d").

    def _form(self, product: Product, inverted: bool = True) -> Form:
        made: Form = {frozenset(): product.constant}
        for part in product.parts:
            made = _multiplied(made, self._factor(part, [part], inverted))
        return made

    def _factor(self, part: Part, own: Sequence[Part], inverted: bool = True) -> Form:
        """One part, true where its own conditions are, as a polynomial."""
        places = frozenset(self._scan.truth(each) for each in own)
        if not inverted:
            return {places: 1.0}
        p = self._columns.retention(part.column)
        return {places: 1 / p, frozenset(): -self._columns.shift(part) / p}

    def _linear(self, form: Form) -> exp.Expr:
        """A polynomial in truth values, summed over rows."""
        names, weights = [], []
        for chosen, weight in form.items():
            if weight:
                names.append(self._scan.together(chosen) if chosen else self._rows)
                weights.append(weight)
        if len(names) <= 1:
            return _scaled(weights[0], column(names[0])) if names else number(0)
        counts = exp.Array(expressions=[column(name) for name in names])
        return dot(counts, exp.Array(expressions=[_float(weight) for weight in weights]))

    def _named(self, kind: str, key: object, make: Callable[[], exp.Expr]) -> exp.Expr:
        """A sum over rows as a column, so that it is written once."""
        if (kind, key) not in self._totals:
            self._totals[kind, key] = f"t{len(self._totals)}", make()
        return column(self._totals[kind, key][0])

    def _scale(self, product: Product) -> float:
        return product.constant / prod(self._columns.retention(p.column) for p in product.parts)

    def _first(self, product: Product) -> exp.Expr:
        """``sum m W G``."""

        def make() -> exp.Expr:
            if self._counted:
                return self._linear(self._form(product))
            name = self._scan.added([self._scan.weight(product)], 1)
            return _scaled(self._scale(product), column(name))

        return self._named("first", (product.constant, product.key), make)

    def _seen(self, product: Product) -> exp.Expr:
        """``sum m W g`` over published rows."""
        if self._counted:
            return self._linear(self._form(product, inverted=False))
        name = self._scan.added([self._scan.weight(product, inverted=False)], 1)
        return _scaled(product.constant, column(name))

    def _second(self, one: Product, two: Product) -> exp.Expr:
        """``sum m W^2 G G'``."""

        def make() -> exp.Expr:
            if self._counted:
                return self._linear(_multiplied(self._form(one), self._form(two)))
            names = [self._scan.weight(one), self._scan.weight(two)]
            scale = self._scale(one) * self._scale(two)
            return _scaled(scale, column(self._scan.added(sorted(names, key=str), 2)))

        keys = sorted([(one.constant, one.key), (two.constant, two.key)])
        return self._named("second", tuple(keys), make)

    def _expected(self, t: int, u: int) -> exp.Expr:
        """``sum m W H``: the inverted product of two pieces."""
        product = self._squares[t, u]
        if not self._counted or t == u:
            return self._first(product)

        def make() -> exp.Expr:
            # On one column both conditions together are a third, with a mass of its own.
            made: Form = {frozenset(): product.constant}
            sides = [{p.column: p for p in self._products[i].parts} for i in (t, u)]
            for part in product.parts:
                own = [side[part.column] for side in sides if part.column in side]
                made = _multiplied(made, self._factor(part, own))
            return self._linear(made)

        return self._named("expected", (t, u), make)

    # -- steps ------------------------------------------------------------------------------

    def steps(self, prefix: str) -> tuple[Step, ...]:
        """The reconstruction; it names the sums that the scan must bring."""
        self._totals: dict[tuple[str, object], tuple[str, exp.Expr]] = {}
        bases = self._bases(prefix)
        everyone = not (self._block.guards or self._block.keys or self._block.rows.joins)
        sure = frozenset(
            t
            for t, piece in enumerate(self._pieces)
            if self._catalog.weighted
            and everyone
            and not (piece.guards or piece.value or piece.truths or piece.factor)
        )
        self._sure = sure
        estimates = Estimates(
            self._block,
            self._states,
            self._scan,
            self._base,
            self._halves,
            self._pairs,
            self._needed,
            self._domain,
            False,
            exp.Boolean(this=self._columns.certain and not self._catalog.weighted),
            sure=sure,
        )
        made = estimates.write(lambda what: f"{prefix}_{what}", 0, self._block.sets[0])
        return Step(f"{prefix}_bases0", bases), Step(f"{prefix}_block", made)

    def _bases(self, prefix: str) -> exp.Select:
        keys = [f"k{i}" for i in range(len(self._block.keys))]
        kept = [*keys, "n", *(f"e{i}" for i in range(len(self._scan.exact)))]
        sums: list[exp.Alias] = []
        seen: list[exp.Alias] = []
        for k, pieces in enumerate(self._base):
            made, shown = number(0), number(0)
            for t in pieces:
                made = add(made, self._first(self._products[t]))
                if self._wants_seen:
                    shown = add(shown, self._seen(self._products[t]))
            sums.append(named(_double(made), f"b{k}"))
            seen.append(named(_double(shown if self._wants_seen else exp.Null()), f"r{k}"))
        for k, other in self._needed:
            sums.append(named(_double(self._covariance(k, other)), f"v{k}_{other}"))
        if self._states.masses is not None:
            for t, product in enumerate(self._products):
                seen.append(named(_float(self._mass(product)), f"m{t}"))
        bounds = [self._bound(t) for t in range(len(self._pieces))]
        # All sums of the scan are named by now.
        first = exp.Select(expressions=[*map(column, keys)])
        choose(first, named(cast(or_zero(column(self._rows)), "BIGINT"), "n"))
        choose(first, *map(column, kept[len(keys) + 1 :]))
        for name in self._scan.sums:
            zeroed = exp.Coalesce(this=column(name), expressions=[_float(0.0)])
            choose(first, named(zeroed, name))
        first.from_(table(f"{prefix}_scan"), copy=False)
        second = exp.Select(expressions=[*map(column, kept), *seen])
        choose(second, *(named(node, name) for name, node in self._totals.values()))
        for t, bound in enumerate(bounds):
            choose(second, *bound.taken(t))
        second.from_(derived(first, "d"), copy=False)
        shown_names = [node.alias for node in seen]
        third = exp.Select(expressions=[*map(column, (*kept, *shown_names)), *sums])
        for t, bound in enumerate(bounds):
            choose(third, *bound.centred(t))
        third.from_(derived(second, "sums"), copy=False)
        names = [*shown_names, *(node.alias for node in sums)]
        last = exp.Select(expressions=[*map(column, (*kept, *names))])
        for t, bound in enumerate(bounds):
            choose(last, *bound.weights(t))
        return last.from_(derived(third, "centred"), copy=False)

    @property
    def _wants_seen(self) -> bool:
        scored = self._states.retention is not None and not self._catalog.weighted
        return self._observed or self._counted or scored

    def _covariance(self, k: int, other: int) -> exp.Expr:
        total: exp.Expr = number(0)
        for t in self._base[k]:
            for u in self._base[other]:
                second = self._second(self._products[t], self._products[u])
                expected = self._expected(t, u)
                if self._catalog.weighted and self._is_everyone(t, u):
                    continue
                part = exp.Sub(this=wrapped(second), expression=wrapped(expected))
                total = add(total, part)
        return total

    def _is_everyone(self, t: int, u: int) -> bool:
        """Sampled groups keep their totals: the count of all rows has no error at all."""
        if self._block.guards or self._block.keys or self._block.rows.joins:
            return False
        return any(
            not (piece.guards or piece.value or piece.truths or piece.factor)
            for piece in (self._pieces[t], self._pieces[u])
        )

    def _mass(self, product: Product) -> float:
        """``q . f`` where one column alone makes the states."""
        means = [self._columns.mass(part.column, part.values) for part in product.parts]
        return product.constant * prod(means)

    def _bound(self, t: int) -> Bound:
        product, half = self._products[t], self._halves[t]
        if not product.parts:
            return Bound()
        plain = Product(product.constant, (), product.parts)
        low, high = product.constant, product.constant
        floor = [product.constant**i for i in range(5)]
        count = list(floor)
        for part in product.parts:
            inverse = self._columns.inverse(part)
            ends = [a * b for a in (low, high) for b in (inverse.min(), inverse.max())]
            low, high = float(min(ends)), float(max(ends))
            own = inverse[self._columns.cells(part.column).first]
            for i in range(5):
                mass = self._columns.mass(part.column, inverse**i)
                floor[i] *= (1 - self._columns.retention(part.column)) * mass
                count[i] *= float((own**i).sum())
        for name in set(self._columns.names) - {part.column for part in product.parts}:
            cells = self._columns.cells(name).count
            least = 1 - self._columns.retention(name) if cells > 1 else 1.0
            floor = [least * x for x in floor]
            count = [cells * x for x in count]
        even = not self._catalog.weighted and (not half or self._scan.indicator(half))
        # The measure under which rows count: m W^2 v^2.
        taken: dict[str, exp.Expr] = {}
        if even:
            taken["rows"] = column(self._scan.added([half or None], 1))
            first, square = self._first(product), self._second(product, product)
        else:
            own_half = [half, half] if half else []
            weight, scale = self._scan.weight(plain), self._scale(plain)
            one = self._scan.added([*own_half, weight], 2)
            two = self._scan.added([*own_half, weight, weight], 2)
            taken["rows"] = column(self._scan.added(own_half, 2))
            taken["first"] = _scaled(scale, column(one))
            taken["square"] = _scaled(scale**2, column(two))
            taken["fourths"] = column(self._scan.added([*own_half, *own_half], 4))
            taken["most"] = column(self._scan.largest(half))
            first, square = column(f"first_{t}"), column(f"square_{t}")
        return Bound((low, high), taken, first, square, floor, count)


@dataclass(frozen=True)
class Bound:
    """Bounds of the two sums that effective rows are made of, as SQL in three levels."""

    ends: tuple[float, ...] = ()  # least and largest K; none where the piece is known
    sums: Mapping[str, exp.Expr] = field(default_factory=dict)  # over rows, by name
    first: exp.Expr = field(default_factory=exp.Null)  # sum of K over rows
    square: exp.Expr = field(default_factory=exp.Null)  # sum of K^2 over rows
    floor: Sequence[float] = ()  # sums over states of floor * K^i
    count: Sequence[float] = ()  # sums over states of K^i

    def taken(self, t: int) -> list[exp.Expr]:
        """What is wanted of the scan."""
        return [named(node, f"{name}_{t}") for name, node in self.sums.items()]

    def centred(self, t: int) -> list[exp.Expr]:
        """The mean of K, what is left of its square, and the farthest that K is from it."""
        if not self.ends:
            return []
        rows = exp.Nullif(this=column(f"rows_{t}"), expression=number(0))
        mean = or_zero(exp.Div(this=self.first, expression=rows, typed=False, safe=False))
        known = exp.Mul(this=self.first, expression=wrapped(mean))
        second = call("greatest", exp.Sub(this=self.square, expression=known), _float(0.0))
        carried = [column(f"{name}_{t}") for name in self.sums if name not in ("first", "square")]
        return [*carried, named(mean, f"centre_{t}"), named(second, f"second_{t}")]

    def weights(self, t: int) -> list[exp.Expr]:
        """``ws`` and ``wf``."""
        if not self.ends:
            return [named(_float(0.0), f"ws{t}"), named(_float(0.0), f"wf{t}")]
        second, mean, rows = (column(f"{name}_{t}") for name in ("second", "centre", "rows"))
        low, high = (_float(end) for end in self.ends)
        away = exp.Sub(this=high, expression=mean), exp.Sub(this=mean, expression=low)
        reach = call("power", call("greatest", *away), number(2))
        fourths, most, heavy = rows, None, None
        if "fourths" in self.sums:
            fourths, most = column(f"fourths_{t}"), column(f"most_{t}")
            below = exp.Nullif(this=rows, expression=number(0))
            heavy = or_zero(exp.Div(this=fourths, expression=below, typed=False, safe=False))
        top = multiply(reach, second)
        floor, count = _fourth(self.floor, mean), _fourth(self.count, mean)
        if most is not None and heavy is not None:
            top = multiply(most, top)
            count = multiply(call("power", heavy, number(2)), count)
        fourth = add(add(top, multiply(fourths, floor)), count)
        return [named(second, f"ws{t}"), named(fourth, f"wf{t}")]


def _fourth(moments: Sequence[float], mean: exp.Expr) -> exp.Expr:
    """``sum (K - mean)^4`` from sums of powers of K."""
    made = _float(float(moments[0]))
    for i in range(1, 5):
        sign = -1.0 if i % 2 else 1.0
        made = exp.Add(
            this=exp.Mul(this=wrapped(made), expression=mean),
            expression=_float(sign * comb(4, i) * float(moments[i])),
        )
    return made


def _float(value: float) -> exp.Expr:
    """A DOUBLE as a literal, which is shorter than a cast and read back without loss."""
    text = repr(abs(float(value)))
    node = exp.Literal.number(text if "e" in text else f"{text}e0")
    return node if value >= 0 else exp.Paren(this=exp.Neg(this=node))


def _scaled(factor: float, node: exp.Expr) -> exp.Expr:
    return node if factor == 1.0 else exp.Mul(this=_float(factor), expression=node)


def _plain(node: exp.Expr) -> exp.Expr:
    """A condition without ``IS TRUE`` around it, which is what a truth means anyway."""
    node = bare(node)
    while (
        isinstance(node, exp.Is)
        and isinstance(node.expression, exp.Boolean)
        and node.expression.this
    ):
        node = bare(node.this)
    return node


def _double(node: exp.Expr) -> exp.Expr:
    return cast(wrapped(node), "DOUBLE")


def _folded(constant: float, halves: tuple[str, ...], parts: Iterable[Part]) -> Product:
    """A product whose constant parts are in the constant."""
    kept = []
    for part in parts:
        if (part.values == part.values[0]).all():
            constant *= float(part.values[0])
        else:
            kept.append(part)
    if constant == 0.0:
        return Product(0.0, (), ())
    return Product(constant, halves, tuple(kept))


def _multiplied(one: Form, two: Form) -> Form:
    """The product of two polynomials in truth values, which are their own squares."""
    made: Form = {}
    for a, x in one.items():
        for b, y in two.items():
            made[a | b] = made.get(a | b, 0.0) + x * y
    return made
