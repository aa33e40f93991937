"""The 2^k queries, run one by one and inverted densely, against the session's one scan."""

from __future__ import annotations

from functools import reduce
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import privsql
from privsql.channels.cells import Cells
from privsql.errors import Error, TooLargeError
from privsql.session.session import Session
from privsql.sql.explain.expand import Expanded, expand
from privsql.sql.parse.statement import statements
from tests.sql.clinic import publish

# Predicates on one column each, with the values of the domain that they hold for.
PREDICATES = {
    "uniform": {
        "disease": ("disease IN ('flu', 'hiv')", lambda v: v in ("flu", "hiv")),
        "age": ("age BETWEEN 30 AND 50", lambda v: 30 <= v <= 50),
        "seen": ("seen < TIMESTAMP '2024-04-01'", 91 / 366),  # its mass: too many to list
    },
    "replace": {
        "disease": ("disease <> 'flu'", lambda v: v != "flu"),
        "age": ("age % 2 = 1", lambda v: v % 2 == 1),
        "smoker": ("smoker", lambda v: v),
    },
}

REPLACE = """
[release]
table = "patients"
[policy]
personal_groups = "allow"
min_rows = 0
[columns.job]
role = "public"
[columns.disease]
role = "sensitive"
mechanism = "{mechanism}"
domain = ["flu", "hiv", "none"]
[columns.age]
role = "sensitive"
mechanism = "uniform"
retention = 0.3
domain = {{ lower = 20, upper = 59, step = 1 }}
[columns.smoker]
role = "sensitive"
mechanism = "replace"
retention = 0.5
replacing = [0.8, 0.2]
domain = [false, true]
"""

SKEWED = 'replace"\nretention = 0.4\nreplacing = [0.5, 0.3, 0.2]\n#"'
FINE = 'finegrain"\nfloor = 0.1\nrho = [[0.1, 0.2], [0.05, 0.3], [0.3, 0.9]]\n#"'


def release(folder: Path, mechanism: str) -> Path:
    rng = np.random.default_rng(8)
    raw = pa.table(
        {
            "job": rng.choice(["eng", "law"], 5_000),
            "disease": rng.choice(["flu", "hiv", "none"], 5_000, p=[0.6, 0.3, 0.1]),
            "age": rng.integers(20, 60, 5_000),
            "smoker": rng.random(5_000) < 0.4,
        }
    )
    pq.write_table(raw, folder / "raw.parquet")
    (folder / "spec.toml").write_text(REPLACE.format(mechanism=mechanism), encoding="utf-8")
    privsql.publish(
        str(folder / "raw.parquet"), folder / "r.duckdb", spec=folder / "spec.toml", seed=3
    )
    return folder / "r.duckdb"


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    return {
        "uniform": publish(tmp_path_factory.mktemp("uniform"), 0.4),
        "replace": release(tmp_path_factory.mktemp("replace"), SKEWED),
        "finegrain": release(tmp_path_factory.mktemp("finegrain"), FINE),
    }


@pytest.fixture(scope="module")
def sessions(paths):
    made = {name: Session(path) for name, path in paths.items()}
    yield made
    for session in made.values():
        session.close()


def expanded(session: Session, sql: str) -> list[Expanded]:
    (statement,) = statements(sql)
    return expand(statement, session.catalog)


def counts(path: Path, queries: list[Expanded], parameters: tuple[object, ...] = ()) -> np.ndarray:
    """Run the queries on the published table in plain DuckDB."""
    with duckdb.connect(str(path), read_only=True) as connection:
        found = [connection.execute(q.sql, list(parameters)).fetchone()[0] for q in queries]
    return np.array(found, dtype=float)


def two_cells(session: Session, name: str, holds) -> np.ndarray:
    """The channel between [not P, P]; NULL is in neither P nor its opposite, so in not P."""
    sensitive = session.catalog.sensitive[name]
    if isinstance(holds, float):
        p, q = sensitive.channel.retention, np.array([1 - holds, holds])
        return p * np.eye(2) + (1 - p) * q
    values = sensitive.domain.values().to_pylist()
    labels = np.array([int(v is not None and bool(holds(v))) for v in values])
    matrix = sensitive.channel.lump(Cells.of(labels)).matrix
    # Cells are numbered as the domain enters them: the first value may be in P.
    return matrix[::-1, ::-1] if labels[0] == 1 else matrix


@pytest.mark.parametrize("mechanism", ["uniform", "replace"])
@pytest.mark.parametrize("k", [0, 1, 2, 3])
@pytest.mark.parametrize("public", ["", "job = 'eng'"])
def test_dense_inversion_of_the_queries_is_the_sessions_answer(
    paths, sessions, mechanism, k, public
):
    session = sessions[mechanism]
    chosen = list(PREDICATES[mechanism].items())[:k]
    conditions = [text for _, (text, _) in chosen] + ([public] if public else [])
    sql = "SELECT COUNT(*) FROM patients"
    sql += f" WHERE {' AND '.join(conditions)}" if conditions else ""
    queries = expanded(session, sql)
    assert len(queries) == 2**k
    y = counts(paths[mechanism], queries)
    factors = [two_cells(session, name, holds) for name, (_, holds) in chosen]
    kron = reduce(np.kron, factors, np.eye(1))
    x = y @ np.linalg.inv(kron)
    answer = session.run(sql).table.column(0)[0].as_py()
    assert answer == pytest.approx(x[-1], rel=1e-9, abs=1e-9 * y.sum())
    # The states are a partition of the rows that the public conditions leave.
    rows = session.run(f"SELECT COUNT(*) FROM patients {f'WHERE {public}' if public else ''}")
    assert y.sum() == rows.table.column(0)[0].as_py()


def test_two_states_are_not_enough_under_finegrain(paths, sessions):
    """A 2 x 2 matrix would have to average values that are kept with different chances."""
    session = sessions["finegrain"]
    with pytest.raises(Error, match="mix values that are perturbed differently"):
        two_cells(session, "disease", lambda v: v in ("flu", "hiv"))
    sql = "SELECT COUNT(*) FROM patients WHERE disease IN ('flu', 'hiv')"
    y = counts(paths["finegrain"], expanded(session, sql))
    channel = session.catalog.sensitive["disease"].channel.matrix
    average = np.array(
        [
            [channel[2, 2], channel[2, :2].sum()],
            [channel[:2, 2].mean(), channel[:2, :2].sum(axis=1).mean()],
        ]
    )
    shortcut = (y @ np.linalg.inv(average))[-1]
    answer = session.run(sql).table.column(0)[0].as_py()
    assert abs(shortcut - answer) > 100


def test_states_are_named_in_the_order_of_the_product(sessions):
    queries = expanded(
        sessions["uniform"], "SELECT COUNT(*) FROM patients WHERE disease = 'flu' AND age > 3"
    )
    assert [q.state for q in queries] == [
        "not P1 and not P2",
        "not P1 and P2",
        "P1 and not P2",
        "P1 and P2",
    ]
    assert queries[0].predicates == ("disease = 'flu'", "age > 3")
    assert str(queries[2]) == (
        "-- P1 and not P2    (P1: disease = 'flu'; P2: age > 3)\n"
        "SELECT COUNT(*) FROM patients WHERE (disease = 'flu') AND (age > 3) IS NOT TRUE"
    )


def test_the_spelling_is_the_analysts_own(sessions):
    text = (
        "select count(*) N from patients as p\n"
        "where (p.Disease  in ('flu','and') and (cost>3 or job='eng')) -- AND this\n"
        "  and age between 3 and 9 and case when seen is null and true then true end;"
    )
    queries = expanded(sessions["uniform"], text)
    assert queries[-1].predicates == (
        "p.Disease  in ('flu','and')",
        "age between 3 and 9",
        "case when seen is null and true then true end",
    )
    assert all("(cost>3 or job='eng') AND" in q.sql for q in queries)


def test_null_is_in_the_complement(paths, sessions):
    queries = expanded(
        sessions["uniform"], "SELECT COUNT(*) FROM patients WHERE NOT (disease = 'flu')"
    )
    y = counts(paths["uniform"], queries)
    with duckdb.connect(str(paths["uniform"]), read_only=True) as connection:
        total, null = connection.execute(
            "SELECT COUNT(*), COUNT(*) FILTER (disease IS NULL) FROM patients"
        ).fetchone()
    assert null > 0
    assert y.sum() == total


def test_placeholders_keep_their_order(paths, sessions):
    sql = "SELECT COUNT(*) FROM patients WHERE age > ? AND job = ? AND disease = ?"
    values = (30, "eng", "flu")
    literal = sql.replace("?", "{!r}").format(*values)
    session = sessions["uniform"]
    assert np.array_equal(
        counts(paths["uniform"], expanded(session, sql), values),
        counts(paths["uniform"], expanded(session, literal)),
    )


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT SUM(age) FROM patients WHERE age > 3", "something other than COUNT"),
        ("SELECT COUNT(disease) FROM patients", "something other than COUNT"),
        ("SELECT COUNT(*), 1 FROM patients", "several columns"),
        ("SELECT COUNT(*) FROM patients GROUP BY job", "GROUP"),
        ("SELECT COUNT(*) FROM patients WHERE age > 3 LIMIT 1", "LIMIT"),
        ("SELECT DISTINCT COUNT(*) FROM patients", "DISTINCT"),
        ("SELECT COUNT(*) FROM patients TABLESAMPLE 10%", "a changed table"),
        ("SELECT COUNT(*) FROM patients AS p(disease) WHERE disease = 'x'", "a changed table"),
        ("SELECT COUNT(*) FROM patients JOIN d USING (job)", "JOINS"),
        ("SELECT COUNT(*) FROM (SELECT * FROM patients)", "something other than the published"),
        ("SELECT COUNT(*) FROM other", "not the published one"),
        ("WITH a AS (SELECT 1) SELECT COUNT(*) FROM patients", "WITH"),
        ("SELECT COUNT(*) FROM patients UNION ALL SELECT 1", "UNION"),
        ("SELECT COUNT(*) FROM patients WHERE disease = 'flu' OR age > 3", "age, disease together"),
        ("SELECT COUNT(*) FROM patients WHERE age > cost", "age, cost together"),
        ("SELECT COUNT(*) FROM patients WHERE disease IN (SELECT 'flu')", "a sub-query"),
        ("SELECT COUNT(*) FROM patients WHERE COLUMNS('age') > 3", "COLUMNS"),
        ("SELECT COUNT(*) FROM patients WHERE disease.upper() = 'FLU'", "a method call"),
        ("SELECT COUNT(*) FROM patients WHERE #5 = 'flu'", "#"),
        ("SELECT COUNT(*) FROM patients WHERE random() < age", "RAND"),
    ],
)
def test_what_is_no_conjunctive_count_is_refused(sessions, sql, reason):
    with pytest.raises(Error) as refusal:
        expanded(sessions["uniform"], sql)
    assert refusal.value.code == "unsupported"
    assert reason in refusal.value.reason
    assert "SELECT COUNT(*) FROM t WHERE P1 AND P2" in (refusal.value.hint or "")


def test_unknown_columns_and_too_many_predicates(sessions):
    with pytest.raises(Error, match="no column 'nothing'"):
        expanded(sessions["uniform"], "SELECT COUNT(*) FROM patients WHERE nothing = 1")
    many = " AND ".join(f"age > {i}" for i in range(17))
    with pytest.raises(TooLargeError, match="131072 queries"):
        expanded(sessions["uniform"], f"SELECT COUNT(*) FROM patients WHERE {many}")


def test_rows_that_stand_for_several_are_counted_as_such(tmp_path):
    raw = pa.table({"job": ["eng", "law"] * 500, "smoker": [True, False, False, False] * 250})
    pq.write_table(raw, tmp_path / "raw.parquet")
    head = '[release]\ntable = "people"\n[policy]\npersonal_groups = "allow"\nmin_rows = 0\n'
    spec = (
        head + '[columns.job]\nrole = "public"\n[columns.smoker]\nrole = "sensitive"\n'
        'mechanism = "uniform"\nretention = 0.5\ndomain = [false, true]\n'
    )
    (tmp_path / "spec.toml").write_text(spec, encoding="utf-8")
    path = tmp_path / "r.duckdb"
    privsql.publish(str(tmp_path / "raw.parquet"), path, spec=tmp_path / "spec.toml", seed=3)
    session = Session(path)
    try:
        assert session.catalog.multiplicity
        queries = expanded(session, "SELECT COUNT(*) FROM people WHERE smoker")
        y = counts(path, queries)
        assert y.sum() == 1000
        x = y @ np.linalg.inv(two_cells(session, "smoker", bool))
        answer = session.run("SELECT COUNT(*) FROM people WHERE smoker").table.column(0)[0].as_py()
        assert answer == pytest.approx(x[-1], rel=1e-9)
    finally:
        session.close()
