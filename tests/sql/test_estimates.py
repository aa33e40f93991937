"""Answers against independent computations: dense inverses, scipy's optimum, exact cases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize

import privsql
from privsql.errors import Error
from privsql.release.store import open_release
from privsql.session.session import Session
from tests import specs
from tests.oracle.releases import releases

Array = NDArray[np.float64]
Row = dict[str, Any]


def listed(column: Any) -> list[Any]:
    """A column's values."""
    found: list[Any] = column.to_pylist()
    return found


SPEC = specs.spec(
    "people",
    specs.public("job"),
    specs.measure("cost"),
    specs.measure("debt"),
    specs.sensitive("ill", 0.45, {"values": ["flu", "hiv", "none"], "nullable": True}),
    specs.sensitive(
        "ward",
        None,
        [1, 2, 3],
        "matrix",
        matrix=[[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.2, 0.2, 0.6]],
    ),
    specs.sensitive(
        "grade",
        None,
        ["a", "b", "c", "d"],
        "finegrain",
        floor=0.1,
        rho=[[0.2, 0.6], [0.05, 0.3], [0.3, 0.8], [0.2, 0.5]],
    ),
    specs.sensitive("smoker", 0.6, [False, True], "replace", replacing=[0.3, 0.7]),
    more="""
[groups]
merge = "none"
[policy]
personal_groups = "allow"
min_rows = 0
""",
)
JOBS = ("art", "doc", "eng")


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four columns perturbed in four ways, NULL among values and measures."""
    folder, rng = tmp_path_factory.mktemp("people"), np.random.default_rng(11)
    rows = 900
    ill = rng.choice(4, rows, p=[0.55, 0.02, 0.4, 0.03])
    cost = [None if x < 5 else int(x) for x in rng.integers(0, 100, rows)]
    table = pa.table(
        {
            "job": np.array(JOBS)[rng.choice(3, rows, p=[0.06, 0.3, 0.64])],
            "cost": pa.array(cost, pa.int32()),
            "debt": pa.array(rng.integers(-50, 200, rows), pa.int32()),
            "ill": pa.array([["flu", "hiv", "none", None][i] for i in ill], pa.string()),
            "ward": pa.array(1 + (ill + rng.integers(0, 2, rows)) % 3, pa.int32()),
            "grade": np.array(list("abcd"))[rng.choice(4, rows, p=[0.1, 0.2, 0.3, 0.4])],
            "smoker": rng.random(rows) < 0.05 + 0.3 * (ill == 0),
        }
    )
    pq.write_table(table, folder / "people.parquet")
    (folder / "people.toml").write_text(SPEC)
    out = folder / "people.duckdb"
    privsql.publish(str(folder / "people.parquet"), out, spec=folder / "people.toml", seed=3)
    return out


def _kron(one: Array, two: Array) -> Array:
    return np.asarray(np.kron(one, two), dtype=np.float64)


class Dense:
    """Every state of the four columns: ``x = y @ inv(A_1 (x) ... (x) A_4)``."""

    def __init__(self, path: Path) -> None:
        release = open_release(path)
        with release.connection() as con:
            self.table: pa.Table = con.sql("FROM people").to_arrow_table()
        columns = release.manifest.sensitive
        self.channel = reduce(_kron, [c.channel.matrix for c in columns])
        self.sizes = [c.domain.size for c in columns]
        codes = [c.domain.codes(self.table.column(c.name)) for c in columns]
        self.state = np.ravel_multi_index(codes, self.sizes)
        values = [c.domain.values().to_pylist() for c in columns]
        places = np.unravel_index(np.arange(len(self.channel)), self.sizes)
        names = [c.name for c in columns]
        self.states: list[dict[str, Any]] = [
            {name: values[r][place[r]] for r, name in enumerate(names)}
            for place in zip(*places, strict=True)
        ]
        self.public: list[dict[str, Any]] = self.table.select(["job", "cost", "debt"]).to_pylist()

    def answer(
        self, weight: Callable[[dict[str, Any]], float], function: Callable[[dict[str, Any]], float]
    ) -> tuple[float, float]:
        """The sum over original rows of a public weight times a function, and its error."""
        v = np.array([weight(row) for row in self.public])
        g = np.array([float(function(state)) for state in self.states])
        inverse = np.linalg.inv(self.channel)
        y = np.bincount(self.state, v, len(g))
        estimate = float(y @ inverse @ g)
        squares = np.bincount(self.state, v * v, len(g))
        variance = float(squares @ ((inverse @ g) ** 2) - squares @ (inverse @ (g * g)))
        return estimate, variance**0.5


LINEAR: list[tuple[str, Callable[[Row], float], Callable[[Row], float]]] = [
    ("COUNT(*) FROM people WHERE ill = 'flu'", lambda r: 1, lambda s: s["ill"] == "flu"),
    ("COUNT(*) FROM people WHERE grade = 'b'", lambda r: 1, lambda s: s["grade"] == "b"),
    ("COUNT(*) FROM people WHERE grade IN ('a', 'd')", lambda r: 1, lambda s: s["grade"] in "ad"),
    ("COUNT(ill) FROM people", lambda r: 1, lambda s: s["ill"] is not None),
    (
        "COUNT(*) FROM people WHERE NOT ill = 'flu'",
        lambda r: 1,
        lambda s: s["ill"] not in ("flu", None),
    ),
    (
        "COUNT(*) FROM people WHERE (ill = 'flu') IS NOT TRUE AND ward > 1",
        lambda r: 1,
        lambda s: s["ill"] != "flu" and s["ward"] > 1,
    ),
    (
        "COUNT(*) FROM people WHERE ill = 'flu' AND ward <> 2 AND grade > 'b' AND smoker",
        lambda r: 1,
        lambda s: s["ill"] == "flu" and s["ward"] != 2 and s["grade"] > "b" and s["smoker"],
    ),
    (
        "COUNT(*) FROM people WHERE ill IS NULL OR grade = 'c' OR smoker",
        lambda r: 1,
        lambda s: s["ill"] is None or s["grade"] == "c" or s["smoker"],
    ),
    (
        "SUM(ward) FROM people WHERE grade <> 'a'",
        lambda r: 1,
        lambda s: s["ward"] * (s["grade"] != "a"),
    ),
    (
        "SUM(cost * ward) FROM people WHERE smoker OR ill = 'none'",
        lambda r: r["cost"] or 0,
        lambda s: s["ward"] * (s["smoker"] or s["ill"] == "none"),
    ),
    (
        "SUM(debt) FROM people WHERE job = 'eng' AND grade = 'd' AND ill = 'flu'",
        lambda r: r["debt"] * (r["job"] == "eng"),
        lambda s: s["grade"] == "d" and s["ill"] == "flu",
    ),
    (
        "SUM(CASE WHEN ward = 1 THEN cost ELSE 0 END) FROM people WHERE grade = 'b'",
        lambda r: r["cost"] or 0,
        lambda s: s["ward"] == 1 and s["grade"] == "b",
    ),
]


@pytest.mark.parametrize(("query", "weight", "function"), LINEAR, ids=[q for q, _, _ in LINEAR])
def test_inversion_is_the_dense_inverse(
    people: Path, query: str, weight: Callable[[Row], float], function: Callable[[Row], float]
) -> None:
    wanted, stderr = Dense(people).answer(weight, function)
    outcome = Session(people).run(f"SELECT {query}")
    (value,) = listed(outcome.table.column(0))
    assert value == pytest.approx(wanted, rel=1e-9)
    assert listed(outcome.bars[0].column("stderr")) == [pytest.approx(stderr, rel=1e-6)]


# --- the constrained likelihood -----------------------------------------------------------


def optimum(y: Array, channel: Array) -> Array:
    """The likeliest counts on the simplex, by scipy: nothing of ours is used."""
    n, solver = y.sum(), cast("Any", minimize)
    shares = y / n

    def loss(x: Array) -> tuple[float, Array]:
        seen = np.maximum(x @ channel, 1e-300)
        return -float(shares @ np.log(seen)), -channel @ (shares / seen)

    x = np.full(len(y), 1 / len(y))
    for _ in range(4):
        found = solver(
            loss,
            x,
            jac=True,
            method="SLSQP",
            bounds=[(0, 1)] * len(y),
            constraints={"type": "eq", "fun": lambda x: x.sum() - 1, "jac": np.ones_like},
            options={"ftol": 1e-16, "maxiter": 500},
        )
        x = np.clip(found.x, 0, None)
        x /= x.sum()
    answer: Array = n * x
    return answer


WARD = [[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.2, 0.2, 0.6]]


def _two(p: float, mass: float) -> Array:
    return p * np.eye(2) + (1 - p) * np.array([[1 - mass, mass]] * 2)


FACTORS: dict[str, tuple[Array, Callable[[Row], int]]] = {
    # False, true and unknown: OR tells the last two apart, AND does not.
    "ill = 'hiv'": (
        0.45 * np.eye(3) + 0.55 * np.array([[0.5, 0.25, 0.25]] * 3),
        lambda row: 2 if row["ill"] is None else int(row["ill"] == "hiv"),
    ),
    "hiv": (_two(0.45, 0.25), lambda row: int(row["ill"] == "hiv")),
    "smoker": (_two(0.6, 0.7), lambda row: int(row["smoker"])),
    # Wards 1 and 3 are published as 2 alike and make one cell; 1 and 2 are not so as 3.
    "ward = 2": (np.array([[0.8, 0.2], [0.4, 0.6]]), lambda row: int(row["ward"] == 2)),
    "ward": (np.array(WARD), lambda row: row["ward"] - 1),
}


def _states(path: Path, names: list[str]) -> tuple[pa.Table, NDArray[Any], Array]:
    release = open_release(path)
    with release.connection() as con:
        table: pa.Table = con.sql("FROM people").to_arrow_table()
    rows = table.to_pylist()
    sizes = [len(FACTORS[name][0]) for name in names]
    codes = [np.array([FACTORS[name][1](row) for row in rows]) for name in names]
    channel = reduce(_kron, [FACTORS[name][0] for name in names])
    return table, np.ravel_multi_index(codes, sizes), channel


@pytest.fixture(scope="module")
def iterative(people: Path) -> Iterator[Session]:
    session = Session(people, estimator="iterative")
    yield session
    session.close()


@pytest.mark.parametrize(
    ("names", "where", "chosen"),
    [
        (["hiv"], "ill = 'hiv'", [1]),
        (["hiv", "smoker"], "ill = 'hiv' AND smoker", [3]),
        (["ill = 'hiv'", "ward = 2"], "ill = 'hiv' OR ward = 2", [1, 2, 3, 5]),
        (["hiv", "ward", "smoker"], "ill = 'hiv' AND ward = 3 AND NOT smoker", [10]),
        (["hiv", "ward", "smoker"], "(ill = 'hiv') IS NOT TRUE AND ward = 3 AND NOT smoker", [4]),
    ],
)
@pytest.mark.parametrize("measure", ["COUNT(*)", "SUM(cost)"])
def test_the_likelihood_is_scipys_optimum(
    people: Path, iterative: Session, names: list[str], where: str, chosen: list[int], measure: str
) -> None:
    table, state, channel = _states(people, names)
    job = np.array(listed(table.column("job")))
    cost = np.array([x or 0 for x in listed(table.column("cost"))], dtype=np.float64)
    v = np.ones(len(cost)) if measure == "COUNT(*)" else cost
    found = iterative.run(
        f"SELECT job, {measure} FROM people WHERE {where} GROUP BY job ORDER BY job"
    )
    values, bars = listed(found.table.column(1)), found.bars[1].to_pylist()
    assert listed(found.table.column(0)) == list(JOBS)
    negative = 0
    for place, name in enumerate(JOBS):
        y = np.bincount(state, v * (job == name), len(channel)).astype(np.float64)
        negative += bool((y @ np.linalg.inv(channel) < 0).any())
        wanted = float(optimum(y, channel)[chosen].sum())
        # To a millionth; of what there is where the optimum is at the border.
        assert values[place] == pytest.approx(wanted, rel=1e-6, abs=2e-6 * y.sum())
        low, high = bars[place]["low"], bars[place]["high"]
        assert 0 <= low <= values[place] <= high <= y.sum()
        assert low < high
    assert negative or len(names) == 1


def test_a_likelihood_inside_the_simplex_is_the_inversion(people: Path, iterative: Session) -> None:
    query = "SELECT COUNT(*), SUM(cost), AVG(ward) FROM people WHERE ward > 1"
    one, two = iterative.run(query), Session(people).run(query)
    for left, right in zip(one.table.columns, two.table.columns, strict=True):
        assert left.to_pylist() == [pytest.approx(right.to_pylist()[0], rel=1e-9)]
    for i in (0, 1):
        assert one.bars[i].to_pylist() == [pytest.approx(two.bars[i].to_pylist()[0])]


def test_a_measure_that_may_be_negative_is_inverted(people: Path, iterative: Session) -> None:
    query = "SELECT job, SUM(debt), COUNT(*) FROM people WHERE ill = 'hiv' GROUP BY job ORDER BY 1"
    both = iterative, Session(people)
    one, two = (each.run(query) for each in both)
    assert listed(one.table.column(1)) == pytest.approx(listed(two.table.column(1)))
    assert listed(one.bars[1].column("low")) == pytest.approx(listed(two.bars[1].column("low")))
    assert listed(one.table.column(2)) != pytest.approx(listed(two.table.column(2)))
    # Not where it cannot be.
    query = "SELECT SUM(debt) FROM people WHERE ill = 'hiv' AND debt >= 0 AND job = 'art'"
    (constrained,), (plain,) = (listed(each.run(query).table.column(0)) for each in both)
    assert plain < 0 <= constrained


# --- columns perturbed as a whole, and samples ----------------------------------------------


def test_swap_answers_about_the_whole_column_exactly(tmp_path: Path) -> None:
    made = releases(tmp_path, "swap", 1)
    session = Session(made.paths[0])
    truth = listed(made.raw.column("disease")).count("flu")
    whole = session.run("SELECT COUNT(*) FROM clinic WHERE disease = 'flu'")
    assert listed(whole.table.column(0)) == [pytest.approx(truth, rel=1e-9)]
    (bar,) = whole.bars[0].to_pylist()
    assert bar["stderr"] == 0
    assert bar["low"] == bar["high"] == listed(whole.table.column(0))[0]
    part = session.run("SELECT COUNT(*) FROM clinic WHERE disease = 'flu' AND job <> 'doc'")
    assert listed(part.bars[0].column("stderr"))[0] > 1
    summed = session.run("SELECT SUM(cost) FROM clinic WHERE disease = 'flu'")
    assert listed(summed.bars[0].column("stderr"))[0] > 1


@pytest.fixture(scope="module")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> Session:
    return Session(releases(tmp_path_factory.mktemp("sps"), "sps", 1).paths[0])


def test_a_sample_counts_all_rows_exactly_and_parts_with_an_error(sampled: Session) -> None:
    whole = sampled.run("SELECT COUNT(*) FROM clinic")
    assert listed(whole.table.column(0)) == [pytest.approx(2000, rel=1e-9)]
    assert listed(whole.bars[0].column("stderr")) == [0]
    share = sampled.run("SELECT COUNT(*) FILTER (WHERE disease = 'flu') / COUNT(*) FROM clinic")
    count = sampled.run("SELECT COUNT(*) FROM clinic WHERE disease = 'flu'")
    assert listed(share.bars[0].column("stderr"))[0] == pytest.approx(
        listed(count.bars[0].column("stderr"))[0] / 2000
    )
    for query in ("SUM(cost) FROM clinic", "COUNT(*) FROM clinic WHERE cost > 150"):
        part = sampled.run(f"SELECT {query}")
        with open_release(sampled.release.path).connection() as con:
            v = "cost" if "SUM" in query else "(cost > 150)::INT"
            (wanted,) = con.execute(
                f"SELECT sqrt(sum(w * (w - 1) * {v} * {v})) FROM"
                " (SELECT privsql_weight AS w, * FROM clinic)"
            ).fetchall()[0]
        assert listed(part.bars[0].column("stderr")) == [pytest.approx(wanted, rel=1e-9)]


@pytest.mark.parametrize("call", ["MIN(cost)", "MAX(cost)", "COUNT(DISTINCT job)"])
def test_a_sample_does_not_tell_extremes(sampled: Session, call: str) -> None:
    with pytest.raises(Error, match="keeps a sample"):
        sampled.run(f"SELECT {call} FROM clinic")
