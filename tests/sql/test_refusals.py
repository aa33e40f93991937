"""Every construct of the table is asked, and must come to its verdict."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pytest

from privsql.answer.outcome import Outcome
from privsql.errors import Error
from privsql.fronts.session import Session
from privsql.sql.constructs import CONSTRUCTS, VERDICTS, Construct, page
from tests.sql.clinic import publish

ROOT = Path(__file__).resolve().parent.parent.parent

PUBLIC = {
    "illness": pa.table({"disease": ["flu", "hiv", "none"], "class": ["virus", "virus", "well"]}),
    "jobs": pa.table({"job": ["eng", "law", "med"], "pay": [3, 2, 1]}),
    "visits": pa.table({"job": ["eng", "eng", "law"], "day": [1, 2, 1]}),
}

# What is wrong at present; each is to be mended, and then taken off this list.
_LEAK = "published rows are counted as they are: a number that was not reconstructed"
_EXACT = "an estimate that is said to be exact"
_OTHER = "refused by accident, with another code"
WRONG = {
    "method calls": _LEAK,
    "correlated by a name that is used inside too": _LEAK,
    "published rows deep in a sub-query": _LEAK,
    "published rows in the ON of a sub-query": _LEAK,
    "a table function in a sub-query": _LEAK,
    "query() in a sub-query": _LEAK,
    "COLUMNS in a condition": _LEAK,
    "COLUMNS unpacked": _LEAK,
    "COLUMNS in a sub-select": _LEAK,
    "columns by position": _LEAK,
    "columns by position in an aggregate": _LEAK,
    "clock and settings over a sensitive column": "evaluated twice, in two databases",
    "DISTINCT of a window function over published rows": "evaluated over the domain",
    "UNNEST of published rows": "rows that are multiplied are counted once",
    "a CTE in a condition's sub-query": "the public table of that name is read instead",
    "MIN, MAX with a number of values": "the number is ignored",
    "a field of a struct of estimates": _EXACT,
    "the whole row of an answer": _EXACT,
    "COLUMNS over an answer": _EXACT,
    "columns of an answer by position": _EXACT,
    "MODE of a sensitive column": "no notice says that it has no error bar",
    "CTE of rows with column names": "not understood",
    "a sub-query that depends on rows around it": _OTHER,
    **dict.fromkeys((one.what for one in CONSTRUCTS if one.topic == "Other statements"), _OTHER),
}
for _fine in ("SUMMARIZE, DESCRIBE", "SET of anything that is not privsql's"):
    del WRONG[_fine]

# Refusals that do not yet point at the place in the text, or do not say what to ask instead.
UNHELPFUL = [
    "more states than 65,536",
    "which groups exist under a sensitive condition",
    "DISTINCT under a sensitive condition",
    "DISTINCT ON",
    "bit operators on an estimate",
    "the row as a struct",
    "the row's number",
    "two published tables joined",
    "rows joined with an answer",
    "a join that multiplies rows",
    "a join without a condition",
    "a join on something else than equality",
    "a join with a condition on a sensitive column",
    "a join on a public and a sensitive column",
    "RIGHT, FULL, CROSS, SEMI, ANTI joins",
    "NATURAL, ASOF, POSITIONAL joins",
    "a CTE joined with published rows",
    "LATERAL",
    "recursive CTE",
    "samples",
    "TABLESAMPLE",
    "PIVOT",
    "UNPIVOT",
    "table functions",
    "catalogs",
    "SUMMARIZE, DESCRIBE",
    "SET of anything that is not privsql's",
]


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    made = Session(publish(tmp_path_factory.mktemp("clinic"), 0.4), tables=PUBLIC)
    yield made
    made.close()


def verdict(session: Session, one: Construct) -> tuple[str, str]:
    """The verdict and the error's code."""
    try:
        outcome = session.run(one.sql, one.parameters or None)
    except Error as refusal:
        return "refused", refusal.code
    return _kind(outcome), ""


def _kind(outcome: Outcome) -> str:
    if any(column.estimate for column in outcome.columns):
        if set(outcome.bars) != {i for i, c in enumerate(outcome.columns) if c.estimate}:
            return "estimates and bars do not fit"
        # An interval for each estimate that is not NULL in some row; or a notice.
        if all(_told(outcome, i) for i in outcome.bars):
            return "answered"
        return "no-bars" if any(n.code == "no-error" for n in outcome.notices) else "silent"
    return "domain" if any(n.code == "domain" for n in outcome.notices) else "exact"


def _told(outcome: Outcome, i: int) -> bool:
    """Whether a column has an interval in some row where it has a value."""
    values = outcome.table.column(i).is_valid().to_pylist()
    ends = outcome.bars[i].column("low").is_valid().to_pylist()
    return not any(values) or any(v and e for v, e in zip(values, ends, strict=True))


def marked(wrong: dict[str, str], chosen: list[Construct]) -> list[object]:
    return [
        pytest.param(
            one,
            id=one.what,
            marks=[pytest.mark.xfail(reason=wrong[one.what], strict=True)]
            if one.what in wrong
            else [],
        )
        for one in chosen
    ]


@pytest.mark.parametrize("one", marked(WRONG, list(CONSTRUCTS)))
def test_each_construct_comes_to_its_verdict(session, one):
    assert verdict(session, one) == (one.verdict, one.code)


REFUSED = [one for one in CONSTRUCTS if one.verdict == "refused" and one.what not in WRONG]


@pytest.mark.parametrize(
    "one", marked(dict.fromkeys(UNHELPFUL, "no caret or no hint yet"), REFUSED)
)
def test_refusals_point_at_the_place_and_say_what_to_ask_instead(session, one):
    with pytest.raises(Error) as refusal:
        session.run(one.sql, one.parameters or None)
    problem = refusal.value
    assert problem.reason
    assert problem.hint
    assert problem.place is not None
    assert one.sql[problem.place.start : problem.place.stop].strip()
    assert "^" in str(problem)


def test_constructs_are_named_once_and_have_a_known_verdict():
    names = [(one.topic, one.what) for one in CONSTRUCTS]
    assert len(set(names)) == len(names)
    assert {one.verdict for one in CONSTRUCTS} == set(VERDICTS)
    assert all(bool(one.code) == (one.verdict == "refused") for one in CONSTRUCTS)
    assert {*WRONG, *UNHELPFUL} <= {one.what for one in CONSTRUCTS}


def test_the_page_is_what_the_code_says():
    """On a change: python -m tests.sql.test_refusals > docs/sql.md."""
    assert (ROOT / "docs" / "sql.md").read_text(encoding="utf-8") == page()


if __name__ == "__main__":
    sys.stdout.write(page())
