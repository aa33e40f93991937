"""Conditions with sub-queries: over public tables, over exact answers, correlated or not.

A correlated one names the rows around it with their table: a bare name would be the sub-query's.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.oracle.nodes import Node, node
from tests.oracle.tables import TABLE, Column

TOP = f"(SELECT b.city FROM {TABLE} AS b GROUP BY b.city ORDER BY COUNT(*) DESC, b.city LIMIT 2)"
LEAST = f"(SELECT MAX(b.city) FROM {TABLE} AS b WHERE b.cost > 1000)"  # of no row
ALONE = {
    "text": (
        ("in an exact answer", f" IN {TOP}"),
        ("in an exact answer", f" NOT IN {TOP}"),
        ("not in a list with null", f" NOT IN (SELECT b.city FROM {TABLE} AS b WHERE b.floor = 2)"),
        ("in a public table", " IN (SELECT i.disease FROM kinds AS i WHERE i.severity > 0)"),
        ("compared with nothing", f" < {LEAST}"),
        ("compared with all", f" >= ALL (SELECT b.sex FROM {TABLE} AS b)"),
    ),
    "int": (
        ("compared with an exact answer", f" > (SELECT AVG(b.floor) FROM {TABLE} AS b)"),
        ("compared with an exact answer", f" < (SELECT MAX(b.cost) / 3 FROM {TABLE} AS b)"),
        ("in a public table", " NOT IN (SELECT i.severity FROM kinds AS i)"),
    ),
    "date": (
        ("compared with an exact answer", f" > (SELECT MIN(b.born) FROM {TABLE} AS b) + 9000"),
    ),
}
TEXT = (
    ("exists in a public table", "EXISTS (SELECT 1 FROM kinds AS i WHERE i.disease = ", ")"),
    ("not exists in a public table",
     "NOT EXISTS (SELECT * FROM cities AS i WHERE i.people > 800 AND i.city = ", ")"),
    ("one value of a public table",
     "((SELECT i.severity FROM kinds AS i WHERE i.disease = ", ") >= 1)"),
    ("exists among the rows",
     f"EXISTS (SELECT 1 FROM {TABLE} AS b WHERE b.floor = 3 AND b.city = ", ")"),
    ("count of the rows that fit",
     f"((SELECT COUNT(*) FROM {TABLE} AS b WHERE b.cost > 300 AND b.city = ", ") < 9)"),
)  # fmt: skip
PAIRS = (
    ("exists by two columns", "EXISTS (SELECT 1 FROM cities AS i WHERE i.city = {} AND i.people >"
     " {} * 20)"),
    ("in a correlated list", "({1} IN (SELECT i.people // 100 FROM cities AS i WHERE i.city ="
     " {0}))"),
    ("not in a correlated list", f"({{1}} NOT IN (SELECT b.floor FROM {TABLE} AS b WHERE b.city ="
     " {0} AND b.cost > 290))"),
    ("compared with the rows that fit", f"({{1}} > (SELECT AVG(b.cost) FROM {TABLE} AS b WHERE"
     " b.city = {0}))"),
    ("exists by an inequality", f"EXISTS (SELECT 1 FROM {TABLE} AS b WHERE b.city = {{}} AND b.cost"
     " < {} - 5)"),
)  # fmt: skip


def refer(column: Column) -> Node:
    return Node("value", (column.sql,), sensitive=column.sensitive)


def subquery(rng: random.Random, columns: Sequence[Column]) -> Node | None:
    """A condition with a sub-query, where the columns allow for one."""
    named = [each for each in columns if "." in each.ref and not each.mixed]
    texts = [each for each in named if each.type == "text"]
    numbers = [each for each in named if each.type == "int"]
    if texts and numbers and rng.random() < 0.4:
        feature, form = rng.choice(PAIRS)
        first, second = refer(rng.choice(texts)), refer(rng.choice(numbers))
        return _filled(form, (first, second), feature)
    if texts and rng.random() < 0.5:
        feature, before, after = rng.choice(TEXT)
        return node("bool", before, refer(rng.choice(texts)), after, feature=feature)
    able = [each for each in columns if each.type in ALONE]
    if not able:
        return None
    column = rng.choice(able)
    feature, tail = rng.choice(ALONE[column.type])
    return node("bool", "(", refer(column), tail, ")", feature=feature)


def _filled(form: str, places: Sequence[Node], feature: str) -> Node:
    """A text with nodes in its braces."""
    parts: list[str | Node] = []
    rest, at = form, 0
    while "{" in rest:
        before, _, rest = rest.partition("{")
        number, _, rest = rest.partition("}")
        parts += [before, places[int(number) if number else at]]
        at += 1
    return node("bool", *parts, rest, feature=feature)
