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

from sqlglot import exp

from privsql.errors import Error, Notice, NotSupportedError, ProgrammingError
from privsql.sql.bind.comparisons import Constants
from privsql.sql.catalog import Catalog, placed
from privsql.sql.disclosure.evidence import Behind
from privsql.sql.disclosure.masking import Final
from privsql.sql.nodes import copied
from privsql.sql.outer.compile import Compiler
from privsql.sql.outer.parts import Out, weighed
from privsql.sql.parameters import Parameters, Printed
from privsql.sql.parse.audit_tables import audit_question
from privsql.sql.parse.guard import check_question
from privsql.sql.parse.probes import is_probe
from privsql.sql.parse.row_listing import ORDER, listing
from privsql.sql.parse.statement import Statement
from privsql.sql.plan.block_plan import BlockPlan
from privsql.sql.plan.planner import (
    Databases,
    Described,
    PlanWriter,
    Wanted,
    described_query,
    located,
    read_parameters,
    whole,
)

__all__ = ["Answered", "Databases", "Direct", "Given", "Planned", "QueryPlanner", "Wanted"]

Given = Sequence[object] | Mapping[str, object] | None


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


Place = Literal["audit", "mirror", "release"]


@dataclass(frozen=True)
class Direct:
    """One query that runs as a whole, and where."""

    place: Place
    printed: Printed
    outs: tuple[Out, ...]
    described: tuple[tuple[str, str], ...]
    notices: tuple[Notice, ...] = ()


Planned = Answered | Direct


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
        tree = copied(statement.tree)
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
            return _direct("mirror", printed, described)
        prefix = f"privsql_q{next(self._counter)}"
        writer = PlanWriter(self._catalog, parameters, self._databases, wanted)
        try:
            plans = [
                writer.plan(part, f"{prefix}_{n}", weighed(compiled.tree, n))
                for n, part in enumerate(compiler.parts)
            ]
            behind = [writer.behind(plan, several=len(plans) > 1) for plan in plans]
        except Error as problem:
            raise located(problem, statement) from None
        return Answered(
            tuple(plans),
            tuple(behind),
            Final(whole(compiled, plans), parameters),
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
        printed = parameters.bind(copied(tree))
        try:
            described = describe(printed)
        except ProgrammingError as problem:
            mistake = placed(problem, statement.text, self._catalog)
            mistake.hint = "SELECT * from the same table, with LIMIT 0, shows its columns"
            raise mistake from None
        return _direct("audit", printed, described)

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
                self._databases.describe(parameters.bind(copied(query)))
            except Error:
                return False
            return True

        return binds


def _listed(rows: exp.Expr, parameters: Parameters, described: Described, order: int) -> Direct:
    """Published rows as they are, in an order that only this session has."""
    printed = Parameters({**parameters.values, ORDER: order}).bind(rows)
    said = Notice(
        "published-rows",
        "these are published rows: sensitive values are perturbed and may be false;"
        " aggregates are reconstructed",
    )
    return _direct("release", printed, described, said)


def _direct(place: Place, printed: Printed, described: Described, *notices: Notice) -> Direct:
    outs = tuple(Out(name, False) for name, _ in described)
    return Direct(place, printed, outs, tuple(described), notices)
