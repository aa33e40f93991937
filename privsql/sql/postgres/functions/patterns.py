"""Templates of times: ``to_char(t, 'YYYY-MM-DD')`` as ``strftime``, and reading as ``strptime``.

What ``strftime`` has no letter for (quarters, weeks of a month, names padded to nine characters) is
an expression of its own, and the whole is joined with ``||``.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from sqlglot import exp

from privsql.sql.expressions import call
from privsql.sql.nodes import cast, chained

_CODES = {
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
    "FMYYYY": "%Y",
    "FMMM": "%-m",
    "FMDD": "%-d",
    "FMHH24": "%-H",
    "FMHH12": "%-I",
    "FMHH": "%-I",
    "FMMI": "%-M",
    "FMSS": "%-S",
    "FMMonth": "%B",
    "FMDay": "%A",
    "TZ": "%Z",
    "OF": "%z",
}
_ZONES = ("TZ", "OF")
# Reading is looser in PostgreSQL than in DuckDB, so these are not read.
_WRITTEN = "IYYY IW ID Dy FMYYYY FMMonth FMDay FMMM FMDD FMHH24 FMHH12 FMHH FMMI FMSS TZ OF"
_WRITTEN_ONLY = frozenset(_WRITTEN.split())


def _numbered(node: exp.Expr, width: int = 1) -> exp.Expr:
    text = cast(node, "VARCHAR")
    zero = exp.Literal.string("0")
    return text if width == 1 else call("lpad", text, exp.Literal.number(width), zero)


def _named(code: str, change: str = "", width: int = 9) -> Callable[[exp.Expr], exp.Expr]:
    def made(time: exp.Expr) -> exp.Expr:
        name = call("strftime", time, exp.Literal.string(code))
        name = call(change, name) if change else name
        blank = exp.Literal.string(" ")
        return call("rpad", name, exp.Literal.number(width), blank) if width else name

    return made


def _week(part: str, width: int) -> Callable[[exp.Expr], exp.Expr]:
    """Weeks of seven days, counted from the first day of the year or the month."""

    def made(time: exp.Expr) -> exp.Expr:
        days = exp.Sub(this=call(part, time), expression=exp.Literal.number(1))
        weeks = exp.IntDiv(this=exp.Paren(this=days), expression=exp.Literal.number(7))
        return _numbered(exp.Add(this=weeks, expression=exp.Literal.number(1)), width)

    return made


def _next_day(time: exp.Expr) -> exp.Expr:
    return _numbered(exp.Add(this=call("dayofweek", time), expression=exp.Literal.number(1)))


# What has no letter of its own.
_PARTS: dict[str, Callable[[exp.Expr], exp.Expr]] = {
    "Q": lambda time: _numbered(call("quarter", time)),
    "WW": _week("dayofyear", 2),
    "W": _week("dayofmonth", 1),
    "D": _next_day,
    "CC": lambda time: _numbered(call("century", time), 2),
}
for _word, _code in (("Day", "%A"), ("Month", "%B")):
    _PARTS |= {
        _word: _named(_code),
        _word.upper(): _named(_code, "upper"),
        _word.lower(): _named(_code, "lower"),
        f"FM{_word.upper()}": _named(_code, "upper", 0),
        f"FM{_word.lower()}": _named(_code, "lower", 0),
    }
for _word, _code in (("DY", "%a"), ("MON", "%b")):
    _PARTS |= {_word: _named(_code, "upper", 0), _word.lower(): _named(_code, "lower", 0)}
_PARTS |= {"am": _named("%p", "lower", 0), "pm": _named("%p", "lower", 0)}

# Numbers are written in any case; names and halves of the day have one.
_CASED = {"Mon", "Dy", "AM", "PM", "FMMonth", "FMDay", "am", "pm"}
_CASED |= {word for word in _PARTS if "ay" in word.lower() or "mon" in word.lower()} | {"DY", "dy"}
_ANY_CASE = (frozenset(_CODES) | frozenset(_PARTS)) - _CASED


def _alternatives(words: frozenset[str] | set[str]) -> str:
    """Longest first: HH24 before HH."""
    return "|".join(sorted(map(re.escape, words), key=len, reverse=True))


_PIECE = re.compile(
    rf'"(?P<quoted>[^"]*)"|(?P<cased>{_alternatives(set(_CODES) | set(_PARTS))})'
    rf'|(?P<folded>(?i:{_alternatives(_ANY_CASE)}))|(?P<sign>[^A-Za-z"])'
)


def _pieces(pattern: str) -> list[tuple[str, str]] | None:
    """The template as pairs of a word and a literal, one of them empty; None where it is none."""
    found: list[tuple[str, str]] = []
    at = 0
    while at < len(pattern):
        match = _PIECE.match(pattern, at)
        if match is None:
            return None
        word = match["cased"] or (match["folded"] or "").upper()
        found.append((word, match["quoted"] or match["sign"] or ""))
        at = match.end()
    return found


def strptime(pattern: str) -> str | None:
    """The template for reading, in DuckDB's letters; None where there is none.

    >>> strptime("YYYY-MM-DD HH24:MI:SS.US"), strptime('yyyy"T"q'), strptime("Mon DD")
    ('%Y-%m-%d %H:%M:%S.%f', None, '%b %d')
    """
    pieces = _pieces(pattern)
    if pieces is None or any(w in _WRITTEN_ONLY or w in _PARTS for w, _ in pieces):
        return None
    return "".join(_CODES.get(word) or literal.replace("%", "%%") for word, literal in pieces)


def time_text(time: exp.Expr, pattern: str, *, zoned: bool = False) -> exp.Expr | None:
    """A time written by a template; None where the template is not known.

    ``zoned`` says whether the time's own zone is that of its type, so that it can be written.

    >>> from sqlglot import exp
    >>> time_text(exp.column("t"), "YYYY-MM").sql("duckdb")
    "STRFTIME(t, '%Y-%m')"
    >>> time_text(exp.column("t"), '"Q"Q YYYY').sql("duckdb")
    "(STRFTIME(t, 'Q') || CAST(QUARTER(t) AS TEXT) || STRFTIME(t, ' %Y'))"
    """
    pieces = _pieces(pattern)
    if pieces is None or not any(word for word, _ in pieces):
        return None
    if not zoned and any(word in _ZONES for word, _ in pieces):
        return None
    made: list[exp.Expr] = []
    code = ""

    def close() -> None:
        nonlocal code
        if code:
            made.append(call("strftime", time.copy(), exp.Literal.string(code)))
        code = ""

    for word, literal in pieces:
        if word in _PARTS:
            close()
            made.append(_PARTS[word](time.copy()))
        else:
            code += _CODES.get(word) or literal.replace("%", "%%")
    close()
    return made[0] if len(made) == 1 else exp.Paren(this=chained(exp.DPipe, made))
