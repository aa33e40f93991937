"""The personal groups behind the values of a distinct count.

A distinct count is a sum over values, not over rows.  Two weights of rows say whom it tells of:

    1 / n_u             for a row of a value u with n_u rows, where each value counts for one
    1 where n_u = 1     a value with one row alone is that row's condition and nothing else

so that a group cannot hide behind the rows of one other value, as in

    COUNT(DISTINCT CASE WHEN <g> THEN cost ELSE -1 END) FILTER (WHERE disease = 'flu')

whose rows are everybody and whose answer is g's count plus one.  n_u is counted among the rows that
public conditions and keys leave to the cell.  Each weight is a support of its own, beside that of
the rows themselves; here are their ranges, from one pass over the rows.  (reconstruction, 11)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from privsql.sql.bind.block import Block, Distinct, pieces_of_block
from privsql.sql.bind.pieces import Piece
from privsql.sql.catalog import PUBLISHED, Catalog
from privsql.sql.disclosure.group_ranges import GROUP_OWNER, judged, with_tuples
from privsql.sql.expressions import same
from privsql.sql.nodes import (
    cast,
    choose,
    column,
    define,
    derived,
    every,
    joined,
    named,
    number,
    select,
    star_of,
    table,
    union_all,
)
from privsql.sql.reconstruct.columns import (
    GROUP_HIGH,
    GROUP_LOW,
    GROUP_ROWS,
    GROUP_SQUARES,
    GROUP_SUM,
    GROUPING,
    KEY,
    Family,
)
from privsql.sql.scan.distinct import ROWS, VALUE, selected
from privsql.sql.scan.one_pass import GROUP, MULTIPLICITY, source

LOW, HIGH = "low", "high"
SHARED = (GROUP_LOW, GROUP_HIGH, GROUP_ROWS, GROUP_SUM, GROUP_SQUARES)
ALONE = (GROUP_LOW, GROUP_HIGH, GROUP_ROWS)


def supports_of_values(block: Block, informative: Sequence[bool]) -> dict[int, tuple[int, int]]:
    """For each distinct count that tells something, the numbers of its two supports.

    Those of bases come first.
    """
    told = judged(block, informative)
    counts = [i for i, a in enumerate(block.aggregates) if isinstance(a, Distinct) and i in told]
    first = len(block.bases)
    return {i: (first + 2 * n, first + 2 * n + 1) for n, i in enumerate(counts)}


def value_ranges(
    catalog: Catalog, block: Block, supports: Mapping[int, tuple[int, int]]
) -> exp.Expr:
    """Per public keys, the ranges of both supports of each distinct count."""
    public = [i for i, key in enumerate(block.keys) if not key.sensitive]
    sets = dict.fromkeys(tuple(i for i in each if i in public) for each in block.sets)
    return union_all([_of_set(catalog, block, supports, keys) for keys in sets], by_name=True)


def _of_set(
    catalog: Catalog, block: Block, supports: Mapping[int, tuple[int, int]], keys: Sequence[int]
) -> exp.Select:
    names = [KEY(i) for i in keys]
    public = [i for i, key in enumerate(block.keys) if not key.sensitive]
    made = exp.Select()
    places = [f"told{n}" for n in range(len(supports))]
    for place, (i, both) in zip(places, supports.items(), strict=True):
        query = derived(_counted(catalog, block, i, keys, *both), place)
        if place == places[0]:
            joined(made, query)
            continue
        # A cell may have no row with a value of one of them.
        on = every(same(_known(k, places[: places.index(place)]), column(k, place)) for k in names)
        joined(made, query, on or exp.Boolean(this=True), "FULL")
    for k in names:
        define(made, k, _known(k, places))
    for i in public:
        define(made, GROUPING(i), number(int(i not in keys)))
    for place, both in zip(places, supports.values(), strict=True):
        choose(made, *(column(name, place) for name in _names(*both)))
    return made


def _known(key: str, places: Sequence[str]) -> exp.Expr:
    """A key from whichever of some tables has the cell."""
    first, *others = (column(key, place) for place in places)
    return exp.Coalesce(this=first, expressions=others) if others else first


def _names(shared: int, alone: int) -> list[str]:
    return [family(shared) for family in SHARED] + [family(alone) for family in ALONE]


def _counted(
    catalog: Catalog, block: Block, i: int, keys: Sequence[int], shared: int, alone: int
) -> exp.Select:
    """Both supports of one distinct count, per keys."""
    aggregate = block.aggregates[i]
    if not isinstance(aggregate, Distinct):
        raise AssertionError("only distinct counts have values")
    inner = exp.Select()
    for k in keys:
        define(inner, KEY(k), block.keys[k].expression.copy())
    define(inner, VALUE, aggregate.value.copy())
    define(inner, GROUP, column(GROUP, PUBLISHED if catalog.grouped else GROUP_OWNER))
    many: exp.Expr = number(1)
    if catalog.multiplicity:
        many = column(MULTIPLICITY, PUBLISHED)
    define(inner, ROWS, many)
    made = source(catalog, block, inner)
    if not catalog.grouped:
        made.append("joins", with_tuples(catalog))
    where = selected(pieces_of(block, i))
    if where is not None:
        made.where(where, copy=False)
    names = [KEY(k) for k in keys]
    values = select(derived(made, "rows"), *map(column, names))
    define(values, LOW, exp.Min(this=column(GROUP)))
    define(values, HIGH, exp.Max(this=column(GROUP)))
    define(values, ROWS, cast(exp.Sum(this=column(ROWS)), "BIGINT"))
    values.group_by(*map(column, (*names, VALUE)), copy=False)
    query = select(derived(values, "values"), *map(column, names))
    ends = {GROUP_LOW: exp.Min(this=column(LOW)), GROUP_HIGH: exp.Max(this=column(HIGH))}
    parts: dict[Family, exp.Expr] = {
        **ends,
        GROUP_ROWS: exp.Sum(this=column(ROWS)),
        GROUP_SUM: exp.Count(this=exp.Star()),
        GROUP_SQUARES: exp.Sum(
            this=exp.Div(this=number(1.0), expression=column(ROWS), typed=False, safe=False)
        ),
    }
    one = exp.Where(this=exp.EQ(this=column(ROWS), expression=number(1)))
    for family in SHARED:
        choose(query, named(_number(family, parts[family]), family(shared)))
    parts[GROUP_ROWS] = exp.Count(this=exp.Star())
    for family in ALONE:
        filtered = exp.Filter(this=parts[family].copy(), expression=one.copy())
        choose(query, named(_number(family, filtered), family(alone)))
    return query.group_by(*map(column, names), copy=False) if names else query


def _number(family: Family, node: exp.Expr) -> exp.Expr:
    """Rows as whole numbers, 0 of nothing."""
    if family is not GROUP_ROWS:
        return node
    return cast(exp.Coalesce(this=node, expressions=[number(0)]), "BIGINT")


def pieces_of(block: Block, i: int) -> list[Piece]:
    """The pieces of an aggregate's bases."""
    pieces, bases = pieces_of_block(block)
    return [pieces[t] for k in block.aggregates[i].bases for t in bases[k]]


def with_values(
    block: Block, supports: Mapping[int, tuple[int, int]], cells: str, values: str
) -> exp.Select:
    """The ranges of cells with those of values beside them; of a cell without any they are 0."""
    public = [i for i, key in enumerate(block.keys) if not key.sensitive]
    query = select(table(cells, "cells"), star_of("cells"))
    on = [same(column(KEY(i), "cells"), column(KEY(i), "counted")) for i in public]
    on += [
        exp.EQ(this=column(GROUPING(i), "cells"), expression=column(GROUPING(i), "counted"))
        for i in public
    ]
    joined(query, table(values, "counted"), every(on) or exp.Boolean(this=True), "LEFT")
    choose(query, *(column(n, "counted") for both in supports.values() for n in _names(*both)))
    return query
