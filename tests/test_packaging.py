"""The wheel: what is in it, and that it works in an environment of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
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
        if path.suffix in (".py", ".json", ".sql", ".toml") or path.name == "py.typed"
    }
    assert {name for name in names if ".dist-info/" not in name} == expected


# A table is published and asked by the commands and from Python; no path leads to the source.
SMOKE = """
import subprocess, sys
from pathlib import Path

import privsql, udfs

here = Path(sys.prefix)
assert all(here in Path(each.__file__).parents for each in (privsql, udfs)), privsql.__file__
Path("visits.csv").write_text("city,illness\\n" + "north,flu\\nsouth,none\\n" * 200)
Path("visits.toml").write_text(
    '[release]\\ntable = "visits"\\nsource = "visits.csv"\\n[columns.city]\\nrole = "public"\\n'
    '[columns.illness]\\nrole = "sensitive"\\nmechanism = "uniform"\\nretention = 0.5\\n'
    'domain = ["flu", "none"]\\n'
)
command = [str(Path(sys.executable).with_name("privsql"))]
subprocess.run([*command, "publish", "visits.toml", "-o", "a.duckdb"], check=True)
question = "SELECT COUNT(*) AS n FROM visits WHERE illness = 'flu'"
subprocess.run([*command, "query", "a.duckdb", question, "--format", "csv"], check=True)
privsql.publish("visits.csv", "b.duckdb", spec="visits.toml")
with privsql.connect("b.duckdb") as con:
    ((found,),) = con.execute(question).fetchall()
assert 50 < found < 350, found
print("works", privsql.__version__)
"""


def pythons() -> dict[str, str]:
    """Interpreters that can be found for the versions that are promised, by version."""
    promised = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found = {}
    for version in promised:
        named = [shutil.which(f"python{version}"), *pyenv.glob(f"versions/{version}.*/bin/python")]
        for each in filter(None, named):  # one of pyenv's may be there and not be switched on
            done = subprocess.run([each, "-c", "import venv"], capture_output=True)
            if done.returncode == 0:
                found[version] = str(each)
                break
    return found


def works(python: Path, folder: Path) -> None:
    """Run the smoke test with an interpreter, away from the source."""
    given = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    folder.mkdir()
    done = subprocess.run(
        [python, "-W", "error", "-c", SMOKE],
        capture_output=True, text=True, cwd=folder, env=given, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    version = re.search(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.M).group(1)
    assert done.stdout.endswith(f"works {version}\n")


def test_the_installed_wheel_works_in_an_environment_of_its_own(wheel, tmp_path):
    """Its dependencies are those of the tests: nothing is fetched."""
    venv.create(tmp_path / "env", symlinks=True)
    python = tmp_path / "env" / "bin" / "python"
    (site,) = (tmp_path / "env").glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    subprocess.run(
        [*PIP, "--python", python, "install", "--no-deps", "--ignore-installed", wheel],
        check=True,
        timeout=300,
    )
    works(python, tmp_path / "away")


@pytest.mark.soak
def test_the_wheel_installs_and_works_on_each_python_that_is_here(wheel, tmp_path):
    """With the dependencies that pip chooses."""
    found = pythons()
    assert f"{sys.version_info.major}.{sys.version_info.minor}" in found
    for version, interpreter in found.items():
        made = tmp_path / version
        subprocess.run([interpreter, "-m", "venv", made], check=True, timeout=300)
        subprocess.run(
            [made / "bin" / "python", *PIP[1:], "install", wheel], check=True, timeout=600
        )
        works(made / "bin" / "python", tmp_path / f"away-{version}")


def test_the_promised_systems_have_the_locks_that_are_used():
    """``flock`` is imported in one module, and no system is promised that lacks it."""
    users = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "privsql").rglob("*.py")
        if re.search(r"^\s*(import|from) (fcntl|msvcrt)", path.read_text(), re.M)
    }
    assert users == {"privsql/files.py"}
    systems = re.findall(r"Operating System :: ([^\"]+)", (ROOT / "pyproject.toml").read_text())
    assert systems == ["MacOS", "POSIX :: Linux"]


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
