"""Window functions over the rows of an answer, and their covariances.

A sum, a mean or a neighbour (LAG, LEAD) is linear in the estimates of the rows F of its frame.
With ``L = sum_j d_j a_j`` the error comes from the covariances,

    Var(sum_F L)         = sum over r in F of  sum_ij d_i d_j X_ij(r),
    Cov(a_i(r), sum_F L) = sum_j d_j X_ij(r) where r is in F, else 0,
    Cov(sum_F L, sum_G M) = the same sum over the rows that are in F and in G,

where X_ij(r) is the covariance of a_i in row r with a_j summed over all rows that share its
published rows.  Rows whose public keys differ stand for different people, so that X_ij is
Cov(a_i, a_j) in the row itself, and any frame will do.  The cells of a sensitive key share their
people (``GROUP BY disease`` adds up to a total that is known): X_ij is at hand where all cells are
added up, and nowhere else.  (reconstruction, 3)

The sums over frames are window functions again, ``SUM(sum_ij d_i d_j c_ij) OVER (<frame>)``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlglot import exp

from privsql.sql.bind.block import Block
from privsql.sql.expressions import (
    KNOWN_ROWS,
    call,
    is_null,
    least,
    nonzero,
    or_false,
    or_zero,
    quotient,
)
from privsql.sql.nodes import bare, cast, column, columns_of, copied, given, number, sql, when
from privsql.sql.outer.calculus import (
    NotSmooth,
    added,
    depends,
    is_zero,
    multiply,
    size_of,
    slopes_of,
)
from privsql.sql.outer.frames import Frame, between, read_frame
from privsql.sql.reconstruct.columns import AGGREGATE, COVARIANCE, EFFECTIVE, KEY, WITH_TOTAL

Translate = Callable[[exp.Expr], exp.Expr]


class NoTotal(Exception):  # noqa: N818 - a fact, not a fault
    """A window whose error is not known, and why."""


@dataclass(frozen=True)
class Total:
    """A linear window function over estimates, taken as a variable."""

    name: str  # of the variable: w0, w1, ...
    window: exp.Window
    value: exp.Expr  # L
    slopes: dict[int, exp.Expr]  # d_j by aggregate j
    frame: Frame
    classes: bool  # sensitive keys are added up, so cells of one public key are correlated
    mean: bool = False  # the sum over the number of values
    simple: bool = False  # of counts and sums: where there is no value there is no variance

    @property
    def key(self) -> str:
        """What makes two totals the same."""
        return sql(self.window)

    def shared(self, i: int, j: int) -> exp.Expr:
        """X_ij: covariance of a_i here with a_j over the rows that it goes with."""
        if self.classes:
            return column(WITH_TOTAL(i, j))
        return _covariance(i, j)

    def with_estimate(self, i: int) -> exp.Expr:
        """Covariance of the total with estimate i of the same row."""
        if not self.frame.here:
            return number(0.0)
        total = added(multiply(slope, self.shared(i, j)) for j, slope in self.slopes.items())
        return self._scaled(self._given(total, number(0.0)))

    def with_total(self, other: Total) -> exp.Expr | None:
        """Covariance of two totals, where the rows that they share are determined."""
        common = self.frame.common(other.frame)
        if common is None:
            return None
        # Covariances with sums over all classes belong to the cells of the finer total.
        fine, wide = (other, self) if self.classes and not other.classes else (self, other)
        each = fine._products(wide, lambda slope, i, j: multiply(slope, wide.shared(i, j)))
        total: exp.Expr = common.over(exp.Sum(this=each))
        if not (self.simple and other.simple):
            total = self._known_sum(other, common, each)
        elif not common.here:  # there may be no row
            total = or_zero(total)
        return other._scaled(self._scaled(total))

    def _known_sum(self, other: Total, common: Frame, each: exp.Expr) -> exp.Expr:
        """A sum over rows with values; one of unknown terms is not known: SUM leaves them out."""
        there = self._there()
        if other.key != self.key:
            there = exp.And(this=there, expression=other._there())
        lost = is_null(each)
        if not self.classes and not other.classes:
            lost = exp.And(this=there, expression=lost)
        gaps = or_false(common.over(call("bool_or", lost)))
        total = or_zero(common.over(exp.Sum(this=when(copied(there), each))))
        return when(exp.Not(this=gaps), total)

    def _products(self, other: Total, term: Callable[[exp.Expr, int, int], exp.Expr]) -> exp.Expr:
        """The sum of a term for each slope of one total times one of another."""
        return added(
            term(multiply(left, right), i, j)
            for i, left in self.slopes.items()
            for j, right in other.slopes.items()
        )

    def size(self) -> exp.Expr:
        """The variance's terms without their signs: what rounding is measured by.

        A covariance with a sum over classes is such a sum itself: one of its terms is that
        with the cell's own estimate, which stands for it.
        """

        def term(slope: exp.Expr, i: int, j: int) -> exp.Expr:
            return multiply(size_of(slope), exp.Abs(this=_covariance(i, j)))

        each = self._products(self, term)
        return self._scaled(self._scaled(self.frame.over(exp.Sum(this=self._given(each)))))

    def effective(self) -> exp.Expr:
        """Effective rows.

        Of independent parts with ``u = sum G^2`` and ``e = u^2 / sum G^4`` a sum has
        ``(sum u)^2 / sum(u^2 / e)``; the variance stands for u.  The cells of a sensitive key
        are not independent: their sum has at least those of its weakest one.
        """
        rows = least([column(EFFECTIVE(j)) for j in self.slopes])
        weakest = self.frame.over(exp.Min(this=self._given(rows)))
        known = number(KNOWN_ROWS)
        if self.classes:
            return exp.Coalesce(this=weakest, expressions=[known])
        each = self._products(self, lambda slope, i, j: multiply(slope, self.shared(i, j)))
        u = exp.Abs(this=each)
        square = exp.Mul(this=u, expression=copied(u))
        share = exp.Div(this=square, expression=rows, typed=False, safe=False)
        top, bottom = (
            self.frame.over(exp.Sum(this=self._given(node))) for node in (copied(u), share)
        )
        squared = exp.Mul(this=top, expression=copied(top))
        ratio = exp.Div(this=squared, expression=nonzero(bottom), typed=False, safe=False)
        found = exp.Coalesce(this=ratio, expressions=[copied(weakest)])
        return when(exp.LT(this=weakest, expression=known), found, copied(known))

    def _there(self) -> exp.Expr:
        """Whether a row has a value to add."""
        return given(copied(self.value))

    def _given(self, node: exp.Expr, other: exp.Expr | None = None) -> exp.Expr:
        """A row's part, where it has a value to add."""
        return node if self.simple else when(self._there(), node, other)

    def _scaled(self, node: exp.Expr) -> exp.Expr:
        if not self.mean:
            return node
        many = cast(self.frame.over(exp.Count(this=copied(self.value))), "DOUBLE")
        return exp.Paren(this=quotient(node, nonzero(many)))


def _covariance(i: int, j: int) -> exp.Expr:
    """Covariance of two estimates of one row."""
    return column(COVARIANCE(min(i, j), max(i, j)))


def read_total(
    window: exp.Window,
    name: str,
    block: Block,
    uncertain: list[int],
    filtered: bool,
    entangled: bool = False,
) -> Total:
    """Take a window for a linear one, or say why not.

    ``filtered``: some cells of sensitive keys may be missing.  ``entangled``: a column was
    perturbed as a whole, so that rows of the answer vary together.
    """
    if len(block.sets) != 1:
        raise NoTotal("rows of ROLLUP, CUBE and GROUPING SETS count the same people")
    inner, frame, mean, default = _function(window)
    if window.find(exp.Query) is not None:
        raise NoTotal("a window over a sub-query")
    names = [AGGREGATE(j) for j in uncertain]
    ordering = (window.args.get("order"), window.args.get("spec"), default)
    parts = [*(window.args.get("partition_by") or ()), *filter(None, ordering)]
    if isinstance(window.this, exp.Filter):
        parts.append(window.this.expression)
    if any(depends(node, each) for node in parts for each in names):
        raise NoTotal("which rows a window takes depends on estimates")
    slopes = _slopes(inner, uncertain)
    if any(block.aggregates[j].kind != "linear" for j in slopes):
        raise NoTotal("a window over a median, a quantile or a mode")
    sensitive = set(map(KEY, block.sensitive_keys))
    named = {node.name for node in frame.partition if isinstance(node, exp.Column)}
    simple = isinstance(inner, exp.Column) and all(
        block.aggregates[j].call.name in ("count", "count_if", "sum") for j in slopes
    )
    made = Total(name, window, inner, slopes, frame, False, mean, simple)
    if sensitive <= named:
        if entangled and not frame.whole:
            raise NoTotal("a column was perturbed as a whole, so its groups are correlated")
        return made
    inside = {c.name for node in frame.partition for c in columns_of(node)}
    constant = not any(next(columns_of(slope), None) for slope in slopes.values())
    linear = all(block.aggregates[j].call.name in ("count", "sum") for j in slopes)
    if inside & sensitive or filtered or not constant or not linear or not frame.whole or mean:
        raise NoTotal(
            "groups of a sensitive column are correlated, and the covariance of two of them is"
            " known only where all are added up"
        )
    return Total(name, window, inner, slopes, frame, True)


def _slopes(inner: exp.Expr, uncertain: list[int]) -> dict[int, exp.Expr]:
    """Slopes by the estimates that an expression is linear in."""
    numbers = {AGGREGATE(j): j for j in uncertain}
    try:
        found = slopes_of(inner, numbers)
    except NotSmooth:
        raise NoTotal("a window over an expression that is not smooth") from None
    if any(depends(slope, each) for slope in found.values() for each in numbers):
        raise NoTotal("a window over a product or quotient of estimates")
    return {numbers[name]: slope for name, slope in found.items() if not is_zero(slope)}


def _function(window: exp.Window) -> tuple[exp.Expr, Frame, bool, exp.Expr | None]:
    """What a window adds up, over which rows, whether it is their mean, and LAG's default."""
    function, condition = window.this, None
    if isinstance(function, exp.Filter):
        function, condition = function.this, function.expression.this
    frame = read_frame(window)
    if frame is None:
        raise NoTotal("a window whose rows the query's text does not determine")
    if isinstance(function, exp.Sum | exp.Avg):
        inner = bare(function.this)
        if isinstance(inner, exp.Distinct | exp.Order):
            raise NoTotal("a window with DISTINCT or an order inside")
        if condition is not None:
            inner = when(copied(condition), copied(inner))
        return inner, frame, isinstance(function, exp.Avg), None
    if isinstance(function, exp.Lag | exp.Lead) and condition is None:
        offset = _whole(function.args.get("offset"))
        if offset is None or frame.order is None:
            raise NoTotal("a neighbour at a distance that is not a whole number")
        steps = float(-offset if isinstance(function, exp.Lag) else offset)
        default = function.args.get("default")
        return bare(function.this), between(frame, steps, steps), False, default
    raise NoTotal("of the window functions only SUM, AVG, LAG and LEAD keep error bars")


def _whole(node: exp.Expr | None) -> int | None:
    if node is None:
        return 1
    node = bare(node)
    if isinstance(node, exp.Literal) and not node.is_string and node.this.isdigit():
        return int(node.this)
    return None
