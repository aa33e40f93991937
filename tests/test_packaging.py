"""The wheel: what is in it, and that it works in an environment of its own."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [*PIP, "wheel", "--no-build-isolation", "--no-deps", "-w", folder, ROOT],
        check=True,
        timeout=300,
    )
    (found,) = folder.glob("privsql-*.whl")
    return found


def test_the_wheel_holds_both_packages_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == {"privsql", "udfs"}
    assert {"privsql/py.typed", "udfs/py.typed"} <= set(names)
    expected = {
        str(path.relative_to(ROOT))
        for top in ("privsql", "udfs")
        for path in (ROOT / top).rglob("*")
        if path.suffix in (".py", ".json") or path.name == "py.typed"
    }
    assert {name for name in names if ".dist-info/" not in name} == expected


def test_the_installed_wheel_works_away_from_the_source(wheel, tmp_path):
    target = tmp_path / "site"
    subprocess.run(
        [*PIP, "install", "--no-deps", "-t", target, wheel],
        check=True,
        timeout=300,
    )
    code = (
        f"import sys; sys.path.insert(0, {str(target)!r})\n"
        "import duckdb, privsql, udfs\n"
        "from udfs.register import register\n"
        "con = duckdb.connect(); register(con)\n"
        "print(privsql.__file__.startswith(sys.path[0]), udfs.__file__.startswith(sys.path[0]))\n"
        "print(con.execute('SELECT privsql_invert([5], [])').fetchone()[0], privsql.__version__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=120
    )
    assert done.stderr == ""
    version = re.search(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.M).group(1)
    assert done.stdout == f"True True\n[5.0] {version}\n"


def test_udfs_loads_without_privsql():
    code = (
        "import sys\nsys.modules['privsql'] = None\nimport udfs.register, udfs.mle, udfs.iterate\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def test_constraints_hold_names_and_versions_only_and_every_dependency():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[A-Za-z0-9_.+!-]+", line) for line in lines)
    pinned = {line.split("==")[0].lower().replace("_", "-") for line in lines}
    project = (ROOT / "pyproject.toml").read_text()
    wanted = set(re.findall(r'^    "([a-z-]+)[<>=]', project, re.M)) | {"hatchling"}
    assert wanted <= pinned
