"""The sums that a reconstruction needs from the scan: pieces and pairs of pieces."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import TypeVar

from sqlglot import exp

from privsql.sql.bind.block import (
    Aggregate,
    Block,
    Distinct,
    Linear,
    Mode,
    Quantile,
    pieces_of_block,
)
from privsql.sql.bind.pieces import Piece
from privsql.sql.expressions import product_of
from privsql.sql.nodes import column, number, sql, wrapped
from privsql.sql.plan.states import States
from privsql.sql.reconstruct.columns import (
    HIDDEN,
    KEY,
    ROW_WEIGHT,
    TIMES,
    least_of,
    ordered_pairs,
    sampled_of,
)
from privsql.sql.reconstruct.inverted import Inverted, Measure
from privsql.sql.scan.distinct import Counted
from privsql.sql.scan.one_pass import Pass

# Aggregates that are one sum; SUM's count only tells NULL.
SIMPLE = ("count", "count_if", "sum")

A = TypeVar("A", Linear, Quantile, Mode, Distinct)


@dataclass(frozen=True)
class Step:
    """A table of the reconstruction: its name and the query that makes it."""

    name: str
    query: exp.Expr
    inverted: Inverted | None = None  # on the last one: what the likelihood was asked for in vain


@dataclass(frozen=True)
class Bases:
    """What is known of the bases of a block, within the cells of some keys."""

    block: Block
    states: States
    scan: Pass
    base: Sequence[Sequence[int]]  # pieces of each base
    halves: Sequence[str]  # public half of each piece
    pairs: Sequence[tuple[int, int]]  # aggregates whose covariances are wanted
    domain: Callable[[str], str]  # the table of a column's domain
    certain: exp.Expr  # whether all answers of a cell are exact
    iterative: bool = False  # whether the likelihood is maximised
    totals: Sequence[tuple[int, int]] = ()  # aggregates and those summed over all cells
    sure: frozenset[int] = frozenset()  # pieces that are known exactly
    scored: Mapping[int, float] = field(default_factory=dict)  # with a score interval: retention
    settled: frozenset[int] = frozenset()  # pieces that are exact where a cell is the whole table

    @property
    def fixed(self) -> bool:
        """Whether nothing varies, so that slopes and covariances are left out."""
        return isinstance(self.certain, exp.Boolean) and bool(self.certain.this)


class Sums:
    """The pieces of a block's bases, and the names of all sums over them."""

    def __init__(
        self,
        block: Block,
        states: States,
        scan: Pass,
        prefix: str,
        pairs: Iterable[tuple[int, int]],
        domain: Callable[[str], str],
        iterative: bool = False,
        totals: Iterable[tuple[int, int]] = (),
    ) -> None:
        self.block = block
        self.states = states
        self.scan = scan
        self.prefix = prefix
        self.iterative = iterative
        self.domain = domain
        self.pairs = sorted(pairs)
        self.pieces, self.base = pieces_of_block(block)
        self.needed = base_pairs(block, self.pairs)
        # Covariances of a cell's aggregate with another summed over all cells (see totals).
        self.totals = sorted(set(totals))
        bases = [aggregate.bases for aggregate in block.aggregates]
        self.total_pairs = sorted({(k, bases[j][0]) for i, j in self.totals for k in bases[i]})
        # Where nothing was replaced nothing varies, and no sums are needed to say so.
        self.fixed = not scan.weighted and all(axis.fixed for axis in states.axes)
        self.cross_pairs = sorted(set(self._pieces_of(self.total_pairs)))
        self.piece_pairs = ordered_pairs(self._pieces_of(self.needed))
        self.crossed = list(dict.fromkeys(u for _, u in self.cross_pairs))
        # Every sum must be named before the scan is written.
        self.row_count = scan.rows()
        self.added = sorted({t for k in added_bases(block) for t in self.base[k]})
        self.halves = [scan.half(p) if t in self.added else "" for t, p in enumerate(self.pieces)]
        for half in self.halves:
            for kind in ("products",) if self.fixed else ("products", "squares", "fourths"):
                self.column_of(kind, half, half if kind == "squares" else "")
        for one, two in (*self.piece_pairs, *self.cross_pairs):
            for kind in ("products", "squares"):
                self.column_of(kind, self.halves[one], self.halves[two])
        if scan.weighted:
            for half in dict.fromkeys(self.halves):
                self._ask_sampled(half)
        self.hidden = [HIDDEN(i) for i in range(len(states.hidden))]
        # Scan columns that are below zero where a measure is: it has no constrained likelihood.
        self.lowest: set[str] = set()
        # So these aggregates are inverted even if ``iterative`` was asked for.
        self.inverted: Inverted | None = self._ask_lowest() if iterative else None
        self._sure: dict[tuple[int, ...], frozenset[int]] = {}  # asked once a pair of pieces
        self._own_axes = [self._axes_of(piece.sensitive) for piece in self.pieces]
        self._key_axes = [self._axes_of([key.expression]) for key in block.keys if key.sensitive]

    def _pieces_of(self, pairs: Iterable[tuple[int, int]]) -> Iterable[tuple[int, int]]:
        """The pieces of pairs of bases, where anything varies."""
        for k, other in () if self.fixed else pairs:
            yield from product(self.base[k], self.base[other])

    # -- the axes that a piece varies along ---------------------------------------------

    def _axes_of(self, nodes: Iterable[exp.Expr]) -> frozenset[int] | None:
        """The axes along which expressions vary; None where public columns are hidden in them."""
        found: frozenset[int] = frozenset()
        for node in nodes:
            own = self.states.along[sql(node)]
            if own is None:
                return None
            found |= own
        return found

    def axes_of(self, pieces: Iterable[int], keys: Iterable[int]) -> list[int]:
        """The axes whose cells tell values of some pieces and sensitive keys apart."""
        found = [self._own_axes[t] for t in pieces]
        own = dict(zip(self.block.sensitive_keys, self._key_axes, strict=True))
        found += [own[i] for i in keys]
        axes = enumerate(self.states.axes)
        return [i for i, axis in axes if axis.count > 1 and any(f is None or i in f for f in found)]

    @property
    def floored(self) -> list[tuple[int, ...]]:
        """Axes along which a distinct count varies, in the cells of any set of keys."""
        found = {
            self.varied(self.base[aggregate.bases[0]], chosen)
            for _, aggregate in self.of_kind(Distinct)
            for chosen in self.block.sets
        }
        return sorted(found)

    def varied(self, pieces: Iterable[int], chosen: Sequence[int]) -> tuple[int, ...]:
        """Axes that tell values of some pieces apart within the cells of some keys."""
        keys = [i for i in self.block.sensitive_keys if i in chosen]
        return tuple(self.axes_of(pieces, keys))

    def counted(self, i: int, aggregate: Distinct, chosen: Sequence[int]) -> Counted:
        """What is scanned for a distinct count in the cells of some keys."""
        public = tuple(k for k in chosen if not self.block.keys[k].sensitive)
        name = "_".join(map(str, (f"values{i}", *public)))
        classes = tuple(self.block.sensitive_keys)
        (k,) = aggregate.bases
        return Counted(name, i, public, classes, aggregate.value, tuple(self.base[k]))

    def along(self, t: int, chosen: Sequence[int]) -> frozenset[int] | None:
        """The axes along which a piece varies within the cells of some keys.

        It depends on the piece and on those keys alone, so that an estimate has one error,
        whatever else is asked for beside it.
        """
        found = self._own_axes[t]
        for i, own in zip(self.block.sensitive_keys, self._key_axes, strict=True):
            if i in chosen:
                found = None if found is None or own is None else found | own
        return found

    def sure(self, chosen: Sequence[int]) -> frozenset[int]:
        """Pieces that are known exactly: no value that they look at was replaced.

        Sampled groups keep their totals, so there all rows together are counted exactly, and
        nothing else is.
        """
        known = self._sure.get(tuple(chosen))
        if known is None:
            known = self._sure[tuple(chosen)] = self._surely(chosen)
        return known

    def _surely(self, chosen: Sequence[int]) -> frozenset[int]:
        axes = self.states.axes
        found = set()
        for t, piece in enumerate(self.pieces):
            along = self.along(t, chosen)
            if self.scan.weighted:
                if self.block.everyone and piece == Piece():
                    found.add(t)
            elif along and all(axes[i].fixed for i in along):
                found.add(t)
        return frozenset(found)

    def scored(self, chosen: Sequence[int]) -> dict[int, int]:
        """Pieces that count rows under a condition on one column alone, with its axis.

        The published count is binomial there, which the score interval is made of.
        """
        found: dict[int, int] = {}
        for t, half in enumerate(self.halves):
            along = self.along(t, chosen)
            if along is None or len(along) != 1 or self.scan.weighted or not self._units[t]:
                continue
            if t not in self.added:
                continue
            (i,) = along
            if self.states.axes[i].scored and (not half or self.scan.indicator(half)):
                found[t] = i
        return found

    @cached_property
    def _units(self) -> list[bool]:
        """Whether the sensitive half of each piece is only 0 or 1."""
        return [self._is_unit(piece) for piece in self.pieces]

    def _is_unit(self, piece: Piece) -> bool:
        """Whether the sensitive half of a piece is only 0 or 1, as far as atoms tell."""
        if piece.factor is None:
            return True
        text = sql(piece.factor)
        for axis in self.states.axes:
            values = axis.values(text)
            if values is not None:
                return all(value in (None, 0, 1) for value in values.to_pylist())
        return False

    def whole(self, t: int, u: int, chosen: Sequence[int]) -> int | None:
        """The axis of a column perturbed as a whole, where two pieces vary along it alone.

        Its channel comes from its published values, so that an answer is a sum over *all* N
        rows of the table.  With D = G G' - H and V the sum of v over the selected rows:

            identity  sum k k' p^2 D,  k = (v - (1-p) V/N) / p      (reconstruction, 3)
            swap      the same with k = (v - V/N) / p: the whole column's answer is exact
            decoy     (1 - r^3) sum v v' D + V V'/N E,  r = V^2 / (N sum v^2),
                      E = q . g (g' - T g')

        Decoy's is exact for counts of the whole table (r = 1), where published counts are sums
        of multinomials over groups, and plain for few rows; between them it is no theorem but
        an interpolation, mostly on the wide side (tests.oracle.families has the figures).
        Pieces that look at another sensitive column, or compare with public ones, or rows with
        weights have the plain formula, which errs on the wide side as well.
        """
        one, two = self.along(t, chosen), self.along(u, chosen)
        if one is None or two is None or len(one | two) != 1 or self.scan.weighted:
            return None
        (i,) = one | two
        axis = self.states.axes[i]
        whole = not axis.independent and axis.masses is not None and bool(self.states.rows)
        return i if whole else None

    def settled(self, chosen: Sequence[int]) -> frozenset[int]:
        """Pieces that are exact over the whole table: swapping leaves a column's counts."""
        return frozenset(
            t
            for t, half in enumerate(self.halves)
            if not half
            and (i := self.whole(t, t, chosen)) is not None
            and self.states.axes[i].mechanism == "swap"
        )

    @property
    def score_intervals(self) -> frozenset[int]:
        """Aggregates with the score interval, in the cells of all keys together."""
        scored = self.scored(max(self.block.sets, key=len, default=()))
        return with_score(self.block, self.base, scored)

    @property
    def massed(self) -> set[int]:
        """Axes whose masses are wanted."""
        found: set[int] = set()
        for chosen in self.block.sets:
            whole = [self.whole(t, u, chosen) for t, u in (*self.piece_pairs, *self.cross_pairs)]
            found |= {*self.scored(chosen).values(), *(i for i in whole if i is not None)}
        return found

    def _ask_lowest(self) -> Inverted:
        measures: list[Measure] = []
        for t, half in enumerate(self.halves):
            value = self.pieces[t].value
            name = least_of(half)
            if value is None or self.scan.indicator(half) or name in self.lowest:
                continue
            least = exp.Min(this=column(half))
            self.scan.sums[name] = exp.Least(this=least, expressions=[number(0.0)])
            self.lowest.add(name)
            parts = [
                i
                for i, aggregate in self.of_kind(Linear)
                if any(self.halves[u] == half for k in varying(aggregate) for u in self.base[k])
            ]
            measures.append(Measure(name, value, tuple(parts)))
        always = tuple(sorted(i for i, _ in (*self.distributions(), *self.of_kind(Distinct))))
        return Inverted(always, tuple(measures))

    def _ask_sampled(self, half: str) -> None:
        """Sums of a row's sampling variance ``W (W - 1) v^2`` and of its square.

        They tell the effective rows of a piece whose error is that of the sample alone.
        """
        w = column(ROW_WEIGHT)
        less = exp.Paren(this=exp.Sub(this=w, expression=number(1.0)))
        each = product_of([w, less, *([column(half)] * 2 if half else [])])
        square = exp.Mul(this=wrapped(each), expression=wrapped(each))
        for name, node in zip(sampled_of(half), (each, square), strict=True):
            if self.scan.catalog.multiplicity:
                node = exp.Mul(this=column(TIMES), expression=wrapped(node))
            self.scan.sums[name] = exp.Sum(this=node)

    def column_of(self, kind: str, one: str, two: str = "") -> exp.Column:
        """The list over states with a sum of the scan."""
        return column(self.scan.total(kind, one, two), "dense")

    def table_of(self, what: str) -> str:
        """The name of a table of this block."""
        return f"{self.prefix}_{what}"

    def sensitive_keys(self, chosen: Sequence[int]) -> list[str]:
        """Columns of those keys that are sensitive."""
        return [KEY(i) for i in chosen if self.block.keys[i].sensitive]

    def public_keys(self, chosen: Sequence[int]) -> list[str]:
        """Columns of those keys that are public."""
        return [KEY(i) for i in chosen if not self.block.keys[i].sensitive]

    def of_kind(self, kind: type[A]) -> list[tuple[int, A]]:
        """Aggregates of one kind, with their numbers."""
        return [(i, a) for i, a in enumerate(self.block.aggregates) if isinstance(a, kind)]

    def distributions(self) -> list[tuple[int, Quantile | Mode]]:
        """Aggregates that are found in a distribution."""
        found: list[tuple[int, Quantile | Mode]] = [*self.of_kind(Quantile), *self.of_kind(Mode)]
        return sorted(found, key=lambda each: each[0])


def added_bases(block: Block) -> list[int]:
    """Bases that are added up over rows; those of distinct counts are multiplied."""
    return sorted({k for a in block.aggregates if a.kind != "distinct" for k in a.bases})


def base_pairs(block: Block, pairs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Pairs of bases whose covariance some aggregate or pair of aggregates needs."""
    everything = block.aggregates
    own = [(i, i) for i, a in enumerate(everything) if a.call.name not in ("count", "sum")]
    return ordered_pairs(
        pair
        for i, j in (*pairs, *own)
        if everything[i].kind == everything[j].kind == "linear"
        for pair in product(varying(everything[i]), varying(everything[j]))
    )


def counted_piece(
    aggregate: Aggregate, base: Sequence[Sequence[int]], scored: Collection[int]
) -> int | None:
    """The one piece whose rows an aggregate counts, where it has the score interval."""
    if aggregate.kind != "linear" or aggregate.call.name not in SIMPLE:
        return None
    pieces = base[aggregate.bases[0]]
    return pieces[0] if len(pieces) == 1 and pieces[0] in scored else None


def with_score(
    block: Block, base: Sequence[Sequence[int]], scored: Collection[int]
) -> frozenset[int]:
    """Aggregates with the score interval."""
    everything = enumerate(block.aggregates)
    return frozenset(i for i, a in everything if counted_piece(a, base, scored) is not None)


def varying(aggregate: Aggregate) -> tuple[int, ...]:
    """The bases that an aggregate's error comes from; SUM's count only tells NULL."""
    return aggregate.bases[:1] if aggregate.call.name in SIMPLE else aggregate.bases
