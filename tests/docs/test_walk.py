"""The walks of docs/architecture.md are those of real calls."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.walk import WALKS, block

PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"


@pytest.mark.parametrize("title", WALKS)
def test_a_walk_names_every_module_in_order(title: str, tmp_path: Path) -> None:
    found = re.search(rf"^### {title}\n\n```text\n(.*?)\n```$", PAGE.read_text(), re.M | re.S)
    assert found is not None
    assert found[1] == block(WALKS[title](tmp_path))
