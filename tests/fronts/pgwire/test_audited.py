"""Tables of a release's audit, asked over the wire."""

from __future__ import annotations

import psycopg
import pytest

from tests.fronts.pgwire.conftest import Running


def test_tables_of_the_audit_are_answered(running: Running) -> None:
    with psycopg.connect(running.dsn(), autocommit=True) as connection:
        found = connection.execute(
            "SELECT name, epsilon FROM privsql.audit_columns WHERE epsilon > %s ORDER BY name", [0]
        ).fetchall()
    assert found
    assert all(epsilon > 0 for _, epsilon in found)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM privsql.tuples",
        'SELECT * FROM privsql."domain of illness"',
        "SELECT count(*) FROM patients, privsql.audit_groups",
        "SELECT count(*) FROM privsql.audit_groups UNION ALL SELECT count(*) FROM patients",
    ],
)
def test_nothing_else_of_that_schema_is(running: Running, text: str) -> None:
    with psycopg.connect(running.dsn(), autocommit=True) as connection:
        with pytest.raises(psycopg.Error) as problem:
            connection.execute(text)
        assert problem.value.sqlstate in ("0A000", "42P01")
        assert connection.execute("SELECT 1").fetchone() == (1,)
