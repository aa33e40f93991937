"""Distinct counts under a sensitive condition: the public value, and the rows on which it counts.

    COUNT(DISTINCT u) FILTER (WHERE s)             u  on rows where s holds and u is not NULL
    COUNT(DISTINCT CASE WHEN s THEN u END)         the same
    COUNT(DISTINCT CASE WHEN s THEN u ELSE w END)  refused: a row would count for u or for w

Whether a row counts may be sensitive, what it counts for must be public: then each value has rows
of its own, and values vary independently of each other.  (reconstruction, 11)
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from privsql.sql.bind.aggregates import Call, rows_of, sampled
from privsql.sql.bind.pieces import Branch, Piece, Separator, counting, ways_of, within
from privsql.sql.catalog import WHOLE, Catalog
from privsql.sql.nodes import Unsupported, bare, given, sql


class Dependent(Unsupported, code="dependent-rows"):
    """The rows of a value were not perturbed independently of each other."""


def distinct_rows(
    call: Call, separator: Separator, where: list[Branch]
) -> tuple[exp.Expr, tuple[Piece, ...]]:
    """The value whose distinct values are counted, and where it counts, as pieces."""
    if call.name != "count":
        raise Unsupported(
            f"{call.name.upper()}(DISTINCT ...) with a sensitive column or condition",
            hint="of the aggregates of distinct values only COUNT is estimated",
        )
    if len(call.arguments) != 1:
        raise Unsupported(
            "COUNT(DISTINCT ...) of several columns", hint="write COUNT(DISTINCT (a, b))"
        )
    found = list(_valued(call.arguments[0], separator, [Branch()]))
    values = {sql(value): value for value, _ in found}
    if not values:
        return exp.Null(), ()
    if len(values) != 1:
        raise Unsupported(
            "COUNT(DISTINCT ...) of a value that a sensitive condition chooses",
            hint="let CASE give one public value or NULL, as in CASE WHEN <condition> THEN x END",
        )
    (value,) = values.values()
    rows = [branch for _, branches in found for branch in branches]
    return value, counting(within(rows, rows_of(call, separator, where)))


def _valued(
    node: exp.Expr, separator: Separator, ways: list[Branch]
) -> Iterable[tuple[exp.Expr, list[Branch]]]:
    """The public values that an argument may have, each with where it has it and is not NULL."""
    node = bare(node)
    if isinstance(node, exp.Null):
        return
    if separator.is_public(node):
        yield node, within([Branch((given(node),))], ways)
        return
    if not isinstance(node, exp.Case):
        raise Unsupported(
            "COUNT(DISTINCT ...) of a sensitive column",
            hint="which values a sensitive column has cannot be told from perturbed rows: its"
            " domain is public, and GROUP BY the column estimates how many rows each value has",
        )
    for conditions, result in ways_of(node):
        inner = ways
        for condition in conditions:
            inner = within(inner, separator.condition(condition))
        yield from _valued(result, separator, inner)


def check_scope(call: Call, catalog: Catalog, sensitive: Iterable[str]) -> None:
    """Refuse releases whose rows are sampled, or were not perturbed independently."""
    if catalog.weighted:
        raise sampled(call)
    name = "COUNT(DISTINCT ...) with a sensitive column or condition"
    for each in sorted(sensitive):
        mechanism = catalog.sensitive[each].mechanism
        if mechanism in WHOLE:
            raise Dependent(
                f"{name} where {each} was perturbed by {mechanism}: rows depend on each other",
                hint="COUNT, SUM and AVG are estimated",
            )
    if catalog.repeated:
        raise Dependent(
            f"{name} where some persons have several rows: these depend on each other",
            hint="COUNT, SUM and AVG are estimated",
        )
