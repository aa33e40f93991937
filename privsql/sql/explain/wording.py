"""Expressions of a block as the analyst wrote them."""

from __future__ import annotations

from sqlglot import exp

from privsql.sql.bind.block import Block
from privsql.sql.catalog import PUBLISHED
from privsql.sql.nodes import rewritten, sql


def said(node: exp.Expr, block: Block) -> str:
    """An expression with its columns as the analyst knows them."""
    names = {join.alias: called(join.table, join.alias) for join in block.rows.joins}
    names[PUBLISHED] = ""

    def plain(each: exp.Expr) -> exp.Expr:
        if not isinstance(each, exp.Column) or each.is_star or each.table not in names:
            return each
        name = names[each.table]
        return exp.column(exp.to_identifier(each.name), exp.to_identifier(name) if name else None)

    return sql(rewritten(node.copy(), plain))


def called(joined: exp.Expr, alias: str) -> str:
    """The name of a joined table."""
    return joined.name if isinstance(joined, exp.Table) else alias
