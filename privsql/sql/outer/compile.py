"""A whole query: its blocks, and the SQL around them over their estimates.

Every SELECT over published rows becomes a block; in its place stands a SELECT over the
block's table of estimates, and everything around it stays the analyst's SQL.  Error bars are
carried along as columns that are not shown:

    SELECT * FROM (SELECT job, COUNT(*) FILTER (WHERE disease = 'flu') AS n FROM t GROUP BY job)
    SELECT * EXCLUDE (...)  FROM (SELECT key0 AS job, aggregate0 AS n, <error bars> FROM block0)

A column that is an expression over one block's estimates keeps that *definition*, so that
arithmetic further out is propagated with all covariances.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product

from sqlglot import exp

from privsql.sql.bind.block import Aggregate, Builder, Leaf
from privsql.sql.bind.comparisons import Constants
from privsql.sql.bind.unknown_values import about_conditions
from privsql.sql.catalog import Catalog, UnknownName
from privsql.sql.expressions import with_columns
from privsql.sql.nodes import (
    Unsupported,
    bare,
    column,
    columns_of,
    copied,
    define,
    derived,
    named,
    of_kind,
    place_of,
    sources_of,
)
from privsql.sql.outer.calculus import depends
from privsql.sql.outer.error_bars import realised
from privsql.sql.outer.frames import with_names
from privsql.sql.outer.parts import (
    MOST_PAIRED,
    Compiled,
    Out,
    Part,
    block_name,
    default_name,
    hidden_name,
    nodes_in,
    our_function,
    pairs_of,
)
from privsql.sql.outer.ratios import divisor, divisors, guard
from privsql.sql.outer.result import TWO_QUERIES, Showing
from privsql.sql.outer.select import Outer
from privsql.sql.outer.totals import NoTotal
from privsql.sql.parse.guard import check_question
from privsql.sql.reconstruct.columns import (
    AGGREGATE,
    BARS,
    CERTAIN,
    COVARIANCE,
    CRITICAL,
    EFFECTIVE,
    OBSERVED,
    WITH_TOTAL,
)


class Compiler:
    """Rewrites one query."""

    def __init__(
        self,
        catalog: Catalog,
        text: str,
        binds: Callable[[exp.Expr], bool] | None = None,
        constants: Constants | None = None,
    ) -> None:
        self._showing = Showing(catalog, text, self._query, binds, constants)
        self._outer = Outer(self._showing)
        self.parts, self.notices = self._showing.parts, self._showing.notices
        self._outermost: exp.Expr | None = None
        self._windows = False  # whether the statement has any
        self.counts: list[int] = []  # columns that are counts themselves

    # -- entry ------------------------------------------------------------------------

    def compile(self, tree: exp.Expr) -> Compiled:
        """Rewrite the query and show the error bars of its estimates as last columns."""
        check_question(tree, self._showing.text)
        # Nothing stands around the outermost SELECT: only the covariances it uses are needed.
        self._outermost = tree
        self._windows = tree.find(exp.Window) is not None
        made = self._query(tree)
        leaves = [part.leaf for part in self.parts]
        self.notices[:0] = about_conditions(leaves, self._showing.catalog, self._showing.read)
        self.counts = [i for i, out in enumerate(made.outs) if self._is_count(out)]
        for part in self.parts:
            self._note_domain(part)
        return self._showing.with_bars(made)

    def _is_count(self, out: Out) -> bool:
        """Whether a column is a count itself, which cannot be below zero."""
        if out.definition is None:
            return False
        own = _aggregate(self.parts[out.block], out.definition)
        return own is not None and own.call.name in ("count", "count_if")

    def _note_domain(self, part: Part) -> None:
        block = part.leaf.block
        listed = block.sensitive_keys and not block.aggregates
        if listed or any(a.kind == "domain" for a in block.aggregates):
            self._showing.notice(
                "domain", "values of sensitive columns are those of the public domain, not of rows"
            )

    # -- queries ----------------------------------------------------------------------

    def _query(self, node: exp.Expr) -> Compiled:
        clauses = ("order", "limit", "offset")
        if isinstance(node, exp.Subquery) and any(node.args.get(c) for c in clauses):
            # (SELECT ...) ORDER BY n LIMIT 1: the clauses belong to a SELECT around it.
            around = exp.Select(expressions=[exp.Star()]).from_(derived(node.this, "inner_query"))
            for clause in clauses:
                around.set(clause, node.args.get(clause))
            return self._query(around)
        if isinstance(node, exp.Subquery):
            made = self._query(node.this)
            outer = copied(node)
            outer.set("this", made.tree)
            return replace(made, tree=outer)
        with_ = node.args.get("with_")
        if with_ is None:
            return self._body(node)
        if with_.args.get("recursive"):
            raise Unsupported(
                "a recursive CTE",
                hint="write the query without RECURSIVE",
                place=place_of(with_, self._showing.text),
            )
        self._showing.ctes.append({})
        kept = []
        for cte in with_.expressions:
            if self._showing.catalog.is_published(cte.alias):
                raise Unsupported(
                    "a CTE with the name of the published table",
                    hint="give it another name",
                    place=place_of(cte.args["alias"], self._showing.text),
                )
            query = _with_names(cte)
            self._showing.ctes[-1][cte.alias.casefold()] = query
            if self._showing.sources.kind(query) == "rows":
                continue
            cte.set("this", query)
            made = self._query(cte.this)
            made = self._showing.renamed(made, cte)
            self._showing.compiled[id(cte.this)] = made
            own = copied(cte)
            own.set("this", made.tree)
            own.args["alias"].set("columns", None)
            kept.append(own)
        plain = copied(node)
        plain.set("with_", None)
        if node is self._outermost:
            self._outermost = plain
        # The copies of the body must find the CTEs that were compiled.
        made = self._body(plain)
        self._showing.ctes.pop()
        if kept:
            made.tree.set("with_", exp.With(expressions=kept))
        return made

    def _body(self, node: exp.Expr) -> Compiled:
        try:
            return self._any_body(node)
        except (Unsupported, UnknownName) as problem:
            # Whoever refused may not have known where it stood: here is where it was asked.
            if problem.place is None:
                problem.place = place_of(node, self._showing.text)
            if problem.hint is None:
                problem.hint = "docs/sql.md lists what is answered and what can be asked instead"
            raise

    def _any_body(self, node: exp.Expr) -> Compiled:
        for clause in ("limit", "offset"):
            part = node.args.get(clause)
            if isinstance(part, exp.Expr) and part.find(exp.Query) is not None:
                raise Unsupported(f"a sub-query in {clause.upper()}", hint="write the number")
        if isinstance(node, exp.Subquery):
            return self._query(node)
        if isinstance(node, exp.SetOperation):
            return self._set_operation(node)
        if isinstance(node, exp.Select):
            if "rows" in map(self._showing.sources.kind, sources_of(node)):
                return self._leaf(node)
            return self._outer.outer(node)
        raise Unsupported(f"{node.key.upper()} as a query")

    def _set_operation(self, node: exp.SetOperation) -> Compiled:
        left, right = self._query(node.left), self._query(node.right)
        made = copied(node)
        all_rows = isinstance(node, exp.Union) and node.args.get("distinct") is False
        estimates = [a.estimate or b.estimate for a, b in zip(left.outs, right.outs, strict=False)]
        if node.args.get("by_name"):
            raise Unsupported("UNION BY NAME", hint="list the columns in one order")
        why = "a set operation compares estimates"
        outs = [
            replace(a, estimate=e, definition=None, bars=(), why=why)
            for a, e in zip(left.outs, estimates, strict=False)
        ]
        hidden: list[str] = []
        if all_rows and any(estimates):
            left, right = (self._showing.shown(side, estimates) for side in (left, right))
            outs = [
                replace(out, bars=one.bars, why=one.why or two.why, ratio=one.ratio or two.ratio)
                for out, one, two in zip(outs, left.outs, right.outs, strict=True)
            ]
            hidden = left.hidden
        else:
            left, right = (self._showing.bare(side) for side in (left, right))
        made.set("this", left.tree)
        made.set("expression", right.tree)
        return Compiled(made, outs, hidden)

    # -- leaves -----------------------------------------------------------------------

    def _leaf(self, select: exp.Select) -> Compiled:
        showing = self._showing
        rows = showing.sources.rows(select)
        builder = Builder(showing.catalog, rows, showing.text, showing.is_public_query)
        leaf = builder.build(select)
        number = len(self.parts)
        part = self._part(leaf)
        self.parts.append(part)
        tree = copied(leaf.select)
        with_names(tree)
        known = part.estimates()
        uncertain = [AGGREGATE(i) for i in known]
        for node in nodes_in(tree, "expressions", "where", "qualify", "order", "windows"):
            self._inner(node, part)
        tree.from_(exp.to_table(block_name(number)), copy=False)
        filtered = tree.args.get("where") is not None
        outs = []
        projections = []
        for i, projection in enumerate(tree.expressions):
            inner = projection.unalias()
            name = leaf.names[i] or default_name(select.expressions[i])
            projections.append(named(inner, name))  # the same node: it is guarded below
            used = part.used(inner)
            part.pairs |= pairs_of(used)
            deep = self._showing.has_estimate_below(inner)
            definition, why = None, TWO_QUERIES if deep else ""
            if used and not deep:
                try:
                    definition = self._outer.with_totals(inner, part, filtered, lambda node: node)
                except NoTotal as problem:
                    why = str(problem)
            own = _aggregate(part, definition)
            if own is not None and own.kind == "mode":
                why = "the most frequent value is a choice, not a sum"
            ratio = bool(divisors(inner, uncertain)) or self._showing.divides_by_query(inner)
            estimate = bool(used) or deep
            out = Out(name, estimate, definition, number, why=why, ratio=ratio)
            outs.append(self._outer.made(out))
        for node in nodes_in(tree, "expressions", "where", "qualify", "order"):
            guard(node, lambda quotient: self._doubt(divisor(quotient), part, filtered))
        self._note_picking(tree, select, outs, uncertain)
        for node in nodes_in(tree, "where", "qualify"):
            self._showing.note_selected(node, any(depends(node, name) for name in uncertain))
        if self._showing.catalog.weighted and not leaf.block.aggregates:
            self._showing.notice("sampled", "the rows are a sample: rare values may be missing")
        tree.set("expressions", projections)
        hidden: list[str] = []
        inside = select is not self._outermost
        if inside and len(known) <= MOST_PAIRED:
            part.pairs |= pairs_of(known)
        part.pairs |= {(i, i) for i in known}
        if uncertain and not tree.args.get("distinct"):
            names = [family(i) for i in known for family in (AGGREGATE, *BARS.values(), EFFECTIVE)]
            names += [COVARIANCE(i, j) for i, j in sorted(part.pairs)]
            names += _class_totals(part) if self._windows and inside else []
            hidden = self._export(tree, number, [*names, CRITICAL, CERTAIN])
            hidden += self._outer.export_totals(tree, number, part)
            # Exact columns of a definition are constants in it, but it needs their values.
            definitions = [out.definition for out in outs if out.definition is not None]
            needed = dict.fromkeys(c.name for node in definitions for c in columns_of(node))
            more = [name for name in needed if hidden_name(number, name) not in hidden]
            hidden += self._export(tree, number, more)
        elif uncertain:
            why = "DISTINCT compares estimates"
            outs = [replace(out, definition=None, why=why) for out in outs]
        # An analyst's own alias aggregate0 must not be taken for the block's column in ORDER BY.
        for node in nodes_in(tree, "expressions", "where", "qualify", "order", "windows"):
            for each in columns_of(node):
                if not each.table:
                    each.set("table", exp.to_identifier(block_name(number)))
        whole = not nodes_in(tree, "where", "qualify", "limit", "offset", "distinct")
        return Compiled(tree, outs, hidden, whole)

    def _part(self, leaf: Leaf) -> Part:
        """A block with what its columns' mechanisms mean for its errors."""
        block = leaf.block
        columns = [self._showing.catalog.sensitive[name] for name in block.sensitive]
        entangled = any(each.mechanism in ("identity", "swap", "decoy") for each in columns)
        steady: frozenset[int] = frozenset()
        if self._showing.catalog.weighted:
            unmoved = all(getattr(each.channel, "retention", 0.0) == 1.0 for each in columns)
            public = not block.sensitive_keys

            def counts(aggregate: Aggregate) -> bool:
                pieces = [piece for k in aggregate.bases for piece in block.bases[k]]
                sensitive = any(piece.truths or piece.factor for piece in pieces)
                return public and aggregate.call.name == "count" and not sensitive

            steady = frozenset(i for i, a in enumerate(block.aggregates) if unmoved or counts(a))
        return Part(leaf, entangled=entangled, steady=steady)

    def _doubt(self, below: exp.Expr, part: Part, filtered: bool) -> exp.Expr | None:
        """Where a denominator of a leaf cannot be distinguished from zero."""
        used = part.used(below)
        if not used:
            return None
        try:
            definition = self._outer.with_totals(below, part, filtered, lambda node: node)
        except NoTotal:
            return None
        part.pairs |= pairs_of(used)
        made = self._outer.columns_of_totals(part)
        found = part.doubt(definition, made)
        return None if found is None else realised(found, made)

    def _note_picking(
        self, tree: exp.Select, select: exp.Select, outs: list[Out], uncertain: list[str]
    ) -> None:
        """Add the notice that the largest of many estimates is partly large by chance."""
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
                self._showing.notice(
                    "picked",
                    "rows selected by the size of an estimate are partly extreme by chance, so"
                    " their intervals cover the true value less often than stated; SET"
                    " privsql.simultaneous = true widens them",
                )

    @staticmethod
    def _export(tree: exp.Select, number: int, names: list[str]) -> list[str]:
        """Pass columns of a block on under hidden names."""
        for name in names:
            define(tree, hidden_name(number, name), column(name))
        return [hidden_name(number, name) for name in names]

    def _inner(self, node: exp.Expr, part: Part) -> None:
        """Within a leaf: our functions become error bars, sub-queries are compiled."""
        self._showing.subqueries(node)
        for each in of_kind(node, exp.Anonymous):
            field_ = our_function(each)
            if field_ is None:
                continue
            if len(each.expressions) != 1:
                raise Unsupported(f"privsql_{field_} takes one aggregate, or the alias of one")
            argument = each.expressions[0]
            used = part.used(argument)
            part.pairs |= pairs_of(used)
            if field_ == "observed":
                made = _observed(argument, used)
            else:
                made = part.bars(argument).written(field_)
            each.replace(exp.Paren(this=made))


def _observed(node: exp.Expr, used: list[int]) -> exp.Expr:
    """An expression over what aggregates are in the published table."""
    observed = {AGGREGATE(i): column(OBSERVED(i)) for i in used}
    return with_columns(node, lambda each: copied(observed.get(each.name, each)))


def _class_totals(part: Part) -> list[str]:
    """What windows further out need that add up all cells of sensitive keys."""
    block = part.leaf.block
    if len(block.sets) != 1 or not block.sensitive_keys:
        return []
    linear = [i for i in part.estimates() if block.aggregates[i].kind == "linear"]
    if len(linear) > MOST_PAIRED:
        return []
    sums = [j for j in linear if block.aggregates[j].call.name in ("count", "sum")]
    part.classes |= set(product(linear, sums))
    return [WITH_TOTAL(i, j) for i, j in product(linear, sums)]


def _aggregate(part: Part, definition: exp.Expr | None) -> Aggregate | None:
    """The aggregate that a column of a query is, and nothing else."""
    at = AGGREGATE.number(definition.name) if isinstance(definition, exp.Column) else None
    return None if at is None else part.leaf.block.aggregates[at]


def _with_names(cte: exp.Expr) -> exp.Expr:
    """The query of a CTE under the names that ``WITH c(a, b) AS`` gives its columns."""
    alias = cte.args["alias"]
    query: exp.Expr = cte.this
    if not alias.columns or not isinstance(query, exp.Select):
        return query
    made = copied(query)
    if len(alias.columns) > len(made.expressions) or any(p.is_star for p in made.expressions):
        raise Unsupported("column names after a CTE that selects a star", hint="list its columns")
    for i, name in enumerate(alias.columns):
        old = made.expressions[i]
        old.replace(named(copied(old.unalias()), name.name))
    alias.set("columns", None)
    return made
