"""What a server remembers: per user and version, within a number of bytes."""

from __future__ import annotations

import pyarrow as pa
import pytest

from privsql.answer.outcome import Outcome, ResultColumn
from privsql.session import caches
from privsql.session.caches import EACH, SMALL, Answers, Remembered


def outcome(size: int = 8, kind: str = "rows") -> Outcome:
    table = pa.table({"n": pa.array([b"x" * size], pa.binary())})
    return Outcome(kind, (ResultColumn("n", "BLOB"),), table)


def test_an_answer_is_for_its_user_and_version_alone():
    answers = Answers()
    made = outcome()
    answers.of("ann", 1).put("question", made, ["groups"])
    assert answers.of("ann", 1).get("question") == (made, ("groups",))
    for owner in (("bob", 1), ("ann", 2), ("ANN", 1)):
        assert answers.of(*owner).get("question") is None
    answers.forget(1)
    assert answers.of("ann", 1).get("question") is None


def test_large_answers_and_what_is_none_are_not_kept():
    kept = Remembered()
    kept.put("large", outcome(SMALL + 1), ())
    kept.put("set", outcome(kind="set"), ())
    kept.put(None, outcome(), ())
    assert [kept.get(key) for key in ("large", "set", None)] == [None] * 3
    assert kept.bytes == 0


def test_one_user_has_no_more_than_a_share():
    kept = Remembered()
    for number in range(1000):
        kept.put(number, outcome(20_000), ())
        assert kept.bytes <= EACH
    assert kept.get(999) is not None
    assert kept.get(0) is None
    assert kept.bytes > EACH // 2


def test_all_users_together_have_no_more_than_the_total(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(caches, "TOTAL", 3 * EACH)
    answers = Answers()
    for user in range(40):
        for number in range(50):
            answers.of(f"user {user}", 1).put(number, outcome(30_000), ())
    held = sum(each.bytes for each in answers._owners.values())
    assert EACH < held <= 3 * EACH
    assert answers.of("user 39", 1).get(49) is not None
    assert answers.of("user 0", 1).get(49) is None


def test_names_alone_do_not_add_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(caches, "OWNERS", 20)
    answers = Answers()
    for user in range(500):
        answers.of(f"user {user}", 1)
    assert len(answers._owners) <= 21
