"""Error bars as columns, exported from blocks and passed through queries."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

from sqlglot import exp

from privsql.errors import Notice
from privsql.sql.bind.comparisons import Constants
from privsql.sql.bind.from_clause import Sources
from privsql.sql.catalog import Catalog
from privsql.sql.expressions import with_columns
from privsql.sql.nodes import (
    Unsupported,
    cast,
    column,
    copied,
    define,
    derived,
    named,
    queries_of,
    select,
)
from privsql.sql.outer import error_bars
from privsql.sql.outer.error_bars import FIELDS, Bars
from privsql.sql.outer.parts import Compiled, Out, Part, hidden_name
from privsql.sql.outer.ratios import divides_by, divisor, quotients, unless
from privsql.sql.reconstruct.columns import SHOWN

TWO_QUERIES = "the covariance of the estimates of two queries is not known"


def held_bars(out: Out, alias: str | None = None) -> Bars:
    """The error bars that a query holds in columns."""
    stderr, low, high, good = (column(name, alias) for name in out.bars)
    return Bars(stderr, low, high, good)


@dataclass
class Showing:
    """What every kind of query needs: notices, sub-queries, and columns for error bars."""

    catalog: Catalog
    text: str
    query: Callable[[exp.Expr], Compiled]  # rewrites any query
    binds: Callable[[exp.Expr], bool] | None = None
    read: Constants | None = None
    ctes: list[dict[str, exp.Expr]] = field(default_factory=list)
    compiled: dict[int, Compiled] = field(default_factory=dict)
    parts: list[Part] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)

    @cached_property
    def sources(self) -> Sources:
        """The meaning of names in FROM."""
        return Sources(self.catalog, self.lookup)

    def notice(self, code: str, text: str) -> None:
        """Say something once."""
        notice = Notice(code, text)
        if notice not in self.notices:
            self.notices.append(notice)

    def lookup(self, name: str) -> exp.Expr | None:
        """The query of a CTE that is in sight."""
        return ChainMap(*reversed(self.ctes)).get(name.casefold())

    def is_public_query(self, query: exp.Expr) -> bool:
        """Whether a query reads public tables only, and stands on its own.

        It would run beside the published rows.  DuckDB itself says that it refers to nothing
        around it: it must bind where there is no published table at all.
        """
        if self.sources.kind(query) != "public":
            return False
        for each in query.find_all(exp.Table):
            known = self.catalog.public_table(each.name) is not None and not each.db
            if not known or self.lookup(each.name) is not None:
                return False
        return self.binds is None or self.binds(query)

    def note_selected(self, where: exp.Expr, compared: bool) -> None:
        """Rows that were kept by comparing estimates are not all the rows that should be."""
        if compared or self.has_estimate_below(where):
            self.notice(
                "selected",
                "rows were kept or dropped by comparing estimates, which may be wrong for each row",
            )

    def has_estimate_below(self, node: exp.Expr) -> bool:
        """Whether a sub-query in an expression has estimates."""
        found = [self.compiled.get(id(query)) for query in queries_of(node)]
        return any(out.estimate for made in found if made is not None for out in made.outs)

    def divides_by_query(self, node: exp.Expr) -> bool:
        """Whether a sub-query with estimates is in a denominator."""
        return any(self.has_estimate_below(divisor(each)) for each in quotients(node))

    def subqueries(self, node: exp.Expr) -> None:
        """Compile scalar sub-queries where they stand."""
        for query in list(queries_of(node)):
            if self.is_public_query(query):
                continue  # it stays as it is, with any star in it
            found = self.query(query)
            made = self.bare(found, self.doubt_of(found) if divides_by(query) else None)
            if query.parent is None:
                continue
            query.replace(made.tree)
            self.compiled[id(made.tree)] = made

    def doubt_of(self, made: Compiled) -> exp.Expr | None:
        """Where the one value of a sub-query cannot be distinguished from zero."""
        if len(made.outs) != 1 or not made.outs[0].estimate:
            return None
        out = made.outs[0]
        if out.definition is not None:
            doubt = self.parts[out.block].doubt(out.definition)
            return None if doubt is None else self.exported(doubt, out.block)
        if out.bars:
            return error_bars.doubt_by(held_bars(out))
        return None

    def exported(self, node: exp.Expr, block: int) -> exp.Expr:
        """Columns of a block as the hidden columns under which they are exported."""
        return with_columns(node, lambda each: column(hidden_name(block, each.name)))

    def bars(self, out: Out) -> Bars:
        """The error bars of a column."""
        if out.definition is None:
            return error_bars.none()
        return self.parts[out.block].bars(out.definition)

    def with_bars(self, made: Compiled) -> Compiled:
        """The query with four columns for each estimate, and nothing else hidden."""
        if not any(out.estimate for out in made.outs):
            return self.bare(made)
        return self.shown(made, [out.estimate for out in made.outs])

    def shown(self, made: Compiled, wanted: list[bool]) -> Compiled:
        """The query with the error bars of some columns as further ones."""
        outer = exp.Select()
        for i, out in enumerate(made.outs):
            define(outer, out.name, column(SHOWN(i), "answer"))
        bars = {i: self._of_answer(i, out) for i, out in enumerate(made.outs) if wanted[i]}
        outs = [replace(out, definition=None, bars=()) for out in made.outs]
        hidden: list[str] = []
        for i, own in bars.items():
            names = tuple(f"privsql_bar{i}_{f}" for f in FIELDS)
            for name, f in zip(names, FIELDS, strict=True):
                node = own.own(f)
                define(outer, name, cast(node, "BOOLEAN") if f == "reliable" else node)
            outs[i] = replace(outs[i], bars=names, why=own.why or outs[i].why)
            hidden += names
        source = _answer(made)
        shared = [named(node, name) for own in bars.values() for name, node in own.shared]
        if shared:
            # What the error bars of one column share is worked out once.
            source = derived(select(source, exp.Star(), *shared), "answer")
        return Compiled(outer.from_(source, copy=False), outs, hidden)

    def _of_answer(self, i: int, out: Out) -> Bars:
        """The error bars of column i over the columns of the answer."""
        if out.bars:
            return held_bars(out, "answer")
        if not out.estimate:
            return error_bars.exact(column(SHOWN(i), "answer"))
        bars = self.bars(out)
        why = out.why or bars.why
        if why:
            self.notice("no-error", f"{out.name!r} has no error bar: {why}")
        lets = {name: f"privsql_let{i}_{name}" for name, _ in bars.shared}

        def outside(each: exp.Column) -> exp.Expr:
            let = lets.get(each.name)
            hidden = column(let or hidden_name(out.block, each.name))
            return hidden if let is None else exp.Paren(this=hidden)

        stderr, low, high, good = (with_columns(bars.own(f), outside) for f in FIELDS)
        shared = tuple((lets[name], self.exported(node, out.block)) for name, node in bars.shared)
        return Bars(stderr, low, high, good, why, shared)

    def bare(self, made: Compiled, doubt: exp.Expr | None = None) -> Compiled:
        """The query with nothing but its own columns; the first is NULL where there is a doubt."""
        if not made.hidden:
            return made
        outer = exp.Select().from_(_answer(made), copy=False)
        for i, out in enumerate(made.outs):
            value = column(SHOWN(i), "answer")
            define(outer, out.name, value if doubt is None or i else unless(doubt, value))
        result: exp.Expr = outer
        if isinstance(made.tree, exp.Subquery):
            result = copied(made.tree)
            result.set("this", outer)
        return Compiled(result, made.outs, [])

    def renamed(self, made: Compiled, node: exp.Expr) -> Compiled:
        """Apply the column names of ``AS t(a, b)``."""
        names = node.alias_column_names
        if not names:
            return made
        if not isinstance(made.tree, exp.Select):
            raise Unsupported("column names after an alias of this kind of query")
        shown, outs = list(made.tree.expressions), list(made.outs)
        for i, name in enumerate(names[: len(shown)]):
            shown[i] = named(shown[i].unalias(), name)
        for i, name in enumerate(names[: len(outs)]):
            outs[i] = replace(outs[i], name=name)
        made.tree.set("expressions", shown)
        return replace(made, outs=outs)


def _answer(made: Compiled) -> exp.Subquery:
    """A query as a source whose columns, shown and hidden, have names of ours."""
    tree = made.tree.this if isinstance(made.tree, exp.Subquery) else made.tree
    names = [SHOWN(i) for i in range(len(made.outs))] + made.hidden
    quoted = [exp.to_identifier(name, quoted=True) for name in names]
    alias = exp.TableAlias(this=exp.to_identifier("answer"), columns=quoted)
    return exp.Subquery(this=tree, alias=alias)
