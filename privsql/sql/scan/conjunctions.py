"""States of a few truth values, computed from counts instead of by grouping."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from sqlglot import exp

from privsql.sql.expressions import call
from privsql.sql.nodes import cast, column, cte, define, derived, select, table, union_all
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
    source = inner
    for size in range(2, len(bits) + 1):
        # One condition more a level: DuckDB would not see what conjunctions have in common.
        source = select(derived(source, "rows"), exp.Star())
        for chosen in combinations(range(len(bits)), size):
            rest, last = column(_all_of(bits, chosen[:-1])), column(bits[chosen[-1]])
            define(source, _all_of(bits, chosen), exp.And(this=rest, expression=last))
    counted = select(derived(source, "rows"), *map(column, keys))
    define(counted, COUNTED(0), exp.Count(this=exp.Star(), big_int=True))
    for n, chosen in enumerate(subsets[1:], 1):
        truths = call("count_if", column(_all_of(bits, chosen)))
        define(counted, COUNTED(n), cast(truths, "BIGINT"))
    counted.group_by(*map(column, keys), copy=False)
    places = {chosen: n for n, chosen in enumerate(subsets)}
    states: list[exp.Expr] = []
    for true in subsets:
        state = select(table("counted"), *map(column, keys))
        for i, bit in enumerate(bits):
            define(state, bit, exp.Boolean(this=i in true))
        total: exp.Expr = column(COUNTED(places[true]))
        for more in subsets[1:]:
            if not set(more) & set(true):
                term = column(COUNTED(places[tuple(sorted((*true, *more)))]))
                kind = exp.Sub if len(more) % 2 else exp.Add
                total = kind(this=total, expression=term)
        define(state, name, total)
        states.append(state)
    whole = union_all(states)
    whole.set("with_", exp.With(expressions=[cte("counted", counted)]))
    return whole


def _all_of(bits: Sequence[str], chosen: Sequence[int]) -> str:
    return "_and_".join(bits[i] for i in chosen)
