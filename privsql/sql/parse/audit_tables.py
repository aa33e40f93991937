"""Queries on the audit tables of a release: ``SELECT ... FROM privsql.audit_columns``.

They read nothing else, so that what answers them needs nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from privsql.sql.catalog import UnknownName
from privsql.sql.nodes import Unsupported, name_of
from privsql.sql.parse.guard import OURS, check_question, placed_in
from privsql.sql.postgres.catalog import sources

# The schema of an audit's tables, and what can be named in it.
AUDIT = "privsql"
AUDIT_TABLES = ("audit_findings", "audit_columns", "audit_values", "audit_groups")
_AUDIT_HINT = f"the tables of an audit are {', '.join(f'{AUDIT}.{each}' for each in AUDIT_TABLES)}"
_NOT_AUDITED: dict[type[exp.Expr], str] = {
    exp.TableSample: "a sample, which is another one each time",
    exp.Lateral: "LATERAL",
    exp.Pivot: "PIVOT",
}


def audit_question(tree: exp.Expr, text: str) -> exp.Expr | None:
    """A question about the tables of an audit as their own database reads it, else None.

    >>> from sqlglot import parse_one
    >>> sql = "SELECT name FROM privsql.audit_columns"
    >>> audit_question(parse_one(sql), sql).sql()
    'SELECT name FROM main.audit_columns'
    """
    named = sources(tree)
    asked = [each for each in named if each.db.lower() == AUDIT and not each.catalog]
    if not asked:
        return None
    for each in asked:
        if each.name.lower() not in AUDIT_TABLES:
            raise UnknownName(
                f"there is no table {each.name!r} in {AUDIT}",
                hint=_AUDIT_HINT,
                place=placed_in(each, tree, text),
            )
    made = tree.copy()
    for name in made.find_all(exp.Table, exp.Column):
        if name.text("db").lower() == AUDIT and not name.text("catalog"):
            # A table keeps a schema, so that no CTE of the same name is meant.
            name.set("db", exp.to_identifier("main") if isinstance(name, exp.Table) else None)
    check_question(made, text)
    for other in named:
        if not any(other is each for each in asked):
            raise Unsupported(
                "tables of an audit together with others",
                hint="ask about the audit in a statement of its own",
                place=placed_in(other, tree, text),
            )
    for node in made.walk():
        for what in _not_audited(node):
            raise Unsupported(
                f"{what}, over tables of an audit",
                hint="SELECT from them without it",
                place=placed_in(node, tree, text),
            )
    return made


def _not_audited(node: exp.Expr) -> Iterator[str]:
    if name_of(node).startswith(OURS):
        yield f"{name_of(node)}(), where nothing is estimated"
    elif isinstance(node, exp.With) and node.args.get("recursive"):
        yield "a recursive CTE"
    elif (what := _NOT_AUDITED.get(type(node))) is not None:
        yield what
