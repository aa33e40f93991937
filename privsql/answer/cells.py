"""One cell of an answer as text: a value and its error.

    1402 ± 348        value, and half of its interval
    3 [-1, 19]        value and interval, where ± would put the ends in the wrong place
    1402 ± ?          there is no error to be had for this value
    1402 ± 348 ?      the interval does not hold what its level promises

The error shows two significant digits but never fewer than the digits before the point,
and the value as many decimals as its error: what lies below is noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from privsql.errors import printable

LOPSIDED = 0.1  # of half the width: an interval whose middle lies farther off is spelled out


@dataclass(frozen=True, slots=True)
class Cell:
    """A value, its error and its mark, apart so that a column of them can be aligned."""

    value: str
    error: str = ""  # "± 348", "[-1, 19]", "± ?"
    unreliable: bool = False

    def __str__(self) -> str:
        """All in a line.

        >>> print(Cell("1402", "± 348", unreliable=True))
        1402 ± 348 ?
        """
        return " ".join(part for part in (self.value, self.error, "?" * self.unreliable) if part)


def exact(value: Any) -> Cell:
    """A value that needs no error.

    >>> [str(exact(x)) for x in (None, 12, 0.5, 1e6, True, "a b", float("nan"))]
    ['NULL', '12', '0.5', '1000000.0', 'true', 'a b', 'nan']
    """
    if value is None:
        return Cell("NULL")
    if isinstance(value, bool):
        return Cell("true" if value else "false")
    return Cell(printable(str(value)))


def estimate(value: Any, low: float | None, high: float | None, reliable: bool | None) -> Cell:
    """An estimate with its interval; thousands are grouped.

    >>> print(estimate(1402.31, 1054.2, 1750.4, True))
    1,402 ± 348
    >>> print(estimate(0.31234, 0.30111, 0.32357, True))
    0.312 ± 0.011
    >>> print(estimate(3.2, -1.0, 19.0, False))
    3 [-1, 19] ?
    >>> print(estimate(1402.31, None, None, None))
    1,402.31 ± ?
    >>> print(estimate(None, None, None, None))
    NULL
    """
    if value is None:
        return Cell("NULL")
    doubtful = reliable is False
    try:
        number = float(value)
    except (TypeError, ValueError):  # the mode of a column of words
        return Cell(exact(value).value, "± ?", doubtful)
    if low is None or high is None:
        if low is None and high is None:
            return Cell(_number(number), "± ?", doubtful)
        ends = ", ".join("?" if end is None else _number(end) for end in (low, high))
        return Cell(_number(number), f"[{ends}]", doubtful)
    half = (high - low) / 2
    if not (math.isfinite(half) and math.isfinite(number)):
        return Cell(_number(number), f"[{_number(low)}, {_number(high)}]", doubtful)
    places = _places(half)
    if abs((high + low) / 2 - number) > LOPSIDED * half:
        ends = ", ".join(_fixed(end, places) for end in (low, high))
        return Cell(_fixed(number, places), f"[{ends}]", doubtful)
    return Cell(_fixed(number, places), f"± {_fixed(half, places)}", doubtful)


def _places(half: float) -> int | None:
    """Decimals that show two significant digits of an error; None: it has no size."""
    if half <= 0:
        return None
    return max(0, 1 - math.floor(math.log10(half)))


def _fixed(value: float, places: int | None) -> str:
    if places is None or places > 12 or abs(value) >= 1e15:
        return _number(value)
    text = f"{value:,.{places}f}"
    return text.removeprefix("-") if not text.strip("-0.") else text  # no "-0"


def _number(value: float) -> str:
    """An estimate without error: whole ones in full, others with at least six digits.

    >>> [_number(x) for x in (1e6, 1402.31, 1e20, 0.000012345, -0.0)]
    ['1,000,000', '1,402.31', '1e+20', '1.2345e-05', '0']
    """
    if math.isfinite(value) and value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    whole = len(str(int(abs(value)))) if math.isfinite(value) and abs(value) < 1e15 else 0
    return f"{value:,.{max(6, whole + 2)}g}"
