"""Queries over answers: what passes through them, and what is refused there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from privsql.errors import NotSupportedError
from privsql.session.session import Session
from tests.sql.clinic import publish

INNER = "(SELECT job, COUNT(*) AS n FROM patients WHERE disease = 'flu' GROUP BY job) AS q"


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    made = Session(publish(tmp_path_factory.mktemp("clinic"), 0.4))
    yield made
    made.close()


@pytest.mark.parametrize(
    "items",
    [
        "* REPLACE (n + 1 AS n)",
        "* RENAME (n AS m)",
        "privsql_low(job)",
        "privsql_observed(n)",
        "privsql_stderr(n + 1)",
    ],
)
def test_what_is_refused(session: Session, items: str) -> None:
    with pytest.raises(NotSupportedError):
        session.run(f"SELECT {items} FROM {INNER}")


def test_a_star_keeps_estimates_and_their_errors(session: Session) -> None:
    alone = session.run(
        "SELECT job, COUNT(*) AS n FROM patients WHERE disease = 'flu' GROUP BY job"
    )
    for items in ("*", "q.*", "job, n", "* EXCLUDE (job)"):
        outer = session.run(f"SELECT {items} FROM {INNER}")
        place = outer.table.column_names.index("n")
        assert sorted(map(str, outer.bars[place].to_pylist())) == sorted(
            map(str, alone.bars[1].to_pylist())
        )
