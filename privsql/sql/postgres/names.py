"""PostgreSQL's names for columns without an alias (FigureColname of its parser).

A column keeps its name, a function gives its own, a cast the name of what is cast or else of
the type, and what is left is ``?column?``.
"""

from __future__ import annotations

import re

from sqlglot import exp

from privsql.sql.postgres.types import type_name

UNKNOWN = "?column?"

# Classes whose name is another one than sqlglot's.
_CLASSES: dict[type[exp.Expr], str] = {
    exp.StrPosition: "position",
    exp.GroupConcat: "string_agg",
    exp.AtTimeZone: "timezone",
}

_TRIMS = {"LEADING": "ltrim", "TRAILING": "rtrim"}

# What is called as what stands first in it.
_PLACES = (exp.Paren, exp.Collate, exp.Bracket, exp.Slice)
_CALLS = (exp.Window, exp.Filter, exp.WithinGroup, exp.IgnoreNulls)
_THROUGH = (*_PLACES, *_CALLS)

_EXTRACTS = re.compile(r"\b(date_part|extract)\s*\(")
_WORD = re.compile(r"[^\W\d]\w*$")


def name_of_column(node: exp.Expr, text: str) -> str:
    """The name of one column of a SELECT.

    ``text`` is what was parsed: functions are called as they are written there.
    """
    return _figured(node, text)[0]


def _figured(node: exp.Expr, text: str) -> tuple[str, int]:
    """The name, and how strong it is: 0 none, 1 a type's or a construct's, 2 a real one."""
    if isinstance(node, exp.Alias):
        return node.alias, 2
    if isinstance(node, exp.Column | exp.Identifier):
        return node.name, 2
    if isinstance(node, exp.Dot):
        return _figured(node.expression, text)
    if isinstance(node, _THROUGH):
        return _figured(node.this, text)
    if isinstance(node, exp.Cast) and isinstance(node.this, exp.IntDiv):
        return "div", 2  # div(a, b), as sqlglot has it
    if isinstance(node, exp.Cast):
        name, strength = _figured(node.this, text)
        return (name, strength) if strength > 1 else (type_name(node.args["to"]), 1)
    if isinstance(node, exp.Case):
        default = node.args.get("default")
        name, strength = _figured(default, text) if default is not None else ("", 0)
        return (name, strength) if strength > 1 else ("case", 1)
    if isinstance(node, exp.Subquery | exp.Select):
        selected = node.selects
        return _figured(selected[0], text) if selected else (UNKNOWN, 0)
    return _called(node, text)


def _called(node: exp.Expr, text: str) -> tuple[str, int]:
    written = _written(node, text)
    if isinstance(node, exp.Trim):
        return _TRIMS.get(str(node.args.get("position") or ""), written or "btrim"), 2
    if isinstance(node, exp.Extract):
        return _extracting(node, text), 2
    if isinstance(node, exp.Interval):
        return "interval", 1
    if type(node) in _CLASSES:
        return written or _CLASSES[type(node)], 2
    if isinstance(node, exp.Anonymous | exp.AnonymousAggFunc):
        return str(node.this).lower(), 2
    if isinstance(node, exp.Func) and not isinstance(node, exp.Connector | exp.Binary):
        return written or node.sql_name().lower(), 2
    called = isinstance(node, exp.Binary) and isinstance(node, exp.Func | exp.Mod)  # mod(a, b)
    return (written, 2) if written and called else (UNKNOWN, 0)


def _extracting(node: exp.Expr, text: str) -> str:
    """``extract`` or ``date_part``, which are one node: by what stands before its argument."""
    starts = [each.meta["start"] for each in node.walk() if "start" in each.meta]
    before = text[: min(starts)] if starts else text
    found = _EXTRACTS.findall(before.lower())
    return found[-1] if found else "extract"


def _written(node: exp.Expr, text: str) -> str | None:
    """The name of a function as it stands in the text, where sqlglot noted its place."""
    start, end = node.meta.get("start"), node.meta.get("end")
    if start is None or end is None:
        return None
    word = text[start : end + 1]
    return word.lower() if _WORD.match(word) else None
