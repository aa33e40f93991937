"""Error bars as columns, exported from blocks and passed through queries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sqlglot import exp

from privsql.errors import Notice
from privsql.sql.bind.comparisons import Constants
from privsql.sql.bind.from_clause import Sources
from privsql.sql.catalog import Catalog
from privsql.sql.nodes import (
    Unsupported,
    cast,
    choose,
    column,
    columns_of,
    derived,
    named,
    outermost,
)
from privsql.sql.outer import error_bars
from privsql.sql.outer.calculus import depends
from privsql.sql.outer.error_bars import FIELDS, Bars
from privsql.sql.outer.parts import Compiled, Out, Part, hidden_name
from privsql.sql.outer.ratios import divides_by, unless
from privsql.sql.reconstruct.columns import SHOWN

TWO_QUERIES = "the covariance of the estimates of two queries is not known"


def held_bars(out: Out, alias: str | None = None) -> Bars:
    """The error bars that a query holds in columns."""
    stderr, low, high, good = (column(name, alias) for name in out.bars)
    return Bars(stderr, low, high, good)


class Showing:
    """What every kind of query needs: notices, sub-queries, and columns for error bars."""

    def __init__(
        self,
        catalog: Catalog,
        text: str,
        query: Callable[[exp.Expr], Compiled],
        binds: Callable[[exp.Expr], bool] | None = None,
        constants: Constants | None = None,
    ) -> None:
        self.query = query  # rewrites any query
        self._binds = binds
        self.read = constants
        self.catalog = catalog
        self.text = text
        self.ctes: list[dict[str, exp.Expr]] = []
        self.compiled: dict[int, Compiled] = {}
        self.sources = Sources(catalog, self.lookup)
        self.parts: list[Part] = []
        self.notices: list[Notice] = []

    def notice(self, code: str, text: str) -> None:
        """Say something once."""
        notice = Notice(code, text)
        if notice not in self.notices:
            self.notices.append(notice)

    def lookup(self, name: str) -> exp.Expr | None:
        """The query of a CTE that is in sight."""
        for scope in reversed(self.ctes):
            if name.casefold() in scope:
                return scope[name.casefold()]
        return None

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
        return self._binds is None or self._binds(query)

    def note_selected(self, where: object, uncertain: list[str]) -> None:
        """Rows that were kept by comparing estimates are not all the rows that should be."""
        if not isinstance(where, exp.Expr):
            return
        if any(depends(where, name) for name in uncertain) or self.has_estimate_below(where):
            self.say_selected()

    def say_selected(self) -> None:
        """Say that rows were selected by estimates."""
        self.notice(
            "selected",
            "rows were kept or dropped by comparing estimates, which may be wrong for each row",
        )

    def lost(self, what: str, why: str) -> None:
        """Say that something has no error bar."""
        self.notice("no-error", f"{what} has no error bar: {why}")

    def has_estimate_below(self, node: exp.Expr) -> bool:
        """Whether a sub-query in an expression has estimates."""
        return any(
            any(out.estimate for out in made.outs)
            for query in outermost(node, lambda n: isinstance(n, exp.Query))
            if (made := self.compiled.get(id(query))) is not None
        )

    def subqueries(self, node: exp.Expr) -> None:
        """Compile scalar sub-queries where they stand."""
        for query in list(outermost(node, lambda n: isinstance(n, exp.Query))):
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
        holder = exp.Paren(this=node.copy())
        for each in list(columns_of(holder)):
            each.replace(column(hidden_name(block, each.name)))
        inner: exp.Expr = holder.this
        return inner

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
        select = exp.Select()
        source = made.tree if isinstance(made.tree, exp.Subquery) else None
        tree = source.this if source is not None else made.tree
        for i, out in enumerate(made.outs):
            choose(select, named(column(SHOWN(i), "answer"), out.name))
        names = [SHOWN(i) for i in range(len(made.outs))] + made.hidden
        hidden = []
        shared: list[exp.Expr] = []
        whys: dict[int, str] = {}
        for i, out in enumerate(made.outs):
            if not wanted[i]:
                continue
            fields: dict[str, exp.Expr]
            if out.bars:
                names_of = zip(FIELDS, out.bars, strict=True)
                fields = {f: column(held, "answer") for f, held in names_of}
            elif not out.estimate:
                exact = error_bars.exact(column(SHOWN(i), "answer"))
                fields = {f: exact.field(f) for f in FIELDS}
            else:
                bars = self.bars(out)
                whys[i] = out.why or bars.why
                if whys[i]:
                    self.lost(f"{out.name!r}", whys[i])
                fields = {f: self.exported(bars.field(f), out.block) for f in FIELDS}
                if bars.shared:
                    names_of_shared = {
                        hidden_name(out.block, name): column(f"privsql_let{i}_{name}")
                        for name, _ in bars.shared
                    }
                    shared += [
                        named(self.exported(node, out.block), f"privsql_let{i}_{name}")
                        for name, node in bars.shared
                    ]
                    fields = {f: error_bars.realised(n, names_of_shared) for f, n in fields.items()}
            for name, node in fields.items():
                hidden.append(f"privsql_bar{i}_{name}")
                kind = "BOOLEAN" if name == "reliable" else None
                shown = cast(node, kind) if kind else node
                choose(select, named(shown, hidden[-1]))
        alias = exp.TableAlias(
            this=exp.to_identifier("answer"),
            columns=[exp.to_identifier(n, quoted=True) for n in names],
        )
        source_ = exp.Subquery(this=tree, alias=alias)
        if shared:
            # What the error bars of one column share is worked out once.
            inner = exp.Select(expressions=[exp.Star(), *shared]).from_(source_, copy=False)
            source_ = derived(inner, "answer")
        select.from_(source_, copy=False)
        outs = [
            replace(
                out,
                definition=None,
                bars=tuple(f"privsql_bar{i}_{f}" for f in FIELDS) if wanted[i] else (),
                why=whys.get(i, out.why),
            )
            for i, out in enumerate(made.outs)
        ]
        return Compiled(select, outs, hidden)

    def bare(self, made: Compiled, doubt: exp.Expr | None = None) -> Compiled:
        """The query with nothing but its own columns; the first is NULL where there is a doubt."""
        if not made.hidden:
            return made
        tree = made.tree.this if isinstance(made.tree, exp.Subquery) else made.tree
        names = [SHOWN(i) for i in range(len(made.outs))] + made.hidden
        alias = exp.TableAlias(
            this=exp.to_identifier("answer"),
            columns=[exp.to_identifier(n, quoted=True) for n in names],
        )
        select = exp.Select().from_(exp.Subquery(this=tree, alias=alias), copy=False)
        for i, out in enumerate(made.outs):
            value: exp.Expr = column(SHOWN(i), "answer")
            if doubt is not None and i == 0:
                value = unless(doubt, value)
            choose(select, named(value, out.name))
        result: exp.Expr = select
        if isinstance(made.tree, exp.Subquery):
            result = made.tree.copy()
            result.set("this", select)
        return Compiled(result, made.outs, [])

    def renamed(self, made: Compiled, node: exp.Expr) -> Compiled:
        """Apply the column names of ``AS t(a, b)``."""
        alias = node.args.get("alias")
        names = [c.name for c in alias.columns] if alias is not None and alias.columns else []
        if not names:
            return made
        if isinstance(made.tree, exp.Select):
            made.tree.set(
                "expressions",
                [
                    named(p.this if isinstance(p, exp.Alias) else p, names[i])
                    if i < len(names)
                    else p
                    for i, p in enumerate(made.tree.expressions)
                ],
            )
        else:
            raise Unsupported("column names after an alias of this kind of query")
        outs = [
            replace(out, name=names[i]) if i < len(names) else out
            for i, out in enumerate(made.outs)
        ]
        return replace(made, outs=outs)
