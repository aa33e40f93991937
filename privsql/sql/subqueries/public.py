"""A sub-query as one over public tables and constants alone, or the reason why it is none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sqlglot import exp

from privsql.errors import Error
from privsql.sql.bind.from_clause import Rows, Sources
from privsql.sql.catalog import UnknownName
from privsql.sql.nodes import Unsupported, place_of, queries_of, sources_of
from privsql.sql.subqueries.correlated import Correlated, Use
from privsql.sql.subqueries.frozen import Exact
from privsql.sql.subqueries.scopes import SCOPE, Scopes, is_closed


@dataclass(frozen=True)
class Subqueries:
    """Makes sub-queries public; ``exact`` is None where nothing can be asked."""

    sources: Sources
    exact: Exact | None
    text: str  # of the statement, for the place of what is refused

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
            with self._pointing(query):
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
        with self._pointing(node):
            self._inlined(made)
            item: exp.Expr = made.this
            if self._reads(item):
                query = Scopes(self.sources).resolved(item.this)
                item.set("this", self._exact.relation(query))
        item.pop()
        return item

    @contextmanager
    def _pointing(self, node: exp.Expr) -> Iterator[None]:
        """Errors point at a sub-query, where they know no better."""
        place = place_of(node, self.text)
        try:
            yield
        except Error as problem:
            problem.place = problem.place or place
            raise

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
            query = self.sources.cte(each)
            if query is None:
                continue
            if each.name.casefold() in own:
                raise Unsupported("two CTEs of one name", hint="give one of them another name")
            alias = each.args.get("alias") or exp.TableAlias(this=exp.to_identifier(each.name))
            held = exp.Paren(this=query.copy())
            self._inlined(held)
            body = Scopes(self.sources).resolved(held.this)
            each.replace(exp.Subquery(this=body, alias=alias.copy()))

    # -- one sub-query ----------------------------------------------------------------

    def _reads(self, node: exp.Expr) -> bool:
        """Whether published rows are read in a query."""
        return any(map(self._is_published, node.find_all(exp.Table)))

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
            return self._sides(query)
        if not isinstance(query, exp.Select):
            raise Unsupported(
                "a sub-query of this kind over published rows that refers to the rows around it",
                hint="write it as one SELECT",
            )
        if any(self._is_published(each) for each in sources_of(query)):
            made: exp.Expr = Correlated(self._exact, use).rewritten(query)
        else:
            made = query.copy()
            self._closed_sources(made)
        holder = exp.Paren(this=made)
        for inner in list(_within(made)):
            self._placed(inner)
        made = holder.this
        made.pop()
        return made

    def _sides(self, query: exp.SetOperation) -> exp.Expr:
        """Both sides of a UNION and its kin, each for itself."""
        made = query.copy()
        for side in (made.left, made.right):
            if self._reads(side):
                closed = is_closed(side)
                side.replace(self._exact.relation(side) if closed else self._opened(side, "list"))
        return made

    def _is_published(self, node: exp.Expr) -> bool:
        return isinstance(node, exp.Table) and self.sources.catalog.is_published(node.name)

    def _closed_sources(self, query: exp.Expr) -> None:
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


def _within(select: exp.Expr) -> Iterator[exp.Expr]:
    """The sub-queries in the expressions of a SELECT, without those in FROM."""
    for clause, part in select.args.items():
        for node in part if isinstance(part, list) else [part]:
            if isinstance(node, exp.Expr) and clause not in ("from_", "with_"):
                kept = node.args.get("on") if isinstance(node, exp.Join) else node
                if kept is not None:
                    yield from queries_of(kept)
