"""Published rows themselves, for releases that allow it.

Only a SELECT that filters, projects, sorts and cuts rows is a listing; whatever adds up is
reconstructed as ever.  Values come as they were published, so a sensitive one is no person's; the
answer says so.  Rows come in an order of their own for each session, unless one is asked for, and
hidden columns have no name here.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from privsql.sql.bind.from_clause import Rows, Sources, canonical, conditions_of, projected
from privsql.sql.catalog import PUBLISHED, Catalog
from privsql.sql.expressions import call
from privsql.sql.nodes import (
    aliases_of,
    choose,
    column,
    is_aggregate,
    named,
    outermost,
    sources_of,
    table,
)
from privsql.sql.parse.forbidden import Refusing
from privsql.sql.scan.state_scan import MULTIPLICITY

# The parameter that the order of rows is made with.
ORDER = "listing_order"

_CLAUSES = {"expressions", "from_", "where", "order", "limit", "offset", "kind", "hint"}


def listing(catalog: Catalog, tree: exp.Expr, text: str) -> exp.Select | None:
    """The scan that lists rows, or None where the query is no plain listing."""
    if not isinstance(tree, exp.Select) or not _plain(tree):
        return None
    sources = Sources(catalog, lambda _: None)
    if [sources.kind(each) for each in sources_of(tree)] != ["rows"]:
        return None
    rows = sources.rows(tree)
    if rows.joins:
        return None
    aliases = aliases_of(tree)
    refusing = Refusing(text, lambda _: False)
    made = exp.Select()
    for name, node in _projected(tree, rows, aliases):
        refusing.nodes(node)
        choose(made, named(node, name))
    made.from_(table(catalog.table, PUBLISHED), copy=False)
    for node in (*rows.where, *conditions_of(tree, rows)):
        refusing.nodes(node)
        made.where(node, copy=False)
    if catalog.multiplicity:
        times = call("range", column(MULTIPLICITY, PUBLISHED))
        lateral = exp.Table(this=times, alias=exp.TableAlias(this=exp.to_identifier("times")))
        made.append("joins", exp.Join(this=lateral, kind="CROSS"))
    shuffled = call("hash", column("rowid", PUBLISHED), exp.Placeholder(this=ORDER))
    order = [exp.Ordered(this=shuffled)]
    if given := tree.args.get("order"):
        order = []
        for each in given.expressions:
            key = each.copy()
            if not isinstance(key.this, exp.Literal):
                key.set("this", canonical(key.this, rows, aliases, alias_first=True))
                refusing.nodes(key.this)
            order.append(key)
    made.set("order", exp.Order(expressions=order))
    for clause in ("limit", "offset"):
        if tree.args.get(clause) is not None:
            made.set(clause, tree.args[clause].copy())
    return made


def _plain(tree: exp.Select) -> bool:
    if any(value for key, value in tree.args.items() if key not in _CLAUSES):
        return False
    parts = [*tree.expressions, *(tree.args.get(c) for c in ("order", "limit", "offset"))]
    for part in filter(None, parts):
        changed = any(any(star.args.values()) for star in part.find_all(exp.Star))
        if changed or part.find(exp.Window, exp.Query) is not None:
            return False
        if next(outermost(part, is_aggregate), None) is not None:
            return False
    return bool(tree.expressions)


def _projected(
    tree: exp.Select, rows: Rows, aliases: dict[str, exp.Expr]
) -> Iterator[tuple[str, exp.Expr]]:
    """Columns of the answer; a star stands for all that the analyst can name."""
    for projection in tree.expressions:
        if projection.is_star:
            for name, node in rows.all_columns(projection.text("table")):
                yield name, node.copy()
        else:
            name = projection.alias_or_name or projection.sql("duckdb")
            yield name, projected(projection, rows, aliases)
