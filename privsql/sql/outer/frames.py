"""Window frames: the rows that a window function reads, as far as the query text determines."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from sqlglot import exp

from privsql.sql.nodes import bare, copied, sql

UNBOUNDED, CURRENT = "UNBOUNDED", "CURRENT ROW"


@dataclass(frozen=True)
class Frame:
    """``PARTITION BY ... ORDER BY ... <spec>``.

    ``rows`` are the first and the last row, counted from the current one, where the frame is
    one of ROWS and its bounds are numbers; ``here`` says whether the current row is in it.
    """

    partition: tuple[exp.Expr, ...]
    order: exp.Order | None = None
    spec: exp.WindowSpec | None = None
    here: bool = True
    rows: tuple[float, float] | None = None

    @property
    def whole(self) -> bool:
        """Whether it is all rows of a partition."""
        return self.order is None and self.spec is None

    def over(self, function: exp.Expr) -> exp.Expr:
        """A function over these rows."""
        return exp.Window(
            this=function,
            partition_by=[copied(node) for node in self.partition],
            order=None if self.order is None else copied(self.order),
            spec=None if self.spec is None else copied(self.spec),
            over="OVER",
        )

    def common(self, other: Frame) -> Frame | None:
        """The rows that are in both, where they are determined: a frame again."""
        mine, theirs = ({sql(node) for node in frame.partition} for frame in (self, other))
        if other.whole and theirs <= mine:
            return self
        if self.whole and mine <= theirs:
            return other
        if mine != theirs or _text(self.order) != _text(other.order):
            return None
        if _text(self.spec) == _text(other.spec):
            return self
        if self.rows is None or other.rows is None:
            return None
        first, last = max(self.rows[0], other.rows[0]), min(self.rows[1], other.rows[1])
        return between(self, first, last)


def _text(node: exp.Expr | None) -> str:
    return "" if node is None else sql(node)


def between(frame: Frame, first: float, last: float) -> Frame:
    """The rows from one offset to another in a frame's order; none where they are crossed."""
    if first > last:
        # A frame of no rows: in front of all there can be.
        first, last = -math.inf, -1e15
    start, start_side = _bound(first, "PRECEDING")
    end, end_side = _bound(last, "FOLLOWING")
    sides = {"start_side": start_side, "end_side": end_side}
    spec = exp.WindowSpec(kind="ROWS", start=start, end=end, **sides)
    return replace(frame, spec=spec, here=first <= 0 <= last, rows=(first, last))


def _bound(offset: float, far: str) -> tuple[str | exp.Expr, str | None]:
    if math.isinf(offset):
        return UNBOUNDED, far
    if offset == 0:
        return CURRENT, None
    return exp.Literal.number(int(abs(offset))), "PRECEDING" if offset < 0 else "FOLLOWING"


def read_frame(window: exp.Window) -> Frame | None:
    """The frame of a window, or None where its rows are not determined."""
    if window.args.get("alias") or window.args.get("first"):
        return None
    partition = tuple(bare(node) for node in window.args.get("partition_by") or ())
    order, spec = window.args.get("order"), window.args.get("spec")
    if spec is None:
        # In order, RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW; peers are in it.
        return Frame(partition, order)
    kind = str(spec.args.get("kind") or "").upper()
    start = _offset(spec.args.get("start"), spec.args.get("start_side"))
    end: float | None = 0.0
    if spec.args.get("end") is not None:
        end = _offset(spec.args.get("end"), spec.args.get("end_side"))
    if start is None or end is None:
        return None
    excluded = spec.args.get("exclude")
    words = excluded.name.upper() if isinstance(excluded, exp.Expr) else ""
    here = start <= 0 <= end and words not in ("CURRENT ROW", "GROUP")
    if kind == "RANGE" and not start <= 0 <= end:
        # Rows whose order is NULL are in their own frame whatever the bounds.
        return None
    plain = kind == "ROWS" and words in ("", "NO OTHERS") and order is not None
    return Frame(partition, order, spec, here, (start, end) if plain else None)


def _offset(bound: object, side: object) -> float | None:
    """A bound as a number of rows or a distance; of a distance only the sign is known."""
    sign = -1.0 if str(side or "").upper() == "PRECEDING" else 1.0
    if isinstance(bound, str):
        if bound.upper() == UNBOUNDED:
            return sign * math.inf
        return 0.0 if bound.upper() == CURRENT else None
    length = bound.this if isinstance(bound, exp.Interval) else bound
    if not isinstance(length, exp.Literal) or (length is bound and length.is_string):
        return None
    try:
        steps = float(length.this)
    except ValueError:
        return None
    return sign * steps if steps >= 0 else None


def with_names(tree: exp.Select) -> None:
    """Write the windows of ``WINDOW w AS (...)`` where they are used."""
    named = {str(w.this.name).casefold(): w for w in tree.args.get("windows") or ()}
    if not named or any(w.args.get("alias") for w in named.values()):
        return
    for window in list(tree.find_all(exp.Window)):
        alias = window.args.get("alias")
        if alias is None or window.find_ancestor(exp.Select) is not tree:
            continue
        base = named.get(alias.name.casefold())
        if base is None:
            continue
        for part in ("partition_by", "order", "spec"):
            own = window.args.get(part) or base.args.get(part)
            taken = [copied(n) for n in own] if isinstance(own, list) else own and copied(own)
            window.set(part, taken)
        window.set("alias", None)
    tree.set("windows", None)
