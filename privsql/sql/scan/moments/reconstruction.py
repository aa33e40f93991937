"""Moments: a scan that sums inverted rows instead of counting states.

Where a piece is a product of functions of one column each, and the columns keep or replace
their values row by row, a row's inverted weight is elementary:

    G = v * prod_x (g_x - c_x) / p_x,     c_x = (1 - p_x) (q_x . g_x),

so the scan brings ``n``, ``sum G_a``, ``sum G_a G_b`` and ``sum H_ab`` per public keys, and
plain arithmetic makes the table of bases from them.  No column is cut into cells, so sums over
a domain of a million values are answered too.  (reconstruction, 3)


``factors`` has the functions g and their inverses, ``weights`` the two forms in which rows are
added up, ``effective`` the bounds of effective rows; here is which blocks all this applies to,
and the step that makes their bases.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable

import numpy as np
from sqlglot import exp

from privsql.channels.channel import MATRIX_LIMIT
from privsql.channels.domain import MATERIALISE_LIMIT
from privsql.channels.mechanisms import Replace, Uniform
from privsql.errors import DataError
from privsql.sql.bind.block import Block, pieces_of_block
from privsql.sql.bind.pieces import Piece
from privsql.sql.catalog import PUBLISHED, Catalog
from privsql.sql.expressions import ENOUGH_ROWS, call, double, or_zero
from privsql.sql.nodes import (
    bare,
    cast,
    chained,
    choose,
    column,
    columns_of,
    define,
    derived,
    named,
    number,
    select,
    table,
    wrapped,
)
from privsql.sql.outer.calculus import added
from privsql.sql.plan.states import MOST_STATES
from privsql.sql.reconstruct import columns
from privsql.sql.reconstruct.estimates import Estimates
from privsql.sql.reconstruct.sums import Bases, Step, base_pairs, with_score
from privsql.sql.scan.forms import COUNTS, WEIGHTS
from privsql.sql.scan.moments.effective_rows import bound
from privsql.sql.scan.moments.factors import Columns, Part, Product, Run, folded
from privsql.sql.scan.moments.weights import MomentScan, Sums, countable, counting_pays, literal


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
        self._pairs = sorted(pairs)
        self._domain = domain
        self._observed = observed
        self._columns = Columns(catalog, run, domain)
        self._pieces, self._base = pieces_of_block(block)
        self._needed = base_pairs(block, self._pairs)
        self._nodes: list[list[tuple[str, exp.Expr, bool]]] = []  # owner, node, is it a truth
        self.applies = self._looked()
        if self.applies:
            self._columns.evaluate()
        self._counted = False

    # -- whether it applies ---------------------------------------------------------------

    def _owner(self, node: exp.Expr) -> str | None:
        """The one sensitive column of an expression that has no other columns."""
        owners = {(each.table, each.name) for each in columns_of(node)}
        if len(owners) != 1 or node.find(exp.Query):
            return None
        ((table_of, name),) = owners
        return name if table_of == PUBLISHED and name in self._catalog.sensitive else None

    def _looked(self) -> bool:
        block = self._block
        if len(block.sets) != 1 or sorted(block.sets[0]) != list(range(len(block.keys))):
            return False
        if block.sensitive_keys or any(block.joins.values()):
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
        cells = [self._columns.cells[name].count for name in self._columns.names]
        return self._columns.states > MOST_STATES or max(cells, default=1) > MATRIX_LIMIT

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
            with np.errstate(invalid="ignore", over="ignore"):
                for node in factors:
                    values = values * self._columns.value(node)
            for node in truths:
                values = np.where(self._columns.truth(node), values, 0.0)
            if not np.isfinite(values).all():
                raise DataError(
                    f"an expression is infinite or not a number for some value of {name}'s domain",
                    hint="leave such values out with CASE",
                )
            parts.append(Part(name, truths, factors, values))
        return folded(1.0, (half,) if half else (), parts)

    def _times(self, one: Product, two: Product) -> Product:
        """The product of two functions of the original row."""
        parts = {part.column: part for part in one.parts}
        for part in two.parts:
            mine = parts.get(part.column)
            parts[part.column] = part if mine is None else mine * part
        halves = self._shared.multiplied((*one.halves, *two.halves))
        ordered = [parts[name] for name in self._columns.names if name in parts]
        return folded(one.constant * two.constant, halves, ordered)

    # -- the plan -------------------------------------------------------------------------

    def prepare(self) -> None:
        """Make the functions of rows that are to be added up."""
        self.states = self._columns.shape()  # as far as they can be shown
        self._scan = MomentScan(self._catalog, self._block, self._columns)
        self._shared = self._scan.shared
        self._rows = self._shared.rows()
        self._halves = [self._shared.half(piece) for piece in self._pieces]
        self._products = [self._piece(t, half) for t, half in enumerate(self._halves)]
        self._squares = {
            (t, u): self._times(self._products[t], self._products[u])
            for k, other in self._needed
            for t, u in itertools.product(self._base[k], self._base[other])
        }

    @property
    def told(self) -> int:
        """How many states a cell would have."""
        return self._columns.states

    @property
    def able(self) -> tuple[str, ...]:
        """The forms in which the scan can be written."""
        counted = countable(self._catalog, self._products, self._squares)
        return (COUNTS, WEIGHTS) if counted else (WEIGHTS,)

    @property
    def counting_pays(self) -> bool:
        """Whether counts are cheaper than weights, where both are able."""
        return counting_pays(self._block, self._products, self._squares)

    def scan(self, form: str) -> MomentScan:
        """The scan in one form; its sums are named by ``steps``."""
        self._counted = form == COUNTS
        self._shared.form = form
        return self._scan

    @property
    def informative(self) -> tuple[bool, ...]:
        """Whether each piece says anything about sensitive values: whether it is no constant."""
        return tuple(bool(product.parts) for product in self._products)

    # -- steps ------------------------------------------------------------------------------

    def steps(self, prefix: str) -> tuple[Step, ...]:
        """The reconstruction; it names the sums that the scan must bring."""
        self._sums = Sums(self._scan, self._columns, self._products, self._squares, self._counted)
        bases = self._bases(prefix)
        known = Bases(
            self._block,
            self.states,
            self._shared,
            self._base,
            self._halves,
            self._pairs,
            self._domain,
            certain=exp.Boolean(this=self._columns.certain and not self._catalog.weighted),
            sure=self._sure,
            scored=self._scored,
        )
        estimates = Estimates(known)
        made = estimates.write(lambda what: f"{prefix}_{what}", 0, self._block.sets[0])
        self._effective = estimates.effective_rows()
        return Step(f"{prefix}_bases0", bases), Step(f"{prefix}_block", made)

    def doubtful(self, weighed: Collection[int]) -> list[exp.Select]:
        """Whether bounds leave open if some piece of some cell has enough effective rows.

        Queries that are asked in turn until one says no: first whether the least are too few,
        which is short and decides nearly always, then whether the most are enough.
        Those of a score interval only matter where the query looks at them (``weighed``).
        """
        if self.only:
            return []
        scored = self.score_intervals
        few: dict[int, exp.Expr] = {}
        for i, pieces in self._effective.items():
            if i in weighed or i not in scored:
                for t, rows in pieces.items():
                    least = exp.LT(this=wrapped(rows), expression=number(ENOUGH_ROWS))
                    few[t] = exp.Paren(this=least)
        if not few:
            return []
        asked = [_any(self._weighed, few.values())]
        if any(self._bounds[t].limited for t in few):
            both = [exp.And(this=least, expression=_perhaps_enough(t)) for t, least in few.items()]
            asked.append(_any(self._bounded, both))
        return asked

    @property
    def _sure(self) -> frozenset[int]:
        """Pieces that are known exactly: no value that they look at was replaced.

        Sampled groups keep their totals, so there all rows together are counted exactly.
        """
        if self._catalog.weighted:
            return frozenset(t for t in range(len(self._pieces)) if self._is_everyone(t, t))
        return frozenset(
            t
            for t, product in enumerate(self._products)
            if product.parts
            and all(self._columns.retention(part.column) == 1 for part in product.parts)
        )

    @property
    def score_intervals(self) -> frozenset[int]:
        """Aggregates with the score interval."""
        return with_score(self._block, self._base, self._scored)

    @property
    def _scored(self) -> dict[int, float]:
        """Pieces that count rows under a condition on one column, and its retention."""
        return {
            t: self._columns.retention(product.parts[0].column)
            for t, product in enumerate(self._products)
            if len(product.parts) == 1
            and product.parts[0].indicator
            and product.constant == 1.0
            and all(self._shared.indicator(half) for half in product.halves)
            and not self._catalog.weighted
        }

    def _bases(self, prefix: str) -> exp.Select:
        sums: dict[str, exp.Expr] = {}
        seen: dict[str, exp.Expr] = {}
        scored = self._scored
        for k, pieces in enumerate(self._base):
            products = [self._products[t] for t in pieces]
            sums[columns.BASE(k)] = added(map(self._sums.first, products))
            shown: exp.Expr = exp.Null()
            if self._observed or self._counted or set(pieces) <= set(scored):
                shown = added(map(self._sums.seen, products))
            seen[columns.OBSERVED_BASE(k)] = double(shown)
        for k, other in self._needed:
            sums[columns.BASE_COVARIANCE(k, other)] = self._covariance(k, other)
        for t in scored:
            (part,) = self._products[t].parts
            seen[columns.MASS(t)] = literal(self._columns.mass(part.column, part.values))
            if self._halves[t]:
                counted = column(self._shared.added([self._halves[t]], 1))
                seen[columns.CONDITION_ROWS(t)] = double(counted)
        bounds = [
            bound(self._sums, product, self._halves[t], self._catalog.weighted, t)
            for t, product in enumerate(self._products)
        ]
        # All sums of the scan are named by now.
        keys = [columns.KEY(i) for i in range(len(self._block.keys))]
        exact = [columns.EXACT(i) for i in range(len(self._shared.exact))]
        first = select(table(f"{prefix}_scan"), *map(column, keys))
        define(first, columns.ROWS, cast(or_zero(column(self._rows)), "BIGINT"))
        choose(first, *map(column, exact))
        for name in self._shared.sums:
            zeroed = exp.Coalesce(this=column(name), expressions=[literal(0.0)])
            define(first, name, zeroed)
        kept = [*keys, columns.ROWS, *exact]
        second = select(derived(first, "sums"), *map(column, kept))
        for name, node in (*seen.items(), *self._sums.totals.values()):
            define(second, name, node)
        third = select(derived(second, "sums"), *map(column, (*kept, *seen)))
        for name, node in sums.items():
            define(third, name, double(node))
        last = select(derived(third, "centred"), *map(column, (*kept, *seen, *sums)))
        self._bounds = bounds
        self._weighed = select(derived(third, "centred"))
        # What the most effective rows need twice has a step of its own.
        nearest = select(derived(third, "centred"))
        self._bounded = select(derived(nearest, "nearest"))
        for t, one in enumerate(bounds):
            choose(second, *one.taken(t))
            choose(third, *one.centred(t))
            choose(last, *one.weights(t))
            choose(self._weighed, *one.weights(t))
            choose(nearest, *one.nearest(t))
            choose(self._bounded, *one.weights(t), one.most(t))
        return last

    def _covariance(self, k: int, other: int) -> exp.Expr:
        parts: list[exp.Expr] = []
        for t, u in itertools.product(self._base[k], self._base[other]):
            second = self._sums.second(self._products[t], self._products[u])
            expected = self._sums.expected(t, u)
            if not (self._catalog.weighted and self._is_everyone(t, u)):
                parts.append(exp.Sub(this=wrapped(second), expression=wrapped(expected)))
        return added(parts)

    def _is_everyone(self, t: int, u: int) -> bool:
        """Sampled groups keep their totals: the count of all rows has no error at all."""
        return self._block.everyone and any(
            piece == Piece() for piece in (self._pieces[t], self._pieces[u])
        )


def _any(bases: exp.Select, conditions: Iterable[exp.Expr]) -> exp.Select:
    """Whether a condition holds of any cell."""
    either = chained(exp.Or, map(wrapped, conditions))
    return select(derived(bases, "bases"), named(call("bool_or", either), "doubtful"))


def _perhaps_enough(t: int) -> exp.Expr:
    """Whether a piece may have enough effective rows; a little less, for rounding."""
    above = exp.Coalesce(
        this=column(columns.MOST_ROWS(t)), expressions=[number(float(ENOUGH_ROWS))]
    )
    return exp.GTE(this=above, expression=number(ENOUGH_ROWS * (1 - 1e-9)))


def _plain(node: exp.Expr) -> exp.Expr:
    """A condition without ``IS TRUE`` around it, which is what a truth means anyway."""
    node = bare(node)
    while isinstance(node, exp.Is) and node.expression == exp.true():
        node = bare(node.this)
    return node
