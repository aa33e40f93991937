"""Parts of a query under compilation: columns with their errors, and blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import combinations_with_replacement

from sqlglot import exp

from privsql.sql.bind.aggregates import SPREADS, counted
from privsql.sql.bind.block import OURS, Leaf
from privsql.sql.expressions import KNOWN_ROWS, deviation, or_false, wald
from privsql.sql.nodes import column, columns_of, name_of, number, of_kind, outermost
from privsql.sql.outer import error_bars
from privsql.sql.outer.error_bars import Bars, Covariance, Known, bars_of, cancels, doubt_of
from privsql.sql.outer.ratios import divisors
from privsql.sql.outer.totals import Total, Translate
from privsql.sql.reconstruct.columns import (
    AGGREGATE,
    BARS,
    COVARIANCE,
    EFFECTIVE,
    covariance_of,
    effective_of,
    size_of_total,
)

# An inner query passes the covariances of all its estimates on, if they are not more.
MOST_PAIRED = 8


@dataclass(frozen=True)
class Out:
    """A column of a query: exact, or an estimate and how its error is known."""

    name: str
    estimate: bool = False
    definition: exp.Expr | None = None  # over the columns of one block
    block: int = -1
    bars: tuple[str, ...] = ()  # hidden columns that hold its error bars
    why: str = ""  # it has no error bars
    ratio: bool = False  # divides by an estimate, so that it may come to nothing
    spread: bool = False  # a variance or its kin, which may come out below zero


@dataclass
class Compiled:
    """A query rewritten over blocks, with its columns."""

    tree: exp.Expr
    outs: list[Out]
    hidden: list[str] = field(default_factory=list)
    whole: bool = False  # its rows are all rows of one block, each once


@dataclass
class Part:
    """A block of the query: where it came from, and which covariances are wanted."""

    leaf: Leaf
    pairs: set[tuple[int, int]] = field(default_factory=set)  # the smaller number first
    classes: set[tuple[int, int]] = field(default_factory=set)  # covariances with class totals
    totals: dict[str, tuple[Total, Translate]] = field(default_factory=dict)
    totals_done: dict[str, tuple[Total, Translate]] = field(default_factory=dict)
    constants: dict[str, exp.Expr] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    entangled: bool = False  # a column was perturbed as a whole: groups vary together
    steady: frozenset[int] = frozenset()  # aggregates that are sums of positive weights

    def uncertain(self) -> list[str]:
        """Names of everything uncertain in the block's definitions."""
        return [AGGREGATE(i) for i in self.estimates()] + [*self.totals, *self.totals_done]

    def estimates(self) -> list[int]:
        """Positions of aggregates that are estimates."""
        return [
            i
            for i, a in enumerate(self.leaf.block.aggregates)
            if a.kind in ("linear", "quantile", "mode")
        ]

    def bars(self, node: exp.Expr) -> Bars:
        """Error bars of an expression over the columns of the block's table."""
        return bars_of(node, self.uncertain(), self._known(self.exported))

    def doubt(self, below: exp.Expr, more: Iterable[str] = ()) -> exp.Expr | None:
        """Where a denominator is not distinguishable from zero; ``more`` are columns to come."""
        return doubt_of(below, self.uncertain(), self._known(self.exported | set(more)))

    def divides(self, node: exp.Expr) -> bool:
        """Whether an expression divides by an estimate, or has an average in it."""
        if divisors(node, self.uncertain()):
            return True
        return any(counted(self._name_of(i)) is not None for i in self.used(node))

    def is_spread(self, node: exp.Expr) -> bool:
        """Whether a variance or its kin is in an expression."""
        return any(self._name_of(i) in SPREADS for i in self.used(node))

    def used(self, node: exp.Expr) -> list[int]:
        """The estimates that an expression refers to."""
        names = {each.name for each in columns_of(node)}
        return [i for i in self.estimates() if AGGREGATE(i) in names]

    def _name_of(self, i: int) -> str:
        return self.leaf.block.aggregates[i].call.name

    def _known(self, exported: set[str]) -> Known:
        return Known(
            _own,
            block_covariance(exported),
            lambda name: column(effective_of(name)),
            self._linear,
            self._risky,
        )

    def _linear(self, name: str) -> bool:
        i = AGGREGATE.number(name)
        return i is None or self.leaf.block.aggregates[i].kind == "linear"

    def _risky(self, name: str) -> bool:
        i = AGGREGATE.number(name)
        if i is not None:
            return i not in self.steady
        total = {**self.totals_done, **self.totals}[name][0]
        return not set(total.slopes) <= self.steady


def block_name(number: int) -> str:
    """The table of a block, until its plan gives it the one of the query at hand."""
    return f"privsql_block{number}"


def hidden_name(block: int, name: str) -> str:
    """Under which name a block's column passes through outer queries."""
    return f"privsql_b{block}_{name}"


def our_function(node: exp.Expr) -> str | None:
    """``stderr`` for ``privsql_stderr(...)`` and so on, None for other functions."""
    name = name_of(node)
    short = name.removeprefix("privsql_")
    return short if short != name and short in OURS else None


def _own(name: str) -> Bars:
    """The error bars of an estimate or a total itself."""
    i = AGGREGATE.number(name)
    if i is not None:
        s, low, high, good = (column(family(i)) for family in BARS.values())
        return Bars(s, low, high, good)
    value, variance = column(name), column(covariance_of(name, name))
    spread = deviation(variance)
    bars = Bars(spread, *wald(value, spread, column(effective_of(name))))
    cancel = cancels(variance, column(size_of_total(name)))
    settled = exp.GTE(this=column(effective_of(name)), expression=number(KNOWN_ROWS))
    either = exp.Or(this=exp.Paren(this=cancel), expression=settled)
    return error_bars.unless_certain(value, bars, or_false(either))


def block_covariance(exported: set[str]) -> Covariance:
    """Covariances of a block's estimates and totals by the columns that hold them."""

    def covariance(one: str, two: str) -> exp.Expr | None:
        shared = covariance_of(one, two)
        own = COVARIANCE.numbers(shared) is not None
        return column(shared) if own or shared in exported else None

    return covariance


def weighed(tree: exp.Expr, number: int) -> frozenset[int]:
    """Aggregates of a block whose effective rows the query around it looks at.

    A block passes them on once in any case.
    """
    seen: Counter[int] = Counter()
    prefix = hidden_name(number, "")
    for each in of_kind(tree, exp.Column):
        name = each.name
        short = name.removeprefix(prefix)
        outside = short != name
        if short.startswith(EFFECTIVE.word) and (outside or each.table == block_name(number)):
            at = EFFECTIVE.number(short)
            seen[-1 if at is None else at] += 1 + outside
    return frozenset(i for i, many in seen.items() if many > 1)


def pairs_of(numbers: Iterable[int]) -> set[tuple[int, int]]:
    """All pairs of some numbers, each with itself too, the smaller one first."""
    return set(combinations_with_replacement(sorted(set(numbers)), 2))


def nodes_in(tree: exp.Expr, *clauses: str) -> list[exp.Expr]:
    """The expressions in some clauses of a SELECT."""
    found: list[object] = []
    for clause in clauses:
        part = tree.args.get(clause)
        found += part if isinstance(part, list) else [part]
    return [node for node in found if isinstance(node, exp.Expr)]


def has_window(node: exp.Expr) -> bool:
    """Whether a window function is in an expression, sub-queries apart."""
    return next(outermost(node, is_window), None) is not None


def is_window(node: exp.Expr) -> bool:
    """Whether a node is a window function."""
    return isinstance(node, exp.Window)


def default_name(node: exp.Expr) -> str:
    """The name that DuckDB would give a column; the final ones are asked of DuckDB itself."""
    if isinstance(node, exp.Count) and isinstance(node.this, exp.Star):
        return "count_star()"
    return node.sql("duckdb", normalize_functions="lower")
