"""The rows behind each cell of a block, as the disclosure check needs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product

from privsql.sql.bind.block import Block, Distinct, pieces_of_block
from privsql.sql.catalog import Catalog
from privsql.sql.disclosure.group_ranges import (
    SALT,
    Membership,
    Support,
    gathered,
    judged,
    matched,
    secrets_of_tuples,
)
from privsql.sql.disclosure.informative import together
from privsql.sql.disclosure.row_functions import CellSet, CellSets, Shared, Weight
from privsql.sql.disclosure.value_ranges import (
    pieces_of,
    supports_of_values,
    value_ranges,
    with_values,
)
from privsql.sql.nodes import Unsupported
from privsql.sql.parameters import Parameters, Printed
from privsql.sql.plan.block_plan import BlockPlan
from privsql.sql.reconstruct.columns import SKETCH, VECTOR
from privsql.sql.scan.distinct import selected


@dataclass(frozen=True)
class Behind:
    """The scans for the rows behind each cell of a block."""

    ranges: Printed  # smallest and largest personal group, beside the table
    together: Printed | None  # how those of pieces become those of aggregates, in memory
    bases: Mapping[int, tuple[int, ...]]  # aggregate -> its bases, which are judged
    sets: Callable[[], tuple[CellSet, ...]]  # the vectors of its cells, by grouping set
    vectors: Mapping[int, tuple[int, ...]]  # aggregate -> the sums of weights that it tells
    # Aggregate -> vector -> the pieces of which one must be no constant for it to be told.
    told: Mapping[int, Mapping[int, tuple[int, ...]]]
    alone: bool  # nothing in it could be combined: one sum of equal weights, or one aggregate
    gathered: Printed | None = None  # the ranges out of the block's own scan, in memory
    # The vectors in the coordinates of histories of formats 1 and 2; few users have such a
    # history, so they are written when they are needed.
    former: Callable[[bool], Sketched] | None = None
    values: Values | None = None


@dataclass(frozen=True)
class Values:
    """The ranges of the values of distinct counts."""

    ranges: Printed  # beside the table
    beside: Printed  # in memory, those of cells with them: tables CELLS and VALUES of the block


@dataclass(frozen=True)
class Sketched:
    """The scans for vectors in the coordinates of histories of formats 1 and 2."""

    atoms: Printed  # per cell and distinct public tuple, sums of public halves
    matched: Printed  # the atoms by number of their cell, in memory


def behind(
    plan: BlockPlan, catalog: Catalog, parameters: Parameters, salt: int, accounted: bool
) -> Behind | None:
    """The scans for the personal groups behind each cell, where any may be disclosed.

    ``salt`` makes the rows' secret numbers; ``accounted`` says whether answers are kept.
    """
    block = plan.block
    if not block.estimated or plan.states is None:
        return None
    pieces, bases = pieces_of_block(block)
    static = plan.informative is not None
    known = plan.informative or (True,) * len(pieces)
    chosen = judged(block, known)
    supports = supports_of(block, known)
    if not chosen or (static and not accounted and _everybody(block, supports)):
        return None
    halves = {
        i: tuple(dict.fromkeys(t for k in those for t in bases[k] if known[t]))
        for i, those in chosen.items()
    }
    hidden = () if static else plan.states.hidden
    scans = Membership(catalog, block, hidden)
    weights, told = _vectors(plan, halves)
    after = inside = None
    bind = parameters.bind
    if plan.watched:
        inside = bind(gathered(block, plan.watched, f"{plan.prefix}_scan"))
    if not static:
        supports = {t: Support.of([pieces[t]]) for those in halves.values() for t in those}
        weighted = {t: made.weight is not None for t, made in supports.items()}
        members = f"{plan.prefix}_members"
        after = bind(
            together(block, plan.steps[0], plan.states.count, len(hidden), members, weighted)
        )
    ranges = bind(scans.ranges(supports))

    counted = supports_of_values(block, known)
    values = None
    if counted:
        chosen = {i: (*those, *counted.get(i, ())) for i, those in chosen.items()}
        names = (f"{plan.prefix}_{part}" for part in ("judged", "judged_values"))
        values = Values(
            bind(value_ranges(catalog, block, counted)), bind(with_values(block, counted, *names))
        )

    @cache
    def sets() -> tuple[CellSet, ...]:
        return CellSets(catalog, block, hidden, parameters, plan.prefix).write(weights)

    salted = Parameters({**parameters.values, SALT: salt})

    def former(dependent: bool) -> Sketched:
        if any(weight.shared is not None for weight in weights.values()):
            raise Unsupported(
                "COUNT(DISTINCT ...) with a sensitive column or condition, for a user whose history"
                " is of an earlier format",
                hint="ask for COUNT(*)",
            )
        nodes = {v: weight.node() for v, weight in weights.items()}
        atoms = scans.atoms(nodes, former=dependent)
        names = [node.alias for node in atoms.expressions]
        values = [*VECTOR.within(names), *SKETCH.within(names)]
        cells = f"{plan.prefix}_cells"
        numbered = matched(block, values, len(hidden), f"{plan.prefix}_atoms", cells)
        return Sketched(salted.bind(atoms), parameters.bind(numbered))

    # Where sensitive keys or hidden columns take part, ranges tell what matters to an aggregate.
    alone = len(chosen) == 1
    if static:
        alone = len(weights) == 1 and all(each.indicator for each in weights.values())
    return Behind(
        ranges,
        after,
        chosen,
        sets,
        {i: tuple(mine) for i, mine in told.items()},
        told,
        alone and len(block.sets) == 1,
        inside,
        former if accounted else None,
        values,
    )


def _everybody(block: Block, supports: Mapping[int, Support]) -> bool:
    """Whether every row has equal weight: the whole table is not a personal group.

    Where a server keeps account it is an answer like any other.
    """
    return not (
        block.guards
        or block.rows.joins
        or any(not key.sensitive for key in block.keys)
        or any(each.node is not None for each in supports.values())
    )


def _vectors(
    plan: BlockPlan, halves: Mapping[int, tuple[int, ...]]
) -> tuple[dict[int, Weight], dict[int, dict[int, tuple[int, ...]]]]:
    """Weights whose sums an answer tells, numbered, and those of each aggregate with its pieces.

    Its own public halves; and since its error is made of their products (w^2 where there is
    one half), those too: a standard error is an answer of its own.
    """
    pieces, _ = pieces_of_block(plan.block)
    own = {t: Weight.of(pieces[t]) for those in halves.values() for t in those}
    weights: dict[int, Weight] = {}
    numbers: dict[str, int] = {}

    def number_of(weight: Weight) -> int:
        number = numbers.setdefault(weight.key, len(numbers))
        weights.setdefault(number, weight)
        return number

    found: dict[int, dict[int, tuple[int, ...]]] = {}
    for i, those in halves.items():
        aggregate = plan.block.aggregates[i]
        if isinstance(aggregate, Distinct):
            among = selected(pieces_of(plan.block, i))
            for t, alone in product(those, (False, True)):
                weight = replace(own[t], shared=Shared(aggregate.value, among, alone))
                mine = found.setdefault(i, {})
                number = number_of(weight)
                mine[number] = tuple(dict.fromkeys((*mine.get(number, ()), t)))
            continue
        others = [j if i == k else k for k, j in plan.pairs if i in (k, j)]
        # With a distinct count no covariance is told.
        others = [j for j in others if plan.block.aggregates[j].kind != "distinct"]
        beside = {u for j in others for u in halves.get(j, ())} | set(those)
        mine = found.setdefault(i, {})
        for t, weight in [(t, own[t]) for t in those] + [
            (t, own[t].times(own[u])) for t in those for u in sorted(beside)
        ]:
            number = number_of(weight)
            mine[number] = tuple(dict.fromkeys((*mine.get(number, ()), t)))
    return weights, found


def supports_of(block: Block, informative: Sequence[bool]) -> dict[int, Support]:
    """Where the public halves that matter are not 0, for each base that is judged."""
    pieces, bases = pieces_of_block(block)
    return {
        k: Support.of(pieces[t] for t in bases[k] if informative[t])
        for those in judged(block, informative).values()
        for k in those
    }


def secrets_scan(catalog: Catalog, salt: int, former: bool = False) -> Printed:
    """The scan that adds up the secret numbers of the rows of each public tuple.

    ``former`` asks for the numbers of histories of format 1.
    """
    return Parameters({SALT: salt}).bind(secrets_of_tuples(catalog, former))
