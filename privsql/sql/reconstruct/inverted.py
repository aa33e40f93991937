"""Estimates that use inversion although the constrained likelihood was asked for.

The likelihood is that of counts, which are not negative.  A sum of a measure that is below zero in
some row has none, and neither has the distribution behind a quantile or a mode; those are
inverted, for all groups alike, and the answer says so.  (reconstruction, 4)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from privsql.errors import Notice
from privsql.sql.bind.block import Block
from privsql.sql.explain.wording import said

if TYPE_CHECKING:
    from privsql.sql.plan.block_plan import BlockPlan
    from privsql.sql.reconstruct.sums import Step


@dataclass(frozen=True)
class Measure:
    """A public measure that may be below zero, and the aggregates that it is part of."""

    column: str  # of the scan: below zero where the measure is
    value: exp.Expr
    aggregates: tuple[int, ...]


@dataclass(frozen=True)
class Inverted:
    """Aggregates that the likelihood leaves out: in any case, or because of their measure."""

    always: tuple[int, ...] = ()
    measures: tuple[Measure, ...] = ()


def inverted_of(steps: Sequence[Step]) -> Inverted:
    """What the reconstruction of a block leaves to inversion."""
    return (steps[-1].inverted if steps else None) or Inverted()


def inverted_notices(plan: BlockPlan, scanned: pa.Table) -> list[Notice]:
    """Name what was inverted, now that the scan tells which measures are below zero."""
    block, left = plan.block, inverted_of(plan.steps)
    found = []
    if left.always:
        names = _listed(block, left.always)
        found.append(f"{names}: from the inverted distribution, which has no likelihood of its own")
    for measure in left.measures:
        least = pc.min(scanned.column(measure.column)).as_py()
        if least is not None and least < 0:
            why = f"{said(measure.value, block)} is below zero in some rows"
            found.append(f"{_listed(block, measure.aggregates)}: by inversion, because {why}")
    return [Notice("inverted", text) for text in found]


def _listed(block: Block, aggregates: Sequence[int]) -> str:
    return ", ".join(said(block.aggregates[i].call.node, block) for i in aggregates)
