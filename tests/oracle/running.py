"""Running the oracle: many cases over several worlds, and failures cut down to their core."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import duckdb

from privsql.engines.problems import OutOfMemoryError
from privsql.errors import Error, TooLargeError
from tests.oracle.compare import Difference, difference
from tests.oracle.generator import Case, generate
from tests.oracle.nodes import Node, reductions, text
from tests.oracle.sessions import Answers, on_raw
from tests.oracle.tables import VARIANTS, World, world

# Variants whose domains hold values that no row has.
SPARSE = ("sparse", "compacted")

# Features that are not answered yet, with the reason; a case that uses one is not asked.
XFAIL: dict[str, str] = {}

# Limits that are said: states, work, memory.  No wrong answers, but counted.
LIMITS = (TooLargeError, OutOfMemoryError)


@dataclass
class Failure:
    """A case that was answered wrongly, and the smallest one like it."""

    case: Case
    variant: str
    wrong: Difference
    smallest: Case | None = None

    def __str__(self) -> str:
        shown = self.smallest or self.case
        sql, parameters = shown.printed()
        lines = [f"[{self.variant}] {self.wrong}", f"  {sql}"]
        if parameters is not None:
            lines.append(f"  with {parameters}")
        return "\n".join(lines)


@dataclass
class Summary:
    """What was asked, and what came of it."""

    asked: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    cases: int = 0
    skipped: Counter[str] = field(default_factory=Counter)  # by the reason
    limited: Counter[str] = field(default_factory=Counter)  # by the error
    seconds: float = 0.0
    failures: list[Failure] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [
            f"{self.cases} queries, {len(self.failures)} answered wrongly,"
            f" {self.limited.total()} too large, {self.skipped.total()} left out,"
            f" {self.seconds:.0f} s"
        ]
        lines += [f"  too large: {name:25}{many:6}" for name, many in self.limited.items()]
        lines += [f"  left out: {name:26}{many:6}" for name, many in self.skipped.items()]
        order = sorted(self.asked, key=lambda name: (-self.failed[name] / self.asked[name], name))
        for name in order:
            wrong = f"{self.failed[name]:5} wrong" if self.failed[name] else ""
            lines.append(f"  {name:36}{self.asked[name]:6}{wrong}")
        return "\n".join(lines)


def unusable(case: Case, at: World) -> str:
    """Why the case does not have one answer on this world's raw table; empty where it has."""
    if case.features & set(XFAIL):
        return "not answered yet"
    if case.complete and at.variant in SPARSE:
        return "needs all of a domain"
    # The check for complete groups looks at the filtered rows, the answer at the whole domain.
    if case.complete and {"filter in a sub-select", "cte that filters"} & case.features:
        return "complete over a filter"
    if all(at.raw.execute(check).fetchall() == [(True,)] for check in case.checks):
        return ""
    return "empty groups" if case.complete else "two modes"


def asked_always(case: Case, at: World) -> str:
    """Nothing is left out where no raw answer is compared with."""
    return ""


def usable(case: Case, at: World) -> bool:
    """Whether the case has one answer on this world's raw table."""
    return not unusable(case, at)


def wrong_with(case: Case, at: World, answers: Answers) -> Difference | None:
    """Ask both and compare; every error but a limit that is said is an answer too."""
    raw = on_raw(at.raw, case)
    try:
        got = answers.ask(case)
    except LIMITS:
        raise
    except (Error, duckdb.Error) as problem:
        return Difference(f"raises {type(problem).__name__}", str(problem))
    except Exception as problem:  # a bug in the layer is a finding, not the end of the run
        return Difference(f"breaks with {type(problem).__name__}", str(problem))

    def scale(query: Node) -> float:
        return float(at.raw.execute(text(query)).fetchall()[0][0] or 0)

    return difference(case, raw, got, scale)


def shrink(case: Case, like: Callable[[Case], bool], tries: int = 400) -> Case:
    """The smallest case that is still ``like`` the one found, by greedy cuts."""
    left = tries
    smaller = True
    while smaller and left > 0:
        smaller = False
        for root in _tried(case):
            left -= 1
            if left <= 0:
                break
            reduced = replace(case, root=root)
            if like(reduced):
                case, smaller = reduced, True
                break
    plain = replace(case, style="")
    return plain if like(plain) else case


def _tried(case: Case) -> Iterator[Node]:
    size = case.root.size()
    for root in reductions(case.root):
        if root.size() < size:
            yield root


# What is wrong with the answer to a case, if anything; and why a case is not to be asked.
Judge = Callable[[Case, World, Any], Difference | None]
Leave = Callable[[Case, World], str]


def smallest(
    failure: Failure,
    at: World,
    answers: Any,
    judge: Judge = wrong_with,
    leave: Leave = unusable,
) -> Case:
    def like(case: Case) -> bool:
        try:
            if not case.items or leave(case, at):
                return False
            on_raw(at.raw, case)
            wrong = judge(case, at, answers)
        except (duckdb.Error, StopIteration, *LIMITS):
            return False  # no query any more, or one too large
        return wrong is not None and wrong.kind == failure.wrong.kind

    return shrink(failure.case, like)


def run(
    worlds: Sequence[tuple[World, Any]],
    count: int,
    seed: int,
    *,
    shrunk: int = 5,
    stop: int = 1_000_000,
    judge: Judge = wrong_with,
    leave: Leave = unusable,
) -> Summary:
    """Ask ``count`` random queries, each of one world, or until ``stop`` failures.

    The first ``shrunk`` failures, and the first of each kind, are cut down.
    """
    rng = random.Random(seed)
    summary = Summary()
    started = time.monotonic()
    kinds: Counter[str] = Counter()
    while summary.cases < count and len(summary.failures) < stop:
        case = generate(rng)
        at, answers = worlds[summary.cases % len(worlds)]
        features = case.features
        reason = leave(case, at)
        if reason:
            summary.skipped[reason] += 1
            continue
        summary.cases += 1
        summary.asked.update(features)
        try:
            wrong = judge(case, at, answers)
        except LIMITS as limit:
            summary.limited[type(limit).__name__] += 1
            continue
        if wrong is None:
            continue
        summary.failed.update(features)
        failure = Failure(case, at.variant, wrong)
        summary.failures.append(failure)
        kinds[wrong.kind] += 1
        if len(summary.failures) <= shrunk or (shrunk and kinds[wrong.kind] == 1):
            failure.smallest = smallest(failure, at, answers, judge, leave)
            failure.wrong = judge(failure.smallest, at, answers) or wrong
    summary.seconds = time.monotonic() - started
    return summary


@contextmanager
def published(folder: Path, seed: int, variants: Sequence[str] = VARIANTS) -> Iterator[list[World]]:
    worlds = [world(folder, variant, seed + place) for place, variant in enumerate(variants)]
    try:
        yield worlds
    finally:
        for each in worlds:
            each.raw.close()
