"""``to_char`` and ``to_timestamp``: PostgreSQL's patterns as strftime's.

Only patterns that say the same in both are known; another letter is refused, since it would
come out as itself.  Text between double quotes, digits and signs stand for themselves.
"""

from __future__ import annotations

import re

# Longest first: HH24 before HH.  Those that only writing knows are marked.
_PATTERNS = {
    "YYYY": "%Y",
    "IYYY": "%G",
    "YY": "%y",
    "MM": "%m",
    "DDD": "%j",
    "DD": "%d",
    "HH24": "%H",
    "HH12": "%I",
    "HH": "%I",
    "MI": "%M",
    "SS": "%S",
    "MS": "%g",
    "US": "%f",
    "AM": "%p",
    "PM": "%p",
    "IW": "%V",
    "Mon": "%b",
    "Dy": "%a",
    "ID": "%u",
    "FMMM": "%-m",
    "FMDD": "%-d",
    "FMHH24": "%-H",
    "FMHH12": "%-I",
    "FMMonth": "%B",
    "FMDay": "%A",
}
# Only in writing: reading them is looser in PostgreSQL than in DuckDB.
_WRITTEN_ONLY = ("IYYY", "IW", "ID", "Dy", "FMMonth", "FMDay", "FMMM", "FMDD", "FMHH24", "FMHH12")

_PIECE = re.compile(
    r'"([^"]*)"|('
    + "|".join(sorted(map(re.escape, _PATTERNS), key=len, reverse=True))
    + r")|([^A-Za-z\"])"
)
# Numbers are written in any case; names of months and days have one.
_FOLDED = frozenset(pattern for pattern in _PATTERNS if pattern == pattern.upper()) - {"AM", "PM"}


def strftime(pattern: str, *, reading: bool = False) -> str | None:
    """The same pattern for DuckDB, or None where there is none.

    >>> strftime("YYYY-MM-DD HH24:MI:SS.US"), strftime('yyyy"T"q'), strftime("Mon DD")
    ('%Y-%m-%d %H:%M:%S.%f', None, '%b %d')
    """
    found = []
    at = 0
    while at < len(pattern):
        match = _PIECE.match(pattern, at)
        if match is None:
            match = _PIECE.match(pattern.upper(), at)
            if match is None or match[2] not in _FOLDED:
                return None
        if match[2]:
            if reading and match[2] in _WRITTEN_ONLY:
                return None
            found.append(_PATTERNS[match[2]])
        else:
            literal = match[1] if match[1] is not None else match[3]
            found.append(literal.replace("%", "%%"))
        at = match.end()
    return "".join(found)
