"""Window functions over answers keep their errors: against numpy, and by simulation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from privsql.answer.outcome import Outcome
from privsql.session.session import Session
from tests.sql import clinic, yearly

Array = NDArray[np.float64]
COPIES, ROWS = 300, 1500

# By ten units of cost: a public key with ten values, none of them NULL.
GROUPS = (
    "SELECT cost // 10 AS k, COUNT(*) AS n, SUM(cost) AS s FROM patients"
    " WHERE disease = 'hiv' AND age > 30 GROUP BY 1"
)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    opened = Session(clinic.publish(tmp_path_factory.mktemp("windows"), 0.5))
    yield opened
    opened.close()


def estimates(outcome: Outcome, name: str) -> tuple[Array, Array]:
    """Values and standard errors of a column, NULL as NaN."""
    i = [column.name for column in outcome.columns].index(name)
    columns = outcome.table.column(i), outcome.bars[i].column("stderr")
    values, errors = (np.array(c.to_pylist(), dtype=np.float64) for c in columns)
    return values, errors


def codes(outcome: Outcome) -> list[str]:
    return [notice.code for notice in outcome.notices]


class Parts:
    """The answer row by row: estimates n and s, their variances and covariance."""

    def __init__(self, session: Session) -> None:
        outcome = session.run(f"SELECT k, n, s, n + s AS both FROM ({GROUPS}) ORDER BY k")
        self.n, n_error = estimates(outcome, "n")
        self.s, s_error = estimates(outcome, "s")
        _, both = estimates(outcome, "both")
        self.nn, self.ss = n_error**2, s_error**2
        self.ns = (both**2 - self.nn - self.ss) / 2
        self.rows = len(self.n)

    def weighted(self, of_n: Array, of_s: Array) -> Array:
        """Standard errors of ``of_n @ n + of_s @ s``; a row of weights for each answer."""
        squares = of_n**2 @ self.nn + 2 * (of_n * of_s) @ self.ns + of_s**2 @ self.ss
        root: Array = np.sqrt(squares)
        return root


def _band(rows: int, first: int, last: int) -> Array:
    """Row r takes the rows from r + first to r + last."""
    apart = np.arange(rows)[None, :] - np.arange(rows)[:, None]
    return ((apart >= first) & (apart <= last)).astype(np.float64)


def _mean(rows: int, first: int, last: int) -> Array:
    band = _band(rows, first, last)
    return band / band.sum(axis=1, keepdims=True)


ALL = 1000
# An answer that is linear in n (and s): its text, and its weights.
LINEAR: dict[str, tuple[str, Callable[[int], tuple[Array, Array | float]]]] = {
    "running total": (
        "SUM(n) OVER (ORDER BY k)",
        lambda m: (_band(m, -ALL, 0), 0.0),
    ),
    "running total by rows": (
        "SUM(n) OVER (ORDER BY k ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)",
        lambda m: (_band(m, -ALL, 0), 0.0),
    ),
    "total that runs down": (
        "SUM(n) OVER (ORDER BY k DESC)",
        lambda m: (_band(m, 0, ALL), 0.0),
    ),
    "range": (
        "SUM(n) OVER (ORDER BY k RANGE BETWEEN 1 PRECEDING AND 2 FOLLOWING)",
        lambda m: (_band(m, -1, 2), 0.0),
    ),
    "moving average": (
        "AVG(n) OVER (ORDER BY k ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)",
        lambda m: (_mean(m, -2, 0), 0.0),
    ),
    "moving average of three": (
        "AVG(n) OVER (ORDER BY k ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)",
        lambda m: (_mean(m, -1, 1), 0.0),
    ),
    "difference": (
        "n - LAG(n, 1, 0) OVER (ORDER BY k)",
        lambda m: (_band(m, 0, 0) - _band(m, -1, -1), 0.0),
    ),
    "difference ahead": (
        "2 * LEAD(n, 3, 7) OVER (ORDER BY k) - n",
        lambda m: (2 * _band(m, 3, 3) - _band(m, 0, 0), 0.0),
    ),
    "deviation from the average": (
        "n - AVG(n) OVER ()",
        lambda m: (_band(m, 0, 0) - _mean(m, -ALL, ALL), 0.0),
    ),
    "deviation from what was before": (
        "n - COALESCE(SUM(n) OVER (ORDER BY k ROWS BETWEEN 2 PRECEDING AND 1 PRECEDING), 0)",
        lambda m: (_band(m, 0, 0) - _band(m, -2, -1), 0.0),
    ),
    "without the row itself": (
        "SUM(n) OVER (ORDER BY k ROWS BETWEEN 1 PRECEDING AND 2 FOLLOWING EXCLUDE CURRENT ROW) + n",
        lambda m: (_band(m, -1, 2), 0.0),
    ),
    "two frames": (
        "SUM(n) OVER (ORDER BY k ROWS 3 PRECEDING) - SUM(n) OVER (ORDER BY k ROWS 1 PRECEDING)",
        lambda m: (_band(m, -3, 0) - _band(m, -1, 0), 0.0),
    ),
    "two sums": (
        "SUM(s) OVER (ORDER BY k) - 50 * n",
        lambda m: (-50 * _band(m, 0, 0), _band(m, -ALL, 0)),
    ),
    "of a line": (
        "SUM(s - 40 * n) OVER (ORDER BY k ROWS 1 PRECEDING)",
        lambda m: (-40 * _band(m, -1, 0), _band(m, -1, 0)),
    ),
    "with a condition": (
        "SUM(n) FILTER (WHERE k % 2 = 0) OVER (ORDER BY k)",
        lambda m: (_band(m, -ALL, 0) * (np.arange(1, m + 1) % 2 == 0), 0.0),
    ),
    "times a public number": (
        "SUM(k * n) OVER (ORDER BY k)",
        lambda m: (_band(m, -ALL, 0) * np.arange(1, m + 1), 0.0),
    ),
}


@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("around", ["sub-select", "CTE"])
def test_linear_windows_have_the_error_of_their_rows(
    session: Session, name: str, around: str
) -> None:
    parts = Parts(session)
    text, weights = LINEAR[name]
    of_n, of_s = weights(parts.rows)
    wanted = parts.weighted(of_n, np.broadcast_to(of_s, of_n.shape))
    query = f"SELECT k, {text} AS x FROM ({GROUPS}) ORDER BY k"
    if around == "CTE":
        query = f"WITH g AS ({GROUPS}) SELECT k, {text} AS x FROM g ORDER BY k"
    outcome = session.run(query)
    values, errors = estimates(outcome, "x")
    # What holds no estimate is known: nothing was there.
    there = wanted > 0
    assert there.sum() >= parts.rows - 3
    assert errors[there] == pytest.approx(wanted[there], rel=1e-6)
    assert not errors[~there & ~np.isnan(values)].any()
    assert "no-error" not in codes(outcome)


def test_windows_in_the_query_that_aggregates(session: Session) -> None:
    outer = session.run(
        f"SELECT k, SUM(n) OVER w AS t, n - LAG(n) OVER w AS d FROM ({GROUPS})"
        " WINDOW w AS (ORDER BY k) ORDER BY k"
    )
    inner = session.run(
        "SELECT cost // 10 AS k, SUM(COUNT(*)) OVER w AS t, COUNT(*) - LAG(COUNT(*)) OVER w AS d"
        " FROM patients WHERE disease = 'hiv' AND age > 30 GROUP BY 1"
        " WINDOW w AS (ORDER BY cost // 10) ORDER BY 1"
    )
    for name in ("t", "d"):
        for one, two in zip(estimates(outer, name), estimates(inner, name), strict=True):
            assert one == pytest.approx(two, nan_ok=True)


def test_totals_of_two_aggregates_beside_each_other_and_together(session: Session) -> None:
    """The covariance of two totals is asked for where both are in one expression."""
    parts = Parts(session)
    flat = "FROM patients WHERE disease = 'hiv' AND age > 30 GROUP BY cost // 10"
    outcome = session.run(
        "SELECT SUM(COUNT(*)) OVER () AS x, SUM(SUM(cost)) OVER () AS y,"
        f" SUM(SUM(cost)) OVER () - 50 * SUM(COUNT(*)) OVER () AS d {flat}"
    )
    ones = np.ones(parts.rows)
    wanted = {"x": (ones, 0 * ones), "y": (0 * ones, ones), "d": (-50 * ones, ones)}
    for name, (of_n, of_s) in wanted.items():
        _, errors = estimates(outcome, name)
        assert errors == pytest.approx(parts.weighted(of_n, of_s), rel=1e-6)
    beside = session.run(f"SELECT SUM(COUNT(*)) OVER () AS x, SUM(AVG(cost)) OVER () AS y {flat}")
    assert (estimates(beside, "x")[1] > 0).all()


def test_covariances_that_an_inner_query_does_not_pass_on(session: Session) -> None:
    """Of nine aggregates not all pairs are passed on: two of them together have no error bar."""
    sums = ", ".join(f"SUM(cost + {i}) AS s{i}" for i in range(9))
    inner = f"SELECT job, {sums} FROM patients WHERE disease = 'hiv' GROUP BY job"
    outcome = session.run(
        f"SELECT s1 / SUM(s1) OVER () AS one, s1 / SUM(s2) OVER () AS two FROM ({inner})"
    )
    assert (estimates(outcome, "one")[1] > 0).all()
    assert np.isnan(estimates(outcome, "two")[1]).all()
    assert "no-error" in codes(outcome)


def _delta(slopes: Array, variances: Array) -> Array:
    root: Array = np.sqrt(slopes**2 @ variances)
    return root


def test_ratios_of_windows_by_the_delta_method(session: Session) -> None:
    parts = Parts(session)
    n, m = parts.n, parts.rows
    outcome = session.run(
        "SELECT k, n / LAG(n, 2) OVER (ORDER BY k) AS yoy, n / SUM(n) OVER () AS share,"
        " 100.0 * SUM(n) OVER (ORDER BY k) / SUM(n) OVER () AS c,"
        f" ROUND(n / SUM(n) OVER (), 9) AS r FROM ({GROUPS}) ORDER BY k"
    )
    unit, total = np.eye(m), n.sum()
    lag = np.roll(n, 2)
    slopes = unit[2:] / lag[2:, None] - unit[:-2] * (n / lag**2)[2:, None]
    values, errors = estimates(outcome, "yoy")
    told = ~np.isnan(values[2:])
    assert np.isnan(values[:2]).all()
    assert told.sum() > 3
    assert values[2:][told] == pytest.approx((n / lag)[2:][told])
    assert errors[2:][told] == pytest.approx(_delta(slopes, parts.nn)[told], rel=1e-6)
    share = unit / total - (n / total**2)[:, None]
    for name in ("share", "r"):
        assert estimates(outcome, name)[1] == pytest.approx(_delta(share, parts.nn), rel=1e-6)
    below = _band(m, -ALL, 0)
    running = (below @ n)[:, None]
    cumulated = 100 * (below / total - running / total**2)
    _, errors = estimates(outcome, "c")
    assert errors[:-1] == pytest.approx(_delta(cumulated, parts.nn)[:-1], rel=1e-6)
    assert errors[-1] == 0  # all of all, whatever the data


def test_a_share_over_a_sub_select_of_sensitive_cells(session: Session) -> None:
    counts = "COUNT(*) AS n FROM patients WHERE age > 40 GROUP BY disease"
    inner = session.run(
        f"SELECT disease, COUNT(*) / SUM(COUNT(*)) OVER () AS x, {counts} ORDER BY disease"
    )
    outer = session.run(
        f"WITH g AS (SELECT disease, {counts})"
        " SELECT disease, n / SUM(n) OVER () AS x FROM g ORDER BY disease"
    )
    for one, two in zip(estimates(inner, "x"), estimates(outer, "x"), strict=True):
        assert one == pytest.approx(two)
        assert (one > 0).all()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("SELECT SUM(n) OVER (ORDER BY d) AS x FROM ({cells})", "are correlated"),
        ("SELECT n - LAG(n) OVER (ORDER BY d) AS x FROM ({cells})", "are correlated"),
        ("SELECT n / SUM(n) OVER () AS x FROM ({cells}) WHERE d > 'flu'", "are correlated"),
        ("SELECT n / SUM(n) OVER () AS x FROM ({cells} ORDER BY 1 LIMIT 2)", "are correlated"),
        ("SELECT SUM(n) OVER (ORDER BY n DESC) AS x FROM ({groups})", "depends on estimates"),
        ("SELECT MAX(n) OVER () AS x FROM ({groups})", "SUM, AVG, LAG and LEAD"),
        ("SELECT SUM(n / s) OVER () AS x FROM ({groups})", "product or quotient"),
        (
            "SELECT SUM(t) OVER (ORDER BY k) AS x"
            " FROM (SELECT k, SUM(n) OVER () AS t FROM ({groups}))",
            "another window",
        ),
    ],
)
def test_what_is_not_known_is_null_and_says_why(session: Session, text: str, why: str) -> None:
    cells = "SELECT disease AS d, COUNT(*) AS n FROM patients WHERE age > 40 GROUP BY 1"
    outcome = session.run(text.format(cells=cells, groups=GROUPS))
    assert np.isnan(estimates(outcome, "x")[1]).all()
    (said,) = [notice.text for notice in outcome.notices if notice.code == "no-error"]
    assert said.startswith("'x' has no error bar: ")
    assert why in said


def test_columns_perturbed_as_a_whole_have_no_differences(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Swapped counts of two groups that are all rows add up: their difference varies fourfold."""
    from tests.oracle.releases import releases

    path = releases(tmp_path_factory.mktemp("swap"), "swap", 1).paths[0]
    groups = "SELECT job, COUNT(*) AS n FROM clinic WHERE disease = 'flu' GROUP BY job"
    outcome = Session(path).run(f"SELECT n - LAG(n) OVER (ORDER BY job) AS x FROM ({groups})")
    assert np.isnan(estimates(outcome, "x")[1]).all()
    assert "as a whole" in " ".join(notice.text for notice in outcome.notices)


def test_an_answer_joined_with_a_public_table(tmp_path_factory: pytest.TempPathFactory) -> None:
    people = pa.table({"job": ["eng", "law", "med"], "people": [1000, 2000, 500]})
    session = Session(
        clinic.publish(tmp_path_factory.mktemp("joined"), 0.5), tables={"sizes": people}
    )
    counts = "SELECT job, COUNT(*) AS n FROM patients WHERE disease = 'hiv' GROUP BY job"
    one = session.run(f"{counts} ORDER BY job")
    two = session.run(
        f"WITH g AS ({counts}) SELECT g.job, n / people AS rate, 1000.0 * n / s.people AS r"
        " FROM g JOIN sizes AS s ON g.job = s.job ORDER BY 1"
    )
    _, errors = estimates(one, "n")
    sizes = np.array([1000, 2000, 500])
    assert estimates(two, "rate")[1] == pytest.approx(errors / sizes)
    assert estimates(two, "r")[1] == pytest.approx(1000 * errors / sizes)
    session.close()


# --- by simulation --------------------------------------------------------------------------

ORDER = "PARTITION BY rep ORDER BY year NULLS LAST"
# With the share of intervals that may miss: of ratios, only reliable ones are judged.
SIMULATED = {
    "running": f"SUM(n) OVER ({ORDER})",
    "moving": f"AVG(n) OVER ({ORDER} ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)",
    "change": f"n - LAG(n) OVER ({ORDER})",
    "apart": f"n - AVG(n) OVER ({ORDER} ROWS BETWEEN 2 PRECEDING AND 1 PRECEDING)",
    "ahead": f"LEAD(n, 2, 0) OVER ({ORDER}) + n",
    "share": "n / SUM(n) OVER (PARTITION BY rep)",
    "cumulated": f"SUM(n) OVER ({ORDER}) / SUM(n) OVER (PARTITION BY rep)",
    "yearly": f"n / LAG(n) OVER ({ORDER})",
}
UNBIASED = ("running", "moving", "change", "apart", "ahead")


class Copies:
    """The answers of hundreds of releases, and what the raw table says."""

    def __init__(self, session: Session, raw: pa.Table) -> None:
        text = self._text("visits", "rep, ")
        self.outcome = session.run(text)
        rows: list[dict[str, Any]] = self.outcome.table.to_pylist()
        with duckdb.connect() as con:
            con.register("raw", raw)
            con.execute("CREATE VIEW one AS SELECT 0 AS rep, * FROM raw")
            names = [column.name for column in self.outcome.columns]
            found = con.execute(self._text("one", "rep, ")).fetchall()
        self.truth = {row[1]: dict(zip(names, row, strict=True)) for row in found}
        self.names = names
        self.year = np.array([yearly.YEARS.index(row["year"]) for row in rows])

    @staticmethod
    def _text(table: str, keys: str) -> str:
        columns = ", ".join(f"{text} AS {name}" for name, text in SIMULATED.items())
        groups = (
            f"SELECT {keys}year, COUNT(*) AS n FROM {table} WHERE disease = 'flu' AND smoker"
            " GROUP BY ALL"
        )
        return f"SELECT {keys}year, {columns} FROM ({groups}) ORDER BY ALL"

    def cells(self, name: str) -> Iterator[tuple[float, Array, dict[str, Array]]]:
        """Per year: the truth, all estimates and their bars."""
        i = self.names.index(name)
        values = np.array(self.outcome.table.column(i).to_pylist(), dtype=np.float64)
        bars = {
            bar: np.array(self.outcome.bars[i].column(bar).to_pylist(), dtype=np.float64)
            for bar in ("stderr", "low", "high", "reliable")
        }
        for place, year in enumerate(yearly.YEARS):
            truth, at = self.truth[year][name], self.year == place
            assert at.sum() == COPIES
            if truth is None:
                assert np.isnan(values[at]).all()
            else:
                yield float(truth), values[at], {bar: each[at] for bar, each in bars.items()}


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Copies]:
    path, raw = yearly.publish(tmp_path_factory.mktemp("yearly"), COPIES, ROWS)
    session = Session(path)
    yield Copies(session, raw)
    session.close()


@pytest.mark.parametrize("name", UNBIASED)
def test_windows_are_unbiased_and_so_is_their_variance(copies: Copies, name: str) -> None:
    ratios = []
    for truth, values, bars in copies.cells(name):
        spread = values.std(ddof=1)
        assert abs(values.mean() - truth) < 4 * spread / np.sqrt(COPIES)
        ratios.append(float((bars["stderr"] ** 2).mean() / spread**2))
    # Each ratio has a standard error of sqrt(2 / 300), all together of half of that.
    assert np.mean(ratios) == pytest.approx(1, abs=3.3 * np.sqrt(2 / COPIES / len(ratios)))


@pytest.mark.parametrize("name", SIMULATED)
def test_reliable_intervals_of_windows_hold_the_truth(copies: Copies, name: str) -> None:
    held, many = 0, 0
    for truth, values, bars in copies.cells(name):
        good = bars["reliable"] == 1
        assert not np.isnan(values[good]).any()
        inside = (bars["low"] <= truth + 1e-9) & (truth - 1e-9 <= bars["high"])
        held, many = held + int(inside[good].sum()), many + int(good.sum())
    assert many > COPIES
    assert held / many >= 0.95 - 3.3 * np.sqrt(0.05 * 0.95 / many)
