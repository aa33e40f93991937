"""What a server adds: earlier answers, coarse digits, the log; and rows where they are shown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from privsql.errors import Error
from privsql.policy.history import History
from privsql.policy.journal import Journal, JournalError
from privsql.policy.personal import PersonalGroup, TooClose
from privsql.session.gate import Served
from privsql.session.session import Session
from tests.policy.journals import read
from tests.sql.clinic import publish

GROUP = "job = 'eng' AND gender = 'F' AND favourite = 'flu'"
FLU = "FROM patients WHERE disease = 'flu'"


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish(tmp_path_factory.mktemp("served"), 0.5, policy="refuse", least=10)


@pytest.fixture
def session(release: Path) -> Iterator[Session]:
    made = Session(release, served=Served("ann", History(None)))
    yield made
    made.close()


CHAINS = {
    "everybody but one group": [
        f"SELECT COUNT(*) {FLU}",
        f"SELECT COUNT(*) {FLU} AND NOT ({GROUP})",
    ],
    "A or g, then A": [
        f"SELECT COUNT(*) {FLU} AND job = 'eng'",
        f"SELECT COUNT(*) {FLU} AND job = 'eng' AND NOT ({GROUP})",
    ],
    "another condition, the same rows": [
        "SELECT AVG(age) FROM patients WHERE job = 'eng'",
        f"SELECT SUM(age) FROM patients WHERE job = 'eng' AND NOT ({GROUP})",
    ],
    "a chain of three": [
        f"SELECT COUNT(*) {FLU} AND job = 'eng'",
        f"SELECT COUNT(*) {FLU} AND job = 'eng' AND gender = 'M'",
        f"SELECT COUNT(*) {FLU} AND job = 'eng' AND gender = 'F' AND favourite <> 'flu'",
    ],
    "one heavy weight": [f"SELECT SUM(CASE WHEN {GROUP} THEN 1000000 ELSE 1 END) {FLU}"],
    "the other way round for one group": [
        f"SELECT COUNT(*) FROM patients WHERE (disease = 'flu') = ({GROUP})"
    ],
    "weights that cancel within the group": [
        f"SELECT SUM(CASE WHEN {GROUP} AND cost = 15 THEN 1000000 WHEN {GROUP} AND cost = 17"
        f" THEN -750000 ELSE 1 END) {FLU}"
    ],
    "and beside an earlier answer": [
        f"SELECT COUNT(*) {FLU} AND NOT ({GROUP})",
        f"SELECT SUM(CASE WHEN NOT ({GROUP}) THEN 1 WHEN cost = 15 THEN 100 WHEN cost = 17"
        f" THEN -75 ELSE 0 END) {FLU}",
    ],
    "an error is an answer, too": [
        f"SELECT SUM(CASE WHEN {GROUP} THEN 4 WHEN job = 'law' AND gender = 'F' AND"
        f" favourite = 'flu' THEN 2 ELSE 0 END) {FLU}"
    ],
    "both in one statement": [
        f"SELECT (SELECT COUNT(*) {FLU}) - (SELECT COUNT(*) {FLU} AND NOT ({GROUP})) AS d"
    ],
}


@pytest.mark.parametrize("name", CHAINS)
def test_answers_cannot_be_subtracted(session: Session, name: str) -> None:
    *before, last = CHAINS[name]
    for text in before:
        assert session.run(text).table.num_rows
    with pytest.raises(PersonalGroup) as problem:  # over few rows, by weight, or too close
        session.run(last)
    assert problem.value.code == "difference" or "weights" in name
    assert problem.value.sqlstate == "42501"
    # The session goes on, and what was answered once is answered again.
    for text in before:
        assert not session.run(text).personal


def test_a_second_cell_is_suppressed(session: Session) -> None:
    text = f"SELECT favourite, COUNT(*) AS n {FLU} AND job = 'eng' AND gender = 'F' GROUP BY 1"
    total = f"SELECT COUNT(*) {FLU} AND job = 'eng' AND gender = 'F'"
    assert session.run(total).table.num_rows == 1
    outcome = session.run(text)  # three cells, each one group
    assert outcome.table.column("n").null_count == 3
    split = text.replace("SELECT favourite", "SELECT favourite = 'flu' AS k")
    outcome = session.run(split)  # one cell is a group; the other is the total without it
    assert outcome.table.column("n").null_count == 2
    assert (outcome.personal.personal, outcome.personal.close, outcome.personal.refused) == (
        1,
        1,
        2,
    )
    assert [n.code for n in outcome.notices] == ["personal-group", "difference"]


def test_what_people_ask_is_answered(session: Session) -> None:
    for text in (
        "SELECT disease, COUNT(*) FROM patients GROUP BY disease",
        "SELECT job, AVG(age) FROM patients GROUP BY job",
        "SELECT job, gender, COUNT(*) FILTER (WHERE disease = 'flu') FROM patients GROUP BY ALL",
        "SELECT gender, favourite, MEDIAN(age) FROM patients GROUP BY ALL",
        f"SELECT COUNT(*) {FLU} AND cost > 50",
        f"SELECT job, SUM(cost), AVG(cost) {FLU} GROUP BY job",
        f"SELECT gender, COUNT(*) FILTER (WHERE age > 40) * 1.0 / COUNT(*) {FLU} GROUP BY 1",
        f"SELECT COUNT(*) {FLU} AND cost BETWEEN 20 AND 60",
        f"SELECT cost // 25 AS c, COUNT(*) {FLU} GROUP BY c",
    ):
        assert not session.run(text).personal.refused


def test_users_are_apart_and_restarts_are_not_a_way_out(release: Path, tmp_path: Path) -> None:
    whole, rest = CHAINS["everybody but one group"]
    with History(tmp_path / "history") as history:
        first = Session(release, served=Served("ann", history))
        first.run(whole)
        first.close()
        other = Session(release, served=Served("bob", history))
        assert other.run(rest).table.num_rows  # collusion is not seen
        other.close()
    with History(tmp_path / "history") as history:
        again = Session(release, served=Served("ann", history))
        with pytest.raises(TooClose):
            again.run(rest)
        again.close()


def test_embedded_use_keeps_no_history(release: Path) -> None:
    session = Session(release)
    for text in CHAINS["everybody but one group"]:
        assert session.run(text).table.num_rows == 1
    session.close()


def test_digits_hide_nothing(release: Path) -> None:
    session = Session(release, served=Served("ann"))  # no history: digits on their own
    plain = session.run(f"SELECT COUNT(*) AS n, privsql_stderr(COUNT(*)) AS s {FLU}")
    text = f"SELECT SUM(CASE WHEN {GROUP} THEN 1.0000001 ELSE 1 END) AS n {FLU}"
    spied = session.run(text)
    (shown,), (count,) = spied.table.column("n").to_pylist(), plain.table.column("n").to_pylist()
    (error,) = plain.table.column("s").to_pylist()
    assert isinstance(error, float)
    assert error == float(f"{error:.2e}")
    assert _multiple(count, error / 100)
    assert _multiple(shown, error / 10)  # weights of one's own: a tenth
    # Arithmetic brings nothing back.
    scaled = session.run(text.replace(" AS n", " * 1e9 - 7e11 AS n"))
    assert isinstance(shown, float)
    assert scaled.table.column("n").to_pylist()[0] == pytest.approx(shown * 1e9 - 7e11, rel=1e-12)
    (bars,) = spied.bars.values()
    for name in ("low", "high"):
        assert _multiple(bars.column(name).to_pylist()[0], error / 100)
    session.close()


def _multiple(value: object, step: float) -> bool:
    assert isinstance(value, float)
    return abs(value / step - round(value / step)) < 1e-6


def test_embedded_answers_keep_all_digits(release: Path) -> None:
    session = Session(release)
    text = f"SELECT SUM(CASE WHEN job = 'eng' THEN 1.001 ELSE 1 END) AS n {FLU}"
    exact = session.run(text).table.column("n").to_pylist()[0]
    plain = session.run(f"SELECT COUNT(*) AS n {FLU}").table.column("n").to_pylist()[0]
    assert exact != plain
    session.close()


TOGETHER = {
    "a difference of two counts": (
        f"SELECT COUNT(*) FILTER (WHERE (job = 'law' OR {GROUP}) AND disease = 'flu')"
        " - COUNT(*) FILTER (WHERE job = 'law' AND disease = 'flu') AS n FROM patients"
    ),
    "one heavy weight": f"SELECT SUM(CASE WHEN {GROUP} THEN 1e9 ELSE 1 END) AS n {FLU}",
    "two blocks": CHAINS["both in one statement"][0],
    "with a measure": (
        f"SELECT COUNT(*) FILTER (WHERE cost < 30 AND (job = 'law' OR {GROUP})),"
        f" COUNT(*) FILTER (WHERE cost < 30 AND job = 'law') {FLU}"
    ),
    "the last digits": (
        f"SELECT SUM(CASE WHEN {GROUP} THEN 1.000000001 ELSE 1 END), COUNT(*) {FLU}"
    ),
    "the last digits of rows": (
        "SELECT SUM(CASE WHEN cost < 20 THEN 1.000000001 ELSE 1 END),"
        f" COUNT(*) FILTER (WHERE job = 'eng') {FLU}"
    ),
}


@pytest.mark.parametrize("name", TOGETHER)
def test_embedded_use_judges_the_aggregates_of_one_statement(release: Path, name: str) -> None:
    session = Session(release)
    with pytest.raises(PersonalGroup) as problem:
        session.run(TOGETHER[name])
    assert "aggregates of this statement" in str(problem.value) or "weight" in name
    session.close()


def test_the_log_has_every_statement_and_no_result(release: Path, tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    session = Session(release, served=Served("ann", History(None), Journal(log)))
    outcome = session.run(f"SELECT COUNT(*) AS n {FLU}")
    session.run("SET privsql.estimator = 'inversion'")
    for wrong in (f"SELECT COUNT(*) {FLU} AND {GROUP}", "DROP TABLE patients", "SELECT x FROM no"):
        with pytest.raises(Error):
            session.run(wrong)
    session.run(f"SELECT job, gender, favourite, COUNT(*) {FLU} GROUP BY ALL")
    session.close()
    found = [(entry.decision, entry.reason) for entry in read(log)]
    assert found == [
        ("answered", ""),
        ("answered", ""),
        ("refused", "personal-group"),
        ("refused", "unsupported"),
        ("failed", "unknown-name"),
        ("flagged", "personal-group"),
    ]
    text = log.read_text(encoding="utf-8")
    assert str(outcome.table.column("n").to_pylist()[0]) not in text
    assert '"user":"ann"' in text


def test_what_cannot_be_logged_is_not_answered(release: Path, tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    session = Session(release, served=Served("ann", None, Journal(log)))
    log.unlink()
    log.mkdir()
    with pytest.raises(JournalError):
        session.run(f"SELECT COUNT(*) {FLU}")
    session.close()


# -- rows ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def open_release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rows")
    return publish(folder, 0.5, policy="refuse", least=10, more='rows = "allow"\n')


def test_rows_are_shown_where_the_publisher_says_so(open_release: Path) -> None:
    session = Session(open_release)
    outcome = session.run("SELECT * FROM patients")
    names = ["job", "gender", "favourite", "cost", "disease", "age", "seen"]
    assert outcome.table.column_names == names
    assert outcome.table.num_rows == 4000
    assert [n.code for n in outcome.notices] == ["published-rows"]
    some = session.run(
        "SELECT p.job AS j, age + 1 AS older FROM patients p WHERE gender = ?"
        " ORDER BY older LIMIT 3",
        ["F"],
    )
    assert some.table.column_names == ["j", "older"]
    older = np.asarray(some.table.column("older").to_numpy())
    assert (np.diff(older) >= 0).all()
    # Aggregates are reconstructed as ever, and refused as ever.
    assert session.run(f"SELECT COUNT(*) {FLU}").bars
    with pytest.raises(PersonalGroup):
        session.run(f"SELECT COUNT(*) {FLU} AND {GROUP}")
    session.close()


def test_rows_have_an_order_of_their_own_in_each_session(open_release: Path) -> None:
    seen = []
    for _ in range(2):
        session = Session(open_release)
        table = session.run("SELECT seen FROM patients").table
        seen.append(np.asarray(table.column("seen").to_numpy()))
        assert (
            session.run("SELECT seen FROM patients").table.column("seen").to_numpy() == seen[-1]
        ).all()
        session.close()
    assert (seen[0] != seen[1]).any()
    assert (np.sort(seen[0]) == np.sort(seen[1])).all()


@pytest.mark.parametrize(
    "text",
    [
        "SELECT privsql_group FROM patients",
        "SELECT rowid FROM patients",
        "SELECT * EXCLUDE (job) FROM patients",
        "SELECT COLUMNS(*) FROM patients",
        "SELECT disease, random() FROM patients",
        "SELECT DISTINCT job, disease, age FROM patients ORDER BY random()",
    ],
)
def test_tricks_with_rows_are_refused(open_release: Path, text: str) -> None:
    session = Session(open_release)
    with pytest.raises(Error):
        session.run(text)
    session.close()


def test_rows_are_not_shown_otherwise(session: Session) -> None:
    for text in ("SELECT * FROM patients", "SELECT disease FROM patients LIMIT 1"):
        with pytest.raises(Error):
            session.run(text)
