"""The plan of a query: for each block a scan and a reconstruction, and the SQL around them.

    block   ── states ──> cells and channels of its sensitive columns
            ── scan ────> SQL for the engine that holds the published table
            ── steps ───> SQL that turns the scan's result into the block's table

Everything is printed with its values bound.  What happens between the two halves (may this
be answered at all?) is not decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import pyarrow as pa
from sqlglot import exp

from privsql.channels.channel import MATRIX_LIMIT
from privsql.errors import Error, NotSupportedError, Place, ProgrammingError, TooLargeError
from privsql.sql.bind.block import Block, Distinct, Mode, Quantile
from privsql.sql.bind.from_clause import ONE
from privsql.sql.catalog import PUBLISHED, Catalog
from privsql.sql.disclosure.evidence import Behind, behind, secrets_scan, supports_of
from privsql.sql.disclosure.group_ranges import Membership
from privsql.sql.disclosure.informative import constants
from privsql.sql.disclosure.masking import Change, Gap
from privsql.sql.disclosure.row_functions import (
    CellSet,
    classes_scan,
    common_scan,
    content_scan,
    function_scan,
    functions_scan,
    has_keys,
    rows_scan,
    tuples_scan,
)
from privsql.sql.nodes import (
    Unsupported,
    cast,
    column,
    columns_of,
    copied,
    cte,
    derived,
    every,
    given,
    named,
    of_kind,
    place_of,
    select,
    sql,
    table,
)
from privsql.sql.outer.parts import Compiled, Part, block_name, our_function
from privsql.sql.parameters import Parameters, Printed, read_parameters
from privsql.sql.parse.statement import Statement
from privsql.sql.plan.block_plan import BlockPlan
from privsql.sql.plan.states import MOST_STATES, Planner, States, under
from privsql.sql.reconstruct.axiswise import Axiswise, axis_constants, first_of, separable
from privsql.sql.reconstruct.columns import BESIDE, FLOOR, HIDDEN, KEY, MASSES
from privsql.sql.reconstruct.sums import Step, Sums
from privsql.sql.reconstruct.writer import Writer
from privsql.sql.scan.distinct import by_states
from privsql.sql.scan.forms import AXES, MANY_ENTRIES, MOMENTS, STATES, WEIGHTS, choose_form
from privsql.sql.scan.moments.reconstruction import Moments
from privsql.sql.scan.one_pass import Pass, Scan
from privsql.sql.scan.state_scan import ADDITIVE, StateScan, exact_scan

# Names of other modules that callers of planning need as well.
__all__ = [
    "Behind",
    "BlockPlan",
    "CellSet",
    "Change",
    "Gap",
    "Printed",
    "classes_scan",
    "common_scan",
    "content_scan",
    "function_scan",
    "functions_scan",
    "has_keys",
    "read_parameters",
    "rows_scan",
    "secrets_scan",
    "tuples_scan",
]


class FanOut(Unsupported):
    """A join that would count published rows several times."""

    code = "fan-out"


class PublicQuantile(Unsupported, code="difference", sqlstate="42501"):
    """A quantile whose answers together would count a personal group."""


Described = list[tuple[str, str]]


@dataclass(frozen=True)
class Databases:
    """What planning asks of databases: of expressions over domains, and of names and types."""

    run: Callable[[Printed], pa.Table]
    describe: Callable[[Printed], Described]  # where the domains and public tables are
    mirror: Callable[[Printed], Described]  # where empty tables of the release's shape are
    audit: Callable[[Printed], Described] | None  # where the tables of an audit are
    domain: Callable[[str], str]  # the table with a column's domain
    exact: Callable[[Printed], pa.Table]  # where published rows are, over public columns alone
    evaluated: Callable[[Printed, Mapping[str, pa.Table]], pa.Table]


@dataclass(frozen=True)
class Wanted:
    """What a session wants of its plans."""

    iterative: bool = False  # the likelihood instead of inversion
    form: str | None = None  # of scans (see ``forms``), where it is not chosen by cost
    salt: int = 0
    accounted: bool = False  # answers are held against earlier ones
    judged: bool = True  # personal groups are looked at
    order: int | None = None  # of published rows, where they may be listed
    described: bool = False  # only the columns of an answer are asked for


@dataclass(frozen=True)
class PlanWriter:
    """Plans the blocks of one query."""

    catalog: Catalog
    parameters: Parameters
    databases: Databases
    wanted: Wanted

    def _check_unique(self, block: Block) -> None:
        """A join that multiplies published rows correlates them: refuse it.

        The rows of one person would count several times, and intervals would be too narrow.
        """
        for join in block.rows.joins:
            theirs = [copied(each.theirs) for each in join.on]
            many = named(exp.Count(this=exp.Star()), "many")
            counted = select(under(join.table, join.alias), many).group_by(*theirs, copy=False)
            given_ = every(given(copied(each.theirs)) for each in join.on if not each.safe)
            if given_ is not None:
                counted.where(given_, copy=False)
            worst = select(derived(counted, "keys"), exp.Max(this=column("many")))
            (most,) = self._asked(worst).column(0).to_pylist()
            if most is not None and most > 1:
                if any(each.name == ONE for each in theirs):
                    raise FanOut(
                        "a join without a condition multiplies published rows",
                        hint="join on the key of the public table: ON t.x = d.x",
                        at=join.table,
                    )
                raise FanOut(
                    "the public table joined here has several rows for one key",
                    hint="join a table that is unique on the key: GROUP BY or DISTINCT it first",
                    at=join.table,
                )

    def _check_quantiles(self, block: Block) -> None:
        """A quantile of public values tells how many rows lie below each of them.

        ``QUANTILE_DISC(CASE WHEN g THEN 0 ELSE 1 END, q)`` is 0 where at least q of the rows that
        satisfy a sensitive condition are of the group g: with many q that is the count of g, which
        no account of this aggregate holds.  So they are answered where nobody is protected.
        """
        if not self.wanted.judged:
            return
        for each in block.aggregates:
            if isinstance(each, Quantile) and each.public:
                raise PublicQuantile(
                    f"{each.call.name.upper()} of a public column under a sensitive condition,"
                    " which would count groups of persons",
                    hint="GROUP BY the column, and COUNT(*): each count is judged by itself",
                    at=each.call.node,
                )

    def plan(self, part: Part, prefix: str, weighed: frozenset[int] = frozenset()) -> BlockPlan:
        """Plan one block; ``weighed`` are aggregates whose effective rows the query looks at."""
        block = part.leaf.block
        self._check_unique(block)
        self._check_quantiles(block)
        if not block.estimated and not self.catalog.weighted:
            return BlockPlan(prefix, block, self.parameters.bind(exact_scan(self.catalog, block)))
        moments = self._moments(part)
        if moments is not None:
            able = (WEIGHTS,) if moments.only else (STATES, WEIGHTS)
            if self._choose(able) in MOMENTS:
                return self._plan_moments(moments, part, prefix, weighed)
        return self._plan_states(part, prefix)

    def _plan_states(self, part: Part, prefix: str) -> BlockPlan:
        block, domain, iterative = part.leaf.block, self.databases.domain, self.wanted.iterative
        apart = not iterative and separable(self.catalog, block)
        planner = Planner(self.catalog, block, self._asked, domain, apart)
        states = planner.plan(_sensitive(block))
        ways = (*[STATES] * planner.listable(states), *[AXES] * apart)
        scan = StateScan(self.catalog, block, states, ways)
        self._add_exact(scan.shared, block)
        sums = Sums(block, states, scan.shared, prefix, part.pairs, domain, iterative, part.classes)
        classes = planner.classes(states)
        first = None if part.classes else first_of(part.leaf.select, block)
        # How many groups of public keys there are the scan will tell: to find the first of all
        # cells, they are not made one by one.
        entries = MANY_ENTRIES if first is not None else states.count * classes
        form = self._choose(scan.able, entries=entries)
        first = first if form == AXES else None
        steps = Writer(sums, Axiswise(sums, first) if form == AXES else None).write()
        tables = {f"{prefix}_constants": _constants(states, sums.massed, sums.floored)}
        if form == AXES:
            tables = {f"{prefix}_constants": axis_constants(states, sums.massed)}
        for i, axis in enumerate(states.axes):
            tables[f"{prefix}_axis{i}"] = axis.cells
            tables[f"{prefix}_codes{i}"] = axis.codes
        informative = self._informative(block, states, steps[0], tables)
        scan.shared.form = form
        made = self._block_plan(prefix, part, scan, tables, steps, states, informative)
        return replace(
            made,
            score_intervals=sums.score_intervals,
            able=scan.able,
            values=self._values(sums, scan),
            many=classes,
            first=first,
        )

    def _values(self, sums: Sums, scan: StateScan) -> dict[str, Printed]:
        """The scans of distinct counts, by signatures."""
        found: dict[str, Printed] = {}
        for i, aggregate in sums.of_kind(Distinct):
            for chosen in sums.block.sets:
                counted = sums.counted(i, aggregate, chosen)
                codes = scan.told(sums.axes_of(counted.pieces, counted.classes))
                pieces = [sums.pieces[t] for t in counted.pieces]
                made = by_states(self.catalog, sums.block, counted, pieces, codes)
                found[sums.table_of(counted.name)] = self.parameters.bind(made)
        return found

    def _informative(
        self, block: Block, states: States, step: Step, tables: Mapping[str, pa.Table]
    ) -> tuple[bool, ...] | None:
        """Which pieces are no constants, where that matters and does not depend on the rows."""
        if states.hidden or block.sensitive_keys or not self.wanted.judged:
            return None
        if not any(block.bases):
            return ()
        looked = self.parameters.bind(constants(block, step), used_up=False)
        (row,) = self.databases.evaluated(looked, tables).to_pylist()
        return tuple(map(bool, row.values()))

    def _asked(self, tree: exp.Expr) -> pa.Table:
        return self.databases.run(self.parameters.bind(tree))

    def _add_exact(self, scan: Pass, block: Block) -> None:
        """Let the scan bring exact aggregates too, unless they need a scan of their own."""
        exact = [a.call for a in block.aggregates if a.kind == "exact"]
        scan.beside = any(
            call.name not in ADDITIVE
            or call.distinct
            or (call.name == "sum" and self.catalog.multiplicity)
            for call in exact
        )
        if not scan.beside:
            scan.exact += [(call, sql(call.node)) for call in exact]

    def _moments(self, part: Part) -> Moments | None:
        """The block by moments, where they apply and may be the way."""
        if self.wanted.iterative or part.classes or self._few_states(part.leaf.block):
            return None
        observed = any(
            our_function(node) == "observed" for node in of_kind(part.leaf.select, exp.Anonymous)
        )
        block, domain = part.leaf.block, self.databases.domain
        made = Moments(self.catalog, block, part.pairs, self._asked, domain, observed)
        return made if made.applies else None

    def _few_states(self, block: Block) -> bool:
        """Whether states are taken, however the block's conditions split its domains."""
        sizes = [self.catalog.sensitive[name].domain.size for name in block.sensitive]
        small = prod(sizes) <= MOST_STATES and max(sizes, default=1) <= MATRIX_LIMIT
        return small and self._choose((STATES, WEIGHTS)) == STATES

    def _choose(self, able: Sequence[str], counting_pays: bool = True, entries: int = 0) -> str:
        return choose_form(
            self.catalog.rows,
            able,
            counting_pays=counting_pays,
            entries=entries,
            forced=self.wanted.form,
        )

    def _plan_moments(
        self, moments: Moments, part: Part, prefix: str, weighed: frozenset[int]
    ) -> BlockPlan:
        moments.prepare()
        scan = moments.scan(self._choose(moments.able, moments.counting_pays))
        self._add_exact(scan.shared, part.leaf.block)
        steps, informative = moments.steps(prefix), moments.informative
        made = self._block_plan(prefix, part, scan, {}, steps, moments.states, informative)
        return replace(
            made,
            doubtful=tuple(map(self.parameters.bind, moments.doubtful(weighed))),
            told=moments.told,
            score_intervals=moments.score_intervals,
            able=moments.able,
            values={name: self.parameters.bind(q) for name, q in moments.values(prefix).items()},
        )

    def _block_plan(
        self,
        prefix: str,
        part: Part,
        scan: Scan,
        tables: Mapping[str, pa.Table],
        steps: tuple[Step, ...],
        states: States,
        informative: tuple[bool, ...] | None,
    ) -> BlockPlan:
        block, shared, beside = part.leaf.block, scan.shared, None
        moments = shared.form in MOMENTS
        watched: dict[int, bool] = {}
        if informative is not None and block.estimated and self.wanted.judged:
            supports = supports_of(block, informative)
            members = Membership(self.catalog, block)
            if supports and members.inside(supports):
                watched = {k: each.weight is not None for k, each in supports.items()}
                shared.watched = members.watched(supports, packed=moments)
        if shared.beside:
            beside = self.parameters.bind(exact_scan(self.catalog, block, family=BESIDE))
        if isinstance(scan, StateScan) and shared.form not in scan.able:
            # Whose rows are watched cannot be counted: all sums are named by now.
            shared.form = STATES
        return BlockPlan(
            prefix,
            block,
            self.parameters.bind(scan.write()),
            beside,
            tables,
            steps,
            states,
            tuple(sorted(part.pairs)),
            tuple(sorted(set(part.classes))),
            informative,
            watched,
            form=shared.form,
        )

    def behind(self, plan: BlockPlan, several: bool = False) -> Behind | None:
        """The scans for the personal groups behind each cell, where any may be disclosed.

        ``several`` says that there are other blocks, whose answers are held against its own.
        """
        if not self.wanted.judged:
            return None
        salt, accounted = self.wanted.salt, self.wanted.accounted or several
        return behind(plan, self.catalog, self.parameters, salt, accounted)


def _sensitive(block: Block) -> list[exp.Expr]:
    """Every expression that is evaluated over states."""
    nodes = [node for base in block.bases for piece in base for node in piece.sensitive]
    nodes += [node for branch in block.where for node in branch.truths]
    nodes += [key.expression for key in block.keys if key.sensitive]
    nodes += [a.ordered for a in block.aggregates if isinstance(a, Quantile | Mode)]
    return list({sql(node): node for node in nodes}.values())


def whole(compiled: Compiled, plans: Sequence[BlockPlan]) -> exp.Expr:
    """The whole reconstruction as one statement: blocks as CTEs, then the analyst's SQL."""
    tree = compiled.tree
    names = {
        block_name(n): f"{plan.prefix}_block" if plan.steps else f"{plan.prefix}_scan"
        for n, plan in enumerate(plans)
    }
    for node in of_kind(tree, exp.Table):
        if node.name in names and not node.db:
            node.set("alias", exp.TableAlias(this=exp.to_identifier(node.name)))
            node.set("this", exp.to_identifier(names[node.name], quoted=True))
    ctes = [cte(step.name, step.query) for plan in plans for step in plan.steps]
    if ctes:
        with_ = tree.args.get("with_")
        own = list(with_.expressions) if with_ is not None else []
        tree.set("with_", exp.With(expressions=[*ctes, *own]))
    return tree


def _constants(states: States, massed: Iterable[int], floored: Iterable[Sequence[int]]) -> pa.Table:
    """One row with the channel between states, and the masses of some axes' cells.

    ``floored`` are axes for which the least chance of each published state is wanted as well.
    """
    factors = [factor.tolist() for factor in states.factors]
    kind = pa.list_(pa.list_(pa.list_(pa.float64())))
    columns: dict[str, Any] = {"factors": pa.array([factors or [[[1.0]]]], type=kind)}
    for i in massed:
        masses = states.masses(i).tolist()
        columns[MASSES(i)] = pa.array([masses], type=pa.list_(pa.float64()))
    for axes in floored:
        least = states.floor(axes).tolist()
        columns[FLOOR(*axes)] = pa.array([least], type=pa.list_(pa.float64()))
    return pa.table(columns)


def public_columns(plan: BlockPlan) -> list[str]:
    """Public columns of the conditions of a block, as the release spells them."""
    found = [c for guard in plan.block.guards for c in columns_of(guard)]
    return list(dict.fromkeys(c.name for c in found if c.table == PUBLISHED))


def place_in(plan: BlockPlan, text: str) -> Place | None:
    """Where the public conditions of a block stand in the text."""
    return next(filter(None, (place_of(node, text) for node in plan.block.guards)), None)


# The end of a hint that is of no use where there is one.
ADD_A_LIMIT = ", or add a LIMIT"


def located(problem: Error, statement: Statement) -> Error:
    """An error of planning or running with the query as its place, and a way out."""
    asked = isinstance(problem, NotSupportedError | ProgrammingError)
    if problem.place is None and asked and statement.tree is not None:
        at = getattr(problem, "at", None) or statement.tree
        place = place_of(at, statement.source)
        problem.place = place or place_of(statement.tree, statement.source)
    if problem.hint is not None and statement.tree is not None and statement.tree.args.get("limit"):
        problem.hint = problem.hint.replace(ADD_A_LIMIT, "")
    if problem.hint is None and isinstance(problem, ProgrammingError):
        problem.hint = "estimates are DOUBLE: cast them where a function needs another type"
    return problem


# Entries of one list over states, for all classes and hidden values; there are tens of lists.
MOST_ENTRIES = 2**21

# Positions of public values in all distributions that quantiles of them are read from.
MOST_TALLIES = 2**22

# Factors of products over the rows of values, for all classes.
MOST_PRODUCTS = 2**25


# Cells of which the first few can be found; each is a number for a moment.
MOST_RANKED = 5 * 10**7


def check_work(plan: BlockPlan, scanned: pa.Table, most: int) -> None:
    """Refuse a reconstruction that would not fit: the scan tells how many groups there are.

    Every class of sensitive keys is a cell of each group of public ones, seen or not; ``most`` of
    them can be answered.  And it has a list over states, for every value of the public
    columns that could not be separated from sensitive ones.
    """
    if plan.states is None:
        return
    check_cells(plan, scanned, MOST_RANKED if plan.first is not None else most)
    if not plan.states.hidden:
        return
    names = [HIDDEN(i) for i in range(len(plan.states.hidden))]
    hidden = scanned.select(names).group_by(names).aggregate([]).num_rows
    classes = plan.states.count if plan.block.sensitive_keys else 1
    if hidden * classes * plan.states.count > MOST_ENTRIES:
        columns = ", ".join(axis.column for axis in plan.states.axes)
        raise TooLargeError(
            f"sensitive columns ({columns}) are compared with {hidden} public values in"
            f" {plan.states.count} states",
            hint="group by fewer or coarser values, or compare with constants",
        )
    quantiles = any(isinstance(a, Quantile) and a.public for a in plan.block.aggregates)
    if quantiles and scanned.num_rows * hidden > MOST_TALLIES:
        raise TooLargeError(
            f"a quantile of a public expression with {hidden:,} values in {scanned.num_rows:,}"
            " groups of rows",
            hint="make the values coarser, as in MEDIAN(round(x, -1)), or group by fewer",
        )


def check_values(plan: BlockPlan, scanned: pa.Table) -> None:
    """Refuse distinct counts of so many classes and signatures that their products do not fit."""
    if plan.states is None or plan.moments or not plan.block.sensitive_keys:
        return
    if scanned.num_rows * plan.states.count > MOST_PRODUCTS:
        raise TooLargeError(
            f"COUNT(DISTINCT ...) multiplies {scanned.num_rows:,} numbers of rows for each of up"
            f" to {plan.states.count} groups of sensitive values",
            hint="group by fewer or coarser values, or count rows instead",
        )


def cells_of(plan: BlockPlan, scanned: pa.Table) -> int:
    """How many cells an answer has: groups of public keys times classes of sensitive ones."""
    keys = enumerate(plan.block.keys)
    names = [KEY(i) for i, key in keys if not key.sensitive]
    groups = scanned.select(names).group_by(names).aggregate([]).num_rows if names else 1
    return groups * plan.many


def check_cells(plan: BlockPlan, scanned: pa.Table, most: int) -> None:
    """Refuse more cells of public and sensitive keys than so many."""
    if plan.many * scanned.num_rows <= most:
        return
    cells = cells_of(plan, scanned)
    if cells > most:
        raise TooLargeError(
            f"the answer has {cells:,} cells: {cells // plan.many:,} groups of public keys times"
            f" {plan.many:,} of sensitive ones",
            hint=f"at most {most:,} can be answered; group by fewer or coarser values, or ask for"
            " the first of them: ORDER BY COUNT(*) DESC LIMIT 10",
        )


def empty_query(catalog: Catalog) -> str:
    """A query with the columns of the published table and none of its rows."""
    names = [column(name) for name, _ in catalog.columns]
    return select(table(catalog.table), *names).limit(0).sql("duckdb")


def typed_query(source: str, name: str, kind: str) -> str:
    """The domain in a table as the column's own type, in order."""
    typed = named(cast(column(name), kind), name)
    return select(table(source), column("i"), typed).order_by(column("i")).sql("duckdb")


def described_query(tree: exp.Expr, parameters: Parameters, text: str) -> Printed:
    """The query as DuckDB can describe it: our functions become casts of the same type.

    Where there is nothing of ours in it the analyst's own text is best: columns without a
    name are called by how they were written.
    """
    if not parameters.values and not _ours(tree):
        return Printed(text)
    made = copied(tree)
    for node in _ours(made):
        if not node.expressions:
            continue
        kind = "BOOLEAN" if our_function(node) == "reliable" else "DOUBLE"
        typed: exp.Expr = cast(copied(node.expressions[0]), kind)
        if isinstance(node.parent, exp.Select) and node.arg_key == "expressions":
            typed = named(typed, node.sql("duckdb").lower())
        node.replace(typed)
    return parameters.bind(made)


def _ours(tree: exp.Expr) -> list[exp.Anonymous]:
    return [node for node in of_kind(tree, exp.Anonymous) if our_function(node) is not None]
