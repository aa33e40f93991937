"""Refusal of constructs that must not run on the published table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlglot import exp

from privsql.sql.nodes import Unsupported, name_of, outermost, place_of, queries_of, walked

_VOLATILE = """
    random setseed uuid uuidv4 uuidv7 gen_random_uuid nextval currval setval stats vector_type
    write_log error sleep_ms current_query current_query_id current_connection_id
    current_transaction_id
"""
VOLATILE = frozenset(_VOLATILE.split())

# Clauses that only rows could answer.
_ROW_CLAUSES = ["sample", "pivots", "match", "laterals", "connect", "into", "locks", "cluster"]


@dataclass(frozen=True)
class Refusing:
    """Refuses expressions over published rows; ``public`` tells which queries may run there."""

    text: str
    public: Callable[[exp.Expr], bool]

    def clauses(self, select: exp.Select) -> None:
        """Clauses that only rows could answer."""
        for clause in _ROW_CLAUSES:
            if select.args.get(clause):
                raise Unsupported(f"{clause.upper()} over published rows")

    def nodes(self, node: exp.Expr) -> None:
        """Volatile functions, and sub-queries that are not public and on their own."""
        for each in walked(node):
            name = name_of(each)
            if name in VOLATILE:
                raise Unsupported(
                    f"the volatile function {name}()",
                    hint="an answer must not change when it is asked again",
                    place=place_of(each, self.text),
                )
        for star in outermost(node, lambda n: isinstance(n, exp.Star)):
            if not isinstance(star.parent, exp.Count):
                raise Unsupported("a star here", hint="list the columns that you mean")
        for query in queries_of(node):
            self.query(query)

    def query(self, query: exp.Expr) -> None:
        """A sub-query in a condition, a join or an argument runs beside the table."""
        if self.public(query):
            return
        raise Unsupported(
            "a sub-query that is not about public tables alone, or refers to rows around it",
            hint="join the public table, list the values, or ask for its answer on its own first",
            place=place_of(query, self.text),
        )
