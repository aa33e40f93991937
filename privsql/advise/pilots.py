"""Pilot publications, which measure interval widths at a retention.

A pilot publishes the source at a candidate retention into a private temporary folder, asks the
named queries there as an analyst would, and is deleted.  So every query that the SQL layer
answers can be advised on, whatever it computes.

    spec without its key  ──>  publish into a folder of ours  ──>  connect, ask  ──>  widths

A pilot has no key: its draws are fresh, no ledger is opened and nothing is entered.  Nobody sees
a pilot's rows, so it costs nobody any privacy.

Of a large source a simple random sample of n rows is published.  An interval's width goes with
a power of the number of rows: W(N) = W(n) (N/n)^a, a = 1/2 for counts and sums, -1/2 for
averages, shares and everything relative.  The power is measured on a quarter of the sample and
must come out as one of the two.

A sample has raw rows, of the columns that are published: dropped ones are not copied, and persons
have numbers in place of their identifiers.  It is in the private folder, which the next
publication deletes if this process is killed (:mod:`privsql.publish.staging`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from privsql.advise.formulas import AdviseError
from privsql.answer.outcome import Outcome
from privsql.errors import Error, InternalError, ProgrammingError
from privsql.publish.formats import STDIN
from privsql.publish.keys.ledger import ROW
from privsql.publish.source import Source
from privsql.publish.staging import private_folder
from privsql.release.names import quoted
from privsql.release.reading import folded
from privsql.release.spec import ColumnSpec, Spec

if TYPE_CHECKING:
    from privsql.session.session import Session

# Powers of the number of rows that a width may go with, and how far a measured one may be off.
POWERS = (0.5, -0.5)
OFF = 0.12

# A sample is checked against this part of itself, with this many draws at each size.
PART = 4
CHECKS = 3


# Mechanisms with a retention to choose; at 1 they keep everything.
CHOOSABLE = ("uniform", "replace", "identity", "swap")

# What raw rows say: a row's exact columns and the number of an estimate -> its value.
Truth = dict[tuple[tuple[str, ...], int], Any]


@dataclass(frozen=True)
class Question:
    """A query whose interval is to be narrow enough."""

    sql: str
    width: float


class Pilots:
    """Pilots of one spec and source; leaving the context deletes all that was written."""

    def __init__(
        self,
        spec: Spec,
        raw: Source,
        questions: Sequence[Question],
        columns: Sequence[str],
        *,
        relative: bool,
        sample: int,
        seed: int | None,
        say: Callable[[str], None] | None,
    ) -> None:
        self.rows = raw.rows()
        self.questions = tuple(questions)
        self.refused = [0] * len(questions)
        self._spec = replace(spec, key=None)
        self._raw = raw
        self._columns = {name.casefold() for name in columns}
        self._relative = relative
        self._seed = seed
        self._say = say or _silent
        self._truths: dict[str | None, list[Truth]] = {}
        self._made = 0
        self.sampled = min(sample, self.rows) if sample else self.rows
        self.powers: tuple[float, ...] = (0.0,) * len(questions)

    def __enter__(self) -> Self:
        """Make the folder; take the samples, if there are to be any."""
        with ExitStack() as held:
            self._folder = held.enter_context(private_folder())
            if self.sampled < self.rows:
                self._take("sample", self.sampled)
                self._take("part", self.sampled // PART)
            self._held = held.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """Delete everything."""
        self._held.close()

    def pilot(self, retention: float, draws: int) -> list[float]:
        """Half-width of each query at a retention, the geometric mean over some draws."""
        name = "sample" if self.sampled < self.rows else None
        first = name is not None and not any(self.powers)
        widths = self._measured(retention, max(draws, CHECKS) if first else draws, name)
        if first:
            self.powers = self._scaling(widths, retention)
        more = self.rows / self.sampled
        scaled = [width * more**power for width, power in zip(widths, self.powers, strict=True)]
        shown = ", ".join(f"± {width:.4g}" if width < math.inf else "none" for width in scaled)
        self._say(f"pilot at retention {retention:.3g}: {shown}")
        return scaled

    def _measured(self, retention: float, draws: int, name: str | None) -> list[float]:
        logs = [0.0] * len(self.questions)
        for _ in range(draws):
            for i, width in enumerate(self._once(retention, name)):
                logs[i] += (math.log(width) if width > 0 else -math.inf) / draws
        return [math.exp(each) if each < math.inf else math.inf for each in logs]

    def _scaling(self, whole: Sequence[float], retention: float) -> tuple[float, ...]:
        """The power of the rows that each width goes with, from a sample and a part of it."""
        part = self._measured(retention, CHECKS, "part")
        powers = []
        for i, (more, less) in enumerate(zip(whole, part, strict=True)):
            known = 0 < more < math.inf and 0 < less < math.inf
            power = math.log(more / less) / math.log(PART) if known else math.nan
            near = min(POWERS, key=lambda each: abs(each - power))
            if not abs(near - power) < OFF:
                raise AdviseError(
                    f"query {i + 1}: its interval does not scale with the square root of the"
                    " sample size, so it cannot be predicted from a sample",
                    hint="take a larger --sample, or --sample 0 for all rows",
                )
            powers.append(near)
        return tuple(powers)

    def _once(self, retention: float, name: str | None) -> list[float]:
        truth = self._true(name) if self._relative else [{}] * len(self.questions)
        seed = None if self._seed is None else self._seed + self._made
        self._made += 1
        with self._published(self._at(retention), name, seed) as session:
            return [self._width(i, session, retention, each) for i, each in enumerate(truth)]

    @contextmanager
    def _published(self, spec: Spec, name: str | None, seed: int | None) -> Iterator[Session]:
        """A session on a release of the source, or of a sample; deleted when it ends."""
        from privsql.publish.job import publish
        from privsql.publish.recode import unrecoded
        from privsql.session.session import Session

        out = self._folder / "pilot.duckdb"
        source: str | list[str] | None = None
        if name is not None:
            source = f"{self._folder}/{name}.duckdb::rows"
            # It was recoded when it was taken.
            spec = unrecoded(replace(spec, columns=self._sampled_columns(spec)))
        elif STDIN in spec.source:  # which was read already, and is there as a file
            source = list(self._raw.files)
        publish(source, out, spec=spec, seed=seed)
        try:
            with closing(Session(out)) as session:
                yield session
        finally:
            out.unlink(missing_ok=True)

    def _true(self, name: str | None) -> list[Truth]:
        """What raw rows say to each query: a pilot that keeps everything and refuses nothing.

        A share of an estimate that is itself off would be off as well.
        """
        if name in self._truths:
            return self._truths[name]
        columns = tuple(
            replace(each, accept_epsilon=True, retention=1.0)
            if each.mechanism in CHOOSABLE
            else replace(each, accept_epsilon=True)
            for each in self._at(1.0).columns
        )
        policy = replace(self._spec.policy, personal_groups="allow", min_rows=0)
        spec = replace(self._spec, columns=columns, policy=policy, protect=None)
        found: list[Truth] = []
        with self._published(spec, name, self._seed) as session:
            for question in self.questions:
                try:
                    found.append(read_truth(session.run(question.sql)))
                except Error:  # what is wrong with it, the pilot itself says
                    found.append({})
        self._truths[name] = found
        return found

    def _width(self, i: int, session: Session, retention: float, truth: Truth) -> float:
        try:
            outcome = session.run(self.questions[i].sql)
        except Error as problem:
            if self._made > 1:  # groups merge differently at every retention
                self._say(f"query {i + 1} is refused at retention {retention:.3g}")
                return math.inf
            raise type(problem)(
                f"query {i + 1}: {problem.reason}", hint=problem.hint, place=problem.place
            ) from None
        self.refused[i] = max(self.refused[i], outcome.personal.refused)
        return read_width(outcome, i, relative=self._relative, truth=truth)

    def _at(self, retention: float) -> Spec:
        """The spec at a retention; a pilot is seen by nobody, so its epsilon needs no leave."""
        columns = tuple(
            replace(
                column,
                retention=retention,
                conversion=None,
                wanted_epsilon=None,
                wanted_rho=None,
                accept_epsilon=True,
            )
            if column.name.casefold() in self._columns
            else column
            for column in self._spec.columns
        )
        return replace(self._spec, columns=columns)

    def _sampled_columns(self, spec: Spec) -> tuple[ColumnSpec, ...]:
        """The columns of a spec that a sample has: all but dropped ones that identify nobody."""
        unit = folded(spec.unit)
        return tuple(
            column
            for column in spec.columns
            if column.role != "drop" or (spec.unit != ROW and folded(column.name) == unit)
        )

    def _numbered(self, names: str) -> str:
        """The names of a sample, with a number in place of what identifies a person."""
        unit = next(
            (c for c in self._spec.columns if folded(c.name) == folded(self._spec.unit)), None
        )
        if self._spec.unit == ROW or unit is None or unit.role != "drop":
            return names
        name = quoted(unit.name)
        number = f"CASE WHEN {name} IS NOT NULL THEN dense_rank() OVER (ORDER BY {name}) END"
        return f"* REPLACE ({number} AS {name})"

    def _take(self, name: str, rows: int) -> None:
        """Copy a simple random sample of what is published of the source, every type as it is."""
        import duckdb

        from privsql.publish.source import BATCH, readable
        from privsql.publish.types import keep_types

        fixed = "" if self._seed is None else f" REPEATABLE ({int(self._seed) % 2**31})"
        names = ", ".join(quoted(column.name) for column in self._sampled_columns(self._spec))
        sql = f"SELECT {names} FROM privsql_rows USING SAMPLE reservoir({int(rows)} ROWS){fixed}"  # noqa: S608
        sql = f"SELECT {self._numbered(names)} FROM ({sql})"  # noqa: S608
        path = str(self._folder / f"{name}.duckdb")
        with readable(), closing(duckdb.connect(path)) as copy:
            keep_types(self._raw.connection, True)
            chosen = self._raw.relation.query("privsql_rows", sql)
            if chosen is None:  # only what is no query gives no relation
                raise InternalError("a sample has no rows")
            copy.register("taken", chosen.to_arrow_reader(BATCH))
            copy.execute("CREATE TABLE rows AS SELECT * FROM taken")
            copy.unregister("taken")


def read_truth(outcome: Outcome) -> Truth:
    """Estimates by the exact columns of their row; empty where those tell no rows apart."""
    keys = _keys(outcome)
    if len(set(keys)) < len(keys):
        return {}
    return {
        (key, i): value
        for i in outcome.bars
        for key, value in zip(keys, outcome.table.column(i).to_pylist(), strict=True)
    }


def _keys(outcome: Outcome) -> list[tuple[str, ...]]:
    exact = [i for i in range(len(outcome.columns)) if i not in outcome.bars]
    columns = [map(repr, outcome.table.column(i).to_pylist()) for i in exact]
    return list(zip(*columns, strict=True)) if columns else [()] * outcome.table.num_rows


def read_width(outcome: Outcome, number: int, *, relative: bool, truth: Truth) -> float:
    """The largest ± of an answer: half of the interval, over all estimates of all rows.

    Cells that are NULL, refused ones among them, have no interval and do not count; a cell
    whose interval is unbounded or does not hold what its level promises is infinitely wide.
    Relative widths are shares of the truth, where it is known, else of the estimate.
    """
    if outcome.kind != "rows":
        raise ProgrammingError(
            f"query {number + 1} does not return an answer", hint="give a SELECT"
        )
    if not outcome.bars:
        raise AdviseError(
            f"query {number + 1} has no estimates: its answer is exact at every retention",
            hint="ask about a sensitive column",
        )
    widest, answered = 0.0, False
    keys = _keys(outcome)
    for i, bars in outcome.bars.items():
        values = outcome.table.column(i).to_pylist()
        for key, value, bar in zip(keys, values, bars.to_pylist(), strict=True):
            if value is None:
                continue
            answered = True
            low, high = bar["low"], bar["high"]
            if low is None or high is None or not bar["reliable"]:
                widest = math.inf
                continue
            half = (high - low) / 2
            if relative:
                whole = truth.get((key, i), value)
                known = isinstance(whole, (int, float)) and whole != 0
                half = half / abs(whole) if known else math.inf if half else 0.0
            widest = max(widest, half)
    if not answered:
        raise AdviseError(
            f"query {number + 1}: none of its estimates is answered",
            hint="ask about larger groups; the policy of the spec refuses these",
        )
    return widest


def _silent(text: str) -> None:
    """Nothing is shown."""
