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
from privsql.errors import Place as ErrorPlace
from privsql.sql.bind.comparisons import Constants
from privsql.sql.catalog import Catalog, placed
from privsql.sql.disclosure.evidence import Behind
from privsql.sql.disclosure.masking import Final
from privsql.sql.nodes import Unsupported, copied, place_of
from privsql.sql.outer.compile import Compiler
from privsql.sql.outer.parts import Out, weighed
from privsql.sql.parameters import Parameters, Printed
from privsql.sql.parse.about import DESCRIBE, SUMMARIZE, schema_question
from privsql.sql.parse.audit_tables import audit_question
from privsql.sql.parse.guard import check_question
from privsql.sql.parse.probes import is_probe
from privsql.sql.parse.row_listing import ORDER, listing
from privsql.sql.parse.statement import Statement
from privsql.sql.parse.written_out import written_out
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
from privsql.sql.subqueries.frozen import Exact

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
            raise ProgrammingError("there is no query in this statement", hint="write a SELECT")
        if statement.kind == SUMMARIZE:
            raise Unsupported(
                "SUMMARIZE of a query",
                hint="SUMMARIZE the table, or DESCRIBE the query for its columns",
                place=place_of(statement.tree, statement.source),
            )
        tree = written_out(copied(statement.tree))
        parameters = read_parameters(tree, given)
        asked = audit_question(tree, statement.source)
        if asked is not None and self._databases.audit is not None:
            return self._about_audit(statement, asked, parameters, self._databases.audit)
        if schema_question(tree, statement.source):
            described = self._described(statement, tree, parameters)
            return _direct("mirror", parameters.bind(tree), described)
        check_question(tree, statement.source)
        described = self._described(statement, tree, parameters)
        if wanted.order is not None:
            rows = listing(self._catalog, tree, statement.source)
            if rows is not None:
                return _listed(rows, parameters, described, wanted.order)
        constants = Constants(parameters, self._databases.run)
        asks = None if wanted.described else self._databases.exact
        exact = Exact(self._catalog, parameters, asks, self._databases.mirror)
        binds = self._binds(parameters)
        compiler = Compiler(self._catalog, statement.source, binds, constants, exact)
        try:
            compiled = compiler.compile(tree)
        except NotSupportedError:
            if statement.kind != DESCRIBE and not is_probe(statement.tree):
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
            text = statement.source

            def named(name: str, table: str) -> ErrorPlace | None:
                return column_named(tree, text, name, table)

            absent = absent_column(tree, self._catalog)
            if absent is not None and problem.reason.startswith("Referenced table"):
                # DuckDB looked for the table around a sub-query that has it, without the column.
                of = f'Table "{absent.table}" does not have a column named "{absent.name}"'
                problem = ProgrammingError(of)
            raise placed(problem, text, self._catalog, named) from None

    def _binds(self, parameters: Parameters) -> Callable[[exp.Expr], bool]:
        """Whether a query binds where there is no published table."""

        def binds(query: exp.Expr) -> bool:
            try:
                self._databases.describe(parameters.bind(copied(query)))
            except Error:
                return False
            return True

        return binds


def column_named(tree: exp.Expr, text: str, name: str, table: str) -> ErrorPlace | None:
    """Where a column of a name is written, of this table where one is given."""
    for each in tree.find_all(exp.Column):
        if each.name.casefold() != name.casefold():
            continue
        if not table or each.table.casefold() == table.casefold():
            return place_of(each, text)
    return None


def absent_column(tree: exp.Expr, catalog: Catalog) -> exp.Column | None:
    """A column that is written with its table, which has none of this name."""
    known = {
        **{name.casefold(): columns for name, columns in catalog.tables.items()},
        catalog.table.casefold(): catalog.columns,
    }
    tables = {each.alias_or_name.casefold(): each for each in tree.find_all(exp.Table)}
    for column in tree.find_all(exp.Column):
        source = tables.get(column.table.casefold())
        columns = None if source is None else known.get(source.name.casefold())
        if source is None or columns is None or source.alias_column_names:
            continue
        if column.name.casefold() not in {name.casefold() for name, _ in columns}:
            return column
    return None


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
