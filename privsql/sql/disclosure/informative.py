"""Parts of an answer that depend on sensitive values.

A piece adds up a public half times a sensitive one.  Where the sensitive half is the same for every
value that a person may have, the piece is public knowledge, however much SQL stands around it:
``age IS NULL`` for a column without NULL, ``disease = 'no such disease'``, or a comparison of a
sensitive column with a public one, for those rows where it holds whatever the value is:

    disease = CASE WHEN <one group> THEN 'flu' ELSE 'no such disease' END

Only the rows of that group matter there.  So a half is looked at over all states, for each value
of the hidden public columns h and each class c of the sensitive keys:

    f(state) = half(state, h) if the state is of class c, else 0;   informative if f is not constant

Quantiles and modes look at the value itself, so every row that counts matters to them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from privsql.sql.bind.block import Block, pieces_of_block
from privsql.sql.disclosure.group_ranges import JUDGED, asked
from privsql.sql.expressions import call, same
from privsql.sql.nodes import (
    choose,
    column,
    copied,
    cte,
    derived,
    every,
    named,
    number,
    table,
    union_all,
    when,
    wrapped,
)
from privsql.sql.reconstruct.columns import (
    FUNCTION,
    GROUP_HIGH,
    GROUP_LOW,
    GROUP_ROWS,
    GROUP_SQUARES,
    GROUP_SUM,
    GROUPING,
    HIDDEN,
    INFORMATIVE,
    KEY,
    Family,
)
from privsql.sql.reconstruct.sums import Step


def constants(block: Block, states: Step) -> exp.Select:
    """INFORMATIVE: whether each piece is informative, where no key and no column is hidden.

    The query of the states is in it as it is, not a copy.
    """
    pieces, _ = pieces_of_block(block)
    made = exp.Select()
    for t in range(len(pieces)):
        choose(made, named(_informative(block, t, None), INFORMATIVE(t)))
    return made.from_(derived(states.query, "states"), copy=False)


def together(
    block: Block,
    states: Step,
    count: int,
    hidden: int,
    members: str,
    weighted: Mapping[int, bool],
) -> exp.Select:
    """Smallest and largest group, and rows, behind each base of each cell.

    INFORMATIVE says which pieces are no constants there.
    The table ``members`` has them per public keys, hidden columns and piece.  Sensitive keys make
    cells of their own.
    """
    parts = [_set(block, chosen, count, hidden, members, weighted) for chosen in block.sets]
    whole = derived(union_all(parts, by_name=True), "cells")
    made = exp.Select(expressions=[exp.Star()]).from_(whole, copy=False)
    made.set("with_", exp.With(expressions=[cte("states", copied(states.query))]))
    return made


def _set(
    block: Block,
    chosen: Sequence[int],
    count: int,
    hidden: int,
    members: str,
    weighted: Mapping[int, bool],
) -> exp.Select:
    """The cells of one grouping set."""
    pieces, bases = pieces_of_block(block)
    classes = [KEY(i) for i in chosen if block.keys[i].sensitive]
    names = [HIDDEN(i) for i in range(hidden)]
    groups = [*names, *classes]
    known = exp.Select(expressions=[*map(column, groups)])
    for t in range(len(pieces)):
        choose(known, named(_informative(block, t, count if classes else None), INFORMATIVE(t)))
    known.from_(table("states"), copy=False)
    if groups:
        known.group_by(*map(column, groups), copy=False)
    cells = [
        column(KEY(i), "known" if key.sensitive else "members")
        for i, key in enumerate(block.keys)
        if i in chosen
    ]
    absent = {i: number(int(i not in chosen)) for i in range(len(block.keys))}
    made = choose(exp.Select(), *cells)
    choose(made, *(named(node, GROUPING(i)) for i, node in absent.items()))
    wanted = [k for a in block.aggregates if a.kind in JUDGED for k in asked(a)]
    for k in dict.fromkeys(wanted):
        heavy = any(weighted[t] for t in bases[k])
        weights = (GROUP_SUM, GROUP_SQUARES) if heavy else ()
        for family, outer, inner in (
            (GROUP_LOW, "min", "least"),
            (GROUP_HIGH, "max", "greatest"),
            (GROUP_ROWS, "sum", "greatest"),
            *((each, "sum", "list_sum") for each in weights),
        ):
            default = None if family in (GROUP_LOW, GROUP_HIGH) else number(0)
            found: list[exp.Expr] = [
                when(
                    column(INFORMATIVE(t), "known"),
                    column(_held(family, t, weighted), "members"),
                    default,
                )
                for t in bases[k]
            ]
            most = found[0] if len(found) == 1 else call(inner, *found)
            if family in weights and len(found) > 1:
                most = call(inner, exp.Array(expressions=found))
            choose(made, named(call(outer, most), family(k)))
    for t in range(len(pieces)):
        told = call("bool_or", column(INFORMATIVE(t), "known"))
        choose(made, named(told, INFORMATIVE(t)))
    made.from_(table(members, "members"), copy=False)
    on = every(same(column(name, "members"), column(name, "known")) for name in names)
    joined = {"kind": "CROSS"} if on is None else {"on": on}
    made.append("joins", exp.Join(this=derived(known, "known"), **joined))
    of_set = every(
        exp.EQ(this=column(GROUPING(i), "members"), expression=absent[i])
        for i, key in enumerate(block.keys)
        if not key.sensitive
    )
    if of_set is not None:
        made.set("where", exp.Where(this=of_set))
    if cells:
        made.group_by(*cells, copy=False)
    return made


def _held(family: Family, t: int, weighted: Mapping[int, bool]) -> str:
    """A piece whose rows weigh 1 each has as many of them as its weights add up to."""
    plain = family in (GROUP_SUM, GROUP_SQUARES) and not weighted[t]
    return (GROUP_ROWS if plain else family)(t)


def _informative(block: Block, t: int, count: int | None) -> exp.Expr:
    """Whether piece t is no constant; ``count`` is of all states, where classes leave some out."""
    low, high = exp.Min(this=column(FUNCTION(t))), exp.Max(this=column(FUNCTION(t)))
    _, bases = pieces_of_block(block)
    for aggregate in block.aggregates:
        if aggregate.kind in ("quantile", "mode") and t in bases[aggregate.bases[0]]:
            return exp.GT(this=high, expression=number(0))
    constant: exp.Expr = exp.EQ(this=low, expression=high)
    if count is not None:
        all_of_them = exp.EQ(this=exp.Count(this=exp.Star()), expression=number(count))
        zero = exp.EQ(this=copied(low), expression=number(0))
        either = exp.Or(this=all_of_them, expression=zero)
        constant = exp.And(this=constant, expression=exp.Paren(this=either))
    return exp.Not(this=wrapped(constant))
