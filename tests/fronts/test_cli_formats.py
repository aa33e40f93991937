"""Answers in files: every format holds exactly what ``con.sql`` gives."""

from __future__ import annotations

import csv
import io
import json
import random
from datetime import date, datetime
from decimal import Decimal
from itertools import zip_longest
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import privsql
from privsql.answer.outcome import Outcome, ResultColumn
from privsql.fronts.cli import formats as cli_formats
from privsql.fronts.cli.main import main
from tests.sql.clinic import publish


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish(tmp_path_factory.mktemp("clinic"), 0.5, policy="refuse", least=10)


@pytest.fixture(scope="module")
def con(release: Path):
    with privsql.connect(release) as opened:
        yield opened


def asked(release: Path, sql: str, form: str, *more: str) -> bytes:
    done = CliRunner().invoke(main, ["query", str(release), sql, "--format", form, *more])
    assert done.exit_code == 0, done.output
    return done.stdout_bytes


TYPES = (
    "SELECT true AS yes, 1::TINYINT AS small, 170141183460469231731687303715884105727 AS huge,"
    " 0.1::DOUBLE AS tenth, 1e300 AS big, 0.1::FLOAT AS short, 12.50::DECIMAL(10, 2) AS money,"
    " DATE '2024-02-29' AS day, TIME '01:02:03.5' AS hour,"
    " TIMESTAMP '2024-02-29 01:02:03.000004' AS moment,"
    " 'a,\"b\"' AS quoted, 'x' || chr(10) || 'y' AS lines, 'é 漢' AS letters, '' AS empty,"
    " NULL AS nothing, [1, NULL, 3] AS list, {'a': 1, 'b': 'c'} AS struct"
)
NOTHING = "SELECT job, count(*) AS n FROM patients WHERE cost < 0 GROUP BY job"


def questions(number: int) -> list[tuple[str, list[str]]]:
    """Random questions with random options, the same ones each time."""
    rng = random.Random(5)
    aggregates = (
        *("count(*)", "avg(age)", "sum(cost)", "count(disease)", "median(age)"),
        *("count(*) FILTER (WHERE disease = 'hiv')", "avg(cost)", "sum(age)"),
    )
    where = ("", "WHERE age < 50", "WHERE disease IS NULL", "WHERE cost > 40", "WHERE cost < 0")
    keys = ("job", "disease", "favourite", "disease, gender")
    found = []
    for _ in range(number):
        some = rng.sample(aggregates, rng.randint(1, 3))
        key = rng.choice(keys)
        sql = f"SELECT {key}, {', '.join(some)} FROM patients {rng.choice(where)} GROUP BY {key}"
        more = ["--error-bars"] * rng.randint(0, 1)
        more += ["--confidence-level", str(rng.choice([0.5, 0.99]))] * rng.randint(0, 1)
        more += ["--estimator", "inversion"] * rng.randint(0, 1)
        more += ["--simultaneous"] * rng.randint(0, 1)
        found.append((f"{sql} ORDER BY ALL", more))
    return found


def settings_of(more: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for word, value in zip_longest(more, more[1:]):
        if word in ("--error-bars", "--simultaneous"):
            found[word[2:].replace("-", "_")] = True
        elif word == "--confidence-level":
            found["confidence_level"] = float(value)
        elif word == "--estimator":
            found["estimator"] = value
    return found


@pytest.mark.parametrize(
    ("sql", "more"),
    [(TYPES, []), (NOTHING, ["--error-bars"]), *questions(4)],
    ids=["types", "nothing", *(f"random {i}" for i in range(4))],
)
def test_every_format_holds_what_the_connection_gives(release, con, sql, more):
    answer = con.sql(sql, **settings_of(more))
    rows, names = answer.fetchall(), answer.columns
    # JSON
    heard = json.loads(asked(release, sql, "json", *more), parse_float=Number)
    assert [list(row) for row in heard] == [names] * len(rows)
    assert [[*map(plain, row.values())] for row in heard] == [[*map(plain, row)] for row in rows]
    # CSV
    header, *lines = csv.reader(io.StringIO(asked(release, sql, "csv", *more).decode()))
    assert header == names
    assert lines == [[in_csv(value) for value in row] for row in rows]
    # Parquet
    found = pq.read_table(io.BytesIO(asked(release, sql, "parquet", *more)))
    whole = answer.arrow()
    assert found.to_pylist() == whole.to_pylist()
    if sql != TYPES:  # Parquet has fewer types: NULL without one
        assert found.schema == whole.schema


class Number(str):
    """A number as it is written in JSON."""


def plain(value: Any) -> Any:
    """What a value must be to be the same, to the last digit."""
    if isinstance(value, float | Decimal | Number):
        return Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    if isinstance(value, date) or hasattr(value, "tzinfo"):
        return value.isoformat()
    return value


def in_csv(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | dict):
        return json.dumps(value)
    return value if isinstance(value, str) else str(plain_text(value))


def plain_text(value: Any) -> Any:
    return value.isoformat() if hasattr(value, "isoformat") else value


# -- the writers alone ---------------------------------------------------------------------

words = st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"]), max_size=6))
odd = st.sampled_from(["", '"', ",", "\n", "\r\n", " a ", "NULL", "null", "\\", "'", "é"])
numbers = st.one_of(st.none(), st.floats(allow_nan=False))


def outcome(**columns: list[Any]) -> Outcome:
    table = pa.table(columns)
    return Outcome("rows", tuple(ResultColumn(name, "VARCHAR") for name in columns), table)


def written(form: str, found: Outcome) -> bytes:
    stream = io.BytesIO()
    cli_formats.WRITERS[form](found, stream)
    return stream.getvalue()


@settings(max_examples=40)
@given(st.lists(st.tuples(words | odd, numbers, words | odd), max_size=20))
def test_any_text_survives(rows):
    found = outcome(
        a=pa.array([row[0] for row in rows], pa.string()),
        n=pa.array([row[1] for row in rows], pa.float64()),
        b=pa.array([row[2] for row in rows], pa.string()),
    )
    heard = json.loads(written("json", found), parse_constant=float)
    unbounded = {"Infinity": float("inf"), "-Infinity": -float("inf")}
    assert [(row["a"], unbounded.get(row["n"], row["n"]), row["b"]) for row in heard] == rows
    # Python's reader does not tell NULL from an empty text; the next test does.
    lines = list(csv.reader(io.StringIO(written("csv", found).decode(), newline="")))[1:]
    assert [(a, float(n) if n else None, b) for a, n, b in lines] == [
        (a or "", n, b or "") for a, n, b in rows
    ]
    assert pq.read_table(io.BytesIO(written("parquet", found))).to_pylist() == [
        dict(zip("anb", row, strict=True)) for row in rows
    ]


def test_null_is_nothing_and_an_empty_text_is_quoted(tmp_path):
    found = outcome(a=["", None, "x"], b=[None, "", '"'])
    text = written("csv", found)
    assert text == b'a,b\n"",\n,""\nx,""""\n'
    (tmp_path / "x.csv").write_bytes(text)
    with duckdb.connect() as database:
        rows = database.execute(
            "SELECT * FROM read_csv($1, header = true, all_varchar = true, nullstr = '',"
            " allow_quoted_nulls = false)",
            [str(tmp_path / "x.csv")],
        ).fetchall()
    assert rows == [("", None), (None, ""), ("x", '"')]


def test_no_row_is_an_answer_too():
    found = outcome(a=pa.array([], pa.string()))
    assert written("json", found) == b"[]\n"
    assert written("csv", found) == b"a\n"
    assert pq.read_table(io.BytesIO(written("parquet", found))).num_rows == 0


def test_a_long_answer_is_written_in_parts(monkeypatch):
    """The seams are not seen: neither lost rows nor lost commas."""
    numbers = [str(i) for i in range(10)]
    whole = {form: written(form, outcome(a=numbers)) for form in ("csv", "json")}
    sizes: list[int] = []
    for part in (1, 3, 5, 10):
        monkeypatch.setattr(cli_formats, "PART", part)
        for form, text in whole.items():
            assert written(form, outcome(a=numbers)) == text
        sizes.append(len(list(cli_formats._parts(outcome(a=numbers)))))
    assert sizes == [10, 4, 2, 1]
    assert json.loads(whole["json"]) == [{"a": number} for number in numbers]


def test_columns_of_one_name_are_told_apart(release):
    assert asked(release, "SELECT 1 AS n, 2 AS n", "json") == b'[\n{"n": 1, "n_1": 2}\n]\n'
    assert asked(release, "SELECT 1 AS n, 2 AS n", "csv") == b"n,n_1\n1,2\n"


def test_numbers_that_are_not_finite():
    values = [float("nan"), float("inf"), -float("inf")]
    found = outcome(x=values)
    assert [row["x"] for row in json.loads(written("json", found))] == [
        "NaN",
        "Infinity",
        "-Infinity",
    ]
    assert written("csv", found) == b"x\nnan\ninf\n-inf\n"


def test_a_type_that_parquet_has_not_is_refused(release, tmp_path):
    out = tmp_path / "x.parquet"
    done = CliRunner().invoke(
        main, ["query", str(release), "SELECT INTERVAL 1 MONTH AS i", "-o", str(out)]
    )
    assert done.exit_code == 1
    assert done.stderr.startswith("ERROR 0A000 [not-supported]: Parquet has no type")
    assert list(tmp_path.iterdir()) == []


def test_dates_are_iso():
    assert cli_formats.as_text(datetime(2024, 2, 29, 1, 2, 3, 4)) == "2024-02-29T01:02:03.000004"
    assert cli_formats.as_json(date(2024, 2, 29)) == '"2024-02-29"'
