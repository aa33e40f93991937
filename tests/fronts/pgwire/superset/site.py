"""What the steps share: Superset, the server behind it, and how answers are held together."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.fronts.pgwire.superset.rest import Api
from tests.fronts.pgwire.superset.served import Served


class StepError(Exception):
    """A step did not go as it must; the text says how."""


@dataclass
class Site:
    """Superset, logged in, and what the steps have made there, by name."""

    api: Api
    served: Served
    made: dict[str, int] = field(default_factory=dict)

    def call(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """What comes back where Superset must succeed."""
        status, found = self.api.call(method, path, body)
        if status not in (200, 201):
            raise StepError(f"{method} {path}: {status} {said(found)}")
        return found

    def of(self, name: str) -> int:
        """The number that Superset gave to what an earlier step made."""
        if name not in self.made:
            raise StepError(f"there is no {name}: an earlier step failed")
        return self.made[name]


def said(found: dict[str, Any]) -> str:
    """The words of an error, wherever Superset puts them."""
    parts: list[str] = []

    def look(part: Any) -> None:
        if isinstance(part, dict):
            for name in ("message", "error", "errors", "result"):
                look(part.get(name))
        elif isinstance(part, list):
            for each in part:
                look(each)
        elif isinstance(part, str) and part not in parts:
            parts.append(part)

    look(found)
    return " | ".join(parts) or str(found)[:500]


def refused(found: dict[str, Any], words: Iterable[str]) -> str:
    """The refusal that Superset's user sees; it must have these words."""
    text = said(found)
    missing = [word for word in words if word not in text]
    if missing:
        raise StepError(f"{missing} is not said: {text[:1000]}")
    return next(line for line in text.splitlines() if words and next(iter(words)) in line)


def same(site: Site, found: list[tuple[Any, ...]], sql: str) -> str:
    """Hold rows against Python's for the same question.

    They must be those of a served session, and those of ``privsql.connect`` but for the digits
    that a server cuts off: a two-hundredth of the standard error, here below two thousandths of
    the estimate.
    """
    for wanted, tolerance in ((site.served.cut(sql), 1e-12), (site.served.answer(sql), 2e-3)):
        left, right = (sorted(map(_plain, rows), key=_order) for rows in (found, wanted))
        close = partial(_close, tolerance=tolerance)
        if len(left) != len(right) or not all(map(close, left, right)):
            raise StepError(f"{left[:5]} in Superset, {right[:5]} in Python")
    if not found:
        raise StepError("there are no rows")
    return f"{len(found)} row{'s' if len(found) > 1 else ''} as in Python"


def _plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A time is a number in Superset (milliseconds), a text in SQL Lab, an object in Python."""
    return tuple(
        int(value.timestamp() * 1000) if hasattr(value, "timestamp") else value for value in row
    )


def _order(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Words before numbers: what is an estimate may differ in its last digit, groups do not."""
    words = tuple(value for value in row if isinstance(value, str))
    return words, tuple(
        -math.inf if value is None else value for value in row if value not in words
    )


def _close(left: tuple[Any, ...], right: tuple[Any, ...], tolerance: float) -> bool:
    return len(left) == len(right) and all(
        math.isclose(a, b, rel_tol=tolerance)
        if isinstance(a, int | float) and isinstance(b, int | float)
        else a == b
        for a, b in zip(left, right, strict=True)
    )
