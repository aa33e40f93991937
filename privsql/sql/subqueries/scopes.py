"""Whose columns the names of a sub-query are: its own, or those of the rows around it.

    FROM patients AS p WHERE EXISTS (SELECT 1 FROM jobs AS j WHERE j.job = p.job AND pay > cost)
                                                              own     the row's    own   the row's

A name belongs to the innermost SELECT that has a column of it.  Columns of the rows around become
canonical, with a mark by which ``nodes.columns_of`` finds them; own columns are marked with the
SELECT that they are of, and with the sensitive column that they are.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from privsql.sql.bind.from_clause import Rows, Sources
from privsql.sql.catalog import UnknownColumn
from privsql.sql.nodes import OUTER, Unsupported, sources_of, sql

# Marks: the number of a SELECT, that of the SELECT which a column is of, the sensitive column.
SCOPE, OWNER, SENSITIVE = "privsql_scope", "privsql_owner", "privsql_sensitive"

Ctes = Mapping[str, exp.Expr]


@dataclass(frozen=True)
class _Source:
    """One item of FROM: its alias and columns, folded, and whether those are the published ones."""

    alias: str
    columns: frozenset[str]
    published: bool


@dataclass(frozen=True)
class _Level:
    """One SELECT: its number, its sources, and the aliases of its columns."""

    number: int
    sources: tuple[_Source, ...]
    aliases: frozenset[str]

    def find(self, table: str, name: str) -> _Source | None:
        """The source that a name is of."""
        for each in self.sources:
            if table == each.alias and name not in each.columns:
                raise UnknownColumn(f"there is no column {name!r} in {table!r}")
            if name in each.columns and table in ("", each.alias):
                return each
        return None


_NUMBERS = itertools.count(1)


class Scopes:
    """Resolves the names of one sub-query; ``rows`` are those around it."""

    def __init__(self, sources: Sources, rows: Rows | None = None) -> None:
        self._sources, self._rows = sources, rows
        self._catalog = sources.catalog
        self._tables: set[str] = set()  # of the rows around, that are referred to
        self._columns: set[str] = set()  # of sources within

    def resolved(self, query: exp.Expr) -> exp.Expr:
        """A copy of the sub-query with all of its columns marked."""
        holder = exp.Paren(this=query.copy())
        self._query(holder.this, (), {})
        made: exp.Expr = holder.this
        made.pop()
        clash = self._tables & self._columns
        if clash:
            # A column that is a structure would be taken for the rows around.
            raise Unsupported(
                f"a column called {min(clash)!r} in a sub-query that refers to the rows around it",
                hint="give it another name",
            )
        if self._tables:
            _renamed_apart(made, self._tables)
        return made

    # -- queries ----------------------------------------------------------------------

    def _query(self, node: exp.Expr, chain: Sequence[_Level], ctes: Ctes) -> None:
        with_ = node.args.get("with_")
        if with_ is not None:
            ctes = dict(ctes)
            if with_.args.get("recursive"):
                raise Unsupported("a recursive CTE", hint="write the query without RECURSIVE")
            for cte in with_.expressions:
                if self._catalog.is_published(cte.alias):
                    raise Unsupported(
                        "a CTE with the name of the published table", hint="give it another name"
                    )
                self._query(cte.this, chain, ctes)
                ctes[cte.alias.casefold()] = cte
        if isinstance(node, exp.SetOperation):
            self._query(node.left, chain, ctes)
            self._query(node.right, chain, ctes)
        elif isinstance(node, exp.Subquery):
            self._plain(node)
            self._query(node.this, chain, ctes)
        elif isinstance(node, exp.Select):
            self._select(node, chain, ctes)
        elif isinstance(node, exp.Values):
            self._walk(node.expressions, chain, ctes)
        else:
            raise Unsupported(f"{node.key.upper()} as a sub-query")

    @staticmethod
    def _plain(node: exp.Expr) -> None:
        for clause in ("sample", "pivots", "laterals", "match"):
            if node.args.get(clause):
                raise Unsupported(f"{clause.rstrip('s').upper()} in a sub-query")

    def _select(self, node: exp.Select, chain: Sequence[_Level], ctes: Ctes) -> None:
        self._plain(node)
        number = next(_NUMBERS)
        node.meta[SCOPE] = number
        found = []
        for source in sources_of(node):
            if isinstance(source, exp.Subquery):
                self._query(source, chain, ctes)
            found.append(self._source(source, ctes))
        aliases = frozenset(p.alias.casefold() for p in node.expressions if p.alias)
        self._columns |= {name for each in found for name in each.columns}
        level = _Level(number, tuple(found), aliases)
        inner = (level, *chain)
        for join in node.args.get("joins") or ():
            if join.method:
                raise Unsupported(
                    f"{join.method} JOIN in a sub-query", hint="write the condition into ON"
                )
            for name in join.args.get("using") or ():
                if any(each.published for each in found) and self._sensitive(name.name):
                    name.meta[SENSITIVE] = self._sensitive(name.name)
            self._walk([join.args.get("on")], inner, ctes)
        for clause, part in list(node.args.items()):
            if clause not in ("from_", "joins", "with_"):
                self._walk(part if isinstance(part, list) else [part], inner, ctes)

    def _sensitive(self, name: str) -> str:
        own = self._catalog.column(name) or ""
        return own if own in self._catalog.sensitive else ""

    def _source(self, node: exp.Expr, ctes: Ctes) -> _Source:
        names = self._names(node, ctes)
        if names is None:
            raise Unsupported(
                "a sub-query with a source whose columns are not known",
                hint="list the columns of each source, with names",
            )
        published = self._is_published(node, ctes)
        folded = frozenset(name.casefold() for name in names)
        return _Source(node.alias_or_name.casefold(), folded, published)

    def _is_published(self, node: exp.Expr, ctes: Ctes) -> bool:
        return isinstance(node, exp.Table) and self._cte(node, ctes) is None and (
            self._catalog.is_published(node.name)
        )  # fmt: skip

    def _cte(self, node: exp.Table, ctes: Ctes) -> exp.Expr | None:
        if node.db:
            return None
        return ctes.get(node.name.casefold()) or self._sources.cte(node)

    # -- names of columns -------------------------------------------------------------

    def names(self, node: exp.Expr) -> list[str] | None:
        """The columns of an item of FROM, or None where they are not known."""
        return self._names(node, {})

    def _names(self, node: exp.Expr, ctes: Ctes) -> list[str] | None:
        self._plain(node)
        found: list[str] | None
        if isinstance(node, exp.Table):
            found = self._of_table(node, ctes)
        elif isinstance(node, exp.Subquery | exp.CTE):
            found = self._selected(node.this, ctes)
        elif isinstance(node, exp.Values):
            found = []
        else:
            return None
        given = node.alias_column_names
        return None if found is None else [*given, *found[len(given) :]]

    def _of_table(self, node: exp.Table, ctes: Ctes) -> list[str] | None:
        cte = self._cte(node, ctes)
        if cte is not None:
            return self._names(cte, ctes) if isinstance(cte, exp.CTE) else self._selected(cte, ctes)
        if not isinstance(node.this, exp.Identifier):
            return None
        if self._catalog.is_published(node.name):
            return [name for name, _ in self._catalog.columns]
        public = self._catalog.public_table(node.name)
        if public is None:
            raise self._catalog.no_table(node.name)
        return [name for name, _ in self._catalog.tables[public]]

    def _selected(self, query: exp.Expr, ctes: Ctes) -> list[str] | None:
        with_ = query.args.get("with_")
        if with_ is not None:
            ctes = {**ctes, **{cte.alias.casefold(): cte for cte in with_.expressions}}
        if isinstance(query, exp.SetOperation | exp.Subquery):
            return self._selected(query.this, ctes)
        if isinstance(query, exp.Values):
            return [f"col{i}" for i in range(len(query.expressions[0].expressions))]
        if not isinstance(query, exp.Select):
            return None
        found: list[str] = []
        for each in query.expressions:
            names = self._starred(query, each, ctes) if each.is_star else [_name(each)]
            if names is None:
                return None
            found += names
        return found

    def _starred(self, query: exp.Select, star: exp.Expr, ctes: Ctes) -> list[str] | None:
        plain = star.this if isinstance(star, exp.Column) else star
        if any(plain.args.values()):
            return None
        found: list[str] = []
        wanted = star.text("table").casefold()
        for source in sources_of(query):
            names = self._names(source, ctes)
            if names is None:
                return None
            if wanted in ("", source.alias_or_name.casefold()):
                found += names
        return found

    # -- columns ----------------------------------------------------------------------

    def _walk(self, nodes: Sequence[object], inner: Sequence[_Level], ctes: Ctes) -> None:
        for node in nodes:
            if isinstance(node, exp.Query):
                self._query(node, inner, ctes)
            elif isinstance(node, exp.Column):
                self._column(node, inner)
            elif isinstance(node, exp.Star):
                self._star(node, inner)
            elif isinstance(node, exp.Expr):
                self._walk(list(node.iter_expressions()), inner, ctes)

    def _star(self, node: exp.Star, inner: Sequence[_Level]) -> None:
        """``*`` of published rows has sensitive columns in it; COUNT(*) has not."""
        if isinstance(node.parent, exp.Count) or not inner:
            return
        if any(each.published for each in inner[0].sources) and self._catalog.sensitive:
            node.meta[SENSITIVE] = next(iter(self._catalog.sensitive))

    def _column(self, node: exp.Column, inner: Sequence[_Level]) -> None:
        if isinstance(node.this, exp.Star):
            self._star(node.this, inner)
            node.meta[OWNER] = inner[0].number if inner else 0
            return
        name, table = node.name.casefold(), node.table.casefold()
        for level in inner:
            source = level.find(table, name)
            if source is not None:
                node.meta[OWNER] = level.number
                if source.published and self._sensitive(name):
                    node.meta[SENSITIVE] = self._sensitive(name)
                return
            if not table and name in level.aliases:
                self._check_alias(node)
                node.meta[OWNER] = level.number
                return
        node.replace(self._around(node))

    def _check_alias(self, node: exp.Column) -> None:
        if self._rows is not None and self._rows.find(node) is not None:
            raise Unsupported(
                f"{node.name!r} in a sub-query, which is an alias there and a column of the rows"
                " around it",
                hint="give the alias another name",
            )

    def _around(self, node: exp.Column) -> exp.Expr:
        """A column of the rows around, marked."""
        found = None if self._rows is None else self._rows.find(node)
        if found is None:
            raise UnknownColumn(f"there is no column {node.sql('duckdb')!r} here")
        if found.find(exp.Query) is not None:
            raise Unsupported(
                f"{node.name!r} in a sub-query, which is itself made by a sub-query",
                hint="write one of them as a join",
            )
        for each in found.find_all(exp.Column):
            each.meta[OUTER] = True
            self._tables.add(each.table.casefold())
        if not isinstance(found, exp.Column):
            return exp.Paren(this=found)
        found.this.meta.update(node.this.meta)
        return found


def _name(projection: exp.Expr) -> str:
    return projection.alias_or_name or sql(projection).lower()


def owned(node: exp.Expr, scopes: set[int]) -> Iterator[exp.Column]:
    """Columns in an expression that are of one of some SELECTs."""
    return (each for each in node.find_all(exp.Column) if each.meta.get(OWNER) in scopes)


def scopes_in(query: exp.Expr) -> set[int]:
    """The numbers of all SELECTs within a query, itself included."""
    return {each.meta[SCOPE] for each in query.find_all(exp.Select) if SCOPE in each.meta}


def is_closed(query: exp.Expr) -> bool:
    """Whether a query refers to nothing around it."""
    inside = scopes_in(query)
    return not any(
        OUTER in each.meta or each.meta.get(OWNER, 0) not in {0, *inside}
        for each in query.find_all(exp.Column)
    )


def sensitive_in(query: exp.Expr) -> str:
    """A sensitive column that a query reads, "" for none."""
    found = (node.meta[SENSITIVE] for node in query.walk() if SENSITIVE in node.meta)
    return next(found, "")


def _renamed_apart(query: exp.Expr, taken: Collection[str]) -> None:
    """Give sources another alias that would hide the rows around them."""
    for select in query.find_all(exp.Select):
        for source in sources_of(select):
            old = source.alias_or_name.casefold()
            if old not in taken:
                continue
            new = f"privsql_{old}"
            alias = source.args.get("alias") or exp.TableAlias()
            alias.set("this", exp.to_identifier(new, quoted=True))
            source.set("alias", alias)
            for each in list(owned(select, {select.meta[SCOPE]})):
                if each.table.casefold() == old:
                    each.set("table", exp.to_identifier(new, quoted=True))
