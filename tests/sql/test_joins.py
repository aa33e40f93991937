"""Joins however they are written: the same answer as JOIN ... ON, or a refusal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from privsql.errors import Error
from privsql.session.session import Session
from tests.sql.clinic import publish

TABLES = {
    "places": pa.table({"job": ["eng", "law", "med"], "floor": [1, 2, 3], "wing": [10, 20, 10]}),
    "wings": pa.table({"wing": [10, 20], "named": ["east", "west"]}),
}
ON = " JOIN places ON patients.job = places.job"
BOTH = ON + " JOIN wings ON places.wing = wings.wing"

# Each text after FROM, and the one that it means.
SAME = {
    "comma": ("patients, places WHERE patients.job = places.job", f"patients{ON}"),
    "published last": ("places p, patients t WHERE t.job = p.job", f"patients{ON}"),
    "turned round": ("patients, places WHERE places.job = patients.job", f"patients{ON}"),
    "no qualifier": ("patients, places WHERE floor > 1 AND patients.job = places.job",
                     f"patients{ON} WHERE floor > 1"),
    "three": (
        "wings w, places p, patients t WHERE p.wing = w.wing AND t.job = p.job AND named = 'east'",
        f"patients{BOTH} WHERE named = 'east'",
    ),
    "chain of equalities in any order": (
        "patients t, wings w, places p WHERE w.wing = p.wing AND p.job = t.job", f"patients{BOTH}"
    ),
    "cross join": ("patients CROSS JOIN places WHERE patients.job = places.job", f"patients{ON}"),
    "condition in ON": (
        "patients t JOIN places p ON t.job = p.job AND p.floor > 1",
        f"patients{ON} WHERE floor > 1",
    ),
    "sensitive condition in ON": (
        "patients t JOIN places p ON t.job = p.job AND t.disease = 'flu'",
        f"patients{ON} WHERE disease = 'flu'",
    ),
    "comma and JOIN": (
        "wings w, patients t JOIN places p ON t.job = p.job WHERE p.wing = w.wing",
        f"patients{BOTH}",
    ),
    "a key inside of OR": (
        "patients t, places p WHERE (t.job = p.job AND p.floor = 1) OR (p.job = t.job AND FALSE)"
        " OR (t.job = p.job AND p.floor = 3)",
        None,
    ),
    "the same key in every branch": (
        "patients t, places p WHERE (t.job = p.job AND p.floor = 1)"
        " OR (t.job = p.job AND p.floor = 3)",
        f"patients{ON} WHERE floor <> 2",
    ),
    "LEFT JOIN with a condition on its table": (
        "patients t LEFT JOIN places p ON t.job = p.job AND p.floor > 1",
        "patients t LEFT JOIN (SELECT job, floor, wing FROM places WHERE floor > 1) p"
        " ON t.job = p.job",
    ),
    "sub-select": (
        "(SELECT * FROM patients WHERE disease = 'flu') t, places p WHERE t.job = p.job",
        f"patients{ON} WHERE disease = 'flu'",
    ),
    "no key": ("patients, places", None),
    "a key that leads nowhere": ("patients, places WHERE floor = 1", None),
    "an unequal key": ("patients, places WHERE patients.job <> places.job", None),
    "two published tables": ("patients a, patients b WHERE a.job = b.job", None),
    "a condition on both in LEFT JOIN": (
        "patients t LEFT JOIN places p ON t.job = p.job AND t.age > p.floor", None
    ),
}  # fmt: skip

ASKED = "SELECT COUNT(*) AS n, COUNT(*) FILTER (WHERE disease = 'flu') AS flu FROM "

WITH = {
    "CTE as dimension": (
        "WITH d AS (SELECT job AS j, floor FROM places) " + ASKED
        + "patients JOIN d ON patients.job = d.j WHERE floor > 1",
        ASKED + f"patients{ON} WHERE floor > 1",
    ),
    "CTE of CTE, a star, comma": (
        "WITH e AS (SELECT * FROM places WHERE floor > 1), d AS (SELECT * FROM e) " + ASKED
        + "d, patients WHERE patients.job = d.job",
        ASKED + f"patients{ON} WHERE floor > 1",
    ),
    "CTE with its own names": (
        "WITH d(j, f) AS (SELECT job, floor FROM places) " + ASKED
        + "patients JOIN d ON patients.job = d.j WHERE f > 1",
        ASKED + f"patients{ON} WHERE floor > 1",
    ),
    "VALUES as dimension": (
        ASKED + "patients, (VALUES ('law', 2), ('med', 3)) AS d(j, f) WHERE patients.job = d.j",
        ASKED + f"patients{ON} WHERE floor > 1",
    ),
    "a star over a sub-query": (
        ASKED + "patients JOIN (SELECT * FROM places) d ON patients.job = d.job WHERE d.floor > 1",
        ASKED + f"patients{ON} WHERE floor > 1",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    made = Session(publish(Path(tmp_path_factory.mktemp("joins")), 0.5), tables=TABLES)
    yield made
    made.close()


def told(session: Session, sql: str) -> object:
    found = session.run(sql)
    bars = {i: bar.to_pylist() for i, bar in found.bars.items()} if found.bars else {}
    return found.table.to_pylist(), str(bars)


@pytest.mark.parametrize("name", SAME)
def test_a_join_is_what_it_means(session: Session, name: str) -> None:
    text, meant = SAME[name]
    if meant is None:
        with pytest.raises(Error):
            session.run(ASKED + text)
    else:
        assert told(session, ASKED + text) == told(session, ASKED + meant)


@pytest.mark.parametrize("name", WITH)
def test_a_dimension_is_a_query(session: Session, name: str) -> None:
    text, meant = WITH[name]
    assert told(session, text) == told(session, meant)


def test_several_rows_for_a_key_are_refused(tmp_path: Path) -> None:
    twice = {"places": pa.table({"job": ["eng", "eng"], "floor": [1, 2]})}
    session = Session(publish(tmp_path, 0.5), tables=twice)
    with pytest.raises(Error, match="several rows for one key"):
        session.run(ASKED + "patients, places WHERE patients.job = places.job")
    session.close()
