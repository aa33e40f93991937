"""The time of a statement, for its clock functions."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any
from zoneinfo import ZoneInfo

from privsql.sql.postgres.commands import Command


def _zone(name: str) -> dt.tzinfo:
    """A zone by its name, or by its distance from UTC: ``+05:30``."""
    if name[0] not in "+-":
        return ZoneInfo(name)
    hours, _, minutes = name[1:].partition(":")
    away = dt.timedelta(hours=int(hours), minutes=int(minutes))
    return dt.timezone(-away if name[0] == "-" else away)


def timed(
    command: Command, arguments: Sequence[Any], zone: str, now: dt.datetime | None = None
) -> Sequence[Any]:
    """The client's values, then the times that the statement asks for: all of one moment.

    >>> from privsql.sql.postgres.read import read
    >>> [made] = read("SELECT count(*) FROM t WHERE a = $1 AND d < current_date")
    >>> noon = dt.datetime(2024, 12, 31, 20, tzinfo=dt.UTC)
    >>> timed(made, ["x"], "Asia/Tokyo", noon)
    ['x', datetime.date(2025, 1, 1)]
    """
    if not command.clocks or len(arguments) < command.parameters:
        return arguments
    found = dt.datetime.now(dt.UTC) if now is None else now
    local = found.astimezone(_zone(zone)).replace(tzinfo=None)
    times = {
        "TIMESTAMPTZ": found,
        "TIMESTAMP": local,
        "DATE": local.date(),
        "TIME": local.time(),
    }
    return [*arguments[: command.parameters], *(times[kind] for kind in command.clocks)]
