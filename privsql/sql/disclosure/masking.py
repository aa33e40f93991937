"""Changes to a block's table before it is read: masked cells and rounded estimates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from privsql.sql.disclosure.group_ranges import masked
from privsql.sql.disclosure.rounding import rounded
from privsql.sql.nodes import copied, cte, derived, star_of, table
from privsql.sql.parameters import Parameters, Printed
from privsql.sql.plan.block_plan import BlockPlan
from privsql.sql.reconstruct.columns import COVARIANCE, WITH_TOTAL


@dataclass(frozen=True)
class Gap:
    """Aggregates of a block of which some cells stay empty; its table ``_mask`` says which."""

    aggregates: tuple[int, ...]
    classes: bool  # whether the mask tells sensitive keys apart, too


@dataclass(frozen=True)
class Change:
    """Changes to a block before it is read."""

    plan: BlockPlan
    gap: Gap | None
    rounded: bool


class Final:
    """The last statement of a query: as planned, and with what is hidden of its blocks."""

    def __init__(self, tree: exp.Expr, parameters: Parameters) -> None:
        self._tree = tree
        self._parameters = parameters
        self.printed = parameters.bind(tree)

    def masked(self, changes: Sequence[Change]) -> Printed:
        """The statement after the gate has decided: masked cells and rounded estimates.

        A block's own table becomes ``_open``, and what is read in its place is what may be seen.
        """
        if not changes:
            return self.printed
        made = copied(self._tree)
        with_ = made.args["with_"]
        for change in changes:
            name, opened = f"{change.plan.prefix}_block", f"{change.plan.prefix}_open"
            at = next(i for i, each in enumerate(with_.expressions) if each.alias == name)
            alias = exp.to_identifier(opened, quoted=True)
            with_.expressions[at].args["alias"].set("this", alias)
            ctes = list(with_.expressions)
            closed = cte(name, _seen(change, opened))
            with_.set("expressions", [*ctes[: at + 1], closed, *ctes[at + 1 :]])
        return self._parameters.bind(made)


def _seen(change: Change, opened: str) -> exp.Select:
    """What may be seen of a block's own table."""
    plan, gap = change.plan, change.gap
    source: exp.Expr = table(opened, "block")
    if gap is not None:
        traces = _traces(plan, gap.aggregates)
        hidden = masked(plan.prefix, plan.block, gap.aggregates, gap.classes, traces)
        source = derived(hidden, "block")
    query = exp.Select(expressions=[star_of("block")])
    if change.rounded:
        query = rounded(plan.block, plan.pairs)
    return query.from_(source, copy=False)


def _traces(plan: BlockPlan, aggregates: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """Other columns of a block that would reveal hidden aggregates: their covariances."""
    named_by = {COVARIANCE(i, j): (i, j) for i, j in plan.pairs}
    named_by |= {WITH_TOTAL(i, j): (i, j) for i, j in plan.classes}
    found = {name: tuple(i for i in both if i in aggregates) for name, both in named_by.items()}
    return {name: those for name, those in found.items() if those}
