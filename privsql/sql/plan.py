"""The plan of a query: for each block a scan and a reconstruction, and the SQL around them.

    block   ── states ──> cells and channels of its sensitive columns
            ── scan ────> SQL for the engine that holds the published table
            ── steps ───> SQL that turns the scan's result into the block's table

Everything is printed with its values bound.  What happens between the two halves (may this
be answered at all?) is not decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from sqlglot import exp

from privsql.errors import Error, NotSupportedError, Place, ProgrammingError, TooLargeError
from privsql.sql.block import Block
from privsql.sql.catalog import PUBLISHED, Catalog
from privsql.sql.compiled import Compiled, Part, block_name, our_function
from privsql.sql.membership import masked, membership
from privsql.sql.moments import MANY_ROWS, Moments
from privsql.sql.reconstruct import Step, Writer
from privsql.sql.scan import ADDITIVE, StateScan, exact_scan
from privsql.sql.states import Planner, States
from privsql.sql.tree import (
    Unsupported,
    cast,
    column,
    columns_of,
    derived,
    every,
    named,
    place_of,
    sql,
    table,
)


class FanOut(Unsupported):
    """A join that would count published rows several times."""

    code = "fan-out"


@dataclass(frozen=True)
class Printed:
    """A statement and the values bound in it."""

    sql: str
    parameters: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class BlockPlan:
    """One block: what to scan, what to load beside it, how to reconstruct."""

    prefix: str
    block: Block
    scan: Printed
    beside: Printed | None = None  # a second scan, for exact aggregates that need their own
    tables: Mapping[str, pa.Table] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    states: States | None = None


@dataclass(frozen=True)
class Parameters:
    """Values for ``?``, ``$1`` and ``:name``, by the name that the tree has for them."""

    values: Mapping[str, object]

    def bind(self, tree: exp.Expr) -> Printed:
        """Print a tree, which is used up, and find the values of its parameters."""
        if not self.values:
            return Printed(tree.sql("duckdb", copy=False))
        used = {str(node.this) for node in tree.find_all(exp.Placeholder)}
        return Printed(tree.sql("duckdb", copy=False), {name: self.values[name] for name in used})


def read_parameters(
    tree: exp.Expr, given: Sequence[object] | Mapping[str, object] | None
) -> Parameters:
    """Name every placeholder of the tree, in place, and find its value."""
    values: dict[str, object] = {}
    position = 0
    for node in tree.find_all(exp.Placeholder, exp.Parameter):
        text = "" if node.this is None else str(getattr(node.this, "name", node.this))
        if not text:
            position += 1
            text = str(position)
        if text.isdigit():
            at = int(text) - 1
            if isinstance(given, Mapping) or given is None or at >= len(given):
                raise ProgrammingError(
                    f"the statement has a parameter {int(text)}, for which no value was given",
                    hint="give a sequence with one value for each parameter",
                )
            values[f"p{text}"] = given[at]
            name = f"p{text}"
        else:
            if not isinstance(given, Mapping) or text not in given:
                raise ProgrammingError(
                    f"the statement has a parameter {text!r}, for which no value was given",
                    hint="give a mapping from names to values",
                )
            name = f"n_{text}"
            values[name] = given[text]
        node.replace(exp.Placeholder(this=name))
    count = len(given) if given is not None else 0
    if count != len(values):
        raise ProgrammingError(f"the statement takes {len(values)} parameters; {count} were given")
    return Parameters(values)


class PlanWriter:
    """Plans the blocks of one query."""

    def __init__(
        self,
        catalog: Catalog,
        parameters: Parameters,
        run: Callable[[Printed], pa.Table],
        domain: Callable[[str], str],
        iterative: bool = False,
        strategy: str | None = None,  # "states" or "moments"; otherwise by cost
    ) -> None:
        self._catalog = catalog
        self._parameters = parameters
        self._run = run
        self._domain = domain
        self._iterative = iterative
        self._strategy = strategy

    def _check_unique(self, block: Block) -> None:
        """A join that multiplies published rows correlates them: refuse it.

        The rows of one person would count several times, and intervals would be too narrow.
        """
        for join in block.rows.joins:
            theirs = [node.copy() for _, node in join.on]
            known = every(
                exp.Not(this=exp.Is(this=n.copy(), expression=exp.Null())) for n in theirs
            )
            source = join.table.copy()
            source.set("alias", exp.TableAlias(this=exp.to_identifier(join.alias, quoted=True)))
            counted = exp.Select(expressions=[named(exp.Count(this=exp.Star()), "many")])
            counted.from_(source, copy=False).group_by(*theirs, copy=False)
            counted.set("where", exp.Where(this=known))
            worst = exp.Select(expressions=[exp.Max(this=column("many"))])
            worst.from_(derived(counted, "keys"), copy=False)
            (most,) = self._run(self._parameters.bind(worst)).column(0).to_pylist()
            if most is not None and most > 1:
                raise FanOut(
                    "the public table joined here has several rows for one key",
                    hint="join a table that is unique on the key: GROUP BY or DISTINCT it first",
                )

    def plan(self, part: Part, prefix: str) -> BlockPlan:
        """Plan one block."""
        block = part.leaf.block
        self._check_unique(block)
        if not block.estimated and not self._catalog.weighted:
            exact_only = exact_scan(self._catalog, block)
            return BlockPlan(prefix, block, self._parameters.bind(exact_only))
        moments = self._moments(part)
        if moments is not None:
            return self._plan_moments(moments, block, prefix)
        wanted = list(self._sensitive(block))
        planner = Planner(self._catalog, block, self._asked, self._domain)
        states = planner.plan(wanted)
        scan = StateScan(self._catalog, block, states)
        self._add_exact(scan, block)
        writer = Writer(
            block,
            states,
            scan,
            prefix,
            part.pairs,
            self._domain,
            self._iterative,
            part.classes,
        )
        steps = writer.write()
        tables = {f"{prefix}_constants": _constants(states)}
        for i, axis in enumerate(states.axes):
            tables[f"{prefix}_axis{i}"] = axis.cells
            tables[f"{prefix}_codes{i}"] = axis.codes
        return self._block_plan(prefix, block, scan, tables, steps, states)

    def _asked(self, tree: exp.Expr) -> pa.Table:
        return self._run(self._parameters.bind(tree))

    def _add_exact(self, scan: StateScan, block: Block) -> None:
        """Let the scan bring exact aggregates too, unless they need a scan of their own."""
        exact = [a.call for a in block.aggregates if a.kind == "exact"]
        together = [
            call
            for call in exact
            if call.name in ADDITIVE
            and not call.distinct
            and not (call.name == "sum" and self._catalog.multiplicity)
        ]
        scan.beside = len(together) < len(exact)
        if not scan.beside:
            scan.exact += [(call, sql(call.node)) for call in together]

    def _moments(self, part: Part) -> Moments | None:
        """The block by moments, where they apply and pay."""
        if self._iterative or part.classes or self._strategy == "states":
            return None
        observed = any(
            our_function(node) == "observed" for node in part.leaf.select.find_all(exp.Anonymous)
        )
        made = Moments(
            self._catalog, part.leaf.block, part.pairs, self._asked, self._domain, observed
        )
        if not made.applies:
            return None
        wanted = self._strategy == "moments" or self._catalog.rows >= MANY_ROWS
        return made if wanted or made.only else None

    def _plan_moments(self, moments: Moments, block: Block, prefix: str) -> BlockPlan:
        scan = moments.prepare()
        self._add_exact(scan, block)
        steps = moments.steps(prefix)
        return self._block_plan(prefix, block, scan, {}, steps, moments.states)

    def _block_plan(
        self,
        prefix: str,
        block: Block,
        scan: StateScan,
        tables: Mapping[str, pa.Table],
        steps: tuple[Step, ...],
        states: States,
    ) -> BlockPlan:
        beside = None
        if scan.beside:
            tree = exact_scan(self._catalog, block, letter="x", grouping=True)
            beside = self._parameters.bind(tree)
        written = self._parameters.bind(scan.write())
        return BlockPlan(prefix, block, written, beside, tables, steps, states)

    def groups(self, part: Part) -> tuple[Printed, dict[int, tuple[int, ...]]] | None:
        """The scan that tells the personal groups behind each cell, where any is at stake."""
        block = part.leaf.block
        if not block.estimated:
            return None
        made = membership(self._catalog, block)
        if not made.selections:
            return None
        return self._parameters.bind(made.select), made.selections

    @staticmethod
    def _sensitive(block: Block) -> list[exp.Expr]:
        """Every expression that is evaluated over states."""
        found: dict[str, exp.Expr] = {}
        for base in block.bases:
            for piece in base:
                for node in (*piece.truths, *([piece.factor] if piece.factor is not None else [])):
                    found.setdefault(sql(node), node)
        for branch in block.where:
            for node in branch.truths:
                found.setdefault(sql(node), node)
        for key in block.keys:
            if key.sensitive:
                found.setdefault(sql(key.expression), key.expression)
        for aggregate in block.aggregates:
            if aggregate.ordered is not None and aggregate.kind != "domain":
                found.setdefault(sql(aggregate.ordered), aggregate.ordered)
        return list(found.values())

    def finish(self, compiled: Compiled, plans: Sequence[BlockPlan]) -> Printed:
        """The whole reconstruction as one printed statement."""
        return self._parameters.bind(self.whole(compiled, plans))

    def whole(self, compiled: Compiled, plans: Sequence[BlockPlan]) -> exp.Expr:
        """The whole reconstruction as one statement: blocks as CTEs, then the analyst's SQL."""
        tree = compiled.tree
        names = {
            block_name(n): f"{plan.prefix}_block" if plan.steps else f"{plan.prefix}_scan"
            for n, plan in enumerate(plans)
        }
        for node in tree.find_all(exp.Table):
            if node.name in names and not node.db:
                node.set("alias", exp.TableAlias(this=exp.to_identifier(node.name)))
                node.set("this", exp.to_identifier(names[node.name], quoted=True))
        ctes = []
        for plan in plans:
            ctes += [
                exp.CTE(
                    this=step.query,
                    alias=exp.TableAlias(this=exp.to_identifier(step.name, quoted=True)),
                    materialized=True,
                )
                for step in plan.steps
            ]
        if ctes:
            with_ = tree.args.get("with_")
            own = list(with_.expressions) if with_ is not None else []
            tree.set("with_", exp.With(expressions=[*ctes, *own]))
        return tree


def _constants(states: States) -> pa.Table:
    """One row with the channel between states, and the mass of each state if it has one."""
    factors = [factor.tolist() for factor in states.factors]
    kind = pa.list_(pa.list_(pa.list_(pa.float64())))
    masses = None if states.masses is None else np.asarray(states.masses).tolist()
    return pa.table(
        {
            "factors": pa.array([factors or [[[1.0]]]], type=kind),
            "masses": pa.array([masses], type=pa.list_(pa.float64())),
        }
    )


def masked_statement(
    tree: exp.Expr, hidden: Sequence[tuple[BlockPlan, list[int]]], parameters: Parameters
) -> Printed:
    """The statement with the cells empty that the tables ``_mask`` of its blocks name.

    The block's own table becomes ``_open``, and what is read in its place has gaps.
    """
    made = tree.copy()
    with_ = made.args["with_"]
    for plan, aggregates in hidden:
        name = f"{plan.prefix}_block"
        at = next(i for i, cte in enumerate(with_.expressions) if cte.alias == name)
        opened = exp.to_identifier(f"{plan.prefix}_open", quoted=True)
        with_.expressions[at].args["alias"].set("this", opened)
        closed = exp.CTE(
            this=masked(plan.prefix, plan.block, aggregates),
            alias=exp.TableAlias(this=exp.to_identifier(name, quoted=True)),
            materialized=True,
        )
        ctes = list(with_.expressions)
        with_.set("expressions", [*ctes[: at + 1], closed, *ctes[at + 1 :]])
    return parameters.bind(made)


def public_columns(block: Block) -> list[str]:
    """Public columns of the conditions of a block, as the release spells them."""
    found = [c.name for node in block.guards for c in columns_of(node) if c.table == PUBLISHED]
    return list(dict.fromkeys(found))


def place_in(block: Block, text: str) -> Place | None:
    """Where the public conditions of a block stand in the text."""
    for node in block.guards:
        found = place_of(node, text)
        if found is not None:
            return found
    return None


def located(problem: Error, tree: exp.Expr, text: str) -> Error:
    """An error of planning or running with the query as its place, and a way out."""
    if problem.place is None and isinstance(problem, NotSupportedError | ProgrammingError):
        problem.place = place_of(tree, text)
    if problem.hint is None and isinstance(problem, ProgrammingError):
        problem.hint = "estimates are DOUBLE: cast them where a function wants another type"
    return problem


# Entries of one list over states, for all classes and hidden values; there are tens of lists.
MOST_ENTRIES = 2**21


def check_work(plan: BlockPlan, scanned: pa.Table) -> None:
    """Refuse a reconstruction whose lists would not fit, now that the scan tells their number.

    Every class of sensitive keys has a list over states, for every value of the public
    columns that could not be separated from sensitive ones.
    """
    if plan.states is None or not plan.states.hidden:
        return
    names = [f"h{i}" for i in range(len(plan.states.hidden))]
    hidden = scanned.select(names).group_by(names).aggregate([]).num_rows
    classes = plan.states.count if any(key.sensitive for key in plan.block.keys) else 1
    if hidden * classes * plan.states.count > MOST_ENTRIES:
        columns = ", ".join(axis.column for axis in plan.states.axes)
        raise TooLargeError(
            f"sensitive columns ({columns}) are compared with {hidden} public values in"
            f" {plan.states.count} states",
            hint="group by fewer or coarser values, or compare with constants",
        )


def empty_query(catalog: Catalog) -> str:
    """A query with the columns of the published table and none of its rows."""
    made = exp.Select(expressions=[column(name) for name, _ in catalog.columns])
    return made.from_(table(catalog.table), copy=False).limit(0).sql("duckdb")


def typed_query(source: str, name: str, kind: str) -> str:
    """The domain in a table as the column's own type, in order."""
    made = exp.Select(expressions=[column("i"), named(cast(column(name), kind), name)])
    return made.from_(table(source), copy=False).order_by(column("i")).sql("duckdb")


def described_query(tree: exp.Expr, parameters: Parameters, text: str) -> Printed:
    """The query as DuckDB can describe it: our functions become casts of the same type.

    Where there is nothing of ours in it the analyst's own text is best: columns without a
    name are called by how they were written.
    """
    made = tree.copy()
    ours = [node for node in made.find_all(exp.Anonymous) if our_function(node) is not None]
    if not ours and not parameters.values:
        return Printed(text)
    for node in ours:
        short = our_function(node)
        if not node.expressions:
            continue
        kind = "BOOLEAN" if short == "reliable" else "DOUBLE"
        typed: exp.Expr = cast(node.expressions[0].copy(), kind)
        if isinstance(node.parent, exp.Select) and node.arg_key == "expressions":
            typed = named(typed, node.sql("duckdb").lower())
        node.replace(typed)
    return parameters.bind(made)
