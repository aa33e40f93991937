from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fronts.shell.screen import Terminal, privsql
from tests.sql.clinic import publish


@pytest.fixture(scope="package")
def folder(tmp_path_factory) -> Path:
    """The current folder of the shells: a release, and an editor that changes one word."""
    made = tmp_path_factory.mktemp("shell")
    publish(made, 0.5, policy="refuse", least=10).rename(made / "clinic.duckdb")
    editor = made / "editor"
    editor.write_text('#!/bin/sh\nsed "s/\'flu\'/\'hiv\'/" "$1" > "$1.new" && mv "$1.new" "$1"\n')
    editor.chmod(0o755)
    (made / "two.sql").write_text("SELECT 11 AS one; -- and\n\nSELECT 22 AS two")
    (made / "marked.sql").write_bytes(b"\xef\xbb\xbfSELECT 33\r\nAS three;\r\n")
    return made


@pytest.fixture(scope="package")
def release(folder) -> Path:
    return folder / "clinic.duckdb"


@pytest.fixture(scope="module")
def opened() -> Iterator[list[Terminal]]:
    """Shells that the tests of a module share: a start takes seconds."""
    made: list[Terminal] = []
    yield made
    for terminal in made:
        terminal.close()


@pytest.fixture
def shell(opened, folder, release) -> Terminal:
    """A shell at an empty prompt on an empty screen."""
    if not opened or opened[-1].process.poll() is not None:
        opened.append(
            Terminal(
                *privsql("shell", release),
                cwd=folder,
                XDG_STATE_HOME=str(folder / "state"),
                EDITOR=str(folder / "editor"),
                VISUAL="",
            )
        )
    opened[-1].ready()
    opened[-1].clear()
    return opened[-1]
