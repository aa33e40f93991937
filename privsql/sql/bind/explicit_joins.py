"""Joins of FROM in the one shape that is bound: published rows JOIN public table ON equalities.

    FROM orders o, lines l, people p WHERE l.order_id = o.id AND o.person = p.id AND p.vip
    FROM lines l JOIN orders o ON l.order_id = o.id JOIN people p ON o.person = p.id WHERE p.vip

Inner joins may be taken in any order and their conditions moved between ON and WHERE.  So the
published rows come first, and each public table follows as soon as an equality leads from what is
there to a column of its own.  Of an OR, an equality that all of its branches have is one, too.
In the ON of a LEFT JOIN, a condition on the public table alone selects its rows beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from privsql.sql.nodes import bare, column, conjuncts, copied, every, sql


@dataclass(frozen=True)
class Source:
    """One item of FROM: the join it came with, its name and its columns, both folded."""

    node: exp.Expr
    join: exp.Join | None
    alias: str
    columns: frozenset[str]

    @property
    def left(self) -> bool:
        """Whether rows stay that have no partner in it."""
        return self.join is not None and self.join.side == "LEFT"


# The names of an item's columns, or None where they are not known.
Columns = Callable[[exp.Expr], Sequence[str] | None]


def make_explicit(
    select: exp.Select, columns: Columns, published: Callable[[exp.Expr], bool]
) -> None:
    """Rewrite FROM and WHERE in place, where they are not in that shape already.

    What cannot be rewritten stays as it is, for the binder to refuse.
    """
    first, joins = select.args["from_"].this, list(select.args.get("joins") or ())
    if not joins or not all(map(_movable, joins)):
        return
    if published(first) and all(map(_plain, joins)):
        return
    found = [_source(first, None, columns), *(_source(j.this, j, columns) for j in joins)]
    sources = [each for each in found if each is not None]
    starts = [each for each in sources if published(each.node)]
    if len(sources) < len(found) or len(starts) != 1 or starts[0].left:
        return
    owners = _Owners(sources)
    where = select.args.get("where")
    conditions = list(conjuncts(where.this)) if where is not None else []
    for each in sources:
        if each.join is not None and not each.left and each.join.args.get("on"):
            conditions += conjuncts(each.join.args["on"])
    ordered = _ordered(starts[0], sources, conditions, owners, columns)
    if ordered is None:
        return
    made, rest = ordered
    select.args["from_"].set("this", starts[0].node)
    select.set("joins", made)
    left = every(rest)
    select.set("where", None if left is None else exp.Where(this=left))


def _movable(join: exp.Join) -> bool:
    if join.method or join.args.get("using"):
        return False
    if join.side == "LEFT":
        return join.kind in ("", "OUTER") and join.args.get("on") is not None
    return not join.side and join.kind in ("", "INNER", "CROSS")


def _plain(join: exp.Join) -> bool:
    """Whether its ON has nothing but equalities of columns."""
    on = join.args.get("on")
    return on is not None and all(
        isinstance(each, exp.EQ)
        and isinstance(each.left, exp.Column)
        and isinstance(each.right, exp.Column)
        for each in conjuncts(on)
    )


def _source(node: exp.Expr, join: exp.Join | None, columns: Columns) -> Source | None:
    names = columns(node)
    alias = node.alias_or_name.casefold()
    if names is None or not alias:
        return None
    return Source(node, join, alias, frozenset(name.casefold() for name in names))


class _Owners:
    """Which sources the columns of an expression are of."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources

    def of(self, node: exp.Expr) -> frozenset[str] | None:
        """Aliases of the sources, or None where that is not certain."""
        if node.find(exp.Query) is not None:
            return None
        found: set[str] = set()
        for each in node.find_all(exp.Column):
            name, table = each.name.casefold(), each.table.casefold()
            able = [
                source.alias
                for source in self._sources
                if name in source.columns and table in ("", source.alias)
            ]
            if len(able) != 1:
                return None
            found.add(able[0])
        return frozenset(found)


def _ordered(
    start: Source,
    sources: Sequence[Source],
    conditions: list[exp.Expr],
    owners: _Owners,
    columns: Columns,
) -> tuple[list[exp.Join], list[exp.Expr]] | None:
    """Joins in an order in which each has its keys, and the conditions that are left."""
    there, made, rest = {start.alias}, [], [*conditions]
    waiting = [each for each in sources if each is not start]
    while waiting:
        for each in waiting:
            join = (
                _left_join(each, there, owners, columns)
                if each.left
                else _inner_join(each, there, owners, rest)
            )
            if join is not None:
                break
        else:
            return None
        made.append(join)
        there.add(each.alias)
        waiting.remove(each)
    return made, rest


def _inner_join(
    source: Source, there: set[str], owners: _Owners, rest: list[exp.Expr]
) -> exp.Join | None:
    """Its keys leave the conditions; those inside of an OR stay there as well."""
    keys = [each for each in rest if _leads(each, source.alias, there, owners)]
    if not keys:
        shared = [key for each in rest for key in _shared(each)]
        keys = [each for each in shared if _leads(each, source.alias, there, owners)]
    on = every({sql(each): each for each in keys}.values())
    if on is None:
        return None
    rest[:] = [each for each in rest if not any(each is key for key in keys)]
    return _join(source, on)


def _left_join(
    source: Source, there: set[str], owners: _Owners, columns: Columns
) -> exp.Join | None:
    if source.join is None:
        return None
    keys, own = [], []
    for each in conjuncts(source.join.args["on"]):
        if _leads(each, source.alias, there, owners):
            keys.append(each)
        elif owners.of(each) == frozenset({source.alias}):
            own.append(each)
        else:
            return None
    on, condition = every(keys), every(own)
    if on is None:
        return None
    made = _join(source, on)
    if condition is not None:
        made.set("this", _filtered(source.node, condition, columns(source.node) or ()))
    return made


def _filtered(node: exp.Expr, condition: exp.Expr, names: Sequence[str]) -> exp.Expr:
    """The rows of a public table that satisfy a condition, under the table's own name."""
    chosen = exp.Select(expressions=[column(name, node.alias_or_name) for name in names])
    chosen.from_(copied(node), copy=False)
    chosen.set("where", exp.Where(this=copied(condition)))
    alias = exp.TableAlias(this=exp.to_identifier(node.alias_or_name, quoted=True))
    return exp.Subquery(this=chosen, alias=alias)


def _join(source: Source, on: exp.Expr) -> exp.Join:
    made = copied(source.join) if source.join is not None else exp.Join()
    made.set("this", source.node)
    made.set("kind", None if source.left else "INNER")
    made.set("on", on)
    return made


def _leads(node: exp.Expr, alias: str, there: set[str], owners: _Owners) -> bool:
    """Whether an equality gives a column of one source from columns of those that are there."""
    node = bare(node)
    if not isinstance(node, exp.EQ):
        return False
    for theirs, ours in ((node.right, node.left), (node.left, node.right)):
        if isinstance(theirs, exp.Column) and owners.of(theirs) == frozenset({alias}):
            from_ = owners.of(ours)
            if from_ and from_ <= there:
                return True
    return False


def _shared(node: exp.Expr) -> Iterator[exp.Expr]:
    """Equalities that every branch of an OR has."""
    branches = list(_branches(node))
    if len(branches) < 2:
        return
    texts = [{sql(bare(each)) for each in conjuncts(branch)} for branch in branches]
    common = set.intersection(*texts)
    known: Mapping[str, exp.Expr] = {sql(bare(e)): bare(e) for e in conjuncts(branches[0])}
    for text, each in known.items():
        if text in common and isinstance(each, exp.EQ):
            yield copied(each)


def _branches(node: exp.Expr) -> Iterator[exp.Expr]:
    node = bare(node)
    if isinstance(node, exp.Or):
        yield from _branches(node.left)
        yield from _branches(node.right)
    else:
        yield node
