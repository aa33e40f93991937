"""Planning: all work on a query before a published row is read."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from privsql.engines import Memory
from privsql.errors import Error, Notice, NotSupportedError, ProgrammingError
from privsql.session.settings import Settings
from privsql.sql.bind.comparisons import Constants
from privsql.sql.catalog import Catalog, placed
from privsql.sql.outer.compile import Compiler
from privsql.sql.outer.parts import Out
from privsql.sql.parse.audit_tables import audit_question
from privsql.sql.parse.guard import check_question
from privsql.sql.parse.probes import is_probe
from privsql.sql.parse.row_listing import ORDER, listing
from privsql.sql.parse.statement import Statement, Tree
from privsql.sql.plan.planner import (
    Behind,
    BlockPlan,
    Parameters,
    PlanWriter,
    Printed,
    described_query,
    located,
    read_parameters,
    typed_query,
    weighed,
)

Given = Sequence[object] | Mapping[str, object] | None


@dataclass(frozen=True)
class Planned:
    """A query up to the point where published rows are read."""

    plans: tuple[BlockPlan, ...]
    behind: tuple[Behind | None, ...]
    tree: Tree
    final: Printed
    outs: tuple[Out, ...]
    described: tuple[tuple[str, str], ...]
    notices: tuple[Notice, ...]
    counts: tuple[int, ...]
    parameters: Parameters
    listing: Printed | None = None  # published rows, where the publisher shows them
    probe: Printed | None = None  # a question without rows, for tables that have none
    audited: Memory | None = None  # where ``final`` runs, if it is about tables of an audit


class Planning:
    """Plans statements about one release.

    ``memory`` answers, and evaluates expressions over domains; ``mirror`` has the tables of
    the release without any row, so that DuckDB itself can say what a query's columns are.
    """

    def __init__(
        self,
        catalog: Catalog,
        memory: Memory,
        mirror: Memory,
        *,
        salt: int = 0,
        accounted: bool = False,
        judged: bool = True,
        listable: bool = False,
        audited: Callable[[], Memory] | None = None,
    ) -> None:
        self._catalog = catalog
        self._memory = memory
        self._mirror = mirror
        self._salt = salt
        self._accounted = accounted
        self._judged = judged
        self._listable = listable
        self._audited = audited
        self._order = secrets.randbits(62)
        self._counter = itertools.count()
        self._domains: dict[str, str] = {}

    def plan(
        self,
        statement: Statement,
        given: Given,
        settings: Settings,
        form: str | None = None,
    ) -> Planned:
        """Plan a statement: all work before a published row is read.

        ``form`` is that of the scans (see ``sql.forms``), where it is not chosen by cost.
        """
        if statement.tree is None:
            raise ProgrammingError("there is no query in this statement")
        tree = statement.tree.copy()
        parameters = read_parameters(tree, given)
        asked = audit_question(tree, statement.source)
        if asked is not None and self._audited is not None:
            return self._about_audit(statement, asked, self._audited(), parameters)
        check_question(tree, statement.source)
        described = self._described(statement, tree, parameters)
        if self._listable:
            rows = listing(self._catalog, tree, statement.source)
            if rows is not None:
                return self._listed(rows, parameters, described)
        constants = Constants(parameters, lambda printed: self._memory.run(*printed.both))
        compiler = Compiler(self._catalog, statement.source, self._binds(parameters), constants)
        try:
            compiled = compiler.compile(tree)
        except NotSupportedError:
            if not is_probe(statement.tree):
                raise
            printed = described_query(statement.tree, parameters, statement.plain)
            outs = tuple(Out(name, False) for name, _ in described)
            return Planned(
                (), (), tree, printed, outs, tuple(described), (), (), parameters, probe=printed
            )
        prefix = f"privsql_q{next(self._counter)}"
        writer = self._writer(parameters, settings, form)
        try:
            plans = [
                writer.plan(part, f"{prefix}_{n}", weighed(compiled.tree, n))
                for n, part in enumerate(compiler.parts)
            ]
            behind = [writer.behind(plan) for plan in plans]
        except Error as problem:
            raise located(problem, statement.tree, statement.source) from None
        tree = writer.whole(compiled, plans)
        return Planned(
            tuple(plans),
            tuple(behind),
            tree,
            parameters.bind(tree),
            tuple(compiled.outs),
            tuple(described),
            tuple(compiler.notices),
            tuple(compiler.counts),
            parameters,
        )

    def _listed(
        self, rows: Tree, parameters: Parameters, described: Sequence[tuple[str, str]]
    ) -> Planned:
        """Published rows as they are, in an order that only this session has."""
        printed = Parameters({**parameters.values, ORDER: self._order}).bind(rows)
        outs = tuple(Out(name, False) for name, _ in described)
        said = Notice(
            "published-rows",
            "these are published rows: sensitive values are perturbed and may be false;"
            " aggregates are reconstructed",
        )
        return Planned(
            (), (), rows, printed, outs, tuple(described), (said,), (), parameters, printed
        )

    def _about_audit(
        self, statement: Statement, tree: Tree, memory: Memory, parameters: Parameters
    ) -> Planned:
        """A question about tables of an audit, which are exact and run where only they are."""
        printed = parameters.bind(tree.copy())
        try:
            described = memory.describe(*printed.both)
        except ProgrammingError as problem:
            mistake = placed(problem, statement.text, self._catalog)
            mistake.hint = "SELECT * from the same table, with LIMIT 0, shows its columns"
            raise mistake from None
        outs = tuple(Out(name, False) for name, _ in described)
        return Planned(
            (), (), tree, printed, outs, tuple(described), (), (), parameters, audited=memory
        )

    def _described(
        self, statement: Statement, tree: Tree, parameters: Parameters
    ) -> list[tuple[str, str]]:
        """Names and types of the columns, from DuckDB itself on empty tables of the same shape."""
        printed = described_query(tree, parameters, statement.plain)
        try:
            return self._mirror.describe(*printed.both)
        except ProgrammingError as problem:
            raise placed(problem, statement.text, self._catalog) from None

    def _domain(self, name: str) -> str:
        """The table of a column's domain in memory, loaded when it is first needed."""
        if name not in self._domains:
            sensitive = self._catalog.sensitive[name]
            values = sensitive.domain.values()
            table = pa.table({"i": pa.array(range(len(values)), type=pa.int64()), name: values})
            raw = f"domain_{len(self._domains)}_raw"
            self._memory.load(raw, table)
            typed = self._memory.run(typed_query(raw, name, sensitive.type))
            self._memory.forget(raw)
            made = f"domain_{len(self._domains)}"
            self._memory.load(made, typed)
            self._domains[name] = made  # not before: loading may have been canceled
        return self._domains[name]

    def _binds(self, parameters: Parameters) -> Callable[[Tree], bool]:
        """Whether a query binds where there is no published table."""

        def binds(query: Tree) -> bool:
            try:
                self._memory.describe(*parameters.bind(query.copy()).both)
            except Error:
                return False
            return True

        return binds

    def _writer(self, parameters: Parameters, settings: Settings, form: str | None) -> PlanWriter:
        return PlanWriter(
            self._catalog,
            parameters,
            lambda printed: self._memory.run(printed.sql, printed.parameters),
            self._domain,
            settings.estimator == "iterative",
            form,
            evaluated=self.evaluated,
            salt=self._salt,
            accounted=self._accounted,
            judged=self._judged,
        )

    def evaluated(self, printed: Printed, tables: Mapping[str, pa.Table]) -> pa.Table:
        """Run SQL over tables that are there for this once."""
        self._memory.load_all(tables)
        try:
            return self._memory.run(*printed.both)
        finally:
            self._memory.forget(*tables)
