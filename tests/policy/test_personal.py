"""An answer about one personal group is refused however it is spelled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from privsql.policy.personal import PersonalGroup
from privsql.session.session import Session
from tests.sql.clinic import publish

ONE = "job = 'eng' AND gender = 'F' AND favourite = 'flu'"


def opened(folder: Path, policy: str, least: int = 10) -> Session:
    places = pa.table({"job": ["eng", "law", "med"], "floor": [1, 2, 3]})
    return Session(publish(folder, 0.5, policy=policy, least=least), tables={"places": places})


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    made = opened(tmp_path_factory.mktemp("refuse"), "refuse")
    yield made
    made.close()


SINGLE = [
    f"SELECT COUNT(*) FROM patients WHERE disease = 'flu' AND {ONE}",
    f"SELECT AVG(age) FROM patients WHERE {ONE}",
    f"SELECT SUM(cost) FROM patients WHERE age > 30 AND {ONE}",
    f"SELECT MEDIAN(age) FROM patients WHERE {ONE}",
    f"SELECT MODE(disease) FROM patients WHERE {ONE}",
    "SELECT COUNT(*) FROM patients WHERE disease = 'flu' AND job BETWEEN 'eng' AND 'eng'"
    " AND gender IN ('F') AND favourite LIKE 'fl%'",
    f"SELECT COUNT(*) FROM patients WHERE disease = 'flu' AND ({ONE} OR job = 'nobody')",
    "SELECT COUNT(*) FROM patients WHERE disease = 'flu' AND NOT (job <> 'eng' OR gender <> 'F'"
    " OR favourite <> 'flu')",
    "SELECT COUNT(*) FROM patients JOIN places USING (job) WHERE disease = 'flu' AND floor = 1"
    " AND gender = 'F' AND favourite = 'flu'",
    f"WITH f AS (SELECT disease, age FROM patients WHERE {ONE}) SELECT COUNT(disease) FROM f",
    f"SELECT COUNT(*) FILTER (WHERE disease = 'flu' AND {ONE}) FROM patients",
    f"SELECT SUM(CASE WHEN {ONE} AND disease = 'flu' THEN 1 ELSE 0 END) FROM patients",
    f"SELECT SUM(CASE WHEN {ONE} THEN age END) FROM patients",
    f"SELECT COUNT(*) FROM patients WHERE disease = 'flu' AND {ONE} AND cost > 20",
    f"SELECT COUNT(*) * 2 AS twice FROM patients WHERE disease = 'flu' AND {ONE}",
    f"SELECT n FROM (SELECT COUNT(*) AS n FROM patients WHERE disease = 'flu' AND {ONE})",
    f"SELECT COUNT(*) FROM patients WHERE disease = favourite AND {ONE}",
    f"SELECT AVG(CASE WHEN {ONE} THEN age ELSE 0 END) FROM patients",
    f"SELECT AVG(age) FILTER (WHERE {ONE} OR age < 0) FROM patients",
    f"SELECT CORR(age, CAST({ONE} AS INT)) FROM patients",
    # Public columns inside sensitive conditions: whoever is not of the group tells nothing.
    f"SELECT COUNT(*) FROM patients WHERE disease = CASE WHEN {ONE} THEN 'flu' ELSE 'no' END",
    f"SELECT COUNT(*) FROM patients WHERE disease = 'flu' AND age > CASE WHEN {ONE} THEN 0 ELSE"
    " 1000 END",
    "SELECT COUNT(*) FROM patients WHERE disease || job || gender || favourite = 'fluengFflu'",
]


@pytest.mark.parametrize("text", SINGLE)
def test_every_spelling_of_one_group_is_refused(session: Session, text: str) -> None:
    with pytest.raises(PersonalGroup) as problem:
        session.run(text)
    assert problem.value.sqlstate == "42501"
    assert problem.value.hint


def test_cells_of_a_group_by_are_empty_and_none_is_dropped(session: Session) -> None:
    text = (
        "SELECT job, gender, favourite, COUNT(*) AS n, COUNT(*) FILTER (WHERE disease = 'flu')"
        " AS f, AVG(age) AS a FROM patients GROUP BY job, gender, favourite"
    )
    outcome = session.run(text)
    assert outcome.table.num_rows == 18
    assert set(outcome.table.column("f").to_pylist()) == {None}
    for bars in outcome.bars.values():
        assert all(set(bars.column(c).to_pylist()) == {None} for c in bars.column_names)
    assert None not in outcome.table.column("n").to_pylist()  # public counts are nobody's secret
    assert [notice.code for notice in outcome.notices] == ["personal-group"]


def test_only_the_personal_cells_are_empty(session: Session) -> None:
    text = (
        "SELECT job, COUNT(*) FILTER (WHERE disease = 'flu' AND gender = 'F' AND"
        " favourite = 'flu') AS one, COUNT(*) FILTER (WHERE disease = 'flu') AS all_of_them"
        " FROM patients GROUP BY job"
    )
    outcome = session.run(text)
    assert set(outcome.table.column("one").to_pylist()) == {None}
    assert None not in outcome.table.column("all_of_them").to_pylist()


@pytest.mark.parametrize(
    "key",
    [
        f"CASE WHEN {ONE} THEN disease END",
        f"{ONE} AND disease = 'flu'",
        f"CASE WHEN {ONE} THEN age // 10 ELSE 99 END",
    ],
)
def test_sensitive_keys_do_not_single_out_a_group(session: Session, key: str) -> None:
    rows = session.run(f"SELECT {key} AS k, COUNT(*) AS n FROM patients GROUP BY 1").table
    shown = [row for row in rows.to_pylist() if row["n"] is not None]
    # What is left is a public count: everybody who is not of that group.
    assert rows.num_rows > 1
    assert [row["k"] for row in shown] in ([], [99])


def test_one_class_of_a_sensitive_key_can_be_personal(session: Session) -> None:
    text = (
        f"SELECT disease, SUM(CASE WHEN {ONE} AND disease = 'flu' THEN 1 WHEN disease = 'hiv'"
        " THEN 1 ELSE 0 END) AS n FROM patients GROUP BY disease"
    )
    rows = {row["disease"]: row["n"] for row in session.run(text).table.to_pylist()}
    assert rows["flu"] is None
    assert rows["hiv"] is not None


def test_covariances_of_a_refused_cell_are_hidden(session: Session) -> None:
    text = (
        "SELECT job, gender, favourite, COUNT(*) * 2 + AVG(age) AS both FROM patients"
        " WHERE disease = 'flu' GROUP BY job, gender, favourite"
    )
    (bars,) = session.run(text).bars.values()
    hidden = {tuple(row.values()) for row in bars.to_pylist()}
    assert hidden == {(None, None, None, False)}


def test_a_refused_cell_hides_what_was_observed(session: Session) -> None:
    text = (
        "SELECT job, gender, favourite, privsql_observed(COUNT(*)) AS o, privsql_stderr(COUNT(*))"
        " AS s FROM patients WHERE disease = 'flu' GROUP BY ALL"
    )
    outcome = session.run(text)
    assert {*outcome.table.column("o").to_pylist(), *outcome.table.column("s").to_pylist()} == {
        None
    }


def test_rollup_hides_the_fine_and_shows_the_coarse(session: Session) -> None:
    text = (
        "SELECT job, gender, favourite, COUNT(*) AS n FROM patients WHERE disease = 'flu'"
        " GROUP BY ROLLUP (job, gender, favourite)"
    )
    rows = session.run(text).table.to_pylist()
    assert all((r["n"] is None) == (r["favourite"] is not None) for r in rows)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT COUNT(*) FROM patients WHERE disease = 'flu'",
        "SELECT COUNT(*) FROM patients WHERE disease = 'flu' AND job = 'eng'",
        f"SELECT COUNT(*), AVG(cost) FROM patients WHERE {ONE}",
        "SELECT COUNT(*) FROM patients WHERE disease = 'flu' AND job = 'nobody'",
        "SELECT disease, COUNT(*) FROM patients GROUP BY disease",
    ],
)
def test_what_is_no_person_is_answered(session: Session, text: str) -> None:
    assert "personal-group" not in [notice.code for notice in session.run(text).notices]


def test_few_rows_are_refused_whatever_group_they_are_of(session: Session) -> None:
    text = "SELECT COUNT(*) FROM patients WHERE disease = 'flu' AND cost = 17 AND gender = 'F'"
    assert session.run(text).table.num_rows == 1
    with pytest.raises(PersonalGroup, match="fewer than 10 rows"):
        session.run(text + " AND job = 'eng' AND favourite <> 'none'")


def test_few_rows_by_weight_are_few(session: Session) -> None:
    text = (
        "SELECT SUM(CASE WHEN job = 'eng' AND cost = 17 AND favourite = 'flu' THEN 1000000 ELSE 1"
        " END) FROM patients WHERE disease = 'flu'"
    )
    with pytest.raises(PersonalGroup, match="fewer than 10 rows"):
        session.run(text)
    assert session.run("SELECT SUM(cost) FROM patients WHERE disease = 'flu'").table.num_rows == 1
    heavy = "SUM(CASE WHEN job = 'eng' AND cost = 17 AND favourite = 'flu' THEN 1e6 ELSE 1 END)"
    for text in (
        f"SELECT disease, {heavy} AS n FROM patients GROUP BY disease",
        f"SELECT gender, {heavy} AS n FROM patients WHERE disease = 'flu' GROUP BY gender",
    ):
        assert set(session.run(text).table.column("n").to_pylist()) == {None}


def test_flag_answers_and_says_so(tmp_path: Path) -> None:
    session = opened(tmp_path, "flag")
    outcome = session.run(SINGLE[0])
    assert outcome.table.column(0).to_pylist()[0] is not None
    assert [notice.code for notice in outcome.notices] == ["personal-group"]
    assert (outcome.personal.policy, outcome.personal.personal) == ("flag", 1)
    assert outcome.personal.refused == 0
    some = session.run(
        "SELECT job, gender = 'F' AND favourite = 'flu' AS g, COUNT(*) FROM patients"
        " WHERE disease = 'flu' GROUP BY ALL"
    )
    assert some.table.column(2).null_count == 0
    (notice,) = some.notices
    assert notice.text.startswith("3 cells are about one personal group: ")
    assert sorted(notice.text.split(": ")[1].split("; ")) == ["eng, True", "law, True", "med, True"]
    session.close()


def test_allow_says_nothing(tmp_path: Path) -> None:
    session = opened(tmp_path, "allow", least=0)
    assert session.run(SINGLE[0]).notices == ()
    session.close()


def test_explain_says_what_would_happen(session: Session) -> None:
    for text, said in (
        (SINGLE[0], "refuse: 1 of 1 cells are about one personal group"),
        (SINGLE[-1], "refuse: 1 of 1 cells are about one personal group"),
        ("SELECT COUNT(*) FROM patients WHERE disease = 'flu' AND cost > 20", "refuse: 0 of 1"),
        ("SELECT disease, COUNT(*) FROM patients GROUP BY 1", "refuse: 0 of 4 cells"),
        (
            "SELECT COUNT(*) FROM patients WHERE disease = 'flu'",
            "no sensitive value is revealed, or",
        ),
        (
            "SELECT job, COUNT(*) FROM patients GROUP BY 1",
            "no sensitive value is revealed, or only totals",
        ),
    ):
        assert f"policy: {said}" in session.explain(text)
        assert f"policy: {said}" in session.explain(text, verbose=True)
    rows = session.run(f"EXPLAIN RECONSTRUCTION {SINGLE[0]}").table.to_pylist()
    assert any("1 would not be answered" in str(row.values()) for row in rows)
