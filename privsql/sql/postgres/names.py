"""PostgreSQL's names for columns without an alias (FigureColname of its parser), and their origin.

A column keeps its name, a function gives its own, a cast the name of what is cast or else of
the type, and what is left is ``?column?``.  A column of a result that is one of a table, through
sub-selects as well, is told with its table: drivers look comments, keys and types up by it.
"""

from __future__ import annotations

import re

from sqlglot import exp

from privsql.sql.nodes import sources_of
from privsql.sql.postgres.types import type_name

# A table with its schema, if it has one, and a column of it.
Origin = tuple[str, str] | None

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


def origins_of(tree: exp.Expr) -> tuple[Origin, ...]:
    """The table and column that each column of a query is; ``*`` for all columns of a table.

    >>> from sqlglot import parse_one
    >>> query = "SELECT a, b + 1, t.c AS d FROM (SELECT x AS a, b FROM s.u) q, t"
    >>> origins_of(parse_one(query))
    (('s.u', 'x'), None, ('t', 'c'))
    >>> origins_of(parse_one("SELECT * FROM t")), origins_of(parse_one("SELECT * FROM t, u"))
    ((('t', '*'),), ())
    """
    select = tree
    while isinstance(select, exp.Subquery):
        select = select.this
    if not isinstance(select, exp.Select):
        return ()
    if any(each.is_star for each in select.expressions):
        sources = sources_of(select)
        if len(select.expressions) > 1 or len(sources) > 1 or not sources:
            return ()
        first = sources[0]
        if isinstance(first, exp.Subquery):
            return origins_of(first.this)
        return ((_table(first), "*"),) if isinstance(first, exp.Table) else ()
    return tuple(_origin(each.unalias(), select) for each in select.expressions)


def _origin(node: exp.Expr, select: exp.Select) -> Origin:
    """Where a column comes from; one without a table's name is of the only source that can be."""
    if not isinstance(node, exp.Column):
        return None
    name, sources = _folded(node.this), sources_of(select)
    if node.table:
        sources = [each for each in sources if each.alias_or_name.lower() == node.table.lower()]
    for source in sources:
        if isinstance(source, exp.Subquery):
            inner = source.this
            selects = inner.selects if isinstance(inner, exp.Select) else []
            for each, origin in zip(selects, origins_of(inner), strict=False):
                if each.alias_or_name.lower() == name.lower():
                    return origin
        elif isinstance(source, exp.Table) and (len(sources) == 1):
            return _table(source), name
    return None


def _table(source: exp.Table) -> str:
    schema = source.text("db").lower()
    name = _folded(source.this)
    return name if schema in ("", "public") else f"{schema}.{name}"


def _folded(node: exp.Expr) -> str:
    return node.name if node.args.get("quoted") else node.name.lower()
