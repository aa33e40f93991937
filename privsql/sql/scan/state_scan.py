"""The scan: one pass over the published table, in the SQL of its engine.

A row's public half of each piece (``v``) is computed in a sub-select, with the truth values
of the atoms; the outer SELECT adds up per public keys and published state:

    n        rows                               y(v)      sum of  m W   v
    squares  sum of  m W^2 v v'                 products  sum of  m W   v v'
    fourths  sum of  m W^4 v^4

(m multiplicity, W weight).  Without weights squares and products are the same sum, and for
``v`` of 0 and 1 all of them are; equal ones are sent once.  (reconstruction, 3)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from privsql.sql.bind.aggregates import Call
from privsql.sql.bind.block import Block
from privsql.sql.bind.pieces import Piece
from privsql.sql.catalog import PUBLISHED, Catalog
from privsql.sql.nodes import (
    bare,
    cast,
    choose,
    column,
    derived,
    every,
    named,
    sql,
    table,
    wrapped,
)
from privsql.sql.plan.states import States, joined_to
from privsql.sql.reconstruct import columns
from privsql.sql.scan.conjunctions import MOST_COUNTED, conjunctions
from privsql.sql.scan.forms import CONJUNCTIONS, STATES

GROUP = "privsql_group"
WEIGHT = "privsql_weight"
MULTIPLICITY = "privsql_multiplicity"

# Exact aggregates that can be put together from parts, and how.
# COUNT_IF is NULL where no condition is known, so it has a scan of its own.
ADDITIVE = {"count": "SUM", "sum": "SUM", "min": "MIN", "max": "MAX"}


@dataclass(frozen=True)
class Half:
    """The public half of a piece as the scan computes it; None is the constant 1."""

    node: exp.Expr | None
    indicator: bool  # only 0 and 1


def half_of(piece: Piece) -> Half:
    """The public half of a piece, 0 where its guards do not hold."""
    if not piece.guards and piece.value is None:
        return Half(None, True)
    guard = every(piece.guards)
    value = (
        cast(wrapped(piece.value), "DOUBLE") if piece.value is not None else exp.Literal.number(1)
    )
    if guard is None:
        return Half(value, False)
    when = exp.If(this=guard, true=value)
    case = exp.Case(ifs=[when], default=exp.Literal.number(0))
    return Half(cast(case, "DOUBLE"), piece.value is None)


def source(catalog: Catalog, block: Block, inner: exp.Select) -> exp.Select:
    """FROM and WHERE of a scan: the published table, public joins, public conditions."""
    made = inner.from_(table(catalog.table, PUBLISHED), copy=False)
    for join in block.rows.joins:
        if not block.joins[join.alias]:
            made = joined_to(made, join.table, join.alias, join.on, join.kind)
    for guard in block.guards:
        made.where(guard.copy(), copy=False)
    return made


class StateScan:
    """Writes the scan that counts published states."""

    def __init__(self, catalog: Catalog, block: Block, states: States) -> None:
        self._catalog = catalog
        self._block = block
        self._states = states
        self._halves: dict[str, Half] = {}
        self.sums: dict[str, exp.Expr] = {}
        self._named: dict[str, str] = {}
        self.exact: list[tuple[Call, str]] = []
        self.beside = False  # whether exact aggregates have a scan of their own
        self.form = STATES
        # Where the personal groups behind sums are wanted as well (see membership): columns of
        # rows, and aggregates over them.
        self.watched: tuple[list[exp.Expr], list[exp.Expr]] = ([], [])

    def half(self, piece: Piece) -> str:
        """Name the public half of a piece: ``public<i>``, or "" for the constant 1."""
        half = half_of(piece)
        if half.node is None:
            return ""
        text = sql(half.node)
        for name, known in self._halves.items():
            if known.node is not None and sql(known.node) == text:
                return name
        name = columns.PUBLIC(len(self._halves))
        self._halves[name] = half
        return name

    @property
    def weighted(self) -> bool:
        """Whether rows carry weights."""
        return self._catalog.weighted

    def indicator(self, half: str) -> bool:
        """Whether a public half is only 0 or 1."""
        return self._halves[half].indicator

    def total(self, kind: str, one: str, two: str = "") -> str:
        """Name a sum: kind ``products``, ``squares`` or ``fourths`` of halves."""
        factors = [name for name in (one, two) if name]
        if kind == "fourths":
            factors = [one] * 4 if one and not self._halves[one].indicator else factors
        # 0 and 1 are their own squares.
        kept: list[str] = []
        for name in sorted(factors):
            if not (self._halves[name].indicator and name in kept):
                kept.append(name)
        weight = {"products": 1, "squares": 2, "fourths": 4}[kind] if self._catalog.weighted else 0
        terms: list[exp.Expr] = []
        if self._catalog.multiplicity:
            terms.append(column(columns.TIMES))
        terms += [column(columns.ROW_WEIGHT)] * weight
        terms += [column(name) for name in kept]
        key = " ".join(term.name for term in terms)
        if key not in self._named:
            name = columns.SUM(len(self._named))
            self._named[key] = name
            self.sums[name] = _sum_of(terms)
        return self._named[key]

    def rows(self) -> str:
        """Name the number of published rows."""
        terms = [column(columns.TIMES)] if self._catalog.multiplicity else []
        key = " ".join(term.name for term in terms)
        if key not in self._named:
            self._named[key] = columns.SUM(len(self._named))
            self.sums[self._named[key]] = _sum_of(terms)
        return self._named[key]

    def codes(self) -> list[str]:
        """Columns by which the scan distinguishes published states."""
        found = []
        for i, axis in enumerate(self._states.axes):
            if axis.count == 1:
                continue
            if axis.bits:
                for n in range(len(axis.atoms)):
                    found.append(columns.TRUTH(i, n))
                    if axis.null_bits[n]:
                        found.append(columns.UNKNOWN(i, n))
            else:
                found.append(columns.CODE(i))
        return found

    @property
    def able(self) -> tuple[str, ...]:
        """The forms in which this scan can be written, once all of its sums are named."""
        return (STATES, CONJUNCTIONS) if self._countable else (STATES,)

    @property
    def _countable(self) -> bool:
        """Whether states are a few truth values, which can be counted instead of grouped by."""
        axes = [axis for axis in self._states.axes if axis.count > 1]
        bits = [bit for axis in axes for bit in axis.null_bits]
        return (
            all(axis.bits for axis in axes)
            and 0 < len(bits) <= MOST_COUNTED
            and not any(bits)
            and not (self._halves or self._states.hidden or self.watched[1])
            and not (self._catalog.weighted or self._catalog.multiplicity)
            and len(self.sums) == 1
            and not self.exact
        )

    def write(self) -> exp.Expr:
        """The scan as a tree."""
        keys = [
            named(key.expression, columns.KEY(i))
            for i, key in enumerate(self._block.keys)
            if not key.sensitive
        ]
        hidden = [
            named(node.copy(), columns.HIDDEN(i)) for i, node in enumerate(self._states.hidden)
        ]
        inner = exp.Select(expressions=[*keys, *hidden, *self._coded()])
        for name, half in self._halves.items():
            if half.node is not None:
                inner = choose(inner, named(half.node, name))
        if self._catalog.multiplicity:
            inner = choose(inner, named(column(MULTIPLICITY, PUBLISHED), columns.TIMES))
        if self._catalog.weighted:
            inner = choose(inner, named(column(WEIGHT, PUBLISHED), columns.ROW_WEIGHT))
        exacts = []
        for i, (call, _) in enumerate(self.exact):
            extra, outer = self._exact(i, call)
            for node in extra:
                inner = choose(inner, node)
            exacts.append(named(outer, columns.EXACT(i)))
        choose(inner, *self.watched[0])
        if not inner.expressions:
            inner = choose(inner, named(exp.Literal.number(1), "one"))
        inner = source(self._catalog, self._block, inner)
        groups = [*(k.alias for k in keys), *(h.alias for h in hidden), *self.codes()]
        outer = exp.Select(expressions=[column(name) for name in groups])
        for name, node in self.sums.items():
            outer = choose(outer, named(node.copy(), name))
        for node in exacts:
            outer = choose(outer, node)
        choose(outer, *self.watched[1])
        if not outer.expressions and not self.sums:
            choose(outer, named(_sum_of([]), "one"))
        if self.form == CONJUNCTIONS:
            return conjunctions([k.alias for k in keys], self.codes(), inner, next(iter(self.sums)))
        outer = outer.from_(derived(inner, "rows"), copy=False)
        if groups:
            outer.group_by(*(column(name) for name in groups), copy=False)
        return outer

    def _coded(self) -> list[exp.Expr]:
        found: list[exp.Expr] = []
        for i, axis in enumerate(self._states.axes):
            if axis.count == 1:
                continue
            if not axis.bits:
                found.append(named(column(axis.column, PUBLISHED), columns.CODE(i)))
                continue
            for n, atom in enumerate(axis.atoms):
                true = wrapped(atom)
                if axis.null_bits[n]:
                    true = exp.Is(this=true, expression=exp.Boolean(this=True))
                    null = exp.Is(this=wrapped(atom), expression=exp.Null())
                    found.append(named(null, columns.UNKNOWN(i, n)))
                found.append(named(true, columns.TRUTH(i, n)))
        return found

    def _exact(self, i: int, call: Call) -> tuple[list[exp.Expr], exp.Expr]:
        """An exact aggregate within a state: columns of the sub-select, and its own sum."""
        extra: list[exp.Expr] = []
        inner = call.arguments[0] if call.arguments else None
        condition = call.filter
        if call.name == "count_if" and inner is not None:
            condition = (
                inner
                if condition is None
                else exp.And(this=wrapped(condition), expression=wrapped(inner))
            )
            inner = None
        if isinstance(inner, exp.Star):
            inner = None
        if call.name == "count" and inner is not None:
            known = exp.Not(this=exp.Is(this=wrapped(inner), expression=exp.Null()))
            condition = (
                known if condition is None else exp.And(this=wrapped(condition), expression=known)
            )
            inner = None
        if inner is not None:
            extra.append(named(inner.copy(), columns.ARGUMENT(i)))
        if condition is not None:
            extra.append(named(condition.copy(), columns.FILTER(i)))
        if call.name in ("count", "count_if"):
            node = _sum_of([column(columns.TIMES)] if self._catalog.multiplicity else [])
        else:
            node = exp.Anonymous(this=call.name, expressions=[column(columns.ARGUMENT(i))])
        if condition is not None:
            node = exp.Filter(this=node, expression=exp.Where(this=column(columns.FILTER(i))))
        return extra, node


def _sum_of(terms: Sequence[exp.Expr]) -> exp.Expr:
    if not terms:
        return exp.Count(this=exp.Star(), big_int=True)
    made = terms[0].copy()
    for term in terms[1:]:
        made = exp.Mul(this=made, expression=term.copy())
    return exp.Sum(this=made)


def exact_scan(
    catalog: Catalog,
    block: Block,
    family: columns.Family = columns.AGGREGATE,
    grouping: bool = False,
) -> exp.Select:
    """A block without anything sensitive: the analyst's own SQL, beside the table.

    Aggregate i is called ``family(i)``; ``grouping`` adds the columns that tell grouping sets
    apart.
    """
    calls = {i: a.call for i, a in enumerate(block.aggregates) if a.kind == "exact"}
    unfold = catalog.multiplicity and not all(_foldable(call) for call in calls.values())
    keys = [named(key.expression, columns.KEY(i)) for i, key in enumerate(block.keys)]
    made = exp.Select(expressions=[*keys])
    for i, call in calls.items():
        folded = catalog.multiplicity and not unfold
        choose(made, named(_counted(call) if folded else call.node.copy(), family(i)))
    several = len(block.sets) > 1 or any(len(s) != len(block.keys) for s in block.sets)
    if several or grouping or block.keys:
        for i, key in enumerate(block.keys):
            flag: exp.Expr = exp.Literal.number(0)
            if several:
                flag = exp.Grouping(expressions=[key.expression.copy()])
            choose(made, named(flag, columns.GROUPING(i)))
    if not calls and not block.keys:
        # Aggregated all the same: HAVING or GROUP BY () leaves one row.
        choose(made, named(exp.Count(this=exp.Star(), big_int=True), "one"))
    made = source(catalog, block, made)
    if unfold:
        # Equal rows are stored once: here each is wanted as often as it stands for.
        times = exp.Anonymous(this="range", expressions=[column(MULTIPLICITY, PUBLISHED)])
        lateral = exp.Table(this=times, alias=exp.TableAlias(this=exp.to_identifier("times")))
        made.append("joins", exp.Join(this=lateral, kind="CROSS"))
    if not block.grouped:
        return made
    if not several:
        return made.group_by(*(key.expression.copy() for key in block.keys), copy=False)
    sets = [
        exp.Tuple(expressions=[block.keys[i].expression.copy() for i in chosen])
        for chosen in block.sets
    ]
    made.set("group", exp.Group(expressions=[exp.GroupingSets(expressions=sets)]))
    return made


# Aggregates that a row counted several times does not change.
_IDEMPOTENT = (
    "min",
    "max",
    "any_value",
    "bool_and",
    "bool_or",
    "approx_count_distinct",
    "arg_max",
    "arg_min",
)


def _foldable(call: Call) -> bool:
    """Whether an aggregate can be had from rows that stand for several."""
    return call.distinct or call.name in (*_IDEMPOTENT, "count")


def _counted(call: Call) -> exp.Expr:
    """An exact aggregate over rows that stand for several."""
    if call.distinct or call.name in _IDEMPOTENT:
        return call.node.copy()
    condition = call.filter
    inner = call.arguments[0] if call.arguments else None
    many = column(MULTIPLICITY, PUBLISHED)
    if inner is not None and not isinstance(inner, exp.Star):
        known = wrapped(inner)
        if call.name == "count":
            known = exp.Not(this=exp.Is(this=wrapped(inner), expression=exp.Null()))
        condition = (
            known if condition is None else exp.And(this=wrapped(condition), expression=known)
        )
    if call.name in ("count", "count_if"):
        total: exp.Expr = exp.Sum(this=many)
        if condition is not None:
            total = exp.Filter(this=total, expression=exp.Where(this=condition.copy()))
        return cast(exp.Coalesce(this=total, expressions=[exp.Literal.number(0)]), "BIGINT")
    raise AssertionError(f"{call.name} is not foldable")


__all__ = ["ADDITIVE", "StateScan", "bare", "exact_scan"]
