"""What must hold of any answer, whatever the truth is: it is finite, and its bars fit it.

At retention below 1 no raw answer says what a query should have come to.  But every number is
finite, a standard error is not negative, an interval holds its estimate, an estimate without
error bars comes with a notice, and nothing but a limit that is said stands in the way.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from privsql.answer import columns as seen
from privsql.answer.outcome import Outcome
from privsql.answer.text import text
from privsql.errors import Error, NotSupportedError
from tests.oracle.compare import Difference
from tests.oracle.generator import Case
from tests.oracle.perturbed import VARIANTS
from tests.oracle.running import LIMITS
from tests.oracle.sessions import session_class
from tests.oracle.tables import TABLE, World

SAMPLED = tuple(name for name, noise in VARIANTS.items() if noise.weighted)
UNWEIGHTED = {"exact aggregate", "quantile of public values"}
BARS = ("stderr", "low", "high", "reliable")

# Rounding between an estimate and its interval.
SLACK = 1e-9


class Noisy:
    """The query layer on a perturbed release, with one estimator."""

    def __init__(self, world: World, estimator: str, session: Any = None) -> None:
        self.session = session or session_class()(world.release, tables=world.tables)
        self.estimator = estimator

    def ask(self, case: Case) -> Outcome:
        sql, parameters = case.printed()
        outcome: Outcome = self.session.run(
            sql, parameters, error_bars=True, estimator=self.estimator
        )
        return outcome


def both(worlds: Sequence[World]) -> list[tuple[World, Noisy]]:
    """Each world twice by ``auto`` and once by the constrained likelihood."""
    sessions = [Noisy(each, "auto") for each in worlds]
    once = list(zip(worlds, sessions, strict=True))
    other = [(at, Noisy(at, "iterative", by.session)) for at, by in once]
    return [*once, *once, *other]


def unsound(case: Case, at: World, answers: Noisy) -> Difference | None:
    """The first thing that is wrong with an answer in itself, or None.

    A warning of numpy is an error here: it is how an infinity announces itself.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            outcome = answers.ask(case)
            text(outcome)
            table = seen.table(outcome)
    except LIMITS:
        raise
    except NotSupportedError as problem:
        # Of a sample, COUNT(DISTINCT), MAX and their kin say nothing, even of public columns.
        if at.variant in SAMPLED and case.features & UNWEIGHTED:
            return None
        # Nor is there an exact answer to compare rows with.
        if at.variant in SAMPLED and f"FROM {TABLE} AS b" in case.sql + _answers(case):
            return None
        if any(each.startswith("distinct count") for each in case.features) and (
            at.variant in SAMPLED or problem.code in ("dependent-rows", "distinct-error")
        ):
            return None
        return Difference(f"raises {type(problem).__name__}", str(problem))
    except Error as problem:
        return Difference(f"raises {type(problem).__name__}", str(problem))
    except Exception as problem:  # a bug in the layer is a finding, not the end of the run
        return Difference(f"breaks with {type(problem).__name__}", str(problem))
    estimates = [i for i, column in enumerate(outcome.columns) if column.estimate]
    if table.num_columns != len(outcome.columns) + len(BARS) * len(estimates):
        return Difference("columns", "error bars were asked for and are not all there")
    return next((found for i in estimates for found in faults(outcome, i)), None)


def _answers(case: Case) -> str:
    """Words for joins with an answer, which name their table otherwise."""
    return f"FROM {TABLE} AS b" if any("an exact answer" in f for f in case.features) else ""


def faults(outcome: Outcome, i: int) -> Iterator[Difference]:
    """What is wrong with the estimates of one column."""
    name = outcome.columns[i].name
    codes = {notice.code for notice in outcome.notices if notice.code in GENERAL}
    # A reason is a column's own.
    codes |= {notice.code for notice in outcome.notices if repr(name) in notice.text}
    lists = [outcome.bars[i].column(bar).to_pylist() for bar in BARS]
    values = outcome.table.column(i).to_pylist()
    for value, *bars in zip(values, *lists, strict=True):
        kind = _fault(value, bars, codes)
        if kind:
            yield Difference(kind, f"{name} is {value!r} with {dict(zip(BARS, bars, strict=True))}")


def _fault(value: Any, bars: Sequence[Any], codes: set[str]) -> str:
    stderr, low, high, _ = bars
    shown = (value, stderr, low, high)
    if isinstance(value, float) and not math.isfinite(value) and "not-finite" in codes:
        # 0.0 / 0 over estimates is DuckDB's own value, said so, and without bars.
        return "" if (stderr, low, high) == (None, None, None) else "bars of no number"
    if any(isinstance(each, float) and not math.isfinite(each) for each in shown):
        return "not finite"
    if stderr is not None and stderr < 0:
        return "standard error below zero"
    if value is None:
        # A standard error of zero says that NULL is exact: SUM over no rows is.
        return "bars without a value" if (stderr, low, high) not in NOTHING else ""
    slack = SLACK * max(1.0, abs(value)) if isinstance(value, float) else None
    if low is not None and value < (low if slack is None else low - slack):
        return "estimate below its interval"
    if high is not None and value > (high if slack is None else high + slack):
        return "estimate above its interval"
    # Quantiles have an interval and no standard error.
    if stderr is None and low is None and high is None and "no-error" not in codes:
        return "no error bars and no notice"
    return ""


# Notices about all columns of an answer.
GENERAL = ("not-finite",)
NOTHING = ((None, None, None), (0.0, None, None))
