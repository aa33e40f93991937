"""Parameters used as columns: ``SELECT $1`` has the type that the client gave.

DuckDB knows a parameter by its value alone, and before there is one by nothing.  A cast tells it.
Text needs none, and DECIMAL alone would round.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from sqlglot import exp
from sqlglot.errors import SqlglotError

from privsql.sql.nodes import cast
from privsql.sql.parse.lexing import parsed
from privsql.sql.parse.parameter_types import number_of
from privsql.sql.printing import text_of

_AS_IT_IS = ("VARCHAR", "DECIMAL", "DECIMAL[]", "VARCHAR[]")


def typed(text: str, types: Sequence[str]) -> str:
    """A statement in DuckDB's dialect with its parameters cast where they are columns.

    >>> typed("SELECT $1 AS a, $2 AS b FROM t WHERE c = $1", ["INTEGER", "VARCHAR"])
    'SELECT CAST($1 AS INT) AS a, $2 AS b FROM t WHERE c = $1'
    """
    return text if all(kind in _AS_IT_IS for kind in types) else _typed(text, tuple(types))


@lru_cache(maxsize=256)
def _typed(text: str, types: tuple[str, ...]) -> str:
    try:
        tree = parsed(text)
    except (SqlglotError, RecursionError):
        return text
    found = False
    for node in list(tree.find_all(exp.Parameter, exp.Placeholder)):
        number = number_of(node)
        if number is None or number > len(types) or types[number - 1] in _AS_IT_IS:
            continue
        holder = node.parent
        while isinstance(holder, exp.Alias | exp.Paren):
            holder = holder.parent
        if isinstance(holder, exp.Select) and node.find_ancestor(exp.Limit, exp.Offset) is None:
            node.replace(cast(node.copy(), types[number - 1]))
            found = True
    return text_of(tree) if found else text
