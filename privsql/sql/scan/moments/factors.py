"""Functions of a row that are products of functions of one sensitive column each.

    g(row) = constant * halves(public) * prod_x g_x(x)

Each ``g_x`` is known by its values on the column's domain, which DuckDB finds in one query for
all columns of a block.  Where a column keeps or replaces its values, inverting it is
elementary:

    T^-1 g = (g - c) / p,     c = (1 - p) (q . g).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sqlglot import exp

from privsql.channels.cells import Cells
from privsql.channels.mechanisms import Replace
from privsql.sql.catalog import PUBLISHED, Catalog
from privsql.sql.expressions import call
from privsql.sql.nodes import cast, column, copied, define, derived, joined, sql, table, wrapped
from privsql.sql.plan.states import Axis, States
from privsql.sql.reconstruct.columns import ATOM, TRUTH

# Cells of a column up to which its channel between cells is kept for EXPLAIN.
MOST_CELLS = 256

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Run = Callable[[exp.Expr], pa.Table]


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
    """A function of a row: constant times public halves times one part per column."""

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
                value = exp.Order(this=cast(wrapped(copied(node)), kind), expressions=order)
                define(made, ATOM(len(texts)), call("list", value))
                texts.append(text)
            made.from_(table(self._domain(name), PUBLISHED), copy=False)
            joined(query, derived(made, f"domain{len(texts)}"))
        found = self._run(query) if texts else pa.table({})
        for text, chunks in zip(texts, found.columns, strict=True):
            lists: Any = chunks.combine_chunks()
            self._found[text] = array = lists.values
            filled = array.fill_null(False if text in self._conditions else 0.0)
            self._values[text] = np.asarray(filled.to_numpy(zero_copy_only=False))
        # Values that the block does not distinguish.
        self.cells = {name: self._cells_of(name) for name in self.names}

    def may_be_null(self, node: exp.Expr) -> bool:
        """Whether an expression is NULL for some value of the domain."""
        return bool(self._found[self._known[id(node)]].null_count)

    def truth(self, node: exp.Expr) -> Bools:
        """Where a condition is true."""
        found: Bools = self._values[self._known[id(node)]].astype(np.bool_)
        return found

    def value(self, node: exp.Expr) -> Floats:
        """Values of an expression, 0 where it is NULL."""
        found: Floats = self._values[self._known[id(node)]].astype(np.float64)
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
                with np.errstate(invalid="ignore"):  # a domain may hold what is divided by zero
                    rising = bool((np.diff(values) > 0).all())
                if not rising:
                    own = np.unique(values, return_inverse=True)[1]
            if self._found[text].null_count:
                null = np.asarray(self._found[text].is_null().to_numpy(zero_copy_only=False))
                own = np.where(null, -1, own) + 1
            wide = labels * (int(own.max(initial=0)) + 1) + own
            labels = np.unique(wide, return_inverse=True)[1].astype(np.intp)
        return Cells.of(labels)

    @property
    def states(self) -> int:
        """How many states the block has."""
        return prod(self.cells[name].count for name in self.names)

    @property
    def certain(self) -> bool:
        """Whether nothing that matters was replaced."""
        return all(self.retention(n) == 1 or self.cells[n].count == 1 for n in self.names)

    def shape(self) -> States:
        """The states as EXPLAIN and the estimates want to see them."""
        axes: list[Axis] = []
        written: dict[str, exp.Expr] = {}
        for i, name in enumerate(self.names):
            cells, sensitive = self.cells[name], self._catalog.sensitive[name]
            if cells.count > MOST_CELLS:
                return States((), (), {}, self._catalog.rows)
            atoms = self._atoms[name]
            shown: dict[str, Any] = {"cell": pa.array(np.arange(cells.count))}
            for n, text in enumerate(atoms):
                place = column(TRUTH(i, n))
                written[text] = place
                # What was asked for may have IS TRUE around it.
                bare_text = text if wrapped(atoms[text]) is atoms[text] else f"({text})"
                true = exp.Is(this=copied(place), expression=exp.Boolean(this=True))
                written[f"{bare_text} IS TRUE"] = true
                shown[TRUTH(i, n)] = self._found[text].take(cells.first.tolist())
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


def folded(constant: float, halves: tuple[str, ...], parts: Iterable[Part]) -> Product:
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
