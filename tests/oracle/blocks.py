"""One aggregated SELECT, the piece that every generated query is made of.

An answer may hold groups that only a domain knows, with count 0.  A block whose rows could be
such deals with it in one of three ways: a visible ``COUNT(*) AS rows_n`` marks them (the
comparison drops them), ``HAVING COUNT(*) > 0`` removes them on our side and nothing on
DuckDB's, or a check makes sure that on the raw table no group is empty (``complete``).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from tests.oracle.aggregates import Aggregate, Aggregates, scale_query
from tests.oracle.expressions import Expressions
from tests.oracle.nodes import EMPTY, Node, Output, clause, items, node, touches
from tests.oracle.sources import Source, where_of
from tests.oracle.tables import COLUMNS, Column

MARKER = "rows_n"
BESIDE = ("aggregates of several columns", "filter beside case")


@dataclass(frozen=True)
class Wish:
    """What a block is to be used for."""

    keys: int = 0
    values: int = 2
    empty: str = "marker"  # marker | having | complete: what becomes of empty groups
    sets: bool = False  # ROLLUP, CUBE, GROUPING SETS
    windows: bool = False
    top: bool = True  # its columns are those of the answer
    hide: bool = False  # leave a key out of the SELECT list
    all: bool = True  # GROUP BY ALL, which DuckDB does not take beside windows


@dataclass(frozen=True)
class Block:
    """A SELECT without ORDER BY, and what may be said about it."""

    node: Node
    keys: tuple[tuple[Node, str], ...]
    items: tuple[Node, ...]
    with_: tuple[Node, ...]
    shown: bool  # every key is in the SELECT list, and tells its row
    complete: bool


class Blocks:
    """Writes aggregated SELECTs."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def block(self, source: Source, wish: Wish) -> Block:
        rng = self.rng
        expressions = Expressions(rng, source.columns)
        keys = self._keys(expressions, wish.keys)
        where = EMPTY
        context = [*source.filters, *(key for key, _ in keys)]
        condition: Node | None = None
        if rng.random() < 0.6:
            condition = expressions.condition(2)
        where = where_of(source, condition, "where") or EMPTY
        if condition is not None:
            context.append(where)
        exact = not any(c.sensitive for c in source.columns) and not any(map(touches, context))
        aggregates = Aggregates(rng, expressions, exact)
        made, together = self._made(aggregates, wish)
        shown = [
            self._item(key, name, Output(name, key=True, measure="any"), context)
            for key, name in keys
        ]
        hidden_key = bool(keys) and wish.hide
        if hidden_key:
            shown.pop()
        for place, each in enumerate(made):
            shown.append(self._aggregate(source, each, f"v{place}", context))
        if wish.windows and keys:
            shown += self._windows(keys, context)
        if wish.sets and keys and rng.random() < 0.5:
            level = node("number", "GROUPING(", keys[0][0], ")", feature="grouping()")
            shown.append(self._item(level, "level", Output("level", typing="any"), context))
        risky = bool(keys) and any(map(touches, context))
        having = self._having(source, risky and wish.empty == "having", made, bool(keys))
        if risky and wish.empty == "marker":
            marker = self._item(
                node("aggregate", "COUNT(*)"), MARKER, Output(MARKER, marker=True), context
            )
            shown.append(replace(marker, needed=True))
        listed = replace(items("top" if wish.top else "items", shown), feature=together)
        checks = [self._unique(source, keys, condition, each) for each in made if each.unique]
        if risky and wish.empty == "complete":
            checks.append(self._complete(source, keys, where))
        group = self._group(keys, wish, hidden_key)
        at = Node(
            "query", ("SELECT ", listed, " FROM ", source.node, where, group, having),
            checks=tuple(checks),
        )  # fmt: skip
        complete = risky and wish.empty == "complete"
        told = not hidden_key and not wish.sets
        return Block(at, tuple(keys), tuple(shown), source.with_, told, complete)

    def _made(self, aggregates: Aggregates, wish: Wish) -> tuple[list[Aggregate], str]:
        """The aggregates of a SELECT, and the feature of those that belong together."""
        what = self.rng.choice(BESIDE) if wish.values > 1 and self.rng.random() < 0.3 else ""
        made: list[Aggregate] = []
        if what == "aggregates of several columns":
            made = aggregates.several()
        elif what:
            made = aggregates.beside()
        if made:
            return made, what
        return [aggregates.any() for _ in range(wish.values)], ""

    # --- parts -------------------------------------------------------------------------

    def _keys(self, expressions: Expressions, count: int) -> list[tuple[Node, str]]:
        found: list[tuple[Node, str]] = []
        columns = {column.name for column in expressions.columns}
        for _ in range(count * 3):
            key, name, plain = expressions.key()
            taken = {each for _, each in found}
            if plain and name in taken:
                continue
            while name in taken or (not plain and name in columns):
                name += "2"
            found.append((key, name))
            if len(found) == count:
                break
        return found

    def _item(self, expression: Node, name: str, output: Output, context: list[Node]) -> Node:
        hidden = () if output.key else tuple(context)
        return Node("item", (expression, f" AS {name}"), output=output, hidden=hidden)

    def _aggregate(self, source: Source, each: Aggregate, name: str, context: list[Node]) -> Node:
        output = Output(name, typing=each.typing, measure=each.measure)
        scale = None if each.size is None else scale_query(source, each.size)
        return replace(self._item(each.node, name, output, context), scale=scale)

    def _windows(self, keys: list[tuple[Node, str]], context: list[Node]) -> list[Node]:
        """Window functions over groups; ORDER BY names every key, so there are no ties."""
        rng = self.rng
        order = items("order", [replace_needed(key) for key, _ in keys])
        first = keys[0][0]
        forms = {
            "total": (node("aggregate", "SUM(COUNT(*)) OVER ()"), "count", "follow"),
            "share": (
                node("aggregate", "COUNT(*) * 1.0 / SUM(COUNT(*)) OVER (PARTITION BY ", first, ")"),
                "sum",
                "follow",
            ),
            "rank": (node("number", "RANK() OVER (ORDER BY COUNT(*) DESC)"), "count", "any"),
            "place": (
                node("number", "ROW_NUMBER() OVER (ORDER BY COUNT(*) DESC, ", order, ")"),
                "count",
                "any",
            ),
            "before": (
                node("number", "LAG(COUNT(*)) OVER (ORDER BY ", order, ")"), "count", "follow",
            ),
            "running": (
                node("aggregate", "SUM(COUNT(*)) OVER (ORDER BY ", order,
                     " ROWS UNBOUNDED PRECEDING)"),
                "count",
                "follow",
            ),
        }  # fmt: skip
        found = []
        for name in rng.sample(sorted(forms), rng.randint(1, 2)):
            made, measure, typing = forms[name]
            made = replace(made, feature=f"window {name}")
            output = Output(f"w_{name}", typing=typing, measure=measure)
            found.append(self._item(made, f"w_{name}", output, context))
        return found

    def _having(self, source: Source, drop: bool, made: list[Aggregate], grouped: bool) -> Node:
        rng = self.rng
        wanted: list[Node] = []
        if drop:
            wanted.append(replace(node("bool", "COUNT(*) > 0", feature="having"), needed=True))
        if grouped and rng.random() < 0.3:
            shape = rng.choice(("count", "average", "scalar", "alias"))
            counts = [i for i, each in enumerate(made) if each.measure == "count"]
            whole = [c for c in source.columns if c.type == "int"]
            if shape == "alias" and counts:
                wanted.append(node("bool", f"v{counts[0]} >= 2", feature="alias in having"))
            elif shape == "average" and whole:
                wanted.append(
                    node("bool", f"AVG({whole[0].sql}) > 30.0123", feature="average in having")
                )
            elif shape == "scalar":
                inner = node("query", "SELECT COUNT(*) FROM visits",
                             clause(" WHERE ", Expressions(rng, plain(source)).atom()))  # fmt: skip
                wanted.append(
                    node("bool", "COUNT(*) * 7 > (", inner, ")", feature="scalar in having")
                )
            else:
                wanted.append(
                    node("bool", f"COUNT(*) >= {rng.choice((1, 5, 40))}", feature="having")
                )
        if not wanted:
            return EMPTY
        made_clause = clause(" HAVING ", items("having", wanted, " AND ", 1 if drop else 0))
        return replace(made_clause, optional=not drop)

    def _group(self, keys: list[tuple[Node, str]], wish: Wish, hidden: bool) -> Node:
        if not keys:
            return EMPTY
        rng = self.rng
        listed = items("keys", [key for key, _ in keys])
        if wish.sets:
            return self._sets(keys, listed)
        style = "plain" if hidden else rng.choice(("plain", "plain", "alias", "ordinal", "all"))
        style = "plain" if style == "all" and (wish.windows or not wish.all) else style
        if style == "plain":
            return node("group", " GROUP BY ", listed, feature="group by")
        if style == "all":
            return node("group", " GROUP BY ALL", feature="group by all")
        if style == "alias":
            names = ", ".join(name for _, name in keys)
            return node("group", f" GROUP BY {names}", feature="group by alias")
        places = ", ".join(str(i + 1) for i in range(len(keys)))
        return node("group", f" GROUP BY {places}", feature="group by ordinal")

    def _sets(self, keys: list[tuple[Node, str]], listed: Node) -> Node:
        word = self.rng.choice(("ROLLUP", "CUBE", "GROUPING SETS"))
        if word != "GROUPING SETS":
            return node("group", f" GROUP BY {word} (", listed, ")", feature=word.lower())
        sets = [node("set", "(", listed, ")"), node("set", "()")]
        sets += [node("set", "(", key, ")") for key, _ in keys[:2] if len(keys) > 1]
        chosen = self.rng.sample(sets, self.rng.randint(1, len(sets)))
        if all(each is not sets[0] for each in chosen):
            chosen.append(sets[0])  # a key that is in no set may not be shown
        return node("group", " GROUP BY GROUPING SETS (", items("sets", chosen), ")",
                    feature="grouping sets")  # fmt: skip

    # --- checks on the raw table ---------------------------------------------------------

    def _unique(
        self, source: Source, keys: list[tuple[Node, str]], where: Node | None, each: Aggregate
    ) -> Node:
        """No group, in no grouping set, has two most frequent values."""
        value = each.unique or EMPTY
        named = [node("item", key, f" AS k{i}") for i, (key, _) in enumerate(keys)]
        shown = items(
            "items", [*named, node("item", value, " AS x"), node("item", "COUNT(*) AS n")]
        )
        sets = items("sets", [node("set", f"k{i}") for i in range(len(keys))])
        cube = node("group", "x, CUBE (", sets, ")") if keys else node("group", "x")
        level = "GROUPING(" + ", ".join(f"k{i}" for i in range(len(keys))) + ")" if keys else "0"
        parts = ", ".join([f"k{i}" for i in range(len(keys))] + ["level"])
        condition: tuple[str | Node, ...] = ("(", where, ") AND ") if where else ()
        return node(
            "check", *source.before(), "SELECT COUNT(*) = 0 FROM (SELECT 1 FROM (SELECT ", shown,
            f", {level} AS level FROM ", source.node, " WHERE ", *condition, "(", value,
            ") IS NOT NULL GROUP BY ", cube,
            f") QUALIFY RANK() OVER (PARTITION BY {parts} ORDER BY n DESC) = 1"
            f" AND COUNT(*) OVER (PARTITION BY {parts}, n) > 1)",
        )  # fmt: skip

    def _complete(self, source: Source, keys: list[tuple[Node, str]], where: Node) -> Node:
        """Every combination of key values is left after WHERE: no group can be empty."""
        listed = items("keys", [key for key, _ in keys])
        left: list[str | Node] = []
        for key, _ in keys:
            left += [" * (SELECT COUNT(*) FROM (SELECT DISTINCT ", key, " FROM ", source.node, "))"]
        return node(
            "check", *source.before(), "SELECT (SELECT COUNT(*) FROM (SELECT DISTINCT ", listed,
            " FROM ", source.node, where, ")) = 1", *left,
        )  # fmt: skip


def replace_needed(at: Node) -> Node:
    return Node("ordered", (at,), needed=True)


def plain(source: Source) -> list[Column]:
    """Columns of the table itself, for a query beside this one."""
    names = {column.name for column in source.columns}
    return [column for column in COLUMNS if column.name in names] or list(COLUMNS[:2])
