"""Every query by every scan form that can answer it (``privsql.sql.scan.forms``).

At retention 1 each form gives DuckDB's answer on the raw table, or on the published rows and their
weights where those are a sample.  Below it all forms say the same of one release: estimates,
standard errors and ends to 1e-9 of the larger of estimate and standard error, and the same ones are
called reliable.

Questions come from the grammar of the oracle, and from people: counts, shares and sums under
conditions, which are what the faster forms are for.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from privsql.answer.outcome import Outcome
from privsql.errors import Error, NotSupportedError
from privsql.session.session import Session
from privsql.sql.scan.forms import AXES, CONJUNCTIONS, COUNTS, FORMS, STATES, WEIGHTS
from tests.oracle.running import LIMITS
from tests.oracle.sessions import read

Parameters = list[Any] | dict[str, Any] | None
WITHIN = 1e-9

# The larger the numbers that are subtracted from each other, the fewer digits are left: spreads
# are differences of squares.
SPREADS = ("VAR", "STDDEV", "CORR", "COVAR")
SPREADS_WITHIN = 1e-6


# --- questions that people ask -------------------------------------------------------------

SENSITIVE = {
    "disease": ("disease = 'flu'", "disease IN ('hiv', 'cold')", "disease LIKE 'f%'",
                "disease IS NULL", "NOT disease = 'flu'", "lower(disease) <> 'none'"),
    "age": ("age > 30", "age BETWEEN 25 AND 40", "age % 2 = 0", "age IS NOT NULL", "age <> 33",
            "SIGN(age - 30) > 0", "LEAST(age, 35) = 35", "GREATEST(age, 30) = 30",
            "ABS(age - 30) < 6"),
    "seen": ("seen > DATE '2024-01-20'", "month(seen) = 2"),
    "smoker": ("smoker", "NOT smoker", "smoker = TRUE"),
    "home": ("home = 'ams'", "home <> 'ber'", "home IS NOT NULL"),
    "work": ("work = 'ams'", "work IN ('ber', 'cph')"),
}  # fmt: skip
PUBLIC = ("sex = 'F'", "member", "city <> 'ams'", "floor >= 1", "cost > 200", "score < 0.5")
# With sub-queries: of the rows around them, and over exact answers.
BESIDE = (
    "EXISTS (SELECT 1 FROM kinds AS i WHERE i.disease = visits.disease AND i.severity > 0)",
    "city IN (SELECT i.city FROM cities AS i WHERE i.people > 800)",
    "NOT EXISTS (SELECT 1 FROM cities AS i WHERE i.city = visits.city AND i.people < cost * 10)",
    "cost > (SELECT AVG(b.cost) FROM visits AS b)",
    "city IN (SELECT b.city FROM visits AS b GROUP BY 1 ORDER BY COUNT(*), 1 LIMIT 2)",
    "cost >= (SELECT AVG(b.cost) FROM visits AS b WHERE b.sex = visits.sex)",
)
KEYS = ("sex", "city", "member", "floor // 2")
VALUES = ("cost", "score", "floor", "age", "age * 2 - 1", "SIGN(age - 30)", "ABS(age - 33)",
          "LEAST(age, 30)", "GREATEST(age, 40)", "age * cost", "COALESCE(age, 0)")  # fmt: skip


def _conditions(rng: random.Random, names: Sequence[str]) -> list[str]:
    return [rng.choice(SENSITIVE[name]) for name in names]


def question(rng: random.Random, *, there: bool = False, done: Collection[str] = ()) -> str:
    """One SELECT of a person: few columns, few conditions; ``there`` leaves out empty groups.

    Where conjunctions alone are not ``done`` yet it is about counts, which they can answer.
    """
    names = rng.sample(list(SENSITIVE), rng.choice((1, 1, 2, 2, 3)))
    tests = _conditions(rng, names)
    where = _conditions(rng, rng.sample(names, rng.choice((0, 0, 1))))
    if rng.random() < 0.3:
        where.append(rng.choice(PUBLIC))
    # Counts alone, which every form can answer; conditions, which can be counted; and values.
    style = rng.choices(("counts", "conditions", "values"), (7, 2, 1))[0]
    if rng.random() < 0.1:
        where.append(rng.choice(BESIDE))
    style = "counts" if {STATES, COUNTS, WEIGHTS} <= set(done) else style
    items = []
    for i in range(rng.choice((1, 1, 2, 2, 3))):
        p = rng.choice(tests)
        if len(tests) > 1 and rng.random() < 0.4:
            p = " AND ".join(rng.sample(tests, 2))
        if style == "values" and rng.random() < 0.3:
            p = f"{p} AND {rng.choice(PUBLIC)}"
        shapes = [
            f"COUNT(*) FILTER (WHERE {p})", f"COUNT(*) FILTER (WHERE {rng.choice(tests)})",
            f"COUNT(*) FILTER (WHERE {p}) - COUNT(*) FILTER (WHERE {rng.choice(tests)})",
        ] if style == "counts" else [
            f"COUNT(*) FILTER (WHERE {p})", f"COUNT_IF({p})", f"COUNT(CASE WHEN {p} THEN 1 END)",
            f"SUM(CASE WHEN {p} THEN 1 ELSE 0 END)", f"SUM(IF({p}, 1, 0))", f"SUM(({p})::INT)",
            f"AVG(({p})::INT)", f"AVG(CASE WHEN {p} THEN 1.0 ELSE 0 END)", "COUNT(*)",
            f"COUNT(*) FILTER (WHERE {p}) * 1.0 / COUNT(*)", f"SUM(CASE WHEN {p} THEN 1 END)",
        ]  # fmt: skip
        if style == "values":
            v = rng.choice(VALUES)
            shapes += [
                f"SUM({v})", f"AVG({v})", f"SUM({v}) FILTER (WHERE {p})", f"COUNT({v})",
                f"SUM(CASE WHEN {p} THEN {v} ELSE 0 END)", f"SUM(IF({p}, 100, 7))",
                f"AVG(CASE WHEN {p} THEN {v} END)", f"VAR_POP({v})", f"STDDEV({v})",
                f"SUM(CAST({p} AS DOUBLE) * {v})",
            ]  # fmt: skip
        items.append(f"{rng.choice(shapes)} AS c{i}")
    grouped = rng.random() < 0.35
    key = rng.choice(KEYS)
    head = f"SELECT {key} AS k, " if grouped else "SELECT "
    tail = f" WHERE {' AND '.join(f'({p})' for p in where)}" if where else ""
    tail += " GROUP BY 1" if grouped else ""
    tail += " HAVING COUNT(*) > 0" if grouped and there else ""
    tail += " ORDER BY 1" if grouped else ""
    return head + ", ".join(items) + " FROM visits" + tail


def weighted_question(rng: random.Random) -> tuple[str, str]:
    """A question, and the same of published rows that carry weights, for DuckDB."""
    p = " AND ".join(_conditions(rng, rng.sample(list(SENSITIVE), rng.choice((1, 1, 2)))))
    where = rng.choice(("", "", f" WHERE {rng.choice(PUBLIC)}"))
    v, w = f"({rng.choice(VALUES)})", "privsql_weight"
    pairs = (
        ("COUNT(*)", f"COALESCE(SUM({w}), 0)"),
        (f"COUNT(*) FILTER (WHERE {p})", f"COALESCE(SUM({w}) FILTER (WHERE {p}), 0)"),
        (f"SUM(CASE WHEN {p} THEN 1 ELSE 0 END)", f"SUM(CASE WHEN {p} THEN {w} ELSE 0 END)"),
        (f"SUM({v})", f"SUM({w} * {v})"),
        (f"SUM({v}) FILTER (WHERE {p})", f"SUM({w} * {v}) FILTER (WHERE {p})"),
        (f"AVG({v})", f"SUM({w} * {v}) / SUM({w}) FILTER (WHERE {v} IS NOT NULL)"),
        (f"AVG(IF({p}, 1, 0))", f"SUM({w} * IF({p}, 1, 0)) / SUM({w})"),
    )
    chosen = rng.sample(pairs, rng.choice((1, 2, 3)))
    key = rng.choice(("", "", *KEYS[:3]))
    asked = []
    for side in (0, 1):
        items = [*([f"{key} AS k"] if key else []), *(pair[side] for pair in chosen)]
        tail = " GROUP BY 1 ORDER BY 1" if key else ""
        asked.append(f"SELECT {', '.join(items)} FROM visits{where}{tail}")
    return asked[0], asked[1]


# --- answers by each form ------------------------------------------------------------------


@dataclass
class Tally:
    """How many queries each form answered, and what went wrong."""

    asked: int = 0
    answered: Counter[str] = field(default_factory=Counter)
    limited: int = 0
    rescanned: int = 0
    failures: list[str] = field(default_factory=list)

    def done(self, quota: int) -> list[str]:
        """Forms that have answered enough."""
        return [form for form in FORMS if self.answered[form] >= quota]

    def __str__(self) -> str:
        forms = ", ".join(f"{form} {self.answered[form]}" for form in FORMS)
        lines = [
            f"{self.asked} queries x forms: {forms}; {self.rescanned} scanned twice,"
            f" {self.limited} too large"
        ]
        return "\n".join([*lines, *self.failures])


def by_form(
    session: Session, sql: str, parameters: Parameters = None, done: Collection[str] = ()
) -> Iterator[tuple[str, Outcome]]:
    """The answer by each form that some block of the query was scanned in.

    Forms in ``done`` are left out where no other one has to be held against them.
    """
    session.rescan = False
    try:
        for first, *others in ((STATES, AXES, CONJUNCTIONS), (WEIGHTS, COUNTS)):
            if {first, *others} <= set(done):
                continue
            session.form = first
            outcome = session.run(sql, parameters)
            if first in session.forms:
                yield first, outcome
            able = [each for each in others if each in session.able and each not in done]
            for second in able:
                session.form = second
                yield second, session.run(sql, parameters)
                if second not in session.forms:
                    raise AssertionError(f"{second} was able to answer and did not")
    finally:
        session.form, session.rescan = None, True


def _cells(outcome: Outcome) -> list[list[dict[str, Any]]]:
    """Per row, value and bars of each column."""
    table = outcome.table
    rows = []
    for r in range(table.num_rows):
        cells = []
        for i in range(table.num_columns):
            cell = {"value": table.column(i)[r].as_py()}
            if i in outcome.bars:
                cell |= outcome.bars[i].slice(r, 1).to_pylist()[0]
            cells.append(cell)
        rows.append(cells)
    return rows


def _key(cells: Sequence[dict[str, Any]], keys: Sequence[int]) -> tuple[str, ...]:
    return tuple(repr(cells[i]["value"]) for i in keys)


def disagreement(
    sql: str, one: Outcome, two: Outcome, *, exactly: bool = True, ordered: bool = True
) -> str | None:
    """The first difference of two answers about one release, or None.

    ``exactly`` compares what is called reliable as well; otherwise ``two`` may call less so, and
    say nothing of a ratio whose denominator it does not rely on.
    """
    within = SPREADS_WITHIN if any(word in sql.upper() for word in SPREADS) else WITHIN
    left, right = _cells(one), _cells(two)
    if len(left) != len(right):
        return f"{len(right)} rows, not {len(left)}"
    if not ordered:
        keys = [i for i, column in enumerate(one.columns) if not column.estimate]
        left.sort(key=lambda row: _key(row, keys))
        right.sort(key=lambda row: _key(row, keys))
    for a, b in zip(left, right, strict=True):
        for column, x, y in zip(one.columns, a, b, strict=True):
            good = x.pop("reliable", None), y.pop("reliable", None)
            if good[0] != good[1] and (exactly or not good[0]):
                return f"{column.name} reliable {good[1]}, not {good[0]}"
            if not exactly and y["value"] is None and not good[1]:
                continue
            size = max((abs(v) for v in (x["value"], x.get("stderr")) if _number(v)), default=0.0)
            for name in x:
                if not _close(x[name], y[name], within * max(size, 1e-6)):
                    return f"{column.name} {name} {y[name]!r}, not {x[name]!r}"
    return None


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _close(one: Any, two: Any, within: float) -> bool:
    if isinstance(one, float) and isinstance(two, float):
        if math.isnan(one) or math.isnan(two) or math.isinf(one) or math.isinf(two):
            return repr(one) == repr(two)
        return abs(one - two) <= within
    return bool(one == two)


def compare_forms(
    tally: Tally,
    session: Session,
    sql: str,
    parameters: Parameters = None,
    ordered: bool = True,
    done: Collection[str] = (),
) -> None:
    """Ask one release a query by all forms, and hold them against the first."""
    tally.asked += 1
    try:
        answers = dict(by_form(session, sql, parameters, done))
    except LIMITS:
        tally.limited += 1
        return
    except NotSupportedError:
        return  # what a sample cannot tell
    except Error as problem:
        tally.failures.append(f"{sql}\n  {problem}")
        return
    tally.answered.update(answers.keys())
    if not answers:
        return
    first = next(iter(answers))
    for form, outcome in answers.items():
        wrong = disagreement(sql, answers[first], outcome, exactly=False, ordered=ordered)
        if wrong is None and disagreement(sql, answers[first], outcome, ordered=ordered):
            # The bound of moments is below the limit: a second scan tells.
            tally.rescanned += 1
            session.form = form
            again = session.run(sql, parameters)
            session.form = None
            wrong = disagreement(sql, answers[first], again, ordered=ordered)
        if wrong is not None:
            tally.failures.append(f"[{form} against {first}] {wrong}\n  {sql} {parameters or ''}")


def compare_exact(
    tally: Tally,
    session: Session,
    sql: str,
    expected: Sequence[tuple[Any, ...]],
    done: Collection[str] = (),
) -> None:
    """Hold each form at retention 1 against rows of DuckDB's."""
    tally.asked += 1
    # Sums of doubles are measured by their terms, which are at most thousands here.
    within = SPREADS_WITHIN if any(word in sql.upper() for word in SPREADS) else WITHIN
    for form, outcome in by_form(session, sql, None, done):
        tally.answered[form] += 1
        found = read(outcome).rows
        alike = len(found) == len(expected) and all(
            one == two
            or (_number(one) and _number(two) and abs(one - two) <= within * (abs(one) + 1e3))
            for a, b in zip(expected, found, strict=True)
            for one, two in zip(map(_plain, a), map(_plain, b), strict=True)
        )
        if not alike:
            tally.failures.append(f"[{form}] {found[:3]}, not {expected[:3]}\n  {sql}")


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, Decimal) else value
