"""``SELECT ... FROM privsql.audit_columns``: the tables of an audit, asked of a release."""

from __future__ import annotations

import json
import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from click.testing import CliRunner

import privsql
from privsql.audit.report.tables import tables_of
from privsql.errors import Error, NotSupportedError, ProgrammingError, TooLargeError
from privsql.fronts.cli.main import main
from privsql.policy.history import History
from privsql.policy.limits import Limits
from privsql.session.gate import Served
from privsql.session.session import Session
from privsql.sql.catalog import UnknownName
from tests.audit.conftest import SPEC, people

NAMES = ("audit_findings", "audit_columns", "audit_values", "audit_groups")
REFUSE = '[policy]\npersonal_groups = "refuse"\n'


@pytest.fixture(scope="module")
def session(clinic):
    opened = Session(clinic / "plain.duckdb")
    yield opened
    opened.close()


def asked(session: Session, name: str) -> pa.Table:
    return session.run(f"SELECT * FROM privsql.{name}").table


# -- what is answered -----------------------------------------------------------------------


def test_the_tables_are_the_publishers_without_what_is_reconstructed(clinic, session):
    full = tables_of(privsql.audit(clinic / "plain.duckdb"))
    left_out = {
        "audit_columns": {"s_observed", "posterior", "record_utility"},
        "audit_values": {"share", "error"},
    }
    for name, missing in left_out.items():
        found = asked(session, name)
        assert set(full[name].column_names) - set(found.column_names) == missing
        assert found.num_rows > 0
        assert found.to_pydict() == full[name].select(found.column_names).to_pydict()
    groups = asked(session, "audit_groups")
    assert groups.column_names == [
        "column_name", "group_number", "rows", "cap_least", "cap_most", "verdict",
    ]  # fmt: skip
    same = ["column_name", "group_number", "rows"]
    assert groups.select(same).to_pydict() == full["audit_groups"].select(same).to_pydict()
    said = asked(session, "audit_findings")
    assert said.column_names == full["audit_findings"].column_names
    text = " ".join(said.column("text").to_pylist())
    assert "epsilon" in text
    assert "reconstructed" not in text
    assert "f = " not in text


def test_bounds_of_groups_need_no_estimate(clinic, session):
    """Eq. 10 written out, and the raw table, which knows better, does not contradict."""
    raw = tables_of(privsql.audit(clinic / "plain.duckdb", clinic / "people.parquet"))
    violates = {
        (row["column_name"], row["group_number"]): row["violates"]
        for row in raw["audit_groups"].to_pylist()
    }
    rules = {"ill": (0.5, 3), "age": (0.3, 20)}
    verdicts = set()
    for row in asked(session, "audit_groups").to_pylist():
        p, m = rules[row["column_name"]]

        def cap(f, p=p, m=m):
            return -2 * (f * p + (1 - p) / m) * math.log(0.3) / (0.3 * p * f) ** 2

        assert row["cap_least"] == pytest.approx(cap(1))
        assert row["cap_most"] == pytest.approx(cap(1 / m))
        every = [row["rows"] > cap(f) for f in np.linspace(1 / m, 1, 50)]
        expected = "fails" if all(every) else "open" if any(every) else "holds"
        assert row["verdict"] == expected
        if expected != "open":
            key = row["column_name"], row["group_number"]
            assert violates[key] == (expected == "fails")
        verdicts.add(expected)
    assert verdicts == {"fails", "open", "holds"}


def test_they_are_sql(session):
    query = """
        WITH g AS (SELECT column_name, count(*) AS n FROM privsql.audit_groups GROUP BY 1)
        SELECT c.name, g.n, c.epsilon > $1 AS loud
        FROM PrivSQL."audit_columns" c JOIN g ON g.column_name = c.name
        WHERE c.name IN (SELECT column_name FROM privsql.audit_values) ORDER BY 1
    """
    outcome = session.run(query, [2.0])
    assert outcome.table.to_pylist() == [
        {"name": "age", "n": 8, "loud": True},
        {"name": "ill", "n": 8, "loud": False},
    ]
    assert outcome.estimator == "exact"
    assert not outcome.bars
    described = session.describe("SELECT name, epsilon FROM privsql.audit_columns")
    assert [(c.name, c.type) for c in described] == [("name", "VARCHAR"), ("epsilon", "DOUBLE")]
    own = session.run("WITH audit_columns AS (SELECT 1 AS x) FROM privsql.audit_columns LIMIT 0")
    assert "epsilon" in own.table.column_names  # not the CTE's


def test_explained_as_exact(session):
    plan = session.run("EXPLAIN SELECT count(*) AS n FROM privsql.audit_columns").table.to_pylist()
    assert ("output", "n", "exact") in [(row["item"], row["name"], row["value"]) for row in plan]
    assert "exact" in session.explain("SELECT name FROM privsql.audit_columns")


def test_made_when_first_asked_for_and_once(clinic, monkeypatch):
    import privsql.audit.report.public_tables as module

    made = []
    real = module.public_tables
    monkeypatch.setattr(module, "public_tables", lambda *a: made.append(1) or real(*a))
    with privsql.connect(clinic / "plain.duckdb") as con:
        con.sql("SELECT COUNT(*) FROM people")
        assert made == []
        con.sql("SELECT * FROM privsql.audit_columns")
        con.sql("SELECT * FROM privsql.audit_groups")
        assert made == [1]


def test_other_fronts(clinic):
    path = str(clinic / "plain.duckdb")
    query = "SELECT name, epsilon FROM privsql.audit_columns ORDER BY name"
    with privsql.connect(path) as con:
        expected = con.execute(query).fetchall()
    assert [name for name, _ in expected] == ["age", "ill"]
    engine = sa.create_engine(f"privsql:///{path}")
    table = sa.table("audit_columns", sa.column("name"), sa.column("epsilon"), schema="privsql")
    with engine.connect() as con:
        found = con.execute(sa.select(table.c.name, table.c.epsilon).order_by(table.c.name)).all()
    engine.dispose()
    assert [tuple(row) for row in found] == expected
    typed = CliRunner().invoke(main, ["query", path, query, "--format", "json"])
    assert typed.exit_code == 0, typed.output
    shown = json.loads(typed.output)
    rows = shown["rows"] if isinstance(shown, dict) else shown
    assert [
        tuple(row.values()) if isinstance(row, dict) else tuple(row) for row in rows
    ] == expected


# -- what is not ----------------------------------------------------------------------------

LISTED = 'domain = ["flu", "cold", "none"]\n'
AGE = 'mechanism = "uniform"\nretention = 0.3\ndomain = { lower = 0, upper = 19, step = 1 }\n'
UNIFORM = 'mechanism = "uniform"\nretention = 0.5\n' + LISTED
SPECS = {
    "refused": SPEC + REFUSE,
    "cut": SPEC + "[protect.reconstruction]\nlambda = 0.4\ndelta = 0.2\n",
    "copied": SPEC + '[protect.reconstruction]\nlambda = 0.4\ndelta = 0.2\nscaling = "duplicate"\n',
    "swap": SPEC.replace(UNIFORM, 'mechanism = "swap"\nretention = 0.5\n' + LISTED),
    "identity": SPEC.replace(UNIFORM, 'mechanism = "identity"\nretention = 0.5\n' + LISTED),
    "fine": SPEC.replace(UNIFORM, 'mechanism = "finegrain"\nprior = "raw"\ntheta = 3\n' + LISTED),
}


@pytest.mark.parametrize("name", list(SPECS))
def test_another_truth_gives_the_same_tables(name, tmp_path):
    """All that could be told of anybody's sensitive value is the same for other values."""
    assert SPECS[name] != SPEC
    (tmp_path / "spec.toml").write_text(SPECS[name])
    one = people(1_500).drop_columns(["id"])
    # Everybody is told apart by other values, and the shares of all are others as well.
    other = {
        "ill": pa.array(["flu" if i % 7 else "cold" for i in range(one.num_rows)]),
        "age": pa.array([(i * 11) % 13 for i in range(one.num_rows)], pa.int64()),
    }
    two = one
    for column, values in other.items():
        two = two.set_column(two.column_names.index(column), column, values)
    found = []
    for i, raw in enumerate((one, two)):
        pq.write_table(raw, tmp_path / f"{i}.parquet")
        made = tmp_path / f"{i}.duckdb"
        privsql.publish(str(tmp_path / f"{i}.parquet"), made, spec=tmp_path / "spec.toml")
        session = Session(made, served=Served("ann", History(None)))
        found.append({each: asked(session, each).to_pylist() for each in NAMES})
        session.close()
    assert found[0]["audit_findings"]
    assert len(found[0]["audit_columns"]) == 2
    if name in ("swap", "identity", "fine"):  # their channels follow raw values
        for table in ("audit_values", "audit_groups"):
            assert {row["column_name"] for row in found[0][table]} == {"age"}
    if name in ("cut", "copied"):  # how much of a group was cut away is not told
        assert {row["verdict"] for row in found[0]["audit_groups"]} == {"holds", "open"}
        assert {row["reached_error"] for row in found[0]["audit_columns"]} == {None}
    if name == "fine":
        # How much of each value is kept follows the prior, and \d shows it.
        for tables in found:
            for row in tables["audit_columns"]:
                for each in ("gamma", "epsilon", "upward", "downward", "retention_least",
                             "retention_most"):  # fmt: skip
                    del row[each]
            tables["audit_findings"] = [
                row for row in tables["audit_findings"] if row["criterion"] != "rho1-rho2"
            ]
    assert found[0] == found[1]


HIDDEN = (
    "SELECT * FROM privsql.tuples",
    'SELECT * FROM "privsql"."tuples"',
    "SELECT * FROM PRIVSQL.TUPLES",
    'SELECT * FROM privsql."domain of ill"',
    'SELECT * FROM privsql."values of city"',
    "SELECT * FROM privsql.manifest",
    "SELECT * FROM privsql.people",
    "SELECT * FROM release.privsql.tuples",
    "SELECT * FROM release.privsql.audit_columns",
    "SELECT * FROM memory.privsql.audit_columns",
    "SELECT count(*) FROM privsql.audit_columns, privsql.tuples",
    "SELECT name FROM privsql.audit_columns UNION ALL SELECT city FROM privsql.tuples",
    "SELECT (SELECT count(*) FROM privsql.tuples) FROM privsql.audit_columns",
    "SELECT (SELECT count(*) FROM release.privsql.tuples) FROM privsql.audit_columns",
    "WITH x AS (FROM privsql.tuples) SELECT * FROM x, privsql.audit_columns",
    "SELECT * FROM privsql.audit_columns WHERE name IN (SELECT city FROM people)",
    "SELECT count(*) FROM people JOIN privsql.audit_groups ON age = group_number",
    "SELECT count(*) FROM people WHERE n IN (SELECT name FROM privsql.audit_columns)",
    "SELECT ill FROM people UNION ALL SELECT name FROM privsql.audit_columns",
    "SELECT * FROM privsql.audit_columns, main.people",
    "SELECT * FROM privsql.audit_columns, duckdb_settings",
    "SELECT * FROM privsql.audit_columns, duckdb_settings()",
    "SELECT * FROM privsql.audit_columns, information_schema.tables",
    "SELECT * FROM privsql.audit_columns, duckdb_settings WHERE EXISTS"
    " (WITH duckdb_settings AS (SELECT 1) SELECT * FROM duckdb_settings)",
    "SELECT * FROM privsql.audit_columns, query('FROM privsql.tuples')",
    "SELECT * FROM privsql.audit_columns, query_table('tuples')",
    "SELECT * FROM privsql.audit_columns, 'people.parquet'",
    "SELECT * FROM privsql.audit_columns, LATERAL (SELECT 1)",
    "SELECT * FROM privsql.audit_columns USING SAMPLE 1",
    "SELECT privsql_low(gamma) FROM privsql.audit_columns",
    "SELECT random() FROM privsql.audit_columns",
    "SELECT getenv('HOME') FROM privsql.audit_columns",
    "SELECT privsql_group FROM privsql.audit_groups",
    "SELECT frequency FROM privsql.audit_groups",
    "SELECT share FROM privsql.audit_values",
    "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r, privsql.audit_columns)"
    " SELECT count(*) FROM r",
    "SUMMARIZE privsql.audit_columns",
    "DROP TABLE privsql.audit_columns",
    "CREATE TABLE x AS FROM privsql.audit_columns",
    "INSERT INTO privsql.audit_columns SELECT * FROM privsql.audit_columns",
    "COPY privsql.audit_columns TO 'x.csv'",
)


@pytest.mark.parametrize("query", HIDDEN)
@pytest.mark.parametrize("served", [False, True])
def test_the_schema_opens_nothing_else(clinic, query, served, opened):
    session = opened(served)
    for ask in (session.run, session.explain, session.describe):
        with pytest.raises((ProgrammingError, NotSupportedError)) as caught:
            ask(query)
        assert caught.value.hint


@pytest.fixture(scope="module")
def opened(clinic):
    made = {
        False: Session(clinic / "plain.duckdb"),
        True: Session(clinic / "plain.duckdb", served=Served("ann", History(None))),
    }
    yield made.__getitem__
    for each in made.values():
        each.close()


def test_errors_say_what_there_is(session):
    with pytest.raises(UnknownName) as caught:
        session.run("SELECT * FROM privsql.tuples")
    assert "privsql.audit_groups" in caught.value.hint
    with pytest.raises(NotSupportedError, match="together") as mixed:
        session.run("SELECT * FROM privsql.audit_columns, people")
    assert "statement of its own" in mixed.value.hint
    with pytest.raises(UnknownName, match="nope") as column:
        session.run("SELECT nope FROM privsql.audit_columns")
    assert "LIMIT 0" in column.value.hint


def test_tables_of_the_analysts_own_are_others(clinic):
    own = {"audit_columns": pa.table({"x": [1]})}
    with privsql.connect(clinic / "plain.duckdb", tables=own) as con:
        assert con.execute("SELECT x FROM audit_columns").fetchall() == [(1,)]
        assert con.execute("SELECT count(*) FROM privsql.audit_columns").fetchone() == (2,)


def test_limits_hold(clinic):
    session = Session(clinic / "plain.duckdb", limits=Limits(rows=10))
    with pytest.raises(TooLargeError):
        session.run("SELECT * FROM privsql.audit_groups")
    assert session.run("SELECT count(*) AS n FROM privsql.audit_groups").table.to_pylist() == [
        {"n": 16}
    ]
    session.close()
    few = Session(clinic / "plain.duckdb", limits=Limits(rows=3))
    with pytest.raises(TooLargeError, match="personal groups") as caught:
        few.run("SELECT count(*) FROM privsql.audit_columns")
    assert "privsql audit" in caught.value.hint
    few.close()
    with pytest.raises(Error, match="closed"):
        few.run("SELECT count(*) FROM privsql.audit_columns")
