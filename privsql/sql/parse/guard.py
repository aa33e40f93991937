"""Refusal of statements that cannot be answered over any table.

Names are how we know that a sensitive column is used.  A spelling that reaches a column
without naming it (``COLUMNS('dis.*')``, ``#4``, ``disease.upper()``, a table function that
takes SQL as text) would be evaluated on perturbed rows and come back as if it were right, so
none of them is let in, anywhere in a statement.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sqlglot import exp

from privsql.errors import Place
from privsql.sql.nodes import Unsupported, name_of, place_of, walked
from privsql.sql.parse.forbidden import VOLATILE

# They differ between the database that scans and the one that reconstructs.
_WITHIN_QUERY = """
    current_database current_date current_schema current_schemas current_setting
    get_current_time get_current_timestamp getvariable in_search_path now today
    transaction_timestamp txid_current current_time current_timestamp localtime localtimestamp
"""
WITHIN_QUERY = frozenset(_WITHIN_QUERY.split())
_CLOCKS = (exp.CurrentDate, exp.CurrentTime, exp.CurrentTimestamp, exp.CurrentDatetime)
OURS = "privsql_"
# A label that repeats a call, as BI tools make them ("privsql_low(n)"), is none of our names.
_OURS_NAMES = re.compile(rf"{OURS}[^(]*$", re.IGNORECASE)

# Functions that make a large value of a small one, by the argument that says how large.  DuckDB
# does not stop in the middle of a value, so neither time nor memory would hold them.
_GROWING = {
    exp.Repeat: ("times",),
    exp.Space: ("this",),
    exp.Pad: ("expression",),
    exp.GenerateSeries: ("start", "end", "step"),
}
_RESIZING = frozenset({"list_resize", "array_resize", "bitstring"})
_FORMATTING = frozenset({"printf", "format"})
_WIDE = re.compile(r"[0-9]{4}|[*]|\{[^}]*\{")
LARGEST = 10_000


# Nodes that hide nothing themselves.
_PLAIN = frozenset(
    {
        *(exp.Literal, exp.Boolean, exp.Null, exp.Paren, exp.Not, exp.And, exp.Or),
        *(exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Between, exp.In),
        *(exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Alias, exp.TableAlias, exp.Case),
        *(exp.Select, exp.From, exp.Where, exp.Group, exp.Having, exp.Order, exp.Ordered),
    }
)

# The first word of a statement, after comments.
_FIRST = re.compile(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*([A-Za-z]+)", re.DOTALL)


def check_question(tree: exp.Expr, text: str) -> None:
    """Refuse a statement other than SELECT, and constructs that hide what they read."""
    if not isinstance(tree, exp.Query):
        word = _FIRST.match(text)
        raise Unsupported(
            f"{word.group(1).upper() if word else 'this'} is not a query",
            hint="privsql answers SELECT and changes no data",
            place=placed_in(tree, tree, text),
        )
    for node in walked(tree):
        for what, hint in () if node.__class__ in _PLAIN else _hidden(node):
            raise Unsupported(what, hint=hint, place=placed_in(node, tree, text))


def placed_in(node: exp.Expr, tree: exp.Expr, text: str) -> Place:
    """Where a node stands, or the statement where its names do not tell."""
    return place_of(node, text) or place_of(tree, text) or Place(text, 0, len(text))


def _hidden(node: exp.Expr) -> Iterator[tuple[str, str]]:
    name = name_of(node)
    if name in VOLATILE:
        yield f"the volatile function {name}()", "an answer must not change when it is asked again"
    elif name in WITHIN_QUERY or isinstance(node, _CLOCKS) or _since_now(node):
        yield (
            f"{name or node.key}, which depends on the session",
            "give its value as a parameter",
        )
    elif (isinstance(node, tuple(_GROWING)) or name in _RESIZING) and not _small(node):
        yield (
            f"{name}() of a size that is not known to be small",
            f"write the size as a number up to {LARGEST}, and repeat no such function",
        )
    elif name in _FORMATTING and not _narrow(node):
        yield (
            f"{name}() with a width that is not known to be small",
            "write the format out, with widths below 1000",
        )
    elif isinstance(node, exp.Columns):
        yield "COLUMNS(...), which does not name its columns", "list the columns that you mean"
    elif isinstance(node, exp.PositionalColumn):
        yield "a column by its position", "write its name"
    elif isinstance(node, exp.Explode | exp.Unnest) or name in ("unnest", "generate_subscripts"):
        yield "UNNEST, which multiplies rows", "ask without it"
    elif isinstance(node, exp.Dot) and _bare_name(node):
        yield "a function written after a dot", "write upper(x) instead of x.upper()"
    elif isinstance(node, exp.Comprehension):
        yield "a list comprehension", "use list_transform, or write the condition out"
    elif isinstance(node, exp.Column) and node.args.get("db") and node.db.lower() != "main":
        yield "a part of a structure", "select the column itself"
    elif isinstance(node, exp.Table) and not isinstance(node.this, exp.Identifier):
        yield "a table function in FROM", "query the published table or a public one"
    elif isinstance(node, exp.Identifier) and _OURS_NAMES.match(node.name):
        yield f"the name {node.name!r}: names in {OURS} are reserved", "choose another"


def _since_now(node: exp.Expr) -> bool:
    """Whether it is age(x), which looks at the clock; age(x, y) does not."""
    called = isinstance(node, exp.Anonymous) and node.name.lower() == "age"
    return called and len(node.expressions) < 2


def _small(node: exp.Expr) -> bool:
    """Whether a growing function says how large its value is, and in none that repeats values.

    A padded text is as long as its own size says, whatever is padded; repeated, it is longer.
    """
    sizes = node.expressions[1:2]
    for kind, names in _GROWING.items():
        if isinstance(node, kind):
            sizes = [node.args[name] for name in names if node.args.get(name) is not None]
    return all(map(_number, sizes)) and not any(map(_repeats, _holders(node)))


def _holders(node: exp.Expr) -> Iterator[exp.Expr]:
    while node.parent is not None:
        node = node.parent
        yield node


def _repeats(node: exp.Expr) -> bool:
    return isinstance(node, exp.Repeat) or name_of(node) in _RESIZING


def _number(size: exp.Expr) -> bool:
    """Whether it is written as a small number."""
    while isinstance(size, exp.Paren | exp.Neg):
        size = size.this
    short = size.is_number and len(size.name) <= 9 and size.name.isdigit()
    return short and int(size.name) <= LARGEST


def _narrow(node: exp.Expr) -> bool:
    """Whether a format is written out and has no wide field."""
    anonymous = isinstance(node, exp.Anonymous)
    shape = next(iter(node.expressions), None) if anonymous else node.this
    return isinstance(shape, exp.Literal) and not _WIDE.search(shape.name)


def _bare_name(node: exp.Dot) -> bool:
    """Whether a column stands in it as a mere word, or a function follows the dot."""
    if isinstance(node.expression, exp.Func):
        return True
    inner = node.this
    while isinstance(inner, exp.Paren | exp.Dot):
        inner = inner.this
    return isinstance(inner, exp.Identifier)
