"""Which personal groups stand behind each cell of an answer, as a scan of its own.

A cell is personal when all rows that its public conditions select lie in one personal
group; so it is decided on the data and not on the text, and every spelling is caught.  What an
aggregate selects is WHERE, FILTER and CASE together: the rows where its public half is not 0.

    per public keys and distinct selection s:   lo<s>, hi<s>   smallest and largest group number
                                                n<s>           rows

Groups are a function of the public grouping columns, so the small table of distinct public
tuples is enough where nothing else is used; conditions on measures need the rows themselves.
(reconstruction, 8)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlglot import exp

from privsql.sql.block import Block
from privsql.sql.catalog import PUBLISHED, Catalog
from privsql.sql.pieces import Piece
from privsql.sql.scan import GROUP, MULTIPLICITY
from privsql.sql.states import joined_to
from privsql.sql.tree import (
    cast,
    choose,
    column,
    columns_of,
    every,
    named,
    number,
    sql,
    table,
    wrapped,
)
from privsql.sql.writing import call, same

TUPLES, ROWS = "tuples", "privsql_rows"


@dataclass(frozen=True)
class Membership:
    """The scan, and which of its selections each aggregate makes."""

    select: exp.Select
    selections: dict[int, tuple[int, ...]]  # aggregate -> what its sums select
    count: int


def membership(catalog: Catalog, block: Block) -> Membership:
    """Write the scan for a block that involves a sensitive column."""
    supports: dict[str, exp.Expr | None] = {}
    selections: dict[int, tuple[int, ...]] = {}
    for i, aggregate in enumerate(block.aggregates):
        if aggregate.kind not in ("linear", "quantile", "mode"):
            continue
        # SUM's count only tells whether there is anything to add up.
        bases = aggregate.bases[:1] if aggregate.call.name == "sum" else aggregate.bases
        made_of = []
        for k in bases:
            support = _support(block.bases[k])
            text = "" if support is None else sql(support)
            supports.setdefault(text, support)
            made_of.append(list(supports).index(text))
        selections[i] = tuple(dict.fromkeys(made_of))
    small = _grouping_only(catalog, block, supports)
    rows: exp.Expr = column(ROWS, PUBLISHED) if small else number(1)
    if not small and catalog.multiplicity:
        rows = column(MULTIPLICITY, PUBLISHED)
    group = column(GROUP, PUBLISHED if small or catalog.grouped else "u")
    made = exp.Select()
    public = [(i, key) for i, key in enumerate(block.keys) if not key.sensitive]
    for i, key in public:
        choose(made, named(key.expression.copy(), f"k{i}"))
    several = len(block.sets) > 1 or any(len(s) != len(block.keys) for s in block.sets)
    for i, key in public:
        flag: exp.Expr = number(0)
        if several:
            flag = exp.Grouping(expressions=[key.expression.copy()])
        choose(made, named(flag, f"g{i}"))
    for s, support in enumerate(supports.values()):
        for name, node in (
            (f"lo{s}", exp.Min(this=group.copy())),
            (f"hi{s}", exp.Max(this=group.copy())),
            (f"n{s}", exp.Sum(this=rows.copy())),
        ):
            part: exp.Expr = node
            if support is not None:
                part = exp.Filter(this=node, expression=exp.Where(this=support.copy()))
            if name.startswith("n"):
                part = cast(exp.Coalesce(this=part, expressions=[number(0)]), "BIGINT")
            choose(made, named(part, name))
    if small:
        source = table(TUPLES, PUBLISHED)
        source.set("db", exp.to_identifier("privsql"))
        made.from_(source, copy=False)
    else:
        made.from_(table(catalog.table, PUBLISHED), copy=False)
        if not catalog.grouped:
            other = table(TUPLES, "u")
            other.set("db", exp.to_identifier("privsql"))
            on = every(
                same(column(name, PUBLISHED), column(name, "u")) for name in catalog.grouping
            )
            made.append("joins", exp.Join(this=other, on=on or exp.Boolean(this=True)))
    for join in block.rows.joins:
        if not block.joins[join.alias]:
            made = joined_to(made, join.table, join.alias, join.on, join.kind)
    for guard in block.guards:
        made = made.where(guard.copy())
    if not public:
        return Membership(made, selections, len(supports))
    if not several:
        made = made.group_by(*(key.expression.copy() for _, key in public))
        return Membership(made, selections, len(supports))
    chosen = dict.fromkeys(
        tuple(i for i in each if not block.keys[i].sensitive) for each in block.sets
    )
    sets = [
        exp.Tuple(expressions=[block.keys[i].expression.copy() for i in each]) for each in chosen
    ]
    made.set("group", exp.Group(expressions=[exp.GroupingSets(expressions=sets)]))
    return Membership(made, selections, len(supports))


def _support(pieces: Iterable[Piece]) -> exp.Expr | None:
    """Where the public half of one of the pieces is not 0; None stands for everywhere."""
    found: dict[str, exp.Expr] = {}
    for piece in pieces:
        parts = list(piece.guards)
        if piece.value is not None and next(columns_of(piece.value), None) is not None:
            parts.append(exp.NEQ(this=wrapped(piece.value), expression=number(0)))
        whole = every(part.copy() for part in parts)
        if whole is None:
            return None
        found.setdefault(sql(whole), whole)
    made: exp.Expr | None = None
    for node in found.values():
        made = node if made is None else exp.Or(this=wrapped(made), expression=wrapped(node))
    return made


def _grouping_only(catalog: Catalog, block: Block, supports: dict[str, exp.Expr | None]) -> bool:
    """Whether nothing but grouping columns decides which rows are selected."""
    nodes = [*block.guards, *(node for node in supports.values() if node is not None)]
    nodes += [key.expression for key in block.keys if not key.sensitive]
    for join in block.rows.joins:
        if not block.joins[join.alias]:
            nodes += [ours for ours, _ in join.on]
    used = {c.name for node in nodes for c in columns_of(node) if c.table == PUBLISHED}
    return used <= set(catalog.grouping)


def masked(prefix: str, block: Block, hidden: list[int]) -> exp.Select:
    """The block's table with refused cells empty: their error and their trace as well."""
    made = exp.Select().from_(table(f"{prefix}_open", "b"), copy=False)
    public = [i for i, key in enumerate(block.keys) if not key.sensitive]
    on = every(
        [
            *(same(column(f"k{i}", "b"), column(f"k{i}", "m")) for i in public),
            *(exp.EQ(this=column(f"g{i}", "b"), expression=column(f"g{i}", "m")) for i in public),
        ]
    )
    join = {"kind": "CROSS"} if on is None else {"side": "LEFT", "on": on}
    made.append("joins", exp.Join(this=table(f"{prefix}_mask", "m"), **join))
    replaced = []
    for i in hidden:
        covered = [f"{letter}{i}" for letter in ("a", "s", "l", "u", "ok", "e", "seen")]
        refused = exp.EQ(this=column(f"p{i}", "m"), expression=exp.Boolean(this=True))
        for name in covered:
            kept = exp.Case(
                ifs=[exp.If(this=refused.copy(), true=exp.Null())], default=column(name, "b")
            )
            replaced.append(named(kept, name))
    star = exp.Star(replace=replaced)
    made.set("expressions", [exp.Column(this=star, table=exp.to_identifier("b"))])
    return made


__all__ = ["Membership", "call", "masked", "membership"]
