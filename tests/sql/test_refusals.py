"""Every construct of the table is asked, and must come to its verdict."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pytest

from privsql.answer.outcome import Outcome
from privsql.errors import Error
from privsql.session.session import Session
from tests.sql.clinic import publish
from tests.sql.constructs import CONSTRUCTS, VERDICTS, Construct, page

ROOT = Path(__file__).resolve().parent.parent.parent

PUBLIC = {
    "illness": pa.table({"disease": ["flu", "hiv", "none"], "class": ["virus", "virus", "well"]}),
    "jobs": pa.table({"job": ["eng", "law", "med"], "pay": [3, 2, 1]}),
    "visits": pa.table({"job": ["eng", "eng", "law"], "day": [1, 2, 1]}),
}


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


@pytest.mark.parametrize("one", CONSTRUCTS, ids=[one.what for one in CONSTRUCTS])
def test_each_construct_comes_to_its_verdict(session, one):
    assert verdict(session, one) == (one.verdict, one.code)


REFUSED = [one for one in CONSTRUCTS if one.verdict == "refused"]


@pytest.mark.parametrize("one", REFUSED, ids=[one.what for one in REFUSED])
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


def test_the_page_is_what_the_code_says():
    """On a change: python -m tests.sql.test_refusals > docs/sql.md."""
    assert (ROOT / "docs" / "sql.md").read_text(encoding="utf-8") == page()


if __name__ == "__main__":
    sys.stdout.write(page())
