"""The same answers through every front: one suite of questions, asked everywhere.

The session is the reference.  Every other front must give the same names, values, types, notices
and errors; what a front cannot say (JSON has few types) is compared as far as it goes.

Where personal groups are refused, a served session cuts off digits that mean nothing, whoever
serves it.  So the wire is held to a served session to the last bit, and that to the embedded one
as far as it may differ.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
import sqlalchemy as sa
from click.testing import CliRunner

import privsql
from privsql.answer.columns import arrays, columns
from privsql.answer.values import rows
from privsql.fronts.cli.main import main
from privsql.session.gate import Served
from privsql.session.session import Session

RAW = """
    SELECT CASE WHEN i % 40 = 0 THEN 'spy'
                ELSE (['eng', 'law', 'med'])[1 + (hash(i) % 3)::INTEGER] END AS job,
           i % 40 = 0 OR hash(i + 7) % 2 = 0 AS insured,
           CASE WHEN i % 40 = 0 THEN DATE '2020-01-01' WHEN hash(i + 1) % 9 = 0 THEN NULL
                ELSE DATE '2020-01-01' + (hash(i + 2) % 3)::INTEGER END AS since,
           CASE WHEN hash(i * 23) % 11 <> 0 THEN ((hash(i * 3) % 10000) / 100)::DECIMAL(10, 2)
           END AS cost,
           (hash(i * 29) % 100000)::BIGINT * 1000000000000 AS large,
           (hash(i * 31) % 1000)::DOUBLE / 8 AS weight,
           TIMESTAMP '2024-01-01' + to_seconds((hash(i * 37) % 86400)::BIGINT) AS arrived,
           CASE WHEN hash(i * 17) % 20 = 0 THEN NULL
                ELSE (['flu', 'hiv', 'none'])[1 + least(hash(i * 5) % 5, 2)::INTEGER]
           END AS disease,
           (20 + hash(i * 11) % 60)::INTEGER AS age,
           DATE '2024-01-01' + (hash(i * 19) % 366)::INTEGER AS seen,
           hash(i * 41) % 3 = 0 AS smoker,
           (hash(i * 43) % 31)::INTEGER AS docvis
    FROM range(4000) AS r(i)
"""

SENSITIVE = """
role = "sensitive"
mechanism = "uniform"
retention = 0.5
accept_epsilon = true
"""

SPEC = f"""
[release]
table = "patients"
source = "patients.parquet"
[columns.job]
role = "public"
[columns.insured]
role = "public"
[columns.since]
role = "public"
[columns.cost]
role = "public"
grouping = false
[columns.large]
role = "public"
grouping = false
[columns.weight]
role = "public"
grouping = false
[columns.arrived]
role = "public"
grouping = false
[columns.disease]{SENSITIVE}
domain = ["flu", "hiv", "none"]
nullable = true
[columns.age]{SENSITIVE}
domain = {{ lower = 0, upper = 120, step = 1 }}
[columns.seen]{SENSITIVE}
domain = {{ lower = 2024-01-01, upper = 2024-12-31, step = "1 day" }}
[columns.smoker]{SENSITIVE}
domain = [true, false]
[columns.docvis]{SENSITIVE}
domain = {{ lower = 0, upper = 30, step = 5 }}
[groups]
merge = "none"
[policy]
personal_groups = "refuse"
min_rows = 10
differences = "ignore"  # a user's history is not what is compared here
"""


@dataclass(frozen=True)
class Question:
    """One question, in SQL that DuckDB and PostgreSQL read alike; ``?`` is a parameter."""

    sql: str
    given: tuple[Any, ...] = ()
    error_bars: bool = False
    notices: tuple[str, ...] = ()  # their codes
    error: str | None = None  # its code


COMMAND = [sys.executable, "-c", "from privsql.fronts.cli.main import main; main()"]
# Asked in a process of their own, which takes a second each: an answer, notices, an error.
APART = ("an estimate with its error", "refused cells", "one personal group")

FLU = "FROM patients WHERE disease = 'flu'"

QUESTIONS = {
    "nothing of the release": Question("SELECT 1 AS one, 'a''b' AS words, NULL AS nothing"),
    "exact count": Question("SELECT count(*) AS n FROM patients"),
    "exact aggregates": Question(
        "SELECT job, count(*) AS n, sum(cost) AS paid, min(cost) AS least, avg(weight) AS weight,"
        " count(cost) AS known FROM patients GROUP BY job ORDER BY job"
    ),
    "large integers": Question("SELECT sum(large) AS s, max(large) AS m FROM patients"),
    "dates, NULLs among them": Question(
        "SELECT since, count(*) AS n FROM patients GROUP BY since ORDER BY since NULLS FIRST"
    ),
    "timestamps": Question("SELECT min(arrived) AS first, max(arrived) AS last FROM patients"),
    "booleans": Question(
        "SELECT insured, count(*) AS n, bool_and(insured) AS every FROM patients"
        " GROUP BY insured ORDER BY insured"
    ),
    "an estimate": Question(f"SELECT count(*) AS n {FLU}"),
    "a condition between the points of a grid": Question(
        "SELECT count(*) AS n FROM patients WHERE docvis > 3", notices=("rounded",)
    ),
    "a parameter between the points of a grid": Question(
        "SELECT count(*) AS n FROM patients WHERE docvis > ?", (3,), notices=("rounded",)
    ),
    "an average on a coarse grid": Question(
        "SELECT avg(docvis) AS n FROM patients", notices=("rounded",)
    ),
    "a constant outside of a grid": Question(
        "SELECT count(*) AS n FROM patients WHERE age > 200", notices=("not-in-domain",)
    ),
    "an estimate with its error": Question(f"SELECT count(*) AS n {FLU}", error_bars=True),
    "error by name": Question(
        "SELECT count(*) AS n, privsql_stderr(n) AS se, privsql_low(n) AS low,"
        f" privsql_high(n) AS high {FLU}"
    ),
    "many estimates with their errors": Question(
        "SELECT disease, count(*) AS n, avg(age) AS age, sum(cost) AS paid FROM patients"
        " GROUP BY disease ORDER BY disease NULLS LAST",
        error_bars=True,
    ),
    "refused cells": Question(
        f"SELECT job, count(*) AS n {FLU} GROUP BY job ORDER BY job",
        error_bars=True,
        notices=("personal-group",),
    ),
    "sensitive dates": Question(
        "SELECT count(*) AS n, avg(age) AS age FROM patients WHERE seen < DATE '2024-07-01'"
    ),
    "a quantile of dates": Question(
        "SELECT quantile_disc(seen, 0.25) AS q, count(*) AS n FROM patients", error_bars=True
    ),
    "sensitive truths": Question(
        "SELECT smoker, count(*) AS n FROM patients GROUP BY smoker ORDER BY smoker"
    ),
    "a distinct count": Question(f"SELECT count(DISTINCT large) AS n, count(*) AS rows_n {FLU}"),
    "distinct counts in groups": Question(
        "SELECT smoker, count(DISTINCT (job, large)) AS n FROM patients GROUP BY smoker"
        " ORDER BY smoker"
    ),
    "a sum over nothing": Question(f"SELECT sum(cost) AS s, count(*) AS n {FLU} AND job = 'none'"),
    "a share": Question(
        "SELECT count(*) FILTER (WHERE disease = 'flu') * 1.0 / count(*) AS share FROM patients",
        error_bars=True,
    ),
    "values of the domain": Question(
        "SELECT DISTINCT disease FROM patients ORDER BY disease NULLS LAST", notices=("domain",)
    ),
    "largest first": Question(
        "SELECT disease, count(*) AS n FROM patients GROUP BY disease ORDER BY n DESC LIMIT 2",
        notices=("picked",),
    ),
    "no error at hand": Question(
        f"SELECT CAST(count(*) AS BIGINT) AS n {FLU}", notices=("no-error",)
    ),
    "a ratio of too little": Question(
        "SELECT avg(cost) AS a, sum(cost) / count(*) AS r, count(*) AS n FROM patients"
        " WHERE disease = 'hiv' AND age > 78 AND smoker AND insured",
        error_bars=True,
        notices=("ratio", "unreliable"),
    ),
    "running totals and shares": Question(
        "SELECT since, sum(n) OVER (ORDER BY since) AS t, n / sum(n) OVER () AS s FROM"
        " (SELECT since, count(*) AS n FROM patients WHERE smoker AND job <> 'spy' GROUP BY since)"
        " AS g ORDER BY since NULLS LAST",
        error_bars=True,
    ),
    "a wrapper": Question(
        f"SELECT * FROM (SELECT insured, count(*) AS n {FLU} GROUP BY insured) AS t"
        " ORDER BY insured LIMIT 1000"
    ),
    "no row": Question(f"SELECT insured, count(*) AS n {FLU} GROUP BY insured HAVING false"),
    "parameters": Question(
        "SELECT count(*) AS n, avg(age) AS age FROM patients WHERE disease = ? AND age < ?",
        ("flu", 50),
    ),
    "a parameter that is a date": Question(
        "SELECT count(*) AS n FROM patients WHERE seen < ? AND since >= ?",
        (date(2024, 7, 1), date(2020, 1, 2)),
    ),
    "parameters of other types": Question(
        "SELECT count(*) AS n FROM patients WHERE cost < ? AND arrived > ? AND insured = ?",
        (Decimal("50.25"), datetime(2024, 1, 1, 12), True),
    ),
    "columns of a table": Question("DESCRIBE patients"),
    "columns of an answer": Question("DESCRIBE SELECT job, count(*) AS n FROM patients GROUP BY 1"),
    "the tables": Question("SHOW TABLES"),
    "a summary": Question("SUMMARIZE patients", error_bars=True, notices=("rounded", "domain")),
    "a summary of no table": Question("SUMMARIZE nothing", error="unknown-name"),
    "one personal group": Question(
        f"SELECT count(*) AS n {FLU} AND job = 'spy'", error="personal-group"
    ),
    "rows": Question("SELECT disease FROM patients", error="rows"),
    "a mistake": Question("SELECT count( FROM patients", error="syntax"),
    "an unknown column": Question("SELECT wrong FROM patients", error="unknown-name"),
    "an unknown table": Question("SELECT count(*) AS n FROM nothing", error="unknown-name"),
    "too much": Question(
        "SELECT age, seen, docvis, count(*) AS n, smoker, disease FROM patients GROUP BY ALL",
        error="too-large",
    ),
    "a change": Question("DELETE FROM patients", error="unsupported"),
}


@dataclass(frozen=True)
class Heard:
    """What a front said."""

    names: Sequence[str] = ()
    rows: Sequence[tuple[Any, ...]] = ()
    types: Sequence[Any] | None = None  # None where the front has none
    notices: Sequence[str] | None = ()  # None where the front has none
    error: tuple[str, str] | None = None  # code and SQLSTATE
    message: str = ""
    loose: bool = field(default=False)  # values came as text


Front = Callable[[Question], Heard]


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fronts")
    with duckdb.connect() as connection:
        connection.sql(RAW).write_parquet(str(folder / "patients.parquet"))
    (folder / "patients.toml").write_text(SPEC, encoding="utf-8")
    made = folder / "patients.duckdb"
    privsql.publish(
        str(folder / "patients.parquet"), str(made), spec=str(folder / "patients.toml"), seed=11
    )
    return made


# -- fronts --------------------------------------------------------------------------------


def _said(problem: privsql.Error) -> Heard:
    return Heard(error=(problem.code, problem.sqlstate), message=problem.reason)


def _codes(notices: Any) -> list[str]:
    return [str(notice) for notice in notices]


@contextmanager
def by_session(release: Path, served: Served | None = None) -> Iterator[Front]:
    session = Session(release, served=served)
    known: dict[str, Heard] = {}

    def once(question: Question) -> Heard:
        key = repr(question)
        if key not in known:
            known[key] = ask(question)
        return known[key]

    def ask(question: Question) -> Heard:
        try:
            outcome = session.run(question.sql, question.given, error_bars=question.error_bars)
        except privsql.Error as problem:
            return _said(problem)
        seen = columns(outcome)
        return Heard(
            [column.name for column in seen],
            rows(seen, arrays(outcome)),
            [column.type for column in seen],
            _codes(outcome.notices),
        )

    yield once
    session.close()


@contextmanager
def by_answer(release: Path, folder: Path) -> Iterator[Front]:
    with privsql.connect(release) as con:

        def ask(question: Question) -> Heard:
            try:
                found = con.sql(question.sql, question.given, error_bars=question.error_bars)
            except privsql.Error as problem:
                return _said(problem)
            assert found.arrow().num_rows == len(found)
            assert list(found.df().columns) == found.columns
            return Heard(found.columns, found.fetchall(), None, _codes(found.notices))

        yield ask


def _set(question: Question) -> str:
    return f"SET privsql.error_bars = {str(question.error_bars).lower()}"


@contextmanager
def by_dbapi(release: Path, folder: Path) -> Iterator[Front]:
    with privsql.connect(release) as con:

        def ask(question: Question) -> Heard:
            con.execute(_set(question))
            cursor = con.cursor()
            try:
                cursor.execute(question.sql, question.given)
            except privsql.Error as problem:
                return _said(problem)
            described = cursor.description or []
            return Heard(
                [column[0] for column in described],
                cursor.fetchall(),
                [column[1] for column in described],
                _codes(cursor.notices),
            )

        yield ask


@contextmanager
def by_sqlalchemy(release: Path, folder: Path) -> Iterator[Front]:
    engines = [sa.create_engine(f"privsql:///{release}?error_bars={each}") for each in (0, 1)]

    def ask(question: Question) -> Heard:
        # Named parameters, as text() wants them; PostgreSQL's casts are not in these questions.
        parts = question.sql.split("?")
        sql = parts[0] + "".join(f":p{i}{part}" for i, part in enumerate(parts[1:]))
        given = {f"p{i}": value for i, value in enumerate(question.given)}
        with engines[question.error_bars].connect() as connection:
            try:
                result = connection.execute(sa.text(sql), given)
            except sa.exc.DBAPIError as problem:
                if not isinstance(problem.orig, privsql.Error):
                    raise
                return _said(problem.orig)
            types = [column[1] for column in result.cursor.description]
            names = list(result.keys())
            found = [tuple(row) for row in result]
            notices: Any = result.context.notices  # type: ignore[attr-defined]
            return Heard(names, found, types, _codes(notices))

    yield ask
    for engine in engines:
        engine.dispose()


@contextmanager
def by_wire(release: Path, folder: Path, *, binary: bool) -> Iterator[Front]:
    psycopg = pytest.importorskip("psycopg")
    pytest.importorskip("privsql.fronts.pgwire.server")
    from tests.fronts.pgwire.conftest import serving

    with (
        serving([release], folder) as running,
        psycopg.connect(running.dsn(), autocommit=True) as con,
    ):
        heard: list[str] = []
        con.add_notice_handler(lambda diagnostic: heard.append(diagnostic.message_primary))

        def ask(question: Question) -> Heard:
            con.execute(_set(question))
            heard.clear()
            sql = question.sql.replace("%", "%%").replace("?", "%s")
            with con.cursor(binary=binary) as cursor:
                try:
                    cursor.execute(sql, question.given or None, prepare=bool(question.given))
                except psycopg.Error as problem:
                    code = (problem.diag.message_detail or "").removeprefix("privsql: ")
                    return Heard(
                        error=(code, problem.sqlstate), message=problem.diag.message_primary
                    )
                described = cursor.description
                return Heard(
                    [column.name for column in described],
                    cursor.fetchall(),
                    [column.type_code for column in described],
                    [_as_printed(text) for text in heard],
                )

        yield ask


def _as_printed(text: str) -> str:
    """``text [code]``, the other way round."""
    said, _, code = text.removesuffix("]").rpartition(" [")
    return f"NOTICE [{code}]: {said}"


@contextmanager
def by_wire_text(release: Path, folder: Path) -> Iterator[Front]:
    with by_wire(release, folder, binary=False) as made:
        yield made


@contextmanager
def by_wire_binary(release: Path, folder: Path) -> Iterator[Front]:
    with by_wire(release, folder, binary=True) as made:
        yield made


@contextmanager
def by_cli(release: Path, folder: Path) -> Iterator[Front]:
    apart = [QUESTIONS[name] for name in APART]

    def run(question: Question) -> tuple[int, str, str]:
        more = ["--error-bars"] if question.error_bars else []
        words = ["query", str(release), _written_out(question), "--format", "json", *more]
        if question not in apart:
            here = CliRunner().invoke(main, words)
            return here.exit_code, here.stdout, here.stderr
        done = subprocess.run(
            [*COMMAND, *words],
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )
        return done.returncode, done.stdout, done.stderr

    def ask(question: Question) -> Heard:
        code, out, err = run(question)
        if code:
            assert code == 1
            head = err[err.index("ERROR ") :].splitlines()[0]
            _, state, rest = head.split(" ", 2)
            which, _, reason = rest.partition(": ")
            return Heard(error=(which.strip("[]"), state), message=reason)
        found = json.loads(out, parse_float=Decimal)
        notices = [line for line in err.splitlines() if line.startswith("NOTICE [")]
        return Heard(
            list(found[0]) if found else (),
            [tuple(row.values()) for row in found],
            None,
            notices,
            loose=True,
        )

    yield ask


def _written_out(question: Question) -> str:
    """A command line has no parameters: their values as SQL writes them."""
    first, *rest = question.sql.split("?")
    return first + "".join(
        _literal(value) + part for value, part in zip(question.given, rest, strict=True)
    )


def _literal(value: Any) -> str:
    if isinstance(value, datetime | date):
        return f"{'TIMESTAMP' if isinstance(value, datetime) else 'DATE'} '{value}'"
    return f"'{value}'" if isinstance(value, str) else str(value)


FRONTS = {
    "answer": by_answer,
    "dbapi": by_dbapi,
    "sqlalchemy": by_sqlalchemy,
    "wire text": by_wire_text,
    "wire binary": by_wire_binary,
    "cli": by_cli,
}


# PostgreSQL's words, by which its clients know what is the matter; the code is everybody's.
WORDS = dict.fromkeys(
    ("an unknown table", "a summary of no table"), 'relation "nothing" does not exist'
)
# And its state for a statement that changes data, where every user is read-only.
STATES = {"a change": ("unsupported", "25006")}


@pytest.fixture(scope="module")
def session(release: Path) -> Iterator[Front]:
    with by_session(release) as made:
        yield made


@pytest.fixture(scope="module")
def served(release: Path) -> Iterator[Front]:
    with by_session(release, Served("ann")) as made:
        yield made


@pytest.fixture(scope="module")
def front(
    request: pytest.FixtureRequest, release: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Front]]:
    with FRONTS[request.param](release, tmp_path_factory.mktemp("front")) as made:
        yield request.param, made


# -- the suite -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_session_says_what_the_question_is_for(session: Front, name: str) -> None:
    """Else two fronts could agree on a refusal that nobody meant."""
    question = QUESTIONS[name]
    heard = session(question)
    code = None if heard.error is None else heard.error[0]
    assert (code, heard.message if question.error is None else "") == (question.error, "")
    found = [notice.partition("]")[0].removeprefix("NOTICE [") for notice in heard.notices or ()]
    assert tuple(found) == question.notices
    if question.error is None:
        assert bool(heard.rows) == (name != "no row")
        bars = [column for column in heard.names if column.endswith("_stderr")]
        assert bool(bars) == question.error_bars


def test_the_refused_cells_are_those_of_one_group(session: Front) -> None:
    heard = session(QUESTIONS["refused cells"])
    assert {row[0]: row[1] is None for row in heard.rows} == {
        "eng": False,
        "law": False,
        "med": False,
        "spy": True,
    }


# Each question through every second front; in `make soak` through all of them.
PAIRS = [
    (front, name) if (i + j) % 2 == 0 else pytest.param(front, name, marks=pytest.mark.soak)
    for i, front in enumerate(FRONTS)
    for j, name in enumerate(QUESTIONS)
]


@pytest.mark.parametrize(("front", "name"), PAIRS, indirect=["front"])
def test_every_front_says_the_same(
    front: tuple[str, Front],
    session: Front,
    served: Front,
    name: str,
) -> None:
    question = QUESTIONS[name]
    which, ask = front
    wire = which.startswith("wire")
    expected, heard = (served if wire else session)(question), ask(question)
    assert heard.error == (STATES.get(name, expected.error) if wire else expected.error)
    assert heard.message == (WORDS.get(name, expected.message) if wire else expected.message)
    if expected.error is not None:
        return
    if heard.rows or not heard.loose:
        assert list(heard.names) == list(expected.names)
    assert len(heard.rows) == len(expected.rows)
    for row, wanted in zip(heard.rows, expected.rows, strict=True):
        for value, other, column in zip(row, wanted, expected.names, strict=True):
            assert _alike(value, other, heard.loose), (column, value, other)
    if heard.types is not None and expected.types is not None:
        assert list(map(_type, expected.types)) == list(map(_type, heard.types))
    if heard.notices is not None:
        assert list(heard.notices) == list(expected.notices or ())


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_served_session_differs_by_digits_that_mean_nothing(
    session: Front, served: Front, name: str
) -> None:
    """An estimate is a multiple of a tenth of its standard error at the coarsest (sums of a
    measure), so it moves by half of that and by what rounding the error adds."""
    question = QUESTIONS[name]
    one, other = session(question), served(question)
    assert (one.names, one.types, one.error, one.message, one.notices) == (
        other.names,
        other.types,
        other.error,
        other.message,
        other.notices,
    )
    bars = session(replace(question, error_bars=True))
    for exact, cut, barred in zip(one.rows, other.rows, bars.rows, strict=True):
        errors = dict(zip(bars.names, barred, strict=True))
        for column, value, changed in zip(one.names, exact, cut, strict=True):
            base = column.removesuffix("_low").removesuffix("_high").removesuffix("_stderr")
            error = errors.get(f"{base}_stderr", errors.get("n_stderr"))
            if value == changed:
                continue
            if isinstance(value, str):  # a summary's
                value, changed, error = _as_number(value), _as_number(changed), error or LARGE
            assert isinstance(value, float)
            assert error is not None
            assert abs(value - changed) <= 0.06 * error


# The standard error of a mean of dates in a summary, in seconds: more than two days.
LARGE = 2 * 86400.0


def _as_number(text: str) -> float:
    """A figure of a summary; a mean of dates in seconds."""
    try:
        return float(text)
    except ValueError:
        return datetime.fromisoformat(text).timestamp()


def _alike(value: Any, other: Any, loose: bool) -> bool:
    """Equal to the last bit and of the same type, where the front has types at all.

    PostgreSQL has no integers above 64 bits: they come as Decimals.
    """
    if value is None or other is None:
        return value is None and other is None
    if loose and isinstance(value, Decimal):
        return value == other if isinstance(other, Decimal) else float(value) == other
    if loose and not isinstance(other, bool | int | float | str):
        return str(value).replace("T", " ") == str(other)
    if isinstance(other, int) and isinstance(value, Decimal):
        return value == other
    return value == other and type(value) is type(other)


def _type(code: Any) -> str:
    """PostgreSQL's name of a type, by its number or by DuckDB's name."""
    from privsql.fronts.pgwire.protocol.types import kind_of, kind_of_oid

    found = kind_of_oid(code) if isinstance(code, int) else kind_of(code)
    assert found is not None
    return found.name
