"""Ask every statement of the suites at retention 1 and at .5, and count what is answered.

At retention 1 an answer must be DuckDB's on the raw tables: the same rows, in the same order where
the statement fixes one, floats within 1e-9.  Answers that say ``[domain]`` must contain DuckDB's
rows, and so must those with groups that only a domain knows, whose estimates are 0 or NULL; both
are counted apart.  At .5 every estimate must have a finite interval, and an answer without
estimates must be DuckDB's again.
"""

from __future__ import annotations

import argparse
import math
import re
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import sqlglot

from privsql.answer.outcome import Outcome
from privsql.errors import Error
from privsql.session.session import Session
from tests.suites import ibis_expressions
from tests.suites.data import RETENTIONS, WORLDS, World

HERE = Path(__file__).resolve().parent
SUITES = ("web", "warehouse", "star", "bi", "ibis")
CLOSE = 1e-9

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Statement:
    """A statement and its title."""

    name: str
    sql: str


@dataclass(frozen=True)
class Raw:
    """DuckDB's own answer, and whether the statement fixes the order of its rows."""

    rows: list[Row]
    ordered: bool


@dataclass
class Verdict:
    """What came of a statement at one retention.

    ``kind`` is equal, domain, empty (groups that only a domain knows), wrong or refused at
    retention 1; finite, not finite, wrong or refused at .5.
    """

    kind: str
    code: str = ""
    text: str = ""
    seconds: float = 0.0

    @property
    def good(self) -> bool:
        return self.kind in ("equal", "domain", "empty", "finite")


@dataclass
class Report:
    """What came of a suite: of each statement the verdicts at retention 1 and at .5."""

    suite: str
    verdicts: dict[str, tuple[Verdict, Verdict]] = field(default_factory=dict)

    def kinds(self, at: int) -> Counter[str]:
        return Counter(pair[at].kind for pair in self.verdicts.values())

    @property
    def one(self) -> int:
        return sum(pair[0].good for pair in self.verdicts.values())

    @property
    def half(self) -> int:
        return sum(pair[1].good for pair in self.verdicts.values())

    @property
    def both(self) -> int:
        return sum(pair[0].good and pair[1].good for pair in self.verdicts.values())

    @property
    def wrong(self) -> list[str]:
        return [name for name, pair in self.verdicts.items() if "wrong" in [v.kind for v in pair]]


# -- statements -----------------------------------------------------------------------


def statements(suite: str) -> list[Statement]:
    """The statements of a suite, in the order of its file."""
    if suite == "ibis":
        return [Statement(name, sql) for name, sql in ibis_expressions.compiled().items()]
    found = []
    for part in re.split(r"^-- name: ", (HERE / f"{suite}.sql").read_text(), flags=re.M)[1:]:
        name, _, sql = part.partition("\n")
        found.append(Statement(name.strip(), sql.strip().removesuffix(";").strip()))
    return found


# -- comparing ------------------------------------------------------------------------


def same(one: Any, two: Any) -> bool:
    """Whether two values are equal; numbers by value, booleans only with booleans."""
    if one is None or two is None or isinstance(one, bool) or isinstance(two, bool):
        return one is two
    numbers = (int, float, Decimal)
    if isinstance(one, numbers) and isinstance(two, numbers):
        a, b = float(one), float(two)
        if math.isnan(a) or math.isnan(b):
            return math.isnan(a) and math.isnan(b)
        return a == b or abs(a - b) <= CLOSE * max(abs(a), abs(b), 1.0)
    if isinstance(one, list | tuple) and isinstance(two, list | tuple):
        return len(one) == len(two) and all(map(same, one, two))
    if isinstance(one, dict) and isinstance(two, dict):
        return one.keys() == two.keys() and all(same(one[key], two[key]) for key in one)
    return bool(one == two)


def alike(one: Row, two: Row) -> bool:
    return len(one) == len(two) and all(map(same, one, two))


def _bucket(row: Row) -> str:
    """What has to agree to the letter: everything but numbers."""
    numbers = (int, float, Decimal, list, dict)
    plain = [isinstance(v, bool) or not isinstance(v, numbers) for v in row]
    return repr([v if flag else 0 for v, flag in zip(row, plain, strict=True)])


def left_over(expected: Iterable[Row], got: Iterable[Row]) -> tuple[list[Row], list[Row]]:
    """Rows that only the one side has, whatever the order."""
    there: dict[str, list[Row]] = defaultdict(list)
    for row in got:
        there[_bucket(row)].append(row)
    missing = []
    for row in expected:
        candidates = there[_bucket(row)]
        place = next((i for i, other in enumerate(candidates) if alike(row, other)), None)
        if place is None:
            missing.append(row)
        else:
            del candidates[place]
    return missing, [row for rows in there.values() for row in rows]


def asked(con: duckdb.DuckDBPyConnection, sql: str) -> list[Row]:
    return [tuple(row) for row in con.execute(sql).fetchall()]


def on_raw(plain: Any, shuffled: Any, statement: Statement) -> Raw:
    """DuckDB's answer; raises where it has none, or more than one."""
    try:
        one, two = asked(plain, statement.sql), asked(shuffled, statement.sql)
    except duckdb.Error as problem:
        raise AssertionError(f"{statement.name}: not answered by DuckDB: {problem}") from problem
    if left_over(one, two) != ([], []):
        raise AssertionError(f"{statement.name}: depends on the order of the stored rows")
    return Raw(one, _ordered(statement.sql) and all(map(alike, one, two)))


def _ordered(sql: str) -> bool:
    """Whether the statement ends in an ORDER BY of its own."""
    try:
        return sqlglot.parse_one(sql, read="duckdb").args.get("order") is not None
    except sqlglot.ParseError:
        return False


def _difference(raw: Raw, rows: list[Row]) -> str:
    """What is not as it should be; empty where nothing is."""
    missing, more = left_over(raw.rows, rows)
    if missing or more:
        said = f"{len(rows)} rows, DuckDB {len(raw.rows)}"
        return f"{said}; DuckDB alone: {missing[:3]}; privsql alone: {more[:3]}"
    if raw.ordered and not all(map(alike, raw.rows, rows)):
        return f"another order: {rows[:3]}, DuckDB {raw.rows[:3]}"
    return ""


# -- judging --------------------------------------------------------------------------


def _rows(outcome: Outcome) -> list[Row]:
    lists = [column.to_pylist() for column in outcome.table.columns]
    return list(zip(*lists, strict=True)) if lists else []


def _empty(outcome: Outcome, row: Row) -> bool:
    """Whether a row can be a group without rows: all of its estimates are 0 or NULL."""
    estimates = [row[i] for i, column in enumerate(outcome.columns) if column.estimate]
    return bool(estimates) and all(not value or value != value for value in estimates)


def at_one(outcome: Outcome, raw: Raw) -> Verdict:
    """The verdict on an answer at retention 1."""
    rows = _rows(outcome)
    different = _difference(raw, rows)
    domain = "domain" in {notice.code for notice in outcome.notices}
    if not different:
        return Verdict("domain" if domain else "equal")
    missing, more = left_over(raw.rows, rows)
    if domain and not missing:
        return Verdict("domain")
    if not missing and more and all(_empty(outcome, row) for row in more):
        return Verdict("empty")
    return Verdict("wrong", text=different)


def at_half(outcome: Outcome, raw: Raw) -> Verdict:
    """The verdict on an answer at retention .5."""
    for place, bars in outcome.bars.items():
        values = outcome.table.column(place).to_pylist()
        lows, highs, said = (bars.column(name).to_pylist() for name in ("low", "high", "reliable"))
        for value, low, high, reliable in zip(values, lows, highs, said, strict=True):
            ends = [end for end in (low, high) if end is not None and math.isfinite(end)]
            if len(ends) == 2 or (value is None and reliable is not False):
                continue
            codes = {notice.code: notice.text for notice in outcome.notices}
            why = next((c for c in ("no-error", "no-end", "ratio", "spread") if c in codes), "")
            text = codes.get(why, "no notice says why")
            return Verdict("not finite", why, f"{outcome.columns[place].name}: {text}")
    codes = {notice.code for notice in outcome.notices}
    if not outcome.bars and "domain" not in codes:
        different = _difference(raw, _rows(outcome))
        if different:
            return Verdict("wrong", text=f"called exact: {different}")
    return Verdict("finite")


def _judged(session: Session, sql: str, raw: Raw, retention: float) -> Verdict:
    started = time.monotonic()
    try:
        outcome = session.run(sql)
        verdict = (at_one if retention == 1 else at_half)(outcome, raw)
    except Error as refused:
        lines = str(refused).splitlines()
        verdict = Verdict("refused", refused.code, lines[0] if lines else "")
    except Exception as broken:  # a bug in the product is a finding, not the end of the run
        verdict = Verdict("wrong", "breaks", f"breaks with {type(broken).__name__}: {broken}")
    verdict.seconds = time.monotonic() - started
    return verdict


@contextmanager
def opened(world: World) -> Iterator[tuple[list[Session], list[duckdb.DuckDBPyConnection]]]:
    """Sessions at retention 1 and .5, and DuckDB with the raw tables in two orders."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        paths = [world.publish(Path(folder), retention) for retention in RETENTIONS]
        sessions = [Session(path, tables=world.dimensions) for path in paths]
        raws = [world.raw(), world.raw(shuffled=True)]
        for each in (*sessions, *raws):
            stack.callback(each.close)
        yield sessions, raws


def run(suite: str, every: int = 1) -> Report:
    """Ask the statements of a suite, or the first and every so-many-th after it."""
    report = Report(suite)
    with opened(WORLDS[suite]()) as (sessions, raws):
        for statement in statements(suite)[::every]:
            if statement.name in report.verdicts:
                raise AssertionError(f"{suite}: two statements are called {statement.name!r}")
            raw = on_raw(*raws, statement)
            one, half = (
                _judged(session, statement.sql, raw, retention)
                for session, retention in zip(sessions, RETENTIONS, strict=True)
            )
            report.verdicts[statement.name] = (one, half)
    return report


# -- printing -------------------------------------------------------------------------

HEADS = ("suite", "statements", "at 1", "domain", "empty", "wrong", "at .5", "not finite", "both")


def table(reports: Sequence[Report]) -> str:
    """The counts: ``at 1`` and ``at .5`` are answered well, ``wrong`` are answered wrongly."""
    lines = [HEADS]
    for each in reports:
        one, half = each.kinds(0), each.kinds(1)
        numbers = (
            len(each.verdicts), each.one, one["domain"], one["empty"], len(each.wrong), each.half,
            half["not finite"], each.both,
        )  # fmt: skip
        lines.append((each.suite, *map(str, numbers)))
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEADS))]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in lines
    )


def blockers(reports: Sequence[Report]) -> str:
    """Codes of what is not answered, with the number of statements."""
    found: Counter[str] = Counter()
    for each in reports:
        for pair in each.verdicts.values():
            bad = next((verdict for verdict in pair if not verdict.good), None)
            if bad is not None:
                found[f"{bad.kind} [{bad.code}]"] += 1
    return "\n".join(f"{many:4}  {name}" for name, many in found.most_common())


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.suites", description=__doc__)
    parser.add_argument("suite", nargs="*", choices=[*SUITES, []], help="all, if none is named")
    parser.add_argument("--verbose", action="store_true", help="the verdict on each statement")
    given = parser.parse_args(arguments)
    reports = []
    for suite in given.suite or SUITES:
        report = run(suite)
        reports.append(report)
        for name, pair in report.verdicts.items():
            if given.verbose or name in report.wrong:
                print(f"{suite}: {name}")
                for retention, v in zip(RETENTIONS, pair, strict=True):
                    print(f"    {retention:3}  {v.kind} {v.code}  {v.seconds:.2f} s  {v.text}")
    print(table(reports))
    print(blockers(reports))
    return int(any(report.wrong for report in reports))
