"""Execution of statements: threads, sessions, catalogs and cached answers.

Nothing here runs in the event loop's own thread but what is remembered.  A statement waits for a
thread, takes a session of its release or a catalog, and can be canceled at every point of that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from privsql.answer.columns import BARS, arrays, columns
from privsql.answer.outcome import Outcome, ResultColumn
from privsql.engines import CanceledError, Watch, watching
from privsql.engines.processes.child import Remote
from privsql.engines.processes.confined import bytes_of
from privsql.engines.recent import Recent
from privsql.errors import Error, Notice, NotSupportedError, Place
from privsql.fronts.pgwire.catalog.database import shapes
from privsql.fronts.pgwire.catalog.pool import Asking, Lookups
from privsql.fronts.pgwire.catalog.rows import VECTORS, located, numbers
from privsql.fronts.pgwire.clock import timed
from privsql.fronts.pgwire.releases import House, Version
from privsql.fronts.pgwire.scheduler import Scheduler
from privsql.fronts.pgwire.settings import RunTime
from privsql.fronts.pgwire.status.metrics import Metrics
from privsql.policy.journal import JournalError
from privsql.session.caches import SHORT, SMALL
from privsql.session.session import ACCOUNT as ACCOUNT_COLUMNS
from privsql.session.session import ACCOUNT_NAME, ACCOUNT_SCHEMA
from privsql.sql.nodes import Unsupported
from privsql.sql.postgres.commands import UnknownRelation
from privsql.sql.postgres.placeholders import typed
from privsql.sql.postgres.read import Command, read

READ = 512  # texts whose commands are remembered
CATALOG_SECONDS = 30.0
ENCODED = 8_000_000  # bytes of small answers that are kept as they were sent

Column = tuple[str, str]  # its name and DuckDB's type


@dataclass(frozen=True)
class Answer:
    """Rows, and what has to be said about them.

    ``encoded`` keeps what few rows became on the wire: a dashboard asks the same again and again.
    """

    columns: tuple[Column, ...]
    table: pa.Table
    notices: tuple[Notice, ...] = ()
    encoded: dict[Hashable, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class Asker:
    """Who asks, and about what: fixed for a connection."""

    user: str
    database: str
    may: Callable[[str], bool]
    process: int = 0


@dataclass(eq=False)
class Job:
    """One statement that returns rows, for those who answer it and whoever wants to end it."""

    asker: Asker
    command: Command
    arguments: Sequence[Any]
    types: Sequence[str]
    run_time: RunTime
    canceled: bool = False
    noted: bool = False  # what became of it is in the journal
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _end: Callable[[], None] | None = None

    @property
    def values(self) -> list[Any] | None:
        """Those of its parameters, the client's and the clock's."""
        return list(timed(self.command, self.arguments, self.run_time.zone)) or None

    def cancel(self) -> None:
        """End it, now or as soon as it begins."""
        with self._lock:
            self.canceled = True
            if self._end is not None:
                self._end()

    @contextmanager
    def ended_by(self, end: Callable[[], None]) -> Iterator[None]:
        """Meanwhile this ends it."""
        with self._lock:
            self.check()
            self._end = end
        try:
            yield
        finally:
            with self._lock:
                self._end = None

    def check(self) -> None:
        """Go no further with what was canceled."""
        if self.canceled:
            raise CanceledError("the statement was canceled")


class Desk:
    """What all connections of a server share."""

    def __init__(self, house: House, workers: int) -> None:
        self.house = house
        self.metrics = Metrics()
        self.asking = Scheduler(workers, "privsql ask")
        # Apart, so that long statements do not keep others from being read and sent.
        self.reading = Scheduler(2, "privsql read")
        self._lookups = Lookups(bytes_of(house.limits.memory))
        self._commands: Recent[tuple[tuple[int, ...], str], tuple[Command, ...]] = Recent(READ)
        self._answers: Recent[Hashable, tuple[Outcome, Answer]] = Recent(
            READ, lambda kept: 2000 + 3 * kept[1].table.nbytes, ENCODED
        )
        self._origins: Recent[Hashable, list[tuple[int, int]]] = Recent(READ)

    # -- text ----------------------------------------------------------------------------

    def state(self, asker: Asker) -> tuple[int, ...]:
        """The versions that somebody sees: what is remembered of them is theirs."""
        return tuple(version.number for version in self.house.versions(asker.may).values())

    def known(self, asker: Asker, text: str) -> tuple[Command, ...] | None:
        """The commands of a text that was read before."""
        return self._commands.get((self.state(asker), text))

    def read(self, asker: Asker, text: str) -> tuple[Command, ...]:
        """The commands of a text."""
        key, limits = (self.state(asker), text), self.house.limits
        versions = self.house.versions(asker.may).values()
        known = {version.name.lower(): version.columns for version in versions}
        watch = Watch(limits.seconds)
        found = tuple(watch.breakable(lambda: read(text, known, characters=limits.characters)))
        if len(text) <= SHORT:
            self._commands.put(key, found)
        return found

    # -- statements ----------------------------------------------------------------------

    def types(self, asker: Asker, command: Command, given: Mapping[int, str]) -> list[str]:
        """DuckDB's types of the parameters of a command; those of the clock are not asked for."""
        if command.kind != "query":
            found = []
            if command.text:
                with self._catalog(asker) as catalog, watching(Watch(CATALOG_SECONDS)):
                    found = catalog.call("types", _asking(asker), command.text, dict(given))
            # There, an UINTEGER is the number of an object; drivers look at the difference.
            found = [kind.replace("UINTEGER", "OID") for kind in found]
        else:
            with self.house.lease(self._version(asker, command), asker.user) as session:
                found = session.parameter_types(command.text, given)
        missing = max(0, command.parameters - len(found))
        return [*found[: command.parameters], *["VARCHAR"] * missing]

    def describe(
        self, asker: Asker, command: Command, types: Sequence[str], run_time: RunTime
    ) -> tuple[Column, ...]:
        """The columns of a command's rows; it is not run."""
        if command.kind != "query":
            kinds = _catalog_types(types)
            text = typed(command.text, kinds)
            with self._catalog(asker) as catalog, watching(Watch(CATALOG_SECONDS)):
                made = catalog.call("describe", _asking(asker), text, kinds)
            return _as_named(command, made)
        options = run_time.options
        with self.house.lease(self._version(asker, command), asker.user) as session:
            known = [*types[: command.parameters], *command.clocks] if command.clocks else types
            described = session.describe(command.text, known, **options)
        return _named(command, described, bool(options.get("error_bars")))

    def origins(self, asker: Asker, command: Command | None) -> list[tuple[int, int]]:
        """The table and the place in it of each column of a command's rows, by number."""
        if command is None or not command.origins:
            return []
        key = self.state(asker), command.origins
        found = self._origins.get(key)
        if found is None:
            served = {name: v.manifest for name, v in self.house.versions(asker.may).items()}
            found = located(command.origins, numbers(served, shapes()["relations"]))
            self._origins.put(key, found)
        return found

    def answer(self, job: Job) -> Answer:
        """Run a command that returns rows."""
        job.check()
        asker, command = job.asker, job.command
        if command.kind != "query":
            return self._looked_up(job)
        with (
            self.house.lease(self._version(asker, command), asker.user) as session,
            job.ended_by(session.interrupt),
        ):
            said, options = command.original, job.run_time.options
            try:
                outcome = session.run(command.text, job.values, said=said, **options)
                job.noted = True
            except Error as problem:
                job.noted = not isinstance(problem, JournalError)
                raise
        return self._answered(command, outcome)

    def _looked_up(self, job: Job) -> Answer:
        """What the catalog answers."""
        asker, command = job.asker, job.command
        kinds = _catalog_types(job.types)
        text = typed(command.text, kinds)
        with (
            self._catalog(asker) as catalog,
            job.ended_by(catalog.interrupt),
            watching(Watch(CATALOG_SECONDS)),
        ):
            given = (text, kinds, list(job.arguments), dict(job.run_time.changed))
            made, found = catalog.call("run", _asking(asker), *given)
        self.house.note(asker.user, command.original, "answered", tables=command.tables)
        job.noted = True
        return Answer(_as_named(command, made), found)

    def instant(self, job: Job) -> Answer | None:
        """An answer that was given before, without a thread; None where there is none."""
        asker, command = job.asker, job.command
        if command.kind != "query" or not self.house.quick:
            return None
        values, options = job.values, job.run_time.options
        version = self._version(asker, command)
        found = self.house.recalled(
            version, asker.user, command.text, values, options, command.original
        )
        return None if found is None else self._answered(command, found)

    def _answered(self, command: Command, outcome: Outcome) -> Answer:
        """An answer for the wire; a session that gives the same one again gets the same one."""
        key = (id(outcome), command.names)
        known = self._answers.get(key)
        if known is not None:
            self.metrics.remembered()
            return known[1]
        found = arrays(outcome)
        # Their names may repeat, so they are numbered here.
        table = pa.table(found, names=[str(i) for i in range(len(found))])
        named = _named(command, columns(outcome), outcome.error_bars)
        made = Answer(named, table, outcome.notices)
        if made.table.nbytes <= SMALL:
            # The outcome is kept too: while it is, no other one has its number.
            self._answers.put(key, (outcome, made))
        return made

    def _version(self, asker: Asker, command: Command) -> Version:
        """The release that a command is about."""
        served = {name.lower(): v for name, v in self.house.versions(asker.may).items()}
        wanted = {name.lower() for name in command.tables}
        # privsql.audit_columns and its like: the session of a release knows them.
        audited = {name for name in wanted if name.startswith("privsql.")}
        for name in command.tables:
            if name.lower() not in served and name.lower() not in audited:
                at = command.text.lower().find(name.lower())
                place = Place(command.text, at, at + len(name)) if at >= 0 else None
                raise UnknownRelation(
                    f'relation "{name}" does not exist',
                    hint="the tables are listed in information_schema.tables",
                    place=place,
                )
        wanted = wanted - audited or set(served if audited else ())
        if len(wanted) != 1:
            raise Unsupported(
                "a statement can be about one release only",
                hint="ask about each in a statement of its own; where several are served, ask"
                " `privsql query` on the file for the tables of its audit",
            )
        return served[wanted.pop()]

    def refused(self, asker: Asker, text: str, command: Command | None, problem: Error) -> Error:
        """Note a statement that no session has heard of; the error that is to be told."""
        decision = "refused" if isinstance(problem, NotSupportedError) else "failed"
        tables = () if command is None else (command.inner or command).tables
        try:
            self.house.note(asker.user, text, decision, problem.code, tables)
        except JournalError as other:
            return other
        return problem

    # -- accounts ------------------------------------------------------------------------

    account_columns = tuple((each.name, each.type) for each in ACCOUNT_COLUMNS)

    def accounts(self, asker: Asker) -> Answer:
        """How close somebody's answers are to the limits, for each table that has an account."""
        found = []
        for version in self.house.versions(asker.may).values():
            with (
                self.house.lease(version, asker.user) as session,
                suppress(NotSupportedError),
            ):
                found.append(session.run(f"SHOW {ACCOUNT_NAME}").table)
        empty = ACCOUNT_SCHEMA.empty_table()
        return Answer(self.account_columns, pa.concat_tables([empty, *found]))

    async def note(self, user: str, text: str) -> None:
        """Note a command that only its connection has to do with."""
        if self.house.quick:
            self.house.note(user, text, "answered")
        else:  # the journal waits for the disk
            await self.reading.run(user, self.house.note, user, text, "answered")

    # -- catalogs ------------------------------------------------------------------------

    def _catalog(self, asker: Asker) -> AbstractContextManager[Remote]:
        versions = self.house.versions(asker.may)
        state = tuple(version.number for version in versions.values())
        return self._lookups.lease(state, {name: v.manifest for name, v in versions.items()})

    def tidy(self) -> None:
        """Close what nobody uses, and have ready what somebody will wait for."""
        self.house.tidy()
        self._lookups.tidy()

    def close(self) -> None:
        """Take no more work; what is under way is waited for."""
        self.reading.close(wait=False)
        self.asking.close(wait=True)
        self._lookups.close()
        self.house.close()


def _asking(asker: Asker) -> Asking:
    return Asking(asker.database, asker.user, asker.process)


def _catalog_types(types: Sequence[str]) -> list[str]:
    return [kind.replace("OID", "UINTEGER") for kind in types]


def _as_named(command: Command, described: Sequence[Column]) -> tuple[Column, ...]:
    names = _names(command, [name for name, _ in described])
    own = [name for name, _ in described]
    if len(command.origins) == len(own):
        own = [each[1] if each else "" for each in command.origins]
    return tuple(
        (name, VECTORS.get(column, kind) if kind.endswith("[]") else kind)
        for name, column, (_, kind) in zip(names, own, described, strict=True)
    )


def _names(command: Command, described: Sequence[str]) -> Sequence[str]:
    names = command.names
    return described if names is None or len(names) != len(described) else names


def _named(command: Command, described: Sequence[ResultColumn], bars: bool) -> tuple[Column, ...]:
    """PostgreSQL's names for columns; an error bar is called after its estimate."""
    asked: list[int] = []  # the columns that are no bars
    at = 0
    while at < len(described):
        asked.append(at)
        at += 1 + len(BARS) if bars and described[at].estimate else 1
    names = _names(command, [described[i].name for i in asked])
    return tuple(
        (name + column.name.removeprefix(described[first].name), column.type)
        for first, stop, name in zip(asked, [*asked[1:], len(described)], names, strict=True)
        for column in described[first:stop]
    )
