"""No statement of the suites is answered wrongly, and no fewer are answered than before."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from decimal import Decimal

import pyarrow as pa
import pytest

from privsql.answer.outcome import Notice, Outcome, ResultColumn
from tests.sizes import sized
from tests.suites.counts import ALL, EVERY_THIRD, STATEMENTS
from tests.suites.run import SUITES, Raw, at_half, at_one, left_over, run, same, statements, table


@pytest.mark.parametrize("suite", SUITES)
def test_answers_are_right_and_no_fewer(suite):
    report = run(suite, every=sized(3, 1))
    assert report.wrong == []
    one, both = sized(EVERY_THIRD, ALL)[suite]
    assert report.one >= one, table([report])
    assert report.both >= both, table([report])


def test_suites_have_all_of_their_statements():
    asked = {suite: [each.name for each in statements(suite)] for suite in SUITES}
    assert {suite: len(set(names)) for suite, names in asked.items()} == STATEMENTS
    assert {suite: len(names) for suite, names in asked.items()} == STATEMENTS


def test_values_are_compared_by_what_they_are():
    assert same(Decimal("0.10"), 0.1)
    assert same(3, 3.0)
    assert same(1e6, 1e6 + 1e-4)
    assert same([1, None], [1.0, None])
    assert same(float("nan"), float("nan"))
    assert not same(1, True)
    assert not same(0.0, None)
    assert not same(1e6, 1e6 + 1e-2)
    assert not same(date(2024, 1, 1), date(2024, 1, 2))


def test_rows_are_matched_one_to_one():
    rows = [("a", 1.0), ("a", 1.0), ("b", 2.0)]
    assert left_over(rows, rows[::-1]) == ([], [])
    assert left_over(rows, rows[1:]) == ([("a", 1.0)], [])
    assert left_over(rows[1:], [*rows[1:], ("c", 1)]) == ([], [("c", 1)])


def answer(rows, *notices, low=(0.5, 0.5)):
    """An answer of a key and an estimate."""
    columns = (ResultColumn("key", "VARCHAR"), ResultColumn("n", "DOUBLE", estimate=True))
    keys, values = zip(*rows, strict=True)
    bars = {"stderr": [1.0, 1.0], "low": low, "high": [9.0, 9.0], "reliable": [True, True]}
    cut = {name: list(each)[: len(rows)] for name, each in bars.items()}
    shown = pa.table({"key": keys, "n": pa.array(values, pa.float64())})
    return Outcome("rows", columns, shown, {1: pa.table(cut)}, tuple(notices))


def test_a_wrong_answer_is_called_wrong():
    raw = Raw([("a", 3), ("b", 4)], ordered=True)
    assert at_one(answer([("a", 3.0), ("b", 4.0)]), raw).kind == "equal"
    assert at_one(answer([("b", 4.0), ("a", 3.0)]), raw).kind == "wrong"
    assert at_one(answer([("b", 4.0), ("a", 3.0)]), replace(raw, ordered=False)).kind == "equal"
    assert at_one(answer([("a", 3.0), ("b", 4.00001)]), raw).kind == "wrong"
    assert at_one(answer([("a", 3.0)]), raw).kind == "wrong"


def test_more_groups_are_called_what_they_are():
    raw, domain = Raw([("a", 3)], ordered=False), Notice("domain", "")
    assert at_one(answer([("a", 3.0), ("b", 0.0)]), raw).kind == "empty"
    assert at_one(answer([("a", 3.0), ("b", 1.0)]), raw).kind == "wrong"
    assert at_one(answer([("a", 3.0), ("b", 1.0)], domain), raw).kind == "domain"
    assert at_one(answer([("b", 1.0)], domain), raw).kind == "wrong"


def test_an_estimate_without_an_interval_is_not_finite():
    raw = Raw([], ordered=False)
    assert at_half(answer([("a", 3.0), ("b", 4.0)]), raw).kind == "finite"
    without = answer([("a", 3.0), ("b", 4.0)], Notice("no-error", "why"), low=(0.5, None))
    assert (at_half(without, raw).kind, at_half(without, raw).code) == ("not finite", "no-error")
    exact = replace(without, bars={})
    assert at_half(exact, raw).kind == "wrong"
    assert at_half(exact, Raw([("a", 3), ("b", 4)], ordered=True)).kind == "finite"
