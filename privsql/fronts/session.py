"""The session: the one path that a query takes, whoever asks.

text ── parse ──> statement ── compile ──> blocks and the SQL around them
     ── plan ───> scan and reconstruction of each block
     ── engine ─> the scan's result, materialised
     ── memory ─> estimates, error bars, the rest of the query ──> Outcome
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from privsql.answer.notices import notices_of
from privsql.answer.outcome import Outcome, ResultColumn
from privsql.engines.embedded import Embedded
from privsql.engines.memory import Memory
from privsql.errors import Error, InterfaceError, Notice, Place, ProgrammingError
from privsql.fronts.settings import Settings
from privsql.policy.personal import judge, refusal
from privsql.policy.personal import notices as personal_notices
from privsql.release.store import open_release
from privsql.sql.catalog import Catalog, Sensitive, placed
from privsql.sql.compile import Compiler
from privsql.sql.compiled import Out
from privsql.sql.expand import Expanded, expand
from privsql.sql.explain import Explained, explain
from privsql.sql.parse import Statement, Tree, parts, statements
from privsql.sql.plan import (
    BlockPlan,
    Parameters,
    PlanWriter,
    Printed,
    check_work,
    described_query,
    empty_query,
    located,
    masked_statement,
    place_in,
    public_columns,
    read_parameters,
    typed_query,
)
from privsql.sql.question import check_question
from udfs.intervals import critical

INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UBIGINT", "UHUGEINT")


# Plans that a session keeps.
REMEMBERED = 256

Groups = tuple[Printed, dict[int, tuple[int, ...]]] | None


@dataclass(frozen=True)
class Planned:
    """A query up to the point where published rows are read."""

    plans: tuple[BlockPlan, ...]
    groups: tuple[Groups, ...]
    tree: Tree
    final: Printed
    outs: tuple[Out, ...]
    described: tuple[tuple[str, str], ...]
    notices: tuple[Notice, ...]
    counts: tuple[int, ...]
    parameters: Parameters


class Session:
    """Answers statements about one release."""

    def __init__(
        self,
        path: str | Path,
        *,
        tables: Mapping[str, pa.Table] | None = None,
        **settings: object,
    ) -> None:
        self.release = open_release(path)
        manifest = self.release.manifest
        self._tables = {name: _as_arrow(table) for name, table in (tables or {}).items()}
        self._engine = Embedded(self.release, tables=self._tables)
        self._memory = Memory()
        self._mirror = Memory()
        self._lock = threading.RLock()
        self._counter = itertools.count()
        self._domains: dict[str, str] = {}
        self._plans: dict[tuple[str, Settings], Planned] = {}
        self._closed = False
        self.settings = Settings()
        for name, value in settings.items():
            self.settings = self.settings.with_option(name, value)
        for name, table in self._tables.items():
            self._memory.load(name, table)
            self._mirror.load(name, table.slice(0, 0))
        columns = (
            *((c.name, c.type) for c in manifest.public),
            *((c.name, c.type) for c in manifest.sensitive),
        )
        self._total = int(
            self._engine.scan("SELECT sum(privsql_rows) FROM privsql.tuples").column(0)[0].as_py()
            or 0
        )
        self.catalog = Catalog(
            manifest.table,
            columns,
            {
                c.name: Sensitive(c.name, c.type, c.mechanism, c.domain, c.channel)
                for c in manifest.sensitive
            },
            {
                name: tuple((f.name, str(f.type)) for f in t.schema)
                for name, t in self._tables.items()
            },
            weighted=manifest.weighted,
            multiplicity=manifest.multiplicity,
            grouped=manifest.grouped,
            rows=self._total,
            grouping=tuple(c.name for c in manifest.public if c.grouping),
        )
        self._mirror.load(manifest.table, self._engine.scan(empty_query(self.catalog)))

    # -- statements -------------------------------------------------------------------

    def statements(self, sql: str) -> list[str]:
        """Split at semicolons."""
        return parts(sql)

    def run(
        self,
        sql: str,
        parameters: Sequence[object] | Mapping[str, object] | None = None,
        **options: object,
    ) -> Outcome:
        """Answer one statement."""
        with self._lock:
            self._check_open()
            statement = self._one(sql)
            settings = self.settings
            for name, value in {**statement.options, **options}.items():
                settings = settings.with_option(name, value)
            if statement.kind in ("set", "reset", "show"):
                return self._setting(statement)
            if statement.kind == "explain":
                return self._explained(statement, parameters, settings)
            return self._answer(statement, parameters, settings)

    def _setting(self, statement: Statement) -> Outcome:
        if statement.kind == "set":
            try:
                self.settings = self.settings.with_option(statement.name, statement.value)
            except ProgrammingError as problem:
                problem.place = Place(statement.text, 0, len(statement.text))
                raise
            return Outcome("set", (), pa.table({}))
        short = statement.name.removeprefix("privsql.")
        if not hasattr(Settings(), short):
            Settings().with_option(statement.name, None)
        if statement.kind == "reset":
            self.settings = replace(self.settings, **{short: getattr(Settings(), short)})
            return Outcome("set", (), pa.table({}))
        value = str(getattr(self.settings, short)).lower()
        return Outcome(
            "rows", (ResultColumn(short, "VARCHAR"),), pa.table({short: pa.array([value])})
        )

    def _answer(
        self,
        statement: Statement,
        given: Sequence[object] | Mapping[str, object] | None,
        settings: Settings,
    ) -> Outcome:
        # A dashboard asks the same again and again; parameters take part in planning.
        key = (statement.text, settings) if not given else None
        planned = self._plans.get(key) if key is not None else None
        if planned is None:
            planned = self._planned(statement, given, settings)
            if key is not None:
                self._remember(key, planned)
        loaded: list[str] = []
        notices = list(planned.notices)
        try:
            hidden = []
            for plan, groups in zip(planned.plans, planned.groups, strict=True):
                aggregates = self._refused(plan, groups, statement, notices, loaded)
                if aggregates:
                    hidden.append((plan, aggregates))
                self._load(plan, loaded, settings, planned.outs)
            final = planned.final
            if hidden:
                final = masked_statement(planned.tree, hidden, planned.parameters)
            table = self._memory.run(*_both(final))
        except Error as problem:
            tree = planned.tree if statement.tree is None else statement.tree
            raise located(problem, tree, statement.source) from None
        finally:
            if loaded:
                self._memory.forget(*loaded)
        outcome = self._outcome(table, planned.outs, planned.described, settings)
        said = (*notices, *outcome.notices, *notices_of(outcome, planned.counts))
        return replace(outcome, notices=said)

    def _planned(
        self,
        statement: Statement,
        given: Sequence[object] | Mapping[str, object] | None,
        settings: Settings,
    ) -> Planned:
        """Everything that can be settled before a published row is read."""
        if statement.tree is None:
            raise ProgrammingError("there is no query in this statement")
        tree = statement.tree.copy()
        parameters = read_parameters(tree, given)
        check_question(tree, statement.source)
        described = self._described(statement, tree, parameters)
        compiler = Compiler(self.catalog, statement.source, self._binds(parameters))
        compiled = compiler.compile(tree)
        prefix = f"privsql_q{next(self._counter)}"
        writer = self._writer(parameters, settings)
        try:
            plans = [writer.plan(part, f"{prefix}_{n}") for n, part in enumerate(compiler.parts)]
            groups = [writer.groups(part) for part in compiler.parts]
        except Error as problem:
            raise located(problem, statement.tree, statement.source) from None
        tree = writer.whole(compiled, plans)
        return Planned(
            tuple(plans),
            tuple(groups),
            tree,
            parameters.bind(tree),
            tuple(compiled.outs),
            tuple(described),
            tuple(compiler.notices),
            tuple(compiler.counts),
            parameters,
        )

    def _remember(self, key: tuple[str, Settings], planned: Planned) -> None:
        self._plans[key] = planned
        if len(self._plans) > REMEMBERED:
            self._plans.pop(next(iter(self._plans)))

    def _refused(
        self,
        plan: BlockPlan,
        groups: Groups,
        statement: Statement,
        notices: list[Notice],
        loaded: list[str],
    ) -> list[int]:
        """Refuse or flag what is about one personal group; say which aggregates have gaps."""
        policy = self.release.manifest.policy
        if groups is None or (policy.personal_groups == "allow" and not policy.min_rows):
            return []
        printed, selections = groups
        scanned = self._engine.scan(*_both(printed))
        verdict = judge(scanned, selections, policy, self._total)
        if verdict.any_refused and not plan.block.grouped:
            problem = refusal(verdict, public_columns(plan.block), policy)
            problem.place = place_in(plan.block, statement.source)
            raise problem
        notices += personal_notices(verdict, policy)
        if not verdict.any_refused:
            return []
        mask = scanned.select([c for c in scanned.column_names if c[0] in "kg"])
        for i, cells in verdict.refused.items():
            mask = mask.append_column(f"p{i}", pa.array(cells))
        self._memory.load(f"{plan.prefix}_mask", mask)
        loaded.append(f"{plan.prefix}_mask")
        return list(verdict.refused)

    def _load(
        self, plan: BlockPlan, loaded: list[str], settings: Settings, outs: Sequence[Out]
    ) -> None:
        scanned = self._engine.scan(*_both(plan.scan))
        cells = 1
        if settings.simultaneous:
            cells = max(1, scanned.num_rows) * max(1, sum(out.estimate for out in outs))
        check_work(plan, scanned)
        z = critical(settings.confidence_level, cells)
        tables = {
            f"{plan.prefix}_scan": scanned,
            f"{plan.prefix}_z": pa.table({"z": pa.array([z])}),
            **plan.tables,
        }
        if plan.beside is not None:
            tables[f"{plan.prefix}_beside"] = self._engine.scan(*_both(plan.beside))
        loaded += tables
        self._memory.load_all(tables)

    def _described(
        self, statement: Statement, tree: Tree, parameters: Parameters
    ) -> list[tuple[str, str]]:
        """Names and types of the columns, from DuckDB itself on empty tables of the same shape."""
        printed = described_query(tree, parameters, statement.plain)
        try:
            return self._mirror.describe(*_both(printed))
        except ProgrammingError as problem:
            raise placed(problem, statement.text, self.catalog) from None

    def _domain(self, name: str) -> str:
        """The table of a column's domain in memory, loaded when it is first needed."""
        if name not in self._domains:
            sensitive = self.catalog.sensitive[name]
            values = sensitive.domain.values()
            table = pa.table({"i": pa.array(range(len(values)), type=pa.int64()), name: values})
            raw = f"domain_{len(self._domains)}_raw"
            self._memory.load(raw, table)
            typed = self._memory.run(typed_query(raw, name, sensitive.type))
            self._memory.forget(raw)
            self._domains[name] = f"domain_{len(self._domains)}"
            self._memory.load(self._domains[name], typed)
        return self._domains[name]

    def _outcome(
        self,
        table: pa.Table,
        outs: Sequence[Out],
        described: Sequence[tuple[str, str]],
        settings: Settings,
    ) -> Outcome:
        visible = table.select(list(range(len(outs))))
        names = [described[i][0] if i < len(described) else out.name for i, out in enumerate(outs)]
        columns = []
        for i, out in enumerate(outs):
            floating = pa.types.is_floating(visible.schema.field(i).type)
            whole = described[i][1]
            # An exact integer that came out as a DOUBLE went through an estimate somewhere.
            hidden = floating and not out.estimate and whole in INTEGERS
            estimate = out.estimate or hidden
            kind = "DOUBLE" if floating and estimate else whole
            columns.append(ResultColumn(names[i], kind, estimate))
        bars: dict[int, pa.Table] = {}
        notices: list[Notice] = []
        at = len(outs)
        for i, out in enumerate(outs):
            if out.estimate:
                bars[i] = table.select(list(range(at, at + 4))).rename_columns(
                    ["stderr", "low", "high", "reliable"]
                )
                at += 4
            elif columns[i].estimate:
                bars[i] = _no_bars(table.num_rows)
                notices.append(Notice("no-error", f"{names[i]!r} has no error bar: it hides one"))
        estimated = bool(bars)
        method = "iterative" if settings.estimator == "iterative" else "inversion"
        return Outcome(
            "rows",
            tuple(columns),
            visible.rename_columns(names),
            bars,
            tuple(notices),
            method if estimated else "exact",
            settings.confidence_level,
            settings.error_bars,
        )

    def _plan_of(
        self,
        statement: Statement,
        given: Sequence[object] | Mapping[str, object] | None,
        settings: Settings,
    ) -> Explained:
        """Plan a query and say how it would be answered, without reading a published row."""
        planned = self._planned(statement, given, settings)
        pairs = zip(planned.described, planned.outs, strict=False)
        return explain(
            planned.plans,
            planned.final,
            [(name, out.estimate) for (name, _), out in pairs],
            self.catalog,
            planned.parameters,
            self._evaluated,
            estimator=settings.estimator,
            level=settings.confidence_level,
        )

    def _binds(self, parameters: Parameters) -> Callable[[Tree], bool]:
        """Whether a query binds where there is no published table."""

        def binds(query: Tree) -> bool:
            try:
                self._memory.describe(*_both(parameters.bind(query.copy())))
            except Error:
                return False
            return True

        return binds

    def _writer(self, parameters: Parameters, settings: Settings) -> PlanWriter:
        return PlanWriter(
            self.catalog,
            parameters,
            lambda printed: self._memory.run(printed.sql, printed.parameters),
            self._domain,
            settings.estimator == "iterative",
        )

    def _evaluated(self, printed: Printed, tables: Mapping[str, pa.Table]) -> pa.Table:
        """Run SQL over tables that are there for this once."""
        self._memory.load_all(tables)
        try:
            return self._memory.run(*_both(printed))
        finally:
            self._memory.forget(*tables)

    def _explained(
        self,
        statement: Statement,
        parameters: Sequence[object] | Mapping[str, object] | None,
        settings: Settings,
    ) -> Outcome:
        table = self._plan_of(statement, parameters, settings).table()
        columns = tuple(
            ResultColumn(f.name, "BIGINT" if pa.types.is_integer(f.type) else "VARCHAR")
            for f in table.schema
        )
        return Outcome("explain", columns, table)

    def _one(self, sql: str) -> Statement:
        found = statements(sql)
        if len(found) != 1:
            raise ProgrammingError(
                "there is no statement" if not found else "there are several statements",
                hint="ask one at a time",
            )
        return found[0]

    def explain(
        self,
        sql: str,
        parameters: Sequence[object] | Mapping[str, object] | None = None,
        **options: object,
    ) -> str:
        """How a query would be answered, for a person to read."""
        with self._lock:
            self._check_open()
            statement = self._one(sql)
            settings = self.settings
            for name, value in {**statement.options, **options}.items():
                settings = settings.with_option(name, value)
            return self._plan_of(statement, parameters, settings).text()

    def expand(
        self, sql: str, parameters: Sequence[object] | Mapping[str, object] | None = None
    ) -> list[Expanded]:
        """The 2^k predicate-complement counts behind a conjunctive count, as SQL to read."""
        del parameters  # placeholders stay where they are
        with self._lock:
            self._check_open()
            statement = self._one(sql)
            if statement.tree is None:
                raise ProgrammingError("there is no query in this statement")
            return expand(statement.tree.copy(), statement.plain, self.catalog)

    def _check_open(self) -> None:
        if self._closed:
            raise InterfaceError("the connection is closed", hint="open the release again")

    def interrupt(self) -> None:
        """Stop what is under way."""
        self._engine.interrupt()
        self._memory.interrupt()

    def close(self) -> None:
        """Let go of the release."""
        self._closed = True
        for each in (self._engine, self._memory, self._mirror):
            each.close()


def _no_bars(rows: int) -> pa.Table:
    nothing = pa.nulls(rows, pa.float64())
    unknown = pa.nulls(rows, pa.bool_())
    return pa.table({"stderr": nothing, "low": nothing, "high": nothing, "reliable": unknown})


def _both(printed: Printed) -> tuple[str, Mapping[str, object]]:
    return printed.sql, printed.parameters


def _as_arrow(table: object) -> pa.Table:
    if isinstance(table, pa.Table):
        return table
    if hasattr(table, "to_arrow_table"):
        return pa.table(table.to_arrow_table())
    try:
        return pa.Table.from_pandas(table, preserve_index=False)
    except (TypeError, AttributeError, pa.ArrowException):
        raise ProgrammingError(
            "a public table must be an Arrow table or a pandas DataFrame"
        ) from None
