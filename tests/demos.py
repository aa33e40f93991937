"""The folder that ``privsql demo`` leaves: made once, for all processes of a test run."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.docs.pages import environment
from tests.programs import typed


@dataclass(frozen=True)
class Told:
    """The demo's folder, which nobody may change, and what the command printed."""

    folder: Path
    text: str


def told(factory: pytest.TempPathFactory) -> Told:
    """Run the command in an empty folder, or wait for the process that does."""
    own = factory.getbasetemp()
    shared = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "told"
    done = shared.with_name("told.txt")
    try:
        shared.mkdir()
    except FileExistsError:
        for _ in range(3_000):
            if done.exists():
                break
            time.sleep(0.1)
    else:
        ran = typed("privsql demo", cwd=shared, env=environment(shared))
        assert (ran.returncode, ran.stderr) == (0, "")
        done.with_name("told.new").write_text(ran.stdout, encoding="utf-8")
        done.with_name("told.new").rename(done)
    assert [path.name for path in shared.iterdir()] == ["privsql-demo"]
    return Told(shared / "privsql-demo", done.read_text(encoding="utf-8"))
