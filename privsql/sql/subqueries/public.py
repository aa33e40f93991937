"""A sub-query as one over public tables and constants alone, or the reason why it is none."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from privsql.sql.bind.from_clause import Rows, Sources
from privsql.sql.catalog import UnknownName
from privsql.sql.nodes import Unsupported, queries_of, sources_of
from privsql.sql.subqueries.correlated import Correlated, Use
from privsql.sql.subqueries.frozen import Exact
from privsql.sql.subqueries.scopes import SCOPE, Scopes, is_closed


@dataclass(frozen=True)
class Subqueries:
    """Makes sub-queries public; ``exact`` is None where nothing can be asked."""

    sources: Sources
    exact: Exact | None

    def names(self, node: exp.Expr) -> list[str] | None:
        """The columns of an item of FROM, where they are known."""
        try:
            return Scopes(self.sources).names(node)
        except (Unsupported, UnknownName):
            return None

    def marked(self, query: exp.Expr, rows: Rows) -> exp.Expr:
        """A sub-query with its names resolved; what cannot be is left for whoever needs it."""
        try:
            return Scopes(self.sources, rows).resolved(query)
        except (Unsupported, UnknownName):
            return query

    def public(self, node: exp.Expr, rows: Rows) -> exp.Expr:
        """A copy of an expression whose sub-queries read no published rows."""
        if node.find(exp.Query) is None:
            return node
        holder = exp.Paren(this=node.copy())
        for query in list(queries_of(holder)):
            own = query
            if not any(SCOPE in each.meta for each in query.find_all(exp.Select)):
                own = Scopes(self.sources, rows).resolved(query)
                query.replace(own)
            self._inlined(own)
            self._placed(own)
        made: exp.Expr = holder.this
        made.pop()
        return made

    def relation(self, node: exp.Expr) -> exp.Expr:
        """An item of FROM beside published rows, over public tables alone."""
        made = exp.Paren(this=node.copy())
        self._inlined(made)
        item: exp.Expr = made.this
        if self._reads(item):
            query = Scopes(self.sources).resolved(item.this)
            item.set("this", self._exact.relation(query))
        item.pop()
        return item

    @property
    def _exact(self) -> Exact:
        if self.exact is None:
            raise Unsupported(
                "a sub-query over published rows here", hint="ask for its answer on its own first"
            )
        return self.exact

    # -- CTEs -------------------------------------------------------------------------

    def _inlined(self, node: exp.Expr) -> None:
        """CTEs of the statement as sub-queries, in place."""
        own = {cte.alias.casefold() for cte in node.find_all(exp.CTE)}
        for each in list(node.find_all(exp.Table)):
            if each.name.casefold() in own:
                continue
            query = self.sources.cte(each)
            if query is None:
                continue
            alias = each.args.get("alias") or exp.TableAlias(this=exp.to_identifier(each.name))
            held = exp.Paren(this=query.copy())
            self._inlined(held)
            body = Scopes(self.sources).resolved(held.this)
            each.replace(exp.Subquery(this=body, alias=alias.copy()))

    # -- one sub-query ----------------------------------------------------------------

    def _reads(self, node: exp.Expr) -> bool:
        """Whether published rows are read in a query."""
        return any(
            self.sources.catalog.is_published(each.name) for each in node.find_all(exp.Table)
        )

    def _placed(self, query: exp.Expr) -> None:
        """Put what a sub-query says in its place, if it reads published rows."""
        if not self._reads(query):
            return
        parent = query.parent
        if isinstance(parent, exp.Exists):
            if is_closed(query):
                parent.replace(self._exact.exists(query))
            else:
                query.replace(self._opened(query, "exists"))
        elif isinstance(parent, exp.In):
            if is_closed(query):
                parent.replace(self._exact.within(parent))
            else:
                query.replace(exp.Subquery(this=self._opened(query, "list")))
        elif isinstance(parent, exp.Any | exp.All):
            closed = is_closed(query)
            made = self._exact.relation(query) if closed else self._opened(query, "list")
            query.replace(exp.Subquery(this=made))
        elif is_closed(query):
            query.replace(exp.Paren(this=self._exact.value(query)))
        else:
            query.replace(exp.Subquery(this=self._opened(query, "value")))

    def _opened(self, query: exp.Expr, use: Use) -> exp.Expr:
        """A sub-query that refers to rows around it, over exact answers."""
        while isinstance(query, exp.Subquery) and not any(
            v for k, v in query.args.items() if k not in ("this", "alias")
        ):
            query = query.this
        if isinstance(query, exp.SetOperation) and use != "value":
            made = query.copy()
            for side in (made.left, made.right):
                if self._reads(side):
                    closed = is_closed(side)
                    new = self._exact.relation(side) if closed else self._opened(side, "list")
                    side.replace(new)
            return made
        if not isinstance(query, exp.Select):
            raise Unsupported(
                "a sub-query of this kind over published rows that refers to the rows around it",
                hint="write it as one SELECT",
            )
        own = any(
            isinstance(each, exp.Table) and self.sources.catalog.is_published(each.name)
            for each in sources_of(query)
        )
        if own:
            query = Correlated(self._exact, use).rewritten(query)
        else:
            query = query.copy()
            self._closed_sources(query)
        holder = exp.Paren(this=query)
        for clause in ("expressions", "where", "having", "joins", "group", "order", "qualify"):
            part = holder.this.args.get(clause)
            for node in part if isinstance(part, list) else [part]:
                if not isinstance(node, exp.Expr):
                    continue
                for inner in list(queries_of(node)):
                    if not _is_source(inner):
                        self._placed(inner)
        made = holder.this
        made.pop()
        return made

    def _closed_sources(self, query: exp.Select) -> None:
        """Items of FROM that read published rows become their answers, in place."""
        with_ = query.args.get("with_")
        bodies = [cte.this for cte in with_.expressions] if with_ is not None else []
        items = [each.this for each in sources_of(query) if isinstance(each, exp.Subquery)]
        for body in (*bodies, *items):
            if self._reads(body):
                if not is_closed(body):
                    raise Unsupported(
                        "a source in FROM of a sub-query that refers to the rows around it",
                        hint="refer to them in WHERE",
                    )
                body.replace(self._exact.relation(body))


def _is_source(query: exp.Expr) -> bool:
    return isinstance(query.parent, exp.From | exp.Join)
