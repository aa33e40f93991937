"""The runner of mutants itself: places, changes, forks.  Mutants are not tried here."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.mutants.battery import alike, same
from tests.mutants.modules import NAMED, ROOT, files_of, modules
from tests.mutants.sites import Mutant, mutant, named, places, sampled

SOURCE = '''
"""A docstring with 1 + 1."""
from __future__ import annotations
Pair = dict[str, int]

def f(x: int | None, y: float = 2.0) -> float | None:
    """Another > one."""
    if x is None:
        raise AssertionError(f"not {1 + 1}")
    assert y > 0
    total = [0.0]
    for i in range(x)[1:]:
        if not i % 2 and i < 7:
            total[0] += i * y
            continue
        total.append(max(i, y))
    list(zip([x], [y], strict=True))
    return -sum(total)

class C:
    def __repr__(self) -> str:
        return "C" * 2
'''


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "m.py"
    made.write_text(SOURCE)
    return made


def all_of(path: Path) -> list[Mutant]:
    return [mutant("m", path, place) for place in range(places(path))]


def test_places_are_of_every_kind_and_only_where_a_number_can_change(path: Path) -> None:
    found = all_of(path)
    kinds = {each.kind for each in found}
    assert kinds == {
        "comparison", "arithmetic", "and or", "constant", "slice", "arguments", "negated",
        "not dropped", "sign", "return none", "left out",
    }  # fmt: skip
    lines = SOURCE.splitlines()
    for each in found:
        line = lines[each.line - 1]
        assert not any(word in line for word in ("assert", "raise", "Pair", '"""', '"C"'))


def test_every_change_compiles_and_differs_from_what_was_there(path: Path) -> None:
    before = ast.dump(ast.parse(SOURCE))
    seen = set()
    for each in all_of(path):
        tree = each.source()
        compile(tree, str(path), "exec")
        seen.add(ast.dump(tree))
    assert before not in seen
    assert len(seen) == places(path)


def test_a_named_change_is_found_once_or_refused(path: Path) -> None:
    made = named("m", path, "i < 7", "i < 8")
    assert "i < 8" in ast.unparse(made.source())
    assert made.line == 13
    with pytest.raises(ValueError, match="2 times"):
        named("m", path, "1 + 1", "2").source()


def test_named_changes_are_about_lines_that_are_there() -> None:
    found = modules()
    for module, old, new in NAMED:
        named(module, found[module], old, new).source()


def test_mutants_are_drawn_by_their_seed_over_all_modules() -> None:
    found = modules()
    assert len(found) > 35
    one = sampled(found, 120, 1)
    empty = {module for module, path in found.items() if not places(path)}
    assert {each.module for each in one} == set(found) - empty
    assert len(one) >= 110
    few = {
        module: found[module] for module in ("privsql.sql.reconstruct.covariance", "udfs.variance")
    }
    assert [each.name for each in sampled(few, 9, 1)] == [each.name for each in sampled(few, 9, 1)]
    assert sampled(few, 9, 1) != sampled(few, 9, 2)
    assert all((ROOT / file).exists() for module in found for file in files_of(module))


def test_answers_are_alike_up_to_rounding_and_in_any_order() -> None:
    columns, bars = [("n", "DOUBLE", True)], {0: {"stderr": [1.0, 2.0]}}
    one: Any = (columns, [[5.0, 6.0]], bars, [])
    assert same(one, (columns, [[5.0 + 1e-12, 6.0]], bars, []))
    assert same(one, (columns, [[6.0, 5.0]], {0: {"stderr": [2.0, 1.0]}}, []))
    assert not same(one, (columns, [[6.0, 5.0]], bars, []))
    assert not same(one, (columns, [[5.0, 6.1]], bars, []))
    assert not same(one, "TooLargeError")
    assert alike(float("nan"), float("nan"))
    assert not alike(float("nan"), 1.0)
    assert not alike(None, 0.0)


def test_a_child_imports_the_changed_module_and_nobody_else_does(tmp_path: Path) -> None:
    """In a process of its own, because this one has imported everything already."""
    program = """
import sys
from pathlib import Path
from tests.mutants.modules import modules
from tests.mutants.running import Changed, done, warm
from tests.mutants.sites import named

def work():
    made = named("udfs.errors", modules()["udfs.errors"], "class KernelError", "CHANGED = True\\n\\n\\nclass KernelError")
    sys.meta_path.insert(0, Changed(made))
    import udfs.errors
    return udfs.errors.CHANGED

warm()
assert done(work, Path(sys.argv[1]), "one") is True
assert done(lambda: hasattr(__import__("udfs.errors").errors, "CHANGED"), Path(sys.argv[1]), "two") is False
"""  # noqa: E501
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
