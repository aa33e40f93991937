"""Running the oracle: many cases over several worlds, and failures cut down to their core."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

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
    skipped: int = 0
    seconds: float = 0.0
    failures: list[Failure] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [
            f"{self.cases} queries, {len(self.failures)} answered wrongly,"
            f" {self.skipped} left out, {self.seconds:.0f} s"
        ]
        order = sorted(self.asked, key=lambda name: (-self.failed[name] / self.asked[name], name))
        for name in order:
            wrong = f"{self.failed[name]:5} wrong" if self.failed[name] else ""
            lines.append(f"  {name:36}{self.asked[name]:6}{wrong}")
        return "\n".join(lines)


# What sees all rows of an answer at once, those of empty groups too.
WHOLE = {"limit", "qualify"} | {
    f"window {kind}" for kind in ("total", "share", "rank", "place", "before", "running", "above")
}


def usable(case: Case, at: World) -> bool:
    """Whether the case has one answer on this world's raw table."""
    if case.complete and at.variant in SPARSE:
        return False
    # A filter below leaves groups out that LIMIT and windows would count: no raw answer has them.
    below = {"filter in a sub-select", "cte that filters"} & case.features
    if below and (case.complete or case.features & WHOLE):
        return False
    return all(at.raw.execute(check).fetchall() == [(True,)] for check in case.checks)


def wrong_with(case: Case, at: World, answers: Answers) -> Difference | None:
    """Ask both and compare; every error but the programmer's own is an answer too."""
    raw = on_raw(at.raw, case)
    try:
        got = answers.ask(case)
    except (TooLargeError, OutOfMemoryError):
        return None  # a limit that is said, not a wrong answer
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


def smallest(failure: Failure, at: World, answers: Answers) -> Case:
    def like(case: Case) -> bool:
        try:
            if not case.items or not usable(case, at):
                return False
            wrong = wrong_with(case, at, answers)
        except (duckdb.Error, StopIteration):
            return False  # no query any more
        return wrong is not None and wrong.kind == failure.wrong.kind

    return shrink(failure.case, like)


def run(
    worlds: Sequence[tuple[World, Answers]],
    count: int,
    seed: int,
    *,
    shrunk: int = 5,
    stop: int = 1_000_000,
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
        if features & set(XFAIL) or not usable(case, at):
            summary.skipped += 1
            continue
        summary.cases += 1
        summary.asked.update(features)
        wrong = wrong_with(case, at, answers)
        if wrong is None:
            continue
        summary.failed.update(features)
        failure = Failure(case, at.variant, wrong)
        summary.failures.append(failure)
        kinds[wrong.kind] += 1
        if len(summary.failures) <= shrunk or (shrunk and kinds[wrong.kind] == 1):
            failure.smallest = smallest(failure, at, answers)
            failure.wrong = wrong_with(failure.smallest, at, answers) or wrong
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
