"""The papers' scripts can be started; their runs in a hurry are part of `make soak`.

One of them, about learning, is short enough for `make test`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PAPERS = Path(__file__).resolve().parents[2] / "examples" / "papers"
SCRIPTS = ("fine", "olap", "recon", "splu")
PROGRAM = """
import runpy, sys
for script in sys.argv[1:]:
    print(runpy.run_path(script, run_name="read")["main"].__name__)
"""


def test_every_script_is_read_with_all_that_it_imports():
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM]
        + [str(PAPERS / f"{name}.py") for name in SCRIPTS],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(PAPERS), str(PAPERS.parents[1])])},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["main"] * len(SCRIPTS)
