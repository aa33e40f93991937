"""What is exact is called exact, and what rests on a few rows is not called reliable."""

from __future__ import annotations

import duckdb
import numpy as np
import pytest
from sqlglot import exp

from privsql.release.store import open_release
from privsql.session.session import Session
from privsql.sql.scan.moments.effective_rows import Bound
from tests.oracle.releases import releases
from tests.sql.clinic import publish

EXACT = {"stderr": 0.0, "reliable": True}


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    made = Session(publish(tmp_path_factory.mktemp("clinic"), 0.5))
    yield made
    made.close()


@pytest.fixture(scope="module")
def sampled(tmp_path_factory):
    made = Session(releases(tmp_path_factory.mktemp("sps"), "sps", 1).paths[0])
    yield made
    made.close()


def bar(outcome, i: int, row: int = 0) -> dict[str, object]:
    found: dict[str, object] = outcome.bars[i].to_pylist()[row]
    return found


@pytest.mark.parametrize("estimator", ["inversion", "iterative"])
def test_a_total_over_all_sensitive_groups_is_exact(session, estimator):
    text = "SELECT disease, age // 20 AS a, COUNT(*) AS n, SUM(cost) AS s, AVG(cost) AS m"
    text += " FROM patients GROUP BY ROLLUP (disease, a)"
    outcome = session.run(text, estimator=estimator)
    rows = outcome.table.to_pylist()
    known = session.run("SELECT COUNT(*) AS n, SUM(cost) AS s, AVG(cost) AS m FROM patients")
    (truth,) = known.table.to_pylist()
    # NULL is a disease too: the total is the row with the most people in it.
    at = max(range(len(rows)), key=lambda i: rows[i]["n"])
    for i, name in enumerate(("n", "s", "m"), start=2):
        assert rows[at][name] == pytest.approx(float(truth[name]), rel=1e-12)
        found = bar(outcome, i, at)
        assert found == {**EXACT, "low": rows[at][name], "high": rows[at][name]}
    others = [i for i in range(len(rows)) if i != at and rows[i]["disease"] == "flu"]
    assert all(bar(outcome, 2, i)["stderr"] != 0 for i in others)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("COUNT(*) FROM patients WHERE disease = 'flu' AND job = 'nobody'", 0.0),
        ("COUNT(*) FROM patients WHERE disease = 'flu' AND age > 30 AND job = 'nobody'", 0.0),
        ("COUNT(*) FILTER (WHERE age > 30 AND job = 'nobody') FROM patients", 0.0),
        ("COUNT(*) FROM patients WHERE age > 30 AND disease = 'measles'", 0.0),
        ("COUNT(*) FILTER (WHERE age >= 0) FROM patients", 4000.0),
        ("SUM(cost) FILTER (WHERE age > 30 AND job = 'nobody') FROM patients", None),
    ],
)
@pytest.mark.parametrize("form", ["states", "weights", "counts"])
def test_where_no_row_or_no_state_is_told_apart_it_is_exact(
    session, text, value, form, monkeypatch
):
    monkeypatch.setattr(session, "form", form)
    monkeypatch.setattr(session, "rescan", False)
    outcome = session.run(f"SELECT {text}")
    assert outcome.table.column(0).to_pylist() == [value]
    nothing = {"stderr": None, "reliable": None}
    exact = nothing if value is None else EXACT
    assert bar(outcome, 0) == {**exact, "low": value, "high": value}
    foreign = ["not-in-domain"] if "measles" in text else []
    assert [notice.code for notice in outcome.notices] == foreign


MEASURES = ("1", "cost", "cost * cost * cost")


def by_hand(con, measure, above):
    """``(sum W (W-1) v^2)^2 / sum (W (W-1))^2 v^4`` over published rows."""
    each = f"privsql_weight * (privsql_weight - 1) * ({measure})::DOUBLE * ({measure})"
    ((rows,),) = con.execute(
        f"SELECT pow(sum(x), 2) / sum(x * x) FROM (SELECT {each} AS x FROM clinic"
        f" WHERE cost > {above})"
    ).fetchall()
    return rows


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("form", ["states", "weights", "counts"])
def test_public_rows_of_a_sample_are_counted_before_they_are_relied_on(
    sampled, measure, form, monkeypatch
):
    """Relied on from 20 effective rows on: limits next to that, on both sides."""
    monkeypatch.setattr(sampled, "form", form)
    monkeypatch.setattr(sampled, "rescan", False)
    with open_release(sampled.release.path).connection() as con:
        costs = con.execute("SELECT DISTINCT cost FROM clinic ORDER BY 1 DESC LIMIT 150").fetchall()
        rows = {above: by_hand(con, measure, above) for above in (0, *(c[0] for c in costs))}
    near = sorted(rows, key=lambda above: abs((rows[above] or 0.0) - 20))[:8]
    relied = {above: rows[above] is not None and rows[above] >= 20 for above in (*near, *costs[0])}
    assert set(relied.values()) == {True, False}
    for above, expected in relied.items():
        outcome = sampled.run(f"SELECT SUM({measure}) FROM clinic WHERE cost > {above}")
        assert bar(outcome, 0)["reliable"] == expected, (above, rows[above])


@pytest.mark.parametrize("size", [3, 4, 6])
def test_most_effective_rows_are_bounded_by_the_values_that_rows_can_have(size):
    """Of rows with inverted values K there are ``(sum G^2)^2 / sum G^4``, G from the mean.

    The bound is never below that, and where K has three values it is that.
    """
    rng = np.random.default_rng(3)
    for _ in range(40):
        values = np.sort(rng.normal(0, 3, size))
        times = rng.integers(0, 40, size) + 1
        rows, mean = int(times.sum()), float(times @ values / times.sum())
        second, fourth = (float(times @ (values - mean) ** power) for power in (2, 4))
        bound = Bound(
            (float(values[0]), float(values[-1])),
            floor=[0.0] * 5,
            count=[0.0] * 5,
            support=tuple(values.tolist()),
        )
        nearest = exp.Select(expressions=bound.nearest(0)).from_("given").subquery("nearest")
        given = exp.Select(expressions=[bound.most(0)]).from_(nearest).sql("duckdb")
        found = duckdb.execute(
            "WITH given(second_0, centre_0, rows_0)"
            f" AS (VALUES (?::DOUBLE, ?::DOUBLE, ?::DOUBLE)) {given}",
            [second, mean, rows],
        ).fetchone()
        exact = second**2 / fourth
        assert found is not None
        assert found[0] >= exact * (1 - 1e-9)
        if size == 3:
            assert found[0] == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
def test_least_effective_rows_hold_at_every_scale(scale):
    """``sum G^4 <= (farthest G)^2 sum G^2``, whether values are small or large."""
    rng = np.random.default_rng(4)
    for _ in range(20):
        values = scale * np.sort(rng.normal(0, 1, 5))
        times = rng.integers(1, 40, 5)
        mean = float(times @ values / times.sum())
        second, fourth = (float(times @ (values - mean) ** power) for power in (2, 4))
        ends = (float(values[0]), float(values[-1]))
        bound = Bound(ends, floor=[0.0] * 5, count=[0.0] * 5)
        given = exp.Select(expressions=bound.weights(0)).from_("given").sql("duckdb")
        (found,) = duckdb.execute(
            "WITH given(second_0, centre_0, rows_0)"
            f" AS (VALUES (?::DOUBLE, ?::DOUBLE, ?::DOUBLE)) {given}",
            [second, mean, int(times.sum())],
        ).fetchall()
        farthest = max(mean - ends[0], ends[1] - mean)
        assert found[0] == pytest.approx(second)
        assert found[1] == pytest.approx(farthest**2 * second)
        assert found[1] >= fourth * (1 - 1e-9)
