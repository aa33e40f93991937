"""EXPLAIN RECONSTRUCTION says what will be done, and how wide the answer may be, beforehand."""

from __future__ import annotations

from functools import reduce

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import privsql
from privsql.session.session import Session
from privsql.sql.explain.brief import brief
from privsql.sql.explain.explain import Explained, explain
from privsql.sql.explain.widths import row_error
from privsql.sql.parse.statement import statements
from privsql.sql.plan.query import QueryPlanner, Wanted
from privsql.sql.scan.forms import FORMS, WORDS
from tests.sql.clinic import publish

PUBLIC = {"illness": pa.table({"disease": ["flu", "hiv", "none"], "class": ["v", "v", "w"]})}


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    made = Session(publish(tmp_path_factory.mktemp("clinic"), 0.4), tables=PUBLIC)
    yield made
    made.close()


def explained(session: Session, sql: str, given=None, estimator: str = "auto") -> Explained:
    """Explain without a scan: the engine that holds the table is not touched."""
    (statement,) = statements(sql)
    planner = QueryPlanner(session.catalog, session._planning._planner._databases)
    planned = planner.plan(statement, given, Wanted(estimator == "iterative", session.form))
    return explain(planned, session.catalog, session._workspace.evaluated, estimator=estimator)


def test_cells_are_said_in_words_with_their_masses(session):
    sql = "SELECT job, COUNT(*) FROM patients WHERE disease = 'flu' AND age > 30 GROUP BY job"
    (block,) = explained(session, sql).blocks
    disease, age = block.columns
    masses = {cell.meaning: cell.mass for cell in disease.cells}
    assert masses["disease = 'flu'"] == pytest.approx(1 / 4)  # NULL is a value too
    assert sum(masses.values()) == pytest.approx(1)
    assert len(disease.cells) * len(age.cells) == block.states
    above = next(cell for cell in age.cells if cell.meaning == "age > 30")
    assert above.mass == pytest.approx(90 / 121)
    assert block.keys == (("job", "public"),)
    assert block.estimator == "inversion"


def test_condition_numbers_multiply(session):
    sql = "SELECT COUNT(*) FROM patients WHERE disease = 'flu' AND age > 30"
    (block,) = explained(session, sql).blocks
    kron = reduce(np.kron, [np.array(one.factor) for one in block.columns])
    assert block.condition == pytest.approx(np.linalg.cond(kron))
    one = explained(session, "SELECT COUNT(*) FROM patients WHERE age > 30").blocks[0]
    assert block.condition > one.condition > 1


def test_the_width_is_the_largest_standard_error_over_all_tables():
    """Simulated: rows that all hold one state, published again and again."""
    rng = np.random.default_rng(2)
    factors = [
        0.4 * np.eye(2) + 0.6 * np.array([0.7, 0.3]),
        0.5 * np.eye(3) + 0.5 * np.array([0.2, 0.3, 0.5]),
    ]
    kron = np.kron(*factors)
    g = np.zeros(6)
    g[5] = 1.0
    inverted = np.linalg.inv(kron) @ g
    spreads = [inverted[rng.choice(6, 200_000, p=kron[state])].std() for state in range(6)]
    assert row_error(factors, g) == pytest.approx(max(spreads), rel=0.01)
    assert row_error(factors, np.ones(6)) == 0


def test_the_session_never_shows_a_larger_error(session):
    sql = (
        "SELECT job, COUNT(*) AS n, SUM(age) AS s FROM patients WHERE disease = 'flu' GROUP BY job"
    )
    count, total = explained(session, sql).blocks[0].aggregates
    outcome = session.run(sql)
    rows = session.run("SELECT MAX(n) FROM (SELECT COUNT(*) AS n FROM patients GROUP BY job)")
    most = rows.table.column(0)[0].as_py()
    for aggregate, bars in zip((count, total), outcome.bars.values(), strict=True):
        largest = max(bars.column("stderr").to_pylist())
        # Var-hat itself is an estimate: a little above is possible.
        assert 0.95 * largest < aggregate.row_error * np.sqrt(most) < 3 * largest


def test_the_width_does_not_depend_on_the_answer(session, tmp_path):
    """Two releases of one spec with other draws are explained alike."""
    other = Session(publish(tmp_path, 0.4, seed=99), tables=PUBLIC)
    try:
        sql = "SELECT disease, COUNT(*), AVG(age) FROM patients GROUP BY disease"
        assert explained(session, sql) == explained(other, sql)
    finally:
        other.close()


def test_nothing_is_scanned(session, monkeypatch):
    def refuse(*_args):
        raise AssertionError("the published table was asked")

    monkeypatch.setattr(session._engine, "scan", refuse)
    sql = "SELECT disease, COUNT(*), SUM(cost) FROM patients WHERE age > ? GROUP BY disease"
    assert explained(session, sql, (30,)).blocks[0].aggregates[0].row_error > 0


@pytest.mark.parametrize(
    ("sql", "kind", "width"),
    [
        ("COUNT(*)", "exact", "no error"),
        ("SUM(cost)", "exact", "no error"),
        ("MAX(age)", "from the public domain", "nothing about rows"),
        ("COUNT(*) FILTER (WHERE disease = 'flu')", "estimated", "over all 4,000"),
        ("SUM(cost) FILTER (WHERE disease = 'flu')", "estimated", "root mean square of cost"),
        ("AVG(age)", "estimated", "over 1,000 rows"),
        ("COUNT(*) FILTER (WHERE age > cost)", "estimated", "depends on public values"),
        ("STDDEV(age)", "estimated", "made of 3 sums"),
        ("MEDIAN(age)", "estimated from the reconstructed distribution", "how steep"),
    ],
)
def test_each_kind_of_aggregate_says_what_it_can(session, sql, kind, width):
    (block,) = explained(session, f"SELECT COUNT(disease), {sql} FROM patients").blocks
    assert block.aggregates[1].answered == kind
    assert width in block.aggregates[1].width


def test_an_average_over_all_rows_gets_better_with_them(session):
    aggregate = explained(session, "SELECT AVG(age) FROM patients").blocks[0].aggregates[0]
    few, many = (aggregate.row_error / np.sqrt(n) for n in (1_000, 4_000))
    assert f"at most {few:.3g} over 1,000 rows and {many:.3g} over all 4,000" in aggregate.width


def test_blocks_without_sensitive_columns_are_exact(session):
    sql = "SELECT a.n / b.n FROM (SELECT COUNT(*) AS n FROM patients WHERE disease = 'flu') AS a,"
    sql += " (SELECT COUNT(*) AS n FROM patients) AS b"
    estimated, exact = explained(session, sql).blocks
    assert (estimated.estimator, exact.estimator) == ("inversion", "exact")
    assert exact.columns == ()
    assert exact.steps == ()


def test_the_estimator_is_named_with_its_reason(session):
    sql = "SELECT COUNT(*) FROM patients WHERE disease = 'flu'"
    assert "auto" in explained(session, sql).blocks[0].why
    block = explained(session, sql, estimator="iterative").blocks[0]
    assert block.estimator == "iterative"
    assert "non-negative" in block.why


def test_scan_and_steps_are_those_that_run(session):
    sql = (
        "SELECT COUNT(*) FROM patients JOIN illness USING (disease) WHERE class = 'v' AND cost > 3"
    )
    block = explained(session, sql).blocks[0]
    assert block.conditions == ("cost > 3",)
    assert block.joins == (("illness", "depends on a sensitive column"),)
    assert session._engine.scan(block.scans[0]).num_rows > 0
    assert [name for name, _ in block.steps][-1] == "privsql_q0_0_block"
    assert all(duckdb.extract_statements(text) for _, text in block.steps)


def test_values_that_are_perturbed_differently_are_told_apart(tmp_path):
    from tests.sql.test_expand import FINE, release

    other = Session(release(tmp_path, FINE))
    try:
        sql = "SELECT COUNT(*) FROM patients WHERE disease IN ('flu', 'hiv')"
        (column,) = explained(other, sql).blocks[0].columns
        assert len(column.cells) == 3
        assert sum("part" in cell.meaning for cell in column.cells) == 2
    finally:
        other.close()


def test_weights_leave_the_width_open(tmp_path):
    from tests.oracle.releases import releases

    other = Session(releases(tmp_path, "sps", 1).paths[0])
    try:
        sql = "SELECT COUNT(*), COUNT(*) FILTER (WHERE disease = 'flu') FROM clinic"
        (block,) = explained(other, sql).blocks
        assert [one.answered for one in block.aggregates] == ["estimated", "estimated"]
        assert all("weights" in one.width for one in block.aggregates)
        assert "weighted sample" in explained(other, "SELECT COUNT(*) FROM clinic").blocks[0].why
    finally:
        other.close()


def test_stored_rows_count_as_often_as_they_stand_for(tmp_path):
    from tests.oracle.releases import releases

    other = Session(releases(tmp_path, "compacted", 1).paths[0])
    try:
        sql = "SELECT COUNT(*) FROM clinic WHERE disease = 'flu'"
        assert "over all 2,000" in explained(other, sql).blocks[0].aggregates[0].width
    finally:
        other.close()


def test_iterative_says_what_is_inverted_all_the_same(session):
    sql = "SELECT SUM(cost), AVG(cost - 50), COUNT(*), MEDIAN(age) FROM patients"
    sql += " WHERE disease = 'flu'"
    plain = explained(session, sql).blocks[0].aggregates
    assert [one.answered for one in plain[:3]] == ["estimated"] * 3
    found = explained(session, sql, estimator="iterative").blocks[0].aggregates
    assert found[0].answered == "estimated, by inversion if cost is below zero in any row"
    assert "if cost - 50 is below zero" in found[1].answered
    assert found[2].answered == "estimated"
    assert found[3].answered.endswith("distribution, by inversion")


@pytest.mark.parametrize(
    ("sql", "interval"),
    [
        ("COUNT(*) FILTER (WHERE disease = 'flu')", "score"),
        ("COUNT(*) FILTER (WHERE disease = 'flu' AND job = 'eng')", "score"),
        ("SUM(CASE WHEN disease = 'flu' THEN 1 ELSE 0 END)", "score"),
        ("SUM(CASE WHEN disease = 'flu' THEN 2 ELSE 0 END)", "Wald"),
        ("COUNT(*) FILTER (WHERE disease = 'flu' AND age > 30)", "Wald"),
        ("SUM(age)", "Wald"),
        ("AVG(age)", "Fieller"),
        ("MEDIAN(age)", "Woodruff"),
        ("MODE(disease)", "none"),
        ("MAX(cost)", ""),
    ],
)
def test_each_interval_is_named(session, sql, interval):
    found = explained(session, f"SELECT {sql} FROM patients")
    (aggregate,) = found.blocks[0].aggregates
    assert aggregate.interval.startswith(interval)
    assert bool(aggregate.interval) == bool(interval)
    assert aggregate.interval in found.text()


def test_a_scan_that_tells_no_values_apart_is_described(tmp_path):
    """By hand: ``A^-1 g = (g - c) / p`` over half a million values, two columns together."""
    from tests.sql.grid import publish as publish_grid

    other = Session(publish_grid(tmp_path, 500_000))
    try:
        sql = "SELECT job, SUM(salary) AS s, COUNT(*) AS n FROM staff WHERE senior GROUP BY job"
        found = explained(other, sql)
        (block,) = found.blocks
        assert [column.name for column in block.columns] == ["salary", "senior"]
        assert [column.values for column in block.columns] == [500_000, 2]
        # What replaces a salary is uniform, so its condition is 1/p.
        assert block.columns[0].condition == pytest.approx(2.0)
        factor = 0.6 * np.eye(2) + 0.4 * np.array([0.7, 0.3])
        assert block.columns[1].condition == pytest.approx(np.linalg.cond(factor))
        g, q = np.arange(500_000.0), np.array([0.7, 0.3])
        ones = np.array([0.0, 1.0])
        left = _second(0.5, np.full(500_000, 1 / 500_000), g)
        right = _second(0.6, q, ones)
        worst = max((left * right[i] - g**2 * ones[i]).max() for i in (0, 1))
        assert block.aggregates[0].row_error == pytest.approx(np.sqrt(worst), rel=1e-9)
        count = max(right - ones)
        assert block.aggregates[1].row_error == pytest.approx(np.sqrt(count), rel=1e-9)
        assert "lower bound" in block.aggregates[0].interval
        assert block.aggregates[1].interval.startswith("score")
        assert block.form == "weights"
        assert "salary: uniform, retention 0.5, 500000 values" in found.text()
        assert "not distinguished" in found.text()
        assert (0, "states", "", "not distinguished") in found.rows()
    finally:
        other.close()


def _second(p: float, q: np.ndarray, g: np.ndarray) -> np.ndarray:
    square = ((g - (1 - p) * (q @ g)) / p) ** 2
    return p * square + (1 - p) * (q @ square)


def test_text_and_rows_say_the_same(session):
    sql = "SELECT disease, COUNT(*) AS n FROM patients WHERE age > 30 GROUP BY disease ORDER BY n"
    found = explained(session, sql)
    text, rows = found.text(), found.rows()
    for item in ("estimator", "key", "column", "cell", "mass", "factor", "states", "scan", "step"):
        assert any(row[1] == item for row in rows), item
    for number, item, name, value in rows:
        assert number in (0, None)
        if item in ("cell", "expected width", "key"):
            assert value in text
        if item in ("column", "step"):
            assert name in text
    table = found.table()
    assert table.column_names == ["block", "item", "name", "value"]
    assert table.num_rows == len(rows)
    assert "column 'n': estimate" in text


@pytest.mark.parametrize("form", FORMS)
def test_the_form_of_the_scan_is_shown(session, form, monkeypatch):
    monkeypatch.setattr(session, "form", form)
    sql = "SELECT COUNT(*) FILTER (WHERE disease = 'flu' AND age > 30) FROM patients"
    found = explained(session, sql)
    assert found.blocks[0].form == form
    assert f"scan form: {form}; {WORDS[form]}" in found.text()
    assert (0, "scan form", form, WORDS[form]) in found.rows()


def test_no_statement_can_choose_the_form(session):
    for statement in ("SET privsql.form = 'weights'", "SET form = 'weights'"):
        with pytest.raises(privsql.Error):
            session.run(statement)
    with pytest.raises(privsql.Error):
        session.run("SELECT COUNT(*) FROM patients", form="weights")


# -- ten lines ------------------------------------------------------------------------------

BRIEF = {
    "SELECT job, disease, COUNT(*) AS n, AVG(age) AS a FROM patients"
    " WHERE cost > 10 AND age > 30 GROUP BY job, disease": (
        "n, a: estimated by inversion",
        "rows: cost > 10 (public condition); groups of job (public); groups of disease (sensitive",
        "disease: uniform, retention 0.4",
        "age: ",
        "precision: condition number ",
        "COUNT(*): ± at most ",
        "AVG(age): ",
        "scan: one pass, form axes: ",
        "more: --verbose",
    ),
    "SELECT COUNT(*) AS n FROM patients": ("answer: exact", "COUNT(*): exact", "more: "),
    "SELECT 1 AS x": ("x: exact; one query", "more: "),
    "SELECT COUNT(*) FILTER (WHERE age > 1) AS a, COUNT(*) FILTER (WHERE age > 2) AS b,"
    " COUNT(*) FILTER (WHERE age > 3) AS c FROM patients": (
        "a, b, c: estimated",
        "age: ",
        "precision: ",
        "COUNT(*) FILTER(WHERE age > 1): ± at most",
        "2 more aggregates: ",
        "scan: ",
        "more: ",
    ),
}


@pytest.mark.parametrize("sql", BRIEF)
def test_the_short_text_has_ten_lines_that_say_what_matters(session, sql):
    lines = brief(explained(session, sql)).splitlines()
    assert len(lines) <= 10
    assert [line[: len(wanted)] for line, wanted in zip(lines, BRIEF[sql], strict=True)] == [
        *BRIEF[sql]
    ]


def test_the_short_text_of_several_blocks_has_two_lines_for_each(session):
    parts = [f"(SELECT COUNT(*) FROM patients WHERE age > {n}) AS a{n}" for n in range(5)]
    lines = brief(explained(session, f"SELECT {', '.join(parts)}")).splitlines()
    assert len(lines) <= 10
    assert lines[0] == "5 blocks; estimated: a0, a1, a2, a3 and 1 more"
    assert lines[1].startswith("block 0: estimated by inversion; age perturbed; condition number")
    assert lines[2].startswith("  COUNT(*): ± at most ")
    assert lines[7] == "2 more blocks"


def test_the_short_width_is_the_one_of_the_full_text(session):
    """At 95%: 1.96 times the largest error of a row, times the root of the rows."""
    sql = "SELECT COUNT(*) FROM patients WHERE age > 30"
    (aggregate,) = explained(session, sql).blocks[0].aggregates
    shown = float(aggregate.short.split("at most ")[1].split(" over")[0].replace(",", ""))
    assert shown == pytest.approx(1.959964 * aggregate.row_error * 1000**0.5, rel=0.01)


def test_neither_text_can_steer_a_terminal(session):
    odd = "\x1b[31m\x07\x9b\u202e"
    sql = f"SELECT COUNT(*) AS \"a{odd}\" FROM patients WHERE job = '{odd}' AND disease = 'flu'"
    found = explained(session, sql)
    for text in (found.text(), brief(found)):
        assert all(line.isprintable() for line in text.splitlines())
        assert "\\x1b[31m\\x07\\x9b\\u202e" in text
