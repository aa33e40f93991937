"""Speed as a ratio: two things timed in turn, in one run, on one machine.

Machines are noisy and differ; a ratio of interleaved timings moves far less than a time.
Each round times both sides once, next to each other, and gives one ratio; what is printed
is the median of the rounds with its quartiles.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

# A timing shorter than this is mostly the clock's own noise: repeat inside.
LEAST_SECONDS = 0.004


@dataclass(frozen=True)
class Case:
    """``ours`` against ``other``: a ratio of times that must keep to a limit."""

    name: str
    ours: Callable[[], object]
    other: Callable[[], object]
    limit: float
    faster: bool = False  # True: other / ours must be at least the limit
    rounds: int = 15
    cpu: bool = False  # processor time of all threads, instead of time on the wall
    times: float = 1.0  # how often the other side is counted, where a part of it is timed
    spare: float = 0.0  # seconds beside the limit
    within: float = 0.0  # seconds that are good enough whatever the other side takes
    note: str = ""


@dataclass(frozen=True)
class Measured:
    case: Case
    ratios: np.ndarray
    ours_seconds: float
    other_seconds: float

    @property
    def ratio(self) -> float:
        return float(np.median(self.ratios))

    @property
    def kept(self) -> bool:
        case, limit = self.case, self.case.limit
        if case.faster:
            return self.ratio >= limit
        most = max(limit * self.other_seconds + case.spare, case.within)
        return self.ratio <= limit or self.ours_seconds <= most

    def __str__(self) -> str:
        low, high = np.quantile(self.ratios, [0.25, 0.75])
        sign = ">=" if self.case.faster else "<="
        return (
            f"{'ok  ' if self.kept else 'MISS'} {self.case.name:<58} {self.ratio:8.2f}x"
            f"  [{low:.2f}, {high:.2f}]  {sign} {self.case.limit:g}"
            f"   ({_human(self.ours_seconds)} against {_human(self.other_seconds)})"
            + (" cpu" if self.case.cpu else "")
            + (f", + {self.case.spare:g} s" if self.case.spare else "")
            + (f", within {self.case.within:g} s" if self.case.within else "")
            + (f"  {self.case.note}" if self.case.note else "")
        )


def measure(case: Case) -> Measured:
    case.ours()
    case.other()
    repeat_ours, repeat_other = _repeats(case.ours), _repeats(case.other)
    ours, other = np.empty(case.rounds), np.empty(case.rounds)
    for i in range(case.rounds):
        ours[i] = _seconds(case.ours, repeat_ours, case.cpu)
        other[i] = _seconds(case.other, repeat_other, case.cpu) * case.times
    ratios = other / ours if case.faster else ours / other
    return Measured(case, ratios, float(np.median(ours)), float(np.median(other)))


def _seconds(function: Callable[[], object], repeats: int, cpu: bool = False) -> float:
    clock = time.process_time if cpu else time.perf_counter
    start = clock()
    for _ in range(repeats):
        function()
    return (clock() - start) / repeats


def _repeats(function: Callable[[], object]) -> int:
    return max(1, round(LEAST_SECONDS / max(_seconds(function, 1), 1e-7)))


def _human(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} us"
