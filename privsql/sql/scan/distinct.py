"""The scan behind a distinct count: rows grouped by value, then values by what they have in common.

A distinct count is a sum over values u, each a product over the rows of u, so one pass groups rows
by (keys, u) first.  Two forms tell the same of each value:

    states    how many rows of u are in each published state.  Values with equal counts are one
              *signature*, which the scan brings once, with how ``many`` values have it:
                  keys, signature, many, (codes of a state, rows in it)
    weights   the product P itself, of r = 1 - G over the rows of u; it brings sums over the
              values that have equally many rows:
                  many, rows                   values, and rows of each
                  MISSED(j), j = 1 to 4        sums over values of (1 - P)^j
                  RATIO(j)                     sums over their rows of r^j
                  seen                         values with a row that counts as published

A multiplicity m counts as m rows.  NULL is no value.  (reconstruction, 11)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from privsql.sql.bind.block import Block
from privsql.sql.bind.pieces import Piece
from privsql.sql.catalog import PUBLISHED, Catalog
from privsql.sql.expressions import any_of, call, field
from privsql.sql.nodes import (
    cast,
    choose,
    column,
    define,
    derived,
    every,
    named,
    number,
    select,
    when,
    wrapped,
)
from privsql.sql.reconstruct.columns import KEY, MISSED, PUBLIC, RATIO, TIMES
from privsql.sql.scan.one_pass import MULTIPLICITY, source

VALUE, SIGNATURE, MANY, ROWS, ENTRY = "value", "signature", "many", "rows", "entry"
SEEN = "seen"

# Powers of 1 - P summed over values, and of 1 - G summed over rows.
POWERS = (1, 2, 3, 4)


@dataclass(frozen=True)
class Counted:
    """One distinct count within some keys: what is scanned for it, and for which classes."""

    name: str  # of its table
    aggregate: int
    keys: tuple[int, ...]  # public ones
    classes: tuple[int, ...]  # sensitive ones
    value: exp.Expr
    pieces: tuple[int, ...]


def halved(pieces: Sequence[Piece]) -> bool:
    """Whether rows differ in which pieces have a part in them; one piece selects its rows."""
    return len(pieces) > 1


def selected(pieces: Sequence[Piece]) -> exp.Expr | None:
    """Where any of the pieces counts; None stands for everywhere."""
    guards = [every(each.copy() for each in piece.guards) for piece in pieces]
    if None in guards:
        return None
    return any_of(each for each in guards if each is not None) or exp.Boolean(this=False)


def _rows(catalog: Catalog, block: Block, counted: Counted, pieces: Sequence[Piece]) -> exp.Select:
    """The rows that count: keys, the value, the multiplicity."""
    inner = exp.Select()
    for i in counted.keys:
        define(inner, KEY(i), block.keys[i].expression.copy())
    define(inner, VALUE, counted.value.copy())
    if catalog.multiplicity:
        define(inner, TIMES, column(MULTIPLICITY, PUBLISHED))
    made = source(catalog, block, inner)
    where = selected(pieces)
    return made if where is None else made.where(where, copy=False)


def by_states(
    catalog: Catalog,
    block: Block,
    counted: Counted,
    pieces: Sequence[Piece],
    codes: Mapping[str, exp.Expr],
) -> exp.Select:
    """The scan by signatures; ``codes`` tell published states and hidden values apart."""
    inner = _rows(catalog, block, counted, pieces)
    choose(inner, *(named(node, name) for name, node in codes.items()))
    parts = list(codes)
    if halved(pieces):
        for t, piece in zip(counted.pieces, pieces, strict=True):
            guard = every(each.copy() for each in piece.guards)
            half = number(1) if guard is None else when(guard, number(1), number(0))
            define(inner, PUBLIC(t), half)
            parts.append(PUBLIC(t))
    keys = [KEY(i) for i in counted.keys]
    groups = [*keys, VALUE, *parts]
    states = select(derived(inner, "rows"), *map(column, groups))
    rows: exp.Expr = exp.Count(this=exp.Star(), big_int=True)
    if catalog.multiplicity:
        rows = exp.Sum(this=column(TIMES))
    define(states, ROWS, cast(rows, "BIGINT"))
    states.group_by(*map(column, groups), copy=False)
    # Lists that are equal have their entries in one order.
    entry = exp.Struct(
        expressions=[
            exp.PropertyEQ(this=exp.to_identifier(name, quoted=True), expression=column(name))
            for name in (*parts, ROWS)
        ]
    )
    lists = select(derived(states, "states"), *map(column, keys))
    define(lists, ENTRY, call("list_sort", call("list", entry)))
    lists.group_by(*map(column, (*keys, VALUE)), copy=False)
    alike = select(derived(lists, "lists"), *map(column, (*keys, ENTRY)))
    define(alike, MANY, exp.Count(this=exp.Star(), big_int=True))
    alike.group_by(*map(column, (*keys, ENTRY)), copy=False)
    numbered = select(derived(alike, "alike"), *map(column, (*keys, MANY, ENTRY)))
    define(numbered, SIGNATURE, exp.Window(this=call("row_number"), over="OVER"))
    entries = select(derived(numbered, "numbered"), *map(column, (*keys, SIGNATURE, MANY)))
    define(entries, ENTRY, call("unnest", column(ENTRY)))
    made = select(derived(entries, "entries"), *map(column, (*keys, SIGNATURE, MANY)))
    for name in (*parts, ROWS):
        define(made, name, field(column(ENTRY), name))
    return made


def by_weights(
    catalog: Catalog,
    block: Block,
    counted: Counted,
    pieces: Sequence[Piece],
    ratio: exp.Expr,
    seen: exp.Expr,
) -> exp.Select:
    """The scan by products; ``ratio`` is a row's 1 - G, ``seen`` whether it counts as published."""
    inner = _rows(catalog, block, counted, pieces)
    define(inner, "r", ratio)
    define(inner, SEEN, seen)
    keys = [KEY(i) for i in counted.keys]
    values = select(derived(inner, "rows"), *map(column, (*keys, VALUE)))
    times = column(TIMES) if catalog.multiplicity else None
    one: exp.Expr = column("r")
    rows: exp.Expr = exp.Count(this=exp.Star(), big_int=True)
    if times is not None:
        one, rows = call("pow", one, cast(times, "DOUBLE")), exp.Sum(this=times)
    missed = exp.Sub(this=number(1.0), expression=call("product", one))
    define(values, "d", missed)
    define(values, ROWS, cast(rows, "BIGINT"))
    for j, name in ((j, RATIO(j)) for j in POWERS):
        power = powered(column("r"), j)
        define(values, name, exp.Sum(this=power if times is None else _times(times, power)))
    define(values, SEEN, cast(call("bool_or", column(SEEN)), "BIGINT"))
    values.group_by(*map(column, (*keys, VALUE)), copy=False)
    made = select(derived(values, "values"), *map(column, (*keys, ROWS)))
    define(made, MANY, exp.Count(this=exp.Star(), big_int=True))
    for j, name in ((j, MISSED(j)) for j in POWERS):
        define(made, name, exp.Sum(this=powered(column("d"), j)))
    for name in (*map(RATIO, POWERS), SEEN):
        define(made, name, exp.Sum(this=column(name)))
    return made.group_by(*map(column, (*keys, ROWS)), copy=False)


def powered(node: exp.Expr, power: int) -> exp.Expr:
    """``node * node * ...``."""
    made = node
    for _ in range(power - 1):
        made = _times(made, node)
    return made


def _times(one: exp.Expr, two: exp.Expr) -> exp.Expr:
    return exp.Mul(this=wrapped(one) if not isinstance(one, exp.Mul) else one, expression=two)
