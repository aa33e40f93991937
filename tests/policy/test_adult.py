"""What is refused of small tables of the census."""

from __future__ import annotations

from pathlib import Path

from tests.policy.adult import report
from tests.publish.test_adult import publish


def test_most_cells_of_small_tables_are_answered(tmp_path: Path) -> None:
    """An expert's trial came to 18 of 90 cells; all of this depends on public columns alone."""
    publish(tmp_path, source="raw", seed=1)
    lines = report(tmp_path, merged=True, most=2)
    assert sum(line.cells for line in lines) == 89
    assert sum(line.personal for line in lines) == 4
    assert sum(line.later for line in lines) == 18
    for line in lines:
        assert line.personal <= line.fresh <= line.later
