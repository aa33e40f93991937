"""What would take too much is refused before it takes it."""

from __future__ import annotations

import time
import tracemalloc

import pytest

from privsql.errors import TooLargeError
from privsql.session.session import Session
from privsql.sql.plan import states
from tests.sql import clinic
from tests.sql.grid import publish


@pytest.fixture(scope="module", params=[4_097, 70_000, 500_000])
def session(request, tmp_path_factory):
    made = Session(publish(tmp_path_factory.mktemp("grid"), request.param))
    made.run("SELECT COUNT(*) FROM staff WHERE salary < 100 AND senior")  # the domain is loaded
    yield made
    made.close()


@pytest.mark.parametrize(
    "query",
    [
        "SELECT salary, COUNT(*) FROM staff GROUP BY salary",
        "SELECT job, salary, senior, COUNT(*) FROM staff GROUP BY ALL",
        "SELECT senior, SUM(salary) FROM staff GROUP BY senior",
        "SELECT MEDIAN(salary) FROM staff",
    ],
)
def test_too_many_cells_are_refused_before_a_channel_is_built(session, query, monkeypatch):
    values = session.catalog.sensitive["salary"].domain.size

    def never(*_args):
        raise AssertionError("a channel between cells was asked for")

    monkeypatch.setattr(type(session.catalog.sensitive["salary"].channel), "lump", never)
    tracemalloc.start()
    begun = time.process_time()
    try:
        with pytest.raises(TooLargeError) as refusal:
            session.run(query)
        assert time.process_time() - begun < 10
        # Some arrays over the domain, and not one of its square.
        assert tracemalloc.get_traced_memory()[1] < 200 * values + 20_000_000
    finally:
        tracemalloc.stop()
    assert f"salary has {values} cells" in refusal.value.reason
    assert "coarsen" in str(refusal.value.hint)
    assert refusal.value.place is not None


def test_groups_that_would_not_fit_are_refused_and_coarser_ones_answered(
    tmp_path_factory, monkeypatch
):
    session = Session(publish(tmp_path_factory.mktemp("thousand"), 60))
    try:
        monkeypatch.setattr(states, "MOST_HELD", 60**3 - 1)
        with pytest.raises(TooLargeError, match="60 groups of sensitive values in 60 states"):
            session.run("SELECT salary, MEDIAN(salary) FROM staff GROUP BY salary")
        # Column by column there are no lists over states.
        session.form = "states"
        apart = session.run("SELECT salary, COUNT(*) FROM staff GROUP BY salary")
        assert (apart.table.num_rows, session.forms) == (60, ("axes",))
        coarse = session.run("SELECT salary // 10 AS s, AVG(salary) FROM staff GROUP BY s")
        assert coarse.table.num_rows == 6
        monkeypatch.setattr(states, "MOST_HELD", 60**3)
        fine = session.run("SELECT salary, COUNT(*) FROM staff GROUP BY salary ORDER BY 1")
        assert (fine.table.num_rows, session.forms) == (60, ("states",))
    finally:
        session.close()


@pytest.mark.parametrize("form", [None, "states"])
@pytest.mark.parametrize(
    "condition",
    [
        "seen < TIMESTAMP '2024-03-01'",
        "seen >= TIMESTAMP '2024-03-01 12:00:00' AND seen <= TIMESTAMP '2024-06-30 23:59:59'",
        "NOT seen BETWEEN TIMESTAMP '2024-02-01' AND TIMESTAMP '2024-09-01'",
        "seen > '2024-05-05' AND disease = 'flu'",
        "(seen < TIMESTAMP '2024-02-01' OR seen > TIMESTAMP '2024-11-01') AND age > 40",
    ],
)
def test_conditions_on_a_domain_too_large_to_list_select_what_they_say(tmp_path, condition, form):
    session = Session(clinic.publish(tmp_path, 1.0))
    session.form = form
    found = session.run(f"SELECT COUNT(*) AS n, COUNT(*) FILTER (WHERE {condition}) FROM patients")
    one = session.run(f"SELECT job, COUNT(*) AS n FROM patients WHERE {condition} GROUP BY job")
    session.close()
    with clinic.raw() as con:
        text = f"SELECT COUNT(*), COUNT(*) FILTER (WHERE {condition}) FROM patients"
        (expected,) = con.execute(text).fetchall()
        groups = con.execute(
            f"SELECT job, COUNT(*) FROM patients WHERE {condition} GROUP BY job"
        ).fetchall()
    assert tuple(found.table.to_pylist()[0].values()) == pytest.approx(expected)
    assert 0 < expected[1] < expected[0]
    assert {row["job"]: row["n"] for row in one.table.to_pylist()} == pytest.approx(dict(groups))
