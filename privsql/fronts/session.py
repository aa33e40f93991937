"""The session: the one path that a query takes, whoever asks.

text ── parse ──> statement ── compile ──> blocks and the SQL around them
     ── plan ───> scan and reconstruction of each block
     ── engine ─> the scan's result, materialised
     ── memory ─> estimates, error bars, the rest of the query ──> Outcome
"""

from __future__ import annotations

import itertools
import secrets
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from privsql.answer.columns import columns
from privsql.answer.digits import coarse
from privsql.answer.notices import notices_of
from privsql.answer.outcome import Outcome, Personal, ResultColumn
from privsql.engines import Embedded, Memory, Most, Watch, watching
from privsql.errors import (
    Error,
    InterfaceError,
    Notice,
    NotSupportedError,
    Place,
    ProgrammingError,
)
from privsql.fronts.gate import Decision, Gate, Served
from privsql.fronts.settings import Settings
from privsql.policy.journal import Entry, JournalError, digest
from privsql.policy.limits import Limits
from privsql.policy.personal import refusal
from privsql.release.store import open_release
from privsql.sql.catalog import Catalog, Sensitive, placed
from privsql.sql.compile import Compiler
from privsql.sql.compiled import Out
from privsql.sql.expand import Expanded, expand
from privsql.sql.explain import Explained, explain
from privsql.sql.inverted import inverted_notices
from privsql.sql.listing import ORDER, listing
from privsql.sql.parse import Statement, Tree, only, parts
from privsql.sql.plan import (
    Behind,
    BlockPlan,
    Change,
    Gap,
    Parameters,
    PlanWriter,
    Printed,
    changed_statement,
    check_work,
    described_query,
    empty_query,
    located,
    place_in,
    public_columns,
    read_parameters,
    secrets_scan,
    typed_query,
)
from privsql.sql.question import check_question
from privsql.sql.unbound import parameter_types, without_values
from udfs.intervals import critical

INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UBIGINT", "UHUGEINT")


# Plans that a session keeps, and characters of a statement whose plan is worth its memory.
REMEMBERED = 256
SHORT = 20_000
# Bytes of a plan's own tables that stay loaded with it.
STANDING = 100_000

# Bytes of an answer that is kept to be given again: a release does not change.
SMALL = 32_000


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


class Session:
    """Answers statements about one release."""

    def __init__(
        self,
        path: str | Path,
        *,
        tables: Mapping[str, pa.Table] | None = None,
        limits: Limits | None = None,
        served: Served | None = None,
        **settings: object,
    ) -> None:
        self.limits = limits or Limits()
        self._watch = Watch()
        self.release = open_release(path)
        manifest = self.release.manifest
        self._tables = {name: _as_arrow(table) for name, table in (tables or {}).items()}
        self._most = Most(self.limits.rows, self.limits.cells, self.limits.bytes)
        self._engine = Embedded(
            self.release,
            tables=self._tables,
            memory_limit=self.limits.memory,
            threads=self.limits.threads,
            spill=self.limits.spill,
            most=self._most,
        )
        self._memory = Memory(memory_limit=self.limits.memory)
        self._mirror = Memory(memory_limit=self.limits.memory)
        self._lock = threading.RLock()
        self._counter = itertools.count()
        self._domains: dict[str, str] = {}
        self._plans: dict[tuple[str, Settings], Planned] = {}
        self._standing: set[str] = set()  # prefixes of plans whose tables stay in memory
        self._answers: dict[Hashable, tuple[Outcome, tuple[str, ...]]] = {}
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
        (counts,) = self._engine.scan(
            "SELECT coalesce(sum(privsql_rows), 0)::BIGINT AS total, count(*) AS tuples"
            " FROM privsql.tuples"
        ).to_pylist()
        self._total = counts["total"]
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
            tuples=counts["tuples"],
            grouping=tuple(c.name for c in manifest.public if c.grouping),
        )
        self._mirror.load(manifest.table, self._engine.scan(empty_query(self.catalog)))
        self._served = served
        self._order = secrets.randbits(62)
        self._digest = digest(manifest.to_json())
        self._salt = int(self._digest[:12], 16)
        self._groups: list[str] = []  # digests of the groups behind the statement under way
        measures = any(not column.grouping for column in manifest.public)
        self._gate = Gate(
            self._engine,
            self._evaluated,
            manifest.policy,
            self._total,
            self._digest,
            served,
            secrets_scan(self.catalog, self._salt) if measures else None,
        )

    # -- statements -------------------------------------------------------------------

    def statements(self, sql: str) -> list[str]:
        """Split at semicolons."""
        watch = Watch(self.limits.seconds)
        return watch.breakable(lambda: parts(sql, characters=self.limits.characters))

    def run(
        self,
        sql: str,
        parameters: Sequence[object] | Mapping[str, object] | None = None,
        **options: object,
    ) -> Outcome:
        """Answer one statement."""
        with self._lock, self._logged(sql) as log:
            key = self._key(sql, parameters, options)
            if key in self._answers and not self._closed:
                # Nothing in a question may change between two times that it is asked, and what
                # was answered once is no news to the history.
                outcome, groups = self._answers[key]
                self._groups += groups
                return log(outcome)
            outcome = self._run(sql, parameters, options)
            if key is not None and outcome.kind == "rows" and outcome.table.nbytes <= SMALL:
                self._answers[key] = outcome, tuple(self._groups)
                if len(self._answers) > REMEMBERED:
                    self._answers.pop(next(iter(self._answers)))
            return log(outcome)

    def remembers(
        self,
        sql: str,
        parameters: Sequence[object] | Mapping[str, object] | None = None,
        **options: object,
    ) -> bool:
        """Whether ``run`` would give an answer that it gave before, in no time."""
        return self._key(sql, parameters, options) in self._answers

    def _key(
        self,
        sql: str,
        parameters: Sequence[object] | Mapping[str, object] | None,
        options: Mapping[str, object],
    ) -> Hashable | None:
        """What makes two questions the same one; None where they cannot be compared.

        1, 1.0 and true are equal in Python and not in SQL, so types take part.  What a session
        shows of its settings is no answer.
        """
        if self._served is None or len(sql) > SHORT or isinstance(parameters, Mapping):
            return None
        if sql.lstrip()[:4].upper() in ("SHOW", "SET ", "RESE"):
            return None
        values = tuple((type(value), value) for value in parameters or ())
        key = (sql, values, self.settings, tuple(sorted(options.items())))
        try:
            hash(key)
        except TypeError:  # a list among the parameters
            return None
        return key

    def parameter_types(self, sql: str, given: Mapping[int, str] | None = None) -> list[str]:
        """DuckDB's types of ``$1``, ``$2``, ... where their values are not known yet.

        ``given`` are those that whoever asks has settled.
        """
        with self._lock, self._watched() as watch:
            self._check_open()
            tree = watch.breakable(lambda: self._one(sql)).tree
            if tree is None:
                return []

            def alone(query: str) -> str | None:
                try:
                    return self._mirror.describe(query)[0][1]
                except Error:
                    return None

            table = self.catalog.table
            return watch.breakable(lambda: parameter_types(tree, table, given or {}, alone))

    def describe(
        self, sql: str, types: Sequence[str] = (), **options: object
    ) -> tuple[ResultColumn, ...]:
        """The columns of an answer, error bars included, without asking the question.

        Parameters are known by their DuckDB type only.  Scans are bound and never run.
        """
        with self._lock, self._watched() as watch:
            self._check_open()
            statement = watch.breakable(lambda: self._one(sql))
            settings = self.settings
            for name, value in {**statement.options, **options}.items():
                settings = settings.with_option(name, value)
            if statement.kind == "explain":
                kinds = {
                    "block": "BIGINT",
                    "item": "VARCHAR",
                    "name": "VARCHAR",
                    "value": "VARCHAR",
                }
                return tuple(ResultColumn(name, kind) for name, kind in kinds.items())
            problem: Error | None = None
            for samples in (False, True) if types else (False,):
                open_ = without_values(statement, types, samples=samples)
                try:
                    planned = watch.breakable(lambda s=open_: self._planned(s, None, settings))  # type: ignore[misc]
                except (ProgrammingError, NotSupportedError) as found:
                    problem = problem or found
                else:
                    return columns(self._without_rows(planned, settings))
            raise problem or ProgrammingError("there is no query in this statement")

    def _without_rows(self, planned: Planned, settings: Settings) -> Outcome:
        """An answer with the columns of a plan's and no row; nothing is scanned."""
        if planned.listing is not None:
            found = self._engine.scan(*_both(_no_rows(planned.listing)))
            return self._outcome(found, planned.outs, planned.described, settings)
        loaded: list[str] = []
        try:
            for plan in planned.plans:
                beside = None if plan.beside is None else _no_rows(plan.beside)
                empty = replace(plan, scan=_no_rows(plan.scan), beside=beside)
                self._load(empty, loaded, settings, planned.outs)
            table = self._memory.run(*_both(_no_rows(planned.final)))
        finally:
            if loaded:
                self._memory.forget(*loaded)
        return self._outcome(table, planned.outs, planned.described, settings)

    def _run(
        self,
        sql: str,
        parameters: Sequence[object] | Mapping[str, object] | None,
        options: Mapping[str, object],
    ) -> Outcome:
        with self._watched() as watch:
            self._check_open()
            statement = watch.breakable(lambda: self._one(sql))
            settings = self.settings
            for name, value in {**statement.options, **options}.items():
                settings = settings.with_option(name, value)
            if statement.kind in ("set", "reset", "show"):
                return self._setting(statement)
            if statement.kind == "explain":
                return self._explained(statement, parameters, settings)
            return self._answer(statement, parameters, settings)

    @contextmanager
    def _logged(self, sql: str) -> Iterator[Callable[[Outcome], Outcome]]:
        """Write what becomes of a statement to the log, before anybody sees an answer."""
        served, begun = self._served, time.monotonic()
        journal = None if served is None else served.journal
        if served is None or journal is None:
            yield lambda outcome: outcome
            return
        self._groups.clear()
        user = served.user

        def write(decision: str, reason: str = "") -> None:
            journal.append(
                Entry(
                    user,
                    sql,
                    decision,
                    reason,
                    (self.release.manifest.table,),
                    digest("".join(self._groups)) if self._groups else "",
                    time.monotonic() - begun,
                )
            )

        def log(outcome: Outcome) -> Outcome:
            personal = outcome.personal
            reason = "personal-group" if personal.refused or personal else ""
            write("flagged" if personal else "answered", reason)
            return outcome

        try:
            yield log
        except Error as problem:
            if not isinstance(problem, JournalError):
                kind = "refused" if isinstance(problem, NotSupportedError) else "failed"
                write(kind, problem.code)
            raise

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
        short = not given and len(statement.text) <= SHORT
        key = (statement.text, settings) if short else None
        planned = self._plans.get(key) if key is not None else None
        if planned is None:
            planned = self._watch.breakable(lambda: self._planned(statement, given, settings))
            if key is not None:
                self._remember(key, planned)
        if planned.listing is not None:
            found = self._engine.scan(*_both(planned.listing))
            outcome = self._outcome(found, planned.outs, planned.described, settings)
            return replace(outcome, notices=planned.notices)
        loaded: list[str] = []
        notices = list(planned.notices)
        personal = Personal(self.release.manifest.policy.personal_groups)
        try:
            changes = []
            for plan, behind in zip(planned.plans, planned.behind, strict=True):
                scanned = self._load(plan, loaded, settings, planned.outs)
                notices += inverted_notices(plan.block, plan.steps, scanned)
                gap = None
                if behind is not None and not self._gate.off:
                    decision = self._gate.decide(plan, behind, scanned)
                    self._groups.append(decision.digest)
                    personal += decision.personal
                    notices += decision.notices
                    loaded.append(f"{plan.prefix}_mask")
                    gap = self._gap(plan, behind, decision, statement)
                rounded = self._gate.rounded and plan.states is not None
                if gap is not None or rounded:
                    changes.append(Change(plan, gap, rounded))
            final = planned.final
            if changes:
                final = changed_statement(planned.tree, changes, planned.parameters)
            # One row a block needs no limit; a public table could be joined to it many times.
            one_row = not self._tables and not any(p.block.grouped for p in planned.plans)
            table = self._memory.run(*_both(final), most=None if one_row else self._most)
        except Error as problem:
            tree = planned.tree if statement.tree is None else statement.tree
            raise located(problem, tree, statement.source) from None
        finally:
            self._forget(planned, loaded, key is not None and not settings.simultaneous)
        outcome = self._outcome(table, planned.outs, planned.described, settings)
        if self._gate.rounded:
            outcome = replace(outcome, bars={i: coarse(bars) for i, bars in outcome.bars.items()})
        said = (*notices, *outcome.notices, *notices_of(outcome, planned.counts))
        return replace(outcome, notices=said, personal=personal)

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
        if self.release.manifest.policy.rows == "allow":
            rows = listing(self.catalog, tree, statement.source)
            if rows is not None:
                return self._listed(rows, parameters, described)
        compiler = Compiler(self.catalog, statement.source, self._binds(parameters))
        compiled = compiler.compile(tree)
        prefix = f"privsql_q{next(self._counter)}"
        writer = self._writer(parameters, settings)
        try:
            plans = [writer.plan(part, f"{prefix}_{n}") for n, part in enumerate(compiler.parts)]
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
            "these are rows as published: a sensitive value may be anybody's;"
            " ask for aggregates to have them reconstructed",
        )
        return Planned(
            (), (), rows, printed, outs, tuple(described), (said,), (), parameters, printed
        )

    def _remember(self, key: tuple[str, Settings], planned: Planned) -> None:
        self._plans[key] = planned
        if len(self._plans) > REMEMBERED:
            old = self._plans.pop(next(iter(self._plans)))
            for plan in old.plans:
                if plan.prefix in self._standing:
                    self._standing.remove(plan.prefix)
                    self._memory.forget(f"{plan.prefix}_z", *plan.tables)

    def _forget(self, planned: Planned, loaded: Sequence[str], remembered: bool) -> None:
        """Drop what a query loaded; tables that belong to a remembered plan stay for next time."""
        staying: set[str] = set()
        if remembered:
            for plan in planned.plans:
                own = {f"{plan.prefix}_z", *plan.tables}
                small = sum(each.nbytes for each in plan.tables.values()) <= STANDING
                if small and own <= set(loaded):
                    self._standing.add(plan.prefix)
                    staying |= own
        dropped = [name for name in loaded if name not in staying]
        if dropped:
            self._memory.forget(*dropped)

    def _gap(
        self, plan: BlockPlan, behind: Behind, decision: Decision, statement: Statement
    ) -> Gap | None:
        """The cells of a block that stay empty; a single answer that is refused is an error."""
        verdict = decision.verdict
        if not verdict.any_refused:
            return None
        if not plan.block.grouped:
            policy = self.release.manifest.policy
            problem = refusal(verdict, public_columns(plan.block), policy)
            problem.place = place_in(plan.block, statement.source)
            raise problem
        self._memory.load(f"{plan.prefix}_mask", decision.mask)
        return Gap(tuple(verdict.refused), behind.classes)

    def _load(
        self, plan: BlockPlan, loaded: list[str], settings: Settings, outs: Sequence[Out]
    ) -> pa.Table:
        scanned = self._engine.scan(*_both(plan.scan))
        check_work(plan, scanned)
        tables = {f"{plan.prefix}_scan": scanned}
        if plan.beside is not None:
            tables[f"{plan.prefix}_beside"] = self._engine.scan(*_both(plan.beside))
        cells = 1
        if settings.simultaneous:
            cells = max(1, scanned.num_rows) * max(1, sum(out.estimate for out in outs))
        if settings.simultaneous or plan.prefix not in self._standing:
            z = critical(settings.confidence_level, cells)
            tables[f"{plan.prefix}_z"] = pa.table({"z": pa.array([z])})
            tables |= plan.tables
        loaded += tables
        self._memory.load_all(tables)
        return scanned

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
            made = f"domain_{len(self._domains)}"
            self._memory.load(made, typed)
            self._domains[name] = made  # not before: loading may have been canceled
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
                bars[i] = _bars(visible.column(i), table.select(list(range(at, at + 4))))
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
        """Plan a query and say how it would be answered; no sensitive value is read."""
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
            policies=[
                self._gate.foreseen(plan, behind)
                for plan, behind in zip(planned.plans, planned.behind, strict=True)
            ],
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
            evaluated=self._evaluated,
            salt=self._salt,
            accounted=self._gate.differences,
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
        plan = self._watch.breakable(lambda: self._plan_of(statement, parameters, settings))
        table = plan.table()
        columns = tuple(
            ResultColumn(f.name, "BIGINT" if pa.types.is_integer(f.type) else "VARCHAR")
            for f in table.schema
        )
        return Outcome("explain", columns, table)

    def _one(self, sql: str) -> Statement:
        return only(sql, characters=self.limits.characters, depth=self.limits.depth)

    def explain(
        self,
        sql: str,
        parameters: Sequence[object] | Mapping[str, object] | None = None,
        **options: object,
    ) -> str:
        """How a query would be answered, for a person to read."""
        with self._lock, self._watched() as watch:
            self._check_open()
            statement = watch.breakable(lambda: self._one(sql))
            settings = self.settings
            for name, value in {**statement.options, **options}.items():
                settings = settings.with_option(name, value)
            plan = watch.breakable(lambda: self._plan_of(statement, parameters, settings))
            return plan.text()

    def expand(
        self, sql: str, parameters: Sequence[object] | Mapping[str, object] | None = None
    ) -> list[Expanded]:
        """The 2^k predicate-complement counts behind a conjunctive count, as SQL to read."""
        del parameters  # placeholders stay where they are
        with self._lock, self._watched() as watch:
            self._check_open()
            statement = watch.breakable(lambda: self._one(sql))
            tree = statement.tree
            if tree is None:
                raise ProgrammingError("there is no query in this statement")
            return watch.breakable(lambda: expand(tree.copy(), statement.plain, self.catalog))

    @contextmanager
    def _watched(self) -> Iterator[Watch]:
        """The time of one statement begins."""
        self._watch = Watch(self.limits.seconds)
        with watching(self._watch):
            yield self._watch

    def _check_open(self) -> None:
        if self._closed:
            raise InterfaceError("the connection is closed", hint="open the release again")

    def interrupt(self) -> None:
        """Stop what is under way."""
        self._watch.cancel()
        for each in (self._engine, self._memory, self._mirror):
            each.interrupt()

    def close(self) -> None:
        """Let go of the release."""
        self._closed = True
        for each in (self._engine, self._memory, self._mirror):
            each.close()


def _bars(values: pa.ChunkedArray[Any], found: pa.Table) -> pa.Table:
    """The error bars of a column; where there is no value there is nothing to be sure of."""
    there = values.is_valid()
    kept = [pc.if_else(there, each, pa.scalar(None, each.type)) for each in found.columns]
    return pa.table(kept, names=["stderr", "low", "high", "reliable"])


def _no_bars(rows: int) -> pa.Table:
    nothing = pa.nulls(rows, pa.float64())
    unknown = pa.nulls(rows, pa.bool_())
    return pa.table({"stderr": nothing, "low": nothing, "high": nothing, "reliable": unknown})


def _no_rows(printed: Printed) -> Printed:
    """A query with the columns of another; DuckDB runs nothing for LIMIT 0."""
    return replace(printed, sql=f"SELECT * FROM (\n{printed.sql}\n) LIMIT 0")  # noqa: S608


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
