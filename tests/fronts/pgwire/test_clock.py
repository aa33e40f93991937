"""What time it is: for a client as in PostgreSQL, for a release one moment a statement."""

from __future__ import annotations

import datetime as dt

import psycopg
import pytest

from privsql.errors import Error
from privsql.fronts.pgwire.clock import timed
from privsql.sql.postgres.commands import NotTranslated
from privsql.sql.postgres.read import read
from tests.fronts.pgwire.conftest import Running

CLOCKS = ("now()", "current_timestamp", "clock_timestamp()", "statement_timestamp()")
MINUTE = dt.timedelta(minutes=1)
TOKYO = dt.timezone(dt.timedelta(hours=9))


@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
@pytest.mark.parametrize("clock", [*CLOCKS, "transaction_timestamp()", "pg_catalog.now()"])
def test_a_clock_tells_the_time_with_its_zone(running: Running, clock: str, binary: bool):
    with psycopg.connect(running.dsn(), autocommit=True) as connection:
        cursor = connection.cursor(binary=binary)
        found = cursor.execute(f"SELECT {clock}").fetchone()[0]
        assert abs(found - dt.datetime.now(dt.UTC)) < MINUTE
        assert cursor.description[0].name == clock.removeprefix("pg_catalog.").removesuffix("()")


@pytest.mark.parametrize("where", ["", " FROM patients"], ids=["alone", "release"])
def test_days_and_hours_are_those_of_the_clients_zone(running: Running, where: str):
    with psycopg.connect(running.dsn(), autocommit=True) as connection:
        connection.execute("SET TimeZone = 'Asia/Tokyo'")
        before = dt.datetime.now(TOKYO).replace(tzinfo=None)
        sql = "SELECT current_date, localtimestamp, now(), extract(epoch from now())"
        more = ", localtime" + (", count(*)" if where else "")
        day, local, now, epoch, time, *_ = connection.execute(sql + more + where).fetchone()
        after = dt.datetime.now(TOKYO).replace(tzinfo=None)
    assert before <= local <= after
    assert before.date() <= day <= after.date()
    # A release knows no zones.
    assert before <= (now if where else now.astimezone(TOKYO).replace(tzinfo=None)) <= after
    assert abs(float(epoch) - after.replace(tzinfo=TOKYO).timestamp()) < 60
    assert dt.datetime.combine(day, time) == local


QUESTIONS = [
    "seen < now()",
    "seen < now() - interval '1 day'",
    "seen BETWEEN timestamp '2024-01-01' AND current_timestamp",
    "seen < current_date",
    "seen < localtimestamp",
    "seen < date_trunc('month', clock_timestamp())",
    "seen < now() AT TIME ZONE 'Asia/Tokyo'",
    "seen < CAST((NOW() + (INTERVAL '-30 day')) AS date)",
    "cost < extract(epoch from now())",
]


@pytest.mark.parametrize("condition", QUESTIONS)
def test_a_question_with_a_clock_in_it_is_answered(running: Running, condition: str):
    """All that was seen is of 2024, so that the answer is everybody."""
    sql = f"SELECT count(*) FROM patients WHERE {condition}"
    with psycopg.connect(running.dsn(), autocommit=True) as connection:
        assert connection.execute(sql).fetchone() == (4000,)
        cursor = connection.cursor()
        for wanted in (1000, 10):  # prepared once, the time is bound each time
            given = cursor.execute(f"{sql} AND cost < %s", (wanted,), prepare=True).fetchone()
            assert (given == (4000,)) == (wanted == 1000)


def test_a_statement_has_one_moment():
    """No clock is left in what is scanned or reconstructed: the time is bound, and once."""
    [made] = read(
        "SELECT now(), count(*) FROM t WHERE a < now() AND b = $2 AND c < current_timestamp"
        " AND d < current_date AND e < (now() AT TIME ZONE 'UTC') AND age(f) > interval '1 day'"
    )
    assert made.parameters == 2
    assert sorted(made.clocks) == ["DATE", "TIMESTAMP", "TIMESTAMPTZ"]
    words = made.text.lower().replace(" as now", "")
    assert not [word for word in ("now", "current_", "local", "age(a") if word in words]
    noon = dt.datetime(2024, 12, 31, 20, tzinfo=dt.UTC)
    values = dict(zip(made.clocks, timed(made, ["x", "y"], "Asia/Tokyo", noon)[2:], strict=True))
    assert values == {
        "DATE": dt.date(2025, 1, 1),
        "TIMESTAMP": dt.datetime(2025, 1, 1, 5),
        "TIMESTAMPTZ": noon,
    }
    assert "AGE(CAST(CAST($" in made.text


def test_values_that_are_missing_are_not_taken_from_the_clock():
    [made] = read("SELECT count(*) FROM t WHERE a = $1 AND b < now()")
    assert list(timed(made, [], "UTC")) == []


@pytest.mark.parametrize("clock", ["current_timestamp(2)", "localtime(0)", "timeofday()"])
def test_other_clocks_are_refused(running: Running, clock: str):
    with (
        psycopg.connect(running.dsn(), autocommit=True) as connection,
        pytest.raises(psycopg.Error),
    ):
        connection.execute(f"SELECT {clock}")
    if clock != "timeofday()":
        with pytest.raises(NotTranslated):
            read(f"SELECT count(*) FROM t WHERE a < {clock}")


def test_digits_are_cut(running: Running):
    with psycopg.connect(running.dsn(), autocommit=True) as connection:
        found = connection.execute("SELECT current_timestamp(0), localtimestamp(3)").fetchone()
    assert (found[0].microsecond, found[1].microsecond % 1000) == (0, 0)


def test_an_embedded_session_compares_with_the_local_time(running: Running):
    """DuckDB's now() has a zone, which a column without one cannot be compared with."""
    version = running.house.versions()["patients"]
    with running.house.lease(version, "ann") as session:
        with pytest.raises(Error, match="time zone"):
            session.run("SELECT count(*) FROM patients WHERE seen < now()")
        answer = session.run("SELECT count(*) FROM patients WHERE seen < localtimestamp")
        assert answer.table.num_rows == 1
