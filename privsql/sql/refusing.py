"""What may not run beside the published table, by whatever spelling."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from privsql.sql.catalog import Catalog
from privsql.sql.tree import Unsupported, name_of, outermost, place_of

_VOLATILE = """
    random setseed uuid uuidv4 uuidv7 gen_random_uuid nextval currval setval stats vector_type
    write_log error sleep_ms current_query current_query_id current_connection_id
    current_transaction_id
"""
VOLATILE = frozenset(_VOLATILE.split())


class Refusing:
    """Refuses expressions of a SELECT over published rows; ``kind`` tells what a query reads."""

    def __init__(self, catalog: Catalog, text: str, kind: Callable[[exp.Expr], str]) -> None:
        self._catalog = catalog
        self._text = text
        self._kind = kind

    def clauses(self, select: exp.Select) -> None:
        """Clauses that only rows could answer."""
        for clause in (
            "sample",
            "pivots",
            "match",
            "laterals",
            "connect",
            "into",
            "locks",
            "cluster",
        ):
            if select.args.get(clause):
                raise Unsupported(f"{clause.upper()} over published rows")

    def nodes(self, node: exp.Expr) -> None:
        """Volatile functions, and sub-queries that are not public and on their own."""
        for each in node.walk():
            name = name_of(each)
            if name in VOLATILE:
                raise Unsupported(
                    f"the volatile function {name}()",
                    hint="an answer must not change when it is asked again",
                    place=place_of(each, self._text),
                )
        for query in outermost(node, lambda n: isinstance(n, exp.Query)):
            self._refuse_query(query)

    def _refuse_query(self, query: exp.Expr) -> None:
        """A sub-query in a condition or an argument runs beside the table: only public ones."""
        place = place_of(query, self._text)
        if self._kind(query) != "public":
            raise Unsupported(
                "a sub-query over published rows inside a condition, a key or an aggregate",
                hint="ask for it on its own and put its answer in as a value, or compare in HAVING",
                place=place,
            )
        known: set[str] = set()
        for table in query.find_all(exp.Table):
            known.add(table.alias_or_name.casefold())
            for name, _ in self._catalog.tables.get(
                self._catalog.public_table(table.name) or "", ()
            ):
                known.add(name.casefold())
        for alias in query.find_all(exp.Alias, exp.TableAlias):
            known |= {alias.alias.casefold()} if alias.alias else set()
            if isinstance(alias, exp.TableAlias):
                known |= {c.name.casefold() for c in alias.columns} | {alias.name.casefold()}
        for each in query.find_all(exp.Column):
            if (
                not isinstance(each.this, exp.Star)
                and (each.table or each.name).casefold() not in known
            ):
                raise Unsupported(
                    "a sub-query that refers to the published rows around it",
                    hint="join the public table instead, or list the values",
                    place=place,
                )
