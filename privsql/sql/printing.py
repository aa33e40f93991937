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
from functools import lru_cache
from inspect import isfunction

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB

from privsql.release.names import quoted

_TYPES = {
    exp.DType.DOUBLE: "DOUBLE",
    exp.DType.BIGINT: "BIGINT",
    exp.DType.UBIGINT: "UBIGINT",
    exp.DType.INT: "INT",
    exp.DType.BOOLEAN: "BOOLEAN",
    exp.DType.DATE: "DATE",
    exp.DType.TIMESTAMP: "TIMESTAMP",
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
        kind = node.__class__
        short = _SHORT.get(kind)
        if short is not None:
            text = short(self, node)  # type: ignore[arg-type]
            if text is not None:
                return text
        if node is None:
            return ""
        if kind is str:
            return str(node)
        if self.careful and kind not in _STABLE:
            raise _Unsure
        return str(super().sql(node, None, comment))


Short = Callable[[Printer, exp.Expr], str | None]


def _more(node: exp.Expr, *known: str) -> bool:
    """Whether a node says more than what is written here."""
    for key, value in node.args.items():  # noqa: SIM110 - a generator takes twice as long
        if value and key not in known:
            return True
    return False


def _listed(printer: Printer, nodes: list[exp.Expr]) -> str:
    # sqlglot leaves None in the place of an argument that was not given.
    return ", ".join(filter(None, map(printer.sql, nodes)))


def _string(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _identifier(printer: Printer, node: exp.Expr) -> str:
    args = node.args
    return _quoted(args["this"]) if args.get("quoted") else _bare(args["this"])


_quoted = lru_cache(4096)(quoted)


@lru_cache(1024)
def _bare(name: str) -> str:
    """A name as it was written, in quotes where it is a word of DuckDB's."""
    return str(DuckDB.Generator(dialect="duckdb").generate(exp.Identifier(this=name)))


def _column(printer: Printer, node: exp.Expr) -> str | None:
    args = node.args
    if len(args) > 1 and _more(node, "this", "table"):
        return None
    this, table = args["this"], args.get("table")
    # Most nodes of our trees are columns: no way round by the table of kinds.
    plain = this.__class__ is exp.Identifier
    name = _identifier(printer, this) if plain else printer.sql(this)
    return name if table is None else f"{_identifier(printer, table)}.{name}"


def _literal(printer: Printer, node: exp.Expr) -> str | None:
    text = str(node.args["this"])
    return _string(text) if node.args.get("is_string") else text


def _paren(printer: Printer, node: exp.Expr) -> str:
    return f"({printer.sql(node.args['this'])})"


def _alias(printer: Printer, node: exp.Expr) -> str:
    return f"{printer.sql(node.args['this'])} AS {printer.sql(node.args['alias'])}"


def _cast(printer: Printer, node: exp.Expr) -> str | None:
    if _more(node, "this", "to"):
        return None
    return f"CAST({printer.sql(node.args['this'])} AS {printer.sql(node.args['to'])})"


def _type(printer: Printer, node: exp.Expr) -> str | None:
    kind = node.args["this"]
    return _TYPES.get(kind) if isinstance(kind, exp.DType) and not _more(node, "this") else None


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
        return f"{name}({_listed(printer, parts)})"

    return write


def _anonymous(printer: Printer, node: exp.Expr) -> str | None:
    name = node.args["this"]
    # A name with a schema before it may be one that upper case makes another.
    if name.__class__ is not str or type(node.parent) is exp.Dot:
        return None
    return f"{name.upper()}({_listed(printer, node.args.get('expressions') or [])})"


def _count(printer: Printer, node: exp.Expr) -> str | None:
    if _more(node, "this", "big_int"):
        return None
    return f"COUNT({printer.sql(node.args.get('this'))})"


def _word(text: str) -> Short:
    return lambda printer, node: text


def _boolean(printer: Printer, node: exp.Expr) -> str:
    return "TRUE" if node.args["this"] else "FALSE"


def _star(printer: Printer, node: exp.Expr) -> str | None:
    return None if _more(node) else "*"


def _is(printer: Printer, node: exp.Expr) -> str | None:
    args = node.args
    if type(args["this"]) is exp.Is or _more(node, "this", "expression"):
        return None
    return f"{printer.sql(args['this'])} IS {printer.sql(args['expression'])}"


def _prefix(sign: str) -> Short:
    return lambda printer, node: f"{sign}{printer.sql(node.args['this'])}"


def _negative(printer: Printer, node: exp.Expr) -> str:
    text = printer.sql(node.args["this"])
    return f"- {text}" if text.startswith("-") else f"-{text}"


def _between(printer: Printer, node: exp.Expr) -> str | None:
    args = node.args
    if _more(node, "this", "low", "high") or args.get("symmetric") is not None:
        return None
    this, low, high = (printer.sql(args[key]) for key in ("this", "low", "high"))
    return f"{this} BETWEEN {low} AND {high}"


def _in(printer: Printer, node: exp.Expr) -> str | None:
    if _more(node, "this", "expressions"):
        return None
    listed = _listed(printer, node.args.get("expressions") or [])
    return f"{printer.sql(node.args['this'])} IN ({listed})"


def _array(printer: Printer, node: exp.Expr) -> str | None:
    nodes = node.args.get("expressions") or []
    if _more(node, "expressions") or any(isinstance(each, exp.Query) for each in nodes):
        return None
    return f"[{_listed(printer, nodes)}]"


def _bracket(printer: Printer, node: exp.Expr) -> str | None:
    """``x[i]``: sqlglot counts from 0, DuckDB from 1."""
    this, places = node.args["this"], node.args["expressions"]
    if _more(node, "this", "expressions") or type(this) is not exp.Column or len(places) != 1:
        return None
    place = places[0]
    if type(place) is not exp.Literal or not str(place.this).isdigit() or this.type:
        return None
    return f"{printer.sql(this)}[{int(place.this) + 1}]"


def _lambda(printer: Printer, node: exp.Expr) -> str | None:
    if _more(node, "this", "expressions"):
        return None
    names = _listed(printer, node.args["expressions"])
    return f"LAMBDA {names} : {printer.sql(node.args['this'])}"


def _dot(printer: Printer, node: exp.Expr) -> str:
    return f"{printer.sql(node.args['this'])}.{printer.sql(node.args['expression'])}"


def _ordered(printer: Printer, node: exp.Expr) -> str | None:
    args = node.args
    if _more(node, "this", "desc", "nulls_first"):
        return None
    order = " DESC" if args.get("desc") else " ASC" if args.get("desc") is False else ""
    first = " NULLS FIRST" if args.get("nulls_first") else ""
    return f"{printer.sql(args['this'])}{order}{first}"


def _order(printer: Printer, node: exp.Expr) -> str | None:
    if _more(node, "this", "expressions"):
        return None
    this, listed = node.args.get("this"), _listed(printer, node.args["expressions"])
    return f"{printer.sql(this) if this is not None else ''} ORDER BY {listed}"


def _group(printer: Printer, node: exp.Expr) -> str | None:
    if _more(node, "expressions") or node.args.get("all") is not None:
        return None
    listed = node.args.get("expressions")
    return f" GROUP BY {_listed(printer, listed)}" if listed else None


def _window(printer: Printer, node: exp.Expr) -> str | None:
    args = node.args
    if _more(node, "this", "partition_by", "order", "over") or args.get("first") is not None:
        return None
    if type(args["this"]) in (exp.Filter, exp.Corr) or node.arg_key == "windows":
        return None
    partition, order = args.get("partition_by"), args.get("order")
    parts = [f"PARTITION BY {_listed(printer, partition)}"] if partition else []
    parts += [printer.sql(order).lstrip()] if order is not None else []
    over = printer.sql(args.get("over")) or "OVER"
    return f"{printer.sql(args['this'])} {over} ({' '.join(parts)})"


def _table_alias(printer: Printer, node: exp.Expr) -> str | None:
    name, listed = node.args.get("this"), node.args.get("columns")
    if name is None:
        return None
    return f"{printer.sql(name)}({_listed(printer, listed)})" if listed else printer.sql(name)


def _aliased(printer: Printer, node: exp.Expr, text: str) -> str:
    alias = node.args.get("alias")
    return text if alias is None else f"{text} AS {printer.sql(alias)}"


def _table(printer: Printer, node: exp.Expr) -> str | None:
    args = node.args
    if _more(node, "this", "db", "catalog", "alias"):
        return None
    names = [args[key] for key in ("catalog", "db", "this") if args.get(key) is not None]
    return _aliased(printer, node, ".".join([printer.sql(name) for name in names]))


def _subquery(printer: Printer, node: exp.Expr) -> str | None:
    if _more(node, "this", "alias"):
        return None
    return _aliased(printer, node, f"({printer.sql(node.args['this'])})")


def _cte(printer: Printer, node: exp.Expr) -> str | None:
    if _more(node, "this", "alias", "materialized") or node.args.get("materialized") is False:
        return None
    kept = "MATERIALIZED " if node.args.get("materialized") else ""
    return f"{printer.sql(node.args['alias'])} AS {kept}({printer.sql(node.args['this'])})"


def _with(printer: Printer, node: exp.Expr) -> str | None:
    if _more(node, "expressions"):
        return None
    return f"WITH {_listed(printer, node.args['expressions'])}"


def _cross(printer: Printer, node: exp.Expr) -> str | None:
    """A join with every row, or ON a condition."""
    args = node.args
    side, kind, on = args.get("side") or "", args.get("kind") or "", args.get("on")
    if _more(node, "this", "side", "kind", "on") or (on is None) != (kind == "CROSS"):
        return None
    if kind not in ("", "CROSS", "INNER") or side not in ("", "LEFT"):
        return None
    how = " ".join(word for word in (side, kind, "JOIN") if word)
    where = f" ON {printer.sql(on)}" if on is not None else ""
    return f" {how} {printer.sql(args['this'])}{where}"


# Of a SELECT, in this order, each of which brings the space before it.
_CLAUSES = (
    "from_",
    "joins",
    "where",
    "group",
    "having",
    "windows",
    "qualify",
    "order",
    "limit",
    "offset",
)
_SELECT = ("with_", "distinct", "expressions", *_CLAUSES)


def _select(printer: Printer, node: exp.Expr) -> str | None:
    args = node.args
    if args.get("windows") or args.get("qualify") or _more(node, *_SELECT):
        return None
    parts = []
    with_, distinct = args.get("with_"), args.get("distinct")
    if with_ is not None:
        parts.append(f"{printer.sql(with_)} ")
    parts.append("SELECT")
    if distinct is not None:
        parts.append(f" {printer.sql(distinct)}")
    if args.get("expressions"):
        parts.append(f" {_listed(printer, args['expressions'])}")
    for key in _CLAUSES:
        value = args.get(key)
        if value.__class__ is list:
            parts += [printer.sql(each) for each in value]
        elif value is not None:
            parts.append(printer.sql(value))
    return "".join(parts)


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
    exp.Boolean: _boolean,
    exp.Null: _word("NULL"),
    exp.Star: _star,
    exp.Paren: _paren,
    exp.Alias: _alias,
    exp.Cast: _cast,
    exp.DataType: _type,
    exp.Case: _case,
    exp.Is: _is,
    exp.Not: _prefix("NOT "),
    exp.Neg: _negative,
    exp.Between: _between,
    exp.In: _in,
    exp.Array: _array,
    exp.Bracket: _bracket,
    exp.Lambda: _lambda,
    exp.Dot: _dot,
    exp.Anonymous: _anonymous,
    exp.Count: _count,
    exp.Ordered: _ordered,
    exp.Order: _order,
    exp.Group: _group,
    exp.Window: _window,
    exp.TableAlias: _table_alias,
    exp.Table: _table,
    exp.Subquery: _subquery,
    exp.CTE: _cte,
    exp.With: _with,
    exp.From: _prefix(" FROM "),
    exp.Where: _prefix(" WHERE "),
    exp.Having: _prefix(" HAVING "),
    exp.Join: _cross,
    exp.Select: _select,
    exp.And: _binary("AND"),
    exp.Or: _binary("OR"),
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
    exp.NullSafeEQ: _binary("IS NOT DISTINCT FROM"),
    exp.NullSafeNEQ: _binary("IS DISTINCT FROM"),
    exp.Sum: _call("SUM"),
    exp.Avg: _call("AVG"),
    exp.Max: _call("MAX"),
    exp.Min: _call("MIN"),
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
        *(exp.Identifier, exp.Column, exp.Literal, exp.Paren, exp.Alias, exp.Cast, exp.Case),
        *(exp.Add, exp.Sub, exp.Mul, exp.Div, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE),
        *(exp.Sum, exp.Sqrt, exp.Nullif, exp.Coalesce, exp.Abs),
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
