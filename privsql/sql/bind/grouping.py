"""GROUP BY: keys and grouping sets, from ordinals, aliases, ALL, ROLLUP, CUBE and DISTINCT."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import compress, product

from sqlglot import exp

from privsql.sql.bind.from_clause import Rows, canonical
from privsql.sql.nodes import RowsRefused, Unsupported, bare, is_call, place_of, sql


def read_grouping(
    select: exp.Select,
    projections: list[exp.Expr],
    aliases: dict[str, exp.Expr],
    rows: Rows,
    text: str,
) -> tuple[list[exp.Expr], tuple[tuple[int, ...], ...], bool]:
    """Keys of GROUP BY or DISTINCT, grouping sets by their positions, and whether there are any."""
    group = select.args.get("group")
    distinct = select.args.get("distinct")
    if distinct is not None and distinct.args.get("on"):
        raise Unsupported("DISTINCT ON over published rows", hint="use GROUP BY")
    keys: dict[str, exp.Expr] = {}

    def add(node: exp.Expr) -> int:
        node = bare(node)
        keys.setdefault(sql(node), node)
        return list(keys).index(sql(node))

    if group is None:
        if any(has_aggregate(p) for p in projections) or select.args.get("having"):
            return [], ((),), False
        if distinct is None:
            raise not_shown(select.expressions[0] if select.expressions else select, text)
        for projection in projections:
            if projection.find(exp.Window):
                raise Unsupported("a window function over published rows", hint="use GROUP BY")
            add(projection)
        return list(keys.values()), (tuple(range(len(keys))),), True
    if group.args.get("all") or group.args.get("totals"):
        for projection in projections:
            if not has_aggregate(projection) and not projection.find(exp.Window):
                add(projection)
        return list(keys.values()), (tuple(range(len(keys))),), bool(keys)

    def read(node: exp.Expr) -> list[int]:
        node = bare(node)
        if isinstance(node, exp.Tuple):
            return [i for each in node.expressions for i in read(each)]
        if isinstance(node, exp.Literal) and not node.is_string:
            at = int(node.this)
            if not 1 <= at <= len(projections):
                raise Unsupported(f"GROUP BY {at}: there is no such column in the SELECT list")
            return [add(projections[at - 1])]
        return [add(canonical(node, rows, aliases))]

    def element(node: exp.Expr) -> list[tuple[int, ...]]:
        if isinstance(node, exp.GroupingSets):
            return [s for e in node.expressions for s in element(e)]
        if not isinstance(node, exp.Rollup | exp.Cube):
            return [tuple(read(node))]
        parts = [tuple(read(e)) for e in node.expressions]
        if isinstance(node, exp.Rollup):
            return [sum(parts[:i], ()) for i in range(len(parts), -1, -1)]
        choices = product((True, False), repeat=len(parts))
        return [sum(compress(parts, choice), ()) for choice in choices]

    elements = [element(e) for e in group.expressions]
    for clause in ("rollup", "cube", "grouping_sets"):
        elements += [element(node) for node in group.args.get(clause) or ()]
    sets = tuple(tuple(dict.fromkeys(sum(choice, ()))) for choice in product(*elements))
    return list(keys.values()), sets, True


def not_shown(node: exp.Expr, text: str) -> Unsupported:
    """The refusal of published rows themselves, which a projection asks for."""
    return RowsRefused(
        "published rows themselves are not shown",
        hint="ask for aggregates: COUNT(*), AVG(x), ... GROUP BY ...",
        place=place_of(node, text),
    )


def has_aggregate(node: exp.Expr) -> bool:
    """Whether an expression holds an aggregate."""
    return next(_aggregates(node), None) is not None


def _aggregates(node: exp.Expr) -> Iterator[exp.Expr]:
    """Aggregates in an expression; a window function is none, but may hold some."""
    below = [child for child in node.iter_expressions() if not isinstance(child, exp.Query)]
    if isinstance(node, exp.Window):
        inner = node.this
        while isinstance(inner, exp.Filter | exp.IgnoreNulls | exp.RespectNulls):
            inner = inner.this
        below = [*inner.iter_expressions(), *(each for each in below if each is not node.this)]
    elif is_call(node):
        yield node
        return
    for child in below:
        yield from _aggregates(child)
