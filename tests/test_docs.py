"""What the documents say is run, and what must be documented is."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from udfs.functions import FUNCTIONS

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(path: Path) -> list[tuple[str, str]]:
    return BLOCK.findall(path.read_text())


def run(code: str, folder: Path = ROOT) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def python_blocks() -> list[tuple[str, str, str | None]]:
    """Each Python block with the output block that follows it, if one does."""
    found = []
    for path in DOCUMENTS:
        parts = blocks(path)
        for i, (language, code) in enumerate(parts):
            if language == "python":
                follows = parts[i + 1] if i + 1 < len(parts) else ("", None)
                found.append((path.name, code, follows[1] if follows[0] == "" else None))
    return found


@pytest.mark.parametrize(("name", "code", "output"), python_blocks())
def test_python_blocks_run_and_print_what_is_shown(name, code, output, tmp_path):
    printed = run(code, tmp_path)
    if output is not None:
        assert printed == output


def shell_lines() -> list[str]:
    return sorted(
        {
            line
            for path in DOCUMENTS
            for language, code in blocks(path)
            if language in ("sh", "bash", "shell")
            for line in code.splitlines()
            if line.strip()
        }
    )


@pytest.mark.parametrize("line", [line for line in shell_lines() if line.startswith("make ")])
def test_make_lines_name_targets(line):
    """The tests are themselves inside one, so targets are not run, only resolved."""
    done = subprocess.run(
        ["make", "--dry-run", *line.split()[1:]], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr


def test_commands_of_the_readme_work_in_their_order(tmp_path):
    """The Python block before them has made the files that they name."""
    setup = next(code for _, code, _ in python_blocks() if "patients.csv" in code)
    run(setup, tmp_path)
    commands = [
        line
        for language, code in blocks(ROOT / "README.md")
        if language == "sh"
        for line in code.splitlines()
        if line.startswith("privsql ")
    ]
    assert len(commands) >= 5
    for command in commands:
        done = subprocess.run(
            [sys.executable, "-m", "privsql.fronts.cli", *command.split()[1:]],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            timeout=120,
        )
        assert done.returncode == 0, (command, done.stderr)


def test_no_other_command_stands_in_the_documents():
    # `pip install .` is run by test_packaging, in an environment of its own.
    known = ("make ", "privsql ", "pip install .")
    assert [line for line in shell_lines() if not line.startswith(known)] == []


def test_every_command_and_option_is_documented():
    """Each command stands in the README, each option in its command's help."""
    from privsql.fronts.cli import main

    text = (ROOT / "README.md").read_text()
    for name, command in main.commands.items():
        assert f"privsql {name}" in text
        for parameter in getattr(command, "params", []):
            if parameter.param_type_name == "option":
                assert parameter.help, f"{name} {parameter.name} has no help"


def test_every_make_target_is_documented():
    text = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z]+):.*## ", text, re.MULTILINE))
    documents = "".join(path.read_text() for path in DOCUMENTS)
    undocumented = {t for t in targets - {"install", "clean"} if f"make {t}" not in documents}
    assert undocumented == set()
    phony = set(re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE).group(1).split())
    assert phony == targets


def functions_page() -> str:
    lines = [
        "# SQL functions",
        "",
        "`udfs.register.register(connection)` makes these known to a DuckDB database. Vectors over",
        "states are lists; the transition matrix is the list of its factors, one a column, each a",
        "square matrix whose rows sum to one. The last column's cell changes fastest.",
        "NULL in gives NULL out; an end of an interval that cannot be told is NULL.",
        "",
    ]
    for function in FUNCTIONS:
        inside = ", ".join(f"{name} {kind}" for name, kind in function.parameters.items())
        lines += [
            f"## {function.name}",
            "",
            function.meaning[0].upper() + function.meaning[1:] + ".",
            "",
            "```sql",
            f"{function.name}({inside})",
            f"  -> {function.returns}",
            "```",
            "",
        ]
    return "\n".join(lines)


def test_the_page_of_functions_is_what_the_code_says():
    """On a change: python -m tests.test_docs > docs/functions.md."""
    assert (ROOT / "docs" / "functions.md").read_text() == functions_page()


EXAMPLES = sorted((ROOT / "examples").glob("[0-9]*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_run(path):
    printed = run(f"import runpy; runpy.run_path({str(path)!r}, run_name='__main__')")
    assert printed


def test_the_demos_intervals_hold_the_truth():
    printed = run(f"import runpy; runpy.run_path({str(EXAMPLES[0])!r}, run_name='__main__')")
    rows = re.findall(r"^ +(?:north|south) +(\d+) .*\[(\d+), (\d+)\]$", printed, re.MULTILINE)
    assert len(rows) == 2
    for truth, low, high in rows:
        assert int(low) <= int(truth) <= int(high)


def test_no_document_names_a_machine_path_or_a_registry():
    pattern = re.compile(r"/(?:work|root|home|tmp)/|pypi\.org|debian\.org|npmjs")
    for path in [*DOCUMENTS, ROOT / "Makefile", ROOT / "pyproject.toml", ROOT / "constraints.txt"]:
        assert not pattern.search(path.read_text()), path.name


if __name__ == "__main__":
    sys.stdout.write(functions_page())
