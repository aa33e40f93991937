"""Trees of SQL text that know what they are made of, so that they can be cut down.

A query is a tree of :class:`Node`: text, literals and nodes below.  What has to follow from a
query (which columns are keys, what must hold of the raw table, how large its sums are) hangs
at the nodes and not beside the tree: when a part is replaced, everything that mentions
it changes with it, because nodes are replaced by identity wherever they occur.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import date
from typing import Any, Union

Part = Union[str, "Node"]


@dataclass(frozen=True)
class Output:
    """What is known about one column of the result."""

    name: str
    key: bool = False  # equal values, DuckDB's type; otherwise compared as a number
    typing: str = "follow"  # follow: DOUBLE where it is an estimate; any: not looked at
    measure: str = "count"  # count (exactly) | sum | square | root | corr | any
    marker: bool = False  # the COUNT(*) that tells groups which only a domain knows


@dataclass(frozen=True, eq=False)
class Node:
    """A piece of SQL.  ``kind`` says what may stand in its place.

    ``hidden`` is not printed: nodes on which an output depends (WHERE, keys, FROM).
    ``checks`` are queries that must answer TRUE on the raw table for the case to have one
    answer; ``scale`` is a query for the size against which a sum is compared.  ``instead`` is what
    may stand in its place, where ``idle``, conditions on what is then gone, are TRUE.
    """

    kind: str
    parts: tuple[Part, ...] = ()
    feature: str = ""
    sensitive: bool = False  # a sensitive column itself
    optional: bool = False  # may be left out altogether
    needed: bool = False  # must stay in its list
    sep: str | None = None  # a list of items, so joined
    least: int = 1  # items that the list must keep
    value: Any = None  # a literal that may become a parameter
    output: Output | None = None
    hidden: tuple[Node, ...] = ()
    checks: tuple[Node, ...] = ()
    scale: Node | None = None
    instead: Node | None = None
    idle: tuple[Node, ...] = ()

    def below(self) -> Iterator[Node]:
        return (part for part in self.parts if isinstance(part, Node))

    def walk(self) -> Iterator[Node]:
        """This node and all printed ones below, from the outside in."""
        yield self
        for part in self.below():
            yield from part.walk()

    def size(self) -> int:
        return sum(1 for _ in self.walk())


EMPTY = Node("empty")
TRUE = Node("join", ("TRUE",), needed=True)
ALL_ROWS = Node("aggregate", ("COUNT(*)",))


def node(kind: str, *parts: Part, feature: str = "") -> Node:
    return Node(kind, parts, feature)


def items(kind: str, parts: list[Node], sep: str = ", ", least: int = 1) -> Node:
    return Node(kind, tuple(parts), sep=sep, least=least)


def clause(*parts: Part, feature: str = "") -> Node:
    """A part of a query that can be left out."""
    return Node("clause", parts, feature, optional=True)


def literal(value: Any, *, parameter: bool = True) -> Node:
    return Node("literal", (quoted(value),), value=value if parameter else None)


def quoted(value: Any) -> str:
    """A Python value as SQL writes it.

    >>> quoted("it's"), quoted(date(2024, 1, 2)), quoted(None)
    ("'it''s'", "DATE '2024-01-02'", 'NULL')
    """
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    return str(value)


def touches(tree: Node) -> bool:
    """Whether anything in it depends on a sensitive column."""
    return any(each.sensitive or any(map(touches, each.hidden)) for each in tree.walk())


def features(tree: Node) -> set[str]:
    return {each.feature for each in tree.walk() if each.feature}


class Printer:
    """Prints a tree, with its literals as they are or as parameters of one style."""

    def __init__(self, style: str = "") -> None:
        self.style = style
        self.values: list[Any] = []

    def print(self, tree: Node) -> str:
        if self.style and tree.value is not None:
            return self._parameter(tree.value)
        texts = [part if isinstance(part, str) else self.print(part) for part in tree.parts]
        if tree.sep is None:
            return "".join(texts)
        return tree.sep.join(text for text in texts if text)

    def parameters(self) -> list[Any] | dict[str, Any] | None:
        if not self.values:
            return None
        if self.style == "$name":
            return {f"p{i}": value for i, value in enumerate(self.values)}
        return list(self.values)

    def _parameter(self, value: Any) -> str:
        self.values.append(value)
        place = len(self.values)
        return {"?": "?", "$1": f"${place}", "$name": f"$p{place - 1}"}[self.style]


def text(tree: Node) -> str:
    return Printer().print(tree)


def replaced(tree: Node, old: Node, new: Node) -> Node:
    """The tree with one node put in another's place, wherever it occurs."""
    done: dict[int, Node] = {}

    def change(at: Node) -> Node:
        if at is old:
            return new
        if id(at) not in done:
            done[id(at)] = _mapped(at, change)
        return done[id(at)]

    return change(tree)


def _mapped(at: Node, change: Callable[[Node], Node]) -> Node:
    parts = tuple(part if isinstance(part, str) else change(part) for part in at.parts)
    hidden = tuple(map(change, at.hidden))
    checks = tuple(map(change, at.checks))
    idle = tuple(map(change, at.idle))
    scale = None if at.scale is None else change(at.scale)
    same = all(a is b for a, b in zip(parts, at.parts, strict=True))
    same = same and all(a is b for a, b in zip(hidden, at.hidden, strict=True))
    same = same and all(a is b for a, b in zip(checks, at.checks, strict=True))
    same = same and all(a is b for a, b in zip(idle, at.idle, strict=True))
    if same and scale is at.scale:
        return at
    return replace(at, parts=parts, hidden=hidden, checks=checks, scale=scale, idle=idle)


def reductions(tree: Node) -> Iterator[Node]:
    """Trees that are smaller by one cut: large cuts first."""
    for at in tree.walk():
        if at.optional:
            yield replaced(tree, at, EMPTY)
        if at.sep is not None and len(at.parts) > at.least:
            for place, part in enumerate(at.parts):
                if isinstance(part, Node) and not part.needed:
                    kept = at.parts[:place] + at.parts[place + 1 :]
                    yield replaced(tree, at, replace(at, parts=kept))
        yield from _simpler(tree, at)
        if at.kind in ("bool", "number", "aggregate", "source", "value", "query"):
            for inside in at.walk():
                if inside is not at and inside.kind == at.kind and at.output is None:
                    yield replaced(tree, at, inside)


def _simpler(tree: Node, at: Node) -> Iterator[Node]:
    """Trees in which something else stands in a node's place: a table for a join with it.

    Or nothing, and what needs it goes as well: grouping with the keys that are shown.
    """
    if at.instead is not None:
        tree = replaced(tree, at, at.instead)
        for condition in at.idle:
            tree = replaced(tree, condition, TRUE)
        yield tree
    elif at.kind == "aggregate" and any(at.below()):
        yield replaced(tree, at, ALL_ROWS)
    elif at.kind == "query" and any(part.kind == "group" for part in at.below()):
        yield replaced(tree, at, _ungrouped(at))


def _ungrouped(query: Node) -> Node:
    for part in query.below():
        if part.kind == "group":
            query = replaced(query, part, EMPTY)
        elif part.kind in ("top", "items"):
            kept = [p for p in part.below() if p.output is None or not p.output.key]
            query = replaced(query, part, replace(part, parts=tuple(kept)))
    return query
