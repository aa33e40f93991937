"""Superset over ``privsql serve``: connects, lists, makes a dataset, draws charts.

python -m tests.fronts.pgwire.superset [--folder FOLDER]

Installs Superset from the package index in an environment of its own (some minutes and a
gigabyte), so it is no part of the tests.  With ``--folder`` it is kept there, and the next takes
a minute.  Each step says ``ok`` or what went wrong; the exit code is 1 if one failed.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

from tests.fronts.pgwire.superset.environment import installed, running
from tests.fronts.pgwire.superset.rest import Api
from tests.fronts.pgwire.superset.served import serving
from tests.fronts.pgwire.superset.steps import STEPS, Site, StepError


def tell(line: str) -> None:
    print(line, flush=True)


def failures(site: Site) -> int:
    """Take every step; a failed one shows what Superset asked of the server."""
    failed = 0
    for name, step in STEPS.items():
        before = len(site.served.entries())
        try:
            said = step(site)
        except StepError as problem:
            failed += 1
            tell(f"{name}: failed: {problem}")
            for entry in site.served.entries()[before:]:
                tell(textwrap.indent(f"{entry.statement}\n-- {entry.decision}", "    "))
        else:
            tell(f"{name}: ok{': ' if said else ''}{said}")
    return failed


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fronts.pgwire.superset")
    parser.add_argument("--folder", type=Path, help="where Superset is installed, and kept")
    folder = parser.parse_args(words).folder
    with tempfile.TemporaryDirectory() as scratch:
        home = (folder or Path(scratch)).absolute()
        try:
            superset = installed(home, tell)
            work = home / "run"  # with the logs of both servers, to be read where it is kept
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir()
            with serving(work) as served, running(superset, work) as address:
                api = Api(address)
                api.login("admin", superset.password)
                failed = failures(Site(api, served))
        except (RuntimeError, subprocess.SubprocessError) as problem:
            tell(f"failed: {problem}")
            return 1
    tell(f"{len(STEPS) - failed} steps ok, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
