"""Moments say what states say, and what states cannot."""

from __future__ import annotations

import math
import random
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import privsql
from privsql.answer.outcome import Outcome
from privsql.session.session import Session
from privsql.sql.parse.statement import only
from privsql.sql.scan.moments.reconstruction import Moments
from tests import specs
from tests.sizes import sized
from udfs.kron import Kron, retention_factor
from udfs.variance import effective_rows

ROWS = 4_000

SPEC = specs.spec(
    "staff",
    specs.public("job"),
    specs.measure("cost"),
    specs.sensitive("ill", 0.5, ["flu", "hiv", "none", "cold"], nullable=True),
    specs.sensitive("age", 0.4, specs.grid(20, 59)),
    specs.sensitive("visits", 0.6, specs.grid(0, 3), "replace", replacing=[0.4, 0.3, 0.2, 0.1]),
    specs.sensitive("smoker", 0.6, [False, True]),
    specs.sensitive("urban", 0.7, [False, True]),
    more="""
[groups]
merge = "none"
[policy]
personal_groups = "allow"
min_rows = 0
""",
)

PROTECTED = SPEC + "[protect.reconstruction]\nlambda = 0.3\ndelta = 0.3\n"

CONDITIONS = (
    "ill = 'flu'",
    "ill IN ('hiv', 'cold')",
    "NOT ill = 'none'",
    "ill IS NULL",
    "age < 35",
    "age BETWEEN 30 AND 50",
    "age % 2 = 0",
    "visits >= 1",
    "visits * 2 > 3 OR visits = 0",
    "smoker",
    "NOT urban",
)
PUBLIC = ("job = 'eng'", "cost > 40", "job <> 'law' OR cost < 10")
AGGREGATES = (
    "COUNT(*)",
    "COUNT(ill)",
    "COUNT(*) FILTER (WHERE smoker)",
    "COUNT(*) FILTER (WHERE age > 40 AND cost > 50)",
    "SUM(age)",
    "AVG(age)",
    "SUM(cost)",
    "AVG(visits)",
    "SUM(age * cost)",
    "VAR_POP(age)",
    "SUM(CASE WHEN urban THEN cost ELSE 1 END)",
    "COUNT(*) FILTER (WHERE urban) * 1.0 / COUNT(*)",
)


def staff(rows: int, seed: int = 3) -> pa.Table:
    rng = np.random.default_rng(seed)
    ill = np.array(["flu", "hiv", "none", "cold", None], dtype=object)
    return pa.table(
        {
            "job": np.array(["eng", "law", "art"])[rng.integers(0, 3, rows)],
            "cost": rng.integers(0, 100, rows),
            "ill": pa.array(ill[rng.integers(0, 5, rows)].tolist(), type=pa.string()),
            "age": rng.integers(20, 60, rows).astype(np.int32),
            "visits": rng.integers(0, 4, rows).astype(np.int32),
            "smoker": rng.random(rows) < 0.3,
            "urban": rng.random(rows) < 0.6,
        }
    )


def published(folder: Path, table: pa.Table, spec: str) -> Path:
    pq.write_table(table, folder / "raw.parquet")
    (folder / "spec.toml").write_text(spec)
    made = folder / "release.duckdb"
    privsql.publish(str(folder / "raw.parquet"), made, spec=folder / "spec.toml", seed=4)
    return made


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return published(tmp_path_factory.mktemp("plain"), staff(ROWS), SPEC)


@pytest.fixture(scope="module")
def sampled(tmp_path_factory):
    return published(tmp_path_factory.mktemp("sampled"), staff(ROWS), PROTECTED)


@pytest.fixture(scope="module")
def compacted(tmp_path_factory):
    table = staff(ROWS).select(["job", "ill", "smoker", "urban"])
    parts = SPEC.split("[columns.")
    spec = "[columns.".join(p for p in parts if p.split("]")[0] not in ("cost", "age", "visits"))
    return published(tmp_path_factory.mktemp("compacted"), table, spec)


OPEN: dict[Path, Session] = {}


@pytest.fixture(scope="module", autouse=True)
def closed():
    yield
    while OPEN:
        OPEN.popitem()[1].close()


def ask(path: Path, text: str, form: str | None, rescan: bool = True) -> tuple[Outcome, set[str]]:
    """The answer by one scan form, and the forms that its blocks were planned in."""
    if path not in OPEN:
        OPEN[path] = Session(path)
    session = OPEN[path]
    session.form, session.rescan = form, rescan
    planned = session._plan(only(text), None, session.settings)
    return session.run(text), {plan.form for plan in planned.plans}


def same(one: object, two: object, within: float) -> bool:
    if isinstance(one, float) and isinstance(two, float):
        if math.isnan(one) or math.isnan(two):
            return math.isnan(one) and math.isnan(two)
        return math.isclose(one, two, rel_tol=within, abs_tol=1e-9)
    return one == two


def agree(path: Path, text: str) -> set[str]:
    """Compare all forms; those that were used."""
    theirs, _ = ask(path, text, "states")
    # The error of a variance is a small difference of large numbers.
    within = 1e-6 if "VAR_" in text else 1e-9
    found = set()
    for form in ("conjunctions", "counts", "weights"):
        for rescan in (True, False):
            ours, used = ask(path, text, form, rescan)
            found |= used
            pairs = [(ours.table, theirs.table)]
            pairs += [(ours.bars[i], theirs.bars[i]) for i in ours.bars]
            for one, two in pairs:
                assert one.num_rows == two.num_rows, text
                for left, right in zip(one.to_pylist(), two.to_pylist(), strict=True):
                    reliable = left.pop("reliable", None), right.pop("reliable", None)
                    assert reliable[0] == reliable[1] or (not rescan and not reliable[0]), text
                    alike = all(same(left[name], right[name], within) for name in left)
                    assert alike, (text, form, left, right)
    return found


def question(rng: random.Random, conditions: tuple[str, ...], aggregates: tuple[str, ...]) -> str:
    chosen = rng.sample(aggregates, rng.randint(1, 3))
    where = rng.sample(conditions, rng.randint(0, 5)) + rng.sample(PUBLIC[:1], rng.randint(0, 1))
    text = ", ".join(f"{node} AS c{i}" for i, node in enumerate(chosen))
    grouped = rng.random() < 0.5
    head = f"SELECT {'job, ' if grouped else ''}{text} FROM staff"
    rest = f" WHERE {' AND '.join(f'({c})' for c in where)}" if where else ""
    return head + rest + (" GROUP BY job ORDER BY job" if grouped else "")


@pytest.mark.parametrize("number", range(sized(6, 60)))
def test_moments_and_states_agree(plain, number):
    agree(plain, question(random.Random(number), CONDITIONS, AGGREGATES))


@pytest.mark.parametrize("number", range(sized(3, 30)))
def test_with_weights(sampled, number):
    agree(sampled, question(random.Random(100 + number), CONDITIONS, AGGREGATES))


@pytest.mark.parametrize("number", range(sized(2, 20)))
def test_with_multiplicities(compacted, number):
    conditions = tuple(c for c in CONDITIONS if "age" not in c and "visits" not in c)
    aggregates = ("COUNT(*)", "COUNT(ill)", "COUNT(*) FILTER (WHERE smoker)")
    agree(compacted, question(random.Random(200 + number), conditions, aggregates))


@pytest.mark.parametrize(
    "text",
    [
        "SELECT COUNT(*) FROM staff WHERE ill = 'flu'",
        "SELECT COUNT(*) FROM staff WHERE NOT ill = 'flu' AND smoker",
        "SELECT COUNT(*) FROM staff WHERE ill = 'flu' AND smoker AND urban AND age < 40"
        " AND visits > 1",
        "SELECT COUNT(*), privsql_observed(COUNT(*)) FROM staff WHERE age < 40 AND smoker",
        "SELECT job, AVG(age) FROM staff WHERE urban GROUP BY job ORDER BY job",
        "SELECT COUNT(*) FROM staff WHERE age < 40 AND job = 'nobody'",
        "SELECT SUM(age) FROM staff WHERE smoker AND job = 'nobody'",
        "SELECT COUNT(*) FILTER (WHERE age < 30) - COUNT(*) FILTER (WHERE age > 50) FROM staff",
        "SELECT COUNT(*), MAX(cost) FROM staff WHERE job = 'eng'",
    ],
)
def test_what_they_are_for(plain, text):
    assert ("weights" in agree(plain, text)) == ("MAX" not in text)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT COUNT(*) FROM staff WHERE ill = 'flu' OR smoker",
        "SELECT ill, COUNT(*) FROM staff GROUP BY ill ORDER BY ill",
        "SELECT MEDIAN(age) FROM staff",
        "SELECT job, COUNT(*) FROM staff WHERE smoker GROUP BY ROLLUP (job) ORDER BY job",
    ],
)
def test_what_they_are_not_for(plain, text):
    assert not agree(plain, text) & {"counts", "weights"}


def test_few_rows_are_counted_by_states(plain, monkeypatch):
    text = "SELECT COUNT(*) FROM staff WHERE smoker"
    assert ask(plain, text, None)[1] == {"states"}
    monkeypatch.setattr("privsql.sql.scan.forms.MANY_ROWS", ROWS)
    assert ask(plain, text, None)[1] == {"counts"}


@pytest.fixture(scope="module")
def salaries(tmp_path_factory):
    """Many releases of one table, side by side, of a column with half a million values."""
    rng = np.random.default_rng(8)
    salary = np.round(np.exp(rng.normal(10.5, 0.5, 500))).clip(0, 499_999).astype(np.int64)
    copies = 200
    table = pa.table({"rep": np.repeat(np.arange(copies), 500), "salary": np.tile(salary, copies)})
    spec = (
        '[release]\ntable = "staff"\n[groups]\nmerge = "none"\n'
        '[policy]\npersonal_groups = "allow"\nmin_rows = 0\n'
        '[columns.rep]\nrole = "public"\n[columns.salary]\nrole = "sensitive"\n'
        'mechanism = "uniform"\nretention = 0.5\naccept_epsilon = true\n'
        "domain = { lower = 0, upper = 499999, step = 1 }\n"
    )
    return published(tmp_path_factory.mktemp("salaries"), table, spec), salary


def test_a_large_grid_is_right_on_average(salaries):
    path, salary = salaries
    text = "SELECT rep, AVG(salary) AS a, SUM(salary) AS s FROM staff GROUP BY rep"
    found, used = ask(path, text, None)
    assert used == {"weights"}
    rows = found.table.to_pydict()
    truth = float(salary.sum())
    sums, bars = np.array(rows["s"]), found.bars[2].to_pydict()
    spread = sums.std(ddof=1)
    assert abs(sums.mean() - truth) < 4 * spread / math.sqrt(len(sums))
    assert np.mean(bars["stderr"]) == pytest.approx(spread, rel=0.2)
    held = (np.array(bars["low"]) <= truth) & (truth <= np.array(bars["high"]))
    assert 0.89 <= held.mean() <= 0.99
    assert np.mean(rows["a"]) == pytest.approx(salary.mean(), rel=0.05)


def test_a_large_grid_equals_the_inversion_by_hand(salaries):
    path, _ = salaries
    text = "SELECT SUM(salary), COUNT(*) FROM staff WHERE salary < 100000 AND rep < 50"
    found, _ = ask(path, text, None)
    with duckdb.connect(str(path), read_only=True) as con:
        seen = con.execute("SELECT salary FROM staff WHERE rep < 50").fetchnumpy()["salary"]
    grid = np.arange(500_000.0)
    g = np.where(grid < 100_000, grid, 0.0)
    by_hand = ((g[seen] - 0.5 * g.mean()) / 0.5).sum()
    assert found.table.to_pylist()[0]["sum(salary)"] == pytest.approx(by_hand, rel=1e-9)


def test_bounds_are_on_the_safe_side_and_states_tell_where_they_do_not(plain):
    """Few rows under several conditions: moments must not call them reliable first."""
    less = 0
    for below in range(21, 60, 3):
        text = (
            f"SELECT job, COUNT(*) FROM staff WHERE age < {below} AND visits = 3 AND smoker"
            " AND cost < 10 GROUP BY job ORDER BY job"
        )
        bars = [
            ask(plain, text, form, rescan)[0].bars[1].to_pylist()
            for form, rescan in (("weights", False), ("weights", True), ("states", True))
        ]
        for bound, ours, theirs in zip(*bars, strict=True):
            assert not bound["reliable"] or theirs["reliable"]
            assert ours["reliable"] == theirs["reliable"]
            less += bound["reliable"] != theirs["reliable"]
    assert 0 < less < 39


@pytest.mark.parametrize("below", [22, 25, 30, 40, 50, 58])
@pytest.mark.parametrize("size", sized([1, 20], [1, 2, 5, 20]))
def test_effective_rows_lie_between_their_bounds(plain, below, size, monkeypatch):
    """Against the rule itself on published rows: groups of a dozen rows to over a thousand."""
    where = f"age < {below} AND visits = 3 AND NOT smoker"
    text = f"SELECT cost // {size}, COUNT(*) FROM staff WHERE {where} GROUP BY 1"
    session = OPEN.setdefault(plain, Session(plain))
    session.form = "weights"
    bounds = []
    made = Moments.doubtful

    def noted(self, weighed):
        bounds.append(self._bounded)
        return made(self, weighed)

    monkeypatch.setattr(Moments, "doubtful", noted)
    (plan,) = session._plan(only(text), None, session.settings).plans
    loaded: list[str] = []
    session._loading.load(plan, loaded, session.settings, ())
    bases = session._memory.run(bounds[0].sql("duckdb")).to_pydict()
    keys = session._memory.run(plan.steps[0].query.sql("duckdb")).column("key0").to_pylist()
    session._memory.forget(*loaded)
    session.form = None
    states = [f"(age < {below})", "(visits = 3)", "(NOT smoker)"]
    with duckdb.connect(str(plain), read_only=True) as con:
        counted = con.execute(
            f"SELECT cost // {size}, {', '.join(f'{s}::INT' for s in states)}, COUNT(*) FROM staff"
            " GROUP BY ALL"
        ).fetchall()
    counts: dict[int, np.ndarray] = {}
    for key, a, b, c, n in counted:
        counts.setdefault(key, np.zeros((2, 2, 2)))[a, b, c] = n
    young = (below - 20) / 40
    kron = Kron(
        [
            retention_factor(0.4, [1 - young, young]),
            retention_factor(0.6, [0.9, 0.1]),
            retention_factor(0.6, [0.5, 0.5]),
        ]
    )
    condition = np.eye(8)[7]
    found = [bases[name] for name in ("second0", "fourth0", "most_rows0")]
    for key, second, fourth, most in zip(keys, *found, strict=True):
        y = counts[key].ravel()
        exact = float(effective_rows(y, y, condition, kron))
        assert second**2 / fourth <= exact * (1 + 1e-9)
        assert exact <= most * (1 + 1e-9)
