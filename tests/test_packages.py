"""Packages that read in order: few modules each, all of them listed, no name twice."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MOST_MODULES = 12


def packages() -> Iterator[Path]:
    for top in ("privsql", "udfs"):
        for path in sorted((ROOT / top).rglob("__init__.py")):
            yield path.parent


def names(package: Path) -> list[str]:
    modules = [path.stem for path in package.glob("*.py") if path.stem != "__init__"]
    inner = [path.parent.name for path in package.glob("*/__init__.py")]
    return sorted([*modules, *inner])


@pytest.mark.parametrize("package", list(packages()), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_package_is_small_and_lists_what_is_in_it(package: Path) -> None:
    modules = [path.stem for path in package.glob("*.py") if path.stem != "__init__"]
    assert len(modules) <= MOST_MODULES
    found = names(package)
    assert len(set(found)) == len(found), "a module and a package of one name"
    if package in (ROOT / "privsql", ROOT / "privsql" / "fronts"):
        return  # the front page tells the life of a query; fronts lists its packages in words
    said = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
    words = {word.strip(",;:.`") for word in said.split()}
    assert [name for name in found if name not in words] == []


# Modules that have a function of more than ten branches: none is added.
COMPLEX = 31


def test_the_list_of_complex_modules_gets_shorter() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    listed = [
        name
        for name, rules in settings["per-file-ignores"].items()
        if "C901" in rules and name.endswith(".py")
    ]
    assert len(listed) <= COMPLEX
    ruff = Path(sys.executable).with_name("ruff")
    # Without pyproject's list, each of them has such a function still.
    found = subprocess.run(
        [ruff, "check", "--isolated", "--select", "C901", "--output-format", "concise", *listed],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    ).stdout
    simple = [name for name in listed if f"{name}:" not in found]
    assert simple == [], "take these off the list"
