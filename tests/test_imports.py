"""Who may import whom: the table of the house, held against the source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# Room -> what of ours it may import.  Everyone but udfs may use privsql.errors, privsql.files and
# itself.
ALLOWED: dict[str, set[str]] = {
    "udfs": set(),
    "privsql.errors": set(),
    "privsql.files": set(),
    "privsql.verbs": set(),
    "privsql.channels": {"udfs"},
    "privsql.release": {"privsql.channels"},
    "privsql.publish": {"privsql.release", "privsql.channels"},
    "privsql.sql": {"privsql.release", "privsql.channels"},
    "privsql.policy": {"privsql.sql.plan", "privsql.sql.reconstruct.columns", "privsql.release"},
    "privsql.engines": {"udfs", "privsql.release"},
    "privsql.answer": {"privsql.sql.plan", "udfs", "privsql.channels"},
    "privsql.session": {
        "privsql.sql",
        "privsql.policy",
        "privsql.engines",
        "privsql.answer",
        "privsql.release",
        "privsql.audit.report.public_tables",
        "udfs",
    },
    "privsql.audit": {
        "privsql.release",
        "privsql.channels",
        "privsql.publish.groups",
        "privsql.publish.formats",
        "privsql.publish.recode",
    },
    "privsql.advise": {
        "privsql.audit",
        "privsql.publish",
        "privsql.session",
        "privsql.answer",
        "privsql.release",
        "privsql.channels",
    },
    "privsql.learn": {"privsql.session", "privsql.release.names"},
    "privsql.fronts": {"privsql", "udfs"},
    "privsql": {"privsql"},  # the package's front page re-exports
}

EVERYBODYS = ("privsql.errors", "privsql.files", "privsql.verbs")

# Packages that only one room may touch.
RESERVED = {"sqlglot": "privsql.sql"}


def room_of(module: str) -> str:
    """The longest room that holds a module."""
    rooms = [room for room in ALLOWED if module == room or module.startswith(room + ".")]
    return max(rooms, key=len, default="")


def inside(module: str, place: str) -> bool:
    return module == place or module.startswith(place + ".")


def imports(source: str, module: str, is_package: bool) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                parts = module.split(".")
                base = parts[: len(parts) - node.level + is_package]
                yield ".".join([*base, *([node.module] if node.module else [])])
            elif node.module in ("privsql", "udfs"):
                # "from udfs import kron" names a module by its alias.
                yield from (f"{node.module}.{alias.name}" for alias in node.names)
            elif node.module:
                yield node.module


def faults(source: str, module: str, is_package: bool = False) -> list[str]:
    room = room_of(module)
    found = []
    for target in imports(source, module, is_package):
        if inside(target, "privsql") or inside(target, "udfs"):
            fine = (
                (target in EVERYBODYS and room != "udfs")
                or inside(target, room)
                or any(inside(target, place) for place in ALLOWED[room])
            )
            if not fine:
                found.append(f"{module} imports {target}")
        for package, owner in RESERVED.items():
            if inside(target, package) and room != owner:
                found.append(f"{module} imports {target}, which belongs to {owner}")
    return found


def modules() -> Iterator[tuple[Path, str]]:
    for top in ("privsql", "udfs"):
        for path in sorted((ROOT / top).rglob("*.py")):
            relative = path.relative_to(ROOT).with_suffix("")
            parts = relative.parts[:-1] if relative.name == "__init__" else relative.parts
            yield path, ".".join(parts)


@pytest.mark.parametrize(("path", "module"), list(modules()), ids=lambda x: str(x).split("/")[-1])
def test_imports_keep_to_the_table(path, module):
    assert room_of(module), f"{module} is in no room of the table"
    assert faults(path.read_text(), module, path.name == "__init__.py") == []


def test_every_module_lives_in_a_room_that_the_table_names():
    rooms = {room_of(module) for _, module in modules()}
    assert [m for _, m in modules() if room_of(m) == "privsql" and m != "privsql"] == []
    assert {"udfs", "privsql.channels"} <= rooms


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("udfs.kron", "from privsql.errors import Error"),
        ("udfs.kron", "import privsql"),
        ("privsql.channels.cells", "from privsql.release import manifest"),
        ("privsql.channels.cells", "from ..release import manifest"),
        ("privsql.release.store", "import udfs.kron"),
        ("privsql.answer.moments", "from privsql.sql import parse"),
        ("privsql.answer.moments", "import sqlglot"),
        ("privsql.audit.report.report", "from privsql.publish import job"),
        ("privsql.learn.tree", "from privsql import answer"),
    ],
)
def test_the_table_can_be_broken(module, source):
    assert faults(source, module)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("udfs.kron", "from udfs.errors import KernelError\nimport numpy"),
        ("privsql.channels.cells", "from privsql.errors import Error\nfrom udfs import kron"),
        ("privsql.answer.moments", "from privsql.sql.plan.planner import Scan"),
        ("privsql.audit.report.report", "from privsql.publish.groups.merging import merge"),
        ("privsql.session.session", "from privsql.policy import guard"),
        ("privsql.sql.parse.statement", "import sqlglot.optimizer"),
    ],
)
def test_what_the_table_allows_passes(module, source):
    assert faults(source, module) == []


def test_the_page_about_the_rooms_says_the_same():
    page = (ROOT / "docs" / "architecture.md").read_text()
    told = {}
    for room, may in re.findall(r"^\| `([\w/]+)` \| .* \| ([^|]*) \|$", page, re.MULTILINE):
        named = re.findall(r"`([\w.]+)`", may)
        full = {name if name == "udfs" else f"privsql.{name}" for name in named}
        told[room.replace("/", ".")] = full
    everything = {"privsql.fronts": set()}  # "everything" is a word
    assert {**told, **everything} == {
        room: set() if room == "privsql.fronts" else may
        for room, may in ALLOWED.items()
        if room not in ("privsql", *EVERYBODYS)
    }


# Attributes of what `sql` hands out that hold trees: nobody else looks into them.
TREES = {"tree", "block", "steps", "leaf", "_tree", "definition"}
NEIGHBOURS = {f"privsql.{name}" for name in ("session", "policy", "engines", "answer", "fronts")}


@pytest.mark.parametrize(
    ("path", "module"),
    [each for each in modules() if room_of(each[1]) in NEIGHBOURS],
    ids=lambda x: str(x).split("/")[-1],
)
def test_trees_stay_in_their_room(path, module):
    nodes = ast.walk(ast.parse(path.read_text()))
    names = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    assert not (names & TREES), f"{module} looks at a tree of sqlglot's"


def test_what_a_plan_hands_out_is_printed_or_frozen():
    """Neither the plan of a query nor the scans of a gate have a field that is a tree."""
    from dataclasses import fields

    from privsql.sql.disclosure.evidence import Behind
    from privsql.sql.plan.query import Answered, Direct

    for kind in (Answered, Direct, Behind):
        assert kind.__dataclass_params__.frozen
        for field in fields(kind):
            assert "exp." not in str(field.type), f"{kind.__name__}.{field.name}"
            assert "Tree" not in str(field.type), f"{kind.__name__}.{field.name}"
