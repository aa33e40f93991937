"""Counters and latencies of one server: numbers, and labels from short fixed lists.

A label is the kind of a statement, an error's code or the class of its SQLSTATE.  No text of a
client gets here: no statement, no name of a user or table, no value.
"""

from __future__ import annotations

import re
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, TypeVar

from privsql.engines import CanceledError
from privsql.errors import Error, Notice, NotSupportedError

# Upper ends of the buckets of latencies, in seconds.
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
# Kinds of statements that are questions, as ``sql.postgres.read`` names them.
QUESTIONS = ("query", "catalog", "constant")
OUTCOMES = ("answered", "refused", "canceled", "failed")

_CODE = re.compile(r"[a-z0-9-]{1,40}")
_CLASS = re.compile(r"[0-9A-Z]{2}")
R = TypeVar("R")


@dataclass
class Latencies:
    """A histogram: how many took at most each bucket's time but longer than the one before."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        """Count one.

        >>> some = Latencies()
        >>> some.add(0.001), some.add(0.002), some.add(1000)
        (None, None, None)
        >>> some.counts[:3], some.counts[-1], some.total
        ([1, 1, 0], 1, 1000.003)
        """
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.total += seconds


@dataclass(frozen=True)
class Figures:
    """What was counted up to one moment."""

    connections: int
    running: int
    remembered: int
    questions: Mapping[tuple[str, str], int]  # by kind and outcome
    latencies: Mapping[str, Latencies]  # by kind
    refusals: Mapping[str, int]  # by code
    errors: Mapping[str, int]  # by class of SQLSTATE
    notices: Mapping[str, int]  # by code


class Metrics:
    """The counters of one server; safe among threads."""

    def __init__(self) -> None:
        self.begun = time.time()
        self._since = time.monotonic()
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._running = 0
        self._questions: Counter[tuple[str, str]] = Counter()
        self._latencies = {kind: Latencies() for kind in QUESTIONS}
        self._refusals: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()
        self._notices: Counter[str] = Counter()

    @property
    def uptime(self) -> float:
        """Seconds since the server was made."""
        return time.monotonic() - self._since

    def connected(self) -> None:
        """Count a connection."""
        with self._lock:
            self._counts["connections"] += 1

    def remembered(self) -> None:
        """Count an answer that was given before and is given again."""
        with self._lock:
            self._counts["remembered"] += 1

    def failed(self, problem: Error) -> None:
        """Count an error that a client is told."""
        with self._lock:
            self._errors[_known(_CLASS, problem.sqlstate[:2])] += 1
            if isinstance(problem, NotSupportedError):
                self._refusals[_known(_CODE, problem.code)] += 1

    def begun_question(self) -> None:
        """Count a question that is under way."""
        with self._lock:
            self._running += 1

    def ended_question(
        self, kind: str, outcome: str, seconds: float, notices: Sequence[Notice]
    ) -> None:
        """Count what became of it, and the time that it took."""
        kind = kind if kind in QUESTIONS else "query"
        with self._lock:
            self._running -= 1
            self._questions[kind, outcome] += 1
            self._latencies[kind].add(seconds)
            if notices:
                self._notices.update({_known(_CODE, notice.code) for notice in notices})

    def figures(self) -> Figures:
        """All of it, at one moment."""
        with self._lock:
            return Figures(
                self._counts["connections"],
                self._running,
                self._counts["remembered"],
                dict(self._questions),
                {
                    kind: Latencies(list(one.counts), one.total)
                    for kind, one in self._latencies.items()
                },
                dict(self._refusals),
                dict(self._errors),
                dict(self._notices),
            )


def measured(answer: Callable[..., Awaitable[R]]) -> Callable[..., Awaitable[R]]:
    """Count the questions of a connection: for a method whose first argument is the command.

    The time is that until there is an answer, waiting for a worker included.
    """

    @wraps(answer)
    async def counted(self: Any, command: Any, *given: Any, **named: Any) -> R:
        metrics: Metrics = self.desk.metrics
        begun, outcome, notices = time.monotonic(), "failed", ()
        metrics.begun_question()
        try:
            found = await answer(self, command, *given, **named)
            outcome, notices = "answered", getattr(found, "notices", ())
            return found
        except NotSupportedError:
            outcome = "refused"
            raise
        except CanceledError:
            outcome = "canceled"
            raise
        finally:
            metrics.ended_question(command.kind, outcome, time.monotonic() - begun, notices)

    return counted


def _known(pattern: re.Pattern[str], label: str) -> str:
    """A label as it may be; codes are short words of the program."""
    return label if pattern.fullmatch(label) else "other"
