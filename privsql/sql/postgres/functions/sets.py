"""Functions in FROM, as sub-selects: DuckDB takes only its own table functions there.

    FROM current_schema()            (SELECT current_schema() AS current_schema) AS current_schema
    FROM unnest(a, b) AS u(x, y)     (SELECT unnest(a), unnest(b)) AS u(x, y)
    FROM generate_subscripts(a, 1)   (SELECT generate_subscripts(a, 1) AS ...) AS ...

A function that gives one value gives one row.  Of several arrays the shorter are filled with NULL,
as DuckDB does, too.
"""

from __future__ import annotations

from sqlglot import exp

from privsql.sql.expressions import call
from privsql.sql.nodes import cast, named

_SOURCES = (exp.Table, exp.Unnest, exp.Lateral)


def in_from(node: exp.Expr, tables: frozenset[str]) -> exp.Expr:
    """A source as DuckDB takes it; ``tables`` are functions that it knows in FROM itself."""
    if not isinstance(node, _SOURCES):
        return node
    inner = node if isinstance(node, exp.Unnest) else node.this
    if isinstance(inner, exp.Unnest):
        if len(inner.expressions) < 2 or (node is inner and isinstance(node.parent, exp.Lateral)):
            return node
        return _subquery(node, _arrays(inner), "unnest")
    if isinstance(inner, exp.Dot):
        inner = inner.expression
    return _function(node, inner, tables) if isinstance(inner, exp.Func) else node


def _function(node: exp.Expr, inner: exp.Func, tables: frozenset[str]) -> exp.Expr:
    name = called(inner)
    if isinstance(inner, exp.GenerateSeries):
        return _series(node, inner)
    if name == "aclexplode":
        inner.set("this", "aclexplode_rows")
        return node
    if name in tables or isinstance(inner, exp.Explode):
        return node
    if name == "_pg_expandarray":
        array = inner.expressions[0]
        parts = [named(call("unnest", array), "x"), named(_positions([array]), "n")]
        return _subquery(node, exp.Select(expressions=parts), name, one=False)
    value: exp.Expr = inner if isinstance(node, exp.Unnest) else node.this
    if name == "generate_subscripts":
        value = cast(value.copy(), "INTEGER")
    return _subquery(node, exp.Select(expressions=[named(value.copy(), name)]), name)


def _series(node: exp.Expr, inner: exp.GenerateSeries) -> exp.Expr:
    """``generate_series``, whose arguments may look something up only as a list."""
    if inner.find(exp.Anonymous, exp.Query, exp.Dot) is None:
        return node
    ends = [inner.args.get(key) for key in ("start", "end", "step")]
    series = call("generate_series", *(each for each in ends if each is not None))
    parts = [named(call("unnest", series), "generate_series")]
    return _subquery(node, exp.Select(expressions=parts), "generate_series")


def called(node: exp.Expr) -> str:
    """The name of a function."""
    if isinstance(node, exp.Anonymous):
        return str(node.this).lower()
    return node.sql_name().lower() if isinstance(node, exp.Func) else ""


def _positions(arrays: list[exp.Expr]) -> exp.Expr:
    """The numbers from 1 on of the longest of some arrays."""
    lengths = [call("len", array.copy()) for array in arrays]
    most = lengths[0] if len(lengths) == 1 else call("greatest", *lengths)
    stop = exp.Add(this=most, expression=exp.Literal.number(1))
    return call("unnest", call("range", exp.Literal.number(1), stop))


def _arrays(node: exp.Unnest) -> exp.Select:
    """Several arrays side by side, with their positions where WITH ORDINALITY asks for them."""
    parts: list[exp.Expr] = [
        named(call("unnest", array), f"unnest{i or ''}") for i, array in enumerate(node.expressions)
    ]
    if node.args.get("offset"):
        parts.append(named(_positions(node.expressions), "ordinality"))
    return exp.Select(expressions=parts)


def _subquery(node: exp.Expr, query: exp.Select, name: str, one: bool = True) -> exp.Expr:
    """The query in the place of a function, under its alias; one column is called like that."""
    alias = node.args.get("alias")
    if not isinstance(alias, exp.TableAlias) or alias.this is None:
        alias = exp.TableAlias(this=exp.to_identifier(name, quoted=True))
    offset = (node.this if isinstance(node, exp.Lateral) else node).args.get("offset")
    if isinstance(offset, exp.Identifier) and alias.args.get("columns"):
        alias.set("columns", [*alias.args["columns"], offset])
    if one and not alias.args.get("columns") and len(query.expressions) == 1:
        alias.set("columns", [alias.this.copy()])
    made = exp.Subquery(this=query)
    if isinstance(node, exp.Lateral):
        return exp.Lateral(this=made, alias=alias)
    made.set("alias", alias)
    return made
