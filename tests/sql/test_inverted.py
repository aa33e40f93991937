"""Where the likelihood was asked for and cannot be had, the answer says so."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import privsql
from privsql.session.session import Session
from privsql.sql.parse.statement import only
from privsql.sql.reconstruct.inverted import inverted_notices
from tests.sql.clinic import RAW, SPEC, raw


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    """The clinic, with a cost that is below zero for some."""
    folder = tmp_path_factory.mktemp("debts")
    with raw() as connection:
        moved = RAW.replace("(10 + hash(i * 3) % 100)::INTEGER", "(hash(i * 3) % 100)::INTEGER - 5")
        table: pa.Table = connection.sql(moved).to_arrow_table()
    pq.write_table(table, folder / "raw.parquet")
    text = SPEC.format(source=folder / "raw.parquet", p=0.5, policy="allow", least=0)
    (folder / "spec.toml").write_text(text, encoding="utf-8")
    release = folder / "debts.duckdb"
    source = str(folder / "raw.parquet")
    privsql.publish(source, release, spec=folder / "spec.toml", seed=1)
    made = Session(release)
    yield made
    made.close()


def said(session: Session, query: str, estimator: str = "iterative") -> list[str]:
    """Notices of a query's only block, after its scan."""
    statement = only(query)
    settings = session.settings.with_option("estimator", estimator)
    (plan,) = session._planning.plan(statement, None, settings).plans
    scanned = session._engine.scan(plan.scan.sql, plan.scan.parameters)
    found = inverted_notices(plan, scanned)
    assert {notice.code for notice in found} <= {"inverted"}
    return [notice.text for notice in found]


def test_a_measure_below_zero_is_named(session):
    query = "SELECT job, SUM(cost), COUNT(*) FROM patients WHERE disease = 'flu' GROUP BY job"
    (text,) = said(session, query)
    assert text == "SUM(cost): by inversion, because cost is below zero in some rows"
    assert said(session, query, "inversion") == []


def test_a_measure_that_is_nowhere_below_zero_is_not(session):
    query = "SELECT SUM(cost), SUM(cost + 5) FROM patients WHERE disease = 'flu' AND {0}"
    assert said(session, query.format("cost >= 0")) == []
    (text,) = said(session, query.format("cost > -5"))
    assert text.startswith("SUM(cost):")


def test_distributions_are_inverted_in_any_case(session):
    (text,) = said(session, "SELECT MEDIAN(age), MODE(disease), COUNT(disease) FROM patients")
    assert text.startswith("MEDIAN(age), MODE(disease): from the inverted distribution")
