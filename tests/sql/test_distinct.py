"""Distinct counts under sensitive conditions: by hand, their limits, and what stands around."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from math import sqrt
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import privsql
from privsql.errors import Error
from privsql.session.session import Session
from tests.specs import grid, measure, public, sensitive, spec

ILLS = ("flu", "hiv", "none", "cold")
MATRIX = [[0.7, 0.1, 0.1, 0.1], [0.1, 0.6, 0.2, 0.1], [0.1, 0.1, 0.7, 0.1], [0.05, 0.1, 0.2, 0.65]]
RHO = [[0.2, 0.6], [0.05, 0.3], [0.3, 0.8], [0.2, 0.5]]
MECHANISMS: dict[str, tuple[float | None, dict[str, Any]]] = {
    "uniform": (0.6, {}),
    "replace": (0.6, {"replacing": [0.4, 0.1, 0.3, 0.2]}),
    "matrix": (None, {"matrix": MATRIX}),
    "finegrain": (None, {"floor": 0.1, "rho": RHO}),
}
OPEN = '\n[groups]\nmerge = "none"\n[policy]\npersonal_groups = "allow"\nmin_rows = 0\n'
ROWS = 1_500

Row = dict[str, Any]
Shares = Callable[[Row], float]


def raw(rows: int = ROWS) -> pa.Table:
    rng = np.random.default_rng(2)
    numbers = rng.integers(0, rows // 3, rows)
    return pa.table(
        {
            "u": pa.array([None if n % 40 == 0 else int(n) for n in numbers], pa.int32()),
            "city": np.array(["a", "b"])[rng.integers(0, 2, rows)],
            "cost": rng.integers(0, 50, rows),
            "fav": np.array(ILLS)[rng.integers(0, 4, rows)],
            "ill": np.array(ILLS)[rng.integers(0, 4, rows)],
            "smoker": rng.random(rows) < 0.4,
            "age": rng.integers(20, 60, rows).astype(np.int32),
        }
    )


def published(folder: Path, text: str, table: pa.Table | None = None) -> Path:
    pq.write_table(raw() if table is None else table, folder / "raw.parquet")
    (folder / "spec.toml").write_text(text)
    made = folder / "release.duckdb"
    privsql.publish(str(folder / "raw.parquet"), made, spec=folder / "spec.toml", seed=4)
    return made


def described(mechanism: str, retention: float | None, keys: dict[str, Any]) -> str:
    return spec(
        "t",
        measure("u"),
        public("city"),
        measure("cost"),
        public("fav"),
        sensitive("ill", retention, ILLS, mechanism, accept_epsilon=True, **keys),
        sensitive("smoker", 0.7, [False, True]),
        sensitive("age", 0.7, grid(20, 59)),
        more=OPEN,
    )


@pytest.fixture(scope="module", params=MECHANISMS)
def session(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    retention, keys = MECHANISMS[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    made = Session(published(folder, described(request.param, retention, keys)))
    yield made
    made.close()


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    folder = tmp_path_factory.mktemp("plain")
    made = Session(published(folder, described("uniform", 0.6, {})))
    yield made
    made.close()


# -- by hand ---------------------------------------------------------------------------------


def inverted(session: Session, ill: Callable[[str, Row], bool], smoker: bool | None) -> Shares:
    """The inverted indicator of a row: of ``ill``, and of being a smoker or not where asked."""
    channel = session.catalog.sensitive["ill"].channel
    inverse = np.linalg.inv(np.asarray(channel.matrix))
    two = np.linalg.inv(0.7 * np.eye(2) + 0.3 / 2)

    def share(row: Row) -> float:
        indicator = np.array([ill(value, row) for value in ILLS], dtype=float)
        found = (inverse @ indicator)[ILLS.index(row["ill"])]
        if smoker is not None:
            found *= two[int(row["smoker"]), int(smoker)]
        return float(found)

    return share


def by_hand(
    session: Session, share: Shares, rows: str = "TRUE", key: str = "NULL", value: str = "u"
) -> dict[Any, tuple[float, float]]:
    """Estimate and standard error of every cell, from the published rows."""
    read = f"SELECT *, ({key}) AS k, ({value}) AS v FROM t WHERE ({rows}) AND ({value}) IS NOT NULL"
    products: dict[tuple[Any, Any], float] = defaultdict(lambda: 1.0)
    for row in session._engine.scan(read).to_pylist():
        products[row["k"], repr(row["v"])] *= 1 - share(row)
    cells: dict[Any, list[float]] = defaultdict(list)
    for (k, _), product in products.items():
        cells[k].append(product)
    return {
        k: (sum(1 - p for p in all_), sqrt(sum(p * p - p for p in all_)))
        for k, all_ in cells.items()
    }


def asked(session: Session, sql: str, at: int = 0) -> dict[Any, tuple[float, float]]:
    """What both kinds of scan say, by the first column unless that is the count."""
    answers = []
    for form in ("states", "weights"):
        session.form = form
        outcome = session.run(sql)
        keys = outcome.table.column(0).to_pylist() if at else [None]
        values = outcome.table.column(at).to_pylist()
        errors = outcome.bars[at].column("stderr").to_pylist()
        answers.append(dict(zip(keys, zip(values, errors, strict=True), strict=True)))
    session.form = None
    for other in answers[1:]:
        same(answers[0], other)
    return answers[0]


def same(one: dict[Any, tuple[float, float]], two: dict[Any, tuple[float, float]]) -> None:
    assert one.keys() == two.keys()
    for key, figures in one.items():
        assert figures == pytest.approx(two[key], rel=1e-9, abs=1e-9), key


def flu(value: str, row: Row) -> bool:
    return value == "flu"


def test_a_condition_on_one_column(session):
    share = inverted(session, flu, None)
    same(
        asked(session, "SELECT COUNT(DISTINCT u) FROM t WHERE ill = 'flu'"), by_hand(session, share)
    )
    found = asked(
        session, "SELECT COUNT(DISTINCT u) FILTER (WHERE ill = 'flu' AND cost < 20) FROM t"
    )
    same(found, by_hand(session, share, "cost < 20"))
    found = asked(session, "SELECT COUNT(DISTINCT CASE WHEN ill = 'flu' THEN u END) FROM t")
    same(found, by_hand(session, share))
    pairs = "SELECT COUNT(DISTINCT (u, city)) FROM t WHERE ill = 'flu'"
    same(asked(session, pairs), by_hand(session, share, value="(u, city)"))
    case = "SELECT COUNT(DISTINCT CASE WHEN cost > 10 THEN u + 1 END) FROM t WHERE ill = 'flu'"
    same(asked(session, case), by_hand(session, share, "cost > 10"))


def test_a_condition_on_two_columns(session):
    sql = "SELECT city, COUNT(DISTINCT u) FROM t WHERE ill <> 'flu' AND smoker GROUP BY city"
    share = inverted(session, lambda value, _: value != "flu", smoker=True)
    same(asked(session, sql, 1), by_hand(session, share, key="city"))


def test_a_condition_of_both_kinds(session):
    sql = "SELECT COUNT(DISTINCT u) FROM t WHERE ill = 'flu' OR city = 'a'"
    share = inverted(session, lambda value, row: value == "flu" or row["city"] == "a", None)
    same(asked(session, sql), by_hand(session, share))
    sql = "SELECT COUNT(DISTINCT u) FROM t WHERE ill = fav"
    share = inverted(session, lambda value, row: value == row["fav"], None)
    same(asked(session, sql), by_hand(session, share))


def test_a_sensitive_key(session):
    sql = "SELECT ill, COUNT(DISTINCT u) FROM t WHERE smoker GROUP BY ill"
    found = asked(session, sql, 1)
    for value in ILLS:
        share = inverted(session, lambda v, _, value=value: v == value, smoker=True)
        same({None: found[value]}, by_hand(session, share))
    sql = "SELECT ill, COUNT(DISTINCT u) FROM t WHERE city = 'b' GROUP BY ROLLUP (ill)"
    found = asked(session, sql, 1)
    for value in ILLS:
        share = inverted(session, lambda v, _, value=value: v == value, None)
        same({None: found[value]}, by_hand(session, share, "city = 'b'"))
    # The total is a count of its own, here of public rows alone, and no sum of cells.
    exact = (
        session.run("SELECT COUNT(DISTINCT u) FROM t WHERE city = 'b'").table.column(0)[0].as_py()
    )
    assert found[None] == (exact, 0.0)


def test_a_multiplicity_is_so_many_rows(tmp_path):
    """Equal rows are stored once; they count as often as they are there."""
    rng = np.random.default_rng(6)
    shops = np.repeat(np.arange(150), 4)
    ill = np.where(rng.random(shops.size) < 0.05, "flu", "none")
    table = pa.table({"shop": shops, "ill": ill})
    columns = public("shop"), sensitive("ill", 0.9, ["flu", "none"], accept_epsilon=True)
    session = Session(published(tmp_path, spec("t", *columns, more=OPEN), table))
    assert session.catalog.multiplicity
    found = asked(session, "SELECT COUNT(DISTINCT shop) FROM t WHERE ill = 'flu'")
    inverse = np.linalg.inv(0.9 * np.eye(2) + 0.1 / 2)
    rows = session._engine.scan("SELECT * FROM t").to_pylist()
    products = defaultdict(lambda: 1.0)
    for row in rows:
        r = 1 - inverse[int(row["ill"] == "none"), 0]
        products[row["shop"]] *= r ** row["privsql_multiplicity"]
    all_ = list(products.values())
    wanted = sum(1 - p for p in all_), sqrt(sum(p * p - p for p in all_))
    same(found, {None: wanted})
    session.close()


# -- limits ----------------------------------------------------------------------------------


def refused(session: Session, sql: str) -> Error:
    with pytest.raises(Error) as problem:
        session.run(sql)
    assert problem.value.place is not None
    assert problem.value.hint
    return problem.value


def test_a_single_answer_that_is_no_use_is_refused(plain):
    problem = refused(plain, "SELECT COUNT(DISTINCT cost % 5) AS n FROM t WHERE ill = 'flu'")
    assert problem.code == "distinct-error"


def test_a_cell_that_is_no_use_is_null(plain):
    sql = "SELECT city, COUNT(DISTINCT cost % 5) AS n FROM t WHERE ill = 'flu' GROUP BY city"
    outcome = plain.run(sql)
    assert outcome.table.column("n").to_pylist() == [None, None]
    assert outcome.bars[1].column("stderr").to_pylist() == [None, None]
    assert "distinct-error" in [notice.code for notice in outcome.notices]


@pytest.mark.parametrize(
    "argument",
    [
        "ill",
        "(u, ill)",
        "CASE WHEN smoker THEN u ELSE cost END",
        "CASE WHEN city = 'a' THEN ill END",
        "length(ill) + u",
    ],
)
def test_what_is_counted_must_be_public(plain, argument):
    assert refused(plain, f"SELECT COUNT(DISTINCT {argument}) FROM t").code == "unsupported"


@pytest.mark.parametrize("mechanism", ["identity", "swap", "decoy"])
def test_columns_perturbed_as_a_whole_are_refused(tmp_path, mechanism):
    keys: dict[str, Any] = {"group_size": 2} if mechanism == "decoy" else {}
    retention = None if mechanism == "decoy" else 0.6
    session = Session(published(tmp_path, described(mechanism, retention, keys)))
    assert (
        refused(session, "SELECT COUNT(DISTINCT u) FROM t WHERE ill = 'flu'").code
        == "dependent-rows"
    )
    assert (
        refused(session, "SELECT ill, COUNT(DISTINCT u) FROM t GROUP BY 1").code == "dependent-rows"
    )
    # Other columns are not meant.
    session.run("SELECT COUNT(DISTINCT u) FROM t WHERE smoker")
    session.run("SELECT COUNT(DISTINCT u) FROM t")
    session.close()


def test_several_rows_a_person_are_refused(tmp_path):
    table = raw().append_column("who", pa.array(np.arange(ROWS) // 2))
    columns = measure("u"), sensitive("ill", 0.6, ILLS)
    dropped = "".join(
        f'[columns.{name}]\nrole = "drop"\n' for name in ("city", "cost", "fav", "smoker", "age")
    )
    text = spec("t", *columns, dropped, more=OPEN, unit="who")
    pq.write_table(table, tmp_path / "raw.parquet")
    (tmp_path / "spec.toml").write_text(text)
    privsql.publish(
        str(tmp_path / "raw.parquet"),
        tmp_path / "release.duckdb",
        spec=tmp_path / "spec.toml",
        seed=4,
    )
    session = Session(tmp_path / "release.duckdb")
    assert session.catalog.repeated
    assert (
        refused(session, "SELECT COUNT(DISTINCT u) FROM t WHERE ill = 'flu'").code
        == "dependent-rows"
    )
    session.close()


# -- around it -------------------------------------------------------------------------------


def test_public_conditions_alone_are_exact(plain):
    for sql in (
        "SELECT COUNT(DISTINCT u) FROM t",
        "SELECT COUNT(DISTINCT u) FROM t WHERE cost < 9",
    ):
        outcome = plain.run(sql)
        assert not outcome.bars
        connection = duckdb.connect()
        connection.register("t", raw())
        assert outcome.table.column(0).to_pylist() == [connection.execute(sql).fetchall()[0][0]]


def test_a_condition_that_is_known_is_exact(plain):
    sql = "SELECT COUNT(DISTINCT u) AS n FROM t WHERE ill IS NOT NULL OR smoker"
    outcome, exact = plain.run(sql), plain.run("SELECT COUNT(DISTINCT u) FROM t")
    assert outcome.table.column(0).to_pylist() == exact.table.column(0).to_pylist()
    assert outcome.bars[0].to_pylist()[0]["stderr"] == 0.0


def test_one_estimate_keeps_its_error_and_two_do_not(plain):
    share = "SELECT 100.0 * COUNT(DISTINCT u) FILTER (WHERE ill = 'flu') / COUNT(DISTINCT u) FROM t"
    outcome = plain.run(share)
    alone = plain.run("SELECT COUNT(DISTINCT u) FROM t WHERE ill = 'flu'")
    whole = plain.run("SELECT COUNT(DISTINCT u) FROM t").table.column(0)[0].as_py()
    error = alone.bars[0].to_pylist()[0]["stderr"] * 100 / whole
    assert outcome.bars[0].to_pylist()[0]["stderr"] == pytest.approx(error)
    both = plain.run("SELECT COUNT(*) / COUNT(DISTINCT u) AS n FROM t WHERE ill = 'flu'")
    assert both.bars[0].to_pylist()[0]["stderr"] is None
    assert [notice.code for notice in both.notices] == ["no-error"]


def test_cells_of_different_rows_can_be_added_up(plain):
    sql = (
        "SELECT city, COUNT(DISTINCT u) AS n, SUM(COUNT(DISTINCT u)) OVER () AS s"
        " FROM t WHERE ill = 'flu' GROUP BY city"
    )
    outcome = plain.run(sql)
    errors = outcome.bars[1].column("stderr").to_pylist()
    assert outcome.bars[2].to_pylist()[0]["stderr"] == pytest.approx(
        sqrt(sum(e * e for e in errors))
    )
    # Groups of a sensitive key are not independent of each other.
    sql = "SELECT ill, SUM(COUNT(DISTINCT u)) OVER () AS s FROM t GROUP BY ill"
    outcome = plain.run(sql)
    assert outcome.bars[1].to_pylist()[0]["stderr"] is None


def test_the_estimate_and_its_bars_are_alone_whatever_stands_beside_them(plain):
    alone = plain.run("SELECT COUNT(DISTINCT u) AS n FROM t WHERE ill = 'flu'")
    for more in ("COUNT(*) FILTER (WHERE age > 30)", "SUM(cost)", "COUNT(DISTINCT cost + u)"):
        sql = f"SELECT COUNT(DISTINCT u) AS n, {more} AS m FROM t WHERE ill = 'flu'"
        beside = plain.run(sql)
        one, two = (dict(each.bars[0].to_pylist()[0], n=each.table["n"][0].as_py())
                    for each in (alone, beside))  # fmt: skip
        assert one == pytest.approx(two, rel=1e-9), more


def test_what_it_would_be_in_the_published_table(plain):
    sql = "SELECT privsql_observed(COUNT(DISTINCT u)) AS n FROM t WHERE ill = 'flu'"
    seen = "SELECT COUNT(DISTINCT u) AS n FROM t WHERE ill = 'flu'"
    for form in ("states", "weights"):
        plain.form = form
        found = plain.run(sql).table.column(0).to_pylist()
        assert found == plain._engine.scan(seen).column(0).to_pylist()
    plain.form = None


def test_it_is_explained(plain):
    text = plain.explain("SELECT COUNT(DISTINCT u) FROM t WHERE ill = 'flu'", verbose=True)
    assert "product of 1 - G over the rows of a value" in text
    assert text.count("scan, on the published table") == 2
