"""A statement to its plan: blocks with their scans, or one printed query.

    Answered   blocks to scan, the personal groups behind them, and the statement over their results
    Direct     one query that runs as a whole: of an audit's tables, of columns alone, of rows

What leaves this module is printed SQL and frozen data.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
from sqlglot import exp

from privsql.errors import Error, Notice, NotSupportedError, ProgrammingError
from privsql.sql.bind.comparisons import Constants
from privsql.sql.catalog import Catalog, placed
from privsql.sql.disclosure.evidence import Behind
from privsql.sql.disclosure.masking import Final
from privsql.sql.outer.compile import Compiler
from privsql.sql.outer.parts import Out, weighed
from privsql.sql.parameters import Parameters, Printed
from privsql.sql.parse.audit_tables import audit_question
from privsql.sql.parse.guard import check_question
from privsql.sql.parse.probes import is_probe
from privsql.sql.parse.row_listing import ORDER, listing
from privsql.sql.parse.statement import Statement
from privsql.sql.plan.block_plan import BlockPlan
from privsql.sql.plan.planner import PlanWriter, described_query, located, read_parameters

Given = Sequence[object] | Mapping[str, object] | None
Described = list[tuple[str, str]]


@dataclass(frozen=True)
class Answered:
    """A query up to the point where published rows are read."""

    plans: tuple[BlockPlan, ...]
    behind: tuple[Behind | None, ...]  # of each block, where somebody may be singled out
    final: Final
    outs: tuple[Out, ...]
    described: tuple[tuple[str, str], ...]  # names and types of the columns
    notices: tuple[Notice, ...]
    counts: tuple[int, ...]  # columns that are counts
    parameters: Parameters


@dataclass(frozen=True)
class Direct:
    """One query that runs as a whole, and where."""

    place: Literal["audit", "mirror", "release"]
    printed: Printed
    outs: tuple[Out, ...]
    described: tuple[tuple[str, str], ...]
    notices: tuple[Notice, ...] = ()


Planned = Answered | Direct


@dataclass(frozen=True)
class Databases:
    """What planning asks of databases: of expressions over domains, and of names and types."""

    run: Callable[[Printed], pa.Table]
    describe: Callable[[Printed], Described]  # where the domains and public tables are
    mirror: Callable[[Printed], Described]  # where empty tables of the release's shape are
    audit: Callable[[Printed], Described] | None  # where the tables of an audit are
    domain: Callable[[str], str]  # the table with a column's domain
    evaluated: Callable[[Printed, Mapping[str, pa.Table]], pa.Table]


@dataclass(frozen=True)
class Wanted:
    """What a session wants of its plans."""

    iterative: bool = False  # the likelihood instead of inversion
    form: str | None = None  # of scans, where it is not chosen by cost
    salt: int = 0
    accounted: bool = False  # answers are held against earlier ones
    judged: bool = True  # personal groups are looked at
    order: int | None = None  # of published rows, where they may be listed


class QueryPlanner:
    """Plans statements about one release."""

    def __init__(self, catalog: Catalog, databases: Databases) -> None:
        self._catalog = catalog
        self._databases = databases
        self._counter = itertools.count()

    def plan(self, statement: Statement, given: Given, wanted: Wanted) -> Planned:
        """Plan a statement: all work before a published row is read."""
        if statement.tree is None:
            raise ProgrammingError("there is no query in this statement")
        tree = statement.tree.copy()
        parameters = read_parameters(tree, given)
        asked = audit_question(tree, statement.source)
        if asked is not None and self._databases.audit is not None:
            return self._about_audit(statement, asked, parameters, self._databases.audit)
        check_question(tree, statement.source)
        described = self._described(statement, tree, parameters)
        if wanted.order is not None:
            rows = listing(self._catalog, tree, statement.source)
            if rows is not None:
                return _listed(rows, parameters, described, wanted.order)
        constants = Constants(parameters, self._databases.run)
        compiler = Compiler(self._catalog, statement.source, self._binds(parameters), constants)
        try:
            compiled = compiler.compile(tree)
        except NotSupportedError:
            if not is_probe(statement.tree):
                raise
            printed = described_query(statement.tree, parameters, statement.plain)
            return Direct("mirror", printed, _exact(described), tuple(described))
        prefix = f"privsql_q{next(self._counter)}"
        writer = self._writer(parameters, wanted)
        try:
            plans = [
                writer.plan(part, f"{prefix}_{n}", weighed(compiled.tree, n))
                for n, part in enumerate(compiler.parts)
            ]
            behind = [writer.behind(plan) for plan in plans]
        except Error as problem:
            raise located(problem, statement) from None
        return Answered(
            tuple(plans),
            tuple(behind),
            Final(writer.whole(compiled, plans), parameters),
            tuple(compiled.outs),
            tuple(described),
            tuple(compiler.notices),
            tuple(compiler.counts),
            parameters,
        )

    def _about_audit(
        self,
        statement: Statement,
        tree: exp.Expr,
        parameters: Parameters,
        describe: Callable[[Printed], Described],
    ) -> Direct:
        """A question about tables of an audit, which are exact and run where only they are."""
        printed = parameters.bind(tree.copy())
        try:
            described = describe(printed)
        except ProgrammingError as problem:
            mistake = placed(problem, statement.text, self._catalog)
            mistake.hint = "SELECT * from the same table, with LIMIT 0, shows its columns"
            raise mistake from None
        return Direct("audit", printed, _exact(described), tuple(described))

    def _described(self, statement: Statement, tree: exp.Expr, parameters: Parameters) -> Described:
        """Names and types of the columns, from DuckDB itself on empty tables of the same shape."""
        printed = described_query(tree, parameters, statement.plain)
        try:
            return self._databases.mirror(printed)
        except ProgrammingError as problem:
            raise placed(problem, statement.text, self._catalog) from None

    def _binds(self, parameters: Parameters) -> Callable[[exp.Expr], bool]:
        """Whether a query binds where there is no published table."""

        def binds(query: exp.Expr) -> bool:
            try:
                self._databases.describe(parameters.bind(query.copy()))
            except Error:
                return False
            return True

        return binds

    def _writer(self, parameters: Parameters, wanted: Wanted) -> PlanWriter:
        return PlanWriter(
            self._catalog,
            parameters,
            self._databases.run,
            self._databases.domain,
            wanted.iterative,
            wanted.form,
            evaluated=self._databases.evaluated,
            salt=wanted.salt,
            accounted=wanted.accounted,
            judged=wanted.judged,
        )


def _listed(rows: exp.Expr, parameters: Parameters, described: Described, order: int) -> Direct:
    """Published rows as they are, in an order that only this session has."""
    printed = Parameters({**parameters.values, ORDER: order}).bind(rows)
    said = Notice(
        "published-rows",
        "these are published rows: sensitive values are perturbed and may be false;"
        " aggregates are reconstructed",
    )
    return Direct("release", printed, _exact(described), tuple(described), (said,))


def _exact(described: Described) -> tuple[Out, ...]:
    return tuple(Out(name, False) for name, _ in described)
