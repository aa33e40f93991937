"""The scan that counts published states: rows, and public halves, per public keys and state."""

from __future__ import annotations

from collections.abc import Collection

from sqlglot import exp

from privsql.sql.bind.aggregates import Call
from privsql.sql.bind.block import Block
from privsql.sql.catalog import PUBLISHED, Catalog
from privsql.sql.expressions import call, is_null, or_zero
from privsql.sql.nodes import cast, column, copied, define, derived, joined, named, number, wrapped
from privsql.sql.plan.states import States
from privsql.sql.reconstruct import columns
from privsql.sql.reconstruct.columns import AGGREGATE, Family
from privsql.sql.scan.conjunctions import MOST_COUNTED, conjunctions
from privsql.sql.scan.forms import CONJUNCTIONS, STATES
from privsql.sql.scan.one_pass import (
    GROUP,
    MULTIPLICITY,
    WEIGHT,
    Pass,
    count_condition,
    half_of,
    source,
)

# Exact aggregates that can be put together from parts, and how.
# COUNT_IF is NULL where no condition is known, so it has a scan of its own.
ADDITIVE = {"count": "SUM", "sum": "SUM", "min": "MIN", "max": "MAX"}


def together(name: str, part: exp.Expr) -> exp.Expr:
    """An exact aggregate put together from those of parts."""
    node = call(ADDITIVE[name], part)
    return cast(or_zero(node), "BIGINT") if name == "count" else node


class StateScan:
    """Writes the scan that counts published states."""

    def __init__(
        self, catalog: Catalog, block: Block, states: States, ways: tuple[str, ...] = (STATES,)
    ) -> None:
        self.shared = Pass(catalog, block, STATES)
        self._states = states
        self._ways = ways  # how states can be reconstructed

    @property
    def able(self) -> tuple[str, ...]:
        """The forms in which this scan can be written, once all of its sums are named."""
        countable = STATES in self._ways and self._countable
        return (*self._ways, CONJUNCTIONS) if countable else self._ways

    @property
    def _countable(self) -> bool:
        """Whether states are a few truth values, which can be counted instead of grouped by."""
        shared, catalog = self.shared, self.shared.catalog
        axes = [axis for axis in self._states.axes if axis.count > 1]
        bits = [bit for axis in axes for bit in axis.null_bits]
        return (
            all(axis.bits for axis in axes)
            and 0 < len(bits) <= MOST_COUNTED
            and not any(bits)
            and not (shared.halves or self._states.hidden or shared.watched[1])
            and not (catalog.weighted or catalog.multiplicity)
            and len(shared.sums) == 1
            and not shared.exact
        )

    def write(self) -> exp.Expr:
        """The scan as a tree."""
        codes = self._codes(range(len(self._states.axes)))
        wanted = {**self._hidden, **codes}
        inner = self.shared.select([named(node, name) for name, node in wanted.items()])
        if self.shared.form == CONJUNCTIONS:
            (total,) = self.shared.sums
            return conjunctions(list(self.shared.keys), list(codes), inner, total)
        return self.shared.summed(derived(inner, "rows"), list(wanted))

    @property
    def _hidden(self) -> dict[str, exp.Expr]:
        return {columns.HIDDEN(i): node.copy() for i, node in enumerate(self._states.hidden)}

    def told(self, axes: Collection[int]) -> dict[str, exp.Expr]:
        """Columns by which hidden values, and published states of some axes, are distinguished."""
        return {**self._hidden, **self._codes(axes)}

    def _codes(self, axes: Collection[int]) -> dict[str, exp.Expr]:
        found: dict[str, exp.Expr] = {}
        for i, axis in enumerate(self._states.axes):
            if axis.count == 1 or i not in axes:
                continue
            if not axis.bits:
                found[columns.CODE(i)] = column(axis.column, PUBLISHED)
                continue
            for n, atom in enumerate(axis.atoms):
                found[columns.TRUTH(i, n)] = wrapped(atom)
                if axis.null_bits[n]:
                    true = exp.Is(this=wrapped(atom), expression=exp.Boolean(this=True))
                    found |= {columns.TRUTH(i, n): true, columns.UNKNOWN(i, n): is_null(atom)}
        return found


def exact_scan(catalog: Catalog, block: Block, family: Family = AGGREGATE) -> exp.Select:
    """A block without anything sensitive: the analyst's own SQL, beside the table.

    Aggregate i is called ``family(i)``.
    """
    calls = {i: a.call for i, a in enumerate(block.aggregates) if a.kind == "exact"}
    foldable = all(_steady(each) or each.name == "count" for each in calls.values())
    made = exp.Select()
    for i, key in enumerate(block.keys):
        define(made, columns.KEY(i), key.expression)
    for i, each in calls.items():
        folded = catalog.multiplicity and foldable
        define(made, family(i), _counted(each) if folded else copied(each.node))
    several = len(block.sets) > 1 or any(len(s) != len(block.keys) for s in block.sets)
    for i, key in enumerate(block.keys):
        own = exp.Grouping(expressions=[copied(key.expression)])
        define(made, columns.GROUPING(i), own if several else number(0))
    if not made.expressions:
        # Aggregated all the same: HAVING or GROUP BY () leaves one row.
        define(made, "one", exp.Count(this=exp.Star(), big_int=True))
    made = source(catalog, block, made)
    if catalog.multiplicity and not foldable:
        # Equal rows are stored once: here each is wanted as often as it stands for.
        times = call("range", column(MULTIPLICITY, PUBLISHED))
        alias = exp.TableAlias(this=exp.to_identifier("times"))
        joined(made, exp.Table(this=times, alias=alias))
    if not block.grouped:
        return made
    if not several:
        return made.group_by(*(copied(key.expression) for key in block.keys), copy=False)
    sets = [
        exp.Tuple(expressions=[copied(block.keys[i].expression) for i in chosen])
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


def _steady(call: Call) -> bool:
    """Whether an aggregate is the same however often a row is counted."""
    return call.distinct or call.name in _IDEMPOTENT


def _counted(call: Call) -> exp.Expr:
    """An exact aggregate over rows that stand for several: COUNT, or one that is the same."""
    if _steady(call):
        return copied(call.node)
    total: exp.Expr = exp.Sum(this=column(MULTIPLICITY, PUBLISHED))
    condition = count_condition(call)
    if condition is not None:
        total = exp.Filter(this=total, expression=exp.Where(this=copied(condition)))
    return cast(exp.Coalesce(this=total, expressions=[number(0)]), "BIGINT")


__all__ = ["ADDITIVE", "GROUP", "MULTIPLICITY", "WEIGHT", "StateScan", "exact_scan", "half_of"]
