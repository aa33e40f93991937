"""Fast printing of trees as DuckDB SQL.

A reconstruction is fifty times as long as the question, and most of it is columns, numbers and
arithmetic.  sqlglot's generator is written for every dialect and passes each node through a dozen
calls; here the few kinds of node that make up most of our trees are written at once, and all others
are left to it.  The text is the same, which a test holds for every golden statement.

Where sqlglot is installed compiled (``sqlglot[c]``), no class of ours can inherit from its
generator, which prints everything then.

Comments are left out: what an analyst noted beside a query is nothing for an engine.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from inspect import isfunction

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB

from privsql.release.names import quoted

_TYPES = {
    exp.DType.DOUBLE: "DOUBLE",
    exp.DType.BIGINT: "BIGINT",
    exp.DType.BOOLEAN: "BOOLEAN",
}


class _Unsure(Exception):  # noqa: N818 - never leaves this module
    """A node that sqlglot may change while it prints it."""


class Printer(DuckDB.Generator):  # type: ignore[misc,valid-type]  # chosen as sqlglot is loaded
    """sqlglot's generator for DuckDB with a short way for common nodes."""

    def __init__(self) -> None:
        super().__init__(dialect="duckdb", comments=False)
        self.careful = True

    def sql(self, expression: object, key: str | None = None, comment: bool = True) -> str:
        """The text of one node, or of one of its arguments."""
        node = expression
        if key is not None and isinstance(node, exp.Expr):
            node = node.args.get(key)
        if node is None:
            return ""
        if node.__class__ is str:
            return str(node)
        short = _SHORT.get(node.__class__)
        if short is not None:
            text = short(self, node)  # type: ignore[arg-type]
            if text is not None:
                return text
        elif self.careful and node.__class__ not in _STABLE:
            raise _Unsure
        return str(super().sql(node, None, comment))


Short = Callable[[Printer, exp.Expr], str | None]


def _more(node: exp.Expr, *known: str) -> bool:
    """Whether a node says more than what is written here."""
    args = node.args
    return len(args) > len(known) and any(args[key] for key in args if key not in known)


def _identifier(printer: Printer, node: exp.Expr) -> str | None:
    if not node.args.get("quoted"):
        return None
    return quoted(str(node.args["this"]))


def _column(printer: Printer, node: exp.Expr) -> str | None:
    if _more(node, "this", "table"):
        return None
    name, table = node.args.get("this"), node.args.get("table")
    if table is None:
        return printer.sql(name)
    return f"{printer.sql(table)}.{printer.sql(name)}"


def _literal(printer: Printer, node: exp.Expr) -> str | None:
    return None if node.args.get("is_string") else str(node.args["this"])


def _paren(printer: Printer, node: exp.Expr) -> str:
    return f"({printer.sql(node.args['this'])})"


def _alias(printer: Printer, node: exp.Expr) -> str:
    return f"{printer.sql(node.args['this'])} AS {printer.sql(node.args['alias'])}"


def _cast(printer: Printer, node: exp.Expr) -> str | None:
    to = node.args["to"]
    kind = _TYPES.get(to.args.get("this"))
    if kind is None or _more(to, "this") or _more(node, "this", "to"):
        return None
    return f"CAST({printer.sql(node.args['this'])} AS {kind})"


def _binary(sign: str) -> Short:
    joint = f" {sign} "

    def write(printer: Printer, node: exp.Expr) -> str | None:
        kind, parts = type(node), []
        # Sums of a thousand terms lean to the left: no recursion along that side.
        while type(node) is kind:
            args = node.args
            if _more(node, "this", "expression"):
                return None
            parts.append(printer.sql(args["expression"]))
            node = args["this"]
        parts.append(printer.sql(node))
        return joint.join(reversed(parts))

    return write


def _call(name: str) -> Short:
    def write(printer: Printer, node: exp.Expr) -> str | None:
        parts = [node.args["this"]]
        for key, value in node.args.items():
            if key == "this" or not value:
                continue
            if key == "expressions":
                parts += value
            elif key == "expression":
                parts.append(value)
            else:
                return None
        return f"{name}({', '.join(printer.sql(part) for part in parts)})"

    return write


def _case(printer: Printer, node: exp.Expr) -> str | None:
    if node.args.get("this") is not None:
        return None
    parts = ["CASE"]
    parts += (
        f"WHEN {printer.sql(each.args['this'])} THEN {printer.sql(each.args['true'])}"
        for each in node.args["ifs"]
    )
    if node.args.get("default") is not None:
        parts.append(f"ELSE {printer.sql(node.args['default'])}")
    return " ".join((*parts, "END"))


_SHORT: dict[type, Short] = {
    exp.Identifier: _identifier,
    exp.Column: _column,
    exp.Literal: _literal,
    exp.Paren: _paren,
    exp.Alias: _alias,
    exp.Cast: _cast,
    exp.Case: _case,
    exp.Add: _binary("+"),
    exp.Sub: _binary("-"),
    exp.Mul: _binary("*"),
    exp.Div: _binary("/"),
    exp.EQ: _binary("="),
    exp.NEQ: _binary("<>"),
    exp.LT: _binary("<"),
    exp.LTE: _binary("<="),
    exp.GT: _binary(">"),
    exp.GTE: _binary(">="),
    exp.Sum: _call("SUM"),
    exp.Sqrt: _call("SQRT"),
    exp.Nullif: _call("NULLIF"),
    exp.Coalesce: _call("COALESCE"),
    exp.Abs: _call("ABS"),
}

# sqlglot prints these without touching them.  Others, functions that it spells anew above all,
# may be rewritten in place, so they are printed from a copy.
_STABLE = frozenset(
    {
        *(exp.And, exp.Or, exp.Not, exp.Is, exp.Null, exp.Boolean, exp.Neg, exp.In, exp.Between),
        *(exp.Select, exp.From, exp.Where, exp.Table, exp.TableAlias, exp.Subquery, exp.Star),
        *(exp.Count, exp.Min, exp.Max, exp.Filter, exp.Group, exp.Order, exp.Ordered, exp.Limit),
        *(exp.With, exp.CTE, exp.Having, exp.Join, exp.Tuple, exp.Dot, exp.If, exp.Anonymous),
        *(exp.Greatest, exp.Least, exp.Pow, exp.DataType, exp.Avg, exp.Placeholder, exp.Window),
        *(exp.Like, exp.ILike, exp.Union, exp.Distinct, exp.NullSafeEQ, exp.NullSafeNEQ),
    }
)

COMPILED = not isfunction(DuckDB.Generator.generate)
_PRINTERS = threading.local()


def text_of(node: exp.Expr, *, used_up: bool = False) -> str:
    """DuckDB's spelling of a tree, which stays as it is unless it may be used up."""
    if COMPILED:
        generator = DuckDB.Generator(dialect="duckdb", comments=False)
        return str(generator.generate(node, copy=not used_up))
    printer = getattr(_PRINTERS, "one", None)
    if printer is None:
        printer = _PRINTERS.one = Printer()
    printer.careful = not used_up
    with suppress(_Unsure):
        return str(printer.generate(node, copy=False))
    printer.careful = False
    return str(printer.generate(node, copy=True))
