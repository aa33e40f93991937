"""What is refused of small tables of the census."""

from __future__ import annotations

from pathlib import Path

from tests.policy.adult import report
from tests.publish.test_adult import publish


def test_cells_of_small_tables_that_are_refused(tmp_path: Path) -> None:
    """All of this depends on public columns alone.

    With one limit of .9 it is 18 of 89 cells; the limit of .8 on a group's own count costs one
    user who asks for all tables the rest.
    """
    publish(tmp_path, source="raw", seed=1)
    lines = report(tmp_path, merged=True, most=2)
    assert sum(line.cells for line in lines) == 89
    assert sum(line.personal for line in lines) == 4
    assert sum(line.fresh for line in lines) == 17
    assert sum(line.later for line in lines) == 63
    for line in lines:
        assert line.personal <= line.fresh <= line.later
