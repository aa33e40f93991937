"""Shared helpers for sqlglot trees."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache, reduce
from typing import TypeVar

from sqlglot import exp

from privsql.errors import NotSupportedError, Place
from privsql.sql.printing import text_of

E = TypeVar("E", bound=exp.Expr)

_AGGREGATES = """
    any_value approx_count_distinct approx_quantile approx_top_k arbitrary arg_max arg_max_null
    arg_max_nulls_last arg_min arg_min_null arg_min_nulls_last argmax argmin array_agg avg
    bit_and bit_or bit_xor bitstring_agg bool_and bool_or combine_aggr corr count count_if
    count_star countif covar_pop covar_samp decimal_average entropy every favg first fsum
    geomean geometric_mean group_concat histogram histogram_exact kahan_sum kurtosis
    kurtosis_pop last list listagg lttb mad max max_by mean median min min_by mode
    percentile_cont percentile_disc product quantile quantile_cont quantile_disc regr_avgx
    regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy
    reservoir_quantile sem skewness stddev stddev_pop stddev_samp string_agg sum sum_no_overflow
    sumkahan var_pop var_samp variance variant_group_object
"""
AGGREGATES = frozenset(_AGGREGATES.split())

_ORDERS = (exp.LT, exp.LTE, exp.GT, exp.GTE)
COMPARISONS = (exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ, *_ORDERS)


class Unsupported(NotSupportedError, code="unsupported"):  # noqa: N818 - says what it is
    """A construct that has no answer from perturbed rows; the table in the docs lists them."""


def name_of(node: exp.Expr) -> str:
    """The name of a function as DuckDB writes it, in lower case.

    >>> from sqlglot import parse_one
    >>> name_of(parse_one("quantile_disc(x, 0.5)", dialect="duckdb"))
    'quantile_disc'
    """
    if isinstance(node, exp.Anonymous | exp.AnonymousAggFunc | exp.CombinedAggFunc):
        return str(node.this).lower()
    if not isinstance(node, exp.Func) or isinstance(node, exp.Connector | exp.Case | exp.Cast):
        return ""
    return text_of(node).split("(", 1)[0].strip().lower()


def is_aggregate(node: exp.Expr) -> bool:
    """Whether a node is an aggregate function itself."""
    return isinstance(node, exp.Func) and name_of(node) in AGGREGATES


def is_call(node: exp.Expr) -> bool:
    """Whether a node is an aggregate with all that belongs to it."""
    return isinstance(node, exp.Filter | exp.WithinGroup) or is_aggregate(node)


def aliases_of(select: exp.Select) -> dict[str, exp.Expr]:
    """What the aliases of a SELECT list stand for, by their folded names."""
    return {p.alias.casefold(): p.this for p in select.expressions if isinstance(p, exp.Alias)}


def sources_of(select: exp.Expr) -> list[exp.Expr]:
    """The items of FROM and its joins."""
    first = select.args.get("from_")
    joins = select.args.get("joins") or ()
    return [each.this for each in (*([first] if first else []), *joins)]


def queries_of(node: exp.Expr) -> Iterator[exp.Expr]:
    """The sub-queries of an expression, without those inside them."""
    return outermost(node, lambda each: isinstance(each, exp.Query))


def outermost(node: exp.Expr, found: Callable[[exp.Expr], bool]) -> Iterator[exp.Expr]:
    """Nodes that satisfy ``found``, without looking inside them, nor into sub-queries."""
    if found(node):
        yield node
        return
    for child in node.iter_expressions():
        if found(child) or not isinstance(child, exp.Query):
            yield from outermost(child, found)


def walked(tree: exp.Expr) -> list[exp.Expr]:
    """All nodes of a tree, those above before those below, as ``tree.walk()`` has them.

    A list, so that the tree may be changed; without sqlglot's generators it takes a third.
    """
    found = [tree]
    for node in found:
        for value in node.args.values():
            if isinstance(value, exp.Expr):
                found.append(value)
            elif value.__class__ is list:
                found += [each for each in value if isinstance(each, exp.Expr)]
    return found


def of_kind(tree: exp.Expr, kind: type[E]) -> list[E]:
    """All nodes of a kind in a tree."""
    return [node for node in walked(tree) if isinstance(node, kind)]


def columns_of(node: exp.Expr) -> Iterator[exp.Column]:
    """All columns in an expression, those of sub-queries left out."""
    waiting = [node]
    while waiting:
        each = waiting.pop()
        if isinstance(each, exp.Column):
            yield each
        elif not isinstance(each, exp.Query):
            waiting += each.iter_expressions(reverse=True)


def conjuncts(node: exp.Expr) -> Iterator[exp.Expr]:
    """The parts of ``a AND b AND c``."""
    node = bare(node)
    if isinstance(node, exp.And):
        yield from conjuncts(node.left)
        yield from conjuncts(node.right)
    else:
        yield node


def bare(node: exp.Expr) -> exp.Expr:
    """The expression inside parentheses."""
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def every(conditions: Iterable[exp.Expr]) -> exp.Expr | None:
    """``a AND b AND ...``, or nothing of nothing."""
    parts = [wrapped(condition) for condition in conditions]
    return chained(exp.And, parts) if parts else None


def chained(kind: type[exp.Binary], parts: Iterable[exp.Expr]) -> exp.Expr:
    """``a + b + ...`` by an operator."""
    return reduce(lambda a, b: kind(this=a, expression=b), parts)


def union_all(queries: Iterable[exp.Expr], **options: bool) -> exp.Expr:
    """``a UNION ALL b ...``."""
    return reduce(lambda a, b: exp.Union(this=a, expression=b, distinct=False, **options), queries)


def given(node: exp.Expr) -> exp.Expr:
    """``node IS NOT NULL``."""
    return exp.Not(this=exp.Is(this=wrapped(node), expression=exp.Null()))


def when(condition: exp.Expr | None, value: exp.Expr, default: exp.Expr | None = None) -> exp.Case:
    """``CASE WHEN condition THEN value ELSE default END``."""
    return exp.Case(ifs=[exp.If(this=condition, true=value)], default=default)


_PLAIN = (exp.Column, exp.Literal, exp.Boolean, exp.Null, exp.Placeholder, exp.Func, exp.Paren)


def copied(tree: E) -> E:
    """A copy of a tree: sqlglot's own takes twice as long, and planning makes hundreds."""
    root = tree.__class__()
    waiting: list[tuple[exp.Expr, exp.Expr]] = [(tree, root)]
    while waiting:
        old, new = waiting.pop()
        new.comments = None if old.comments is None else [*old.comments]
        new._type = old._type
        new._meta = None if old._meta is None else {**old._meta}
        for key, value in old.args.items():
            if isinstance(value, exp.Expr):
                value = _begun(value, new, key, None, waiting)
            elif value.__class__ is list:
                value = [
                    _begun(each, new, key, i, waiting) if isinstance(each, exp.Expr) else each
                    for i, each in enumerate(value)
                ]
            new.args[key] = value
    return root


def _begun(
    old: exp.Expr,
    parent: exp.Expr,
    key: str,
    index: int | None,
    waiting: list[tuple[exp.Expr, exp.Expr]],
) -> exp.Expr:
    """A node without its arguments, at its place in a copy."""
    new: exp.Expr = old.__class__()
    new.parent, new.arg_key, new.index = parent, key, index
    waiting.append((old, new))
    return new


def wrapped(node: exp.Expr) -> exp.Expr:
    """The expression so that it may stand inside any other one.

    It is not copied: copies of copies of large formulas are what planning would spend its
    time on.  Trees that share nodes print well; whoever changes one copies it first.
    """
    if isinstance(node, _PLAIN) and not isinstance(node, exp.Connector):
        return node
    return exp.Paren(this=node)


def column(name: str, table: str | None = None) -> exp.Column:
    """A quoted column."""
    qualifier = exp.Identifier(this=table, quoted=True) if table else None
    return exp.Column(this=exp.Identifier(this=name, quoted=True), table=qualifier)


def number(value: float | int) -> exp.Expr:
    """A number as DuckDB reads it back without loss, as DOUBLE unless it is whole."""
    if isinstance(value, int):
        return exp.Literal.number(value) if value >= 0 else exp.Neg(this=exp.Literal.number(-value))
    text = exp.Literal.number(repr(abs(value)))
    literal = cast(text, "DOUBLE")
    return literal if value >= 0 else exp.Paren(this=exp.Neg(this=literal))


def place_of(node: exp.Expr, text: str) -> Place | None:
    """Where a node stands in the analyst's text, as far as its names tell."""
    found = [each.meta for each in walked(node) if "start" in each.meta and "end" in each.meta]
    if not found:
        return None
    stop = max(meta["end"] for meta in found) + 1
    return Place(text, min(meta["start"] for meta in found), stop) if stop <= len(text) else None


def sql(node: exp.Expr) -> str:
    """DuckDB's spelling; also the key by which equal expressions are recognised."""
    return text_of(node)


def table(name: str, alias: str | None = None) -> exp.Table:
    """A quoted table, under an alias if one is given."""
    made = exp.Table(this=exp.to_identifier(name, quoted=True))
    if alias is not None:
        made.set("alias", _table_alias(alias))
    return made


def choose(query: exp.Select, *nodes: exp.Expr) -> exp.Select:
    """Add columns to a SELECT in place: sqlglot's own builders copy all of it each time."""
    for node in nodes:
        query.append("expressions", node)
    return query


def define(query: exp.Select, name: str, node: exp.Expr) -> None:
    """Add a column to a SELECT in place: ``node AS "name"``."""
    query.append("expressions", named(node, name))


def select(source: exp.Expr, *nodes: exp.Expr) -> exp.Select:
    """``SELECT nodes FROM source``, without copying them."""
    return exp.Select(expressions=list(nodes)).from_(source, copy=False)


def joined(query: exp.Select, source: exp.Expr, on: exp.Expr | None = None, side: str = "") -> None:
    """Add a table to FROM where a condition holds; without one, every row with every row."""
    if query.args.get("from_") is None:
        query.set("from_", exp.From(this=source))
    elif on is None:
        query.append("joins", exp.Join(this=source, kind="CROSS"))
    else:
        query.append("joins", exp.Join(this=source, on=on, side=side))


@cache
def _type(kind: str) -> exp.DataType:
    return exp.DataType.build(kind, dialect="duckdb")


def cast(node: exp.Expr, kind: str) -> exp.Cast:
    """``CAST(node AS kind)``; reading a type's name anew each time is slow."""
    return exp.Cast(this=node, to=_type(kind))


def named(node: exp.Expr, name: str) -> exp.Alias:
    """``node AS "name"``."""
    return exp.Alias(this=node, alias=exp.Identifier(this=name, quoted=True))


def _table_alias(name: str) -> exp.TableAlias:
    return exp.TableAlias(this=exp.Identifier(this=name, quoted=True))


def derived(query: exp.Expr, name: str) -> exp.Subquery:
    """``(query) AS name``, without copying it."""
    return exp.Subquery(this=query, alias=_table_alias(name))


def cte(name: str, query: exp.Expr) -> exp.CTE:
    """``name AS MATERIALIZED (query)``, without copying it."""
    return exp.CTE(this=query, alias=_table_alias(name), materialized=True)


def star_of(source: str, replaced: Iterable[exp.Expr] = ()) -> exp.Column:
    """``source.*``, with some columns replaced."""
    star = exp.Star(replace=list(replaced)) if replaced else exp.Star()
    return exp.Column(this=star, table=exp.to_identifier(source))


def ranked(*keys: exp.Expr) -> exp.Window:
    """``DENSE_RANK() OVER (ORDER BY keys)``, NULL last."""
    order = [exp.Ordered(this=key, nulls_first=False) for key in keys]
    rank = exp.Anonymous(this="dense_rank")
    return exp.Window(this=rank, order=exp.Order(expressions=order), over="OVER")


def replace_below(node: exp.Expr, made: Callable[[exp.Expr], exp.Expr]) -> None:
    """Replace every expression directly below a node, in place."""
    for key, value in list(node.args.items()):
        if isinstance(value, exp.Expr):
            node.set(key, made(value))
        elif isinstance(value, list):
            node.set(key, [made(v) if isinstance(v, exp.Expr) else v for v in value])


def rewritten(tree: exp.Expr, made: Callable[[exp.Expr], exp.Expr]) -> exp.Expr:
    """A tree whose nodes are replaced by what is made of them, those below others first."""
    root = exp.Paren(this=tree)
    for node in reversed(walked(tree)):
        new = made(node)
        if new is not node:
            node.replace(new)
    found: exp.Expr = root.this
    found.pop()
    return found
