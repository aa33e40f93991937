"""No answer is silently no number: a value with its error, or NULL, or a notice."""

from __future__ import annotations

import math

import pytest

from privsql.answer.outcome import Outcome
from privsql.errors import DataError
from privsql.session.session import Session
from tests.oracle.releases import releases
from tests.sql.clinic import publish


@pytest.fixture(scope="module")
def sampled(tmp_path_factory):
    """Forty samples of one table, in which spreads of few rows come out below zero."""
    made = Session(releases(tmp_path_factory.mktemp("sps"), "sps", 40).paths[0])
    yield made
    made.close()


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    made = Session(publish(tmp_path_factory.mktemp("clinic"), 0.5))
    yield made
    made.close()


def cells(outcome: Outcome) -> list[tuple[float | None, dict[str, float | None]]]:
    """Every estimate with its bars."""
    return [
        pair
        for i in outcome.bars
        for pair in zip(
            outcome.table.column(i).to_pylist(), outcome.bars[i].to_pylist(), strict=True
        )
    ]


SPREADS = "CORR(age, cost) AS c, STDDEV(age) AS s, VAR_SAMP(age) AS v, COVAR_POP(age, cost) AS p"


@pytest.mark.parametrize("form", ["states", "weights", "counts"])
@pytest.mark.parametrize("where", ["", "WHERE disease = 'flu'", "WHERE disease = 'hiv' AND smoker"])
def test_spreads_of_a_sample_are_numbers_or_null(sampled, where, form, monkeypatch):
    """A root below zero was NaN, and the product of two such variances an error bar."""
    monkeypatch.setattr(sampled, "form", form)
    monkeypatch.setattr(sampled, "rescan", False)
    outcome = sampled.run(f"SELECT rep, {SPREADS} FROM clinic {where} GROUP BY rep")
    missing = 0
    for value, bars in cells(outcome):
        numbers = [value, bars["stderr"], bars["low"], bars["high"]]
        assert all(one is None or math.isfinite(one) for one in numbers)
        if value is None:
            assert bars == {"stderr": None, "low": None, "high": None, "reliable": False}
        elif bars["stderr"] is None:
            assert not bars["reliable"]
        else:
            assert bars["low"] <= value <= bars["high"]  # type: ignore[operator]
        missing += value is None or bars["stderr"] is None
    assert bool(missing) == bool(where)
    assert ("unreliable" in [notice.code for notice in outcome.notices]) >= bool(missing)


@pytest.mark.parametrize("form", ["states", "weights", "counts"])
def test_what_does_not_vary_has_no_spread_of_rounding(session, form, monkeypatch):
    monkeypatch.setattr(session, "form", form)
    monkeypatch.setattr(session, "rescan", False)
    outcome = session.run("SELECT VAR_POP(3.3), STDDEV(3.3) FROM patients WHERE disease = 'hiv'")
    assert [value for value, _ in cells(outcome)] == [0.0, 0.0]
    assert cells(outcome)[1][1]["stderr"] is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("COUNT(*) / 0 FROM patients WHERE disease = 'flu'", math.inf),
        ("1.0 / COUNT(*) FROM patients WHERE disease = 'measles'", math.inf),
        ("ln(COUNT(*)) FROM patients WHERE disease = 'measles'", -math.inf),
        ("sqrt(COUNT(*) - 9000) FROM patients WHERE disease = 'flu'", math.nan),
    ],
)
def test_arithmetic_that_leaves_the_numbers_is_duckdbs_and_has_no_bars(session, text, value):
    outcome = session.run(f"SELECT {text}")
    ((found, bars),) = cells(outcome)
    assert found == value or (math.isnan(value) and math.isnan(found))  # type: ignore[arg-type]
    assert bars == {"stderr": None, "low": None, "high": None, "reliable": False}
    assert "not-finite" in [notice.code for notice in outcome.notices]
    plain = session.run("SELECT COUNT(*) / 2 FROM patients WHERE disease = 'flu'")
    assert "not-finite" not in [notice.code for notice in plain.notices]


@pytest.mark.parametrize("form", ["states", "weights", "counts"])
def test_an_infinite_value_in_the_domain_is_refused_as_such(session, form, monkeypatch):
    monkeypatch.setattr(session, "form", form)
    monkeypatch.setattr(session, "rescan", False)
    with pytest.raises(DataError, match="finite"):
        session.run("SELECT SUM(ln(age)) FROM patients")


def test_a_likeliest_sum_over_no_rows_is_null_and_one_over_some_is_not(session):
    text = "SELECT SUM(cost) FILTER (WHERE disease = 'flu' AND cost > {0}) FROM patients"
    values = [
        session.run(text.format(bound), estimator="iterative").table.column(0).to_pylist()[0]
        for bound in (1000, 50)
    ]
    assert values[0] is None
    assert values[1] > 0
