"""Integer division: PostgreSQL divides integers to integers, DuckDB's ``/`` does not.

``a / b`` becomes ``a // b`` where both are integers for certain: literals, casts, columns that the
release says are integers, and sums, products and differences of these.  ``//`` cuts towards zero
as PostgreSQL does.  An aggregate is an estimate in general, DOUBLE on the wire, and is divided
as such; so is a parameter that is not cast.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sqlglot import exp

from privsql.sql.nodes import sources_of
from privsql.sql.postgres.types import is_integer

# Table -> column -> DuckDB's type, all names in lower case.
Columns = Mapping[str, Mapping[str, str]]

# Whether an expression is of some kind.
Test = Callable[[exp.Expr, Columns], bool]

_WHOLE = frozenset({"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"})
_WHOLE |= frozenset({f"U{name}" for name in _WHOLE})
_WHOLE_FUNCTIONS = (exp.Length, exp.StrPosition, exp.ArraySize)
# A quotient of integers may not be rewritten yet.
_THROUGH = (exp.Add, exp.Sub, exp.Mul, exp.Mod, exp.IntDiv, exp.Div)


def divide(tree: exp.Expr, columns: Columns) -> None:
    """Write every quotient of integers as ``//``, in place; inner ones first."""
    for node in reversed(list(tree.find_all(exp.Div))):
        left, right = node.this, node.expression
        whole = _integer(left, columns) and _integer(right, columns)
        made: exp.Expr = (exp.IntDiv if whole else exp.Div)(this=left, expression=right)
        node.replace(made)


def _integer(node: exp.Expr, columns: Columns) -> bool:
    if isinstance(node, exp.Paren | exp.Neg | exp.Abs):
        return _integer(node.this, columns)
    if isinstance(node, exp.Literal):
        return not node.is_string and node.name.isdigit()
    if isinstance(node, exp.Cast):
        return is_integer(node.args["to"])
    if isinstance(node, _THROUGH):
        return _integer(node.this, columns) and _integer(node.expression, columns)
    if isinstance(node, exp.Coalesce):
        return all(_integer(each, columns) for each in (node.this, *node.expressions))
    if isinstance(node, exp.Column):
        return column_is(node, columns, _WHOLE, _integer)
    return isinstance(node, _WHOLE_FUNCTIONS)


def column_is(node: exp.Column, columns: Columns, kinds: frozenset[str], test: Test) -> bool:
    """Whether a column is of some types in the table that the SELECT around it reads.

    ``test`` says it of an expression that a sub-select gives a name to.
    """
    select = node.find_ancestor(exp.Select)
    name, qualifier = node.name.lower(), node.table.lower()
    while select is not None:
        for source in sources_of(select):
            if qualifier and source.alias_or_name.lower() != qualifier:
                continue
            found = _type_in(source, name, columns, kinds, test)
            if found is not None:
                return found
        select = select.find_ancestor(exp.Select)
    return False


def _type_in(
    source: exp.Expr, name: str, columns: Columns, kinds: frozenset[str], test: Test
) -> bool | None:
    """Whether a source's column is of these types, or None where it has no such column."""
    if isinstance(source, exp.Table):
        kind = columns.get(source.name.lower(), {}).get(name)
        return None if kind is None else kind.upper() in kinds
    if isinstance(source, exp.Subquery):
        inner: exp.Expr = source.this
        while isinstance(inner, exp.SetOperation | exp.Subquery):
            inner = inner.this
        if not isinstance(inner, exp.Select):
            return None
        for each in inner.expressions:
            if each.alias_or_name.lower() == name:
                return test(each.unalias(), columns)
        if any(each.is_star for each in inner.expressions):
            inside = (_type_in(each, name, columns, kinds, test) for each in sources_of(inner))
            return next((found for found in inside if found is not None), None)
    return None
