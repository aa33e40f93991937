"""Which sums a reconstruction needs: pieces, pairs of them, and what the scan must bring."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from sqlglot import exp

from privsql.sql.block import Aggregate, Block
from privsql.sql.inverted import Inverted, Measure
from privsql.sql.pieces import Piece
from privsql.sql.scan import StateScan
from privsql.sql.states import States
from privsql.sql.tree import (
    column,
    number,
    wrapped,
)


@dataclass(frozen=True)
class Step:
    """A table of the reconstruction: its name and the query that makes it."""

    name: str
    query: exp.Expr
    inverted: Inverted | None = None  # on the last one: what the likelihood was asked for in vain


class Sums:
    """The pieces of a block's bases, and the names of all sums over them."""

    def __init__(
        self,
        block: Block,
        states: States,
        scan: StateScan,
        prefix: str,
        pairs: Iterable[tuple[int, int]],
        domain: Callable[[str], str],
        iterative: bool = False,
        totals: Iterable[tuple[int, int]] = (),
    ) -> None:
        self._block = block
        self._states = states
        self._scan = scan
        self._prefix = prefix
        self._iterative = iterative
        self._domain = domain
        self._pairs = sorted({(min(i, j), max(i, j)) for i, j in pairs})
        self._pieces: list[Piece] = []
        index: dict[str, int] = {}
        for base in block.bases:
            for piece in base:
                if index.setdefault(piece.key, len(self._pieces)) == len(self._pieces):
                    self._pieces.append(piece)
        self._base = [[index[piece.key] for piece in base] for base in block.bases]
        self._needed = self._base_pairs()
        # Covariances of a cell's aggregate with another summed over all cells (see totals).
        self._totals = sorted(set(totals))
        self._total_pairs = sorted(
            {
                (k, block.aggregates[j].bases[0])
                for i, j in self._totals
                for k in block.aggregates[i].bases
            }
        )
        # Where nothing was replaced nothing varies, and no sums are needed to say so.
        self._fixed = not scan.weighted and all(
            (axis.factor == np.eye(axis.count)).all() for axis in states.axes
        )
        self._cross_pairs = sorted(
            {
                (t, u)
                for k, other in self._total_pairs
                if not self._fixed
                for t in self._base[k]
                for u in self._base[other]
            }
        )
        self._piece_pairs = sorted(
            {
                (min(t, u), max(t, u))
                for k, other in self._needed
                if not self._fixed
                for t in self._base[k]
                for u in self._base[other]
            }
        )
        # Every sum must be named before the scan is written.
        self._rows = scan.rows()
        self._halves = [scan.half(piece) for piece in self._pieces]
        for half in self._halves:
            for kind in ("products",) if self._fixed else ("products", "squares", "fourths"):
                self._sum(kind, half, half if kind == "squares" else "")
        for one, two in (*self._piece_pairs, *self._cross_pairs):
            for kind in ("products", "squares"):
                self._sum(kind, self._halves[one], self._halves[two])
        if scan.weighted:
            for half in dict.fromkeys(self._halves):
                self._ask_sampled(half)
        self._hidden = [f"h{i}" for i in range(len(states.hidden))]
        # Scan columns that are below zero where a measure is: it has no constrained likelihood.
        self.lowest: set[str] = set()
        # So these aggregates are inverted even if ``iterative`` was asked for.
        self.inverted: Inverted | None = self._ask_lowest() if iterative else None
        # Sampled groups keep their totals, so all rows together are counted exactly.
        everyone = not (block.guards or block.keys or block.rows.joins)
        self._sure = frozenset(
            t
            for t, piece in enumerate(self._pieces)
            if scan.weighted
            and everyone
            and not (piece.guards or piece.value or piece.truths or piece.factor)
        )

    def _ask_lowest(self) -> Inverted:
        measures: list[Measure] = []
        for t, half in enumerate(self._halves):
            value = self._pieces[t].value
            if value is None or self._scan.indicator(half) or lowest_name(half) in self.lowest:
                continue
            name = lowest_name(half)
            least = exp.Least(this=exp.Min(this=column(half)), expressions=[number(0.0)])
            self._scan.sums[name] = least
            self.lowest.add(name)
            parts = [
                i
                for i, aggregate in self._of_kind("linear")
                if any(self._halves[u] == half for k in varying(aggregate) for u in self._base[k])
            ]
            measures.append(Measure(name, value, tuple(parts)))
        always = tuple(i for i, _ in self._of_kind("quantile", "mode"))
        return Inverted(always, tuple(measures))

    def _ask_sampled(self, half: str) -> None:
        """Sums of a row's sampling variance ``W (W - 1) v^2`` and of its square.

        They tell the effective rows of a piece whose error is that of the sample alone.
        """
        w = column("w")
        each: exp.Expr = exp.Mul(
            this=w, expression=exp.Paren(this=exp.Sub(this=w, expression=number(1.0)))
        )
        if half:
            v = column(half)
            each = exp.Mul(this=each, expression=exp.Mul(this=v, expression=v))
        # The number of rows is a sum where stored rows stand for several.
        times = column("m") if isinstance(self._scan.sums[self._rows], exp.Sum) else None
        for name, power in zip(sampled_names(half), (1, 2), strict=True):
            node = each if power == 1 else exp.Mul(this=wrapped(each), expression=wrapped(each))
            if times is not None:
                node = exp.Mul(this=times, expression=wrapped(node))
            self._scan.sums[name] = exp.Sum(this=node)

    def _sum(self, kind: str, one: str, two: str = "") -> exp.Column:
        return column(self._scan.total(kind, one, two), "d")

    def _name(self, what: str) -> str:
        return f"{self._prefix}_{what}"

    def _base_pairs(self) -> list[tuple[int, int]]:
        """Pairs of bases whose covariance some aggregate or pair of aggregates needs."""
        found: set[tuple[int, int]] = set()
        everything = self._block.aggregates
        simple = ("count", "sum")
        own = [(i, i) for i, a in enumerate(everything) if a.call.name not in simple]
        for i, j in (*self._pairs, *own):
            if everything[i].kind == everything[j].kind == "linear":
                for k in varying(everything[i]):
                    found |= {(min(k, o), max(k, o)) for o in varying(everything[j])}
        return sorted(found)

    def _classes(self, chosen: Sequence[int]) -> list[str]:
        return [f"k{i}" for i in chosen if self._block.keys[i].sensitive]

    def _public(self, chosen: Sequence[int]) -> list[str]:
        return [f"k{i}" for i in chosen if not self._block.keys[i].sensitive]

    def _of_kind(self, *kinds: str) -> list[tuple[int, Aggregate]]:
        return [(i, a) for i, a in enumerate(self._block.aggregates) if a.kind in kinds]


def varying(aggregate: Aggregate) -> tuple[int, ...]:
    """The bases that an aggregate's error comes from; SUM's count only tells NULL."""
    simple = aggregate.call.name in ("count", "count_if", "sum")
    return aggregate.bases[:1] if simple else aggregate.bases


def lowest_name(half: str) -> str:
    """The scan's column that is below zero where a public half is."""
    return f"low_{half}"


def sampled_names(half: str) -> tuple[str, str]:
    """The scan's columns with the second and fourth power of a public half's sampling error."""
    return f"sampled_{half}", f"sampled_{half}_squared"


def likeliest_name(half: str) -> str:
    """The column with a public half's likeliest states."""
    return f"ml_{half}"
