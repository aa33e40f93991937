"""Notices are about the published column, whatever the statement calls it."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from privsql.session.session import Session
from tests.sql.coarse import publish, raw

# A public table whose columns have names of sensitive ones.
PUBLIC = {"jobs": pa.table({"job": ["eng", "law"], "age": [300, 2], "disease": ["Flu", "x"]})}

# job, docvis, odd, temp, paid, born, seen, left_at, age, disease, edu: as they are published.
PERMUTED = "job, age, odd, temp, paid, born, seen, left_at, docvis, edu, disease"
LISTED = "job, docvis, odd, temp, paid, born, seen, left_at, age, disease, edu"

# Under these names docvis is age and age is docvis, disease is edu and edu is disease.
SOURCES = [
    (f"visits AS v({PERMUTED})", ""),
    (f"(SELECT * FROM visits) AS v({PERMUTED})", ""),
    ("(SELECT job, docvis AS age, age AS docvis, disease AS edu, edu AS disease FROM visits)", ""),
    (f"w AS v({PERMUTED})", "WITH w AS (SELECT * FROM visits) "),
    ("w", f"WITH w({PERMUTED}) AS (SELECT {LISTED} FROM visits) "),
    (f"(SELECT * FROM w) AS v({PERMUTED})", "WITH w AS (SELECT * FROM visits) "),
    (f"(SELECT * FROM (SELECT * FROM visits AS i) AS u({PERMUTED}))", ""),
    (
        "(SELECT docvis, age, disease, edu FROM w WHERE job <> 'x')",
        f"WITH w AS (SELECT * FROM visits AS z({PERMUTED})) ",
    ),
]


@pytest.fixture(scope="module")
def session(tmp_path_factory) -> Iterator[Session]:
    made = Session(publish(tmp_path_factory.mktemp("renamed"), 1.0).path, tables=PUBLIC)
    yield made
    made.close()


@pytest.fixture(scope="module")
def table():
    with raw() as connection:
        connection.execute("DROP TABLE visits")
        connection.execute("ALTER TABLE rounded RENAME TO visits")
        yield connection


FIVES = "docvis was rounded to multiples of 5 before it was published: "
FOREIGN = "{} is compared with a value outside its domain, which no row has"


@pytest.mark.parametrize(("source", "before"), SOURCES)
@pytest.mark.parametrize(
    ("condition", "said"),
    [
        # Asked of the other column than the name says.
        ("age > 3", [FIVES + "docvis > 3 was answered as docvis >= 5"]),
        ("age > 5", [FIVES + "this answer is about the rounded values"]),
        (
            "age > 200",
            [
                "docvis > 200 holds for no value of its domain, 0 to 125",
                FIVES + "this answer is about the rounded values",
            ],
        ),
        ("docvis > 3", []),
        ("docvis = 121", ["age = 121 holds for no value of its domain, 0 to 120"]),
        ("docvis = 120", []),
        ("edu = 'flu'", []),
        ("edu = 'Flu'", [FOREIGN.format("disease")]),
        ("disease = 1", []),
        ("disease = 9", [FOREIGN.format("edu")]),
    ],
)
def test_notices_follow_the_column_and_not_its_name(
    session, table, source, before, condition, said
):
    text = f"{before}SELECT COUNT(*) AS n FROM {source} WHERE {condition}"
    outcome = session.run(text)
    assert [each.text for each in outcome.notices] == said
    ((expected,),) = table.execute(text).fetchall()
    assert outcome.table.column(0).to_pylist() == [pytest.approx(expected)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        # A public column under a sensitive one's name has no domain.
        ("SELECT COUNT(*) FROM visits AS v(disease) WHERE disease = 'Flu'", []),
        ("SELECT COUNT(*) FROM visits AS v(docvis) WHERE docvis = '3'", []),
        (
            "SELECT COUNT(*) FROM visits AS v(disease) WHERE disease_1 = 'Flu'",
            [FOREIGN.format("disease")],
        ),
        ("SELECT COUNT(*) FROM (SELECT job AS disease FROM visits) WHERE disease = 'Flu'", []),
        # Neither has an alias of the SELECT list, nor a column of an answer.
        (
            "SELECT job AS disease, COUNT(*) FROM visits GROUP BY job HAVING disease = 'Flu'",
            [],
        ),
        (
            "SELECT * FROM (SELECT job AS disease, COUNT(*) AS n FROM visits GROUP BY 1)"
            " WHERE disease = 'Flu'",
            [],
        ),
        (
            "SELECT job, COUNT(*) AS docvis FROM visits WHERE age > 7 GROUP BY job"
            " HAVING docvis > 3",
            ["rows were kept or dropped by comparing estimates, which may be wrong for each row"],
        ),
        # Nor a column of a joined table, or of a sub-query.
        (
            "SELECT COUNT(*) FROM visits AS v JOIN jobs AS o ON v.job = o.job"
            " WHERE o.age > 200 AND o.disease = 'Flu' AND v.disease = 'flu'",
            [],
        ),
        (
            "SELECT COUNT(*) FROM visits WHERE disease = 'flu'"
            " AND EXISTS (SELECT * FROM jobs AS t WHERE t.age > 200 AND t.disease = 'Flu')",
            [],
        ),
        (
            "SELECT COUNT(*) FROM visits AS v JOIN jobs AS o ON v.job = o.job"
            " WHERE v.age > 200 AND o.disease = 'Flu'",
            ["age > 200 holds for no value of its domain, 0 to 120"],
        ),
        # A key is the column.
        (
            "SELECT disease AS d, COUNT(*) FROM visits GROUP BY d HAVING d = 'Flu'",
            [FOREIGN.format("disease")],
        ),
    ],
)
def test_names_that_are_no_sensitive_column_have_no_notice(session, text, said):
    assert [each.text for each in session.run(text).notices] == said


@pytest.mark.parametrize(
    "text",
    [
        "SELECT COUNT(*) AS n FROM visits AS v(age) WHERE age = 'eng' AND age_1 > 60",
        "SELECT SUM(age_1) AS n FROM visits AS v(age)",
        "SELECT SUM(c) AS n FROM (SELECT * FROM visits AS v(docvis)) AS q(a, b, c)",
        "SELECT SUM(b) AS n FROM (SELECT * FROM visits AS v(docvis)) AS q(a, b, c)",
        "SELECT COUNT(*) AS n FROM (SELECT * FROM visits AS v(age))"
        " AS q(a, b, c, d, e, f, g, h, i, j) WHERE i > 60 AND j = 'flu'",
        "WITH w(docvis, x) AS (SELECT age, docvis, docvis FROM visits)"
        " SELECT SUM(docvis) + 1000 * SUM(docvis_1) AS n FROM w",
    ],
)
def test_a_name_that_is_given_twice_is_numbered_and_moves_no_other(session, table, text):
    (n,) = session.run(text).table.column(0).to_pylist()
    assert [(pytest.approx(n),)] == table.execute(text).fetchall()
