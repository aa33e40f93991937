"""Type what a page says, in the order in which it says it.

A page is Markdown.  Its blocks are followed from top to bottom in one empty folder:

    sh       each line in a shell; a server goes on in the background until the page ends
    python   a program of its own
    sql      statements, asked of the release that the page names
    toml     a file, where the first line is its name: ``# survey.toml``

and a block without a language right after one of these is what it prints, to the letter.  A
page that begins with ``<!-- folder: demo -->`` is followed in a copy of the folder that
``privsql demo`` leaves, and ``<!-- release: clinic.duckdb -->`` names the release of its SQL.
``<!-- data: survey.csv -->`` puts files of ``examples/data`` there.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from tests import programs

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NOTE = re.compile(r"^<!-- (\w+): (.*?) -->$", re.MULTILINE)
RUN = ("sh", "python", "sql", "toml")
# A block that is a file says so in its first line.
FILE = re.compile(r"# ([\w-]+\.toml)\n")
# Words that begin a line of a shell block; any other is a mistake of the page's.
COMMANDS = ("privsql ", "cat ", "echo ", "head ", "ls", "cd ", "python ", "printf ")


@dataclass(frozen=True)
class Step:
    """One block to run and what the page says that it prints, if it says so."""

    page: str
    line: int
    language: str
    code: str
    output: str | None

    def __str__(self) -> str:
        """Where it stands."""
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Page:
    """A page with the blocks that are run, in order."""

    path: Path
    notes: dict[str, str]
    steps: tuple[Step, ...]


def read(path: Path) -> Page:
    """Read a page."""
    text = path.read_text()
    steps, found = [], list(BLOCK.finditer(text))
    for i, match in enumerate(found):
        if match[1] not in RUN or (match[1] == "toml" and not FILE.match(match[2])):
            continue
        output = None
        if i + 1 < len(found) and found[i + 1][1] == "":
            # Only what follows at once is the output: a sentence between makes it an illustration.
            between = text[match.end() : found[i + 1].start()]
            output = found[i + 1][2] if not between.strip() else None
        line = text[: match.start()].count("\n") + 1
        steps.append(Step(path.name, line, match[1], match[2], output))
    return Page(path, dict(NOTE.findall(text)), tuple(steps))


def environment(folder: Path) -> dict[str, str]:
    """Where ``privsql`` is found; no colour, no history of the person who runs the tests."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    own = {"PATH": path, "XDG_STATE_HOME": str(folder / ".state"), "COLUMNS": "80"}
    return {**os.environ, **own, "NO_COLOR": "1", "MPLBACKEND": "Agg"}


def shell(step: Step, folder: Path) -> str:
    """Type the lines of a block; a refusal is fine where the page shows it."""
    said = ""
    for line in lines_of(step.code):
        assert line.startswith(COMMANDS), f"{step}: no test runs {line!r}"
        done = programs.typed(line, cwd=folder, env=environment(folder))
        refused = "ERROR " in (step.output or "")
        assert done.returncode == (1 if refused else 0), (str(step), line, done)
        said += done.stdout + (done.stderr if refused else "")
    return said


def lines_of(code: str) -> Iterator[str]:
    """Commands, those that go on after a backslash joined."""
    for line in code.replace("\\\n", " ").splitlines():
        if line.strip() and not line.startswith("#"):
            yield line


def python(step: Step, folder: Path) -> str:
    """Run a program; warnings are errors."""
    done = programs.python(step.code, cwd=folder, env=environment(folder))
    assert (done.returncode, done.stderr) == (0, ""), (str(step), done.stderr)
    return done.stdout


def sql(step: Step, release: Path) -> str:
    """Ask the statements of a block one after the other."""
    import privsql

    said = []
    # As wide as where no terminal is: pytest's workers say that they have 80 columns.
    width = patch.dict(os.environ, {"COLUMNS": "120"})
    with width, privsql.connect(str(release)) as connection:
        for statement in connection._session.statements(step.code):
            try:
                answer = connection.sql(statement)
            except privsql.Error as refused:
                if "ERROR " not in (step.output or ""):
                    raise AssertionError(f"{step}: {refused}") from refused
                said.append(str(refused))
            else:
                said.append(str(answer))
    return "\n".join(filter(None, said)) + "\n"


def printed(page: Page, step: Step, folder: Path) -> str:
    """Do one step of a page."""
    if step.language == "sh":
        return shell(step, folder)
    if step.language == "python":
        return python(step, folder)
    if step.language == "toml":
        (folder / FILE.match(step.code)[1]).write_text(step.code)
        return ""
    return sql(step, folder / page.notes["release"])


def begin(page: Page, folder: Path, demo: Path | None = None) -> None:
    """Make the folder in which a page is followed; ``demo`` is what ``privsql demo`` left."""
    if page.notes.get("folder") == "demo":
        assert demo is not None
        shutil.copytree(demo, folder)
    else:
        folder.mkdir()
    for name in page.notes.get("data", "").split():
        shutil.copy(ROOT / "examples" / "data" / name, folder)


def follow(page: Page, folder: Path) -> None:
    """Do all that a page says; what it shows must come."""
    for step in page.steps:
        found = printed(page, step, folder)
        if step.output is not None:
            assert stripped(found) == stripped(step.output), str(step)


def filled(page: Page, folder: Path) -> str:
    """The page with what its steps print today, where it shows anything."""
    text = page.path.read_text()
    for step in page.steps:
        found = printed(page, step, folder)
        if step.output is not None:
            old = f"```{step.language}\n{step.code}```\n\n```\n"
            assert text.count(old) == 1, str(step)
            head, tail = text.split(old)
            text = head + old + stripped(found) + "\n" + tail.removeprefix(step.output)
    return text


def stripped(text: str) -> str:
    """Text without blanks at the ends of lines, which editors remove from pages."""
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())
