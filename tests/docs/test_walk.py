"""The walks of docs/architecture.md are those of real calls."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.walk import WALKS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("title", WALKS)
def test_a_walk_names_every_module_in_order(title: str) -> None:
    """In a process of its own: what other tests left in caches is not entered again."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.walk", title],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout in (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
