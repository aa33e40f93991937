"""The script about learning runs; what it measures takes minutes and is on its page."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_it_runs_and_tells_what_it_found(tmp_path):
    script = ROOT / "examples" / "papers" / "learning.py"
    done = subprocess.run(
        [sys.executable, "-W", "error", script, "--quick", "--folder", tmp_path],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    (found,) = json.loads((tmp_path / "results" / "learning.json").read_text())["findings"]
    assert "naive Bayes: raw" in found["ours"]
    assert (tmp_path / "figures" / found["figure"]).exists()
