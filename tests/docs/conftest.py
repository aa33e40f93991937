"""What pages need before they are followed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.docs.pages import typed


@pytest.fixture(scope="session")
def demo(tmp_path_factory) -> Path:
    """The folder that ``privsql demo`` leaves, made once for all processes of a test run."""
    own = tmp_path_factory.getbasetemp()
    shared = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "docs-demo"
    try:
        shared.mkdir()
    except FileExistsError:
        for _ in range(3_000):
            if (shared / "done").exists():
                break
            time.sleep(0.1)
    else:
        code, _, said = typed(["privsql", "demo"], shared)
        (shared / "done").write_text(said)
        assert code == 0, said
    return shared / "privsql-demo"
