"""Rows that two windows have in common, which their covariance is made of."""

from __future__ import annotations

import pytest
import sqlglot
from sqlglot import exp

from privsql.sql.outer.frames import Frame, read_frame


def frame(window: str) -> Frame:
    node = sqlglot.parse_one(f"SELECT SUM(n) OVER ({window})", dialect="duckdb").find(exp.Window)
    assert isinstance(node, exp.Window)
    found = read_frame(node)
    assert found is not None
    return found


ALL, RUNNING = "", "ORDER BY m"
MOVING = "ORDER BY m ROWS BETWEEN 2 PRECEDING AND CURRENT ROW"
AHEAD = "ORDER BY m ROWS BETWEEN 1 PRECEDING AND 3 FOLLOWING"
APART = "PARTITION BY city ORDER BY m ROWS BETWEEN 2 PRECEDING AND CURRENT ROW"

YEAR = "ORDER BY d RANGE BETWEEN INTERVAL '1' YEAR PRECEDING AND CURRENT ROW"


@pytest.mark.parametrize(
    ("one", "two", "both"),
    [
        (ALL, ALL, ALL),
        (ALL, MOVING, MOVING),
        (MOVING, ALL, MOVING),
        (ALL, APART, APART),
        (RUNNING, RUNNING, RUNNING),
        (MOVING, AHEAD, "ORDER BY m ROWS BETWEEN 1 PRECEDING AND CURRENT ROW"),
        (AHEAD, MOVING, "ORDER BY m ROWS BETWEEN 1 PRECEDING AND CURRENT ROW"),
        ("PARTITION BY city", APART, APART),
        (YEAR, YEAR, YEAR),
        (ALL, YEAR, YEAR),
    ],
)
def test_what_two_frames_share(one: str, two: str, both: str) -> None:
    found = frame(one).common(frame(two))
    assert found is not None
    shown = [each.over(exp.Count(this=exp.Star())).sql("duckdb") for each in (found, frame(both))]
    assert shown[0] == shown[1]


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (RUNNING, "ORDER BY k"),
        (MOVING, "ORDER BY m DESC ROWS BETWEEN 2 PRECEDING AND CURRENT ROW"),
        (MOVING, APART),
        (APART, MOVING),
        ("PARTITION BY city", "PARTITION BY sex"),
        (RUNNING, MOVING),  # peers are in the one and not in the other
    ],
)
def test_what_cannot_be_told(one: str, two: str) -> None:
    assert frame(one).common(frame(two)) is None
