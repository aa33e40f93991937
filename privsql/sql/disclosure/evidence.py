"""The rows behind each cell of a block, as the disclosure check needs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from privsql.sql.bind.block import Block, pieces_of_block
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
from privsql.sql.nodes import sql, wrapped
from privsql.sql.parameters import Parameters, Printed
from privsql.sql.plan.block_plan import BlockPlan
from privsql.sql.reconstruct.columns import SKETCH, VECTOR
from privsql.sql.scan.state_scan import half_of


@dataclass(frozen=True)
class Behind:
    """The scans for the rows behind each cell of a block."""

    ranges: Printed  # smallest and largest personal group, beside the table
    together: Printed | None  # how those of pieces become those of aggregates, in memory
    bases: Mapping[int, tuple[int, ...]]  # aggregate -> its bases, which are judged
    atoms: Printed  # per cell and distinct public tuple, sums of public halves
    vectors: Mapping[int, tuple[int, ...]]  # aggregate -> the sums of weights that it tells
    matched: Printed  # the atoms by number of their cell, in memory
    gathered: Printed | None = None  # the ranges out of the block's own scan, in memory
    # The atoms with the secret numbers of histories of format 1, where there are any; few users
    # have such a history, so it is written when it is needed.
    former: Callable[[], Printed] | None = None


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
    weights, vectors = _vectors(plan, halves)
    atoms = scans.atoms(weights)
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
    names = [node.alias for node in atoms.expressions]
    sketched = SKETCH.within(names)
    values = [*VECTOR.within(names), *sketched]
    numbered = matched(block, values, len(hidden), f"{plan.prefix}_atoms", f"{plan.prefix}_cells")
    salted = Parameters({**parameters.values, SALT: salt})

    def former() -> Printed:
        return salted.bind(scans.atoms(weights, former=True))

    return Behind(
        ranges,
        after,
        chosen,
        salted.bind(atoms),
        vectors,
        bind(numbered),
        inside,
        former if sketched else None,
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
) -> tuple[dict[int, exp.Expr | None], dict[int, tuple[int, ...]]]:
    """Weights whose sums an answer tells, numbered, and those of each aggregate.

    Its own public halves; and since its error is made of their products (w^2 where there is
    one half), those too: a standard error is an answer of its own.
    """
    pieces, _ = pieces_of_block(plan.block)
    nodes = {t: half_of(pieces[t]) for those in halves.values() for t in those}
    weights: dict[int, exp.Expr | None] = {}
    numbers: dict[str, int] = {}

    def number_of(node: exp.Expr | None) -> int:
        number = numbers.setdefault("" if node is None else sql(node), len(numbers))
        weights.setdefault(number, node)
        return number

    def product(one: int, two: int) -> exp.Expr | None:
        a, b = nodes[one], nodes[two]
        if a.node is None or b.node is None:
            return b.node if a.node is None else a.node
        if one == two and a.indicator:
            return a.node
        return exp.Mul(this=wrapped(a.node), expression=wrapped(b.node))

    found: dict[int, tuple[int, ...]] = {}
    for i, those in halves.items():
        own = [number_of(nodes[t].node) for t in those]
        others = [j if i == k else k for k, j in plan.pairs if i in (k, j)]
        beside = {u for j in others for u in halves.get(j, ())} | set(those)
        own += [number_of(product(t, u)) for t in those for u in sorted(beside)]
        found[i] = tuple(dict.fromkeys(own))
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
