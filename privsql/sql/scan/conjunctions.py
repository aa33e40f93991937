"""States of a few truth values, computed from counts instead of by grouping."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from sqlglot import exp

from privsql.sql.nodes import cast, choose, column, derived, named, table
from privsql.sql.reconstruct.columns import COUNTED

# Truth values that are counted together, each and all of them.
MOST_COUNTED = 4


def conjunctions(
    keys: Sequence[str], bits: Sequence[str], inner: exp.Select, name: str
) -> exp.Expr:
    """States of a few truth values from counts of those that are true together.

        n(P true, F false) = sum over T of F of  (-1)^|T| count(P and T all true)

    ``inner`` has the keys and the bits of each row; the result has a row for every state.
    """
    subsets = [s for size in range(len(bits) + 1) for s in combinations(range(len(bits)), size)]
    source: exp.Expr = inner
    for size in range(2, len(bits) + 1):
        # One condition more a level: DuckDB would not see what conjunctions have in common.
        level = exp.Select(expressions=[exp.Star()])
        for chosen in subsets:
            if len(chosen) == size:
                rest, last = column(_all_of(bits, chosen[:-1])), column(bits[chosen[-1]])
                both = exp.And(this=rest, expression=last)
                choose(level, named(both, _all_of(bits, chosen)))
        source = level.from_(derived(source, "rows"), copy=False)
    counted = exp.Select(expressions=[column(key) for key in keys])
    for n, chosen in enumerate(subsets):
        number_of = exp.Count(this=exp.Star(), big_int=True)
        if chosen:
            truths = exp.Anonymous(this="count_if", expressions=[column(_all_of(bits, chosen))])
            choose(counted, named(cast(truths, "BIGINT"), COUNTED(n)))
        else:
            choose(counted, named(number_of, COUNTED(n)))
    counted.from_(derived(source, "rows"), copy=False)
    if keys:
        counted.group_by(*map(column, keys), copy=False)
    places = {chosen: n for n, chosen in enumerate(subsets)}
    whole: exp.Expr | None = None
    for true in subsets:
        state = exp.Select(expressions=[column(key) for key in keys])
        for i, bit in enumerate(bits):
            choose(state, named(exp.Boolean(this=i in true), bit))
        total: exp.Expr | None = None
        for more in subsets:
            if set(more) & set(true):
                continue
            term = column(COUNTED(places[tuple(sorted((*true, *more)))]))
            kind = exp.Sub if len(more) % 2 else exp.Add
            total = term if total is None else kind(this=total, expression=term)
        choose(state, named(total if total is not None else exp.Null(), name))
        state.from_(table("counted"), copy=False)
        whole = state if whole is None else exp.Union(this=whole, expression=state, distinct=False)
    if whole is None:
        raise AssertionError("there is at least the state in which nothing is true")
    alias = exp.TableAlias(this=exp.to_identifier("counted", quoted=True))
    cte = exp.CTE(this=counted, alias=alias, materialized=True)
    whole.set("with_", exp.With(expressions=[cte]))
    return whole


def _all_of(bits: Sequence[str], chosen: Sequence[int]) -> str:
    return "_and_".join(bits[i] for i in chosen)
