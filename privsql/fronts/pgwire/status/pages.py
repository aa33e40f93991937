"""The pages of a server's status: whether it is ready, and its figures as Prometheus reads them.

    /health    200 ready, or 503 with the names of what is not
    /metrics   text format 0.0.4: counters since the start, gauges of this moment

Figures are of the whole server.  They name no user, table, statement or value.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

import privsql
from privsql.fronts.pgwire.status.endpoint import Page
from privsql.fronts.pgwire.status.metrics import BUCKETS, OUTCOMES, QUESTIONS, Figures, Metrics

TEXT = "text/plain; version=0.0.4; charset=utf-8"

Labels = Mapping[str, str]
Sample = tuple[str, Labels, float]  # the end of its name, labels, value
Family = tuple[str, str, str, Iterable[Sample]]  # name, kind, help, samples


@dataclass(frozen=True)
class Connections:
    """How many are open, and how many of them have not logged in."""

    open: int
    unauthenticated: int


@dataclass(frozen=True)
class Status:
    """What the pages are made from; ``checks`` are asked by name, false is not ready."""

    metrics: Metrics
    connections: Callable[[], Connections]
    checks: Mapping[str, Callable[[], bool]]
    history: Path | None = None
    workers: int = 0
    releases: Callable[[], int] = field(default=lambda: 0)

    def pages(self) -> dict[str, Callable[[], Page]]:
        """The pages by their path."""
        return {"/health": self.health, "/metrics": self.figures}

    def health(self) -> Page:
        """Whether questions are answered."""
        failing = self._failing()
        if failing:
            return Page(503, f"not ready: {', '.join(failing)}\n")
        return Page(200, "ready\n")

    def figures(self) -> Page:
        """All metrics."""
        return Page(200, exposition(self._families()), TEXT)

    def _failing(self) -> list[str]:
        return [name for name, passes in self.checks.items() if not passes()]

    def _families(self) -> Iterator[Family]:
        found, there = self.metrics.figures(), self.connections()
        version = {"version": privsql.__version__}
        yield "privsql_info", "gauge", "The version that runs.", [("", version, 1)]
        yield _one("privsql_ready", "gauge", "1 where /health is 200.", not self._failing())
        yield _one("privsql_uptime_seconds", "gauge", "Seconds since the start.", self._uptime())
        yield _one("privsql_releases", "gauge", "Releases that are served.", self.releases())
        yield _one("privsql_connections_open", "gauge", "Connections that are open.", there.open)
        yield _one(
            "privsql_connections_unauthenticated",
            "gauge",
            "Open connections that have not logged in.",
            there.unauthenticated,
        )
        yield _one("privsql_connections_total", "counter", "Connections so far.", found.connections)
        yield from _counted(found)
        yield _one("privsql_workers", "gauge", "Questions that can run at once.", self.workers)
        yield from self._disk()
        yield from _process(self.metrics.begun)

    def _uptime(self) -> float:
        return round(self.metrics.uptime, 3)

    def _disk(self) -> Iterator[Family]:
        if self.history is None:
            return
        size = sum(_size(self.history.with_name(self.history.name + end)) for end in ("", "-wal"))
        yield _one("privsql_history_bytes", "gauge", "Size of the history.", size)
        free = shutil.disk_usage(self.history.parent).free
        yield _one("privsql_history_free_bytes", "gauge", "Room left on its disk.", free)


def unchanged(path: Path) -> Callable[[], bool]:
    """A check: whether the file is the one that was there when the check was made."""
    first = _identity(path)
    return lambda: first is not None and _identity(path) == first


def writable(path: Path) -> Callable[[], bool]:
    """A check: whether a file can be written, or made where it is missing."""
    return lambda: os.access(path if path.exists() else path.parent, os.W_OK)


def exposition(families: Iterable[Family]) -> str:
    r"""Families in the text format.

    >>> print(exposition([("a_total", "counter", "All.", [("", {"code": "x"}, 2)])]), end="")
    # HELP a_total All.
    # TYPE a_total counter
    a_total{code="x"} 2
    """
    lines = []
    for name, kind, about, samples in families:
        lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
        for end, labels, value in samples:
            inside = ",".join(f'{key}="{text}"' for key, text in labels.items())
            shown = f"{{{inside}}}" if inside else ""
            lines.append(f"{name}{end}{shown} {_number(value)}")
    return "\n".join(lines) + "\n"


def resident(process: str = "self") -> int | None:
    """Bytes of memory that a process holds; None where the system does not say."""
    try:
        pages = int(Path(f"/proc/{process}/statm").read_bytes().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def resident_children(process: str = "self") -> int:
    """Bytes of memory of the processes that a process started, and of theirs."""
    total = 0
    for path in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(OSError):  # it has ended
            for child in path.read_text().split():
                total += (resident(child) or 0) + resident_children(child)
    return total


def _counted(found: Figures) -> Iterator[Family]:
    yield (
        "privsql_questions_total",
        "counter",
        "Statements that return rows: of a release (query), of the catalog, of neither (constant).",
        [
            ("", {"kind": kind, "outcome": outcome}, found.questions.get((kind, outcome), 0))
            for kind in QUESTIONS
            for outcome in OUTCOMES
        ],
    )
    yield _one("privsql_questions_running", "gauge", "Questions under way.", found.running)
    about = "Answers given again without being computed."
    yield _one("privsql_cache_hits_total", "counter", about, found.remembered)
    for name, label, about, counts in (
        ("privsql_refusals_total", "code", "Refused statements.", found.refusals),
        (
            "privsql_errors_total",
            "class",
            "Errors by class of SQLSTATE, refusals included.",
            found.errors,
        ),
        ("privsql_notices_total", "code", "Answers with such a notice.", found.notices),
    ):
        yield name, "counter", about, [("", {label: key}, counts[key]) for key in sorted(counts)]
    about = "Time from question to answer, waiting included."
    yield "privsql_question_seconds", "histogram", about, _histogram(found)


def _histogram(found: Figures) -> Iterator[Sample]:
    for kind, one in found.latencies.items():
        ends = [*map(_number, BUCKETS), "+Inf"]
        for end, count in zip(ends, accumulate(one.counts), strict=True):
            yield "_bucket", {"kind": kind, "le": end}, count
        yield "_sum", {"kind": kind}, round(one.total, 6)
        yield "_count", {"kind": kind}, sum(one.counts)


def _process(begun: float) -> Iterator[Family]:
    """Figures that all programs have, under the names that they have everywhere."""
    memory = resident()
    if memory is not None:
        yield _one("process_resident_memory_bytes", "gauge", "Memory of the server.", memory)
        about = "Memory of processes that it started."
        yield _one("privsql_children_memory_bytes", "gauge", about, resident_children())
    spent = round(time.process_time(), 3)
    yield _one("process_cpu_seconds_total", "counter", "Processor time of the server.", spent)
    yield _one("process_start_time_seconds", "gauge", "Start, in Unix time.", round(begun, 3))


def _one(name: str, kind: str, about: str, value: float) -> Family:
    return name, kind, about, [("", {}, value)]


def _number(value: float) -> str:
    """Without digits that say nothing, and never in a form that only Python knows."""
    return str(int(value)) if value == int(value) else repr(float(value))


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
