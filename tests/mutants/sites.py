"""Places of a module where a small change can be made, and the change.

Operators of comparison, arithmetic and logic are exchanged, numbers are off by one, truth values
and conditions turned round, ends of slices and statements left out, arguments exchanged, and
nothing is returned.  What changes no number is no place: texts, annotations, assertions, what is
raised, ``__repr__``, imports.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE,
    ast.GtE: ast.Gt, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd, ast.MatMult: ast.Mult,
}  # fmt: skip
UNSEEN = ("__repr__", "__str__", "__all__")


@dataclass(frozen=True)
class Mutant:
    """One change of one module: the place by number, or a text for another."""

    module: str
    path: str
    line: int
    kind: str
    old: str
    new: str
    place: int = -1  # among the module's places; -1: the texts themselves are exchanged

    @property
    def name(self) -> str:
        where = f"{self.module}:{self.line}"
        return f"{where}:{self.kind}:{self.place}" if self.place >= 0 else f"{where}:named"

    def source(self) -> ast.Module:
        """The changed module."""
        text = Path(self.path).read_text(encoding="utf-8")
        if self.place < 0:
            if text.count(self.old) != 1:
                raise ValueError(f"{self.path} holds {self.old!r} {text.count(self.old)} times")
            return ast.parse(text.replace(self.old, self.new))
        tree = ast.parse(text)
        change = _places(tree)[self.place][1]
        change()
        return ast.fix_missing_locations(tree)


Change = tuple[str, Callable[[], tuple[ast.AST, ast.AST | None]], ast.AST]


def places(path: Path) -> int:
    """How many changes a module offers."""
    return len(_places(ast.parse(path.read_text(encoding="utf-8"))))


def mutant(module: str, path: Path, place: int) -> Mutant:
    """The change at one place, by its number."""
    text = path.read_text(encoding="utf-8")
    kind, change, at = _places(ast.parse(text))[place]
    line = getattr(at, "lineno", 0)
    old = ast.get_source_segment(text, at) or text.splitlines()[line - 1]
    new = change()[1]
    shown = "(left out)" if new is None else _shown(new)
    return Mutant(module, str(path), line, kind, _cut(old), _cut(shown), place)


def named(module: str, path: Path, old: str, new: str) -> Mutant:
    """A change that is given by its texts, which must occur once."""
    text = path.read_text(encoding="utf-8")
    line = text[: max(text.find(old), 0)].count("\n") + 1
    return Mutant(module, str(path), line, "named", old, new)


def _cut(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= 160 else f"{flat[:157]}..."


def _shown(node: ast.AST) -> str:
    return ast.unparse(ast.fix_missing_locations(node))


def sampled(modules: Mapping[str, Path], count: int, seed: int) -> list[Mutant]:
    """Some of all places: in proportion, but three of each module where there are so many."""
    least = min(3, count // max(1, len(modules)))
    sizes = {module: places(path) for module, path in modules.items()}
    total = max(1, sum(sizes.values()))
    chosen: list[Mutant] = []
    for module, size in sizes.items():
        share = min(size, max(least, round(count * size / total)))
        numbers = random.Random(f"{seed} {module}").sample(range(size), share)
        chosen += [mutant(module, modules[module], number) for number in numbers]
    random.Random(seed).shuffle(chosen)
    return chosen


# --- places ----------------------------------------------------------------------------


def _places(tree: ast.Module) -> list[Change]:
    return list(_inside(tree))


def _inside(node: ast.AST) -> Iterator[Change]:
    """Changes of a node and of what is below it, in a fixed order."""
    if _silent(node):
        return
    yield from _changes(node)
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_comment", "bases"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _inside(child)


def _silent(node: ast.AST) -> bool:
    """Whether no number can depend on it."""
    if isinstance(node, ast.Raise | ast.Assert | ast.Import | ast.ImportFrom | ast.JoinedStr):
        return True
    if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in UNSEEN:
        return True
    if isinstance(node, ast.keyword) and node.arg == "strict":
        return True  # of zip: an assertion
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
        return True
    if isinstance(node, ast.Assign):
        first = node.targets[0]
        # Types that are given a name: ``Floats = NDArray[np.float64]``.
        return isinstance(first, ast.Name) and (first.id in UNSEEN or _is_type(node.value))
    if isinstance(node, ast.Call):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else None
        called = node.func.id if isinstance(node.func, ast.Name) else called
        return called in ("Notice", "TypeVar", "dataclass", "field")
    return False


TYPES = ("NDArray", "Callable", "Mapping", "Sequence", "dict", "list", "tuple", "Union", "int",
         "float", "str", "bool", "bytes", "frozenset", "set")  # fmt: skip


def _is_type(node: ast.AST) -> bool:
    if isinstance(node, ast.Subscript):
        return ast.unparse(node.value).split(".")[-1] in TYPES
    if isinstance(node, ast.BinOp):
        return _is_type(node.left) or _is_type(node.right)
    return isinstance(node, ast.Name) and node.id in TYPES


def _changes(node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.Compare):
        for i, op in enumerate(node.ops):
            if type(op) in COMPARED:
                yield "comparison", _set_item(node, node.ops, i, COMPARED[type(op)]()), node
    elif isinstance(node, ast.BinOp | ast.AugAssign):
        textual = isinstance(node, ast.BinOp) and any(map(_text, (node.left, node.right)))
        if type(node.op) in COMPUTED and not textual and not _is_type(node):
            yield "arithmetic", _set(node, "op", COMPUTED[type(node.op)]()), node
    elif isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield "and or", _set(node, "op", other), node
    elif isinstance(node, ast.Constant) and not isinstance(node.value, str | bytes):
        if isinstance(node.value, bool):
            yield "truth", _set(node, "value", not node.value), node
        elif isinstance(node.value, int | float):
            yield "constant", _set(node, "value", node.value + 1), node
    elif isinstance(node, ast.Slice):
        for end in ("lower", "upper"):
            if getattr(node, end) is not None:
                yield "slice", _set(node, end, None), node
    elif isinstance(node, ast.Call):
        given = node.args
        if len(given) > 1 and not any(isinstance(a, ast.Starred) for a in given[:2]):
            yield "arguments", _exchange(node), node
    yield from _conditions(node)
    yield from _statements(node)


def _conditions(node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "not dropped", _set(node, "op", None), node
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield "sign", _set(node, "op", ast.UAdd()), node
    if isinstance(node, ast.If | ast.IfExp | ast.While) and not _only_raises(node):
        yield "negated", _negate(node, "test"), node.test
    if isinstance(node, ast.comprehension):
        for i, test in enumerate(node.ifs):
            turned = ast.UnaryOp(ast.Not(), test)
            yield "negated", _set_item(node, node.ifs, i, turned), test


def _only_raises(node: ast.AST) -> bool:
    """``if ...: raise AssertionError`` guards nothing that a user can see."""
    if not isinstance(node, ast.If) or len(node.body) != 1:
        return False
    (only,) = node.body
    return isinstance(only, ast.Raise) and "AssertionError" in ast.unparse(only)


def _statements(node: ast.AST) -> Iterator[Change]:
    given = node.value if isinstance(node, ast.Return) else None
    if given is not None and not (isinstance(given, ast.Constant) and given.value is None):
        yield "return none", _set(node, "value", ast.Constant(None)), node
    body = getattr(node, "body", None)
    for part in (body, getattr(node, "orelse", None)):
        if not isinstance(part, list):
            continue
        for i, statement in enumerate(part):
            if _deletable(statement):
                yield "left out", _set_item(None, part, i, ast.Pass()), statement


def _deletable(node: ast.AST) -> bool:
    if isinstance(node, ast.Expr):
        return not isinstance(node.value, ast.Constant)
    if isinstance(node, ast.Assign):
        return all(isinstance(t, ast.Attribute | ast.Subscript) for t in node.targets)
    return isinstance(node, ast.AugAssign | ast.Continue | ast.Break)


def _text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


# --- changes -----------------------------------------------------------------------------

Made = Callable[[], tuple[ast.AST, ast.AST | None]]


def _set(node: ast.AST, name: str, value: object) -> Made:
    def change() -> tuple[ast.AST, ast.AST | None]:
        if name == "op" and value is None and isinstance(node, ast.UnaryOp):
            node.op = ast.Not()  # ``not not x``, which is x as a truth value
            node.operand = ast.UnaryOp(ast.Not(), node.operand)
            return node, node
        setattr(node, name, value)
        return node, node

    return change


def _set_item(owner: ast.AST | None, items: list[Any], i: int, value: ast.AST) -> Made:
    def change() -> tuple[ast.AST, ast.AST | None]:
        items[i] = value
        if owner is None:
            return value, None
        return owner, value if isinstance(value, ast.expr) else owner

    return change


def _negate(node: ast.AST, name: str) -> Made:
    def change() -> tuple[ast.AST, ast.AST | None]:
        turned = ast.UnaryOp(ast.Not(), getattr(node, name))
        setattr(node, name, turned)
        return node, turned

    return change


def _exchange(node: ast.Call) -> Made:
    def change() -> tuple[ast.AST, ast.AST | None]:
        node.args[0], node.args[1] = node.args[1], node.args[0]
        return node, node

    return change
