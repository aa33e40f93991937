"""What pages need before they are followed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.demos import told


@pytest.fixture(scope="session")
def demo(tmp_path_factory) -> Path:
    """The folder that ``privsql demo`` leaves."""
    return told(tmp_path_factory).folder
