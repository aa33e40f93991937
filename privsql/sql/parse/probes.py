"""Queries for columns without rows: ``SELECT * FROM t LIMIT 0``, ``WHERE 1 = 0``.

Tools ask so to learn names and types.  No row is read for it, so nothing has to be reconstructed
and there is nobody to protect.
"""

from __future__ import annotations

from sqlglot import exp

from privsql.sql.nodes import bare, is_aggregate, outermost


def is_probe(tree: exp.Expr) -> bool:
    """Whether a query has no rows whatever the tables hold.

    >>> from sqlglot import parse_one
    >>> [is_probe(parse_one(f"SELECT * FROM t {end}")) for end in ("LIMIT 0", "WHERE 1 = 0", "")]
    [True, True, False]
    """
    if not isinstance(tree, exp.Select):
        return False
    limit = tree.args.get("limit")
    if limit is not None and _number(limit.args.get("expression")) == "0":
        return True
    where = tree.args.get("where")
    if where is None or not _false(bare(where.this)) or tree.args.get("group") is not None:
        return False
    # An aggregate over nothing is a row.
    return not any(next(outermost(part, is_aggregate), None) for part in tree.expressions)


def _false(node: exp.Expr) -> bool:
    if isinstance(node, exp.Boolean):
        return not node.this
    if isinstance(node, exp.And):
        return _false(bare(node.left)) or _false(bare(node.right))
    if isinstance(node, exp.EQ):
        left, right = _number(bare(node.left)), _number(bare(node.right))
        return left is not None and right is not None and left != right
    return False


def _number(node: object) -> str | None:
    if isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit():
        return str(int(node.name))
    return None
