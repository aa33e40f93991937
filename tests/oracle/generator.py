"""Random queries of the grammar that must be answered, each with what is known of its answer.

    case = generate(random.Random(7));  case.sql, case.parameters, case.features

A query is one aggregated SELECT (:mod:`tests.oracle.blocks`), or several of them put together:
outer queries, UNION, joined CTEs, scalar sub-queries.  Every query runs on the raw table, and
has one answer there: orders that are cut by LIMIT name all keys, floats are not ordered by.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

from tests.oracle.blocks import Block, Blocks, Wish
from tests.oracle.expressions import Expressions
from tests.oracle.nodes import EMPTY, Node, Output, Printer, clause, features, items, node, text
from tests.oracle.sources import Source, source
from tests.oracle.tables import COLUMNS

STYLES = ("", "", "", "", "?", "$1", "$name")


@dataclass(frozen=True)
class Case:
    """A query and how its answer is to be compared."""

    root: Node
    style: str = ""  # of parameters
    complete: bool = False  # only for a table on which every domain value occurs

    def printed(self) -> tuple[str, list[Any] | dict[str, Any] | None]:
        printer = Printer(self.style)
        return printer.print(self.root), printer.parameters()

    @property
    def sql(self) -> str:
        return self.printed()[0]

    @property
    def parameters(self) -> list[Any] | dict[str, Any] | None:
        return self.printed()[1]

    @property
    def features(self) -> set[str]:
        found = features(self.root)
        if self.parameters is not None:
            found.add(f"parameters {self.style}")
        return found

    @property
    def items(self) -> list[Node]:
        """The columns of the answer, each a node with an ``output``."""
        top = next(each for each in self.root.walk() if each.kind == "top")
        return list(top.below())

    @property
    def ordered(self) -> bool:
        return any(each.kind == "top order" for each in self.root.walk())

    @property
    def checks(self) -> list[str]:
        return [text(check) for each in self.root.walk() for check in each.checks]


def generate(rng: random.Random) -> Case:
    """One random query; equal generators write equal queries."""
    writer = Writer(rng)
    shapes = (
        (writer.simple, 46), (writer.limited, 10), (writer.windows, 8), (writer.sets, 8),
        (writer.outer, 9), (writer.union, 5), (writer.joined, 5), (writer.scalar, 5),
        (writer.distinct, 4),
    )  # fmt: skip
    case = rng.choices([shape for shape, _ in shapes], [weight for _, weight in shapes])[0]()
    root = case.root
    if rng.random() < 0.05:
        start = rng.choice(("/* a comment */ ", "-- a comment; with 'marks'\n"))
        root = node("whole", clause(start, feature="comment"), root)
    return replace(case, root=root, style=rng.choice(STYLES))


class Writer:
    """The shapes of queries."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.blocks = Blocks(rng)

    def source(self, cte: str = "base") -> Source:
        rng = self.rng
        sensitive = rng.choice((0, 1, 2, 2, 3))
        return source(rng, sensitive=sensitive, public=rng.randint(1, 3), cte=cte)

    def simple(self) -> Case:
        """One SELECT, with empty groups marked."""
        rng = self.rng
        wish = Wish(
            keys=rng.choice((0, 0, 1, 1, 1, 2)),
            values=rng.randint(1, 3),
            empty=rng.choice(("marker", "marker", "having")),
            hide=rng.random() < 0.06,
        )
        block = self.blocks.block(self.source(), wish)
        order = self._order(block, limit=False) if rng.random() < 0.4 else EMPTY
        return self._case(block, order)

    def limited(self) -> Case:
        """ORDER BY and LIMIT, QUALIFY: rows that depend on there being no others."""
        rng = self.rng
        cut = rng.random() < 0.3
        wish = Wish(keys=rng.choice((1, 1, 2)), values=2, empty=self._full(), all=not cut)
        block = self.blocks.block(self.source(), wish)
        if cut and block.keys:
            keys = items("order", [Node("ordered", (k,), needed=True) for k, _ in block.keys])
            rank = node(
                "clause", " QUALIFY ROW_NUMBER() OVER (ORDER BY COUNT(*) DESC, ", keys,
                f") <= {rng.randint(1, 4)}", feature="qualify",
            )  # fmt: skip
            return self._case(block, replace(rank, optional=True))
        return self._case(block, self._order(block, limit=True))

    def windows(self) -> Case:
        rng = self.rng
        wish = Wish(keys=rng.choice((1, 2)), values=1, empty=self._full(), windows=True)
        return self._case(self.blocks.block(self.source(), wish))

    def sets(self) -> Case:
        rng = self.rng
        empty = rng.choice(("marker", "having"))
        wish = Wish(keys=rng.choice((1, 2, 2)), values=2, sets=True, empty=empty)
        return self._case(self.blocks.block(self.source(), wish))

    def distinct(self) -> Case:
        """DISTINCT over groups, and of public columns."""
        rng = self.rng
        if rng.random() < 0.3:
            columns = [c for c in COLUMNS if not c.sensitive and c.key]
            names = [c.name for c in rng.sample(columns, rng.randint(1, 2))]
            shown = [
                Node("item", (name,), output=Output(name, key=True, measure="any"))
                for name in names
            ]
            root = node("query", "SELECT DISTINCT ", items("top", shown), " FROM visits",
                        feature="distinct public columns")  # fmt: skip
            return Case(root)
        where = clause(" WHERE ", self._plain().condition(1), feature="where")
        key = rng.choice(("city", "sex", "disease", "home", "seen"))
        sensitive = key in ("disease", "home", "seen")
        at = Node("value", (key,), sensitive=sensitive)
        made = node("value", f"COUNT(*) > {rng.choice((10, 100, 300))}")
        item = Node(
            "item", (made, " AS big"), output=Output("big", key=True, typing="any", measure="any"),
            hidden=(where, at),
        )  # fmt: skip
        root = node(
            "query", "SELECT DISTINCT ", items("top", [item]), " FROM visits", where, " GROUP BY ",
            at, " HAVING COUNT(*) > 0", feature="distinct over groups",
        )  # fmt: skip
        return Case(root)

    # --- several blocks --------------------------------------------------------------

    def outer(self) -> Case:
        """A query over an aggregated one, as a sub-select or as a CTE."""
        rng = self.rng
        block = self._inner(self.source(), keys=rng.choice((1, 2)))
        cte = rng.random() < 0.5
        inner = self._bracketed(block.node, "g", cte)
        shown, tail = self._above(block)
        what = "outer query over a cte" if cte else "outer query over a sub-select"
        body = node(
            "select", "SELECT ", items("top", shown), " FROM ", inner[1], tail, feature=what
        )
        return Case(self._with([*block.with_, *inner[0]], body), complete=block.complete)

    def _above(self, block: Block) -> tuple[list[Node], Node]:
        rng = self.rng
        count, names = block.items[len(block.keys)], [name for _, name in block.keys]
        shape = rng.choice(("aggregate", "filter", "window", "regroup"))
        if shape == "filter":
            shown = [_passed(item) for item in block.items]
            return shown, clause(f" WHERE g.v0 > {rng.choice((1, 10, 60))}", feature="where above")
        if shape == "window":
            shown = [_passed(item) for item in block.items]
            share = _made("v0 * 1.0 / SUM(v0) OVER ()", "share", "sum", count)
            return [*shown, replace(share, feature="window above")], EMPTY
        words = rng.sample(("SUM", "AVG", "MAX", "MIN"), 2)
        made = [_made(f"{w}(v0)", w.lower(), "sum", count) for w in words]
        made = [replace(each, feature="aggregate of aggregates") for each in made]
        rows = Node("item", ("COUNT(*) AS m",), output=Output("m", typing="any"), hidden=(count,))
        if shape == "aggregate":
            return [*made, rows], EMPTY
        key = _passed(block.items[0])
        return [key, *made, rows], node("group", f" GROUP BY {names[0]}", feature="group above")

    def union(self) -> Case:
        """Answers one below the other."""
        rng = self.rng
        where = [clause(" WHERE ", self._plain().condition(1), feature="where") for _ in "ab"]
        word = rng.choice(("UNION ALL", "UNION ALL", "UNION"))
        if rng.random() < 0.5:
            outputs = (Output("part", key=True, measure="any"), Output("n"))
            shown = [
                Node("item", ("'a' AS part",), output=outputs[0]),
                Node("item", ("COUNT(*) AS n",), output=outputs[1], hidden=tuple(where)),
            ]
            second: tuple[str | Node, ...] = ("SELECT 'b', COUNT(*) FROM visits", where[1])
            first: tuple[str | Node, ...] = (" FROM visits", where[0])
        else:
            one, two = rng.choice((("city", "home"), ("home", "work"), ("sex", "city")))
            keys = [Node("value", (k,), sensitive=k in ("home", "work")) for k in (one, two)]
            key_item = Node("item", (keys[0], " AS k"), output=Output("k", key=True, measure="any"))
            hidden = (*where, *keys)
            shown = [key_item, Node("item", ("COUNT(*) AS n",), output=Output("n"), hidden=hidden)]
            tails = [node("group", " GROUP BY ", k, " HAVING COUNT(*) > 0") for k in keys]
            first = (" FROM visits", where[0], tails[0])
            second = ("SELECT ", keys[1], ", COUNT(*) FROM visits", where[1], tails[1])
        top = items("top", [replace(each, needed=True) for each in shown])
        root = node("union", "SELECT ", top, *first, f" {word} ", *second, feature=word.lower())
        return Case(root)

    def joined(self) -> Case:
        """Two aggregated CTEs joined on their keys."""
        rng = self.rng
        pairs = (("city", "home"), ("city", "city"), ("disease", "disease"), ("sex", "sex"))
        pair = rng.choice((*pairs, ("home", "work"), ("age", "age")))
        parts: list[Node] = []
        counts: list[Node] = []
        left: Node = EMPTY
        for name, key in zip("ab", pair, strict=True):
            sensitive = key not in ("city", "sex")
            at = Node("value", (key,), sensitive=sensitive)
            where = clause(" WHERE ", self._plain().condition(1), feature="where")
            count = Node("item", ("COUNT(*) AS n",), output=Output("n"), hidden=(where, at))
            left = at if name == "a" else left
            counts.append(count)
            parts.append(
                node("cte", f"{name} AS (SELECT ", at, " AS k, ", count, " FROM visits", where,
                     " GROUP BY ", at, " HAVING COUNT(*) > 0)")
            )  # fmt: skip
        word = rng.choice(("JOIN", "LEFT JOIN"))
        on = rng.choice((" USING (k)", " ON a.k = b.k", " ON a.k IS NOT DISTINCT FROM b.k"))
        shown = [
            Node("item", ("a.k AS k",), output=Output("k", key=True, measure="any")),
            Node("item", ("a.n AS n_a",), output=Output("n_a"), hidden=(counts[0],)),
            Node("item", ("b.n AS n_b",), output=Output("n_b"), hidden=(counts[1],)),
            Node(
                "item", ("a.n * 1.0 / NULLIF(b.n, 0) AS ratio",),
                output=Output("ratio", measure="sum"), hidden=tuple(counts),
            ),
        ]  # fmt: skip
        body = node(
            "select", "SELECT ", items("top", shown), f" FROM a {word} b{on}", feature="ctes joined"
        )
        return Case(self._with(parts, body))

    def scalar(self) -> Case:
        """Answers used as numbers in another query."""
        rng = self.rng
        inner = [clause(" WHERE ", self._plain().condition(1), feature="where") for _ in "ab"]
        whole = node("query", "(SELECT COUNT(*) FROM visits", inner[1], ")")
        if rng.random() < 0.5:
            made = node(
                "number", "COUNT(*) * 1.0 / NULLIF(", whole, ", 0)", feature="share of a total"
            )
            item = Node(
                "item",
                (made, " AS share"),
                output=Output("share", measure="sum"),
                hidden=tuple(inner),
            )
            return Case(node("query", "SELECT ", items("top", [item]), " FROM visits", inner[0]))
        made = node("number", "(SELECT COUNT(*) FROM visits", inner[0], ") - ", whole,
                    feature="difference of scalars")  # fmt: skip
        item = Node("item", (made, " AS d"), output=Output("d"), hidden=tuple(inner))
        return Case(node("query", "SELECT ", items("top", [item])))

    # --- help ------------------------------------------------------------------------

    def _full(self) -> str:
        return self.rng.choice(("having", "complete"))

    def _plain(self) -> Expressions:
        return Expressions(self.rng, self.rng.sample(COLUMNS, 3))

    def _inner(self, at: Source, keys: int) -> Block:
        """A block to be queried: its first value is a count, its keys have names."""
        wish = Wish(keys=keys, values=2, empty="having", top=False)
        while True:
            block = self.blocks.block(at, wish)
            first = block.items[len(block.keys)].output
            if block.keys and first is not None and first.measure == "count":
                return replace(block, items=block.items[: len(block.keys) + 1])

    def _bracketed(self, at: Node, name: str, cte: bool) -> tuple[list[Node], Node]:
        if cte:
            return [node("cte", f"{name} AS (", at, ")", feature="cte")], node("source", name)
        return [], node("source", "(", at, f") AS {name}")

    def _with(self, ctes: list[Node], body: Node) -> Node:
        if not ctes:
            return body
        return node("whole", "WITH ", items("ctes", ctes), " ", body)

    def _order(self, block: Block, *, limit: bool) -> Node:
        """An order without ties, or nothing where the rows cannot be told apart."""
        rng = self.rng
        if not block.keys or not block.shown:
            return EMPTY
        parts = []
        counts = [
            each.output.name
            for each in block.items
            if each.output is not None and each.output.measure == "count" and not each.output.key
        ]
        if counts and rng.random() < 0.5:
            parts.append(node("ordered", f"{counts[0]} DESC", feature="order by an estimate"))
        for place, (_, name) in enumerate(block.keys):
            shown = rng.choice((name, str(place + 1)))
            parts.append(
                node("ordered", f"{shown}{rng.choice(('', ' DESC', ' DESC NULLS FIRST'))}")
            )
        parts = [replace(part, needed=True) for part in parts]
        cut: Node = EMPTY
        if limit:
            # Groups that only the domain knows would be skipped in place of others, but
            # ``limited`` has none: HAVING drops them or a check makes sure.
            skip = rng.choice(
                (EMPTY, EMPTY, clause(f" OFFSET {rng.randint(1, 2)}", feature="offset"))
            )
            cut = clause(f" LIMIT {rng.randint(1, 5)}", skip, feature="limit")
        made = Node("top order", (" ORDER BY ", items("order", parts), cut), "order by")
        return replace(made, optional=True)

    def _case(self, block: Block, tail: Node = EMPTY) -> Case:
        body = node("select", block.node, tail)
        return Case(self._with(list(block.with_), body), complete=block.complete)


def _passed(item: Node) -> Node:
    """A column of the inner query, shown as it is by the outer one."""
    output = item.output or Output("?")
    return Node("item", (f"{output.name}",), output=output, hidden=(item,), scale=item.scale)


def _made(expression: str, name: str, measure: str, item: Node) -> Node:
    output = Output(name, measure=measure)
    return Node("item", (f"{expression} AS {name}",), output=output, hidden=(item,))
