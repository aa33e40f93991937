"""Conditions on grids say what was in fact answered."""

from __future__ import annotations

import datetime as dt
import random
import re
from decimal import Decimal

import pyarrow as pa
import pytest

from privsql.channels import Grid
from privsql.session.session import Session
from privsql.sql.bind.rounded_values import grid_text, is_coarse
from tests.sql.coarse import publish, raw

PUBLIC = {"rates": pa.table({"visits": [0, 3, 5], "rate": [1.0, 2.0, 3.0]})}


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    made = Session(publish(tmp_path_factory.mktemp("coarse"), 1.0).path, tables=PUBLIC)
    yield made
    made.close()


@pytest.fixture(scope="module")
def table():
    with raw() as connection:
        yield connection


def told(session: Session, text: str, given: object = None) -> dict[str, str]:
    """Notices by their codes."""
    return {each.code: each.text for each in session.run(text, given).notices}  # type: ignore[arg-type]


def of(session: Session, condition: str, given: object = None) -> dict[str, str]:
    return told(session, f"SELECT COUNT(*) FROM visits WHERE {condition}", given)


FIVES = "docvis was rounded to multiples of 5 before it was published: "
GENERAL = f"{FIVES}this answer is about the rounded values"
BETWEEN = "docvis BETWEEN 5 AND 10"


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("docvis = 3", "docvis = 3 holds for no rounded value"),
        ("3 = docvis", "docvis = 3 holds for no rounded value"),
        ("docvis <> 3", "docvis <> 3 holds for every rounded value"),
        ("docvis != 3", "docvis <> 3 holds for every rounded value"),
        ("docvis > 3", "docvis > 3 was answered as docvis >= 5"),
        ("docvis >= 3", "docvis >= 3 was answered as docvis >= 5"),
        ("docvis < 8", "docvis < 8 was answered as docvis <= 5"),
        ("docvis <= 8", "docvis <= 8 was answered as docvis <= 5"),
        ("3 < docvis", "docvis > 3 was answered as docvis >= 5"),
        ("8 >= docvis", "docvis <= 8 was answered as docvis <= 5"),
        ("docvis > 3.5", "docvis > 3.5 was answered as docvis >= 5"),
        ("docvis > 1 + 2", "docvis > 3 was answered as docvis >= 5"),
        ("docvis > '3'", "docvis > 3 was answered as docvis >= 5"),
        ("NOT docvis > 3", "docvis > 3 was answered as docvis >= 5"),
        ("NOT (docvis = 3 OR job = 'eng')", "docvis = 3 holds for no rounded value"),
        ("docvis BETWEEN 3 AND 12", f"docvis BETWEEN 3 AND 12 was answered as {BETWEEN}"),
        ("docvis NOT BETWEEN 3 AND 12", f"docvis BETWEEN 3 AND 12 was answered as {BETWEEN}"),
        ("docvis BETWEEN 3 AND 7", "docvis BETWEEN 3 AND 7 was answered as docvis = 5"),
        ("docvis BETWEEN 1 AND 4", "docvis BETWEEN 1 AND 4 holds for no rounded value"),
        ("docvis IN (3, 5)", "docvis IN (3, 5) was answered as docvis = 5"),
        ("docvis IN (0, 3, 5)", "docvis IN (0, 3, 5) was answered as docvis IN (0, 5)"),
        ("docvis NOT IN (0, 3, 5)", "docvis IN (0, 3, 5) was answered as docvis IN (0, 5)"),
        ("docvis IS DISTINCT FROM 3", "docvis <> 3 holds for every rounded value"),
        ("CASE docvis WHEN 3 THEN true END", "docvis = 3 holds for no rounded value"),
        ("CASE WHEN docvis > 3 THEN age > 9 END", "docvis > 3 was answered as docvis >= 5"),
        (
            "docvis > 3 AND docvis < 8",
            "docvis > 3 was answered as docvis >= 5; docvis < 8 was answered as docvis <= 5",
        ),
        (
            "docvis IN (1, 5) OR docvis IN (2, 5) OR docvis IN (3, 5) OR docvis = 4 OR docvis = 6",
            "docvis IN (1, 5) was answered as docvis = 5; docvis IN (2, 5) was answered as"
            " docvis = 5; docvis IN (3, 5) was answered as docvis = 5; and 2 more conditions",
        ),
        # On the grid, or no comparison: rounding matters all the same, and is told once.
        ("docvis > 0", "this answer is about the rounded values"),
        ("docvis > 0 AND docvis < 10", "this answer is about the rounded values"),
        ("docvis * 2 > 7", "this answer is about the rounded values"),
        ("docvis > age", "this answer is about the rounded values"),
    ],
)
def test_a_condition_between_the_points_of_a_grid_is_told(session, condition, said):
    assert of(session, condition) == {"rounded": FIVES + said}


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        (
            "odd > 4",
            "odd was rounded to steps of 5 from 3 before it was published:"
            " odd > 4 was answered as odd >= 8",
        ),
        (
            "temp > 36.6",
            "temp was rounded to multiples of 0.5 before it was published:"
            " temp > 36.6 was answered as temp >= 37.0",
        ),
        (
            "paid <= 9.99",
            "paid was rounded to multiples of 0.25 before it was published:"
            " paid <= 9.99 was answered as paid <= 9.75",
        ),
        (
            "born >= DATE '2024-02-01'",
            "born was rounded to steps of 1 week from 2024-01-01 before it was published:"
            " born >= '2024-02-01' was answered as born >= '2024-02-05'",
        ),
        (
            "born >= '2024-02-01'",
            "born was rounded to steps of 1 week from 2024-01-01 before it was published:"
            " born >= '2024-02-01' was answered as born >= '2024-02-05'",
        ),
        (
            "seen < TIMESTAMP '2024-01-01 12:20:00'",
            "seen was rounded to steps of 15 minutes from 2024-01-01 00:00:00 before it was"
            " published: seen < '2024-01-01 12:20:00' was answered as"
            " seen <= '2024-01-01 12:15:00'",
        ),
        (
            "seen < '2024-01-01 12:20'",
            "seen was rounded to steps of 15 minutes from 2024-01-01 00:00:00 before it was"
            " published: seen < '2024-01-01 12:20:00' was answered as"
            " seen <= '2024-01-01 12:15:00'",
        ),
        # Fractions of a second are told only where one is asked for.
        ("left_at > '2024-01-01 12:00:00'", None),
        (
            "left_at > TIMESTAMP '2024-01-01 12:00:00.5'",
            "left_at was rounded to steps of 1 second from 2024-01-01 00:00:00 before it was"
            " published: left_at > '2024-01-01 12:00:00.500000' was answered as"
            " left_at >= '2024-01-01 12:00:01'",
        ),
        # An INTEGER has nothing between the points of a step of one.
        ("age > 30", None),
        ("age > 30.5", None),
        ("age = 30.5", None),
        ("docvis IS NOT NULL", None),
    ],
)
def test_every_kind_of_grid_is_told(session, condition, said):
    assert of(session, condition) == ({} if said is None else {"rounded": said})


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("age > 200", "age > 200 holds for no value of its domain, 0 to 120"),
        ("age < 200", "age < 200 holds for every value of its domain, 0 to 120"),
        ("age = -1", "age = -1 holds for no value of its domain, 0 to 120"),
        ("200 = age", "age = 200 holds for no value of its domain, 0 to 120"),
        ("age <> 200", "age <> 200 holds for every value of its domain, 0 to 120"),
        ("age BETWEEN 30 AND 200", "200 lies outside the domain of age, 0 to 120"),
        (
            "age BETWEEN 130 AND 200",
            "age BETWEEN 130 AND 200 holds for no value of its domain, 0 to 120",
        ),
        ("age IN (30, 200)", "200 lies outside the domain of age, 0 to 120"),
        ("age IN (-1, 30, 200)", "-1 and 200 lie outside the domain of age, 0 to 120"),
        ("age NOT IN (30, 200)", "200 lies outside the domain of age, 0 to 120"),
        (
            "left_at >= DATE '2025-01-01'",
            "left_at >= '2025-01-01' holds for no value of its domain,"
            " 2024-01-01 00:00:00 to 2024-01-02 00:00:00",
        ),
        ("disease = 'Flu'", "disease is compared with a value outside its domain,"),
        ("disease IN ('flu', 'Flu')", "disease is compared with a value outside its"),
        ("edu = 7", "edu is compared with a value outside its domain, which no row has"),
        ("CASE disease WHEN 'Flu' THEN true END", "disease is compared with a value"),
    ],
)
def test_a_constant_outside_of_the_domain_is_told(session, condition, said):
    found = of(session, condition)
    assert list(found) == ["not-in-domain"]
    assert found["not-in-domain"].startswith(said)


@pytest.mark.parametrize(
    "condition",
    [
        "age > 119", "age >= 0", "age <= 120", "age = 120", "disease <> 'Flu'", "edu = 3",
        "disease = NULL", "age = NULL", "job = 'Eng'", "age IN (1, 2)", "disease = 'flu'",
    ],
)  # fmt: skip
def test_nothing_is_said_where_there_is_nothing_to_say(session, condition):
    assert of(session, condition) == {}


def test_both_are_told_of_one_condition(session):
    assert of(session, "docvis IN (3, 5, 500)") == {
        "not-in-domain": "500 lies outside the domain of docvis, 0 to 125",
        "rounded": f"{FIVES}docvis IN (3, 5, 500) was answered as docvis = 5",
    }


@pytest.mark.parametrize(
    ("sign", "given"),
    [
        ("?", [3]),
        ("?", [Decimal("3.0")]),
        ("?", [3.0]),
        ("$1", [3]),
        ("$n", {"n": 3}),
        (":n", {"n": 3}),
        ("?", ["3"]),
        ("CAST(? AS INTEGER)", ["3"]),
        ("? + 1", [2]),
    ],
)
def test_parameters_are_told_as_constants_are(session, sign, given):
    said = of(session, f"docvis > {sign}", given)["rounded"]
    assert said.endswith("was answered as docvis >= 5")
    assert of(session, f"age > {sign}", given) == {}


@pytest.mark.parametrize(
    "given",
    [dt.date(2024, 2, 1), dt.datetime(2024, 2, 1), "2024-02-01", dt.datetime(2024, 2, 2, 3)],
)
def test_parameters_of_time_are_told(session, given):
    said = of(session, "born >= ?", [given])["rounded"]
    assert said.endswith("was answered as born >= '2024-02-05'")


FROM = [
    "visits",
    "visits AS v",
    "(SELECT * FROM visits)",
    "(SELECT docvis, job FROM visits WHERE age > 1)",
]


@pytest.mark.parametrize("source", FROM)
@pytest.mark.parametrize(
    "text",
    [
        "SELECT COUNT(*) FROM {} WHERE docvis > 3",
        "SELECT COUNT(*) FILTER (WHERE docvis > 3) FROM {}",
        "SELECT SUM(CASE WHEN docvis > 3 THEN 1 ELSE 0 END) FROM {}",
        "SELECT AVG((docvis > 3)::INTEGER) FROM {}",
        "SELECT COUNT_IF(docvis > 3) FROM {}",
        "SELECT docvis > 3, COUNT(*) FROM {} GROUP BY 1",
        "SELECT CASE WHEN docvis > 3 THEN 'a' ELSE 'b' END AS k, COUNT(*) FROM {} GROUP BY k",
        "SELECT docvis, COUNT(*) FROM {} GROUP BY docvis HAVING docvis > 3",
        "SELECT n FROM (SELECT COUNT(*) AS n FROM {} WHERE docvis > 3)",
        "WITH w AS (SELECT * FROM {} WHERE docvis > 3) SELECT COUNT(*) FROM w",
        "SELECT COUNT(*) FROM {} WHERE docvis > 3 UNION ALL SELECT COUNT(*) FROM visits",
    ],
)
def test_the_condition_is_found_wherever_it_stands(session, text, source):
    found = told(session, text.format(source))
    assert found["rounded"] == f"{FIVES}docvis > 3 was answered as docvis >= 5"
    assert "not-in-domain" not in found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT AVG(docvis) FROM visits", GENERAL),
        ("SELECT MEDIAN(docvis) FROM visits", GENERAL),
        ("SELECT docvis, COUNT(*) FROM visits GROUP BY docvis", GENERAL),
        (
            "SELECT SUM(rate) FROM visits AS v JOIN rates ON v.docvis = rates.visits",
            GENERAL,
        ),
        ("SELECT job, COUNT(*) FROM visits GROUP BY job", ""),
        ("SELECT COUNT(docvis) FROM visits", ""),
        ("SELECT COUNT(*) FROM visits WHERE age > 3 AND docvis IS NULL", ""),
    ],
)
def test_use_without_a_condition_is_told_once(session, text, said):
    assert told(session, text).get("rounded", "") == said


# -- what is said is true --------------------------------------------------------------

LITERALS = {
    "docvis": lambda r: str(r.randrange(-8, 135)),
    "odd": lambda r: str(r.randrange(-3, 50)),
    "temp": lambda r: f"{r.uniform(34, 43):.2f}",
    "paid": lambda r: f"{r.uniform(-2, 102):.2f}",
    "born": lambda r: f"DATE '{dt.date(2023, 12, 28) + dt.timedelta(days=r.randrange(375))}'",
    "seen": lambda r: (
        f"TIMESTAMP '{dt.datetime(2023, 12, 31, 23) + dt.timedelta(minutes=r.randrange(1600))}'"
    ),
    "age": lambda r: str(r.randrange(-30, 150)),
}


def condition(r: random.Random) -> str:
    """A comparison of a column on a grid with constants."""
    name = r.choice(list(LITERALS))
    one = LITERALS[name]
    sign = r.choice(["=", "<>", "<", "<=", ">", ">=", "BETWEEN", "IN", "flipped"])
    if sign == "BETWEEN":
        return f"{name} BETWEEN {one(r)} AND {one(r)}"
    if sign == "IN":
        return f"{name} IN ({', '.join(one(r) for _ in range(r.randrange(1, 5)))})"
    if sign == "flipped":
        return f"{one(r)} {r.choice(['<', '<=', '>', '>=', '='])} {name}"
    return f"{name} {sign} {one(r)}"


def test_what_is_said_to_be_answered_is_what_is_answered(session, table):
    """On generated conditions: the answer, the condition said, and the rounded raw table agree."""
    r = random.Random(4)
    kinds = {"as": 0, "no": 0, "every": 0, "nothing": 0}
    for _ in range(150):
        asked = condition(r)
        outcome = session.run(f"SELECT COUNT(*) AS n FROM visits WHERE {asked}")
        (n,) = outcome.table.column(0).to_pylist()
        ((expected,),) = table.execute(f"SELECT count(*) FROM rounded WHERE {asked}").fetchall()
        assert n == pytest.approx(expected), asked
        said = " ".join(each.text for each in outcome.notices)
        if answered := re.search(r"was answered as (.*)$", said):
            kinds["as"] += 1
            sql = f"SELECT count(*) FROM rounded WHERE {answered[1]}"
            assert table.execute(sql).fetchall() == [(expected,)], (asked, said)
        elif found := re.search("holds for (no|every)", said):
            kinds[found[1]] += 1
            assert expected == (0 if found[1] == "no" else 3000), (asked, said)
        else:
            kinds["nothing"] += 1
            assert "age" in asked or "about the rounded" in said
    assert min(kinds.values()) >= 10, kinds


@pytest.mark.parametrize(
    ("kind", "grid", "coarse"),
    [
        ("INTEGER", Grid.of(0, 10), False),
        ("UTINYINT", Grid.of(0, 10), False),
        ("HUGEINT", Grid.of(0, 10, 2), True),
        ("DECIMAL(10,2)", Grid.of(Decimal("0.00"), Decimal("1.00"), Decimal("0.01")), False),
        ("DECIMAL(10,3)", Grid.of(Decimal("0.00"), Decimal("1.00"), Decimal("0.01")), True),
        ("DECIMAL(10,0)", Grid.of(0, 10), False),
        ("DOUBLE", Grid.of(0, 10), True),
        ("FLOAT", Grid.of(0.0, 1.0, 0.001), True),
        ("DATE", Grid.of(dt.date(2024, 1, 1), dt.date(2024, 1, 9)), False),
        ("DATE", Grid.of(dt.date(2024, 1, 1), dt.date(2024, 1, 8), "1 week"), True),
        (
            "TIMESTAMP_S",
            Grid.of(dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 2), "1 second"),
            False,
        ),
        ("TIMESTAMP", Grid.of(dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 2), "1 second"), True),
        (
            "TIMESTAMP_NS",
            Grid.of(dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 2), "1 microsecond"),
            True,
        ),
    ],
)
def test_a_grid_is_coarse_where_the_type_has_values_between_its_points(kind, grid, coarse):
    assert is_coarse(kind, grid) is coarse


def test_points_are_named_by_their_step():
    assert grid_text(Grid.of(10, 100, 10)) == "multiples of 10"
    assert grid_text(Grid.of(-5, 10, 5)) == "multiples of 5"
    assert grid_text(Grid.of(1, 11, 10)) == "steps of 10 from 1"
    assert grid_text(Grid.of(Decimal("0.10"), Decimal("1.30"), Decimal("0.4"))) == (
        "steps of 0.4 from 0.1"
    )
