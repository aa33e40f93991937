"""What a query becomes on the way: columns that know their error, and the blocks behind them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from sqlglot import exp

from privsql.sql import bars as error_bars
from privsql.sql.bars import Bars, Covariance, bars_of
from privsql.sql.block import OURS, Leaf
from privsql.sql.totals import Total, Translate
from privsql.sql.tree import (
    column,
    name_of,
)
from privsql.sql.writing import deviation, wald

# An inner query passes the covariances of all its estimates on, if they are not more.
MOST_PAIRED = 8

# Columns of a block's table for estimate i.
PARTS = {"stderr": "s", "low": "l", "high": "u", "reliable": "ok"}


@dataclass(frozen=True)
class Out:
    """A column of a query: exact, or an estimate and how its error is known."""

    name: str
    estimate: bool = False
    definition: exp.Expr | None = None  # over the columns of one block
    block: int = -1
    bars: tuple[str, ...] = ()  # hidden columns that hold its error bars


@dataclass
class Compiled:
    """A query rewritten over blocks, with its columns."""

    tree: exp.Expr
    outs: list[Out]
    hidden: list[str] = field(default_factory=list)


@dataclass
class Part:
    """A block of the query: where it came from, and which covariances are wanted."""

    leaf: Leaf
    pairs: set[tuple[int, int]] = field(default_factory=set)
    classes: set[tuple[int, int]] = field(default_factory=set)  # covariances with class totals
    totals: dict[str, tuple[Total, Translate]] = field(default_factory=dict)
    totals_done: dict[str, tuple[Total, Translate]] = field(default_factory=dict)
    constants: dict[str, exp.Expr] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)

    def uncertain(self) -> list[str]:
        """Names of everything uncertain in the block's definitions."""
        return [f"a{i}" for i in self.estimates()] + [*self.totals, *self.totals_done]

    def estimates(self) -> list[int]:
        """Positions of aggregates that are estimates."""
        return [
            i
            for i, a in enumerate(self.leaf.block.aggregates)
            if a.kind in ("linear", "quantile", "mode")
        ]


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


def block_bars(node: exp.Expr, uncertain: list[str], exported: set[str] | None = None) -> Bars:
    """Error bars of an expression over the columns of one block's table."""

    def own(name: str) -> Bars:
        if name.startswith("w"):
            spread = deviation(column(f"c{name}_{name}"))
            value = column(name)
            bars = Bars(spread, *wald(value, spread, column(f"e{name}")))
            return error_bars.unless_certain(value, bars)
        s, low, high, good = (column(letter + name[1:]) for letter in PARTS.values())
        return Bars(s, low, high, good)

    covariance = block_covariance(exported)
    return bars_of(node, uncertain, own, covariance, lambda name: column(effective_name(name)))


def block_covariance(exported: set[str] | None) -> Covariance:
    """Covariances of a block's estimates and totals by the columns that hold them."""

    def covariance(one: str, two: str) -> exp.Expr | None:
        if one.startswith("a") and two.startswith("a"):
            i, j = sorted((int(one[1:]), int(two[1:])))
            return column(f"c{i}_{j}")
        # A total is named before an estimate, and totals in their own order.
        first, second = sorted((one, two), key=lambda name: (name[0] != "w", name))
        shared = f"c{first}_{second}"
        return column(shared) if exported is None or shared in exported else None

    return covariance


def effective_name(name: str) -> str:
    """The column with an estimate's effective rows."""
    return f"e{name}" if name.startswith("w") else f"e{name[1:]}"


def weighed(tree: exp.Expr, number: int) -> frozenset[int]:
    """Aggregates of a block whose effective rows the query around it looks at.

    A block passes them on once in any case.
    """
    seen: Counter[int] = Counter()
    for each in tree.find_all(exp.Column):
        outside = each.name.startswith(hidden_name(number, "e"))
        short = each.name.removeprefix(hidden_name(number, ""))
        if (outside or each.table == block_name(number)) and short[:1] == "e":
            seen[int(short[1:]) if short[1:].isdigit() else -1] += 1 + outside
    return frozenset(i for i, many in seen.items() if many > 1)


def ordered_pairs(pairs: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """Each pair with the smaller position first."""
    return {(min(pair), max(pair)) for pair in pairs}


def default_name(node: exp.Expr) -> str:
    """The name that DuckDB would give a column; the final ones are asked of DuckDB itself."""
    if isinstance(node, exp.Count) and isinstance(node.this, exp.Star):
        return "count_star()"
    return node.sql("duckdb", normalize_functions="lower")
