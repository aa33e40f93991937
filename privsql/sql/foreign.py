"""Comparisons of a sensitive column with words that its domain does not have.

They are no mistake in SQL: nobody has such a value, and the count is exactly 0.  But a word that
is spelt otherwise than in the domain looks the same, so the answer says it.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from privsql.channels import Categorical
from privsql.sql.catalog import Catalog


def compared_with_none(tree: exp.Expr, catalog: Catalog) -> list[str]:
    """Sensitive columns that are compared with a word outside of their domain.

    Only where names are plain: one table, and the words written out.
    """
    if tree.find(exp.Join) is not None:
        return []
    found = []
    for node in tree.find_all(exp.EQ, exp.In):
        for column, words in _compared(node):
            name = catalog.column(column.name) or ""
            known = catalog.sensitive.get(name)
            if known is None or not isinstance(known.domain, Categorical) or name in found:
                continue
            categories = known.domain.categories
            if known.domain.kind == "text" and any(word not in categories for word in words):
                found.append(name)
    return found


def _compared(node: exp.Expr) -> Iterator[tuple[exp.Column, list[str]]]:
    if isinstance(node, exp.In):
        sides = [(node.this, node.expressions)]
    else:
        sides = [(node.this, [node.expression]), (node.expression, [node.this])]
    for column, others in sides:
        if isinstance(column, exp.Column):
            texts = [each for each in others if isinstance(each, exp.Literal) and each.is_string]
            if texts:
                yield column, [text.name for text in texts]
