"""What may stand after FROM: the table, a join with a dimension, a sub-select, a CTE."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from tests.oracle.expressions import Expressions, is_mixed, refer
from tests.oracle.nodes import Node, clause, items, node, touches
from tests.oracle.tables import CITIES, COLUMNS, KINDS, TABLE, Column


@dataclass(frozen=True)
class Source:
    """A relation with one row a published row.

    ``filters`` are the nodes that decide which rows there are: conditions of sub-selects and
    inner joins.  ``with_`` are the CTEs it needs, ``keys`` what WHERE must say of comma joins.
    """

    node: Node
    columns: tuple[Column, ...]
    filters: tuple[Node, ...] = ()
    with_: tuple[Node, ...] = ()
    keys: tuple[Node, ...] = ()

    def before(self) -> tuple[str | Node, ...]:
        """What a query of its own has to start with to see this source."""
        return ("WITH ", items("ctes", list(self.with_)), " ") if self.with_ else ()


def focus(rng: random.Random, sensitive: int, public: int) -> tuple[Column, ...]:
    """A few columns, so that a query has few states and its parts meet on the same ones."""
    kept = rng.sample([c for c in COLUMNS if c.sensitive], sensitive)
    shown = rng.sample([c for c in COLUMNS if not c.sensitive], public)
    if not any(c.key for c in kept + shown):
        shown.append(next(c for c in COLUMNS if c.name == "sex"))
    return tuple(kept + shown)


def base(rng: random.Random, columns: tuple[Column, ...]) -> Source:
    alias = rng.choice(("", "", "t", "v", "visits"))
    if not alias:
        return Source(node("source", TABLE), columns)
    word = rng.choice((" AS ", " "))
    shown = f"{TABLE}{word}{alias}" if alias != TABLE else TABLE
    return Source(
        node("source", shown, feature="table alias"), tuple(c.under(alias) for c in columns)
    )


def joined(rng: random.Random, columns: tuple[Column, ...]) -> Source:
    """A join with a public table that is unique on the key; a sensitive key is a function."""
    table, own, key, extra = rng.choice(
        (
            ("cities", "city", "city", CITIES),
            ("cities", "home", "city", CITIES),
            ("kinds", "disease", "disease", KINDS),
        )
    )
    on = next(c for c in COLUMNS if c.name == own).under("t")
    others = [c.under("t") for c in columns if c.name != own]
    shape = rng.random()
    if shape < 0.15:
        return _half(rng, (on, *others), table, key)
    if shape < 0.35:
        return _answer(rng, columns)
    if shape < 0.55:
        return _comma(rng, (on, *others), table, key, extra)
    left = rng.random() < 0.5
    word = rng.choice(("LEFT JOIN", "LEFT OUTER JOIN") if left else ("JOIN", "INNER JOIN"))
    role = "sensitive" if on.sensitive else "public"
    what = f"{'left' if left else 'inner'} join on a {role} column"
    condition = node("join", refer(on), f" = d.{key}")
    if own == key and rng.random() < 0.5:
        tail: Node = node("using", f" USING ({key})", feature="join using")
    else:
        tail = node("on", " ON ", condition)
    at = _alone(node("source", f"{TABLE} AS t {word} {table} AS d", tail, feature=what))
    brought = [replace(c, sensitive=on.sensitive, ref=f"d.{c.name}") for c in extra]
    return Source(at, (on, *others, *brought), () if left else (condition,))


def _alone(join: Node, *idle: Node) -> Node:
    """A join in whose place the table may stand; the conditions are then TRUE."""
    return replace(join, instead=node("source", f"{TABLE} AS t"), idle=idle)


def _half(rng: random.Random, columns: tuple[Column, ...], table: str, key: str) -> Source:
    """SEMI and ANTI joins: rows that have a partner, or none."""
    word = rng.choice(("SEMI", "ANTI"))
    condition = node("join", refer(columns[0]), f" = d.{key}")
    at = node(
        "source", f"{TABLE} AS t {word} JOIN {table} AS d ON ", condition,
        feature=f"{word.lower()} join",
    )  # fmt: skip
    return Source(_alone(at), columns, (condition,))


def _comma(
    rng: random.Random,
    columns: tuple[Column, ...],
    table: str,
    key: str,
    extra: tuple[Column, ...],
) -> Source:
    """A comma join: its key is in WHERE, its tables stand in any order."""
    on = columns[0]
    condition = Node("join", (refer(on), f" = d.{key}"), needed=True)
    listed = [f"{TABLE} AS t", f"{table} AS d"]
    rng.shuffle(listed)
    role = "sensitive" if on.sensitive else "public"
    at = node("source", ", ".join(listed), feature=f"comma join on a {role} column")
    at = _alone(at, condition)
    brought = [replace(c, sensitive=on.sensitive, ref=f"d.{c.name}") for c in extra]
    return Source(at, (*columns, *brought), (condition,), keys=(condition,))


def _answer(rng: random.Random, columns: tuple[Column, ...]) -> Source:
    """A join with an exact answer over the same rows, unique on its keys."""
    keys = ("city",) if rng.random() < 0.5 else ("sex", "floor")
    made = "COUNT(*) AS many, MAX(cost) AS most, MIN(born) AS eldest"
    where = rng.choice(("", " WHERE member", " WHERE price > 20"))
    named = ", ".join(f"{key} AS its_{key}" for key in keys)
    inner = f"SELECT {named}, {made} FROM {TABLE}{where} GROUP BY {', '.join(keys)}"
    own = [next(c for c in COLUMNS if c.name == name).under("t") for name in keys]
    rest = [c.under("t") for c in columns if c.name not in keys]
    word, left = rng.choice((("JOIN", False), ("LEFT JOIN", True)))
    parts: list[str | Node] = []
    for each in own:
        sign = rng.choice(("=", "IS NOT DISTINCT FROM"))
        parts += [" AND " if parts else "", refer(each), f" {sign} d.its_{each.name}"]
    condition = node("join", *parts)
    with_: tuple[Node, ...] = ()
    if rng.random() < 0.3:
        with_ = (node("cte", f"m AS ({inner})", feature="cte with an exact answer"),)
        table = "m AS d"
    else:
        table = f"({inner}) AS d"
    feature = f"{'left ' if left else ''}join with an exact answer"
    at = _alone(node("source", f"{TABLE} AS t {word} {table} ON ", condition, feature=feature))
    brought = (
        Column("many", "int", (3, 10, 25), nullable=True, key=False, ref="d.many"),
        Column("most", "int", (200, 333), nullable=True, key=False, ref="d.most"),
        Column("eldest", "date", COLUMNS[7].samples, nullable=True, key=False, ref="d.eldest"),
    )
    return Source(at, (*own, *rest, *brought), () if left else (condition,), with_)


def where_of(source: Source, condition: Node | None, feature: str) -> Node | None:
    """WHERE with what the source needs there and a condition of one's own."""
    if not source.keys:
        return None if condition is None else clause(" WHERE ", condition, feature=feature)
    parts = [*source.keys, *([] if condition is None else [condition])]
    return node("where", " WHERE ", items("and", parts, " AND ", len(source.keys)))


def selected(rng: random.Random, inner: Source, *, cte: str = "") -> Source:
    """A sub-select, or a CTE, that filters and projects."""
    filters = list(inner.filters)
    condition = None
    if rng.random() < 0.6:
        condition = Expressions(rng, inner.columns).condition(1)
        filters.append(condition)
    made_where = where_of(inner, condition, "filter in a sub-select")
    where = [] if made_where is None else [made_where]
    shown: list[Node] = []
    columns: list[Column] = []
    for column in inner.columns:
        name = column.name
        if rng.random() < 0.15:
            name = f"{column.name}_x"
            shown.append(node("item", refer(column), f" AS {name}", feature="renamed column"))
        else:
            shown.append(node("item", refer(column)))
        columns.append(replace(column, name=name, ref=""))
    if rng.random() < 0.5:
        made = _derived(rng, inner)
        if made is not None:
            shown.append(made[0])
            columns.append(made[1])
    plain = inner.node.feature in ("", "table alias")
    if plain and rng.random() < 0.2:
        body = node("query", "SELECT * FROM ", inner.node, *where, feature="star in a sub-select")
        columns = [replace(c, ref="") for c in inner.columns]
    else:
        body = node("query", "SELECT ", items("items", shown), " FROM ", inner.node, *where)
    if cte:
        definition = node("cte", f"{cte} AS (", body, ")", feature="cte that filters")
        at = node("source", cte)
        return Source(at, tuple(columns), tuple(filters), (*inner.with_, definition))
    alias = rng.choice(("s", "q"))
    at = node("source", "(", body, f") AS {alias}", feature="sub-select")
    if rng.random() < 0.5:
        columns = [c.under(alias) for c in columns]
    return Source(at, tuple(columns), tuple(filters), inner.with_)


def _derived(rng: random.Random, inner: Source) -> tuple[Node, Column] | None:
    """A column that is computed below and used above."""
    whole = [c for c in inner.columns if c.type == "int"]
    if whole and rng.random() < 0.6:
        column = rng.choice(whole)
        made = node("item", refer(column), " // 10 AS decade", feature="computed column")
        return made, replace(column, name="decade", samples=(2, 3, 4), ref="")
    tested = Expressions(rng, inner.columns, parameters=False).atom()
    made = node("item", tested, " AS verdict0", feature="computed column")
    return made, Column(
        "verdict0", "bool", (True, False), touches(tested), nullable=True, mixed=is_mixed(tested)
    )


def source(rng: random.Random, *, sensitive: int, public: int, cte: str = "base") -> Source:
    columns = focus(rng, sensitive, public)
    roll = rng.random()
    if roll < 0.55:
        return base(rng, columns)
    if roll < 0.72:
        return joined(rng, columns) if sensitive else base(rng, columns)
    inner = base(rng, columns)
    if roll < 0.78 and sensitive:
        inner = joined(rng, columns)
    found = selected(rng, inner, cte=cte if roll > 0.9 else "")
    return selected(rng, found) if rng.random() < 0.1 else found
