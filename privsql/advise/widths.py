"""From interval widths of given queries to the smallest retention that achieves them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from dataclasses import replace

from privsql.advise.curves import LOWER, Found, search
from privsql.advise.formulas import (
    AdviseError,
    checked_whole,
    epsilon_of,
    retention_of,
    rounded_down,
)
from privsql.advise.guarantees import BOUNDED, epsilon_in_spec, rarest_of
from privsql.advise.pilots import CHOOSABLE, Pilots, Question
from privsql.advise.text import Advice, Row, Tradeoff, entry, retention_lines
from privsql.channels.channel import checked_number
from privsql.errors import ProgrammingError
from privsql.publish.checks import check_columns, open_for
from privsql.publish.source import Source
from privsql.release.columns import EPSILON_LIMIT
from privsql.release.spec import ColumnSpec, Spec

# The largest retention where epsilon has no say; at 1 every interval is a point.
TOP = 0.98

# Rows of a source that are published as they are; of more, a sample of so many.
SAMPLE = 200_000

# Draws of a pilot along the curve; the pilots at the answer take twice as many.
DRAWS = 2


def advise_widths(
    spec: Spec,
    source: Sequence[str] | None,
    queries: Sequence[tuple[str, float]],
    *,
    relative: bool,
    columns: Sequence[str],
    sample: int | None,
    draws: int,
    seed: int | None,
    say: Callable[[str], None] | None,
    grid: Sequence[float],
) -> Advice:
    """The smallest retention at which each query's ± is at most the given one."""
    if not all(0 < checked_number(each, "a retention of the curve") < 1 for each in grid):
        raise AdviseError("the retentions of the curve must lie between 0 and 1")
    grid = sorted(set(grid), reverse=True)
    questions = [_question(i, *pair) for i, pair in enumerate(queries)]
    checked_whole(draws, "the number of draws", 1, 100)
    chosen = _chosen(spec, [each.sql for each in questions], columns)
    if source is not None:
        spec = replace(spec, source=tuple(source), sources_joined=())
    opened = open_for(spec)
    spec = opened.spec
    with closing(opened.source) as raw:
        check_columns(spec, raw)
        rarest = {column.name: _rarest(column, raw) for column in spec.sensitive}
        top = min(_limit(column, rarest[column.name]) for column in chosen)
        with Pilots(
            spec,
            raw,
            questions,
            [column.name for column in chosen],
            relative=relative,
            sample=_sample(spec, sample),
            seed=seed,
            say=say,
        ) as pilots:
            found = search(
                pilots.pilot, [each.width for each in questions], top=top, draws=draws, grid=grid
            )
    shown = {*grid, *LOWER, top}
    return _advice(spec, chosen, rarest, questions, relative, found, pilots, shown)


def _advice(
    spec: Spec,
    chosen: Sequence[ColumnSpec],
    rarest: dict[str, float],
    questions: Sequence[Question],
    relative: bool,
    found: Found,
    pilots: Pilots,
    shown: Collection[float],
) -> Advice:
    names = {column.name for column in chosen}

    def total(retention: float) -> float:
        return sum(
            _epsilon(column, retention if column.name in names else None, rarest[column.name])
            for column in spec.sensitive
        )

    rows = [
        Row(point.retention, total(point.retention), point.widths)
        for point in found.curve.points
        if point.retention in shown and point.retention != found.retention
    ]
    rows.append(Row(found.retention, total(found.retention), found.widths, advised=True))
    rows.sort(key=lambda row: -row.retention)
    kind = "relative ±" if relative else "±"
    meaning = [
        f"query {i + 1}: {kind} {width:.4g} is expected, {each.width:g} was asked for"
        for i, (each, width) in enumerate(zip(questions, found.widths, strict=True))
    ]
    meaning.append(
        "± is half of the interval (95% unless the query says otherwise), of the widest cell"
        + "; relative to the answer from raw rows" * relative
    )
    epsilon = total(found.retention)
    meaning.append(
        f"epsilon {epsilon:.4g} over all sensitive columns"
        if math.isfinite(epsilon)
        else "no epsilon over all sensitive columns: one of them has none"
    )
    rest = [column.name for column in spec.sensitive if column.name not in names]
    if rest:
        meaning.append(f"as in the spec: {', '.join(rest)}")
    if found.lowest:
        meaning.append("every query is narrow enough at the smallest retention that was tried")
    meaning += [
        f"query {i + 1}: up to {refused} cells are refused and do not count"
        for i, refused in enumerate(pilots.refused)
        if refused
    ]
    if pilots.sampled < pilots.rows:
        meaning.append(
            f"predicted from a sample of {pilots.sampled:,} of {pilots.rows:,} rows; widths"
            " scaled with the square root of the rows, checked on a quarter of it; whether a group"
            " is personal was judged on the sample"
        )
    shared = " and ".join(column.name for column in chosen)
    count = f"{len(questions)} queries" if len(questions) > 1 else "a query"
    return Advice(
        wanted=f"goal: narrow intervals for {count}, with the smallest retention"
        f" {'that ' + shared + ' share' if len(chosen) > 1 else 'of ' + shared}",
        toml="\n\n".join(
            entry(
                column.name,
                # Four digits: with fewer, one just below the limit would be above it.
                retention_lines(
                    f"{found.retention:.4g}",
                    _epsilon(column, found.retention, rarest[column.name]),
                ),
            )
            for column in chosen
        ),
        meaning=tuple(meaning),
        numbers={
            "retention": found.retention,
            "epsilon": epsilon,
            "columns": [column.name for column in chosen],
            "queries": [
                {"sql": question.sql, "wanted": question.width, "width": width}
                for question, width in zip(questions, found.widths, strict=True)
            ],
            "relative": relative,
            "rows": pilots.rows,
            "sampled": pilots.sampled,
        },
        warnings=(
            "this was derived from raw rows, and a release discloses its retention: round it up"
            " to a value that you could have chosen without them, and do not publish the curve",
        ),
        tradeoff=Tradeoff(
            tuple(each.sql for each in questions),
            tuple(each.width for each in questions),
            relative,
            tuple(rows),
            found.curve,
        ),
    )


def _question(i: int, sql: object, width: object) -> Question:
    if not isinstance(sql, str) or not sql.strip():
        raise ProgrammingError(f"query {i + 1} is empty", hint="give a SELECT")
    wanted = checked_number(width, f"the width of query {i + 1}")
    if not wanted > 0:
        raise AdviseError(
            f"the width of query {i + 1} must be above 0",
            hint="only a retention of 1 has no error, and it gives no privacy",
        )
    return Question(sql, wanted)


def _chosen(spec: Spec, queries: Sequence[str], names: Sequence[str]) -> list[ColumnSpec]:
    """Columns whose retention is sought: the named ones, else those that a query speaks of."""
    if names:
        found = list({each.name: each for each in map(spec.column, names)}.values())
    else:
        text = "\n".join(queries)
        found = [
            column
            for column in spec.sensitive
            if re.search(rf"(?<!\w){re.escape(column.name)}(?!\w)", text, re.IGNORECASE)
            and column.mechanism in CHOOSABLE
        ]
    for column in found:
        if column.mechanism not in CHOOSABLE:
            kind = f"is {column.role}" if column.role != "sensitive" else f"is {column.mechanism}"
            raise AdviseError(
                f"{column.name} {kind} and has no retention to choose",
                hint=f"name a column that is one of {', '.join(CHOOSABLE)}",
            )
    if not found:
        raise AdviseError(
            "the queries use no sensitive column whose retention can be chosen",
            hint="ask about one, or name columns with --column",
        )
    return found


def _rarest(column: ColumnSpec, raw: Source) -> float:
    """The chance of the rarest replacement, q = 1/m for a uniform column."""
    if column.replacing or column.domain is not None:
        return rarest_of(column)
    values = raw.distinct(column.name)
    return 1 / max(1, len(values) + (column.nullable and not values.null_count))


def _limit(column: ColumnSpec, rarest: float) -> float:
    """The largest retention that the spec allows."""
    if column.accept_epsilon or column.mechanism not in BOUNDED:
        return TOP
    most = min(TOP, rounded_down(retention_of(EPSILON_LIMIT, rarest)))
    if most <= 0:
        raise AdviseError(
            f"{column.name} has an infinite epsilon at every retention: a value is never drawn",
            hint="give every value a replacement probability, or write accept_epsilon = true",
        )
    return most


def _epsilon(column: ColumnSpec, retention: float | None, rarest: float) -> float:
    """Epsilon of a column at a retention, or as the spec has it."""
    if column.mechanism in BOUNDED:
        kept = column.retention if retention is None else retention
        if kept is not None:
            return epsilon_of(kept, rarest)
        if column.wanted_epsilon is not None:
            return column.wanted_epsilon
    return epsilon_in_spec(column)


def _sample(spec: Spec, sample: int | None) -> int:
    """Rows of a sample, 0 for all.  Caps and decoy groups do not scale with the rows."""
    whole = spec.protect is not None or any(c.mechanism == "decoy" for c in spec.sensitive)
    if sample is None:
        return 0 if whole else SAMPLE
    checked_whole(sample, "the rows of a sample", 0, 2**31 - 1)
    if sample and whole:
        raise AdviseError(
            "with [protect.reconstruction] or decoy groups, intervals do not scale with the number"
            " of rows",
            hint="leave --sample out: all rows are used",
        )
    if 0 < sample < 1000:
        raise AdviseError("a sample needs at least 1000 rows", hint="or give 0 for all rows")
    return sample
