"""Sums over the rows of an answer: window totals, and what they vary with.

Output rows are not always independent: the cells of ``GROUP BY disease`` add up to a total
that is known.  So the error of a sum over rows comes from the covariances,

    Var(sum_r L_r)      = sum_r  sum_ij d_i d_j X_ij(r),
    Cov(a_i(r), sum L)  =        sum_j  d_j     X_ij(r),          L = sum_j d_j a_j,

where X_ij(r) is the covariance of a_i in row r with a_j summed over all rows that share its
published rows: a_j(r) itself where keys are public (other rows stand for other people), and
the sum over all classes of the sensitive keys where those are added up.  (reconstruction, 3)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlglot import exp

from privsql.sql.block import Block
from privsql.sql.calculus import NotSmooth, add, by, depends, derivative, multiply
from privsql.sql.tree import bare, column, columns_of, sql

Translate = Callable[[exp.Expr], exp.Expr]


@dataclass(frozen=True)
class Total:
    """A window ``SUM(L) OVER (PARTITION BY ...)`` over estimates, taken as a variable."""

    name: str  # of the variable: w0, w1, ...
    window: exp.Window
    slopes: dict[int, exp.Expr]  # d_j by aggregate j
    partition: tuple[exp.Expr, ...]
    classes: bool  # sensitive keys are added up, so cells of one public key are correlated

    def shared(self, i: int, j: int) -> exp.Expr:
        """X_ij: covariance of a_i here with a_j over the rows that it goes with."""
        if self.classes:
            return column(f"t{i}_{j}")
        return column(f"c{min(i, j)}_{max(i, j)}")

    def with_estimate(self, i: int) -> exp.Expr:
        """Covariance of the total with estimate i of the same row."""
        total: exp.Expr = exp.Literal.number(0)
        for j, slope in self.slopes.items():
            total = add(total, multiply(slope, self.shared(i, j)))
        return total

    def with_total(self, other: Total) -> exp.Expr | None:
        """Covariance of two totals, where one's rows are among the other's."""
        mine, theirs = ({sql(node) for node in t.partition} for t in (self, other))
        if not (mine <= theirs or theirs <= mine):
            return None
        finer = self if theirs <= mine else other
        each: exp.Expr = exp.Literal.number(0)
        for i, left in self.slopes.items():
            for j, right in other.slopes.items():
                each = add(each, multiply(multiply(left, right), self.shared(i, j)))
        return finer.over(exp.Sum(this=each))

    def effective(self) -> exp.Expr:
        """Effective rows: a sum has at least those of its weakest row."""
        rows = [column(f"e{j}") for j in self.slopes]
        least = rows[0] if len(rows) == 1 else exp.Least(this=rows[0], expressions=rows[1:])
        return self.over(exp.Min(this=least))

    def over(self, function: exp.Expr) -> exp.Expr:
        """A function over the same rows."""
        return exp.Window(
            this=function, partition_by=[node.copy() for node in self.partition], over="OVER"
        )


def read_total(
    window: exp.Window, name: str, block: Block, uncertain: list[int], filtered: bool
) -> Total | None:
    """Take a window for a total, or None if it is another kind of window."""
    if any(window.args.get(part) for part in ("order", "spec", "alias", "first")):
        return None
    if not isinstance(window.this, exp.Sum) or len(block.sets) != 1:
        return None
    inner = bare(window.this.this)
    try:
        slopes = {j: derivative(inner, by(f"a{j}")) for j in uncertain if depends(inner, f"a{j}")}
    except NotSmooth:
        return None
    if any(depends(slope, f"a{j}") for slope in slopes.values() for j in uncertain):
        return None
    partition = tuple(bare(node) for node in window.args.get("partition_by") or ())
    if any(depends(node, f"a{j}") for node in partition for j in uncertain):
        return None
    sensitive = {f"k{i}" for i, key in enumerate(block.keys) if key.sensitive}
    named = {node.name for node in partition if isinstance(node, exp.Column)}
    if sensitive <= named:
        return Total(name, window, slopes, partition, classes=False)
    inside = {c.name for node in partition for c in columns_of(node)}
    constant = not any(next(columns_of(slope), None) for slope in slopes.values())
    linear = all(block.aggregates[j].call.name in ("count", "sum") for j in slopes)
    if inside & sensitive or filtered or not constant or not linear:
        return None
    return Total(name, window, slopes, partition, classes=True)
