"""The session: the single path of a query from every front.

text ── parse ──> statement ── compile ──> blocks and the SQL around them
     ── plan ───> scan and reconstruction of each block
     ── engine ─> the scan's result, materialised
     ── memory ─> estimates, error bars, the rest of the query ──> Outcome
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path

import pyarrow as pa

from privsql.answer.columns import columns
from privsql.answer.digits import coarse
from privsql.answer.notices import notices_of
from privsql.answer.outcome import Outcome, Personal, ResultColumn
from privsql.engines import Engines, Here, Most, Watch, watching
from privsql.errors import (
    Error,
    InterfaceError,
    NotSupportedError,
    Place,
    ProgrammingError,
    how_many,
)
from privsql.policy.limits import Limits
from privsql.policy.personal import count, refusal, size_class
from privsql.session.audit_tables import Audited
from privsql.session.caches import SHORT, Remembered, key_of
from privsql.session.described import Summary, described, listed, nothing, summarized
from privsql.session.executor import Loading, Workspace
from privsql.session.gate import About, Decision, Gate, Served, accounted, open_to_all
from privsql.session.log import logged
from privsql.session.planner import Planning
from privsql.session.result import check_useful, outcome_of
from privsql.session.settings import Settings
from privsql.sql.catalog import Catalog, Sensitive
from privsql.sql.explain.brief import brief
from privsql.sql.explain.expand import Expanded, expand
from privsql.sql.explain.explain import Explained, explain
from privsql.sql.parse.about import (
    ALL_TABLES,
    DESCRIBE,
    TABLES,
    star_query,
    summary_of,
)
from privsql.sql.parse.about import KINDS as ABOUT
from privsql.sql.parse.parameter_types import parameter_types, without_values
from privsql.sql.parse.statement import Statement, begun, only, parts
from privsql.sql.parse.written_out import CLOCKS
from privsql.sql.plan.planner import (
    Behind,
    BlockPlan,
    Change,
    Gap,
    Printed,
    empty_query,
    located,
    place_in,
    public_columns,
    secrets_scan,
)
from privsql.sql.plan.query import Answered, Direct, Given, Planned, Wanted
from privsql.sql.reconstruct.inverted import inverted_notices
from privsql.sql.scan.forms import MOST_RESCANNED, STATES

# What SHOW privsql.account returns.
ACCOUNT_NAME = "privsql.account"
ACCOUNT = (
    ResultColumn("table", "VARCHAR"),
    ResultColumn("answers", "BIGINT"),
    ResultColumn("any", "DOUBLE"),
    ResultColumn("total", "DOUBLE"),
    ResultColumn("group_rows", "VARCHAR"),
)
_ARROW: dict[str, pa.DataType] = {"BIGINT": pa.int64(), "DOUBLE": pa.float64()}
ACCOUNT_SCHEMA: pa.Schema = pa.schema(
    [pa.field(each.name, _ARROW.get(each.type, pa.string())) for each in ACCOUNT]
)

# What EXPLAIN returns.
EXPLAINED = (
    ResultColumn("block", "BIGINT"),
    *(ResultColumn(name, "VARCHAR") for name in ("item", "name", "value")),
)


class Session:
    """Answers statements about one release."""

    def __init__(
        self,
        path: str | Path,
        *,
        tables: Mapping[str, pa.Table] | None = None,
        limits: Limits | None = None,
        served: Served | None = None,
        engines: Engines | None = None,
        remembered: Callable[[], Remembered] | None = None,
        **settings: object,
    ) -> None:
        self.limits = limits or Limits()
        self._watch = Watch()
        given = {name: _as_arrow(table) for name, table in (tables or {}).items()}
        self._most = Most(self.limits.rows, self.limits.cells, self.limits.bytes)
        self._engines = engines = engines or Here()
        self._engine = engines.scanning(
            path,
            tables=given,
            memory_limit=self.limits.memory,
            threads=self.limits.threads,
            spill=self.limits.spill,
            most=self._most,
        )
        self.release = self._engine.release
        manifest = self.release.manifest
        released = {each.name: self._engine.read(star_query(each.name)) for each in manifest.tables}
        self._tables = released | given
        self._memory = engines.memory(self.limits.memory)
        self._mirror = engines.memory(self.limits.memory)
        self._lock = threading.RLock()
        self._closed = False
        self.settings = Settings().with_options(settings)
        for name, table in self._tables.items():
            self._memory.load(name, table)
            self._mirror.load(name, table.slice(0, 0))
        (counts,) = self._engine.scan(
            "SELECT coalesce(sum(privsql_rows), 0)::BIGINT AS total, count(*) AS tuples"
            " FROM privsql.tuples"
        ).to_pylist()
        self._total = counts["total"]
        self.catalog = Catalog(
            manifest.table,
            (
                *((c.name, c.type) for c in manifest.public),
                *((c.name, c.type) for c in manifest.sensitive),
            ),
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
            repeated=manifest.privacy.rows_per_unit > 1,
        )
        self._mirror.load(manifest.table, self._engine.scan(empty_query(self.catalog)))
        # The form of all scans, for tests and benchmarks; no statement can set it.
        self.form: str | None = None
        self.rescan = True  # whether states tell where moments leave reliability in doubt
        # Of the last answer's blocks: forms, and those that the same kind of scan could have.
        self.forms: tuple[str, ...] = ()
        self.able: tuple[str, ...] = ()
        self._served = served
        own = Remembered()
        self._remembered = remembered or (lambda: own)
        self._groups: list[str] = []  # digests of the groups behind the statement under way
        self._workspace = Workspace(self._memory)
        self._loading = Loading(self._engine, self._memory, self._workspace, self.limits.rows)
        self._audited = Audited(self._engine, manifest, lambda: engines.memory(self.limits.memory))
        release = self.release.identity
        salt = int(release[:12], 16)
        measures = any(not column.grouping for column in manifest.public)
        wanted = Wanted(
            salt=salt,
            accounted=accounted(served, manifest.policy),
            judged=not open_to_all(manifest.policy),
            order=secrets.randbits(62) if manifest.policy.rows == "allow" else None,
        )
        self._planning = Planning(
            self.catalog,
            self._memory,
            self._mirror,
            wanted,
            self._audited.memory,
            self._workspace,
            lambda printed: self._engine.scan(*printed.both),
        )
        about = About(
            release, self.catalog, manifest.policy, self._total, self._tables, self.limits.memory
        )
        self._gate = Gate(
            self._engine,
            self._workspace.evaluated,
            about,
            served,
            (lambda former: secrets_scan(self.catalog, salt, former)) if measures else None,
        )

    # -- statements -------------------------------------------------------------------

    def statements(self, sql: str) -> list[str]:
        """Split at semicolons."""
        watch = Watch(self.limits.seconds)
        return watch.breakable(lambda: parts(sql, characters=self.limits.characters))

    def run(self, sql: str, parameters: Given = None, **options: object) -> Outcome:
        """Answer one statement.

        ``options`` are those of ``SET privsql.*``, for this once; ``said`` among them is what
        the analyst wrote where that was another dialect, for the log.
        """
        said = str(options.pop("said", None) or sql)
        with self._lock:
            self._groups.clear()
            table = self.release.manifest.table
            with logged(self._served, said, table, self._groups) as log:
                key = self._key(sql, parameters, options)
                known = self._remembered().get(key)
                if known is not None and not self._closed:
                    outcome, groups = known
                    self._groups += groups
                    return log(outcome)
                outcome = self._run(sql, parameters, options)
                self._remembered().put(key, outcome, self._groups)
                return log(outcome)

    def remembers(self, sql: str, parameters: Given = None, **options: object) -> bool:
        """Whether ``run`` would give an answer that it gave before, in no time."""
        return self._remembered().get(self._key(sql, parameters, options)) is not None

    def _key(self, sql: str, parameters: Given, options: Mapping[str, object]) -> Hashable | None:
        """What makes two questions the same one, where answers are remembered."""
        if self._served is None or CLOCKS.search(sql or ""):
            return None
        return key_of(sql, parameters, options, self.settings)

    def parameter_types(self, sql: str, given: Mapping[int, str] | None = None) -> list[str]:
        """DuckDB's types of ``$1``, ``$2``, ... where their values are not known yet.

        ``given`` are those that whoever asks has settled.
        """
        with self._asked(sql) as (watch, statement):

            def alone(query: str) -> str | None:
                try:
                    return self._mirror.describe(query)[0][1]
                except Error:
                    return None

            table = self.catalog.table
            return watch.breakable(lambda: parameter_types(statement, table, given or {}, alone))

    def describe(
        self, sql: str, types: Sequence[str] = (), **options: object
    ) -> tuple[ResultColumn, ...]:
        """The columns of an answer, error bars included, without asking the question.

        Parameters are known by their DuckDB type only.  Scans are bound and never run.
        """
        with self._asked(sql) as (watch, statement):
            settings = self.settings.with_options({**statement.options, **options})
            if statement.kind == "explain":
                return EXPLAINED
            if (about := self._about(statement)) is not None:
                if not statement.plain and about not in (TABLES, ALL_TABLES):
                    self._named(statement)
                estimates = self.catalog.is_published(statement.name)
                return columns(nothing(about, settings, estimates=estimates))
            problem: Error | None = None
            for samples in (False, True) if types else (False,):
                open_ = without_values(statement, types, samples=samples)
                try:
                    planned = watch.breakable(
                        partial(self._planning.plan, open_, None, settings, described=True)
                    )
                except (ProgrammingError, NotSupportedError) as found:
                    problem = problem or found
                else:
                    return columns(self._without_rows(planned, settings))
            raise problem or ProgrammingError(
                "there is no query in this statement", hint="write a SELECT"
            )

    def _without_rows(self, planned: Planned, settings: Settings) -> Outcome:
        """An answer with the columns of a plan's and no row; nothing is scanned."""
        if isinstance(planned, Direct):
            found = self._directly(planned, _no_rows(planned.printed))
            return outcome_of(found, planned.outs, planned.described, settings)
        loaded: list[str] = []
        try:
            for plan in planned.plans:
                beside = None if plan.beside is None else _no_rows(plan.beside)
                values = {name: _no_rows(scan) for name, scan in plan.values.items()}
                empty = replace(plan, scan=_no_rows(plan.scan), beside=beside, values=values)
                self._loading.load(empty, loaded, settings, planned.outs)
            table = self._memory.run(*_no_rows(planned.final.printed).both)
        finally:
            self._loading.drop(loaded)
        return outcome_of(table, planned.outs, planned.described, settings)

    def _run(self, sql: str, parameters: Given, options: Mapping[str, object]) -> Outcome:
        with self._asked(sql) as (_, statement):
            settings = self.settings.with_options({**statement.options, **options})
            if (about := self._about(statement)) is not None:
                return self._told(replace(statement, kind=about), parameters, settings)
            if statement.kind in ("set", "reset", "show"):
                return self._setting(statement)
            if statement.kind == "explain":
                return self._explained(statement, parameters, settings)
            return self._answer(statement, parameters, settings)

    def _about(self, statement: Statement) -> str | None:
        """What a statement asks about tables; None where it is another."""
        if statement.kind == "show" and statement.name in self._mirrored():
            return DESCRIBE
        return statement.kind if statement.kind in ABOUT else None

    def _mirrored(self) -> dict[str, str]:
        """All tables by their folded names."""
        names = (self.catalog.table, *self.catalog.tables)
        return {name.casefold(): name for name in names}

    def _named(self, statement: Statement) -> str:
        """The table that a statement about one names."""
        name = self._mirrored().get(statement.name.casefold())
        if name is None:
            place = Place(statement.source, 0, len(statement.source))
            raise self.catalog.no_table(statement.name, place)
        return name

    def _told(self, statement: Statement, given: Given, settings: Settings) -> Outcome:
        """Answer a statement about tables."""
        if statement.plain:
            planned = self._watch.breakable(lambda: self._planning.plan(statement, given, settings))
            found = columns(self._without_rows(planned, settings))
            return described([(each.name, each.type) for each in found])
        tables = self._mirrored()
        if statement.kind in (TABLES, ALL_TABLES):
            all_ = {name: self._columns_of(name) for name in tables.values()}
            return listed(all_, whole=statement.kind == ALL_TABLES)
        name = self._named(statement)
        if statement.kind == DESCRIBE:
            keys = {each.name: each.key for each in self.release.manifest.tables}
            return described(self._columns_of(name), keys.get(name, ""))
        if self.catalog.is_published(name):
            return Summary(self.catalog, self._memory, self._asked_within, settings).outcome()
        return summarized(self._memory.run(summary_of(name)))

    def _columns_of(self, name: str) -> Sequence[tuple[str, str]]:
        if self.catalog.is_published(name):
            return self.catalog.columns
        return self._mirror.describe(star_query(name))

    def _asked_within(self, text: str, settings: Settings) -> Outcome:
        """Answer a query that belongs to the statement under way."""
        return self._answer(only(text), None, settings)

    def _setting(self, statement: Statement) -> Outcome:
        if statement.kind == "set":
            try:
                self.settings = self.settings.with_option(statement.name, statement.value)
            except ProgrammingError as problem:
                problem.place = Place(statement.text, 0, len(statement.text))
                raise
            return Outcome("set", (), pa.table({}))
        if statement.kind == "show" and statement.name.lower() == ACCOUNT_NAME:
            return self._account()
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

    def _account(self) -> Outcome:
        """How close the user's answers are to the limits; never about whom."""
        standing = self._gate.standing()
        row = {
            "table": self.catalog.table,
            "answers": standing.answers,
            "any": round(standing.any, 4),
            "total": round(standing.total, 4),
            "group_rows": size_class(standing.size),
        }
        table = pa.table({name: [value] for name, value in row.items()}, schema=ACCOUNT_SCHEMA)
        return Outcome("rows", ACCOUNT, table)

    def reserve(self, statements: Mapping[str, str]) -> None:
        """Put statements into every account from the start, so that they are never refused.

        They are given as they were written, with what each means to a session.  Those that could
        not be answered to somebody who asks nothing else are an error.
        """
        with self._lock, self._gate.reserving():
            for said, text in statements.items():
                try:
                    outcome = self._run(text, None, {})
                    refused = outcome.personal.refused
                    why = f"{how_many(refused, 'cell is', 'cells are')} refused"
                except (NotSupportedError, ProgrammingError) as problem:
                    refused, why = 1, problem.reason
                if refused:
                    raise ProgrammingError(
                        f"a reserved statement cannot always be answered: {why}: {said.strip()}",
                        hint="leave it out, or let it select larger groups; reserved statements"
                        " are judged together, in their order",
                    )

    def _answer(self, statement: Statement, given: Given, settings: Settings) -> Outcome:
        # A dashboard asks the same again and again; parameters take part in planning.
        short = not given and len(statement.text) <= SHORT and not statement.clocked
        key = (statement.text, settings, self.form) if short else None
        planned = self._loading.known(key)
        if planned is None:
            planned = self._watch.breakable(
                lambda: self._planning.plan(statement, given, settings, self.form)
            )
            if key is not None:
                self._loading.remember(key, planned)
        if isinstance(planned, Direct):
            found = self._directly(planned, planned.printed)
            outcome = outcome_of(found, planned.outs, planned.described, settings)
            return replace(outcome, notices=(*outcome.notices, *planned.notices))
        self.forms = tuple(plan.form for plan in planned.plans)
        self.able = tuple(form for plan in planned.plans for form in plan.able)
        loaded: list[str] = []
        notices = list(planned.notices)
        personal = Personal(self.release.manifest.policy.personal_groups)
        staying = False
        try:
            scans = self._scanned(planned, loaded, settings)
            if self._in_doubt(planned, scans):
                # Nothing was answered or accounted for yet: states take the place of moments.
                self._loading.forget(planned, loaded, staying=False)
                loaded.clear()
                again = self._watch.breakable(
                    lambda: self._planning.plan(statement, given, settings, STATES)
                )
                if isinstance(again, Answered):  # as it was
                    planned = again
                if key is not None:
                    self._loading.remember(key, planned)
                scans = self._scanned(planned, loaded, settings)
            changes = []
            if not open_to_all(self.release.manifest.policy):
                self._gate.begin(planned.behind)
            for plan, behind, scanned in zip(planned.plans, planned.behind, scans, strict=True):
                notices += inverted_notices(plan, scanned)
                gap = None
                if behind is not None and not open_to_all(self.release.manifest.policy):
                    decision = self._gate.decide(plan, behind, scanned)
                    self._groups.append(decision.digest)
                    personal += decision.personal
                    notices += decision.notices
                    loaded.append(f"{plan.prefix}_mask")
                    gap = self._gap(plan, behind, decision, statement)
                rounded = self._gate.rounded and plan.estimated
                if gap is not None or rounded:
                    self._loading.all_cells(plan, scanned, loaded, hidden=gap is not None)
                    changes.append(Change(plan, gap, rounded))
            final = planned.final.masked(changes)
            # One row a block needs no limit; a public table could be joined to it many times.
            one_row = not self._tables and not any(plan.grouped for plan in planned.plans)
            table = self._memory.run(*final.both, most=None if one_row else self._most)
            staying = key is not None and not settings.simultaneous
        except Error as problem:
            raise located(problem, statement) from None
        finally:
            self._loading.forget(planned, loaded, staying)
        outcome = outcome_of(table, planned.outs, planned.described, settings)
        if not any(plan.grouped for plan in planned.plans):
            try:
                check_useful(outcome, planned.outs)
            except Error as problem:
                raise located(problem, statement) from None
        if self._gate.rounded:
            outcome = replace(outcome, bars={i: coarse(bars) for i, bars in outcome.bars.items()})
        said = (*notices, *outcome.notices, *notices_of(outcome, planned.counts))
        return replace(outcome, notices=said, personal=personal)

    def _directly(self, planned: Direct, printed: Printed) -> pa.Table:
        """Run a query that needs no reconstruction where its tables are."""
        if planned.place == "release":
            return self._engine.scan(*printed.both)
        if planned.place == "mirror":
            return self._mirror.run(*printed.both, most=self._most)
        return self._audited.memory().run(*printed.both, most=self._most)

    def _scanned(self, planned: Answered, loaded: list[str], settings: Settings) -> list[pa.Table]:
        """Scan all blocks, and load what their reconstruction reads."""
        return [self._loading.load(plan, loaded, settings, planned.outs) for plan in planned.plans]

    def _in_doubt(self, planned: Answered, scans: Sequence[pa.Table]) -> bool:
        """Whether the scans' bounds leave open if some cell may be called reliable."""
        asked = [
            plan.doubtful
            for plan, scanned in zip(planned.plans, scans, strict=True)
            if plan.doubtful and scanned.num_rows * plan.told <= MOST_RESCANNED
        ]
        return self.rescan and any(
            all(self._memory.run(*each.both).column(0).to_pylist() == [True] for each in queries)
            for queries in asked
        )

    def _gap(
        self, plan: BlockPlan, behind: Behind, decision: Decision, statement: Statement
    ) -> Gap | None:
        """The cells of a block that stay empty; a single answer that is refused is an error."""
        verdict = decision.verdict
        if not count(verdict.refused):
            return None
        if not plan.grouped:
            policy = self.release.manifest.policy
            problem = refusal(verdict, public_columns(plan), policy, alone=decision.alone)
            problem.place = place_in(plan, statement.source)
            raise problem
        self._memory.load(f"{plan.prefix}_mask", decision.mask)
        return Gap(tuple(verdict.refused), classes=behind.together is not None)

    def _plan_of(self, statement: Statement, given: Given, settings: Settings) -> Explained:
        """Plan a query and say how it would be answered; no sensitive value is read."""
        planned = self._planning.plan(statement, given, settings, self.form)
        blocks = (
            [] if isinstance(planned, Direct) else zip(planned.plans, planned.behind, strict=True)
        )
        return explain(
            planned,
            self.catalog,
            self._workspace.evaluated,
            estimator=settings.estimator,
            level=settings.confidence_level,
            policies=[self._gate.foreseen(plan, behind) for plan, behind in blocks],
        )

    def _explained(self, statement: Statement, parameters: Given, settings: Settings) -> Outcome:
        plan = self._watch.breakable(lambda: self._plan_of(statement, parameters, settings))
        return Outcome("explain", EXPLAINED, plan.table())

    def explain(
        self, sql: str, parameters: Given = None, *, verbose: bool = False, **options: object
    ) -> str:
        """How a query would be answered, for a person to read: in about ten lines, or all of it."""
        with self._asked(sql) as (watch, statement):
            settings = self.settings.with_options({**statement.options, **options})
            plan = watch.breakable(lambda: self._plan_of(statement, parameters, settings))
            return plan.text() if verbose or statement.verbose else brief(plan)

    def expand(self, sql: str, parameters: Given = None) -> list[Expanded]:
        """The 2^k predicate-complement counts behind a conjunctive count, as SQL to read."""
        del parameters  # placeholders stay where they are
        with self._asked(sql) as (watch, statement):
            return watch.breakable(lambda: expand(statement, self.catalog))

    @contextmanager
    def _asked(self, sql: str) -> Iterator[tuple[Watch, Statement]]:
        """One statement, parsed; its time begins."""
        with self._lock, watching(Watch(self.limits.seconds)) as self._watch:
            if self._closed:
                raise InterfaceError("the connection is closed", hint="open the release again")
            limits = {"characters": self.limits.characters, "depth": self.limits.depth}
            statement = self._watch.breakable(lambda: only(sql, **limits))
            yield self._watch, begun(statement, datetime.now().astimezone())

    def interrupt(self) -> None:
        """Stop what is under way."""
        self._watch.cancel()
        for each in (self._engine, self._memory, self._mirror, self._audited):
            each.interrupt()

    @property
    def broken(self) -> bool:
        """Whether its databases have ended, so that it must be opened again."""
        return self._engines.broken

    def close(self) -> None:
        """Close the release."""
        self._closed = True
        for each in (self._gate, self._engine, self._memory, self._mirror, self._audited):
            each.close()
        self._engines.close()


def _no_rows(printed: Printed) -> Printed:
    """A query with the columns of another; DuckDB runs nothing for LIMIT 0."""
    return replace(printed, sql=f"SELECT * FROM (\n{printed.sql}\n) LIMIT 0")  # noqa: S608


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
