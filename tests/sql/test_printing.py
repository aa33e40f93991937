"""The short way of printing, and sqlglot's own, which is all there is where sqlglot is compiled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from privsql.sql import printing
from tests.sql.golden import CASES, Sessions, cases, said


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sessions]:
    opened = Sessions(tmp_path_factory.mktemp("golden"))
    yield opened
    opened.close()


@pytest.mark.parametrize("path", sorted(CASES.glob("*.txt")), ids=lambda path: path.stem)
def test_both_ways_print_the_same(
    sessions: Sessions, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(printing, "COMPILED", True)
    for case in cases(path):
        assert said(sessions[case.release], case) == case.said, case.title
