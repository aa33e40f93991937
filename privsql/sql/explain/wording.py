"""Expressions of a block as the analyst wrote them."""

from __future__ import annotations

from sqlglot import exp

from privsql.sql.bind.block import Block
from privsql.sql.catalog import PUBLISHED
from privsql.sql.nodes import sql


def said(node: exp.Expr, block: Block) -> str:
    """An expression with its columns as the analyst knows them."""
    names = {join.alias: called(join.table, join.alias) for join in block.rows.joins}
    names[PUBLISHED] = ""
    holder = exp.Paren(this=node.copy())
    for each in list(holder.find_all(exp.Column)):
        name = names.get(each.table)
        if name is not None and isinstance(each.this, exp.Identifier):
            plain = exp.to_identifier(each.name)
            qualifier = exp.to_identifier(name) if name else None
            each.replace(exp.Column(this=plain, table=qualifier))
    inner: exp.Expr = holder.this
    return sql(inner)


def called(joined: exp.Expr, alias: str) -> str:
    """The name of a joined table."""
    return joined.name if isinstance(joined, exp.Table) else alias
