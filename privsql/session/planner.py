"""Planning with a session's databases: domains are loaded when they are first needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa

from privsql.engines import MemoryEngine
from privsql.session.executor import Workspace
from privsql.session.settings import Settings
from privsql.sql.catalog import Catalog
from privsql.sql.parse.statement import Statement
from privsql.sql.plan.planner import Printed, typed_query
from privsql.sql.plan.query import Databases, Given, Planned, QueryPlanner, Wanted


class Planning:
    """Plans statements about one release.

    ``memory`` answers, and evaluates expressions over domains; ``mirror`` has the tables of
    the release without any row, so that DuckDB itself can say what a query's columns are;
    ``wanted`` is what holds for all of its statements; ``audited`` opens the tables of an audit;
    ``workspace`` has those of the statement; ``scan`` runs beside the published table.
    """

    def __init__(
        self,
        catalog: Catalog,
        memory: MemoryEngine,
        mirror: MemoryEngine,
        wanted: Wanted,
        audited: Callable[[], MemoryEngine],
        workspace: Workspace,
        scan: Callable[[Printed], pa.Table],
    ) -> None:
        self._catalog = catalog
        self._memory = memory
        self._workspace = workspace
        self._wanted = wanted
        self._domains: dict[str, str] = {}
        self._planner = QueryPlanner(
            catalog,
            Databases(
                lambda printed: memory.run(*printed.both),
                lambda printed: memory.describe(*printed.both),
                lambda printed: mirror.describe(*printed.both),
                lambda printed: audited().describe(*printed.both),
                self._domain,
                scan,
                workspace.prepared,
            ),
        )

    def plan(
        self,
        statement: Statement,
        given: Given,
        settings: Settings,
        form: str | None = None,
        described: bool = False,
    ) -> Planned:
        """Plan a statement: all work before its scans, and exact answers that it compares with.

        ``form`` is that of the scans (see ``sql.scan.forms``), where it is not chosen by cost.
        ``described`` says that only columns are asked for, so that nothing is read.
        """
        self._workspace.clear()
        iterative = settings.estimator == "iterative"
        wanted = replace(self._wanted, iterative=iterative, form=form, described=described)
        return self._planner.plan(statement, given, wanted)

    def _domain(self, name: str) -> str:
        """The table of a column's domain in memory, loaded when it is first needed."""
        if name not in self._domains:
            sensitive = self._catalog.sensitive[name]
            values = sensitive.domain.values()
            table = pa.table({"i": pa.array(range(len(values)), type=pa.int64()), name: values})
            # By the column's place: plans say the same whatever was planned before.
            made = f"domain_{list(self._catalog.sensitive).index(name)}"
            raw = f"{made}_raw"
            self._memory.load(raw, table)
            typed = self._memory.run(typed_query(raw, name, sensitive.type))
            self._memory.forget(raw)
            self._memory.load(made, typed)
            self._domains[name] = made  # not before: loading may have been canceled
        return self._domains[name]
