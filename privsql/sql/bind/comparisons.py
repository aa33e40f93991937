"""Comparisons of sensitive columns with constants, and the values of the constants.

They are found in canonical expressions, where a column is the published one whatever it is called
in the statement: by an alias list, a sub-select or a CTE.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from sqlglot import exp

from privsql.errors import DataError, ProgrammingError
from privsql.sql.catalog import PUBLISHED
from privsql.sql.nodes import bare, cast, copied, named, sql
from privsql.sql.parameters import Parameters, Printed

# The sign with the column on the left, and on the right.
_SIGNS: dict[type[exp.Expr], tuple[str, str]] = {
    exp.EQ: ("=", "="),
    exp.NullSafeEQ: ("=", "="),
    exp.NEQ: ("<>", "<>"),
    exp.NullSafeNEQ: ("<>", "<>"),
    exp.LT: ("<", ">"),
    exp.LTE: ("<=", ">="),
    exp.GT: (">", "<"),
    exp.GTE: (">=", "<="),
}
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d{6})?", re.ASCII)


@dataclass(frozen=True)
class Comparison:
    """A sensitive column, one of ``= <> < <= > >= BETWEEN IN``, and constants."""

    column: str
    sign: str
    constants: tuple[exp.Expr, ...]


def comparisons(nodes: Iterable[exp.Expr], names: Collection[str]) -> Iterator[Comparison]:
    """Comparisons of bare columns of these names with constants, each once."""
    seen: set[tuple[str, str, tuple[str, ...]]] = set()
    for node in nodes:
        for each in _found(node, names):
            key = (each.column, each.sign, tuple(map(sql, each.constants)))
            if key not in seen:
                seen.add(key)
                yield each


def uses(node: exp.Expr, name: str) -> bool:
    """Whether values of a column matter to an expression, and not only whether it is NULL."""
    if isinstance(node, exp.Column):
        return node.table == PUBLISHED and node.name == name
    if isinstance(node, exp.Query):
        return False
    known = isinstance(node, exp.Is) and isinstance(node.expression, exp.Null)
    counted = isinstance(node, exp.Count) and not isinstance(node.this, exp.Distinct)
    if (known or counted) and isinstance(bare(node.this), exp.Column):
        return False
    return any(uses(child, name) for child in node.iter_expressions())


def _found(node: exp.Expr, names: Collection[str]) -> Iterator[Comparison]:
    if isinstance(node, exp.Query):
        return
    signs = _SIGNS.get(type(node))
    if signs is not None:
        sides = (node.this, node.expression)
        for sign, ours, other in zip(signs, sides, reversed(sides), strict=True):
            yield from _compared(ours, sign, [other], names)
    elif isinstance(node, exp.Between):
        yield from _compared(node.this, "BETWEEN", [node.args["low"], node.args["high"]], names)
    elif isinstance(node, exp.In) and node.expressions:
        yield from _compared(node.this, "IN", node.expressions, names)
    elif isinstance(node, exp.Case) and node.args.get("this") is not None:
        for when in node.args["ifs"]:
            yield from _compared(node.this, "=", [when.this], names)
    for child in node.iter_expressions():
        yield from _found(child, names)


def _compared(
    ours: exp.Expr, sign: str, others: Sequence[exp.Expr], names: Collection[str]
) -> Iterator[Comparison]:
    ours = bare(ours)
    if not isinstance(ours, exp.Column) or ours.table != PUBLISHED or ours.name not in names:
        return
    if all(each.find(exp.Column, exp.Query, exp.Star) is None for each in others):
        yield Comparison(ours.name, sign, tuple(map(bare, others)))


def values_of(nodes: Mapping[int, exp.Expr], run: Callable[[exp.Expr], pa.Table]) -> dict[int, Any]:
    """What constants are, by DuckDB."""
    if not nodes:
        return {}
    asked = [named(copied(node), f"value{i}") for i, node in nodes.items()]
    (row,) = run(exp.Select(expressions=asked)).to_pylist()
    return dict(zip(nodes, row.values(), strict=True))


@dataclass(frozen=True)
class Constants:
    """Reads constants as DuckDB would; what it cannot read is None, as NULL is."""

    parameters: Parameters
    run: Callable[[Printed], pa.Table] | None = None

    def read(self, wanted: Iterable[tuple[exp.Expr, str]]) -> list[object]:
        """Values of constants that are compared with columns of the types beside them."""
        pairs = list(wanted)
        found = [self._plain(node, kind) for node, kind in pairs]
        asked = [i for i, value in enumerate(found) if value is _Unread]
        if asked:
            # As the column's type only where it is text: that is how DuckDB reads text.
            values = self._run({i: pairs[i][0] for i in asked})
            texts = {i: values.get(i) for i in asked if isinstance(values.get(i), str)}
            texts = {i: text for i, text in texts.items() if not _is_text(pairs[i][1])}
            values |= dict.fromkeys(texts)
            values |= self._run({i: cast(copied(pairs[i][0]), pairs[i][1]) for i in texts})
            for i in asked:
                found[i] = values.get(i)
        return found

    def _run(self, nodes: Mapping[int, exp.Expr]) -> dict[int, object]:
        run = self.run
        # What fails here fails in the query itself, where it is told.
        with suppress(DataError, ProgrammingError, pa.ArrowException, ValueError):
            if run is not None:
                return values_of(nodes, lambda tree: run(self.parameters.bind(tree)))
        return {}

    def _plain(self, node: exp.Expr, kind: str) -> object:
        """The value of what is written out in the commonest ways, without asking DuckDB."""
        if isinstance(node, exp.Null):
            return None
        if isinstance(node, exp.Boolean):
            return bool(node.this)
        if isinstance(node, exp.Placeholder):
            value = self.parameters.values.get(str(node.this), _Unread)
            return _text(value, kind) if isinstance(value, str) else _checked(value)
        if node.is_string:
            return _text(node.name, kind)
        negative = isinstance(node, exp.Neg)
        literal = node.this if negative else node
        if isinstance(literal, exp.Literal) and literal.is_number and len(literal.name) <= 40:
            with suppress(ArithmeticError):  # 0x1F
                return -Decimal(literal.name) if negative else Decimal(literal.name)
        if isinstance(node, exp.Cast) and node.this.is_string:
            target = sql(node.to).upper()
            if target in ("DATE", "TIMESTAMP"):
                return _text(node.this.name, target)
        return _Unread


class _Unread:
    """Stands for a value that only DuckDB can tell."""


def _checked(value: object) -> object:
    plain = isinstance(value, bool | int | float | Decimal | date) or value is None
    return value if plain else _Unread


def _is_text(kind: str) -> bool:
    return kind == "VARCHAR" or kind.startswith("ENUM")


def _text(text: str, kind: str) -> object:
    """A text as a value of a type, where that is plain."""
    if _is_text(kind):
        return text
    with suppress(ValueError):
        if kind in ("DATE", "TIMESTAMP") and _DAY.fullmatch(text):
            return date.fromisoformat(text)
        if kind == "TIMESTAMP" and _MOMENT.fullmatch(text):
            return datetime.fromisoformat(text)
    return _Unread
