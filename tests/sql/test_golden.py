from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from privsql.fronts.session import Session
from tests.sql.clinic import publish
from tests.sql.golden import CASES, Case, cases, said


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    opened = Session(publish(tmp_path_factory.mktemp("golden"), 0.5))
    yield opened
    opened.close()


EVERY = [(path.stem, case) for path in sorted(CASES.glob("*.txt")) for case in cases(path)]


@pytest.mark.parametrize(("stem", "case"), EVERY, ids=[f"{s}: {c.title}" for s, c in EVERY])
def test_every_stage_says_what_it_said(session: Session, stem: str, case: Case) -> None:
    assert said(session, case.ask) == case.said


def test_each_stage_speaks_somewhere() -> None:
    spoken = {line.split(":")[0] for _, case in EVERY for line in case.said.split("\n")}
    assert {"bind", "plan", "scan", "answer", "refuse", "notice"} <= spoken


def test_a_golden_file_can_fail(tmp_path: Path, session: Session) -> None:
    told = said(session, "SELECT COUNT(*) FROM patients WHERE disease = 'flu'")
    assert told != said(session, "SELECT COUNT(*) FROM patients WHERE disease = 'hiv'")
