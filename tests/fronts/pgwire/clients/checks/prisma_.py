"""Prisma's introspection: ``prisma db pull``, and a statement by its engine."""

import json
import os
import subprocess
import tempfile
from pathlib import Path

from report import check, version

HOME = Path(os.environ["CHECKS_HOME"])
PRISMA = str(HOME / "node_modules" / ".bin" / "prisma")
version(json.loads((HOME / "node_modules/prisma/package.json").read_text())["version"])
SCHEMA = 'datasource db {\n  provider = "postgresql"\n  url = env("WIRE_URL")\n}\n'

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "schema.prisma"

    @check("introspection")
    def _():
        path.write_text(SCHEMA)
        done = subprocess.run(
            [PRISMA, "db", "pull", "--schema", str(path), "--force"], cwd=folder,
            capture_output=True, text=True, timeout=120, env={**os.environ, "CHECKPOINT_DISABLE": "1"},
        )  # fmt: skip
        if done.returncode:
            problem = (done.stderr or done.stdout).strip()
            if "request to" in problem:  # its engine is a download of its own, not by npm
                print(json.dumps({"missing": problem[-300:]}))
            raise RuntimeError(problem[-600:])
        lines = path.read_text().splitlines()
        return [" ".join(line.split()) for line in lines if line.strip() and "///" not in line]
