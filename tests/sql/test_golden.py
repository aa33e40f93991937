from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from privsql.sql.scan.forms import FORMS
from tests.sql import golden
from tests.sql.golden import CASES, RELEASES, SETTLED, Case, Sessions, cases, said, settled


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sessions]:
    opened = Sessions(tmp_path_factory.mktemp("golden"))
    yield opened
    opened.close()


EVERY = [(path.stem, case) for path in sorted(CASES.glob("*.txt")) for case in cases(path)]
STAGES = {line.split(":")[0] for _, case in EVERY for line in case.said.split("\n")}


@pytest.mark.parametrize(("stem", "case"), EVERY, ids=[f"{s}: {c.title}" for s, c in EVERY])
def test_every_stage_says_what_it_said(sessions: Sessions, stem: str, case: Case) -> None:
    told = said(sessions[case.release], case)
    # What an analyst gets stays as it is; how it comes about may be written anew.
    assert settled(told) == case.lines(*SETTLED)
    assert told == case.said


def test_each_stage_speaks_somewhere() -> None:
    wanted = {"bind", "plan", "form", "scan", "step", "query", *SETTLED, "reason"}
    assert wanted == STAGES


def test_each_form_release_and_stage_of_refusal_is_there() -> None:
    forms = {line.split()[1] for _, case in EVERY for line in case.lines("form")}
    assert forms == set(FORMS)
    assert {case.release for _, case in EVERY} == set(RELEASES)
    refusing = {line.split()[1] for _, case in EVERY for line in case.lines("refuse")}
    assert refusing == {"parse", "bind", "plan", "answer"}


def test_titles_are_told_apart() -> None:
    titles = [case.title for _, case in EVERY]
    assert len(titles) == len(set(titles))


def test_a_golden_file_can_fail(sessions: Sessions) -> None:
    case = Case("", "SELECT COUNT(*) FROM patients WHERE disease = 'flu'", "")
    told = said(sessions["clinic"], case)
    assert told != said(sessions["clinic"], replace(case, ask=case.ask.replace("flu", "hiv")))


def test_writing_anew_changes_stages_and_keeps_answers(
    tmp_path: Path, sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reviewer reads the difference of the files: answers are in it only if asked for."""
    case = "-- a count\nask:     SELECT COUNT(*) AS n FROM patients WHERE disease = 'flu'\n"
    path = tmp_path / "one.txt"
    path.write_text(case)
    text, changed = golden.write(sessions, path)
    assert not changed
    path.write_text(text.replace("COUNT(*) linear", "COUNT(*) renamed"))
    assert golden.write(sessions, path) == (text, [])
    path.write_text(text.replace("answer:  774", "answer:  775"))
    assert path.read_text() != text
    assert golden.write(sessions, path) == (text, ["a count"])
    monkeypatch.setattr(golden, "CASES", tmp_path)
    monkeypatch.setattr(golden, "Sessions", lambda _: _Kept(sessions))
    before = path.read_text()
    assert golden.main([]) == 1
    assert path.read_text() == before
    assert golden.main(["--answers"]) == 0
    assert path.read_text() == text


class _Kept:
    """The sessions of this module, which outlive whoever closes them."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def __getitem__(self, name: str) -> object:
        return self._sessions[name]

    def close(self) -> None:
        """Leave them open."""
