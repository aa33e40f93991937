"""Quantiles of what is ordered but has no middle: words and truths."""

from __future__ import annotations

import datetime

import pytest

from privsql.errors import Error
from privsql.session.session import Session
from tests.sizes import sized
from tests.sql.clinic import publish, raw


@pytest.fixture(scope="module", params=[0.5, 1.0])
def session(request, tmp_path_factory):
    made = Session(publish(tmp_path_factory.mktemp("clinic"), request.param))
    yield made
    made.close()


def asked(session: Session, text: str) -> tuple[list[object], list[dict[str, object]], str]:
    outcome = session.run(text)
    i = len(outcome.columns) - 1
    return outcome.table.column(i).to_pylist(), outcome.bars[i].to_pylist(), outcome.columns[i].type


@pytest.mark.parametrize("value", ["disease", "upper(disease)", "disease = 'flu'", "age > 50"])
@pytest.mark.parametrize(
    "where", sized(["", "WHERE age > 40"], ["", "WHERE age > 40", "WHERE gender = 'F'"])
)
def test_the_median_of_words_is_a_word_the_lower_of_two(session, value, where):
    values, bars, kind = asked(session, f"SELECT MEDIAN({value}) FROM patients {where}")
    same, same_bars, same_kind = asked(
        session, f"SELECT QUANTILE_DISC({value}, 0.5) FROM patients {where}"
    )
    assert (values, bars, kind) == (same, same_bars, same_kind)
    (bar,) = bars
    assert bar["stderr"] is None
    assert bar["low"] <= values[0] <= bar["high"]  # type: ignore[operator]
    if session.catalog.sensitive["disease"].channel.retention == 1:  # type: ignore[attr-defined]
        with raw() as connection:
            truth = connection.sql(f"SELECT MEDIAN({value}) FROM patients {where}").fetchall()
        assert truth == [tuple(values)]


def test_in_groups(session):
    values, bars, kind = asked(
        session, "SELECT job, MEDIAN(disease) FROM patients GROUP BY job ORDER BY job"
    )
    assert kind == "VARCHAR"
    assert len(values) == 3
    assert all(bar["low"] <= v <= bar["high"] for v, bar in zip(values, bars, strict=True))  # type: ignore[operator]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("age", float),
        ("age::DECIMAL(9, 2)", float),
        ("DATE '2024-01-01' + age", datetime.datetime),
        ("TIMESTAMP '2024-01-01' + to_days(age)", datetime.datetime),
    ],
)
def test_a_middle_and_its_ends_are_of_one_type(session, value, kind):
    values, bars, _ = asked(session, f"SELECT MEDIAN({value}) FROM patients")
    assert type(values[0]) is kind
    assert type(bars[0]["low"]) is type(bars[0]["high"]) is kind
    assert bars[0]["low"] <= values[0] <= bars[0]["high"]  # type: ignore[operator]


def test_intervals_have_no_middle_here(session):
    with pytest.raises(Error) as refusal:
        session.run("SELECT MEDIAN(to_days(age)) FROM patients")
    assert refusal.value.code == "unsupported"
    assert "QUANTILE_DISC" in str(refusal.value.hint)
    values, _, _ = asked(session, "SELECT QUANTILE_DISC(to_days(age), 0.5) FROM patients")
    assert 20 <= values[0].days < 80  # type: ignore[attr-defined]
