"""A whole query: its blocks, and the SQL around them that reads their estimates.

Every SELECT over published rows becomes a block; in its place stands a SELECT over the
block's table of estimates, and everything around it stays the analyst's SQL.  Error bars are
carried along as columns that are not shown:

    SELECT * FROM (SELECT job, COUNT(*) FILTER (WHERE disease = 'flu') AS n FROM t GROUP BY job)
    SELECT * EXCLUDE (...)  FROM (SELECT k0 AS job, a0 AS n, <error bars> FROM block0)

A column that is an expression over one block's estimates keeps that *definition*, so that
arithmetic further out is propagated with all covariances.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from sqlglot import exp

from privsql.errors import Notice
from privsql.sql import bars as error_bars
from privsql.sql.bars import FIELDS, Bars, Covariance, bars_of, variance_of
from privsql.sql.block import OURS, VOLATILE, Builder, Leaf
from privsql.sql.calculus import depends
from privsql.sql.catalog import Catalog, UnknownName
from privsql.sql.rows import Sources
from privsql.sql.totals import Total, Translate, read_total
from privsql.sql.tree import (
    Unsupported,
    bare,
    cast,
    choose,
    column,
    columns_of,
    is_aggregate,
    name_of,
    named,
    outermost,
    place_of,
)
from privsql.sql.writing import ENOUGH_ROWS, deviation, wald

# An inner query passes the covariances of all its estimates on, if they are not more.
MOST_PAIRED = 8

# Columns of a block's table for estimate i.
PARTS = {"stderr": "s", "low": "l", "high": "u", "reliable": "ok"}


@dataclass(frozen=True)
class Out:
    """A column of a query: exact, or an estimate and how its error is known."""

    name: str
    estimate: bool = False
    definition: exp.Expr | None = None  # over the columns of one block
    block: int = -1
    bars: tuple[str, ...] = ()  # hidden columns that hold its error bars


@dataclass
class Compiled:
    """A query rewritten over blocks, with its columns."""

    tree: exp.Expr
    outs: list[Out]
    hidden: list[str] = field(default_factory=list)


@dataclass
class Part:
    """A block of the query: where it came from, and which covariances are wanted."""

    leaf: Leaf
    pairs: set[tuple[int, int]] = field(default_factory=set)
    classes: set[tuple[int, int]] = field(default_factory=set)  # covariances with class totals
    totals: dict[str, tuple[Total, Translate]] = field(default_factory=dict)
    totals_done: dict[str, tuple[Total, Translate]] = field(default_factory=dict)
    constants: dict[str, exp.Expr] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)

    def uncertain(self) -> list[str]:
        """Names of everything uncertain in the block's definitions."""
        return [f"a{i}" for i in self.estimates()] + [*self.totals, *self.totals_done]

    def estimates(self) -> list[int]:
        """Positions of aggregates that are estimates."""
        return [
            i
            for i, a in enumerate(self.leaf.block.aggregates)
            if a.kind in ("linear", "quantile", "mode")
        ]


class Compiler:
    """Rewrites one query."""

    def __init__(self, catalog: Catalog, text: str) -> None:
        self._catalog = catalog
        self._text = text
        self._ctes: list[dict[str, exp.Expr]] = []
        self._compiled: dict[int, Compiled] = {}
        self._sources = Sources(catalog, self._lookup)
        self.parts: list[Part] = []
        self.notices: list[Notice] = []
        self._outermost: exp.Expr | None = None
        self._constants: dict[str, exp.Expr] = {}

    # -- entry ------------------------------------------------------------------------

    def compile(self, tree: exp.Expr) -> Compiled:
        """Rewrite the query and show the error bars of its estimates as last columns."""
        for node in tree.walk():
            if name_of(node) in VOLATILE:
                raise Unsupported(
                    f"the volatile function {name_of(node)}()",
                    hint="an answer must not change when it is asked again",
                    place=place_of(node, self._text),
                )
        if not isinstance(tree, exp.Query):
            raise Unsupported(
                f"{tree.key.upper()} is not a question", hint="privsql answers SELECT"
            )
        # Nothing stands around the outermost SELECT: only the covariances it uses are needed.
        self._outermost = tree
        made = self._query(tree)
        return self._with_bars(made)

    def _notice(self, code: str, text: str) -> None:
        notice = Notice(code, text)
        if notice not in self.notices:
            self.notices.append(notice)

    def _lookup(self, name: str) -> exp.Expr | None:
        for scope in reversed(self._ctes):
            if name.casefold() in scope:
                return scope[name.casefold()]
        return None

    # -- queries ----------------------------------------------------------------------

    def _query(self, node: exp.Expr) -> Compiled:
        if isinstance(node, exp.Subquery):
            made = self._query(node.this)
            outer = node.copy()
            outer.set("this", made.tree)
            return replace(made, tree=outer)
        with_ = node.args.get("with_")
        if with_ is None:
            return self._body(node)
        if with_.args.get("recursive"):
            raise Unsupported("a recursive CTE", hint="write the query without RECURSIVE")
        self._ctes.append({})
        kept = []
        for cte in with_.expressions:
            self._ctes[-1][cte.alias.casefold()] = cte.this
            if self._sources.kind(cte.this) == "rows":
                continue
            made = self._query(cte.this)
            made = self._renamed(made, cte)
            self._compiled[id(cte.this)] = made
            copied = cte.copy()
            copied.set("this", made.tree)
            copied.set("alias", exp.TableAlias(this=cte.args["alias"].this.copy()))
            kept.append(copied)
        plain = node.copy()
        plain.set("with_", None)
        if node is self._outermost:
            self._outermost = plain
        # The copies of the body must find the CTEs that were compiled.
        made = self._body(plain)
        self._ctes.pop()
        if kept:
            made.tree.set("with_", exp.With(expressions=kept))
        return made

    def _renamed(self, made: Compiled, node: exp.Expr) -> Compiled:
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

    def _body(self, node: exp.Expr) -> Compiled:
        if isinstance(node, exp.Subquery):
            return self._query(node)
        if isinstance(node, exp.SetOperation):
            return self._set_operation(node)
        if isinstance(node, exp.Select):
            kinds = [self._sources.kind(source) for source in self._sources.sources(node)]
            if "rows" in kinds:
                return self._leaf(node)
            return self._outer(node)
        raise Unsupported(f"{node.key.upper()} as a query")

    def _set_operation(self, node: exp.SetOperation) -> Compiled:
        left, right = self._query(node.left), self._query(node.right)
        made = node.copy()
        all_rows = isinstance(node, exp.Union) and node.args.get("distinct") is False
        estimates = [a.estimate or b.estimate for a, b in zip(left.outs, right.outs, strict=False)]
        if node.args.get("by_name"):
            raise Unsupported("UNION BY NAME", hint="list the columns in one order")
        outs = [
            replace(a, estimate=e, definition=None, bars=())
            for a, e in zip(left.outs, estimates, strict=False)
        ]
        hidden: list[str] = []
        if all_rows and any(estimates):
            left, right = (self._shown(side, estimates) for side in (left, right))
            outs = [
                replace(out, bars=shown.bars) for out, shown in zip(outs, left.outs, strict=True)
            ]
            hidden = left.hidden
        else:
            left, right = (self._bare(side) for side in (left, right))
            if any(estimates):
                self._lost("a set operation that compares estimates")
        made.set("this", left.tree)
        made.set("expression", right.tree)
        return Compiled(made, outs, hidden)

    def _lost(self, what: str) -> None:
        self._notice("no-error", f"{what} has no error bar: the covariance is not at hand")

    # -- leaves -----------------------------------------------------------------------

    def _leaf(self, select: exp.Select) -> Compiled:
        rows = self._sources.rows(select)
        leaf = Builder(self._catalog, rows, self._text, self._sources.kind).build(select)
        number = len(self.parts)
        part = Part(leaf)
        self.parts.append(part)
        tree = leaf.select.copy()
        uncertain = [f"a{i}" for i in part.estimates()]
        for clause in ("expressions", "where", "qualify", "order", "windows"):
            self._inner(tree.args.get(clause), part, uncertain)
        tree.from_(exp.to_table(f"block{number}"), copy=False)
        outs = []
        projections = []
        for i, projection in enumerate(tree.expressions):
            inner = projection.this if isinstance(projection, exp.Alias) else projection
            name = leaf.names[i] or default_name(select.expressions[i])
            projections.append(named(inner, name))
            used = [name for name in uncertain if any(c.name == name for c in columns_of(inner))]
            for one in used:
                for two in used:
                    part.pairs.add((int(one[1:]), int(two[1:])))
            deep = self._has_estimate_below(inner)
            definition = None
            if used and not deep:
                filtered = tree.args.get("where") is not None
                definition = self._with_totals(inner, part, filtered, lambda node: node)
            outs.append(Out(name, bool(used) or deep, definition, number))
        self._note_picking(tree, select, outs, uncertain)
        tree.set("expressions", projections)
        hidden: list[str] = []
        known = part.estimates()
        part.pairs |= {(i, i) for i in known}
        if select is not self._outermost and len(known) <= MOST_PAIRED:
            part.pairs |= {(i, j) for i in known for j in known}
        if uncertain and not tree.args.get("distinct"):
            for i in part.estimates():
                for name in (f"a{i}", f"s{i}", f"l{i}", f"u{i}", f"ok{i}", f"e{i}"):
                    hidden.append(self._export(tree, number, name))
            for i, j in sorted({(min(p), max(p)) for p in part.pairs}):
                hidden.append(self._export(tree, number, f"c{i}_{j}"))
            hidden.append(self._export(tree, number, "z"))
            hidden.append(self._export(tree, number, "certain"))
            hidden += self._export_totals(tree, number, part)
            # Exact columns of a definition are constants in it, but it needs their values.
            for name in dict.fromkeys(
                c.name
                for out in outs
                if out.definition is not None
                for c in columns_of(out.definition)
            ):
                if hidden_name(number, name) not in hidden:
                    hidden.append(self._export(tree, number, name))
        elif uncertain:
            outs = [replace(out, definition=None) for out in outs]
            self._lost("DISTINCT over estimates")
        return Compiled(tree, outs, hidden)

    def _with_totals(
        self, node: exp.Expr, part: Part, filtered: bool, translate: Translate
    ) -> exp.Expr | None:
        """A definition in which windows are variables of their own, or None."""
        holder = exp.Paren(this=node.copy())
        known = part.estimates()
        for window in list(outermost(holder, lambda n: isinstance(n, exp.Window))):
            if not any(depends(window, f"a{i}") for i in known):
                name = f"y{len(part.constants)}"
                part.constants[name] = translate(window)
            else:
                name = f"w{len(part.totals)}"
                block = part.leaf.block
                total = read_total(window, name, block, known, filtered)  # type: ignore[arg-type]
                if total is None:
                    return None
                part.totals[name] = (total, translate)
                part.pairs |= {(i, j) for i in total.slopes for j in total.slopes}
            window.replace(column(name))
        inner: exp.Expr = holder.this
        used = {c.name for c in columns_of(inner)}
        for name in used & set(part.totals):
            for i in (i for i in known if f"a{i}" in used):
                part.pairs |= {(i, j) for j in part.totals[name][0].slopes}
        return inner

    def _export_totals(self, tree: exp.Select, number: int, part: Part) -> list[str]:
        """Totals, their covariances with everything, and constants that are windows."""
        made: dict[str, exp.Expr] = dict(part.constants)
        for name, (total, translate) in part.totals.items():
            made[name] = translate(total.window)
            made[f"e{name}"] = translate(total.effective())
            for i in part.estimates():
                if all((min(i, j), max(i, j)) in _ordered(part.pairs) for j in total.slopes):
                    made[f"c{name}_a{i}"] = translate(total.with_estimate(i))
            for other, (second, _) in part.totals.items():
                both = total.with_total(second)
                if name <= other and both is not None:
                    made[f"c{name}_{other}"] = translate(both)
            if total.classes:
                part.classes |= {(i, j) for i in part.estimates() for j in total.slopes}
        exported = []
        for name, node in made.items():
            exported.append(hidden_name(number, name))
            tree.append("expressions", named(node, exported[-1]))
        part.exported |= set(made)
        part.constants, part.totals_done = {}, {**part.totals_done, **part.totals}
        part.totals = {}
        return exported

    def _note_picking(
        self, tree: exp.Select, select: exp.Select, outs: list[Out], uncertain: list[str]
    ) -> None:
        """The largest of many estimates is large by chance too: say so."""
        if tree.args.get("limit") is None or tree.args.get("order") is None:
            return
        for ordered in tree.args["order"].expressions:
            node = bare(ordered.this)
            if isinstance(node, exp.Literal) and not node.is_string:
                at = int(node.this) - 1
                hit = 0 <= at < len(outs) and outs[at].estimate
            else:
                hit = any(depends(node, name) for name in uncertain)
            if hit:
                self._notice(
                    "picked",
                    "rows picked by the size of an estimate are extreme by chance too, so their"
                    " intervals hold the truth less often than they say;"
                    " SET privsql.simultaneous = true widens them",
                )

    @staticmethod
    def _export(tree: exp.Select, number: int, name: str) -> str:
        exported = hidden_name(number, name)
        tree.append("expressions", named(column(name), exported))
        return exported

    def _has_estimate_below(self, node: exp.Expr) -> bool:
        return any(
            made is not None and any(out.estimate for out in made.outs)
            for query in outermost(node, lambda n: isinstance(n, exp.Query))
            if (made := self._compiled.get(id(query))) is not None
        )

    def _inner(self, clause: object, part: Part, uncertain: list[str]) -> None:
        """Within a leaf: our functions become error bars, sub-queries are compiled."""
        for node in clause if isinstance(clause, list) else [clause]:
            if not isinstance(node, exp.Expr):
                continue
            self._subqueries(node)
            for each in list(node.find_all(exp.Anonymous)):
                field_ = our_function(each)
                if field_ is None:
                    continue
                if len(each.expressions) != 1:
                    raise Unsupported(f"privsql_{field_} takes one aggregate, or the alias of one")
                argument = each.expressions[0]
                used = [
                    name for name in uncertain if any(c.name == name for c in columns_of(argument))
                ]
                for one in used:
                    for two in used:
                        part.pairs.add((int(one[1:]), int(two[1:])))
                if field_ == "observed":
                    made = argument.copy()
                    holder = exp.Paren(this=made)
                    for c in list(columns_of(holder)):
                        if c.name in used:
                            c.replace(column("seen" + c.name[1:]))
                    each.replace(holder)
                    continue
                each.replace(exp.Paren(this=block_bars(argument, uncertain).field(field_)))

    def _subqueries(self, node: exp.Expr) -> None:
        """Compile scalar sub-queries where they stand."""
        for query in list(outermost(node, lambda n: isinstance(n, exp.Query))):
            made = self._bare(self._query(query))
            if query is node:
                continue
            query.replace(made.tree)
            self._compiled[id(made.tree)] = made
            if len(made.outs) == 1 and made.outs[0].estimate:
                self._lost("arithmetic with the answer of a sub-query that is an estimate")

    # -- outer queries ----------------------------------------------------------------

    def _outer(self, select: exp.Select) -> Compiled:
        """A SELECT over answers and public tables."""
        tree = select.copy()
        items: list[tuple[str, Compiled | None]] = []
        # The copy's sources must keep the identity by which CTEs are found.
        originals = self._sources.sources(select)
        copies = self._sources.sources(tree)
        for original, source in zip(originals, copies, strict=True):
            items.append(self._item(original, source))
        for clause in ("expressions", "where", "group", "having", "qualify", "order"):
            part = tree.args.get(clause)
            for node in part if isinstance(part, list) else [part]:
                if isinstance(node, exp.Expr):
                    self._subqueries(node)
        hidden = [name for _, made in items if made is not None for name in made.hidden]
        repeated = {name for name in hidden if hidden.count(name) > 1}
        columns = _Columns(items, repeated)
        grouped = bool(
            tree.args.get("group")
            or tree.args.get("distinct")
            or any(next(outermost(p, _is_plain_aggregate), None) for p in tree.expressions)
        )
        for clause in ("where", "having", "qualify", "order"):
            part = tree.args.get(clause)
            if isinstance(part, exp.Expr):
                self._replace_ours(part, columns)
        outs: list[Out] = []
        projections: list[exp.Expr] = []
        for projection in tree.expressions:
            self._replace_ours(projection, columns)
            if projection.is_star:
                projections.append(_star_without(projection, hidden))
                outs += columns.star(projection)
                continue
            inner = projection.this if isinstance(projection, exp.Alias) else projection
            out = self._out(inner, projection, columns, grouped)
            outs.append(out)
            projections.append(projection)
        tree.set("expressions", projections)
        if grouped:
            self._constants = {}
            outs = [replace(out, definition=None, bars=()) for out in outs]
            return self._aggregated(tree, outs, columns)
        kept = [name for name in dict.fromkeys(hidden) if name not in repeated]
        for name, node in self._constants.items():
            tree.append("expressions", named(node, name))
        for alias, made in items:
            for name in made.hidden if made is not None else ():
                if name in kept:
                    tree.append("expressions", named(column(name, alias or None), name))
        hidden = [*self._constants, *kept]
        self._constants = {}
        for number, each in enumerate(self.parts):
            if each.totals or each.constants:
                hidden += self._export_totals(tree, number, each)
        return Compiled(tree, outs, hidden)

    def _aggregated(self, tree: exp.Select, outs: list[Out], columns: _Columns) -> Compiled:
        """Sums and averages over the rows of an answer keep their error, others lose it.

        Rows with different public keys stand for different people, so variances add up; the
        cells of a sensitive key do not, and rows of a join may repeat.
        """
        hidden: list[str] = []
        for i, out in enumerate(outs):
            if not out.estimate:
                continue
            projection = tree.expressions[i]
            inner = bare(projection.this if isinstance(projection, exp.Alias) else projection)
            fields = self._sum_bars(inner, columns) if not tree.args.get("distinct") else None
            if fields is None:
                self._lost(f"{out.name!r}")
                continue
            names = tuple(f"privsql_sum{len(self.parts)}_{i}_{f}" for f in FIELDS)
            for name, node in zip(names, fields, strict=True):
                tree.append("expressions", named(node, name))
            outs[i] = replace(out, bars=names)
            hidden += names
        return Compiled(tree, outs, hidden)

    def _sum_bars(self, node: exp.Expr, columns: _Columns) -> tuple[exp.Expr, ...] | None:
        if not columns.alone or not isinstance(node, exp.Sum | exp.Avg):
            return None
        hit = columns.find(bare(node.this)) if isinstance(bare(node.this), exp.Column) else None
        if hit is None or hit[1].definition is None:
            return None
        out = hit[1]
        part = self.parts[out.block]
        block = part.leaf.block
        if len(block.sets) != 1 or any(key.sensitive for key in block.keys):
            return None
        known = part.uncertain()
        definition = out.definition
        spread = variance_of(definition, known, block_covariance(part.exported))
        if spread is None or any(depends(definition, name) for name in part.totals_done):
            return None
        error: exp.Expr = exp.Sqrt(this=exp.Sum(this=self._exported(spread, out.block)))
        if isinstance(node, exp.Avg):
            below = exp.Count(this=node.this.copy())
            error = exp.Div(this=error, expression=below, typed=False, safe=False)
        z = exp.Max(this=column(hidden_name(out.block, "z")))
        half = exp.Paren(this=exp.Mul(this=z, expression=error))
        used = [name for name in known if depends(definition, name)]
        rows = [column(hidden_name(out.block, effective_name(name))) for name in used]
        least = rows[0] if len(rows) == 1 else exp.Least(this=rows[0], expressions=rows[1:])
        sure = exp.Anonymous(
            this="bool_and", expressions=[column(hidden_name(out.block, "certain"))]
        )
        enough = exp.GTE(this=exp.Min(this=least), expression=exp.Literal.number(ENOUGH_ROWS))
        return (
            error.copy(),
            exp.Sub(this=node.copy(), expression=half),
            exp.Add(this=node.copy(), expression=half.copy()),
            exp.Or(this=exp.Paren(this=enough), expression=sure),
        )

    def _item(self, original: exp.Expr, source: exp.Expr) -> tuple[str, Compiled | None]:
        alias = source.alias_or_name
        if isinstance(source, exp.Table):
            cte = None if source.db else self._lookup(source.name)
            if cte is None:
                if not isinstance(source.this, exp.Identifier):
                    raise Unsupported(
                        "a table function in FROM", hint="query the published table or a public one"
                    )
                name = self._catalog.public_table(source.name)
                if name is None:
                    raise UnknownName(
                        f"there is no table {source.name!r}",
                        hint=f"the published table is {self._catalog.table!r}",
                        place=place_of(original, self._text),
                    )
                return alias, None
            return alias, self._compiled.get(id(cte))
        if isinstance(source, exp.Subquery):
            made = self._query(source.this)
            source.set("this", made.tree)
            if (a := source.args.get("alias")) is not None and a.columns:
                made = self._renamed(made, source)
                source.set("this", made.tree)
                source.set("alias", exp.TableAlias(this=a.this.copy()))
            if not alias:
                alias = f"privsql_unnamed{len(self.parts)}"
                source.set("alias", exp.TableAlias(this=exp.to_identifier(alias)))
            return alias, made
        if isinstance(source, exp.Values):
            return alias, None
        raise Unsupported(f"{source.key.upper()} in FROM")

    def _out(self, inner: exp.Expr, projection: exp.Expr, columns: _Columns, grouped: bool) -> Out:
        name = projection.alias_or_name or default_name(projection)
        found = [columns.find(c) for c in columns_of(inner)]
        uncertain = [out for out in found if out is not None and out[1].estimate]
        deep = self._has_estimate_below(inner)
        if not uncertain and not deep:
            return Out(name)
        plain = bare(inner)
        if isinstance(plain, exp.Column) and uncertain and not grouped:
            return replace(uncertain[0][1], name=name)
        blocks = {(item, out.block) for item, out in uncertain}
        defined = all(out.definition is not None for _, out in uncertain)
        if deep or grouped or not defined or len(blocks) != 1:
            if not grouped:
                self._lost(f"{name!r}")
            return Out(name, True)
        holder = exp.Paren(this=plain.copy())
        block = uncertain[0][1].block
        for each in list(columns_of(holder)):
            hit = columns.find(each)
            if hit is not None and hit[1].estimate and hit[1].definition is not None:
                each.replace(exp.Paren(this=hit[1].definition.copy()))
            else:
                # A constant of the row: its value must be at hand where the error is.
                known = f"x{len(self._constants)}"
                self._constants[hidden_name(block, known)] = each.copy()
                each.replace(column(known))
        part = self.parts[block]
        definition: exp.Expr | None = bare(holder)
        if next(outermost(holder, lambda n: isinstance(n, exp.Window)), None) is not None:
            # Joined rows may repeat; the rows of one answer alone are what its block says.
            sensitive = any(key.sensitive for key in part.leaf.block.keys)
            definition = None
            if columns.alone and not sensitive:
                outside = self._outside(block)
                definition = self._with_totals(bare(holder), part, True, outside)
        names = {f"a{i}" for i in part.estimates()}
        used = sorted(int(c.name[1:]) for c in columns_of(holder) if c.name in names)
        pairs = _ordered(part.pairs)
        if definition is None or any(
            (i, j) not in pairs for n, i in enumerate(used) for j in used[n:]
        ):
            self._lost(f"{name!r}")
            return Out(name, True)
        return Out(name, True, definition, block)

    def _outside(self, block: int) -> Translate:
        """Columns of a block, and constants of the row, as an outer SELECT names them."""
        constants = dict(self._constants)

        def translate(node: exp.Expr) -> exp.Expr:
            holder = exp.Paren(this=node.copy())
            for each in list(columns_of(holder)):
                name = hidden_name(block, each.name)
                each.replace(constants[name].copy() if name in constants else column(name))
            inner: exp.Expr = holder.this
            return inner

        return translate

    def _replace_ours(self, node: exp.Expr, columns: _Columns) -> None:
        for each in list(node.find_all(exp.Anonymous)):
            field_ = our_function(each)
            if field_ is None:
                continue
            argument = bare(each.expressions[0]) if each.expressions else None
            hit = columns.find(argument) if isinstance(argument, exp.Column) else None
            if hit is None:
                raise Unsupported(
                    f"privsql_{field_} of this expression", hint="give it the alias of an aggregate"
                )
            out = hit[1]
            if field_ == "observed" or not out.estimate:
                raise Unsupported(f"privsql_{field_} outside of the query that aggregates")
            if out.definition is None:
                each.replace(exp.Paren(this=error_bars.none().field(field_)))
                continue
            made = self._bars(out).field(field_)
            each.replace(exp.Paren(this=self._exported(made, out.block)))

    def _exported(self, node: exp.Expr, block: int) -> exp.Expr:
        """Columns of a block as the hidden columns under which they are exported."""
        holder = exp.Paren(this=node.copy())
        for each in list(columns_of(holder)):
            each.replace(column(hidden_name(block, each.name)))
        inner: exp.Expr = holder.this
        return inner

    # -- error bars as columns --------------------------------------------------------

    def _bars(self, out: Out) -> Bars:
        if out.definition is None:
            return error_bars.none()
        part = self.parts[out.block]
        return block_bars(out.definition, part.uncertain(), part.exported)

    def _with_bars(self, made: Compiled) -> Compiled:
        """The query with four columns for each estimate, and nothing else hidden."""
        if not any(out.estimate for out in made.outs):
            return self._bare(made)
        return self._shown(made, [out.estimate for out in made.outs])

    def _shown(self, made: Compiled, wanted: list[bool]) -> Compiled:
        select = exp.Select()
        source = made.tree if isinstance(made.tree, exp.Subquery) else None
        tree = source.this if source is not None else made.tree
        for i, out in enumerate(made.outs):
            choose(select, named(column(f"c{i}", "answer"), out.name))
        names = [f"c{i}" for i in range(len(made.outs))] + made.hidden
        hidden = []
        for i, out in enumerate(made.outs):
            if not wanted[i]:
                continue
            fields: dict[str, exp.Expr]
            if out.bars:
                names_of = zip(FIELDS, out.bars, strict=True)
                fields = {f: column(held, "answer") for f, held in names_of}
            elif not out.estimate:
                exact = error_bars.exact(column(f"c{i}", "answer"))
                fields = {f: exact.field(f) for f in FIELDS}
            else:
                bars = self._bars(out)
                if not bars.known:
                    self._lost(f"{out.name!r}")
                fields = {f: self._exported(bars.field(f), out.block) for f in FIELDS}
            for name, node in fields.items():
                hidden.append(f"privsql_bar{i}_{name}")
                kind = "BOOLEAN" if name == "reliable" else None
                shown = cast(node, kind) if kind else node
                choose(select, named(shown, hidden[-1]))
        alias = exp.TableAlias(
            this=exp.to_identifier("answer"),
            columns=[exp.to_identifier(n, quoted=True) for n in names],
        )
        select = select.from_(exp.Subquery(this=tree, alias=alias))
        outs = [
            replace(
                out,
                definition=None,
                bars=tuple(f"privsql_bar{i}_{f}" for f in FIELDS) if wanted[i] else (),
            )
            for i, out in enumerate(made.outs)
        ]
        return Compiled(select, outs, hidden)

    def _bare(self, made: Compiled) -> Compiled:
        """The query with nothing but its own columns."""
        if not made.hidden:
            return made
        tree = made.tree.this if isinstance(made.tree, exp.Subquery) else made.tree
        names = [f"c{i}" for i in range(len(made.outs))] + made.hidden
        alias = exp.TableAlias(
            this=exp.to_identifier("answer"),
            columns=[exp.to_identifier(n, quoted=True) for n in names],
        )
        select = exp.Select().from_(exp.Subquery(this=tree, alias=alias))
        for i, out in enumerate(made.outs):
            choose(select, named(column(f"c{i}", "answer"), out.name))
        result: exp.Expr = select
        if isinstance(made.tree, exp.Subquery):
            result = made.tree.copy()
            result.set("this", select)
        return Compiled(result, made.outs, [])


class _Columns:
    """The columns that an outer SELECT can name."""

    def __init__(self, items: list[tuple[str, Compiled | None]], repeated: set[str]) -> None:
        self._items = items
        self._repeated = repeated
        self.alone = len(items) == 1

    def find(self, node: exp.Column) -> tuple[str, Out] | None:
        """The answer's column of this name, with the alias of its query."""
        for alias, made in self._items:
            if made is None or (node.table and node.table.casefold() != alias.casefold()):
                continue
            for out in made.outs:
                if out.name.casefold() == node.name.casefold():
                    if set(made.hidden) & self._repeated:
                        return alias, replace(out, definition=None)
                    return alias, out
        return None

    def star(self, node: exp.Expr) -> list[Out]:
        """What a star stands for, as far as it is answers."""
        table = node.table if isinstance(node, exp.Column) else ""
        star = node.this if isinstance(node, exp.Column) else node
        if star.args.get("replace") or star.args.get("rename"):
            raise Unsupported(
                "a star with REPLACE or RENAME over an answer", hint="list the columns"
            )
        without = {_excluded(e) for e in star.args.get("except_") or star.args.get("except") or ()}
        found: list[Out] = []
        for alias, made in self._items:
            if table and alias.casefold() != table.casefold():
                continue
            if made is None:
                raise Unsupported(
                    "a star over a public table joined with an answer", hint="list the columns"
                )
            found += [out for out in made.outs if out.name.casefold() not in without]
        return found


def _excluded(node: exp.Expr) -> str:
    return node.name.casefold()


def _star_without(node: exp.Expr, hidden: list[str]) -> exp.Expr:
    made = node.copy()
    star = made.this if isinstance(made, exp.Column) else made
    key = "except_" if "except_" in exp.Star.arg_types else "except"
    already = list(star.args.get(key) or ())
    names = list(dict.fromkeys(hidden))
    star.set(key, already + [exp.to_identifier(name, quoted=True) for name in names] or None)
    return made


def _is_plain_aggregate(node: exp.Expr) -> bool:
    return is_aggregate(node) and not isinstance(node.parent, exp.Window)


def hidden_name(block: int, name: str) -> str:
    """Under which name a block's column passes through outer queries."""
    return f"privsql_b{block}_{name}"


def our_function(node: exp.Expr) -> str | None:
    """``stderr`` for ``privsql_stderr(...)`` and so on, None for other functions."""
    name = name_of(node)
    short = name.removeprefix("privsql_")
    return short if short != name and short in OURS else None


def block_bars(node: exp.Expr, uncertain: list[str], exported: set[str] | None = None) -> Bars:
    """Error bars of an expression over the columns of one block's table."""

    def own(name: str) -> Bars:
        if name.startswith("w"):
            spread = deviation(column(f"c{name}_{name}"))
            value = column(name)
            bars = Bars(spread, *wald(value, spread, column(f"e{name}")))
            return error_bars.unless_certain(value, bars)
        s, low, high, good = (column(letter + name[1:]) for letter in PARTS.values())
        return Bars(s, low, high, good)

    covariance = block_covariance(exported)
    return bars_of(node, uncertain, own, covariance, lambda name: column(effective_name(name)))


def block_covariance(exported: set[str] | None) -> Covariance:
    """Covariances of a block's estimates and totals by the columns that hold them."""

    def covariance(one: str, two: str) -> exp.Expr | None:
        if one.startswith("a") and two.startswith("a"):
            i, j = sorted((int(one[1:]), int(two[1:])))
            return column(f"c{i}_{j}")
        # A total is named before an estimate, and totals in their own order.
        first, second = sorted((one, two), key=lambda name: (name[0] != "w", name))
        shared = f"c{first}_{second}"
        return column(shared) if exported is None or shared in exported else None

    return covariance


def effective_name(name: str) -> str:
    """The column with an estimate's effective rows."""
    return f"e{name}" if name.startswith("w") else f"e{name[1:]}"


def _ordered(pairs: set[tuple[int, int]]) -> set[tuple[int, int]]:
    return {(min(pair), max(pair)) for pair in pairs}


def default_name(node: exp.Expr) -> str:
    """The name that DuckDB would give a column; the final ones are asked of DuckDB itself."""
    if isinstance(node, exp.Count) and isinstance(node.this, exp.Star):
        return "count_star()"
    return node.sql("duckdb", normalize_functions="lower")


def walk_tables(tree: exp.Expr) -> Iterator[exp.Table]:
    """All tables that a tree still names."""
    yield from tree.find_all(exp.Table)
